/* Unpacks a frame's payload; errors are logged with the peer's name. */
#include "pool/base/log.h"
#include "pool/conn/conn.h"
#include "pool/conn/unpack.h"

void *pool_frame_unpack(const struct pool_conn *c, const struct pool_frame *f,
			const uint8_t *payload, struct pool_counter *refused)
{
	char why[POOL_UNPACK_WHY];
	ProtobufCMessage *msg;

	if (!pool_unpack(pool_msg_bound(f->type), payload, f->payload_len, &msg,
			 why))
		return msg;
	pool_warn_limited("%s: its %s %s", pool_conn_peer_name(c),
			  pool_msg_name(f->type), why);
	if (refused)
		pool_count(refused);
	return NULL;
}
