/* See tests/unit/pool_node_fixture.h. */
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
#include <unistd.h>

#include "tests/unit/pool_node_fixture.h"

void run_for(struct fixture *f, unsigned int ms)
{
	uint64_t end = pool_now_ms() + ms;

	while (pool_now_ms() < end)
		uv_run(&f->loop, UV_RUN_ONCE);
}

/* ---- calls that a mount would receive ---- */

static void on_changed(void *arg, struct node_entry *e)
{
	(void)e;
	((struct mount_calls *)arg)->changed++;
}

static void on_attr_changed(void *arg, struct pool_entry *e)
{
	(void)e;
	((struct mount_calls *)arg)->attr_changed++;
}

static void on_published(void *arg, struct node_entry *e)
{
	assert_null(e->own);
	assert_non_null(e->obj);
	((struct mount_calls *)arg)->published++;
}

static void on_appeared(void *arg, struct pool_entry *e)
{
	(void)e;
	((struct mount_calls *)arg)->appeared++;
}

static void on_dir_gone(void *arg, struct node_dirent *dir)
{
	(void)dir;
	((struct mount_calls *)arg)->dir_gone++;
}

static void on_object_gone(void *arg, struct node_object *obj)
{
	struct mount_calls *t = arg;
	struct pool_shortlock *names = t->node->opts.names;

	(void)obj;
	t->object_gone++;
	/* Removing the file takes long: is `names` unlocked for queries
	 * meanwhile? */
	if (!names)
		return;
	if (pthread_rwlock_tryrdlock(&names->lock) == 0)
		pool_shortlock_give(names);
	else
		t->kept_waiting++;
}

static void on_when_notified(void *arg, uint64_t mark)
{
	struct mount_calls *t = arg;

	if (t->slow)
		t->mark = mark;
	else
		pool_node_notified(t->node, mark);
}

static void on_expire(void *arg)
{
	((struct mount_calls *)arg)->expired++;
}

static const struct pool_node_ops node_ops = {
	.changed = on_changed,
	.attr_changed = on_attr_changed,
	.published = on_published,
	.appeared = on_appeared,
	.dir_gone = on_dir_gone,
	.when_notified = on_when_notified,
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

void start_master(struct fixture *f)
{
	struct master_opts mo = { .loop = &f->loop,
				  .heartbeat_ms = HEARTBEAT_MS };
	char path[96];

	snprintf(path, sizeof(path), "%s/master", f->top);
	f->master_metrics = pool_metrics_open();
	mo.listen = f->opts.masters.at[0];
	mo.state_file = path;
	mo.metrics = f->master_metrics;
	mo.program = "9.8.7";
	assert_int_equal(0, master_open(&mo, &f->master));
}

void on_closed(void *arg)
{
	*(bool *)arg = true;
}

void stop_master(struct fixture *f)
{
	bool closed = false;

	master_close(f->master, on_closed, &closed);
	run_until(f, closed);
	f->master = NULL;
	pool_metrics_close(f->master_metrics);
}

void start_node(struct fixture *f, int i)
{
	struct pool_node_opts o = f->opts;
	struct member *m = &f->m[i];

	snprintf(m->dir, sizeof(m->dir), "%s/store%d", f->top, i);
	snprintf(m->sock, sizeof(m->sock), "%s/run%d", f->top, i);
	assert_true(mkdir(m->sock, 0700) == 0 || errno == EEXIST);
	snprintf(m->sock, sizeof(m->sock), "%s/run%d/%s", f->top, i,
		 f->sock_name ? f->sock_name : POOL_PEER_SOCKET);
	snprintf(m->name, sizeof(m->name), "node%d", i);
	memset(&m->calls, 0, sizeof(m->calls));
	m->metrics = pool_metrics_open();
	o.metrics = m->metrics;
	o.store_dir = m->dir;
	o.name = m->name;
	o.program = i == 1 ? "0.1.0" : "0.2.0";
	o.unix_path = o.fd_passing ? m->sock : NULL;
	assert_int_equal(0, pool_node_open(&o, &m->node));
	m->calls.node = m->node;
	pool_node_set_ops(m->node, &node_ops, &m->calls, "served");
}

void stop_node(struct fixture *f, int i)
{
	bool closed = false;

	pool_node_close(f->m[i].node, 0, on_closed, &closed);
	assert_false(closed);
	/* not run_until: it checks the node, which is freed by then */
	unit_run_until(&f->loop, closed);
	f->m[i].node = NULL;
	pool_metrics_close(f->m[i].metrics);
}

bool is_up(struct fixture *f, int i)
{
	return node_session_up(f->m[i].node) && f->m[i].node->complete;
}

void start_pool(struct fixture *f, int n)
{
	int i;

	start_master(f);
	for (i = 0; i < n; i++)
		start_node(f, i);
	for (i = 0; i < n; i++)
		run_until(f, is_up(f, i) && (int)f->m[i].node->nmembers >= n);
	run_until(f, master_ready(f->master));
}

void check_nodes(struct fixture *f)
{
	for (int i = 0; i < NNODES; i++)
		if (f->m[i].node)
			node_check(f->m[i].node);
}

/* ---- messages that cannot be sent ---- */

struct pool_node *refuses_ops;

int __wrap_pool_conn_send(struct pool_conn *c, uint16_t type, uint64_t req,
			  const ProtobufCMessage *msg);
int __real_pool_conn_send(struct pool_conn *c, uint16_t type, uint64_t req,
			  const ProtobufCMessage *msg);

int __wrap_pool_conn_send(struct pool_conn *c, uint16_t type, uint64_t req,
			  const ProtobufCMessage *msg)
{
	if (type == POOL_MSG_OPS && refuses_ops && refuses_ops->session &&
	    refuses_ops->session->conn == c)
		return -ENOBUFS;
	return __real_pool_conn_send(c, type, req, msg);
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

void workers_begin(struct fixture *f)
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

void workers_end(struct fixture *f)
{
	int i;

	for (i = 0; f->workers_busy && i < WORKERS; i++)
		uv_sem_post(&f->busy[i].may_end);
	f->workers_busy = false;
}

/* ---- of each test ---- */

int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char prefix[64];

	assert_non_null(f);
	refuses_ops = NULL;
	alarm(40);
	snprintf(prefix, sizeof(prefix), "/tmp/%s",
		 program_invocation_short_name);
	f->top = unit_dir_make(prefix);
	assert_int_equal(0, uv_loop_init(&f->loop));
	f->opts.loop = &f->loop;
	f->opts.masters.n = 1;
	strcpy(f->opts.masters.at[0].host, "127.0.0.1");
	strcpy(f->opts.listen.host, "127.0.0.1");
	f->opts.store_size = STORE_SIZE;
	f->opts.mount = true;
	f->opts.movers = 1;
	f->opts.deadline_ms = 5000; /* beyond any delay */
	f->port_fd = hold_port(&f->opts.masters.at[0]);
	*state = f;
	return 0;
}

int teardown(void **state)
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

void need_own_tmpfs(struct fixture *f, int i)
{
	struct stat top, st;

	assert_int_equal(0, stat(f->top, &top));
	assert_int_equal(0, stat(f->m[i].dir, &st));
	if (top.st_dev == st.st_dev) {
		print_message("no tmpfs may be mounted: skipped\n");
		skip();
	}
}

/* ---- names ---- */

struct pool_node *node(struct fixture *f, int i)
{
	return f->m[i].node;
}

struct node_entry *find_in(struct fixture *f, int i, struct node_dirent *dir,
			   const char *name)
{
	struct pool_entry *e = pool_node_lookup(node(f, i), dir, name,
						strlen(name));

	return e && !e->is_dir ? node_file(e) : NULL;
}

struct node_entry *find(struct fixture *f, int i, const char *name)
{
	return find_in(f, i, pool_node_root(node(f, i)), name);
}

struct pool_entry *there(struct fixture *f, int i, const char *name)
{
	return pool_node_lookup(node(f, i), pool_node_root(node(f, i)), name,
				strlen(name));
}

bool known(struct fixture *f, int i, const char *name)
{
	return pool_tree_lookup(pool_node_tree(node(f, i)), name,
				strlen(name)) != NULL;
}

int rename_to(struct fixture *f, int i, const char *from, const char *to,
	      bool noreplace)
{
	struct pool_entry *e = NULL;

	return pool_node_rename(node(f, i), &find(f, i, from)->e,
				pool_node_root(node(f, i)), to, strlen(to),
				noreplace, &e);
}

const struct node_attr users = { .mode = 0755, .uid = USER };
const struct node_attr writers = { .mode = 0755, .uid = 1000 };

int mkdir_in(struct fixture *f, int i, struct node_dirent *up, const char *name,
	     struct node_dirent **ret_dir)
{
	return pool_node_mkdir(node(f, i), up, name, strlen(name), &users,
			       ret_dir);
}

int mkdir_top(struct fixture *f, int i, const char *name,
	      struct node_dirent **ret_dir)
{
	return mkdir_in(f, i, pool_node_root(node(f, i)), name, ret_dir);
}

bool all_answered(struct fixture *f, int i)
{
	return pool_list_empty(&node(f, i)->ops_sent) &&
	       pool_list_empty(&node(f, i)->ops_waiting);
}

/* ---- files ---- */

struct node_object *create_in(struct fixture *f, int i, struct node_dirent *dir,
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

void write_bytes(struct fixture *f, int i, struct node_object *o, uint64_t len,
		 uint32_t seed)
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

void close_whole(struct fixture *f, int i, struct node_object *o)
{
	pool_node_writer_flushed(node(f, i), o);
	pool_node_writer_closed(node(f, i), o);
}

void put_in(struct fixture *f, int i, struct node_dirent *dir, const char *name,
	    uint64_t len, uint32_t seed)
{
	struct node_object *o = create_in(f, i, dir, name, 0);

	write_bytes(f, i, o, len, seed);
	close_whole(f, i, o);
}

void put(struct fixture *f, int i, const char *name, uint64_t len,
	 uint32_t seed)
{
	put_in(f, i, pool_node_root(node(f, i)), name, len, seed);
}

bool is_published(struct fixture *f, int i, const char *name)
{
	struct node_entry *e = find(f, i, name);

	return e && !e->own && e->gen;
}

bool is_pending(struct fixture *f, int i, const char *name)
{
	struct node_entry *e = find(f, i, name);

	return e && e->own && e->own->state == NODE_PENDING;
}

void publish(struct fixture *f, int i, const char *name, uint64_t len,
	     uint32_t seed)
{
	put(f, i, name, len, seed);
	run_until(f, is_published(f, i, name));
}

void publish_and_see(struct fixture *f, const char *name, uint64_t len,
		     uint32_t seed)
{
	unsigned int appeared = f->m[1].calls.appeared;

	publish(f, 0, name, len, seed);
	run_until(f, find(f, 1, name));
	assert_int_equal(appeared + 1, f->m[1].calls.appeared);
	assert_int_equal(len, find(f, 1, name)->size);
	assert_true(find(f, 1, name)->gen == find(f, 0, name)->gen);
}

void assert_bytes(struct fixture *f, int i, const struct node_object *o,
		  uint64_t len, uint32_t seed)
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

void assert_info(struct fixture *f, int i, const char *name, const char *key,
		 const char *value)
{
	char buf[128];
	int len = pool_node_info(node(f, i), &find(f, i, name)->e, key, buf,
				 sizeof(buf));

	assert_int_equal(strlen(value), len);
	assert_string_equal(value, buf);
}

void damage(struct fixture *f, int i, const struct node_object *o)
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

/* ---- attributes ---- */

int set_xattr(struct fixture *f, int i, struct pool_entry *e, const char *name,
	      const char *value)
{
	return pool_node_setxattr(node(f, i), e, name, value,
				  value ? strlen(value) : 0, 0);
}

bool has_xattr(const struct pool_entry *e, const char *name, const char *value)
{
	size_t len;
	const void *v = pool_xattrs_get(pool_node_xattrs(e), name, &len);

	return v && len == strlen(value) && memcmp(v, value, len) == 0;
}

void set_replicas(struct fixture *f, int i, const char *name,
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

void pin(struct fixture *f, int i, const char *name)
{
	const struct node_attr attr = { 0 };
	struct pool_xattrs *x = NULL;

	assert_int_equal(0, pool_xattrs_set(&x, "user.kvpool.pin", "hard", 4,
					    0));
	assert_int_equal(0, pool_node_setattr(node(f, i), &find(f, i, name)->e,
					      POOL_SET_XATTRS, &attr, x));
}

/* ---- the feed ---- */

void feed_names(struct fixture *f, int i, char *name, uint64_t gen)
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

void feed_deleted(struct fixture *f, int i, const char *path, bool is_dir)
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

/* ---- requests ---- */

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

int want_start(struct fixture *f, int i, const char *name, struct test_want *t)
{
	struct node_entry *e = find(f, i, name);

	memset(t, 0, sizeof(*t));
	assert_non_null(e);
	return pool_node_want_start(node(f, i), e, &t->w, &t->obj, on_want);
}

int want(struct fixture *f, int i, const char *name,
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

void assert_readable(struct fixture *f, int i, const char *name, uint64_t len,
		     uint32_t seed)
{
	struct node_object *o;

	assert_int_equal(0, want(f, i, name, &o));
	assert_int_equal(NODE_HELD, o->state);
	assert_bytes(f, i, o, len, seed);
	node_object_unref(node(f, i), o);
}

void on_barrier(struct node_barrier *b, int status)
{
	struct test_barrier *t = pool_container_of(b, struct test_barrier, b);

	assert_false(t->done);
	t->done = true;
	t->status = status;
}

void on_claim(struct node_claim *c, int status)
{
	struct test_claim *t = pool_container_of(c, struct test_claim, c);

	assert_false(t->done);
	t->done = true;
	t->status = status;
}

int claim(struct fixture *f, struct test_claim *t, uint64_t bytes,
	  unsigned int timeout_ms)
{
	memset(t, 0, sizeof(*t));
	return pool_node_claim_start(node(f, 0), &t->c, bytes, timeout_ms,
				     on_claim);
}

void on_extended(void *arg, int status)
{
	struct test_claim *t = arg;

	t->done = true;
	t->status = status;
}

void on_done(void *arg, int status)
{
	*(int *)arg = status;
}

void order_copy(struct fixture *f, int i, int from, const char *name)
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
