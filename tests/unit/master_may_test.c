/* What a session whose certificate is limited to directories sees, and what it
 * may change. Node 0 is not limited; node 1 is limited to a; node 2, a client,
 * is limited to b/c; node 3 is limited to users 7 and 8. */
#define NNODES 4
#include <errno.h>

#pragma GCC diagnostic ignored "-Wunused-function"
#include "master_fake_pool.h"

#include "tests/unit/tls_pki.h"
#include "pool/base/distinct.h"

#define PUBLISH KVPOOL__OP__KIND__PUBLISH
#define UNLINK KVPOOL__OP__KIND__UNLINK
#define MKDIR KVPOOL__OP__KIND__MKDIR
#define RMDIR KVPOOL__OP__KIND__RMDIR
#define SETATTR KVPOOL__OP__KIND__SETATTR
#define DELETED KVPOOL__DROP__REASON__DELETED
#define EVICTED KVPOOL__DROP__REASON__EVICTED
#define SUPERSEDED KVPOOL__DROP__REASON__SUPERSEDED

static struct pki_ca ca;
static struct pool_tls *of_master, *of[NNODES];

static struct pool_tls *open_tls(const struct pki_want *want)
{
	char *at = pki_dir_make(&ca, &ca, NULL, want), why[POOL_TLS_WHY];
	struct pool_tls *tls;

	if (pool_tls_open(at, &tls, why))
		fail_msg("%s", why);
	pki_dir_free(at);
	return tls;
}

static void begin_master(void)
{
	opts.tls = of_master;
	start_master();
}

static int may_setup(void **state)
{
	static const struct pki_want a_master = {
		.uri = { "kvpool://test/master" },
		.host = { "127.0.0.1" },
	};
	static const struct pki_want want[NNODES] = {
		{ .uri = { "kvpool://test/node" }, .host = { "127.0.0.1" } },
		{ .uri = { "kvpool://test/node/a" }, .host = { "127.0.0.1" } },
		{ .uri = { "kvpool://test/client/b/c" } },
		{ .uri = { "kvpool://test/node?uid=7,8" },
		  .host = { "127.0.0.1" } },
	};

	pki_ca_make(&ca);
	of_master = open_tls(&a_master);
	for (int i = 0; i < NNODES; i++)
		of[i] = open_tls(&want[i]);
	assert_int_equal(0, setup(state));
	node[2].is_store = false;
	stop_master();
	begin_master();
	return 0;
}

static int may_teardown(void **state)
{
	int r = teardown(state);

	opts.tls = NULL;
	pool_tls_close(of_master);
	for (int i = 0; i < NNODES; i++)
		pool_tls_close(of[i]);
	pki_ca_free(&ca);
	return r;
}

/* Joins: true, or its error is set. */
static bool tries(int i)
{
	struct pool_conn_opts o = {
		.ops = &fake_ops,
		.user = &node[i],
		.tls = of[i],
		.tls_roles = POOL_ROLE_BIT(POOL_ROLE_MASTER),
	};
	struct pool_hostport to = { .host = "127.0.0.1",
				    .port = master_port(master) };
	struct fake_node *n = &node[i];

	n->loop = &loop;
	n->open = n->welcomed = n->closed = false;
	n->error = 0;
	assert_int_equal(0, pool_conn_connect(&loop, &to, &o, &n->conn));
	if (!n->timer_open) {
		uv_timer_init(&loop, &n->beat);
		n->beat.data = n;
		uv_timer_start(&n->beat, fake_beat, HEARTBEAT_MS / 3,
			       HEARTBEAT_MS / 3);
		n->timer_open = true;
	}
	fake_send_join(n);
	run_until(&loop, n->welcomed || n->closed);
	return n->welcomed;
}

static void joins(int i)
{
	assert_true(tries(i));
}

static int is_refused(int i)
{
	return tries(i) ? 0 : node[i].error;
}

static void comes(int i)
{
	joins(i);
	fake_inventory(&node[i], NULL, 0, true);
	fake_subscribe(&node[i], 0, 0);
	run_until(&loop, node[i].completes > 0);
}

/* Those that are limited to directories, and node 0. */
static void all_come(void)
{
	for (int i = 0; i < 3; i++)
		comes(i);
}

/* Waits until the master has handled what n sent, and all changes have reached
 * every mount. */
static void settle_of(struct fake_node *n)
{
	unsigned int before = n->nsynced;

	fake_sync(n, 0, 99);
	run_until(&loop, n->nsynced > before);
}

static void settle(void)
{
	settle_of(&node[0]);
}

static uint64_t count(const char *name)
{
	const char *at;
	char *page;
	size_t len;
	uint64_t n;

	assert_int_equal(0, pool_metrics_print(metrics, &page, &len));
	at = strstr(page, "\n");
	while (at && strncmp(at + 1, name, strlen(name)) != 0)
		at = strstr(at + 1, "\n");
	assert_non_null(at);
	n = strtoull(at + 1 + strlen(name), NULL, 10);
	free(page);
	return n;
}

static bool shows(int i, const char *path)
{
	return fake_find(&node[i], path) != NULL;
}

/* ---- names ---- */

static void the_feed_has_only_the_namespaces_and_what_is_above(void **state)
{
	static const char *const path[] = { "a/x", "ab/x", "b/x", "b/c/x",
					    "b/cd/x", "c" };
	(void)state;
	all_come();
	for (size_t i = 0; i < 6; i++)
		fake_publish(&node[0], path[i]);
	assert_int_equal(0, fake_do(&node[0], MKDIR, "a/d"));
	settle();
	for (size_t i = 0; i < 6; i++) {
		assert_true(shows(0, path[i]));
		assert_int_equal(i == 0, shows(1, path[i]));
		assert_int_equal(i == 3, shows(2, path[i]));
	}
	assert_true(shows(1, "a") && shows(1, "a/d") && !shows(1, "ab"));
	assert_true(!shows(1, "b") && !shows(1, "c"));
	assert_true(shows(2, "b") && shows(2, "b/c") && !shows(2, "b/cd"));
	assert_true(!shows(2, "a"));
	/* Each node was sent the root and three names of its own, and no
	 * others, not even hidden ones. */
	assert_int_equal(3, node[1].nnames - shows(1, ""));
	assert_int_equal(3, node[2].nnames - shows(2, ""));
}

static void a_picture_has_only_these(void **state)
{
	(void)state;
	comes(0);
	fake_publish(&node[0], "a/x");
	fake_publish(&node[0], "b/x");
	comes(1);
	assert_true(shows(1, "a/x"));
	assert_false(shows(1, "b") || shows(1, "b/x"));
}

static void deletions_elsewhere_are_not_sent(void **state)
{
	size_t before;

	(void)state;
	all_come();
	fake_publish(&node[0], "a/x");
	fake_publish(&node[0], "b/x");
	settle();
	before = node[1].nfeed_entries;
	assert_int_equal(0, fake_do(&node[0], UNLINK, "b/x"));
	settle();
	assert_int_equal(before, node[1].nfeed_entries);
	assert_int_equal(0, fake_do(&node[0], UNLINK, "a/x"));
	settle();
	assert_false(shows(1, "a/x"));
}

/* ---- changes ---- */

static void changes_are_refused_elsewhere(void **state)
{
	static const Kvpool__Op__Kind kind[] = { PUBLISH, UNLINK, MKDIR, RMDIR,
						 SETATTR };
	static const char *const path[] = { "b/x", "b/none", "x", "ab" };
	uint64_t gen, seq;

	(void)state;
	all_come();
	gen = fake_publish(&node[0], "b/x");
	settle();
	seq = node[0].upto;
	for (size_t k = 0; k < 5; k++)
		for (size_t i = 0; i < 4; i++)
			assert_int_equal(-EACCES, fake_do(&node[1], kind[k],
							  path[i]));
	assert_int_equal(20, count("kvpool_master_not_allowed_total"));
	assert_int_equal(-EACCES, fake_do(&node[1], SETATTR, ""));
	settle();
	assert_int_equal(seq, node[0].upto);
	assert_true(fake_knows(&node[0], "b/x", gen));
}

static void inside_all_is_allowed(void **state)
{
	(void)state;
	all_come();
	fake_publish(&node[1], "a/x");
	assert_int_equal(0, fake_do(&node[1], MKDIR, "a/d"));
	assert_int_equal(0, fake_rule(&node[1], "a/d", "user.kvpool.replicas",
				      "2"));
	assert_int_equal(0, fake_do(&node[1], RMDIR, "a/d"));
	assert_int_equal(0, fake_do(&node[1], UNLINK, "a/x"));
	assert_int_equal(0, count("kvpool_master_not_allowed_total"));
}

static void
the_namespace_itself_can_be_made_and_set_but_not_removed(void **state)
{
	(void)state;
	all_come();
	assert_int_equal(0, fake_do(&node[1], MKDIR, "a"));
	assert_int_equal(0, fake_rule(&node[1], "a", "user.kvpool.replicas",
				      "2"));
	assert_int_equal(-EACCES, fake_do(&node[1], RMDIR, "a"));
	assert_int_equal(0, fake_do(&node[2], MKDIR, "b/c"));
	assert_int_equal(-EACCES, fake_do(&node[2], MKDIR, "b"));
	assert_int_equal(-EACCES, fake_rule(&node[2], "b",
					    "user.kvpool.replicas", "2"));
	/* A file of that name is not inside the namespace. */
	assert_int_equal(0, fake_do(&node[0], RMDIR, "a"));
	assert_int_equal(-EACCES, fake_do(&node[1], PUBLISH, "a"));
	fake_publish(&node[0], "a");
	assert_int_equal(-EACCES, fake_do(&node[1], SETATTR, "a"));
	assert_int_equal(-EACCES, fake_do(&node[1], UNLINK, "a"));
}

/* ---- copies ---- */

/* Node 1 is ordered to keep a second copy of b/x. */
static uint64_t place_on_1(void)
{
	uint64_t gen;

	assert_int_equal(0, fake_do(&node[0], MKDIR, "b"));
	assert_int_equal(0, fake_rule(&node[0], "b", "user.kvpool.replicas",
				      "2"));
	gen = fake_publish(&node[0], "b/x");
	run_until(&loop, node[1].nreplicates == 1);
	assert_string_equal("b/x", node[1].replicates[0].path);
	fake_held(&node[1], "b/x", gen, 0);
	run_until(&loop, shows(0, "b/x") &&
				 fake_find(&node[0], "b/x")->nholders == 2);
	return gen;
}

static void a_limited_store_keeps_copies_of_others(void **state)
{
	uint64_t gen;

	(void)state;
	all_come();
	gen = place_on_1();
	assert_false(shows(1, "b/x"));
	/* It is sent the object's attributes, like a store without a mount; and
	 * it repeats its report. */
	assert_int_equal(0, fake_do(&node[0], SETATTR, "b/x"));
	run_until(&loop, node[1].nreplicates == 2);
	fake_held(&node[1], "b/x", gen, 0);
	settle_of(&node[1]); /* a later one would be dropped */
	assert_int_equal(0, fake_do(&node[0], UNLINK, "b/x"));
	run_until(&loop, fake_dropped(&node[1], "b/x", gen, DELETED));
	assert_int_equal(1, node[1].ndrops);
}

static void what_was_not_ordered_does_not_count(void **state)
{
	uint64_t gen;

	(void)state;
	all_come();
	gen = fake_publish(&node[0], "b/x");
	fake_held(&node[1], "b/x", gen, 0);
	run_until(&loop, fake_dropped(&node[1], "b/x", gen, DELETED));
	fake_held(&node[1], "a/x", gen, 0); /* the copy is unknown: no DROP */
	run_until(&loop, node[1].ndrops == 2);
	settle();
	assert_int_equal(1, fake_find(&node[0], "b/x")->nholders);
	assert_int_equal(1, count("kvpool_master_not_allowed_total"));
}

static void an_eviction_does_not_tell_of_newer_versions(void **state)
{
	uint64_t of_a, of_b;

	(void)state;
	all_come();
	of_a = fake_publish(&node[0], "a/x");
	of_b = fake_publish(&node[0], "b/x");
	fake_rewrite(&node[0], "a/x");
	fake_rewrite(&node[0], "b/x");
	fake_evict(&node[1], "a/x", of_a);
	run_until(&loop, fake_dropped(&node[1], "a/x", of_a, SUPERSEDED));
	fake_evict(&node[1], "b/x", of_b);
	run_until(&loop, fake_dropped(&node[1], "b/x", of_b, EVICTED));
}

/* ---- inventories ---- */

static void an_inventory_confirms_what_was_placed(void **state)
{
	uint64_t gen;

	(void)state;
	all_come();
	gen = place_on_1();
	fake_hang_up(&node[1]);
	joins(1);
	fake_inventory(&node[1], "b/x", gen, true);
	settle();
	assert_int_equal(2, fake_find(&node[0], "b/x")->nholders);
	assert_int_equal(0, node[1].ndrops);
}

static void an_inventory_makes_and_replaces_nothing_elsewhere(void **state)
{
	uint64_t gen, newer;

	(void)state;
	comes(0);
	comes(2);
	gen = fake_publish(&node[0], "b/x");
	newer = gen + 5;
	joins(1);
	fake_gone(&node[1], "b/x", newer);
	fake_inventory_attr(&node[1], "b/x", newer, 0777, 0, false);
	fake_inventory_attr(&node[1], "b/y", newer, 0777, 0, false);
	/* The inventory has newer attributes for the existing version. */
	fake_inventory_attr(&node[1], "b/x", gen, 0777, newer, false);
	fake_inventory(&node[1], "a/y", newer, true);
	run_until(&loop, node[1].ndrops >= 2 && shows(0, "a/y"));
	settle();
	assert_true(fake_dropped(&node[1], "b/x", newer, DELETED));
	assert_true(fake_dropped(&node[1], "b/y", newer, DELETED));
	assert_int_equal(2, node[1].ndrops);
	assert_true(fake_knows(&node[0], "b/x", gen));
	assert_int_equal(0644, fake_find(&node[0], "b/x")->mode);
	assert_false(shows(0, "b/y"));
	assert_int_equal(2, count("kvpool_master_not_allowed_total"));
}

/* Else the next ones would be below those of other names. */
static void an_inventory_does_not_use_up_the_generations(void **state)
{
	uint64_t gen, last;

	(void)state;
	comes(0);
	gen = fake_publish(&node[0], "b/x");
	last = gen | ((UINT64_C(1) << POOL_GEN_SEQ_BITS) - 1);
	joins(2);
	fake_inventory(&node[2], "b/c/k", last, false);
	fake_inventory_attr(&node[2], "b/c/k", gen, 0644, last, false);
	fake_inventory(&node[2], NULL, 0, true);
	settle();
	last = fake_publish(&node[0], "b/y");
	assert_in_range(last, gen + 1, gen + 100);
	assert_false(shows(0, "b/c/k"));
}

static void a_limited_client_does_not_raise_the_epoch(void **state)
{
	uint64_t epoch;

	(void)state;
	comes(0);
	epoch = node[0].epoch;
	fake_hang_up(&node[0]);
	stop_master();
	opts.recover_ms = 2 * HEARTBEAT_MS;
	begin_master();
	node[2].seen_epoch = epoch + 1000;
	assert_int_equal(-EAGAIN, is_refused(2));
	run_until(&loop, is_refused(2) == -ESTALE);
	comes(0);
	assert_int_equal(epoch + 1, node[0].epoch);
	assert_int_equal(-ESTALE, is_refused(2));
	assert_false(node[0].closed);
	opts.recover_ms = 0;
}

static void
after_a_start_it_is_judged_when_others_have_listed_theirs(void **state)
{
	uint64_t gen;
	int i;

	(void)state;
	all_come();
	gen = place_on_1();
	for (i = 0; i < 3; i++)
		fake_hang_up(&node[i]);
	stop_master();
	begin_master();
	joins(1);
	node[1].ndrops = 0;
	fake_inventory(&node[1], "b/x", gen, false);
	fake_inventory(&node[1], "b/forged", gen, true);
	joins(2);
	fake_inventory(&node[2], NULL, 0, true);
	joins(0);
	assert_false(node[1].closed);
	assert_int_equal(0, node[1].ndrops);
	fake_inventory(&node[0], "b/x", gen, true);
	run_until(&loop, node[1].closed);
	joins(1);
	fake_inventory(&node[1], "b/x", gen, false);
	fake_inventory(&node[1], "b/forged", gen, true);
	run_until(&loop, fake_dropped(&node[1], "b/forged", gen, DELETED));
	fake_subscribe(&node[0], 0, 0);
	node[0].completes = 0;
	run_until(&loop, node[0].completes);
	assert_int_equal(2, fake_find(&node[0], "b/x")->nholders);
	assert_false(shows(0, "b/forged"));
	assert_int_equal(1, node[1].ndrops);
	assert_false(node[1].closed);
}

/* ---- users ---- */

static int does(uint32_t uid, uint32_t by, Kvpool__Op__Kind kind,
		const char *path)
{
	int status;

	fake_uid = uid;
	fake_by = by;
	status = fake_do(&node[3], kind, path);
	fake_uid = fake_by = 0;
	return status;
}

static void what_is_made_belongs_to_its_users(void **state)
{
	(void)state;
	comes(0);
	comes(3);
	assert_int_equal(0, does(7, 0, PUBLISH, "x"));
	assert_int_equal(0, does(8, 0, MKDIR, "d"));
	assert_int_equal(0, does(8, 1 + 7, PUBLISH, "d/y"));
	assert_int_equal(0, count("kvpool_master_other_users_total"));
	assert_int_equal(-EACCES, does(9, 0, PUBLISH, "z"));
	assert_int_equal(-EACCES, does(0, 0, PUBLISH, "x"));
	assert_int_equal(-EACCES, does(9, 0, MKDIR, "e"));
	assert_int_equal(-EACCES, does(7, 1 + 9, PUBLISH, "z"));
	assert_int_equal(-EACCES, does(7, 1 + 9, UNLINK, "x"));
	assert_int_equal(5, count("kvpool_master_other_users_total"));
	settle();
	assert_int_equal(7, fake_find(&node[0], "x")->uid);
	assert_false(shows(0, "z") || shows(0, "e"));
	assert_int_equal(0, does(9, 0, UNLINK, "x"));
}

static int sets(int i, const char *path, uint32_t set, uint32_t uid)
{
	Kvpool__Op op = KVPOOL__OP__INIT;
	Kvpool__Meta meta;

	fake_meta(&meta, path, 0);
	meta.uid = uid;
	op.kind = SETATTR;
	op.meta = &meta;
	op.set = set;
	return fake_op(&node[i], &op);
}

static void owners_and_modes_are_set_for_its_users(void **state)
{
	(void)state;
	comes(0);
	comes(3);
	fake_publish(&node[0], "others");
	assert_int_equal(0, fake_do(&node[0], MKDIR, "dir"));
	assert_int_equal(0, does(7, 0, PUBLISH, "own"));
	assert_int_equal(0, sets(3, "own", POOL_SET_MODE, 0));
	assert_int_equal(0, sets(3, "own", POOL_SET_UID, 8));
	assert_int_equal(-EACCES, sets(3, "own", POOL_SET_UID, 9));
	assert_int_equal(-EACCES, sets(3, "others", POOL_SET_UID, 7));
	assert_int_equal(-EACCES, sets(3, "others", POOL_SET_MODE, 7));
	assert_int_equal(-EACCES, sets(3, "others", POOL_SET_GID, 7));
	assert_int_equal(-EACCES, sets(3, "dir", POOL_SET_MODE, 7));
	assert_int_equal(0, sets(3, "others", POOL_SET_MTIME, 0));
	assert_int_equal(5, count("kvpool_master_other_users_total"));
	settle();
	assert_int_equal(8, fake_find(&node[0], "own")->uid);
	assert_int_equal(0, fake_find(&node[0], "others")->uid);
}

static void its_inventory_brings_files_of_its_users_only(void **state)
{
	uint64_t gen;

	(void)state;
	comes(0);
	gen = fake_publish(&node[0], "x");
	joins(3);
	fake_uid = 7;
	fake_inventory(&node[3], "own", gen + 1, false);
	fake_uid = 0;
	fake_inventory(&node[3], "forged", gen + 2, false);
	fake_inventory(&node[3], "x", gen, true);
	run_until(&loop, node[3].ndrops > 0 && shows(0, "own"));
	assert_true(fake_dropped(&node[3], "forged", gen + 2, DELETED));
	settle();
	assert_false(shows(0, "forged"));
	assert_int_equal(7, fake_find(&node[0], "own")->uid);
	assert_true(fake_knows(&node[0], "x", gen));
	assert_false(fake_dropped(&node[3], "x", gen, DELETED));
}

#define MAY(test) \
	cmocka_unit_test_setup_teardown(test, may_setup, may_teardown)

/* ---- reports of look-ups ---- */

static json_int_t lookups_of(const char *name)
{
	return figure_of(name, NULL, "lookups");
}

/* A node says that it looked up files of these directories, 7 of each. */
static void says_look_ups(int i, const char *one, const char *other)
{
	Kvpool__AskedWindow w[POOL_ASKED_WINDOWS], *windows[POOL_ASKED_WINDOWS];
	Kvpool__AskedDir d[2], *dirs[2] = { &d[0], &d[1] };
	const char *const names[2] = { one, other };
	uint8_t none[POOL_FOLDED_SIZE] = { 0 };
	Kvpool__Heartbeat hb = KVPOOL__HEARTBEAT__INIT;
	Kvpool__Asked a = KVPOOL__ASKED__INIT;

	for (size_t k = 0; k < POOL_ASKED_WINDOWS; k++) {
		kvpool__asked_window__init(&w[k]);
		w[k].lookups = 14;
		w[k].names.data = none;
		w[k].names.len = sizeof(none);
		windows[k] = &w[k];
	}
	for (size_t k = 0; k < 2; k++) {
		kvpool__asked_dir__init(&d[k]);
		d[k].name.data = (uint8_t *)(uintptr_t)names[k];
		d[k].name.len = strlen(names[k]);
		d[k].lookups = 7;
	}
	a.seed = 1;
	a.windows = windows;
	a.n_windows = POOL_ASKED_WINDOWS;
	a.dirs = dirs;
	a.n_dirs = 2;
	hb.epoch = node[i].epoch;
	hb.asked = &a;
	assert_int_equal(0, pool_conn_send(node[i].conn, POOL_MSG_HEARTBEAT, 0,
					   &hb.base));
	settle_of(&node[i]);
}

static void look_ups_in_others_directories_are_not_theirs(void **state)
{
	(void)state;
	all_come();
	fake_publish(&node[0], "a/k");
	fake_publish(&node[0], "secret/k");
	says_look_ups(1, "a", "secret");
	assert_int_equal(7, lookups_of("a"));
	assert_int_equal(0, lookups_of("secret"));
	assert_int_equal(7, lookups_of(NULL));
	says_look_ups(0, "a", "secret");
	assert_int_equal(14, lookups_of("a"));
	assert_int_equal(7, lookups_of("secret"));
	assert_int_equal(7, lookups_of(NULL));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		MAY(look_ups_in_others_directories_are_not_theirs),
		MAY(the_feed_has_only_the_namespaces_and_what_is_above),
		MAY(a_picture_has_only_these),
		MAY(deletions_elsewhere_are_not_sent),
		MAY(changes_are_refused_elsewhere),
		MAY(inside_all_is_allowed),
		MAY(the_namespace_itself_can_be_made_and_set_but_not_removed),
		MAY(a_limited_store_keeps_copies_of_others),
		MAY(what_was_not_ordered_does_not_count),
		MAY(an_eviction_does_not_tell_of_newer_versions),
		MAY(an_inventory_confirms_what_was_placed),
		MAY(an_inventory_makes_and_replaces_nothing_elsewhere),
		MAY(an_inventory_does_not_use_up_the_generations),
		MAY(a_limited_client_does_not_raise_the_epoch),
		MAY(after_a_start_it_is_judged_when_others_have_listed_theirs),
		MAY(what_is_made_belongs_to_its_users),
		MAY(owners_and_modes_are_set_for_its_users),
		MAY(its_inventory_brings_files_of_its_users_only),
	};

	return run_all_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
