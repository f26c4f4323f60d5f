/*
 * Whole nodes, without a mount: real stores in a directory of the test's own, a
 * real master in this process, all on one loop. What the mount would do (open,
 * write, flush, close) is done here by hand.
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
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "master/impl.h"
#include "pool/node/ops.h"
#include "pool/store/store_priv.h"

#define NNODES 3
#define KIB 1024ull
#define MIB (1024ull * 1024)
#define STORE_SIZE (32 * MIB)

#define HEARTBEAT_MS 200

/* What a mount would have been told. */
struct told {
	unsigned int changed, attr_changed, published, appeared, dir_gone;
	unsigned int object_gone, expired, kept_waiting;
	struct pool_node *node;
	bool slow;	  /* tells its kernel when the test says so */
	uint64_t telling; /* then: this mark, 0: none */
};

struct member {
	struct pool_node *node; /* NULL: closed */
	struct pool_metrics *metrics;
	char dir[128], sock[128], name[16];
	struct told told;
};

#define WORKERS 4 /* libuv's default */

struct busy {
	uv_work_t work;
	uv_sem_t may_end;
};

struct fixture {
	char *top; /* owns */
	struct busy busy[WORKERS];
	bool workers_busy;
	uv_loop_t loop;
	struct pool_node_opts opts; /* of nodes started from now on */
	struct master *master;	    /* NULL: nobody listens on its port */
	struct pool_metrics *master_metrics;
	int port_fd; /* holds the master's port, and never listens */
	struct member m[NNODES];
};

#define run_until(f, cond) unit_run_until(&(f)->loop, cond)

/* For what must not happen. */
static void run_for(struct fixture *f, unsigned int ms)
{
	uint64_t end = pool_now_ms() + ms;

	while (pool_now_ms() < end)
		uv_run(&f->loop, UV_RUN_ONCE);
}

/* ---- what a mount would be told ---- */

static void on_changed(void *arg, struct node_entry *e)
{
	(void)e;
	((struct told *)arg)->changed++;
}
static void on_attr_changed(void *arg, struct pool_entry *e)
{
	(void)e;
	((struct told *)arg)->attr_changed++;
}
static void on_published(void *arg, struct node_entry *e)
{
	assert_null(e->own);
	assert_non_null(e->obj);
	((struct told *)arg)->published++;
}
static void on_appeared(void *arg, struct pool_entry *e)
{
	(void)e;
	((struct told *)arg)->appeared++;
}
static void on_dir_gone(void *arg, struct node_dirent *dir)
{
	(void)dir;
	((struct told *)arg)->dir_gone++;
}
static void on_object_gone(void *arg, struct node_object *obj)
{
	struct told *t = arg;
	struct pool_shortlock *names = t->node->opts.names;

	(void)obj;
	t->object_gone++;
	/* Its file goes next, which takes long: may others ask? */
	if (!names)
		return;
	if (pthread_rwlock_tryrdlock(&names->lock) == 0)
		pool_shortlock_give(names);
	else
		t->kept_waiting++;
}
static void on_tell(void *arg, uint64_t mark)
{
	struct told *t = arg;

	if (t->slow)
		t->telling = mark;
	else
		pool_node_told(t->node, mark);
}

static void on_expire(void *arg)
{
	((struct told *)arg)->expired++;
}

static const struct pool_node_ops node_ops = {
	.changed = on_changed,
	.attr_changed = on_attr_changed,
	.published = on_published,
	.appeared = on_appeared,
	.dir_gone = on_dir_gone,
	.tell = on_tell,
	.expire = on_expire,
	.object_gone = on_object_gone,
};

/* ---- starting and stopping ---- */

static int hold_port(struct pool_hostport *hp)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	assert_true(fd >= 0);
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	sa.sin_port = htons(hp->port);
	assert_int_equal(0, setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one,
				       sizeof(one)));
	assert_int_equal(0, bind(fd, (void *)&sa, sizeof(sa)));
	assert_int_equal(0, getsockname(fd, (void *)&sa, &len));
	hp->port = ntohs(sa.sin_port);
	return fd;
}

static void start_master(struct fixture *f)
{
	struct master_opts mo = { .loop = &f->loop, .heartbeat_ms = HEARTBEAT_MS };
	char path[96];

	snprintf(path, sizeof(path), "%s/master", f->top);
	f->master_metrics = pool_metrics_open();
	mo.listen = f->opts.masters.at[0];
	mo.state_file = path;
	mo.metrics = f->master_metrics;
	assert_int_equal(0, master_open(&mo, &f->master));
}

static void on_closed(void *arg)
{
	*(bool *)arg = true;
}

static void stop_master(struct fixture *f)
{
	bool closed = false;

	master_close(f->master, on_closed, &closed);
	run_until(f, closed);
	f->master = NULL;
	pool_metrics_close(f->master_metrics);
}

static void start_node(struct fixture *f, int i)
{
	struct pool_node_opts o = f->opts;
	struct member *m = &f->m[i];

	snprintf(m->dir, sizeof(m->dir), "%s/store%d", f->top, i);
	snprintf(m->sock, sizeof(m->sock), "%s/sock%d", f->top, i);
	snprintf(m->name, sizeof(m->name), "node%d", i);
	memset(&m->told, 0, sizeof(m->told));
	m->metrics = pool_metrics_open();
	o.metrics = m->metrics;
	o.store_dir = m->dir;
	o.name = m->name;
	o.unix_path = o.fd_passing ? m->sock : NULL;
	assert_int_equal(0, pool_node_open(&o, &m->node));
	m->told.node = m->node;
	pool_node_set_ops(m->node, &node_ops, &m->told, "served");
}

static void stop_node(struct fixture *f, int i)
{
	bool closed = false;

	pool_node_close(f->m[i].node, 0, on_closed, &closed);
	assert_false(closed);
	run_until(f, closed);
	f->m[i].node = NULL;
	pool_metrics_close(f->m[i].metrics);
}

static bool is_up(struct fixture *f, int i)
{
	return node_link_up(f->m[i].node) && f->m[i].node->complete;
}

/* A master and n nodes that know each other. */
static void start_pool(struct fixture *f, int n)
{
	int i;

	start_master(f);
	for (i = 0; i < n; i++)
		start_node(f, i);
	for (i = 0; i < n; i++)
		run_until(f, is_up(f, i) && (int)f->m[i].node->nmembers >= n);
	run_until(f, master_ready(f->master));
}

static struct pool_node *refuses_ops; /* its send queue is full, for OPS */

int __wrap_pool_conn_send(struct pool_conn *c, uint16_t type, uint64_t req,
			  const ProtobufCMessage *msg);
int __real_pool_conn_send(struct pool_conn *c, uint16_t type, uint64_t req,
			  const ProtobufCMessage *msg);

int __wrap_pool_conn_send(struct pool_conn *c, uint16_t type, uint64_t req,
			  const ProtobufCMessage *msg)
{
	if (type == POOL_MSG_OPS && refuses_ops && refuses_ops->link &&
	    refuses_ops->link->conn == c)
		return -ENOBUFS;
	return __real_pool_conn_send(c, type, req, msg);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	refuses_ops = NULL;
	alarm(40);
	f->top = unit_dir_make("/tmp/pool_node_test");
	assert_int_equal(0, uv_loop_init(&f->loop));
	f->opts.loop = &f->loop;
	f->opts.masters.n = 1;
	strcpy(f->opts.masters.at[0].host, "127.0.0.1");
	strcpy(f->opts.listen.host, "127.0.0.1");
	f->opts.store_size = STORE_SIZE;
	f->opts.mount = true;
	f->opts.movers = 1;
	f->opts.deadline_ms = 5000; /* nothing is slow but what is to be */
	f->port_fd = hold_port(&f->opts.masters.at[0]);
	*state = f;
	return 0;
}

/* ---- workers that have other things to do ---- */

static void busy_work(uv_work_t *work)
{
	uv_sem_wait(&pool_container_of(work, struct busy, work)->may_end);
}

static void busy_done(uv_work_t *work, int status)
{
	(void)status;
	uv_sem_destroy(&pool_container_of(work, struct busy, work)->may_end);
}

/* All of libuv's workers are busy until workers_end. */
static void workers_begin(struct fixture *f)
{
	int i;

	assert_null(getenv("UV_THREADPOOL_SIZE"));
	for (i = 0; i < WORKERS; i++) {
		uv_sem_init(&f->busy[i].may_end, 0);
		assert_int_equal(0, uv_queue_work(&f->loop, &f->busy[i].work,
						  busy_work, busy_done));
	}
	f->workers_busy = true;
}

static void workers_end(struct fixture *f)
{
	int i;

	for (i = 0; f->workers_busy && i < WORKERS; i++)
		uv_sem_post(&f->busy[i].may_end);
	f->workers_busy = false;
}

static void check_nodes(struct fixture *f)
{
	for (int i = 0; i < NNODES; i++)
		if (f->m[i].node)
			node_check(f->m[i].node);
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	int i;

	workers_end(f);
	check_nodes(f);
	for (i = 0; i < NNODES; i++)
		if (f->m[i].node)
			stop_node(f, i);
	if (f->master)
		stop_master(f);
	assert_int_equal(0, uv_run(&f->loop, UV_RUN_DEFAULT));
	assert_int_equal(0, uv_loop_close(&f->loop));
	close(f->port_fd);
	for (i = 0; i < NNODES; i++)
		while (f->m[i].dir[0] && umount2(f->m[i].dir, MNT_DETACH) == 0)
			;
	unit_dir_remove(f->top);
	free(f);
	alarm(0);
	return 0;
}

/* Does the store count space to the page, or share the machine's /tmp? */
static void need_own_tmpfs(struct fixture *f, int i)
{
	struct stat top, st;

	assert_int_equal(0, stat(f->top, &top));
	assert_int_equal(0, stat(f->m[i].dir, &st));
	if (top.st_dev == st.st_dev) {
		print_message("no tmpfs may be mounted: skipped\n");
		skip();
	}
}

/* ---- files ---- */

static struct pool_node *node(struct fixture *f, int i)
{
	return f->m[i].node;
}

static struct node_entry *find_in(struct fixture *f, int i,
				  struct node_dirent *dir, const char *name)
{
	struct pool_entry *e = pool_node_lookup(node(f, i), dir, name,
						strlen(name));

	return e && !e->is_dir ? node_file(e) : NULL;
}

/* What a look-up in the root shows, or NULL. */
static struct node_entry *find(struct fixture *f, int i, const char *name)
{
	return find_in(f, i, pool_node_root(node(f, i)), name);
}

/* Is anything left of the name, hidden things included? */
static bool known(struct fixture *f, int i, const char *name)
{
	return pool_tree_lookup(pool_node_tree(node(f, i)), name,
				strlen(name)) != NULL;
}

static struct node_object *create_in(struct fixture *f, int i,
				     struct node_dirent *dir,
				     const char *name, uint64_t hint)
{
	static const struct node_attr attr = { .mode = 0640, .uid = 1000,
					       .gid = 100,
					       .mtime_ns = 1700000000 };
	struct node_object *o = NULL;

	assert_int_equal(0, pool_node_create(node(f, i), dir, name,
					     strlen(name), &attr, hint, &o));
	assert_int_equal(NODE_WRITING, o->state);
	pool_node_writer_opened(node(f, i), o);
	return o;
}

static void fill(uint8_t *buf, size_t len, uint32_t seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		buf[i] = (uint8_t)((seed + i) * 2654435761u >> 13);
}

static void write_bytes(struct fixture *f, int i, struct node_object *o,
			uint64_t len, uint32_t seed)
{
	uint8_t *buf = malloc(len + 1);
	int fd = pool_store_fd(pool_node_store(node(f, i)), o->id, O_RDWR);

	assert_non_null(buf);
	assert_true(fd >= 0);
	fill(buf, len, seed);
	assert_int_equal(len, pwrite(fd, buf, len, 0));
	close(fd);
	free(buf);
}

static void close_whole(struct fixture *f, int i, struct node_object *o)
{
	pool_node_writer_flushed(node(f, i), o);
	pool_node_writer_closed(node(f, i), o);
}

/* create, write, flush, close: on its way to being sealed */
static void put_in(struct fixture *f, int i, struct node_dirent *dir,
		   const char *name, uint64_t len, uint32_t seed)
{
	struct node_object *o = create_in(f, i, dir, name, 0);

	write_bytes(f, i, o, len, seed);
	close_whole(f, i, o);
}

static void put(struct fixture *f, int i, const char *name, uint64_t len,
		uint32_t seed)
{
	put_in(f, i, pool_node_root(node(f, i)), name, len, seed);
}

static bool is_published(struct fixture *f, int i, const char *name)
{
	struct node_entry *e = find(f, i, name);

	return e && !e->own && e->gen;
}

static bool is_pending(struct fixture *f, int i, const char *name)
{
	struct node_entry *e = find(f, i, name);

	return e && e->own && e->own->state == NODE_PENDING;
}

static void publish(struct fixture *f, int i, const char *name, uint64_t len,
		    uint32_t seed)
{
	put(f, i, name, len, seed);
	run_until(f, is_published(f, i, name));
}

static void assert_bytes(struct fixture *f, int i,
			 const struct node_object *o, uint64_t len,
			 uint32_t seed)
{
	int fd = node_object_open(node(f, i), o, O_RDONLY);
	uint8_t *want = malloc(len + 1), *got = malloc(len + 1);

	assert_true(fd >= 0);
	assert_int_equal(len, o->size);
	fill(want, len, seed);
	assert_int_equal(len, pread(fd, got, len + 1, 0));
	assert_memory_equal(want, got, len);
	free(want);
	free(got);
	close(fd);
}

static void assert_info(struct fixture *f, int i, const char *name,
			const char *key, const char *value)
{
	char buf[128];
	int len = pool_node_info(node(f, i), &find(f, i, name)->e, key, buf,
				 sizeof(buf));

	assert_int_equal(strlen(value), len);
	assert_string_equal(value, buf);
}

#define assert_count(n, f, i, counter) \
	assert_int_equal(n, pool_counter_value(&node(f, i)->c.counter))

/* ---- wants ---- */

struct test_want {
	struct node_want w;
	struct node_object *obj;
	int status;
	bool done;
	bool use; /* as an OPEN does, at once */
};

static void on_want(struct node_want *w, struct node_object *obj, int status)
{
	struct test_want *t = pool_container_of(w, struct test_want, w);

	assert_false(t->done);
	t->done = true;
	t->obj = obj;
	t->status = status;
	if (obj && t->use)
		obj->users++;
}

static int want_start(struct fixture *f, int i, const char *name,
		      struct test_want *t)
{
	struct node_entry *e = find(f, i, name);

	memset(t, 0, sizeof(*t));
	assert_non_null(e);
	return pool_node_want_start(node(f, i), e, &t->w, &t->obj, on_want);
}

/* Returns 0 and a ref, or -errno. */
static int want(struct fixture *f, int i, const char *name,
		struct node_object **ret_obj)
{
	struct test_want t;
	int rc = want_start(f, i, name, &t);

	if (rc == 0) {
		run_until(f, t.done);
		rc = t.status;
	}
	*ret_obj = t.obj;
	return rc < 0 ? rc : 0;
}

static void assert_readable(struct fixture *f, int i, const char *name,
			    uint64_t len, uint32_t seed)
{
	struct node_object *o;

	assert_int_equal(0, want(f, i, name, &o));
	assert_int_equal(NODE_HELD, o->state);
	assert_bytes(f, i, o, len, seed);
	node_object_unref(node(f, i), o);
}

/* One byte of the file becomes another, as a bad DIMM would do it. */
static void damage(struct fixture *f, int i, const struct node_object *o)
{
	struct pool_store *s = pool_node_store(node(f, i));
	int fd = pool_store_fd(s, o->id, O_RDONLY);
	off_t at;
	uint8_t b;

	assert_true(fd >= 0);
	assert_int_equal(0, fchmod(fd, 0600));
	close(fd);
	fd = pool_store_fd(s, o->id, O_RDWR);
	assert_true(fd >= 0);
	for (at = 1000; at < (off_t)o->size; at += NODE_PIECE) {
		assert_int_equal(1, pread(fd, &b, 1, at));
		b ^= 1;
		assert_int_equal(1, pwrite(fd, &b, 1, at));
	}
	close(fd);
}

/* ---- without a master ---- */

static void a_file_is_sealed_and_waits_for_a_master(void **state)
{
	struct fixture *f = *state;
	struct node_object *o, *again = NULL;
	struct node_attr attr = { .mode = 0600 };
	struct node_entry *e;
	struct stat st;
	int fd;

	start_node(f, 0);
	assert_null(find(f, 0, "k"));
	o = create_in(f, 0, pool_node_root(node(f, 0)), "k", 0);
	e = find(f, 0, "k");
	assert_ptr_equal(o, e->own);
	assert_int_equal(-EEXIST,
			 pool_node_create(node(f, 0),
					  pool_node_root(node(f, 0)), "k", 1,
					  &attr, 0, &again));
	assert_info(f, 0, "k", "user.kvpool.state", "writing");
	write_bytes(f, 0, o, 100000, 1);
	close_whole(f, 0, o);
	assert_int_equal(NODE_SEALING, o->state);
	run_until(f, o->state == NODE_PENDING);
	assert_info(f, 0, "k", "user.kvpool.state", "pending");
	assert_bytes(f, 0, o, 100000, 1);
	assert_int_equal(0640, pool_node_attr(&e->e)->mode);
	assert_int_equal(1000, pool_node_attr(&e->e)->uid);
	assert_int_equal(0, e->gen);
	assert_false(pool_node_published(e));
	assert_true(pool_node_visible(&e->e));
	fd = pool_store_fd(pool_node_store(node(f, 0)), o->id, O_RDONLY);
	assert_int_equal(0, fstat(fd, &st));
	close(fd);
	assert_int_equal(0400, st.st_mode & 0777);
	run_for(f, 60);
	assert_true(is_pending(f, 0, "k"));
	assert_count(0, f, 0, published);
}

static void a_file_nobody_flushed_is_not_sealed(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	start_node(f, 0);
	o = create_in(f, 0, pool_node_root(node(f, 0)), "k", 0);
	write_bytes(f, 0, o, 1000, 1);
	pool_node_writer_closed(node(f, 0), o);
	run_for(f, 60);
	assert_int_equal(NODE_WRITING, o->state);
	/* Opened and closed once more, this time with a flush. */
	assert_int_equal(0, pool_node_unseal(node(f, 0), o));
	pool_node_writer_opened(node(f, 0), o);
	close_whole(f, 0, o);
	run_until(f, is_pending(f, 0, "k"));
}

static void a_file_is_sealed_when_its_last_writer_is_gone(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	start_node(f, 0);
	o = create_in(f, 0, pool_node_root(node(f, 0)), "k", 0);
	pool_node_writer_opened(node(f, 0), o);
	write_bytes(f, 0, o, 1000, 1);
	close_whole(f, 0, o);
	run_for(f, 40);
	assert_int_equal(NODE_WRITING, o->state);
	close_whole(f, 0, o);
	run_until(f, is_pending(f, 0, "k"));
}

/* A new file, like others before it of 100 KiB. */
static struct node_object *create_reserved(struct fixture *f)
{
	struct node_object *o;
	int i;

	/* The first of a size only announces it. */
	put(f, 0, "k0", 100 * KIB, 0);
	for (i = 0; i < 100; i++) {
		char name[16];

		snprintf(name, sizeof(name), "k%d", i + 1);
		o = create_in(f, 0, pool_node_root(node(f, 0)), name,
			      100 * KIB);
		if (!o->w->served)
			break;
		write_bytes(f, 0, o, 100 * KIB, (uint32_t)i);
		close_whole(f, 0, o);
		run_for(f, 20);
	}
	assert_false(o->w->served);
	assert_true(o->w->reserved >= 100 * KIB);
	return o;
}

static void a_file_that_outgrew_is_learnt_from_though_it_goes(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	f->opts.reserve = true;
	start_node(f, 0);
	o = node_object_ref(create_reserved(f));
	write_bytes(f, 0, o, 700 * KIB, 1); /* as far as there was room */
	assert_int_equal(0, pool_node_unlink(node(f, 0), o->entry));
	pool_node_writer_closed(node(f, 0), o);
	node_object_unref(node(f, 0), o);
	assert_true(node_learn_predict(node(f, 0), pool_node_root(node(f, 0)))
		    >= 700 * KIB);
}

static void a_temporary_that_outgrew_goes_when_it_is_closed(void **state)
{
	struct fixture *f = *state;
	struct pool_file file;
	struct pool_space sp;
	struct node_object *o;

	f->opts.reserve = true;
	start_node(f, 0);
	need_own_tmpfs(f, 0);
	o = create_reserved(f);
	assert_int_equal(0, pool_node_rename(node(f, 0), &o->entry->e,
					     pool_node_root(node(f, 0)),
					     "k.tmp", 5, false,
					     &(struct pool_entry *){ NULL }));
	o->w->renamed = false; /* as if it had been made there */
	write_bytes(f, 0, o, 700 * KIB, 1);
	/* Meanwhile others take what is left, as a write would find it: but no
	 * worker does that is making files ready. */
	run_until(f, !pool_store_busy(pool_node_store(node(f, 0))));
	pool_store_space(pool_node_store(node(f, 0)), &sp);
	assert_int_equal(0, pool_store_take(pool_node_store(node(f, 0)), 0,
					    &file));
	assert_int_equal(0, fallocate(file.fd, 0, 0, (off_t)(sp.reach + MIB)));
	close_whole(f, 0, o);
	assert_false(known(f, 0, "k.tmp"));
	assert_count(1, f, 0, outgrown);
	assert_count(1, f, 0, poisoned);
	close(file.fd);
}

/* One byte far beyond the store, which the daemon does not see. */
static void a_file_larger_than_the_store_is_lost_and_holds_nothing_up(
	void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	int fd;

	f->opts.reserve = true;
	start_pool(f, 1);
	o = create_reserved(f);
	fd = pool_store_fd(pool_node_store(node(f, 0)), o->id, O_RDWR);
	assert_int_equal(1, pwrite(fd, "x", 1, 1ll << 40));
	close(fd);
	close_whole(f, 0, o);
	run_until(f, pool_counter_value(&node(f, 0)->c.outgrown) == 1);
	assert_count(1, f, 0, poisoned);
	assert_int_equal(-EFBIG, pool_node_lost(pool_node_root(node(f, 0))));
	assert_true(node_learn_predict(node(f, 0), pool_node_root(node(f, 0)))
		    < MIB);
	publish(f, 0, "next", 1000, 1);
}

static void in_the_headroom_nothing_is_reserved(void **state)
{
	struct fixture *f = *state;
	struct pool_file file;
	struct node_object *o;
	struct pool_space sp;

	f->opts.reserve = true;
	start_node(f, 0);
	need_own_tmpfs(f, 0);
	close_whole(f, 0, create_reserved(f));
	run_until(f, (pool_store_space(pool_node_store(node(f, 0)), &sp),
		      sp.ready > 0));
	assert_int_equal(0, pool_store_take(pool_node_store(node(f, 0)), 0,
					    &file));
	assert_int_equal(0, fallocate(file.fd, 0, 0, STORE_SIZE));
	o = create_in(f, 0, pool_node_root(node(f, 0)), "served", 100 * KIB);
	assert_true(o->w->served);
	pool_node_writer_closed(node(f, 0), o);
	close(file.fd);
}

static void a_reserved_file_waits_for_descriptors_of_its_writer(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	int fd;

	f->opts.reserve = true;
	start_node(f, 0);
	o = create_reserved(f);
	assert_true(pool_counter_value(&node(f, 0)->c.reserved_creates) > 0);
	write_bytes(f, 0, o, 50 * KIB, 7);
	fd = pool_store_fd(pool_node_store(node(f, 0)), o->id, O_RDWR);
	assert_true(fd >= 0);
	close_whole(f, 0, o);
	run_for(f, 60);
	assert_int_equal(NODE_WRITING, o->state);
	assert_int_equal(-EAGAIN, pool_node_unseal(node(f, 0), o));
	assert_true(pool_counter_value(&node(f, 0)->c.seal_retries) > 0);
	close(fd);
	run_until(f, o->state == NODE_PENDING);
	assert_bytes(f, 0, o, 50 * KIB, 7);
}

/* A process that ends at the same moment may not have let go of it. */
static void a_node_that_ends_waits_for_descriptors_of_what_is_closed(
	void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	bool closed = false;
	char name[16];
	int fd;

	f->opts.reserve = true;
	start_pool(f, 1);
	o = create_reserved(f);
	snprintf(name, sizeof(name), "%.*s", o->entry->e.name_len,
		 pool_entry_name(&o->entry->e));
	write_bytes(f, 0, o, 50 * KIB, 7);
	fd = pool_store_fd(pool_node_store(node(f, 0)), o->id, O_RDWR);
	assert_true(fd >= 0);
	close_whole(f, 0, o);
	pool_node_close(node(f, 0), 5000, on_closed, &closed);
	run_for(f, 60);
	assert_false(closed);
	close(fd);
	run_until(f, closed);
	f->m[0].node = NULL;
	pool_metrics_close(f->m[0].metrics);
	assert_non_null(master_map_file(&f->master->map, name,
					strlen(name)));
}

static void a_file_written_again_before_its_publication_is_unsealed(
	void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	start_node(f, 0);
	put(f, 0, "k", 1000, 1);
	o = find(f, 0, "k")->own;
	assert_int_equal(-EAGAIN, pool_node_unseal(node(f, 0), o));
	run_until(f, is_pending(f, 0, "k"));
	assert_int_equal(1, node(f, 0)->nops);
	assert_int_equal(0, pool_node_unseal(node(f, 0), o));
	assert_int_equal(0, node(f, 0)->nops);
	pool_node_writer_opened(node(f, 0), o);
	assert_true(pool_node_writer_fd(node(f, 0), o) >= 0);
	assert_int_equal(3, pwrite(pool_node_writer_fd(node(f, 0), o), "abc",
				   3, 1000));
	close_whole(f, 0, o);
	run_until(f, is_pending(f, 0, "k"));
	assert_int_equal(1003, o->size);
	start_master(f);
	run_until(f, is_published(f, 0, "k"));
	assert_count(1, f, 0, published);
}

static void a_file_lost_after_its_close_does_not_show_the_one_before(
	void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	struct node_entry *e;

	start_pool(f, 2);
	publish(f, 0, "k", 1000, 1);
	run_until(f, find(f, 1, "k"));
	e = find(f, 0, "k");
	assert_int_equal(1, pool_node_rewrite_start(node(f, 0), e, 0, NULL,
						    NULL));
	o = e->own;
	pool_node_writer_opened(node(f, 0), o);
	write_bytes(f, 0, o, 300000, 2);
	pool_store_remove(pool_node_store(node(f, 0)), o->id);
	close_whole(f, 0, o);
	run_until(f, !find(f, 0, "k"));
	run_until(f, !known(f, 0, "k") && !known(f, 1, "k"));
	/* The next fsync tells of it. */
	assert_int_equal(-ENOENT, pool_node_lost(pool_node_root(node(f, 0))));
	assert_int_equal(0, pool_node_lost(pool_node_root(node(f, 0))));
}

static int rename_to(struct fixture *f, int i, const char *from,
		     const char *to, bool noreplace)
{
	struct pool_entry *e = NULL;

	return pool_node_rename(node(f, i), &find(f, i, from)->e,
				pool_node_root(node(f, i)), to, strlen(to),
				noreplace, &e);
}

static void a_temporary_name_waits_for_its_rename(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *to = NULL;

	start_node(f, 0);
	put(f, 0, "k.tmp", 1000, 1);
	run_for(f, 60);
	assert_int_equal(NODE_WRITING, find(f, 0, "k.tmp")->own->state);
	assert_int_equal(0, pool_node_rename(node(f, 0),
					     &find(f, 0, "k.tmp")->e,
					     pool_node_root(node(f, 0)), "k",
					     1, false, &to));
	assert_ptr_equal(&find(f, 0, "k")->e, to);
	assert_null(find(f, 0, "k.tmp"));
	run_until(f, is_pending(f, 0, "k"));
}

static void nobody_who_asks_waits_for_a_file_that_goes(void **state)
{
	static struct pool_shortlock names; /* until the fixture ends */
	struct fixture *f = *state;

	pool_shortlock_init(&names);
	f->opts.names = &names;
	start_node(f, 0);
	put(f, 0, "k", 1000, 1);
	run_until(f, is_pending(f, 0, "k"));
	put(f, 0, "k.tmp", 1000, 2);
	assert_int_equal(0, rename_to(f, 0, "k.tmp", "k", false));
	assert_int_equal(1, f->m[0].told.object_gone);
	assert_int_equal(0, f->m[0].told.kept_waiting);
	assert_null(find(f, 0, "k.tmp"));
	assert_int_equal(0, pool_node_unlink(node(f, 0), find(f, 0, "k")));
	run_until(f, f->m[0].told.object_gone == 2);
	assert_int_equal(0, f->m[0].told.kept_waiting);
}

static void a_poisoned_file_keeps_its_name_and_goes_with_its_writer(
	void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	struct pool_entry *to = NULL;

	start_node(f, 0);
	o = create_in(f, 0, pool_node_root(node(f, 0)), "k.tmp", 0);
	write_bytes(f, 0, o, 1000, 1);
	pool_node_poison(node(f, 0), o, -ENOSPC);
	pool_node_poison(node(f, 0), o, -EIO); /* the first counts */
	assert_int_equal(-ENOSPC,
			 pool_node_rename(node(f, 0), &find(f, 0, "k.tmp")->e,
					  pool_node_root(node(f, 0)), "k", 1,
					  false, &to));
	assert_null(to);
	assert_null(find(f, 0, "k"));
	assert_false(known(f, 0, "k"));
	assert_ptr_equal(o, find(f, 0, "k.tmp")->own);
	close_whole(f, 0, o);
	assert_null(find(f, 0, "k.tmp"));
	assert_count(1, f, 0, poisoned);
	assert_int_equal(1, f->m[0].told.object_gone);
}

static void unlink_before_and_during_sealing_leaves_nothing(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	struct pool_space sp;

	start_node(f, 0);
	o = create_in(f, 0, pool_node_root(node(f, 0)), "open", 0);
	write_bytes(f, 0, o, MIB, 1);
	node_object_ref(o);
	assert_int_equal(0, pool_node_unlink(node(f, 0), find(f, 0, "open")));
	assert_null(find(f, 0, "open"));
	assert_int_equal(NODE_DROPPED, o->state);
	pool_node_writer_closed(node(f, 0), o);
	node_object_unref(node(f, 0), o);

	put(f, 0, "sealing", MIB, 2);
	assert_int_equal(NODE_SEALING, find(f, 0, "sealing")->own->state);
	assert_int_equal(0, pool_node_unlink(node(f, 0),
					     find(f, 0, "sealing")));
	assert_null(find(f, 0, "sealing"));

	put(f, 0, "pending", MIB, 3);
	run_until(f, is_pending(f, 0, "pending"));
	assert_int_equal(0, pool_node_unlink(node(f, 0),
					     find(f, 0, "pending")));
	assert_null(find(f, 0, "pending"));
	run_until(f, f->m[0].told.object_gone == 3);
	assert_int_equal(0, node(f, 0)->nops);
	pool_store_space(pool_node_store(node(f, 0)), &sp);
	need_own_tmpfs(f, 0);
	run_until(f, (pool_store_space(pool_node_store(node(f, 0)), &sp),
		      sp.used < MIB));
}

static void a_restart_finds_what_was_sealed_and_drops_the_rest(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	start_node(f, 0);
	put(f, 0, "whole", 5000, 1);
	run_until(f, is_pending(f, 0, "whole"));
	o = create_in(f, 0, pool_node_root(node(f, 0)), "partial", 0);
	write_bytes(f, 0, o, 5000, 2);
	put(f, 0, "other.tmp", 5000, 3);
	stop_node(f, 0);

	start_node(f, 0);
	assert_true(is_pending(f, 0, "whole"));
	assert_bytes(f, 0, find(f, 0, "whole")->own, 5000, 1);
	assert_true(find(f, 0, "whole")->own->given);
	assert_int_equal(0640, pool_node_attr(&find(f, 0, "whole")->e)->mode);
	assert_null(find(f, 0, "partial"));
	assert_null(find(f, 0, "other.tmp"));

	start_master(f);
	run_until(f, is_published(f, 0, "whole"));
	assert_readable(f, 0, "whole", 5000, 1);
}

/* ---- with a master ---- */

static void a_publication_gets_a_generation(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;
	char gen[32];

	start_pool(f, 1);
	publish(f, 0, "k", 100000, 1);
	e = find(f, 0, "k");
	assert_int_equal(1, f->m[0].told.published);
	assert_int_equal(NODE_HELD, e->obj->state);
	assert_true(e->obj->gen == e->gen && e->gen != 0);
	assert_int_equal(100000, e->size);
	assert_null(e->obj->w);
	assert_true(e->obj->counted);
	assert_info(f, 0, "k", "user.kvpool.state", "held");
	assert_info(f, 0, "k", "user.kvpool.nodes", "node0");
	assert_true(pool_node_info(node(f, 0), &e->e,
				   "user.kvpool.generation", gen,
				   sizeof(gen)) > 0);
	assert_string_equal("1.", (gen[2] = '\0', gen));
	assert_readable(f, 0, "k", 100000, 1);
}

static void an_empty_file_is_published_too(void **state)
{
	struct fixture *f = *state;

	start_pool(f, 2);
	publish(f, 0, "k", 0, 1);
	run_until(f, find(f, 1, "k"));
	assert_readable(f, 0, "k", 0, 1);
	assert_readable(f, 1, "k", 0, 1);
}

/* Who may choose names cannot compute their hashes. */
static void changes_are_found_by_a_hash_with_a_seed(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;

	start_pool(f, 1);
	publish(f, 0, "k", 1000, 1);
	e = find(f, 0, "k");
	assert_int_equal(0, pool_node_setattr(node(f, 0), &e->e, POOL_SET_MODE,
					      pool_node_attr(&e->e), NULL));
	assert_non_null(pool_hash_first(
		&node(f, 0)->changes,
		(uint32_t)XXH3_64bits_withSeed("k", 1, pool_hash_seed())));
}

static void what_is_published_survives_a_restart(void **state)
{
	struct fixture *f = *state;
	struct pool_xattrs *x = NULL;
	struct node_entry *e;
	uint64_t gen;
	size_t len = 0;

	start_pool(f, 1);
	publish(f, 0, "k", 100000, 1);
	e = find(f, 0, "k");
	assert_int_equal(0, pool_xattrs_set(&x, "user.a", "b", 1, 0));
	assert_int_equal(0, pool_node_setattr(node(f, 0), &e->e,
					      POOL_SET_XATTRS,
					      pool_node_attr(&e->e), x));
	run_until(f, pool_list_empty(&node(f, 0)->ops_sent) &&
			     pool_list_empty(&node(f, 0)->ops_waiting));
	publish(f, 0, "k2", 3000, 2);
	gen = e->gen;
	stop_node(f, 0);
	stop_master(f);

	start_node(f, 0);
	e = find(f, 0, "k");
	assert_non_null(e);
	assert_int_equal(gen, e->gen);
	assert_int_equal(NODE_HELD, e->obj->state);
	assert_false(e->obj->verified);
	assert_int_equal(0640, e->attr.mode);
	assert_readable(f, 0, "k", 100000, 1);
	assert_true(e->obj->verified);
	assert_non_null(find(f, 0, "k2"));

	start_master(f);
	run_until(f, is_up(f, 0));
	run_for(f, 60);
	e = find(f, 0, "k");
	assert_non_null(e);
	assert_int_equal(gen, e->gen);
	assert_non_null(pool_xattrs_get(e->xattrs, "user.a", &len));
}

static void attributes_set_elsewhere_survive_a_restart(void **state)
{
	struct fixture *f = *state;
	struct node_attr attr = { .mode = 0604 };

	start_pool(f, 2);
	publish(f, 0, "k", 1000, 1);
	run_until(f, find(f, 1, "k"));
	assert_int_equal(0, pool_node_setattr(node(f, 1), &find(f, 1, "k")->e,
					      POOL_SET_MODE, &attr, NULL));
	run_until(f, find(f, 0, "k")->attr.mode == 0604);
	stop_node(f, 0);
	stop_node(f, 1);
	stop_master(f);
	start_node(f, 0);
	assert_int_equal(0604, find(f, 0, "k")->attr.mode);
}

static void damage_found_after_a_restart_is_never_served(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	int rc;

	start_pool(f, 1);
	publish(f, 0, "k", 100000, 1);
	damage(f, 0, find(f, 0, "k")->obj);
	stop_node(f, 0);
	start_node(f, 0);
	rc = want(f, 0, "k", &o);
	/* The master may have taken the name away by then. */
	assert_true(rc == -ENOENT || rc == -ESTALE);
	assert_null(o);
	assert_null(find(f, 0, "k") ? find(f, 0, "k")->obj : NULL);
	assert_count(1, f, 0, bad_sums);
}

static void the_same_content_is_no_new_generation(void **state)
{
	struct fixture *f = *state;
	uint64_t gen, id;

	start_pool(f, 1);
	publish(f, 0, "k", 100000, 1);
	gen = find(f, 0, "k")->gen;
	id = find(f, 0, "k")->obj->id;
	put(f, 0, "k", 100000, 1);
	assert_true(id != find(f, 0, "k")->own->id);
	run_until(f, is_published(f, 0, "k"));
	assert_count(1, f, 0, same_content);
	assert_count(1, f, 0, published);
	assert_int_equal(gen, find(f, 0, "k")->gen);
	assert_int_equal(id, find(f, 0, "k")->obj->id);
	assert_int_equal(1, f->m[0].told.object_gone);

	publish(f, 0, "k", 100000, 2);
	assert_count(2, f, 0, published);
	assert_true(find(f, 0, "k")->gen > gen);
	assert_readable(f, 0, "k", 100000, 2);
}

/* The one who holds them has gone, and the master has not missed it yet. */
static void the_same_content_is_not_left_to_a_node_that_has_gone(void **state)
{
	struct fixture *f = *state;
	uint64_t gen;

	start_pool(f, 2);
	publish(f, 0, "read", 100000, 1);
	publish(f, 0, "unread", 100000, 2);
	run_until(f, find(f, 1, "read") && find(f, 1, "unread"));
	assert_readable(f, 1, "read", 100000, 1); /* a cached copy is here */
	gen = find(f, 1, "read")->gen;
	stop_node(f, 0);
	put(f, 1, "read", 100000, 1);
	put(f, 1, "unread", 100000, 2);
	run_until(f, is_published(f, 1, "read") &&
			     is_published(f, 1, "unread"));
	assert_int_equal(gen, find(f, 1, "read")->gen);
	assert_count(2, f, 1, same_content);
	run_for(f, 10 * HEARTBEAT_MS);
	assert_readable(f, 1, "read", 100000, 1);
	assert_readable(f, 1, "unread", 100000, 2);
	assert_true(find(f, 1, "read")->obj->counted);
}

/* The same of a client: it keeps them until a store that is there has them. */
static void a_clients_same_content_is_not_left_to_it_either(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;

	start_pool(f, 1);
	f->opts.store_size = 0;
	f->opts.buffer_size = 16 * MIB;
	start_node(f, 1);
	run_until(f, is_up(f, 1));
	publish(f, 0, "k", 100000, 1);
	run_until(f, find(f, 1, "k"));
	stop_node(f, 0);
	put(f, 1, "k", 100000, 1);
	run_until(f, is_published(f, 1, "k"));
	assert_count(1, f, 1, same_content);
	run_for(f, 10 * HEARTBEAT_MS);
	e = find(f, 1, "k");
	assert_non_null(e);
	assert_non_null(e->obj);
	assert_non_null(e->obj->w); /* no store has it */
	f->opts.store_size = STORE_SIZE;
	start_node(f, 2);
	run_until(f, find(f, 2, "k") && find(f, 2, "k")->obj &&
			     find(f, 2, "k")->obj->counted && !e->obj->w);
	assert_readable(f, 2, "k", 100000, 1);
}

static void on_done(void *arg, int status)
{
	*(int *)arg = status;
}

static void a_rewrite_begins_empty_or_with_what_is_to_be_kept(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;
	uint64_t gen;
	int status = 1;

	start_pool(f, 1);
	publish(f, 0, "k", 100000, 1);
	e = find(f, 0, "k");
	gen = e->gen;
	assert_int_equal(0, pool_node_rewrite_start(node(f, 0), e, 60000,
						    on_done, &status));
	run_until(f, status != 1);
	assert_int_equal(0, status);
	assert_non_null(e->own);
	assert_true(e->own->w->pristine_copy);
	pool_node_writer_opened(node(f, 0), e->own);
	close_whole(f, 0, e->own);
	run_until(f, is_published(f, 0, "k") && e->gen != gen);
	assert_readable(f, 0, "k", 60000, 1);

	assert_int_equal(1, pool_node_rewrite_start(node(f, 0), e, 0, on_done,
						    &status));
	assert_false(e->own->w->pristine_copy);
	pool_node_writer_opened(node(f, 0), e->own);
	write_bytes(f, 0, e->own, 10, 5);
	close_whole(f, 0, e->own);
	run_until(f, is_published(f, 0, "k"));
	assert_readable(f, 0, "k", 10, 5);
	/* What nobody opened goes by itself; here its mount unlinks it. */
	assert_int_equal(0, pool_node_unlink(node(f, 0), e));
	assert_int_equal(-ENOENT, pool_node_rewrite_start(node(f, 0), e, 0,
							  on_done, &status));
}

static void a_held_object_moves_without_a_copy(void **state)
{
	struct fixture *f = *state;
	uint64_t id;

	start_pool(f, 2);
	publish(f, 0, "old", 100000, 1);
	run_until(f, find(f, 1, "old"));
	id = find(f, 0, "old")->obj->id;
	assert_int_equal(0, rename_to(f, 0, "old", "new", false));
	assert_null(find(f, 0, "old"));
	assert_true(is_pending(f, 0, "new"));
	run_until(f, is_published(f, 0, "new"));
	assert_int_equal(id, find(f, 0, "new")->obj->id);
	assert_readable(f, 0, "new", 100000, 1);
	run_until(f, find(f, 1, "new") && !find(f, 1, "old"));
	run_until(f, !known(f, 0, "old"));
	assert_readable(f, 1, "new", 100000, 1);
}

static void a_cached_copy_that_was_renamed_is_found_after_a_restart(void **state)
{
	struct fixture *f = *state;

	start_pool(f, 2);
	publish(f, 0, "old", 300000, 1);
	run_until(f, find(f, 1, "old"));
	assert_readable(f, 1, "old", 300000, 1);
	assert_int_equal(0, rename_to(f, 1, "old", "new", false));
	run_until(f, is_published(f, 1, "new"));
	stop_node(f, 1);
	start_node(f, 1);
	assert_non_null(find(f, 1, "new"));
	assert_readable(f, 1, "new", 300000, 1);
}

/* Who has the old name open, or borrowed it, reads on. */
static void what_was_published_is_not_written_again_under_a_new_name(
	void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;
	uint64_t id;

	start_pool(f, 1);
	publish(f, 0, "old", 300000, 1);
	stop_master(f);
	assert_int_equal(0, rename_to(f, 0, "old", "new", false));
	e = find(f, 0, "new");
	id = e->own->id;
	assert_int_equal(-EROFS, pool_node_unseal(node(f, 0), e->own));
	assert_int_equal(NODE_PENDING, e->own->state);
	assert_int_equal(0, pool_node_own_replace(node(f, 0), e));
	assert_int_equal(NODE_WRITING, e->own->state);
	assert_int_not_equal(id, e->own->id);
	assert_int_equal(0640, e->own->w->attr.mode);
	pool_node_writer_opened(node(f, 0), e->own);
	write_bytes(f, 0, e->own, 1000, 2);
	close_whole(f, 0, e->own);
	start_master(f);
	run_until(f, is_published(f, 0, "new"));
	assert_readable(f, 0, "new", 1000, 2);
	assert_null(find(f, 0, "old"));
}

static void what_is_not_here_is_not_moved(void **state)
{
	struct fixture *f = *state;

	start_pool(f, 2);
	publish(f, 0, "k", 1000, 1);
	run_until(f, find(f, 1, "k"));
	assert_int_equal(-EXDEV, rename_to(f, 1, "k", "new", false));
	assert_non_null(find(f, 1, "k"));
	assert_false(known(f, 1, "new"));
}

static void a_rename_replaces_what_is_there_unless_told_not_to(void **state)
{
	struct fixture *f = *state;
	uint64_t gen, id;

	start_pool(f, 2);
	publish(f, 0, "k", 1000, 1);
	gen = find(f, 0, "k")->gen;
	id = find(f, 0, "k")->obj->id;
	put(f, 0, "k.tmp", 2000, 2);
	assert_int_equal(-EEXIST, rename_to(f, 0, "k.tmp", "k", true));
	assert_non_null(find(f, 0, "k.tmp"));
	assert_int_equal(0, rename_to(f, 0, "k.tmp", "k", false));
	assert_null(find(f, 0, "k.tmp"));
	assert_true(find(f, 0, "k")->own != NULL);
	run_until(f, is_published(f, 0, "k"));
	assert_true(find(f, 0, "k")->gen > gen);
	assert_readable(f, 0, "k", 2000, 2);
	assert_int_equal(-ENOENT, pool_store_fd(pool_node_store(node(f, 0)),
						id, O_RDONLY));
	run_until(f, find(f, 1, "k") && find(f, 1, "k")->size == 2000);
	assert_readable(f, 1, "k", 2000, 2);

	/* A held one over a held one. */
	publish(f, 0, "other", 3000, 3);
	assert_int_equal(0, rename_to(f, 0, "other", "k", false));
	run_until(f, is_published(f, 0, "k"));
	assert_readable(f, 0, "k", 3000, 3);
	run_until(f, find(f, 1, "k") && find(f, 1, "k")->size == 3000);
	run_until(f, !known(f, 1, "other"));
}

static void a_pending_file_is_published_under_its_last_name(void **state)
{
	struct fixture *f = *state;

	start_node(f, 0);
	start_node(f, 1);
	put(f, 0, "a", 1000, 1);
	run_until(f, is_pending(f, 0, "a"));
	assert_int_equal(0, rename_to(f, 0, "a", "b", false));
	assert_true(is_pending(f, 0, "b"));
	assert_null(find(f, 0, "a"));
	start_master(f);
	run_until(f, is_published(f, 0, "b") && find(f, 1, "b"));
	assert_null(find(f, 1, "a"));
	assert_count(1, f, 0, published);
	assert_readable(f, 1, "b", 1000, 1);
}

static void an_unlinked_name_is_hidden_at_once_and_stays_away(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	start_pool(f, 2);
	publish(f, 0, "k", 100000, 1);
	run_until(f, find(f, 1, "k"));
	o = node_object_ref(find(f, 0, "k")->obj);
	assert_int_equal(0, pool_node_unlink(node(f, 0), find(f, 0, "k")));
	assert_null(find(f, 0, "k"));
	assert_int_equal(NODE_DROPPED, o->state);
	node_object_unref(node(f, 0), o);
	run_until(f, !known(f, 0, "k") && !known(f, 1, "k"));
	assert_int_equal(1, f->m[1].told.changed);
	stop_node(f, 0);
	start_node(f, 0);
	run_until(f, is_up(f, 0));
	assert_null(find(f, 0, "k"));
	assert_null(find(f, 1, "k"));
	/* The name may be used again. */
	publish(f, 1, "k", 10, 2);
	run_until(f, find(f, 0, "k"));
}

static bool all_answered(struct fixture *f, int i)
{
	return pool_list_empty(&node(f, i)->ops_sent) &&
	       pool_list_empty(&node(f, i)->ops_waiting);
}

static void feed_names(struct fixture *f, int i, char *name, uint64_t gen)
{
	Kvpool__Feed feed = KVPOOL__FEED__INIT;
	Kvpool__Meta meta = KVPOOL__META__INIT, *list = &meta;
	uint8_t sum[16] = { 1 };

	meta.path.data = (uint8_t *)name;
	meta.path.len = strlen(name);
	meta.sum.data = sum;
	meta.sum.len = sizeof(sum);
	meta.gen = gen;
	feed.entries = &list;
	feed.n_entries = 1;
	feed.upto_seq = node(f, i)->feed_seq;
	node_feed_apply(node(f, i), &feed);
}

/* What a mount hears of names that are gone, in this order. */
static void feed_deleted(struct fixture *f, int i, const char *path,
			 bool is_dir)
{
	Kvpool__Feed feed = KVPOOL__FEED__INIT;
	Kvpool__Meta meta = KVPOOL__META__INIT, *list = &meta;

	meta.path.data = (uint8_t *)(uintptr_t)path;
	meta.path.len = strlen(path);
	meta.is_dir = is_dir;
	meta.deleted = true;
	feed.entries = &list;
	feed.n_entries = 1;
	feed.upto_seq = node(f, i)->feed_seq;
	assert_int_equal(0, node_feed_apply(node(f, i), &feed));
}

/* It is sent, and not answered. (Where the machine stood still, one turn may bring
 * both: then it is put again.) */
static struct node_entry *put_on_its_way(struct fixture *f,
					 struct node_dirent *d, const char *k)
{
	struct node_entry *e;

	for (;;) {
		put_in(f, 0, d, k, 1000, 1);
		e = find_in(f, 0, d, k);
		run_until(f, !e->own || (e->own->state == NODE_PENDING &&
					 node_op_sent(node(f, 0), e->own)));
		if (e->own)
			return e;
		assert_int_equal(0, pool_node_unlink(node(f, 0), e));
		run_until(f, all_answered(f, 0) && !find_in(f, 0, d, k));
	}
}

static void unlinking_what_the_master_is_about_to_name_removes_it(
	void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;
	char name[] = "k";

	start_pool(f, 2);
	e = put_on_its_way(f, pool_node_root(node(f, 0)), "k");
	assert_int_equal(-EAGAIN, pool_node_unseal(node(f, 0), e->own));
	assert_int_equal(0, pool_node_unlink(node(f, 0), e));
	assert_null(find(f, 0, "k"));
	/* The feed may name it before the unlink is answered. */
	feed_names(f, 0, name, 1ull << POOL_GEN_SEQ_BITS | 1);
	assert_null(find(f, 0, "k"));
	assert_int_equal(0, f->m[0].told.appeared);
	run_until(f, pool_list_empty(&node(f, 0)->ops_sent) &&
			     pool_list_empty(&node(f, 0)->ops_waiting) &&
			     (assert_null(find(f, 0, "k")), true));
	run_until(f, !known(f, 0, "k"));
	/* Nor is it anywhere after what comes later has been seen. */
	publish(f, 0, "later", 10, 2);
	run_until(f, find(f, 1, "later"));
	assert_null(find(f, 1, "k"));
}

/* Each time while the master is about to name it, and before it has answered the
 * time before. */
static void what_is_unlinked_again_and_again_does_not_come_back(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;

	start_pool(f, 1);
	for (unsigned int i = 0; i < 100; i++) {
		put(f, 0, "k", 100, i);
		e = find(f, 0, "k");
		/* On a busy machine one turn may bring the answer, too. */
		run_until(f, !e->own || (e->own->state == NODE_PENDING &&
					 node_op_sent(node(f, 0), e->own)));
		assert_int_equal(0, pool_node_unlink(node(f, 0), e));
		if (i % 3 == 2)
			run_until(f, all_answered(f, 0) ||
					     (assert_null(find(f, 0, "k")),
					      false));
		assert_null(find(f, 0, "k"));
	}
	run_until(f, !known(f, 0, "k"));
}

/* The master may have it, and names it until it has looked through what a node
 * that came back still has. */
static void unlinking_what_was_sent_before_a_cut_is_told_the_master(
	void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;
	char name[] = "k";

	start_pool(f, 2);
	e = put_on_its_way(f, pool_node_root(node(f, 0)), "k");
	stop_master(f);
	run_until(f, !node_link_up(node(f, 0)));
	assert_true(is_pending(f, 0, "k"));
	assert_false(node_op_sent(node(f, 0), e->own));
	assert_int_equal(0, pool_node_unlink(node(f, 0), e));
	assert_false(all_answered(f, 0));
	feed_names(f, 0, name, 1ull << POOL_GEN_SEQ_BITS | 1);
	assert_null(find(f, 0, "k"));
	start_master(f);
	run_until(f, is_up(f, 0) && all_answered(f, 0));
	run_until(f, !known(f, 0, "k"));
}

/* The same of a name that it was renamed from: nothing keeps its directory. */
static void renaming_what_the_master_is_about_to_name_hides_the_old_name(
	void **state)
{
	static const struct node_attr attr = { .mode = 0750 };
	struct fixture *f = *state;
	struct node_dirent *d;
	struct pool_entry *to;
	struct node_entry *e;
	char name[] = "d/k";

	start_pool(f, 2);
	assert_int_equal(0, pool_node_mkdir(node(f, 0),
					    pool_node_root(node(f, 0)), "d",
					    1, &attr, &d));
	e = put_on_its_way(f, d, "k");
	assert_int_equal(0, pool_node_rename(node(f, 0), &e->e,
					     pool_node_root(node(f, 0)), "to",
					     2, false, &to));
	pool_node_tidy(node(f, 0), &e->e);
	/* The feed may name it before the unlink is answered. */
	feed_names(f, 0, name, 1ull << POOL_GEN_SEQ_BITS | 1);
	assert_null(find_in(f, 0, d, "k"));
	assert_int_equal(0, pool_node_rmdir(node(f, 0), d));
	run_until(f, is_published(f, 0, "to") && all_answered(f, 0));
	run_until(f, !known(f, 0, "d") && find(f, 1, "to") &&
			     !known(f, 1, "d"));
	assert_readable(f, 1, "to", 1000, 1);
}

/* The order to copy a new generation may come before the feed says so. */
static void a_copy_that_was_ordered_replaces_what_the_mount_shows(void **state)
{
	struct fixture *f = *state;
	struct pool_xattrs *x = NULL;
	unsigned int i;

	start_pool(f, 2);
	assert_int_equal(0, pool_xattrs_set(&x, "user.kvpool.replicas", "2", 1,
					    0));
	assert_int_equal(0, pool_node_setattr(
				    node(f, 0),
				    &pool_node_root(node(f, 0))->d.e,
				    POOL_SET_XATTRS,
				    &pool_node_root(node(f, 0))->attr, x));
	publish(f, 0, "k", 1000, 1);
	run_until(f, find(f, 1, "k") && find(f, 1, "k")->obj);
	for (i = 1; i <= 8; i++) {
		publish(f, 0, "k", 1000 + i, 1 + i);
		run_until(f, find(f, 1, "k")->gen == find(f, 0, "k")->gen &&
				     find(f, 1, "k")->obj);
		run_for(f, 30); /* the feed has said it, too */
		assert_int_equal(i, f->m[1].told.changed);
	}
	assert_readable(f, 1, "k", 1008, 9);
}

static void the_rule_unlink_node_hides_a_name_here_only(void **state)
{
	struct fixture *f = *state;
	struct pool_xattrs *x = NULL;
	struct node_entry *e;

	start_pool(f, 2);
	assert_int_equal(0, pool_xattrs_set(&x, "user.kvpool.unlink", "node",
					    4, 0));
	assert_int_equal(0, pool_node_setattr(
				    node(f, 1),
				    &pool_node_root(node(f, 1))->d.e,
				    POOL_SET_XATTRS,
				    &pool_node_root(node(f, 1))->attr, x));
	publish(f, 0, "k", 1000, 1);
	run_until(f, find(f, 1, "k"));
	assert_readable(f, 1, "k", 1000, 1);
	assert_int_equal(0, pool_node_unlink(node(f, 1), find(f, 1, "k")));
	assert_null(find(f, 1, "k"));
	run_for(f, 60);
	assert_null(find(f, 1, "k"));
	e = find(f, 0, "k");
	assert_non_null(e);
	assert_readable(f, 0, "k", 1000, 1);
	/* A new generation is another matter. */
	publish(f, 0, "k", 1000, 2);
	run_until(f, find(f, 1, "k"));
}

static void directories_come_and_go_on_both_nodes(void **state)
{
	static const struct node_attr attr = { .mode = 0750 };
	struct fixture *f = *state;
	struct node_dirent *d = NULL, *other;
	struct pool_entry *e;

	start_pool(f, 2);
	assert_int_equal(0, pool_node_mkdir(node(f, 0),
					    pool_node_root(node(f, 0)), "d",
					    1, &attr, &d));
	assert_int_equal(-EEXIST,
			 pool_node_mkdir(node(f, 0),
					 pool_node_root(node(f, 0)), "d", 1,
					 &attr, &other));
	assert_int_equal(-EBUSY, pool_node_rmdir(node(f, 0),
					 pool_node_root(node(f, 0))));
	put_in(f, 0, d, "k", 1000, 1);
	assert_int_equal(-ENOTEMPTY, pool_node_rmdir(node(f, 0), d));
	run_until(f, known(f, 1, "d/k"));
	e = pool_node_lookup(node(f, 1), pool_node_root(node(f, 1)), "d", 1);
	assert_true(e->is_dir);
	assert_int_equal(0750, pool_node_attr(e)->mode);
	assert_int_equal(-ENOTEMPTY, pool_node_rmdir(node(f, 1),
						     node_dir(e)));
	assert_int_equal(0, pool_node_unlink(node(f, 1),
					     find_in(f, 1, node_dir(e), "k")));
	assert_int_equal(0, pool_node_rmdir(node(f, 1), node_dir(e)));
	assert_null(pool_node_lookup(node(f, 1), pool_node_root(node(f, 1)),
				     "d", 1));
	run_until(f, !known(f, 1, "d") && !known(f, 0, "d"));
	assert_int_equal(1, f->m[0].told.dir_gone);
}

/* A name below may have been told to be gone once more, later than its
 * directory was. */
static void a_directory_goes_before_the_names_that_were_in_it(void **state)
{
	static const struct node_attr attr = { .mode = 0750 };
	struct fixture *f = *state;
	struct node_dirent *d, *sub;

	start_pool(f, 2);
	assert_int_equal(0, pool_node_mkdir(node(f, 0),
					    pool_node_root(node(f, 0)), "d",
					    1, &attr, &d));
	assert_int_equal(0, pool_node_mkdir(node(f, 0), d, "sub", 3, &attr,
					    &sub));
	put_in(f, 0, d, "k", 1000, 1);
	put_in(f, 0, sub, "k", 1000, 1);
	run_until(f, known(f, 1, "d/k") && known(f, 1, "d/sub/k"));
	feed_deleted(f, 1, "d", true);
	assert_false(known(f, 1, "d/k"));
	assert_false(known(f, 1, "d"));
	assert_int_equal(2, f->m[1].told.dir_gone);
	feed_deleted(f, 1, "d/k", false);
	feed_deleted(f, 1, "d/sub/k", false);
	feed_deleted(f, 1, "d/sub", true);
	assert_false(known(f, 1, "d"));
}

/* ... but not what is only here: it will make the directory again. */
static void a_directory_with_what_is_being_written_stays(void **state)
{
	static const struct node_attr attr = { .mode = 0750 };
	struct fixture *f = *state;
	struct node_object *o;
	struct node_dirent *d;
	struct pool_entry *e;

	start_pool(f, 2);
	assert_int_equal(0, pool_node_mkdir(node(f, 0),
					    pool_node_root(node(f, 0)), "d",
					    1, &attr, &d));
	run_until(f, known(f, 1, "d"));
	e = pool_node_lookup(node(f, 1), pool_node_root(node(f, 1)), "d", 1);
	o = create_in(f, 1, node_dir(e), "new", 0);
	feed_deleted(f, 1, "d", true);
	assert_ptr_equal(e, pool_node_lookup(node(f, 1),
					     pool_node_root(node(f, 1)), "d",
					     1));
	close_whole(f, 1, o);
	run_until(f, known(f, 0, "d/new"));
}

/* ---- attributes ---- */

static int set_xattr(struct fixture *f, int i, struct pool_entry *e,
		     const char *name, const char *value)
{
	return pool_node_setxattr(node(f, i), e, name, value,
				  value ? strlen(value) : 0, 0);
}

static bool has_xattr(const struct pool_entry *e, const char *name,
		      const char *value)
{
	size_t len;
	const void *v = pool_xattrs_get(pool_node_xattrs(e), name, &len);

	return v && len == strlen(value) && memcmp(v, value, len) == 0;
}

/* What the master says of a name, as of before the changes under way. */
static void feed_older(struct fixture *f, int i, const struct pool_entry *pe,
		       const char *path)
{
	const struct node_entry *e = (const void *)pe;
	Kvpool__Feed feed = KVPOOL__FEED__INIT;
	Kvpool__Meta m = KVPOOL__META__INIT, *list[1] = { &m };
	uint8_t sum[16] = { 0 };

	m.path.data = (uint8_t *)(uintptr_t)path;
	m.path.len = strlen(path);
	m.is_dir = pe->is_dir;
	m.mode = 0700;
	if (!pe->is_dir) {
		m.gen = e->gen;
		m.size = e->size;
		m.sum.data = sum;
		m.sum.len = sizeof(sum);
	}
	feed.entries = list;
	feed.n_entries = 1;
	assert_int_equal(0, node_feed_apply(node(f, i), &feed));
}

static void change_and_feed(struct fixture *f, struct pool_entry *e,
			    const char *path)
{
	struct node_attr attr = { .mode = 0601, .uid = 7, .gid = 8 };
	unsigned int told;

	assert_int_equal(0, set_xattr(f, 0, e, "user.gone", "1"));
	run_until(f, all_answered(f, 0));
	assert_int_equal(0, set_xattr(f, 0, e, "user.a", "1"));
	assert_int_equal(0, pool_node_setattr(node(f, 0), e,
					      POOL_SET_MODE | POOL_SET_UID,
					      &attr, NULL));
	assert_int_equal(0, set_xattr(f, 0, e, "user.b", "2"));
	assert_int_equal(0, set_xattr(f, 0, e, "user.a", "3"));
	assert_int_equal(0, set_xattr(f, 0, e, "user.gone", NULL));
	told = f->m[0].told.attr_changed;
	feed_older(f, 0, e, path);
	assert_true(has_xattr(e, "user.a", "3"));
	assert_true(has_xattr(e, "user.b", "2"));
	assert_false(has_xattr(e, "user.gone", "1"));
	assert_int_equal(0601, pool_node_attr(e)->mode);
	assert_int_equal(7, pool_node_attr(e)->uid);
	run_until(f, all_answered(f, 0));
	run_for(f, 60);
	assert_true(has_xattr(e, "user.a", "3"));
	assert_true(has_xattr(e, "user.b", "2"));
	assert_false(has_xattr(e, "user.gone", "1"));
	assert_int_equal(0601, pool_node_attr(e)->mode);
	assert_true(f->m[0].told.attr_changed <= told + 2);
	/* Answered: what the feed says now is so. */
	feed_older(f, 0, e, path);
	assert_null(pool_node_xattrs(e));
	assert_int_equal(0700, pool_node_attr(e)->mode);
}

static void an_older_feed_undoes_no_change_that_is_under_way(void **state)
{
	static const struct node_attr attr = { .mode = 0755 };
	struct fixture *f = *state;
	struct node_dirent *d;

	start_pool(f, 1);
	publish(f, 0, "k", 1000, 1);
	change_and_feed(f, &find(f, 0, "k")->e, "k");
	assert_int_equal(0, pool_node_mkdir(node(f, 0),
					    pool_node_root(node(f, 0)), "d",
					    1, &attr, &d));
	change_and_feed(f, &d->d.e, "d");
	change_and_feed(f, &pool_node_root(node(f, 0))->d.e, "");
	assert_int_equal(0, node(f, 0)->changes.count);
}

/* Nor does one of before it was made again hide a directory. */
static void an_older_feed_removes_no_directory_being_made(void **state)
{
	static const struct node_attr attr = { .mode = 0755 };
	struct fixture *f = *state;
	Kvpool__Feed feed = KVPOOL__FEED__INIT;
	Kvpool__Meta m = KVPOOL__META__INIT, *list[1] = { &m };
	struct node_dirent *root, *d;

	start_pool(f, 1);
	root = pool_node_root(node(f, 0));
	assert_int_equal(0, pool_node_mkdir(node(f, 0), root, "d", 1, &attr,
					    &d));
	run_until(f, all_answered(f, 0));
	assert_int_equal(0, pool_node_rmdir(node(f, 0), d));
	assert_int_equal(0, pool_node_mkdir(node(f, 0), root, "d", 1, &attr,
					    &d));
	m.path.data = (uint8_t *)(uintptr_t)"d";
	m.path.len = 1;
	m.is_dir = m.deleted = true;
	feed.entries = list;
	feed.n_entries = 1;
	assert_int_equal(0, node_feed_apply(node(f, 0), &feed));
	assert_non_null(pool_node_lookup(node(f, 0), root, "d", 1));
	run_until(f, all_answered(f, 0));
	run_for(f, 60);
	assert_ptr_equal(d, pool_node_lookup(node(f, 0), root, "d", 1));
	assert_int_equal(1, f->m[0].told.dir_gone); /* its rmdir */
}

static void xattrs_set_on_two_nodes_at_once_both_last(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *a, *b;

	start_pool(f, 2);
	publish(f, 0, "k", 1000, 1);
	run_until(f, find(f, 1, "k"));
	a = &find(f, 0, "k")->e;
	b = &find(f, 1, "k")->e;
	assert_int_equal(0, set_xattr(f, 0, a, "user.kvpool.pin", "hard"));
	assert_int_equal(0, set_xattr(f, 1, b, "user.kvpool.replicas", "2"));
	assert_int_equal(0, set_xattr(f, 0, a, "user.both", "a"));
	assert_int_equal(0, set_xattr(f, 1, b, "user.both", "b"));
	run_until(f, all_answered(f, 0) && all_answered(f, 1));
	run_until(f, has_xattr(a, "user.kvpool.replicas", "2") &&
			     has_xattr(b, "user.kvpool.pin", "hard"));
	run_for(f, 60);
	assert_true(has_xattr(a, "user.kvpool.pin", "hard"));
	assert_true(has_xattr(b, "user.kvpool.replicas", "2"));
	assert_true(pool_xattrs_equal(pool_node_xattrs(a),
				      pool_node_xattrs(b)));
	assert_int_equal(0, set_xattr(f, 1, b, "user.kvpool.pin", NULL));
	run_until(f, !has_xattr(a, "user.kvpool.pin", "hard"));
	assert_true(has_xattr(a, "user.kvpool.replicas", "2"));
	/* The whole set, too, as masters of before told it. */
	assert_int_equal(0, pool_node_setattr(node(f, 0), a, POOL_SET_XATTRS,
					      pool_node_attr(a), NULL));
	run_until(f, !pool_node_xattrs(b));
}

/* Each has room for its own: together they do not fit. */
static void an_xattr_that_the_master_refuses_does_not_stay(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *a, *b;
	char big[3000];

	start_pool(f, 2);
	publish(f, 0, "k", 1000, 1);
	run_until(f, find(f, 1, "k"));
	a = &find(f, 0, "k")->e;
	b = &find(f, 1, "k")->e;
	memset(big, 'x', sizeof(big));
	assert_int_equal(0, pool_node_setxattr(node(f, 0), a, "user.a", big,
					       sizeof(big), 0));
	assert_int_equal(0, pool_node_setxattr(node(f, 1), b, "user.b", big,
					       sizeof(big), 0));
	run_until(f, all_answered(f, 0) && all_answered(f, 1));
	run_until(f, pool_node_xattrs(a) && pool_node_xattrs(b) &&
			     pool_xattrs_equal(pool_node_xattrs(a),
					       pool_node_xattrs(b)));
	run_for(f, 60);
	assert_true(pool_xattrs_equal(pool_node_xattrs(a),
				      pool_node_xattrs(b)));
}

/* Made again before the master has removed it, a directory is a new one. */
static void a_directory_made_again_has_no_attributes(void **state)
{
	static const struct node_attr attr = { .mode = 0755 };
	struct fixture *f = *state;
	struct node_dirent *root, *d;

	start_pool(f, 2);
	root = pool_node_root(node(f, 0));
	assert_int_equal(0, pool_node_mkdir(node(f, 0), root, "d", 1, &attr,
					    &d));
	assert_int_equal(0, pool_node_setxattr(node(f, 0), &d->d.e,
					       "user.kvpool.replicas", "2", 1,
					       0));
	run_until(f, all_answered(f, 0));
	assert_int_equal(0, pool_node_rmdir(node(f, 0), d));
	assert_int_equal(0, pool_node_mkdir(node(f, 0), root, "d", 1, &attr,
					    &d));
	assert_null(d->xattrs);
	assert_int_equal(0, d->rules.replicas);
	run_until(f, all_answered(f, 0));
	assert_null(master_map_dir(&f->master->map, "d", 1)->extra);
	/* One that could not be removed has what it had. */
	assert_int_equal(0, pool_node_setxattr(node(f, 0), &d->d.e, "user.a",
					       "1", 1, 0));
	run_until(f, all_answered(f, 0) && known(f, 1, "d"));
	put_in(f, 1, node_dir(pool_tree_lookup(&node(f, 1)->tree, "d", 1)),
	       "k", 100, 1);
	run_until(f, f->master->map.nfiles == 1);
	if (d->d.nchildren)
		return; /* heard of it already */
	assert_int_equal(0, pool_node_rmdir(node(f, 0), d));
	assert_int_equal(0, pool_node_mkdir(node(f, 0), root, "d", 1, &attr,
					    &d));
	run_until(f, all_answered(f, 0) && d->xattrs);
}

/* ---- what names cost ---- */

#define USER 4711u

static const struct node_attr users = { .mode = 0755, .uid = USER };
static const struct node_attr writers = { .mode = 0755, .uid = 1000 };

/* A pool of n nodes with a quarter of `dirs` and `bytes` for USER. */
static void start_small_pool(struct fixture *f, int n, uint64_t dirs,
			     uint64_t bytes)
{
	start_master(f);
	pool_quota_limit(&f->master->map.quota, dirs, bytes);
	for (int i = 0; i < n; i++)
		start_node(f, i);
	for (int i = 0; i < n; i++)
		run_until(f, is_up(f, i));
	run_until(f, master_ready(f->master));
}

static struct pool_entry *there(struct fixture *f, int i, const char *name)
{
	return pool_node_lookup(node(f, i), pool_node_root(node(f, i)), name,
				strlen(name));
}

static int mkdir_in(struct fixture *f, int i, struct node_dirent *up,
		    const char *name, struct node_dirent **ret_dir)
{
	return pool_node_mkdir(node(f, i), up, name, strlen(name), &users,
			       ret_dir);
}

static int mkdir_top(struct fixture *f, int i, const char *name,
		     struct node_dirent **ret_dir)
{
	return mkdir_in(f, i, pool_node_root(node(f, i)), name, ret_dir);
}

static int set_attr(struct fixture *f, int i, struct pool_entry *e,
		    const char *name, size_t len)
{
	static char value[4096];

	return pool_node_setxattr(node(f, i), e, name, value, len, 0);
}

static bool counts_alike(struct fixture *f, int i)
{
	return pool_quota_equal(&node(f, i)->quota, &f->master->map.quota);
}

static void directories_beyond_a_user_s_are_refused_at_once(void **state)
{
	struct node_dirent *d[4], *other;
	struct fixture *f = *state;
	struct pool_entry *to;
	char name[] = "d0";

	start_small_pool(f, 2, 16, 0);
	for (int i = 0; i < 4; i++, name[1]++)
		assert_int_equal(0, mkdir_top(f, 0, name, &d[i]));
	assert_int_equal(-EDQUOT, mkdir_in(f, 0, d[3], "e", &other));
	assert_false(known(f, 0, "d3/e"));
	assert_int_equal(1, pool_counter_value(&node(f, 0)->c.quota_refused));
	run_until(f, counts_alike(f, 0) && counts_alike(f, 1));
	assert_int_equal(-EDQUOT, mkdir_top(f, 1, "e", &other));
	/* What is removed counts no more, answered or not. */
	assert_int_equal(0, pool_node_rmdir(node(f, 0), d[0]));
	assert_int_equal(0, mkdir_top(f, 0, "e", &other));
	assert_int_equal(0, pool_node_rmdir(node(f, 0), other));
	assert_int_equal(0, mkdir_top(f, 0, "e", &other));
	assert_int_equal(-EDQUOT, mkdir_top(f, 0, "f", &other));
	check_nodes(f);
	/* An empty one that is renamed. */
	assert_int_equal(0, pool_node_rmdir(node(f, 0), d[1]));
	assert_int_equal(0, pool_node_rename(
				    node(f, 0), &d[2]->d.e,
				    pool_node_root(node(f, 0)), "to", 2, false,
				    &to));
	assert_int_equal(0, pool_node_rmdir(node(f, 0), d[2]));
	run_until(f, all_answered(f, 0) && counts_alike(f, 0) &&
			     counts_alike(f, 1));
	assert_int_equal(3, node(f, 1)->quota.used.dirs);
}

static void attributes_beyond_a_user_s_are_refused_at_once(void **state)
{
	struct fixture *f = *state;
	struct node_attr root = { .uid = 0 };
	struct node_object *o;
	struct node_dirent *d;
	struct pool_entry *e;

	start_small_pool(f, 2, 0, 8000);
	assert_int_equal(0, mkdir_top(f, 0, "d", &d));
	e = &d->d.e;
	assert_int_equal(-EDQUOT, set_attr(f, 0, e, "user.a", 2000));
	assert_null(pool_node_xattrs(e));
	assert_int_equal(0, set_attr(f, 0, e, "user.a", 1000));
	assert_int_equal(-EDQUOT, set_attr(f, 0, e, "user.b", 1000));
	assert_int_equal(0, pool_node_setxattr(node(f, 0), e, "user.a", NULL,
					       0, 0));
	assert_int_equal(0, set_attr(f, 0, e, "user.b", 1000));
	run_until(f, all_answered(f, 0) && counts_alike(f, 1));
	/* Given to root, whose share is no user's. */
	assert_int_equal(0, pool_node_setattr(node(f, 0), e, POOL_SET_UID,
					      &root, NULL));
	assert_int_equal(0, set_attr(f, 0, e, "user.a", 2000));
	/* A file, before it is published (create_in: user 1000) and after; a
	 * copy that is written; what is unlinked and open. */
	o = create_in(f, 0, d, "k", 0);
	e = &o->entry->e;
	assert_int_equal(0, set_attr(f, 0, e, "user.a", 1900));
	assert_int_equal(-EDQUOT, set_attr(f, 0, e, "user.b", 100));
	write_bytes(f, 0, o, 100, 1);
	close_whole(f, 0, o);
	run_until(f, all_answered(f, 0) && !node_file(e)->own &&
			     counts_alike(f, 0) && counts_alike(f, 1));
	assert_int_equal(-EDQUOT, set_attr(f, 0, e, "user.b", 100));
	assert_int_equal(0, pool_node_unlink(node(f, 0), node_file(e)));
	run_until(f, all_answered(f, 0) && counts_alike(f, 0) &&
			     counts_alike(f, 1));
	o = node_object_ref(create_in(f, 0, d, "l", 0));
	assert_int_equal(0, set_attr(f, 0, &o->entry->e, "user.a", 1900));
	assert_int_equal(0, pool_node_unlink(node(f, 0), o->entry));
	check_nodes(f);
	assert_true(counts_alike(f, 0));
	pool_node_writer_closed(node(f, 0), o);
	node_object_unref(node(f, 0), o);
}

/* Nodes that grant what the master then refuses: nothing of it stays. */
static void what_the_master_has_no_room_for_does_not_stay(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *d, *e, *root;

	start_small_pool(f, 1, 4, 8000);
	root = pool_node_root(node(f, 0));
	assert_int_equal(0, mkdir_top(f, 0, "d", &d));
	assert_int_equal(0, pool_node_mkdir(node(f, 0), root, "x", 1, &writers,
					    &e)); /* and all of theirs */
	run_until(f, all_answered(f, 0));
	pool_quota_limit(&node(f, 0)->quota, 0, 0); /* it knows nothing of it */
	assert_int_equal(0, mkdir_top(f, 0, "e", &e));
	run_until(f, all_answered(f, 0));
	assert_null(pool_node_lookup(node(f, 0), root, "e", 1));
	assert_false(known(f, 0, "e"));
	assert_int_equal(-EDQUOT, pool_node_lost(root));
	assert_int_equal(0, pool_node_lost(root));
	/* Nor what is in it. */
	assert_int_equal(0, mkdir_top(f, 0, "e", &e));
	e->fs = f; /* as who has it open */
	put_in(f, 0, e, "k", 100, 1);
	run_until(f, e->d.nchildren == 0 && all_answered(f, 0));
	assert_int_equal(-EDQUOT, pool_node_lost(e));
	assert_null(master_map_dir(&f->master->map, "e", 1));
	assert_null(there(f, 0, "e"));
	e->fs = NULL;
	pool_node_tidy(node(f, 0), &e->d.e);
	assert_int_equal(0, set_attr(f, 0, &d->d.e, "user.a", 3000));
	run_until(f, all_answered(f, 0) && !d->xattrs);
	run_until(f, !known(f, 0, "e") && counts_alike(f, 0));
}

static void the_accounts_outlive_master_and_node(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *d, *e;
	struct pool_entry *k;

	start_pool(f, 1);
	assert_int_equal(0, mkdir_top(f, 0, "d", &d));
	assert_int_equal(0, mkdir_in(f, 0, d, "e", &e));
	assert_int_equal(0, set_attr(f, 0, &e->d.e, "user.a", 100));
	put_in(f, 0, e, "k", 100, 1);
	run_until(f, (k = pool_tree_lookup(&node(f, 0)->tree, "d/e/k", 5)) &&
			     !node_file(k)->own);
	assert_int_equal(0, set_attr(f, 0, k, "user.a", 200));
	run_until(f, all_answered(f, 0) && counts_alike(f, 0));
	stop_master(f);
	start_master(f);
	run_until(f, is_up(f, 0) && counts_alike(f, 0));
	assert_int_equal(2, node(f, 0)->quota.used.dirs);
	assert_true(node(f, 0)->quota.used.bytes > 300);
	stop_node(f, 0);
	stop_master(f);
	start_node(f, 0); /* it knows what it holds */
	node_check(node(f, 0));
	assert_int_equal(2, node(f, 0)->quota.used.dirs);
	start_master(f);
	run_until(f, is_up(f, 0) && counts_alike(f, 0));
}

/* ---- barriers ---- */

struct test_barrier {
	struct node_barrier b;
	int status;
	bool done;
};

static void on_barrier(struct node_barrier *b, int status)
{
	struct test_barrier *t = pool_container_of(b, struct test_barrier, b);

	assert_false(t->done);
	t->done = true;
	t->status = status;
}

static void a_barrier_without_a_master_times_out(void **state)
{
	struct fixture *f = *state;
	struct test_barrier t = { .done = false }, cancelled = t;
	uint64_t start = pool_now_ms();

	f->opts.deadline_ms = 1000;
	start_node(f, 0);
	put(f, 0, "k", 1000, 1);
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &t.b,
						    on_barrier));
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &cancelled.b,
						    on_barrier));
	pool_node_barrier_cancel(node(f, 0), &cancelled.b);
	run_until(f, t.done);
	assert_int_equal(-ETIMEDOUT, t.status);
	assert_in_range(pool_now_ms() - start, 1000, 4000);
	assert_false(cancelled.done);
	assert_count(1, f, 0, barrier_timeouts);
	/* The next one need not wait to know. */
	t.done = false;
	start = pool_now_ms();
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &t.b,
						    on_barrier));
	run_until(f, t.done);
	assert_int_equal(-ETIMEDOUT, t.status);
	assert_in_range(pool_now_ms() - start, 0, 900);
	/* One that is waiting when the node closes ends as well. */
	t.done = false;
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &t.b,
						    on_barrier));
	stop_node(f, 0);
	assert_true(t.done);
	/* (It may be over before the node is, on a busy machine.) */
	assert_true(t.status == -ECANCELED || t.status == -ETIMEDOUT);
}

static void a_barrier_ends_after_the_publications_before_it(void **state)
{
	struct fixture *f = *state;
	struct test_barrier t = { .done = false };
	int i;

	start_pool(f, 2);
	for (i = 0; i < 20; i++) {
		char name[16];

		snprintf(name, sizeof(name), "k%d", i);
		put(f, 0, name, 10000, (uint32_t)i);
	}
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &t.b,
						    on_barrier));
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	for (i = 0; i < 20; i++) {
		char name[16];

		snprintf(name, sizeof(name), "k%d", i);
		assert_true(is_published(f, 0, name));
		assert_non_null(find(f, 1, name)); /* told before */
	}
	/* With nothing before it, one round trip. */
	t.done = false;
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &t.b,
						    on_barrier));
	run_until(f, t.done);
	assert_int_equal(0, t.status);
}

static void a_barrier_waits_until_other_kernels_have_been_told(void **state)
{
	struct fixture *f = *state;
	struct test_barrier t = { .done = false };

	start_pool(f, 2);
	f->m[1].told.slow = true;
	put(f, 0, "k", 1000, 1);
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &t.b,
						    on_barrier));
	run_until(f, find(f, 1, "k") && f->m[1].told.telling);
	run_for(f, 60);
	assert_false(t.done);
	f->m[1].told.slow = false;
	pool_node_told(node(f, 1), f->m[1].told.telling);
	run_until(f, t.done);
	assert_int_equal(0, t.status);
}

static void a_patient_barrier_waits_while_something_is_done(void **state)
{
	struct fixture *f = *state;
	struct test_barrier t = { .done = false }, other = t;
	uint64_t end, other_end;

	start_pool(f, 2);
	f->m[1].told.slow = true;
	put(f, 0, "k", 1000, 1);
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &t.b,
						    on_barrier));
	pool_node_barrier_patient(&t.b);
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &other.b,
						    on_barrier));
	end = t.b.deadline_ms;
	other_end = other.b.deadline_ms;
	usleep(5000);
	run_until(f, is_published(f, 0, "k") && f->m[1].told.telling);
	assert_true(t.b.deadline_ms > end);
	assert_int_equal(other.b.deadline_ms, other_end);
	/* What came behind it is not what it waits for. */
	end = t.b.deadline_ms;
	usleep(5000);
	publish(f, 0, "later", 1000, 1);
	assert_int_equal(t.b.deadline_ms, end);
	f->m[1].told.slow = false;
	pool_node_told(node(f, 1), f->m[1].told.telling);
	run_until(f, t.done && other.done);
	assert_int_equal(0, t.status);
	assert_int_equal(0, other.status);
}

/* Who joins an empty pool tells the others nothing but that it is there. */
static void an_idle_pool_keeps_its_connections(void **state)
{
	struct fixture *f = *state;

	start_pool(f, 2);
	run_for(f, 6 * HEARTBEAT_MS);
	assert_count(1, f, 0, master_connects);
	assert_count(1, f, 1, master_connects);
	assert_false(node(f, 0)->untold);
}

static void what_an_earlier_connection_told_acknowledges_nothing(void **state)
{
	struct fixture *f = *state;
	uint64_t old;

	start_pool(f, 1);
	f->m[0].told.slow = true;
	publish(f, 0, "k", 1000, 1);
	run_until(f, f->m[0].told.telling);
	old = f->m[0].told.telling;
	stop_master(f);
	run_until(f, !node_link_up(node(f, 0)));
	assert_false(node(f, 0)->untold);
	start_master(f);
	run_until(f, node(f, 0)->untold);
	pool_node_told(node(f, 0), old);
	assert_true(node(f, 0)->untold);
	pool_node_told(node(f, 0), f->m[0].told.telling);
	assert_false(node(f, 0)->untold);
}

static void a_barrier_outlives_the_loss_of_the_master(void **state)
{
	struct fixture *f = *state;
	struct test_barrier t = { .done = false };

	start_pool(f, 1);
	stop_master(f);
	run_until(f, !node_link_up(node(f, 0)));
	put(f, 0, "k", 10000, 1);
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &t.b,
						    on_barrier));
	run_for(f, 40);
	assert_false(t.done);
	start_master(f);
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	assert_true(is_published(f, 0, "k"));
}

/* The master had been asked, and what it would have said is lost. */
static void a_barrier_asks_the_next_master_again(void **state)
{
	struct fixture *f = *state;
	struct test_barrier t = { .done = false };

	start_pool(f, 2);
	f->m[1].told.slow = true;
	put(f, 0, "k", 1000, 1);
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &t.b,
						    on_barrier));
	run_until(f, f->m[1].told.telling && is_published(f, 0, "k"));
	run_for(f, 60); /* it asks */
	assert_false(t.done);
	stop_master(f);
	run_until(f, !node_link_up(node(f, 0)) && !node_link_up(node(f, 1)));
	f->m[1].told.slow = false;
	pool_node_told(node(f, 1), f->m[1].told.telling);
	start_master(f);
	run_until(f, t.done);
	assert_int_equal(0, t.status);
}

/* ---- changes of attributes that are merged ---- */

#define LOOP 10000

static size_t merged(struct fixture *f)
{
	return pool_counter_value(&node(f, 0)->c.ops_merged);
}

/* The changes that wait, as kind and path: "SETATTR k, MKDIR d". */
static const char *queue_of(struct fixture *f)
{
	static const char *const kinds[] = { "PUBLISH", "UNLINK", "MKDIR",
					     "RMDIR", "SETATTR" };
	static char text[512];
	struct pool_list *it, *tmp;
	size_t len = 0;

	text[0] = '\0';
	pool_list_each(it, tmp, &node(f, 0)->ops_waiting) {
		const struct node_op *op =
			pool_list_entry(it, struct node_op, link);

		len += (size_t)snprintf(text + len, sizeof(text) - len,
					"%s%s %.*s", len ? ", " : "",
					kinds[op->kind], (int)op->path_len,
					op->path);
	}
	return text;
}

/* What the master has of a directory. */
static bool master_has_xattr(struct fixture *f, const char *path,
			     const char *name, const char *value)
{
	const struct master_dir *d =
		master_map_dir(&f->master->map, path, strlen(path));
	size_t len;
	const void *v = d && d->extra ?
				pool_xattrs_get(d->extra->xattrs, name, &len) :
				NULL;

	return v && len == strlen(value) && memcmp(v, value, len) == 0;
}

static int set_mode(struct fixture *f, struct pool_entry *e, uint32_t mode)
{
	struct node_attr a = { .mode = mode };

	return pool_node_setattr(node(f, 0), e, POOL_SET_MODE, &a, NULL);
}

static int set_time(struct fixture *f, struct pool_entry *e, uint64_t ns)
{
	struct node_attr a = { .mtime_ns = ns };

	return pool_node_setattr(node(f, 0), e, POOL_SET_MTIME, &a, NULL);
}

/* Two nodes, and an empty directory that both know. */
static struct pool_entry *start_with_dir(struct fixture *f)
{
	static const struct node_attr attr = { .mode = 0755 };
	struct node_dirent *d;

	start_pool(f, 2);
	assert_int_equal(0, pool_node_mkdir(node(f, 0),
					    pool_node_root(node(f, 0)), "d", 1,
					    &attr, &d));
	run_until(f, all_answered(f, 0) && known(f, 1, "d"));
	return &d->d.e;
}

/* Both nodes have what the master has. */
static void assert_mirrors_agree(struct fixture *f, const char *name)
{
	struct pool_entry *a, *b;

	run_until(f, all_answered(f, 0));
	run_until(f, node(f, 0)->feed_seq == f->master->map.feed.seq &&
			     node(f, 1)->feed_seq == f->master->map.feed.seq);
	a = there(f, 0, name);
	b = there(f, 1, name);
	assert_non_null(a);
	assert_non_null(b);
	assert_int_equal(pool_node_attr(a)->mode, pool_node_attr(b)->mode);
	assert_int_equal(pool_node_attr(a)->uid, pool_node_attr(b)->uid);
	assert_int_equal(pool_node_attr(a)->mtime_ns,
			 pool_node_attr(b)->mtime_ns);
	assert_true(pool_xattrs_equal(pool_node_xattrs(a),
				      pool_node_xattrs(b)));
}

static void a_loop_of_changes_leaves_one_of_each_attribute(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f);
	char value[16];

	for (int k = 0; k <= LOOP; k++) {
		snprintf(value, sizeof(value), "%d", k);
		assert_int_equal(0, set_xattr(f, 0, d, "user.a", value));
	}
	assert_int_equal(1, node(f, 0)->nops);
	assert_int_equal(LOOP, merged(f));
	/* By turns, as a program does that restores attributes. */
	for (int k = 0; k <= LOOP; k++) {
		snprintf(value, sizeof(value), "%d", k % 10);
		assert_int_equal(0, set_mode(f, d, k % 2 ? 0711 : 0700));
		assert_int_equal(0, set_xattr(f, 0, d, "user.b", value));
		assert_int_equal(0, set_time(f, d, 1000 + (uint64_t)k));
		assert_int_equal(0, set_xattr(f, 0, d, "user.c", "same"));
		assert_int_equal(0, k % 2 ? set_xattr(f, 0, d, "user.d", NULL) :
					    set_xattr(f, 0, d, "user.d", "x"));
	}
	assert_string_equal("SETATTR d, SETATTR d, SETATTR d, SETATTR d, SETATTR d",
			    queue_of(f));
	assert_mirrors_agree(f, "d");
	d = there(f, 1, "d");
	assert_true(has_xattr(d, "user.a", "10000"));
	assert_true(has_xattr(d, "user.b", "0"));
	assert_true(has_xattr(d, "user.c", "same"));
	assert_true(has_xattr(d, "user.d", "x"));
	assert_int_equal(0700, pool_node_attr(d)->mode);
	assert_int_equal(1000 + LOOP, pool_node_attr(d)->mtime_ns);
}

static void what_is_set_and_removed_is_merged_by_name(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f);

	assert_int_equal(0, set_xattr(f, 0, d, "user.old", "1"));
	run_until(f, has_xattr(there(f, 1, "d"), "user.old", "1"));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "1"));
	assert_int_equal(0, set_xattr(f, 0, d, "user.b", "1"));
	assert_int_equal(0, set_xattr(f, 0, d, "user.old", "2"));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", NULL));
	assert_int_equal(0, set_xattr(f, 0, d, "user.old", NULL));
	assert_int_equal(3, node(f, 0)->nops);
	assert_mirrors_agree(f, "d");
	d = there(f, 1, "d");
	assert_true(has_xattr(d, "user.b", "1"));
	assert_false(has_xattr(d, "user.old", "1"));
	assert_false(has_xattr(d, "user.old", "2"));
	assert_false(has_xattr(d, "user.a", "1"));
	/* Removed, and set again. */
	d = there(f, 0, "d");
	assert_int_equal(0, set_xattr(f, 0, d, "user.b", NULL));
	assert_int_equal(0, set_xattr(f, 0, d, "user.b", "2"));
	assert_int_equal(1, node(f, 0)->nops);
	assert_mirrors_agree(f, "d");
	assert_true(has_xattr(there(f, 1, "d"), "user.b", "2"));
}

/* An xattr that the master refuses takes no other one with it. */
static void each_xattr_is_refused_alone(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f), *other;
	static char big[3000];

	other = there(f, 1, "d");
	assert_int_equal(0, pool_node_setxattr(node(f, 1), other, "user.b", big,
					       sizeof(big), 0));
	node_ops_send(node(f, 1));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "1"));
	assert_int_equal(0, pool_node_setxattr(node(f, 0), d, "user.c", big,
					       sizeof(big), 0));
	assert_int_equal(0, set_mode(f, d, 0700));
	run_until(f, all_answered(f, 1));
	assert_mirrors_agree(f, "d");
	assert_true(master_has_xattr(f, "d", "user.a", "1"));
	assert_int_equal(0700, master_map_dir(&f->master->map, "d", 1)->mode);
}

/* The room that one takes is that which the other had. */
static void what_grows_does_not_pass_what_makes_room_for_it(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f);
	static char big[3000];

	memset(big, 'x', sizeof(big) - 1);
	assert_int_equal(0, set_xattr(f, 0, d, "user.b", big));
	run_until(f, all_answered(f, 0));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "1"));
	assert_int_equal(0, set_xattr(f, 0, d, "user.b", NULL));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", big));
	assert_int_equal(3, node(f, 0)->nops);
	/* It shrinks again: then in its place. */
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "2"));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", big));
	assert_int_equal(3, node(f, 0)->nops);
	assert_mirrors_agree(f, "d");
	assert_true(has_xattr(there(f, 1, "d"), "user.a", big));
	assert_count(0, f, 0, ops_failed);
}

static void other_names_changes_keep_their_order(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f);
	struct node_dirent *e;

	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "1"));
	assert_int_equal(0, mkdir_top(f, 0, "e", &e));
	assert_int_equal(0, set_xattr(f, 0, &e->d.e, "user.a", "1"));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "2"));
	assert_int_equal(0, pool_node_rmdir(node(f, 0), e));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "3"));
	assert_string_equal("SETATTR d, MKDIR e, SETATTR e, RMDIR e",
			    queue_of(f));
	assert_true(node_ops_in_order(node(f, 0)));
	assert_mirrors_agree(f, "d");
	assert_true(has_xattr(there(f, 1, "d"), "user.a", "3"));
	assert_false(known(f, 1, "e"));
}

/* Elsewhere nobody looks into the directory while it still has what was removed
 * before it was opened to all. */
static void a_mode_does_not_pass_what_says_who_may_read(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f);
	struct node_dirent *e;

	assert_int_equal(0, mkdir_in(f, 0, node_dir(d), "e", &e));
	run_until(f, all_answered(f, 0));
	assert_int_equal(0, set_time(f, d, 1));
	assert_int_equal(0, pool_node_rmdir(node(f, 0), e));
	assert_int_equal(0, set_mode(f, d, 0777));
	assert_string_equal("SETATTR d, RMDIR d/e, SETATTR d", queue_of(f));
	run_until(f, all_answered(f, 0));
	/* So of another's mode. */
	assert_int_equal(0, mkdir_in(f, 0, node_dir(d), "e", &e));
	run_until(f, all_answered(f, 0));
	assert_int_equal(0, set_mode(f, d, 0700));
	assert_int_equal(0, set_mode(f, &e->d.e, 0700));
	assert_int_equal(0, set_mode(f, d, 0777));
	assert_string_equal("SETATTR d, SETATTR d/e, SETATTR d", queue_of(f));
	assert_mirrors_agree(f, "d");
}

/* Nor does an xattr pass a change of who pays for it. */
static void an_owner_is_not_passed(void **state)
{
	static const struct node_attr to = { .uid = USER };
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f);

	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "1"));
	assert_int_equal(0, pool_node_setattr(node(f, 0), d, POOL_SET_UID, &to,
					      NULL));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "2"));
	assert_int_equal(3, node(f, 0)->nops);
	assert_mirrors_agree(f, "d");
	assert_true(has_xattr(there(f, 1, "d"), "user.a", "2"));
}

static void what_was_sent_is_not_changed(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f);

	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "1"));
	node_ops_send(node(f, 0));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "2"));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "3"));
	assert_int_equal(2, node(f, 0)->nops);
	assert_int_equal(1, merged(f));
	/* Nor is what may have been executed, after a cut. */
	node_ops_send(node(f, 0));
	stop_master(f);
	run_until(f, !is_up(f, 0));
	assert_int_equal(2, node(f, 0)->nops);
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "4"));
	assert_int_equal(3, node(f, 0)->nops);
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "5"));
	assert_int_equal(3, node(f, 0)->nops);
	start_master(f);
	run_until(f, is_up(f, 0) && is_up(f, 1));
	assert_mirrors_agree(f, "d");
	assert_true(has_xattr(there(f, 1, "d"), "user.a", "5"));
}

static void a_barrier_waits_for_what_was_merged_before_it(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f);
	struct test_barrier first = { .done = false }, last = first;

	refuses_ops = node(f, 0);
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "1"));
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &first.b,
						    on_barrier));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "2"));
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &last.b,
						    on_barrier));
	assert_int_equal(1, node(f, 0)->nops);
	assert_true(node_ops_oldest(node(f, 0)) <= first.b.ticket);
	node_barriers_check(node(f, 0));
	refuses_ops = NULL;
	run_until(f, last.done);
	assert_int_equal(0, last.status);
	assert_true(first.done);
	assert_true(master_has_xattr(f, "d", "user.a", "2"));
	assert_true(has_xattr(there(f, 1, "d"), "user.a", "2"));
}

/* A name that goes takes its attributes along; one that comes has its own. */
static void a_change_of_the_name_is_not_passed(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f), *to;
	struct node_dirent *e;

	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "1"));
	assert_int_equal(0, pool_node_rename(node(f, 0), d,
					     pool_node_root(node(f, 0)), "e", 1,
					     false, &to));
	assert_int_equal(0, pool_node_rmdir(node(f, 0), node_dir(d)));
	assert_int_equal(0, mkdir_top(f, 0, "d", &e));
	assert_int_equal(0, set_xattr(f, 0, &e->d.e, "user.a", "2"));
	assert_int_equal(0, set_xattr(f, 0, to, "user.b", "2"));
	assert_string_equal("SETATTR d, MKDIR e, SETATTR e, RMDIR d, MKDIR d, SETATTR d, SETATTR e",
			    queue_of(f));
	assert_mirrors_agree(f, "d");
	assert_mirrors_agree(f, "e");
	assert_true(has_xattr(there(f, 1, "d"), "user.a", "2"));
	assert_true(has_xattr(there(f, 1, "e"), "user.a", "1"));
	assert_true(has_xattr(there(f, 1, "e"), "user.b", "2"));
}

/* The same of a file: removed, and published anew or under another name. */
static void a_publication_of_the_name_is_not_passed(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;

	start_pool(f, 2);
	publish(f, 0, "k", 1000, 1);
	run_until(f, find(f, 1, "k") && all_answered(f, 0));
	assert_int_equal(0, set_xattr(f, 0, &find(f, 0, "k")->e, "user.a",
				      "1"));
	refuses_ops = node(f, 0);
	assert_int_equal(0, rename_to(f, 0, "k", "l", false));
	put(f, 0, "k", 500, 2);
	run_until(f, is_pending(f, 0, "k") && is_pending(f, 0, "l"));
	run_until(f, node(f, 0)->nops == 4);
	e = find(f, 0, "k");
	assert_non_null(e->own);
	assert_int_equal(0, set_xattr(f, 0, &e->e, "user.b", "2"));
	assert_int_equal(0, set_mode(f, &e->e, 0604));
	assert_int_equal(0, set_xattr(f, 0, &e->e, "user.a", "3"));
	assert_true(node(f, 0)->nops == 7);
	refuses_ops = NULL;
	run_until(f, is_published(f, 0, "k") && is_published(f, 0, "l"));
	run_until(f, find(f, 1, "l"));
	assert_mirrors_agree(f, "k");
	assert_mirrors_agree(f, "l");
	assert_true(has_xattr(there(f, 1, "l"), "user.a", "1"));
	assert_false(has_xattr(there(f, 1, "l"), "user.b", "2"));
	assert_true(has_xattr(there(f, 1, "k"), "user.a", "3"));
	assert_true(has_xattr(there(f, 1, "k"), "user.b", "2"));
	assert_int_equal(0604, pool_node_attr(there(f, 1, "k"))->mode);
}

/* Names that are never the same again cannot be merged. */
static void one_name_has_no_more_than_its_share_of_changes(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f);
	struct node_dirent *other;
	char name[32];
	int err = 0, k;

	for (k = 0; !err && k <= NODE_PATH_CHANGES_MAX; k++) {
		snprintf(name, sizeof(name), "user.%d", k);
		err = set_xattr(f, 0, d, name, "1");
		if (!err)
			err = set_xattr(f, 0, d, name, NULL);
	}
	assert_int_equal(-EAGAIN, err);
	assert_false(has_xattr(d, name, "1"));
	assert_int_equal(NODE_PATH_CHANGES_MAX, node(f, 0)->nops);
	assert_count(1, f, 0, ops_refused);
	assert_int_equal(0, mkdir_top(f, 0, "e", &other));
	assert_int_equal(0, set_xattr(f, 0, &other->d.e, "user.a", "1"));
	/* What is merged needs no room. */
	snprintf(name, sizeof(name), "user.%d", NODE_PATH_CHANGES_MAX - 1);
	assert_int_equal(0, set_xattr(f, 0, d, name, "1"));
	run_until(f, all_answered(f, 0));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "1"));
	assert_mirrors_agree(f, "d");
}

/* A user fills his share of the queue; others and root still have theirs. */
static void one_user_has_no_more_than_his_share_of_changes(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *d, *e;
	char name[16];
	int err = 0, k;

	start_pool(f, 1);
	pool_quota_limit(&node(f, 0)->changers, 40, 0);
	for (k = 0; !err && k < 40; k++) {
		snprintf(name, sizeof(name), "d%d", k);
		err = mkdir_top(f, 0, name, &d);
	}
	assert_int_equal(-EAGAIN, err);
	assert_int_equal(10, node(f, 0)->nops);
	assert_count(1, f, 0, ops_refused);
	assert_int_equal(0, pool_node_mkdir(node(f, 0),
					    pool_node_root(node(f, 0)), "e", 1,
					    &writers, &e));
	assert_int_equal(0, set_mode(f, &pool_node_root(node(f, 0))->d.e,
				     0777));
	run_until(f, all_answered(f, 0));
	assert_int_equal(0, mkdir_top(f, 0, name, &d));
	run_until(f, all_answered(f, 0));
	assert_int_equal(0, node(f, 0)->changers.used.dirs);
}

/* USER makes directories dN until his share of the queue is full. */
static void fill_share(struct fixture *f, unsigned int queue)
{
	struct node_dirent *d;
	char name[16];
	int err = 0;

	pool_quota_limit(&node(f, 0)->changers, queue, 0);
	for (int k = 0; !err; k++) {
		snprintf(name, sizeof(name), "d%d", k);
		err = mkdir_top(f, 0, name, &d);
	}
	assert_int_equal(-EAGAIN, err);
	assert_int_equal(queue / 4, node(f, 0)->nops);
}

/* Root changes, removes and renames what is a user's whose share is full. The
 * user, what is root's: it takes his share, not root's. */
static void a_change_takes_the_share_of_its_caller(void **state)
{
	struct fixture *f = *state;
	struct node_attr root = { .mode = 0777 };
	struct node_attr user = { .uid = USER };
	struct node_dirent *made;
	struct pool_entry *d, *k;
	struct pool_node *n;

	start_pool(f, 1);
	n = node(f, 0);
	for (char name[] = "k0"; name[1] < '3'; name[1]++)
		put(f, 0, name, 100, 1);
	assert_int_equal(0, pool_node_mkdir(n, pool_node_root(n), "root", 4,
					    &root, &made));
	run_until(f, is_published(f, 0, "k0") && is_published(f, 0, "k1") &&
			     is_published(f, 0, "k2"));
	k = there(f, 0, "k0");
	assert_int_equal(0, pool_node_setattr(n, k, POOL_SET_UID, &user, NULL));
	run_until(f, all_answered(f, 0));
	fill_share(f, 80);
	d = there(f, 0, "d0");
	pool_node_caller(n, 0);
	assert_int_equal(0, set_mode(f, d, 0700));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "1"));
	assert_int_equal(0, pool_node_rmdir(n, node_dir(d)));
	assert_int_equal(0, set_mode(f, k, 0600));
	assert_int_equal(0, pool_node_unlink(n, node_file(k)));
	assert_int_equal(0, rename_to(f, 0, "k1", "to", false));
	pool_node_caller(n, USER);
	assert_int_equal(-EAGAIN, set_xattr(f, 0, there(f, 0, "root"),
					    "user.a", "1"));
	assert_int_equal(-EAGAIN, rename_to(f, 0, "k2", "to", false));
	assert_int_equal(-EAGAIN, pool_node_unlink(n, find(f, 0, "k2")));
	pool_node_caller(n, NODE_NO_CALLER);
	run_until(f, all_answered(f, 0));
	assert_int_equal(0, n->changers.used.dirs);
	assert_non_null(there(f, 0, "k2"));
}

/* The master is told by whose permission a name was removed. */
static void a_deletion_names_its_caller(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n;

	start_pool(f, 1);
	n = node(f, 0);
	publish(f, 0, "k", 100, 1);
	publish(f, 0, "l", 100, 1);
	assert_int_equal(0, set_mode(f, &pool_node_root(n)->d.e, 0777));
	run_until(f, all_answered(f, 0));
	pool_node_caller(n, USER);
	assert_int_equal(0, rename_to(f, 0, "k", "to", false));
	pool_node_caller(n, NODE_NO_CALLER);
	assert_int_equal(0, pool_node_unlink(n, find(f, 0, "l")));
	run_until(f, all_answered(f, 0));
	assert_int_equal(MASTER_BY_ALL,
			 master_map_grave(&f->master->map, "k", 1)->account.kind);
	assert_int_equal(MASTER_BY_OWNER,
			 master_map_grave(&f->master->map, "l", 1)->account.kind);
}

/* Also of one name's changes, and of a queue full of publications. */
static void the_last_eighth_of_a_queue_is_root_s(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *d, *e;
	char name[32];
	int err = 0, k;

	start_pool(f, 1);
	assert_int_equal(0, mkdir_top(f, 0, "d", &d));
	for (k = 0; !err; k++) {
		snprintf(name, sizeof(name), "user.%d", k);
		err = set_xattr(f, 0, &d->d.e, name, "1");
		if (!err)
			err = set_xattr(f, 0, &d->d.e, name, NULL);
	}
	assert_int_equal(-EAGAIN, err);
	assert_in_range(node(f, 0)->nops, NODE_PATH_CHANGES_MAX * 3 / 4,
			NODE_PATH_CHANGES_MAX * 7 / 8 + 1);
	pool_node_caller(node(f, 0), 0);
	assert_int_equal(0, set_mode(f, &d->d.e, 0700));
	pool_node_caller(node(f, 0), NODE_NO_CALLER);
	run_until(f, all_answered(f, 0));
	node(f, 0)->nops += NODE_OPS_MAX / 8 * 7; /* as if so many waited */
	assert_int_equal(-EAGAIN, mkdir_top(f, 0, "e", &e));
	pool_node_caller(node(f, 0), 0);
	assert_int_equal(0, set_mode(f, &d->d.e, 0711));
	pool_node_caller(node(f, 0), NODE_NO_CALLER);
	node(f, 0)->nops -= NODE_OPS_MAX / 8 * 7;
	run_until(f, all_answered(f, 0));
}

/* ---- names of both kinds ---- */

/* Both have made the name at the same time, one of them a directory that it has
 * removed since: the other's file shows. */
static void a_directory_removed_where_a_file_won_does_not_come_back(
	void **state)
{
	struct fixture *f = *state;
	struct node_dirent *d;

	start_pool(f, 2);
	refuses_ops = node(f, 0);
	assert_int_equal(0, mkdir_top(f, 0, "r", &d));
	assert_int_equal(0, pool_node_rmdir(node(f, 0), d));
	put(f, 1, "r", 1000, 1);
	run_until(f, master_map_file(&f->master->map, "r", 1));
	refuses_ops = NULL;
	run_until(f, all_answered(f, 0));
	run_until(f, find(f, 0, "r"));
}

/* Its tombstone is on the owner's account. */
static void the_owner_of_what_was_never_published_is_told_the_master(
	void **state)
{
	struct fixture *f = *state;
	struct master_map *map;

	start_pool(f, 1);
	map = &f->master->map;
	publish(f, 0, "k", 1000, 1); /* a generation that this node has seen */
	put(f, 0, "l", 1000, 1);
	assert_int_equal(0, pool_node_unlink(node(f, 0), find(f, 0, "l")));
	run_until(f, master_map_tomb_gen(map, "l", 1));
	assert_int_equal(1000, master_map_grave(map, "l", 1)->uid);
}

/* What was unlinked here is hidden until the feed says that it is gone. That there
 * is a directory says it, too: no other picture is asked for. */
static void a_hidden_file_gives_way_to_a_directory(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *e;
	struct node_dirent *d;

	start_pool(f, 2);
	publish(f, 0, "k", 1000, 1);
	e = node_tree_add(node(f, 0), pool_node_root(node(f, 0)), "r", 1,
			  false);
	assert_non_null(e);
	node_hide(node(f, 0), node_file(e), node(f, 0)->seen_gen);
	assert_int_equal(0, mkdir_top(f, 1, "r", &d));
	run_until(f, there(f, 0, "r"));
	assert_count(1, f, 0, feed_resyncs);
}

/* Node 1 writes d/e/k while node 0 removes the directories. */
static struct node_object *written_in_a_removed_directory(struct fixture *f)
{
	struct node_dirent *d, *e;
	struct node_object *o;

	start_pool(f, 2);
	assert_int_equal(0, mkdir_top(f, 0, "d", &d));
	assert_int_equal(0, mkdir_in(f, 0, d, "e", &e));
	run_until(f, known(f, 1, "d/e"));
	o = create_in(f, 1, node_dir(pool_tree_lookup(
				    pool_node_tree(node(f, 1)), "d/e", 3)),
		      "k", 0);
	write_bytes(f, 1, o, 1000, 1);
	assert_int_equal(0, pool_node_rmdir(node(f, 0), e));
	assert_int_equal(0, pool_node_rmdir(node(f, 0), d));
	run_until(f, !known(f, 0, "d") &&
			     node(f, 1)->feed_seq == f->master->map.feed.seq);
	assert_non_null(there(f, 1, "d"));
	assert_null(master_map_dir(&f->master->map, "d", 1));
	return o;
}

static void removed_directories_go_with_the_last_file_below(void **state)
{
	struct fixture *f = *state;
	struct node_object *o = written_in_a_removed_directory(f);
	struct pool_entry *k = &o->entry->e;

	node_object_ref(o); /* the open handle's */
	assert_int_equal(0, pool_node_unlink(node(f, 1), node_file(k)));
	pool_node_tidy(node(f, 1), k);
	assert_null(there(f, 1, "d"));
	assert_false(known(f, 1, "d"));
	pool_node_writer_closed(node(f, 1), o);
	node_object_unref(node(f, 1), o);
}

static void removed_directories_come_back_with_a_file_below(void **state)
{
	struct fixture *f = *state;
	struct node_object *o = written_in_a_removed_directory(f);

	close_whole(f, 1, o);
	run_until(f, known(f, 0, "d/e/k"));
	assert_non_null(master_map_dir(&f->master->map, "d/e", 3));
	run_until(f, node(f, 1)->feed_seq == f->master->map.feed.seq);
	assert_true(node_dir(there(f, 1, "d"))->known);
	assert_false(node_dir(there(f, 1, "d"))->leaving);
}

/* ---- space ---- */

struct test_claim {
	struct node_claim c;
	int status;
	bool done;
};

static void on_claim(struct node_claim *c, int status)
{
	struct test_claim *t = pool_container_of(c, struct test_claim, c);

	assert_false(t->done);
	t->done = true;
	t->status = status;
}

static void on_extended(void *arg, int status)
{
	struct test_claim *t = arg;

	t->done = true;
	t->status = status;
}

static int claim(struct fixture *f, struct test_claim *t, uint64_t bytes,
		 unsigned int timeout_ms)
{
	memset(t, 0, sizeof(*t));
	return pool_node_claim_start(node(f, 0), &t->c, bytes, timeout_ms,
				     on_claim);
}

static void claims_are_granted_while_there_is_room(void **state)
{
	struct fixture *f = *state;
	struct test_claim a, b;

	start_node(f, 0);
	need_own_tmpfs(f, 0);
	assert_int_equal(1, claim(f, &a, 16 * MIB, 0));
	assert_int_equal(-ENOSPC, claim(f, &b, STORE_SIZE + 1, 0));
	/* Nothing could be evicted for it. */
	assert_int_equal(0, claim(f, &b, 20 * MIB, 0));
	run_until(f, b.done);
	assert_int_equal(-ENOSPC, b.status);
	assert_count(1, f, 0, claims_refused);
	assert_int_equal(1, claim(f, &b, 8 * MIB, 0));
	pool_node_claim_end(node(f, 0), 8 * MIB);
	pool_node_claim_end(node(f, 0), 16 * MIB);
	assert_int_equal(1, claim(f, &a, 30 * MIB, 0));
	pool_node_claim_end(node(f, 0), 30 * MIB);
	assert_int_equal(0, node(f, 0)->claimed);
	assert_false(a.done);
}

static void a_claim_waits_for_what_is_being_published_to_its_deadline(
	void **state)
{
	struct fixture *f = *state;
	struct test_claim a, b, cancelled, small;
	uint64_t start;

	start_node(f, 0);
	need_own_tmpfs(f, 0);
	put(f, 0, "k", 16 * MIB, 1);
	run_until(f, is_pending(f, 0, "k"));
	start = pool_now_ms();
	assert_int_equal(0, claim(f, &a, 20 * MIB, 100));
	assert_int_equal(0, claim(f, &cancelled, 20 * MIB, 100));
	assert_int_equal(0, claim(f, &b, 2 * MIB, 5000)); /* in order */
	assert_int_equal(1, claim(f, &small, MIB, 0));	  /* past them */
	pool_node_claim_end(node(f, 0), MIB);
	pool_node_claim_cancel(node(f, 0), &cancelled.c);
	run_until(f, a.done);
	assert_int_equal(-ENOSPC, a.status);
	assert_true(pool_now_ms() - start >= 100);
	run_until(f, b.done);
	assert_int_equal(0, b.status);
	assert_false(cancelled.done);
	pool_node_claim_end(node(f, 0), 2 * MIB);
	assert_int_equal(0, node(f, 0)->claimed);
}

struct greedy {
	struct test_claim t, more;
	struct fixture *f;
};

static void on_greedy(struct node_claim *c, int status)
{
	struct greedy *g = pool_container_of(c, struct greedy, t.c);

	on_claim(c, status);
	assert_int_equal(1, claim(g->f, &g->more, MIB / 2, 0));
}

static void what_is_claimed_when_a_claim_is_granted_is_not_granted_again(
	void **state)
{
	struct fixture *f = *state;
	struct test_claim all, next, last;
	struct greedy first = { .f = f };
	struct pool_space sp;

	start_node(f, 0);
	need_own_tmpfs(f, 0);
	put(f, 0, "k", 16 * MIB, 1);
	run_until(f, is_pending(f, 0, "k"));
	pool_store_space(node(f, 0)->store, &sp);
	assert_int_equal(1, claim(f, &all, sp.free, 0));
	assert_int_equal(0, pool_node_claim_start(node(f, 0), &first.t.c,
						  MIB / 2, 5000, on_greedy));
	assert_int_equal(0, claim(f, &next, MIB / 2, 5000));
	assert_int_equal(0, claim(f, &last, MIB / 2, 5000));
	pool_node_claim_end(node(f, 0), 5 * MIB / 4);
	run_until(f, first.t.done);
	run_for(f, 50);
	assert_false(next.done || last.done);
	assert_int_equal(sp.free - MIB / 4, node(f, 0)->claimed);
	pool_node_claim_end(node(f, 0), MIB);
	run_until(f, last.done);
	assert_true(next.done);
	assert_int_equal(sp.free - MIB / 4, node(f, 0)->claimed);
	pool_node_claim_end(node(f, 0), sp.free - MIB / 4);
}

static void a_claim_is_granted_when_the_master_lets_objects_go(void **state)
{
	struct fixture *f = *state;
	struct test_claim t;

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	publish(f, 0, "a", 12 * MIB, 1);
	publish(f, 0, "b", 12 * MIB, 2);
	memset(&t, 0, sizeof(t));
	t.c.cache_only = true; /* a prefetch pushes nothing out */
	assert_int_equal(-ENOSPC,
			 pool_node_claim_start(node(f, 0), &t.c, 16 * MIB, 0,
					       on_claim));
	assert_int_equal(0, claim(f, &t, 16 * MIB, 0));
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	assert_true(pool_counter_value(&node(f, 0)->c.evicted_last) > 0);
	run_until(f, !known(f, 0, "a") || !known(f, 0, "b"));
	pool_node_claim_end(node(f, 0), 16 * MIB);
}

static void a_claim_waits_for_what_is_being_sent_to_a_peer(void **state)
{
	struct fixture *f = *state;
	struct test_claim t;
	int fd;

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	publish(f, 0, "k", 24 * MIB, 1);
	fd = pool_store_fd(pool_node_store(node(f, 0)), find(f, 0, "k")->obj->id,
			   O_RDONLY); /* as a mover has it */
	assert_true(fd >= 0);
	assert_int_equal(0, claim(f, &t, 16 * MIB, 10000));
	run_for(f, 2 * NODE_ASK_MS);
	assert_false(t.done);
	close(fd);
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	pool_node_claim_end(node(f, 0), 16 * MIB);
}

static void what_was_looked_up_goes_last(void **state)
{
	struct fixture *f = *state;
	struct test_claim t;

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	publish(f, 0, "a", 12 * MIB, 1);
	publish(f, 0, "b", 12 * MIB, 2);
	pool_node_prefetch(node(f, 0), find(f, 0, "a"));
	assert_int_equal(0, claim(f, &t, 16 * MIB, 0));
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	pool_node_claim_end(node(f, 0), 16 * MIB);
	assert_null(find(f, 0, "b"));
	/* It holds nothing up. */
	pool_node_prefetch(node(f, 0), find(f, 0, "a"));
	assert_int_equal(0, claim(f, &t, 28 * MIB, 0));
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	pool_node_claim_end(node(f, 0), 28 * MIB);
	assert_null(find(f, 0, "a"));
}

static void cut_off_for_long_a_node_evicts_on_its_own(void **state)
{
	struct fixture *f = *state;
	struct test_claim t;
	uint64_t start;
	int forgotten, alone;
	const char *path;
	json_t *j;

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	publish(f, 0, "a", 24 * MIB, 1);
	stop_master(f);
	run_until(f, !node_link_up(node(f, 0)));
	start = node(f, 0)->cut_off_ms;
	assert_int_equal(0, claim(f, &t, 16 * MIB, 10000));
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	assert_true(pool_now_ms() - start >= NODE_MASTERLESS_MS);
	assert_count(1, f, 0, evicted_alone);
	assert_null(find(f, 0, "a"));
	j = pool_node_evicted_json(node(f, 0));
	assert_int_equal(0, json_unpack(j, "{s:i, s:[{s:s, s:b}!]}",
					"forgotten", &forgotten, "evicted",
					"path", &path, "alone", &alone));
	assert_int_equal(0, forgotten);
	assert_string_equal("a", path);
	assert_true(alone);
	json_decref(j);
	pool_node_claim_end(node(f, 0), 16 * MIB);
	/* The next master hears of it: an older one does not come back. */
	start_master(f);
	run_until(f, master_map_grave(&f->master->map, "a", 1));
}

static void what_falls_out_of_the_list_of_evictions_is_counted(void **state)
{
	struct fixture *f = *state;
	int forgotten;
	json_t *j;

	start_pool(f, 1);
	publish(f, 0, "a", MIB, 1);
	for (int i = 0; i < NODE_EVICTED_MAX + 3; i++)
		node_evicted_note(node(f, 0), find(f, 0, "a")->obj, false);
	assert_count(3, f, 0, evicted_forgotten);
	j = pool_node_evicted_json(node(f, 0));
	assert_int_equal(0, json_unpack(j, "{s:i}", "forgotten", &forgotten));
	assert_int_equal(3, forgotten);
	assert_int_equal(NODE_EVICTED_MAX,
			 json_array_size(json_object_get(j, "evicted")));
	json_decref(j);
}

static void at_a_join_a_node_tells_the_last_ones_that_went_alone(void **state)
{
	static Kvpool__Meta list[NODE_EVICTED_TOLD];
	struct fixture *f = *state;

	start_pool(f, 1);
	publish(f, 0, "first", MIB, 1);
	publish(f, 0, "last", MIB, 1);
	node_evicted_note(node(f, 0), find(f, 0, "first")->obj, true);
	node_evicted_note(node(f, 0), find(f, 0, "last")->obj, false);
	assert_int_equal(1, node_evicted_alone(node(f, 0), list));
	assert_int_equal(1000, list[0].uid);
	for (int i = 0; i < NODE_EVICTED_TOLD; i++)
		node_evicted_note(node(f, 0), find(f, 0, "last")->obj, true);
	assert_int_equal(NODE_EVICTED_TOLD,
			 node_evicted_alone(node(f, 0), list));
	for (int i = 0; i < NODE_EVICTED_TOLD; i++)
		assert_memory_equal("last", list[i].path.data, 4);
}

static void cut_off_a_node_gives_up_no_name_that_is_to_have_replicas(
	void **state)
{
	struct fixture *f = *state;
	struct test_claim t;

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	publish(f, 0, "a", 14 * MIB, 1);
	publish(f, 0, "b", 14 * MIB, 2);
	assert_int_equal(0, set_xattr(f, 0, &find(f, 0, "a")->e,
				      "user.kvpool.replicas", "2"));
	run_until(f, node(f, 0)->nops == 0);
	stop_master(f);
	run_until(f, !node_link_up(node(f, 0)));
	/* Both would have to go for it. */
	assert_int_equal(0, claim(f, &t, 26 * MIB, 4000));
	run_until(f, t.done);
	assert_int_equal(-ENOSPC, t.status);
	assert_count(1, f, 0, evicted_alone);
	assert_non_null(find(f, 0, "a"));
	assert_null(find(f, 0, "b"));
}

static void a_publication_that_is_refused_is_told_by_one_fsync(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *root;
	struct node_object *o;

	start_node(f, 0);
	root = pool_node_root(node(f, 0));
	put(f, 0, "k", 1000, 1);
	run_until(f, is_pending(f, 0, "k"));
	o = find(f, 0, "k")->own;
	node_op_forget(node(f, 0), o);
	node_publish_done(node(f, 0), o, -EISDIR, 0);
	assert_null(find(f, 0, "k"));
	assert_int_equal(-EISDIR, pool_node_lost(root));
	assert_int_equal(0, pool_node_lost(root));
	/* One that a newer version has overtaken is replaced, not lost. */
	put(f, 0, "k", 1000, 1);
	run_until(f, is_pending(f, 0, "k"));
	o = find(f, 0, "k")->own;
	node_op_forget(node(f, 0), o);
	node_publish_done(node(f, 0), o, -ESTALE, 0);
	assert_int_equal(0, pool_node_lost(root));
}

/* As a daemon-served write does it: 0 or what the claim came to. */
static int put_claimed(struct fixture *f, struct node_dirent *dir,
		       const char *name, uint64_t len, uint32_t seed)
{
	struct node_object *o = create_in(f, 0, dir, name, 0);
	struct node_entry *e = o->entry;
	int status = 1, rc;

	rc = pool_node_extend_start(node(f, 0), o, 0, len, on_done, &status);
	if (rc == 0) {
		run_until(f, status != 1);
		rc = status;
	}
	if (rc < 0) {
		pool_node_poison(node(f, 0), o, rc);
		pool_node_writer_closed(node(f, 0), o);
		return rc;
	}
	write_bytes(f, 0, o, len, seed);
	close_whole(f, 0, o);
	run_until(f, !e->own);
	return 0;
}

static void shared_objects_make_room_for_new_ones(void **state)
{
	struct fixture *f = *state;
	unsigned int there = 0, i;
	char name[16];

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	for (i = 0; i < 64; i++) {
		snprintf(name, sizeof(name), "k%u", i);
		assert_int_equal(0, put_claimed(f, pool_node_root(node(f, 0)),
						name, MIB, i));
	}
	assert_non_null(find(f, 0, "k63"));
	assert_readable(f, 0, "k63", MIB, 63);
	for (i = 0; i < 64; i++) {
		snprintf(name, sizeof(name), "k%u", i);
		if (!is_published(f, 0, name))
			continue;
		there++;
		assert_readable(f, 0, name, MIB, i);
	}
	assert_in_range(there, 20, 32);
	assert_count(64 - there, f, 0, evicted_last);
	assert_count(0, f, 0, claims_refused);
}

static struct node_dirent *make_noevict(struct fixture *f)
{
	static const struct node_attr attr = { .mode = 0755 };
	struct pool_xattrs *x = NULL;
	struct node_dirent *d = NULL;

	assert_int_equal(0, pool_node_mkdir(node(f, 0),
					    pool_node_root(node(f, 0)),
					    "keep", 4, &attr, &d));
	assert_int_equal(0, pool_xattrs_set(&x, "user.kvpool.class",
					    "noevict", 7, 0));
	assert_int_equal(0, pool_node_setattr(node(f, 0), &d->d.e,
					      POOL_SET_XATTRS, &attr, x));
	return d;
}

/* They are the oldest, and more than are looked at for one victim. */
static void objects_that_may_not_go_are_in_no_others_way(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *d;
	unsigned int i;
	char name[16];

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	d = make_noevict(f);
	for (i = 0; i < 600; i++) {
		snprintf(name, sizeof(name), "k%u", i);
		assert_int_equal(0, put_claimed(f, d, name, 100, i));
	}
	for (i = 0; i < 64; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		assert_int_equal(0, put_claimed(f, pool_node_root(node(f, 0)),
						name, MIB, i));
	}
	assert_count(0, f, 0, claims_refused);
	assert_in_range(pool_counter_value(&node(f, 0)->c.evicted_last), 30, 64);
	for (i = 0; i < 600; i++) {
		snprintf(name, sizeof(name), "k%u", i);
		assert_non_null(find_in(f, 0, d, name));
	}
	/* With its directory's rule they may all go. */
	assert_true(node_evictable(node(f, 0)) < 32 * MIB);
	assert_int_equal(600, pool_evict_count(node(f, 0)->evict,
					       POOL_EVICT_KEPT));
	assert_int_equal(0, pool_node_setattr(node(f, 0), &d->d.e,
					      POOL_SET_XATTRS,
					      &(struct node_attr){ .mode = 0755 },
					      NULL));
	assert_int_equal(0, pool_evict_count(node(f, 0)->evict,
					     POOL_EVICT_KEPT));
}

static void noevict_holds_without_a_master_as_well(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *d;
	struct test_claim t;

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	d = make_noevict(f);
	assert_int_equal(0, put_claimed(f, d, "k", 24 * MIB, 1));
	stop_master(f);
	run_until(f, !node_link_up(node(f, 0)));
	run_until(f, pool_now_ms() - node(f, 0)->cut_off_ms >
			     NODE_MASTERLESS_MS + 100);
	assert_int_equal(0, claim(f, &t, 16 * MIB, 500));
	run_until(f, t.done);
	assert_int_equal(-ENOSPC, t.status);
	assert_non_null(find_in(f, 0, d, "k"));
	assert_count(0, f, 0, evicted_alone);
}

/* What its directory says of it, the node has not been told yet. */
static void started_without_a_master_a_node_gives_up_nothing_alone(void **state)
{
	struct fixture *f = *state;
	struct test_claim t;

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	assert_int_equal(0, put_claimed(f, make_noevict(f), "k", 24 * MIB, 1));
	stop_master(f);
	stop_node(f, 0);
	start_node(f, 0);
	run_until(f, pool_now_ms() - node(f, 0)->cut_off_ms >
			     NODE_MASTERLESS_MS + 100);
	assert_int_equal(0, claim(f, &t, 16 * MIB, 500));
	run_until(f, t.done);
	assert_int_equal(-ENOSPC, t.status);
	assert_count(0, f, 0, evicted_alone);
}

static void noevict_refuses_instead_of_evicting(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *d;
	unsigned int n = 0, i;
	struct statvfs st;
	char name[16];

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	d = make_noevict(f);
	for (;;) {
		int rc;

		snprintf(name, sizeof(name), "k%u", n);
		rc = put_claimed(f, d, name, MIB, n);
		if (rc < 0) {
			assert_int_equal(-ENOSPC, rc);
			break;
		}
		assert_in_range(++n, 1, 32);
	}
	assert_in_range(n, 28, 32);
	assert_count(0, f, 0, evicted_last);
	for (i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "k%u", i);
		assert_non_null(find_in(f, 0, d, name));
	}
	pool_node_statvfs(node(f, 0), &st);
	assert_true(st.f_bavail * st.f_bsize < 4 * MIB);
	/* What is taken away by hand makes room. */
	assert_int_equal(0, pool_node_unlink(node(f, 0),
					     find_in(f, 0, d, "k0")));
	assert_int_equal(0, pool_node_unlink(node(f, 0),
					     find_in(f, 0, d, "k1")));
	run_for(f, 40);
	assert_int_equal(0, put_claimed(f, d, "again", MIB, 77));
}

/* ---- two nodes ---- */

static void publish_and_see(struct fixture *f, const char *name,
			    uint64_t len, uint32_t seed)
{
	unsigned int appeared = f->m[1].told.appeared;

	publish(f, 0, name, len, seed);
	run_until(f, find(f, 1, name));
	assert_int_equal(appeared + 1, f->m[1].told.appeared);
	assert_int_equal(len, find(f, 1, name)->size);
	assert_true(find(f, 1, name)->gen == find(f, 0, name)->gen);
}

static void another_node_sees_and_fetches_what_was_published(void **state)
{
	struct fixture *f = *state;
	struct test_want a, b, cancelled;
	struct node_object *o;

	start_pool(f, 2);
	publish_and_see(f, "k", 100000, 1);
	assert_info(f, 1, "k", "user.kvpool.state", "remote");
	assert_int_equal(0, want_start(f, 1, "k", &a));
	assert_int_equal(0, want_start(f, 1, "k", &b));
	assert_int_equal(0, want_start(f, 1, "k", &cancelled));
	pool_node_want_cancel(node(f, 1), &cancelled.w);
	run_until(f, a.done && b.done);
	assert_int_equal(0, a.status);
	assert_ptr_equal(a.obj, b.obj);
	assert_false(cancelled.done);
	assert_count(1, f, 1, fetches);
	assert_true(a.obj->lent_fd < 0);
	assert_bytes(f, 1, a.obj, 100000, 1);
	assert_info(f, 1, "k", "user.kvpool.state", "cached");
	node_object_unref(node(f, 1), a.obj);
	node_object_unref(node(f, 1), b.obj);
	/* Now it is here. */
	assert_int_equal(1, want_start(f, 1, "k", &a));
	node_object_unref(node(f, 1), a.obj);

	/* In several pieces. */
	publish_and_see(f, "large", 11 * MIB + 123, 2);
	assert_int_equal(0, want(f, 1, "large", &o));
	assert_bytes(f, 1, o, 11 * MIB + 123, 2);
	node_object_unref(node(f, 1), o);
}

static void a_node_on_the_same_host_borrows_the_descriptor(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	f->opts.fd_passing = true;
	start_pool(f, 2);
	publish_and_see(f, "k", 100000, 1);
	assert_int_equal(0, want(f, 1, "k", &o));
	assert_true(o->lent_fd >= 0);
	assert_bytes(f, 1, o, 100000, 1);
	assert_info(f, 1, "k", "user.kvpool.state", "borrowed");
	assert_int_equal(1, find(f, 0, "k")->obj->lent);
	assert_int_equal(1, node(f, 1)->borrowed);
	assert_count(0, f, 1, fetch_bytes);
	/* Gone from the pool: given back, but readable while it is open. */
	o->users++;
	assert_int_equal(0, pool_node_unlink(node(f, 0), find(f, 0, "k")));
	run_until(f, o->state == NODE_DROPPED);
	assert_int_equal(0, node(f, 1)->borrowed);
	assert_bytes(f, 1, o, 100000, 1);
	o->users--;
	node_object_unref(node(f, 1), o);
}

static void a_borrowed_object_is_asked_back_for_room(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	struct test_claim t;

	f->opts.fd_passing = true;
	start_pool(f, 2);
	need_own_tmpfs(f, 0);
	publish_and_see(f, "k", 24 * MIB, 1);
	assert_int_equal(0, want(f, 1, "k", &o));
	node_object_unref(node(f, 1), o);
	assert_int_equal(1, find(f, 0, "k")->obj->lent);
	assert_int_equal(0, claim(f, &t, 16 * MIB, 10000)); /* waits for it */
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	assert_int_equal(0, node(f, 1)->borrowed);
	pool_node_claim_end(node(f, 0), 16 * MIB);
}

/* Each costs a descriptor: beyond so many, objects are copied. */
static void so_many_are_borrowed_others_are_copied(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	char name[] = "k0";

	f->opts.fd_passing = true;
	f->opts.fds_max = 2;
	start_pool(f, 2);
	for (int k = 0; k < 4; k++, name[1]++)
		publish_and_see(f, name, 1 * MIB, 1);
	for (name[1] = '0'; name[1] < '4'; name[1]++) {
		assert_int_equal(0, want(f, 1, name, &o));
		node_object_unref(node(f, 1), o);
	}
	assert_int_equal(2, node(f, 1)->borrowed);
	assert_info(f, 1, "k1", "user.kvpool.state", "borrowed");
	assert_info(f, 1, "k2", "user.kvpool.state", "cached");
	assert_info(f, 1, "k3", "user.kvpool.state", "cached");
}

/* Two stores of 32 MiB, full: one object on the first, two on the other. */
static void fill_both(struct fixture *f)
{
	start_pool(f, 2);
	need_own_tmpfs(f, 0);
	publish_and_see(f, "k", 26 * MIB, 1);
	publish(f, 1, "a", 13 * MIB, 2);
	publish(f, 1, "b", 13 * MIB, 3);
	run_until(f, find(f, 0, "a") && find(f, 0, "b"));
}

/* What node 0 knows of node 1. */
static bool room_elsewhere_known(struct fixture *f)
{
	const struct node_member *m =
		&node(f, 0)->members[node(f, 1)->index];

	return m->known && m->alive &&
	       m->capacity - m->used >= 8 * MIB;
}

static void pin(struct fixture *f, int i, const char *name)
{
	const struct node_attr attr = { 0 };
	struct pool_xattrs *x = NULL;

	assert_int_equal(0, pool_xattrs_set(&x, "user.kvpool.pin", "hard", 4,
					    0));
	assert_int_equal(0, pool_node_setattr(node(f, i), &find(f, i, name)->e,
					      POOL_SET_XATTRS, &attr, x));
}

/* Room for a put on node i: 0 or -errno. It is not claimed afterwards. */
static int claim_to_put(struct fixture *f, int i, uint64_t bytes,
			unsigned int timeout_ms)
{
	struct test_claim t = { .c.put = true };
	int rc = pool_node_claim_start(node(f, i), &t.c, bytes, timeout_ms,
				       on_claim);

	if (rc == 0) {
		run_until(f, t.done);
		rc = t.status;
	}
	if (rc >= 0)
		pool_node_claim_end(node(f, i), bytes);
	return rc < 0 ? rc : 0;
}

/* Node 0 is full of k, of 26 MiB, and knows that node 1 has room. */
static void fill_one(struct fixture *f)
{
	start_pool(f, 2);
	need_own_tmpfs(f, 0);
	publish_and_see(f, "k", 26 * MIB, 1);
	run_until(f, room_elsewhere_known(f));
}

static void a_put_passes_through_where_nothing_may_go(void **state)
{
	struct fixture *f = *state;
	struct test_claim t;

	fill_one(f);
	pin(f, 0, "k");
	/* What is no put stays out. */
	assert_int_equal(0, claim(f, &t, 8 * MIB, 0));
	run_until(f, t.done);
	assert_int_equal(-ENOSPC, t.status);
	assert_int_equal(0, claim_to_put(f, 0, 8 * MIB, 0));
	assert_count(1, f, 0, claims_through);
	/* It is moved, and k stays. */
	publish(f, 0, "l", 8 * MIB, 2);
	run_until(f, known(f, 1, "l") && !find(f, 0, "l")->obj);
	assert_readable(f, 1, "l", 8 * MIB, 2);
	assert_non_null(find(f, 0, "k")->obj);
	/* With no room there either it is refused. */
	publish(f, 1, "a", 20 * MIB, 3);
	pin(f, 1, "a");
	pin(f, 1, "l");
	run_until(f, find(f, 0, "a") && !room_elsewhere_known(f));
	assert_int_equal(-ENOSPC, claim_to_put(f, 0, 8 * MIB, 0));
}

/* It would have the headroom and nothing else, as nothing goes behind it. */
static void beside_what_is_kept_nothing_is_reserved_by_guess(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	struct pool_space sp;

	f->opts.reserve = true;
	start_node(f, 0);
	need_own_tmpfs(f, 0);
	start_master(f);
	run_until(f, is_up(f, 0));
	publish(f, 0, "k", 26 * MIB, 1);
	close_whole(f, 0, create_reserved(f)); /* k may go */
	pin(f, 0, "k");
	for (int i = 0; i < 16; i++) /* as good as never another size */
		node_learn_size(node(f, 0), find(f, 0, "k"), 100 * KIB);
	assert_int_equal(100 * KIB,
			 node_learn_predict(node(f, 0),
					    pool_node_root(node(f, 0))));
	run_until(f, (pool_store_space(pool_node_store(node(f, 0)), &sp),
		      sp.ready > 0));
	assert_true(sp.free > 0);
	o = create_in(f, 0, pool_node_root(node(f, 0)), "guess", 0);
	assert_true(o->w->served);
	pool_node_writer_closed(node(f, 0), o);
	o = create_in(f, 0, pool_node_root(node(f, 0)), "told", 100 * KIB);
	assert_false(o->w->served);
	pool_node_writer_closed(node(f, 0), o);
}

static void rule_of_all(struct fixture *f, const char *name, const char *value)
{
	const struct node_attr attr = { 0 };
	struct pool_xattrs *x = NULL;

	assert_int_equal(0, pool_xattrs_set(&x, name, value, strlen(value), 0));
	assert_int_equal(0, pool_node_setattr(node(f, 0),
					      &pool_node_root(node(f, 0))->d.e,
					      POOL_SET_XATTRS, &attr, x));
}

static bool has_copy(struct fixture *f, int i, const char *name)
{
	struct node_entry *e = find(f, i, name);

	return e && e->obj && e->obj->counted;
}

/* The pool is as large as all its stores, for what is pinned, too. */
static void what_is_pinned_does_not_stay_in_the_headroom(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	fill_one(f);
	rule_of_all(f, "user.kvpool.pin", "hard");
	assert_int_equal(0, claim_to_put(f, 0, 8 * MIB, 0));
	assert_count(1, f, 0, claims_through);
	publish(f, 0, "l", 8 * MIB, 2);
	run_until(f, has_copy(f, 0, "k") != has_copy(f, 0, "l") &&
			     has_copy(f, 1, "k") != has_copy(f, 1, "l"));
	for (int i = 0; i < 2; i++) {
		o = find(f, i, "k")->obj;
		assert_bytes(f, i, o ? o : find(f, i, "l")->obj,
			     o ? 26 * MIB : 8 * MIB, o ? 1 : 2);
	}
}

static uint64_t used(struct fixture *f, int i)
{
	struct pool_space sp;

	pool_store_space(pool_node_store(node(f, i)), &sp);
	return sp.used;
}

/* The other one has room for two of those that are pinned, and not for l. */
static void what_nobody_has_room_for_is_not_evicted_for_that(void **state)
{
	const struct node_member *m;
	struct fixture *f = *state;
	char name[16];

	start_pool(f, 2);
	need_own_tmpfs(f, 0);
	publish(f, 1, "a", 20 * MIB, 1);
	for (int i = 0; i < 5; i++) {
		snprintf(name, sizeof(name), "k%d", i);
		publish_and_see(f, name, 5 * MIB, 2);
		pin(f, 0, name);
	}
	m = &node(f, 0)->members[node(f, 1)->index];
	run_until(f, m->known && m->used >= 20 * MIB);
	publish(f, 0, "l", 14 * MIB, 3);
	run_until(f, used(f, 0) < STORE_SIZE + MIB);
	assert_true(has_copy(f, 0, "l") && has_copy(f, 1, "a"));
	for (int i = 0; i < 5; i++) {
		snprintf(name, sizeof(name), "k%d", i);
		assert_true(has_copy(f, 0, name) != has_copy(f, 1, name));
	}
}

/* Only that is written into the headroom which others will take. */
static void what_stays_here_does_not_pass_through(void **state)
{
	struct fixture *f = *state;
	struct test_claim t = { .done = false };
	json_t *json = NULL;
	const char *text;
	struct node_object *o;

	fill_one(f);
	rule_of_all(f, "user.kvpool.class", "scratch");
	pin(f, 0, "k");
	o = create_in(f, 0, pool_node_root(node(f, 0)), "s", 0);
	assert_true(o->w->scratch);
	assert_int_equal(0, pool_node_extend_start(node(f, 0), o, 0, 8 * MIB,
						   on_extended, &t));
	run_until(f, t.done);
	assert_int_equal(-ENOSPC, t.status);
	pool_node_writer_closed(node(f, 0), o);
	/* A node that is being emptied takes nothing. */
	assert_int_equal(0, master_drain(f->master, "node1", MASTER_DRAIN_BEGIN,
					 &json, &text));
	json_decref(json);
	run_until(f, node(f, 0)->members[node(f, 1)->index].draining);
	assert_int_equal(-ENOSPC, claim_to_put(f, 0, 8 * MIB, 0));
	assert_count(0, f, 0, claims_through);
}

static void a_client_holds_no_more_than_its_buffer(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	start_master(f);
	start_node(f, 0);
	f->opts.store_size = 0;
	f->opts.buffer_size = 16 * MIB;
	start_node(f, 1);
	need_own_tmpfs(f, 1);
	run_until(f, is_up(f, 0) && is_up(f, 1) &&
			     node(f, 1)->members[node(f, 0)->index].known);
	o = create_in(f, 1, pool_node_root(node(f, 1)), "k", 0);
	write_bytes(f, 1, o, 14 * MIB, 1);
	assert_int_equal(-ENOSPC, claim_to_put(f, 1, 8 * MIB, 0));
	assert_count(0, f, 1, claims_through);
	close_whole(f, 1, o);
}

/* Else it takes it for what may be evicted, as no store has room. */
static void the_master_hears_a_rule_before_what_it_keeps_is_offered(
	void **state)
{
	struct fixture *f = *state;

	fill_both(f);
	rule_of_all(f, "user.kvpool.class", "noevict");
	/* What we know of it is old. */
	node(f, 0)->members[node(f, 1)->index].used = 0;
	(void)claim_to_put(f, 0, 20 * MIB, 500);
	run_for(f, 3 * HEARTBEAT_MS);
	assert_readable(f, 0, "k", 26 * MIB, 1);
}

/* What a peer has open might go at any time, but need not. */
static void a_put_does_not_fail_because_peers_have_all_open(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	fill_one(f);
	o = find(f, 0, "k")->obj;
	o->lent++;
	assert_int_equal(0, claim_to_put(f, 0, 8 * MIB, 500));
	assert_count(1, f, 0, claims_through);
	o->lent--;
}

/* The master's order to node i: a copy of what node `from` has. */
static void order_copy(struct fixture *f, int i, int from, const char *name)
{
	Kvpool__Replicate msg = KVPOOL__REPLICATE__INIT;
	Kvpool__Meta meta = KVPOOL__META__INIT, *list = &meta;
	struct node_entry *e = find(f, i, name);
	uint32_t holder = node(f, from)->index;
	XXH128_canonical_t sum;

	meta.path.data = (uint8_t *)(uintptr_t)name;
	meta.path.len = strlen(name);
	meta.gen = e->gen;
	meta.size = e->size;
	XXH128_canonicalFromHash(&sum, e->sum);
	meta.sum.data = sum.digest;
	meta.sum.len = sizeof(sum);
	meta.mode = e->attr.mode;
	meta.mtime_ns = e->attr.mtime_ns;
	meta.attr_gen = e->attr.gen;
	meta.holders = &holder;
	meta.n_holders = 1;
	msg.entries = &list;
	msg.n_entries = 1;
	node_replicate(node(f, i), &msg);
}

/* Opened, and read: it stays that long. */
static void open_start(struct fixture *f, int i, const char *name,
		       struct test_want *t)
{
	assert_int_equal(0, want_start(f, i, name, t));
	t->use = true;
}

static void assert_opened(struct fixture *f, int i, struct test_want *t,
			  uint64_t len, uint32_t seed)
{
	run_until(f, t->done);
	assert_int_equal(0, t->status);
	assert_false(t->obj->counted);
	assert_bytes(f, i, t->obj, len, seed);
	t->obj->users--;
	node_object_unref(node(f, i), t->obj);
	node_kick(node(f, i));
}

/* All is pinned: there is no room for a copy that counts, and some of the
 * headroom for what is read. */
static void what_is_ordered_to_where_there_is_no_room_can_be_read(void **state)
{
	static const char *const names[] = { "k", "l", "a", "b", "c" };
	struct fixture *f = *state;
	struct test_want a, b;

	fill_both(f);
	publish_and_see(f, "l", 4 * MIB, 4);
	publish(f, 1, "c", 5 * MIB, 5);
	for (int i = 0; i < 5; i++)
		pin(f, i < 2 ? 0 : 1, names[i]);
	run_for(f, 3 * HEARTBEAT_MS);
	order_copy(f, 1, 0, "l");
	assert_non_null(find(f, 1, "l")->fetch);
	open_start(f, 1, "l", &a); /* while that waits */
	open_start(f, 1, "l", &b);
	assert_opened(f, 1, &a, 4 * MIB, 4);
	assert_opened(f, 1, &b, 4 * MIB, 4);
	assert_count(1, f, 1, replicate_failures);
	/* Each of the other's, one after another and at once. */
	open_start(f, 0, "a", &a);
	assert_opened(f, 0, &a, 13 * MIB, 2);
	open_start(f, 0, "c", &a);
	open_start(f, 0, "b", &b);
	assert_opened(f, 0, &a, 5 * MIB, 5);
	assert_opened(f, 0, &b, 13 * MIB, 3);
}

static void what_has_landed_is_claimed_no_longer(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n;
	uint64_t landed = 0;
	struct test_want w;

	start_pool(f, 2);
	publish_and_see(f, "k", 26 * MIB, 1);
	n = node(f, 1);
	assert_int_equal(0, want_start(f, 1, "k", &w));
	while (!w.done) {
		uint64_t now = node_fetch_settle(n);

		landed = now > landed ? now : landed;
		assert_true(n->claimed + now <= 26 * MIB);
		uv_run(&f->loop, UV_RUN_ONCE);
	}
	assert_int_equal(0, w.status);
	node_object_unref(n, w.obj);
	assert_true(landed > 0);
	assert_int_equal(0, n->claimed);
}

static void what_is_read_costs_no_copy_that_counts(void **state)
{
	struct fixture *f = *state;
	struct test_claim t;
	struct node_object *o;
	struct test_want w;

	fill_both(f);
	assert_int_equal(0, want_start(f, 0, "a", &w));
	w.use = true;
	run_until(f, w.done);
	assert_int_equal(0, w.status);
	o = w.obj;
	assert_bytes(f, 0, o, 13 * MIB, 2);
	assert_count(1, f, 0, claims_passing);
	/* The store is over its size, and stays so while it is in use; who
	 * writes does not wait for that. */
	run_for(f, 100);
	assert_int_equal(NODE_HELD, o->state);
	assert_int_equal(1, claim(f, &t, MIB, 0));
	pool_node_claim_end(node(f, 0), MIB);
	o->users--;
	run_until(f, o->state == NODE_DROPPED);
	node_object_unref(node(f, 0), o);
	assert_int_equal(0, want(f, 0, "b", &o));
	node_object_unref(node(f, 0), o);
	assert_non_null(find(f, 0, "k")->obj);
	assert_count(0, f, 0, evicted_last);
	assert_count(0, f, 1, evicted_last);
}

static void bytes_with_a_wrong_sum_are_discarded(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	start_pool(f, 2);
	publish_and_see(f, "small", 100000, 1);
	publish_and_see(f, "large", 9 * MIB, 2);
	damage(f, 0, find(f, 0, "small")->obj);
	damage(f, 0, find(f, 0, "large")->obj);
	assert_int_equal(-ENOENT, want(f, 1, "small", &o));
	assert_int_equal(-ENOENT, want(f, 1, "large", &o));
	assert_count(2, f, 1, bad_sums);
	assert_count(2, f, 1, fetch_failures);
	assert_false(find(f, 1, "small") && find(f, 1, "small")->obj);
}

static void what_is_lent_with_a_wrong_sum_is_not_read(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	f->opts.fd_passing = true;
	start_pool(f, 2);
	publish_and_see(f, "k", 100000, 1);
	publish_and_see(f, "right", 100000, 2);
	damage(f, 0, find(f, 0, "k")->obj);
	assert_int_equal(-ENOENT, want(f, 1, "k", &o));
	assert_count(1, f, 1, bad_sums);
	assert_int_equal(0, node(f, 1)->borrowed);
	/* Given back: else it could not be evicted there any more. */
	run_until(f, find(f, 0, "k")->obj->lent == 0);
	assert_readable(f, 1, "right", 100000, 2);
	assert_int_equal(1, node(f, 1)->borrowed);
}

static void a_copy_is_checked_before_it_counts_as_a_replica(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	start_pool(f, 2);
	publish_and_see(f, "k", 100000, 1);
	assert_readable(f, 1, "k", 100000, 1); /* a cached copy is here */
	o = find(f, 1, "k")->obj;
	assert_false(o->counted);
	damage(f, 1, o);
	o->verified = false; /* as after a restart */
	order_copy(f, 1, 0, "k");
	assert_false(o->counted);
	run_until(f, find(f, 1, "k")->obj != o);
	/* The holder's is right. */
	assert_readable(f, 1, "k", 100000, 1);
	/* One that is found right counts when it is ordered again. */
	o = find(f, 1, "k")->obj;
	o->verified = false;
	order_copy(f, 1, 0, "k");
	assert_false(o->counted);
	run_until(f, o->verified);
	order_copy(f, 1, 0, "k");
	assert_true(o->counted);
}

static void set_replicas(struct fixture *f, int i, const char *name,
			 const char *replicas, uint32_t mode)
{
	struct node_attr attr = { .mode = mode };
	struct pool_xattrs *x = NULL;

	assert_int_equal(0, pool_xattrs_set(&x, "user.kvpool.replicas",
					    replicas, strlen(replicas), 0));
	assert_int_equal(0, pool_node_setattr(node(f, i),
					      &find(f, i, name)->e,
					      POOL_SET_MODE | POOL_SET_XATTRS,
					      &attr, x));
}

/* How many files of node i's store are kept aside. */
static unsigned int kept_aside(struct fixture *f, int i)
{
	const char *dir = pool_store_path(pool_node_store(node(f, i)));
	char cmd[256];
	FILE *p;
	unsigned int n = 0;

	snprintf(cmd, sizeof(cmd), "ls '%s' | grep -c ^bad-", dir);
	p = popen(cmd, "re");
	assert_non_null(p);
	assert_int_equal(1, fscanf(p, "%u", &n));
	pclose(p);
	return n;
}

static void a_holder_is_told_of_damage_and_withdraws_its_copy(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	start_pool(f, 2);
	publish_and_see(f, "small", 100000, 1);
	publish_and_see(f, "large", 9 * MIB, 2);
	publish_and_see(f, "whole", 100000, 3);
	damage(f, 0, find(f, 0, "small")->obj);
	damage(f, 0, find(f, 0, "large")->obj);
	assert_int_equal(-ENOENT, want(f, 1, "small", &o));
	assert_int_equal(-ENOENT, want(f, 1, "large", &o));
	assert_count(2, f, 1, doubts_told);
	/* There are no others: the names go. */
	run_until(f, !find(f, 0, "small") && !find(f, 1, "small"));
	run_until(f, !find(f, 0, "large") && !find(f, 1, "large"));
	assert_count(2, f, 0, damaged);
	assert_int_equal(1, kept_aside(f, 0)); /* one is too large */
	/* Of the third it is not true, and not looked into again. */
	pool_node_doubt(node(f, 0), find(f, 0, "whole")->obj);
	run_until(f, node(f, 0)->c.doubts_unfounded.v == 1);
	pool_node_doubt(node(f, 0), find(f, 0, "whole")->obj);
	assert_count(1, f, 0, doubts_skipped);
	assert_count(3, f, 0, doubts);
	assert_count(2, f, 0, damaged);
	assert_true(find(f, 0, "whole")->obj->verified);
	assert_readable(f, 1, "whole", 100000, 3);
}

/* Short or gone: found out before it is sent. */
static void a_file_that_is_cut_or_missing_is_withdrawn(void **state)
{
	static const char *const names[] = { "cut", "missing" };
	struct fixture *f = *state;
	struct node_object *o;
	char path[256];

	start_pool(f, 2);
	for (int i = 0; i < 2; i++) {
		publish_and_see(f, names[i], 100000, 1);
		snprintf(path, sizeof(path), "%s/%016llx",
			 pool_store_path(pool_node_store(node(f, 0))),
			 (unsigned long long)find(f, 0, names[i])->obj->id);
		assert_int_equal(0, i ? unlink(path) : truncate(path, 50000));
		assert_true(want(f, 1, names[i], &o) < 0);
		run_until(f, !find(f, 0, names[i]) && !find(f, 1, names[i]));
		assert_count((unsigned)i + 1, f, 0, damaged);
	}
	assert_int_equal(1, kept_aside(f, 0));
}

/* Pieces come from both holders of a large object: but not from one that stood
 * still just now, on a busy machine. */
static void read_from_both(struct fixture *f, int i, const char *name,
			   uint64_t size, uint32_t seed)
{
	uint64_t told = node(f, i)->c.doubts_told.v;

	for (int tries = 0; tries < 5; tries++) {
		assert_readable(f, i, name, size, seed);
		if (node(f, i)->c.doubts_told.v > told)
			return;
		if (find(f, i, name)->obj)
			node_object_drop(node(f, i), find(f, i, name)->obj,
					 true);
		run_for(f, NODE_SHY_MS);
	}
	fail_msg("no holder's bytes were wrong");
}

/* Then from one of them. */
static void a_reader_finds_the_holder_whose_copy_is_right(void **state)
{
	static const char *const names[] = { "first-bad", "second-bad" };
	struct fixture *f = *state;
	uint64_t size = 9 * MIB;

	start_pool(f, 2);
	for (int i = 0; i < 2; i++) {
		publish_and_see(f, names[i], size, 5);
		set_replicas(f, 0, names[i], "2", 0600);
		run_until(f, find(f, 0, names[i])->replicas == 2);
	}
	start_node(f, 2);
	run_until(f, is_up(f, 2));
	for (int i = 0; i < 2; i++) {
		damage(f, i, find(f, i, names[i])->obj);
		read_from_both(f, 2, names[i], size, 5);
		/* And there are two copies again. */
		run_until(f, node(f, i)->c.damaged.v == 1);
		run_until(f, node(f, 0)->c.replicated.v +
					     node(f, 1)->c.replicated.v +
					     node(f, 2)->c.replicated.v ==
				     3u + (unsigned)i);
		run_until(f, find(f, 2, names[i])->replicas == 2);
	}
	assert_count(1, f, 0, damaged);
	assert_count(1, f, 1, damaged);
}

/* A start finds it, the first open finds it damaged: another has it. */
static void a_damaged_copy_of_our_own_is_fetched_instead(void **state)
{
	struct fixture *f = *state;

	start_pool(f, 2);
	publish_and_see(f, "k", 100000, 1);
	set_replicas(f, 0, "k", "2", 0600);
	run_until(f, find(f, 0, "k")->replicas == 2);
	damage(f, 1, find(f, 1, "k")->obj);
	stop_node(f, 1);
	start_node(f, 1);
	run_until(f, is_up(f, 1) && find(f, 1, "k")->replicas == 2);
	assert_false(find(f, 1, "k")->obj->verified);
	assert_readable(f, 1, "k", 100000, 1);
	assert_count(1, f, 1, damaged);
	assert_int_equal(1, kept_aside(f, 1));
	run_until(f, find(f, 1, "k")->obj->counted &&
			     find(f, 0, "k")->replicas == 2);
}

static void a_new_generation_replaces_the_other_node_s_copy(void **state)
{
	struct fixture *f = *state;
	uint64_t gen;

	start_pool(f, 2);
	publish_and_see(f, "k", 1000, 1);
	assert_readable(f, 1, "k", 1000, 1);
	gen = find(f, 1, "k")->gen;
	publish(f, 0, "k", 2000, 2);
	run_until(f, find(f, 1, "k") && find(f, 1, "k")->gen > gen);
	assert_int_equal(1, f->m[1].told.changed);
	assert_int_equal(1, f->m[1].told.object_gone);
	assert_readable(f, 1, "k", 2000, 2);
	/* And back: the writer need not be the holder. */
	publish(f, 1, "k", 3000, 3);
	run_until(f, find(f, 0, "k") && find(f, 0, "k")->size == 3000);
	assert_readable(f, 0, "k", 3000, 3);
}

static void a_look_up_hit_may_fetch_ahead(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;

	f->opts.prefetch_max = 1;
	start_pool(f, 2);
	publish_and_see(f, "a", 100000, 1);
	publish_and_see(f, "b", 100000, 2);
	e = find(f, 1, "a");
	pool_node_prefetch(node(f, 1), e);
	pool_node_prefetch(node(f, 1), find(f, 1, "b"));
	assert_count(1, f, 1, prefetched);
	assert_count(1, f, 1, prefetch_skipped);
	run_until(f, e->obj && e->obj->state == NODE_HELD);
	assert_true(e->obj->prefetched);
	assert_readable(f, 1, "a", 100000, 1);
	pool_node_used(node(f, 1), e->obj);
	pool_node_used(node(f, 1), e->obj);
	assert_count(1, f, 1, prefetch_useful);
	assert_null(find(f, 1, "b")->obj);
}

static void attributes_travel_with_the_feed(void **state)
{
	struct fixture *f = *state;
	struct node_attr attr = { .mode = 0604, .uid = 7 };
	struct pool_xattrs *x = NULL;
	struct node_entry *e;
	size_t len = 0;

	start_pool(f, 2);
	publish_and_see(f, "k", 1000, 1);
	assert_int_equal(0, pool_xattrs_set(&x, "user.a", "bc", 2, 0));
	assert_int_equal(0, pool_node_setattr(node(f, 0), &find(f, 0, "k")->e,
					      POOL_SET_MODE | POOL_SET_XATTRS,
					      &attr, x));
	e = find(f, 1, "k");
	run_until(f, e->attr.mode == 0604);
	assert_int_equal(1000, e->attr.uid); /* not asked for */
	assert_memory_equal("bc", pool_xattrs_get(e->xattrs, "user.a", &len),
			    2);
	assert_int_equal(1, f->m[1].told.attr_changed);
	assert_int_equal(0, f->m[1].told.changed);
}

/* Whether node i is there, as the master tells node `to`. */
static void tell_alive(struct fixture *f, int to, int i, bool alive)
{
	Kvpool__NodeInfo info;

	node_link_info(node(f, i), &info);
	info.index = node(f, i)->index;
	info.alive = alive;
	node_member_apply(node(f, to), &info);
}

static void a_holder_that_is_away_for_a_moment_is_waited_for(void **state)
{
	struct fixture *f = *state;
	struct test_want t;

	start_pool(f, 2);
	publish_and_see(f, "k", 100000, 1);
	tell_alive(f, 1, 0, false);
	assert_int_equal(0, want_start(f, 1, "k", &t));
	assert_false(t.done); /* (the master says the contrary soon) */
	tell_alive(f, 1, 0, true);
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	node_object_unref(node(f, 1), t.obj);
}

/* The master waits for it, and a client's put for the master. */
/* k is a, then b, then a again before the master has said what b was. */
static void the_same_content_again_is_published_if_another_was_on_its_way(
	void **state)
{
	struct fixture *f = *state;

	start_pool(f, 2);
	put(f, 0, "a.tmp", 1000, 1);
	publish_and_see(f, "k", 1000, 1);
	put(f, 0, "k", 1000, 2);
	run_until(f, !pool_list_empty(&node(f, 0)->ops_sent));
	assert_true(is_pending(f, 0, "k"));
	assert_int_equal(0, rename_to(f, 0, "a.tmp", "k", false));
	run_until(f, is_published(f, 0, "k") &&
			     pool_list_empty(&node(f, 0)->ops_sent) &&
			     pool_list_empty(&node(f, 0)->ops_waiting));
	run_for(f, 100);
	assert_readable(f, 0, "k", 1000, 1);
	assert_readable(f, 1, "k", 1000, 1);
}

/* k is b, on its way when it was replaced by an open file: the master has named
 * what is gone. Returns the open file (a ref), k's own. */
static struct node_object *replaced_on_its_way(struct fixture *f, const char *k)
{
	struct node_object *open;
	struct node_entry *e;

	do {
		publish(f, 0, k, 1000, 1);
		run_until(f, find(f, 1, k));
		e = find(f, 0, k);
		put(f, 0, k, 1000, 2);
		run_until(f, !e->own || (is_pending(f, 0, k) &&
					 node_op_sent(node(f, 0), e->own)));
	} while (!e->own); /* as put_on_its_way */
	open = node_object_ref(create_in(f, 0, pool_node_root(node(f, 0)),
					 "open.tmp", 0));
	assert_int_equal(0, rename_to(f, 0, "open.tmp", k, false));
	run_until(f, open->w->phantom_gen && e->gen == open->w->phantom_gen);
	run_until(f, find(f, 1, k)->gen == e->gen);
	return open;
}

static void a_name_that_is_replaced_again_and_again_is_always_there(
	void **state)
{
	struct fixture *f = *state;
	struct node_object *open, *o;

	start_pool(f, 2);
	open = replaced_on_its_way(f, "k");
	o = create_in(f, 0, pool_node_root(node(f, 0)), "b.tmp", 0);
	write_bytes(f, 0, o, 1000, 2);
	assert_int_equal(0, rename_to(f, 0, "b.tmp", "k", false));
	pool_node_writer_closed(node(f, 0), open);
	node_object_unref(node(f, 0), open);
	run_for(f, 50);
	assert_non_null(find(f, 1, "k"));
	close_whole(f, 0, o);
	run_until(f, (assert_non_null(find(f, 0, "k")), true) &&
			     (assert_non_null(find(f, 1, "k")), true) &&
			     is_published(f, 0, "k") && all_answered(f, 0) &&
			     find(f, 1, "k")->gen == find(f, 0, "k")->gen);
	assert_readable(f, 0, "k", 1000, 2);
	assert_readable(f, 1, "k", 1000, 2);
}

/* The same bytes come again before the master has heard that it is to take them
 * back (late: before the feed says that it has, if that comes by itself). */
static void what_is_being_taken_back_is_not_the_same_content(void **state)
{
	struct fixture *f = *state;
	struct node_object *open, *o;
	char k[3] = "k0";
	int late;

	start_pool(f, 2);
	for (late = 0; late < 6; late++, k[1]++) {
		open = replaced_on_its_way(f, k);
		pool_node_poison(node(f, 0), open, -ENOSPC);
		pool_node_writer_closed(node(f, 0), open);
		node_object_unref(node(f, 0), open);
		o = create_in(f, 0, pool_node_root(node(f, 0)), "b.tmp", 0);
		write_bytes(f, 0, o, 1000, 2);
		if (!late)
			close_whole(f, 0, o);
		assert_int_equal(0, rename_to(f, 0, "b.tmp", k, false));
		if (late) {
			run_until(f, all_answered(f, 0));
			close_whole(f, 0, o);
		}
		run_until(f, (assert_non_null(find(f, 0, k)), true) &&
				     is_published(f, 0, k) &&
				     all_answered(f, 0) && find(f, 1, k) &&
				     find(f, 1, k)->gen == find(f, 0, k)->gen);
		run_for(f, 20);
		assert_readable(f, 0, k, 1000, 2);
		assert_readable(f, 1, k, 1000, 2);
	}
}

static void an_order_that_cannot_begin_is_answered(void **state)
{
	struct fixture *f = *state;
	Kvpool__Replicate msg = KVPOOL__REPLICATE__INIT;
	Kvpool__Meta meta = KVPOOL__META__INIT, *list = &meta;
	struct test_want t;
	uint8_t sum[16] = { 1 };

	start_pool(f, 2);
	publish_and_see(f, "k", 3 * MIB, 1);
	assert_int_equal(0, want_start(f, 1, "k", &t));
	meta.path.data = (uint8_t *)(uintptr_t)"k";
	meta.path.len = 1;
	meta.gen = find(f, 1, "k")->gen + 1;
	meta.sum.data = sum;
	meta.sum.len = sizeof(sum);
	msg.entries = &list;
	msg.n_entries = 1;
	node_replicate(node(f, 1), &msg);
	assert_count(1, f, 1, replicate_failures);
	run_until(f, t.done);
	assert_int_equal(-ESTALE, t.status);
}

/* Each with the node's figures would cost it more than the copies do. */
static void what_becomes_of_many_orders_is_told_at_once(void **state)
{
	struct fixture *f = *state;
	Kvpool__Replicate msg = KVPOOL__REPLICATE__INIT;
	Kvpool__Meta meta = KVPOOL__META__INIT, *list[500];
	uint8_t sum[16] = { 1 };
	uint64_t before;
	size_t i;

	start_pool(f, 1);
	meta.path.data = (uint8_t *)(uintptr_t)"k/";
	meta.path.len = 2; /* no name */
	meta.gen = 1;
	meta.sum.data = sum;
	meta.sum.len = sizeof(sum);
	for (i = 0; i < 500; i++)
		list[i] = &meta;
	msg.entries = list;
	msg.n_entries = 500;
	before = pool_counter_value(&node(f, 0)->c.master_requests);
	node_replicate(node(f, 0), &msg);
	assert_count(500, f, 0, replicate_failures);
	uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_int_equal(0, node(f, 0)->helds.n);
	/* Two messages, and perhaps a heartbeat. */
	assert_in_range(pool_counter_value(&node(f, 0)->c.master_requests) -
				before, 2, 3);
}

static void a_replica_is_found_again_after_a_restart(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;

	start_pool(f, 2);
	publish(f, 0, "k", 300000, 1);
	publish(f, 0, "cached", 300000, 2);
	run_until(f, find(f, 1, "cached"));
	assert_readable(f, 1, "cached", 300000, 2);
	set_replicas(f, 0, "k", "2", 0600);
	set_replicas(f, 0, "cached", "2", 0600);
	run_until(f, find(f, 1, "k")->obj && find(f, 1, "k")->obj->counted &&
			     find(f, 1, "cached")->obj->counted);
	stop_node(f, 0);
	stop_node(f, 1);
	stop_master(f);
	start_node(f, 1);
	e = find(f, 1, "k");
	assert_non_null(e);
	assert_int_equal(NODE_HELD, e->obj->state);
	assert_readable(f, 1, "k", 300000, 1);
	assert_readable(f, 1, "cached", 300000, 2);
}

/* Node 1 is a store without a mount. Whoever comes back first, the attributes
 * that were set last are the ones that hold. */
static void a_store_without_a_feed_keeps_up_with_attributes(void **state)
{
	struct fixture *f = *state;
	int first;

	start_master(f);
	start_node(f, 0);
	f->opts.mount = false;
	start_node(f, 1);
	run_until(f, is_up(f, 0) && node_link_up(node(f, 1)));
	publish(f, 0, "k", 1000, 1);
	set_replicas(f, 0, "k", "2", 0600);
	run_until(f, known(f, 1, "k") && find(f, 1, "k")->obj);
	set_replicas(f, 0, "k", "2", 0604);
	run_until(f, find(f, 1, "k")->attr.mode == 0604);

	/* Set while it is away; then the master forgets everything. */
	for (first = 0; first < 2; first++) {
		uint32_t mode = 0606 + (uint32_t)first;
		uint64_t gen;

		run_until(f, find(f, 0, "k")->attr.gen ==
				     find(f, 1, "k")->attr.gen);
		gen = find(f, 0, "k")->attr.gen;
		stop_node(f, 1);
		set_replicas(f, 0, "k", "2", mode);
		run_until(f, find(f, 0, "k")->attr.gen > gen);
		stop_node(f, 0);
		stop_master(f);
		start_master(f);
		f->opts.mount = first == 0;
		start_node(f, first);
		run_until(f, node_link_up(node(f, first)));
		f->opts.mount = first != 0;
		start_node(f, !first);
		run_until(f, find(f, 0, "k") && find(f, 1, "k") &&
				     find(f, 1, "k")->attr.mode == mode &&
				     is_up(f, 0));
		assert_int_equal(mode, find(f, 0, "k")->attr.mode);
	}
	f->opts.mount = true;
}

static void what_a_client_writes_reaches_a_store(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;

	start_master(f);
	start_node(f, 0);
	f->opts.store_size = 0;
	f->opts.buffer_size = 16 * MIB;
	start_node(f, 1);
	run_until(f, is_up(f, 0) && is_up(f, 1) &&
			     node(f, 0)->nmembers == 2 &&
			     node(f, 1)->nmembers == 2);
	publish(f, 1, "k", 100000, 1);
	e = find(f, 1, "k");
	run_until(f, find(f, 0, "k") && find(f, 0, "k")->obj &&
			     find(f, 0, "k")->obj->counted);
	assert_readable(f, 0, "k", 100000, 1);
	run_until(f, e->obj && !e->obj->w); /* it may go from here now */
	assert_false(e->obj->counted);
}

/* A daemon-served file that is open is not sealed by an fsync, whatever has been
 * closed of it: no lease proves that nobody writes. */
static void a_served_file_is_not_sealed_while_it_is_open(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	f->opts.reserve = false;
	start_pool(f, 1);
	o = create_in(f, 0, pool_node_root(node(f, 0)), "k", 0);
	assert_true(o->w->served);
	write_bytes(f, 0, o, 1000, 1);
	pool_node_writer_flushed(node(f, 0), o); /* of a duplicate, say */
	node_seal_candidates(node(f, 0));
	run_for(f, 5 * NODE_TICK_MS);
	assert_int_equal(NODE_WRITING, o->state);
	write_bytes(f, 0, o, 100000, 2);
	close_whole(f, 0, o);
	run_until(f, is_published(f, 0, "k"));
	assert_readable(f, 0, "k", 100000, 2);
}

/* What a writer had claimed is given back once, not what others have. */
static void a_claim_of_a_writer_ends_once(void **state)
{
	struct fixture *f = *state;
	struct node_object *a, *b;
	struct test_claim t;

	f->opts.reserve = false;
	start_pool(f, 1);
	a = create_in(f, 0, pool_node_root(node(f, 0)), "a", 0);
	b = create_in(f, 0, pool_node_root(node(f, 0)), "b", 0);
	/* Far behind the start, more than is needed is claimed. */
	assert_int_equal(1, pool_node_extend_start(node(f, 0), a, 8 * MIB, 1,
						   on_extended, &t));
	assert_int_equal(1, pool_node_extend_start(node(f, 0), b, 8 * MIB, 1,
						   on_extended, &t));
	assert_true(a->w->claimed > 0 && b->w->claimed > 0);
	write_bytes(f, 0, a, 1000, 1);
	close_whole(f, 0, a);
	run_until(f, is_published(f, 0, "a"));
	assert_int_equal(b->w->claimed, node(f, 0)->claimed);
	close_whole(f, 0, b);
	assert_int_equal(0, node(f, 0)->claimed);
}

/* However many peers have doubts of however much. */
static void doubts_are_bounded(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;
	char name[16];

	start_pool(f, 1);
	for (int k = 0; k < NODE_DOUBTS_MAX + 2; k++) {
		snprintf(name, sizeof(name), "k%d", k);
		put(f, 0, name, 100, 1);
	}
	for (int k = 0; k < NODE_DOUBTS_MAX + 2; k++) {
		snprintf(name, sizeof(name), "k%d", k);
		run_until(f, is_published(f, 0, name));
	}
	for (int k = 0; k < NODE_DOUBTS_MAX + 2; k++) {
		snprintf(name, sizeof(name), "k%d", k);
		e = find(f, 0, name);
		pool_node_doubt(node(f, 0), e->obj);
	}
	assert_int_equal(NODE_DOUBTS_MAX, node(f, 0)->ndoubted);
	assert_count(2, f, 0, doubts_skipped);
	run_until(f, node(f, 0)->ndoubted == 0);
	assert_count(NODE_DOUBTS_MAX, f, 0, doubts_unfounded);
}

/* More than one message takes, and the first one could not be sent: the order
 * stays. */
static void changes_that_could_not_be_sent_keep_their_order(void **state)
{
	static const struct node_attr attr = { .mode = 0755 };
	struct fixture *f = *state;
	struct node_dirent *d;
	char name[16];

	start_pool(f, 1);
	refuses_ops = node(f, 0);
	for (int k = 0; k < 2 * POOL_BATCH_MAX; k++) {
		snprintf(name, sizeof(name), "d%d", k);
		assert_int_equal(0, pool_node_mkdir(node(f, 0),
						    pool_node_root(node(f, 0)),
						    name, strlen(name), &attr,
						    &d));
	}
	node_ops_send(node(f, 0));
	assert_true(pool_list_empty(&node(f, 0)->ops_sent));
	assert_int_equal(2 * POOL_BATCH_MAX, node(f, 0)->nops);
	assert_true(node_ops_in_order(node(f, 0)));
	refuses_ops = NULL;
	run_until(f, node(f, 0)->nops == 0);
}

/* The generation in the metadata of its file; 0: it is still to be published. */
static uint64_t kept_gen(struct fixture *f, int i, const struct node_object *o)
{
	struct pool_store *s = pool_node_store(node(f, i));
	struct store_blob_buf b;
	Kvpool__Meta *m;
	char path[PATH_MAX];
	uint64_t gen;
	ssize_t n;

	store_path(s, o->id, path);
	n = getxattr(path, s->xattr, &b, sizeof(b));
	assert_true(n > 0);
	assert_true(store_blob_valid(&b, (size_t)n));
	m = kvpool__meta__unpack(NULL, b.head.blob_len, b.blob);
	assert_non_null(m);
	gen = m->gen;
	kvpool__meta__free_unpacked(m, NULL);
	return gen;
}

/* What a client has put is found at its next start as what it is: else that would
 * be published again, over what has replaced it since. */
static void a_clients_metadata_names_the_generation(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;

	start_master(f);
	f->opts.store_size = 0;
	f->opts.buffer_size = 16 * MIB;
	start_node(f, 0);
	run_until(f, is_up(f, 0));
	publish(f, 0, "k", 1000, 1); /* no store has it */
	e = find(f, 0, "k");
	assert_non_null(e->obj->w);
	assert_int_equal(e->gen, kept_gen(f, 0, e->obj));
	f->opts.store_size = STORE_SIZE;
	start_node(f, 1);
	run_until(f, find(f, 1, "k") && find(f, 1, "k")->obj && !e->obj->w);
	assert_int_equal(e->gen, kept_gen(f, 0, e->obj));
	publish(f, 0, "l", 1000, 1);
	e = find(f, 0, "l");
	run_until(f, find(f, 1, "l") && find(f, 1, "l")->obj && !e->obj->w);
	assert_int_equal(e->gen, kept_gen(f, 0, e->obj));
}

static uint64_t stopped_ns(void)
{
	return 1000000000000;
}
static uint64_t stopped_wall(void)
{
	return 1700000000000000000;
}
static void stopped_random(void *buf, size_t n)
{
	memset(buf, 7, n);
}

/* However fast it is put, little of it waits to be sealed: in no time at all (the
 * clock stands) a turn seals what is beyond that. */
static void what_waits_to_be_sealed_is_bounded(void **state)
{
	static const struct pool_clock stopped = { stopped_ns, stopped_wall,
						   stopped_random };
	struct fixture *f = *state;
	char name[16];

	start_pool(f, 1);
	for (int k = 0; k < 1500; k++) {
		snprintf(name, sizeof(name), "k%d", k);
		put(f, 0, name, 100, 1);
	}
	assert_int_equal(1500, node(f, 0)->nsmall_seals);
	pool_clock_set(&stopped);
	node_seal_small(node(f, 0));
	pool_clock_set(NULL);
	assert_in_range(node(f, 0)->nsmall_seals, 1000, 1024);
	node_seal_small(node(f, 0));
	assert_in_range(node(f, 0)->nsmall_seals, 984, 1008);
	run_until(f, is_published(f, 0, "k1499"));
	assert_int_equal(0, node(f, 0)->nsmall_seals);
}

/* A whole picture that says nothing of what the master has answered meanwhile:
 * the feed waits for others' changes to be settled. It is told behind it. */
/* A name that was answered for, and that the feed has not told of yet. */
static void publish_ahead(struct fixture *f, char name[16])
{
	int i = 0;

	do { /* until the feed has not come in the same turn */
		snprintf(name, 16, "new%d", i);
		publish(f, 0, name, 1000, 2);
	} while (!find(f, 0, name)->ahead && ++i < 100);
	assert_true(i < 100);
}

static void feed_alone(struct fixture *f, bool begin, bool complete)
{
	Kvpool__Feed feed = KVPOOL__FEED__INIT;

	feed.upto_seq = node(f, 0)->feed_seq;
	feed.begin = begin;
	feed.complete = complete;
	assert_int_equal(0, node_feed_apply(node(f, 0), &feed));
}

static void what_is_published_during_a_picture_outlives_it(void **state)
{
	struct fixture *f = *state;
	char name[16];

	start_pool(f, 1);
	publish(f, 0, "old", 1000, 1);
	run_until(f, find(f, 0, "old")->ahead == 0);
	feed_alone(f, true, false);
	publish_ahead(f, name);
	feed_alone(f, false, true);
	assert_null(find(f, 0, "old"));
	assert_non_null(find(f, 0, name));
	assert_readable(f, 0, name, 1000, 2);
}

/* It is in the picture, or exists no more. */
static void what_was_published_before_a_picture_is_told_by_it(void **state)
{
	struct fixture *f = *state;
	char name[16];

	start_pool(f, 1);
	publish_ahead(f, name);
	feed_alone(f, true, false);
	feed_alone(f, false, true);
	assert_null(find(f, 0, name));
}

/* The newer one has left with its holders. A cached copy of it would be in the way
 * of the older one's bytes. */
static void a_picture_of_an_older_version_ends_a_cached_copy(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;
	uint64_t gen;

	start_pool(f, 2);
	publish(f, 1, "k", 1000, 1);
	run_until(f, find(f, 0, "k"));
	assert_readable(f, 0, "k", 1000, 1);
	e = find(f, 0, "k");
	gen = e->gen;
	assert_true(e->obj && e->obj->gen == gen && !e->obj->counted);
	feed_alone(f, true, false);
	feed_names(f, 0, (char[]){ "k" }, gen - 1);
	assert_int_equal(gen - 1, e->gen);
	assert_null(e->obj);
	feed_alone(f, false, true);
}

/* But of the first one of a session all is ahead that was named in it: it may be
 * told behind that, and had it gone, that would be told (master_sub_since). */
static void what_was_named_before_the_first_picture_of_a_session_outlives_it(
	void **state)
{
	struct fixture *f = *state;
	char name[16];

	start_pool(f, 1);
	publish_ahead(f, name);
	node(f, 0)->feed_begun = false; /* as after WELCOME */
	feed_alone(f, true, false);
	feed_alone(f, false, true);
	assert_non_null(find(f, 0, name));
	assert_readable(f, 0, name, 1000, 2);
}

static bool counts(struct fixture *f, int i, const char *name);

/* A store has it, and an fsync is over, but two are wanted: the master goes on
 * naming the client, which must not let go of it in silence. */
static void a_clients_copy_counts_as_long_as_it_is_named(void **state)
{
	struct fixture *f = *state;
	struct node_attr attr = { 0 };
	struct pool_xattrs *x = NULL;
	struct node_entry *e;

	start_pool(f, 1);
	f->opts.store_size = 0;
	f->opts.buffer_size = 16 * MIB;
	start_node(f, 1);
	run_until(f, is_up(f, 1) && node(f, 1)->nmembers == 2);
	assert_int_equal(0, pool_xattrs_set(&x, "user.kvpool.replicas", "2", 1,
					    0));
	assert_int_equal(0, pool_node_setattr(node(f, 0),
					      &pool_node_root(node(f, 0))->d.e,
					      POOL_SET_XATTRS, &attr, x));
	run_until(f, pool_node_root(node(f, 1))->rules.replicas == 2);
	publish(f, 1, "k", 100000, 1);
	e = find(f, 1, "k");
	run_until(f, counts(f, 0, "k") && e->replicas == 2 && !e->obj->w);
	assert_true(e->obj->counted);
	f->opts.store_size = STORE_SIZE;
	start_node(f, 2);
	run_until(f, counts(f, 2, "k") && !e->obj->counted);
	assert_int_equal(2, e->replicas);
}

static bool counts(struct fixture *f, int i, const char *name)
{
	struct node_entry *e = find(f, i, name);

	return e && e->obj && e->obj->state == NODE_HELD && e->obj->counted;
}

static void drop_was_decided(struct fixture *f, int i, const char *name,
			     Kvpool__Drop__Reason reason, uint64_t heard)
{
	Kvpool__Drop msg = KVPOOL__DROP__INIT;
	Kvpool__Drop__Item item = KVPOOL__DROP__ITEM__INIT, *list = &item;

	item.path.data = (uint8_t *)(uintptr_t)name;
	item.path.len = strlen(name);
	item.gen = find(f, i, name)->gen;
	item.reason = reason;
	item.heard = heard;
	msg.items = &list;
	msg.n_items = 1;
	msg.granted = node(f, i)->granted;
	node_drop_apply(node(f, i), &msg);
}

/* The master counts on this one: what it said before it heard of it was about
 * one that was here before. */
static void a_drop_that_crosses_held_does_not_mean_that_copy(void **state)
{
	struct fixture *f = *state;
	const char *const names[] = { "k", "l" };

	start_pool(f, 2);
	for (int i = 0; i < 2; i++) {
		publish(f, 0, names[i], 100000, 1);
		set_replicas(f, 0, names[i], "2", 0640);
		run_until(f, counts(f, 1, names[i]));
		/* So many had been heard, and 1. */
		drop_was_decided(f, 1, names[i], KVPOOL__DROP__REASON__EVICTED,
				 1 + (unsigned)i);
		drop_was_decided(f, 1, names[i], KVPOOL__DROP__REASON__SURPLUS,
				 1 + (unsigned)i);
		assert_true(counts(f, 1, names[i]));
		run_until(f, find(f, 0, names[i])->replicas == 2);
	}
	drop_was_decided(f, 1, "k", KVPOOL__DROP__REASON__EVICTED, 2);
	assert_null(find(f, 1, "k")->obj);
	drop_was_decided(f, 1, "l", KVPOOL__DROP__REASON__SURPLUS, 3);
	assert_false(counts(f, 1, "l"));
	/* A master that does not say it. */
	drop_was_decided(f, 1, "l", KVPOOL__DROP__REASON__EVICTED, 0);
	assert_null(find(f, 1, "l")->obj);
}

static void a_surplus_copy_is_cache_and_gone_after_a_restart(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;
	int i;

	start_pool(f, 2);
	publish(f, 0, "k", 100000, 1);
	set_replicas(f, 0, "k", "2", 0640);
	run_until(f, counts(f, 1, "k") && find(f, 0, "k")->replicas == 2);
	set_replicas(f, 0, "k", "1", 0640);
	run_until(f, counts(f, 0, "k") != counts(f, 1, "k"));
	i = counts(f, 0, "k") ? 1 : 0;
	e = find(f, i, "k");
	assert_non_null(e->obj); /* it stays, for readers here */
	assert_readable(f, i, "k", 100000, 1);
	assert_int_equal(POOL_EVICT_CACHE, e->obj->ev.class);
	run_until(f, find(f, 0, "k")->replicas == 1 &&
			     find(f, 1, "k")->replicas == 1);
	/* Nobody would have told it of a deletion. */
	stop_node(f, i);
	start_node(f, i);
	run_until(f, is_up(f, i) && known(f, i, "k"));
	assert_null(find(f, i, "k")->obj);
	assert_true(counts(f, !i, "k"));
}

/* k of node 0 has been read at node 1, which counts as a holder for so long. */
static void make_hot(struct fixture *f, unsigned int cold_ms)
{
	f->opts.hot_gets = 1;
	f->opts.cold_ms = cold_ms;
	start_pool(f, 2);
	publish(f, 0, "k", 100000, 1);
	run_until(f, known(f, 1, "k"));
	assert_readable(f, 1, "k", 100000, 1);
	run_until(f, find(f, 0, "k")->replicas == 2);
	assert_int_equal(1, node(f, 1)->nextras);
}

static void what_peers_ask_for_is_extra_until_it_is_cold(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;

	make_hot(f, 400);
	e = find(f, 1, "k");
	assert_false(e->obj->counted);
	run_until(f, find(f, 0, "k")->replicas == 1);
	assert_int_equal(0, node(f, 1)->nextras);
	assert_non_null(e->obj); /* cache like any other */
	assert_true(counts(f, 0, "k"));
}

static void an_extra_copy_that_is_evicted_is_named_no_more(void **state)
{
	struct fixture *f = *state;

	make_hot(f, 60000);
	node_object_drop(node(f, 1), find(f, 1, "k")->obj, true);
	run_until(f, find(f, 0, "k")->replicas == 1);
	assert_int_equal(0, node(f, 1)->nheats);
}

static void an_extra_copy_that_is_renamed_is_one_no_more(void **state)
{
	struct fixture *f = *state;

	make_hot(f, 60000);
	assert_int_equal(0, rename_to(f, 1, "k", "new", false));
	assert_int_equal(0, node(f, 1)->nheats);
	/* Nothing is left of it that would be looked at when it is cold. */
	assert_int_equal(0, pool_node_unlink(node(f, 1), find(f, 1, "new")));
	node_heat_tick(node(f, 1), pool_now_ms() + 120000);
	run_until(f, !known(f, 0, "k") && !known(f, 0, "new"));
}

static void a_master_of_an_older_epoch_is_left(void **state)
{
	struct fixture *f = *state;
	uint64_t connects, epoch;
	char path[96];

	f->opts.mount = false; /* has no feed whose epoch a master would refuse */
	start_master(f);
	stop_master(f);
	start_master(f);
	start_node(f, 0);
	run_until(f, node_link_up(node(f, 0)));
	epoch = node(f, 0)->epoch;
	assert_int_equal(2, epoch);
	stop_master(f);
	snprintf(path, sizeof(path), "%s/master", f->top);
	assert_int_equal(0, unlink(path));
	start_master(f);
	connects = pool_counter_value(&node(f, 0)->c.master_connects);
	run_until(f, pool_counter_value(&node(f, 0)->c.master_connects) >
			     connects + 1);
	assert_false(node_link_up(node(f, 0)));
	assert_int_equal(epoch, node(f, 0)->epoch);
}

/* The second of a list is the one that is there. */
static void a_node_goes_through_its_list_of_masters(void **state)
{
	struct fixture *f = *state;
	struct pool_hostports *list = &f->opts.masters;

	start_master(f);
	list->at[1] = list->at[0];
	list->at[0].port = 1;
	list->n = 2;
	start_node(f, 0);
	run_until(f, node_link_up(node(f, 0)));
	list->at[0] = list->at[1];
}

/* ---- while workers have other things to do ---- */

static void what_was_closed_first_is_published_first_in_its_directory(
	void **state)
{
	static const struct node_attr attr = { .mode = 0755 };
	struct fixture *f = *state;
	struct node_dirent *other;

	start_pool(f, 1);
	assert_int_equal(0, pool_node_mkdir(node(f, 0),
					    pool_node_root(node(f, 0)), "d", 1,
					    &attr, &other));
	workers_begin(f);
	put(f, 0, "large", MIB, 1); /* for a worker */
	put(f, 0, "small", 1000, 2); /* for the loop */
	put_in(f, 0, other, "elsewhere", 1000, 3);
	run_until(f, find_in(f, 0, other, "elsewhere")->gen);
	assert_int_equal(NODE_PENDING, find(f, 0, "small")->own->state);
	assert_int_equal(NODE_SEALING, find(f, 0, "large")->own->state);
	assert_int_equal(0, node(f, 0)->nops); /* neither is on its way */
	workers_end(f);
	run_until(f, is_published(f, 0, "small"));
	assert_true(is_published(f, 0, "large"));
}

/* A handle that is open (users) reads it to its end. */
static void what_is_unlinked_while_sealed_stays_until_it_is_closed(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	uint64_t id;
	int fd;

	start_node(f, 0);
	workers_begin(f);
	put(f, 0, "k", MIB, 1);
	o = node_object_ref(find(f, 0, "k")->own);
	id = o->id;
	assert_int_equal(NODE_SEALING, o->state);
	o->users++;
	assert_int_equal(0, pool_node_unlink(node(f, 0), find(f, 0, "k")));
	workers_end(f);
	run_until(f, f->m[0].told.object_gone == 1);
	fd = node_object_open(node(f, 0), o, O_RDONLY);
	if (fd < 0)
		fail_msg("the file went with its name: %s", strerror(-fd));
	close(fd);
	o->users--;
	node_object_unref(node(f, 0), o);
	assert_true(pool_store_fd(pool_node_store(node(f, 0)), id, O_RDONLY) <
		    0);
}

static void bytes_that_are_still_being_freed_are_not_given_away(void **state)
{
	struct fixture *f = *state;
	struct test_claim t;

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	publish(f, 0, "k", 20 * MIB, 1);
	workers_begin(f);
	assert_int_equal(0, pool_node_unlink(node(f, 0), find(f, 0, "k")));
	/* More than the headroom has besides. */
	assert_int_equal(0, claim(f, &t, 30 * MIB, 10000));
	run_for(f, 50);
	assert_false(t.done);
	workers_end(f);
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	pool_node_claim_end(node(f, 0), 30 * MIB);
	assert_int_equal(0, node(f, 0)->claimed);
}

static void a_fetch_that_fails_gives_back_what_had_not_landed(void **state)
{
	struct fixture *f = *state;
	uint64_t landed = 0;
	struct test_claim t;
	struct test_want w;
	struct pool_node *n;

	start_pool(f, 2);
	publish_and_see(f, "k", 20 * MIB, 1);
	n = node(f, 1);
	memset(&t, 0, sizeof(t));
	assert_int_equal(1, pool_node_claim_start(n, &t.c, MIB, 0, on_claim));
	assert_int_equal(0, want_start(f, 1, "k", &w));
	while (!w.done && landed == 0) {
		uv_run(&f->loop, UV_RUN_ONCE);
		landed = node_fetch_settle(n);
	}
	assert_false(w.done);
	/* Half of it is here. Its name goes, and the fetch with it. */
	assert_true(n->claimed < 21 * MIB);
	assert_int_equal(0, pool_node_unlink(n, find(f, 1, "k")));
	pool_node_want_cancel(n, &w.w);
	stop_node(f, 0);
	run_until(f, n->nfetches == 0);
	assert_int_equal(MIB, n->claimed);
	pool_node_claim_end(n, MIB);
}

/* ---- tests of what is written again ---- */

static void what_is_written_again_is_not_found_whole_after_a_crash(
	void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	char value[256];
	int fd;

	start_node(f, 0);
	put(f, 0, "k", 1000, 1);
	run_until(f, is_pending(f, 0, "k"));
	o = find(f, 0, "k")->own;
	fd = pool_store_fd(pool_node_store(node(f, 0)), o->id, O_RDONLY);
	assert_true(fd >= 0);
	/* What says that it is whole, and with which sum. */
	assert_true(fgetxattr(fd, "trusted.kvpool", value, sizeof(value)) > 0 ||
		    fgetxattr(fd, "user.kvpool", value, sizeof(value)) > 0);
	assert_int_equal(0, pool_node_unseal(node(f, 0), o));
	assert_int_equal(-1, fgetxattr(fd, "trusted.kvpool", value,
				       sizeof(value)));
	assert_int_equal(-1, fgetxattr(fd, "user.kvpool", value,
				       sizeof(value)));
	close(fd);
}

/* ---- small promises ---- */

static void what_is_open_does_not_go_for_room(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	struct test_claim t;

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	publish(f, 0, "a", 24 * MIB, 1);
	assert_int_equal(0, want(f, 0, "a", &o));
	o->users++;
	assert_int_equal(0, claim(f, &t, 16 * MIB, 500));
	run_until(f, t.done);
	assert_int_equal(-ENOSPC, t.status);
	assert_ptr_equal(o, find(f, 0, "a")->obj);
	o->users--;
	node_object_unref(node(f, 0), o);
	assert_int_equal(0, claim(f, &t, 16 * MIB, 10000));
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	pool_node_claim_end(node(f, 0), 16 * MIB);
}

static void what_is_in_doubt_is_read_by_nobody_before_it_is_checked(
	void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	int rc;

	start_pool(f, 1);
	publish(f, 0, "k", 100000, 1);
	damage(f, 0, find(f, 0, "k")->obj);
	pool_node_doubt(node(f, 0), find(f, 0, "k")->obj);
	rc = want(f, 0, "k", &o);
	assert_true(rc == -ENOENT || rc == -ESTALE);
	assert_null(o);
	assert_count(1, f, 0, bad_sums);
}

static void a_put_does_not_count_on_a_copy_in_doubt(void **state)
{
	struct fixture *f = *state;
	uint64_t id;

	start_pool(f, 1);
	publish(f, 0, "k", 100000, 1);
	damage(f, 0, find(f, 0, "k")->obj);
	id = find(f, 0, "k")->obj->id;
	find(f, 0, "k")->obj->verified = false;
	publish(f, 0, "k", 100000, 1);
	assert_true(id != find(f, 0, "k")->obj->id);
	assert_readable(f, 0, "k", 100000, 1);
}

static void a_name_changed_while_it_is_sealed_is_found_by_the_next_start(
	void **state)
{
	struct fixture *f = *state;

	start_node(f, 0);
	workers_begin(f);
	put(f, 0, "a", MIB, 1);
	run_until(f, find(f, 0, "a")->own->state == NODE_SEALING);
	assert_int_equal(0, rename_to(f, 0, "a", "b", false));
	workers_end(f);
	run_until(f, is_pending(f, 0, "b"));
	stop_node(f, 0);
	start_node(f, 0);
	assert_null(find(f, 0, "a"));
	assert_true(is_pending(f, 0, "b"));
	assert_bytes(f, 0, find(f, 0, "b")->own, MIB, 1);
}

static void room_for_more_of_a_file_that_went_meanwhile_is_given_back(
	void **state)
{
	struct fixture *f = *state;
	struct test_claim others, more = { .done = false };
	struct node_object *o;

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	assert_int_equal(1, claim(f, &others, 20 * MIB, 0));
	o = create_in(f, 0, pool_node_root(node(f, 0)), "k", 0);
	assert_int_equal(0, pool_node_extend_start(node(f, 0), o, 0, 24 * MIB,
						   on_extended, &more));
	pool_node_poison(node(f, 0), o, -EIO);
	pool_node_writer_closed(node(f, 0), o);
	assert_false(more.done);
	pool_node_claim_end(node(f, 0), 20 * MIB);
	run_until(f, more.done);
	assert_int_equal(0, node(f, 0)->claimed);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(an_extra_copy_that_is_renamed_is_one_no_more),
		T(a_master_of_an_older_epoch_is_left),
		T(a_node_goes_through_its_list_of_masters),
		T(a_file_is_sealed_and_waits_for_a_master),
		T(a_file_nobody_flushed_is_not_sealed),
		T(a_file_is_sealed_when_its_last_writer_is_gone),
		T(a_reserved_file_waits_for_descriptors_of_its_writer),
		T(a_node_that_ends_waits_for_descriptors_of_what_is_closed),
		T(a_file_that_outgrew_is_learnt_from_though_it_goes),
		T(a_temporary_that_outgrew_goes_when_it_is_closed),
		T(a_file_larger_than_the_store_is_lost_and_holds_nothing_up),
		T(in_the_headroom_nothing_is_reserved),
		T(beside_what_is_kept_nothing_is_reserved_by_guess),
		T(a_file_written_again_before_its_publication_is_unsealed),
		T(a_file_lost_after_its_close_does_not_show_the_one_before),
		T(a_temporary_name_waits_for_its_rename),
		T(nobody_who_asks_waits_for_a_file_that_goes),
		T(a_poisoned_file_keeps_its_name_and_goes_with_its_writer),
		T(unlink_before_and_during_sealing_leaves_nothing),
		T(a_restart_finds_what_was_sealed_and_drops_the_rest),
		T(a_publication_gets_a_generation),
		T(an_empty_file_is_published_too),
		T(changes_are_found_by_a_hash_with_a_seed),
		T(what_is_published_survives_a_restart),
		T(attributes_set_elsewhere_survive_a_restart),
		T(damage_found_after_a_restart_is_never_served),
		T(the_same_content_is_no_new_generation),
		T(the_same_content_is_not_left_to_a_node_that_has_gone),
		T(a_clients_same_content_is_not_left_to_it_either),
		T(a_rewrite_begins_empty_or_with_what_is_to_be_kept),
		T(a_held_object_moves_without_a_copy),
		T(a_cached_copy_that_was_renamed_is_found_after_a_restart),
		T(what_was_published_is_not_written_again_under_a_new_name),
		T(what_is_not_here_is_not_moved),
		T(a_rename_replaces_what_is_there_unless_told_not_to),
		T(a_pending_file_is_published_under_its_last_name),
		T(an_unlinked_name_is_hidden_at_once_and_stays_away),
		T(unlinking_what_the_master_is_about_to_name_removes_it),
		T(what_is_unlinked_again_and_again_does_not_come_back),
		T(unlinking_what_was_sent_before_a_cut_is_told_the_master),
		T(renaming_what_the_master_is_about_to_name_hides_the_old_name),
		T(a_copy_that_was_ordered_replaces_what_the_mount_shows),
		T(the_rule_unlink_node_hides_a_name_here_only),
		T(directories_come_and_go_on_both_nodes),
		T(a_directory_goes_before_the_names_that_were_in_it),
		T(a_directory_with_what_is_being_written_stays),
		T(an_older_feed_undoes_no_change_that_is_under_way),
		T(an_older_feed_removes_no_directory_being_made),
		T(xattrs_set_on_two_nodes_at_once_both_last),
		T(an_xattr_that_the_master_refuses_does_not_stay),
		T(a_loop_of_changes_leaves_one_of_each_attribute),
		T(what_is_set_and_removed_is_merged_by_name),
		T(each_xattr_is_refused_alone),
		T(what_grows_does_not_pass_what_makes_room_for_it),
		T(other_names_changes_keep_their_order),
		T(a_mode_does_not_pass_what_says_who_may_read),
		T(an_owner_is_not_passed),
		T(what_was_sent_is_not_changed),
		T(a_barrier_waits_for_what_was_merged_before_it),
		T(a_change_of_the_name_is_not_passed),
		T(a_publication_of_the_name_is_not_passed),
		T(one_name_has_no_more_than_its_share_of_changes),
		T(one_user_has_no_more_than_his_share_of_changes),
		T(a_change_takes_the_share_of_its_caller),
		T(a_deletion_names_its_caller),
		T(the_last_eighth_of_a_queue_is_root_s),
		T(a_directory_removed_where_a_file_won_does_not_come_back),
		T(the_owner_of_what_was_never_published_is_told_the_master),
		T(a_hidden_file_gives_way_to_a_directory),
		T(removed_directories_go_with_the_last_file_below),
		T(removed_directories_come_back_with_a_file_below),
		T(a_directory_made_again_has_no_attributes),
		T(directories_beyond_a_user_s_are_refused_at_once),
		T(attributes_beyond_a_user_s_are_refused_at_once),
		T(what_the_master_has_no_room_for_does_not_stay),
		T(the_accounts_outlive_master_and_node),
		T(a_barrier_without_a_master_times_out),
		T(a_barrier_ends_after_the_publications_before_it),
		T(a_barrier_waits_until_other_kernels_have_been_told),
		T(a_patient_barrier_waits_while_something_is_done),
		T(an_idle_pool_keeps_its_connections),
		T(what_an_earlier_connection_told_acknowledges_nothing),
		T(a_barrier_outlives_the_loss_of_the_master),
		T(a_barrier_asks_the_next_master_again),
		T(claims_are_granted_while_there_is_room),
		T(a_claim_waits_for_what_is_being_published_to_its_deadline),
		T(what_is_claimed_when_a_claim_is_granted_is_not_granted_again),
		T(a_claim_is_granted_when_the_master_lets_objects_go),
		T(a_claim_waits_for_what_is_being_sent_to_a_peer),
		T(what_was_looked_up_goes_last),
		T(cut_off_for_long_a_node_evicts_on_its_own),
		T(what_falls_out_of_the_list_of_evictions_is_counted),
		T(at_a_join_a_node_tells_the_last_ones_that_went_alone),
		T(cut_off_a_node_gives_up_no_name_that_is_to_have_replicas),
		T(a_publication_that_is_refused_is_told_by_one_fsync),
		T(a_copy_is_checked_before_it_counts_as_a_replica),
		T(shared_objects_make_room_for_new_ones),
		T(objects_that_may_not_go_are_in_no_others_way),
		T(noevict_holds_without_a_master_as_well),
		T(started_without_a_master_a_node_gives_up_nothing_alone),
		T(noevict_refuses_instead_of_evicting),
		T(another_node_sees_and_fetches_what_was_published),
		T(a_node_on_the_same_host_borrows_the_descriptor),
		T(a_borrowed_object_is_asked_back_for_room),
		T(so_many_are_borrowed_others_are_copied),
		T(what_is_ordered_to_where_there_is_no_room_can_be_read),
		T(a_put_passes_through_where_nothing_may_go),
		T(what_is_pinned_does_not_stay_in_the_headroom),
		T(what_nobody_has_room_for_is_not_evicted_for_that),
		T(what_stays_here_does_not_pass_through),
		T(a_client_holds_no_more_than_its_buffer),
		T(a_put_does_not_fail_because_peers_have_all_open),
		T(the_master_hears_a_rule_before_what_it_keeps_is_offered),
		T(what_has_landed_is_claimed_no_longer),
		T(what_was_closed_first_is_published_first_in_its_directory),
		T(what_is_unlinked_while_sealed_stays_until_it_is_closed),
		T(bytes_that_are_still_being_freed_are_not_given_away),
		T(a_fetch_that_fails_gives_back_what_had_not_landed),
		T(what_is_written_again_is_not_found_whole_after_a_crash),
		T(what_is_read_costs_no_copy_that_counts),
		T(bytes_with_a_wrong_sum_are_discarded),
		T(what_is_lent_with_a_wrong_sum_is_not_read),
		T(a_holder_is_told_of_damage_and_withdraws_its_copy),
		T(a_file_that_is_cut_or_missing_is_withdrawn),
		T(a_reader_finds_the_holder_whose_copy_is_right),
		T(a_damaged_copy_of_our_own_is_fetched_instead),
		T(a_new_generation_replaces_the_other_node_s_copy),
		T(a_look_up_hit_may_fetch_ahead),
		T(attributes_travel_with_the_feed),
		T(
			the_same_content_again_is_published_if_another_was_on_its_way),
		T(a_name_that_is_replaced_again_and_again_is_always_there),
		T(what_is_being_taken_back_is_not_the_same_content),
		T(a_holder_that_is_away_for_a_moment_is_waited_for),
		T(an_order_that_cannot_begin_is_answered),
		T(what_becomes_of_many_orders_is_told_at_once),
		T(a_replica_is_found_again_after_a_restart),
		T(a_store_without_a_feed_keeps_up_with_attributes),
		T(what_a_client_writes_reaches_a_store),
		T(a_clients_copy_counts_as_long_as_it_is_named),
		T(a_clients_metadata_names_the_generation),
		T(what_waits_to_be_sealed_is_bounded),
		T(a_served_file_is_not_sealed_while_it_is_open),
		T(a_claim_of_a_writer_ends_once),
		T(doubts_are_bounded),
		T(changes_that_could_not_be_sent_keep_their_order),
		T(what_is_published_during_a_picture_outlives_it),
		T(what_was_published_before_a_picture_is_told_by_it),
		T(a_picture_of_an_older_version_ends_a_cached_copy),
		T(
			what_was_named_before_the_first_picture_of_a_session_outlives_it),
		T(a_drop_that_crosses_held_does_not_mean_that_copy),
		T(a_surplus_copy_is_cache_and_gone_after_a_restart),
		T(what_peers_ask_for_is_extra_until_it_is_cold),
		T(an_extra_copy_that_is_evicted_is_named_no_more),
		T(what_is_open_does_not_go_for_room),
		T(what_is_in_doubt_is_read_by_nobody_before_it_is_checked),
		T(a_put_does_not_count_on_a_copy_in_doubt),
		T(a_name_changed_while_it_is_sealed_is_found_by_the_next_start),
		T(room_for_more_of_a_file_that_went_meanwhile_is_given_back),
	};

	if (argc > 1) /* only these, as cmocka's patterns */
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
