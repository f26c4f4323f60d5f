#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/chaos/chaos.h"

struct chaos chaos;

const struct chaos_dir chaos_dirs[] = {
	{ .name = "plain", .keys = 96, .size_shift = 0, .replicas = 1 },
	{ .name = "two",
	  .rules = { { "user.kvpool.replicas", "2" } },
	  .keys = 48,
	  .size_shift = 3,
	  .replicas = 2 },
	{ .name = "kept",
	  .rules = { { "user.kvpool.replicas", "2" },
		     { "user.kvpool.class", "noevict" } },
	  .keys = 32,
	  .size_shift = 6,
	  .kept = true,
	  .replicas = 2 },
	{ .name = NULL },
};

/* The header of every file's content. */
struct header {
	char magic[8];
	uint64_t id;
	uint64_t size;
};
#define MAGIC "chaos 1\n"

static uint64_t mix(uint64_t z)
{
	z += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint64_t chaos_random(uint64_t *state)
{
	return mix((*state)++);
}

/* ---- contents: an id is the key and the version that it was made for ---- */

static uint64_t id_make(const struct chaos_key *key, uint32_t version)
{
	return (uint64_t)(unsigned int)key->index << 32 | version;
}

size_t chaos_size(uint64_t id)
{
	const struct chaos_dir *dir = chaos.keys[id >> 32].dir;
	static const size_t largest[16] = {
		4096,	4096,	 4096,	  65536,   65536,   65536,
		262144, 262144,	 262144,  262144,  1048576, 1048576,
		1048576, 1048576, 2097152, CHAOS_SIZE_MAX,
	};
	uint64_t r = mix(id ^ chaos.seed);
	size_t max = largest[r % 16] >> dir->size_shift;

	if (max < 64)
		max = 64;
	/* Most blocks of an engine have one size. */
	return (r >> 8) % 4 ? max : sizeof(struct header) +
					    (r >> 16) % (max - 32);
}

void chaos_fill(uint64_t id, uint8_t *buf)
{
	struct header h = { .id = id, .size = chaos_size(id) };
	uint64_t word;

	memcpy(h.magic, MAGIC, sizeof(h.magic));
	memcpy(buf, &h, sizeof(h));
	for (size_t at = sizeof(h); at < h.size; at += sizeof(word)) {
		size_t left = h.size - at;

		word = mix(id * 0x9e3779b97f4a7c15u + at);
		memcpy(buf + at, &word, left < sizeof(word) ? left : 8);
	}
}

/* ---- keys ---- */

static int key_init(struct chaos_key *key, const struct chaos_dir *dir,
		    int index, unsigned int number)
{
	*key = (struct chaos_key){ .dir = dir, .index = index };
	snprintf(key->name, sizeof(key->name), "%s/k%u", dir->name, number);
	if (pthread_mutex_init(&key->writer, NULL) ||
	    pthread_mutex_init(&key->lock, NULL))
		return -ENOMEM;
	for (int i = 0; i < CHAOS_VERSIONS; i++)
		key->ring[i].any_of = -1;
	return 0;
}

int chaos_model_init(void)
{
	const struct chaos_dir *dir;
	int index = 0;

	for (dir = chaos_dirs; dir->name; dir++)
		chaos.nkeys += dir->keys;
	chaos.keys = calloc(chaos.nkeys, sizeof(*chaos.keys));
	if (!chaos.keys)
		return -ENOMEM;
	for (dir = chaos_dirs; dir->name; dir++)
		for (unsigned int i = 0; i < dir->keys; i++, index++)
			if (key_init(&chaos.keys[index], dir, index, i))
				return -ENOMEM;
	return 0;
}

void chaos_note(struct chaos_key *key, int mount, uint32_t version,
		const char *what, int result)
{
	struct chaos_event *e;

	pthread_mutex_lock(&key->lock);
	e = &key->history[key->events++ % CHAOS_HISTORY];
	*e = (struct chaos_event){ .ms = chaos_now_ms(),
				   .version = version,
				   .result = result,
				   .mount = (int16_t)mount };
	snprintf(e->what, sizeof(e->what), "%s", what);
	pthread_mutex_unlock(&key->lock);
}

static struct chaos_version *version_at(struct chaos_key *key, uint32_t v)
{
	return &key->ring[v % CHAOS_VERSIONS];
}

/* The oldest version in the ring. key->lock is held. */
static uint32_t oldest(const struct chaos_key *key)
{
	return key->last >= CHAOS_VERSIONS ? key->last - CHAOS_VERSIONS + 1 : 1;
}

uint32_t chaos_version_begin(struct chaos_key *key, int mount, bool gone)
{
	uint32_t v;

	pthread_mutex_lock(&key->lock);
	v = ++key->last;
	*version_at(key, v) = (struct chaos_version){
		.id = gone ? 0 : id_make(key, v), .any_of = -1, .mount = mount
	};
	pthread_mutex_unlock(&key->lock);
	return v;
}

int chaos_version_unsettled(struct chaos_key *key, int mount)
{
	int other = -1;

	pthread_mutex_lock(&key->lock);
	for (uint32_t v = key->floor + 1; other < 0 && v <= key->last; v++)
		if (!version_at(key, v)->aborted &&
		    !version_at(key, v)->settled &&
		    version_at(key, v)->mount != mount)
			other = version_at(key, v)->mount;
	pthread_mutex_unlock(&key->lock);
	return other;
}

void chaos_version_settle(struct chaos_key *key, int mount)
{
	pthread_mutex_lock(&key->lock);
	for (uint32_t v = key->floor + 1; v <= key->last; v++)
		if (version_at(key, v)->mount == mount)
			version_at(key, v)->settled = true;
	pthread_mutex_unlock(&key->lock);
}

void chaos_version_loosen(struct chaos_key *key)
{
	pthread_mutex_lock(&key->lock);
	for (uint32_t v = key->floor + 1; v <= key->last; v++)
		version_at(key, v)->loose = true;
	pthread_mutex_unlock(&key->lock);
}

uint32_t chaos_version_move(struct chaos_key *key, int mount,
			    const struct chaos_key *from, bool certain)
{
	uint32_t v = chaos_version_begin(key, mount, false);

	pthread_mutex_lock(&key->lock);
	/* from->writer is held: no other thread changes its ring. */
	version_at(key, v)->id = from->ring[from->floor % CHAOS_VERSIONS].id;
	version_at(key, v)->any_of = certain ? -1 : from->index;
	version_at(key, v)->moved = true;
	pthread_mutex_unlock(&key->lock);
	return v;
}

uint64_t chaos_version_id(struct chaos_key *key, uint32_t version)
{
	uint64_t id;

	pthread_mutex_lock(&key->lock);
	id = version ? version_at(key, version)->id : 0;
	pthread_mutex_unlock(&key->lock);
	return id;
}

void chaos_version_abort(struct chaos_key *key, uint32_t version)
{
	pthread_mutex_lock(&key->lock);
	version_at(key, version)->aborted = true;
	pthread_mutex_unlock(&key->lock);
}

void chaos_version_ack(struct chaos_key *key, uint32_t version)
{
	pthread_mutex_lock(&key->lock);
	if (version > key->floor)
		key->floor = version;
	pthread_mutex_unlock(&key->lock);
}

bool chaos_version_known(struct chaos_key *key, int mount)
{
	bool known = true;

	pthread_mutex_lock(&key->lock);
	for (uint32_t v = key->floor; known && v <= key->last; v++) {
		const struct chaos_version *at = version_at(key, v);

		known = v == 0 || at->mount < 0 || at->mount == mount ||
			(v > key->floor && (at->aborted || at->loose));
	}
	pthread_mutex_unlock(&key->lock);
	return known;
}

bool chaos_certain(struct chaos_key *key)
{
	bool certain = chaos_newest(key, key->floor);

	pthread_mutex_lock(&key->lock);
	for (uint32_t v = oldest(key); certain && v <= key->last; v++)
		certain = !version_at(key, v)->loose;
	if (version_at(key, key->floor)->any_of >= 0)
		certain = false;
	pthread_mutex_unlock(&key->lock);
	return certain;
}

bool chaos_newest(struct chaos_key *key, uint32_t version)
{
	bool newest = version > 0;

	pthread_mutex_lock(&key->lock);
	for (uint32_t v = version + 1; newest && v <= key->last; v++)
		newest = version_at(key, v)->aborted;
	pthread_mutex_unlock(&key->lock);
	return newest;
}

void chaos_version_rebase(struct chaos_key *key, uint64_t id)
{
	uint32_t v;

	pthread_mutex_lock(&key->lock);
	v = ++key->last;
	*version_at(key, v) = (struct chaos_version){
		.id = id, .any_of = -1, .settled = true, .mount = -1
	};
	key->floor = v;
	key->safe = key->dir->kept && id ? v : 0;
	for (v = oldest(key); v <= key->last; v++)
		version_at(key, v)->loose = false;
	pthread_mutex_unlock(&key->lock);
	chaos_note(key, 0, key->last, "all is whole", 0);
}

void chaos_lossy(struct chaos_key *key)
{
	pthread_mutex_lock(&key->lock);
	key->lossy = key->last;
	key->safe = 0;
	pthread_mutex_unlock(&key->lock);
}

static bool moved_here(struct chaos_key *key)
{
	bool moved = false;

	pthread_mutex_lock(&key->lock);
	for (uint32_t v = key->last; !moved && v >= oldest(key) &&
				     version_at(key, v)->mount >= 0; v--)
		moved = version_at(key, v)->moved;
	pthread_mutex_unlock(&key->lock);
	return moved;
}

void chaos_lossy_path(const char *path)
{
	size_t len = strcspn(path, "."); /* "plain/k3.5.tmp" */
	struct chaos_key *key = chaos.keys, *end = key + chaos.nkeys;

	while (key < end && (strlen(key->name) != len ||
			     strncmp(key->name, path, len) != 0))
		key++;
	if (key == end)
		return;
	do {
		chaos_note(key, 0, key->last, "evicted, says a node", 0);
		chaos_lossy(key);
	} while (++key < end && key->dir == key[-1].dir && moved_here(key));
}

uint32_t chaos_owed(struct chaos_key *key)
{
	uint32_t owed = 0;

	if (!chaos_certain(key))
		return 0;
	pthread_mutex_lock(&key->lock);
	if (key->floor > key->lossy && version_at(key, key->floor)->id)
		owed = key->floor;
	pthread_mutex_unlock(&key->lock);
	return owed;
}

void chaos_growing(struct chaos_key *key, int mount)
{
	pthread_mutex_lock(&key->lock);
	key->growing[mount]++;
	pthread_mutex_unlock(&key->lock);
}

/* ---- views ---- */

void chaos_view_take(struct chaos_key *key, int mount, struct chaos_view *view)
{
	view->mount = mount;
	view->mark = chaos_mark_take(&chaos.mounts[mount]);
	view->tight_changes = chaos.tight_changes; /* first, as with marks */
	view->tight = chaos.tight;
	pthread_mutex_lock(&key->lock);
	view->floor = key->floor;
	view->safe = key->safe;
	view->last = key->last;
	view->growing = key->growing[mount];
	pthread_mutex_unlock(&key->lock);
}

/* ---- verdicts ---- */

static bool version_holds(const struct chaos_version *v, uint64_t id)
{
	if (v->id == 0 || v->aborted)
		return false;
	return v->any_of < 0 ? v->id == id : true;
}

/* The newest version of the key that may have content `id`; 0: none. Versions
 * that may still exist are preferred, because a version made by a rename may
 * have any content. key->lock is held. */
static uint32_t version_of(struct chaos_key *key, uint64_t id, uint32_t floor,
			   bool *ret_right)
{
	uint32_t newest = 0;

	*ret_right = false;
	for (uint32_t v = key->last; v >= oldest(key); v--) {
		if (!version_holds(version_at(key, v), id))
			continue;
		*ret_right = v >= floor || version_at(key, v)->loose;
		if (*ret_right)
			return v;
		if (newest == 0)
			newest = v;
	}
	return newest;
}

/* Does it look like a file that its own mount is still writing? */
static bool was_growing(struct chaos_key *key, const struct chaos_view *view)
{
	bool was;

	pthread_mutex_lock(&key->lock);
	was = view->growing % 2 || key->growing[view->mount] != view->growing;
	pthread_mutex_unlock(&key->lock);
	return was;
}

static bool is_prefix(const uint8_t *buf, size_t len)
{
	static _Thread_local uint8_t want[CHAOS_SIZE_MAX + 8];
	struct header h;

	if (len < sizeof(h))
		return true;
	memcpy(&h, buf, sizeof(h));
	if (memcmp(h.magic, MAGIC, sizeof(h.magic)) != 0 ||
	    h.id >> 32 >= chaos.nkeys || h.size != chaos_size(h.id) ||
	    len > h.size)
		return false;
	chaos_fill(h.id, want);
	return memcmp(buf, want, len) == 0;
}

static void judge_age(struct chaos_key *key, const struct chaos_view *view,
		      uint64_t id)
{
	uint32_t version, floor = view->floor;
	bool right;

	pthread_mutex_lock(&key->lock);
	version = version_of(key, id, floor, &right);
	pthread_mutex_unlock(&key->lock);
	if (right)
		return;
	if (version == 0 && id >> 32 == (unsigned int)key->index &&
	    (uint32_t)id + CHAOS_VERSIONS < key->last) {
		version = (uint32_t)id; /* older than the ring */
		if (!chaos_mark_clean(&view->mark))
			return;
	}
	if (version == 0)
		chaos_fail(key, "mount %d: content %" PRIx64
				" was never published under this name",
			   view->mount, id);
	else if (chaos_mark_clean(&view->mark))
		chaos_fail(key, "mount %d: version %u was read, but version %u "
				"was acknowledged before",
			   view->mount, version, floor);
}

void chaos_judge(struct chaos_key *key, const struct chaos_view *view,
		 const uint8_t *buf, size_t len)
{
	struct header h = { .id = 0 };

	if (was_growing(key, view)) {
		if (!is_prefix(buf, len))
			chaos_fail(key, "mount %d: %zu bytes that nobody wrote "
					"so, while it was written in place",
				   view->mount, len);
		return;
	}
	if (len >= sizeof(h))
		memcpy(&h, buf, sizeof(h));
	if (len < sizeof(h) || memcmp(h.magic, MAGIC, sizeof(h.magic)) != 0)
		chaos_fail(key, "mount %d: %zu bytes that are no version",
			   view->mount, len);
	else if (h.size != len)
		chaos_fail(key, "mount %d: %zu bytes of content %" PRIx64
				", which has %" PRIu64,
			   view->mount, len, h.id, h.size);
	else if (!is_prefix(buf, len))
		chaos_fail(key, "mount %d: torn or mixed: begins as content %"
				PRIx64, view->mount, h.id);
	else
		judge_age(key, view, h.id);
}

void chaos_judge_missing(struct chaos_key *key, const struct chaos_view *view,
			 const char *how)
{
	bool lossy;

	pthread_mutex_lock(&key->lock);
	lossy = view->safe <= key->lossy;
	pthread_mutex_unlock(&key->lock);
	if (!view->safe || lossy || !chaos_newest(key, view->safe) ||
	    !chaos_mark_clean(&view->mark) || !view->tight ||
	    chaos.tight_changes != view->tight_changes)
		return;
	chaos_fail(key, "mount %d: %s: not there, but enough stores have "
			"version %u", view->mount, how, view->safe);
}

void chaos_judge_present(struct chaos_key *key, const struct chaos_view *view,
			 const char *how)
{
	bool gone = true;

	if (!chaos_mark_clean(&view->mark) || was_growing(key, view))
		return;
	pthread_mutex_lock(&key->lock);
	for (uint32_t v = oldest(key); gone && v <= key->last; v++) {
		const struct chaos_version *at = version_at(key, v);

		gone = at->id == 0 || at->aborted ||
		       (v < view->floor && !at->loose);
	}
	pthread_mutex_unlock(&key->lock);
	if (gone)
		chaos_fail(key, "mount %d: %s: there, but its unlink (version "
				"%u) was acknowledged before",
			   view->mount, how, view->floor);
}

/* ---- the report of a violation ---- */

static size_t version_size(const struct chaos_key *key, uint32_t version)
{
	uint64_t id = key->ring[version % CHAOS_VERSIONS].id;

	return version && id ? chaos_size(id) : 0;
}

static void print_history(const struct chaos_key *key)
{
	unsigned int n = key->events < CHAOS_HISTORY ? key->events :
						       CHAOS_HISTORY;
	uint64_t now = chaos_now_ms();

	fprintf(stderr, "%s: newest version %u, acknowledged %u, safe %u; what "
			"was done to it, in ms before now:\n",
		key->name, key->last, key->floor, key->safe);
	for (unsigned int i = key->events - n; i < key->events; i++) {
		const struct chaos_event *e =
			&key->history[i % CHAOS_HISTORY];

		fprintf(stderr, "  -%7" PRIu64 "  mount %d  version %-5u %-21s "
				"(%zu bytes) %s\n",
			now - e->ms, e->mount, e->version, e->what,
			version_size(key, e->version),
			e->result ? strerror(abs(e->result)) : "ok");
	}
}

void chaos_fail(struct chaos_key *key, const char *fmt, ...)
{
	struct timespec ts;
	struct tm tm;
	char when[32];
	va_list ap;

	if (atomic_exchange(&chaos.failed, true))
		return;
	chaos.stop = true;
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	strftime(when, sizeof(when), "%H:%M:%S", &tm);
	fprintf(stderr, "VIOLATION (seed %" PRIu64 ") at %s.%03ld UTC: %s: ",
		chaos.seed, when, ts.tv_nsec / 1000000,
		key ? key->name : "the pool");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	if (key)
		print_history(key);
	fflush(stderr);
}
