/*
 * Mounting, the request loop, INIT, unmounting. See fs/session.h.
 *
 * Thread: loop.
 */
#include "fs/fs_priv.h"
#include "fs/guard.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "pool/base/busy.h"
#include "pool/base/map.h"

#define ADOPT_POLL_MS 5
#define FS_NOT_SEEN UINT64_MAX /* no mount has this id */

/* ---- the device ----
 *
 * libfuse's reads and writes go through here, so that INIT can be extended and,
 * for a take-over, replayed.
 */

static ssize_t dev_read(int fd, void *buf, size_t len, void *userdata)
{
	struct fs *fs = userdata;
	ssize_t n;

	if (fs->initialised) {
		n = read(fd, buf, len);
		if (n <= 0 || !fs_ghost(fs, buf, (size_t)n))
			return n;
		errno = EINTR; /* answered: read the next one */
		return -1;
	}
	if (fs->replaying) {
		n = (ssize_t)(fs->init_len < len ? fs->init_len : len);
		memcpy(buf, fs->init_req, (size_t)n);
	} else {
		n = read(fd, buf, len);
	}
	if (n > 0)
		fs_init_request(&fs->init, buf, (size_t)n);
	if (n > 0 && !fs->replaying && (size_t)n <= sizeof(fs->init_req)) {
		memcpy(fs->init_req, buf, (size_t)n);
		fs->init_len = (size_t)n;
	}
	return n;
}

/* Keeps the reply to INIT: after a take-over the new process compares its own
 * with it. Returns the reply's length. */
static ssize_t keep_reply(struct fs *fs, const struct iovec *iov, int count)
{
	size_t len = 0;
	int i;

	for (i = 0; i < count; i++) {
		if (len + iov[i].iov_len <= sizeof(fs->init_reply))
			memcpy(fs->init_reply + len, iov[i].iov_base,
			       iov[i].iov_len);
		len += iov[i].iov_len;
	}
	fs->init_reply_len = len;
	return (ssize_t)len;
}

static ssize_t dev_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct fs *fs = userdata;

	ssize_t len = 0;

	if (fs->init.unique) {
		fs_init_reply(&fs->init, iov, count);
		len = keep_reply(fs, iov, count);
	}
	return fs->replaying ? len : writev(fd, iov, count);
}

static const struct fuse_custom_io device_io = {
	.read = dev_read,
	.writev = dev_writev,
};

/* ---- INIT ---- */

static void on_init(void *userdata, struct fuse_conn_info *conn)
{
	struct fs *fs = userdata;

	(void)fs;
	/* Never the writeback cache: the kernel would send data after the
	 * RENAME that publishes the file. */
	conn->want &= ~(unsigned)(FUSE_CAP_WRITEBACK_CACHE |
				  FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
				  FUSE_CAP_SPLICE_MOVE |
				  FUSE_CAP_AUTO_INVAL_DATA);
	conn->want |= conn->capable &
		      (FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_PARALLEL_DIROPS |
		       FUSE_CAP_ASYNC_DIO | FUSE_CAP_READDIRPLUS |
		       FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_ASYNC_READ);
	/* The maximum: RELEASE is a background request and must not be held
	 * back (fs_flush). */
	conn->max_background = UINT16_MAX;
	conn->congestion_threshold = UINT16_MAX;
	conn->max_readahead = 1u << 20;
	conn->time_gran = 1;
}

static const struct fuse_lowlevel_ops ops = {
	.init = on_init,
	.lookup = fs_lookup,
	.forget = fs_forget,
	.forget_multi = fs_forget_multi,
	.getattr = fs_getattr,
	.setattr = fs_setattr,
	.mknod = fs_mknod,
	.mkdir = fs_mkdir,
	.unlink = fs_unlink,
	.rmdir = fs_rmdir,
	.rename = fs_rename,
	.link = fs_link,
	.symlink = fs_symlink,
	.open = fs_file_open,
	.create = fs_create,
	.read = fs_read,
	.write = fs_write,
	.flush = fs_flush,
	.release = fs_release,
	.fsync = fs_fsync,
	.fallocate = fs_fallocate,
	.opendir = fs_opendir,
	.readdir = fs_readdir,
	.readdirplus = fs_readdirplus,
	.releasedir = fs_releasedir,
	.fsyncdir = fs_fsyncdir,
	.statfs = fs_statfs,
	.setxattr = fs_setxattr,
	.getxattr = fs_getxattr,
	.listxattr = fs_listxattr,
	.removexattr = fs_removexattr,
	.ioctl = fs_ioctl,
};

static const char *const op_labels[OP_COUNT] = {
	"op=\"lookup\"", "op=\"forget\"", "op=\"getattr\"", "op=\"setattr\"",
	"op=\"mknod\"", "op=\"mkdir\"", "op=\"unlink\"", "op=\"rmdir\"",
	"op=\"rename\"", "op=\"link\"", "op=\"symlink\"", "op=\"open\"",
	"op=\"create\"", "op=\"read\"", "op=\"write\"", "op=\"flush\"",
	"op=\"release\"", "op=\"fsync\"", "op=\"fallocate\"",
	"op=\"opendir\"", "op=\"readdir\"", "op=\"readdirplus\"",
	"op=\"releasedir\"", "op=\"fsyncdir\"", "op=\"statfs\"",
	"op=\"setxattr\"", "op=\"getxattr\"", "op=\"listxattr\"",
	"op=\"removexattr\"", "op=\"ioctl\"",
};

static int register_metrics(struct fs *fs)
{
	struct pool_metrics *m = fs->opts.metrics;
	int i, err = 0;

	for (i = 0; !err && i < OP_COUNT; i++) {
		assert(op_labels[i]);
		err = pool_metrics_counter(m, &fs->requests[i],
					   "kvpool_fuse_requests_total",
					   op_labels[i],
					   "Requests from the kernel");
	}
	for (i = 0; !err && i < 5; i++) {
		static const char *const labels[] = {
			"result=\"local\"", "result=\"remote\"",
			"result=\"failed\"", "result=\"interrupted\"",
			"result=\"stale\""
		};
		struct pool_counter *const c[] = {
			&fs->opens_local, &fs->opens_remote, &fs->opens_failed,
			&fs->opens_interrupted, &fs->opens_stale
		};

		err = pool_metrics_counter(m, c[i], "kvpool_fuse_opens_total",
			labels[i],
			"Opens of files: with a copy here (local), after a "
			"fetch (remote), with an error (failed, interrupted), "
			"with ESTALE, after which the kernel opens again");
	}
	if (!err)
		err = pool_metrics_counter(m, &fs->stale_opens,
			"kvpool_fuse_stale_opens_total", NULL,
			"Requests answered with ESTALE: the kernel repeats "
			"them once");
	if (!err)
		err = pool_metrics_counter(m, &fs->interrupts,
			"kvpool_fuse_interrupts_total", NULL,
			"Requests that were interrupted while waiting");
	if (!err)
		err = pool_metrics_counter(m, &fs->write_waits,
			"kvpool_fuse_write_waits_total", NULL,
			"Writes that waited for space");
	if (!err)
		err = pool_metrics_counter(m, &fs->listing_waits,
			"kvpool_fuse_listing_waits_total", NULL,
			"Listings continued in a later turn of the loop: many "
			"names in a row were not shown");
	if (!err)
		err = pool_metrics_counter(m, &fs->texts_refused,
			"kvpool_fuse_texts_refused_total", NULL,
			"Opens of files in /.kvpool that were refused: too "
			"many are open");
	if (!err)
		err = pool_metrics_counter(m, &fs->ghosts,
			"kvpool_fuse_ghosts_total", NULL,
			"Requests about files that were open or known when "
			"an earlier daemon was killed");
	if (!err)
		err = pool_metrics_counter(m, &fs->resends,
			"kvpool_fuse_resent_total", NULL,
			"Requests that an earlier daemon had read when it "
			"was killed");
	if (!err)
		err = pool_metrics_counter(m, &fs->left_out,
			"kvpool_kept_left_out_total", NULL,
			"Directories, open files and daemon-served handles "
			"that a next daemon would not know: too many, a path "
			"that is too long, or a file that a peer has lent");
	if (!err)
		err = pool_metrics_counter(m, &fs->reopened,
			"kvpool_kept_handles_total", "result=\"kept\"",
			"Daemon-served handles of a killed daemon, by whether "
			"the bytes that they read were still there");
	if (!err)
		err = pool_metrics_counter(m, &fs->not_reopened,
			"kvpool_kept_handles_total", "result=\"lost\"",
			"Daemon-served handles of a killed daemon, by whether "
			"the bytes that they read were still there");
	if (!err)
		err = pool_metrics_gauge(m, &fs->ninodes, "kvpool_fuse_inodes",
					 NULL, "Nodeids that are in use");
	if (!err)
		err = pool_metrics_gauge(m, &fs->gbackings,
					 "kvpool_fuse_backings", NULL,
					 "Files registered for passthrough");
	if (!err)
		err = pool_metrics_gauge(m, &fs->nopen,
					 "kvpool_fuse_open_files", NULL,
					 "Open file handles");
	if (!err)
		err = pool_metrics_hist(m, &fs->lookup_time,
					"kvpool_fuse_lookup_seconds", NULL,
					"Answering a look-up");
	if (!err)
		err = pool_metrics_hist(m, &fs->open_time,
					"kvpool_fuse_open_seconds", NULL,
					"Answering an open");
	return err;
}

/* ---- the request loop ---- */

static void mount_gone(struct fs *fs)
{
	if (fs->unmounted)
		return;
	fs->unmounted = true;
	fs_pause(fs);
	if (!fs->closing)
		fs->opts.gone(fs->opts.arg);
}

static uint64_t request_unique(const struct fs *fs, int len)
{
	struct fuse_in_header in = { 0 };

	if ((size_t)len >= sizeof(in))
		memcpy(&in, fs->buf.mem, sizeof(in));
	return in.unique;
}

/* Handles one request. False: there is none, or the mount is gone. */
static bool handle_one(struct fs *fs)
{
	int n = fuse_session_receive_buf(fs->se, &fs->buf);

	if (n == -EINTR)
		return true;
	if (n == -EAGAIN)
		return false;
	if (n <= 0 || fuse_session_exited(fs->se)) {
		mount_gone(fs);
		return false;
	}
	(void)fs_kept_handling(fs, request_unique(fs, n));
	fuse_session_process_buf(fs->se, &fs->buf);
	(void)fs_kept_handling(fs, 0);
	pool_node_caller(fs->node, NODE_NO_CALLER);
	return true;
}

static void handle_all(struct fs *fs)
{
	int i = 0;

	while (i < FS_TURN_MAX && !fs->unmounted && handle_one(fs))
		i++;
	if (i > 0)
		pool_busy_touch(fs->loop);
}

static void on_readable(uv_poll_t *p, int status, int events)
{
	(void)status;
	(void)events;
	handle_all(p->data);
}

/* Callback of pool_busy_look_for: polls the device before the loop sleeps. */
static void poll_device(void *arg)
{
	handle_all(arg);
}

static void on_waiting(uv_timer_t *t)
{
	fs_listings_run(t->data);
	fs_waiting_run(t->data);
}

/* ---- mounting ---- */

/* Commas and backslashes in the source are escaped for libfuse's parser. NULL:
 * ENOMEM. */
static char *mount_options(const struct fs_opts *opts)
{
	size_t len = strlen(opts->source), i, n = 0;
	char *source = malloc(2 * len + 1), *text = NULL;

	for (i = 0; source && i < len; i++) {
		if (opts->source[i] == ',' || opts->source[i] == '\\')
			source[n++] = '\\';
		source[n++] = opts->source[i];
	}
	if (!source)
		return NULL;
	source[n] = '\0';
	if (asprintf(&text, "allow_other,default_permissions,nosuid,nodev%s%s,"
			    "subtype=kvpool,fsname=%s",
		     opts->noexec ? ",noexec" : "",
		     opts->noatime ? ",noatime" : "", source) < 0)
		text = NULL;
	free(source);
	return text;
}

static int new_session(struct fs *fs)
{
	char *opts = mount_options(&fs->opts);
	const char *const argv[] = { "kvpool", "-o", opts };
	struct fuse_args args = FUSE_ARGS_INIT(3, (char **)(uintptr_t)argv);

	if (!opts)
		return -ENOMEM;
	fs->se = fuse_session_new(&args, &ops, sizeof(ops), fs);
	fuse_opt_free_args(&args);
	free(opts);
	return fs->se ? 0 : -ENOMEM;
}

static int mount_session(struct fs *fs)
{
	int err;

	if (access("/dev/fuse", R_OK | W_OK) < 0) {
		err = -errno;
		pool_error("/dev/fuse: %s - run as root or install fuse3 (in a "
			   "container, pass the device in)", strerror(errno));
		return err;
	}
	err = new_session(fs);
	if (err)
		return err;
	if (fuse_session_mount(fs->se, fs->mountpoint) != 0) {
		pool_error("%s: cannot mount - run as root, or install fuse3 "
			   "and set user_allow_other in /etc/fuse.conf",
			   fs->mountpoint);
		fuse_session_destroy(fs->se);
		return -EPERM;
	}
	fs->dev_fd = fuse_session_fd(fs->se);
	err = fuse_session_custom_io(fs->se, &device_io, fs->dev_fd);
	if (!err && fcntl(fs->dev_fd, F_SETFL,
			  fcntl(fs->dev_fd, F_GETFL) | O_NONBLOCK) < 0)
		err = -errno;
	return err;
}

/*
 * Faults in all pages of the request buffer. If a page were missing and the
 * daemon were killed while the kernel copies a request into it, the kernel
 * would answer that request with EIO.
 */
static void populate_buffer(const struct fs *fs)
{
	if (fs->kept)
		(void)pool_map_populate(fs->buf.mem,
					malloc_usable_size(fs->buf.mem), true);
}

/* The kernel queues INIT at mount(2): answers it now, so that the data mode is
 * known when fs_mount returns. */
static int answer_init(struct fs *fs)
{
	uint64_t deadline = pool_now_ms() + 5000;
	int n;

	while (pool_now_ms() < deadline) {
		n = fuse_session_receive_buf(fs->se, &fs->buf);
		if (n == -EAGAIN || n == -EINTR) {
			usleep(1000);
			continue;
		}
		if (n <= 0)
			break;
		fuse_session_process_buf(fs->se, &fs->buf);
		fs->initialised = true;
		fs->passthrough = fs->init.passthrough;
		populate_buffer(fs);
		return 0;
	}
	pool_error("%s: no INIT request from the kernel in 5 s",
		   fs->mountpoint);
	return -EIO;
}

/* Tries to register a backing file, which needs CAP_SYS_ADMIN and a filesystem
 * that is not stacked itself; else the mount is daemon-served. */
static void probe_backing(struct fs *fs)
{
	struct pool_file f;
	int id;

	if (!fs->passthrough)
		return;
	if (pool_store_take(pool_node_store(fs->node), 0, &f) < 0)
		return;
	id = fs_backing_open(fs->dev_fd, f.fd);
	if (id > 0) {
		fs->backings_from = fs->kept ? id : 0;
		fs_backing_close(fs->dev_fd, id);
	} else {
		pool_warn("passthrough is not possible (%s): daemon-served",
			  strerror(-id));
		fs->passthrough = false;
	}
	close(f.fd);
	pool_store_remove(pool_node_store(fs->node), f.id);
}

static int fs_new(const struct fs_opts *opts, struct fs **ret_fs)
{
	struct fs *fs = calloc(1, sizeof(*fs));

	if (!fs)
		return -ENOMEM;
	fs->opts = *opts;
	fs->loop = opts->loop;
	fs->node = opts->node;
	fs->tree = pool_node_tree(opts->node);
	fs->mountpoint = strdup(opts->mountpoint);
	fs->init.want_passthrough = opts->passthrough;
	pool_slots_init(&fs->inodes);
	pool_slots_init(&fs->handles);
	pool_list_init(&fs->backings);
	pool_list_init(&fs->listings);
	pool_list_init(&fs->touched);
	pool_list_init(&fs->executed);
	pool_list_init(&fs->waiting);
	pool_list_init(&fs->root.lru);
	fs->root.kind = FS_DIR;
	fs->root.low_id = FUSE_ROOT_ID;
	fs->root.ino = 1;
	fs->root.nlookup = 1;
	fs->root.u.dir = pool_node_root(fs->node);
	pool_node_set_inode(&node_dir_tree(fs->root.u.dir)->e, &fs->root);
	*ret_fs = fs;
	return fs->mountpoint ? register_metrics(fs) : -ENOMEM;
}

static int start_polling(struct fs *fs)
{
	int err = uv_poll_init(fs->loop, &fs->poll, fs->dev_fd);

	if (err)
		return err;
	uv_timer_init(fs->loop, &fs->waiting_timer);
	fs->on_waiting = on_waiting;
	uv_timer_init(fs->loop, &fs->touch);
	uv_timer_init(fs->loop, &fs->keeping);
	uv_timer_init(fs->loop, &fs->taking);
	fs->poll.data = fs->waiting_timer.data = fs->touch.data =
		fs->keeping.data = fs->taking.data = fs;
	pool_node_set_ops(fs->node, &fs_node_ops, fs, fs_data_mode(fs));
	return 0;
}

static void guard_now(struct fs *fs, const struct fs_kept *kept)
{
	if (!fs->mount_id)
		fs->guard = -ENOENT;
	else
		fs->guard = fs_guard_start(fs->mountpoint, fs->mount_id,
					   kept ? kept->head : NULL);
	if (fs->guard < 0)
		pool_warn("%s: no guard: the mount may hang if the daemon is "
			  "killed: %s", fs->mountpoint, strerror(-fs->guard));
}

/* Records which mount is ours: the guard must not unmount another one at this
 * path. */
static void find_mount(struct fs *fs)
{
	uint64_t dev = fs_guard_dev(fs->mountpoint);

	if (fs->dev && dev != fs->dev)
		fs->mount_id = FS_NOT_SEEN;
	else if (fs_guard_mount_now(fs->mountpoint, &fs->mount_id))
		fs->mount_id = 0;
	else
		fs->dev = dev;
}

static void start_guard(struct fs *fs)
{
	find_mount(fs);
	if (fs->mount_id == FS_NOT_SEEN)
		pool_warn("%s: another mount covers it: it may hang if the "
			  "daemon is killed", fs->mountpoint);
	if (!fs->opts.guarded)
		guard_now(fs, fs->kept);
}

void fs_keep_now(struct fs *fs)
{
	if (pool_node_settled(fs->node))
		fs_kept_safe(fs, fs_kept_mark(fs));
}

static void on_keeping(uv_timer_t *t)
{
	struct fs *fs = t->data;

	fs_keep_now(fs);
	fs_kept_backings(fs);
	if (!fs_kept_due(fs))
		uv_timer_stop(t); /* until the next change (fs_kept_changed) */
}

/* From now on the mount survives this process. */
static void start_keeping(struct fs *fs)
{
	if (!fs->kept)
		return;
	fs_kept_mounted(fs);
	uv_timer_start(&fs->keeping, on_keeping, FS_KEPT_MS, FS_KEPT_MS);
}

int fs_mount(const struct fs_opts *opts, struct fs **ret_fs)
{
	struct fs *fs;
	int err = fs_new(opts, &fs);

	if (!err)
		err = fs_mountpoint_prepare(fs->mountpoint);
	if (!err)
		err = mount_session(fs);
	if (!err && opts->kept_fd > 0)
		err = fs_kept_open(fs, opts->kept_fd);
	if (err)
		return err; /* logged; the process will end */
	err = answer_init(fs);
	if (!err) {
		probe_backing(fs);
		err = fs_notifier_open(fs);
	}
	if (!err)
		err = start_polling(fs);
	if (err) {
		fuse_session_unmount(fs->se);
		return err;
	}
	start_guard(fs);
	start_keeping(fs);
	fs_resume(fs);
	pool_info("mounted %s (%s)", fs->mountpoint, fs_data_mode(fs));
	*ret_fs = fs;
	return 0;
}

/* ---- take-over (the records: handover.c) ---- */

void fs_pause(struct fs *fs)
{
	uv_poll_stop(&fs->poll);
	fs_stale_expire(fs, true); /* no second OPEN will be read */
	pool_busy_look_for(fs->loop, NULL, NULL);
}

void fs_resume(struct fs *fs)
{
	if (fs->unmounted || fs->adopting)
		return;
	uv_poll_start(&fs->poll, UV_READABLE, on_readable);
	pool_busy_look_for(fs->loop, poll_device, fs);
}

const char *fs_busy(struct fs *fs)
{
	static const char *const why[FS_NDEFERRED] = {
		[FS_DEFERRED_OPEN] = "an open waits for its file",
		[FS_DEFERRED_SPACE] = "a write waits for space",
		[FS_DEFERRED_FSYNCDIR] =
			"an fsync of a directory waits for the master",
		[FS_DEFERRED_LISTING] =
			"a listing walks over names that are not shown",
		[FS_DEFERRED_RETRY] =
			"a thread that got ESTALE has not repeated its open",
	};
	unsigned int i;

	for (i = 0; i < FS_NDEFERRED; i++)
		if (fs->ndeferred[i])
			return why[i];
	return fs->unmounted ? "the mount is gone" :
	       fs->adopting  ? "the mount is being adopted" : NULL;
}

void fs_leave(struct fs *fs)
{
	fs_guard_stop(fs->guard);
}

void fs_guarded(struct fs *fs)
{
	start_guard(fs);
}

/* Requests wait, for at most FS_TAKE_MS, until the names that were published
 * while no daemon was connected are known. */
static void on_taking(uv_timer_t *t)
{
	struct fs *fs = t->data;

	if (!pool_node_caught_up(fs->node) &&
	    pool_now_ms() - fs->adopt_ms < FS_TAKE_MS)
		return;
	uv_timer_stop(t);
	fs->adopting = false;
	fs_resume(fs);
	pool_info("took over %s (%s)", fs->mountpoint, fs_data_mode(fs));
}

void fs_begin(struct fs *fs)
{
	fs_inodes_settle(fs);
	if (fs->kept)
		fs_inodes_keep(fs);
	start_keeping(fs);
	fs->adopting = true;
	fs->adopt_ms = pool_now_ms();
	uv_timer_start(&fs->taking, on_taking, 0, ADOPT_POLL_MS);
}

static bool same_reply(struct fs *fs, const struct fs_init_kept *was)
{
	return fs->init_reply_len == was->reply_len &&
	       memcmp(fs->init_reply, was->reply, was->reply_len) == 0;
}

/* Feeds libfuse the INIT that the kernel sent to the first process. The reply,
 * which is not sent, must equal the one that the kernel got then. */
static int replay_init(struct fs *fs, const struct fs_init_kept *was)
{
	int err;

	if (was->req_len > sizeof(fs->init_req) ||
	    was->reply_len > sizeof(fs->init_reply))
		return -EBADMSG;
	memcpy(fs->init_req, was->req, was->req_len);
	fs->init_len = was->req_len;
	fs->init.one_by_one = fs_init_one_by_one(was->reply, was->reply_len);
	err = new_session(fs);
	if (!err)
		err = fuse_session_custom_io(fs->se, &device_io, fs->dev_fd);
	if (err)
		return err;
	fs->replaying = true;
	err = answer_init(fs);
	fs->replaying = false;
	if (err)
		return err;
	if (!same_reply(fs, was)) {
		pool_error("%s: this program needs other FUSE features than "
			   "the mount was made with%s: take over with the "
			   "same options, or restart",
			   fs->mountpoint,
			   fs->init.passthrough ? "" : " (passthrough is off)");
		return -EINVAL;
	}
	fs->passthrough = was->passthrough;
	return 0;
}

int fs_take(const struct fs_opts *opts, struct pool_handover *h,
	    struct fs **ret_fs)
{
	struct fs_init_kept was;
	struct fs *fs;
	int err = fs_new(opts, &fs);

	if (err)
		return err;
	fs->dev_fd = pool_handover_take_fd(h, POOL_HANDOVER_FD_FUSE);
	err = fs->dev_fd < 0 ? fs->dev_fd : fs_handover_init(fs, h, &was);
	if (!err)
		err = replay_init(fs, &was);
	if (!err)
		err = fs_notifier_open(fs);
	if (!err)
		err = fs_handover_read(fs, h);
	if (!err && opts->kept_fd > 0)
		err = fs_kept_open(fs, opts->kept_fd);
	if (!err)
		err = start_polling(fs);
	if (err) {
		pool_error("%s cannot be taken over: %s", opts->mountpoint,
			   strerror(-err));
		return err;
	}
	*ret_fs = fs;
	return 0;
}

/* ---- adopting the mount of a daemon that was killed ---- */

/* No request has been read so far. */
static void adopt_now(struct fs *fs)
{
	int err;

	fs->adopting = false;
	fs_ghosts_revive(fs);
	if (fs_epoch_next(fs->dev_fd) < 0) {
		/* The filter of misses is lost: any name may have a negative
		 * dentry. */
		memset(fs->misses[0], 0xff, ((size_t)1 << FS_MISS_BITS) / 8);
		pool_warn("%s: changes by other nodes while no daemon served "
			  "may show up to a minute late (Linux 6.16 avoids "
			  "this)", fs->mountpoint);
	}
	err = fs_resend(fs->dev_fd);
	if (err)
		pool_warn("%s: requests that the last daemon had read hang "
			  "until their callers are killed: %s (Linux 6.9 "
			  "avoids this)", fs->mountpoint, strerror(-err));
	start_keeping(fs);
	fs_resume(fs);
	pool_info("adopted %s (%s), incarnation %u", fs->mountpoint,
		  fs_data_mode(fs), fs->incarnation);
}

static void on_adopting(uv_timer_t *t)
{
	struct fs *fs = t->data;

	if (!pool_node_complete(fs->node) &&
	    pool_now_ms() - fs->adopt_ms < FS_ADOPT_MS)
		return;
	adopt_now(fs);
}

/* A container that is started again sees the same mount under another id. */
static void adopt_mount_id(struct fs *fs, struct fs_kept_head *h)
{
	/* (Linux before 6.8 does not report which mounts have ended.) */
	if ((fs_guard_gone(h->mount_id) || !fs_guard_gone(FS_NOT_SEEN)) &&
	    h->dev && fs_guard_dev(fs->mountpoint) == h->dev &&
	    fs_guard_mount_now(fs->mountpoint, &fs->mount_id) == 0)
		h->mount_id = fs->mount_id;
	fs->mount_id = h->mount_id;
	fs->dev = h->dev;
}

static int adopt_session(struct fs *fs)
{
	struct fs_init_kept was;
	int err = fs_kept_open(fs, fs->opts.kept_fd);

	if (err)
		return err;
	adopt_mount_id(fs, fs->kept->head);
	was = fs_kept_init(fs);
	err = replay_init(fs, &was);
	if (!err)
		probe_backing(fs);
	return err;
}

int fs_adopt(const struct fs_opts *opts, struct fs **ret_fs)
{
	struct fs *fs;
	int err = fs_new(opts, &fs);

	if (err)
		return err;
	fs->dev_fd = opts->dev_fd;
	err = adopt_session(fs);
	if (!err)
		err = fs_notifier_open(fs);
	if (!err)
		err = start_polling(fs);
	if (err) {
		pool_error("%s cannot be adopted: %s", opts->mountpoint,
			   strerror(-err));
		return err;
	}
	fs_ghosts_reopen(fs);
	if (!opts->guarded)
		guard_now(fs, fs->kept);
	fs->adopting = true;
	fs->adopt_ms = pool_now_ms();
	uv_timer_start(&fs->keeping, on_adopting, 0, ADOPT_POLL_MS);
	*ret_fs = fs;
	return 0;
}

int fs_device(const struct fs *fs)
{
	return fs->dev_fd;
}

void fs_unkept(struct fs *fs)
{
	if (fs->guard <= 0 && !fs->unmounted)
		guard_now(fs, NULL);
}

const char *fs_data_mode(const struct fs *fs)
{
	return fs->passthrough ? "passthrough" : "daemon-served";
}

/* ---- unmounting ---- */

#define DRAIN_MAX 100000 /* requests answered before unmounting */
#define NOTIFIER_POLL_MS 5
#define NOTIFIER_END_MS 2000

static void on_handle_closed(uv_handle_t *h)
{
	struct fs *fs = h->data;

	if (--fs->uv_closing == 0)
		fs->closed(fs->closed_arg);
}

/* Has the connection ended? libfuse then unmounts nothing. */
static bool device_ended(const struct fs *fs)
{
	struct pollfd p = { .fd = fs->dev_fd };

	return poll(&p, 1, 0) == 1 && p.revents & POLLERR;
}

/* Would an unmount by path remove a mount that is not ours? */
static bool covered(const struct fs *fs)
{
	uint64_t now;

	if (!fs->mount_id || device_ended(fs))
		return false;
	return fs_guard_gone(fs->mount_id) ||
	       (fs_guard_mount_now(fs->mountpoint, &now) == 0 &&
		now != fs->mount_id);
}

static void unmount(struct fs *fs, int flags)
{
	if (fs->unmounted)
		return;
	if (fs->mount_id)
		(void)fs_guard_unmount(fs->mountpoint, fs->mount_id, flags);
	else
		(void)umount2(fs->mountpoint, flags);
}

/*
 * Waits for the notifier's thread. It may be blocked on a directory's lock that
 * an unanswered request holds: answers requests meanwhile. But a process of any
 * user may hold one for as long as it likes: after a while the thread is left
 * behind. The kernel then keeps the device open for it, so the connection is
 * aborted here, before the mount is detached.
 */
static void end_notifier(struct fs *fs)
{
	struct pollfd p = { .fd = fs->dev_fd, .events = POLLIN };
	uint64_t deadline = pool_now_ms() + NOTIFIER_END_MS;
	bool ended;

	fs_notifier_stop(fs);
	while (!(ended = fs_notifier_ended(fs)) && pool_now_ms() < deadline) {
		(void)poll(&p, fs->unmounted ? 0 : 1, NOTIFIER_POLL_MS);
		if (!fs->unmounted)
			(void)handle_one(fs);
	}
	fs_notifier_close(fs);
	if (ended) {
		fs_notifier_free(fs);
		return;
	}
	pool_warn("%s: the kernel keeps a directory locked, perhaps for a "
		  "process that is stuck while listing it: until it is "
		  "unlocked, pid %d stays in the process table", fs->mountpoint,
		  (int)getpid());
	fs->notifier_lost = true;
	unmount(fs, MNT_FORCE);
}

void fs_close(struct fs *fs, void (*closed)(void *arg), void *arg)
{
	int i;

	fs->closing = true;
	fs->closed = closed;
	fs->closed_arg = arg;
	if (fs->mount_id == FS_NOT_SEEN)
		find_mount(fs);
	/* RELEASEs that are queued publish files. */
	for (i = 0; i < DRAIN_MAX && !fs->unmounted; i++)
		if (!handle_one(fs))
			break;
	/* A waiting FSYNCDIR holds its directory's lock in the kernel, and the
	 * notifier may be blocked on that. */
	pool_node_barriers_end(fs->node);
	end_notifier(fs);
	unmount(fs, MNT_DETACH);
	/* No request is read from here on. */
	fs_waiting_fini(fs);
	fs_listings_fini(fs);
	fs_guard_stop(fs->guard);
	fs_pause(fs);
	pool_node_set_ops(fs->node, NULL, NULL, "none");
	fs->uv_closing = 5;
	uv_close((uv_handle_t *)&fs->poll, on_handle_closed);
	uv_close((uv_handle_t *)&fs->waiting_timer, on_handle_closed);
	uv_close((uv_handle_t *)&fs->touch, on_handle_closed);
	uv_close((uv_handle_t *)&fs->keeping, on_handle_closed);
	uv_close((uv_handle_t *)&fs->taking, on_handle_closed);
}

void fs_free(struct fs *fs)
{
	if (!fs)
		return;
	fs->node = NULL; /* closed: node_object_unref takes NULL */
	fs_inodes_fini(fs);
	pool_slots_fini(&fs->handles);
	fs_kept_close(fs);
	/* While files are open in our mount, libfuse also unmounts by path. If
	 * that would remove another mount, or the notifier may still use the
	 * session, the session is left to the end of the process. */
	if (!fs->notifier_lost && !covered(fs)) {
		fuse_session_unmount(fs->se);
		fuse_session_destroy(fs->se);
	}
	free(fs->buf.mem);
	free(fs->mountpoint);
	/* fs itself is not freed: opts.metrics refers to its counters. */
}
