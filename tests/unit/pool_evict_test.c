/*
 * The eviction policy: its contract; a synthetic trace with scans; and, if its
 * file exists, one hour of real chat traffic on one and on two nodes.
 */
#include "tests/lib/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "pool/model/evict.h"

#define TRACE "../shared/data/conversation_trace.jsonl"
#define BLOCK ((uint64_t)1 << 20)

/* ---- contract ---- */

#define KB 1024u
#define N 10

struct fixture {
	struct pool_evict *ev;
	struct pool_evict_node n[N];
};

static void node_set(struct pool_evict_node *n, uint64_t id, uint64_t size)
{
	pool_evict_node_init(n);
	n->key = XXH3_64bits(&id, sizeof(id));
	n->size = size;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->ev = pool_evict_open(N * KB);
	for (unsigned int i = 0; i < N; i++)
		node_set(&f->n[i], i, KB);
	*state = f;
	return f->ev ? 0 : -1;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	pool_evict_close(f->ev);
	free(f);
	return 0;
}

static void insert_all(struct fixture *f)
{
	for (unsigned int i = 0; i < N; i++)
		pool_evict_insert(f->ev, &f->n[i], POOL_EVICT_COUNTED);
}

static long victim(struct fixture *f, enum pool_evict_class class)
{
	struct pool_evict_node *n =
		pool_evict_victim(f->ev, class, NULL, NULL, 100);

	return n ? n - f->n : -1;
}

static long evict(struct fixture *f, enum pool_evict_class class)
{
	long i = victim(f, class);

	if (i >= 0)
		pool_evict_remove(f->ev, &f->n[i], true);
	return i;
}

static void
objects_used_once_go_in_order_of_arrival(void **state)
{
	struct fixture *f = *state;

	insert_all(f);
	for (long i = 0; i < N; i++)
		assert_int_equal(evict(f, POOL_EVICT_COUNTED), i);
	assert_int_equal(evict(f, POOL_EVICT_COUNTED), -1);
}

static void an_object_that_was_touched_outlives_others(void **state)
{
	struct fixture *f = *state;

	insert_all(f);
	pool_evict_touch(f->ev, &f->n[0]);
	for (long i = 1; i < N; i++)
		assert_int_equal(evict(f, POOL_EVICT_COUNTED), i);
	assert_int_equal(evict(f, POOL_EVICT_COUNTED), 0);
}

static void a_touched_object_does_not_stay_for_ever(void **state)
{
	struct fixture *f = *state;
	unsigned int i = 1, next = 1, left = 1000;

	pool_evict_insert(f->ev, &f->n[0], POOL_EVICT_COUNTED);
	pool_evict_touch(f->ev, &f->n[0]);
	/* each insertion evicts one, as in a long scan */
	while (--left) {
		if (pool_evict_count(f->ev, POOL_EVICT_COUNTED) == 4 &&
		    evict(f, POOL_EVICT_COUNTED) == 0)
			break;
		i = i % (N - 1) + 1;
		node_set(&f->n[i], 1000 + next++, KB);
		pool_evict_insert(f->ev, &f->n[i], POOL_EVICT_COUNTED);
	}
	assert_int_not_equal(left, 0);
	assert_in_range(next, 5, 20);
}

static void a_ghost_comes_back_as_one_used_again(void **state)
{
	struct fixture *f = *state;

	insert_all(f);
	/* a deleted object is no ghost */
	pool_evict_remove(f->ev, &f->n[1], false);
	pool_evict_insert(f->ev, &f->n[1], POOL_EVICT_COUNTED);
	assert_int_equal(evict(f, POOL_EVICT_COUNTED), 0);
	pool_evict_insert(f->ev, &f->n[0], POOL_EVICT_COUNTED);
	for (long i = 2; i < N; i++)
		assert_int_equal(evict(f, POOL_EVICT_COUNTED), i);
	assert_int_equal(evict(f, POOL_EVICT_COUNTED), 1);
	assert_int_equal(evict(f, POOL_EVICT_COUNTED), 0);
}

static void a_ghost_is_forgotten_after_a_turnover(void **state)
{
	struct fixture *f = *state;

	pool_evict_insert(f->ev, &f->n[0], POOL_EVICT_COUNTED);
	assert_int_equal(evict(f, POOL_EVICT_COUNTED), 0);
	for (unsigned int i = 1; i < N; i++)
		pool_evict_insert(f->ev, &f->n[i], POOL_EVICT_COUNTED);
	for (long i = 1; i < N; i++) {
		assert_int_equal(evict(f, POOL_EVICT_COUNTED), i);
		node_set(&f->n[i], 1000 + (uint64_t)i, KB);
		pool_evict_insert(f->ev, &f->n[i], POOL_EVICT_COUNTED);
	}
	pool_evict_insert(f->ev, &f->n[0], POOL_EVICT_COUNTED);
	for (long i = 1; i < N; i++)
		assert_int_equal(evict(f, POOL_EVICT_COUNTED), i);
	assert_int_equal(f->n[0].queue, 0);
}

static void classes_are_kept_apart_and_counted(void **state)
{
	struct fixture *f = *state;

	pool_evict_insert(f->ev, &f->n[0], POOL_EVICT_COUNTED);
	pool_evict_insert(f->ev, &f->n[1], POOL_EVICT_CACHE);
	f->n[2].size = 7;
	pool_evict_insert(f->ev, &f->n[2], POOL_EVICT_CACHE);
	assert_int_equal(pool_evict_bytes(f->ev, POOL_EVICT_CACHE), KB + 7);
	assert_int_equal(pool_evict_count(f->ev, POOL_EVICT_CACHE), 2);
	assert_int_equal(pool_evict_bytes(f->ev, POOL_EVICT_COUNTED), KB);

	pool_evict_set_class(f->ev, &f->n[1], POOL_EVICT_COUNTED);
	assert_int_equal(pool_evict_bytes(f->ev, POOL_EVICT_CACHE), 7);
	assert_int_equal(pool_evict_bytes(f->ev, POOL_EVICT_COUNTED), 2 * KB);
	assert_int_equal(evict(f, POOL_EVICT_CACHE), 2);
	assert_int_equal(evict(f, POOL_EVICT_CACHE), -1);
	assert_int_equal(evict(f, POOL_EVICT_COUNTED), 0);
	assert_int_equal(evict(f, POOL_EVICT_COUNTED), 1);
	assert_int_equal(pool_evict_bytes(f->ev, POOL_EVICT_COUNTED), 0);
	assert_int_equal(pool_evict_count(f->ev, POOL_EVICT_COUNTED), 0);
	assert_false(pool_evict_inserted(&f->n[1]));
}

static void
an_object_keeps_its_standing_when_its_class_changes(void **state)
{
	struct fixture *f = *state;

	pool_evict_insert(f->ev, &f->n[0], POOL_EVICT_CACHE);
	pool_evict_touch(f->ev, &f->n[0]);
	pool_evict_set_class(f->ev, &f->n[0], POOL_EVICT_COUNTED);
	pool_evict_insert(f->ev, &f->n[1], POOL_EVICT_COUNTED);
	pool_evict_insert(f->ev, &f->n[2], POOL_EVICT_COUNTED);
	assert_int_equal(evict(f, POOL_EVICT_COUNTED), 1);
}

static void
operations_on_what_is_not_inserted_do_nothing(void **state)
{
	struct fixture *f = *state;

	pool_evict_touch(f->ev, &f->n[0]);
	pool_evict_set_class(f->ev, &f->n[0], POOL_EVICT_COUNTED);
	pool_evict_remove(f->ev, &f->n[0], true);
	assert_false(pool_evict_inserted(&f->n[0]));
	assert_int_equal(victim(f, POOL_EVICT_COUNTED), -1);
	pool_evict_close(NULL);
}

static void
every_candidate_is_offered_once_before_any_is_again(void **state)
{
	struct fixture *f = *state;
	unsigned int seen = 0;

	insert_all(f);
	for (unsigned int i = 0; i < N; i += 3)
		pool_evict_touch(f->ev, &f->n[i]);
	for (int pass = 1; pass <= 3; pass++) {
		seen = 0;
		for (int i = 0; i < N; i++)
			seen |= 1u << victim(f, POOL_EVICT_COUNTED);
		assert_int_equal(seen, (1u << N) - 1);
	}
}

static bool may_even(struct pool_evict_node *n, void *arg)
{
	struct fixture *f = arg;

	return (n - f->n) % 2 == 0;
}

static bool may_none(struct pool_evict_node *n, void *arg)
{
	(void)n;
	++*(unsigned int *)arg;
	return false;
}

static void what_may_not_go_is_passed_over(void **state)
{
	struct fixture *f = *state;
	struct pool_evict_node *n;

	insert_all(f);
	pool_evict_touch(f->ev, &f->n[4]);
	for (int i = 0; i < N / 2; i++) {
		n = pool_evict_victim(f->ev, POOL_EVICT_COUNTED, may_even, f,
				      100);
		assert_non_null(n);
		assert_int_equal((n - f->n) % 2, 0);
		pool_evict_remove(f->ev, n, true);
	}
	n = pool_evict_victim(f->ev, POOL_EVICT_COUNTED, may_even, f, 100);
	assert_null(n);
	assert_int_equal(pool_evict_count(f->ev, POOL_EVICT_COUNTED), N / 2);
	/* and may be evicted later */
	assert_int_not_equal(victim(f, POOL_EVICT_COUNTED), -1);
}

static void a_scan_is_bounded_and_goes_on_where_it_ended(void **state)
{
	struct fixture *f = *state;
	unsigned int looked = 0;

	insert_all(f);
	assert_null(pool_evict_victim(f->ev, POOL_EVICT_COUNTED, may_none,
				      &looked, 4));
	assert_int_equal(looked, 4);
	assert_int_equal(victim(f, POOL_EVICT_COUNTED), 4);
	looked = 0;
	assert_null(pool_evict_victim(f->ev, POOL_EVICT_COUNTED, may_none,
				      &looked, 1000));
	assert_int_equal(looked, N);
	assert_null(
		pool_evict_victim(f->ev, POOL_EVICT_COUNTED, NULL, NULL, 0));
}

static void what_was_set_aside_rejoins_as_time_goes_by(void **state)
{
	struct fixture *f = *state;

	insert_all(f);
	assert_int_equal(victim(f, POOL_EVICT_COUNTED), 0);
	/* After a tenth of the capacity it is at the young end of its queue. So
	 * 9, inserted before that, is evicted first. */
	pool_evict_remove(f->ev, &f->n[9], false);
	pool_evict_insert(f->ev, &f->n[9], POOL_EVICT_COUNTED);
	for (long i = 1; i < N; i++)
		assert_int_equal(evict(f, POOL_EVICT_COUNTED), i);
	assert_int_equal(f->n[0].aside, 0);
	assert_int_equal(evict(f, POOL_EVICT_COUNTED), 0);
}

/* ---- simulations ---- */

/* A trace: requests, each a run of blocks 0 .. ndistinct - 1 in order. */
struct trace {
	uint32_t *block, *request; /* index of each request's first block */
	size_t nblocks, nrequests;
	uint32_t ndistinct;
};

static void trace_free(struct trace *t)
{
	free(t->block);
	free(t->request);
}

static void *grown(void *p, size_t n, size_t size)
{
	if (n && (n & (n - 1)))
		return p;
	p = realloc(p, (n ? 2 * n : 1) * size);
	assert_non_null(p);
	return p;
}

static void trace_block(struct trace *t, uint32_t id)
{
	t->block = grown(t->block, t->nblocks, sizeof(*t->block));
	t->block[t->nblocks++] = id;
	if (id >= t->ndistinct)
		t->ndistinct = id + 1;
}

static void trace_request(struct trace *t)
{
	t->request = grown(t->request, t->nrequests, sizeof(*t->request));
	t->request[t->nrequests++] = (uint32_t)t->nblocks;
}

/* Lines of {..., "hash_ids": [0, 1, 2]}, ids dense from 0. */
static void trace_read(struct trace *t, FILE *file)
{
	char *line = NULL, *p;
	size_t cap = 0;

	while (getline(&line, &cap, file) > 0) {
		p = strstr(line, "\"hash_ids\": [");
		assert_non_null(p);
		trace_request(t);
		for (p = strchr(p, '['); *p != ']';) {
			char *end;
			unsigned long id = strtoul(p + 1, &end, 10);

			if (end == p + 1)
				break; /* an empty list */
			assert_true(id < 1u << 24);
			trace_block(t, (uint32_t)id);
			p = end;
			assert_true(*p == ',' || *p == ']');
		}
	}
	free(line);
}

#define NODES_MAX 2

struct sim {
	struct pool_evict *ev[NODES_MAX];
	uint64_t used[NODES_MAX], capacity; /* bytes, of each */
	struct pool_evict_node *node;	    /* by block */
	uint8_t *where;			    /* by block; 0: nowhere;
					       else node + 1 */
	size_t hits;
};

static void sim_make_room(struct sim *s, unsigned int at)
{
	while (s->used[at] + BLOCK > s->capacity) {
		struct pool_evict_node *n = pool_evict_victim(
			s->ev[at], POOL_EVICT_COUNTED, NULL, NULL, 1);

		assert_non_null(n);
		pool_evict_remove(s->ev[at], n, true);
		s->where[n - s->node] = 0;
		s->used[at] -= BLOCK;
	}
}

static void sim_access(struct sim *s, unsigned int at, uint32_t id)
{
	if (s->where[id]) {
		s->hits++;
		pool_evict_touch(s->ev[s->where[id] - 1], &s->node[id]);
		return;
	}
	sim_make_room(s, at);
	pool_evict_insert(s->ev[at], &s->node[id], POOL_EVICT_COUNTED);
	s->used[at] += BLOCK;
	s->where[id] = (uint8_t)(at + 1);
}

/* Hits in per cent, with a total capacity of `blocks`; requests alternate
 * between the nodes. */
static double sim_run(const struct trace *t, unsigned int nodes, size_t blocks)
{
	struct sim s = { .capacity = blocks / nodes * BLOCK };

	s.node = calloc(t->ndistinct, sizeof(*s.node));
	s.where = calloc(t->ndistinct, 1);
	assert_true(s.node && s.where);
	for (uint32_t i = 0; i < t->ndistinct; i++)
		node_set(&s.node[i], i, BLOCK);
	for (unsigned int i = 0; i < nodes; i++)
		assert_non_null(s.ev[i] = pool_evict_open(s.capacity));
	for (size_t r = 0, b = 0; r < t->nrequests; r++) {
		size_t end = r + 1 < t->nrequests ? t->request[r + 1] :
						    t->nblocks;

		for (; b < end; b++)
			sim_access(&s, (unsigned int)r % nodes, t->block[b]);
	}
	for (unsigned int i = 0; i < nodes; i++)
		pool_evict_close(s.ev[i]);
	free(s.node);
	free(s.where);
	return 100.0 * (double)s.hits / (double)t->nblocks;
}

/* The same for one plain LRU or FIFO of `blocks`. */
static double lru_run(const struct trace *t, size_t blocks, bool fifo)
{
	struct pool_list head, *link;
	size_t used = 0, hits = 0;

	pool_list_init(&head);
	link = calloc(t->ndistinct, sizeof(*link));
	assert_non_null(link);
	for (uint32_t i = 0; i < t->ndistinct; i++)
		pool_list_init(&link[i]);
	for (size_t b = 0; b < t->nblocks; b++) {
		struct pool_list *l = &link[t->block[b]];

		if (!pool_list_empty(l)) {
			hits++;
			if (fifo)
				continue;
			pool_list_del(l);
		} else if (used == blocks) {
			pool_list_del(head.next);
		} else {
			used++;
		}
		pool_list_add_tail(&head, l);
	}
	free(link);
	return 100.0 * (double)hits / (double)t->nblocks;
}

static void chat_traffic_hits_at_least_as_often_as_lru(void **state)
{
	struct trace t = { 0 };
	FILE *file = fopen(TRACE, "r");
	double lru, fifo, one, one97, two, two97;
	size_t blocks;

	(void)state;
	if (!file) {
		print_message("SKIPPED: %s is not there\n", TRACE);
		skip();
	}
	trace_read(&t, file);
	fclose(file);
	assert_true(t.nrequests > 10000 && t.ndistinct > 100000);
	blocks = t.ndistinct / 10;
	lru = lru_run(&t, blocks, false);
	fifo = lru_run(&t, blocks, true);
	one = sim_run(&t, 1, blocks);
	one97 = sim_run(&t, 1, blocks * 97 / 100);
	two = sim_run(&t, 2, blocks);
	two97 = sim_run(&t, 2, blocks * 97 / 100);
	print_message("%zu blocks, room for %zu: LRU %.2f, FIFO %.2f, ours on "
		      "one node %.2f (3 %% less room: %.2f), on two %.2f "
		      "(%.2f) %% hits\n",
		      t.nblocks, blocks, lru, fifo, one, one97, two, two97);
	assert_true(fifo < lru);
	assert_true(one >= lru + 1);
	assert_true(one97 >= lru + 1);
	assert_true(two >= lru + 1);
	assert_true(two97 >= lru + 0.5);
	trace_free(&t);
}

/* ---- synthetic: Zipf with scans between ---- */

static uint64_t seed = 42;

static double uniform(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (double)(seed >> 11) / 9007199254740992.0;
}

#define HOT 10000u
#define ZIPF_SCAN_LEN 3000u

static uint32_t zipf(const double *cdf)
{
	double u = uniform() * cdf[HOT - 1];
	uint32_t lo = 0, hi = HOT - 1;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (cdf[mid] < u)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void scans_do_not_wash_out_what_is_popular(void **state)
{
	static double cdf[HOT];
	struct trace t = { 0 };
	uint32_t fresh = HOT;
	double lru, ours, two;

	(void)state;
	for (uint32_t i = 0; i < HOT; i++)
		cdf[i] = (i ? cdf[i - 1] : 0) + 1.0 / (double)(i + 1);
	for (int round = 0; round < 40; round++) {
		for (int i = 0; i < 3000; i++) {
			trace_request(&t);
			trace_block(&t, zipf(cdf));
		}
		for (uint32_t i = 0; i < ZIPF_SCAN_LEN; i++) {
			trace_request(&t);
			trace_block(&t, fresh++);
		}
	}
	lru = lru_run(&t, 1000, false);
	ours = sim_run(&t, 1, 1000);
	two = sim_run(&t, 2, 1000);
	print_message("Zipf and scans: LRU %.2f, ours %.2f, on two nodes "
		      "%.2f %% hits\n",
		      lru, ours, two);
	assert_true(ours >= lru + 2);
	assert_true(two >= lru + 2);
	trace_free(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(objects_used_once_go_in_order_of_arrival),
		T(an_object_that_was_touched_outlives_others),
		T(a_touched_object_does_not_stay_for_ever),
		T(a_ghost_comes_back_as_one_used_again),
		T(a_ghost_is_forgotten_after_a_turnover),
		T(classes_are_kept_apart_and_counted),
		T(an_object_keeps_its_standing_when_its_class_changes),
		T(operations_on_what_is_not_inserted_do_nothing),
		T(every_candidate_is_offered_once_before_any_is_again),
		T(what_may_not_go_is_passed_over),
		T(a_scan_is_bounded_and_goes_on_where_it_ended),
		T(what_was_set_aside_rejoins_as_time_goes_by),
		cmocka_unit_test(scans_do_not_wash_out_what_is_popular),
		cmocka_unit_test(chat_traffic_hits_at_least_as_often_as_lru),
	};

	alarm(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
