/*
 * Owners and modes, where the mount's options set them (struct fs_ids). The
 * kernel checks callers against what it is shown (default_permissions), and
 * may.c does the same: callers are never mapped for a check. What is stored and
 * sent is the file's own, except the owner and group of a new file or
 * directory.
 *
 * Thread: loop.
 */
#include "fs/fs_priv.h"

#include <sys/stat.h>

static uint32_t shown_mode(const struct fs_ids *ids, uint32_t mode, bool is_dir)
{
	const uint32_t execute = S_IXUSR | S_IXGRP | S_IXOTH;
	uint32_t all = is_dir || mode & execute ? 0777 : 0666;

	if (is_dir && ids->dmode != FS_AS_STORED)
		return ids->dmode;
	return ids->umask == FS_AS_STORED ? mode : all & ~ids->umask;
}

struct node_attr fs_attr_shown(const struct fs *fs, const struct node_attr *a,
			       bool is_dir)
{
	const struct fs_ids *ids = &fs->opts.ids;
	struct node_attr shown = *a;

	if (ids->uid != FS_AS_STORED)
		shown.uid = ids->uid;
	if (ids->gid != FS_AS_STORED)
		shown.gid = ids->gid;
	shown.mode = shown_mode(ids, a->mode, is_dir);
	return shown;
}

struct node_attr fs_attr_new(fuse_req_t req, mode_t mode)
{
	const struct fs_ids *ids = &fs_of(req)->opts.ids;
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	return (struct node_attr){
		.mode = mode & 01777,
		.uid = ids->uid == FS_AS_STORED ? ctx->uid : ids->uid,
		.gid = ids->gid == FS_AS_STORED ? ctx->gid : ids->gid,
		.mtime_ns = fs_write_ns(),
	};
}

uint32_t fs_caller(fuse_req_t req)
{
	const struct fs_ids *ids = &fs_of(req)->opts.ids;
	uid_t uid = fuse_req_ctx(req)->uid;

	return uid == 0 || ids->uid == FS_AS_STORED ? uid : ids->uid;
}
