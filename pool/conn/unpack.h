/*
 * Unpacking of messages within bounds: limits on the bytes and on the elements
 * of repeated fields that a message may have. They are counted in the packed
 * bytes before unpacking, because an element of two bytes on the wire can take
 * some hundred bytes in memory, and an unknown field not much less.
 *
 * All input from outside the process is unpacked here: frames, hand-over
 * records, metadata stored with objects, a master's state file, etcd. Senders
 * of this and the neighbour versions stay below the bounds. A new field needs a
 * change of the bounds in msg.c only if it is repeated, or holds more bytes
 * than its message's bound allows.
 *
 * Thread: any, no state.
 */
#ifndef POOL_CONN_UNPACK_H
#define POOL_CONN_UNPACK_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/base/metric.h"
#include "pool/conn/wire.h"
#include "pool/tls/tls_id.h"

struct pool_conn;

struct pool_bound {
	const ProtobufCMessageDescriptor *desc; /* NULL: it has no fields */
	uint32_t bytes;
	/* sum of the elements of the message's own repeated fields */
	uint32_t entries;
	/* elements of repeated fields in nested messages, plus surplus fields.
	 * A message whose schema has n fields may have n that are not repeated;
	 * more of them (unknown ones, or one field several times) are surplus.
	 */
	uint32_t nested;
	/* Frames: POOL_ROLE_BITs of the roles that may send it, where peers
	 * have certificates. */
	unsigned int from;
	const char *name; /* of the message, as in logs; NULL: unknown */
};

/* Bound of a frame's payload by its type. For unknown types, which a newer
 * version may send, only .bytes is of use. */
const struct pool_bound *pool_msg_bound(uint16_t type);
/* Bound of a Meta stored with an object or in a master's state. */
extern const struct pool_bound pool_kept_bound;

#define POOL_UNPACK_WHY 128 /* bytes of text */
/*
 * 0 and a message to be freed with protobuf_c_message_free_unpacked; -EMSGSIZE
 * (beyond a bound), -EBADMSG (malformed), -ENOMEM. On an error ret_why (may be
 * NULL) receives the reason, to be printed after the message's name: "has a
 * payload of 9000 bytes: at most 8192 are accepted".
 */
int pool_unpack(const struct pool_bound *b, const uint8_t *data, size_t len,
		ProtobufCMessage **ret_msg, char ret_why[POOL_UNPACK_WHY]);
/*
 * Unpack the payload of a frame received on c. NULL on error, which is logged
 * and counted in `refused` (may be NULL).
 */
void *pool_frame_unpack(const struct pool_conn *c, const struct pool_frame *f,
			const uint8_t *payload, struct pool_counter *refused);

#endif
