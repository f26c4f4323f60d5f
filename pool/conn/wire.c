#include "pool/conn/wire.h"

#include <errno.h>
#include <stdio.h>

#include "pool/conn/unpack.h"

#ifndef POOL_WIRE_AHEAD
#define POOL_WIRE_AHEAD 0 /* tests build future versions */
#endif
const uint16_t pool_wire_version = POOL_WIRE_VERSION + POOL_WIRE_AHEAD;

bool pool_wire_speaks(uint32_t version)
{
	return version > 0 && version + 1ull >= pool_wire_version &&
	       version <= pool_wire_version + 1u;
}

void pool_wire_refusal(uint32_t version, char ret_text[POOL_WIRE_REFUSAL])
{
	unsigned int own = pool_wire_version, before = own - 1;

	snprintf(ret_text, POOL_WIRE_REFUSAL,
		 before ? "it speaks version %u of the protocol, this program "
			  "version %u (and %u, %u)" :
			  "it speaks version %u of the protocol, this program "
			  "version %u (and %u)",
		 version, own, own + 1, before);
}

void pool_wire_program(char ret_text[POOL_PROGRAM_SIZE], const char *from)
{
	snprintf(ret_text, POOL_PROGRAM_SIZE, "%s", from);
	for (char *p = ret_text; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
}

/* Byte by byte: independent of the host's order; compiles to one move. */
static void put_le(uint8_t *p, uint64_t v, unsigned int bytes)
{
	for (unsigned int i = 0; i < bytes; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get_le(const uint8_t *p, unsigned int bytes)
{
	uint64_t v = 0;

	for (unsigned int i = 0; i < bytes; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

void pool_frame_encode(const struct pool_frame *f,
		       uint8_t out[POOL_WIRE_HEADER])
{
	put_le(out, POOL_WIRE_MAGIC, 4);
	put_le(out + 4, f->version, 2);
	put_le(out + 6, f->type, 2);
	put_le(out + 8, f->payload_len, 4);
	put_le(out + 12, f->flags, 4);
	put_le(out + 16, f->req, 8);
	put_le(out + 24, f->bulk_len, 8);
}

int pool_frame_decode(const uint8_t in[POOL_WIRE_HEADER],
		      struct pool_frame *ret_frame)
{
	struct pool_frame f = {
		.version = (uint16_t)get_le(in + 4, 2),
		.type = (uint16_t)get_le(in + 6, 2),
		.payload_len = (uint32_t)get_le(in + 8, 4),
		.flags = (uint32_t)get_le(in + 12, 4),
		.req = get_le(in + 16, 8),
		.bulk_len = get_le(in + 24, 8),
	};

	if (get_le(in, 4) != POOL_WIRE_MAGIC)
		return -EPROTO;
	/* First: in another version types and flags may differ. */
	if (!pool_wire_speaks(f.version)) {
		ret_frame->version = f.version;
		return -EPROTONOSUPPORT;
	}
	if (f.flags != 0 ||
	    (!pool_msg_known(f.type) && f.version <= pool_wire_version))
		return -EPROTO;
	*ret_frame = f;
	return f.payload_len > pool_msg_bound(f.type)->bytes ||
			       f.bulk_len > POOL_BULK_MAX ?
		       -EMSGSIZE : 0;
}
