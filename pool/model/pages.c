#include "pool/model/pages.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/conn/wire.h"

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

/* The entry after e and everything below e; NULL: the end of top. */
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

struct place {
	uint64_t cookies[DEPTH_MAX];
	size_t n; /* >= 1 */
	char path[POOL_PATH_MAX];
	size_t len;
};

/* Reads 1 to `most` hex digits at *text, and moves *text past them. */
static bool take_hex(const char **text, size_t most, uint64_t *ret_value)
{
	size_t len = strspn(*text, "0123456789abcdef");
	char digits[17];

	if (len == 0 || len > most)
		return false;
	memcpy(digits, *text, len);
	digits[len] = '\0';
	*ret_value = strtoull(digits, NULL, 16);
	*text += len;
	return true;
}

/* "1f.20.3a:6d2f..." */
static bool parse_token(const char *token, struct place *p)
{
	char pair[3] = "";
	uint64_t byte;

	for (p->n = p->len = 0; p->n < DEPTH_MAX; token++) {
		if (!take_hex(&token, 16, &p->cookies[p->n++]))
			return false;
		if (*token != '.')
			break;
	}
	if (*token++ != ':' || !*token)
		return false;
	while (*token && p->len < sizeof(p->path)) {
		const char *two = pair;

		memcpy(pair, token, token[1] ? 2 : 1);
		if (!token[1] || !take_hex(&two, 2, &byte) || *two)
			return false;
		p->path[p->len++] = (char)byte;
		token += 2;
	}
	return !*token;
}

/* The entry at the token's path; NULL if that is missing or another one. */
static struct pool_entry *named(const struct pool_tree *t,
				const struct place *p)
{
	struct pool_entry *e = pool_tree_lookup(t, p->path, p->len);

	return e && e->cookie == p->cookies[p->n - 1] ? e : NULL;
}

/* First child with at least this cookie; NULL: none. */
static struct pool_entry *child_from(const struct pool_dir *dir,
				     uint64_t cookie)
{
	return pool_tree_after(dir, cookie ? cookie - 1 : 0);
}

static bool below(const struct pool_entry *e, const struct pool_entry *top)
{
	for (; e; e = e->parent ? &e->parent->e : NULL)
		if (e == top)
			return true;
	return false;
}

/* First entry after the place that the cookies describe; NULL: the end. */
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

static struct pool_entry *resume(const struct pool_tree *t,
				 const struct place *p,
				 const struct pool_entry *top)
{
	struct pool_entry *e = named(t, p);

	e = e ? pages_next(e, &t->root->e) : behind(t, p->cookies, p->n);
	return e && below(e, top) ? e : NULL;
}

static struct pool_entry *pages_top(const struct pool_tree *t,
				    const char *prefix)
{
	size_t len;

	prefix = prefix ? prefix : "";
	while (*prefix == '/')
		prefix++;
	len = strlen(prefix);
	while (len && prefix[len - 1] == '/')
		len--;
	return pool_tree_lookup(t, prefix, len);
}

json_t *pool_pages_generation(uint64_t gen)
{
	return json_sprintf("%" PRIu64 ".%" PRIu64, pool_gen_epoch(gen),
			    gen & ((UINT64_C(1) << POOL_GEN_SEQ_BITS) - 1));
}

size_t pool_pages_printed(const char *path)
{
	size_t n = 0;

	for (; path && *path; path++)
		n += (unsigned char)*path < 0x20 ? 6 : 1;
	return n;
}

int pool_pages_list(const struct pool_tree *t, const char *prefix,
		    const char *token, unsigned int limit, pool_pages_fn fn,
		    void *arg, json_t **ret_json)
{
	struct pool_entry *top = pages_top(t, prefix), *e = top, *last = NULL;
	json_t *list, *next = NULL, *item;
	size_t paths = 0;
	unsigned int steps;
	struct place place;

	if (limit < 1)
		limit = 1;
	if (limit > POOL_PAGES_FILES)
		limit = POOL_PAGES_FILES;
	steps = 8 * limit + 1000; /* skipped entries cost time, too */
	if (token && *token) {
		if (!parse_token(token, &place))
			return -EINVAL;
		e = top ? resume(t, &place, top) : NULL;
	}
	list = json_array();
	for (; list && e && limit && steps-- && paths < POOL_PAGES_PATHS;
	     e = pages_next(e, top)) {
		last = e;
		item = NULL;
		if (e->is_dir)
			continue;
		if (fn(arg, e, &item) < 0 ||
		    (item && json_array_append_new(list, item))) {
			json_decref(list);
			return -ENOMEM;
		}
		limit -= item != NULL;
		paths += pool_pages_printed(
			json_string_value(json_object_get(item, "path")));
	}
	if (list && e && last)
		next = pages_token(last);
	/* Without a list, json_pack fails and releases its arguments. */
	*ret_json = json_pack("{s:o, s:o}", "objects", list, "next",
			      next ? next : json_null());
	return *ret_json ? 0 : -ENOMEM;
}
