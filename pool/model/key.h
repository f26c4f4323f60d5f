/*
 * Keys of libkvpool as paths of the mount, and back.
 *
 * A key is 0 to POOL_KEY_MAX arbitrary bytes. It becomes a name in its
 * namespace's directory; most keys are that name unchanged. Only what a name
 * cannot contain is escaped with a percent sign:
 *
 * 	NUL				%00
 * 	/				%2F
 * 	. as the first byte of ".", "..", or (in the root) ".kvpool"
 * 					%2E
 * 	the empty key			%0E
 * 	% if 00, 2F, 2E, 0E or 0C follows, at once or after one or more "25"
 * 					%25
 *
 * so "50%" and "a%2" are their own names, "%2F" is "%252F" and "%252F" is
 * "%25252F". A key whose name would have more than 255 bytes is cut into
 * pieces, which are the components of its path. A piece takes as many bytes of
 * the key as fit into 252, where a NUL, / or % counts as three. All pieces but
 * the last are directories, and end in %0C:
 *
 * 	300 times "a"			aaa..(252)..a%0C/aaa..(48)..a
 *
 * Each key has exactly one path. Two keys never have the same path, and the
 * path of one is never a directory in the path of another. pool_key_of_path
 * refuses paths that no key has (such as "%2Ex" or "dir/name").
 *
 * Thread: any, no state.
 */
#ifndef POOL_MODEL_KEY_H
#define POOL_MODEL_KEY_H

#include <stdbool.h>
#include <stddef.h>

#define POOL_KEY_MAX 4000

/* Is the key its own name? (Then nothing has to be copied.) */
bool pool_key_plain(const void *key, size_t len, bool root);
/*
 * The path of a key below its namespace's directory, NUL-terminated; root: that
 * directory is the mount's root. Returns its length, or -ENAMETOOLONG: the key
 * has more than POOL_KEY_MAX bytes, or the path does not fit in cap.
 */
int pool_key_path(const void *key, size_t len, bool root, char *buf,
		  size_t cap);
/* The key of a path below its namespace's directory. Returns the key's length,
 * -EINVAL (no key has this path) or -ENAMETOOLONG. */
int pool_key_of_path(const char *path, size_t len, bool root, void *buf,
		     size_t cap);

#endif
