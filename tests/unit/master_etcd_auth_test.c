/*
 * A user of etcd: a token is obtained before the first request, a new one when
 * it is refused; and what happens if none can be obtained.
 */
#include "tests/lib/unit.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_etcd.h"
#include "master/etcd.h"
#include "pool/base/clock.h"

#define PARALLEL 8

struct asked {
	struct etcd_req req;
	int err, calls;
};

static struct fake_etcd one, two;
static uv_loop_t loop;
static struct etcd *etcd;
static struct pool_metrics *metrics;
static char file[64];

static void write_password(const char *text)
{
	FILE *f = fopen(file, "w");

	assert_non_null(f);
	assert_int_equal(0, chmod(file, 0600));
	fputs(text, f);
	fclose(f);
}

static int setup(void **state)
{
	(void)state;
	alarm(60);
	fake_etcd_start(&one);
	fake_etcd_start(&two);
	one.password = two.password = "secret";
	snprintf(file, sizeof(file), "/tmp/kvtest-etcd.%d", getpid());
	write_password("secret\n");
	return uv_loop_init(&loop);
}

static void on_closed(void *arg)
{
	*(bool *)arg = true;
}

static void close_etcd(void)
{
	bool closed = false;

	if (!etcd)
		return;
	etcd_close(etcd, on_closed, &closed);
	etcd = NULL;
	unit_run_until(&loop, closed);
	pool_metrics_close(metrics);
}

static int teardown(void **state)
{
	(void)state;
	close_etcd();
	assert_int_equal(0, uv_loop_close(&loop));
	fake_etcd_stop(&one);
	fake_etcd_stop(&two);
	unlink(file);
	alarm(0);
	return 0;
}

static void open_at(const char *urls)
{
	struct etcd_access access = { .urls = urls,
				      .user = FAKE_USER,
				      .password_file = file };

	metrics = pool_metrics_open();
	assert_int_equal(0, etcd_open(&loop, &access, metrics, &etcd));
}

static struct etcd_slice text(const char *s)
{
	return etcd_slice(s, strlen(s));
}

static json_t *put_k(void)
{
	return etcd_txn(json_array(),
			json_pack("[o]", etcd_op_put(text("k"), text("v"), 0)),
			NULL);
}

static int put_within(unsigned int ms)
{
	json_t *answer = NULL;
	int err = etcd_call(etcd, ETCD_TXN, put_k(), ms, &answer);

	json_decref(answer);
	return err;
}

static void must_put(void)
{
	assert_int_equal(0, put_within(10000));
}

static void on_answer(struct etcd_req *r, int err, json_t *answer)
{
	struct asked *a = pool_container_of(r, struct asked, req);

	(void)answer;
	a->err = err;
	a->calls++;
}

static void start(struct asked *a, unsigned int ms)
{
	*a = (struct asked){ .req.cb = on_answer };
	assert_int_equal(0, etcd_start(etcd, &a->req, ETCD_TXN, put_k(), ms));
}

static void put_side_by_side(void)
{
	static struct asked a[PARALLEL];
	int i;

	for (i = 0; i < PARALLEL; i++)
		start(&a[i], 10000);
	for (i = 0; i < PARALLEL; i++) {
		unit_run_until(&loop, a[i].calls);
		assert_int_equal(0, a[i].err);
	}
}

static bool page_has(const char *line)
{
	char *page;
	size_t len;
	bool found;

	assert_int_equal(0, pool_metrics_print(metrics, &page, &len));
	found = strstr(page, line);
	free(page);
	return found;
}

/* ---- */

static void one_token_serves_all(void **state)
{
	(void)state;
	open_at(one.url);
	one.login_ms = 200;
	put_side_by_side();
	must_put();
	assert_int_equal(1, one.logins);
	assert_int_equal(0, one.no_token);
	assert_int_equal(PARALLEL + 1, one.txns);
	assert_true(page_has("\nkvpool_etcd_logins_total 1\n"));
	assert_true(page_has("\nkvpool_etcd_tls 0\n"));
}

static void
a_token_that_is_over_is_replaced_and_nothing_done_twice(void **state)
{
	(void)state;
	open_at(one.url);
	must_put();
	fake_end_tokens(&one);
	must_put();
	assert_int_equal(2, one.logins);
	assert_int_equal(2, one.txns);
	fake_end_tokens(&one);
	put_side_by_side();
	assert_int_equal(3, one.logins);
	assert_int_equal(2 + PARALLEL, one.txns);
	assert_true(etcd_healthy(etcd));
}

static void a_refusal_that_comes_late_does_not_cost_the_next_token(void **state)
{
	struct asked a;

	(void)state;
	open_at(one.url);
	must_put();
	fake_end_tokens(&one);
	fake_slow_refusal(&one, 500);
	start(&a, 10000);
	while (!fake_has_refused(&one))
		usleep(1000);
	must_put();
	assert_int_equal(2, one.logins);
	assert_int_equal(0, a.calls);
	unit_run_until(&loop, a.calls);
	assert_int_equal(0, a.err);
	assert_int_equal(2, one.logins);
	assert_int_equal(3, one.txns);
}

static void so_it_is_in_the_stream_that_renews_a_lease(void **state)
{
	json_t *answer = NULL;

	(void)state;
	open_at(one.url);
	must_put();
	fake_end_tokens(&one);
	assert_int_equal(0, etcd_call(etcd, ETCD_KEEPALIVE,
				      json_pack("{si}", "ID", 1), 5000,
				      &answer));
	json_decref(answer);
	assert_int_equal(2, one.logins);
}

static void a_token_that_one_member_refuses_is_replaced_there(void **state)
{
	char urls[160];

	(void)state;
	snprintf(urls, sizeof(urls), "%s,%s", one.url, two.url);
	open_at(urls);
	must_put();
	two.token = 7;
	fake_set(&one, FAKE_NO_LEADER, 0);
	must_put();
	assert_int_equal(1, two.txns);
}

static void a_password_that_is_wrong_is_not_tried_again_and_again(void **state)
{
	uint64_t begin = pool_now_ms();

	(void)state;
	write_password("wrong\n");
	open_at(one.url);
	while (pool_now_ms() < begin + ETCD_AUTH_PAUSE_MS / 2) {
		assert_int_equal(-EKEYREJECTED, put_within(5000));
		assert_non_null(strstr(etcd_error(etcd), "password-file"));
		assert_non_null(strstr(etcd_error(etcd), one.url));
		usleep(1000);
	}
	assert_int_equal(1, one.logins);
	assert_false(etcd_healthy(etcd));
	assert_int_equal(0, one.txns);
	/* The password file is read again after the pause. */
	write_password("secret");
	usleep(ETCD_AUTH_PAUSE_MS * 1100);
	must_put();
	assert_int_equal(2, one.logins);
}

static void a_file_that_others_may_read_is_named(void **state)
{
	(void)state;
	open_at(one.url);
	assert_int_equal(0, chmod(file, 0640));
	assert_int_equal(-EKEYREJECTED, put_within(5000));
	assert_non_null(strstr(etcd_error(etcd), "chmod 600"));
	assert_non_null(strstr(etcd_error(etcd), file));
	assert_int_equal(0, one.logins);
}

static void tokens_that_are_refused_at_once_end_in_an_error(void **state)
{
	unsigned int logins;

	(void)state;
	one.tokens_die = true;
	open_at(one.url);
	assert_int_equal(-EKEYREJECTED, put_within(5000));
	logins = one.logins;
	assert_true(logins <= 1 + ETCD_LOGINS_MAX);
	assert_int_equal(-EKEYREJECTED, put_within(5000));
	assert_int_equal(logins, one.logins);
	assert_int_equal(0, one.txns);
}

static void an_etcd_that_gets_users_later_is_used_all_the_time(void **state)
{
	(void)state;
	one.password = NULL;
	open_at(one.url);
	must_put();
	must_put();
	assert_int_equal(1, one.logins);
	one.password = "secret";
	must_put();
	assert_int_equal(2, one.logins);
	assert_int_equal(3, one.txns);
}

static void each_request_waits_for_a_token_within_its_own_limit(void **state)
{
	uint64_t begin = pool_now_ms();

	(void)state;
	one.login_ms = 2000;
	open_at(one.url);
	assert_int_equal(-ETIMEDOUT, put_within(200));
	assert_true(pool_now_ms() - begin < 1500);
	assert_non_null(strstr(etcd_error(etcd), "no token"));
	/* The login continues, and the request uses its token. */
	must_put();
	assert_int_equal(1, one.logins);
	assert_int_equal(1, one.txns);
}

static void the_next_member_is_asked_for_a_token(void **state)
{
	char urls[160];

	(void)state;
	snprintf(urls, sizeof(urls), "http://127.0.0.1:1,%s", two.url);
	open_at(urls);
	must_put();
	assert_int_equal(1, two.logins);
}

static void closing_cancels_requests_that_wait_for_a_token(void **state)
{
	struct asked a;

	(void)state;
	one.login_ms = 500;
	open_at(one.url);
	start(&a, 60000);
	usleep(100000);
	close_etcd();
	assert_int_equal(1, a.calls);
	assert_int_equal(-ECANCELED, a.err);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(one_token_serves_all),
		T(a_token_that_is_over_is_replaced_and_nothing_done_twice),
		T(a_refusal_that_comes_late_does_not_cost_the_next_token),
		T(so_it_is_in_the_stream_that_renews_a_lease),
		T(a_token_that_one_member_refuses_is_replaced_there),
		T(a_password_that_is_wrong_is_not_tried_again_and_again),
		T(a_file_that_others_may_read_is_named),
		T(tokens_that_are_refused_at_once_end_in_an_error),
		T(an_etcd_that_gets_users_later_is_used_all_the_time),
		T(each_request_waits_for_a_token_within_its_own_limit),
		T(the_next_member_is_asked_for_a_token),
		T(closing_cancels_requests_that_wait_for_a_token),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
