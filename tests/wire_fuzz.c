/*
 * Fuzz target: a frame header and, behind it, the payload of the message that
 * it names, decoded as a connection's receiver would.
 *
 *   clang -fsanitize=fuzzer,address ... tests/wire_fuzz.c pool/conn/wire.c \
 *	kvpool.pb-c.c -lprotobuf-c
 *
 * Besides not crashing: a decoded header encodes to the same bytes, and a
 * message that was unpacked packs into the size announced.
 */
#include <stdint.h>
#include <stdlib.h>

#include <protobuf-c/protobuf-c.h>

#include "pool/kvpool.pb-c.h"
#include "pool/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const ProtobufCMessageDescriptor *const messages[POOL_MSG_MAX] = {
	[POOL_MSG_JOIN] = &kvpool__join__descriptor,
	[POOL_MSG_WELCOME] = &kvpool__welcome__descriptor,
	[POOL_MSG_INVENTORY] = &kvpool__inventory__descriptor,
	[POOL_MSG_SUBSCRIBE] = &kvpool__subscribe__descriptor,
	[POOL_MSG_FEED] = &kvpool__feed__descriptor,
	[POOL_MSG_FEED_ACK] = &kvpool__feed_ack__descriptor,
	[POOL_MSG_OPS] = &kvpool__ops__descriptor,
	[POOL_MSG_OPS_DONE] = &kvpool__ops_done__descriptor,
	[POOL_MSG_EVICT] = &kvpool__evict__descriptor,
	[POOL_MSG_DROP] = &kvpool__drop__descriptor,
	[POOL_MSG_REPLICATE] = &kvpool__replicate__descriptor,
	[POOL_MSG_HELD] = &kvpool__held__descriptor,
	[POOL_MSG_SYNC] = &kvpool__sync__descriptor,
	[POOL_MSG_SYNCED] = &kvpool__sync__descriptor,
	[POOL_MSG_HEARTBEAT] = &kvpool__heartbeat__descriptor,
	[POOL_MSG_ERROR] = &kvpool__error__descriptor,
	[POOL_MSG_HELLO] = &kvpool__hello__descriptor,
	[POOL_MSG_GET] = &kvpool__get__descriptor,
	[POOL_MSG_LENT] = &kvpool__lent__descriptor,
	[POOL_MSG_RETURN] = &kvpool__key__descriptor,
	[POOL_MSG_RECALL] = &kvpool__key__descriptor,
	[POOL_MSG_LINK] = &kvpool__link__descriptor,
	[POOL_MSG_BUFFER] = &kvpool__buffer__descriptor,
};

static void require(int cond)
{
	if (!cond)
		abort();
}

static void check_header(const uint8_t *data, const struct pool_frame *f)
{
	uint8_t again[POOL_WIRE_HEADER];

	pool_frame_encode(f, again);
	for (int i = 0; i < POOL_WIRE_HEADER; i++)
		require(again[i] == data[i]);
}

/* The payload is copied to the heap at its exact size, so that a read beyond
 * it is seen. */
static void check_payload(const ProtobufCMessageDescriptor *d,
			  const uint8_t *data, size_t size)
{
	ProtobufCMessage *m = protobuf_c_message_unpack(d, NULL, size, data);
	size_t len;
	uint8_t *packed;

	if (!m)
		return;
	len = protobuf_c_message_get_packed_size(m);
	packed = malloc(len ? len : 1);
	require(packed && protobuf_c_message_pack(m, packed) == len);
	protobuf_c_message_free_unpacked(m, NULL);
	/* Not required to succeed: an unknown field may have the number 0, in
	 * a form that protobuf-c reads and does not write. */
	m = protobuf_c_message_unpack(d, NULL, len, packed);
	if (m)
		protobuf_c_message_free_unpacked(m, NULL);
	free(packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pool_frame f;

	if (size < POOL_WIRE_HEADER)
		return 0;
	if (pool_frame_decode(data, &f) == 0) {
		check_header(data, &f);
		require(pool_msg_name(f.type)[0] != 'u');
	} else {
		/* Most inputs: let the byte of the type choose all the same. */
		f.type = data[6] % POOL_MSG_MAX;
	}
	if (messages[f.type])
		check_payload(messages[f.type], data + POOL_WIRE_HEADER,
			      size - POOL_WIRE_HEADER);
	return 0;
}
