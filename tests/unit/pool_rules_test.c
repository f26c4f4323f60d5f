#include "tests/lib/unit.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "pool/model/rules.h"

#define NOW UINT64_C(1795237200000000000)
#define S UINT64_C(1000000000)
#define X(name) POOL_XATTR_PREFIX name

static int set(struct pool_rules *r, const char *name, const char *value)
{
	return pool_rules_set(r, name, value, strlen(value), true, NOW, NULL);
}

static void each_value_sets_its_rule_alone(void **state)
{
	static const struct {
		const char *name, *value;
		struct pool_rules want;
	} cases[] = {
		{ X("class"), "shared", { .class = POOL_CLASS_SHARED } },
		{ X("class"), "noevict", { .class = POOL_CLASS_NOEVICT } },
		{ X("class"), "scratch", { .class = POOL_CLASS_SCRATCH } },
		{ X("pin"), "none", { .pin = POOL_PIN_NONE } },
		{ X("pin"), "soft", { .pin = POOL_PIN_SOFT } },
		{ X("pin"), "hard", { .pin = POOL_PIN_HARD } },
		{ X("pin"), "soft:30s", { .pin = POOL_PIN_SOFT,
					  .pin_until_ns = NOW + 30 * S } },
		{ X("pin"), "soft:0s", { .pin = POOL_PIN_SOFT,
					 .pin_until_ns = NOW } },
		{ X("replicas"), "1", { .replicas = 1 } },
		{ X("replicas"), "8", { .replicas = 8 } },
		{ X("unlink"), "pool", { .unlink = POOL_UNLINK_POOL } },
		{ X("unlink"), "node", { .unlink = POOL_UNLINK_NODE } },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pool_rules r = { 0 };

		assert_int_equal(set(&r, cases[i].name, cases[i].value), 0);
		assert_memory_equal(&r, &cases[i].want, sizeof(r));
		assert_false(pool_rules_empty(&r));
		assert_int_equal(set(&r, cases[i].name, ""), 0);
		assert_true(pool_rules_empty(&r));
		assert_int_equal(r.pin_until_ns, 0);
	}
}

static void a_bad_value_is_refused_with_what_is_accepted(void **state)
{
	static const struct {
		const char *name, *value, *accepted;
	} cases[] = {
		{ X("class"), "Shared", "noevict" },
		{ X("class"), "sharedx", "noevict" },
		{ X("class"), "shar", "noevict" },
		{ X("pin"), "yes", "soft:<duration>" },
		{ X("pin"), "soft:", "soft:<duration>" },
		{ X("pin"), "soft:x", "soft:<duration>" },
		{ X("pin"), "hard:30s", "soft:<duration>" },
		{ X("pin"), "soft:99999999999999d", "soft:<duration>" },
		{ X("pin"), "soft:18446744073708s", "soft:<duration>" },
		{ X("replicas"), "0", "1..8" },
		{ X("replicas"), "9", "1..8" },
		{ X("replicas"), "2 ", "1..8" },
		{ X("replicas"), "two", "1..8" },
		{ X("replicas"), "00000000000000000000000000000000000000002",
		  "1..8" },
		{ X("unlink"), "all", "pool, node" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pool_rules r = { 0 };
		const char *accepted = NULL;
		int err = pool_rules_set(&r, cases[i].name, cases[i].value,
					 strlen(cases[i].value), true, NOW,
					 &accepted);

		if (err != -EINVAL || !accepted ||
		    !strstr(accepted, cases[i].accepted))
			fail_msg("%s=%s", cases[i].name, cases[i].value);
		assert_true(pool_rules_empty(&r));
	}
}

static void a_value_with_a_nul_inside_is_refused(void **state)
{
	struct pool_rules r = { 0 };

	(void)state;
	assert_int_equal(pool_rules_set(&r, X("pin"), "hard\0", 5, true, NOW,
					NULL), -EINVAL);
	assert_int_equal(pool_rules_set(&r, X("pin"), "hardxx", 4, true, NOW,
					NULL), 0);
	assert_int_equal(r.pin, POOL_PIN_HARD);
}

static void other_names_are_no_rules(void **state)
{
	static const char *const names[] = { X("state"), X(""), "user.pin",
					     "pin", X("replicas2"), "" };
	struct pool_rules r = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_int_equal(set(&r, names[i], "1"), -ENOTSUP);
}

static void a_class_is_for_directories_only(void **state)
{
	struct pool_rules r = { 0 };
	const char *accepted = NULL;

	(void)state;
	assert_int_equal(pool_rules_set(&r, X("class"), "scratch", 7, false,
					NOW, &accepted), -EINVAL);
	assert_non_null(strstr(accepted, "directories"));
	assert_int_equal(pool_rules_set(&r, X("pin"), "hard", 4, false, NOW,
					NULL), 0);
	assert_int_equal(r.class, POOL_CLASS_UNSET);
}

static void a_soft_pin_with_a_fixed_end_means_the_same_at_any_time(void **state)
{
	struct pool_rules r = { 0 };
	const char *name = X("pin"), *value = "soft@1795241001";
	uint64_t now;

	(void)state;
	for (now = 0; now < 3000000000u * S; now += 1000000000u * S) {
		assert_int_equal(pool_rules_set(&r, name, value, strlen(value),
						false, now, NULL), 0);
		assert_int_equal(r.pin, POOL_PIN_SOFT);
		assert_true(r.pin_until_ns == 1795241001u * S);
	}
	assert_int_equal(set(&r, name, "soft@"), -EINVAL);
	assert_int_equal(set(&r, name, "soft@0"), -EINVAL);
	assert_int_equal(set(&r, name, "soft@18446744074"), -EINVAL);
}

static void a_pin_without_an_end_replaces_one_with_an_end(void **state)
{
	struct pool_rules r = { 0 };

	(void)state;
	assert_int_equal(set(&r, X("pin"), "soft:1.5m"), 0);
	assert_int_equal(r.pin, POOL_PIN_SOFT);
	assert_true(r.pin_until_ns == NOW + 90 * S);
	assert_int_equal(set(&r, X("pin"), "soft"), 0);
	assert_int_equal(r.pin_until_ns, 0);
}

static void what_is_unset_is_inherited(void **state)
{
	struct pool_rules parent = { 0 }, r = { 0 };

	(void)state;
	assert_int_equal(set(&parent, X("class"), "noevict"), 0);
	assert_int_equal(set(&parent, X("pin"), "soft:10s"), 0);
	assert_int_equal(set(&parent, X("replicas"), "3"), 0);
	assert_int_equal(set(&r, X("replicas"), "2"), 0);
	pool_rules_inherit(&r, &parent);
	assert_int_equal(r.class, POOL_CLASS_NOEVICT);
	assert_int_equal(r.pin, POOL_PIN_SOFT);
	assert_true(r.pin_until_ns == NOW + 10 * S);
	assert_int_equal(r.replicas, 2);
	assert_int_equal(r.unlink, POOL_UNLINK_UNSET);
}

static void a_pin_of_its_own_has_its_own_end(void **state)
{
	struct pool_rules parent = { 0 }, r = { 0 };

	(void)state;
	assert_int_equal(set(&parent, X("pin"), "soft:10s"), 0);
	assert_int_equal(set(&r, X("pin"), "soft"), 0);
	pool_rules_inherit(&r, &parent);
	assert_int_equal(r.pin_until_ns, 0);
}

static void defaults_fill_the_rest(void **state)
{
	struct pool_rules r = { .replicas = 2 };

	(void)state;
	pool_rules_default(&r);
	assert_int_equal(r.class, POOL_CLASS_SHARED);
	assert_int_equal(r.pin, POOL_PIN_NONE);
	assert_int_equal(r.unlink, POOL_UNLINK_POOL);
	assert_int_equal(r.replicas, 2);
	assert_int_equal(r.pin_until_ns, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_value_sets_its_rule_alone),
		cmocka_unit_test(
			a_bad_value_is_refused_with_what_is_accepted),
		cmocka_unit_test(a_value_with_a_nul_inside_is_refused),
		cmocka_unit_test(other_names_are_no_rules),
		cmocka_unit_test(a_class_is_for_directories_only),
		cmocka_unit_test(
			a_soft_pin_with_a_fixed_end_means_the_same_at_any_time),
		cmocka_unit_test(
			a_pin_without_an_end_replaces_one_with_an_end),
		cmocka_unit_test(what_is_unset_is_inherited),
		cmocka_unit_test(a_pin_of_its_own_has_its_own_end),
		cmocka_unit_test(defaults_fill_the_rest),
	};

	alarm(30);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
