/*
 * Files by id: names, descriptors, leases (is a file in use?) and removal.
 * seal.c has the operations on content.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/store/store_priv.h"

void store_name(uint64_t id, char *out)
{
	static const char digits[] = "0123456789abcdef";

	for (int i = STORE_NAME_LEN - 1; i >= 0; i--, id >>= 4)
		out[i] = digits[id & 15];
	out[STORE_NAME_LEN] = '\0';
}

void store_path(const struct pool_store *s, uint64_t id, char *out)
{
	size_t n = strlen(s->path);

	memcpy(out, s->path, n);
	out[n] = '/';
	store_name(id, out + n + 1);
}

bool store_name_parse(const char *name, uint64_t *ret_id)
{
	uint64_t id = 0;

	for (int i = 0; i < STORE_NAME_LEN; i++) {
		char c = name[i];

		if (c >= '0' && c <= '9')
			id = id << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			id = id << 4 | (uint64_t)(c - 'a' + 10);
		else
			return false;
	}
	if (name[STORE_NAME_LEN] != '\0' || id == 0)
		return false;
	*ret_id = id;
	return true;
}

void store_work_begin(struct pool_store *s)
{
	s->pending++;
}

void store_work_end(struct pool_store *s)
{
	assert(s->pending > 0);
	if (--s->pending == 0 && s->closing)
		s->on_idle(s);
}

int pool_store_fd(struct pool_store *s, uint64_t id, int flags)
{
	char name[STORE_NAME_LEN + 1];
	int fd;

	store_name(id, name);
	fd = openat(s->dirfd, name, flags | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

int pool_store_stat(struct pool_store *s, uint64_t id, uint64_t *ret_size,
		    uint64_t *ret_blocks, uint64_t *ret_mtime_ns)
{
	char name[STORE_NAME_LEN + 1];
	struct stat st;

	store_name(id, name);
	if (fstatat(s->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	*ret_size = (uint64_t)st.st_size;
	*ret_blocks = (uint64_t)st.st_blocks;
	*ret_mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u +
			(uint64_t)st.st_mtim.tv_nsec;
	return 0;
}

/* 0, also if there is no such file, or -errno. Thread: any. */
static int unlink_file(const struct pool_store *s, uint64_t id)
{
	char name[STORE_NAME_LEN + 1];

	store_name(id, name);
	return unlinkat(s->dirfd, name, 0) == 0 || errno == ENOENT ? 0 : -errno;
}

/* Restarts the timer with its period (uv_timer_again); before start_timers, and
 * after a close, this does nothing. */
void store_tick_soon(struct pool_store *s)
{
	uv_timer_t *t = &s->tick_timer;

	if (!s->closing &&
	    (!uv_is_active((uv_handle_t *)t) ||
	     uv_timer_get_due_in(t) > STORE_READY_TICK_MS))
		uv_timer_again(t);
}

static void retry_later(struct pool_store *s, uint64_t id, int err)
{
	pool_count(&s->n.removes_failed);
	pool_warn_limited("store %s: removing %016" PRIx64 ": %s", s->path, id,
			  strerror(-err));
	if (s->nunremoved < STORE_UNREMOVED_MAX)
		s->unremoved[s->nunremoved++] = id;
	store_tick_soon(s);
}

void store_unlink(struct pool_store *s, uint64_t id)
{
	int err;

	store_sample(s); /* first: freeing pages would hide a breach */
	err = unlink_file(s, id);
	if (err)
		retry_later(s, id, err);
}

/* Move all waiting ids to the worker; returns how many. Thread: worker. */
static unsigned int unlinks_take(struct pool_store *s, uint64_t *ids,
				 uint32_t *ret_bytes)
{
	struct store_unlinks *u = &s->unlinks;
	unsigned int n;

	pthread_mutex_lock(&u->lock);
	n = u->n;
	memcpy(ids, u->id, n * sizeof(*ids));
	memcpy(ret_bytes, u->bytes, n * sizeof(*ret_bytes));
	u->n = 0;
	pthread_mutex_unlock(&u->lock);
	return n;
}

static void unlinks_work(uv_work_t *work)
{
	struct pool_store *s = pool_container_of(work, struct pool_store,
						 unlinks.work);
	struct store_unlinks *u = &s->unlinks;
	uint64_t ids[STORE_UNLINKS_MAX];
	uint32_t bytes[STORE_UNLINKS_MAX];
	unsigned int n, i;

	while (u->nfailed == 0 && (n = unlinks_take(s, ids, bytes)) > 0) {
		for (i = 0; i < n; i++) {
			if (unlink_file(s, ids[i]) < 0)
				u->failed[u->nfailed++] = ids[i];
			atomic_fetch_sub(&s->releasing, bytes[i]);
		}
	}
}

static void unlinks_done(uv_work_t *work, int status)
{
	struct pool_store *s = pool_container_of(work, struct pool_store,
						 unlinks.work);
	struct store_unlinks *u = &s->unlinks;
	unsigned int i, n;

	(void)status;
	u->running = false;
	for (i = 0; i < u->nfailed; i++) /* logs the error, retries later */
		store_unlink(s, u->failed[i]);
	u->nfailed = 0;
	pthread_mutex_lock(&u->lock);
	n = u->n;
	pthread_mutex_unlock(&u->lock);
	if (n > 0)
		store_unlinks_start(s);
	store_work_end(s);
}

void store_unlinks_start(struct pool_store *s)
{
	if (s->unlinks.running)
		return;
	s->unlinks.running = true;
	store_work_begin(s);
	uv_queue_work(s->loop, &s->unlinks.work, unlinks_work, unlinks_done);
}

/* Pass a file to the worker. False: the caller must unlink it. */
static bool unlink_by_worker(struct pool_store *s, uint64_t id, uint64_t size)
{
	uint64_t now = uv_now(s->loop);
	struct store_unlinks *u = &s->unlinks;
	bool taken;

	if (u->burst_ms != now) {
		u->burst_ms = now;
		u->burst = 0;
	}
	if (u->burst++ < STORE_UNLINKS_INLINE)
		return false;
	store_sample(s);
	size = pool_whole_pages(size);
	pthread_mutex_lock(&u->lock);
	taken = u->n < STORE_UNLINKS_MAX;
	if (taken) {
		u->id[u->n] = id;
		u->bytes[u->n++] = (uint32_t)size; /* < STORE_RELEASE_MIN */
		atomic_fetch_add(&s->releasing, size);
	}
	pthread_mutex_unlock(&u->lock);
	if (taken)
		store_unlinks_start(s);
	else
		pool_count(&s->n.releases_inline);
	return taken;
}

struct release {
	uv_work_t work;
	struct pool_store *store;
	int fd; /* owns */
	uint64_t bytes;
};

static void release_work(uv_work_t *work)
{
	struct release *r = pool_container_of(work, struct release, work);

	close(r->fd);
	atomic_fetch_sub(&r->store->releasing, r->bytes);
}

static void release_done(uv_work_t *work, int status)
{
	struct release *r = pool_container_of(work, struct release, work);
	struct pool_store *s = r->store;

	(void)status;
	s->nreleases--;
	free(r);
	store_work_end(s);
}

/* Close the descriptor of an unlinked file. A worker closes large files,
 * because that may free their pages. */
static void release(struct pool_store *s, int fd, uint64_t bytes)
{
	struct release *r = NULL;

	if (bytes >= STORE_RELEASE_MIN) {
		if (s->nreleases < STORE_RELEASE_MAX)
			r = malloc(sizeof(*r));
		if (r == NULL)
			pool_count(&s->n.releases_inline);
	}
	if (r == NULL) {
		close(fd);
		return;
	}
	r->store = s;
	r->fd = fd;
	r->bytes = bytes;
	s->nreleases++;
	atomic_fetch_add(&s->releasing, bytes);
	store_work_begin(s);
	uv_queue_work(s->loop, &r->work, release_work, release_done);
}

void store_discard(struct pool_store *s, uint64_t id, int fd, uint64_t bytes)
{
	store_unlink(s, id);
	release(s, fd, bytes);
}

void pool_store_remove(struct pool_store *s, uint64_t id)
{
	char name[STORE_NAME_LEN + 1];
	struct stat st = { .st_blocks = 0 };
	int fd = -1;

	store_name(id, name);
	if (fstatat(s->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 &&
	    errno == ENOENT)
		return;
	pool_count(&s->n.removes);
	if ((uint64_t)st.st_blocks * 512 < STORE_RELEASE_MIN ||
	    (fd = pool_store_fd(s, id, O_PATH)) < 0)
		store_unlink(s, id);
	else
		store_discard(s, id, fd, (uint64_t)st.st_blocks * 512);
}

void pool_store_remove_sealed(struct pool_store *s, uint64_t id, uint64_t size,
			      bool evicted)
{
	if (size >= STORE_RELEASE_MIN / 2) {
		pool_store_remove(s, id);
		return;
	}
	pool_count(&s->n.removes);
	if (!evicted || !unlink_by_worker(s, id, size))
		store_unlink(s, id);
}

/* If another process opens the file while we hold the lease, the kernel sends
 * us SIGIO, which by default ends the process. The signal can be ignored: the
 * opener waits until we drop the lease, about a microsecond later. */
static void ignore_sigio(void)
{
	struct sigaction sa;

	if (sigaction(SIGIO, NULL, &sa) < 0 || sa.sa_handler != SIG_DFL)
		return;
	sa.sa_handler = SIG_IGN;
	sigaction(SIGIO, &sa, NULL);
}

static int lease(int fd, int type)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, ignore_sigio);
	if (fcntl(fd, F_SETLEASE, type) < 0)
		return errno == EAGAIN ? -EBUSY : -errno;
	fcntl(fd, F_SETLEASE, F_UNLCK);
	return 0;
}

int pool_file_size(int fd, uint64_t *ret_size)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	*ret_size = (uint64_t)st.st_size;
	return 0;
}

int pool_file_has_writer(int fd)
{
	return lease(fd, F_RDLCK);
}

int pool_file_in_use(int fd)
{
	return lease(fd, F_WRLCK);
}
