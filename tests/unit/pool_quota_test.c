/* Accounting of directories and attributes: limits, and owners that appear and
 * disappear. */
#include "tests/lib/unit.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/list.h"
#include "pool/model/xattrs.h"

#define USER 4711u

static int setup(void **state)
{
	static struct pool_quota q;

	pool_quota_init(&q);
	pool_quota_limit(&q, 80, 8000);
	*state = &q;
	return 0;
}

static int teardown(void **state)
{
	pool_quota_fini(*state);
	return 0;
}

static void a_user_has_a_quarter(void **state)
{
	struct pool_quota *q = *state;

	assert_int_equal(0, pool_quota_check(q, USER, 20, 2000));
	assert_int_equal(-EDQUOT, pool_quota_check(q, USER, 21, 0));
	assert_int_equal(-EDQUOT, pool_quota_check(q, USER, 0, 2001));
	pool_quota_add(q, USER, 20, 1990);
	assert_int_equal(-EDQUOT, pool_quota_check(q, USER, 1, 0));
	assert_int_equal(0, pool_quota_check(q, USER, 0, 10));
	assert_int_equal(-EDQUOT, pool_quota_check(q, USER, 0, 11));
	assert_int_equal(0, pool_quota_check(q, USER + 1, 20, 2000));
}

static void the_last_eighth_is_for_the_privileged(void **state)
{
	struct pool_quota *q = *state;

	for (uint32_t i = 0; i < 7; i++)
		pool_quota_add(q, USER + i, 10, 1000);
	assert_int_equal(-ENOSPC, pool_quota_check(q, USER + 7, 1, 0));
	assert_int_equal(-ENOSPC, pool_quota_check(q, USER + 7, 0, 1));
	assert_int_equal(0, pool_quota_check(q, 0, 10, 1000));
	assert_int_equal(0, pool_quota_check(q, geteuid(), 10, 1000));
	assert_int_equal(-ENOSPC, pool_quota_check(q, 0, 11, 0));
	assert_int_equal(-ENOSPC, pool_quota_check(q, 0, 0, 1001));
	assert_int_equal(700, pool_quota_bound(q, USER, 800));
	assert_int_equal(800, pool_quota_bound(q, 0, 800));
	assert_int_equal(800, pool_quota_bound(q, geteuid(), 800));
}

static void what_is_beyond_a_limit_stays_and_may_shrink(void **state)
{
	struct pool_quota *q = *state;

	pool_quota_add(q, USER, 200, 9000);
	assert_int_equal(-EDQUOT, pool_quota_check(q, USER, 1, 0));
	assert_int_equal(-ENOSPC, pool_quota_check(q, 0, 1, 0));
	assert_int_equal(0, pool_quota_check(q, USER, 0, 0));
	pool_quota_sub(q, USER, 190, 9000);
	assert_int_equal(0, pool_quota_check(q, USER, 1, 1));
	pool_quota_limit(q, 0, 0);
	assert_int_equal(0, pool_quota_check(q, 0, POOL_QUOTA_DIRS - 10,
					     POOL_QUOTA_BYTES));
}

static void an_owner_of_nothing_takes_no_memory(void **state)
{
	struct pool_quota *q = *state;

	for (uint32_t i = 0; i < 1000; i++)
		pool_quota_add(q, i, 1, 100);
	assert_int_equal(1000, q->owners.count);
	assert_int_equal(100, pool_quota_of(q, 999).bytes);
	for (uint32_t i = 0; i < 1000; i++)
		pool_quota_sub(q, i, 1, 100);
	pool_quota_sub(q, 7, 0, 0);
	assert_int_equal(0, q->owners.count);
	assert_int_equal(0, q->used.dirs + q->used.bytes);
	assert_int_equal(0, pool_quota_of(q, 999).bytes);
}

static void a_difference_is_found(void **state)
{
	struct pool_quota *q = *state, other;

	pool_quota_init(&other);
	pool_quota_add(q, USER, 2, 10);
	pool_quota_add(&other, USER, 1, 10);
	pool_quota_add(&other, USER + 1, 1, 0);
	assert_int_equal(q->used.dirs, other.used.dirs);
	assert_false(pool_quota_equal(q, &other));
	pool_quota_sub(&other, USER + 1, 1, 0);
	pool_quota_add(&other, USER, 1, 0);
	assert_true(pool_quota_equal(q, &other));
	pool_quota_fini(&other);
}

static void a_set_is_charged_until_it_is_freed(void **state)
{
	struct pool_xattrs *x = NULL, *copy;
	struct pool_quota *q = *state;

	assert_int_equal(0, pool_xattrs_set(&x, "user.a", "value", 5, 0));
	pool_xattrs_charge(x, q, USER);
	pool_xattrs_charge(x, q, USER);
	assert_int_equal(pool_xattrs_size(x), q->used.bytes);
	assert_int_equal(0, pool_xattrs_dup(x, &copy));
	pool_xattrs_free(copy);
	assert_int_equal(pool_xattrs_size(x), q->used.bytes);
	pool_xattrs_charge(x, q, 0); /* another owner */
	assert_int_equal(0, pool_quota_of(q, USER).bytes);
	assert_int_equal(pool_xattrs_size(x), pool_quota_of(q, 0).bytes);
	assert_int_equal(0, pool_xattrs_set(&x, "user.b", "value", 5, 0));
	assert_int_equal(0, q->used.bytes); /* a new set, not charged */
	pool_xattrs_charge(x, q, USER);
	pool_xattrs_charge(x, NULL, 0);
	assert_int_equal(0, q->used.bytes);
	pool_xattrs_charge(x, q, USER);
	pool_xattrs_free(x);
	assert_int_equal(0, q->used.bytes);
	pool_xattrs_charge(NULL, q, USER);
	assert_int_equal(0, pool_xattrs_size(NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_user_has_a_quarter),
		T(the_last_eighth_is_for_the_privileged),
		T(what_is_beyond_a_limit_stays_and_may_shrink),
		T(an_owner_of_nothing_takes_no_memory),
		T(a_difference_is_found),
		T(a_set_is_charged_until_it_is_freed),
	};

	alarm(20);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
