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

static void assert_rule_at(const struct pool_rules *r, const char *name,
			   uint64_t now, const char *value)
{
	char buf[32];

	assert_int_equal(pool_rules_get(r, name, now, buf, sizeof(buf)),
			 strlen(value));
	assert_string_equal(buf, value);
}

static void what_is_set_is_read_back(void **state)
{
	static const struct {
		const char *name, *value;
	} cases[] = {
		{ X("class"), "shared" },   { X("class"), "noevict" },
		{ X("class"), "scratch" },  { X("pin"), "none" },
		{ X("pin"), "soft" },	    { X("pin"), "hard" },
		{ X("pin"), "soft:30s" },   { X("replicas"), "1" },
		{ X("replicas"), "8" },	    { X("unlink"), "pool" },
		{ X("unlink"), "node" },    { X("pin"), "soft:0s" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pool_rules r = { 0 };

		assert_int_equal(set(&r, cases[i].name, cases[i].value), 0);
		assert_false(pool_rules_empty(&r));
		assert_rule_at(&r, cases[i].name, NOW, cases[i].value);
		assert_int_equal(set(&r, cases[i].name, ""), 0);
		assert_true(pool_rules_empty(&r));
		assert_int_equal(r.pin_until_ns, 0);
		assert_int_equal(pool_rules_get(&r, cases[i].name, NOW, NULL,
						0), -ENODATA);
	}
}

static void every_listed_name_is_a_rule(void **state)
{
	struct pool_rules r = { 0 };
	char buf[32];
	int n = 0;

	(void)state;
	pool_rules_default(&r);
	for (const char *const *p = pool_rules_names; *p; p++, n++) {
		/* set accepts what get returns */
		int len = pool_rules_get(&r, *p, NOW, buf, sizeof(buf));

		assert_true(len > 0);
		assert_int_equal(pool_rules_set(&r, *p, buf, (size_t)len, true,
						NOW, NULL), 0);
	}
	assert_int_equal(n, 4);
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
	char buf[32];

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		assert_int_equal(set(&r, names[i], "1"), -ENOTSUP);
		assert_int_equal(pool_rules_get(&r, names[i], NOW, buf,
						sizeof(buf)), -ENODATA);
	}
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

static void a_soft_pin_shows_the_time_left(void **state)
{
	struct pool_rules r = { 0 };

	(void)state;
	assert_int_equal(set(&r, X("pin"), "soft:1.5m"), 0);
	assert_int_equal(r.pin, POOL_PIN_SOFT);
	assert_true(r.pin_until_ns == NOW + 90 * S);
	assert_rule_at(&r, X("pin"), NOW, "soft:90s");
	assert_rule_at(&r, X("pin"), NOW + 89 * S + 1, "soft:1s");
	assert_rule_at(&r, X("pin"), NOW + 90 * S, "soft:0s");
	assert_rule_at(&r, X("pin"), NOW + 900 * S, "soft:0s");
	assert_int_equal(set(&r, X("pin"), "soft"), 0);
	assert_int_equal(r.pin_until_ns, 0);
}

static void a_buffer_that_is_too_small_is_an_error(void **state)
{
	struct pool_rules r = { .class = POOL_CLASS_SHARED };
	char buf[8];

	(void)state;
	assert_int_equal(pool_rules_get(&r, X("class"), NOW, buf, 6), -ERANGE);
	assert_int_equal(pool_rules_get(&r, X("class"), NOW, buf, 7), 6);
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
		cmocka_unit_test(what_is_set_is_read_back),
		cmocka_unit_test(every_listed_name_is_a_rule),
		cmocka_unit_test(
			a_bad_value_is_refused_with_what_is_accepted),
		cmocka_unit_test(a_value_with_a_nul_inside_is_refused),
		cmocka_unit_test(other_names_are_no_rules),
		cmocka_unit_test(a_class_is_for_directories_only),
		cmocka_unit_test(
			a_soft_pin_with_a_fixed_end_means_the_same_at_any_time),
		cmocka_unit_test(a_soft_pin_shows_the_time_left),
		cmocka_unit_test(a_buffer_that_is_too_small_is_an_error),
		cmocka_unit_test(what_is_unset_is_inherited),
		cmocka_unit_test(a_pin_of_its_own_has_its_own_end),
		cmocka_unit_test(defaults_fill_the_rest),
	};

	alarm(30);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
