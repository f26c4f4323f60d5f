/*
 * Parsing of /proc/PID/mountinfo (proc_pid_mountinfo(5)). A line:
 *
 *   36 35 98:0 /root /point rw,noatime shared:1 - ext3 /dev/root rw,errors=cont
 *   ID parent DEVICE ROOT POINT options [tags...] - TYPE source OPTIONS
 *
 * Thread: any, no state.
 */
#ifndef POOL_BASE_MOUNTINFO_H
#define POOL_BASE_MOUNTINFO_H

#include <stdbool.h>
#include <stdint.h>

/* Fields of a line. They point into the line, which must outlive this struct.
 * Octal escapes are decoded. */
struct pool_mountinfo {
	uint64_t id;	     /* as statx(2)'s stx_mnt_id */
	const char *device;  /* "98:0" */
	const char *root;    /* of the mount, in its filesystem */
	const char *point;   /* relative to the process's root */
	const char *type;    /* "ext3", "fuse.kvpool" */
	const char *source;  /* "/dev/root", "none" */
	const char *options; /* of the filesystem */
};

/* Splits a line in place. Allocates nothing, so it may be called after fork(2).
 * False: not a line of mountinfo. */
bool pool_mountinfo_parse(char *line, struct pool_mountinfo *ret);
/* Is there a mount with this id in this process's mount namespace for which
 * is(m) returns true? */
bool pool_mountinfo_is(uint64_t mnt_id,
		       bool (*is)(const struct pool_mountinfo *m));

#endif
