/*
 * What makes a program of these sources one of the next version of the wire,
 * for tests/it/it_versions.sh: linked in (with pool/conn/wire.c compiled anew,
 * its version raised), it lets every message carry a field that this version
 * does not know (in what is kept with objects, too), and sends messages of an
 * unknown type to whom it does not know to be older.
 *
 * Thread: any, no state.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pool/conn/conn.h"

#define UNKNOWN_TYPE 0x7777
/* Field 1000, length-delimited, "next". */
static const uint8_t field[] = { 0xc2, 0x3e, 4, 'n', 'e', 'x', 't' };

/* ---- a field more (--wrap) ---- */

size_t __real_protobuf_c_message_get_packed_size(const ProtobufCMessage *msg);
size_t __wrap_protobuf_c_message_get_packed_size(const ProtobufCMessage *msg);
size_t __real_protobuf_c_message_pack(const ProtobufCMessage *msg,
				      uint8_t *out);
size_t __wrap_protobuf_c_message_pack(const ProtobufCMessage *msg,
				      uint8_t *out);

size_t __wrap_protobuf_c_message_get_packed_size(const ProtobufCMessage *msg)
{
	return __real_protobuf_c_message_get_packed_size(msg) + sizeof(field);
}

size_t __wrap_protobuf_c_message_pack(const ProtobufCMessage *msg,
				      uint8_t *out)
{
	size_t len = __real_protobuf_c_message_pack(msg, out);

	memcpy(out + len, field, sizeof(field));
	return len + sizeof(field);
}

/* ---- a message more ---- */

int __real_pool_frame_decode(const uint8_t in[POOL_WIRE_HEADER],
			     struct pool_frame *ret_frame);
int __wrap_pool_frame_decode(const uint8_t in[POOL_WIRE_HEADER],
			     struct pool_frame *ret_frame);

/* Those of the next versions do not know the unknown message either. */
int __wrap_pool_frame_decode(const uint8_t in[POOL_WIRE_HEADER],
			     struct pool_frame *ret_frame)
{
	uint8_t copy[POOL_WIRE_HEADER], version = in[4];
	int err;

	memcpy(copy, in, sizeof(copy));
	if (in[6] == (UNKNOWN_TYPE & 0xff) && in[7] == UNKNOWN_TYPE >> 8 &&
	    pool_wire_speaks(version))
		copy[4] = (uint8_t)(pool_wire_version + 1);
	err = __real_pool_frame_decode(copy, ret_frame);
	if (!err)
		ret_frame->version = version;
	return err;
}

int __real_pool_conn_send(struct pool_conn *c, uint16_t type, uint64_t req,
			  const ProtobufCMessage *msg);
int __wrap_pool_conn_send(struct pool_conn *c, uint16_t type, uint64_t req,
			  const ProtobufCMessage *msg);

/* With a descriptor where one can ride. */
static void send_unknown(struct pool_conn *c, const ProtobufCMessage *msg)
{
	int fd = memfd_create("unknown", MFD_CLOEXEC);

	if (pool_conn_send_fd(c, UNKNOWN_TYPE, 1, msg, fd))
		(void)__real_pool_conn_send(c, UNKNOWN_TYPE, 1, msg);
	close(fd);
}

int __wrap_pool_conn_send(struct pool_conn *c, uint16_t type, uint64_t req,
			  const ProtobufCMessage *msg)
{
	uint16_t both = pool_conn_version(c);

	if (both == 0 || both == pool_wire_version)
		send_unknown(c, msg);
	return __real_pool_conn_send(c, type, req, msg);
}
