/*
 * master/etcd_state.h without etcd: a list of records in memory, which outlives
 * the masters. See tests/sim/sim_etcd.h.
 */
#include "tests/sim/sim_etcd.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "master/state_rec.h"
#include "tests/sim/sim.h"

#define WRITE_NS (2 * SIM_MS) /* a transaction takes once to twice as long */

struct record {
	struct pool_list link;
	size_t len;
	uint8_t bytes[];
};

struct etcd_state {
	struct sim_etcd *etcd;
	struct sim_host *host;
	void (*settled_cb)(void *arg);
	void *arg;
	struct pool_list queue; /* appended, not written */
	uint64_t nqueued;	/* length of the queue */
	uint64_t mark, settled;
	uint64_t writing; /* queued records in the transaction in flight */
	struct sim_event written;
	struct sim_call notify;
	bool dead;
};

void sim_etcd_open(struct sim_etcd *e)
{
	memset(e, 0, sizeof(*e));
	pool_list_init(&e->records);
	e->epoch = 1;
}

static void free_records(struct pool_list *list)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, list)
		free(pool_list_entry(it, struct record, link));
	pool_list_init(list);
}

void sim_etcd_close(struct sim_etcd *e)
{
	free_records(&e->records);
}

static void on_notify(struct sim_call *c)
{
	struct etcd_state *s = pool_container_of(c, struct etcd_state, notify);

	s->settled_cb(s->arg);
}

static void write_records(struct etcd_state *s)
{
	uint64_t n;

	for (n = s->writing; n; n--) {
		struct pool_list *first = s->queue.next;

		pool_list_del(first);
		pool_list_add_tail(&s->etcd->records, first);
	}
}

void sim_etcd_die(struct etcd_state *s, bool written)
{
	sim_cancel(&s->written);
	if (written)
		write_records(s);
	s->dead = true;
}

struct tomb {
	const char *path;
	size_t len;
	uint64_t gen; /* of the newest tombstone; 0: none */
};

static int look(void *arg, const struct master_record *r)
{
	struct tomb *t = arg;

	if (r->type == MASTER_REC_TOMB && r->meta &&
	    r->meta->path.len == t->len && r->meta->gen > t->gen &&
	    !memcmp(r->meta->path.data, t->path, t->len))
		t->gen = r->meta->gen;
	return 0;
}

static uint64_t newest_tomb(struct pool_list *records, const char *path,
			    size_t len)
{
	struct tomb t = { path, len, 0 };
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, records) {
		struct record *r = pool_list_entry(it, struct record, link);

		(void)state_rec_decode(r->bytes, r->len, look, &t);
	}
	return t.gen;
}

uint64_t sim_etcd_owed_tomb(struct etcd_state *s, const char *path, size_t len,
			    uint64_t gen)
{
	uint64_t owed = newest_tomb(&s->queue, path, len);

	return owed >= gen && newest_tomb(&s->etcd->records, path, len) < gen ?
		       owed :
		       0;
}

void sim_etcd_slow(struct sim_etcd *e, uint64_t ns)
{
	e->slow_ns = ns;
}

static void on_written(struct sim_event *e)
{
	struct etcd_state *s = pool_container_of(e, struct etcd_state, written);

	write_records(s);
	s->nqueued -= s->writing;
	s->settled += s->writing;
	s->writing = 0;
	if (pool_list_empty(&s->notify.link))
		sim_call(s->host, &s->notify);
	etcd_state_flush(s);
}

struct etcd_state *sim_etcd_elect(struct sim_etcd *e, struct sim_host *host,
				  void (*settled)(void *arg), void *arg)
{
	struct etcd_state *s = calloc(1, sizeof(*s));

	assert(s);
	e->epoch++;
	s->etcd = e;
	s->host = host;
	s->settled_cb = settled;
	s->arg = arg;
	s->written.run = on_written;
	s->notify.run = on_notify;
	pool_list_init(&s->notify.link);
	pool_list_init(&s->queue);
	return s;
}

void etcd_state_close(struct etcd_state *s)
{
	if (!s)
		return;
	sim_cancel(&s->written);
	pool_list_del(&s->notify.link);
	free_records(&s->queue);
	free(s);
}

int etcd_state_replay(struct etcd_state *s,
		      int (*load)(void *arg, const struct master_record *r),
		      void *arg)
{
	struct pool_list *it, *tmp;
	int err = 0;

	pool_list_each(it, tmp, &s->etcd->records) {
		struct record *r = pool_list_entry(it, struct record, link);

		err = state_rec_decode(r->bytes, r->len, load, arg);
		if (err)
			break;
	}
	return err;
}

void etcd_state_append(struct etcd_state *s, const struct master_record *r)
{
	static uint8_t buf[STATE_REC_MAX];
	ptrdiff_t len = state_rec_encode(r, buf, sizeof(buf));
	struct record *rec;

	assert(len > 0);
	rec = malloc(sizeof(*rec) + (size_t)len);
	assert(rec);
	rec->len = (size_t)len;
	memcpy(rec->bytes, buf, (size_t)len);
	pool_list_add_tail(&s->queue, &rec->link);
	s->nqueued++;
	s->mark++;
}

/* Not simulated: records are never removed, so the next master would restore a
 * forgotten tombstone. No run is long enough for a master to forget one. */
void etcd_state_forget(struct etcd_state *s, const struct master_grave *g)
{
	(void)s;
	(void)g;
	assert(!"a tombstone was forgotten");
}

void etcd_state_flush(struct etcd_state *s)
{
	if (s->dead || s->writing || !s->nqueued)
		return;
	s->writing = s->nqueued < ETCD_STATE_BATCH ? s->nqueued :
						     ETCD_STATE_BATCH;
	sim_at(&s->written, sim_now_ns() + WRITE_NS +
				    sim_random(WRITE_NS + s->etcd->slow_ns));
}

uint64_t etcd_state_cost(const struct etcd_state *s)
{
	return s->mark;
}

bool etcd_state_is_crowded(const struct etcd_state *s)
{
	return s->nqueued > 4096;
}

uint64_t etcd_state_mark(const struct etcd_state *s)
{
	return s->mark;
}

uint64_t etcd_state_settled(const struct etcd_state *s)
{
	return s->settled;
}
