/*
 * Fuzz target: a frame header and, behind it, the payload of the message that
 * it names, decoded as a connection's receiver would.
 *
 *   clang -fsanitize=fuzzer,address ... tests/fuzz/wire_fuzz.c \
 *	pool/conn/wire.c pool/conn/unpack.c kvpool.pb-c.c -lprotobuf-c ...
 *
 * Besides not crashing: a decoded header encodes to the same bytes, and a
 * message that was unpacked packs into the size announced and has no more
 * entries, and fields in and beside them, than the bounds of its type.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pool/conn/unpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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

/* What an unpacked message really has, by its descriptor. */
struct found {
	uint64_t entries, nested;
};

static void look(const ProtobufCMessage *m, bool top, struct found *ret);

static void look_field(const ProtobufCMessage *m,
		       const ProtobufCFieldDescriptor *f, bool top,
		       struct found *ret)
{
	const uint8_t *at = (const uint8_t *)m + f->offset;
	size_t n = 1;

	if (f->label == PROTOBUF_C_LABEL_REPEATED) {
		memcpy(&n, (const uint8_t *)m + f->quantifier_offset,
		       sizeof(n));
		*(top ? &ret->entries : &ret->nested) += n;
		memcpy(&at, at, sizeof(at));
	}
	if (f->type != PROTOBUF_C_TYPE_MESSAGE)
		return;
	for (size_t i = 0; i < n; i++) {
		const ProtobufCMessage *sub;

		memcpy(&sub, at + i * sizeof(sub), sizeof(sub));
		if (sub)
			look(sub, false, ret);
	}
}

static void look(const ProtobufCMessage *m, bool top, struct found *ret)
{
	unsigned int known = m->descriptor->n_fields;

	if (m->n_unknown_fields > known)
		ret->nested += m->n_unknown_fields - known;
	for (unsigned int i = 0; i < known; i++)
		look_field(m, &m->descriptor->fields[i], top, ret);
}

static void check_packing(const ProtobufCMessage *m)
{
	size_t len = protobuf_c_message_get_packed_size(m);
	uint8_t *packed = malloc(len ? len : 1);

	require(packed && protobuf_c_message_pack(m, packed) == len);
	/* Not required to succeed: an unknown field may have the number 0, in
	 * a form that protobuf-c reads and does not write. */
	protobuf_c_message_free_unpacked(
		protobuf_c_message_unpack(m->descriptor, NULL, len, packed),
		NULL);
	free(packed);
}

/* The payload is copied to the heap at its exact size, so that a read beyond
 * it is seen. */
static void check_payload(const struct pool_bound *b, const uint8_t *data,
			  size_t size)
{
	char why[POOL_UNPACK_WHY] = "";
	struct found found = { 0 };
	ProtobufCMessage *m;
	int err = pool_unpack(b, data, size, &m, why);

	require(err == 0 || err == -EMSGSIZE || err == -EBADMSG);
	require((err != 0) == (strlen(why) > 0));
	if (err)
		return;
	require(size <= b->bytes);
	look(m, true, &found);
	require(found.entries <= b->entries && found.nested <= b->nested);
	check_packing(m);
	protobuf_c_message_free_unpacked(m, NULL);
}

/* The same within so little that inputs of this size reach it. */
static void check_tight(const struct pool_bound *b, const uint8_t *data,
			size_t size)
{
	struct pool_bound tight = { b->desc, 512, 3, 5, 0, NULL };

	check_payload(&tight, data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct pool_bound *b;
	struct pool_frame f;

	if (size < POOL_WIRE_HEADER)
		return 0;
	if (pool_frame_decode(data, &f) == 0) {
		check_header(data, &f);
		require(f.payload_len <= pool_msg_bound(f.type)->bytes);
		require(pool_msg_name(f.type)[0] != 'u');
	} else {
		/* Most inputs: let the byte of the type choose all the same. */
		f.type = data[6] % POOL_MSG_MAX;
	}
	b = pool_msg_bound(f.type);
	if (!b->desc)
		return 0;
	check_payload(b, data + POOL_WIRE_HEADER, size - POOL_WIRE_HEADER);
	check_tight(b, data + POOL_WIRE_HEADER, size - POOL_WIRE_HEADER);
	return 0;
}
