/*
 * The queue of invalidations while the kernel takes none, as an FSYNCDIR holds
 * the lock that it needs: this program is the kernel.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/fs_priv.h"

#define BOUND 16384
#define MORE 1000

static struct {
	pthread_mutex_t lock; /* protects all below */
	pthread_cond_t changed;
	bool blocked; /* the directory's lock is held */
	bool waiting; /* for that lock, a notification */
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

/* What the node is told that the kernel knows. */
static uint64_t told;

void __wrap_pool_node_told(struct pool_node *n, uint64_t mark);
void __wrap_pool_node_told(struct pool_node *n, uint64_t mark)
{
	(void)n;
	told = mark;
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
	kernel.names = kernel.attrs = 0;
	block(false);
	f->metrics = pool_metrics_open();
	assert_int_equal(0, uv_loop_init(&f->loop));
	assert_int_equal(0, pool_tree_init(&f->tree, sizeof(struct node_entry),
					   sizeof(struct node_dirent)));
	f->e = pool_tree_add(&f->tree, f->tree.root, "name", 4, false);
	((struct node_dirent *)(void *)f->tree.root)->fs = &f->fs.root;
	f->fs.root.id = FUSE_ROOT_ID;
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
	while (!fs_notifier_ended(&f->fs))
		usleep(100);
	fs_notifier_close(&f->fs);
	assert_int_equal(0, uv_run(&f->loop, UV_RUN_DEFAULT));
	assert_int_equal(0, uv_loop_close(&f->loop));
	pool_tree_fini(&f->tree, NULL, NULL);
	pool_metrics_close(f->metrics);
	if (f->fs.dev_fd >= 0)
		close(f->fs.dev_fd);
	free(f->fs.notifier); /* which its metrics were in */
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

/* One is being sent, for ever, and so many are queued behind it. */
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
	while (count_queued(f) > 0)
		usleep(100);
}

static void beyond_its_bound_the_kernel_asks_for_all_names_again(void **state)
{
	struct fixture *f = *state;

	f->fs.dev_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	notify_many(f, BOUND);
	assert_int_equal(BOUND + 1, count_queued(f));
	assert_true(shown(f, "kvpool_fuse_notifications_merged_total") == 0);
	for (int i = 0; i < MORE; i++)
		fs_notify_entry(&f->fs, f->e);
	assert_int_equal(BOUND + 1, count_queued(f));
	assert_true(shown(f, "kvpool_fuse_notifications_merged_total") == MORE);
	assert_true(shown(f, "kvpool_fuse_epochs_total") == MORE);
	assert_false(fs_notify_behind(&f->fs));
	/* Of an inode it is told at once. */
	fs_notify_attr(&f->fs, &f->fs.root);
	assert_int_equal(1, kernel.attrs);
	assert_int_equal(BOUND + 1, count_queued(f));
	drain(f);
	assert_int_equal(BOUND + 1, kernel.names);
}

static void a_kernel_without_epochs_is_told_each_and_the_feed_waits(void **state)
{
	struct fixture *f = *state;

	notify_many(f, BOUND);
	assert_false(fs_notify_behind(&f->fs)); /* nothing was too much yet */
	fs_notify_entry(&f->fs, f->e);
	assert_true(fs_notify_behind(&f->fs));
	assert_int_equal(BOUND + 2, count_queued(f));
	assert_true(shown(f, "kvpool_fuse_notifications_merged_total") == 0);
	drain(f);
	assert_false(fs_notify_behind(&f->fs));
	assert_int_equal(BOUND + 2, kernel.names);
}

/* The feed is acknowledged up to a mark when the kernel has all before it. */
static void a_mark_overtakes_nothing(void **state)
{
	struct fixture *f = *state;

	uint64_t mark = 0;

	for (unsigned int turn = 0; turn < 20; turn++) {
		do { /* until nothing is before it: the notifier is idle */
			told = 0;
			fs_notify_mark(&f->fs, ++mark);
			if (told == mark)
				break;
			while (told != mark)
				uv_run(&f->loop, UV_RUN_ONCE);
		} while (true);
		block(true);
		fs_notify_entry(&f->fs, f->e);
		fs_notify_mark(&f->fs, ++mark);
		assert_int_not_equal(mark, told);
		wait_blocked();
		fs_notify_mark(&f->fs, ++mark);
		uv_run(&f->loop, UV_RUN_NOWAIT);
		assert_true(told < mark - 1);
		block(false);
		while (told != mark)
			uv_run(&f->loop, UV_RUN_ONCE);
		assert_int_equal(turn + 1, kernel.names);
	}
}

int main(void)
{
#define notify_test(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
	const struct CMUnitTest tests[] = {
		notify_test(beyond_its_bound_the_kernel_asks_for_all_names_again),
		notify_test(a_kernel_without_epochs_is_told_each_and_the_feed_waits),
		notify_test(a_mark_overtakes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
