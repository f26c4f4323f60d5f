/*
 * Used and free space.
 *
 * In a tmpfs of our own, one statfs(2) is exact to the page. In a directory
 * that shares its filesystem, a worker counts the blocks of our files about
 * every second; between counts, any change of the filesystem's use is
 * attributed to the store. That is exact while no other program writes there.
 * If one does, the next count corrects it: before evicting, callers wait for an
 * accurate count (pool_store_counted), and where counting is quick
 * pool_store_space counts at once.
 *
 * If the owner writes all files itself and reports their space
 * (pool_store_use), as libkvpool does, nothing is counted. With counts,
 * eviction would stop for a count each time that 1/64 of the store was written:
 * some 50 ms for 30,000 files.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/store/store_priv.h"

#define COUNT_EVERY_MS 1000
#define COUNT_SHARE 20 /* counting takes at most 1/20 of the time */
/* A count is valid while the filesystem's use has changed by less than this
 * part of the store, and in any case for this time (4 times its duration if
 * more). */
#define COUNT_HOLDS_PART 64 /* of the store's size */
#define COUNT_HOLDS_MS 5
#define COUNT_HOLDS_SHARE 4
#define SAMPLE_MS 10
#define COUNT_QUICK_MS 1 /* the loop itself counts if it takes no longer */

struct fs_space {
	uint64_t used, free;
	uint64_t releasing; /* part of used; constant during statfs(2) */
};

/* Reads statfs(2) and s->releasing at one point in time: bytes that a worker
 * frees between the two would count twice or not at all. */
static int fs_ask(const struct pool_store *s, struct statfs *st,
		  uint64_t *ret_releasing)
{
	uint64_t before;
	int rc;

	do {
		before = atomic_load(&s->releasing);
		rc = fstatfs(s->dirfd, st);
		*ret_releasing = atomic_load(&s->releasing);
	} while (rc == 0 && *ret_releasing != before);
	return rc;
}

/* Thread: any. If fstatfs fails, assume that nothing is free. */
static struct fs_space fs_space(const struct pool_store *s)
{
	struct fs_space fs = { 0, 0, 0 };
	struct statfs st;
	uint64_t bsize;

	if (fs_ask(s, &st, &fs.releasing) < 0) {
		pool_warn_limited("store %s: statfs: errno %d", s->path, errno);
		fs.used = UINT64_MAX / 2;
		return fs;
	}
	bsize = (uint64_t)st.f_bsize;
	fs.used = (st.f_blocks - st.f_bfree) * bsize;
	fs.free = st.f_bavail * bsize;
	return fs;
}

/* Has a count just ended? If so, the change of the filesystem's use since then
 * is ignored. */
static bool count_is_new(const struct pool_store *s)
{
	uint64_t ended = atomic_load(&s->usage.ended_ms);

	return ended && pool_now_ms() - ended <= COUNT_HOLDS_MS;
}

static uint64_t used_by_count(const struct pool_store *s,
			      const struct fs_space *fs)
{
	uint64_t counted = atomic_load(&s->usage.counted);
	uint64_t then = atomic_load(&s->usage.fs_used);

	if (count_is_new(s))
		return counted;
	return fs->used + counted > then ? fs->used + counted - then : 0;
}

static uint64_t used_by_us(const struct pool_store *s,
			   const struct fs_space *fs)
{
	uint64_t used = s->own ? fs->used : used_by_count(s, fs);

	if (s->owner_counts)
		return s->used + s->bad_bytes;
	return used > fs->releasing ? used - fs->releasing : 0;
}

static uint64_t free_below_size(const struct pool_store *s,
				const struct fs_space *fs, uint64_t used)
{
	uint64_t left = s->size > used ? s->size - used : 0;
	uint64_t room = fs->free + fs->releasing;

	room = room > s->headroom ? room - s->headroom : 0;
	return left < room ? left : room;
}

uint64_t store_space_free(const struct pool_store *s)
{
	struct fs_space fs = fs_space(s);

	return free_below_size(s, &fs, used_by_us(s, &fs));
}

static void count_begin(struct pool_store *s);

static uint64_t breach_below(const struct pool_store *s)
{
	return s->headroom / 16;
}

static uint64_t reach(const struct pool_store *s, const struct fs_space *fs,
		      uint64_t used)
{
	uint64_t all = s->size + s->headroom;
	uint64_t left = all > used ? all - used : 0;

	if (left > fs->free)
		left = fs->free;
	return left > breach_below(s) ? left - breach_below(s) : 0;
}

/*
 * Has the filesystem's use fallen so much that the count is no longer valid? If
 * another program freed that space, the store uses more than it seems and would
 * grow beyond its size.
 */
static bool has_fallen(const struct pool_store *s, const struct fs_space *fs)
{
	return fs->used + s->size / COUNT_HOLDS_PART <
	       atomic_load(&s->usage.fs_used);
}

static void recount_now(struct pool_store *s, uint64_t now)
{
	store_count(s);
	s->usage.ended_ms = pool_now_ms();
	s->usage.took_ms = s->usage.ended_ms - now;
}

/* Count if the figures may be wrong: on the loop where that is quick, else in a
 * worker. */
static void recount_if_needed(struct pool_store *s, const struct fs_space *fs)
{
	struct store_usage *u = &s->usage;
	bool fell = has_fallen(s, fs);
	uint64_t now = pool_now_ms(), age = now - u->ended_ms;

	if (s->own || s->owner_counts || u->counting ||
	    (!fell && used_by_us(s, fs) <= s->size / 2))
		return;
	if (u->took_ms <= COUNT_QUICK_MS) {
		if (age >= (fell ? COUNT_HOLDS_MS + 1 : SAMPLE_MS))
			recount_now(s, now);
	} else if (fell && age >= u->took_ms * COUNT_SHARE) {
		count_begin(s);
	}
}

/* fs_space; with opts.owner_counts at most once per millisecond, because the
 * filesystem's free space is only an upper bound. */
static struct fs_space fs_lately(struct pool_store *s)
{
	struct fs_space fs = { 0, s->fs_free, atomic_load(&s->releasing) };
	uint64_t now = pool_now_ms();

	if (s->owner_counts && s->fs_ms == now)
		return fs;
	fs = fs_space(s);
	s->fs_free = fs.free;
	s->fs_ms = now;
	return fs;
}

void pool_store_space(struct pool_store *s, struct pool_space *ret)
{
	struct fs_space fs = fs_lately(s);

	recount_if_needed(s, &fs);
	ret->size = s->size;
	ret->headroom = s->headroom;
	ret->used = used_by_us(s, &fs);
	ret->ready = s->ready.bytes;
	ret->free = free_below_size(s, &fs, ret->used);
	ret->reach = reach(s, &fs, ret->used);
	ret->releasing = fs.releasing;
}

void pool_store_use(struct pool_store *s, int64_t bytes)
{
	if (!s->owner_counts)
		return;
	assert(bytes >= 0 || (uint64_t)-bytes <= s->used);
	s->used += (uint64_t)bytes;
}

uint64_t pool_store_size(const struct pool_store *s)
{
	return s->size;
}

/* ---- counting a shared directory ---- */

static uint64_t count_files(int dirfd, DIR *dir)
{
	struct dirent *e;
	struct stat st;
	uint64_t sum = 0, id;

	while ((e = readdir(dir)) != NULL) {
		if (!store_name_parse(e->d_name, &id) &&
		    !store_bad_name(e->d_name))
			continue;
		if (fstatat(dirfd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			sum += (uint64_t)st.st_blocks * 512;
	}
	return sum;
}

/* Changes during the count may be counted or not. Keep the higher of the
 * filesystem's use before and after: that underestimates the store's use, and
 * an overestimate would evict data. */
void store_count(struct pool_store *s)
{
	struct fs_space before = fs_space(s), after;
	DIR *dir = opendir(s->path);
	uint64_t sum;

	if (dir == NULL)
		return; /* keep the last count */
	sum = count_files(s->dirfd, dir);
	closedir(dir);
	after = fs_space(s);
	atomic_store(&s->usage.counted, sum);
	atomic_store(&s->usage.fs_used,
		     before.used > after.used ? before.used : after.used);
}

static void count_work(uv_work_t *work)
{
	struct pool_store *s = pool_container_of(work, struct pool_store,
						 usage.work);
	uint64_t start = pool_now_ms();

	store_count(s);
	s->usage.took_ms = pool_now_ms() - start;
}

static void count_done(uv_work_t *work, int status)
{
	struct pool_store *s = pool_container_of(work, struct pool_store,
						 usage.work);
	uint64_t pause = s->usage.took_ms * COUNT_SHARE;

	(void)status;
	s->usage.counting = false;
	atomic_store(&s->usage.ended_ms, pool_now_ms());
	if (pause < COUNT_EVERY_MS)
		pause = COUNT_EVERY_MS;
	s->usage.next_ms = s->usage.ended_ms + pause;
	if (s->usage.cb && !s->closing)
		s->usage.cb(s->usage.arg);
	store_work_end(s);
}

static void count_begin(struct pool_store *s)
{
	struct store_usage *u = &s->usage;

	if (u->counting || s->closing)
		return;
	u->counting = true;
	store_work_begin(s);
	uv_queue_work(s->loop, &u->work, count_work, count_done);
}

uint64_t store_count_maybe(struct pool_store *s)
{
	uint64_t now = pool_now_ms(), next = s->usage.next_ms;

	if (s->own || s->owner_counts)
		return UINT64_MAX;
	if (now < next)
		return next - now;
	count_begin(s);
	return STORE_READY_TICK_MS;
}

/* Is the last count still valid? */
static bool count_holds(const struct pool_store *s)
{
	const struct store_usage *u = &s->usage;
	uint64_t now = fs_space(s).used, then = atomic_load(&u->fs_used);
	uint64_t changed = now > then ? now - then : then - now;

	if (changed <= s->size / COUNT_HOLDS_PART || count_is_new(s))
		return true;
	/* The worker writes took_ms while it is counting. */
	return !u->counting && u->ended_ms &&
	       pool_now_ms() - u->ended_ms <= u->took_ms * COUNT_HOLDS_SHARE;
}

bool pool_store_counted(struct pool_store *s)
{
	if (s->own || s->owner_counts || count_holds(s))
		return true;
	count_begin(s);
	return false;
}

void pool_store_on_counted(struct pool_store *s, void (*cb)(void *arg),
			   void *arg)
{
	s->usage.cb = cb;
	s->usage.arg = arg;
}

/* ---- breaches ---- */

void store_sample(struct pool_store *s)
{
	if (s->sampling == 0 || fs_space(s).free >= breach_below(s))
		return;
	s->breaches++;
	pool_count(&s->n.breaches);
}

static void sample_tick(uv_timer_t *t)
{
	store_sample(pool_container_of(t, struct pool_store, sample_timer));
}

uint64_t pool_store_breaches(struct pool_store *s)
{
	/* A file may be written and closed between two ticks. */
	store_sample(s);
	return s->breaches;
}

uint64_t pool_store_sampling(struct pool_store *s, bool on)
{
	if (!on) {
		assert(s->sampling > 0);
		if (--s->sampling == 0)
			uv_timer_stop(&s->sample_timer);
	} else if (s->sampling++ == 0 && !s->closing) {
		uv_timer_start(&s->sample_timer, sample_tick, SAMPLE_MS,
			       SAMPLE_MS);
	}
	return s->breaches;
}
