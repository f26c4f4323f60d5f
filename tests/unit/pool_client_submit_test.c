/*
 * Requests of libkvpool and the threads that execute them
 * (pool/client/submit.c), without a pool: the batch calls are stubs of this
 * test.
 */
#include "tests/lib/unit.h"

#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pool/client/client_priv.h"

#define ROUNDS 50

static sem_t put_may_end, put_began, touched;

/* ---- the calls ---- */

int64_t kvpool_batch_put_from(struct kvpool_ns *ns,
			      const struct kvpool_key *keys,
			      const struct kvpool_buf *bufs, size_t n,
			      unsigned int flags, int64_t *ret)
{
	(void)ns, (void)keys, (void)bufs, (void)n, (void)flags, (void)ret;
	sem_post(&put_began);
	while (sem_wait(&put_may_end) < 0 && errno == EINTR)
		;
	return 1;
}

int64_t kvpool_batch_get_into(struct kvpool_ns *ns,
			      const struct kvpool_key *keys,
			      const struct kvpool_buf *bufs, size_t n,
			      unsigned int flags, int64_t *ret)
{
	(void)ns, (void)keys, (void)bufs, (void)flags, (void)ret;
	return (int64_t)n;
}

int64_t kvpool_batch_touch(struct kvpool_ns *ns, const struct kvpool_key *keys,
			   size_t n, int64_t *ret)
{
	(void)ns, (void)keys, (void)n, (void)ret;
	sem_post(&touched);
	return 2;
}

#define other(name)                                                        \
	int64_t name(struct kvpool_ns *ns, const struct kvpool_key *keys,  \
		     size_t n, int64_t *ret)                               \
	{                                                                  \
		(void)ns, (void)keys, (void)ret;                           \
		return (int64_t)n;                                         \
	}
other(kvpool_batch_get_size)
other(kvpool_batch_exists)
other(kvpool_batch_remove)
other(kvpool_batch_unpin)

int64_t kvpool_batch_pin(struct kvpool_ns *ns, const struct kvpool_key *keys,
			 size_t n, uint64_t ttl_ms, int64_t *ret)
{
	(void)ns, (void)keys, (void)ttl_ms, (void)ret;
	return (int64_t)n;
}

int64_t kvpool_exists_prefix(struct kvpool_ns *ns,
			     const struct kvpool_key *keys, size_t n)
{
	(void)ns, (void)keys;
	return (int64_t)n;
}

int client_fail(int err, const char *fmt, ...)
{
	(void)fmt;
	return err;
}

int client_check(const struct kvpool *p)
{
	return p ? 0 : -EINVAL;
}

/* ---- */

static struct kvpool pool;
static struct kvpool_ns ns = { .pool = &pool };

static void submit(enum kvpool_call call, uint64_t id)
{
	static const struct kvpool_key key = { "k", 1 };
	static const struct kvpool_buf buf;
	static int64_t ret;

	assert_int_equal(0, kvpool_submit(&ns, call, &key, &buf, 1, 0, &ret,
					  id));
}

/* Waits for sem; false after a time that only a missing post exceeds. */
static bool comes(sem_t *sem)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += 10;
	while (sem_timedwait(sem, &ts) < 0)
		if (errno == ETIMEDOUT)
			return false;
	return true;
}

static void take(size_t n)
{
	struct kvpool_completion c[8];

	while (n > 0) {
		n -= kvpool_completions(&pool, c, n < 8 ? n : 8);
		usleep(100);
	}
}

/* Does a thread wait until the first of `later` is due? */
static bool watched(void)
{
	bool is;

	pthread_mutex_lock(&pool.requests.lock);
	is = pool.requests.watched;
	pthread_mutex_unlock(&pool.requests.lock);
	return is;
}

/*
 * Two threads wait, and one of them is the watcher of a delayed touch. The
 * watcher takes a put that lasts: the other thread must execute the touch.
 */
static void a_touch_does_not_wait_for_a_put_that_its_watcher_took(void **state)
{
	unsigned int round, shown = 0;
	bool done, came;

	(void)state;
	for (round = 0; round < ROUNDS || shown == 0; round++) {
		submit(KVPOOL_CALL_PUT_FROM, 1); /* makes one thread busy */
		assert_true(comes(&put_began));
		submit(KVPOOL_CALL_TOUCH, 2);
		done = false;
		while (!watched() && !done)
			done = sem_trywait(&touched) == 0;
		sem_post(&put_may_end); /* the thread becomes idle */
		take(1);
		submit(KVPOOL_CALL_PUT_FROM, 3);
		assert_true(comes(&put_began));
		/* If the touch was executed before the put was taken, this
		 * round shows nothing. */
		shown += !done;
		came = done || comes(&touched);
		sem_post(&put_may_end);
		take(2);
		assert_true(came);
	}
}

static void no_more_than_so_many_are_taken(void **state)
{
	static const struct kvpool_key key = { "k", 1 };
	static const struct kvpool_buf buf;
	int64_t ret;
	size_t i;

	(void)state;
	for (i = 0; i < KVPOOL_REQUESTS_MAX; i++)
		submit(KVPOOL_CALL_EXISTS, i);
	assert_int_equal(-EAGAIN, kvpool_submit(&ns, KVPOOL_CALL_EXISTS, &key,
						&buf, 1, 0, &ret, i));
	take(KVPOOL_REQUESTS_MAX);
	submit(KVPOOL_CALL_EXISTS, i);
	take(1);
}

static void a_thread_that_is_to_end_does_what_is_left(void **state)
{
	struct kvpool_completion c;

	(void)state;
	submit(KVPOOL_CALL_TOUCH, 1);
	client_requests_fini(&pool.requests);
	assert_true(comes(&touched));
	memset(&pool, 0, sizeof(pool));
	assert_int_equal(0, client_requests_init(&pool.requests, 2));
	assert_int_equal(0, kvpool_completions(&pool, &c, 1));
}

static int setup(void **state)
{
	(void)state;
	alarm(100);
	sem_init(&put_may_end, 0, 0);
	sem_init(&put_began, 0, 0);
	sem_init(&touched, 0, 0);
	memset(&pool, 0, sizeof(pool));
	return client_requests_init(&pool.requests, 2);
}

static int teardown(void **state)
{
	(void)state;
	client_requests_fini(&pool.requests);
	alarm(0);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_touch_does_not_wait_for_a_put_that_its_watcher_took),
		T(no_more_than_so_many_are_taken),
		T(a_thread_that_is_to_end_does_what_is_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
