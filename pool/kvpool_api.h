/*
 * libkvpool: what a program can use of KVPool without a daemon's help, beside
 * the files of the mount themselves.
 *
 * Thread: any, no state. Functions return 0 or -errno, and write their results
 * only on success. Symbols and structs declared here stay compatible within one
 * major version; a struct only grows, and says how large its user thinks it is.
 */
#ifndef KVPOOL_API_H
#define KVPOOL_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVPOOL_VERSION "0.1.0"

/* Of the library in use: "0.1.0". */
const char *kvpool_version(void);

/*
 * Can `path` (relative to the mount, no leading slash, NUL-terminated) be the
 * key of an object? 0; -EINVAL (an empty, "." or ".." component, or a leading,
 * trailing or double slash); -ENAMETOOLONG (a component over 255 bytes, or
 * over 4096 in all).
 */
int kvpool_path_check(const char *path);

/* "50G", "50gb", "512MiB", "1.5T" or bytes; units are powers of 1024. 0,
 * -EINVAL or -ERANGE. */
int kvpool_parse_size(const char *text, uint64_t *ret_bytes);

#define KVPOOL_STATE_MAX 32
#define KVPOOL_CHECKSUM_MAX 64
struct kvpool_stat {
	size_t struct_size;  /* in: sizeof(struct kvpool_stat) */
	uint64_t size;	     /* bytes */
	uint64_t generation; /* grows with each rewrite of the name; 0: not
				published yet. Elsewhere it is shown as
				EPOCH.SEQUENCE, the upper 24 and lower 40 bits */
	uint32_t replicas;   /* whole copies known of; 0: not told */
	char state[KVPOOL_STATE_MAX];	    /* "held", "cached", "remote", ... */
	char checksum[KVPOOL_CHECKSUM_MAX]; /* hex XXH3-128; "" not told */
};

/*
 * What the pool knows about the file at `path`, which lies in a mounted pool.
 * 0; -EINVAL (struct_size); -ENOTSUP (not in a pool's mount); -EBADMSG or
 * -ERANGE (attributes that make no sense); -errno as of stat(2) and
 * getxattr(2).
 */
int kvpool_stat(const char *path, struct kvpool_stat *ret_stat);

#ifdef __cplusplus
}
#endif

#endif
