/* See tests/unit/fs_kernel.h: requests, replies and the kernel's state. */
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/node/node_priv.h" /* node_check */
#include "tests/unit/fs_kernel.h"

#define MESSAGE_MAX (2u << 20)

/* The world whose file system is mounted. */
static struct world *now;

/* ---- what would need a mount ---- */

int __wrap_fuse_session_mount(struct fuse_session *se, const char *dir);
int __wrap_fuse_session_fd(struct fuse_session *se);
void __wrap_fuse_session_unmount(struct fuse_session *se);
int __wrap_fs_mountpoint_prepare(const char *dir);
pid_t __wrap_fs_guard_start(const char *mountpoint, uint64_t id,
			      const struct fs_kept_head *kept);
void __wrap_fs_guard_stop(pid_t pid);
int __wrap_fs_guard_mount_now(const char *path, uint64_t *ret_id);
int __wrap_fs_guard_unmount(const char *path, uint64_t id, int flags);
int __wrap_fs_backing_open(int dev_fd, int fd);
void __wrap_fs_backing_close(int dev_fd, int id);
int __wrap_fs_epoch_next(int dev_fd);
int __wrap_fuse_lowlevel_notify_inval_entry(struct fuse_session *se,
					    fuse_ino_t parent,
					    const char *name, size_t len);
int __wrap_fuse_lowlevel_notify_inval_inode(struct fuse_session *se,
					    fuse_ino_t ino, off_t off,
					    off_t len);
int __wrap_fuse_reply_buf(fuse_req_t req, const char *buf, size_t size);
int __real_fuse_reply_buf(fuse_req_t req, const char *buf, size_t size);
int __wrap_umount2(const char *target, int flags);
int __real_umount2(const char *target, int flags);

static void send_init(struct kernel *k)
{
	struct {
		struct fuse_in_header h;
		struct fuse_init_in init;
	} q = { .h = { .len = sizeof(q), .opcode = FUSE_INIT,
		       .unique = ++k->unique } };

	q.init.major = 7;
	q.init.minor = 40;
	q.init.max_readahead = 1u << 17;
	q.init.flags = FUSE_ASYNC_READ | FUSE_ATOMIC_O_TRUNC | FUSE_BIG_WRITES |
		       FUSE_PARALLEL_DIROPS | FUSE_DO_READDIRPLUS |
		       FUSE_MAX_PAGES | FS_INIT_EXT | FS_HANDLE_KILLPRIV_V2;
	q.init.flags2 = FS_DIRECT_IO_ALLOW_MMAP |
			(k->offers_passthrough ? FS_PASSTHROUGH : 0);
	assert_int_equal(sizeof(q), write(k->fd, &q, sizeof(q)));
}

int k_kept_fd;

int __wrap_fuse_session_mount(struct fuse_session *se, const char *dir)
{
	struct kernel *k = &now->k;
	int pair[2], size = 8 << 20, i;

	(void)se;
	(void)dir;
	assert_int_equal(0, socketpair(AF_UNIX,
				       SOCK_SEQPACKET | SOCK_CLOEXEC |
				       SOCK_NONBLOCK, 0, pair));
	for (i = 0; i < 2; i++)
		(void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUFFORCE, &size,
				 sizeof(size));
	k->fd = pair[0];
	k->dev_fd = pair[1];
	send_init(k);
	return 0;
}

int __wrap_fuse_session_fd(struct fuse_session *se)
{
	(void)se;
	return now->k.dev_fd;
}

void __wrap_fuse_session_unmount(struct fuse_session *se)
{
	(void)se;
}

int __wrap_fs_mountpoint_prepare(const char *dir)
{
	(void)dir;
	return 0;
}

pid_t __wrap_fs_guard_start(const char *mountpoint, uint64_t id,
			      const struct fs_kept_head *kept)
{
	(void)mountpoint;
	(void)id;
	(void)kept;
	return 0;
}

void __wrap_fs_guard_stop(pid_t pid)
{
	(void)pid;
}

int __wrap_fs_guard_mount_now(const char *path, uint64_t *ret_id)
{
	(void)path;
	(void)ret_id;
	return -ENOENT;
}

int __wrap_fs_guard_unmount(const char *path, uint64_t id, int flags)
{
	(void)path;
	(void)id;
	(void)flags;
	return -ENOENT;
}

int __wrap_fuse_reply_buf(fuse_req_t req, const char *buf, size_t size)
{
	if (!now->k.caller_killed)
		return __real_fuse_reply_buf(req, buf, size);
	now->k.caller_killed = false;
	fuse_reply_none(req);
	return -ENOENT;
}

int __wrap_umount2(const char *target, int flags)
{
	if (!now || !now->fs || strcmp(target, now->fs->mountpoint) != 0)
		return __real_umount2(target, flags);
	now->k.aborts += flags == MNT_FORCE;
	return 0;
}

int __wrap_fs_backing_open(int dev_fd, int fd)
{
	struct kernel *k = &now->k;
	int id;

	if (!k->offers_passthrough)
		return -EOPNOTSUPP;
	assert_int_equal(k->dev_fd, dev_fd);
	for (id = 1; id < K_FILES && k->backing[id]; id++)
		;
	assert_true(id < K_FILES);
	k->backing[id] = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	assert_true(k->backing[id] >= 3);
	return id;
}

void __wrap_fs_backing_close(int dev_fd, int id)
{
	struct kernel *k = &now->k;

	(void)dev_fd;
	assert_true(id > 0 && id < K_FILES && k->backing[id]);
	close(k->backing[id]);
	k->backing[id] = 0;
}

int __wrap_fs_epoch_next(int dev_fd)
{
	(void)dev_fd;
	pthread_mutex_lock(&now->k.lock);
	now->k.epochs++;
	pthread_mutex_unlock(&now->k.lock);
	return 0;
}

static void note(uint64_t nodeid, const char *name, size_t len)
{
	struct kernel *k = &now->k;
	struct k_note *n;

	pthread_mutex_lock(&k->lock);
	if (k->nnotes < K_NOTES && len <= POOL_NAME_MAX) {
		n = &k->notes[k->nnotes++];
		n->nodeid = nodeid;
		memcpy(n->name, name, len);
		n->name[len] = '\0';
	}
	pthread_mutex_unlock(&k->lock);
}

int __wrap_fuse_lowlevel_notify_inval_entry(struct fuse_session *se,
					    fuse_ino_t parent,
					    const char *name, size_t len)
{
	struct kernel *k = &now->k;

	(void)se;
	pthread_mutex_lock(&k->lock);
	while (k->locked) {
		k->waiting = true;
		pthread_cond_wait(&k->changed, &k->lock);
	}
	pthread_mutex_unlock(&k->lock);
	note(parent, name, len);
	return 0;
}

int __wrap_fuse_lowlevel_notify_inval_inode(struct fuse_session *se,
					    fuse_ino_t ino, off_t off,
					    off_t len)
{
	(void)se;
	(void)off;
	(void)len;
	note(ino, "", 0);
	return 0;
}

void k_lock(struct world *w, bool on)
{
	pthread_mutex_lock(&w->k.lock);
	w->k.locked = on;
	w->k.waiting = false;
	pthread_cond_broadcast(&w->k.changed);
	pthread_mutex_unlock(&w->k.lock);
}

bool k_waiting(struct world *w)
{
	bool waiting;

	pthread_mutex_lock(&w->k.lock);
	waiting = w->k.waiting;
	pthread_mutex_unlock(&w->k.lock);
	return waiting;
}

unsigned int k_epochs(struct world *w)
{
	unsigned int n;

	pthread_mutex_lock(&w->k.lock);
	n = w->k.epochs;
	pthread_mutex_unlock(&w->k.lock);
	return n;
}

unsigned int k_noted(struct world *w, uint64_t nodeid, const char *name)
{
	struct kernel *k = &w->k;
	unsigned int i, count = 0;

	pthread_mutex_lock(&k->lock);
	for (i = 0; i < k->nnotes; i++)
		if (k->notes[i].nodeid == nodeid &&
		    strcmp(k->notes[i].name, name ? name : "") == 0)
			count++;
	pthread_mutex_unlock(&k->lock);
	return count;
}

/* ---- requests ---- */

uint64_t k_send(struct world *w, uint32_t opcode, uint64_t nodeid,
		const void *in, size_t in_len, const char *name,
		const char *name2)
{
	struct kernel *k = &w->k;
	struct fuse_in_header h = { .opcode = opcode, .nodeid = nodeid,
				    .unique = ++k->unique, .pid = k->tid,
				    .uid = k->uid, .gid = k->gid };
	struct iovec iov[4] = {
		{ &h, sizeof(h) },
		{ (void *)(uintptr_t)in, in_len },
		{ (void *)(uintptr_t)name, name ? strlen(name) + 1 : 0 },
		{ (void *)(uintptr_t)name2, name2 ? strlen(name2) + 1 : 0 },
	};
	int i;

	assert_true(h.unique < K_UNIQUE);
	for (i = 0; i < 4; i++)
		h.len += (uint32_t)iov[i].iov_len;
	assert_int_equal(h.len, writev(k->fd, iov, 4));
	return h.unique;
}

/* Collects the replies sent so far. */
static void take_replies(struct world *w)
{
	static char buf[MESSAGE_MAX];
	const struct fuse_out_header *h = (void *)buf;
	struct k_reply *r;
	ssize_t n;

	while ((n = recv(w->k.fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0) {
		assert_true((size_t)n >= sizeof(*h) && h->len == (size_t)n);
		assert_true(h->unique > 0 && h->unique <= w->k.unique);
		assert_null(w->k.replies[h->unique]); /* once only */
		r = calloc(1, sizeof(*r) + (size_t)n);
		assert_non_null(r);
		r->err = -h->error;
		r->len = (size_t)n - sizeof(*h);
		memcpy(r->bytes, buf + sizeof(*h), r->len);
		w->k.replies[h->unique] = r;
	}
}

bool k_answered(struct world *w, uint64_t unique)
{
	take_replies(w);
	return w->k.replies[unique] != NULL;
}

const struct k_reply *k_wait(struct world *w, uint64_t unique)
{
	k_until(w, k_answered(w, unique));
	k_check(w);
	return w->k.replies[unique];
}

static const struct k_reply *ask(struct world *w, uint32_t opcode,
				 uint64_t nodeid, const void *in,
				 size_t in_len, const char *name,
				 const char *name2)
{
	return k_wait(w, k_send(w, opcode, nodeid, in, in_len, name, name2));
}

static struct k_inode *inode_of(struct world *w, uint64_t nodeid)
{
	struct k_inode *i = &w->k.inodes[(uint32_t)nodeid];

	assert_true(nodeid > 0 && (uint32_t)nodeid < K_INODES);
	if (i->nlookup == 0 || i->nodeid == 0) /* some tests count look-ups
					          themselves */
		i->nodeid = nodeid;
	assert_int_equal(i->nodeid, nodeid);
	return i;
}

/* ---- names ---- */

int k_lookup(struct world *w, uint64_t dir, const char *name,
	     uint64_t *ret_nodeid)
{
	const struct k_reply *r =
		ask(w, FUSE_LOOKUP, dir, NULL, 0, name, NULL);

	*ret_nodeid = 0;
	if (r->err)
		return r->err;
	*ret_nodeid = r->entry.nodeid;
	if (r->entry.nodeid)
		inode_of(w, r->entry.nodeid)->nlookup++;
	return r->entry.nodeid ? 0 : ENOENT;
}

int k_getattr(struct world *w, uint64_t nodeid, struct fuse_attr *ret)
{
	struct fuse_getattr_in in = { 0 };
	const struct k_reply *r =
		ask(w, FUSE_GETATTR, nodeid, &in, sizeof(in), NULL, NULL);

	if (!r->err)
		*ret = r->attr.attr;
	return r->err;
}

int k_unlink(struct world *w, uint64_t dir, const char *name)
{
	return ask(w, FUSE_UNLINK, dir, NULL, 0, name, NULL)->err;
}

int k_rmdir(struct world *w, uint64_t dir, const char *name)
{
	return ask(w, FUSE_RMDIR, dir, NULL, 0, name, NULL)->err;
}

int k_rename(struct world *w, uint64_t dir, const char *name, uint64_t newdir,
	     const char *newname, uint32_t flags)
{
	struct fuse_rename2_in in = { .newdir = newdir, .flags = flags };

	return ask(w, FUSE_RENAME2, dir, &in, sizeof(in), name, newname)->err;
}

int k_mkdir(struct world *w, uint64_t dir, const char *name,
	    uint64_t *ret_nodeid)
{
	struct fuse_mkdir_in in = { .mode = S_IFDIR | 0755, .umask = 022 };
	const struct k_reply *r =
		ask(w, FUSE_MKDIR, dir, &in, sizeof(in), name, NULL);

	if (r->err)
		return r->err;
	*ret_nodeid = r->entry.nodeid;
	inode_of(w, r->entry.nodeid)->nlookup++;
	return 0;
}

int k_truncate(struct world *w, uint64_t nodeid, uint64_t size)
{
	struct fuse_setattr_in in = { .valid = FATTR_SIZE, .size = size };

	return ask(w, FUSE_SETATTR, nodeid, &in, sizeof(in), NULL, NULL)->err;
}

int k_fsyncdir(struct world *w, uint64_t nodeid)
{
	struct fuse_fsync_in in = { 0 };

	return ask(w, FUSE_FSYNCDIR, nodeid, &in, sizeof(in), NULL, NULL)->err;
}

void k_forget(struct world *w, uint64_t nodeid, uint64_t n)
{
	struct fuse_forget_in in = { .nlookup = n };
	struct k_inode *i = inode_of(w, nodeid);

	assert_true(i->nlookup >= n);
	i->nlookup -= n;
	(void)k_send(w, FUSE_FORGET, nodeid, &in, sizeof(in), NULL, NULL);
	uv_run(&w->loop, UV_RUN_NOWAIT); /* FORGET has no reply */
}

void k_interrupt(struct world *w, uint64_t unique)
{
	struct fuse_interrupt_in in = { .unique = unique };

	(void)k_send(w, FUSE_INTERRUPT, 0, &in, sizeof(in), NULL, NULL);
}

/* ---- files ---- */

static int backing_open(struct world *w, uint32_t id, uint32_t flags)
{
	char path[64];
	int fd;

	assert_true(id > 0 && id < K_FILES && w->k.backing[id]);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", w->k.backing[id]);
	fd = open(path, (int)(flags & (O_ACCMODE | O_APPEND)) | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

int k_opened(struct world *w, uint64_t nodeid, uint32_t flags,
	     const struct k_reply *r, struct k_file *ret)
{
	struct k_inode *i = inode_of(w, nodeid);
	const struct fuse_open_out *o = r->len == sizeof(r->create) ?
						&r->create.open : &r->open;

	memset(ret, 0, sizeof(*ret));
	ret->fd = -1;
	if (r->err)
		return r->err;
	assert_true(i->nlookup > 0);
	ret->nodeid = nodeid;
	ret->fh = o->fh;
	ret->flags = flags;
	ret->open_flags = o->open_flags;
	if (!(o->open_flags & FS_FOPEN_PASSTHROUGH)) {
		/* A file has either cached pages or passthrough, never both. */
		assert_true(i->through == 0);
		i->served++;
		return 0;
	}
	if (i->through > 0)
		assert_int_equal(i->backing, o->padding);
	assert_true(i->served == 0);
	i->backing = o->padding;
	i->through++;
	ret->fd = backing_open(w, o->padding, flags);
	return 0;
}

int k_open(struct world *w, uint64_t nodeid, uint32_t flags,
	   struct k_file *ret)
{
	struct fuse_open_in in = { .flags = flags };

	return k_opened(w, nodeid, flags,
			ask(w, FUSE_OPEN, nodeid, &in, sizeof(in), NULL, NULL),
			ret);
}

int k_open_name(struct world *w, const char *name, uint32_t flags,
		struct k_file *ret)
{
	uint64_t nodeid;
	int err = ESTALE, turn;

	for (turn = 0; turn < 2 && err == ESTALE; turn++) {
		err = k_lookup(w, FUSE_ROOT_ID, name, &nodeid);
		if (!err)
			err = k_open(w, nodeid, flags, ret);
	}
	return err;
}

int k_create(struct world *w, uint64_t dir, const char *name, uint32_t flags,
	     struct k_file *ret)
{
	struct fuse_create_in in = { .flags = flags | O_CREAT,
				     .mode = S_IFREG | 0644, .umask = 022 };
	const struct k_reply *r =
		ask(w, FUSE_CREATE, dir, &in, sizeof(in), name, NULL);

	ret->fd = -1;
	if (r->err)
		return r->err;
	inode_of(w, r->create.entry.nodeid)->nlookup++;
	return k_opened(w, r->create.entry.nodeid, flags, r, ret);
}

void k_write(struct world *w, const struct k_file *f, const char *text,
	     uint64_t offset)
{
	size_t len = strlen(text);
	struct fuse_write_in in = { .fh = f->fh, .offset = offset,
				    .size = (uint32_t)len };
	char *both;
	const struct k_reply *r;

	if (f->fd >= 0) {
		assert_int_equal(len, pwrite(f->fd, text, len, (off_t)offset));
		return;
	}
	both = malloc(sizeof(in) + len);
	assert_non_null(both);
	memcpy(both, &in, sizeof(in));
	memcpy(both + sizeof(in), text, len);
	r = ask(w, FUSE_WRITE, f->nodeid, both, sizeof(in) + len, NULL, NULL);
	free(both);
	assert_int_equal(0, r->err);
	assert_int_equal(len, r->write.size);
}

size_t k_read(struct world *w, const struct k_file *f, char *buf, size_t size)
{
	struct fuse_read_in in = { .fh = f->fh, .size = (uint32_t)size };
	const struct k_reply *r;
	ssize_t n;

	if (f->fd >= 0) {
		n = pread(f->fd, buf, size, 0);
		assert_true(n >= 0);
		return (size_t)n;
	}
	r = ask(w, FUSE_READ, f->nodeid, &in, sizeof(in), NULL, NULL);
	assert_int_equal(0, r->err);
	memcpy(buf, r->bytes, r->len);
	return r->len;
}

void k_expect(struct world *w, const struct k_file *f, const char *text)
{
	char buf[256];
	size_t n = k_read(w, f, buf, sizeof(buf) - 1);

	buf[n] = '\0';
	assert_string_equal(text, buf);
}

void k_expect_name(struct world *w, const char *name, const char *text)
{
	struct k_file f;

	assert_int_equal(0, k_open_name(w, name, O_RDONLY, &f));
	k_expect(w, &f, text);
	k_close(w, &f);
}

uint64_t k_claim_all_but(struct world *w, uint64_t bytes)
{
	struct pool_node *n = w->m[0].node;
	struct node_claim c = { .bytes = 0 };
	struct pool_space sp;
	uint64_t all;

	pool_store_space(pool_node_store(n), &sp);
	all = sp.free - sp.releasing - n->claimed - bytes;
	assert_int_equal(1, pool_node_claim_start(n, &c, all, 0, NULL));
	return all;
}

void k_close(struct world *w, struct k_file *f)
{
	struct k_inode *i = inode_of(w, f->nodeid);
	struct fuse_flush_in flush = { .fh = f->fh };
	struct fuse_release_in release = { .fh = f->fh, .flags = f->flags };

	if (!(f->open_flags & FS_FOPEN_NOFLUSH))
		(void)ask(w, FUSE_FLUSH, f->nodeid, &flush, sizeof(flush),
			  NULL, NULL);
	if (f->open_flags & FS_FOPEN_PASSTHROUGH)
		i->through--;
	else
		i->served--;
	if (f->fd >= 0)
		close(f->fd); /* fput closes the backing file before it sends
			         RELEASE */
	f->fd = -1;
	assert_int_equal(0, ask(w, FUSE_RELEASE, f->nodeid, &release,
				sizeof(release), NULL, NULL)->err);
}

/* ---- the world ---- */

static void check_inode(struct world *w, const struct fs_inode *i)
{
	if (fs_inode_entry(i))
		assert_ptr_equal(i, pool_node_inode(fs_inode_entry(i)));
	if (i->opens > 0)
		assert_non_null(i->obj);
	if (i->backing) {
		assert_true(w->fs->passthrough);
		assert_true(i->opens > 0 || !pool_list_empty(&i->lru));
	}
	if (i->kind == FS_FILE && !i->entry && i->opens == 0) {
		assert_int_equal(0, i->backing);
		assert_null(i->obj);
	}
	if (i->kind == FS_FILE && !pool_list_empty(&i->lru))
		assert_true(i->opens == 0 && i->backing);
}

void k_check(struct world *w)
{
	struct fs *fs = w->fs;
	struct pool_list *it, *tmp;
	unsigned int listed = 0;
	uint64_t n;

	for (int i = 0; i < K_NODES; i++)
		if (w->m[i].node)
			node_check(w->m[i].node);

	for (n = pool_slots_next(&fs->inodes, 0); n < fs->inodes.cap;
	     n = pool_slots_next(&fs->inodes, n + 1))
		check_inode(w, pool_slots_get(&fs->inodes, n));
	pool_list_each(it, tmp, &fs->backings)
		listed++;
	assert_int_equal(listed, fs->nbackings);
}

static void start_node(struct world *w, int i)
{
	struct pool_node_opts o = w->opts;

	snprintf(w->m[i].dir, sizeof(w->m[i].dir), "%s/store%d", w->top, i);
	snprintf(w->m[i].name, sizeof(w->m[i].name), "node%d", i);
	w->m[i].metrics = o.metrics = pool_metrics_open();
	o.store_dir = w->m[i].dir;
	o.name = w->m[i].name;
	assert_int_equal(0, pool_node_open(&o, &w->m[i].node));
	k_until(w, node_session_up(w->m[i].node) && w->m[i].node->complete);
}

void k_start_other(struct world *w)
{
	start_node(w, 1);
	k_until(w, w->m[0].node->nmembers >= 2 && w->m[1].node->nmembers >= 2);
}

static int setup(void **state, bool passthrough)
{
	struct world *w = calloc(1, sizeof(*w));
	struct master_opts mo = { .heartbeat_ms = 200 };
	struct fs_opts fo = { .source = "test", .passthrough = passthrough,
			      .ids = FS_ALL_AS_STORED, .kept_fd = k_kept_fd };

	assert_non_null(w);
	alarm(60);
	now = w;
	pthread_mutex_init(&w->k.lock, NULL);
	pthread_cond_init(&w->k.changed, NULL);
	w->k.offers_passthrough = passthrough;
	w->k.tid = 1;
	w->k.inodes[FUSE_ROOT_ID].nlookup = 1;
	w->top = unit_dir_make("/tmp/fs_kernel");
	assert_int_equal(0, uv_loop_init(&w->loop));
	w->master_metrics = mo.metrics = pool_metrics_open();
	mo.loop = &w->loop;
	strcpy(mo.listen.host, "127.0.0.1");
	assert_int_equal(0, master_open(&mo, &w->master));
	w->opts.loop = &w->loop;
	w->opts.masters.n = 1;
	strcpy(w->opts.masters.at[0].host, "127.0.0.1");
	w->opts.masters.at[0].port = master_port(w->master);
	strcpy(w->opts.listen.host, "127.0.0.1");
	w->opts.store_size = 32u << 20;
	w->opts.mount = true;
	w->opts.movers = 1;
	w->opts.deadline_ms = 5000;
	start_node(w, 0);
	fo.loop = &w->loop;
	fo.node = w->m[0].node;
	fo.mountpoint = w->top;
	fo.metrics = w->m[0].metrics;
	assert_int_equal(0, fs_mount(&fo, &w->fs));
	assert_string_equal(passthrough ? "passthrough" : "daemon-served",
			    fs_data_mode(w->fs));
	*state = w;
	return 0;
}

int k_setup_passthrough(void **state)
{
	return setup(state, true);
}

int k_setup_served(void **state)
{
	return setup(state, false);
}

static void on_closed(void *arg)
{
	*(bool *)arg = true;
}

static void stop_node(struct world *w, int i)
{
	bool closed = false;

	pool_node_close(w->m[i].node, 0, on_closed, &closed);
	k_until(w, closed);
}

unsigned int k_handles(struct world *w)
{
	struct pool_slots *s = &w->fs->handles;
	unsigned int n = 0;
	uint64_t at;

	for (at = pool_slots_next(s, 0); at < s->cap;
	     at = pool_slots_next(s, at + 1))
		n++;
	return n;
}

/* An unmount drops all dentries, so that no inode may be left. */
static void forget_all(struct world *w)
{
	uint64_t id;

	for (id = 2; id < K_INODES; id++) {
		assert_int_equal(0, w->k.inodes[id].through +
				    w->k.inodes[id].served);
		if (w->k.inodes[id].nlookup)
			k_forget(w, w->k.inodes[id].nodeid ?
					    w->k.inodes[id].nodeid : id,
				 w->k.inodes[id].nlookup);
	}
	k_until(w, pool_gauge_value(&w->fs->ninodes) == 0);
	assert_int_equal(0, pool_gauge_value(&w->fs->nopen));
	assert_int_equal(0, pool_gauge_value(&w->fs->gbackings));
	assert_null(fs_busy(w->fs));
	assert_true(pool_list_empty(&w->fs->executed));
	assert_int_equal(0, k_handles(w));
}

static void remove_top(struct world *w)
{
	int i;

	for (i = 0; i < K_NODES; i++)
		while (w->m[i].dir[0] &&
		       umount2(w->m[i].dir, MNT_DETACH) == 0)
			;
	unit_dir_remove(w->top);
}

/* If the notifier's thread still waits for the lock, fs_close did not join it:
 * ends it here. */
static void end_lost_notifier(struct world *w)
{
	assert_int_equal(k_waiting(w), w->fs->notifier_lost);
	assert_int_equal(w->fs->notifier_lost, w->k.aborts);
	if (!w->fs->notifier_lost)
		return;
	k_lock(w, false);
	unit_poll_until(fs_notifier_ended(w->fs));
	fs_notifier_free(w->fs);
	w->fs->notifier_lost = false;
}

int k_teardown(void **state)
{
	struct world *w = *state;
	bool closed = false;
	int i;

	forget_all(w);
	fs_close(w->fs, on_closed, &closed);
	k_until(w, closed);
	end_lost_notifier(w);
	for (i = K_NODES - 1; i >= 0; i--)
		if (w->m[i].node)
			stop_node(w, i);
	fs_free(w->fs);
	closed = false;
	master_close(w->master, on_closed, &closed);
	k_until(w, closed);
	assert_int_equal(0, uv_run(&w->loop, UV_RUN_DEFAULT));
	assert_int_equal(0, uv_loop_close(&w->loop));
	for (i = 0; i < K_NODES; i++)
		if (w->m[i].metrics)
			pool_metrics_close(w->m[i].metrics);
	pool_metrics_close(w->master_metrics);
	for (i = 0; i < K_UNIQUE; i++)
		free(w->k.replies[i]);
	close(w->k.fd);
	now = NULL;
	remove_top(w);
	/* fs_free does not free it, because the metrics registry may refer to
	 * it. */
	free(w->fs->notifier);
	free(w->fs);
	free(w);
	alarm(0);
	return 0;
}

/* ---- names that are published ---- */

bool k_published(struct world *w, const char *name)
{
	struct pool_entry *e = pool_tree_lookup(pool_node_tree(w->m[0].node),
						name, strlen(name));
	struct node_entry *f = e ? node_file(e) : NULL;

	return f && pool_node_visible(e) && f->gen && !f->own;
}

uint64_t k_publish(struct world *w, const char *name, const char *text)
{
	struct k_file f;
	uint64_t nodeid;

	assert_int_equal(0, k_create(w, FUSE_ROOT_ID, name, O_WRONLY, &f));
	k_write(w, &f, text, 0);
	k_close(w, &f);
	k_until(w, k_published(w, name));
	/* The nodeid has changed if the file was daemon-served while it was
	 * written. */
	assert_int_equal(0, k_lookup(w, FUSE_ROOT_ID, name, &nodeid));
	return nodeid;
}

static uint64_t gen_at(struct world *w, int i, const char *name)
{
	struct pool_entry *e = pool_tree_lookup(pool_node_tree(w->m[i].node),
						name, strlen(name));

	return e && node_file(e) && !node_file(e)->own ? node_file(e)->gen : 0;
}

void k_publish_elsewhere(struct world *w, const char *name, const char *text)
{
	static const struct node_attr attr = { .mode = 0644,
					       .mtime_ns = 1700000000 };
	struct pool_node *n = w->m[1].node;
	struct pool_entry *e = pool_node_lookup(n, pool_node_root(n), name,
						strlen(name));
	uint64_t before = gen_at(w, 0, name);
	size_t len = strlen(text);
	struct node_object *o;
	int fd;

	if (e)
		assert_int_equal(0, pool_node_unlink(n, node_file(e)));
	assert_int_equal(0, pool_node_create(n, pool_node_root(n), name,
					     strlen(name), &attr, 0, &o));
	pool_node_writer_opened(n, o);
	fd = pool_store_fd(pool_node_store(n), o->id, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(len, pwrite(fd, text, len, 0));
	close(fd);
	pool_node_writer_flushed(n, o);
	pool_node_writer_closed(n, o);
	k_until(w, gen_at(w, 0, name) > before &&
		   gen_at(w, 0, name) == gen_at(w, 1, name));
}
