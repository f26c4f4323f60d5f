/*
 * Keys of libkvpool as paths of the mount, and back.
 *
 * A key is any bytes, 0 to POOL_KEY_MAX of them; it is a name in its
 * namespace's directory. Most keys are their own name. What a name cannot hold
 * is written with a percent sign, and nothing else is:
 *
 * 	NUL				%00
 * 	/				%2F
 * 	. as the first byte of a name "." or ".."; of ".kvpool" in the root
 * 					%2E
 * 	the empty key			%0E
 * 	%, where it would begin one of these, or a %25 that is followed by
 * 	what would			%25
 *
 * so "50%" and "a%2" are their own names, "%2F" is "%252F" and "%252F" is
 * "%25252F". A key whose name would have more than 255 bytes is cut into
 * pieces: as many bytes as fit into 252, a NUL, / or % counted as three; all
 * pieces but the last are directories, and end in %0C:
 *
 * 	300 times "a"			aaa..(252)..a%0C/aaa..(48)..a
 *
 * Each key has one path, and two keys never have the same, nor one that is a
 * directory of the other's. A path that no key has (say "%2Ex", or "dir/name")
 * is told from the others: pool_key_of_path refuses it.
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
 * is the root. Returns its length, or -ENAMETOOLONG (of the key, or of the path
 * for cap).
 */
int pool_key_path(const void *key, size_t len, bool root, char *buf,
		  size_t cap);
/* The key of a path below its namespace's directory. Its length, or -EINVAL: no
 * key has this path; -ENAMETOOLONG. */
int pool_key_of_path(const char *path, size_t len, bool root, void *buf,
		     size_t cap);

#endif
