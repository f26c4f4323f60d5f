#include "master/map.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "pool/base/clock.h"
#include "pool/model/root.h"

#define NS 1000000000ull

int master_map_init(struct master_map *m, uint64_t tombs_max,
		    uint64_t ghosts_max)
{
	struct master_dir *root;
	int err;

	memset(m, 0, sizeof(*m));
	err = pool_tree_init(&m->tree, sizeof(struct master_file),
			     sizeof(struct master_dir));
	if (err)
		return err;
	master_feed_init(&m->feed);
	pool_hash_init(&m->graves);
	pool_hash_init(&m->formers);
	pool_list_init(&m->tombs);
	pool_list_init(&m->ghosts);
	pool_quota_init(&m->quota);
	master_owners_init(&m->owners, &m->quota);
	m->tombs_max = tombs_max;
	m->ghosts_max = ghosts_max;
	/* The root enters the feed only when its attributes are set. */
	root = master_entry_dir(&m->tree.root->e);
	master_item_init(&root->item, MASTER_DIR);
	root->mode = POOL_ROOT_MODE;
	root->mtime_ns = pool_wall_ns();
	root->set = POOL_ROOT_RECORDED;
	return 0;
}

static void free_extra(struct master_extra **slot)
{
	if (*slot)
		pool_xattrs_free((*slot)->xattrs);
	free(*slot);
	*slot = NULL;
}

static void free_entry_parts(struct pool_entry *e, void *arg)
{
	(void)arg;
	if (e->is_dir) {
		free_extra(&master_entry_dir(e)->extra);
		free(master_entry_dir(e)->file);
	} else {
		free_extra(&master_entry_file(e)->extra);
		master_file_clear_holders(master_entry_file(e));
	}
}

static void drop_grave(struct master_map *m, struct master_grave *g,
		       bool forget);

/* Free up to max graves; returns the rest of max. */
static unsigned int drop_graves(struct master_map *m, struct pool_list *list,
				unsigned int max)
{
	for (; max && !pool_list_empty(list); max--)
		drop_grave(m,
			   pool_list_first(list, struct master_grave, age),
			   false);
	return max;
}

bool master_map_fini_some(struct master_map *m, unsigned int max)
{
	max = drop_graves(m, &m->tombs, max);
	max = drop_graves(m, &m->ghosts, max);
	if (!max)
		return true;
	pool_hash_fini(&m->graves);
	pool_hash_fini(&m->formers);
	master_owners_fini(&m->owners);
	if (pool_tree_fini_some(&m->tree, max, free_entry_parts, NULL))
		return true;
	pool_quota_fini(&m->quota);
	return false;
}

void master_map_fini(struct master_map *m)
{
	while (master_map_fini_some(m, UINT_MAX))
		;
}

/* ---- graves ---- */

static uint32_t path_hash(const char *path, size_t len)
{
	return (uint32_t)XXH3_64bits_withSeed(path, len, pool_hash_seed());
}

/* The first grave of that name in the hash chain that begins at n. */
static struct master_grave *grave_from(struct pool_hash_node *n,
				       const char *path, size_t len)
{
	for (; n; n = pool_hash_next(n)) {
		struct master_grave *g =
			pool_container_of(n, struct master_grave, hash);

		if (g->path_len == len && !memcmp(g->path, path, len))
			return g;
	}
	return NULL;
}

struct master_grave *master_map_grave(struct master_map *m, const char *path,
				      size_t len)
{
	return grave_from(pool_hash_first(&m->graves, path_hash(path, len)),
			  path, len);
}

struct master_grave *master_map_grave_below(struct master_map *m,
					    const char *path, size_t len)
{
	const struct master_dir *d = master_map_dir(m, path, len);

	return d ? d->file : master_map_grave(m, path, len);
}

static uint32_t former_hash(const char *path, size_t len, uint32_t uid,
			    bool given)
{
	return given ? path_hash(path, len) :
		       (uint32_t)XXH3_64bits_withSeed(
			       path, len, pool_hash_seed() + 1 + uid);
}

/* The next of those with `given`; after NULL: the first. */
static struct master_grave *next_given(struct master_map *m, const char *path,
				       size_t len,
				       const struct master_grave *after)
{
	if (!m->formers.count)
		return NULL;
	return grave_from(after ? pool_hash_next(&after->hash) :
				  pool_hash_first(&m->formers,
						  path_hash(path, len)),
			  path, len);
}

struct master_grave *master_map_former(struct master_map *m, const char *path,
				       size_t len, uint32_t uid)
{
	struct master_grave *g = next_given(m, path, len, NULL);

	while (g && g->uid != uid)
		g = next_given(m, path, len, g);
	if (!g && m->formers.count)
		g = grave_from(
			pool_hash_first(&m->formers,
					former_hash(path, len, uid, false)),
			path, len);
	return g;
}

bool master_map_former_dead(struct master_map *m, const char *path, size_t len,
			    uint32_t uid, uint64_t gen)
{
	const struct master_grave *g = master_map_former(m, path, len, uid),
				  *anyone = master_map_former(
					  m, path, len, MASTER_UID_ANYONE);

	return (g && g->gen >= gen) || (anyone && anyone->gen >= gen);
}

static struct master_grave *alloc_grave(const char *path, size_t len)
{
	struct master_grave *g = calloc(1, sizeof(*g) + len);

	if (!g)
		return NULL;
	master_item_init(&g->item, MASTER_GRAVE);
	pool_list_init(&g->age);
	pool_list_init(&g->own);
	g->path_len = (uint16_t)len;
	memcpy(g->path, path, len);
	return g;
}

static struct master_grave *new_grave(struct master_map *m, const char *path,
				      size_t len)
{
	struct master_grave *g = alloc_grave(path, len);

	if (!g)
		return NULL;
	if (pool_hash_insert(&m->graves, &g->hash, path_hash(path, len))) {
		free(g);
		return NULL;
	}
	return g;
}

static uint64_t grave_bytes(const struct master_grave *g)
{
	return sizeof(*g) + g->path_len;
}

/* Put a grave on the list that it belongs to. */
static void list_grave(struct master_map *m, struct master_grave *g, bool tomb,
		       uint64_t gen, uint64_t wall_ns)
{
	g->tomb = tomb;
	g->gen = gen;
	g->wall_ns = wall_ns;
	*(tomb ? &m->ntombs : &m->nghosts) += 1;
	*(tomb ? &m->tomb_bytes : &m->ghost_bytes) += grave_bytes(g);
	pool_list_add_tail(tomb ? &m->tombs : &m->ghosts, &g->age);
	if (!tomb)
		return;
	g->owner = master_owners_of(&m->owners, g->account);
	master_owner_add(&m->owners, g->owner, &g->own, grave_bytes(g));
}

static void unlist_grave(struct master_map *m, struct master_grave *g)
{
	if (g->tomb)
		master_owner_sub(&m->owners, g->owner, &g->own,
				 grave_bytes(g));
	*(g->tomb ? &m->ntombs : &m->nghosts) -= 1;
	*(g->tomb ? &m->tomb_bytes : &m->ghost_bytes) -= grave_bytes(g);
	pool_list_del(&g->age);
}

void master_map_charge(struct master_map *m, struct master_grave *g,
		       struct master_account account)
{
	bool listed = !pool_list_empty(&g->own);

	if (listed)
		master_owner_sub(&m->owners, g->owner, &g->own,
				 grave_bytes(g));
	g->account = account;
	if (!listed)
		return;
	g->owner = master_owners_of(&m->owners, account);
	master_owner_add(&m->owners, g->owner, &g->own, grave_bytes(g));
}

static void grave_is_of(struct master_grave *g, uint32_t uid)
{
	g->uid = uid;
	g->account = master_account_of_owner(uid);
}

/* Put a new grave on its list, and into the feed. */
static void close_grave(struct master_map *m, struct master_grave *g, bool tomb,
			uint64_t gen, uint64_t wall_ns)
{
	list_grave(m, g, tomb, gen, wall_ns);
	master_feed_touch(&m->feed, &g->item);
}

static void drop_grave(struct master_map *m, struct master_grave *g,
		       bool forget)
{
	m->nforgotten += forget;
	if (forget && g->tomb)
		master_owner_lost(&m->owners, g->owner, g->wall_ns,
				  g->item.seq);
	unlist_grave(m, g);
	if (g->former)
		master_feed_drop(&m->feed, &g->item);
	else if (forget)
		master_feed_forget(&m->feed, &g->item);
	else
		master_feed_remove(&m->feed, &g->item);
	pool_hash_remove(g->former ? &m->formers : &m->graves, &g->hash);
	free(g);
}

static void list_former(struct master_map *m, struct master_grave *g,
			uint64_t gen, uint64_t wall_ns)
{
	close_grave(m, g, true, gen, wall_ns);
	if (m->disowned)
		m->disowned(m->arg, g);
}

/* Copies of owners who gave the file away are dead up to gen, too. */
static void raise_formers(struct master_map *m, const char *path, size_t len,
			  uint64_t gen, uint64_t wall_ns)
{
	struct master_grave *g = NULL;

	while ((g = next_given(m, path, len, g))) {
		if (g->gen >= gen)
			continue;
		unlist_grave(m, g);
		list_former(m, g, gen, wall_ns);
	}
}

/* May the name have one more grave with `given`? */
static bool may_give(struct master_map *m, const char *path, size_t len)
{
	struct master_grave *g = NULL;
	unsigned int n = 0;

	while ((g = next_given(m, path, len, g)))
		n++;
	return n < MASTER_GIVEN_MAX;
}

/* Takes the grave g of this former owner off its list; g NULL: makes one. Sets
 * `given` if may_give allows it. NULL: no memory. */
static struct master_grave *take_former(struct master_map *m,
					struct master_grave *g,
					const char *path, size_t len,
					uint32_t uid, bool given)
{
	bool is_new = !g;

	given = (g && g->given) || (given && may_give(m, path, len));
	if (g) {
		unlist_grave(m, g);
		pool_hash_remove(&m->formers, &g->hash);
	} else {
		g = alloc_grave(path, len);
		if (!g)
			return NULL;
		master_item_init(&g->item, MASTER_FORMER);
		g->former = 1;
		g->uid = uid;
	}
	g->given = given;
	if (pool_hash_insert(&m->formers, &g->hash,
			     former_hash(path, len, uid, given))) {
		assert(is_new); /* only the first insert can fail */
		free(g);
		return NULL;
	}
	return g;
}

struct master_grave *master_map_add_former(struct master_map *m,
					   const char *path, size_t len,
					   uint32_t uid,
					   struct master_account account,
					   uint64_t gen, bool given,
					   uint64_t wall_ns)
{
	struct master_grave *g = master_map_former(m, path, len, uid);

	if (g && g->gen >= gen)
		return NULL;
	g = take_former(m, g, path, len, uid, given);
	if (!g) {
		master_owner_lost(&m->owners,
				  master_owners_of(&m->owners, account),
				  wall_ns, m->feed.seq + 1);
		return NULL;
	}
	g->account = account;
	list_former(m, g, gen, wall_ns);
	return g;
}

struct master_grave *master_map_disown(struct master_map *m,
				       const struct master_file *f,
				       uint32_t uid, uint64_t wall_ns)
{
	char path[POOL_PATH_MAX + 1];
	int len = pool_tree_path(&f->e, path, sizeof(path));

	assert(len > 0 && f->gen);
	if (uid == f->uid)
		return NULL;
	return master_map_add_former(m, path, (size_t)len, uid,
				     master_account_of_owner(uid), f->gen - 1,
				     true, wall_ns);
}

/*
 * uid owns the grave's name from now on, and generations up to gen are dead. If
 * the name was deleted, its former owner gets a grave. (Any user may make an
 * evicted name again: nothing is charged to the former owner's account.)
 */
static void pass_grave(struct master_map *m, const struct master_grave *g,
		       uint32_t uid, uint64_t gen)
{
	uint64_t upto = master_grave_upto(g);

	if (g->tomb && g->uid != uid)
		(void)master_map_add_former(m, g->path, g->path_len, g->uid,
					    g->account, upto < gen ? upto : gen,
					    false, g->wall_ns);
}

/* A file needs no grave of its name; a directory keeps that of a file. */
static struct master_grave *detach_grave(struct master_map *m,
					 struct master_grave *g, bool keep)
{
	if (!keep || !master_grave_upto(g)) {
		drop_grave(m, g, false);
		return NULL;
	}
	unlist_grave(m, g);
	master_feed_remove(&m->feed, &g->item);
	pool_hash_remove(&m->graves, &g->hash);
	m->nbelow += g->tomb;
	return g;
}

/* A tombstone of the name covers gen already, perhaps for another owner. */
static int below(struct master_map *m, const struct master_grave *g,
		 struct master_item *i, uint32_t uid, uint64_t gen,
		 uint64_t wall_ns)
{
	if (g->uid != uid &&
	    master_map_add_former(m, g->path, g->path_len, uid,
				  master_account_of_owner(uid), gen, false,
				  wall_ns))
		master_feed_touch(&m->feed, i);
	return 0;
}

static int add_tomb_below(struct master_map *m, struct master_dir *d,
			  const char *path, size_t len, uint32_t uid,
			  uint64_t gen, uint64_t wall_ns)
{
	struct master_grave *g = d->file;

	if (!g)
		g = d->file = alloc_grave(path, len);
	if (!g)
		return -ENOMEM;
	if (g->tomb && g->gen >= gen)
		return below(m, g, &d->item, uid, gen, wall_ns);
	pass_grave(m, g, uid, gen);
	raise_formers(m, path, len, gen, wall_ns);
	g->by_run = g->by_ticket = 0;
	g->blind = 0;
	grave_is_of(g, uid);
	m->nbelow += !g->tomb;
	g->tomb = 1;
	g->gen = gen;
	g->wall_ns = wall_ns;
	return 0;
}

int master_map_add_tomb(struct master_map *m, const char *path, size_t len,
			uint32_t uid, uint64_t gen, uint64_t wall_ns)
{
	struct master_dir *d = master_map_dir(m, path, len);
	struct master_grave *g = master_map_grave(m, path, len);
	uint64_t known_upto;

	if (d)
		return add_tomb_below(m, d, path, len, uid, gen, wall_ns);
	if (!g) {
		g = new_grave(m, path, len);
		if (!g)
			return -ENOMEM;
		grave_is_of(g, uid);
		raise_formers(m, path, len, gen, wall_ns);
		close_grave(m, g, true, gen, wall_ns);
		return 0;
	}
	if (g->tomb && g->gen >= gen)
		return below(m, g, &g->item, uid, gen, wall_ns);
	known_upto = master_grave_upto(g);
	pass_grave(m, g, uid, gen);
	raise_formers(m, path, len, gen, wall_ns);
	g->by_run = g->by_ticket = 0;
	g->blind = 0;
	unlist_grave(m, g);
	grave_is_of(g, uid);
	list_grave(m, g, true, gen, wall_ns);
	/* If subscribers learn nothing new, the grave keeps its place in the
	 * feed: before the removal of its directory. */
	if (gen > known_upto)
		master_feed_touch(&m->feed, &g->item);
	return 0;
}

int master_map_add_evicted(struct master_map *m, const char *path, size_t len,
			   uint32_t uid, uint64_t gen, uint64_t wall_ns)
{
	int err = master_map_add_tomb(m, path, len, uid, gen - 1, wall_ns);
	struct master_grave *g;

	if (err)
		return err;
	g = master_map_grave_below(m, path, len);
	if (g->last_gen < gen) {
		g->last_gen = gen;
		g->last_sum = 0;
		g->evicted = 1;
	}
	return 0;
}

static bool too_many(uint64_t n, uint64_t bytes, uint64_t max)
{
	return n > max || bytes > max * MASTER_GRAVE_BYTES;
}

unsigned int master_map_forget(struct master_map *m, uint64_t before_wall_ns,
			       unsigned int max)
{
	const uint64_t max_weight = m->tombs_max * MASTER_GRAVE_BYTES;
	unsigned int n = 0;

	for (; n < max && too_many(m->nghosts, m->ghost_bytes, m->ghosts_max);
	     n++)
		drop_grave(m,
			   pool_list_first(&m->ghosts, struct master_grave,
					   age),
			   true);
	for (; n < max && !pool_list_empty(&m->tombs); n++) {
		struct master_grave *g =
			pool_list_first(&m->tombs, struct master_grave, age);

		if (too_many(m->ntombs, m->tomb_bytes, m->tombs_max))
			g = pool_container_of(
				master_owners_victim(&m->owners, max_weight),
				struct master_grave, own);
		else if (g->wall_ns >= before_wall_ns)
			break;
		if (m->forgetting)
			m->forgetting(m->arg, g);
		drop_grave(m, g, true);
	}
	return n;
}

/* ---- names ---- */

struct master_file *master_map_file(struct master_map *m, const char *path,
				    size_t len)
{
	struct pool_entry *e = pool_tree_lookup(&m->tree, path, len);

	return e && !e->is_dir ? master_entry_file(e) : NULL;
}

struct master_dir *master_map_dir(struct master_map *m, const char *path,
				  size_t len)
{
	struct pool_entry *e = pool_tree_lookup(&m->tree, path, len);

	return e && e->is_dir ? master_entry_dir(e) : NULL;
}

struct master_top *master_map_top(struct master_map *m,
				  const struct pool_entry *e)
{
	const struct pool_dir *d = e->parent;

	if (!d->e.parent)
		return &m->tops.list[MASTER_TOP_ROOT];
	while (d->e.parent->e.parent)
		d = d->e.parent;
	return &m->tops.list[((const struct master_dir *)d)->top];
}

struct adding {
	struct master_map *map;
	const struct master_attrs *attrs;
	const struct master_attrs *dir_attrs;
	bool made; /* an entry was added */
	bool older; /* the last one added had a tombstone */
};

static void on_add(struct pool_entry *e, void *arg)
{
	struct adding *a = arg;
	struct master_map *m = a->map;
	char path[POOL_PATH_MAX + 1];
	struct master_grave *g = NULL;
	bool was_dir;
	int len;

	if (m->graves.count) {
		len = pool_tree_path(e, path, sizeof(path));
		g = len > 0 ? master_map_grave(m, path, (size_t)len) : NULL;
	}
	a->made = true;
	a->older = g && g->tomb;
	was_dir = g && g->is_dir;
	if (g && !e->is_dir)
		pass_grave(m, g, a->attrs->uid, a->attrs->gen - 1);
	if (g)
		g = detach_grave(m, g, e->is_dir);
	if (e->is_dir) {
		struct master_dir *d = master_entry_dir(e);

		master_item_init(&d->item, MASTER_DIR);
		d->file = g;
		d->mode = a->dir_attrs->mode;
		d->uid = a->dir_attrs->uid;
		d->gid = a->dir_attrs->gid;
		d->mtime_ns = a->dir_attrs->mtime_ns;
		d->payer = d->uid;
		pool_quota_add(&m->quota, d->payer, 1, 0);
		m->ndirs++;
		if (e->parent == m->tree.root)
			d->top = master_tops_add(&m->tops, e);
		master_feed_touch(&m->feed, &d->item);
	} else {
		struct master_file *f = master_entry_file(e);

		master_item_init(&f->item, MASTER_FILE);
		f->was_dir = was_dir;
		f->mode = a->attrs->mode;
		f->uid = a->attrs->uid;
		f->gid = a->attrs->gid;
		f->pin = POOL_PIN_NONE;
		m->nfiles++;
		master_map_top(m, e)->files++;
		master_file_set_mtime(m, f, a->attrs->mtime_ns);
		m->pinned[POOL_PIN_NONE]++;
		m->endangered[MASTER_SAFE]++;
	}
}

static int make(struct master_map *m, const char *path, size_t len, bool is_dir,
		const struct master_attrs *attrs, struct adding *a,
		struct pool_entry **ret)
{
	struct master_attrs implied = *attrs;

	/* Implied directories must not deny access to the file. */
	implied.mode = 0755;
	*a = (struct adding){ .map = m,
			      .attrs = attrs,
			      .dir_attrs = is_dir ? attrs : &implied };
	return pool_tree_make(&m->tree, path, len, is_dir, on_add, a, ret);
}

int master_map_make_file(struct master_map *m, const char *path, size_t len,
			 const struct master_attrs *attrs,
			 struct master_file **ret_file, bool *ret_made)
{
	struct pool_entry *e = NULL;
	struct adding a;
	int err = make(m, path, len, false, attrs, &a, &e);

	if (err)
		return err;
	*ret_file = master_entry_file(e);
	*ret_made = (*ret_file)->item.seq == 0;
	if (*ret_made && a.older) {
		(*ret_file)->had_older = (*ret_file)->was_deleted = 1;
		m->nremade++;
	}
	return 0;
}

int master_map_make_dir(struct master_map *m, const char *path, size_t len,
			const struct master_attrs *attrs,
			struct master_dir **ret_dir, bool *ret_made)
{
	struct pool_entry *e = NULL;
	struct adding a;
	int err = make(m, path, len, true, attrs, &a, &e);

	if (err)
		return err;
	*ret_dir = master_entry_dir(e);
	*ret_made = a.made;
	return 0;
}

void master_map_touch_file(struct master_map *m, struct master_file *f)
{
	master_feed_touch(&m->feed, &f->item);
}

void master_map_touch_dir(struct master_map *m, struct master_dir *d)
{
	master_feed_touch(&m->feed, &d->item);
}

void master_file_set_size(struct master_map *m, struct master_file *f,
			  uint64_t size)
{
	m->bytes += size - f->size;
	master_map_top(m, &f->e)->bytes += size - f->size;
	f->size = size;
}

void master_file_set_mtime(struct master_map *m, struct master_file *f,
			   uint64_t ns)
{
	master_map_top(m, &f->e)->mtimes_s += ns / NS - f->mtime_ns / NS;
	f->mtime_ns = ns;
}

void master_file_set_pin(struct master_map *m, struct master_file *f,
			 enum pool_pin pin)
{
	m->pinned[f->pin]--;
	f->pin = (uint8_t)pin;
	m->pinned[pin]++;
}

void master_file_set_danger(struct master_map *m, struct master_file *f,
			    unsigned int danger)
{
	m->endangered[f->danger]--;
	f->danger = (uint8_t)danger;
	m->endangered[danger]++;
}

int master_map_remove_file(struct master_map *m, struct master_file *f,
			   uint64_t tomb_gen, uint64_t wall_ns)
{
	char path[POOL_PATH_MAX + 1];
	int len = pool_tree_path(&f->e, path, sizeof(path));
	struct master_grave *g;
	uint64_t gen = tomb_gen;

	assert(len > 0);
	assert(!f->extra || !f->extra->need);
	g = new_grave(m, path, (size_t)len);
	if (!g)
		return -ENOMEM;
	if (!gen && f->had_older && f->gen)
		gen = f->gen - 1;
	m->nremade -= f->was_deleted;
	m->nfiles--;
	master_file_set_size(m, f, 0);
	master_file_set_mtime(m, f, 0);
	master_map_top(m, &f->e)->files--;
	m->pinned[f->pin]--;
	m->endangered[f->danger]--;
	/* Not after master_feed_remove: the next item that is touched then must
	 * be the file's grave, because waits for the file pass to that item. */
	if (tomb_gen)
		raise_formers(m, path, (size_t)len, tomb_gen, wall_ns);
	master_feed_remove(&m->feed, &f->item);
	free_entry_parts(&f->e, NULL);
	grave_is_of(g, f->uid);
	g->last_gen = f->gen;
	memcpy(&g->last_sum, f->sum, sizeof(g->last_sum));
	g->evicted = f->evicted;
	g->is_dir = f->was_dir;
	close_grave(m, g, gen != 0, gen, wall_ns);
	pool_tree_remove(&m->tree, &f->e);
	return 0;
}

/* A new one, or that of the file that had the name before. */
static struct master_grave *grave_of_dir(struct master_map *m,
					 struct master_dir *d, const char *path,
					 size_t len)
{
	struct master_grave *g = d->file;

	if (!g)
		return new_grave(m, path, len);
	if (pool_hash_insert(&m->graves, &g->hash, path_hash(path, len)))
		return NULL;
	m->nbelow -= g->tomb;
	d->file = NULL;
	return g;
}

int master_map_remove_dir(struct master_map *m, struct master_dir *d,
			  uint64_t wall_ns)
{
	char path[POOL_PATH_MAX + 1];
	int len = pool_tree_path(&d->d.e, path, sizeof(path));
	struct master_grave *g;

	if (&d->d == m->tree.root)
		return -EBUSY;
	if (d->d.nchildren)
		return -ENOTEMPTY;
	assert(len > 0);
	g = grave_of_dir(m, d, path, (size_t)len);
	if (!g)
		return -ENOMEM;
	g->is_dir = 1;
	pool_quota_sub(&m->quota, d->payer, 1, 0);
	m->ndirs--;
	if (d->d.e.parent == m->tree.root)
		master_tops_remove(&m->tops, d->top);
	master_feed_remove(&m->feed, &d->item);
	free_entry_parts(&d->d.e, NULL);
	/* A tombstone keeps the time at which the file was deleted. */
	close_grave(m, g, g->tomb, g->gen, g->tomb ? g->wall_ns : wall_ns);
	pool_tree_remove(&m->tree, &d->d.e);
	return 0;
}

void master_map_account(struct master_map *m, struct pool_entry *e)
{
	struct master_dir *d = e->is_dir ? master_entry_dir(e) : NULL;
	struct master_extra *x = d ? d->extra : master_entry_file(e)->extra;
	uint32_t uid = d ? d->uid : master_entry_file(e)->uid;

	if (d && e->parent && d->payer != uid) {
		pool_quota_sub(&m->quota, d->payer, 1, 0);
		pool_quota_add(&m->quota, uid, 1, 0);
		d->payer = uid;
	}
	if (x)
		pool_xattrs_charge(x->xattrs, &m->quota, uid);
}

static void check_quota(struct master_map *m)
{
	struct pool_quota q;
	struct pool_entry *e;

	pool_quota_init(&q);
	for (e = &m->tree.root->e; e; e = pool_tree_next(&m->tree, e)) {
		struct master_dir *d = e->is_dir ? master_entry_dir(e) : NULL;
		struct master_file *f = d ? NULL : master_entry_file(e);
		struct master_extra *x = d ? d->extra : f->extra;

		pool_quota_add(&q, d ? d->uid : f->uid, d && e->parent,
			       x ? pool_xattrs_size(x->xattrs) : 0);
	}
	assert(q.used.dirs == m->ndirs);
	assert(pool_quota_equal(&q, &m->quota));
	pool_quota_fini(&q);
}

static void check_graves(const struct master_map *m,
			 const struct pool_list *head, uint64_t n,
			 uint64_t bytes)
{
	struct pool_list *it;

	for (it = head->next; it != head; it = it->next) {
		const struct master_grave *g =
			pool_list_entry(it, struct master_grave, age);

		n--;
		bytes -= grave_bytes(g);
		assert(pool_list_empty(&g->own) == !g->tomb);
		assert(!g->tomb || g->owner == &m->owners.anyone ||
		       master_account_same(g->owner->account, g->account));
	}
	assert(n == 0 && bytes == 0);
}

static void check_tops(struct master_map *m)
{
	struct master_tops got = { .n = 0 };
	struct pool_list *it, *tmp;
	struct master_top *t;

	pool_list_each(it, tmp, &m->feed.items) {
		struct master_item *i =
			pool_list_entry(it, struct master_item, link);
		struct master_file *f = master_item_file(i);

		if (i->kind != MASTER_FILE)
			continue;
		t = &got.list[master_map_top(m, &f->e) - m->tops.list];
		t->files++;
		t->bytes += f->size;
		t->mtimes_s += f->mtime_ns / NS;
	}
	for (unsigned int i = 0; i < MASTER_TOPS_MAX; i++) {
		t = &m->tops.list[i];
		got.n += t->dir != NULL;
		assert(t->files == got.list[i].files);
		assert(t->bytes == got.list[i].bytes);
		assert(t->mtimes_s == got.list[i].mtimes_s);
	}
	assert(got.n == m->tops.n);
}

void master_map_check(struct master_map *m)
{
	uint64_t last = 0, files = 0, dirs = 0, bytes = 0, below = 0;
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &m->feed.items) {
		struct master_item *i =
			pool_list_entry(it, struct master_item, link);

		assert(i->seq > last && i->seq <= m->feed.seq);
		last = i->seq;
		if (i->kind == MASTER_FILE) {
			files++;
			bytes += master_item_file(i)->size;
		}
		dirs += i->kind == MASTER_DIR &&
			&master_item_dir(i)->d != m->tree.root;
		below += i->kind == MASTER_DIR && master_item_dir(i)->file &&
			 master_item_dir(i)->file->tomb;
	}
	assert(below == m->nbelow);
	assert(files == m->nfiles && dirs == m->ndirs && bytes == m->bytes);
	check_tops(m);
	assert(m->graves.count + m->formers.count == m->ntombs + m->nghosts);
	check_graves(m, &m->tombs, m->ntombs, m->tomb_bytes);
	check_graves(m, &m->ghosts, m->nghosts, m->ghost_bytes);
	check_quota(m);
}
