/*
 * Changes whose results may be lost, over connections: from nodes that count
 * their changes and from older ones that do not; and the limits of what the
 * master remembers, each with its counter.
 */
#define NNODES 3
/* This test does not use all of a fake node. */
#pragma GCC diagnostic ignored "-Wunused-function"
#include "master_fake_pool.h"

#include <errno.h>

#include "master/impl.h"

static void join(struct fake_node *n)
{
	fake_dial(n, &loop, master_port(master));
	fake_send_join(n);
	run_until(&loop, n->welcomed);
}

static void join_all(struct fake_node *n)
{
	join(n);
	fake_inventory(n, NULL, 0, true);
}

static uint64_t counted(enum master_counter c)
{
	return pool_counter_value(&master->stats.c[c]);
}

static Kvpool__Op op, *op_list[POOL_BATCH_MAX];
static Kvpool__Meta op_meta;
static uint8_t op_sum[16];

/* Sends the same change of `path` `times` times. */
static void send_ops(struct fake_node *n, const char *path, size_t times,
		     uint64_t first, bool again)
{
	Kvpool__Ops ops = KVPOOL__OPS__INIT;
	size_t i;

	kvpool__op__init(&op);
	fake_meta(&op_meta, path, 0);
	op_meta.sum.data = op_sum;
	op.kind = KVPOOL__OP__KIND__PUBLISH;
	op.meta = &op_meta;
	op.again = op.queued = again;
	for (i = 0; i < times; i++)
		op_list[i] = &op;
	ops.ops = op_list;
	ops.n_ops = times;
	ops.first = first;
	n->ops_done = n->feed_before_done = false;
	assert_int_equal(0, pool_conn_send(n->conn, POOL_MSG_OPS, 7,
					   &ops.base));
}

static void do_ops(struct fake_node *n, const char *path, size_t times,
		   uint64_t first, bool again)
{
	send_ops(n, path, times, first, again);
	run_until(&loop, n->ops_done || n->closed);
	assert_true(n->ops_done);
	assert_int_equal(times, n->nresults);
}

static void results_that_were_lost_come_with_the_welcome(void **state)
{
	(void)state;
	node[0].ops_run = 42;
	join_all(&node[0]);
	assert_int_equal(0, node[0].known_run);
	do_ops(&node[0], "k", 3, 0, false);
	fake_hang_up(&node[0]);
	node[0].ops_received = 1;
	join_all(&node[0]);
	assert_int_equal(42, node[0].known_run);
	assert_int_equal(3, node[0].ops_executed);
	assert_int_equal(2, node[0].nresults_lost);
	assert_true(node[0].exact);
	/* A number is missing, so nothing is executed. */
	send_ops(&node[0], "k", 1, 2, false);
	run_until(&loop, node[0].closed);
	assert_int_equal(-EPROTO, node[0].error);
}

/* The node joins again while a message is executed in parts. */
static void each_part_of_a_message_is_executed_once(void **state)
{
	uint64_t done;

	(void)state;
	node[0].ops_run = node[2].ops_run = 42;
	memcpy(node[2].id, node[0].id, sizeof(node[2].id));
	join_all(&node[0]);
	join_all(&node[1]);
	fake_subscribe(&node[1], 0, 0);
	node[1].no_ack = true; /* so each part waits */
	send_ops(&node[0], "k", POOL_BATCH_MAX, 0, false);
	run_until(&loop, counted(MC_PUBLISH) >= POOL_OPS_QUANTUM);
	join_all(&node[2]);
	done = node[2].ops_executed;
	assert_true(node[0].closed || done == POOL_BATCH_MAX);
	assert_int_equal(0, done % POOL_OPS_QUANTUM);
	assert_true(node[2].exact);
	assert_int_equal(done, node[2].nresults_lost);
	if (done < POOL_BATCH_MAX)
		do_ops(&node[2], "k", POOL_BATCH_MAX - done, done, false);
	assert_int_equal(POOL_BATCH_MAX, counted(MC_PUBLISH));
}

/* A former master has executed a change that this one knows nothing of. Each
 * WELCOME says so until the node has received one. Changes that this master
 * executes have exact results. in_state: the master's state has the node's
 * run. */
static void lose_a_welcome_after_a_fail_over(bool in_state)
{
	node[0].ops_run = 42;
	join_all(&node[0]);
	if (in_state) {
		fake_hang_up(&node[0]);
		join_all(&node[0]);
	}
	do_ops(&node[0], "k", 1, 0, false);
	fake_hang_up(&node[0]);
	stop_master();
	start_master();
	join(&node[0]);
	assert_int_equal(in_state ? 42 : 0, node[0].known_run);
	assert_false(node[0].exact);
	fake_hang_up(&node[0]); /* as if this WELCOME were lost */
	join_all(&node[0]);
	assert_int_equal(42, node[0].known_run);
	assert_int_equal(0, node[0].ops_executed);
	assert_false(node[0].exact);
	do_ops(&node[0], "k", 1, 0, true);
	fake_hang_up(&node[0]);
	join_all(&node[0]);
	assert_true(node[0].exact);
	assert_int_equal(1, node[0].nresults_lost);
}

static void what_a_former_master_may_have_done_is_sent_until_read(
	void **state)
{
	(void)state;
	lose_a_welcome_after_a_fail_over(true);
}

static void so_it_is_of_a_run_that_the_state_does_not_have(void **state)
{
	(void)state;
	lose_a_welcome_after_a_fail_over(false);
}

static void the_next_master_counts_on_when_the_state_was_rewritten(
	void **state)
{
	(void)state;
	node[0].ops_run = 42;
	join_all(&node[0]);
	do_ops(&node[0], "k", 3, 0, false);
	fake_hang_up(&node[0]);
	join_all(&node[0]);
	rewrite_state();
	fake_hang_up(&node[0]);
	stop_master();
	start_master();
	join(&node[0]);
	assert_int_equal(42, node[0].known_run);
	assert_int_equal(3, node[0].ops_executed);
}

/* The node does not count its changes, so the master remembers none and reports
 * none as lost. Repeated changes are executed, except those that were made
 * while the node was disconnected if a newer version exists. */
static void a_node_of_an_older_version_is_served_as_before(void **state)
{
	uint64_t newer;

	(void)state;
	join_all(&node[0]);
	join_all(&node[1]);
	op_sum[0] = 101; /* other bytes than those of fake_rewrite() */
	do_ops(&node[0], "k", 1, 0, false);
	fake_hang_up(&node[0]);
	newer = fake_rewrite(&node[1], "k");
	join_all(&node[0]);
	assert_int_equal(0, node[0].known_run);
	assert_int_equal(0, node[0].nresults_lost);
	op_sum[0] = 102;
	send_ops(&node[0], "k", 1, 0, true);
	run_until(&loop, node[0].ops_done);
	assert_int_equal(-ESTALE, node[0].status[0]);
	assert_int_equal(newer, master_map_file(&master->map, "k", 1)->gen);
	do_ops(&node[0], "k", 1, 0, false);
	assert_int_equal(0, node[0].status[0]);
	assert_true(node[0].gen[0] > newer);
	assert_int_equal(0, counted(MC_RESULTS_FORGOTTEN));
}

static void results_beyond_their_bound_are_forgotten_and_counted(void **state)
{
	uint64_t first;

	(void)state;
	node[0].ops_run = 42;
	join_all(&node[0]);
	for (first = 0; first < MASTER_ANSWERS_MAX; first += POOL_BATCH_MAX)
		do_ops(&node[0], "k", POOL_BATCH_MAX, first, false);
	assert_int_equal(0, counted(MC_RESULTS_FORGOTTEN));
	do_ops(&node[0], "k", 3, first, false);
	assert_int_equal(3, counted(MC_RESULTS_FORGOTTEN));
	fake_hang_up(&node[0]);
	join_all(&node[0]);
	/* WELCOME has the number executed, and says that some results are
	 * missing. */
	assert_int_equal(MASTER_ANSWERS_MAX + 3, node[0].ops_executed);
	assert_false(node[0].exact);
	assert_int_equal(0, node[0].nresults_lost);
}

static void own_changes_beyond_their_bound_are_counted(void **state)
{
	uint64_t first;

	(void)state;
	node[0].ops_run = 42;
	join_all(&node[0]);
	for (first = 0; first < MASTER_ISSUED_MAX; first += POOL_BATCH_MAX)
		do_ops(&node[0], "k", POOL_BATCH_MAX, first, true);
	assert_int_equal(0, counted(MC_ISSUED_FORGOTTEN));
	do_ops(&node[0], "k", 1, first, true);
	assert_int_equal(1, counted(MC_ISSUED_FORGOTTEN));
}

static void ops_that_wait_for_inventories_are_bounded(void **state)
{
	unsigned int i;

	(void)state;
	join_all(&node[0]);
	join_all(&node[1]);
	stop_master();
	run_until(&loop, node[0].closed && node[1].closed);
	start_master();
	join(&node[0]); /* its inventory does not end */
	for (i = 0; i < MASTER_DEFERRED_MAX; i++)
		send_ops(&node[0], "k", 1, 0, true);
	send_ops(&node[0], "k", 1, 0, true);
	run_until(&loop, node[0].closed);
	assert_int_equal(-ENOBUFS, node[0].error);
	assert_int_equal(MASTER_DEFERRED_MAX, counted(MC_OPS_DEFERRED));
	assert_int_equal(1, counted(MC_OPS_DEFERRED_REFUSED));
}

/* A node that does not know the file "k" makes a change that would create a
 * directory of that name. The inventory with "k" arrives after that. */
static void change_before_an_inventory(Kvpool__Op__Kind kind, const char *path)
{
	Kvpool__Ops ops = KVPOOL__OPS__INIT;
	Kvpool__Op change = KVPOOL__OP__INIT, *list[1] = { &change };
	Kvpool__Meta meta;
	uint64_t gen;

	join_all(&node[0]);
	join_all(&node[1]);
	gen = fake_publish(&node[0], "k");
	fake_hang_up(&node[0]);
	fake_hang_up(&node[1]);
	stop_master();
	start_master();
	join(&node[0]);
	join_all(&node[1]);
	fake_meta(&meta, path, 0);
	change.kind = kind;
	change.meta = &meta;
	ops.ops = list;
	ops.n_ops = 1;
	node[1].ops_done = false;
	assert_int_equal(0, pool_conn_send(node[1].conn, POOL_MSG_OPS, 7,
					   &ops.base));
	run_until(&loop, counted(MC_OPS_DEFERRED) || node[1].ops_done);
	fake_inventory(&node[0], "k", gen, true);
	run_until(&loop, node[1].ops_done);
	assert_int_equal(-ENOTDIR, node[1].status[0]);
	assert_int_equal(gen, master_map_file(&master->map, "k", 1)->gen);
}

static void a_directory_is_not_made_over_a_file_that_is_not_listed_yet(
	void **state)
{
	(void)state;
	change_before_an_inventory(KVPOOL__OP__KIND__MKDIR, "k");
}

static void nor_is_one_above_a_name_that_is_published(void **state)
{
	(void)state;
	change_before_an_inventory(KVPOOL__OP__KIND__PUBLISH, "k/x");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(results_that_were_lost_come_with_the_welcome),
		T(each_part_of_a_message_is_executed_once),
		T(what_a_former_master_may_have_done_is_sent_until_read),
		T(so_it_is_of_a_run_that_the_state_does_not_have),
		T(the_next_master_counts_on_when_the_state_was_rewritten),
		T(a_node_of_an_older_version_is_served_as_before),
		T(results_beyond_their_bound_are_forgotten_and_counted),
		T(own_changes_beyond_their_bound_are_counted),
		T(ops_that_wait_for_inventories_are_bounded),
		T(a_directory_is_not_made_over_a_file_that_is_not_listed_yet),
		T(nor_is_one_above_a_name_that_is_published),
	};

	return run_all_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
