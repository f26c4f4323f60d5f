/*
 * The queue of invalidations while the kernel takes none because a user holds
 * the lock that it needs. This program plays the kernel.
 */
#include "tests/lib/unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/fs_priv.h"
#include "pool/node/node_priv.h" /* the sizes of names */

#define BOUND 16384
#define MORE 1000

static struct {
	pthread_mutex_t lock; /* protects all below */
	pthread_cond_t changed;
	bool blocked; /* the directory's lock is held */
	bool waiting; /* a notification waits for that lock */
	pid_t waits;  /* the notifier's thread, which sends it */
	unsigned int names, attrs;
} kernel = { .lock = PTHREAD_MUTEX_INITIALIZER,
	     .changed = PTHREAD_COND_INITIALIZER };

int fuse_lowlevel_notify_inval_entry(struct fuse_session *se,
				     fuse_ino_t parent, const char *name,
				     size_t namelen)
{
	(void)se;
	(void)parent;
	(void)name;
	(void)namelen;
	pthread_mutex_lock(&kernel.lock);
	while (kernel.blocked) {
		kernel.waiting = true;
		kernel.waits = gettid();
		pthread_cond_broadcast(&kernel.changed);
		pthread_cond_wait(&kernel.changed, &kernel.lock);
	}
	kernel.names++;
	pthread_mutex_unlock(&kernel.lock);
	return 0;
}

int fuse_lowlevel_notify_inval_inode(struct fuse_session *se, fuse_ino_t ino,
				     off_t off, off_t len)
{
	(void)se;
	(void)ino;
	(void)off;
	(void)len;
	pthread_mutex_lock(&kernel.lock);
	kernel.attrs++;
	pthread_mutex_unlock(&kernel.lock);
	return 0;
}

static void block(bool on)
{
	pthread_mutex_lock(&kernel.lock);
	kernel.blocked = on;
	kernel.waiting = false;
	pthread_cond_broadcast(&kernel.changed);
	pthread_mutex_unlock(&kernel.lock);
}

static void wait_blocked(void)
{
	pthread_mutex_lock(&kernel.lock);
	while (!kernel.waiting)
		pthread_cond_wait(&kernel.changed, &kernel.lock);
	pthread_mutex_unlock(&kernel.lock);
}

/* The last mark acknowledged to the node (pool_node_notified). */
static uint64_t acked;

void __wrap_pool_node_notified(struct pool_node *n, uint64_t mark);
void __wrap_pool_node_notified(struct pool_node *n, uint64_t mark)
{
	(void)n;
	acked = mark;
}

/* ---- the mount ---- */

struct fixture {
	struct fs fs;
	uv_loop_t loop;
	struct pool_tree tree;
	struct pool_entry *e;
	struct pool_metrics *metrics;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	alarm(30);
	acked = 0;
	kernel.names = kernel.attrs = 0;
	block(false);
	f->metrics = pool_metrics_open();
	assert_int_equal(0, uv_loop_init(&f->loop));
	assert_int_equal(0, pool_tree_init(&f->tree, sizeof(struct node_entry),
					   sizeof(struct node_dirent)));
	f->e = pool_tree_add(&f->tree, f->tree.root, "name", 4, false);
	pool_node_set_inode(&f->tree.root->e, &f->fs.root);
	f->fs.root.low_id = FUSE_ROOT_ID;
	f->fs.loop = &f->loop;
	f->fs.opts.metrics = f->metrics;
	f->fs.dev_fd = -1; /* EBADF: no epochs */
	assert_int_equal(0, fs_notifier_open(&f->fs));
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	block(false);
	fs_notifier_stop(&f->fs);
	unit_poll_until(fs_notifier_ended(&f->fs));
	fs_notifier_close(&f->fs);
	fs_notifier_free(&f->fs);
	assert_int_equal(0, uv_run(&f->loop, UV_RUN_DEFAULT));
	assert_int_equal(0, uv_loop_close(&f->loop));
	pool_tree_fini(&f->tree, NULL, NULL);
	pool_metrics_close(f->metrics);
	if (f->fs.dev_fd >= 0)
		close(f->fs.dev_fd);
	free(f->fs.notifier); /* whose metrics the registry borrowed */
	free(f);
	alarm(0);
	return 0;
}

static double shown(struct fixture *f, const char *name)
{
	char *text, *at;
	size_t len;
	double v;

	assert_int_equal(0, pool_metrics_print(f->metrics, &text, &len));
	at = strstr(text, name); /* HELP, then TYPE, then the value */
	at = at ? strstr(at + 1, name) : NULL;
	at = at ? strstr(at + 1, name) : NULL;
	assert_non_null(at);
	v = atof(at + strlen(name));
	free(text);
	return v;
}

static void count_note(void *arg, uint64_t nodeid, const char *name,
		       size_t name_len)
{
	(void)nodeid;
	(void)name;
	(void)name_len;
	++*(unsigned int *)arg;
}

static unsigned int count_queued(struct fixture *f)
{
	unsigned int n = 0;

	fs_notify_each(&f->fs, count_note, &n);
	return n;
}

/* One notification is blocked in the kernel, and n are queued behind it. */
static void notify_many(struct fixture *f, unsigned int n)
{
	block(true);
	fs_notify_entry(&f->fs, f->e);
	wait_blocked();
	while (n--)
		fs_notify_entry(&f->fs, f->e);
}

static void drain(struct fixture *f)
{
	block(false);
	unit_poll_until(count_queued(f) == 0);
}

static void has_epochs(struct fixture *f)
{
	f->fs.dev_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	assert_true(f->fs.dev_fd >= 0);
}

static void beyond_its_bound_the_kernel_asks_for_all_names_again(void **state)
{
	struct fixture *f = *state;

	has_epochs(f);
	notify_many(f, BOUND);
	assert_int_equal(BOUND + 1, count_queued(f));
	assert_true(shown(f, "kvpool_fuse_notifications_merged_total") == 0);
	/* Changes of an inode are sent at once: they need no directory's
	 * lock. */
	fs_notify_attr(&f->fs, &f->fs.root);
	assert_int_equal(1, kernel.attrs);
	assert_int_equal(BOUND + 1, count_queued(f));
	for (int i = 0; i < MORE; i++)
		fs_notify_entry(&f->fs, f->e);
	/* One epoch replaces all that were queued and the one in flight. */
	assert_int_equal(MORE, count_queued(f));
	assert_true(shown(f, "kvpool_fuse_epochs_total") == 1);
	assert_true(shown(f, "kvpool_fuse_notifications_merged_total") ==
		    BOUND + 1);
	assert_false(fs_notify_behind(&f->fs));
	drain(f);
	assert_int_equal(MORE, kernel.names);
}

static void until_acked(struct fixture *f, uint64_t mark)
{
	fs_notify_mark(&f->fs, mark);
	unit_run_until(&f->loop, acked == mark);
}

/* A user may hold the lock of a directory for any time. */
static void what_waits_behind_a_slow_one_is_covered_by_an_epoch(void **state)
{
	struct fixture *f = *state;

	has_epochs(f);
	notify_many(f, 3);
	fs_notify_attr(&f->fs, &f->fs.root);
	until_acked(f, 1);
	assert_int_equal(1, count_queued(f)); /* is being sent */
	assert_int_equal(0, kernel.names);
	assert_int_equal(1, kernel.attrs);
	assert_true(shown(f, "kvpool_fuse_epochs_total") == 1);
	assert_true(shown(f, "kvpool_fuse_notifications_merged_total") == 3);
	assert_true(shown(f, "kvpool_fuse_notifications_slow_total") == 1);
}

static void while_one_is_slow_there_is_an_epoch_a_turn(void **state)
{
	struct fixture *f = *state;

	has_epochs(f);
	notify_many(f, 0);
	until_acked(f, 1);
	for (int i = 0; i < 5; i++) {
		fs_notify_entry(&f->fs, f->e);
		fs_notify_mark(&f->fs, 2);
	}
	until_acked(f, 3);
	assert_true(shown(f, "kvpool_fuse_epochs_total") == 2);
	/* The epoch is sent in the next turn, not at the next tick. */
	fs_notify_entry(&f->fs, f->e);
	fs_notify_mark(&f->fs, 4);
	for (int i = 0; i < 2; i++)
		uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_int_equal(4, acked);
	assert_true(shown(f, "kvpool_fuse_epochs_total") == 3);
	until_acked(f, 5); /* nothing was queued before it */
	assert_true(shown(f, "kvpool_fuse_epochs_total") == 3);
	assert_true(shown(f, "kvpool_fuse_notifications_slow_total") == 1);
}

static void after_a_slow_one_each_is_sent_again(void **state)
{
	struct fixture *f = *state;

	has_epochs(f);
	notify_many(f, 1);
	until_acked(f, 1);
	drain(f);
	assert_int_equal(1, kernel.names);
	fs_notify_entry(&f->fs, f->e);
	until_acked(f, 2);
	assert_int_equal(2, kernel.names);
	assert_true(shown(f, "kvpool_fuse_epochs_total") == 1);
}

static void a_kernel_without_epochs_waits_for_the_slow_one(void **state)
{
	struct fixture *f = *state;

	notify_many(f, 3);
	fs_notify_mark(&f->fs, 1);
	unit_run_until(&f->loop,
		       shown(f, "kvpool_fuse_notifications_slow_total") != 0);
	fs_notify_entry(&f->fs, f->e);
	uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_int_equal(0, acked);
	assert_int_equal(5, count_queued(f));
	block(false);
	unit_run_until(&f->loop, acked == 1);
	assert_true(kernel.names >= 4);
	assert_true(shown(f, "kvpool_fuse_epochs_total") == 0);
}

/* The thread may be blocked when the process is killed. Then its descriptors
 * stay open: a port or a lock among them would block a new daemon. */
static void the_thread_keeps_no_descriptor_that_it_does_not_need(void **state)
{
	struct fixture *f = *state;
	unsigned int open_now = 0;
	char path[64], link[64];
	struct dirent *d;
	ssize_t len;
	DIR *dir;

	notify_many(f, 0);
	snprintf(path, sizeof(path), "/proc/self/task/%d/fd",
		 (int)kernel.waits);
	dir = opendir(path);
	assert_non_null(dir);
	while ((d = readdir(dir))) {
		len = readlinkat(dirfd(dir), d->d_name, link, sizeof(link) - 1);
		if (len < 0)
			continue; /* "." and ".." */
		link[len] = '\0';
		assert_non_null(strstr(link, "eventfd"));
		open_now++;
	}
	closedir(dir);
	assert_int_equal(1, open_now);
}

static void without_epochs_each_is_sent_and_the_feed_waits(void **state)
{
	struct fixture *f = *state;

	notify_many(f, BOUND);
	assert_false(fs_notify_behind(&f->fs)); /* the bound is not exceeded yet
						   */
	fs_notify_entry(&f->fs, f->e);
	assert_true(fs_notify_behind(&f->fs));
	assert_int_equal(BOUND + 2, count_queued(f));
	assert_true(shown(f, "kvpool_fuse_notifications_merged_total") == 0);
	drain(f);
	assert_false(fs_notify_behind(&f->fs));
	assert_int_equal(BOUND + 2, kernel.names);
}

/* The feed is acked up to a mark only when the kernel has all notifications
 * before it. */
static void a_mark_overtakes_nothing(void **state)
{
	struct fixture *f = *state;

	uint64_t mark = 0;

	for (unsigned int turn = 0; turn < 20; turn++) {
		do { /* until the notifier is idle */
			acked = 0;
			fs_notify_mark(&f->fs, ++mark);
			if (acked == mark)
				break;
			unit_run_until(&f->loop, acked == mark);
		} while (true);
		block(true);
		fs_notify_entry(&f->fs, f->e);
		fs_notify_mark(&f->fs, ++mark);
		assert_int_not_equal(mark, acked);
		wait_blocked();
		fs_notify_mark(&f->fs, ++mark);
		uv_run(&f->loop, UV_RUN_NOWAIT);
		assert_true(acked < mark - 1);
		block(false);
		unit_run_until(&f->loop, acked == mark);
		assert_int_equal(turn + 1, kernel.names);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(beyond_its_bound_the_kernel_asks_for_all_names_again),
		T(without_epochs_each_is_sent_and_the_feed_waits),
		T(a_mark_overtakes_nothing),
		T(what_waits_behind_a_slow_one_is_covered_by_an_epoch),
		T(while_one_is_slow_there_is_an_epoch_a_turn),
		T(after_a_slow_one_each_is_sent_again),
		T(a_kernel_without_epochs_waits_for_the_slow_one),
		T(the_thread_keeps_no_descriptor_that_it_does_not_need),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
