/*
 * Frames: the unit of transmission on every KVPool connection.
 *
 *   32-byte header (little endian) | payload (protobuf) | bulk bytes
 *
 *    0  u32 magic "KVP1"      8  u32 payload_len     16  u64 req
 *    4  u16 version           12 u32 flags           24  u64 bulk_len
 *    6  u16 type
 *
 * Versions: a change of a message's meaning raises the version. Adjacent
 * versions interoperate, so that a pool can be upgraded one daemon at a time.
 * The first frame of each side carries the sender's own version (and so do the
 * payloads of JOIN, WELCOME and HELLO). Later frames carry the lower of the
 * two, which both sides use from then on (pool_conn_version): the newer side
 * sends nothing that the older one does not know. A version that differs from
 * ours by more than one is refused, and both sides log both versions. Unknown
 * fields from a newer neighbour are ignored by the protobuf decoder, unknown
 * message types by the connection.
 *
 * Thread: any, no state. Everything from the wire is validated here or by the
 * protobuf decoder before it is used.
 */
#ifndef POOL_CONN_WIRE_H
#define POOL_CONN_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POOL_WIRE_MAGIC 0x3150564bu
/* Of this source; see pool_wire_version. 1: release 0.1.0; 2: 0.2.0, which is
 * not released yet: until then, new types and fields belong to 2. */
#define POOL_WIRE_VERSION 2
#define POOL_WIRE_HEADER 32
/* Bytes of protobuf in one frame; most types may have fewer
 * (pool/conn/unpack.h). */
#define POOL_PAYLOAD_MAX (4u << 20)
#define POOL_BULK_MAX (1ull << 40)    /* bytes of bulk in one frame */
#define POOL_BATCH_MAX 1024	      /* items in one message */
#define POOL_ASKED_WINDOWS 3
#define POOL_ASKED_DIRS 64
/* Bytes loaded of all directories of a node in a window: the sum of all nodes
 * is a JSON integer. */
#define POOL_ASKED_LOADED_MAX (1ull << 52)
#define POOL_OPS_QUANTUM 256 /* changes of a node in one OPS; then the node may
				have to wait (master/members.h) */
/* The cost of those of them that change the master's state (all but PUBLISH):
 * each 1, and 1 for each POOL_OPS_STATE_UNIT bytes of names and attributes. A
 * mount is sent no change, and so delays all fsyncs, while a message of its own
 * is executed, which with etcd is done in parts of this cost. */
#define POOL_OPS_STATE 12
#define POOL_OPS_STATE_UNIT 1024
/* Senders of batches start a new message beyond this payload size (a path alone
 * may take 4 KiB). */
#define POOL_BATCH_BYTES (256u << 10)
#define POOL_XATTRS_MAX 4096 /* bytes of a file's xattrs, names and values */

enum pool_msg {
	POOL_MSG_JOIN = 1,
	POOL_MSG_WELCOME,
	POOL_MSG_INVENTORY,
	POOL_MSG_SUBSCRIBE,
	POOL_MSG_FEED,
	POOL_MSG_FEED_ACK,
	POOL_MSG_OPS,
	POOL_MSG_OPS_DONE,
	POOL_MSG_EVICT,
	POOL_MSG_DROP,
	POOL_MSG_REPLICATE,
	POOL_MSG_HELD,
	POOL_MSG_SYNC,
	POOL_MSG_SYNCED,
	POOL_MSG_HEARTBEAT,
	POOL_MSG_ERROR,
	POOL_MSG_HELLO = 32,
	POOL_MSG_GET,
	POOL_MSG_DATA,
	POOL_MSG_LENT,
	POOL_MSG_RETURN,
	POOL_MSG_RECALL,
	POOL_MSG_DOUBT,	 /* since version 2 */
	POOL_MSG_LINK,	 /* since version 2 */
	POOL_MSG_BUFFER, /* since version 2 */
	POOL_MSG_MAX,
};

/* The first version with DOUBT, and that with LINK and BUFFER. */
#define POOL_WIRE_DOUBT 2u
#define POOL_WIRE_LINK 2u

/* Op.set */
#define POOL_SET_MODE 1u
#define POOL_SET_UID 2u
#define POOL_SET_GID 4u
#define POOL_SET_MTIME 8u
#define POOL_SET_XATTRS 16u /* replaces the whole set */
#define POOL_SET_XATTR_EACH 32u /* sets each of meta.xattrs, removes Op.remove,
				   keeps the others; since version 2 */

struct pool_frame {
	uint16_t version;
	uint16_t type; /* enum pool_msg */
	uint32_t flags; /* none defined: 0 */
	uint32_t payload_len;
	uint64_t req; /* matches answers to requests; 0 if there is none */
	uint64_t bulk_len;
};

void pool_frame_encode(const struct pool_frame *f,
		       uint8_t out[POOL_WIRE_HEADER]);
/*
 * 0, or
 *   -EPROTO           unknown magic, type or flags. Unknown types of a newer
 *                     version pass; unknown flags never do, because a flag may
 *                     change the meaning of the rest
 *   -EMSGSIZE         a length is beyond its limit; *ret_frame is set
 *   -EPROTONOSUPPORT  a version more than one from ours; only
 *                     ret_frame->version is set
 */
int pool_frame_decode(const uint8_t in[POOL_WIRE_HEADER],
		      struct pool_frame *ret_frame);
bool pool_msg_known(uint16_t type);
const char *pool_msg_name(uint16_t type);

/* This program's version: POOL_WIRE_VERSION, except in programs that tests
 * build as future versions. */
extern const uint16_t pool_wire_version;
/* Is version ours or adjacent to it? */
bool pool_wire_speaks(uint32_t version);
#define POOL_WIRE_REFUSAL 96
/* "it speaks version 3 of the protocol, this program version 1 (and 2)". */
void pool_wire_refusal(uint32_t version, char ret_text[POOL_WIRE_REFUSAL]);

#define POOL_PROGRAM_SIZE 48
/* The version of a peer's program, cut to size; bytes that are not printable
 * ASCII become '?'. */
void pool_wire_program(char ret_text[POOL_PROGRAM_SIZE], const char *from);

/* A generation: the master's epoch, then this many bits of sequence number. */
#define POOL_GEN_SEQ_BITS 40
static inline uint64_t pool_gen_epoch(uint64_t gen)
{
	return gen >> POOL_GEN_SEQ_BITS;
}

#endif
