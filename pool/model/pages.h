/*
 * What the JSON pages of nodes and of the master have in common: names as
 * text, and listings of a tree in pages.
 *
 * Thread: any; the caller serialises access to the tree (here: loop).
 *
 * A page ends with a token that says behind which entry E the next one starts:
 * the cookies of the directories from the root's child to E, and E's own, then
 * E's path in hex, "1f.20.3a:6d2f...". By its path E is found at once. If it
 * has gone since, the cookies tell its place, as they grow along each
 * directory. So every entry that is there throughout is listed exactly once.
 */
#ifndef POOL_MODEL_PAGES_H
#define POOL_MODEL_PAGES_H

#include <jansson.h>
#include <stddef.h>

#include "pool/model/tree.h"

/*
 * Bytes as a JSON string, which is UTF-8: of what is none, each byte from 0x80
 * on is written \xNN. NULL on ENOMEM.
 */
json_t *pool_pages_text(const char *s, size_t len);

/* One file as JSON: 0 and *ret_json, NULL to pass it over; or -errno. */
typedef int (*pool_pages_fn)(void *arg, struct pool_entry *e,
			     json_t **ret_json);
/*
 * One page, {"objects": [...], "next": token or null}: at most limit (>= 1)
 * files. prefix: the path of a directory or of one name (slashes around it are
 * dropped), "" or NULL: all. token: that of the page before, "" or NULL: the
 * first page. What is passed over counts to a bound of its own, so a page may
 * be short and yet have a next. 0; -EINVAL if the token is none; -ENOMEM if fn
 * failed or for want of memory.
 */
int pool_pages_list(const struct pool_tree *t, const char *prefix,
		    const char *token, unsigned int limit, pool_pages_fn fn,
		    void *arg, json_t **ret_json);
/* A generation as text: "EPOCH.SEQUENCE". NULL on ENOMEM. */
json_t *pool_pages_generation(uint64_t gen);

#endif
