#include "pool/pages.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX (POOL_PATH_MAX / 2 + 1)

json_t *pool_pages_text(const char *s, size_t len)
{
	json_t *j = json_stringn(s, len);
	size_t i, n = 0;
	char *copy;

	if (j)
		return j;
	copy = malloc(4 * len + 1);
	if (!copy)
		return NULL;
	for (i = 0; i < len; i++)
		if (s[i] & (char)0x80)
			n += (size_t)sprintf(copy + n, "\\x%02x",
					     (unsigned int)(uint8_t)s[i]);
		else
			copy[n++] = s[i];
	j = json_stringn(copy, n);
	free(copy);
	return j;
}

/* The entry behind e and all that is below it; NULL: the end of top. */
static struct pool_entry *after(struct pool_entry *e,
				const struct pool_entry *top)
{
	while (e != top) {
		struct pool_dir *dir = e->parent;

		if (e->sibling.next != &dir->children)
			return pool_list_entry(e->sibling.next,
					       struct pool_entry, sibling);
		e = &dir->e;
	}
	return NULL;
}

static struct pool_entry *pages_next(struct pool_entry *e,
				   const struct pool_entry *top)
{
	struct pool_dir *dir = pool_entry_dir(e);

	if (dir && dir->nchildren)
		return pool_list_first(&dir->children, struct pool_entry,
				       sibling);
	return after(e, top);
}

/* ---- tokens ---- */

static json_t *pages_token(const struct pool_entry *e)
{
	char path[POOL_PATH_MAX + 1];
	int i, len = pool_tree_path(e, path, sizeof(path));
	uint64_t cookies[DEPTH_MAX];
	size_t n = 0, used = 0;
	char *buf;
	json_t *j;

	if (len < 0)
		return NULL;
	for (; e->parent && n < DEPTH_MAX; e = &e->parent->e)
		cookies[n++] = e->cookie;
	buf = malloc(n * 17 + 2 + 2 * (size_t)len);
	if (!buf)
		return NULL;
	while (n--)
		used += (size_t)sprintf(buf + used, "%s%" PRIx64,
					used ? "." : "", cookies[n]);
	buf[used++] = ':';
	buf[used] = 0;
	for (i = 0; i < len; i++)
		used += (size_t)sprintf(buf + used, "%02x",
					(unsigned int)(uint8_t)path[i]);
	j = json_string(buf);
	free(buf);
	return j;
}

/* The entry that a token names by path, if it is the same one still. */
static struct pool_entry *named(const struct pool_tree *t, const char *hex,
				uint64_t cookie)
{
	char path[POOL_PATH_MAX];
	struct pool_entry *e;
	unsigned int byte;
	size_t len = 0;

	for (; hex[0] && hex[1] && len < sizeof(path); hex += 2) {
		if (sscanf(hex, "%2x", &byte) != 1)
			return NULL;
		path[len++] = (char)byte;
	}
	e = pool_tree_lookup(t, path, len);
	return e && e->cookie == cookie ? e : NULL;
}

/* First child with at least this cookie; NULL: none. */
static struct pool_entry *child_from(struct pool_dir *dir, uint64_t cookie)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &dir->children) {
		struct pool_entry *e =
			pool_list_entry(it, struct pool_entry, sibling);

		if (e->cookie >= cookie)
			return e;
	}
	return NULL;
}

static bool below(const struct pool_entry *e, const struct pool_entry *top)
{
	for (; e; e = e->parent ? &e->parent->e : NULL)
		if (e == top)
			return true;
	return false;
}

/* First entry behind the place that the cookies tell; NULL: the end. */
static struct pool_entry *behind(const struct pool_tree *t,
				 const uint64_t *cookies, size_t n)
{
	struct pool_entry *root = &t->root->e, *e = root, *child;
	size_t i;

	for (i = 0; i < n && e->is_dir; i++) {
		child = child_from(pool_entry_dir(e), cookies[i]);
		if (!child)
			return after(e, root);
		if (child->cookie != cookies[i])
			return child;
		e = child;
	}
	return pages_next(e, root);
}

static struct pool_entry *resume(const struct pool_tree *t, const char *token,
				 const struct pool_entry *top)
{
	uint64_t cookies[DEPTH_MAX];
	struct pool_entry *e;
	size_t n = 0;
	char *end;

	do {
		cookies[n++] = strtoull(token, &end, 16);
		if (end == token)
			return NULL;
		token = end + 1;
	} while (*end == '.' && n < DEPTH_MAX);
	if (*end != ':')
		return NULL;
	e = named(t, token, cookies[n - 1]);
	e = e ? pages_next(e, &t->root->e) : behind(t, cookies, n);
	return e && below(e, top) ? e : NULL;
}

static struct pool_entry *pages_first(const struct pool_tree *t,
				    const char *prefix, const char *token,
				    struct pool_entry **ret_top)
{
	size_t len;

	prefix = prefix ? prefix : "";
	while (*prefix == '/')
		prefix++;
	len = strlen(prefix);
	while (len && prefix[len - 1] == '/')
		len--;
	*ret_top = pool_tree_lookup(t, prefix, len);
	if (*ret_top && token && *token)
		return resume(t, token, *ret_top);
	return *ret_top;
}

json_t *pool_pages_list(const struct pool_tree *t, const char *prefix,
			const char *token, unsigned int limit,
			pool_pages_fn fn, void *arg)
{
	struct pool_entry *top, *e = pages_first(t, prefix, token, &top);
	/* What is passed over costs time, too. */
	unsigned int steps = 8 * limit + 1000;
	json_t *list = json_array(), *next = NULL, *item;
	struct pool_entry *last = NULL;

	for (; list && e && limit && steps--; e = pages_next(e, top)) {
		last = e;
		item = NULL;
		if (e->is_dir)
			continue;
		if (fn(arg, e, &item) < 0 ||
		    (item && json_array_append_new(list, item))) {
			json_decref(list);
			return NULL;
		}
		limit -= item != NULL;
	}
	if (!list)
		return NULL;
	if (e && last)
		next = pages_token(last);
	return json_pack("{s:o, s:o}", "objects", list, "next",
			 next ? next : json_null());
}
