/*
 * A small set of extended attributes in one allocation, as an entry keeps it:
 * NULL is the empty set.
 *
 * Thread: any; the caller serialises access to one set.
 */
#ifndef POOL_MODEL_XATTRS_H
#define POOL_MODEL_XATTRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/conn/kvpool.pb-c.h"
#include "pool/model/quota.h"

struct pool_xattrs; /* owns its bytes */

void pool_xattrs_free(struct pool_xattrs *x);
/* A copy, which the caller owns; NULL for NULL. 0 or -ENOMEM. */
int pool_xattrs_dup(const struct pool_xattrs *x, struct pool_xattrs **ret_copy);
bool pool_xattrs_equal(const struct pool_xattrs *a,
		       const struct pool_xattrs *b);

/* Bytes that a set counts in a quota; 0 for NULL. */
size_t pool_xattrs_size(const struct pool_xattrs *x);
/* Charges x (NULL: no-op) to uid in q, instead of the uid charged before. q
 * NULL: to nobody. The charge ends when x is freed or replaced by
 * pool_xattrs_set; q is borrowed until then. A copy of x is not charged. */
void pool_xattrs_charge(struct pool_xattrs *x, struct pool_quota *q,
			uint32_t uid);

/* The value (borrowed until the set changes), or NULL. */
const void *pool_xattrs_get(const struct pool_xattrs *x, const char *name,
			    size_t *ret_len);
/*
 * Set one (value NULL: remove). flags: 0, XATTR_CREATE, XATTR_REPLACE.
 * 0, -ENODATA, -EEXIST, -ENOSPC (over POOL_XATTRS_MAX in all), -ENOMEM,
 * -ERANGE (name longer than 255).
 */
int pool_xattrs_set(struct pool_xattrs **x, const char *name,
		    const void *value, size_t len, int flags);
/* Iterates: *cursor starts at 0; false at the end. The results are borrowed
 * until the set changes. */
bool pool_xattrs_next(const struct pool_xattrs *x, size_t *cursor,
		      const char **ret_name, const void **ret_value,
		      size_t *ret_len);

/*
 * To and from protobuf. The array and its messages are one allocation, to be
 * freed with free(*ret_list); names and values are borrowed from x.
 */
int pool_xattrs_to_pb(const struct pool_xattrs *x, Kvpool__Xattr ***ret_list,
		      size_t *ret_n);
/* Validates (count, sizes, names); 0, -EINVAL, -ENOMEM. */
int pool_xattrs_from_pb(Kvpool__Xattr *const *list, size_t n,
			struct pool_xattrs **ret_x);

#endif
