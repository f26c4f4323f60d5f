/*
 * A node that is cut off from the master with publications under way, of which
 * the master has done some: their answers are lost. A real master and two real
 * nodes on one loop; the first node's connections to the master lose what the
 * test says.
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

static void start_node(struct fixture *f, int i)
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
	run_until(f, node_link_up(f->node[i]) && f->node[i]->complete);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	alarm(60);
	f->top = unit_dir_make("/tmp/pool_node_cut_test");
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

	for (i = 0; i < NNODES; i++) {
		closed = false;
		pool_node_close(f->node[i], 0, on_closed, &closed);
		run_until(f, closed);
		pool_metrics_close(f->node_metrics[i]);
	}
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

/* The master has done so many publications. */
static void run_until_done(struct fixture *f, uint64_t n)
{
	run_until(f, pool_counter_value(&f->master->stats.c[MC_PUBLISH]) == n);
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
static void write_version(struct fixture *f, struct node_object *o,
			  unsigned int version)
{
	uint8_t buf[SIZE];
	int fd = pool_store_fd(pool_node_store(f->node[0]), o->id, O_RDWR);

	assert_true(fd >= 0);
	fill(buf, version);
	assert_int_equal(SIZE, pwrite(fd, buf, SIZE, 0));
	close(fd);
	pool_node_writer_opened(f->node[0], o);
	pool_node_writer_flushed(f->node[0], o);
	pool_node_writer_closed(f->node[0], o);
}

/* What an open that empties the file does, without waiting (fs/open.c). */
static void put(struct fixture *f, const char *name, unsigned int version)
{
	static const struct node_attr attr = { .mode = 0640 };
	struct node_entry *e = find(f, 0, name);
	struct node_object *o;

	if (!e)
		assert_int_equal(0, pool_node_create(
					    f->node[0],
					    pool_node_root(f->node[0]), name,
					    strlen(name), &attr, 0, &o));
	else if (!e->own)
		assert_int_equal(1, pool_node_rewrite_start(f->node[0], e, 0,
							    NULL, NULL));
	else if (pool_node_unseal(f->node[0], e->own))
		assert_int_equal(0, pool_node_own_replace(f->node[0], e));
	write_version(f, find(f, 0, name)->own, version);
}

static bool pending(struct fixture *f, const char *name)
{
	struct node_entry *e = find(f, 0, name);

	return e && e->own && e->own->state == NODE_PENDING;
}

static bool sent(struct fixture *f, const char *name)
{
	return pending(f, name) && node_op_sent(f->node[0],
						find(f, 0, name)->own);
}

static bool published(struct fixture *f, const char *name)
{
	struct node_entry *e = find(f, 0, name);

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

/* fsync of the directory ends well, and both nodes show that version. */
static void assert_acknowledged(struct fixture *f, const char *name,
				unsigned int version)
{
	struct ended t = { 0 };

	assert_int_equal(0, pool_node_barrier_start(f->node[0], &t.b,
						    on_ended));
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	assert_int_equal(0, pool_node_lost(pool_node_root(f->node[0])));
	/* And after the master has looked through what this node has. */
	run_until(f, !f->master->patrol.active);
	run_until(f, find(f, 0, name) == NULL ||
			     (find(f, 1, name) &&
			      find(f, 1, name)->gen == find(f, 0, name)->gen));
	assert_reads(f, 0, name, version);
	assert_reads(f, 1, name, version);
}

/* ---- the tests ---- */

/* One is sent and done, its answer lost; the next is made while cut off. */
static void what_is_written_while_cut_off_replaces_what_was_not_answered(
	void **state)
{
	struct fixture *f = *state;

	put(f, "k", 1);
	run_until(f, published(f, "k"));
	lose_answers(f);
	put(f, "k", 2);
	run_until_done(f, 2);
	cut(f);
	put(f, "k", 3);
	run_until(f, pending(f, "k"));
	join_again(f);
	assert_acknowledged(f, "k", 3);
}

/* Two are sent and done. */
static void so_it_does_after_two(void **state)
{
	struct fixture *f = *state;

	put(f, "k", 1);
	run_until(f, published(f, "k"));
	lose_answers(f);
	put(f, "k", 2);
	run_until(f, sent(f, "k"));
	put(f, "k", 3);
	run_until_done(f, 3);
	cut(f);
	put(f, "k", 4);
	run_until(f, pending(f, "k"));
	join_again(f);
	assert_acknowledged(f, "k", 4);
}

/* The one that is to replace it was sent before the cut, too: it is repeated. */
static void what_is_repeated_replaces_what_was_not_answered(void **state)
{
	struct fixture *f = *state;

	put(f, "k", 1);
	run_until(f, published(f, "k"));
	lose_answers(f);
	put(f, "k", 2);
	run_until_done(f, 2);
	put(f, "k", 3);
	run_until(f, sent(f, "k"));
	cut(f);
	join_again(f);
	assert_acknowledged(f, "k", 3);
}

/* The name was new. */
static void a_new_name_is_written_again_while_cut_off(void **state)
{
	struct fixture *f = *state;

	lose_answers(f);
	put(f, "k", 1);
	run_until_done(f, 1);
	cut(f);
	put(f, "k", 2);
	run_until(f, pending(f, "k"));
	join_again(f);
	assert_acknowledged(f, "k", 2);
}

/* The master has named it for others, who look at it while the node joins again
 * and has what it has not been told yet. */
static void what_was_not_answered_is_there_for_others_all_the_while(void **state)
{
	struct fixture *f = *state;

	lose_answers(f);
	put(f, "k", 1);
	run_until(f, find(f, 1, "k"));
	cut(f);
	pool_faults_clear(f->faults);
	run_until(f, (assert_non_null(find(f, 1, "k")), true) &&
			     node_link_up(f->node[0]) && all_answered(f) &&
			     !f->master->patrol.active);
	assert_acknowledged(f, "k", 1);
}

/* A peer that asked for it meanwhile is answered. */
static void who_asks_for_what_was_not_answered_gets_it(void **state)
{
	struct fixture *f = *state;
	struct reader r = { 0 };

	lose_answers(f);
	put(f, "k", 1);
	run_until(f, find(f, 1, "k"));
	assert_int_equal(0, pool_node_want_start(f->node[1], find(f, 1, "k"),
						 &r.w, &r.obj, on_want));
	cut(f);
	assert_false(r.done);
	join_again(f);
	run_until(f, r.done);
	assert_int_equal(0, r.status);
	node_object_unref(f->node[1], r.obj);
	assert_acknowledged(f, "k", 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_is_written_while_cut_off_replaces_what_was_not_answered),
		T(so_it_does_after_two),
		T(what_is_repeated_replaces_what_was_not_answered),
		T(a_new_name_is_written_again_while_cut_off),
		T(what_was_not_answered_is_there_for_others_all_the_while),
		T(who_asks_for_what_was_not_answered_gets_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
