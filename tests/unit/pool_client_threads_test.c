/* libkvpool: queries while other threads change the keys, and while the
 * connection's loop is busy. */
#include <semaphore.h>
#include <time.h>

#include "pool/client/client_priv.h"
#include "tests/unit/client_pool.h"

/* ---- questions and the loop ---- */

struct held {
	struct pool_mail mail;
	sem_t begun, asked;
	bool in_time;
};

/* Blocks the loop until the queries have been answered. */
static void hold_loop(struct pool_mail *mail)
{
	struct held *h = pool_container_of(mail, struct held, mail);
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 30;
	sem_post(&h->begun);
	h->in_time = sem_timedwait(&h->asked, &end) == 0;
	sem_post(&h->begun);
}

static void questions_do_not_wait_for_the_loop(void **state)
{
	struct fixture *f = *state;
	struct kvpool_key keys[] = { { "k", 1 }, { "none", 4 } };
	struct kvpool_ns *again;
	int64_t ret[2];
	struct held h;

	put(f, "k", 1000, 1);
	sem_init(&h.begun, 0, 0);
	sem_init(&h.asked, 0, 0);
	pool_mailbox_post(&f->pool->box, &h.mail, hold_loop);
	sem_wait(&h.begun);
	assert_int_equal(kvpool_exists(f->ns, "k", 1), 1);
	assert_int_equal(kvpool_exists_prefix(f->ns, keys, 2), 1);
	assert_int_equal(kvpool_batch_get_size(f->ns, keys, 2, ret), 1);
	assert_int_equal(ret[0], 1000);
	assert_int_equal(ret[1], -ENOENT);
	assert_int_equal(kvpool_open_ns(f->pool, "ns", NULL, &again), 0);
	kvpool_close_ns(again);
	sem_post(&h.asked);
	sem_wait(&h.begun);
	assert_true(h.in_time);
	sem_destroy(&h.begun);
	sem_destroy(&h.asked);
}

/* ---- all at once ---- */

#define STAY 48 /* keys that always exist, in one of two sizes */
#define SMALL 100
#define LARGE 3000
#define ROUNDS 60
#define PART 8192

struct worker {
	struct fixture *f;
	struct kvpool_ns *ns;
	void (*work)(struct worker *w);
	pthread_t thread;
	unsigned int nth, wrong;
	char *mem;
};

static _Atomic unsigned int writers; /* running ones */

static void be(struct worker *w, bool right, const char *what)
{
	if (!right && w->wrong++ == 0)
		print_message("thread %u: wrong: %s\n", w->nth, what);
}

static void stay_name(char *buf, unsigned int i)
{
	snprintf(buf, 32, "stay%u", i);
}

static size_t stay_size(unsigned int seed)
{
	return seed % 2 ? SMALL : LARGE;
}

/* Replaces existing keys; two threads use the same keys. */
static void put_again(struct worker *w)
{
	char key[32];

	for (unsigned int r = 0; r < ROUNDS; r++) {
		for (unsigned int i = 0; i < STAY; i++) {
			unsigned int seed = r * STAY + i + w->nth;
			size_t len = stay_size(seed);

			fill(w->mem, len, seed);
			memcpy(w->mem, &seed, sizeof(seed));
			stay_name(key, i);
			be(w, kvpool_put_from(w->ns, key, strlen(key), w->mem,
					      len, 0) == 0, "put again");
		}
		if (r % 10 == 9)
			be(w, kvpool_sync(w->ns->pool) == 0, "sync");
	}
	writers--;
}

/* Keys of this thread alone, some of them so long that they need
 * directories. */
static void put_and_remove(struct worker *w)
{
	char key[400];
	int len;

	for (unsigned int r = 0; r < 4 * ROUNDS; r++) {
		len = snprintf(key, sizeof(key), "mine%u-%0*u", w->nth,
			       r % 2 ? 300 : 1, r % 6);
		be(w, kvpool_exists(w->ns, key, (size_t)len) == 0, "is gone");
		be(w, kvpool_put_from(w->ns, key, (size_t)len, w->mem, 1 + r,
				      0) == 0, "put");
		be(w, kvpool_get_size(w->ns, key, (size_t)len) == 1 + r,
		   "is there");
		be(w, kvpool_remove(w->ns, key, (size_t)len) == 0, "remove");
	}
	writers--;
}

static void ask_all(struct worker *w)
{
	struct kvpool_key keys[2 * STAY];
	int64_t ret[2 * STAY];
	char names[2 * STAY][32];
	unsigned int i;

	for (i = 0; i < 2 * STAY; i++) {
		if (i < STAY)
			stay_name(names[i], i);
		else
			snprintf(names[i], sizeof(names[i]), "never%u", i);
		keys[i] = (struct kvpool_key){ names[i], strlen(names[i]) };
	}
	while (writers > 0) {
		be(w, kvpool_exists_prefix(w->ns, keys, 2 * STAY) == STAY,
		   "prefix");
		be(w, kvpool_batch_exists(w->ns, keys, 2 * STAY, ret) == STAY,
		   "exists");
		be(w, kvpool_batch_get_size(w->ns, keys, 2 * STAY, ret) == STAY,
		   "sizes");
		for (i = 0; i < 2 * STAY; i++)
			be(w, i < STAY ? ret[i] == SMALL || ret[i] == LARGE :
					 ret[i] == -ENOENT, "size");
		usleep(200);
	}
}

/* Reads a whole version, or misses if a version is replaced meanwhile. */
static void get_all(struct worker *w)
{
	char key[32], want[LARGE];
	unsigned int seed;
	int64_t n;

	for (unsigned int i = 0; writers > 0; i = (i + 1) % STAY) {
		stay_name(key, i);
		n = kvpool_get_into(w->ns, key, strlen(key), w->mem, PART, 0);
		if (n < 0) {
			be(w, n == -ENOENT, "get");
			continue;
		}
		memcpy(&seed, w->mem, sizeof(seed));
		fill(want, sizeof(want), seed);
		memcpy(want, &seed, sizeof(seed));
		be(w, (size_t)n == stay_size(seed) &&
			      memcmp(want, w->mem, (size_t)n) == 0, "bytes");
	}
}

static void *run_worker(void *arg)
{
	struct worker *w = arg;

	w->work(w);
	return NULL;
}

static void answers_are_right_while_names_change(void **state)
{
	struct fixture *f = *state;
	struct worker w[] = {
		{ .ns = f->ns, .work = put_again },
		{ .ns = f->ns, .work = put_again },
		{ .ns = f->ns, .work = put_and_remove },
		{ .ns = f->other_ns, .work = put_and_remove },
		{ .ns = f->ns, .work = ask_all },
		{ .ns = f->ns, .work = ask_all },
		{ .ns = f->other_ns, .work = ask_all },
		{ .ns = f->other_ns, .work = ask_all },
		{ .ns = f->ns, .work = get_all },
		{ .ns = f->other_ns, .work = get_all },
	};
	unsigned int i, n = sizeof(w) / sizeof(w[0]);
	char key[32];

	for (i = 0; i < STAY; i++) {
		stay_name(key, i);
		fill(f->mem, LARGE, 0);
		memset(f->mem, 0, sizeof(i)); /* its seed */
		assert_int_equal(kvpool_put_from(f->ns, key, strlen(key),
						 f->mem, LARGE, 0), 0);
	}
	assert_int_equal(kvpool_sync(f->pool), 0);
	writers = 4;
	for (i = 0; i < n; i++) {
		w[i].f = f;
		w[i].nth = i;
		w[i].mem = f->mem + i * PART;
		assert_int_equal(pthread_create(&w[i].thread, NULL, run_worker,
						&w[i]), 0);
	}
	for (i = 0; i < n; i++)
		pthread_join(w[i].thread, NULL);
	for (i = 0; i < n; i++)
		assert_int_equal(w[i].wrong, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(questions_do_not_wait_for_the_loop),
		T(answers_are_right_while_names_change),
		{ "answers_are_right_while_names_change (descriptors are lent)",
		  answers_are_right_while_names_change, setup_local, teardown,
		  NULL },
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
