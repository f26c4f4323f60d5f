#include "pool/conn/unpack.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include "pool/base/log.h"
#include "pool/conn/conn.h"
#include "pool/conn/kvpool.pb-c.h"

#define SMALL 4096u	    /* numbers, a node's description, a text */
#define PATH 8192u	    /* one path, and numbers */
#define BATCH (1u << 20)    /* four times what batches aim at */
#define RESULTS (8u * POOL_BATCH_MAX) /* that a node may have lost */
#define OTHERS 16u	    /* fields that only a neighbour version knows */
#define NODES 4096u	    /* descriptions of nodes */
#define XATTRS (64u << 10)  /* of the files in a batch */
#define HOLDERS (192u << 10) /* and their holders */

#define MSG(type, name, bytes, entries, nested) \
	[POOL_MSG_##type] = { &kvpool__##name##__descriptor, bytes, entries, \
			      nested }

static const struct pool_bound bounds[POOL_MSG_MAX] = {
	MSG(JOIN, join, SMALL, 0, OTHERS),
	MSG(WELCOME, welcome, BATCH, RESULTS, RESULTS),
	MSG(INVENTORY, inventory, BATCH, POOL_BATCH_MAX, XATTRS),
	MSG(SUBSCRIBE, subscribe, SMALL, 0, OTHERS),
	MSG(FEED, feed, POOL_PAYLOAD_MAX, POOL_BATCH_MAX + NODES, HOLDERS),
	MSG(FEED_ACK, feed_ack, SMALL, 0, OTHERS),
	MSG(OPS, ops, BATCH, POOL_BATCH_MAX, XATTRS),
	MSG(OPS_DONE, ops_done, BATCH, POOL_BATCH_MAX, POOL_BATCH_MAX),
	MSG(EVICT, evict, POOL_PAYLOAD_MAX, POOL_BATCH_MAX, POOL_BATCH_MAX),
	MSG(DROP, drop, BATCH, POOL_BATCH_MAX, POOL_BATCH_MAX),
	MSG(REPLICATE, replicate, BATCH, POOL_BATCH_MAX + NODES, XATTRS),
	MSG(HELD, held, BATCH, POOL_BATCH_MAX, POOL_BATCH_MAX),
	MSG(SYNC, sync, SMALL, 0, OTHERS),
	MSG(SYNCED, sync, SMALL, 0, OTHERS),
	MSG(HEARTBEAT, heartbeat, BATCH, POOL_BATCH_MAX, POOL_BATCH_MAX),
	MSG(ERROR, error, SMALL, 0, OTHERS),
	MSG(HELLO, hello, SMALL, 0, OTHERS),
	MSG(GET, get, PATH, 0, OTHERS),
	[POOL_MSG_DATA] = { NULL, SMALL, 0, 0 },
	MSG(LENT, lent, SMALL, 0, OTHERS),
	MSG(RETURN, key, PATH, 0, OTHERS),
	MSG(RECALL, key, PATH, 0, OTHERS),
	MSG(DOUBT, key, PATH, 0, OTHERS),
	MSG(LINK, link, PATH, 0, OTHERS),
	MSG(BUFFER, buffer, SMALL, 0, OTHERS),
};

const struct pool_bound pool_kept_bound = {
	&kvpool__meta__descriptor, 32768, 2048, 2048
};

const struct pool_bound *pool_msg_bound(uint16_t type)
{
	static const struct pool_bound unknown = { NULL, POOL_PAYLOAD_MAX, 0,
						   0 };

	return pool_msg_known(type) ? &bounds[type] : &unknown;
}

/* ---- counting ---- */

enum { VARINT, FIXED64, PREFIXED, FIXED32 = 5 }; /* wire types */

struct count {
	const uint8_t *p; /* the next byte */
	const struct pool_bound *b;
	uint32_t entries, nested;
};

/* At most `max` bytes of it, as the decoder takes them. */
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

/* The value behind a tag: its length, and c->p at its beginning. */
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

/* Elements of a packed value, which takes a place itself. */
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

/* One message, up to `end`. Its depth is the schema's, which has no cycles. */
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

/* 0, or -errno and why. */
static int count_all(const struct pool_bound *b, const uint8_t *data, size_t len,
		     char why[POOL_UNPACK_WHY])
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
		snprintf(why, POOL_UNPACK_WHY, "has %u entries or more: at most "
			 "%u are accepted", c.entries, b->entries);
	else if (err)
		snprintf(why, POOL_UNPACK_WHY, "has %u fields below its entries, "
			 "or unknown, or more: at most %u are accepted",
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
	errno = 0; /* an unpack says only that it failed */
	msg = protobuf_c_message_unpack(b->desc, NULL, len, data);
	if (msg) {
		*ret_msg = msg;
		return 0;
	}
	err = errno == ENOMEM ? -ENOMEM : -EBADMSG;
	if (ret_why)
		snprintf(ret_why, POOL_UNPACK_WHY, "%s", err == -ENOMEM ?
			 "needs memory that there is not" :
			 "does not decode: a field is not what it should be");
	return err;
}

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
