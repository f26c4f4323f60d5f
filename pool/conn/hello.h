/*
 * HELLO: the first message, in both directions, of every connection between
 * nodes. The dialler checks that the answer comes from the node it meant to
 * dial, because the address may belong to another node by now.
 *
 * Thread: any.
 */
#ifndef POOL_CONN_HELLO_H
#define POOL_CONN_HELLO_H

#include <stdbool.h>
#include <string.h>

#include "pool/conn/conn.h"
#include "pool/conn/kvpool.pb-c.h"
#include "pool/conn/peer_addr.h"
#include "pool/conn/wire.h"

/* HELLO of node `id` (borrowed by *ret). lane 0: a control connection, which
 * is never plain. */
static inline void pool_hello_init(Kvpool__Hello *ret,
				   const uint8_t id[POOL_ID_SIZE],
				   uint32_t lane, bool plain)
{
	kvpool__hello__init(ret);
	ret->version = pool_wire_version;
	ret->id.data = (uint8_t *)(uintptr_t)id;
	ret->id.len = POOL_ID_SIZE;
	ret->lane = lane;
	ret->plain = plain;
}

/* 0 or -errno, as pool_conn_send. */
static inline int pool_hello_send(struct pool_conn *c,
				  const uint8_t id[POOL_ID_SIZE], uint32_t lane,
				  bool plain)
{
	Kvpool__Hello hello;

	pool_hello_init(&hello, id, lane, plain);
	return pool_conn_send(c, POOL_MSG_HELLO, 0, &hello.base);
}

static inline bool pool_hello_is_from(const Kvpool__Hello *h,
				      const uint8_t id[POOL_ID_SIZE])
{
	return h->id.len == POOL_ID_SIZE &&
	       memcmp(h->id.data, id, POOL_ID_SIZE) == 0;
}

#endif
