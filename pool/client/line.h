/*
 * Connections to holders that the caller's thread uses by itself (line.c), one
 * at a time.
 *
 * Thread: any; a line is its taker's until it is given back.
 */
#ifndef POOL_CLIENT_LINE_H
#define POOL_CLIENT_LINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "pool/base/list.h"
#include "pool/peer/peer.h"

#define CLIENT_LINES_MAX 64 /* of a connection; bits of `slots` */
#define CLIENT_SHY_MAX 16   /* peers that do not answer, remembered */
#define CLIENT_SHY_MS 2000
#define CLIENT_STALL_MS 250 /* as NODE_STALL_MS: then others are asked */

struct client_line;

struct client_shy {
	uint8_t id[POOL_ID_SIZE];
	uint64_t until_ms;
};

struct client_lines {
	/* set by who has it, before the first is taken */
	uint8_t id[POOL_ID_SIZE]; /* our own */
	uint32_t first_lane;
	unsigned int stall_ms; /* CLIENT_STALL_MS, but in tests */
	struct pool_trust *trust; /* borrows; NULL: everybody */

	pthread_mutex_t lock;
	struct pool_list idle; /* the last used first */
	uint64_t slots;	       /* taken */
	struct client_shy shy[CLIENT_SHY_MAX];
	unsigned int next_shy;
};

void client_lines_init(struct client_lines *s);
/* None is taken. */
void client_lines_fini(struct client_lines *s);

/* One to this peer; bulk: on which more than POOL_INLINE_MAX may be asked for.
 * NULL: not now. */
struct client_line *client_line_take(struct client_lines *s,
				     const struct pool_peer_addr *to, bool bulk);
/* good: everything that was asked for has been received. */
void client_line_give(struct client_line *l, bool good);

/* A whole object of size bytes (> 0). 0 or -ENOMEM; sent by client_line_send. */
int client_line_ask(struct client_line *l, uint64_t req, const char *path,
		    size_t path_len, uint64_t gen, uint64_t size);
/* 0 or -errno. */
int client_line_send(struct client_line *l);

struct client_answer {
	uint64_t req;
	bool data; /* size bytes follow; else the holder will not give it */
	uint64_t size;
	bool bulk; /* private: which connection */
};
/* The next one, in any order. least_bulk: size of the smallest that is still to
 * come and is larger than POOL_INLINE_MAX; 0: there is none. 0 or -errno: the
 * line is broken. */
int client_line_answer(struct client_line *l, uint64_t least_bulk,
		       struct client_answer *ret);
/* Of its bytes, the next ones, at most len (what is left of them), in slices
 * that stay in the cache. Or -errno: the line is broken. */
ssize_t client_line_bytes(struct client_line *l, const struct client_answer *a,
			  void *to, size_t len);

#endif
