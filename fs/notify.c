/*
 * Notifications to the kernel (invalidations of dentries and inodes), sent by a
 * thread of their own: to invalidate a dentry the kernel takes the directory's
 * lock, which a request that the loop has not answered yet may hold.
 *
 * Order: notifications are sent as they were queued, and the loop writes a
 * reply before it queues anything later. A negative LOOKUP reply therefore
 * never overtakes the invalidation that corrects it.
 *
 * Bound: an FSYNCDIR holds its directory's lock, and so blocks the thread, for
 * seconds. Any user may hold such a lock for ever, by listing the directory
 * into memory whose pages are never supplied. So when the kernel does
 * not take an invalidation for NOTE_SLOW_MS, or the queue is full (NOTES_MAX),
 * the loop expires all dentries instead, by incrementing the kernel's epoch,
 * which takes no lock (cover). This empties the queue: invalidations of
 * dentries are not needed any more, the loop itself sends those of inodes,
 * which take no directory's lock either, and all marks count as reached. While
 * the thread stays blocked, the loop repeats this in each turn in which
 * something is queued: at most one epoch per turn.
 *
 * A kernel without epochs (before Linux 6.16) needs every notification: all
 * later ones wait for the one that is blocked, the queue grows beyond the
 * bound, and the feed waits (fs_notify_behind).
 *
 * Thread: loop, but for notifier_main and what it calls.
 */
#include "fs/fs_priv.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <xxhash.h>

/* One notification, or a mark. */
struct note {
	struct note *next;
	fuse_ino_t ino; /* name_len > 0: the directory's nodeid, else that of
			   the inode itself; 0: a mark, reached when all notes
			   before it have been sent */
	uint64_t mark;	/* ino == 0: its number */
	size_t name_len;
	bool spare; /* returns to `spares` instead of being freed */
	char name[]; /* NUL-terminated, too */
};

/* Notes allocated in advance, used on ENOMEM: a lost notification leaves a
 * stale dentry in the kernel for up to FS_TIMEOUT_LONG. */
#define SPARES 64
#define NOTES_MAX 16384 /* bound of the queue */
#define NOTE_SLOW_MS 200 /* an invalidation that the kernel has not taken at two
			    ticks of the timer is slow */

struct fs_notifier {
	struct fs *fs;
	pthread_t thread;
	pthread_mutex_t lock; /* protects what follows, except as noted */
	pthread_cond_t wake; /* the queue or `stop` changed */
	struct note *head, **tail; /* the queue; owns */
	size_t nqueued; /* length of the queue, marks included */
	size_t nnames; /* dentries in the queue */
	uint64_t ntaken; /* notes that the thread has taken off the queue */
	struct note *spares; /* owns; room for POOL_NAME_MAX each */
	struct note *sending; /* owned by the thread; NULL: none */
	bool stop;
	bool idle;	   /* nothing queued, nothing being sent */
	bool no_epochs;	   /* the kernel has none; loop only */
	uint64_t sent_mark; /* the last mark that was reached */
	int mark_fd;	    /* eventfd: wakes the loop to read sent_mark */
	uv_poll_t mark_poll; /* of mark_fd */
	/* Loop only. seen, slow and covered are values of ntaken. */
	uv_timer_t tick; /* runs while the notifier is not idle */
	uint64_t seen;	  /* at the last tick */
	uint64_t slow;	  /* of a slow invalidation; 0: none */
	uint64_t covered; /* when the last epoch began */
	struct pool_counter sent, queued, epochs, merged, nslow; /* atomic */
};

/* ---- notes ---- */

static void note_give_locked(struct fs_notifier *nt, struct note *n)
{
	if (!n->spare) {
		free(n);
		return;
	}
	n->next = nt->spares;
	nt->spares = n;
}

static int spares_make(struct fs_notifier *nt)
{
	struct note *n;
	int i;

	for (i = 0; i < SPARES; i++) {
		n = malloc(sizeof(*n) + POOL_NAME_MAX + 1);
		if (!n)
			return -ENOMEM;
		n->spare = true;
		note_give_locked(nt, n);
	}
	return 0;
}

static struct note *note_take(struct fs_notifier *nt, size_t len)
{
	struct note *n = malloc(sizeof(*n) + len + 1);

	if (n) {
		n->spare = false;
		return n;
	}
	pthread_mutex_lock(&nt->lock);
	n = nt->spares;
	if (n)
		nt->spares = n->next;
	pthread_mutex_unlock(&nt->lock);
	return n;
}

static void notes_free(struct note *n)
{
	struct note *next;

	for (; n; n = next) {
		next = n->next;
		free(n);
	}
}

/* ---- the thread ---- */

/* Any thread. The loop may report a later mark before the notifier's thread
 * reports this one. */
static void report_mark(struct fs_notifier *nt, uint64_t mark)
{
	pthread_mutex_lock(&nt->lock);
	if (nt->sent_mark < mark)
		nt->sent_mark = mark;
	pthread_mutex_unlock(&nt->lock);
	(void)eventfd_write(nt->mark_fd, 1);
}

static void send_note(struct fs *fs, const struct note *n)
{
	if (n->ino == 0)
		report_mark(fs->notifier, n->mark);
	else if (n->name_len)
		(void)fuse_lowlevel_notify_inval_entry(fs->se, n->ino, n->name,
						       n->name_len);
	else
		(void)fuse_lowlevel_notify_inval_inode(fs->se, n->ino, -1, 0);
}

/* Takes the next note off the queue, into nt->sending: fs_notify_each still
 * finds it there until it has been sent. Under the lock. */
static struct note *take_note(struct fs_notifier *nt)
{
	struct note *n = nt->head;

	nt->sending = n;
	nt->idle = !n;
	if (!n)
		return NULL;
	nt->head = n->next;
	nt->nqueued--;
	nt->nnames -= n->name_len > 0;
	nt->ntaken++;
	if (!nt->head)
		nt->tail = &nt->head;
	return n;
}

/*
 * Gives the thread a table of its own with the descriptors that it needs. A
 * process that is killed, or ends, keeps its descriptors until all threads that
 * share its table have ended, but this one may be blocked: ports and locks
 * would not be free for the next daemon.
 */
static void own_descriptors(const struct fs_notifier *nt)
{
	int dev = nt->fs->dev_fd, mark = nt->mark_fd;
	unsigned int low = (unsigned int)(dev >= 0 && dev < mark ? dev : mark);
	unsigned int high = (unsigned int)(dev > mark ? dev : mark);

	if (unshare(CLONE_FILES) < 0)
		return; /* it shares them */
	if (low > 0)
		(void)close_range(0, low - 1, 0);
	if (high > low + 1)
		(void)close_range(low + 1, high - 1, 0);
	(void)close_range(high + 1, UINT_MAX, 0);
}

static void *notifier_main(void *arg)
{
	struct fs_notifier *nt = arg;
	struct note *n;

	own_descriptors(nt);
	pthread_mutex_lock(&nt->lock);
	while (!nt->stop) {
		n = take_note(nt);
		if (!n) {
			pthread_cond_wait(&nt->wake, &nt->lock);
			continue;
		}
		pthread_mutex_unlock(&nt->lock);
		send_note(nt->fs, n);
		pool_count(&nt->sent);
		pthread_mutex_lock(&nt->lock);
		nt->sending = NULL;
		note_give_locked(nt, n);
	}
	pthread_mutex_unlock(&nt->lock);
	return NULL;
}

/* ---- the loop ---- */

/* Does the thread send an invalidation of a dentry now? Under the lock. */
static bool sends_name(const struct fs_notifier *nt)
{
	return nt->sending && nt->sending->name_len > 0;
}

/* Empties the queue, after an epoch began: see cover. */
static void drain_queue(struct fs *fs)
{
	struct fs_notifier *nt = fs->notifier;
	struct note *all, *n, *next;

	pthread_mutex_lock(&nt->lock);
	all = nt->head;
	nt->head = NULL;
	nt->tail = &nt->head;
	nt->nqueued = nt->nnames = 0;
	nt->covered = nt->ntaken;
	pthread_mutex_unlock(&nt->lock);
	for (n = all; n; n = n->next) {
		if (n->name_len)
			pool_count(&nt->merged);
		else
			send_note(fs, n);
	}
	pthread_mutex_lock(&nt->lock);
	for (n = all; n; n = next) {
		next = n->next;
		note_give_locked(nt, n);
	}
	pthread_mutex_unlock(&nt->lock);
}

/*
 * Does the thread's work instead: expires all dentries if `also`, or if an
 * invalidation of a dentry is queued or being sent that no epoch covers yet;
 * then empties the queue. False: the kernel has no epochs, nothing was done.
 */
static bool cover(struct fs *fs, bool also)
{
	struct fs_notifier *nt = fs->notifier;

	pthread_mutex_lock(&nt->lock);
	also = also || nt->nnames > 0 ||
	       (sends_name(nt) && nt->covered != nt->ntaken);
	pthread_mutex_unlock(&nt->lock);
	if (also) {
		nt->no_epochs = fs_epoch_next(fs->dev_fd) < 0;
		if (nt->no_epochs)
			return false;
		pool_count(&nt->epochs);
	}
	drain_queue(fs);
	return true;
}

/* The holder of the lock is unknown: the message names the usual cause of such
 * a long hold. */
static void warn_slow(struct fs *fs, fuse_ino_t dir, bool covered)
{
	const struct fs_inode *i = fs_inode_find(fs, dir);
	struct node_dirent *d = i ? fs_inode_dir(i) : NULL;
	char path[POOL_PATH_MAX + 1];

	if (!d || pool_tree_path(&node_dir_tree(d)->e, path, sizeof(path)) < 0)
		strcpy(path, "?");
	pool_warn_limited("%s/%s: the kernel has this directory locked for "
			  "longer than %d ms, perhaps for a process that is "
			  "stuck while listing it: %s",
			  fs->mountpoint ? fs->mountpoint : "", path,
			  NOTE_SLOW_MS, covered ?
			  "until it is unlocked, each name is looked up again" :
			  "until it is unlocked, changes by other nodes show "
			  "up to a minute late (Linux 6.16 avoids this)");
}

/* An invalidation that is being sent at two ticks in a row is slow, until the
 * kernel has taken it. */
static void on_tick(uv_timer_t *t)
{
	struct fs *fs = ((struct fs_notifier *)t->data)->fs;
	struct fs_notifier *nt = fs->notifier;
	uint64_t taken;
	bool idle, slow, covered;
	fuse_ino_t dir;

	pthread_mutex_lock(&nt->lock);
	idle = nt->idle;
	taken = nt->ntaken;
	slow = sends_name(nt) && nt->seen == taken;
	dir = slow ? nt->sending->ino : 0;
	pthread_mutex_unlock(&nt->lock);
	nt->seen = taken;
	if (idle)
		uv_timer_stop(t);
	if (!slow)
		return;
	covered = cover(fs, false);
	if (nt->slow != taken) {
		pool_count(&nt->nslow);
		warn_slow(fs, dir, covered);
	}
	nt->slow = taken;
}

/* Something was queued; slow: behind a slow invalidation. */
static void start_tick(struct fs_notifier *nt, bool slow)
{
	if (slow && !nt->no_epochs)
		uv_timer_start(&nt->tick, on_tick, 0, NOTE_SLOW_MS);
	else if (!uv_is_active((uv_handle_t *)&nt->tick))
		uv_timer_start(&nt->tick, on_tick, NOTE_SLOW_MS, NOTE_SLOW_MS);
}

static void queue_note(struct fs *fs, fuse_ino_t ino, const char *name,
		       size_t len, uint64_t mark)
{
	struct fs_notifier *nt = fs->notifier;
	struct note *n = note_take(nt, len);
	bool slow;

	if (!n) {
		pool_error("out of memory: a notification to the kernel is "
			   "lost, a change may show up to a minute late");
		return;
	}
	n->next = NULL;
	n->ino = ino;
	n->mark = mark;
	n->name_len = len;
	if (len)
		memcpy(n->name, name, len);
	n->name[len] = '\0';
	pool_count(&nt->queued);
	pthread_mutex_lock(&nt->lock);
	nt->idle = false;
	*nt->tail = n;
	nt->tail = &n->next;
	nt->nqueued++;
	nt->nnames += len > 0;
	slow = sends_name(nt) && nt->slow == nt->ntaken;
	pthread_cond_signal(&nt->wake);
	pthread_mutex_unlock(&nt->lock);
	start_tick(nt, slow);
}

static bool is_full(struct fs_notifier *nt)
{
	bool full;

	pthread_mutex_lock(&nt->lock);
	full = nt->nqueued >= NOTES_MAX;
	pthread_mutex_unlock(&nt->lock);
	return full;
}

bool fs_notify_behind(struct fs *fs)
{
	return fs->notifier->no_epochs && is_full(fs->notifier);
}

void fs_notify_entry(struct fs *fs, struct pool_entry *e)
{
	const struct fs_inode *dir =
		e->parent ? pool_node_inode(&e->parent->e) : NULL;

	if (!dir)
		return; /* the kernel does not know the directory */
	if (is_full(fs->notifier) && cover(fs, true))
		pool_count(&fs->notifier->merged);
	else
		queue_note(fs, fs_inode_id(dir), pool_entry_name(e),
			   e->name_len, 0);
}

void fs_notify_attr(struct fs *fs, struct fs_inode *i)
{
	if (is_full(fs->notifier)) /* no lock is needed: send it here */
		return fs_notify_attr_now(fs, i);
	queue_note(fs, fs_inode_id(i), NULL, 0, 0);
}

void fs_notify_queue(struct fs *fs, uint64_t nodeid, const char *name,
		     size_t name_len)
{
	queue_note(fs, nodeid, name, name_len, 0);
}

void fs_notify_each(struct fs *fs,
		    void (*cb)(void *arg, uint64_t nodeid, const char *name,
			       size_t name_len), void *arg)
{
	struct fs_notifier *nt = fs->notifier;
	const struct note *n;

	pthread_mutex_lock(&nt->lock);
	if (nt->sending && nt->sending->ino)
		cb(arg, nt->sending->ino, nt->sending->name,
		   nt->sending->name_len);
	for (n = nt->head; n; n = n->next)
		if (n->ino)
			cb(arg, n->ino, n->name, n->name_len);
	pthread_mutex_unlock(&nt->lock);
}

void fs_notify_attr_now(struct fs *fs, struct fs_inode *i)
{
	pool_count(&fs->notifier->queued);
	(void)fuse_lowlevel_notify_inval_inode(fs->se, fs_inode_id(i), -1,
					       0);
}

/* Usually nothing is queued, and the thread need not be woken. */
void fs_notify_mark(struct fs *fs, uint64_t mark)
{
	struct fs_notifier *nt = fs->notifier;
	bool idle;

	pthread_mutex_lock(&nt->lock);
	idle = nt->idle;
	pthread_mutex_unlock(&nt->lock);
	if (idle)
		pool_node_notified(fs->node, mark);
	else
		queue_note(fs, 0, NULL, 0, mark);
}

void fs_notify_expire(struct fs *fs)
{
	struct fs_notifier *nt = fs->notifier;
	bool idle;

	pthread_mutex_lock(&nt->lock);
	idle = nt->idle;
	pthread_mutex_unlock(&nt->lock);
	if (!idle)
		(void)cover(fs, false);
}

static void on_mark_sent(uv_poll_t *p, int status, int events)
{
	struct fs_notifier *nt = p->data;
	uint64_t mark;
	eventfd_t n;

	(void)status;
	(void)events;
	(void)eventfd_read(nt->mark_fd, &n);

	pthread_mutex_lock(&nt->lock);
	mark = nt->sent_mark;
	pthread_mutex_unlock(&nt->lock);
	pool_node_notified(nt->fs->node, mark);
}

/* ---- the filter of misses ----
 *
 * One bit per hash of a name that LOOKUP answered as missing. A collision costs
 * a superfluous notification; a name that was recorded is always found. Two
 * bitmaps, each filled for as long as a dentry may live: older ones have
 * expired.
 */

static uint64_t miss_hash(const struct pool_dir *dir, const char *name,
			  size_t len)
{
	return XXH3_64bits_withSeed(name, len, dir->e.cookie) >>
	       (64 - FS_MISS_BITS);
}

static void miss_turn(struct fs *fs)
{
	uint64_t now = pool_now_ms(), *old;

	if (now - fs->miss_turn_ms < (uint64_t)(FS_TIMEOUT_LONG * 1000))
		return;
	fs->miss_turn_ms = now;
	old = fs->misses[1];
	fs->misses[1] = fs->misses[0];
	memset(old, 0, ((size_t)1 << FS_MISS_BITS) / 8);
	fs->misses[0] = old;
}

void fs_miss_add(struct fs *fs, const struct node_dirent *dir,
		 const char *name, size_t len)
{
	uint64_t h = miss_hash(node_dir_tree(dir), name, len);

	miss_turn(fs);
	fs->misses[0][h / 64] |= (uint64_t)1 << (h % 64);
}

bool fs_miss_maybe(struct fs *fs, const struct pool_entry *e)
{
	uint64_t h = miss_hash(e->parent, pool_entry_name(e), e->name_len);

	return ((fs->misses[0][h / 64] | fs->misses[1][h / 64]) >> (h % 64)) &
	       1;
}

/* ---- */

static int open_handles(struct fs_notifier *nt)
{
	int err;

	uv_timer_init(nt->fs->loop, &nt->tick);
	nt->tick.data = nt->mark_poll.data = nt;
	nt->mark_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (nt->mark_fd < 0)
		return -errno;
	err = uv_poll_init(nt->fs->loop, &nt->mark_poll, nt->mark_fd);
	return err ? err : uv_poll_start(&nt->mark_poll, UV_READABLE,
					 on_mark_sent);
}

int fs_notifier_open(struct fs *fs)
{
	struct fs_notifier *nt = calloc(1, sizeof(*nt));
	size_t bytes = ((size_t)1 << FS_MISS_BITS) / 8;
	int err;

	fs->misses[0] = calloc(1, bytes);
	fs->misses[1] = calloc(1, bytes);
	fs->miss_turn_ms = pool_now_ms();
	if (!nt || !fs->misses[0] || !fs->misses[1] || spares_make(nt) < 0) {
		if (nt)
			notes_free(nt->spares);
		free(nt);
		free(fs->misses[0]);
		free(fs->misses[1]);
		return -ENOMEM;
	}
	nt->fs = fs;
	nt->tail = &nt->head;
	pthread_mutex_init(&nt->lock, NULL);
	pthread_cond_init(&nt->wake, NULL);
	(void)pool_metrics_counter(fs->opts.metrics, &nt->queued,
				   "kvpool_fuse_notifications_total", NULL,
				   "Invalidations queued for the kernel");
	(void)pool_metrics_counter(fs->opts.metrics, &nt->epochs,
				   "kvpool_fuse_epochs_total", NULL,
				   "Times that all dentries in the kernel "
				   "were expired");
	(void)pool_metrics_counter(fs->opts.metrics, &nt->merged,
				   "kvpool_fuse_notifications_merged_total",
				   NULL,
				   "Invalidations that were not sent: all "
				   "dentries were expired instead");
	(void)pool_metrics_counter(fs->opts.metrics, &nt->nslow,
				   "kvpool_fuse_notifications_slow_total",
				   NULL,
				   "Invalidations that the kernel did not take "
				   "for 200 ms");
	fs->notifier = nt;
	err = open_handles(nt);
	if (!err)
		err = -pthread_create(&nt->thread, NULL, notifier_main, nt);
	return err;
}

void fs_notifier_stop(struct fs *fs)
{
	struct fs_notifier *nt = fs->notifier;

	pthread_mutex_lock(&nt->lock);
	nt->stop = true;
	pthread_cond_signal(&nt->wake);
	pthread_mutex_unlock(&nt->lock);
}

bool fs_notifier_ended(struct fs *fs)
{
	return pthread_tryjoin_np(fs->notifier->thread, NULL) == 0;
}

void fs_notifier_close(struct fs *fs)
{
	uv_close((uv_handle_t *)&fs->notifier->mark_poll, NULL);
	uv_close((uv_handle_t *)&fs->notifier->tick, NULL);
}

void fs_notifier_free(struct fs *fs)
{
	struct fs_notifier *nt = fs->notifier;

	notes_free(nt->head);
	notes_free(nt->spares);
	pthread_mutex_destroy(&nt->lock);
	pthread_cond_destroy(&nt->wake);
	free(fs->misses[0]);
	free(fs->misses[1]);
	close(nt->mark_fd);
	/* nt itself is not freed: opts.metrics refers to its counters. */
}
