#include "pool/conn/unpack.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include "pool/conn/kvpool.pb-c.h"

/* ---- counting ---- */

enum { VARINT, FIXED64, PREFIXED, FIXED32 = 5 }; /* wire types */

struct count {
	const uint8_t *p; /* the next byte */
	const struct pool_bound *b;
	uint32_t entries, nested;
};

/* max: as many bytes as the decoder accepts. */
static bool take_varint(struct count *c, const uint8_t *end, unsigned int max,
			uint64_t *ret)
{
	*ret = 0;
	for (unsigned int i = 0; i < max && c->p < end; i++) {
		*ret |= (uint64_t)(*c->p & 0x7f) << (7 * i);
		if (!(*c->p++ & 0x80))
			return true;
	}
	return false;
}

/* The value after a tag: sets its length, and c->p to its first byte. */
static bool take_value(struct count *c, const uint8_t *end, unsigned int wire,
		       uint64_t *ret_len)
{
	const uint8_t *at = c->p;
	uint64_t v;

	switch (wire) {
	case VARINT:
		if (!take_varint(c, end, 10, &v))
			return false;
		*ret_len = (uint64_t)(c->p - at);
		c->p = at;
		return true;
	case FIXED64:
		*ret_len = 8;
		break;
	case PREFIXED:
		if (!take_varint(c, end, 5, ret_len))
			return false;
		break;
	case FIXED32:
		*ret_len = 4;
		break;
	default:
		return false;
	}
	return *ret_len <= (uint64_t)(end - c->p);
}

/* Elements of a packed value, plus one for the value itself. */
static uint64_t packed(ProtobufCType type, const uint8_t *p, uint64_t len)
{
	uint64_t n = 0;

	switch (type) {
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_FLOAT:
		return len / 4 + 1;
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return len / 8 + 1;
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
	case PROTOBUF_C_TYPE_MESSAGE:
		return 1;
	default:
		for (uint64_t i = 0; i < len; i++)
			n += !(p[i] & 0x80);
		return n + 1;
	}
}

static bool add(uint32_t *count, uint64_t n, uint32_t max)
{
	*count = n > UINT32_MAX - *count ? UINT32_MAX : *count + (uint32_t)n;
	return *count <= max;
}

/* Count one message, up to `end`. The recursion is bounded by the schema, which
 * has no cycles. */
static int count_message(struct count *c, const uint8_t *end,
			 const ProtobufCMessageDescriptor *d, bool top)
{
	unsigned int once = 0;

	while (c->p < end) {
		const ProtobufCFieldDescriptor *f;
		uint64_t tag, len, n = 1;
		bool repeated, fits = true;
		int err = 0;

		if (!take_varint(c, end, 5, &tag) ||
		    !take_value(c, end, tag & 7, &len))
			return -EBADMSG;
		f = protobuf_c_message_descriptor_get_field(
			d, (unsigned int)(tag >> 3));
		repeated = f && f->label == PROTOBUF_C_LABEL_REPEATED;
		if (repeated && (tag & 7) == PREFIXED)
			n = packed(f->type, c->p, len);
		if (repeated && top)
			fits = add(&c->entries, n, c->b->entries);
		else if (repeated || ++once > d->n_fields)
			fits = add(&c->nested, n, c->b->nested);
		if (!fits)
			return -EMSGSIZE;
		if (f && f->type == PROTOBUF_C_TYPE_MESSAGE &&
		    (tag & 7) == PREFIXED)
			err = count_message(c, c->p + len, f->descriptor,
					    false);
		else
			c->p += len;
		if (err)
			return err;
	}
	return 0;
}

/* 0, or -errno and the reason. */
static int count_all(const struct pool_bound *b, const uint8_t *data,
		     size_t len, char why[POOL_UNPACK_WHY])
{
	struct count c = { .p = data, .b = b };
	int err;

	if (len > b->bytes) {
		snprintf(why, POOL_UNPACK_WHY, "has a payload of %zu bytes: at "
			 "most %u are accepted", len, b->bytes);
		return -EMSGSIZE;
	}
	err = count_message(&c, data + len, b->desc, true);
	if (err == -EBADMSG)
		snprintf(why, POOL_UNPACK_WHY, "does not decode: byte %zu of "
			 "%zu fits no field", (size_t)(c.p - data), len);
	else if (c.entries > b->entries)
		snprintf(why, POOL_UNPACK_WHY,
			 "has %u entries or more: at most "
			 "%u are accepted",
			 c.entries, b->entries);
	else if (err)
		snprintf(why, POOL_UNPACK_WHY,
			 "has %u nested, unknown or duplicate fields "
			 "or more: at most %u are accepted",
			 c.nested, b->nested);
	return err;
}

int pool_unpack(const struct pool_bound *b, const uint8_t *data, size_t len,
		ProtobufCMessage **ret_msg, char ret_why[POOL_UNPACK_WHY])
{
	char why[POOL_UNPACK_WHY];
	ProtobufCMessage *msg;
	int err = count_all(b, data, len, ret_why ? ret_why : why);

	if (err)
		return err;
	errno = 0; /* malloc sets ENOMEM; a malformed message sets nothing */
	msg = protobuf_c_message_unpack(b->desc, NULL, len, data);
	if (msg) {
		*ret_msg = msg;
		return 0;
	}
	err = errno == ENOMEM ? -ENOMEM : -EBADMSG;
	if (ret_why)
		snprintf(ret_why, POOL_UNPACK_WHY, "%s", err == -ENOMEM ?
			 "does not fit in the free memory" :
			 "does not decode: a field has the wrong type or form");
	return err;
}
