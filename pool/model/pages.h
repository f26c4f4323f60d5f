/*
 * Shared by the JSON pages of nodes and of the master: names as text, and
 * listings of a tree in pages.
 *
 * Thread: any; the caller serialises access to the tree (here: loop).
 *
 * A page ends with a token, which says where the next page starts: after E, the
 * last entry of this page. The token has the cookies of the directories from
 * the root's child to E, E's own cookie, then E's path, all in hex:
 * "1f.20.3a:6d2f...". The path finds E quickly. If E was removed meanwhile, the
 * cookies give its place, because they grow along each directory. So every
 * entry that exists throughout is listed exactly once.
 */
#ifndef POOL_MODEL_PAGES_H
#define POOL_MODEL_PAGES_H

#include <jansson.h>
#include <stddef.h>

#include "pool/model/tree.h"

/*
 * Bytes as a JSON string. If they are not valid UTF-8, each byte >= 0x80 is
 * written as \xNN. A new reference; NULL on ENOMEM.
 */
json_t *pool_pages_text(const char *s, size_t len);

/* Bounds of an answer: files, and bytes of paths. It is made in one turn of the
 * loop, and may be held for each connection; whoever may publish chooses the
 * length of paths. */
#define POOL_PAGES_FILES 2000u
#define POOL_PAGES_PATHS ((size_t)1 << 19)
/* The length of a path (NULL: 0) as JSON prints it: \u0001 of a control byte */
size_t pool_pages_printed(const char *path);

/* One file as JSON: 0 and *ret_json, a new reference, or NULL to skip the file;
 * or -errno. */
typedef int (*pool_pages_fn)(void *arg, struct pool_entry *e,
			     json_t **ret_json);
/*
 * One page, {"objects": [...], "next": token or null}: at most limit files, 1
 * to POOL_PAGES_FILES (another limit is taken as the nearest of these). prefix:
 * the path of a directory or of one name (slashes around it are dropped), "" or
 * NULL: all. token: that of the page before, "" or NULL: the first page. The
 * entries walked and the bytes of all paths ("path" of a file) are bounded,
 * too, so a page may have fewer than limit files and still a next token. 0;
 * -EINVAL: malformed token; -ENOMEM: fn failed, or no memory.
 */
int pool_pages_list(const struct pool_tree *t, const char *prefix,
		    const char *token, unsigned int limit, pool_pages_fn fn,
		    void *arg, json_t **ret_json);
/* A generation as text: "EPOCH.SEQUENCE". NULL on ENOMEM. */
json_t *pool_pages_generation(uint64_t gen);

#endif
