/*
 * Extended attributes. Those of user.* are stored with the object or directory
 * and known on every node. Among them user.kvpool.* are rules, whose values are
 * checked, or computed (read-only). Other namespaces do not exist here:
 * GETXATTR returns ENODATA before anything else, because the kernel reads
 * security.capability often.
 *
 * Thread: loop.
 */
#include "fs/fs_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The file or directory that a request on this nodeid applies to, or NULL. An
 * unbound nodeid stands for the file that its name shows now, if the caller has
 * the permissions `want` there, too: the kernel checked the older file. */
static struct pool_entry *entry_of(fuse_req_t req, struct fs *fs,
				   fuse_ino_t ino, int want)
{
	struct node_entry *f;
	struct fs_inode *i;

	if (fs_is_proc(ino))
		return NULL;
	i = fs_inode_find(fs, ino);
	f = i->entry ? i->entry : fs_inode_successor(fs, i);
	if (f && !i->entry && !fs_may(req, f, want))
		return NULL;
	return f ? node_file_entry(f) : fs_inode_entry(i);
}

static void reply_value(fuse_req_t req, const void *value, size_t len,
			size_t size)
{
	if (size == 0)
		fuse_reply_xattr(req, len);
	else if (len > size)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, value, len);
}

void fs_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
		 size_t size)
{
	struct fs *fs = fs_count(req, OP_GETXATTR);
	struct pool_entry *e;
	char text[1024];
	const void *value;
	size_t len;
	int n;

	if (strncmp(name, "user.", 5) != 0) {
		fuse_reply_err(req, ENODATA);
		return;
	}
	e = entry_of(req, fs, ino, R_OK);
	if (!e) {
		fuse_reply_err(req, ENODATA);
		return;
	}
	value = pool_xattrs_get(pool_node_xattrs(e), name, &len);
	if (value) {
		reply_value(req, value, len, size);
		return;
	}
	n = pool_node_info(fs->node, e, name, text, sizeof(text));
	if (n < 0)
		fuse_reply_err(req, -n);
	else
		reply_value(req, text, (size_t)n, size);
}

void fs_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct fs *fs = fs_count(req, OP_LISTXATTR);
	struct pool_entry *e = entry_of(req, fs, ino, R_OK);
	char list[2 * POOL_XATTRS_MAX], text[1024];
	size_t len = 0, cursor = 0, vlen, k, n;
	const char *name;
	const void *value;

	while (e && pool_xattrs_next(pool_node_xattrs(e), &cursor, &name,
				     &value, &vlen)) {
		n = strlen(name) + 1;
		memcpy(list + len, name, n);
		len += n;
	}
	for (k = 0; e && pool_node_info_names[k]; k++) {
		if (pool_xattrs_get(pool_node_xattrs(e),
				    pool_node_info_names[k], &vlen) ||
		    pool_node_info(fs->node, e, pool_node_info_names[k], text,
				   sizeof(text)) < 0)
			continue;
		n = strlen(pool_node_info_names[k]) + 1;
		memcpy(list + len, pool_node_info_names[k], n);
		len += n;
	}
	reply_value(req, list, len, size);
}

/*
 * A rule of a directory affects other users' files in it, so only its owner and
 * root may set it, as with the mode. For other attributes the kernel's checks
 * suffice: write permission, and in a sticky directory ownership.
 */
static bool may_rule(fuse_req_t req, const struct pool_entry *e,
		     const char *name)
{
	return strncmp(name, POOL_XATTR_PREFIX, strlen(POOL_XATTR_PREFIX)) ||
	       fs_owns(req, e);
}

/* May this name be set, to this value? 0 or -errno. */
static int check_rule(fuse_req_t req, const struct pool_entry *e,
		      const char *name, const void *value, size_t len)
{
	struct pool_rules r = { 0 };
	const char *accepted = NULL;
	size_t k;
	int err;

	if (strncmp(name, "user.", 5) != 0)
		return -EOPNOTSUPP;
	if (!may_rule(req, e, name))
		return -EPERM;
	if (strncmp(name, POOL_XATTR_PREFIX, strlen(POOL_XATTR_PREFIX)) != 0)
		return 0;
	err = pool_rules_set(&r, name, value, len, e->is_dir, pool_wall_ns(),
			     &accepted);
	for (k = 0; err == -ENOTSUP && pool_node_info_names[k]; k++)
		if (strcmp(name, pool_node_info_names[k]) == 0)
			return -EPERM;
	if (err == -EINVAL)
		pool_info_paced("%s: \"%.*s\" given; accepted: %s", name,
				(int)(len < 64 ? len : 64),
				(const char *)value,
				accepted ? accepted : "see kvpool(7)");
	return err == -ENOTSUP ? -EOPNOTSUPP : err;
}

/* The pin "soft:30s" is relative to now: stored as the time when it ends,
 * "soft@SECONDS" (Unix time). */
static void pin_make_absolute(const char *name, const char **value,
			      size_t *size, char *text, size_t cap)
{
	struct pool_rules r = { 0 };

	if (strcmp(name, POOL_XATTR_PREFIX "pin") != 0 ||
	    pool_rules_set(&r, name, *value, *size, false, pool_wall_ns(),
			   NULL) != 0 || !r.pin_until_ns)
		return;
	*size = (size_t)snprintf(
		text, cap, "soft@%llu",
		(unsigned long long)(r.pin_until_ns + 999999999u) /
			1000000000u);
	*value = text;
}

void fs_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
		 const char *value, size_t size, int flags)
{
	struct fs *fs = fs_change(req, OP_SETXATTR);
	struct pool_entry *e = entry_of(req, fs, ino, W_OK);
	struct fs_pin pin;
	struct node_entry *f;
	char text[32];
	int err;

	if (!e && !fs_is_proc(ino) &&
	    fs_stale_take(fs, (uint32_t)fuse_req_ctx(req)->pid, &pin)) {
		f = fs_inode_path_entry(fs, fs_inode_find(fs, ino));
		fs_stale_unpin(fs, &pin);
		if (!f || !fs_may(req, f, W_OK)) {
			fuse_reply_err(req, f ? EACCES : ENOENT);
			return;
		}
		e = node_file_entry(f);
	}
	if (!e) {
		if (!fs_is_proc(ino))
			fs_stale_sent(fs, (uint32_t)fuse_req_ctx(req)->pid,
				      false, (struct fs_refused){ 0, 0, 0 });
		fuse_reply_err(req, fs_is_proc(ino) ? EPERM : ESTALE);
		return;
	}
	err = check_rule(req, e, name, value, size);
	if (!err) {
		fs_inode_changes(fs, fs_inode_find(fs, ino));
		pin_make_absolute(name, &value, &size, text, sizeof(text));
		err = pool_node_setxattr(fs->node, e, name, value, size,
					 flags);
	}
	if (!err)
		fs_inode_changed(fs, fs_inode_find(fs, ino));
	fuse_reply_err(req, -err);
}

void fs_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct fs *fs = fs_change(req, OP_REMOVEXATTR);
	struct pool_entry *e = entry_of(req, fs, ino, W_OK);
	int err;

	if (!e || strncmp(name, "user.", 5) != 0) {
		fuse_reply_err(req, ENODATA);
		return;
	}
	fs_inode_changes(fs, fs_inode_find(fs, ino));
	err = may_rule(req, e, name) ?
		      pool_node_setxattr(fs->node, e, name, NULL, 0, 0) :
		      -EPERM;
	if (!err)
		fs_inode_changed(fs, fs_inode_find(fs, ino));
	fuse_reply_err(req, -err);
}
