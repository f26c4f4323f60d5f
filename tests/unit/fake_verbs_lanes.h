/*
 * A lane between two movers on the fake's devices. Both movers are driven by
 * lanes_turn, on one thread, as the fake requires. The test may play either
 * side itself and send whatever it likes.
 *
 * The asker requests and receives; the holder sends.
 */
#ifndef TESTS_FAKE_VERBS_LANES_H
#define TESTS_FAKE_VERBS_LANES_H

#include "pool/lane/link.h"
#include "pool/lane/mover_priv.h"
#include "tests/unit/fake_verbs.h"

/* One range from a file to a file. */
struct lanes_move {
	struct pool_expect x;
	struct pool_mover_send s;
	int from, to; /* own */
	bool expected, got, sent;
};

/* The side that the test plays: a connection, and perhaps a queue pair. */
struct lanes_played {
	struct pool_conn *conn; /* NULL: closed */
	struct verbs_cq *cq;
	struct verbs_qp *qp;
	struct link_msg link; /* the last LINK received */
	struct link_buffer buffer; /* the last BUFFER */
	struct link_buffer first;  /* the last one for a range's first part */
	struct link_note note;	   /* the last note */
	unsigned int nlinks, nbuffers, nnotes, nbroken, ndata, ndone;
	int status; /* of the last work done */
	uint8_t mem[8192];
	struct verbs_region region;
	bool closed;
	bool parts; /* to announce: it understands BUFFERs of parts */
};

struct lanes {
	uv_loop_t home;
	struct pool_mailbox box;
	struct verbs *verbs;
	struct verbs_cache *cache;
	struct verbs_cache_metrics cached;
	struct pool_mover *ask, *hold; /* own; NULL: played, or stopped */
	struct pool_mover_counters asks, holds;
	struct pool_lane *lane; /* ask's; NULL: none (any more) */
	unsigned int ups;
	int down; /* the lane's last error */
	int listening;
	uint16_t port;
	struct lanes_played played;
	uint64_t last_req;
};

/* With one RoCE device, or several. */
void lanes_open(struct lanes *w, unsigned int devices);
/* Frees everything, and asserts that no object of the devices is left. */
void lanes_close(struct lanes *w);
/* Connects two real movers, and waits until the lane is up. */
void lanes_join(struct lanes *w);
/* The test plays the holder. */
void lanes_play_holder(struct lanes *w);
/* The same; its HELLO ends TLS, although the asker does not allow that. */
void lanes_play_plain_holder(struct lanes *w);
void lanes_play_asker(struct lanes *w);
/* Stops the mover of the asker or of the holder. */
void lanes_stop(struct lanes *w, struct pool_mover **m);

#define LANES_TURN_US 200u /* slept in each turn */
void lanes_turn(struct lanes *w);
#define lanes_until(w, what)                                                  \
	do {                                                                  \
		int turns_ = 0;                                               \
		bool met_;                                                    \
		while (!(met_ = (what)) && turns_++ < 20000)                  \
			lanes_turn(w);                                        \
		assert_true(met_);                                            \
	} while (0)

/* Starts moving length bytes at offset; pull: by RDMA READ, where possible. */
void lanes_start(struct lanes *w, struct lanes_move *m, uint64_t offset,
		 uint64_t length, bool pull);
/* The asker's half of that, and the holder's. */
void lanes_expect(struct lanes *w, struct lanes_move *m, uint64_t offset,
		  uint64_t length, bool pull);
void lanes_send(struct lanes *w, struct lanes_move *m);
/* Only creates the file to send from, for request `req` of a played asker. */
void lanes_file(struct lanes_move *m, uint64_t length, uint64_t req);
void lanes_cancel(struct lanes *w, struct lanes_move *m);
/* Waits until both sides are done, and asserts bytes and checksum. */
void lanes_check(struct lanes *w, struct lanes_move *m);
void lanes_drop(struct lanes_move *m);

/* ---- the side that the test plays ---- */

/* Sends an offer or accept with the played queue pair's address, after `fix`
 * has changed it. */
void lanes_say_address(struct lanes *w, enum link_word word,
		       enum link_kind kind, uint32_t attempt,
		       void (*fix)(struct verbs_address *a));
void lanes_say(struct lanes *w, enum link_word word, enum link_kind kind,
	       uint32_t attempt);
/* Creates the played queue pair; the peer may read and write `mem`. */
void lanes_qp_open(struct lanes *w);
void lanes_qp_connect(struct lanes *w);
/* Posts one work request on it, and turns until that has completed. */
void lanes_work(struct lanes *w, enum verbs_op op, const void *text,
		uint32_t length, uint64_t addr, uint32_t rkey);

#endif
