#include "pool/model/tree.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "pool/model/marks.h"

#define ROOT_COOKIE 1

/* ---- entries ---- */

static struct pool_entry *entry_of(struct pool_list *sibling)
{
	return pool_list_entry(sibling, struct pool_entry, sibling);
}

const char *pool_entry_name(const struct pool_entry *e)
{
	return (const char *)e + e->name_off;
}

static struct pool_entry *entry_alloc(const struct pool_tree *t,
				      const char *name, size_t len,
				      bool is_dir)
{
	size_t size = is_dir ? t->dir_size : t->file_size;
	struct pool_entry *e = calloc(1, size + len);

	if (!e)
		return NULL;
	e->is_dir = is_dir;
	e->name_len = (uint8_t)len;
	e->name_off = (uint16_t)size;
	pool_list_init(&e->sibling);
	memcpy((char *)e + size, name, len);
	if (is_dir)
		pool_list_init(&pool_entry_dir(e)->children);
	return e;
}

/* The directory is part of the seed, so that one name in many directories has
 * many hashes. */
static uint32_t hash_name(const struct pool_dir *dir, const char *name,
			  size_t len)
{
	return (uint32_t)XXH3_64bits_withSeed(
		name, len, dir->e.cookie + pool_hash_seed());
}

/* ---- the tree ---- */

int pool_tree_init(struct pool_tree *t, size_t file_size, size_t dir_size)
{
	struct pool_entry *root;

	assert(file_size >= sizeof(struct pool_entry));
	assert(dir_size >= sizeof(struct pool_dir));
	assert(file_size <= UINT16_MAX && dir_size <= UINT16_MAX);
	*t = (struct pool_tree){
		.file_size = file_size,
		.dir_size = dir_size,
		.next_cookie = ROOT_COOKIE + 1,
	};
	pool_hash_init(&t->hash);
	pool_list_init(&t->walks);
	root = entry_alloc(t, "", 0, true);
	if (!root)
		return -ENOMEM;
	root->cookie = ROOT_COOKIE;
	t->root = pool_entry_dir(root);
	return 0;
}

bool pool_tree_fini_some(struct pool_tree *t, size_t max,
			 void (*free_cb)(struct pool_entry *e, void *arg),
			 void *arg)
{
	struct pool_dir *d = t->root;

	assert(pool_list_empty(&t->walks));
	pool_hash_fini(&t->hash); /* the entries are not touched by it */
	/* Depth first without recursion: d is the deepest directory reached,
	 * and its first child is freed or entered next. */
	while (d && max) {
		struct pool_entry *e = &d->e;

		if (!pool_list_empty(&d->children))
			e = entry_of(d->children.next);
		if (e->is_dir && e != &d->e) {
			d = pool_entry_dir(e);
			continue;
		}
		if (e == &d->e)
			d = e->parent;
		if (e->is_dir)
			pool_marks_fini(pool_entry_dir(e));
		if (free_cb)
			free_cb(e, arg);
		pool_list_del(&e->sibling);
		free(e);
		max--;
	}
	if (!d)
		t->root = NULL;
	return d != NULL;
}

void pool_tree_fini(struct pool_tree *t,
		    void (*free_cb)(struct pool_entry *e, void *arg),
		    void *arg)
{
	pool_tree_fini_some(t, SIZE_MAX, free_cb, arg);
}

static struct pool_entry *find_hashed(const struct pool_tree *t,
				      const struct pool_dir *dir,
				      const char *name, size_t len,
				      uint32_t hash)
{
	struct pool_hash_node *n;

	n = pool_hash_first(&t->hash, hash);
	for (; n; n = pool_hash_next(n)) {
		struct pool_entry *e =
			pool_container_of(n, struct pool_entry, hash);

		if (e->parent == dir && e->name_len == len &&
		    memcmp(pool_entry_name(e), name, len) == 0)
			return e;
	}
	return NULL;
}

struct pool_entry *pool_tree_find(const struct pool_tree *t,
				  const struct pool_dir *dir, const char *name,
				  size_t len)
{
	return find_hashed(t, dir, name, len, hash_name(dir, name, len));
}

#define FIND_AT_ONCE 32

/* Prefetches the whole entry of a file, and the start of its name. */
static void prefetch_entry(const struct pool_tree *t,
			   const struct pool_hash_node *n)
{
	const char *e = (const char *)pool_container_of(
		(struct pool_hash_node *)(uintptr_t)n, struct pool_entry,
		hash);

	for (size_t at = 0; at < t->file_size; at += 64)
		__builtin_prefetch(e + at);
	__builtin_prefetch(e + t->file_size);
}

static void find_some(const struct pool_tree *t, const struct pool_dir *dir,
		      const struct pool_tree_name *names, size_t n,
		      struct pool_entry **ret)
{
	uint32_t hash[FIND_AT_ONCE];
	struct pool_hash_node *first[FIND_AT_ONCE];
	size_t i;

	for (i = 0; i < n; i++) {
		hash[i] = hash_name(dir, names[i].name, names[i].len);
		pool_hash_prefetch(&t->hash, hash[i]);
	}
	for (i = 0; i < n; i++) {
		first[i] = pool_hash_peek(&t->hash, hash[i]);
		if (first[i])
			prefetch_entry(t, first[i]);
	}
	for (i = 0; i < n; i++)
		ret[i] = first[i] ? find_hashed(t, dir, names[i].name,
						names[i].len, hash[i]) :
				    NULL;
}

void pool_tree_find_many(const struct pool_tree *t, const struct pool_dir *dir,
			 const struct pool_tree_name *names, size_t n,
			 struct pool_entry **ret)
{
	size_t k;

	for (; n > 0; names += k, ret += k, n -= k) {
		k = n < FIND_AT_ONCE ? n : FIND_AT_ONCE;
		find_some(t, dir, names, k, ret);
	}
}

struct pool_entry *pool_tree_add(struct pool_tree *t, struct pool_dir *dir,
				 const char *name, size_t len, bool is_dir)
{
	struct pool_entry *e;

	assert(len >= 1 && len <= POOL_NAME_MAX);
	e = entry_alloc(t, name, len, is_dir);
	if (!e)
		return NULL;
	if (pool_hash_insert(&t->hash, &e->hash, hash_name(dir, name, len))) {
		free(e);
		return NULL;
	}
	e->parent = dir;
	e->cookie = t->next_cookie++;
	pool_list_add_tail(&dir->children, &e->sibling);
	dir->nchildren++;
	dir->ndirs += is_dir;
	pool_marks_added(dir, e);
	return e;
}

/* ---- readers ---- */

static struct pool_entry *behind(const struct pool_dir *dir,
				 const struct pool_list *pos)
{
	return pos->next == &dir->children ? NULL : entry_of(pos->next);
}

/* Adds the entries that it walks over to *nsteps. */
static struct pool_entry *after(const struct pool_dir *dir, uint64_t cookie,
				uint64_t *nsteps)
{
	struct pool_entry *e = pool_marks_find(dir, cookie);

	e = behind(dir, e ? &e->sibling : &dir->children);
	for (; e && e->cookie <= cookie; ++*nsteps)
		e = behind(dir, &e->sibling);
	return e;
}

struct pool_entry *pool_tree_after(const struct pool_dir *dir, uint64_t cookie)
{
	uint64_t nsteps = 0;

	return after(dir, cookie, &nsteps);
}

static void reader_find(struct pool_tree_reader *r)
{
	r->next = after(r->dir, r->passed, &r->nsteps);
	r->nremoved = r->dir->nremoved;
}

void pool_tree_reader_open(const struct pool_tree *t, struct pool_dir *dir,
			   struct pool_tree_reader *r)
{
	*r = (struct pool_tree_reader){
		.dir = dir,
		.last_cookie = t->next_cookie - 1,
	};
	reader_find(r);
}

struct pool_entry *pool_tree_reader_peek(struct pool_tree_reader *r)
{
	if (r->nremoved != r->dir->nremoved)
		reader_find(r);
	return r->next && r->next->cookie <= r->last_cookie ? r->next : NULL;
}

void pool_tree_reader_advance(struct pool_tree_reader *r)
{
	struct pool_entry *e = pool_tree_reader_peek(r);

	if (!e)
		return;
	r->passed = e->cookie;
	r->next = behind(r->dir, &e->sibling);
}

void pool_tree_reader_seek(struct pool_tree_reader *r, uint64_t cookie)
{
	if (r->passed == cookie)
		return;
	r->passed = cookie;
	reader_find(r);
}

/* ---- walks ---- */

void pool_tree_walk_open(struct pool_tree *t, struct pool_dir *top,
			 struct pool_tree_walk *w)
{
	w->top = top;
	w->at = &top->e;
	w->leaving = false;
	pool_list_add_tail(&t->walks, &w->link);
}

/* Moves the walk past e and everything below e. */
static void walk_past(struct pool_tree_walk *w, const struct pool_entry *e)
{
	if (e == &w->top->e) {
		w->at = NULL;
		return;
	}
	w->leaving = e->sibling.next == &e->parent->children;
	w->at = w->leaving ? &e->parent->e : entry_of(e->sibling.next);
}

struct pool_entry *pool_tree_walk_step(struct pool_tree_walk *w,
				       bool *ret_leaving)
{
	struct pool_entry *e = w->at;
	struct pool_dir *d;

	if (!e)
		return NULL;
	*ret_leaving = w->leaving;
	d = w->leaving ? NULL : pool_entry_dir(e);
	if (!d)
		walk_past(w, e);
	else if (pool_list_empty(&d->children))
		w->leaving = true;
	else
		w->at = entry_of(d->children.next);
	return e;
}

void pool_tree_walk_close(struct pool_tree_walk *w)
{
	if (!w->top)
		return;
	pool_list_del(&w->link);
	w->top = NULL;
	w->at = NULL;
}

static void walks_leave(struct pool_tree *t, const struct pool_entry *e)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &t->walks) {
		struct pool_tree_walk *w =
			pool_list_entry(it, struct pool_tree_walk, link);

		if (w->at == e)
			walk_past(w, e);
	}
}

void pool_tree_remove(struct pool_tree *t, struct pool_entry *e)
{
	assert(e->parent);
	assert(!e->is_dir || pool_entry_dir(e)->nchildren == 0);
	walks_leave(t, e);
	pool_hash_remove(&t->hash, &e->hash);
	pool_marks_removing(e->parent, e);
	pool_list_del(&e->sibling);
	e->parent->nchildren--;
	e->parent->nremoved++;
	e->parent->ndirs -= e->is_dir;
	free(e);
}

/* ---- paths ---- */

int pool_name_check(const char *name, size_t len)
{
	if (len > POOL_NAME_MAX)
		return -ENAMETOOLONG;
	if (len == 0 || (len == 1 && name[0] == '.') ||
	    (len == 2 && name[0] == '.' && name[1] == '.'))
		return -EINVAL;
	if (memchr(name, '/', len) || memchr(name, 0, len))
		return -EINVAL;
	return 0;
}

/* Length of the component that starts path. */
static size_t component(const char *path, size_t len)
{
	const char *slash = len ? memchr(path, '/', len) : NULL;

	return slash ? (size_t)(slash - path) : len;
}

int pool_path_check(const char *path, size_t len)
{
	if (len > POOL_PATH_MAX)
		return -ENAMETOOLONG;
	for (;;) {
		size_t n = component(path, len);
		int err = pool_name_check(path, n);

		if (err || n == len)
			return err;
		path += n + 1;
		len -= n + 1;
	}
}

struct pool_entry *pool_tree_lookup(const struct pool_tree *t,
				    const char *path, size_t len)
{
	struct pool_entry *e = &t->root->e;

	if (len == 0)
		return e;
	for (;;) {
		size_t n = component(path, len);

		if (!e->is_dir)
			return NULL;
		e = pool_tree_find(t, pool_entry_dir(e), path, n);
		if (!e || n == len)
			return e;
		path += n + 1;
		len -= n + 1;
	}
}

size_t pool_tree_missing(const struct pool_tree *t, const char *path,
			 size_t len)
{
	struct pool_entry *e = &t->root->e;
	size_t missing = 0, n;

	for (; len > 0; path += n, len -= n) {
		n = component(path, len);
		if (e)
			e = e->is_dir ? pool_tree_find(t, pool_entry_dir(e),
						       path, n) : NULL;
		missing += !e;
		n += n < len; /* and its slash */
	}
	return missing;
}

int pool_tree_make(struct pool_tree *t, const char *path, size_t len,
		   bool is_dir,
		   void (*on_add)(struct pool_entry *e, void *arg), void *arg,
		   struct pool_entry **ret_entry)
{
	struct pool_entry *e = &t->root->e;
	int err = len ? pool_path_check(path, len) : 0;

	if (err)
		return err;
	while (len > 0) {
		size_t n = component(path, len);
		bool last = n == len;
		struct pool_dir *dir = pool_entry_dir(e);

		if (!dir)
			return -ENOTDIR;
		e = pool_tree_find(t, dir, path, n);
		if (!e) {
			e = pool_tree_add(t, dir, path, n, !last || is_dir);
			if (!e)
				return -ENOMEM;
			if (on_add)
				on_add(e, arg);
		}
		path += last ? n : n + 1;
		len -= last ? n : n + 1;
	}
	if (!e->is_dir && is_dir)
		return -ENOTDIR;
	if (e->is_dir && !is_dir)
		return -EISDIR;
	*ret_entry = e;
	return 0;
}

int pool_tree_path(const struct pool_entry *e, char *buf, size_t cap)
{
	const struct pool_entry *up;
	size_t len = 0;
	char *p;

	assert(cap >= POOL_PATH_MAX + 1);
	for (up = e; up->parent; up = &up->parent->e) {
		len += up->name_len + (len ? 1u : 0u); /* and a slash */
		if (len > POOL_PATH_MAX)
			return -ENAMETOOLONG;
	}
	p = buf + len;
	*p = 0;
	for (up = e; up->parent; up = &up->parent->e) {
		if (up != e)
			*--p = '/';
		p -= up->name_len;
		memcpy(p, pool_entry_name(up), up->name_len);
	}
	return (int)len;
}

struct pool_entry *pool_tree_next(const struct pool_tree *t,
				  struct pool_entry *e)
{
	struct pool_dir *d;

	if (e->is_dir && !pool_list_empty(&pool_entry_dir(e)->children))
		return pool_list_first(&pool_entry_dir(e)->children,
				       struct pool_entry, sibling);
	while (e != &t->root->e) {
		d = e->parent;
		if (e->sibling.next != &d->children)
			return pool_list_entry(e->sibling.next,
					       struct pool_entry, sibling);
		e = &d->e;
	}
	return NULL;
}
