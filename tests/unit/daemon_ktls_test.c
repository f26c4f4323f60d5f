/* --ktls: the kernel encrypts if it may and costs less. */
#include "tests/lib/unit.h"

#include <errno.h>

#include "daemon/tls.h"
#include "pool/tls/tls_kernel.h"
#include "tests/unit/tls_pki.h"

static struct {
	int err;
	struct tls_kernel_cost cost;
	int calls;
} measured;

int __wrap_tls_kernel_measure(struct tls_kernel_cost *ret);
int __wrap_tls_kernel_measure(struct tls_kernel_cost *ret)
{
	measured.calls++;
	*ret = measured.cost;
	return measured.err;
}

static struct pki_ca ca;
static char *dir;
static struct daemon_tls t;

static int setup(void **state)
{
	char why[POOL_TLS_WHY] = "";

	(void)state;
	pki_ca_make(&ca);
	dir = pki_dir(&ca, "node");
	if (pool_tls_open(dir, &t.tls, why))
		fail_msg("%s", why);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	pool_tls_close(t.tls);
	pki_dir_free(dir);
	pki_ca_free(&ca);
	return 0;
}

/* What it returns, and whether the kernel may encrypt from then on. */
static void assert_decides(enum daemon_ktls how, int rc, bool uses)
{
	pool_tls_allow_kernel(t.tls, false);
	assert_int_equal(rc, daemon_tls_use_kernel(&t, how));
	assert_int_equal(uses, pool_tls_allows_kernel(t.tls));
}

static void it_costs(uint64_t kernel, uint64_t openssl)
{
	measured.err = 0;
	measured.cost = (struct tls_kernel_cost){ kernel, openssl };
}

static void the_cheaper_one_encrypts(void **state)
{
	(void)state;
	it_costs(10, 20);
	assert_decides(KTLS_AUTO, 0, true);
	it_costs(20, 10);
	assert_decides(KTLS_AUTO, 0, false);
	it_costs(10, 10);
	assert_decides(KTLS_AUTO, 0, false);
}

static void an_option_decides_whatever_it_costs(void **state)
{
	int calls;

	(void)state;
	it_costs(20, 10);
	assert_decides(KTLS_ON, 0, true);
	calls = measured.calls;
	it_costs(10, 20);
	assert_decides(KTLS_OFF, 0, false);
	assert_int_equal(calls, measured.calls);
}

/* The costs are of no account then. */
static void a_kernel_that_cannot_does_not(void **state)
{
	(void)state;
	it_costs(10, 20);
	measured.err = -ENOENT;
	assert_decides(KTLS_AUTO, 0, false);
	assert_decides(KTLS_ON, -ENOENT, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_cheaper_one_encrypts),
		cmocka_unit_test(an_option_decides_whatever_it_costs),
		cmocka_unit_test(a_kernel_that_cannot_does_not),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
