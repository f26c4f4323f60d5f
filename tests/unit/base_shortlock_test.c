/* pool_shortlock: consistency, and a writer among many readers. */
#include "tests/lib/unit.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "pool/base/shortlock.h"

#define READERS 4
#define CHANGES 50

struct pair {
	struct pool_shortlock lock;
	unsigned int a, b; /* equal, except while the lock is held for writing
			      */
	bool end;
	atomic_uint reads;
};

/* Hold the lock for longer than a thread is without it: then at least one of
 * several readers always holds it. */
static void stay(void)
{
	for (int i = 0; i < 300; i++)
		__builtin_ia32_pause();
}

static void *read_pair(void *arg)
{
	struct pair *p = arg;
	uintptr_t wrong = 0;
	bool end;

	do {
		pool_shortlock_read(&p->lock);
		wrong += p->a != p->b;
		end = p->end;
		stay();
		wrong += p->a != p->b;
		pool_shortlock_give(&p->lock);
		p->reads++;
	} while (!end);
	return (void *)wrong;
}

static void readers_see_no_half_change_and_keep_no_writer_away(void **state)
{
	struct pair p = { .a = 0 };
	pthread_t t[READERS];
	void *wrong;
	int i;

	(void)state;
	alarm(60);
	pool_shortlock_init(&p.lock);
	for (i = 0; i < READERS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, read_pair, &p), 0);
	unit_poll_until(p.reads >= 100 * READERS);
	for (i = 0; i < CHANGES; i++) {
		pool_shortlock_write(&p.lock);
		p.a++;
		stay();
		p.b++;
		pool_shortlock_give(&p.lock);
	}
	pool_shortlock_write(&p.lock);
	p.end = true;
	pool_shortlock_give(&p.lock);
	for (i = 0; i < READERS; i++) {
		pthread_join(t[i], &wrong);
		assert_null(wrong);
	}
	pool_shortlock_fini(&p.lock);
	alarm(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			readers_see_no_half_change_and_keep_no_writer_away),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
