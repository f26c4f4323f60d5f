/* What a certificate lets its holder say of itself to a master. */
#define NNODES 4
#include <errno.h>

#pragma GCC diagnostic ignored "-Wunused-function"
#include "master_fake_pool.h"

#include "master/impl.h"
#include "tests/unit/tls_pki.h"

static struct pki_ca ca;
static struct pool_tls *of_master, *of_node, *of_other, *of_client;

static struct pool_tls *open_tls(const struct pki_want *want)
{
	char *at = pki_dir_make(&ca, &ca, NULL, want), why[POOL_TLS_WHY];
	struct pool_tls *tls;

	if (pool_tls_open(at, &tls, why))
		fail_msg("%s", why);
	pki_dir_free(at);
	return tls;
}

static int tls_setup(void **state)
{
	static const struct pki_want a_master = {
		.uri = { "kvpool://test/master" },
		.host = { "127.0.0.1" },
	};
	static const struct pki_want a_node = {
		.uri = { "kvpool://test/node" },
		.host = { "127.0.0.1", "gpu1" },
	};
	static const struct pki_want another = {
		.uri = { "kvpool://test/node" },
		.host = { "gpu2" },
	};
	static const struct pki_want a_client = {
		.uri = { "kvpool://test/client" },
	};

	pki_ca_make(&ca);
	of_master = open_tls(&a_master);
	of_node = open_tls(&a_node);
	of_other = open_tls(&another);
	of_client = open_tls(&a_client);
	assert_int_equal(0, setup(state));
	stop_master();
	opts.tls = of_master;
	start_master();
	return 0;
}

static int tls_teardown(void **state)
{
	int r = teardown(state);

	opts.tls = NULL;
	pool_tls_close(of_master);
	pool_tls_close(of_node);
	pool_tls_close(of_other);
	pool_tls_close(of_client);
	pki_ca_free(&ca);
	return r;
}

/* Node i joins with this certificate: 0, or the status of the master's
 * ERROR. */
static int joins(int i, struct pool_tls *tls, const char *advertise)
{
	struct pool_conn_opts o = {
		.ops = &fake_ops,
		.user = &node[i],
		.tls = tls,
		.tls_roles = POOL_ROLE_BIT(POOL_ROLE_MASTER),
	};
	struct pool_hostport to = { .host = "127.0.0.1",
				    .port = master_port(master) };
	struct fake_node *n = &node[i];

	n->loop = &loop;
	n->open = n->welcomed = n->closed = false;
	n->error = 0;
	n->advertise = advertise;
	assert_int_equal(0, pool_conn_connect(&loop, &to, &o, &n->conn));
	fake_send_join(n);
	run_until(&loop, n->welcomed || n->closed);
	return n->welcomed ? 0 : n->error ? n->error : -ECONNRESET;
}

static void a_node_is_where_its_certificate_says(void **state)
{
	(void)state;
	assert_int_equal(0, joins(0, of_node, "127.0.0.1:7"));
	assert_int_equal(0, joins(1, of_node, "gpu1:7"));
	assert_int_equal(-EACCES, joins(2, of_node, "gpu2:7"));
	assert_int_equal(-EACCES, joins(3, of_node, "10.0.0.2:7"));
}

static void an_id_stays_with_the_host_that_it_belongs_to(void **state)
{
	(void)state;
	assert_int_equal(0, joins(0, of_node, "gpu1:7"));
	pool_conn_close(node[0].conn);
	run_until(&loop, node[0].closed);
	/* gpu2 takes its id. */
	assert_int_equal(-EACCES, joins(0, of_other, "gpu2:7"));
	assert_int_equal(0, joins(0, of_node, "127.0.0.1:7"));
}

static void a_client_is_where_it_dials_from_and_no_store(void **state)
{
	(void)state;
	node[0].is_store = false;
	assert_int_equal(0, joins(0, of_client, "127.0.0.1:7"));
	node[1].is_store = false;
	assert_int_equal(-EACCES, joins(1, of_client, "10.0.0.2:7"));
	node[2].is_store = true;
	assert_int_equal(-EACCES, joins(2, of_client, "127.0.0.1:7"));
}

/* Its inventory would be that of the node, whose copies would be lost. */
static void a_client_does_not_get_the_id_of_a_node(void **state)
{
	(void)state;
	assert_int_equal(0, joins(0, of_node, "127.0.0.1:7"));
	memcpy(node[1].id, node[0].id, sizeof(node[1].id));
	node[1].is_store = false;
	assert_int_equal(-EACCES, joins(1, of_client, "127.0.0.1:7"));
	assert_false(node[0].closed);
	pool_conn_close(node[0].conn);
	run_until(&loop, node[0].closed);
	assert_int_equal(-EACCES, joins(1, of_client, "127.0.0.1:7"));
	assert_int_equal(0, joins(0, of_node, "127.0.0.1:7"));
}

/* As above, after a start of the master; its state may have been rewritten. */
static void an_id_belongs_to_no_other_after_a_start(bool rewritten)
{
	assert_int_equal(0, joins(0, of_node, "127.0.0.1:7"));
	if (rewritten)
		rewrite_state();
	fake_hang_up(&node[0]);
	stop_master();
	start_master();
	assert_int_equal(-EACCES, joins(0, of_other, "gpu2:7"));
	memcpy(node[1].id, node[0].id, sizeof(node[1].id));
	node[1].is_store = false;
	assert_int_equal(-EACCES, joins(1, of_client, "127.0.0.1:7"));
	assert_int_equal(0, joins(0, of_node, "127.0.0.1:7"));
}

static void an_id_stays_when_the_master_has_started_again(void **state)
{
	(void)state;
	an_id_belongs_to_no_other_after_a_start(false);
}

static void and_when_its_state_was_rewritten(void **state)
{
	(void)state;
	an_id_belongs_to_no_other_after_a_start(true);
}

static void without_tls_nobody_joins(void **state)
{
	(void)state;
	assert_int_equal(-ECONNRESET, joins(0, NULL, "127.0.0.1:7"));
}

#define TLS(test) \
	cmocka_unit_test_setup_teardown(test, tls_setup, tls_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TLS(a_node_is_where_its_certificate_says),
		TLS(an_id_stays_with_the_host_that_it_belongs_to),
		TLS(a_client_is_where_it_dials_from_and_no_store),
		TLS(a_client_does_not_get_the_id_of_a_node),
		TLS(an_id_stays_when_the_master_has_started_again),
		TLS(and_when_its_state_was_rewritten),
		TLS(without_tls_nobody_joins),
	};

	return run_all_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
