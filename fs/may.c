/*
 * Permission checks. The kernel makes them (default_permissions) for the file
 * or name that it has cached. If the name shows another file by now, and the
 * request is applied to that one, they are repeated here. Mode bits as in
 * POSIX; there are no ACLs.
 */
#include "fs/fs_priv.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#define GROUPS_MAX 256 /* supplementary groups looked at */

/* UNKNOWN: they cannot be read, or are more than GROUPS_MAX. */
enum in_group { OTHERS, MEMBER, UNKNOWN };

static enum in_group in_group(fuse_req_t req, gid_t gid)
{
	gid_t groups[GROUPS_MAX];
	int n, k;

	if (fuse_req_ctx(req)->gid == gid)
		return MEMBER;
	n = fuse_req_getgroups(req, GROUPS_MAX, groups);
	for (k = 0; k < n && k < GROUPS_MAX; k++)
		if (groups[k] == gid)
			return MEMBER;
	return n < 0 || n > GROUPS_MAX ? UNKNOWN : OTHERS;
}

static struct node_attr shown(fuse_req_t req, const struct pool_entry *e)
{
	return fs_attr_shown(fs_of(req), pool_node_attr(e), e->is_dir);
}

/* want: R_OK, W_OK, X_OK. */
static bool attr_allows(fuse_req_t req, const struct pool_entry *e,
			unsigned int want)
{
	const struct node_attr a = shown(req, e);
	uid_t uid = fuse_req_ctx(req)->uid;
	unsigned int bits = a.mode;

	if (uid == 0)
		return true;
	if (uid == a.uid)
		return (bits >> 6 & want) == want;
	switch (in_group(req, a.gid)) {
	case MEMBER:
		bits >>= 3;
		break;
	case UNKNOWN: /* allow only what both group and others may do */
		bits &= bits >> 3;
		break;
	case OTHERS:
		break;
	}
	return (bits & want) == want;
}

bool fs_may(fuse_req_t req, const struct node_entry *e, int want)
{
	const struct pool_entry *file = node_file_entry(e);
	const struct pool_dir *d = file->parent;

	for (; d; d = d->e.parent)
		if (!attr_allows(req, &d->e, X_OK))
			return false;
	return attr_allows(req, file, (unsigned int)want);
}

bool fs_owns(fuse_req_t req, const struct pool_entry *e)
{
	uid_t uid = fuse_req_ctx(req)->uid;

	return uid == 0 || uid == shown(req, e).uid;
}

bool fs_may_change(fuse_req_t req, const struct node_entry *e)
{
	return fs_owns(req, node_file_entry(e)) && fs_may(req, e, 0);
}

bool fs_may_remove(fuse_req_t req, const struct node_dirent *dir,
		   const struct pool_entry *e)
{
	const struct pool_entry *above = &node_dir_tree(dir)->e;

	return !(shown(req, above).mode & S_ISVTX) || fs_owns(req, above) ||
	       fs_owns(req, e);
}
