/*
 * One of several masters, as nodes see it: a standby; a leader, which reveals a
 * change only when etcd has stored it; a leader that has lost its lease.
 */
#include <errno.h>

#include "fake_etcd.h"
/* This test does not use all of a fake node. */
#pragma GCC diagnostic ignored "-Wunused-function"
#include "master_fake_node.h"

#include "master/etcd_state.h"
#include "master/ha.h"
#include "master/impl.h"

#define KEY_LEADER "L2t2cG9vbC90L2xlYWRlcg=="
#define KEY_TOMBS "L2t2cG9vbC90L3N0YXRlL3RvbWIv"
#define KEY_LOST "L2t2cG9vbC90L3N0YXRlL2xvc3QvMA==" /* "lost/0" */
#define KEYS_LOST_200 "L2t2cG9vbC90L3N0YXRlL2xvc3QvMjAw" /* "lost/200..." */
#define HOST_9 "aDo5" /* "h:9" */
#define FLOW 200 /* changes */

static struct fake_etcd etcd;
static uv_loop_t loop;
static struct master_ha *ha;
static struct fake_node node[2];
static struct pool_metrics *metrics;
static unsigned int unusable;

static void on_unusable(void *arg)
{
	(void)arg;
	unusable++;
}

static void open_ha(void)
{
	struct master_ha_opts o = {
		.master = { .loop = &loop,
			    .listen = { .host = "127.0.0.1" },
			    .heartbeat_ms = HEARTBEAT_MS },
		.etcd = { .urls = etcd.url },
		.cluster = "t",
		.start_ms = 2000,
		.unusable = on_unusable,
	};

	metrics = pool_metrics_open();
	o.master.metrics = metrics;
	assert_int_equal(0, master_ha_open(&o, &ha));
}

static void on_closed(void *arg)
{
	*(bool *)arg = true;
}

static void close_ha(void)
{
	bool closed = false;

	master_ha_close(ha, on_closed, &closed);
	run_until(&loop, closed);
	pool_metrics_close(metrics);
	ha = NULL;
}

static void new_nodes(void)
{
	int i;

	memset(node, 0, sizeof(node));
	for (i = 0; i < 2; i++) {
		snprintf(node[i].name, sizeof(node[i].name), "node-%d", i);
		node[i].id[0] = (uint8_t)(i + 1);
		node[i].host = "h";
		node[i].is_store = node[i].is_mount = true;
		node[i].capacity = 1 << 30;
	}
}

static int setup(void **state)
{
	(void)state;
	alarm(60);
	unusable = 0;
	fake_etcd_start(&etcd);
	assert_int_equal(0, uv_loop_init(&loop));
	new_nodes();
	return 0;
}

static int teardown(void **state)
{
	int i;

	(void)state;
	fake_set(&etcd, FAKE_FINE, 0);
	for (i = 0; i < 2; i++)
		fake_fini(&node[i]);
	if (ha)
		close_ha();
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(0, uv_loop_close(&loop));
	fake_etcd_stop(&etcd);
	alarm(0);
	return 0;
}

static void dial(struct fake_node *n)
{
	fake_dial(n, &loop, master_ha_port(ha));
	fake_send_join(n);
	run_until(&loop, n->welcomed || n->closed);
}

static void join_and_watch(struct fake_node *n)
{
	dial(n);
	assert_true(n->welcomed);
	fake_inventory(n, NULL, 0, true);
	fake_subscribe(n, 0, 0);
	run_until(&loop, n->completes == 1);
}

static void lead(void)
{
	open_ha();
	run_until(&loop, !master_ha_not_ready(ha));
}

/* etcd refuses writes but renews leases, so the leader stays. */
static void refuse_writes(bool refuse)
{
	pthread_mutex_lock(&etcd.lock);
	etcd.fault = refuse ? FAKE_NO_LEADER : FAKE_FINE;
	etcd.fault_only = refuse ? "request_" : NULL;
	pthread_mutex_unlock(&etcd.lock);
}

static uint64_t failed_writes(void)
{
	char *text, *p;
	size_t len;
	uint64_t v;

	assert_int_equal(0, pool_metrics_print(metrics, &text, &len));
	p = strstr(text, "\nkvpool_master_state_writes_failed_total ");
	assert_non_null(p);
	v = strtoull(strchr(p + 1, ' '), NULL, 10);
	free(text);
	return v;
}

/* Does not wait for the answer. */
static void send_op(struct fake_node *n, Kvpool__Op__Kind kind,
		    const char *path)
{
	Kvpool__Ops ops = KVPOOL__OPS__INIT;
	Kvpool__Op op = KVPOOL__OP__INIT, *list[1] = { &op };
	Kvpool__Meta meta;

	fake_meta(&meta, path, 0);
	op.kind = kind;
	op.meta = &meta;
	ops.ops = list;
	ops.n_ops = 1;
	n->ops_done = n->feed_before_done = false;
	assert_int_equal(0, pool_conn_send(n->conn, POOL_MSG_OPS, 7,
					   &ops.base));
}

/* ---- a standby ---- */

static void a_standby_sends_nodes_away_and_knows_the_leader(void **state)
{
	json_t *json;

	(void)state;
	fake_put_key(&etcd, KEY_LEADER, HOST_9, 0);
	open_ha();
	run_until(&loop, strstr(master_ha_not_ready(ha), "h:9"));
	dial(&node[0]);
	assert_false(node[0].welcomed);
	assert_int_equal(-EAGAIN, node[0].error);
	assert_null(master_ha_leading(ha));
	json = master_ha_json(ha);
	assert_string_equal("standby", json_string_value(json_object_get(
					       json, "state")));
	assert_string_equal("h:9", json_string_value(json_object_get(
					   json, "leader")));
	json_decref(json);
}

static void a_silent_connection_does_not_block_closing(void **state)
{
	(void)state;
	fake_put_key(&etcd, KEY_LEADER, HOST_9, 0);
	open_ha();
	fake_dial(&node[0], &loop, master_ha_port(ha));
	run_until(&loop, node[0].open);
	close_ha();
	run_until(&loop, node[0].closed);
}

/* ---- a leader ---- */

static void answers_and_feed_come_after_etcd_has_the_change(void **state)
{
	uint64_t before;

	(void)state;
	lead();
	join_and_watch(&node[0]);
	join_and_watch(&node[1]);
	refuse_writes(true);
	before = failed_writes();
	send_op(&node[0], KVPOOL__OP__KIND__MKDIR, "d");
	run_until(&loop, failed_writes() > before);
	fake_sync(&node[1], 0, 5);
	run_until(&loop, failed_writes() >= before + 3);
	assert_false(node[0].ops_done);
	assert_null(fake_find(&node[1], "d"));
	assert_int_equal(0, node[1].nsynced);
	refuse_writes(false);
	run_until(&loop, node[0].ops_done && fake_find(&node[1], "d"));
	assert_false(node[0].feed_before_done);
	assert_int_equal(0, node[0].status[0]);
	run_until(&loop, node[1].nsynced == 1);
}

static void publications_do_not_wait_for_etcd(void **state)
{
	uint64_t gen;

	(void)state;
	lead();
	join_and_watch(&node[0]);
	join_and_watch(&node[1]);
	refuse_writes(true);
	gen = fake_publish(&node[0], "k");
	run_until(&loop, fake_knows(&node[1], "k", gen));
	refuse_writes(false);
}

static bool drain_is_recorded(enum master_drain_do what)
{
	const char *text;
	json_t *json;
	bool is;

	assert_int_equal(0, master_drain(master_ha_leading(ha), node[0].name,
					 what, &json, &text));
	is = json_is_true(json_object_get(json, "recorded"));
	json_decref(json);
	return is;
}

static void a_drain_is_recorded_once_etcd_has_it(void **state)
{
	uint64_t before;

	(void)state;
	lead();
	join_and_watch(&node[0]);
	refuse_writes(true);
	before = failed_writes();
	assert_false(drain_is_recorded(MASTER_DRAIN_BEGIN));
	run_until(&loop, failed_writes() >= before + 2);
	assert_false(drain_is_recorded(MASTER_DRAIN_SHOW));
	refuse_writes(false);
	run_until(&loop, drain_is_recorded(MASTER_DRAIN_SHOW));
}

static void answers_keep_their_order(void **state)
{
	uint64_t before;

	(void)state;
	lead();
	join_and_watch(&node[0]);
	refuse_writes(true);
	before = failed_writes();
	send_op(&node[0], KVPOOL__OP__KIND__MKDIR, "d");
	send_op(&node[0], KVPOOL__OP__KIND__PUBLISH, "d/k");
	run_until(&loop, failed_writes() >= before + 2);
	assert_false(node[0].ops_done);
	refuse_writes(false);
	run_until(&loop, fake_find(&node[0], "d/k"));
	assert_true(node[0].gen[0] != 0); /* of the second */
	assert_false(node[0].feed_before_done);
}

/* A node takes any message before WELCOME for another protocol. */
static void nothing_comes_before_a_welcome_that_waits(void **state)
{
	uint64_t before;

	(void)state;
	lead();
	refuse_writes(true);
	before = failed_writes();
	fake_dial(&node[0], &loop, master_ha_port(ha));
	fake_send_join(&node[0]);
	fake_subscribe(&node[0], 0, 0);
	run_until(&loop, failed_writes() >= before + 2);
	assert_false(node[0].welcomed);
	assert_int_equal(0, node[0].heartbeats);
	assert_int_equal(0, node[0].feeds);
	refuse_writes(false);
	run_until(&loop, node[0].welcomed);
}

/* A node may be silent before WELCOME, however long etcd takes. */
static void a_node_waiting_for_welcome_is_not_silent(void **state)
{
	(void)state;
	lead();
	refuse_writes(true);
	fake_dial(&node[0], &loop, master_ha_port(ha));
	fake_send_join(&node[0]);
	run_ms(&loop, 5 * MASTER_GRACE * HEARTBEAT_MS);
	assert_false(node[0].welcomed);
	assert_false(node[0].closed);
	node[0].silent = true;
	refuse_writes(false);
	run_until(&loop, node[0].welcomed);
	/* From WELCOME on, the grace applies. */
	run_ms(&loop, HEARTBEAT_MS);
	assert_false(node[0].closed);
	run_until(&loop, node[0].closed);
}

/* ms: that it takes to store something. */
static void make_etcd_slow(unsigned int ms)
{
	pthread_mutex_lock(&etcd.lock);
	etcd.fault = FAKE_LOSES_WORD; /* but the answer comes in time */
	etcd.fault_ms = ms;
	etcd.fault_only = "request_";
	pthread_mutex_unlock(&etcd.lock);
}

/*
 * A mount whose changes come faster than etcd stores them always waits for an
 * answer. It must receive the feed and DROPs nevertheless: for its acks of the
 * feed the fsyncs of all others wait, and it may need the space.
 */
static void a_flow_of_changes_does_not_hold_back_the_feed(void **state)
{
	unsigned int sent = 0;
	bool asked = false;
	char path[16];
	uint64_t gen;

	(void)state;
	lead();
	join_and_watch(&node[0]);
	join_and_watch(&node[1]);
	gen = fake_publish(&node[0], "k");
	make_etcd_slow(5);
	node[0].ndone = 0;
	while (sent < FLOW && !(node[1].nsynced && node[0].ndrops)) {
		for (; sent < node[0].ndone + 4; sent++) {
			snprintf(path, sizeof(path), "d%u", sent);
			send_op(&node[0], KVPOOL__OP__KIND__MKDIR, path);
		}
		uv_run(&loop, UV_RUN_ONCE);
		if (sent < FLOW / 8 || asked)
			continue;
		asked = true;
		fake_sync(&node[1], 0, 5);
		send_op(&node[1], KVPOOL__OP__KIND__UNLINK, "k");
	}
	assert_int_equal(1, node[1].nsynced);
	assert_true(fake_dropped(&node[0], "k", gen,
				 KVPOOL__DROP__REASON__DELETED));
}

/* A name that changes faster than etcd stores the changes: others' fsyncs wait
 * until all mounts have it as it was once. */
static void a_name_that_never_rests_holds_up_no_fsync(void **state)
{
	uint64_t end;
	unsigned int sent = 0;
	bool asked = false;

	(void)state;
	lead();
	join_and_watch(&node[0]);
	join_and_watch(&node[1]);
	make_etcd_slow(5);
	node[0].ndone = 0;
	end = pool_now_ms() + 20 * MASTER_PAUSE_MS;
	while (!node[1].nsynced && pool_now_ms() < end) {
		for (; sent < node[0].ndone + 4; sent++)
			send_op(&node[0],
				sent % 2 ? KVPOOL__OP__KIND__RMDIR :
					   KVPOOL__OP__KIND__MKDIR,
				"d");
		uv_run(&loop, UV_RUN_ONCE);
		if (asked || sent < FLOW / 8)
			continue;
		asked = true;
		fake_sync(&node[1], 0, 5);
	}
	assert_int_equal(1, node[1].nsynced);
	/* And the changes go on. */
	sent = node[0].ndone;
	run_until(&loop, node[0].ndone > sent);
	assert_false(node[0].closed);
}

/* Node 0 sends a message of several parts: its first `ndirs` changes and the
 * last one make directories, the others publish files. */
static void send_parts(unsigned int ndirs)
{
	static Kvpool__Op op[POOL_OPS_QUANTUM + 1];
	static Kvpool__Meta meta[POOL_OPS_QUANTUM + 1];
	static char path[POOL_OPS_QUANTUM + 1][16];
	Kvpool__Op *list[POOL_OPS_QUANTUM + 1];
	Kvpool__Ops ops = KVPOOL__OPS__INIT;

	for (unsigned int i = 0; i <= POOL_OPS_QUANTUM; i++) {
		bool dir = i < ndirs || i == POOL_OPS_QUANTUM;

		snprintf(path[i], sizeof(path[i]), "%c%u", dir ? 'd' : 'k', i);
		fake_meta(&meta[i], path[i], 0);
		kvpool__op__init(&op[i]);
		op[i].kind = dir ? KVPOOL__OP__KIND__MKDIR :
				   KVPOOL__OP__KIND__PUBLISH;
		op[i].meta = &meta[i];
		list[i] = &op[i];
	}
	ops.ops = list;
	ops.n_ops = POOL_OPS_QUANTUM + 1;
	node[0].ops_done = node[0].feed_before_done = false;
	assert_int_equal(0, pool_conn_send(node[0].conn, POOL_MSG_OPS, 7,
					   &ops.base));
}

/* Records of the first parts are stored before those of the last one. */
static void the_feed_waits_for_the_answer_to_all_parts(void **state)
{
	(void)state;
	lead();
	join_and_watch(&node[0]);
	join_and_watch(&node[1]);
	make_etcd_slow(3 * MASTER_OPS_QUANTUM_MS);
	send_parts(2 * MASTER_UNSETTLED_MAX);
	run_until(&loop, node[0].ops_done);
	assert_int_equal(POOL_OPS_QUANTUM + 1, node[0].nresults);
	assert_false(node[0].feed_before_done);
	run_until(&loop, fake_find(&node[0], "d256"));
}

/* Otherwise more and more changes would wait for etcd, and all fsyncs for them.
 */
static void the_next_part_waits_until_etcd_has_the_last(void **state)
{
	const struct pool_counter *made;
	struct master *m;
	uint64_t mark;

	(void)state;
	lead();
	m = master_ha_leading(ha);
	made = &m->stats.c[MC_MKDIR];
	join_and_watch(&node[0]);
	make_etcd_slow(10 * MASTER_OPS_QUANTUM_MS);
	send_parts(POOL_OPS_QUANTUM);
	run_until(&loop, pool_counter_value(made));
	assert_int_equal(MASTER_UNSETTLED_MAX, pool_counter_value(made));
	mark = master_keep_mark(m);
	run_until(&loop, pool_counter_value(made) > MASTER_UNSETTLED_MAX);
	assert_true(master_keep_settled(m, mark));
	assert_int_equal(2 * MASTER_UNSETTLED_MAX, pool_counter_value(made));
}

#define NMANY 100u

/* Changes of "many0" and so on; each salt is another content. */
static void send_many(Kvpool__Op__Kind kind, uint64_t salt)
{
	Kvpool__Ops ops = KVPOOL__OPS__INIT;
	Kvpool__Op op[NMANY], *list[NMANY];
	Kvpool__Meta meta[NMANY];
	char path[NMANY][16];
	uint64_t sum[NMANY][2];

	for (unsigned int i = 0; i < NMANY; i++) {
		snprintf(path[i], sizeof(path[i]), "many%u", i);
		fake_meta(&meta[i], path[i], 0);
		sum[i][0] = salt;
		sum[i][1] = i;
		meta[i].sum.data = (uint8_t *)sum[i];
		kvpool__op__init(&op[i]);
		op[i].kind = kind;
		op[i].meta = &meta[i];
		list[i] = &op[i];
	}
	ops.ops = list;
	ops.n_ops = NMANY;
	node[0].ops_done = false;
	assert_int_equal(0, pool_conn_send(node[0].conn, POOL_MSG_OPS, 7,
					   &ops.base));
}

static void publish_many(uint64_t salt)
{
	send_many(KVPOOL__OP__KIND__PUBLISH, salt);
	run_until(&loop, node[0].ops_done);
}

/* Node 1 is awaited. */
static void before_the_master_is_ready_the_next_part_waits_as_well(void **state)
{
	const struct pool_counter *made;

	(void)state;
	lead();
	join_and_watch(&node[0]);
	join_and_watch(&node[1]);
	close_ha();
	run_until(&loop, node[0].closed && node[1].closed);
	open_ha();
	run_until(&loop, master_ha_leading(ha));
	dial(&node[0]);
	assert_true(node[0].welcomed);
	made = &master_ha_leading(ha)->stats.c[MC_UNLINK];
	make_etcd_slow(10 * MASTER_OPS_QUANTUM_MS);
	send_many(KVPOOL__OP__KIND__UNLINK, 1);
	run_until(&loop, pool_counter_value(made));
	assert_int_equal(MASTER_UNSETTLED_MAX, pool_counter_value(made));
	assert_false(master_ha_leading(ha)->ready);
}

/* Each costs as much as three small ones. */
static void a_part_of_large_records_is_shorter(void **state)
{
	static uint8_t value[3000];
	const struct pool_counter *made;
	Kvpool__Xattr x = KVPOOL__XATTR__INIT, *xs[1] = { &x };
	Kvpool__Ops ops = KVPOOL__OPS__INIT;
	Kvpool__Op op[MASTER_UNSETTLED_MAX], *list[MASTER_UNSETTLED_MAX];
	Kvpool__Meta meta[MASTER_UNSETTLED_MAX];
	char path[MASTER_UNSETTLED_MAX][16];
	unsigned int i;

	(void)state;
	lead();
	made = &master_ha_leading(ha)->stats.c[MC_MKDIR];
	join_and_watch(&node[0]);
	make_etcd_slow(10 * MASTER_OPS_QUANTUM_MS);
	x.name = (char *)"user.n";
	x.value.data = value;
	x.value.len = sizeof(value);
	for (i = 0; i < MASTER_UNSETTLED_MAX; i++) {
		snprintf(path[i], sizeof(path[i]), "d%u", i);
		fake_meta(&meta[i], path[i], 0);
		meta[i].xattrs = xs;
		meta[i].n_xattrs = 1;
		kvpool__op__init(&op[i]);
		op[i].kind = KVPOOL__OP__KIND__MKDIR;
		op[i].meta = &meta[i];
		list[i] = &op[i];
	}
	ops.ops = list;
	ops.n_ops = MASTER_UNSETTLED_MAX;
	node[0].ops_done = false;
	assert_int_equal(0, pool_conn_send(node[0].conn, POOL_MSG_OPS, 7,
					   &ops.base));
	run_until(&loop, pool_counter_value(made));
	assert_true(pool_counter_value(made) < MASTER_UNSETTLED_MAX / 2);
	assert_false(node[0].ops_done);
	run_until(&loop, node[0].ops_done);
	assert_int_equal(MASTER_UNSETTLED_MAX, node[0].nresults);
	for (i = 0; i < MASTER_UNSETTLED_MAX; i++)
		assert_int_equal(0, node[0].status[i]);
}

#define NGONE 150u /* of one message */

/* What node 0 has evicted, while there was no master. */
static void send_gone(unsigned int from, bool last)
{
	Kvpool__Inventory inv = KVPOOL__INVENTORY__INIT;
	Kvpool__Meta meta[NGONE], *list[NGONE];
	char path[NGONE][250];

	for (unsigned int i = 0; i < NGONE; i++) {
		snprintf(path[i], sizeof(path[i]), "%0240u", from + i);
		fake_meta(&meta[i], path[i], 1);
		list[i] = &meta[i];
	}
	inv.gone = list;
	inv.n_gone = NGONE;
	inv.last = last;
	assert_int_equal(0, pool_conn_send(node[0].conn, POOL_MSG_INVENTORY, 0,
					   &inv.base));
}

/* Otherwise its records would fill the queue, and the leader would resign. */
static void an_inventory_waits_for_etcd_in_parts(void **state)
{
	const struct master_member *mb;
	const struct pool_counter *got;
	struct master *m;

	(void)state;
	lead();
	m = master_ha_leading(ha);
	got = &m->stats.requests[POOL_MSG_INVENTORY];
	dial(&node[0]);
	assert_true(node[0].welcomed);
	mb = master_members_find(&m->members, node[0].id);
	make_etcd_slow(2 * MASTER_OPS_QUANTUM_MS);
	send_gone(0, false);
	send_gone(NGONE, false);
	send_gone(2 * NGONE, true);
	while (!mb->inventoried) {
		uint64_t waits = etcd_state_mark(m->etcd_state) -
				 etcd_state_settled(m->etcd_state);

		uv_run(&loop, UV_RUN_ONCE);
		assert_true(waits < 2 * MASTER_UNSETTLED_MAX);
		assert_false(node[0].closed);
		/* The next message is in the socket. */
		assert_true(pool_counter_value(got) <=
			    m->map.ntombs / NGONE + 1);
	}
	assert_int_equal(3 * NGONE, m->map.ntombs);
	assert_int_equal(3, pool_counter_value(got));
}

static void evict_many(struct master *m)
{
	Kvpool__Evict ev = KVPOOL__EVICT__INIT;
	Kvpool__Meta meta[NMANY], *list[NMANY];
	char path[NMANY][16];
	const struct master_file *f;

	for (unsigned int i = 0; i < NMANY; i++) {
		snprintf(path[i], sizeof(path[i]), "many%u", i);
		f = master_map_file(&m->map, path[i], strlen(path[i]));
		fake_meta(&meta[i], path[i], f ? f->gen : 1);
		list[i] = &meta[i];
	}
	ev.entries = list;
	ev.n_entries = NMANY;
	assert_int_equal(0, pool_conn_send(node[0].conn, POOL_MSG_EVICT, 0,
					   &ev.base));
}

/* They are not put off, but the member's next changes are. */
static void changes_wait_for_the_tombstones_of_evictions(void **state)
{
	const struct pool_counter *made;
	struct master *m;
	uint64_t mark;

	(void)state;
	lead();
	m = master_ha_leading(ha);
	made = &m->stats.c[MC_MKDIR];
	join_and_watch(&node[0]);
	publish_many(1);
	publish_many(2);
	run_until(&loop, master_keep_settled(m, master_keep_mark(m)));
	make_etcd_slow(10 * MASTER_OPS_QUANTUM_MS);
	evict_many(m);
	send_op(&node[0], KVPOOL__OP__KIND__MKDIR, "d");
	run_until(&loop, m->map.ntombs);
	assert_int_equal(NMANY, m->map.ntombs);
	mark = master_keep_mark(m);
	run_until(&loop, pool_counter_value(made));
	assert_true(master_keep_settled(m, mark));
}

/* ---- whatever ends meanwhile ---- */

/* Both nodes watch, node 1 has "k", and later changes are not stored in
 * etcd. */
static uint64_t k_of_node_1(void)
{
	uint64_t gen;

	lead();
	join_and_watch(&node[0]);
	join_and_watch(&node[1]);
	gen = fake_publish(&node[1], "k");
	run_until(&loop, fake_knows(&node[0], "k", gen));
	refuse_writes(true);
	return gen;
}

/* etcd has refused the writes three more times, so any message that does not
 * wait for them has been sent. */
static void run_while_held(void)
{
	uint64_t before = failed_writes();

	run_until(&loop, failed_writes() >= before + 3);
}

/* Without mounts nobody has to ack a change, and no answer to this node is held
 * back. */
static void a_sync_waits_for_etcd(void **state)
{
	int i;

	(void)state;
	lead();
	for (i = 0; i < 2; i++) {
		dial(&node[i]);
		fake_inventory(&node[i], NULL, 0, true);
	}
	refuse_writes(true);
	send_op(&node[0], KVPOOL__OP__KIND__MKDIR, "d");
	run_while_held();
	fake_sync(&node[1], 0, 5);
	run_while_held();
	assert_int_equal(0, node[1].nsynced);
	refuse_writes(false);
	run_until(&loop, node[1].nsynced);
}

static void what_waits_outlives_the_session_that_caused_it(void **state)
{
	(void)state;
	(void)k_of_node_1();
	send_op(&node[0], KVPOOL__OP__KIND__MKDIR, "d");
	run_while_held();
	fake_hang_up(&node[0]);
	run_until(&loop, !node[1].nodes[node[0].index].alive);
	run_while_held();
	assert_null(fake_find(&node[1], "d"));
	refuse_writes(false);
	run_until(&loop, fake_find(&node[1], "d"));
}

/* All held messages were sent, and count no more against the limit. */
static void assert_nothing_held(void)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &master_ha_leading(ha)->sessions)
		assert_int_equal(0, pool_list_entry(it, struct master_session,
						    link)->held_bytes);
}

static void no_copy_goes_before_its_removal_is_in_etcd(void **state)
{
	uint64_t gen;

	(void)state;
	gen = k_of_node_1();
	send_op(&node[0], KVPOOL__OP__KIND__UNLINK, "k");
	run_while_held();
	assert_int_equal(0, node[1].ndrops);
	fake_hang_up(&node[0]);
	run_while_held();
	assert_int_equal(0, node[1].ndrops);
	assert_true(fake_knows(&node[1], "k", gen));
	refuse_writes(false);
	run_until(&loop, fake_dropped(&node[1], "k", gen,
				      KVPOOL__DROP__REASON__DELETED));
	run_until(&loop, !fake_find(&node[1], "k"));
	assert_nothing_held();
}

/* Asked about its copy, the master knows of a removal that is not in etcd
 * yet. */
static void a_copy_that_is_asked_about_waits_as_well(void **state)
{
	uint64_t gen;

	(void)state;
	gen = k_of_node_1();
	send_op(&node[0], KVPOOL__OP__KIND__UNLINK, "k");
	run_while_held();
	fake_hang_up(&node[0]);
	fake_evict(&node[1], "k", gen);
	fake_held(&node[1], "k", gen, 0);
	run_while_held();
	assert_int_equal(0, node[1].ndrops);
	refuse_writes(false);
	run_until(&loop, node[1].ndrops == 3);
	assert_nothing_held();
}

static void an_answer_that_follows_from_anothers_waits_with_it(void **state)
{
	(void)state;
	(void)k_of_node_1();
	send_op(&node[0], KVPOOL__OP__KIND__UNLINK, "k");
	run_while_held();
	fake_hang_up(&node[0]);
	/* The name does not exist: success without a change. */
	send_op(&node[1], KVPOOL__OP__KIND__UNLINK, "k");
	run_while_held();
	assert_false(node[1].ops_done);
	refuse_writes(false);
	run_until(&loop, node[1].ops_done);
	assert_int_equal(0, node[1].status[0]);
}

/* An absent node may hold the replaced version; only a tombstone keeps that
 * from coming back. */
static void a_last_copy_goes_when_its_tombstone_is_in_etcd(void **state)
{
	uint64_t gen;

	(void)state;
	node[0].is_store = false; /* the copy has nowhere to move to */
	(void)k_of_node_1();
	gen = fake_rewrite(&node[1], "k");
	fake_evict(&node[1], "k", gen);
	run_while_held();
	assert_int_equal(0, node[1].ndrops);
	assert_non_null(fake_find(&node[0], "k"));
	refuse_writes(false);
	run_until(&loop, fake_dropped(&node[1], "k", gen,
				      KVPOOL__DROP__REASON__EVICTED));
	assert_int_equal(1, fake_count(&etcd, KEY_TOMBS));
	run_until(&loop, !fake_find(&node[0], "k"));
}

static void one_that_lost_its_lease_sends_everybody_away(void **state)
{
	(void)state;
	lead();
	join_and_watch(&node[0]);
	assert_int_equal(1, node[0].epoch);
	fake_end_leases(&etcd);
	run_until(&loop, node[0].closed);
	run_until(&loop, !master_ha_not_ready(ha));
	memcpy(node[1].id, node[0].id, sizeof(node[1].id));
	join_and_watch(&node[1]);
	assert_int_equal(2, node[1].epoch);
}

static const char *event(const json_t *list, size_t i, const char *member)
{
	return json_string_value(json_object_get(json_array_get(list, i),
						 member));
}

/* In one process: another one has only its own. */
static void events_of_a_leader_are_kept_until_it_leads_again(void **state)
{
	static const char *const kinds[] = {
		"elected", "ready", "joined", "deposed", "left", "elected",
		"ready",
	};
	json_t *json, *list;
	char text[256];

	(void)state;
	lead();
	join_and_watch(&node[0]);
	fake_end_leases(&etcd);
	run_until(&loop, node[0].closed);
	run_until(&loop, !master_ha_not_ready(ha));
	json = master_happened_json(master_ha_leading(ha), 0, 100);
	list = json_object_get(json, "events");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		assert_string_equal(kinds[i], event(list, i, "kind"));
	snprintf(text, sizeof(text), "epoch 1: 127.0.0.1:%u leads",
		 master_ha_port(ha));
	assert_string_equal(text, event(list, 0, "text"));
	snprintf(text, sizeof(text),
		 "epoch 2: 127.0.0.1:%u leads; other leaders' events are in "
		 "their logs", master_ha_port(ha));
	assert_string_equal(text, event(list, 5, "text"));
	json_decref(json);
}

static void a_deletion_is_known_to_the_next_leader(void **state)
{
	uint64_t gen;

	(void)state;
	lead();
	join_and_watch(&node[0]);
	gen = fake_publish(&node[0], "k");
	assert_int_equal(0, fake_do(&node[0], KVPOOL__OP__KIND__UNLINK, "k"));
	assert_int_equal(1, fake_count(&etcd, KEY_TOMBS));
	close_ha();
	run_until(&loop, node[0].closed);
	lead();
	memcpy(node[1].id, node[0].id, sizeof(node[1].id));
	dial(&node[1]);
	fake_inventory(&node[1], "k", gen, true);
	run_until(&loop, fake_dropped(&node[1], "k", gen,
				      KVPOOL__DROP__REASON__DELETED));
}

/* The next leader does not know a forgotten tombstone, so it must know that
 * some were forgotten. */
static void a_tombstone_is_forgotten_after_that_is_recorded(void **state)
{
	const struct master_account roots = master_account_of_owner(0);
	struct master_owners *owners;

	(void)state;
	etcd.before = KEY_LOST;
	lead();
	join_and_watch(&node[0]);
	fake_publish(&node[0], "k");
	assert_int_equal(0, fake_do(&node[0], KVPOOL__OP__KIND__UNLINK, "k"));
	assert_int_equal(1, fake_count(&etcd, KEY_TOMBS));
	master_ha_leading(ha)->map.tombs_max = 0;
	fake_publish(&node[0], "l");
	run_until(&loop, fake_count(&etcd, KEY_TOMBS) == 0);
	assert_int_equal(0, etcd.gaps);
	assert_int_equal(1, fake_count(&etcd, KEY_LOST));
	/* One record covers all tombstones forgotten within a second. */
	owners = &master_ha_leading(ha)->map.owners;
	run_until(&loop, pool_list_empty(&owners->unkept));
	assert_true(master_owners_of(owners, roots)->kept_wall_ns >
		    master_owners_of(owners, roots)->lost_wall_ns);
}

/* There is one LOST record for each account. */
static void what_is_forgotten_of_two_accounts_is_two_records(void **state)
{
	(void)state;
	lead();
	join_and_watch(&node[0]);
	fake_uid = 2000;
	assert_int_equal(0, fake_do(&node[0], KVPOOL__OP__KIND__MKDIR, "d"));
	fake_publish(&node[0], "k");
	assert_int_equal(0, fake_do(&node[0], KVPOOL__OP__KIND__UNLINK, "k"));
	fake_uid = 1000;
	fake_publish(&node[0], "d/k");
	fake_by = 1 + 2000;
	assert_int_equal(0, fake_do(&node[0], KVPOOL__OP__KIND__UNLINK, "d/k"));
	fake_by = fake_uid = 0;
	master_ha_leading(ha)->map.tombs_max = 0;
	fake_publish(&node[0], "l");
	run_until(&loop, fake_count(&etcd, KEY_TOMBS) == 0);
	assert_int_equal(2, fake_count(&etcd, KEYS_LOST_200));
}

/* In etcd the record of a blind write replaces the name's tombstone. */
static void a_former_owner_is_known_to_the_next_leader(void **state)
{
	(void)state;
	lead();
	join_and_watch(&node[0]);
	fake_uid = 7;
	fake_publish(&node[0], "k");
	assert_int_equal(0, fake_do(&node[0], KVPOOL__OP__KIND__UNLINK, "k"));
	fake_uid = 8;
	fake_publish(&node[0], "k");
	fake_rewrite(&node[0], "k");
	fake_uid = 0;
	assert_int_equal(1, master_ha_leading(ha)->map.formers.count);
	close_ha();
	run_until(&loop, node[0].closed);
	lead();
	assert_int_equal(1, master_ha_leading(ha)->map.formers.count);
}

static void a_damaged_state_ends_the_program_and_is_left_as_it_is(void **state)
{
	(void)state;
	fake_put_key(&etcd, KEY_TOMBS "azE=", "AAAA", 0);
	open_ha();
	run_until(&loop, unusable);
	assert_int_equal(1, fake_count(&etcd, KEY_TOMBS));
	assert_null(master_ha_leading(ha));
}

static void names_of_clusters_are_judged(void **state)
{
	(void)state;
	assert_int_equal(0, master_cluster_check("kv-prod_1.x"));
	assert_int_equal(-EINVAL, master_cluster_check(""));
	assert_int_equal(-EINVAL, master_cluster_check("a/b"));
	assert_int_equal(-EINVAL, master_cluster_check("a b"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_standby_sends_nodes_away_and_knows_the_leader),
		T(a_silent_connection_does_not_block_closing),
		T(answers_and_feed_come_after_etcd_has_the_change),
		T(publications_do_not_wait_for_etcd),
		T(a_drain_is_recorded_once_etcd_has_it),
		T(answers_keep_their_order),
		T(nothing_comes_before_a_welcome_that_waits),
		T(a_flow_of_changes_does_not_hold_back_the_feed),
		T(a_name_that_never_rests_holds_up_no_fsync),
		T(the_feed_waits_for_the_answer_to_all_parts),
		T(the_next_part_waits_until_etcd_has_the_last),
		T(before_the_master_is_ready_the_next_part_waits_as_well),
		T(a_part_of_large_records_is_shorter),
		T(an_inventory_waits_for_etcd_in_parts),
		T(changes_wait_for_the_tombstones_of_evictions),
		T(a_node_waiting_for_welcome_is_not_silent),
		T(a_sync_waits_for_etcd),
		T(what_waits_outlives_the_session_that_caused_it),
		T(no_copy_goes_before_its_removal_is_in_etcd),
		T(a_copy_that_is_asked_about_waits_as_well),
		T(an_answer_that_follows_from_anothers_waits_with_it),
		T(a_last_copy_goes_when_its_tombstone_is_in_etcd),
		T(one_that_lost_its_lease_sends_everybody_away),
		T(events_of_a_leader_are_kept_until_it_leads_again),
		T(a_deletion_is_known_to_the_next_leader),
		T(a_tombstone_is_forgotten_after_that_is_recorded),
		T(what_is_forgotten_of_two_accounts_is_two_records),
		T(a_former_owner_is_known_to_the_next_leader),
		T(a_damaged_state_ends_the_program_and_is_left_as_it_is),
		T(names_of_clusters_are_judged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
