/*
 * Invalidations, sent by a thread of their own: the kernel takes the
 * directory's lock for them, which a request that we have not answered may
 * hold. They leave in the order in which they were queued; a reply is written
 * before anything queued later, so a "missing" never overtakes the notification
 * that takes it back.
 *
 * An FSYNCDIR holds its directory's lock, and the thread up, for seconds. So
 * the queue has a bound: names beyond it are not queued, but the kernel is made
 * to ask for all names again (an epoch), which takes no lock. A kernel that has
 * no epochs is told of each: then the feed waits (fs_notify_behind).
 */
#include "fs/fs_priv.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct note {
	struct note *next;
	fuse_ino_t ino; /* parent, or the inode itself if name_len == 0; 0: a
			   mark: all before it has been told */
	uint64_t mark;	/* its number */
	size_t name_len;
	bool spare;
	char name[];
};

/* Notes for when there is no memory: what the kernel is not told it believes
 * for FS_TIMEOUT_LONG. */
#define SPARES 64
#define NOTES_MAX 16384 /* queued ones, of names and inodes */

struct fs_notifier {
	struct fs *fs;
	pthread_t thread;
	pthread_mutex_t lock; /* protects all below */
	pthread_cond_t wake;
	struct note *head, **tail;
	size_t nqueued; /* queued */
	struct note *spares; /* owns; of POOL_NAME_MAX each */
	struct note *sending; /* owned by the thread: being sent, or NULL */
	bool stop;
	bool idle;	   /* nothing queued, nothing being sent */
	bool no_epochs;	   /* of the kernel; loop */
	uint64_t sent_mark; /* the last that was passed */
	uv_async_t mark_async; /* a mark was passed */
	struct pool_counter sent, queued, epochs, merged;
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

static void report_mark(struct fs_notifier *nt, uint64_t mark)
{
	pthread_mutex_lock(&nt->lock);
	nt->sent_mark = mark;
	pthread_mutex_unlock(&nt->lock);
	uv_async_send(&nt->mark_async);
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

/* Off the queue, which stays the truth about what has not been sent. */
static struct note *take_note(struct fs_notifier *nt)
{
	struct note *n = nt->head;

	nt->sending = n;
	nt->idle = !n;
	if (!n)
		return NULL;
	nt->head = n->next;
	nt->nqueued--;
	if (!nt->head)
		nt->tail = &nt->head;
	return n;
}

static void *notifier_main(void *arg)
{
	struct fs_notifier *nt = arg;
	struct note *n;

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

static void queue_note(struct fs *fs, fuse_ino_t ino, const char *name,
		       size_t len, uint64_t mark)
{
	struct fs_notifier *nt = fs->notifier;
	struct note *n = note_take(nt, len);

	if (!n) {
		pool_error("out of memory: a change in the pool may show late");
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
	pthread_cond_signal(&nt->wake);
	pthread_mutex_unlock(&nt->lock);
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

/* Instead of a note that does not fit: was the kernel made to ask again? */
static bool epoch_if_full(struct fs *fs)
{
	struct fs_notifier *nt = fs->notifier;

	if (!is_full(nt))
		return false;
	nt->no_epochs = fs_epoch_next(fs->dev_fd) < 0;
	if (nt->no_epochs)
		return false;
	pool_count(&nt->merged);
	pool_count(&nt->epochs);
	return true;
}

void fs_notify_entry(struct fs *fs, struct pool_entry *e)
{
	struct node_dirent *parent = (void *)e->parent;

	if (!parent || !parent->fs)
		return; /* the kernel does not know the directory */
	if (!epoch_if_full(fs))
		queue_note(fs, fs_inode_id(fs, parent->fs), pool_entry_name(e),
			   e->name_len, 0);
}

void fs_notify_attr(struct fs *fs, struct fs_inode *i)
{
	if (is_full(fs->notifier)) /* the kernel takes no lock for it */
		return fs_notify_attr_now(fs, i);
	queue_note(fs, fs_inode_id(fs, i), NULL, 0, 0);
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
	(void)fuse_lowlevel_notify_inval_inode(fs->se, fs_inode_id(fs, i), -1,
					       0);
}

/* The usual case is that nothing is queued: no other thread is woken then. */
void fs_notify_mark(struct fs *fs, uint64_t mark)
{
	struct fs_notifier *nt = fs->notifier;
	bool idle;

	pthread_mutex_lock(&nt->lock);
	idle = nt->idle;
	pthread_mutex_unlock(&nt->lock);
	if (idle)
		pool_node_told(fs->node, mark);
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
	if (!idle && fs_epoch_next(fs->dev_fd) == 0)
		pool_count(&nt->epochs);
}

static void on_mark_sent(uv_async_t *a)
{
	struct fs_notifier *nt = a->data;
	uint64_t mark;

	pthread_mutex_lock(&nt->lock);
	mark = nt->sent_mark;
	pthread_mutex_unlock(&nt->lock);
	pool_node_told(nt->fs->node, mark);
}

/* ---- told misses ----
 *
 * A filter, not a set: a name that was not told may be taken for one (a
 * superfluous notification), never the other way round. Two generations, each
 * as long as a dentry may live.
 */

static uint64_t miss_hash(const struct node_dirent *dir, const char *name,
			  size_t len)
{
	return XXH3_64bits_withSeed(name, len, dir->d.e.cookie) >>
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
	uint64_t h = miss_hash(dir, name, len);

	miss_turn(fs);
	fs->misses[0][h / 64] |= (uint64_t)1 << (h % 64);
}

bool fs_miss_maybe(struct fs *fs, const struct pool_entry *e)
{
	uint64_t h = miss_hash((void *)e->parent, pool_entry_name(e),
			       e->name_len);

	return ((fs->misses[0][h / 64] | fs->misses[1][h / 64]) >> (h % 64)) &
	       1;
}

/* ---- */

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
				   "Times that the kernel was made to ask for "
				   "all names again");
	(void)pool_metrics_counter(fs->opts.metrics, &nt->merged,
				   "kvpool_fuse_notifications_merged_total",
				   NULL,
				   "Names beyond the bound of the queue of "
				   "invalidations: the kernel asks for all "
				   "again");
	fs->notifier = nt;
	nt->mark_async.data = nt;
	err = uv_async_init(fs->loop, &nt->mark_async, on_mark_sent);
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
	struct fs_notifier *nt = fs->notifier;

	notes_free(nt->head);
	notes_free(nt->spares);
	pthread_mutex_destroy(&nt->lock);
	pthread_cond_destroy(&nt->wake);
	free(fs->misses[0]);
	free(fs->misses[1]);
	uv_close((uv_handle_t *)&nt->mark_async, NULL);
	/* nt itself stays: its counter is in the registry. */
}
