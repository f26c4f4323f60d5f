/*
 * kvpool top's figures and frames: what the pages /api/status and /api/nodes of
 * a master or node say, as text of a terminal. It neither asks nor draws
 * (tools/cmd_top.c).
 *
 * What the pages say is not trusted: figures are held to their ranges, and
 * bytes of names that are not printable ASCII become '?'.
 *
 * Thread: main.
 */
#ifndef TOOLS_TOP_H
#define TOOLS_TOP_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Nodes that are shown; the others are counted in the last line. */
#define TOP_ROWS_MAX 4096u
#define TOP_WIDTH_MIN 80u

struct top_row {
	char name[256], state[16];
	uint64_t index; /* the node's, in the pool */
	bool is_store;
	uint64_t used, evictable, capacity, objects, coming, leaving;
	uint64_t sent;	     /* bytes, as the page has it */
	uint64_t sent_per_s; /* since the sample before */
};

/* Zero it; then set `order`, if it is not to be by name. */
struct top {
	unsigned int order; /* index of top_orders */
	bool reverse;
	struct top_row *rows; /* owns; as the page has them */
	unsigned int nrows, more; /* more: beyond TOP_ROWS_MAX */
	json_t *status;	      /* owns */
	uint64_t at_ms;	      /* of the sample; 0: none */
	bool rates;	      /* is there a sample before it? */
};

/* "name|used|...", for an OPT_CHOICE. */
#define TOP_ORDERS "name|used|kept|size|objects|sent"

/* Takes the pages as the newest sample, of the time now_ms (monotonic, > 0). 0,
 * or -ENOMEM: the older sample is kept. Borrows both. */
int top_take(struct top *t, json_t *status, const json_t *nodes,
	     uint64_t now_ms);
/* A key: n, u, k, s, o, t choose the order, R reverses it. False: q, the end.
 */
bool top_key(struct top *t, char key);
/*
 * Prints a frame, of lines of at most width columns (at least TOP_WIDTH_MIN),
 * height lines at most; 0: as many as there are. clock: the time of day as
 * text; address: the daemon's.
 */
void top_print(struct top *t, const char *clock, const char *address,
	       unsigned int width, unsigned int height, FILE *out);
void top_fini(struct top *t);

#endif
