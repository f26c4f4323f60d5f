/*
 * Lines: blocking connections to holders, which the caller's thread uses
 * without the loop (line.c).
 *
 * Thread: any. A line belongs to the thread that took it until it is given
 * back.
 */
#ifndef POOL_CLIENT_LINE_H
#define POOL_CLIENT_LINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "pool/base/list.h"
#include "pool/base/metric.h"
#include "pool/peer/peer.h"

#define CLIENT_LINES_MAX 64 /* per struct kvpool; one bit of `slots` each */
#define CLIENT_BACKOFF_MAX 16 /* failed peers that are remembered */
#define CLIENT_BACKOFF_MS 2000
#define CLIENT_STALL_MS 250 /* give up on a silent holder, as NODE_STALL_MS */

struct client_line;

/* A peer to which no line is taken before until_ms (pool_now_ms()). */
struct client_backoff {
	uint8_t id[POOL_ID_SIZE];
	uint64_t until_ms;
};

struct client_lines {
	/* set by the owner before the first line is taken */
	uint8_t id[POOL_ID_SIZE]; /* this node's */
	uint32_t first_lane; /* lane number of slot 0, above the movers' */
	unsigned int stall_ms; /* CLIENT_STALL_MS; tests set others */
	struct pool_trust *trust; /* borrows; NULL: no check of peers */
	struct pool_tls *tls; /* borrows; replaces `trust`. NULL: no TLS */

	pthread_mutex_t lock;
	struct pool_list idle; /* most recently used first */
	uint64_t slots;	       /* bit mask of the slots in use; an idle line
				  keeps its slot */
	struct pool_counter objects; /* received whole and right */
	struct client_backoff backoff[CLIENT_BACKOFF_MAX];
	unsigned int next_backoff;
};

void client_lines_init(struct client_lines *s);
/* Closes the idle lines. All lines must have been given back. */
void client_lines_fini(struct client_lines *s);

/* Takes a line to this peer; dials if none is idle, which blocks. bulk: objects
 * larger than POOL_INLINE_MAX will be asked for. NULL: back-off, no free slot,
 * or the peer cannot be reached. */
struct client_line *client_line_take(struct client_lines *s,
				     const struct pool_peer_addr *to,
				     bool bulk);
/* Gives it back. good: all that was asked for has been received; otherwise the
 * line is closed, and no line to the peer is taken for CLIENT_BACKOFF_MS. */
void client_line_give(struct client_line *l, bool good);

/* Queues a request for a whole object of size bytes (> 0). `req` comes back in
 * the answer. 0 or -ENOMEM. client_line_send sends it. */
int client_line_ask(struct client_line *l, uint64_t req, const char *path,
		    size_t path_len, uint64_t gen, uint64_t size);
/* Sends all queued requests. 0 or -errno: the line is broken. */
int client_line_send(struct client_line *l);

struct client_answer {
	uint64_t req;
	bool data; /* size bytes follow; false: the holder refused */
	uint64_t size;
	bool bulk; /* private: received on the lane */
};
/* Receives the header of the next answer; answers come in any order. Call it
 * only when all bytes of the answer before have been received. least_bulk: size
 * in bytes of the smallest object still expected that is larger than
 * POOL_INLINE_MAX; 0: none. 0, or -errno: the line is broken. */
int client_line_answer(struct client_line *l, uint64_t least_bulk,
		       struct client_answer *ret);
/* Receives the next bytes of answer a, at most len (> 0, what is left of it),
 * in slices small enough to stay in the CPU's cache. Returns how many, or
 * -errno: the line is broken. */
ssize_t client_line_bytes(struct client_line *l, const struct client_answer *a,
			  void *to, size_t len);

#endif
