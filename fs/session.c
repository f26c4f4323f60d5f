/* Mounting, the request loop, INIT, unmounting. See fs/session.h. */
#include "fs/priv.h"
#include "fs/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* ---- the device ---- */

static ssize_t dev_read(int fd, void *buf, size_t len, void *userdata)
{
	struct fs *fs = userdata;
	ssize_t n = read(fd, buf, len);

	if (n > 0 && !fs->initialised)
		fs_init_request(&fs->init, buf, (size_t)n);
	return n;
}

static ssize_t dev_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct fs *fs = userdata;

	if (fs->init.unique)
		fs_init_reply(&fs->init, iov, count);
	return writev(fd, iov, count);
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
	/* Never the writeback cache: data would arrive after a rename. */
	conn->want &= ~(unsigned)(FUSE_CAP_WRITEBACK_CACHE |
				  FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
				  FUSE_CAP_SPLICE_MOVE |
				  FUSE_CAP_AUTO_INVAL_DATA);
	conn->want |= conn->capable &
		      (FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_PARALLEL_DIROPS |
		       FUSE_CAP_ASYNC_DIO | FUSE_CAP_READDIRPLUS |
		       FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_ASYNC_READ);
	conn->max_background = 512;
	conn->congestion_threshold = 384;
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

	for (i = 0; !err && i < OP_COUNT; i++)
		err = pool_metrics_counter(m, &fs->requests[i],
					   "kvpool_fuse_requests_total",
					   op_labels[i],
					   "Requests from the kernel");
	if (!err)
		err = pool_metrics_counter(m, &fs->stale_opens,
			"kvpool_fuse_stale_opens_total", NULL,
			"Opens sent back because the name shows another file");
	if (!err)
		err = pool_metrics_counter(m, &fs->interrupts,
			"kvpool_fuse_interrupts_total", NULL,
			"Requests that were interrupted while waiting");
	if (!err)
		err = pool_metrics_counter(m, &fs->write_waits,
			"kvpool_fuse_write_waits_total", NULL,
			"Writes that waited for space");
	if (!err)
		err = pool_metrics_gauge(m, &fs->ninodes, "kvpool_fuse_inodes",
					 NULL, "Files the kernel knows");
	if (!err)
		err = pool_metrics_gauge(m, &fs->gbackings,
					 "kvpool_fuse_backings", NULL,
					 "Files registered for passthrough");
	if (!err)
		err = pool_metrics_gauge(m, &fs->nopen,
					 "kvpool_fuse_open_files", NULL,
					 "Open handles");
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
	uv_poll_stop(&fs->poll);
	if (!fs->closing)
		fs->opts.gone(fs->opts.arg);
}

/* One request; false if there is none. */
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
	fuse_session_process_buf(fs->se, &fs->buf);
	return true;
}

static void on_readable(uv_poll_t *p, int status, int events)
{
	struct fs *fs = p->data;
	uint64_t until = 0;
	int i = 0;

	(void)status;
	(void)events;
	if (fs->opts.busy_poll_us)
		until = pool_now_us() + fs->opts.busy_poll_us;
	while (!fs->unmounted && i < FS_TURN_MAX) {
		if (handle_one(fs)) {
			i++;
			if (until)
				until = pool_now_us() + fs->opts.busy_poll_us;
		} else if (!until || pool_now_us() >= until) {
			break;
		}
	}
}

static void on_retry(uv_timer_t *t)
{
	fs_waiting_run(t->data);
}

void fs_waiting_schedule(struct fs *fs)
{
	if (!uv_is_active((uv_handle_t *)&fs->retry))
		uv_timer_start(&fs->retry, on_retry, FS_RETRY_MS, FS_RETRY_MS);
}

/* ---- mounting ---- */

/* A mount whose daemon was killed answers ENOTCONN: take it away. (stat would
 * not do: the kernel may still remember the root's attributes.) */
static int prepare_mountpoint(const char *dir)
{
	struct statfs sf;
	struct stat st;

	while (statfs(dir, &sf) < 0 && errno == ENOTCONN) {
		pool_warn("%s: a mount without its daemon was left here: "
			  "removed", dir);
		if (umount2(dir, MNT_DETACH) < 0) {
			pool_error("%s: cannot remove the stale mount: %s - "
				   "run umount -l %s", dir, strerror(errno),
				   dir);
			return -errno;
		}
	}
	if (mkdir(dir, 0755) < 0 && errno != EEXIST) {
		pool_error("%s: cannot make the mount point: %s", dir,
			   strerror(errno));
		return -errno;
	}
	if (stat(dir, &st) < 0 || !S_ISDIR(st.st_mode)) {
		pool_error("%s: not a directory that can be mounted on", dir);
		return -ENOTDIR;
	}
	return 0;
}

static int mount_session(struct fs *fs)
{
	char opts[160];
	const char *const argv[] = { "kvpool", "-o", opts };
	struct fuse_args args = FUSE_ARGS_INIT(3, (char **)(uintptr_t)argv);
	int err;

	snprintf(opts, sizeof(opts),
		 "allow_other,default_permissions,nosuid,nodev%s%s,"
		 "fsname=kvpool,subtype=kvpool",
		 fs->opts.noexec ? ",noexec" : "",
		 fs->opts.noatime ? ",noatime" : "");
	if (access("/dev/fuse", R_OK | W_OK) < 0) {
		err = -errno;
		pool_error("/dev/fuse: %s - run as root or install fuse3 (in a "
			   "container, pass the device in)", strerror(errno));
		return err;
	}
	fs->se = fuse_session_new(&args, &ops, sizeof(ops), fs);
	fuse_opt_free_args(&args);
	if (!fs->se)
		return -ENOMEM;
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

/* The INIT request is waiting already: answer it, so that the data mode is
 * known when fs_open returns. */
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
		return 0;
	}
	pool_error("%s: the kernel did not greet the FUSE session",
		   fs->mountpoint);
	return -EIO;
}

/* Does the kernel let us register a backing file? (It wants CAP_SYS_ADMIN and
 * a filesystem that is no stack itself.) */
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
		fs_backing_close(fs->dev_fd, id);
	} else {
		pool_warn("passthrough is not possible (%s): daemon-served",
			  strerror(-id));
		fs->passthrough = false;
	}
	close(f.fd);
	pool_store_remove(pool_node_store(fs->node), f.id);
}

int fs_open(const struct fs_opts *opts, struct fs **ret_fs)
{
	struct fs *fs = calloc(1, sizeof(*fs));
	int err;

	if (!fs)
		return -ENOMEM;
	fs->opts = *opts;
	fs->loop = opts->loop;
	fs->node = opts->node;
	fs->tree = pool_node_tree(opts->node);
	fs->mountpoint = strdup(opts->mountpoint);
	fs->init.want_passthrough = opts->passthrough;
	pool_list_init(&fs->inodes);
	pool_list_init(&fs->backings);
	pool_list_init(&fs->dirs);
	pool_list_init(&fs->waiting);
	pool_list_init(&fs->root.lru);
	pool_list_init(&fs->root.link);
	fs->root.kind = FS_DIR;
	fs->root.ino = 1;
	fs->root.nlookup = 1;
	fs->root.dir = pool_node_root(fs->node);
	fs->root.dir->fs = &fs->root;
	err = fs->mountpoint ? prepare_mountpoint(fs->mountpoint) : -ENOMEM;
	if (!err)
		err = register_metrics(fs);
	if (!err)
		err = mount_session(fs);
	if (err)
		return err; /* the process ends with what was logged */
	err = answer_init(fs);
	if (!err) {
		probe_backing(fs);
		err = fs_notifier_open(fs);
	}
	if (err) {
		fuse_session_unmount(fs->se);
		return err;
	}
	uv_poll_init(fs->loop, &fs->poll, fs->dev_fd);
	uv_timer_init(fs->loop, &fs->retry);
	fs->poll.data = fs->retry.data = fs;
	uv_poll_start(&fs->poll, UV_READABLE, on_readable);
	fs->guard = fs_guard_start(fs->mountpoint);
	if (fs->guard < 0)
		pool_warn("%s: nobody will end this mount if the daemon is "
			  "killed: %s", fs->mountpoint, strerror(-fs->guard));
	pool_node_set_ops(fs->node, &fs_node_ops, fs, fs_data_mode(fs));
	pool_info("mounted %s (%s)", fs->mountpoint, fs_data_mode(fs));
	*ret_fs = fs;
	return 0;
}

const char *fs_data_mode(const struct fs *fs)
{
	return fs->passthrough ? "passthrough" : "daemon-served";
}

/* ---- unmounting ---- */

#define DRAIN_MAX 100000 /* requests */

static void on_handle_closed(uv_handle_t *h)
{
	struct fs *fs = h->data;

	if (--fs->handles == 0)
		fs->closed(fs->closed_arg);
}

void fs_close(struct fs *fs, void (*closed)(void *arg), void *arg)
{
	int i;

	fs->closing = true;
	fs->closed = closed;
	fs->closed_arg = arg;
	/* Files closed just now are to be published: hear of it. */
	for (i = 0; i < DRAIN_MAX && !fs->unmounted; i++)
		if (!handle_one(fs))
			break;
	fs_waiting_fini(fs);
	/* One that waits holds its directory's lock in the kernel, and the
	 * notifier may be waiting for that. */
	pool_node_barriers_end(fs->node);
	fs_dirs_gone(fs, NULL);
	if (!fs->unmounted)
		(void)umount2(fs->mountpoint, MNT_DETACH);
	fs_notifier_close(fs);
	fs_guard_stop(fs->guard);
	uv_poll_stop(&fs->poll);
	pool_node_set_ops(fs->node, NULL, NULL, "none");
	fs->handles = 2;
	uv_close((uv_handle_t *)&fs->poll, on_handle_closed);
	uv_close((uv_handle_t *)&fs->retry, on_handle_closed);
}

void fs_free(struct fs *fs)
{
	if (!fs)
		return;
	fs_inodes_fini(fs);
	fuse_session_unmount(fs->se);
	fuse_session_destroy(fs->se);
	free(fs->buf.mem);
	free(fs->mountpoint);
	/* fs itself stays: its counters are in the registry. */
}
