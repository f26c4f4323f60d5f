#include "master/account.h"

#include <assert.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct master_dir *parent_of(struct master_map *m,
					  const char *path, size_t len)
{
	const char *slash = memrchr(path, '/', len);

	return master_map_dir(m, path, slash ? (size_t)(slash - path) : 0);
}

/* Names are removed with both. The last three bits count. */
static bool may_write(unsigned int mode)
{
	return (mode & (W_OK | X_OK)) == (W_OK | X_OK);
}

/*
 * Of those who own neither the directory nor the file; false: they may not
 * delete. A directory above this one may keep others out, or all but its group.
 */
static bool of_others(const struct master_dir *d, struct master_account *ret)
{
	struct master_account a = { 0, MASTER_BY_ALL };
	const struct pool_dir *above = d->d.e.parent;

	if (d->mode & S_ISVTX)
		return false;
	if (!may_write(d->mode)) {
		if (!may_write(d->mode >> 3))
			return false;
		a = (struct master_account){ d->gid, MASTER_BY_GROUP };
	}
	for (; above; above = above->e.parent) {
		d = (const struct master_dir *)above;
		if (d->mode & S_IXOTH)
			continue;
		if (!(d->mode & S_IXGRP))
			return false;
		if (a.kind == MASTER_BY_ALL)
			a = (struct master_account){ d->gid, MASTER_BY_GROUP };
	}
	*ret = a;
	return true;
}

struct master_account master_account_of(struct master_map *m, const char *path,
					size_t len, uint32_t uid, uint32_t by)
{
	const struct master_dir *d = parent_of(m, path, len);
	struct master_account a;

	if (by == uid || by == MASTER_UID_ANYONE ||
	    pool_quota_privileged(&m->quota, by))
		return master_account_of_owner(uid);
	if (d && by == d->uid)
		return (struct master_account){ by, MASTER_BY_DIR };
	/* His permission may be gone by now. */
	return d && of_others(d, &a) ? a : master_account_of_owner(by);
}

void master_account_replaced(struct master_map *m, const struct master_file *f,
			     uint32_t uid, uint64_t gen, uint32_t by,
			     uint64_t wall_ns)
{
	char path[POOL_PATH_MAX + 1];
	int len = pool_tree_path(&f->e, path, sizeof(path));

	assert(len > 0);
	if (gen && uid != f->uid)
		(void)master_map_add_former(
			m, path, (size_t)len, uid,
			master_account_of(m, path, (size_t)len, uid, by), gen,
			false, wall_ns);
}

void master_account_lost(struct master_map *m, const char *path, size_t len,
			 uint32_t uid, uint64_t *ret_wall_ns, uint64_t *ret_seq)
{
	const struct master_dir *d = parent_of(m, path, len);
	struct master_account a = { d ? d->uid : uid, MASTER_BY_DIR };

	*ret_wall_ns = *ret_seq = 0;
	master_owners_lost(&m->owners, master_account_of_owner(uid),
			   ret_wall_ns, ret_seq);
	master_owners_lost(&m->owners, a, ret_wall_ns, ret_seq);
	if (d && of_others(d, &a))
		master_owners_lost(&m->owners, a, ret_wall_ns, ret_seq);
}
