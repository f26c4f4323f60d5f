/*
 * A node is disconnected from the master with changes in flight. The master has
 * executed some of them, and their results are lost. Meanwhile the node changes
 * the same names again, or another node does and its fsync succeeds. When the
 * first node joins again, at the same master or the next, perhaps after a
 * restart, the changes that it repeats must undo nothing (pool/node/before.c,
 * ops_done.c, outbox.c). Injected faults on the first node's connections to the
 * master lose the messages.
 */
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pool/conn/fault_rules.h"
#include "tests/unit/pool_node_fixture.h"

#define SIZE 1000u

/* Faults on connections to the master. */
static struct {
	struct pool_faults *faults;
	struct pool_metrics *metrics;
	char master[32]; /* name of the master in the fault rules */
} lossy;

static void join(struct fixture *f, int i)
{
	start_node(f, i);
	run_until(f, is_up(f, i));
}

static int lossy_setup(void **state)
{
	struct fixture *f;

	setup(state);
	f = *state;
	alarm(60);
	snprintf(lossy.master, sizeof(lossy.master), "127.0.0.1:%u",
		 f->opts.masters.at[0].port);
	start_master(f);
	/* Node 1 connects before the faults are installed. */
	join(f, 1);
	lossy.metrics = pool_metrics_open();
	assert_int_equal(0, pool_faults_open(lossy.metrics, 1, &lossy.faults));
	pool_faults_install(lossy.faults);
	join(f, 0);
	return 0;
}

static int lossy_teardown(void **state)
{
	teardown(state);
	pool_faults_install(NULL);
	pool_faults_close(lossy.faults);
	pool_metrics_close(lossy.metrics);
	return 0;
}

#define L(test) \
	cmocka_unit_test_setup_teardown(test, lossy_setup, lossy_teardown)

/* ---- the way to the master ---- */

static void add_fault(enum pool_fault_kind kind, unsigned int direction)
{
	struct pool_fault_rule r = { .kind = kind,
				     .directions = direction,
				     .probability = 1 };

	snprintf(r.peer, sizeof(r.peer), "%s", lossy.master);
	assert_int_equal(0, pool_faults_add(lossy.faults, &r));
}

/* From now on node 0 receives nothing from the master, which still receives
 * from it. */
static void lose_answers(void)
{
	add_fault(POOL_FAULT_DROP, POOL_FAULT_RECEIVE);
}

/* The connection is reset, and so is each later one. */
static void cut(struct fixture *f)
{
	add_fault(POOL_FAULT_RESET, POOL_FAULT_SEND);
	run_until(f, !node_session_up(node(f, 0)));
}

static void join_again(struct fixture *f)
{
	pool_faults_clear(lossy.faults);
	run_until(f, node_session_up(node(f, 0)) && all_answered(f, 0));
}

/* ---- files ---- */

/* Writes a version and closes the file, so that it will be sealed. */
static void write_version(struct fixture *f, int i, struct node_object *o,
			  unsigned int version)
{
	write_bytes(f, i, o, SIZE, version);
	pool_node_writer_opened(node(f, i), o);
	close_whole(f, i, o);
}

/* Does what an open with O_TRUNC does, without waiting (fs/open.c). */
static void put_version(struct fixture *f, int i, const char *name,
			unsigned int version)
{
	static const struct node_attr attr = { .mode = 0640 };
	struct pool_node *n = node(f, i);
	struct node_entry *e = find(f, i, name);
	struct node_object *o;

	if (!e)
		assert_int_equal(0, pool_node_create(n, pool_node_root(n),
						     name, strlen(name), &attr,
						     0, &o));
	else if (!e->own)
		assert_int_equal(1, pool_node_rewrite_start(n, e, 0, NULL,
							    NULL));
	else if (pool_node_unseal(n, e->own))
		assert_int_equal(0, pool_node_own_replace(n, e));
	write_version(f, i, find(f, i, name)->own, version);
}

static void assert_reads(struct fixture *f, int i, const char *name,
			 unsigned int version)
{
	struct node_object *o;

	if (!find(f, i, name))
		fail_msg("\"%s\" is gone from node %d", name, i);
	assert_int_equal(0, want(f, i, name, &o));
	assert_bytes(f, i, o, SIZE, version);
	node_object_unref(node(f, i), o);
}

/* An fsync of the directory succeeds. */
static void sync_dir(struct fixture *f, int i)
{
	struct test_barrier t = { 0 };

	assert_int_equal(0, pool_node_barrier_start(node(f, i), &t.b,
						    on_barrier));
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	assert_int_equal(0, pool_node_lost(pool_node_root(node(f, i))));
}

/* The next master, which loads this one's state. */
static void restart_master(struct fixture *f)
{
	stop_master(f);
	start_master(f);
}

/* Makes a change whose result node 0 does not receive, and disconnects node 0
 * when the master has counted `want` changes. */
#define cut_after(f, counter, want, change)                                  \
	do {                                                                 \
		lose_answers();                                              \
		change;                                                      \
		run_until(f, pool_counter_value(                             \
				     &(f)->master->stats.c[counter]) ==      \
				     (want));                                \
		cut(f);                                                      \
	} while (0)

/* Node 0 joins again, and all changes are settled. */
static void come_back(struct fixture *f, bool other_master)
{
	if (other_master)
		restart_master(f);
	join_again(f);
	run_until(f, node_session_up(node(f, 1)));
	sync_dir(f, 0);
	sync_dir(f, 1);
	run_until(f, !f->master->patrol.active);
}

static void assert_both_read(struct fixture *f, const char *name,
			     unsigned int version)
{
	run_until(f, !find(f, 0, name) ||
			     (find(f, 1, name) &&
			      find(f, 1, name)->gen == find(f, 0, name)->gen));
	assert_reads(f, 0, name, version);
	assert_reads(f, 1, name, version);
}

static void unlink_it(struct fixture *f, int i, const char *name)
{
	assert_int_equal(0, pool_node_unlink(node(f, i), find(f, i, name)));
}

static void chmod_it(struct fixture *f, int i, const char *name, uint32_t mode)
{
	struct node_attr a = { .mode = mode };

	assert_int_equal(0, pool_node_setattr(node(f, i),
					      &find(f, i, name)->e,
					      POOL_SET_MODE, &a, NULL));
}

/* Waits until the master has executed n publications. */
static void run_until_done(struct fixture *f, uint64_t n)
{
	run_until(f, pool_counter_value(&f->master->stats.c[MC_PUBLISH]) == n);
}

static bool sent(struct fixture *f, const char *name)
{
	return is_pending(f, 0, name) &&
	       node_op_sent(node(f, 0), find(f, 0, name)->own);
}

/* An fsync of the directory succeeds, and both nodes show that version. */
static void assert_acknowledged(struct fixture *f, const char *name,
				unsigned int version)
{
	sync_dir(f, 0);
	/* They still do after the master's patrol. */
	run_until(f, !f->master->patrol.active);
	assert_both_read(f, name, version);
}

/* ---- what it does itself while it is cut off ---- */

/* The first change is executed and its result lost; the second is made while
 * disconnected. */
static void what_is_written_while_cut_off_replaces_what_was_not_answered(
	void **state)
{
	struct fixture *f = *state;

	put_version(f, 0, "k", 1);
	run_until(f, is_published(f, 0, "k"));
	lose_answers();
	put_version(f, 0, "k", 2);
	run_until_done(f, 2);
	cut(f);
	put_version(f, 0, "k", 3);
	run_until(f, is_pending(f, 0, "k"));
	join_again(f);
	assert_acknowledged(f, "k", 3);
}

/* Two changes are executed before. */
static void so_it_does_after_two(void **state)
{
	struct fixture *f = *state;

	put_version(f, 0, "k", 1);
	run_until(f, is_published(f, 0, "k"));
	lose_answers();
	put_version(f, 0, "k", 2);
	run_until(f, sent(f, "k"));
	put_version(f, 0, "k", 3);
	run_until_done(f, 3);
	cut(f);
	put_version(f, 0, "k", 4);
	run_until(f, is_pending(f, 0, "k"));
	join_again(f);
	assert_acknowledged(f, "k", 4);
}

/* The replacing change was also sent before the disconnect, so it is
 * repeated. */
static void what_is_repeated_replaces_what_was_not_answered(void **state)
{
	struct fixture *f = *state;

	put_version(f, 0, "k", 1);
	run_until(f, is_published(f, 0, "k"));
	lose_answers();
	put_version(f, 0, "k", 2);
	run_until_done(f, 2);
	put_version(f, 0, "k", 3);
	run_until(f, sent(f, "k"));
	cut(f);
	join_again(f);
	assert_acknowledged(f, "k", 3);
}

/* The name did not exist before. */
static void a_new_name_is_written_again_while_cut_off(void **state)
{
	struct fixture *f = *state;

	lose_answers();
	put_version(f, 0, "k", 1);
	run_until_done(f, 1);
	cut(f);
	put_version(f, 0, "k", 2);
	run_until(f, is_pending(f, 0, "k"));
	join_again(f);
	assert_acknowledged(f, "k", 2);
}

/* The master has sent the name to other nodes, which open it while the node
 * joins again and does not know that it was published. */
static void
what_was_not_answered_is_there_for_others_all_the_while(void **state)
{
	struct fixture *f = *state;

	lose_answers();
	put_version(f, 0, "k", 1);
	run_until(f, find(f, 1, "k"));
	cut(f);
	pool_faults_clear(lossy.faults);
	run_until(f, (assert_non_null(find(f, 1, "k")), true) &&
			     node_session_up(node(f, 0)) &&
			     all_answered(f, 0) && !f->master->patrol.active);
	assert_acknowledged(f, "k", 1);
}

/* A peer that requested it meanwhile gets it. */
static void a_peer_gets_what_was_not_acked(void **state)
{
	struct fixture *f = *state;
	struct test_want r;

	lose_answers();
	put_version(f, 0, "k", 1);
	run_until(f, find(f, 1, "k"));
	assert_int_equal(0, want_start(f, 1, "k", &r));
	cut(f);
	assert_false(r.done);
	join_again(f);
	run_until(f, r.done);
	assert_int_equal(0, r.status);
	node_object_unref(node(f, 1), r.obj);
	assert_acknowledged(f, "k", 1);
}

/* ---- what another node did stays ---- */

/* A new name, whose result node 0 has not received (base_gen 0). */
static void put_unanswered(struct fixture *f)
{
	cut_after(f, MC_PUBLISH, 1, put_version(f, 0, "k", 1));
	run_until(f, is_published(f, 1, "k"));
}

static void replaced(struct fixture *f, bool other_master)
{
	put_unanswered(f);
	put_version(f, 1, "k", 2);
	sync_dir(f, 1);
	come_back(f, other_master);
	assert_both_read(f, "k", 2);
}

static void unlinked(struct fixture *f, bool other_master)
{
	put_unanswered(f);
	unlink_it(f, 1, "k");
	sync_dir(f, 1);
	come_back(f, other_master);
	run_until(f, !find(f, 0, "k") && !find(f, 1, "k"));
}

static void renamed(struct fixture *f, bool other_master)
{
	struct pool_entry *to;

	put_unanswered(f);
	put_version(f, 1, "k", 2); /* rename(2) needs the file on this node */
	sync_dir(f, 1);
	assert_int_equal(0, pool_node_rename(node(f, 1), &find(f, 1, "k")->e,
					     pool_node_root(node(f, 1)), "l", 1,
					     false, &to));
	sync_dir(f, 1);
	come_back(f, other_master);
	run_until(f, !find(f, 0, "k") && !find(f, 1, "k"));
	assert_both_read(f, "l", 2);
}

static void chmodded(struct fixture *f, bool other_master)
{
	put_version(f, 1, "k", 1); /* attributes belong to it */
	run_until(f, is_published(f, 0, "k") && is_published(f, 1, "k"));
	cut_after(f, MC_SETATTR, 1, chmod_it(f, 0, "k", 0600));
	run_until(f, find(f, 1, "k")->attr.mode == 0600);
	chmod_it(f, 1, "k", 0604);
	sync_dir(f, 1);
	come_back(f, other_master);
	run_until(f, find(f, 0, "k")->attr.mode == find(f, 1, "k")->attr.mode);
	assert_int_equal(0604, find(f, 0, "k")->attr.mode);
}

/* Node 0 unlinks a file that it published, without a result; the other node has
 * put the name again. */
static void put_after_an_unlink(struct fixture *f, bool other_master)
{
	put_version(f, 0, "k", 1);
	run_until(f, is_published(f, 0, "k") && is_published(f, 1, "k"));
	cut_after(f, MC_UNLINK, 1, unlink_it(f, 0, "k"));
	run_until(f, !find(f, 1, "k"));
	put_version(f, 1, "k", 2);
	sync_dir(f, 1);
	come_back(f, other_master);
	assert_both_read(f, "k", 2);
}

/* ---- what it did itself is not taken for another's ---- */

static void own_unlink(struct fixture *f, bool other_master)
{
	put_version(f, 0, "k", 1);
	run_until(f, is_published(f, 0, "k"));
	cut_after(f, MC_UNLINK, 1, unlink_it(f, 0, "k"));
	put_version(f, 0, "k", 2);
	run_until(f, is_pending(f, 0, "k"));
	come_back(f, other_master);
	assert_both_read(f, "k", 2);
}

/* The publication was executed as well. The new master knows only of the
 * unlink. */
static void own_unlink_and_put(struct fixture *f, bool other_master)
{
	put_version(f, 0, "k", 1);
	run_until(f, is_published(f, 0, "k"));
	cut_after(f, MC_PUBLISH, 2,
		  (unlink_it(f, 0, "k"), put_version(f, 0, "k", 2)));
	come_back(f, other_master);
	assert_both_read(f, "k", 2);
}

static void own_put(struct fixture *f, bool other_master)
{
	put_unanswered(f);
	put_version(f, 0, "k", 2);
	run_until(f, is_pending(f, 0, "k"));
	come_back(f, other_master);
	assert_both_read(f, "k", 2);
}

static void own_put_unlinked(struct fixture *f, bool other_master)
{
	put_unanswered(f);
	unlink_it(f, 0, "k");
	come_back(f, other_master);
	run_until(f, !find(f, 0, "k") && !find(f, 1, "k"));
}

/* ---- nor is what the process before it did ---- */

/* Restarts node 0, disconnected, with a version that is only in its store. */
static void restart_with(struct fixture *f, unsigned int version)
{
	put_version(f, 0, "k", version);
	run_until(f, is_pending(f, 0, "k"));
	stop_node(f, 0);
	start_node(f, 0);
	run_until(f, is_pending(f, 0, "k"));
}

static void put_before_a_restart(struct fixture *f, bool other_master)
{
	put_version(f, 0, "k", 1);
	run_until(f, is_published(f, 0, "k"));
	cut_after(f, MC_UNLINK, 1, unlink_it(f, 0, "k"));
	restart_with(f, 2);
	come_back(f, other_master);
	assert_both_read(f, "k", 2);
}

static void put_after_a_restart(struct fixture *f, bool other_master)
{
	put_version(f, 0, "k", 1);
	run_until(f, is_published(f, 0, "k"));
	cut_after(f, MC_UNLINK, 1, unlink_it(f, 0, "k"));
	restart_with(f, 2);
	put_version(f, 0, "k", 3);
	run_until(f, is_pending(f, 0, "k"));
	come_back(f, other_master);
	assert_both_read(f, "k", 3);
}

/* The master had the replaced version, but no living node knows that. */
static void put_over_an_unanswered_one(struct fixture *f, bool other_master)
{
	put_unanswered(f);
	restart_with(f, 2);
	come_back(f, other_master);
	assert_both_read(f, "k", 2);
}

/* A deletion by another node after that is not undone. */
static void unlinked_after_a_restart(struct fixture *f, bool other_master)
{
	put_unanswered(f);
	run_until(f, is_published(f, 1, "k"));
	unlink_it(f, 1, "k");
	sync_dir(f, 1);
	stop_node(f, 0);
	start_node(f, 0);
	run_until(f, is_pending(f, 0, "k"));
	come_back(f, other_master);
	run_until(f, !find(f, 0, "k") && !find(f, 1, "k"));
}

/* ---- the same version under another generation is no newer one ---- */

/* While node 0 is disconnected with version 1, node 1 puts other bytes and then
 * version 1 again. */
static void brought_anew(struct fixture *f)
{
	put_version(f, 1, "k", 9);
	sync_dir(f, 1);
	put_version(f, 1, "k", 1);
	sync_dir(f, 1);
}

static void both_have_it(struct fixture *f)
{
	put_version(f, 0, "k", 1);
	run_until(f, is_published(f, 0, "k") && is_published(f, 1, "k"));
}

static void put_from_what_came_anew(struct fixture *f, bool other_master)
{
	both_have_it(f);
	cut(f);
	put_version(f, 0, "k", 2);
	brought_anew(f);
	come_back(f, other_master);
	assert_both_read(f, "k", 2);
}

static void unlink_of_what_came_anew(struct fixture *f, bool other_master)
{
	both_have_it(f);
	cut(f);
	unlink_it(f, 0, "k");
	brought_anew(f);
	come_back(f, other_master);
	run_until(f, !find(f, 0, "k") && !find(f, 1, "k"));
}

/* The other node had seen the unlink when it put the same bytes back. */
static void put_back_after_an_unlink(struct fixture *f, bool other_master)
{
	both_have_it(f);
	cut_after(f, MC_UNLINK, 1, unlink_it(f, 0, "k"));
	run_until(f, !find(f, 1, "k"));
	put_version(f, 1, "k", 1);
	sync_dir(f, 1);
	come_back(f, other_master);
	assert_both_read(f, "k", 1);
}

/* The master cannot tell whether the put was overtaken, and says so to the
 * node. */
static void put_in_doubt(struct fixture *f, bool other_master)
{
	struct test_barrier t = { 0 };

	both_have_it(f);
	cut_after(f, MC_PUBLISH, 2, put_version(f, 0, "k", 2));
	brought_anew(f);
	if (other_master)
		restart_master(f);
	join_again(f);
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &t.b,
						    on_barrier));
	run_until(f, t.done);
	assert_int_equal(other_master ? -EIO : 0,
			 pool_node_lost(pool_node_root(node(f, 0))));
	assert_both_read(f, "k", 1);
}

/* After a restart the node still knows which version the put was made from, of
 * which it had no copy: the put may have been executed before. */
static void put_in_doubt_after_a_restart(struct fixture *f, bool other_master)
{
	struct test_barrier t = { 0 };

	put_version(f, 1, "k", 1);
	run_until(f, is_published(f, 0, "k") && is_published(f, 1, "k"));
	cut(f);
	restart_with(f, 2);
	brought_anew(f);
	if (other_master)
		restart_master(f);
	join_again(f);
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &t.b,
						    on_barrier));
	run_until(f, t.done);
	assert_int_equal(-EIO, pool_node_lost(pool_node_root(node(f, 0))));
	assert_both_read(f, "k", 1);
}

/* The unlinked version was put again, which the master that gets the unlink
 * does not know. The node that unlinked gets an error. */
static void unlink_in_doubt(struct fixture *f, bool other_master)
{
	struct test_barrier t = { 0 };

	both_have_it(f);
	add_fault(POOL_FAULT_DROP, POOL_FAULT_SEND);
	unlink_it(f, 0, "k");
	run_until(f, !pool_list_empty(&node(f, 0)->ops_sent));
	pool_faults_clear(lossy.faults);
	cut(f);
	brought_anew(f);
	if (other_master)
		restart_master(f);
	join_again(f);
	run_until(f, node_session_up(node(f, 1)));
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &t.b,
						    on_barrier));
	run_until(f, t.done);
	assert_int_equal(other_master ? -EIO : 0,
			 pool_node_lost(pool_node_root(node(f, 0))));
	if (other_master)
		assert_both_read(f, "k", 1);
	else
		run_until(f, !find(f, 0, "k") && !find(f, 1, "k"));
}

/* Puts a version without a master, and stops the node before the next master
 * starts. */
static void put_and_die(struct fixture *f, int i, unsigned int version)
{
	stop_master(f);
	run_until(f, !node_session_up(node(f, i)));
	put_version(f, i, "k", version);
	run_until(f, is_pending(f, i, "k"));
	stop_node(f, i);
	start_master(f);
}

/* Node 1's first put was published when it returned, and node 0 had left with
 * newer versions. That master has died, too. */
static void a_repetition_does_not_replace_what_knew_more(
	void **state)
{
	struct fixture *f = *state;

	put_version(f, 1, "k", 0);
	sync_dir(f, 1);
	put_and_die(f, 1, 1);
	run_until(f, node_session_up(node(f, 0)));
	put_version(f, 0, "k", 2);
	sync_dir(f, 0);
	put_and_die(f, 0, 3);
	join(f, 1);
	run_until(f, is_published(f, 1, "k"));
	assert_reads(f, 1, "k", 1);
	restart_master(f);
	join(f, 0);
	run_until(f, node_session_up(node(f, 1)));
	sync_dir(f, 0);
	sync_dir(f, 1);
	assert_both_read(f, "k", 3);
}

/*
 * Node 0's put was refused because of node 1's. It had replaced a put of node 0
 * that the master executed, and that is not unlinked then: the next master,
 * which has no file of the name, would refuse node 2's, too, as if a user had
 * deleted the name.
 */
static void a_refused_put_removes_nothing(void **state)
{
	struct fixture *f = *state;

	put_unanswered(f);
	put_version(f, 0, "k", 2);
	run_until(f, is_pending(f, 0, "k"));
	start_node(f, 2); /* as unable to join as node 0 is */
	put_version(f, 2, "k", 4);
	run_until(f, is_pending(f, 2, "k"));
	stop_node(f, 2);
	put_version(f, 1, "k", 3);
	sync_dir(f, 1);
	pool_faults_clear(lossy.faults);
	run_until(f, pool_counter_value(&node(f, 0)->c.stale_puts) == 1);
	refuses_ops = node(f, 0); /* it is too late for this master */
	stop_master(f);
	stop_node(f, 1);
	refuses_ops = NULL;
	start_master(f);
	run_until(f, is_up(f, 0) && all_answered(f, 0));
	join(f, 2);
	run_until(f, all_answered(f, 2));
	sync_dir(f, 2);
	assert_reads(f, 2, "k", 4);
}

/* ---- what the master never received ---- */

static const struct master_grave *grave(struct fixture *f, const char *name)
{
	return master_map_grave(&f->master->map, name, strlen(name));
}

/* Puts a version and removes it before any node receives it. An absent node may
 * return with the earlier version. */
static void put_and_unlink(struct fixture *f, const char *name)
{
	put_version(f, 0, name, 2);
	unlink_it(f, 0, name);
	sync_dir(f, 0);
}

static void an_unlink_of_an_unpublished_file_is_sent(void **state)
{
	struct fixture *f = *state;
	uint64_t seen;

	put_version(f, 1, "x", 1);
	run_until(f, is_published(f, 0, "x"));
	seen = node(f, 0)->seen_gen;
	put_and_unlink(f, "k");
	assert_non_null(grave(f, "k"));
	assert_int_equal(seen, grave(f, "k")->gen);
	/* Other files of the node are not affected. */
	assert_reads(f, 0, "x", 1);
	put_version(f, 1, "k", 3);
	run_until(f, is_published(f, 0, "k"));
	assert_both_read(f, "k", 3);
}

static void temporary_files_are_not_sent(void **state)
{
	struct fixture *f = *state;

	put_version(f, 1, "x", 1);
	run_until(f, is_published(f, 0, "x"));
	put_and_unlink(f, "k.tmp");
	assert_null(grave(f, "k.tmp"));
	assert_int_equal(0, pool_counter_value(
				    &f->master->stats.c[MC_UNLINK]));
}

/* The rule `unlink` hides the name in this mount only. */
static void names_hidden_by_a_mount_are_not_sent(void **state)
{
	struct fixture *f = *state;

	both_have_it(f);
	assert_int_equal(0, pool_node_setxattr(node(f, 0),
					       &pool_node_root(node(f, 0))->d.e,
					       "user.kvpool.unlink", "node", 4,
					       0));
	sync_dir(f, 0);
	unlink_it(f, 0, "k");
	sync_dir(f, 0);
	assert_null(find(f, 0, "k"));
	assert_reads(f, 1, "k", 1);
	put_and_unlink(f, "k");
	assert_reads(f, 1, "k", 1);
	assert_int_equal(0, pool_counter_value(
				    &f->master->stats.c[MC_UNLINK]));
}

/* ---- directories ---- */

static struct node_dirent *find_dir(struct fixture *f, int i, const char *name)
{
	struct pool_entry *e = there(f, i, name);

	return e && e->is_dir ? node_dir(e) : NULL;
}

static void make_dir(struct fixture *f, int i, const char *name)
{
	static const struct node_attr attr = { .mode = 0755 };
	struct node_dirent *d;

	assert_int_equal(0, pool_node_mkdir(node(f, i),
					    pool_node_root(node(f, i)), name,
					    strlen(name), &attr, &d));
}

/* The mkdir was refused, and the node does not receive that. The next master
 * counts it as executed, because its state has the following change. */
static void mkdir_of_a_file(struct fixture *f, bool other_master)
{
	lose_answers();
	put_version(f, 1, "k", 1);
	run_until(f, is_published(f, 1, "k"));
	make_dir(f, 0, "k");
	make_dir(f, 0, "d");
	run_until(f, find_dir(f, 1, "d"));
	cut(f);
	come_back(f, other_master);
	run_until(f, find(f, 0, "k"));
	assert_both_read(f, "k", 1);
	assert_non_null(find_dir(f, 0, "d"));
}

/* If another node has removed the directory since, it does not come back. */
static void mkdir_of_what_was_removed(struct fixture *f, bool other_master)
{
	cut_after(f, MC_MKDIR, 1, make_dir(f, 0, "d"));
	run_until(f, find_dir(f, 1, "d"));
	assert_int_equal(0, pool_node_rmdir(node(f, 1), find_dir(f, 1, "d")));
	sync_dir(f, 1);
	come_back(f, other_master);
	run_until(f, !find_dir(f, 0, "d"));
	assert_null(find_dir(f, 1, "d"));
}

#define both(name)                                                 \
	static void name##_same_master(void **state)               \
	{                                                          \
		name(*state, false);                               \
	}                                                          \
	static void name##_next_master(void **state)               \
	{                                                          \
		name(*state, true);                                \
	}

both(replaced)
both(unlinked)
both(renamed)
both(chmodded)
both(put_after_an_unlink)
both(own_unlink)
both(own_unlink_and_put)
both(own_put)
both(own_put_unlinked)
both(put_from_what_came_anew)
both(unlink_of_what_came_anew)
both(put_back_after_an_unlink)
both(put_before_a_restart)
both(put_after_a_restart)
both(put_over_an_unanswered_one)
both(unlinked_after_a_restart)
both(put_in_doubt)
both(put_in_doubt_after_a_restart)
both(unlink_in_doubt)
both(mkdir_of_a_file)
both(mkdir_of_what_was_removed)

#define two(name) L(name##_same_master), L(name##_next_master)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		L(what_is_written_while_cut_off_replaces_what_was_not_answered),
		L(so_it_does_after_two),
		L(what_is_repeated_replaces_what_was_not_answered),
		L(a_new_name_is_written_again_while_cut_off),
		L(what_was_not_answered_is_there_for_others_all_the_while),
		L(a_peer_gets_what_was_not_acked),
		two(replaced),
		two(unlinked),
		two(renamed),
		two(chmodded),
		two(put_after_an_unlink),
		two(own_unlink),
		two(own_unlink_and_put),
		two(own_put),
		two(own_put_unlinked),
		two(put_from_what_came_anew),
		two(unlink_of_what_came_anew),
		two(put_back_after_an_unlink),
		two(put_before_a_restart),
		two(put_after_a_restart),
		two(put_over_an_unanswered_one),
		two(unlinked_after_a_restart),
		two(put_in_doubt),
		two(put_in_doubt_after_a_restart),
		two(unlink_in_doubt),
		two(mkdir_of_a_file),
		two(mkdir_of_what_was_removed),
		L(a_repetition_does_not_replace_what_knew_more),
		L(a_refused_put_removes_nothing),
		L(an_unlink_of_an_unpublished_file_is_sent),
		L(temporary_files_are_not_sent),
		L(names_hidden_by_a_mount_are_not_sent),
	};

	if (argc > 1) /* run only the tests that match these cmocka patterns */
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
