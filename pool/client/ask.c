/*
 * Queries: look-ups in the mirror, on the caller's thread. Paths are made for
 * CLIENT_ASK_MAX keys without the lock. Then KEYS_LOCKED at a time are looked
 * up under it, so that the loop, which takes it for each change, waits for some
 * 10 us at most.
 */
#include "pool/client/client_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_AHEAD 24 /* how far ahead keys are prefetched into the cache */
#define KEYS_LOCKED 32 /* per lock: pool_tree_find_many's batch; at most 63 */

/* A query of up to so many keys needs no malloc. */
#define KEYS_FEW 8

/* Results of a query's keys; added to the counters when it ends. */
struct tally {
	uint64_t here, peer, misses, skipped, invalid;
	bool prefix;
	bool ended; /* prefix: a key is missing; those behind it are skipped */
};

/* One chunk of a query: err[i] is set, or found[i], which is NULL for a
 * miss. */
struct asked {
	struct tally tally;
	bool wrong; /* some err[i] is set */
	struct client_path *path;
	struct pool_tree_name *name;
	struct pool_entry **found;
	int *err;
};

/* Memory for one chunk. */
struct room {
	struct client_path path[CLIENT_ASK_MAX];
	struct pool_tree_name name[CLIENT_ASK_MAX];
	struct pool_entry *found[CLIENT_ASK_MAX];
	int err[CLIENT_ASK_MAX];
};
struct room_few {
	struct client_path path[KEYS_FEW];
	struct pool_tree_name name[KEYS_FEW];
	struct pool_entry *found[KEYS_FEW];
	int err[KEYS_FEW];
};

#define USE_ROOM(a, room)                   \
	do {                                \
		(a)->path = (room)->path;   \
		(a)->name = (room)->name;   \
		(a)->found = (room)->found; \
		(a)->err = (room)->err;     \
	} while (0)

static void set_names(const struct kvpool_ns *ns, const struct kvpool_key *keys,
		      size_t n, struct asked *a)
{
	struct pool_tree_name *name = a->name;
	struct client_path *path = a->path;
	int *err = a->err, wrong = 0;

	for (size_t i = 0; i < n; i++) {
		if (i + KEYS_AHEAD < n)
			__builtin_prefetch(keys[i + KEYS_AHEAD].data);
		err[i] = client_path_set(ns, &keys[i], &path[i]);
		wrong |= err[i];
		if (err[i] || !path[i].plain) {
			name[i].len = 0;
		} else {
			name[i].name = path[i].at;
			name[i].len = path[i].len;
		}
		if (name[i].len == 0) /* no entry has it: see find_some */
			name[i] = (struct pool_tree_name){ "/", 1 };
	}
	a->wrong = wrong != 0;
}

/* names held: keys [from, to). Returns which were found, as bits; the lowest is
 * that of `from`. *ret_here: which of these are here. */
static uint64_t find_some(const struct kvpool *p, struct node_dirent *dir,
			  size_t from, size_t to, struct asked *a,
			  uint64_t *ret_here)
{
	const struct client_path *path = a->path;
	struct pool_entry **found = a->found;
	uint64_t hits = 0, here = 0, bit = 1;
	const int *err = a->err;
	enum node_where where;

	pool_tree_find_many(pool_node_tree(p->node), node_dir_tree(dir),
			    a->name + from, to - from, found + from);
	for (size_t i = from; i < to; i++, bit <<= 1) {
		if (!err[i] && !path[i].plain)
			found[i] = client_find(p, dir, path[i].at, path[i].len);
		if (!found[i])
			continue;
		where = pool_node_where(found[i]);
		if (where == NODE_NOWHERE) {
			found[i] = NULL;
			continue;
		}
		hits |= bit;
		if (where == NODE_HERE)
			here |= bit;
	}
	*ret_here = here;
	return hits;
}

static int64_t size_of(const struct kvpool *p, const struct pool_entry *e)
{
	uint64_t size;

	return pool_node_shown_size(p->node, e, &size) ? -ENOENT :
							 (int64_t)size;
}

static int64_t answer(const struct kvpool *p, const struct asked *a, size_t i,
		      bool sizes)
{
	if (a->err[i])
		return a->err[i];
	if (!a->found[i])
		return sizes ? -ENOENT : 0;
	return sizes ? size_of(p, a->found[i]) : 1;
}

static uint64_t ones(uint64_t bits)
{
	return (uint64_t)__builtin_popcountll(bits);
}

/* Adds n keys from `from` on. hits: which exist, here: which of these are here,
 * as bits. */
static void add_to(struct asked *a, size_t from, size_t n, uint64_t hits,
		   uint64_t here)
{
	struct tally *t = &a->tally;
	uint64_t missing = ~hits & ((1ull << n) - 1), wrong = 0;
	size_t asked = n;

	if (t->ended)
		asked = 0;
	else if (t->prefix && missing)
		asked = (size_t)__builtin_ctzll(missing) + 1;
	t->ended = t->ended || (t->prefix && missing);
	t->skipped += n - asked;
	hits &= (1ull << asked) - 1;
	here &= hits;
	t->here += ones(here);
	t->peer += ones(hits & ~here);
	for (size_t i = from; a->wrong && i < from + asked; i++)
		wrong += a->err[i] != 0;
	t->invalid += wrong;
	t->misses += asked - ones(hits) - wrong;
}

/* n: keys of the query. */
static void count(struct kvpool *p, const struct tally *t, size_t n)
{
	struct client_stats *s = &p->stats;

	client_count(s, COUNT_LOOKUPS, n);
	client_count(s, COUNT_HITS_HERE, t->here);
	client_count(s, COUNT_HITS_PEER, t->peer);
	client_count(s, COUNT_MISSES, t->misses);
	client_count(s, COUNT_LOOKUPS_SKIPPED, t->skipped);
	client_count(s, COUNT_LOOKUPS_INVALID, t->invalid);
	if (atomic_load_explicit(&p->away, memory_order_relaxed))
		client_count(s, COUNT_LOOKUPS_AWAY, n);
}

static void free_names(struct asked *a, size_t n)
{
	for (size_t i = 0; i < n; i++)
		client_path_free(&a->path[i]);
}

/* Answers keys [from, to). Returns how many answers are good, or -errno. */
static ssize_t answer_some(const struct kvpool_ns *ns, size_t from, size_t to,
			   struct asked *a, bool sizes, int64_t *ret)
{
	struct kvpool *p = ns->pool;
	struct node_dirent *dir;
	uint64_t here = 0, hits = 0;
	size_t i;
	int err;

	pool_shortlock_read(&p->names);
	err = client_ns_dir(ns, &dir);
	if (!err && dir)
		hits = find_some(p, dir, from, to, a, &here);
	else
		memset(a->found + from, 0, (to - from) * sizeof(a->found[0]));
	for (i = from; !err && i < to; i++) {
		ret[i] = answer(p, a, i, sizes);
		if (sizes && ret[i] < 0)
			hits &= ~(1ull << (i - from));
	}
	pool_shortlock_give(&p->names);
	if (err)
		return err;
	add_to(a, from, to - from, hits, here);
	return (ssize_t)ones(hits);
}

/* Answers n <= CLIENT_ASK_MAX keys. Returns how many are good, or -errno. */
static ssize_t ask_some(const struct kvpool_ns *ns,
			const struct kvpool_key *keys, size_t n,
			struct asked *a, bool sizes, int64_t *ret)
{
	ssize_t good = 0, k = 0;
	size_t at, to;

	set_names(ns, keys, n, a);
	for (at = 0; k >= 0 && at < n; at = to) {
		to = n - at < KEYS_LOCKED ? n : at + KEYS_LOCKED;
		k = answer_some(ns, at, to, a, sizes, ret);
		good += k;
	}
	free_names(a, n);
	return k < 0 ? k : good;
}

static void set_last_error(const int64_t *ret, size_t n)
{
	size_t i;

	for (i = n; i > 0 && ret[i - 1] >= 0; i--)
		;
	if (i > 0)
		client_fail((int)ret[i - 1], "key %zu of %zu: %s", i, n,
			    kvpool_strerror(ret[i - 1]));
}

/* sizes: results are sizes, else 1 or 0. prefix: stop at the first missing key;
 * returns how many precede it. */
static ssize_t ask(const struct kvpool_ns *ns, const struct kvpool_key *keys,
		   size_t n, bool sizes, bool prefix, int64_t *ret)
{
	struct asked a = { .tally.prefix = prefix };
	int64_t some[CLIENT_ASK_MAX];
	struct room *room = NULL;
	struct room_few few;
	ssize_t good = 0, k;
	size_t at, m;
	uint64_t began;
	int err = client_check_batch(ns, keys, n, prefix ? some : ret);

	if (err)
		return err;
	began = client_timed_begin(TIMED_LOOKUPS);
	USE_ROOM(&a, &few);
	if (n > KEYS_FEW) {
		room = malloc(sizeof(*room));
		if (!room)
			return client_fail(-ENOMEM, "no memory for a query");
		USE_ROOM(&a, room);
	}
	for (at = 0; at < n; at += m) {
		m = n - at < CLIENT_ASK_MAX ? n - at : CLIENT_ASK_MAX;
		k = ask_some(ns, keys + at, m, &a, sizes,
			     prefix ? some : ret + at);
		if (k < 0) {
			good = k;
			break;
		}
		good += k;
		if (prefix && (size_t)k < m) {
			for (k = 0; some[k] == 1; k++)
				;
			good = (ssize_t)at + k;
			a.tally.skipped += n - at - m;
			break;
		}
	}
	if (good >= 0) {
		count(ns->pool, &a.tally, n);
		client_timed_end(&ns->pool->stats, TIMED_LOOKUPS, began);
	}
	free(room);
	if (good >= 0 && !prefix && (size_t)good < n)
		set_last_error(ret, n);
	return good;
}

/* ---- kvpool.h ---- */

ssize_t kvpool_batch_exists(struct kvpool_ns *ns,
			    const struct kvpool_key *keys, size_t n,
			    int64_t *ret)
{
	return ask(ns, keys, n, false, false, ret);
}

ssize_t kvpool_batch_get_size(struct kvpool_ns *ns,
			      const struct kvpool_key *keys, size_t n,
			      int64_t *ret)
{
	return ask(ns, keys, n, true, false, ret);
}

ssize_t kvpool_exists_prefix(struct kvpool_ns *ns,
			     const struct kvpool_key *keys, size_t n)
{
	return ask(ns, keys, n, false, true, NULL);
}

int kvpool_exists(struct kvpool_ns *ns, const void *key, size_t key_len)
{
	struct kvpool_key k = { key, key_len };
	int64_t result = 0;
	ssize_t n = kvpool_batch_exists(ns, &k, 1, &result);

	return n < 0 ? (int)n : (int)result;
}

int64_t kvpool_get_size(struct kvpool_ns *ns, const void *key, size_t key_len)
{
	struct kvpool_key k = { key, key_len };
	int64_t result = 0;
	ssize_t n = kvpool_batch_get_size(ns, &k, 1, &result);

	return n < 0 ? n : result;
}
