/* Frames of kvpool top; tools/top.h has the contract. */
#include "tools/top.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/parse.h"

/* The columns after NODE, which takes the rest of the line; the width includes
 * a blank before each. */
#define COLUMNS "%-9.9s %5s %5s %10s %9s %4s %4s %10s"
#define COLUMNS_WIDTH 64u
#define DIR_COLUMNS "%10s %9s %9s %5s %5s %10s %6s"
#define DIR_COLUMNS_WIDTH 61u
#define TAIL 6 /* characters of a long name's end that are shown */

/* ---- a sample ---- */

static uint64_t figure(const json_t *object, const char *name)
{
	json_int_t v = json_integer_value(json_object_get(object, name));

	return v > 0 ? (uint64_t)v : 0;
}

static bool is_true(const json_t *object, const char *name)
{
	return json_is_true(json_object_get(object, name));
}

static void copy_text(char *to, size_t cap, const json_t *object,
		      const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));

	snprintf(to, cap, "%s", text ? text : "?");
	for (char *p = to; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
}

static void fill_row(struct top_row *r, const json_t *node)
{
	unsigned long percent;

	memset(r, 0, sizeof(*r));
	copy_text(r->name, sizeof(r->name), node, "name");
	copy_text(r->state, sizeof(r->state), node, "state");
	if (strncmp(r->state, "draining ", 9) == 0) { /* "draining 12 %" */
		percent = strtoul(r->state + 9, NULL, 10);
		snprintf(r->state, sizeof(r->state), "drain %lu%%",
			 percent < 99 ? percent : 99);
	}
	r->index = figure(node, "index");
	r->is_store = is_true(node, "is_store");
	r->capacity = figure(node, "capacity");
	r->used = figure(node, "used");
	if (r->used > r->capacity)
		r->used = r->capacity;
	r->evictable = figure(node, "evictable");
	if (r->evictable > r->used)
		r->evictable = r->used;
	r->objects = figure(node, "objects");
	r->coming = figure(node, "copies_coming");
	r->leaving = figure(node, "copies_leaving");
	r->sent = figure(node, "sent_bytes");
}

static int by_index(const void *a, const void *b)
{
	const struct top_row *x = a, *y = b;

	return (x->index > y->index) - (x->index < y->index);
}

/* A counter that was reset gives no rate. */
static void set_rate(struct top_row *r, const struct top *before,
		     uint64_t elapsed_ms)
{
	const struct top_row *old =
		before->nrows ? bsearch(r, before->rows, before->nrows,
					sizeof(*r), by_index) :
				NULL;

	if (old && r->sent > old->sent && elapsed_ms)
		r->sent_per_s = (uint64_t)((double)(r->sent - old->sent) *
					   1000 / (double)elapsed_ms);
}

int top_take(struct top *t, json_t *status, const json_t *nodes,
	     uint64_t now_ms)
{
	size_t all = json_array_size(nodes);
	unsigned int n = all < TOP_ROWS_MAX ? (unsigned int)all : TOP_ROWS_MAX;
	struct top_row *rows = calloc(n ? n : 1, sizeof(*rows));

	if (!rows)
		return -ENOMEM;
	if (t->at_ms)
		qsort(t->rows, t->nrows, sizeof(*rows), by_index);
	for (unsigned int i = 0; i < n; i++) {
		fill_row(&rows[i], json_array_get(nodes, i));
		if (t->at_ms)
			set_rate(&rows[i], t, now_ms - t->at_ms);
	}
	free(t->rows);
	json_decref(t->status);
	t->rows = rows;
	t->nrows = n;
	t->more = (unsigned int)(all - n);
	t->status = json_incref(status);
	t->rates = t->at_ms != 0;
	t->at_ms = now_ms;
	return 0;
}

static void fill_dir(struct top_dir *d, const json_t *dir)
{
	const json_t *name = json_object_get(dir, "name");

	memset(d, 0, sizeof(*d));
	if (json_is_null(name))
		strcpy(d->name, "(others)");
	else if (json_string_length(name) == 0 && json_is_string(name))
		strcpy(d->name, "(root)");
	else
		copy_text(d->name, sizeof(d->name), dir, "name");
	d->bytes = figure(dir, "bytes");
	d->objects = figure(dir, "objects");
	d->age_s = figure(dir, "age_seconds");
	d->lookups = figure(dir, "lookups");
	d->hits = figure(dir, "hits");
	if (d->hits > d->lookups)
		d->hits = d->lookups;
	d->best = figure(dir, "best_hits");
	if (d->best > d->lookups)
		d->best = d->lookups;
	d->best_known = json_is_integer(json_object_get(dir, "best_hits"));
	d->loaded = figure(dir, "loaded_bytes");
	d->loaded_known = json_is_integer(json_object_get(dir, "loaded_bytes"));
}

int top_take_directories(struct top *t, const json_t *list)
{
	size_t all = json_array_size(list);
	unsigned int n = all < TOP_ROWS_MAX ? (unsigned int)all : TOP_ROWS_MAX;
	struct top_dir *dirs = calloc(n ? n : 1, sizeof(*dirs));

	if (!dirs)
		return -ENOMEM;
	for (unsigned int i = 0; i < n; i++)
		fill_dir(&dirs[i], json_array_get(list, i));
	free(t->dirs);
	t->dirs = dirs;
	t->ndirs = n;
	t->more_dirs = (unsigned int)(all - n);
	return 0;
}

void top_fini(struct top *t)
{
	free(t->rows);
	free(t->dirs);
	json_decref(t->status);
	memset(t, 0, sizeof(*t));
}

/* ---- the order ---- */

/* In per mille; 0 for a node without a store. */
static uint64_t share(uint64_t part, uint64_t whole)
{
	return whole ? (uint64_t)((double)part * 1000 / (double)whole) : 0;
}

static int by_name(const void *a, const void *b)
{
	const struct top_row *x = a, *y = b;
	int c = strcmp(x->name, y->name);

	return c ? c : by_index(a, b);
}

/* Figures: the largest first. */
static int largest(uint64_t x, uint64_t y, const void *a, const void *b)
{
	return x == y ? by_name(a, b) : x < y ? 1 : -1;
}

#define BY(name, figure)                                       \
	static int by_##name(const void *a, const void *b)     \
	{                                                      \
		const struct top_row *x = a, *y = b;           \
                                                               \
		return largest(figure(x), figure(y), a, b);    \
	}
#define USED(r) share((r)->used, (r)->capacity)
#define KEPT(r) share((r)->used - (r)->evictable, (r)->capacity)
#define SIZE(r) ((r)->capacity)
#define OBJECTS(r) ((r)->objects)
#define SENT(r) ((r)->sent_per_s)
BY(used, USED)
BY(kept, KEPT)
BY(size, SIZE)
BY(objects, OBJECTS)
BY(sent, SENT)

static int dir_by_name(const void *a, const void *b)
{
	const struct top_dir *x = a, *y = b;

	return strcmp(x->name, y->name);
}

#define DIR_BY(name, figure)                                       \
	static int dir_by_##name(const void *a, const void *b)     \
	{                                                          \
		const struct top_dir *x = a, *y = b;               \
		uint64_t of_x = figure(x), of_y = figure(y);       \
                                                                   \
		return of_x == of_y ? dir_by_name(a, b) :          \
		       of_x < of_y ? 1 : -1;                       \
	}
#define DIR_BYTES(d) ((d)->bytes)
#define DIR_HITS(d) share((d)->hits, (d)->lookups)
#define DIR_AGE(d) ((d)->age_s)
DIR_BY(bytes, DIR_BYTES)
DIR_BY(objects, OBJECTS)
DIR_BY(hits, DIR_HITS)
DIR_BY(age, DIR_AGE)

/* As TOP_ORDERS; NULL: the view does not have it. */
static const struct order {
	char key;
	int (*compare[TOP_VIEWS])(const void *a, const void *b);
} orders[] = {
	{ 'n', { by_name, dir_by_name } },
	{ 'u', { by_used, NULL } },
	{ 'k', { by_kept, NULL } },
	{ 's', { by_size, dir_by_bytes } },
	{ 'o', { by_objects, dir_by_objects } },
	{ 't', { by_sent, NULL } },
	{ 'h', { NULL, dir_by_hits } },
	{ 'a', { NULL, dir_by_age } },
};
#define NORDERS (sizeof(orders) / sizeof(orders[0]))

bool top_has_order(enum top_view view, unsigned int order)
{
	return order < NORDERS && orders[order].compare[view];
}

bool top_key(struct top *t, char key)
{
	for (unsigned int i = 0; i < NORDERS; i++)
		if (orders[i].key == key && top_has_order(t->view, i))
			t->order[t->view] = i;
	if (key == 'R')
		t->reverse = !t->reverse;
	if (key == 'd')
		t->view = t->view == TOP_NODES ? TOP_DIRECTORIES : TOP_NODES;
	return key != 'q';
}

/* Row number i of n as the order has it. */
static unsigned int row_at(const struct top *t, unsigned int i, unsigned int n)
{
	return t->reverse ? n - 1 - i : i;
}

/* ---- a frame ---- */

/* A long name loses its middle. width >= 16, < cap. */
static void shorten(const char *name, unsigned int width, char *buf, size_t cap)
{
	size_t len = strlen(name);

	if (len <= width)
		snprintf(buf, cap, "%s", name);
	else
		snprintf(buf, cap, "%.*s~%s", (int)width - TAIL - 1, name,
			 name + len - TAIL);
}

static void percent(uint64_t permille, bool any, char buf[16])
{
	if (any)
		snprintf(buf, 16, "%u.%u", (unsigned int)(permille / 10),
			 (unsigned int)(permille % 10));
	else
		snprintf(buf, 16, "-");
}

/* At most what its column holds. */
static void number(uint64_t n, unsigned int max, char buf[16])
{
	snprintf(buf, 16, "%u", n < max ? (unsigned int)n : max);
}

static void print_row(const struct top *t, const struct top_row *r,
		      unsigned int name_width, FILE *out)
{
	char name[sizeof(r->name)], used[16], kept[16], size[16] = "-",
		sent[16] = "-", objects[16], coming[16], leaving[16];
	bool any = r->is_store && r->capacity;

	shorten(r->name, name_width, name, sizeof(name));
	percent(USED(r), any, used);
	percent(KEPT(r), any, kept);
	if (any)
		pool_format_size(r->capacity, size, sizeof(size));
	if (t->rates)
		pool_format_size(r->sent_per_s, sent, sizeof(sent));
	number(r->objects, 999999999, objects);
	number(r->coming, 9999, coming);
	number(r->leaving, 9999, leaving);
	fprintf(out, "%-*s " COLUMNS "\n", (int)name_width, name, r->state,
		used, kept, size, objects, coming, leaving, sent);
}

static void age(uint64_t s, char buf[16])
{
	static const struct {
		uint64_t below, unit;
		char name;
	} units[] = { { 120, 1, 's' },
		      { 7200, 60, 'm' },
		      { 172800, 3600, 'h' },
		      { UINT64_MAX, 86400, 'd' } };
	unsigned int i = 0;

	while (s >= units[i].below && units[i].below != UINT64_MAX)
		i++;
	number(s / units[i].unit, 99999, buf);
	snprintf(buf + strlen(buf), 16 - strlen(buf), "%c", units[i].name);
}

static void print_dir(const struct top_dir *d, unsigned int name_width,
		      FILE *out)
{
	char name[sizeof(d->name)], size[16], objects[16], lookups[16],
		hits[16], best[16], loaded[16] = "-", old[16] = "-";

	shorten(d->name, name_width, name, sizeof(name));
	percent(DIR_HITS(d), d->lookups > 0, hits);
	percent(share(d->best, d->lookups), d->best_known && d->lookups > 0,
		best);
	if (d->loaded_known)
		pool_format_size(d->loaded, loaded, sizeof(loaded));
	number(d->objects, 999999999, objects);
	number(d->lookups, 999999999, lookups);
	if (d->objects)
		age(d->age_s, old);
	fprintf(out, "%-*s " DIR_COLUMNS "\n", (int)name_width, name,
		pool_format_size(d->bytes, size, sizeof(size)), objects,
		lookups, hits, best, loaded, old);
}

/* The pool as the nodes' figures have it. */
static void print_pool(const struct top *t, FILE *out)
{
	uint64_t used = 0, kept = 0, capacity = 0, sent = 0;
	char size[16], rate[16] = "-", used_text[16], kept_text[16];

	for (unsigned int i = 0; i < t->nrows; i++) {
		used += t->rows[i].used;
		kept += t->rows[i].used - t->rows[i].evictable;
		capacity += t->rows[i].capacity;
		sent += t->rows[i].sent_per_s;
	}
	percent(share(used, capacity), capacity > 0, used_text);
	percent(share(kept, capacity), capacity > 0, kept_text);
	if (t->rates)
		pool_format_size(sent, rate, sizeof(rate));
	fprintf(out, "Stores: %s, %% used %s, %% kept %s; sent/s %s\n",
		pool_format_size(capacity, size, sizeof(size)), used_text,
		kept_text, rate);
}

/* A master's page has repair, a node's its own hits. */
static void print_status(const struct top *t, FILE *out)
{
	const json_t *repair = json_object_get(t->status, "repair");
	uint64_t hits = figure(t->status, "hits"),
		 lookups = hits + figure(t->status, "misses");
	char left[16], speed[16], ratio[16];

	if (repair) {
		fprintf(out, "Repair: %llu short of copies, %llu in flight, "
			     "%s left, %s/s\n",
			(unsigned long long)figure(repair, "endangered"),
			(unsigned long long)figure(repair, "copies_under_way"),
			pool_format_size(figure(repair, "bytes_left"), left,
					 sizeof(left)),
			pool_format_size(figure(repair, "bytes_per_second"),
					 speed, sizeof(speed)));
		return;
	}
	percent(share(hits, lookups), lookups > 0, ratio);
	fprintf(out, "This node: %llu look-ups, %% hits %s\n",
		(unsigned long long)lookups, ratio);
}

/* Alive: also one that is being drained. */
static unsigned int count_alive(const struct top *t)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < t->nrows; i++)
		n += strcmp(t->rows[i].state, "alive") == 0 ||
		     strncmp(t->rows[i].state, "drain", 5) == 0;
	return n;
}

void top_print(struct top *t, const char *clock, const char *address,
	       unsigned int width, unsigned int height, FILE *out)
{
	bool dirs = t->view == TOP_DIRECTORIES;
	unsigned int n = dirs ? t->ndirs : t->nrows;
	unsigned int more = dirs ? t->more_dirs : t->more;
	unsigned int name_width, shown = n, i;

	if (width < TOP_WIDTH_MIN)
		width = TOP_WIDTH_MIN;
	name_width = width - (dirs ? DIR_COLUMNS_WIDTH : COLUMNS_WIDTH);
	if (name_width >= sizeof(t->rows->name))
		name_width = sizeof(t->rows->name) - 1;
	/* The frame has four lines above the rows, and may have one below. */
	if (height && shown > (height > 6 ? height - 5 : 1))
		shown = height > 6 ? height - 5 : 1;
	if (n)
		qsort(dirs ? (void *)t->dirs : t->rows, n,
		      dirs ? sizeof(*t->dirs) : sizeof(*t->rows),
		      orders[t->order[t->view]].compare[t->view]);
	fprintf(out, "kvpool top - %s, %.32s, %u of %u nodes alive\n", clock,
		address, count_alive(t), t->nrows + t->more);
	print_pool(t, out);
	print_status(t, out);
	if (dirs)
		fprintf(out, "%-*s " DIR_COLUMNS "\n", (int)name_width,
			"DIRECTORY", "SIZE", "OBJECTS", "LOOK-UPS", "%HITS",
			"%BEST", "LOADED", "AGE");
	else
		fprintf(out, "%-*s " COLUMNS "\n", (int)name_width, "NODE",
			"STATE", "%USED", "%KEPT", "SIZE", "OBJECTS", "IN",
			"OUT", "SENT/S");
	for (i = 0; i < shown; i++)
		if (dirs)
			print_dir(&t->dirs[row_at(t, i, n)], name_width, out);
		else
			print_row(t, &t->rows[row_at(t, i, n)], name_width,
				  out);
	if (shown < n || more)
		fprintf(out, "%u more\n", n - shown + more);
}
