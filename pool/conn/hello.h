/*
 * What a node, or a thread of libkvpool, sends when it asks another node for
 * bytes: HELLO, the first message, in both directions, of every connection
 * between nodes; and GET. The dialler checks that HELLO's answer comes from the
 * node it meant to dial, because the address may belong to another node by now.
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
#include "pool/conn/unpack.h"
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

/* The HELLO that f must be, to be freed by the caller; NULL: it is another
 * message, or invalid, which is logged and counted in `refused` (may be
 * NULL). */
static inline Kvpool__Hello *pool_hello_unpack(const struct pool_conn *c,
					       const struct pool_frame *f,
					       const uint8_t *payload,
					       struct pool_counter *refused)
{
	Kvpool__Hello *hello;

	if (f->type != POOL_MSG_HELLO)
		return NULL;
	hello = pool_frame_unpack(c, f, payload, refused);
	if (!hello || hello->id.len == POOL_ID_SIZE)
		return hello;
	kvpool__hello__free_unpacked(hello, NULL);
	return NULL;
}

/* GET of the range [offset, offset + length) of version gen at path (borrowed
 * by *ret), answered on the same connection (lane 0) or on that lane. */
static inline void pool_get_init(Kvpool__Get *ret, const char *path,
				 size_t path_len, uint64_t gen,
				 uint64_t offset, uint64_t length,
				 uint32_t lane)
{
	kvpool__get__init(ret);
	ret->path.data = (uint8_t *)(uintptr_t)path;
	ret->path.len = path_len;
	ret->gen = gen;
	ret->offset = offset;
	ret->length = length;
	ret->lane = lane;
}

#endif
