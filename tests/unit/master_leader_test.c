/*
 * The election, and the state that is stored after it, with a fake etcd that
 * the test controls.
 */
#include "tests/lib/unit.h"

#include <errno.h>
#include <unistd.h>

#include "fake_etcd.h"
#include "master/etcd_state.h"
#include "master/leader.h"
#include "master/map.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"

#define PREFIX "/kvpool/t/"
#define KEY_VERSION "L2t2cG9vbC90L3ZlcnNpb24=" /* base64 of PREFIX version */
#define KEY_LEADER "L2t2cG9vbC90L2xlYWRlcg=="
#define KEY_EPOCH "L2t2cG9vbC90L2Vwb2No"
#define KEY_TOMBS "L2t2cG9vbC90L3N0YXRlL3RvbWIv" /* a prefix */

struct candidate {
	struct etcd *etcd;
	struct leader *leader;
	const char *address;
	unsigned int elected, lost, unusable;
	uint64_t epoch;
	int64_t fence;
	bool stays; /* does not stop leading when it loses the election */
};

static struct fake_etcd fake;
static uv_loop_t loop;
static struct candidate c[2];
static char urls[160];
static uint64_t ahead_ms; /* of the clock */

#define run_until(cond) unit_run_until(&loop, cond)

static uint64_t clock_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec +
	       ahead_ms * 1000000u;
}

static void clock_random(void *buf, size_t n)
{
	memset(buf, 7, n);
}

static const struct pool_clock test_clock = { .now_ns = clock_now,
					      .wall_ns = clock_now,
					      .random = clock_random };

static void on_elected(void *arg, uint64_t epoch, int64_t fence)
{
	struct candidate *k = arg;

	k->elected++;
	k->epoch = epoch;
	k->fence = fence;
}

static void on_lost(void *arg)
{
	struct candidate *k = arg;

	k->lost++;
	assert_false(leader_acting(k->leader));
	if (!k->stays)
		leader_stopped(k->leader);
}

static void on_unusable(void *arg)
{
	((struct candidate *)arg)->unusable++;
}

static void open_one(struct candidate *k, const char *address)
{
	struct leader_opts o = { .loop = &loop,
				 .prefix = PREFIX,
				 .address = address,
				 .epoch_max = 1000,
				 .elected = on_elected,
				 .lost = on_lost,
				 .unusable = on_unusable,
				 .arg = k };

	memset(k, 0, sizeof(*k));
	k->address = address;
	assert_int_equal(0,
			 etcd_open(&loop, &(struct etcd_access){ .urls = urls },
				   NULL, &k->etcd));
	o.etcd = k->etcd;
	assert_int_equal(0, leader_open(&o, &k->leader));
}

static void on_closed(void *arg)
{
	*(bool *)arg = true;
}

static void close_one(struct candidate *k)
{
	bool closed = false;

	if (!k->leader)
		return;
	leader_close(k->leader, on_closed, &closed);
	run_until(closed);
	closed = false;
	etcd_close(k->etcd, on_closed, &closed);
	run_until(closed);
	k->leader = NULL;
}

static int setup(void **state)
{
	(void)state;
	alarm(60);
	ahead_ms = 0;
	memset(c, 0, sizeof(c));
	pool_log_set_level(POOL_LOG_ERROR);
	fake_etcd_start(&fake);
	snprintf(urls, sizeof(urls), "%s", fake.url);
	return uv_loop_init(&loop);
}

static int teardown(void **state)
{
	(void)state;
	fake_set(&fake, FAKE_FINE, 0);
	close_one(&c[0]);
	close_one(&c[1]);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(0, uv_loop_close(&loop));
	fake_etcd_stop(&fake);
	pool_clock_set(NULL);
	alarm(0);
	return 0;
}

/* ---- the election ---- */

static void one_of_two_leads_and_the_other_knows_where_it_is(void **state)
{
	struct candidate *leads, *waits;

	(void)state;
	open_one(&c[0], "h:1");
	open_one(&c[1], "h:2");
	run_until(c[0].elected || c[1].elected);
	leads = c[0].elected ? &c[0] : &c[1];
	waits = c[0].elected ? &c[1] : &c[0];
	run_until(!strcmp(leader_address(waits->leader), leads->address));
	assert_true(leader_acting(leads->leader));
	assert_false(leader_acting(waits->leader));
	assert_int_equal(0, waits->elected);
	assert_int_equal(1, leads->epoch);
	assert_int_equal(leads->fence,
			 fake_find_key(&fake, KEY_LEADER)->create);
	assert_non_null(fake_find_key(&fake, KEY_VERSION));
}

static void one_that_ends_in_order_makes_room_at_once(void **state)
{
	(void)state;
	open_one(&c[0], "h:1");
	run_until(c[0].elected);
	close_one(&c[0]);
	assert_null(fake_find_key(&fake, KEY_LEADER));
	open_one(&c[1], "h:2");
	run_until(c[1].elected);
	assert_int_equal(2, c[1].epoch);
}

static void
a_lease_that_etcd_ended_ends_leadership_and_epochs_rise(void **state)
{
	(void)state;
	open_one(&c[0], "h:1");
	run_until(c[0].elected);
	fake_end_leases(&fake);
	run_until(c[0].lost);
	run_until(c[0].elected == 2);
	assert_int_equal(2, c[0].epoch);
}

static void a_suspended_leader_does_not_act_before_it_has_checked(void **state)
{
	(void)state;
	pool_clock_set(&test_clock);
	open_one(&c[0], "h:1");
	run_until(c[0].elected);
	assert_true(leader_acting(c[0].leader));
	/* As after a suspension: the lease has ended, and no timer has run
	 * yet. */
	ahead_ms = LEADER_TTL_S * 1000 - LEADER_MARGIN_MS;
	assert_false(leader_acting(c[0].leader));
	run_until(c[0].lost == 1);
}

static void without_etcd_it_leads_to_the_end_of_its_lease(void **state)
{
	(void)state;
	pool_clock_set(&test_clock);
	open_one(&c[0], "h:1");
	run_until(c[0].elected);
	fake_set(&fake, FAKE_NO_LEADER, 0);
	ahead_ms = 1500;
	uv_run(&loop, UV_RUN_ONCE);
	assert_true(leader_acting(c[0].leader));
	ahead_ms = 3000;
	run_until(c[0].lost);
	fake_set(&fake, FAKE_FINE, 0);
	/* Its own key remains in etcd until the lease ends there, too. */
	fake_end_leases(&fake);
	run_until(c[0].elected == 2);
	assert_int_equal(2, c[0].epoch);
}

static void it_does_not_stand_again_before_all_is_put_down(void **state)
{
	unsigned int asked;

	(void)state;
	open_one(&c[0], "h:1");
	run_until(c[0].elected);
	c[0].stays = true;
	leader_resign(c[0].leader, "the test says so");
	assert_int_equal(1, c[0].lost);
	run_until(!fake_find_key(&fake, KEY_LEADER));
	asked = fake.txns;
	uv_sleep(300);
	uv_run(&loop, UV_RUN_ONCE);
	uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(asked, fake.txns);
	leader_stopped(c[0].leader);
	run_until(c[0].elected == 2);
}

static void
an_election_whose_answer_got_lost_does_not_stay_in_the_way(void **state)
{
	(void)state;
	fake_set_once(&fake, FAKE_LOSES_WORD, 1500, "request_put");
	open_one(&c[0], "h:1");
	run_until(c[0].elected);
	/* It was elected once, resigned, and stood for election again. */
	assert_int_equal(2, c[0].epoch);
	assert_int_equal(c[0].fence, fake_find_key(&fake, KEY_LEADER)->create);
}

static void a_lease_whose_answer_got_lost_is_another_ones_matter(void **state)
{
	(void)state;
	fake_set_once(&fake, FAKE_LOSES_WORD, 1500, "TTL");
	open_one(&c[0], "h:1");
	run_until(c[0].elected);
	assert_int_equal(1, c[0].epoch);
	assert_int_equal(2, fake.last_lease);
}

static void an_election_done_by_an_attempt_that_got_lost_is_won(void **state)
{
	(void)state;
	snprintf(urls, sizeof(urls), "%s,%s", fake.url, fake.url);
	fake_set_once(&fake, FAKE_LOSES_WORD, 900, "request_put");
	open_one(&c[0], "h:1");
	run_until(c[0].elected);
	assert_int_equal(1, c[0].epoch);
	assert_int_equal(c[0].fence, fake_find_key(&fake, KEY_LEADER)->create);
}

static void an_election_that_outlasted_its_lease_is_given_back(void **state)
{
	(void)state;
	pool_clock_set(&test_clock);
	fake_set_once(&fake, FAKE_LOSES_WORD, 300, "request_put");
	open_one(&c[0], "h:1");
	run_until(fake_count(&fake, KEY_LEADER) == 1);
	assert_int_equal(0, c[0].elected); /* answer in flight */
	ahead_ms = LEADER_TTL_S * 1000;
	run_until(c[0].elected);
	assert_int_equal(2, c[0].epoch);
	assert_true(leader_acting(c[0].leader));
}

static void what_another_version_wrote_is_left_alone(void **state)
{
	(void)state;
	pool_log_set_level(POOL_LOG_ERROR);
	fake_put_key(&fake, KEY_VERSION, "Nw==", 0);
	fake.puts = 0;
	open_one(&c[0], "h:1");
	assert_int_equal(-EPROTO, leader_check(c[0].etcd, PREFIX, 1000));
	run_until(c[0].unusable);
	assert_int_equal(0, fake.puts);
	assert_int_equal(0, c[0].elected);
}

static void an_epoch_beyond_the_last_one_is_not_raised(void **state)
{
	(void)state;
	fake_put_key(&fake, KEY_EPOCH, "MTAwMA==", 0); /* 1000 */
	fake.puts = 0;
	open_one(&c[0], "h:1");
	run_until(c[0].unusable);
	assert_int_equal(0, fake.puts);
}

static void an_unreachable_etcd_is_reported_in_time(void **state)
{
	static const struct etcd_access nowhere = {
		.urls = "http://127.0.0.1:1"
	};
	struct etcd *e;
	bool closed = false;

	(void)state;
	assert_int_equal(0, etcd_open(&loop, &nowhere, NULL, &e));
	assert_int_equal(-EHOSTUNREACH, leader_check(e, PREFIX, 300));
	etcd_close(e, on_closed, &closed);
	run_until(closed);
}

/* ---- the state ---- */

static struct etcd_state *st;
static struct etcd_state_stats stats;
static int loaded;
static unsigned int failed;
static char replayed[256];

static void on_loaded(void *arg, int err)
{
	(void)arg;
	loaded = err ? err : 1;
}

static void on_settled(void *arg)
{
	(void)arg;
}

static void on_failed(void *arg, const char *why)
{
	(void)arg;
	(void)why;
	failed++;
}

static int on_record(void *arg, const struct master_record *r)
{
	size_t n = strlen(replayed);

	(void)arg;
	snprintf(replayed + n, sizeof(replayed) - n, "%.*s:%u ",
		 (int)r->meta->path.len, (char *)r->meta->path.data,
		 (unsigned int)r->meta->gen);
	return 0;
}

static void open_state(struct candidate *k)
{
	struct etcd_state_opts o = { .etcd = k->etcd,
				     .prefix = PREFIX,
				     .fence = k->fence,
				     .stats = &stats,
				     .loaded = on_loaded,
				     .settled = on_settled,
				     .failed = on_failed };

	loaded = 0;
	failed = 0;
	replayed[0] = 0;
	assert_int_equal(0, etcd_state_open(&o, &st));
	run_until(loaded);
	assert_int_equal(1, loaded);
}

static void bury(const char *path, uint64_t gen)
{
	Kvpool__Meta meta = KVPOOL__META__INIT;
	struct master_record r = { .type = MASTER_REC_TOMB, .meta = &meta };

	meta.path.data = (uint8_t *)(uintptr_t)path;
	meta.path.len = strlen(path);
	meta.gen = gen;
	etcd_state_append(st, &r);
}

static void forget(const char *path)
{
	struct master_grave *g = calloc(1, sizeof(*g) + strlen(path));

	assert_non_null(g);
	g->path_len = (uint16_t)strlen(path);
	memcpy(g->path, path, strlen(path));
	etcd_state_forget(st, g);
	free(g);
}

static void the_next_leader_finds_what_was_written(void **state)
{
	(void)state;
	open_one(&c[0], "h:1");
	run_until(c[0].elected);
	open_state(&c[0]);
	bury("k1", 1);
	bury("k1", 2);
	bury("k2", 3);
	etcd_state_flush(st);
	assert_int_equal(3, etcd_state_mark(st));
	assert_int_equal(0, etcd_state_settled(st));
	run_until(etcd_state_settled(st) == 3);
	etcd_state_close(st);
	close_one(&c[0]);
	open_one(&c[1], "h:2");
	run_until(c[1].elected);
	open_state(&c[1]);
	assert_int_equal(0, etcd_state_replay(st, on_record, NULL));
	assert_string_equal("k1:2 k2:3 ", replayed);
	forget("k1");
	etcd_state_flush(st);
	run_until(etcd_state_settled(st) == 1);
	assert_int_equal(1, fake_count(&fake, KEY_TOMBS));
	etcd_state_close(st);
}

static void settle(uint64_t records)
{
	run_until((etcd_state_flush(st), etcd_state_settled(st) == records));
	assert_int_equal(0, fake.repeats);
}

/* A name that changes all the time costs no more transactions than others. */
static void of_a_keys_records_only_the_newest_is_written(void **state)
{
	unsigned int txns, i;

	(void)state;
	open_one(&c[0], "h:1");
	run_until(c[0].elected);
	open_state(&c[0]);
	txns = fake.txns;
	for (i = 1; i <= 1000; i++) {
		bury("k1", i);
		bury("k2", i);
		forget(i % 2 ? "k1" : "k2");
	}
	settle(3000);
	assert_int_equal(txns + 1, fake.txns);
	assert_int_equal(1, fake_count(&fake, KEY_TOMBS));
	etcd_state_close(st);
	open_state(&c[0]);
	assert_int_equal(0, etcd_state_replay(st, on_record, NULL));
	assert_string_equal("k1:1000 ", replayed);
	etcd_state_close(st);
}

/* The bounds of a transaction: of operations, and of records. */
static void records_of_many_keys_are_several_transactions(void **state)
{
	unsigned int txns, i, k;
	char path[16];

	(void)state;
	open_one(&c[0], "h:1");
	run_until(c[0].elected);
	open_state(&c[0]);
	txns = fake.txns;
	for (i = 0; i < 2; i++)
		for (k = 0; k < ETCD_STATE_BATCH + 50; k++) {
			snprintf(path, sizeof(path), "k%u", k);
			bury(path, 1 + i);
		}
	settle(2 * ETCD_STATE_BATCH + 100);
	assert_int_equal(txns + 3, fake.txns);
	for (i = 0; i <= ETCD_STATE_MERGED; i++)
		bury("k", 1 + i);
	settle(2 * ETCD_STATE_BATCH + 101 + ETCD_STATE_MERGED);
	assert_int_equal(txns + 5, fake.txns);
	etcd_state_close(st);
}

static void one_that_is_leader_no_more_writes_nothing(void **state)
{
	(void)state;
	open_one(&c[0], "h:1");
	run_until(c[0].elected);
	open_state(&c[0]);
	/* Its key is deleted and another leader's created, unknown to it. */
	pthread_mutex_lock(&fake.lock);
	fake_drop(fake_find_key(&fake, KEY_LEADER));
	fake.revision++;
	fake_put_key(&fake, KEY_LEADER, "aDo5", 0);
	pthread_mutex_unlock(&fake.lock);
	bury("k1", 1);
	etcd_state_flush(st);
	run_until(failed);
	assert_int_equal(0, etcd_state_settled(st));
	assert_int_equal(0, fake_count(&fake, KEY_TOMBS));
	etcd_state_close(st);
}

static void what_fails_is_repeated_and_nothing_is_lost(void **state)
{
	char path[16];
	unsigned int i;

	(void)state;
	open_one(&c[0], "h:1");
	run_until(c[0].elected);
	open_state(&c[0]);
	fake_set(&fake, FAKE_NO_LEADER, 0);
	for (i = 0; i < 250; i++) {
		snprintf(path, sizeof(path), "k%03u", i);
		bury(path, i + 1);
	}
	etcd_state_flush(st);
	run_until(pool_counter_value(&stats.failed));
	assert_int_equal(0, etcd_state_settled(st));
	fake_set(&fake, FAKE_FINE, 0);
	settle(250);
	assert_int_equal(250, fake_count(&fake, KEY_TOMBS));
	etcd_state_close(st);
}

static void one_that_etcd_executes_after_its_retry_changes_nothing(void **state)
{
	unsigned int txns;

	(void)state;
	open_one(&c[0], "h:1");
	run_until(c[0].elected);
	open_state(&c[0]);
	txns = fake.txns;
	bury("k1", 1);
	fake_set_once(&fake, FAKE_LATE, 2500, "compare");
	etcd_state_flush(st);
	run_until(pool_counter_value(&stats.failed));
	bury("k1", 2);
	settle(2);
	bury("k1", 3);
	settle(3);
	assert_int_equal(txns + 2, fake.txns);
	run_until(fake.txns == txns + 3);
	bury("k2", 4);
	settle(4);
	assert_int_equal(0, failed);
	etcd_state_close(st);
	open_state(&c[0]);
	assert_int_equal(0, etcd_state_replay(st, on_record, NULL));
	assert_string_equal("k1:3 k2:4 ", replayed);
	/* The next leader does not know the last transaction. */
	bury("k2", 5);
	settle(1);
	assert_int_equal(txns + 6, fake.txns);
	etcd_state_close(st);
}

static unsigned int allocs, fails_at;

static void *failing_malloc(size_t size)
{
	return ++allocs == fails_at ? NULL : malloc(size);
}

/* The transaction is sent as a whole, or later. The last one is not known at
 * first, so each first transaction is refused: with a part missing, this would
 * not be the leader any more. */
static void without_memory_no_part_of_a_transaction_is_sent(void **state)
{
	(void)state;
	open_one(&c[0], "h:1");
	run_until(c[0].elected);
	open_state(&c[0]);
	bury("k", 1);
	settle(1);
	etcd_state_close(st);
	for (fails_at = 1, allocs = 1; allocs >= fails_at; fails_at++) {
		open_state(&c[0]);
		bury("k", fails_at);
		json_set_alloc_funcs(failing_malloc, free);
		allocs = 0;
		etcd_state_flush(st);
		json_set_alloc_funcs(malloc, free);
		run_until((etcd_state_flush(st),
			   failed || etcd_state_settled(st) == 1));
		assert_int_equal(0, failed);
		bury("k", fails_at + 1);
		settle(2);
		etcd_state_close(st);
	}
	assert_in_range(fails_at, 20, 1000);
}

static void too_much_is_written_at_once(void **state)
{
	char path[2048];
	unsigned int i;

	(void)state;
	open_one(&c[0], "h:1");
	run_until(c[0].elected);
	open_state(&c[0]);
	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	for (i = 0; !failed && i < 10000; i++)
		bury(path, i + 1);
	assert_int_equal(1, failed);
	assert_int_equal(i - 1, etcd_state_mark(st));
	etcd_state_close(st);
}

static void a_damaged_record_is_not_passed_over(void **state)
{
	(void)state;
	fake_put_key(&fake, KEY_TOMBS "azE=", "AAAA", 0);
	open_one(&c[0], "h:1");
	run_until(c[0].elected);
	open_state(&c[0]);
	assert_int_equal(-EPROTO, etcd_state_replay(st, on_record, NULL));
	assert_int_equal(1, fake_count(&fake, KEY_TOMBS));
	etcd_state_close(st);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(one_of_two_leads_and_the_other_knows_where_it_is),
		T(one_that_ends_in_order_makes_room_at_once),
		T(a_lease_that_etcd_ended_ends_leadership_and_epochs_rise),
		T(a_suspended_leader_does_not_act_before_it_has_checked),
		T(without_etcd_it_leads_to_the_end_of_its_lease),
		T(it_does_not_stand_again_before_all_is_put_down),
		T(an_election_whose_answer_got_lost_does_not_stay_in_the_way),
		T(a_lease_whose_answer_got_lost_is_another_ones_matter),
		T(an_election_done_by_an_attempt_that_got_lost_is_won),
		T(an_election_that_outlasted_its_lease_is_given_back),
		T(what_another_version_wrote_is_left_alone),
		T(an_epoch_beyond_the_last_one_is_not_raised),
		T(an_unreachable_etcd_is_reported_in_time),
		T(the_next_leader_finds_what_was_written),
		T(of_a_keys_records_only_the_newest_is_written),
		T(records_of_many_keys_are_several_transactions),
		T(one_that_is_leader_no_more_writes_nothing),
		T(what_fails_is_repeated_and_nothing_is_lost),
		T(one_that_etcd_executes_after_its_retry_changes_nothing),
		T(without_memory_no_part_of_a_transaction_is_sent),
		T(too_much_is_written_at_once),
		T(a_damaged_record_is_not_passed_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
