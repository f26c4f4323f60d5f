/*
 * kvpool top's figures and frames: what the pages /api/status, /api/nodes and
 * /api/directories of a master or node say, as text of a terminal. It neither
 * asks nor draws (tools/cmd_top.c).
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

/* Nodes or directories shown; the others are counted in the last line. */
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

/* A directory of the root. */
struct top_dir {
	char name[256]; /* "(root)": files in it; "(others)": beyond a bound */
	uint64_t bytes, objects, age_s;
	uint64_t lookups, hits; /* of the last hour, as are those below */
	uint64_t best;		/* hits that any capacity could have had */
	uint64_t loaded;	/* bytes */
	bool best_known, loaded_known;
};

/* What a frame lists. */
enum top_view { TOP_NODES, TOP_DIRECTORIES, TOP_VIEWS };

/* Zero it; then set `view` and `order`, if it is not to be nodes by name. */
struct top {
	enum top_view view;
	unsigned int order[TOP_VIEWS]; /* index of TOP_ORDERS */
	bool reverse;
	struct top_row *rows; /* owns; as the page has them */
	unsigned int nrows, more; /* more: beyond TOP_ROWS_MAX */
	struct top_dir *dirs; /* owns */
	unsigned int ndirs, more_dirs;
	json_t *status;	      /* owns */
	uint64_t at_ms;	      /* of the sample; 0: none */
	bool rates;	      /* is there a sample before it? */
};

/* "name|used|...", for an OPT_CHOICE. */
#define TOP_ORDERS "name|used|kept|size|objects|sent|hits|age"
#define TOP_BY_SIZE 3u
/* Which of these a view has, for messages. */
#define TOP_ORDERS_OF_NODES "name, used, kept, size, objects or sent"
#define TOP_ORDERS_OF_DIRECTORIES "name, size, objects, hits or age"

/* Takes the pages as the newest sample, of the time now_ms (monotonic, > 0). 0,
 * or -ENOMEM: the older sample is kept. Borrows both. */
int top_take(struct top *t, json_t *status, const json_t *nodes,
	     uint64_t now_ms);
/* Takes the list of /api/directories. The same. */
int top_take_directories(struct top *t, const json_t *list);
/* Has the view this order, an index of TOP_ORDERS? */
bool top_has_order(enum top_view view, unsigned int order);
/* A key: n, u, k, s, o, t, h, a choose the order if the view has it, R reverses
 * it, d changes the view. False: q, the end. */
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
