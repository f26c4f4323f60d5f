/*
 * A node loses the master's answers and is cut off; another node changes the
 * same names, and its fsync ends well; the first one joins again, at the same
 * master or at the next one, perhaps after a restart. What it repeats undoes
 * nothing. A real master and two real nodes on one loop.
 */
#include "tests/lib/unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "master/impl.h"
#include "master/server.h"
#include "pool/conn/fault_rules.h"
#include "pool/node/node_priv.h"

#define NNODES 2
#define SIZE 1000u
#define HEARTBEAT_MS 200

struct fixture {
	char *top; /* owns */
	uv_loop_t loop;
	struct pool_node_opts opts;
	struct pool_metrics *metrics, *node_metrics[NNODES];
	struct pool_faults *faults;
	struct master *master;
	struct pool_node *node[NNODES];
	char dir[NNODES][128];
	char master_name[32]; /* as the nodes' connections are known */
	int port_fd; /* holds the master's port, and never listens */
};

#define run_until(f, cond) unit_run_until(&(f)->loop, cond)

/* ---- starting and stopping ---- */

static void on_closed(void *arg)
{
	*(bool *)arg = true;
}

static void hold_port(struct fixture *f)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	struct pool_hostport *hp = &f->opts.masters.at[0];
	socklen_t len = sizeof(sa);
	int one = 1;

	f->port_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(f->port_fd >= 0);
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(0, setsockopt(f->port_fd, SOL_SOCKET, SO_REUSEADDR,
				       &one, sizeof(one)));
	assert_int_equal(0, bind(f->port_fd, (void *)&sa, sizeof(sa)));
	assert_int_equal(0, getsockname(f->port_fd, (void *)&sa, &len));
	hp->port = ntohs(sa.sin_port);
	snprintf(f->master_name, sizeof(f->master_name), "127.0.0.1:%u",
		 hp->port);
}

static void start_master(struct fixture *f)
{
	struct master_opts mo = { .loop = &f->loop,
				  .heartbeat_ms = HEARTBEAT_MS };
	char path[96];

	snprintf(path, sizeof(path), "%s/master", f->top);
	f->metrics = pool_metrics_open();
	mo.listen = f->opts.masters.at[0];
	mo.state_file = path;
	mo.metrics = f->metrics;
	assert_int_equal(0, master_open(&mo, &f->master));
}

/* It need not join. */
static void open_node(struct fixture *f, int i)
{
	struct pool_node_opts o = f->opts;
	char name[16];

	snprintf(f->dir[i], sizeof(f->dir[i]), "%s/store%d", f->top, i);
	snprintf(name, sizeof(name), "node%d", i);
	f->node_metrics[i] = pool_metrics_open();
	o.metrics = f->node_metrics[i];
	o.store_dir = f->dir[i];
	o.name = name;
	assert_int_equal(0, pool_node_open(&o, &f->node[i]));
}

static void start_node(struct fixture *f, int i)
{
	open_node(f, i);
	run_until(f, node_link_up(f->node[i]) && f->node[i]->complete);
}

static void close_node(struct fixture *f, int i)
{
	bool closed = false;

	pool_node_close(f->node[i], 0, on_closed, &closed);
	run_until(f, closed);
	pool_metrics_close(f->node_metrics[i]);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	alarm(60);
	f->top = unit_dir_make("/tmp/pool_node_repeat_test");
	assert_int_equal(0, uv_loop_init(&f->loop));
	f->opts.loop = &f->loop;
	f->opts.masters.n = 1;
	strcpy(f->opts.masters.at[0].host, "127.0.0.1");
	strcpy(f->opts.listen.host, "127.0.0.1");
	f->opts.store_size = 32u << 20;
	f->opts.mount = true;
	f->opts.movers = 1;
	f->opts.deadline_ms = 5000;
	hold_port(f);
	start_master(f);
	/* The connections of the second have no faults. */
	start_node(f, 1);
	assert_int_equal(0, pool_faults_open(f->metrics, 1, &f->faults));
	pool_faults_install(f->faults);
	start_node(f, 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	bool closed;
	int i;

	for (i = 0; i < NNODES; i++)
		close_node(f, i);
	closed = false;
	master_close(f->master, on_closed, &closed);
	run_until(f, closed);
	assert_int_equal(0, uv_run(&f->loop, UV_RUN_DEFAULT));
	assert_int_equal(0, uv_loop_close(&f->loop));
	pool_faults_install(NULL);
	pool_faults_close(f->faults);
	pool_metrics_close(f->metrics);
	close(f->port_fd);
	for (i = 0; i < NNODES; i++)
		while (umount2(f->dir[i], MNT_DETACH) == 0)
			;
	unit_dir_remove(f->top);
	free(f);
	alarm(0);
	return 0;
}

/* ---- the way to the master ---- */

static void add_fault(struct fixture *f, enum pool_fault_kind kind,
		      unsigned int direction)
{
	struct pool_fault_rule r = { .kind = kind,
				     .directions = direction,
				     .probability = 1 };

	snprintf(r.peer, sizeof(r.peer), "%s", f->master_name);
	assert_int_equal(0, pool_faults_add(f->faults, &r));
}

/* From now on the first node hears nothing of the master, which hears it. */
static void lose_answers(struct fixture *f)
{
	add_fault(f, POOL_FAULT_DROP, POOL_FAULT_RECEIVE);
}

/* Nor does the master: the connection is reset, and so is each that follows. */
static void cut(struct fixture *f)
{
	add_fault(f, POOL_FAULT_RESET, POOL_FAULT_SEND);
	run_until(f, !node_link_up(f->node[0]));
}

static bool all_answered(struct fixture *f)
{
	return pool_list_empty(&f->node[0]->ops_sent) &&
	       pool_list_empty(&f->node[0]->ops_waiting);
}

static void join_again(struct fixture *f)
{
	pool_faults_clear(f->faults);
	run_until(f, node_link_up(f->node[0]) && all_answered(f));
}

/* ---- files ---- */

static struct node_entry *find(struct fixture *f, int i, const char *name)
{
	struct pool_entry *e = pool_node_lookup(
		f->node[i], pool_node_root(f->node[i]), name, strlen(name));

	return e && !e->is_dir ? node_file(e) : NULL;
}

static void fill(uint8_t buf[SIZE], unsigned int version)
{
	size_t i;

	for (i = 0; i < SIZE; i++)
		buf[i] = (uint8_t)(version * 31 + i);
}

/* Write it, and close: on its way to being sealed. */
static void write_version(struct fixture *f, int i, struct node_object *o,
			  unsigned int version)
{
	uint8_t buf[SIZE];
	int fd = pool_store_fd(pool_node_store(f->node[i]), o->id, O_RDWR);

	assert_true(fd >= 0);
	fill(buf, version);
	assert_int_equal(SIZE, pwrite(fd, buf, SIZE, 0));
	close(fd);
	pool_node_writer_opened(f->node[i], o);
	pool_node_writer_flushed(f->node[i], o);
	pool_node_writer_closed(f->node[i], o);
}

/* What an open that empties the file does, without waiting (fs/open.c). */
static void put(struct fixture *f, int i, const char *name,
		unsigned int version)
{
	static const struct node_attr attr = { .mode = 0640 };
	struct pool_node *n = f->node[i];
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

static bool pending(struct fixture *f, int i, const char *name)
{
	struct node_entry *e = find(f, i, name);

	return e && e->own && e->own->state == NODE_PENDING;
}

static bool published(struct fixture *f, int i, const char *name)
{
	struct node_entry *e = find(f, i, name);

	return e && !e->own && e->gen;
}

struct reader {
	struct node_want w;
	struct node_object *obj;
	int status;
	bool done;
};

static void on_want(struct node_want *w, struct node_object *obj, int status)
{
	struct reader *r = pool_container_of(w, struct reader, w);

	r->obj = obj;
	r->status = status;
	r->done = true;
}

static void assert_reads(struct fixture *f, int i, const char *name,
			 unsigned int version)
{
	struct node_entry *e = find(f, i, name);
	struct reader r = { 0 };
	uint8_t want[SIZE], got[SIZE + 1];
	int rc, fd;

	if (!e)
		fail_msg("\"%s\" is gone from node %d", name, i);
	rc = pool_node_want_start(f->node[i], e, &r.w, &r.obj, on_want);
	if (rc == 0)
		run_until(f, r.done);
	assert_true(rc == 1 || (rc == 0 && r.status == 0));
	fd = node_object_open(f->node[i], r.obj, O_RDONLY);
	assert_true(fd >= 0);
	fill(want, version);
	assert_int_equal(SIZE, pread(fd, got, sizeof(got), 0));
	assert_memory_equal(want, got, SIZE);
	close(fd);
	node_object_unref(f->node[i], r.obj);
}

struct ended {
	struct node_barrier b;
	int status;
	bool done;
};

static void on_ended(struct node_barrier *b, int status)
{
	struct ended *t = pool_container_of(b, struct ended, b);

	t->status = status;
	t->done = true;
}

/* fsync of the directory ends well. */
static void sync_dir(struct fixture *f, int i)
{
	struct ended t = { 0 };

	assert_int_equal(0, pool_node_barrier_start(f->node[i], &t.b,
						    on_ended));
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	assert_int_equal(0, pool_node_lost(pool_node_root(f->node[i])));
}

static void stop_master(struct fixture *f)
{
	bool closed = false;

	master_close(f->master, on_closed, &closed);
	run_until(f, closed);
	pool_metrics_close(f->metrics);
}

/* The next master, which has what this one's state has. */
static void restart_master(struct fixture *f)
{
	stop_master(f);
	start_master(f);
}

/* The first node hears nothing more of the master and is cut off once that has
 * counted `want` changes. */
#define cut_after(f, counter, want, change)                                  \
	do {                                                                 \
		lose_answers(f);                                             \
		change;                                                      \
		run_until(f, pool_counter_value(                             \
				     &(f)->master->stats.c[counter]) ==      \
				     (want));                                \
		cut(f);                                                      \
	} while (0)

/* The first node comes back, and all is settled. */
static void come_back(struct fixture *f, bool other_master)
{
	if (other_master)
		restart_master(f);
	join_again(f);
	run_until(f, node_link_up(f->node[1]));
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
	assert_int_equal(0, pool_node_unlink(f->node[i], find(f, i, name)));
}

static void chmod_it(struct fixture *f, int i, const char *name, uint32_t mode)
{
	struct node_attr a = { .mode = mode };

	assert_int_equal(0, pool_node_setattr(f->node[i],
					      &find(f, i, name)->e,
					      POOL_SET_MODE, &a, NULL));
}

/* ---- what another node did stays ---- */

/* A new name, of which the first node has had no answer (base_gen 0). */
static void put_unanswered(struct fixture *f)
{
	cut_after(f, MC_PUBLISH, 1, put(f, 0, "k", 1));
	run_until(f, published(f, 1, "k"));
}

static void replaced(struct fixture *f, bool other_master)
{
	put_unanswered(f);
	put(f, 1, "k", 2);
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
	put(f, 1, "k", 2); /* rename(2) needs it here */
	sync_dir(f, 1);
	assert_int_equal(0, pool_node_rename(f->node[1], &find(f, 1, "k")->e,
					     pool_node_root(f->node[1]), "l", 1,
					     false, &to));
	sync_dir(f, 1);
	come_back(f, other_master);
	run_until(f, !find(f, 0, "k") && !find(f, 1, "k"));
	assert_both_read(f, "l", 2);
}

static void chmodded(struct fixture *f, bool other_master)
{
	put(f, 1, "k", 1); /* there: attributes live with the bytes */
	run_until(f, published(f, 0, "k") && published(f, 1, "k"));
	cut_after(f, MC_SETATTR, 1, chmod_it(f, 0, "k", 0600));
	run_until(f, find(f, 1, "k")->attr.mode == 0600);
	chmod_it(f, 1, "k", 0604);
	sync_dir(f, 1);
	come_back(f, other_master);
	run_until(f, find(f, 0, "k")->attr.mode == find(f, 1, "k")->attr.mode);
	assert_int_equal(0604, find(f, 0, "k")->attr.mode);
}

/* It unlinks what it published and has no answer for; the other node has put
 * the name anew. */
static void put_after_an_unlink(struct fixture *f, bool other_master)
{
	put(f, 0, "k", 1);
	run_until(f, published(f, 0, "k") && published(f, 1, "k"));
	cut_after(f, MC_UNLINK, 1, unlink_it(f, 0, "k"));
	run_until(f, !find(f, 1, "k"));
	put(f, 1, "k", 2);
	sync_dir(f, 1);
	come_back(f, other_master);
	assert_both_read(f, "k", 2);
}

/* ---- what it did itself is not taken for another's ---- */

static void own_unlink(struct fixture *f, bool other_master)
{
	put(f, 0, "k", 1);
	run_until(f, published(f, 0, "k"));
	cut_after(f, MC_UNLINK, 1, unlink_it(f, 0, "k"));
	put(f, 0, "k", 2);
	run_until(f, pending(f, 0, "k"));
	come_back(f, other_master);
	assert_both_read(f, "k", 2);
}

/* The publication, too, was executed: a new master does not know of it, but of
 * the unlink. */
static void own_unlink_and_put(struct fixture *f, bool other_master)
{
	put(f, 0, "k", 1);
	run_until(f, published(f, 0, "k"));
	cut_after(f, MC_PUBLISH, 2,
		  (unlink_it(f, 0, "k"), put(f, 0, "k", 2)));
	come_back(f, other_master);
	assert_both_read(f, "k", 2);
}

static void own_put(struct fixture *f, bool other_master)
{
	put_unanswered(f);
	put(f, 0, "k", 2);
	run_until(f, pending(f, 0, "k"));
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

/* Cut off with that: it is in the store only. */
static void restart_with(struct fixture *f, unsigned int version)
{
	put(f, 0, "k", version);
	run_until(f, pending(f, 0, "k"));
	close_node(f, 0);
	open_node(f, 0);
	run_until(f, pending(f, 0, "k"));
}

static void put_before_a_restart(struct fixture *f, bool other_master)
{
	put(f, 0, "k", 1);
	run_until(f, published(f, 0, "k"));
	cut_after(f, MC_UNLINK, 1, unlink_it(f, 0, "k"));
	restart_with(f, 2);
	come_back(f, other_master);
	assert_both_read(f, "k", 2);
}

static void put_after_a_restart(struct fixture *f, bool other_master)
{
	put(f, 0, "k", 1);
	run_until(f, published(f, 0, "k"));
	cut_after(f, MC_UNLINK, 1, unlink_it(f, 0, "k"));
	restart_with(f, 2);
	put(f, 0, "k", 3);
	run_until(f, pending(f, 0, "k"));
	come_back(f, other_master);
	assert_both_read(f, "k", 3);
}

/* The master has heard of the one that it replaced, and told nobody who lives. */
static void put_over_an_unanswered_one(struct fixture *f, bool other_master)
{
	put_unanswered(f);
	restart_with(f, 2);
	come_back(f, other_master);
	assert_both_read(f, "k", 2);
}

/* What another node deletes after that stays deleted. */
static void unlinked_after_a_restart(struct fixture *f, bool other_master)
{
	put_unanswered(f);
	run_until(f, published(f, 1, "k"));
	unlink_it(f, 1, "k");
	sync_dir(f, 1);
	close_node(f, 0);
	open_node(f, 0);
	run_until(f, pending(f, 0, "k"));
	come_back(f, other_master);
	run_until(f, !find(f, 0, "k") && !find(f, 1, "k"));
}

/* ---- the same version under another generation is no newer one ---- */

/* The first node has been cut off with version 1, which the other brings anew. */
static void brought_anew(struct fixture *f)
{
	put(f, 1, "k", 9);
	sync_dir(f, 1);
	put(f, 1, "k", 1);
	sync_dir(f, 1);
}

static void both_have_it(struct fixture *f)
{
	put(f, 0, "k", 1);
	run_until(f, published(f, 0, "k") && published(f, 1, "k"));
}

static void put_from_what_came_anew(struct fixture *f, bool other_master)
{
	both_have_it(f);
	cut(f);
	put(f, 0, "k", 2);
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

/* But the other one had seen the unlink when it put the same bytes back. */
static void put_back_after_an_unlink(struct fixture *f, bool other_master)
{
	both_have_it(f);
	cut_after(f, MC_UNLINK, 1, unlink_it(f, 0, "k"));
	run_until(f, !find(f, 1, "k"));
	put(f, 1, "k", 1);
	sync_dir(f, 1);
	come_back(f, other_master);
	assert_both_read(f, "k", 1);
}

/* Whether it was overtaken cannot be told: who put it is told that. */
static void put_in_doubt(struct fixture *f, bool other_master)
{
	struct ended t = { 0 };

	both_have_it(f);
	cut_after(f, MC_PUBLISH, 2, put(f, 0, "k", 2));
	brought_anew(f);
	if (other_master)
		restart_master(f);
	join_again(f);
	assert_int_equal(0, pool_node_barrier_start(f->node[0], &t.b,
						    on_ended));
	run_until(f, t.done);
	assert_int_equal(other_master ? -EIO : 0,
			 pool_node_lost(pool_node_root(f->node[0])));
	assert_both_read(f, "k", 1);
}

/* Nor does a restart forget what it was made from, of which this node had no copy:
 * its put may have been executed before. */
static void put_in_doubt_after_a_restart(struct fixture *f, bool other_master)
{
	struct ended t = { 0 };

	put(f, 1, "k", 1);
	run_until(f, published(f, 0, "k") && published(f, 1, "k"));
	cut(f);
	restart_with(f, 2);
	brought_anew(f);
	if (other_master)
		restart_master(f);
	join_again(f);
	assert_int_equal(0, pool_node_barrier_start(f->node[0], &t.b,
						    on_ended));
	run_until(f, t.done);
	assert_int_equal(-EIO, pool_node_lost(pool_node_root(f->node[0])));
	assert_both_read(f, "k", 1);
}

/* What was unlinked came anew, and the master that is asked for the unlink does
 * not know that. Who unlinked it is told so. */
static void unlink_in_doubt(struct fixture *f, bool other_master)
{
	struct ended t = { 0 };

	both_have_it(f);
	add_fault(f, POOL_FAULT_DROP, POOL_FAULT_SEND);
	unlink_it(f, 0, "k");
	run_until(f, !pool_list_empty(&f->node[0]->ops_sent));
	pool_faults_clear(f->faults);
	cut(f);
	brought_anew(f);
	if (other_master)
		restart_master(f);
	join_again(f);
	run_until(f, node_link_up(f->node[1]));
	assert_int_equal(0, pool_node_barrier_start(f->node[0], &t.b,
						    on_ended));
	run_until(f, t.done);
	assert_int_equal(other_master ? -EIO : 0,
			 pool_node_lost(pool_node_root(f->node[0])));
	if (other_master)
		assert_both_read(f, "k", 1);
	else
		run_until(f, !find(f, 0, "k") && !find(f, 1, "k"));
}

/* With no master; nor does the node live to see the next one. */
static void put_and_die(struct fixture *f, int i, unsigned int version)
{
	stop_master(f);
	run_until(f, !node_link_up(f->node[i]));
	put(f, i, "k", version);
	run_until(f, pending(f, i, "k"));
	close_node(f, i);
	start_master(f);
}

/* What the second node had put first was published when it came back, and the
 * first one had left with newer versions. That master has died, too. */
static void who_knew_of_more_than_a_repetition_is_not_overtaken_by_it(
	void **state)
{
	struct fixture *f = *state;

	put(f, 1, "k", 0);
	sync_dir(f, 1);
	put_and_die(f, 1, 1);
	run_until(f, node_link_up(f->node[0]));
	put(f, 0, "k", 2);
	sync_dir(f, 0);
	put_and_die(f, 0, 3);
	start_node(f, 1);
	run_until(f, published(f, 1, "k"));
	assert_reads(f, 1, "k", 1);
	restart_master(f);
	start_node(f, 0);
	run_until(f, node_link_up(f->node[1]));
	sync_dir(f, 0);
	sync_dir(f, 1);
	assert_both_read(f, "k", 3);
}

/* ---- what the master never heard of ---- */

static const struct master_grave *grave(struct fixture *f, const char *name)
{
	return master_map_grave(&f->master->map, name, strlen(name));
}

/* Put and removed before anybody was told. What had been there before may come
 * back with a node that is away. */
static void unheard(struct fixture *f, const char *name)
{
	put(f, 0, name, 2);
	unlink_it(f, 0, name);
	sync_dir(f, 0);
}

static void an_unlink_of_what_was_not_published_is_told(void **state)
{
	struct fixture *f = *state;
	uint64_t seen;

	put(f, 1, "x", 1);
	run_until(f, published(f, 0, "x"));
	seen = f->node[0]->seen_gen;
	unheard(f, "k");
	assert_non_null(grave(f, "k"));
	assert_int_equal(seen, grave(f, "k")->gen);
	/* Its own files are not meant. */
	assert_reads(f, 0, "x", 1);
	put(f, 1, "k", 3);
	run_until(f, published(f, 0, "k"));
	assert_both_read(f, "k", 3);
}

static void nobody_hears_of_temporary_files(void **state)
{
	struct fixture *f = *state;

	put(f, 1, "x", 1);
	run_until(f, published(f, 0, "x"));
	unheard(f, "k.tmp");
	assert_null(grave(f, "k.tmp"));
	assert_int_equal(0, pool_counter_value(
				    &f->master->stats.c[MC_UNLINK]));
}

/* By the rule `unlink`, from this mount only. */
static void nobody_hears_of_what_a_mount_hides(void **state)
{
	struct fixture *f = *state;

	both_have_it(f);
	assert_int_equal(0, pool_node_setxattr(f->node[0],
					       &pool_node_root(f->node[0])->d.e,
					       "user.kvpool.unlink", "node", 4,
					       0));
	sync_dir(f, 0);
	unlink_it(f, 0, "k");
	sync_dir(f, 0);
	assert_null(find(f, 0, "k"));
	assert_reads(f, 1, "k", 1);
	unheard(f, "k");
	assert_reads(f, 1, "k", 1);
	assert_int_equal(0, pool_counter_value(
				    &f->master->stats.c[MC_UNLINK]));
}

/* ---- directories ---- */

static struct node_dirent *find_dir(struct fixture *f, int i, const char *name)
{
	struct pool_entry *e = pool_node_lookup(
		f->node[i], pool_node_root(f->node[i]), name, strlen(name));

	return e && e->is_dir ? node_dir(e) : NULL;
}

static void make_dir(struct fixture *f, int i, const char *name)
{
	static const struct node_attr attr = { .mode = 0755 };
	struct node_dirent *d;

	assert_int_equal(0, pool_node_mkdir(f->node[i],
					    pool_node_root(f->node[i]), name,
					    strlen(name), &attr, &d));
}

/* Refused, and the node does not learn that. The next master has it among the
 * changes that are done: its state has the one that follows. */
static void mkdir_of_a_file(struct fixture *f, bool other_master)
{
	lose_answers(f);
	put(f, 1, "k", 1);
	run_until(f, published(f, 1, "k"));
	make_dir(f, 0, "k");
	make_dir(f, 0, "d");
	run_until(f, find_dir(f, 1, "d"));
	cut(f);
	come_back(f, other_master);
	run_until(f, find(f, 0, "k"));
	assert_both_read(f, "k", 1);
	assert_non_null(find_dir(f, 0, "d"));
}

/* What another node has removed since does not stay. */
static void mkdir_of_what_was_removed(struct fixture *f, bool other_master)
{
	cut_after(f, MC_MKDIR, 1, make_dir(f, 0, "d"));
	run_until(f, find_dir(f, 1, "d"));
	assert_int_equal(0, pool_node_rmdir(f->node[1], find_dir(f, 1, "d")));
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

#define two(name) T(name##_same_master), T(name##_next_master)

int main(void)
{
	const struct CMUnitTest tests[] = {
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
		T(who_knew_of_more_than_a_repetition_is_not_overtaken_by_it),
		T(an_unlink_of_what_was_not_published_is_told),
		T(nobody_hears_of_temporary_files),
		T(nobody_hears_of_what_a_mount_hides),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
