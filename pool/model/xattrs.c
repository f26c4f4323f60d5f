#include "pool/model/xattrs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "pool/conn/wire.h"

/* Records follow each other: u16 name length, u16 value length, name, NUL,
 * value. */
struct pool_xattrs {
	uint32_t len;
	uint32_t uid; /* charged */
	struct pool_quota *quota; /* borrows; NULL: nobody is charged */
	uint8_t data[];
};

struct record {
	uint16_t name_len, value_len;
};

static size_t record_size(const struct record *r)
{
	return sizeof(*r) + r->name_len + 1u + r->value_len;
}

size_t pool_xattrs_size(const struct pool_xattrs *x)
{
	return x ? sizeof(*x) + x->len : 0;
}

void pool_xattrs_charge(struct pool_xattrs *x, struct pool_quota *q,
			uint32_t uid)
{
	if (!x || (x->quota == q && x->uid == uid))
		return;
	if (x->quota)
		pool_quota_sub(x->quota, x->uid, 0, pool_xattrs_size(x));
	x->quota = q;
	x->uid = uid;
	if (q)
		pool_quota_add(q, uid, 0, pool_xattrs_size(x));
}

void pool_xattrs_free(struct pool_xattrs *x)
{
	pool_xattrs_charge(x, NULL, 0);
	free(x);
}

int pool_xattrs_dup(const struct pool_xattrs *x, struct pool_xattrs **ret_copy)
{
	struct pool_xattrs *copy = NULL;

	if (x) {
		copy = malloc(sizeof(*x) + x->len);
		if (!copy)
			return -ENOMEM;
		memcpy(copy, x, sizeof(*x) + x->len);
		copy->quota = NULL;
	}
	*ret_copy = copy;
	return 0;
}

bool pool_xattrs_equal(const struct pool_xattrs *a,
		       const struct pool_xattrs *b)
{
	size_t cursor = 0, na = 0, nb = 0, len, other;
	const char *name;
	const void *value, *found;

	while (pool_xattrs_next(b, &cursor, &name, &value, &len))
		nb++;
	for (cursor = 0; pool_xattrs_next(a, &cursor, &name, &value, &len);
	     na++) {
		found = pool_xattrs_get(b, name, &other);
		if (!found || other != len || memcmp(found, value, len) != 0)
			return false;
	}
	return na == nb;
}

bool pool_xattrs_next(const struct pool_xattrs *x, size_t *cursor,
		      const char **ret_name, const void **ret_value,
		      size_t *ret_len)
{
	struct record r;

	if (!x || *cursor >= x->len)
		return false;
	memcpy(&r, x->data + *cursor, sizeof(r));
	*ret_name = (const char *)x->data + *cursor + sizeof(r);
	*ret_value = *ret_name + r.name_len + 1;
	*ret_len = r.value_len;
	*cursor += record_size(&r);
	return true;
}

const void *pool_xattrs_get(const struct pool_xattrs *x, const char *name,
			    size_t *ret_len)
{
	size_t cursor = 0;
	const char *n;
	const void *value;

	while (pool_xattrs_next(x, &cursor, &n, &value, ret_len))
		if (strcmp(n, name) == 0)
			return value;
	return NULL;
}

/* A copy of x without name, with room for `extra` more bytes. */
static struct pool_xattrs *copy_without(const struct pool_xattrs *x,
					const char *name, size_t extra)
{
	struct pool_xattrs *y;
	size_t cursor = 0, from = 0, len;
	const char *n;
	const void *value;

	y = malloc(sizeof(*y) + (x ? x->len : 0) + extra);
	if (!y)
		return NULL;
	y->len = y->uid = 0;
	y->quota = NULL;
	while (pool_xattrs_next(x, &cursor, &n, &value, &len)) {
		if (strcmp(n, name) != 0) {
			memcpy(y->data + y->len, x->data + from,
			       cursor - from);
			y->len += (uint32_t)(cursor - from);
		}
		from = cursor;
	}
	return y;
}

int pool_xattrs_set(struct pool_xattrs **x, const char *name,
		    const void *value, size_t len, int flags)
{
	struct record r;
	struct pool_xattrs *y;
	size_t old_len, name_len = strlen(name);
	bool exists = pool_xattrs_get(*x, name, &old_len) != NULL;

	if (!value && !exists)
		return -ENODATA;
	if (value && (flags & XATTR_CREATE) && exists)
		return -EEXIST;
	if (value && (flags & XATTR_REPLACE) && !exists)
		return -ENODATA;
	if (name_len > 255)
		return -ERANGE;
	if (value && len > POOL_XATTRS_MAX)
		return -ENOSPC;
	r.name_len = (uint16_t)name_len;
	r.value_len = (uint16_t)len;
	y = copy_without(*x, name, value ? record_size(&r) : 0);
	if (!y)
		return -ENOMEM;
	if (value) {
		if (y->len + record_size(&r) > POOL_XATTRS_MAX) {
			free(y);
			return -ENOSPC;
		}
		memcpy(y->data + y->len, &r, sizeof(r));
		memcpy(y->data + y->len + sizeof(r), name, name_len + 1);
		memcpy(y->data + y->len + sizeof(r) + name_len + 1, value,
		       len);
		y->len += (uint32_t)record_size(&r);
	}
	pool_xattrs_free(*x);
	if (y->len == 0) {
		free(y);
		y = NULL;
	}
	*x = y;
	return 0;
}

int pool_xattrs_to_pb(const struct pool_xattrs *x, Kvpool__Xattr ***ret_list,
		      size_t *ret_n)
{
	size_t cursor = 0, n = 0, i, len;
	const char *name;
	const void *value;
	Kvpool__Xattr **list, *items;

	*ret_list = NULL;
	*ret_n = 0;
	while (pool_xattrs_next(x, &cursor, &name, &value, &len))
		n++;
	if (n == 0)
		return 0;
	list = malloc(n * (sizeof(*list) + sizeof(*items)));
	if (!list)
		return -ENOMEM;
	items = (Kvpool__Xattr *)(void *)(list + n);
	cursor = 0;
	for (i = 0; pool_xattrs_next(x, &cursor, &name, &value, &len); i++) {
		kvpool__xattr__init(&items[i]);
		items[i].name = (char *)(uintptr_t)name;
		items[i].value.data = (uint8_t *)(uintptr_t)value;
		items[i].value.len = len;
		list[i] = &items[i];
	}
	*ret_list = list;
	*ret_n = n;
	return 0;
}

int pool_xattrs_from_pb(Kvpool__Xattr *const *list, size_t n,
			struct pool_xattrs **ret_x)
{
	struct pool_xattrs *x = NULL;
	size_t i;
	int err;

	for (i = 0; i < n; i++) {
		static const uint8_t nothing[1];
		const uint8_t *value = list[i]->value.data;

		if (!list[i]->name || list[i]->name[0] == '\0') {
			pool_xattrs_free(x);
			return -EINVAL;
		}
		err = pool_xattrs_set(&x, list[i]->name,
				      value ? value : nothing,
				      list[i]->value.len, 0);
		if (err) {
			pool_xattrs_free(x);
			return err == -ENOMEM ? err : -EINVAL;
		}
	}
	*ret_x = x;
	return 0;
}
