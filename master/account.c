#include "master/account.h"

#include <string.h>
#include <sys/stat.h>

static const struct master_dir *parent_of(struct master_map *m,
					  const char *path, size_t len)
{
	const char *slash = memrchr(path, '/', len);

	return master_map_dir(m, path, slash ? (size_t)(slash - path) : 0);
}

/* Of those who own neither the directory nor the file; false: they may not
 * delete. */
static bool of_others(const struct master_dir *d, struct master_account *ret)
{
	if (d->mode & S_ISVTX || !(d->mode & (S_IWGRP | S_IWOTH)))
		return false;
	*ret = d->mode & S_IWOTH ?
		       (struct master_account){ 0, MASTER_BY_ALL } :
		       (struct master_account){ d->gid, MASTER_BY_GROUP };
	return true;
}

struct master_account master_account_of(struct master_map *m, const char *path,
					size_t len, uint32_t uid, uint32_t by)
{
	const struct master_dir *d = parent_of(m, path, len);
	struct master_account a = master_account_of_owner(uid);

	if (!d || by == uid || by == MASTER_UID_ANYONE ||
	    pool_quota_privileged(&m->quota, by))
		return a;
	if (by == d->uid)
		return (struct master_account){ by, MASTER_BY_DIR };
	(void)of_others(d, &a);
	return a;
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
