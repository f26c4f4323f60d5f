/*
 * Copies: objects fetched from other nodes (inside: fetch.h) because they were
 * opened, looked up, or ordered by the master; checks of copies that may be
 * damaged; and how often peers request an object.
 */
#ifndef POOL_NODE_COPIES_H
#define POOL_NODE_COPIES_H

#include "pool/node/object.h"

#define NODE_PARK_MS 500	/* a fetch waits for the feed to name the new
				   holder of a moved object */
#define NODE_REJOIN_MS 1000	/* or for a holder that has left to rejoin */
#define NODE_HEATS_MAX 4096	/* objects whose GETs are counted */
#define NODE_DOUBTS_MAX 256	/* local copies that wait to be checked */
#define NODE_DOUBT_S 10		/* between two checks of a copy */
/*
 * An object up to NODE_WHOLE is requested as one range, whose checksum is
 * computed as it arrives. A larger one comes in pieces of NODE_PIECE, in
 * parallel, from all its holders, and is read once more for its checksum. Into
 * a new file, one range from one holder is quicker (figures:
 * tests/bench/README.md), but other ranges on its lane wait for it. Therefore
 * this is limited to objects of NODE_WHOLE_ALONE (64 MiB and an engine's
 * header), and to NODE_WHOLE_SUM in flight. With RDMA, pieces move over several
 * devices; into the memory of a program, they are as quick (read.c).
 */
#define NODE_WHOLE (8u << 20)
#define NODE_WHOLE_ALONE (65u << 20)
#define NODE_WHOLE_SUM (130u << 20)
#define NODE_PIECE (4u << 20)
#define NODE_PIECES_MAX 8	/* parallel transfers of one object */
#define NODE_STALL_MS 250	/* no byte for so long: ask another holder */
#define NODE_BACKOFF_MS 2000	/* after a stall, prefer other holders */
#define NODE_FLOOR_BPS (50ull << 20) /* floor bandwidth of deadlines, B/s */

/* ---- heat.c: how often peers request an object ---- */

/* A peer's GET for `length` bytes of o has begun. */
void node_heat_asked(struct pool_node *n, struct node_object *o,
		     uint64_t length);
/* o becomes an extra copy. 0, or -ENOBUFS: no record is free, or no memory. */
int node_heat_extra(struct pool_node *n, struct node_object *o);
/* o is dropped, becomes a counted copy, or has become cold. */
void node_heat_forget(struct pool_node *n, struct node_object *o);
void node_heat_tick(struct pool_node *n, uint64_t now);
void node_heat_cut_off(struct pool_node *n);

/* ---- asked.c: what could have been hit ---- */

/* A directory's part of a report. */
struct node_asked_report_dir {
	Kvpool__AskedDir msg;
	Kvpool__AskedWindow windows[POOL_ASKED_WINDOWS];
	Kvpool__AskedWindow *window_list[POOL_ASKED_WINDOWS];
	uint8_t names[POOL_ASKED_WINDOWS][POOL_SMALL_SIZE];
};

/* A report for the master; it borrows from n. */
struct node_asked_report {
	Kvpool__Asked msg;
	Kvpool__AskedWindow windows[POOL_ASKED_WINDOWS];
	Kvpool__AskedWindow *window_list[POOL_ASKED_WINDOWS];
	uint8_t names[POOL_ASKED_WINDOWS][POOL_FOLDED_SIZE];
	struct node_asked_report_dir dirs[POOL_ASKED_DIRS];
	Kvpool__AskedDir *dir_list[POOL_ASKED_DIRS];
};

/* Registers the metrics. 0 or -ENOMEM. */
int node_asked_open(struct pool_node *n);
void node_asked_tick(struct pool_node *n, uint64_t now);
void node_asked_gauges(struct pool_node *n);
/* As of the last node_asked_gauges. New, or NULL: ENOMEM. */
json_t *node_asked_json(const struct pool_node *n);
/* To be freed with free(); or NULL: ENOMEM, or nothing has changed since
 * *sent, which is set (0: none was sent). */
struct node_asked_report *node_asked_report(struct pool_node *n,
					    uint64_t *sent);
/* The seed of the pool's sketches. A new seed empties the windows. */
void node_asked_seed(struct pool_node *n, uint64_t seed);

/* ---- fetch*.c: remote objects made local (inside: fetch.h) ---- */

/* Fetches e's published object, or joins the fetch in flight; w->cb runs as for
 * pool_node_want_start. 0 or -errno. */
int node_fetch_for(struct pool_node *n, struct node_entry *e,
		   struct node_want *w);
/* Prefetches it. 0 or -ENOMEM. */
int node_fetch_ahead(struct pool_node *n, struct node_entry *e);
void node_fetch_tick(struct pool_node *n, uint64_t now);
void node_fetch_fini(struct pool_node *n);

/* ---- doubt.c: copies that may be damaged ---- */

void node_doubt_tick(struct pool_node *n);
/* The check of o has ended with this status. */
void node_doubt_checked(struct pool_node *n, const struct node_object *o,
			int status);
/* e->obj == o is damaged (-EBADMSG) or missing (-ENOENT): reported, dropped,
 * and quarantined. The entry stays. */
void node_object_damaged(struct pool_node *n, struct node_object *o,
			 int status);
void node_doubt_fini(struct pool_node *n);

/* ---- want.c ---- */

/* Compares the checksum of the local copy in a worker. 0 or -ENOMEM. */
int node_recheck(struct pool_node *n, struct node_object *o);

/* ---- replicate.c: copies that the master orders ---- */

void node_replicate(struct pool_node *n, const Kvpool__Replicate *r);

#endif
