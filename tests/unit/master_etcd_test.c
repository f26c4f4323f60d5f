/*
 * The etcd client: its requests, how it decodes answers, and when it goes on to
 * another URL.
 */
#include "tests/lib/unit.h"

#include <errno.h>
#include <unistd.h>

#include "fake_etcd.h"
#include "master/etcd.h"
#include "pool/base/clock.h"

static struct fake_etcd one, two;
static uv_loop_t loop;
static struct etcd_access access_to;
static struct etcd *etcd;

static int setup(void **state)
{
	(void)state;
	alarm(60);
	fake_etcd_start(&one);
	fake_etcd_start(&two);
	return uv_loop_init(&loop);
}

static void open_access(void)
{
	assert_int_equal(0, etcd_open(&loop, &access_to, NULL, &etcd));
}

static void open_at(const char *urls)
{
	assert_int_equal(0, etcd_urls_check(urls));
	access_to = (struct etcd_access){ .urls = urls };
	open_access();
}

static void on_closed(void *arg)
{
	*(bool *)arg = true;
}

static int teardown(void **state)
{
	bool closed = false;

	(void)state;
	if (etcd)
		etcd_close(etcd, on_closed, &closed);
	etcd = NULL;
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(0, uv_loop_close(&loop));
	fake_etcd_stop(&one);
	fake_etcd_stop(&two);
	alarm(0);
	return 0;
}

static struct etcd_slice text(const char *s)
{
	return etcd_slice(s, strlen(s));
}

static int ask(json_t *body, unsigned int ms, json_t **ret)
{
	return etcd_call(etcd, ETCD_TXN, body, ms, ret);
}

static json_t *get_k(void)
{
	return etcd_txn(json_array(), json_pack("[o]", etcd_op_get(text("k"))),
			NULL);
}

static json_t *put_k(const char *value)
{
	return etcd_txn(json_array(),
			json_pack("[o]",
				  etcd_op_put(text("k"), text(value), 0)),
			NULL);
}

static void must_read_k(const char *value)
{
	json_t *answer = NULL;
	char *data;
	size_t len;

	assert_int_equal(0, ask(get_k(), 5000, &answer));
	assert_int_equal(0, etcd_bytes(etcd_txn_kv(answer, 0), "value", &data,
				       &len));
	assert_string_equal(value, data);
	free(data);
	json_decref(answer);
}

static void what_is_put_is_read_again_whatever_its_bytes(void **state)
{
	char value[256], *data;
	json_t *answer = NULL;
	size_t len;
	int n, i;

	(void)state;
	open_at(one.url);
	for (i = 0; i < 256; i++)
		value[i] = (char)i;
	for (n = 256; n > 252; n--) {
		assert_int_equal(
			0, ask(etcd_txn(json_array(),
					json_pack("[o,o]",
						  etcd_op_put(
							  text("k"),
							  etcd_slice(value,
								     (size_t)n),
							  0),
						  etcd_op_get(text("k"))),
					NULL),
			       5000, &answer));
		assert_int_equal(0, etcd_bytes(etcd_txn_kv(answer, 1), "value",
					       &data, &len));
		assert_int_equal(n, len);
		assert_memory_equal(value, data, len);
		free(data);
		json_decref(answer);
	}
	assert_true(etcd_healthy(etcd));
}

static void what_is_no_base64_is_refused(void **state)
{
	static const char *const bad[] = { "a", "a===", "!!!!", "ab=c",
					   "=abc" };
	char *data = NULL;
	size_t len, i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		json_t *kv = json_pack("{ss}", "value", bad[i]);

		assert_int_equal(-EPROTO, etcd_bytes(kv, "value", &data, &len));
		json_decref(kv);
	}
}

static void a_comparison_that_fails_changes_nothing(void **state)
{
	json_t *answer = NULL;

	(void)state;
	open_at(one.url);
	assert_int_equal(0, ask(put_k("first"), 5000, &answer));
	json_decref(answer);
	assert_int_equal(
		0, ask(etcd_txn(json_pack("[o]",
					  etcd_compare(text("k"),
						       "create_revision", 0)),
				json_pack("[o]", etcd_op_delete(text("k"))),
				json_pack("[o]", etcd_op_get(text("k")))),
		       5000, &answer));
	assert_false(json_is_true(json_object_get(answer, "succeeded")));
	assert_true(etcd_int(etcd_txn_kv(answer, 0), "create_revision") > 0);
	json_decref(answer);
	must_read_k("first");
}

static void a_url_that_is_gone_is_passed_over_and_not_asked_again(void **state)
{
	char urls[160];
	unsigned int asked;

	(void)state;
	snprintf(urls, sizeof(urls), "http://127.0.0.1:1,%s,%s", two.url,
		 one.url);
	open_at(urls);
	fake_put_key(&two, "aw==", "dHdv", 0);
	must_read_k("two");
	asked = two.asked;
	must_read_k("two");
	assert_int_equal(asked + 1, two.asked);
	assert_int_equal(0, one.asked);
}

static void the_next_url_is_asked(enum fake_fault fault)
{
	char urls[160];

	snprintf(urls, sizeof(urls), "%s,%s", one.url, two.url);
	open_at(urls);
	fake_put_key(&two, "aw==", "dHdv", 0);
	fake_set(&one, fault, 700);
	must_read_k("two");
	assert_int_equal(1, one.asked);
	assert_true(etcd_healthy(etcd));
}

static void one_without_a_leader_is_passed_over(void **state)
{
	(void)state;
	the_next_url_is_asked(FAKE_NO_LEADER);
}

static void one_that_talks_nonsense_is_passed_over(void **state)
{
	(void)state;
	the_next_url_is_asked(FAKE_GARBAGE);
}

static void one_that_is_silent_costs_its_share_of_the_time(void **state)
{
	json_t *answer = NULL;
	char urls[160];

	(void)state;
	snprintf(urls, sizeof(urls), "%s,%s", one.url, two.url);
	open_at(urls);
	fake_set(&one, FAKE_SILENT, 3000);
	assert_int_equal(0, ask(get_k(), 2000, &answer));
	json_decref(answer);
	assert_int_equal(1, two.asked);
}

static void each_failure_has_its_error_and_a_text(void **state)
{
	json_t *answer = NULL;

	(void)state;
	open_at(one.url);
	fake_set(&one, FAKE_GARBAGE, 0);
	assert_int_equal(-EPROTO, ask(get_k(), 5000, &answer));
	assert_non_null(strstr(etcd_error(etcd), one.url));
	fake_set(&one, FAKE_NO_LEADER, 0);
	assert_int_equal(-EHOSTUNREACH, ask(get_k(), 5000, &answer));
	assert_non_null(strstr(etcd_error(etcd), "no leader"));
	fake_set(&one, FAKE_REFUSES, 0);
	assert_int_equal(-EREMOTEIO, ask(get_k(), 5000, &answer));
	assert_non_null(strstr(etcd_error(etcd), "too many operations"));
	assert_false(etcd_healthy(etcd));
	fake_set(&one, FAKE_SILENT, 1000);
	assert_int_equal(-ETIMEDOUT, ask(get_k(), 200, &answer));
	assert_non_null(strstr(etcd_error(etcd), one.url));
	assert_null(answer);
}

static void nobody_listening_is_unreachable(void **state)
{
	json_t *answer = NULL;

	(void)state;
	open_at("http://127.0.0.1:1");
	assert_int_equal(-EHOSTUNREACH, ask(get_k(), 5000, &answer));
}

/* ---- asked from the loop ---- */

struct asked {
	struct etcd_req req;
	int err, calls;
};

static void on_answer(struct etcd_req *r, int err, json_t *answer)
{
	struct asked *a = pool_container_of(r, struct asked, req);

	assert_true(!answer == (err != 0));
	a->err = err;
	a->calls++;
}

static void answers_come_by_the_loop_also_side_by_side(void **state)
{
	struct asked a[8];
	int i;

	(void)state;
	open_at(one.url);
	for (i = 0; i < 8; i++) {
		a[i] = (struct asked){ .req.cb = on_answer };
		assert_int_equal(0, etcd_start(etcd, &a[i].req, ETCD_TXN,
					       get_k(), 5000));
		assert_int_equal(0, a[i].calls);
	}
	for (i = 0; i < 8; i++) {
		unit_run_until(&loop, a[i].calls);
		assert_int_equal(0, a[i].err);
	}
}

static void closing_cancels_what_is_under_way(void **state)
{
	struct asked a = { .req.cb = on_answer };
	bool closed = false;

	(void)state;
	open_at(one.url);
	fake_set(&one, FAKE_SILENT, 500);
	assert_int_equal(0, etcd_start(etcd, &a.req, ETCD_TXN, get_k(), 60000));
	etcd_close(etcd, on_closed, &closed);
	etcd = NULL;
	assert_int_equal(1, a.calls);
	assert_int_equal(-ECANCELED, a.err);
	unit_run_until(&loop, closed);
}

static void there_is_a_bound_on_what_is_under_way(void **state)
{
	static struct asked a[ETCD_REQS_MAX + 1];
	int i;

	(void)state;
	open_at(one.url);
	for (i = 0; i < ETCD_REQS_MAX; i++) {
		a[i] = (struct asked){ .req.cb = on_answer };
		assert_int_equal(0, etcd_start(etcd, &a[i].req, ETCD_TXN,
					       get_k(), 20000));
	}
	a[i].req.cb = on_answer;
	assert_int_equal(-ENOBUFS, etcd_start(etcd, &a[i].req, ETCD_TXN,
					      get_k(), 20000));
	assert_int_equal(0, a[i].calls);
}

static void urls_are_judged(void **state)
{
	static const char *const good[] = {
		"http://a", "https://a:1", "http://[::1]:2379/",
		"http://a:1,http://b:2", "http://10.0.0.1:2379"
	};
	static const char *const bad[] = {
		"",
		"a:2379",
		"http://",
		"ftp://a",
		"http://a:x",
		"http://a/v3",
		"http://a,",
		",http://a",
		"http://a:0",
		"http://u@a",
		"http://a,https://b",
		"https://a,http://b",
		"http://1,http://2,http://3,http://4,http://5,http://6,http://"
		"7,http://8,http://9"
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_int_equal(0, etcd_urls_check(good[i]));
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(-EINVAL, etcd_urls_check(bad[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_is_put_is_read_again_whatever_its_bytes),
		T(what_is_no_base64_is_refused),
		T(a_comparison_that_fails_changes_nothing),
		T(a_url_that_is_gone_is_passed_over_and_not_asked_again),
		T(one_without_a_leader_is_passed_over),
		T(one_that_talks_nonsense_is_passed_over),
		T(one_that_is_silent_costs_its_share_of_the_time),
		T(each_failure_has_its_error_and_a_text),
		T(nobody_listening_is_unreachable),
		T(answers_come_by_the_loop_also_side_by_side),
		T(closing_cancels_what_is_under_way),
		T(there_is_a_bound_on_what_is_under_way),
		T(urls_are_judged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
