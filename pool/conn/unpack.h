/*
 * Messages from outside, unpacked within bounds: how many bytes, and how many
 * elements of repeated fields, a message may have. A walk over its bytes counts
 * them first: an element takes two bytes on the wire and up to some hundred in
 * memory, a field that nobody knows little less.
 *
 * Whatever is not said by this process itself goes through here: frames, the
 * records of a hand-over, what was kept with objects, by a master, in etcd. The
 * bounds are what senders of this and the neighbour versions keep to, and more.
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

struct pool_conn;

struct pool_bound {
	const ProtobufCMessageDescriptor *desc; /* NULL: it has no fields */
	uint32_t bytes;
	/* elements of its own repeated fields, all together */
	uint32_t entries;
	/* those of the messages in it; and, of it and of these, fields
	 * beyond one for each that is known: unknown ones, and what is said
	 * again */
	uint32_t nested;
};

/* Of a frame's payload, by its type (pool_msg_known); .bytes of others is that
 * of what a newer neighbour may send. */
const struct pool_bound *pool_msg_bound(uint16_t type);
/* What is kept with an object, and in a master's state: a Meta. */
extern const struct pool_bound pool_kept_bound;

#define POOL_UNPACK_WHY 128 /* bytes of text */
/*
 * 0 and a message to be freed with protobuf_c_message_free_unpacked; -EMSGSIZE
 * (beyond a bound), -EBADMSG (it does not decode), -ENOMEM. ret_why (may be
 * NULL) then says what is wrong, what was given and what is accepted, fit to
 * follow a name: "has a payload of 9000 bytes: at most 8192 are accepted".
 */
int pool_unpack(const struct pool_bound *b, const uint8_t *data, size_t len,
		ProtobufCMessage **ret_msg, char ret_why[POOL_UNPACK_WHY]);
/*
 * The message of a frame that came by c; NULL: logged, and counted in `refused`
 * (may be NULL).
 */
void *pool_frame_unpack(const struct pool_conn *c, const struct pool_frame *f,
			const uint8_t *payload, struct pool_counter *refused);

#endif
