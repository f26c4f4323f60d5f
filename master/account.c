#include "master/account.h"

#include <assert.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

static const struct master_dir *parent_of(struct master_map *m,
					  const char *path, size_t len)
{
	const char *slash = memrchr(path, '/', len);

	return master_map_dir(m, path, slash ? (size_t)(slash - path) : 0);
}

/* Do the last three bits of mode allow removing names (write and search)? */
static bool may_write(unsigned int mode)
{
	return (mode & (W_OK | X_OK)) == (W_OK | X_OK);
}

/* Groups that a user must be in, without duplicates. Further groups are
 * ignored: directories that differ only in these share an account. */
#define GROUPS_MAX 8u

struct groups {
	uint32_t gid[GROUPS_MAX];
	unsigned int n;
};

static void need_group(struct groups *g, uint32_t gid)
{
	unsigned int i;

	for (i = 0; i < g->n; i++)
		if (g->gid[i] == gid)
			return;
	if (g->n < GROUPS_MAX)
		g->gid[g->n++] = gid;
}

/* For several groups, the id does not depend on their order: all masters must
 * compute the same one. */
static struct master_account account_of_groups(const struct groups *g)
{
	struct master_account a = { 0, MASTER_BY_GROUPS };
	unsigned int i;

	if (!g->n)
		return (struct master_account){ 0, MASTER_BY_ALL };
	if (g->n == 1)
		return (struct master_account){ g->gid[0], MASTER_BY_GROUP };
	for (i = 0; i < g->n; i++)
		a.id += (uint32_t)XXH3_64bits(&g->gid[i], sizeof(g->gid[i]));
	return a;
}

/*
 * The account of users who own neither the directory nor the file; false: they
 * may not delete. If a directory above admits only its group, a user needs that
 * group as well. Each set of groups has its own account, so that a user who is
 * in only some of them cannot use it up.
 */
static bool of_others(const struct master_dir *d, struct master_account *ret)
{
	const struct pool_dir *above = d->d.e.parent;
	struct groups g = { .n = 0 };

	if (d->mode & S_ISVTX)
		return false;
	if (!may_write(d->mode)) {
		if (!may_write(d->mode >> 3))
			return false;
		need_group(&g, d->gid);
	}
	for (; above; above = above->e.parent) {
		d = (const struct master_dir *)above;
		if (d->mode & S_IXOTH)
			continue;
		if (!(d->mode & S_IXGRP))
			return false;
		need_group(&g, d->gid);
	}
	*ret = account_of_groups(&g);
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
	/* `by` may have lost the permission since. */
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
