/*
 * The state that an old daemon passes to the new one in a take-over: a sequence
 * of records (messages of pool/conn/kvpool.proto) in shared memory, and an
 * array of descriptors. The old daemon writes and sends them; the new one reads
 * the records in the same order. A record comes after those that it refers to:
 *
 *   NODE  NAME*  OPS*  FS  INODE*  OPEN*  [BY_ID]  END
 *
 *   each record: u32 type | u32 length | payload
 *
 * The two programs may be of neighbour versions: unknown fields are ignored.
 * State that the new program must understand goes into a record of a new type,
 * which an older program refuses.
 *
 * Thread: main; no other thread of either process runs meanwhile.
 */
#ifndef POOL_CONN_HANDOVER_H
#define POOL_CONN_HANDOVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <protobuf-c/protobuf-c.h>

#define POOL_HANDOVER_FDS_MAX 65536

enum pool_handover_type {
	POOL_HANDOVER_END = 1,
	POOL_HANDOVER_NODE,
	POOL_HANDOVER_NAME,
	POOL_HANDOVER_OPS,
	POOL_HANDOVER_FS,
	POOL_HANDOVER_INODE,
	POOL_HANDOVER_OPEN,
	POOL_HANDOVER_BY_ID, /* some files have no descriptor here: the new
				process opens them by their store ids */
};

/* Index of the descriptors that every hand-over has. */
enum pool_handover_fd {
	POOL_HANDOVER_FD_RECORDS, /* memfd with the records */
	POOL_HANDOVER_FD_STORE,	  /* the store's lock */
	POOL_HANDOVER_FD_PEERS,	  /* listening socket: TCP */
	POOL_HANDOVER_FD_LOCAL,	  /* listening socket: Unix (or /dev/null) */
	POOL_HANDOVER_FD_ADMIN,	  /* listening socket: HTTP */
	POOL_HANDOVER_FD_FUSE,	  /* /dev/fuse */
	POOL_HANDOVER_FD_TAKEOVER, /* the socket for the next take-over */
	POOL_HANDOVER_FD_MORE,	  /* first index of all others */
};

struct pool_handover {
	/* Owns the array. Writer: borrows the descriptors until sent. Reader:
	 * owns those not taken yet; taken ones are -1. */
	int *fds;
	unsigned int nfds, fds_cap;
	FILE *out;	  /* writing */
	const uint8_t *in; /* reading; owns the mapping */
	size_t in_len, at;
	int err; /* writing: the first error */
	bool by_id; /* writing: a BY_ID record must be written */
};

/* ---- writing ---- */

/* 0 or -errno. */
int pool_handover_create(struct pool_handover *h);
/* Errors are reported by pool_handover_finish. */
void pool_handover_put(struct pool_handover *h, enum pool_handover_type type,
		       const ProtobufCMessage *msg);
/* Add a descriptor under a fixed index, or under the next free one, which is
 * returned (0: an error, which pool_handover_finish reports). */
void pool_handover_set_fd(struct pool_handover *h, enum pool_handover_fd which,
			  int fd);
unsigned int pool_handover_add_fd(struct pool_handover *h, int fd);
/* Write END. 0, or -errno: the first error of any of the above. */
int pool_handover_finish(struct pool_handover *h);

/* ---- reading ---- */

/* Map the records; the caller has filled h->fds. 0 or -errno. */
int pool_handover_open(struct pool_handover *h);
/*
 * The next record, if it has this type: 0 and a message to be freed with
 * protobuf_c_message_free_unpacked (none if d is NULL). -ENOENT: it has another
 * type and stays the next; -EBADMSG: malformed, logged; -ENOMEM.
 */
int pool_handover_get(struct pool_handover *h, enum pool_handover_type type,
		      const ProtobufCMessageDescriptor *d,
		      ProtobufCMessage **ret_msg);
/*
 * Calls get(arg, h, message) for each next record of this type. 0, or -errno of
 * pool_handover_get or of get, which ends it.
 */
int pool_handover_each(struct pool_handover *h, enum pool_handover_type type,
		       const ProtobufCMessageDescriptor *d,
		       int (*get)(void *arg, struct pool_handover *h,
				  const void *msg),
		       void *arg);
/* Move a descriptor to the caller: >= 0, or -EBADF. */
int pool_handover_take_fd(struct pool_handover *h, unsigned int index);

/* Free the records and the array; a reader also closes descriptors that were
 * not taken. */
void pool_handover_close(struct pool_handover *h);

#endif
