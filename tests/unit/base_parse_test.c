#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/parse.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define KEPT UINT64_C(0xdeadbeef) /* results are written only on success */

typedef int (*number_fn)(const char *text, uint64_t *ret_value);

struct good {
	const char *text;
	uint64_t value;
};

static void all_good(number_fn fn, const struct good *cases, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t v = KEPT;

		if (fn(cases[i].text, &v) || v != cases[i].value)
			fail_msg("'%s': %llu", cases[i].text,
				 (unsigned long long)v);
	}
}

static void all_bad(number_fn fn, int err, const char *const *texts, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t v = KEPT;
		int got = fn(texts[i], &v);

		if (got != err || v != KEPT)
			fail_msg("'%s': %d", texts[i], got);
	}
}

static void sizes_take_every_usual_unit(void **state)
{
	static const struct good good[] = {
		{ "0", 0 },
		{ "1048576", 1048576 },
		{ "18446744073709551615", UINT64_MAX },
		{ "1k", 1024 },
		{ "1KiB", 1024 },
		{ "1KB", 1024 },
		{ "50G", UINT64_C(50) << 30 },
		{ "50gb", UINT64_C(50) << 30 },
		{ "50GiB", UINT64_C(50) << 30 },
		{ "1.5T", UINT64_C(3) << 39 },
		{ "2P", UINT64_C(2) << 50 },
		{ "0.5M", 1u << 19 },
		{ "0.1k", 102 },
		{ "16383P", UINT64_C(16383) << 50 },
	};

	(void)state;
	all_good(pool_parse_size, good, COUNT(good));
}

static void bad_sizes_are_refused(void **state)
{
	static const char *const bad[] = {
		"",	"G",	" 1",	"1 ",	"1 G",	"-1",	"+1",
		"1.5",	".5G",	"5.G",	"1.2.3G", "1Gx", "1GBi", "1iB",
		"1X",	"0x10", "1e3",	"1,5G", "1GG",	"nan",
	};
	static const char *const large[] = {
		"18446744073709551616", "16384P", "99999999999999999999G",
		"1.1234567890123456G",
	};

	(void)state;
	all_bad(pool_parse_size, -EINVAL, bad, COUNT(bad));
	all_bad(pool_parse_size, -ERANGE, large, COUNT(large));
}

static void durations_are_in_seconds_unless_they_say_so(void **state)
{
	static const struct good good[] = {
		{ "0", 0 },	   { "500ms", 500 }, { "2s", 2000 },
		{ "2", 2000 },	   { "1.5s", 1500 }, { "0.25", 250 },
		{ "10m", 600000 }, { "1h", 3600000 }, { "1d", 86400000 },
	};
	static const char *const bad[] = {
		"", "s", "1 s", "1S", "-1s", "1sec", "1ms ", "1hm", "1w",
	};
	static const char *const large[] = { "18446744073709552s",
					     "18446744073709551616ms" };

	(void)state;
	all_good(pool_parse_duration_ms, good, COUNT(good));
	all_bad(pool_parse_duration_ms, -EINVAL, bad, COUNT(bad));
	all_bad(pool_parse_duration_ms, -ERANGE, large, COUNT(large));
}

static int u64_3_to_10(const char *text, uint64_t *ret_value)
{
	return pool_parse_u64(text, 3, 10, ret_value);
}

static void counts_are_digits_within_bounds(void **state)
{
	static const struct good good[] = { { "3", 3 }, { "10", 10 },
					    { "007", 7 } };
	static const char *const bad[] = { "", "x", "3 ", " 3", "3x", "-3",
					   "99999999999999999999x", "3.0" };
	static const char *const out[] = { "2", "11", "0",
					   "99999999999999999999999" };
	uint64_t v;

	(void)state;
	all_good(u64_3_to_10, good, COUNT(good));
	all_bad(u64_3_to_10, -EINVAL, bad, COUNT(bad));
	all_bad(u64_3_to_10, -ERANGE, out, COUNT(out));
	assert_int_equal(pool_parse_u64("18446744073709551615", 0, UINT64_MAX,
					&v), 0);
	assert_true(v == UINT64_MAX);
}

static void booleans_have_four_spellings(void **state)
{
	static const char *const yes[] = { "1", "true", "YES", "on" };
	static const char *const no[] = { "0", "False", "no", "off" };
	static const char *const bad[] = { "", "2", "y", "true ", "onn" };
	bool b;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		b = false;
		assert_int_equal(pool_parse_bool(yes[i], &b), 0);
		assert_true(b);
		assert_int_equal(pool_parse_bool(no[i], &b), 0);
		assert_false(b);
	}
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_int_equal(pool_parse_bool(bad[i], &b), -EINVAL);
}

static void addresses_are_host_and_port(void **state)
{
	static const struct {
		const char *text, *host;
		uint16_t default_port, port;
	} good[] = {
		{ "node-1.example:7070", "node-1.example", 0, 7070 },
		{ "10.0.0.1:0", "10.0.0.1", 7070, 0 },
		{ "node", "node", 7070, 7070 },
		{ "[::1]:65535", "::1", 0, 65535 },
		{ "[fe80::1%eth0]", "fe80::1%eth0", 9, 9 },
		{ "a_b:1", "a_b", 0, 1 },
	};
	static const char *const bad[] = {
		"",	     ":1",	"host:",   "host: 1",  "host :1",
		"host:1 ",   "host:-1", "::1",	   "::1:7070", "[::1",
		"[::1]7070", "[]:1",	"[host]:1", "[1.2.3.4]:1",
		"ho/st:1",   "a\nb:1",	"[::1%]:1", "[::1]:",
	};
	struct pool_hostport hp;

	(void)state;
	for (size_t i = 0; i < COUNT(good); i++) {
		assert_int_equal(pool_parse_hostport(good[i].text,
						     good[i].default_port,
						     &hp), 0);
		assert_string_equal(hp.host, good[i].host);
		assert_int_equal(hp.port, good[i].port);
	}
	hp.port = 77;
	for (size_t i = 0; i < COUNT(bad); i++)
		if (pool_parse_hostport(bad[i], 1, &hp) != -EINVAL)
			fail_msg("'%s'", bad[i]);
	assert_int_equal(pool_parse_hostport("host", 0, &hp), -EINVAL);
	assert_int_equal(pool_parse_hostport("host:65536", 0, &hp), -ERANGE);
	assert_int_equal(hp.port, 77);
}

static void a_host_may_be_as_long_as_promised_and_no_longer(void **state)
{
	char text[POOL_HOST_MAX + 10];
	struct pool_hostport hp;

	(void)state;
	memset(text, 'h', POOL_HOST_MAX);
	strcpy(text + POOL_HOST_MAX, ":1");
	assert_int_equal(pool_parse_hostport(text, 0, &hp), 0);
	assert_int_equal(strlen(hp.host), POOL_HOST_MAX);
	strcpy(text + POOL_HOST_MAX, "h:1");
	assert_int_equal(pool_parse_hostport(text, 0, &hp), -EINVAL);
}

static void loopback_is_known_by_its_literals(void **state)
{
	static const char *const yes[] = { "localhost", "LOCALHOST",
					   "127.0.0.1", "127.9.8.7", "::1",
					   "::ffff:127.0.0.1" };
	static const char *const no[] = { "",	    "0.0.0.0", "::",
					  "128.0.0.1", "10.0.0.127",
					  "127.0.0.1.example", "localhost.x",
					  "::ffff:10.0.0.1" };

	(void)state;
	for (size_t i = 0; i < COUNT(yes); i++)
		if (!pool_host_is_loopback(yes[i]))
			fail_msg("'%s'", yes[i]);
	for (size_t i = 0; i < COUNT(no); i++)
		if (pool_host_is_loopback(no[i]))
			fail_msg("'%s'", no[i]);
}

static void a_wildcard_is_known_in_all_its_spellings(void **state)
{
	static const char *const yes[] = { "0.0.0.0", "0", "0.0", "::",
					   "0:0:0:0:0:0:0:0",
					   "::ffff:0.0.0.0" };
	static const char *const no[] = { "", "127.0.0.1", "::1", "10.0.0.0",
					  "0.0.0.1", "zero", "0.example",
					  "::ffff:10.0.0.1" };

	(void)state;
	for (size_t i = 0; i < COUNT(yes); i++)
		if (!pool_host_is_wildcard(yes[i]))
			fail_msg("'%s'", yes[i]);
	for (size_t i = 0; i < COUNT(no); i++)
		if (pool_host_is_wildcard(no[i]))
			fail_msg("'%s'", no[i]);
}

static void sizes_are_printed_with_a_unit_that_fits(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{ 0, "0 B" },
		{ 1023, "1023 B" },
		{ 1024, "1.0 KiB" },
		{ 1536, "1.5 KiB" },
		{ 1048575, "1.0 MiB" },
		{ UINT64_C(4) << 30, "4.0 GiB" },
		{ (UINT64_C(1) << 40) - 1, "1.0 TiB" },
		{ UINT64_C(1023) << 40, "1023.0 TiB" },
		{ UINT64_MAX, "16.0 EiB" },
	};
	char buf[16];

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++)
		assert_string_equal(pool_format_size(cases[i].bytes, buf,
						     sizeof(buf)),
				    cases[i].text);
}

static void lists_of_addresses_are_parsed_whole_or_not_at_all(void **state)
{
	static const char *const bad[] = { "",     ",",	       "a,",	 ",a",
					   "a,,b", "a,b:x",    "a b",
					   "1,2,3,4,5,6,7,8,9" };
	struct pool_hostports list = { .n = 77 };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_not_equal(0, pool_parse_hostports(bad[i], 7, &list));
	assert_int_equal(77, list.n);
	assert_int_equal(0, pool_parse_hostports("a,[::1]:2,c:3", 7, &list));
	assert_int_equal(3, list.n);
	assert_string_equal("a", list.at[0].host);
	assert_int_equal(7, list.at[0].port);
	assert_string_equal("::1", list.at[1].host);
	assert_int_equal(2, list.at[1].port);
	assert_string_equal("c", list.at[2].host);
}

static void an_address_is_printed_as_it_is_parsed(void **state)
{
	static const char *const texts[] = { "a:1", "[::1]:2" };
	char buf[POOL_HOSTPORT_TEXT];
	struct pool_hostport hp;
	size_t i;

	(void)state;
	for (i = 0; i < 2; i++) {
		assert_int_equal(0, pool_parse_hostport(texts[i], 0, &hp));
		assert_string_equal(texts[i], pool_format_hostport(
						      &hp, buf, sizeof(buf)));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_take_every_usual_unit),
		cmocka_unit_test(bad_sizes_are_refused),
		cmocka_unit_test(durations_are_in_seconds_unless_they_say_so),
		cmocka_unit_test(counts_are_digits_within_bounds),
		cmocka_unit_test(booleans_have_four_spellings),
		cmocka_unit_test(addresses_are_host_and_port),
		cmocka_unit_test(
			a_host_may_be_as_long_as_promised_and_no_longer),
		cmocka_unit_test(loopback_is_known_by_its_literals),
		cmocka_unit_test(
			lists_of_addresses_are_parsed_whole_or_not_at_all),
		cmocka_unit_test(an_address_is_printed_as_it_is_parsed),
		cmocka_unit_test(a_wildcard_is_known_in_all_its_spellings),
		cmocka_unit_test(sizes_are_printed_with_a_unit_that_fits),
	};

	alarm(30);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
