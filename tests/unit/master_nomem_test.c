/*
 * The master without memory for a change: this program's calloc(3) (--wrap)
 * fails on demand.
 */
#include <errno.h>

#define NNODES 2
#include "master_fake_pool.h"
#include "master/map.h"

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

static size_t fails; /* the next calloc of this size fails; 0: none */

void *__wrap_calloc(size_t n, size_t size)
{
	if (fails && n * size == fails) {
		fails = 0;
		errno = ENOMEM;
		return NULL;
	}
	return __real_calloc(n, size);
}

/* Joins, with an empty store. */
static void join(struct fake_node *n)
{
	fake_dial(n, &loop, master_port(master));
	fake_send_join(n);
	run_until(&loop, n->welcomed);
	fake_inventory(n, NULL, 0, true);
}

/* Sends UNLINK of d/k and RMDIR of d in one message, and waits for the
 * results. */
static void remove_both(struct fake_node *n)
{
	Kvpool__Ops ops = KVPOOL__OPS__INIT;
	Kvpool__Op op[2] = { KVPOOL__OP__INIT, KVPOOL__OP__INIT };
	Kvpool__Op *list[2] = { &op[0], &op[1] };
	Kvpool__Meta meta[2];

	fake_meta(&meta[0], "d/k", 0);
	fake_meta(&meta[1], "d", 0);
	op[0].kind = KVPOOL__OP__KIND__UNLINK;
	op[0].meta = &meta[0];
	op[1].kind = KVPOOL__OP__KIND__RMDIR;
	op[1].meta = &meta[1];
	ops.ops = list;
	ops.n_ops = 2;
	n->ops_done = false;
	n->nresults = 0;
	assert_int_equal(0, pool_conn_send(n->conn, POOL_MSG_OPS, 7,
					   &ops.base));
	run_until(&loop, (n->ops_done && n->nresults == 2) || n->closed);
}

/* The node only has to repeat the changes that were not answered. */
static void a_change_that_needs_memory_is_asked_for_again(size_t grave,
							   size_t answered)
{
	struct fake_node *n = &node[0], *other = &node[1];
	uint64_t gen;

	join(n);
	join(other);
	fake_subscribe(other, 0, 0);
	run_until(&loop, other->completes == 1);
	gen = fake_publish(n, "d/k");
	run_until(&loop, fake_knows(other, "d/k", gen));
	fails = sizeof(struct master_grave) + grave;
	remove_both(n);
	assert_int_equal(0, fails);
	assert_int_equal(answered, n->nresults);
	if (answered)
		assert_int_equal(0, n->status[0]);
	else	/* not executed at all */
		assert_false(fake_dropped(n, "d/k", gen,
					  KVPOOL__DROP__REASON__DELETED));
	assert_true(n->closed);
	assert_int_equal(-ENOMEM, n->error);
	join(n);
	remove_both(n);
	assert_int_equal(2, n->nresults);
	assert_int_equal(0, n->status[0]);
	assert_int_equal(0, n->status[1]);
	run_until(&loop, !fake_find(other, "d/k") && !fake_find(other, "d"));
}

static void an_unlink_that_needs_memory_is_asked_for_again(void **state)
{
	(void)state;
	a_change_that_needs_memory_is_asked_for_again(strlen("d/k"), 0);
}

static void an_rmdir_that_needs_memory_is_asked_for_again(void **state)
{
	(void)state;
	a_change_that_needs_memory_is_asked_for_again(strlen("d"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(an_unlink_that_needs_memory_is_asked_for_again),
		T(an_rmdir_that_needs_memory_is_asked_for_again),
	};

	return run_all_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
