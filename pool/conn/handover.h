/*
 * What a daemon hands to the one that takes over from it: a sequence of
 * records (messages of pool/conn/kvpool.proto) in memory that both can see, and
 * descriptors. Who hands over fills one and sends it; who takes over reads it
 * in the same order. Names first, then what refers to them:
 *
 *   NODE  NAME*  OPS*  FS  INODE*  OPEN*  [BY_ID]  END
 *
 *   u32 type | u32 length | payload
 *
 * Both programs may be of neighbour versions: unknown fields are ignored, and
 * what a newer one cannot do without it says in a record of a new type, which
 * an older one refuses.
 *
 * Thread: main (nothing else runs meanwhile in either process).
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
	POOL_HANDOVER_BY_ID, /* some files come without a descriptor: they are
				to be opened by their store ids */
};

/* Descriptors that are always there, by index. */
enum pool_handover_fd {
	POOL_HANDOVER_FD_RECORDS, /* the memory itself */
	POOL_HANDOVER_FD_STORE,	  /* the store's lock */
	POOL_HANDOVER_FD_PEERS,	  /* listening sockets: TCP, ... */
	POOL_HANDOVER_FD_LOCAL,	  /* ... Unix (or /dev/null), ... */
	POOL_HANDOVER_FD_ADMIN,	  /* ... HTTP */
	POOL_HANDOVER_FD_FUSE,	  /* /dev/fuse */
	POOL_HANDOVER_FD_TAKEOVER, /* the socket for the next take-over */
	POOL_HANDOVER_FD_MORE,	  /* the first of the others */
};

struct pool_handover {
	/* The writer's: borrowed until it is sent. The reader's: owned until
	 * taken (-1 then). */
	int *fds; /* owns */
	unsigned int nfds, fds_cap;
	FILE *out;	  /* writing */
	const uint8_t *in; /* reading; owns the mapping */
	size_t in_len, at;
	int err; /* of writing: the first */
	bool by_id; /* writing: POOL_HANDOVER_BY_ID is to be said */
};

/* ---- writing ---- */

/* 0 or -errno. */
int pool_handover_create(struct pool_handover *h);
/* Errors are kept for pool_handover_finish. */
void pool_handover_put(struct pool_handover *h, enum pool_handover_type type,
		       const ProtobufCMessage *msg);
/* Under a fixed index (before any other), or the next: the index, or 0 after
 * an error (kept). */
void pool_handover_set_fd(struct pool_handover *h, enum pool_handover_fd which,
			  int fd);
unsigned int pool_handover_add_fd(struct pool_handover *h, int fd);
/* All is written: 0 or -errno. */
int pool_handover_finish(struct pool_handover *h);

/* ---- reading ---- */

/* h->fds has been filled (the records' among them): 0 or -errno. */
int pool_handover_open(struct pool_handover *h);
/*
 * The next record, if it is of this type: 0 and a message to be freed with
 * protobuf_c_message_free_unpacked; -ENOENT: it is of another; -EBADMSG.
 */
int pool_handover_get(struct pool_handover *h, enum pool_handover_type type,
		      const ProtobufCMessageDescriptor *d,
		      ProtobufCMessage **ret_msg);
/* The descriptor is the caller's from here on: >= 0, or -EBADF. */
int pool_handover_take_fd(struct pool_handover *h, unsigned int index);

/* Both: what was opened or made here; descriptors of a reader that nobody
 * took. */
void pool_handover_close(struct pool_handover *h);

#endif
