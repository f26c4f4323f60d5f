/* RDMA devices: what is printed of them, and that asking is safe anywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include "pool/devices.h"

static const struct pool_device two[] = {
	{ .name = "mlx5_0", .port = 1, .state = "active", .link = "ethernet" },
	{ .name = "irdma1", .state = "cannot be opened", .link = "unknown" },
};
#define TWO "mlx5_0/1 active ethernet, irdma1 cannot be opened"

static void no_devices_are_printed_as_none(void **state)
{
	char buf[8];

	(void)state;
	assert_string_equal(pool_devices_format(NULL, 0, buf, sizeof(buf)),
			    "none");
}

static void ports_are_printed_with_state_and_link(void **state)
{
	char buf[128];

	(void)state;
	assert_string_equal(pool_devices_format(two, 2, buf, sizeof(buf)), TWO);
}

static void what_does_not_fit_is_cut_with_dots(void **state)
{
	char buf[128];

	(void)state;
	for (size_t cap = 8; cap < sizeof(TWO) + 3; cap++) {
		memset(buf, 'x', sizeof(buf));
		pool_devices_format(two, 2, buf, cap);
		assert_true(strlen(buf) < cap);
		assert_int_equal(buf[cap], 'x');
		if (strcmp(buf, TWO) != 0)
			assert_string_equal(buf + strlen(buf) - 3, "...");
	}
	assert_string_equal(pool_devices_format(two, 2, buf, sizeof(buf)), TWO);
}

static void asking_never_fails_and_keeps_to_the_bound(void **state)
{
	struct pool_device devs[8];
	char buf[1024];
	size_t n;

	(void)state;
	n = pool_devices_list(devs, 8);
	assert_in_range(n, 0, 8);
	for (size_t i = 0; i < n; i++) {
		assert_true(devs[i].name[0] != '\0');
		assert_non_null(devs[i].state);
		assert_non_null(devs[i].link);
	}
	print_message("RDMA devices here: %s\n",
		      pool_devices_format(devs, n, buf, sizeof(buf)));
	assert_int_equal(pool_devices_list(devs, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_devices_are_printed_as_none),
		cmocka_unit_test(ports_are_printed_with_state_and_link),
		cmocka_unit_test(what_does_not_fit_is_cut_with_dots),
		cmocka_unit_test(asking_never_fails_and_keeps_to_the_bound),
	};

	alarm(10);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
