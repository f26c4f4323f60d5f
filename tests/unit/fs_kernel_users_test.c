/*
 * Users, with a simulated kernel. The kernel checks permissions against the
 * file that it knows; if another file has the name by now, the mount checks
 * them itself.
 */
#include "tests/lib/unit.h"

#include <errno.h>
#include <grp.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/node/node_priv.h" /* NODE_OPS_MAX */
#include "tests/unit/fs_kernel.h"

#define ROOT FUSE_ROOT_ID
#define USER 1000
#define OTHER 1001

/* A published file of this user. */
static uint64_t publish_as(struct world *w, uint32_t uid, const char *name)
{
	uint64_t id;

	w->k.uid = w->k.gid = uid;
	id = k_publish(w, name, "text");
	w->k.uid = w->k.gid = 0;
	return id;
}

static void setmode(struct world *w, uint64_t id, uint32_t mode)
{
	struct fuse_setattr_in in = { .valid = FATTR_MODE,
				      .mode = S_IFREG | mode };

	assert_int_equal(0, k_wait(w, k_send(w, FUSE_SETATTR, id, &in,
					     sizeof(in), NULL, NULL))->err);
}

/* The nodeid of a file of USER, whose name now belongs to a file of root. */
static uint64_t replaced(struct world *w, const char *name, uint32_t mode)
{
	uint64_t id = publish_as(w, USER, name), now;

	assert_int_equal(0, k_unlink(w, ROOT, name));
	now = publish_as(w, 0, name);
	assert_int_not_equal(id, now);
	setmode(w, now, mode);
	w->k.uid = w->k.gid = USER;
	return id;
}

/* An open by /proc/PID/fd: after ESTALE, the repeated OPEN has the same
 * nodeid. */
static int open_again(struct world *w, uint64_t id, uint32_t flags)
{
	struct k_file f;
	int err = k_open(w, id, flags, &f);

	if (err == ESTALE)
		err = k_open(w, id, flags, &f);
	if (!err)
		k_close(w, &f);
	return err;
}

static int truncate_again(struct world *w, uint64_t id)
{
	int err = k_truncate(w, id, 0);

	return err == ESTALE ? k_truncate(w, id, 0) : err;
}

static int set(struct world *w, uint64_t id, uint32_t valid)
{
	struct fuse_setattr_in in = { .valid = valid,
				      .mode = S_IFREG | 0666 };

	return k_wait(w, k_send(w, FUSE_SETATTR, id, &in, sizeof(in), NULL,
				NULL))->err;
}

static void a_nodeid_follows_its_name_to_what_its_user_may(void **state)
{
	struct world *w = *state;
	uint64_t id = replaced(w, "a", 0600);

	assert_int_equal(EACCES, open_again(w, id, O_RDONLY));
	assert_int_equal(EACCES, open_again(w, id, O_WRONLY));
	assert_int_equal(EACCES, open_again(w, id, O_RDONLY | O_TRUNC));
	assert_int_equal(EACCES, truncate_again(w, id));
	assert_int_equal(3, pool_counter_value(&w->fs->opens_failed));
	w->k.uid = w->k.gid = 0;
	assert_int_equal(0, open_again(w, id, O_RDONLY));
	id = replaced(w, "b", 0604);
	assert_int_equal(EACCES, open_again(w, id, O_RDWR));
	assert_int_equal(0, open_again(w, id, O_RDONLY));
	id = replaced(w, "c", 0640);
	w->k.gid = 0;
	assert_int_equal(EACCES, open_again(w, id, O_WRONLY));
	assert_int_equal(0, open_again(w, id, O_RDONLY));
}

/* The user is in more groups than the mount reads, so the file's group may be
 * one of them. Access is granted only if members of the group and others both
 * have it. */
static void a_user_in_many_groups_gets_what_members_and_others_get(void **state)
{
	struct world *w = *state;
	gid_t groups[300];
	uint64_t id = replaced(w, "a", 0604), both = replaced(w, "b", 0644);

	for (unsigned int i = 0; i < 300; i++)
		groups[i] = 70000 + i;
	w->k.tid = (uint32_t)gettid(); /* the thread whose groups the mount
				          reads */
	assert_int_equal(0, setgroups(300, groups));
	assert_int_equal(EACCES, open_again(w, id, O_RDONLY));
	assert_int_equal(0, open_again(w, both, O_RDONLY));
	assert_int_equal(0, setgroups(0, NULL));
	assert_int_equal(0, open_again(w, id, O_RDONLY));
}

static void attributes_are_set_by_their_owner(void **state)
{
	const uint32_t now = FATTR_ATIME | FATTR_ATIME_NOW | FATTR_MTIME |
			     FATTR_MTIME_NOW;
	struct world *w = *state;
	uint64_t id = replaced(w, "a", 0606);

	assert_int_equal(EPERM, set(w, id, FATTR_MODE));
	assert_int_equal(EPERM, set(w, id, FATTR_MTIME));
	assert_int_equal(0, set(w, id, now));
	w->k.uid = OTHER;
	id = replaced(w, "b", 0600);
	assert_int_equal(EPERM, set(w, id, now));
	w->k.uid = w->k.gid = 0;
	assert_int_equal(0, set(w, id, FATTR_MODE));
}

static int setxattr_of(struct world *w, uint64_t id, const char *name)
{
	struct fuse_setxattr_in in = { .size = 1 };

	return k_wait(w, k_send(w, FUSE_SETXATTR, id, &in,
				FUSE_COMPAT_SETXATTR_IN_SIZE, name, "2"))->err;
}

static int removexattr_of(struct world *w, uint64_t id, const char *name)
{
	return k_wait(w, k_send(w, FUSE_REMOVEXATTR, id, NULL, 0, name,
				NULL))->err;
}

/* The kernel lets everybody who may write to a file set user.* attributes. */
static void rules_are_set_by_their_owner(void **state)
{
	static const char rule[] = "user.kvpool.replicas", other[] = "user.x";
	struct world *w = *state;
	uint64_t ids[3] = { ROOT, publish_as(w, 0, "a") }, own;

	assert_int_equal(0, k_mkdir(w, ROOT, "d", &ids[2]));
	for (int i = 0; i < 3; i++) {
		w->k.uid = w->k.gid = 0;
		assert_int_equal(0, setxattr_of(w, ids[i], rule));
		w->k.uid = w->k.gid = USER;
		assert_int_equal(EPERM, setxattr_of(w, ids[i], rule));
		assert_int_equal(EPERM, removexattr_of(w, ids[i], rule));
		assert_int_equal(0, setxattr_of(w, ids[i], other));
		assert_int_equal(0, removexattr_of(w, ids[i], other));
		w->k.uid = w->k.gid = 0;
		assert_int_equal(0, removexattr_of(w, ids[i], rule));
	}
	own = publish_as(w, USER, "b");
	w->k.uid = w->k.gid = USER;
	assert_int_equal(0, setxattr_of(w, own, rule));
	assert_int_equal(0, removexattr_of(w, own, rule));
	w->k.uid = w->k.gid = OTHER;
	assert_int_equal(EPERM, setxattr_of(w, own, rule));
}

/* Changes that the master has not acked use up a user's limit of changes in
 * flight. Root can still change that user's files, and changes of root's files
 * count against the user who makes them. */
static void root_changes_the_files_of_a_user_who_has_no_more_changes(
	void **state)
{
	struct world *w = *state;
	struct pool_quota *q = &w->m[0].node->changers;
	const unsigned int many = NODE_OPS_MAX / 4;
	uint64_t own, d, roots, none;

	assert_int_equal(0, k_mkdir(w, ROOT, "roots", &roots));
	own = publish_as(w, USER, "a");
	(void)publish_as(w, USER, "b");
	w->k.uid = w->k.gid = USER;
	assert_int_equal(0, k_mkdir(w, ROOT, "d", &d));
	k_until(w, w->m[0].node->nops == 0);
	pool_quota_add(q, USER, many, 0); /* as if that many changes were in
					     flight */
	assert_int_equal(EAGAIN, set(w, own, FATTR_MODE));
	assert_int_equal(EAGAIN, setxattr_of(w, roots, "user.x"));
	assert_int_equal(EAGAIN, k_mkdir(w, ROOT, "e", &none));
	w->k.uid = w->k.gid = 0;
	assert_int_equal(0, set(w, own, FATTR_MODE));
	assert_int_equal(0, setxattr_of(w, own, "user.x"));
	assert_int_equal(0, removexattr_of(w, own, "user.x"));
	assert_int_equal(0, setxattr_of(w, d, "user.kvpool.replicas"));
	assert_int_equal(0, k_rename(w, ROOT, "a", ROOT, "c", 0));
	assert_int_equal(0, k_unlink(w, ROOT, "b"));
	assert_int_equal(0, k_rmdir(w, ROOT, "d"));
	pool_quota_sub(q, USER, many, 0);
	w->k.uid = w->k.gid = USER;
	assert_int_equal(0, setxattr_of(w, roots, "user.x"));
}

static void a_directory_that_is_closed_closes_what_is_in_it(void **state)
{
	struct world *w = *state;
	struct k_file f;
	uint64_t d, id;

	assert_int_equal(0, k_mkdir(w, ROOT, "d", &d));
	assert_int_equal(0, set(w, d, FATTR_MODE)); /* open to all */
	w->k.uid = w->k.gid = USER;
	assert_int_equal(0, k_create(w, d, "a", O_RDWR, &f));
	id = f.nodeid;
	k_close(w, &f);
	assert_int_equal(0, k_unlink(w, d, "a"));
	w->k.uid = w->k.gid = 0;
	assert_int_equal(0, k_create(w, d, "a", O_RDWR, &f));
	k_close(w, &f);
	w->k.uid = w->k.gid = USER;
	/* The file's mode is 0644, but its directory's is 0666. */
	assert_int_equal(EACCES, open_again(w, id, O_RDONLY));
}

/* The mount itself checks: the kernel would check against the file that had the
 * name before. */
static void the_sticky_root_keeps_what_is_anothers(void **state)
{
	struct world *w = *state;
	uint64_t d;

	(void)publish_as(w, 0, "a");
	(void)publish_as(w, USER, "b");
	assert_int_equal(0, k_mkdir(w, ROOT, "d", &d));
	w->k.uid = w->k.gid = USER;
	assert_int_equal(EPERM, k_unlink(w, ROOT, "a"));
	assert_int_equal(EPERM, k_rmdir(w, ROOT, "d"));
	assert_int_equal(EPERM, k_rename(w, ROOT, "a", ROOT, "c", 0));
	assert_int_equal(EPERM, k_rename(w, ROOT, "b", ROOT, "a", 0));
	assert_int_equal(0, k_rename(w, ROOT, "b", ROOT, "c", 0));
	assert_int_equal(0, k_unlink(w, ROOT, "c"));
	w->k.uid = w->k.gid = 0;
	assert_int_equal(0, k_unlink(w, ROOT, "a"));
}

/* ---- owners and modes that the mount's options set ---- */

#define SHOWN 2000

static void assert_shows(struct world *w, uint64_t id, uint32_t uid,
			 uint32_t gid, uint32_t mode)
{
	struct fuse_attr a;

	assert_int_equal(0, k_getattr(w, id, &a));
	assert_int_equal(uid, a.uid);
	assert_int_equal(gid, a.gid);
	assert_int_equal(mode, a.mode & 07777);
}

static void options_set_what_is_shown_and_nothing_else(void **state)
{
	struct world *w = *state;
	struct fs_ids *ids = &w->fs->opts.ids;
	uint64_t f = publish_as(w, USER, "f"), x = publish_as(w, USER, "x"), d;

	setmode(w, f, 0600);
	setmode(w, x, 0700);
	assert_int_equal(0, k_mkdir(w, ROOT, "d", &d));
	ids->uid = SHOWN;
	assert_shows(w, f, SHOWN, USER, 0600);
	assert_shows(w, d, SHOWN, 0, 0755);
	ids->gid = 0; /* 0 is a valid gid, not "unset" */
	assert_shows(w, f, SHOWN, 0, 0600);
	ids->umask = 027;
	assert_shows(w, f, SHOWN, 0, 0640);
	assert_shows(w, x, SHOWN, 0, 0750);
	assert_shows(w, d, SHOWN, 0, 0750);
	assert_shows(w, ROOT, SHOWN, 0, 0750);
	ids->dmode = 01777;
	assert_shows(w, f, SHOWN, 0, 0640);
	assert_shows(w, d, SHOWN, 0, 01777);
	*ids = (struct fs_ids)FS_ALL_AS_STORED;
	assert_shows(w, f, USER, USER, 0600);
	assert_shows(w, d, 0, 0, 0755);
	assert_shows(w, ROOT, 0, 0, 01777);
}

/* Other mounts see the same owner and mode. */
static void what_is_made_is_the_shown_owners_with_the_mode_asked_for(
	void **state)
{
	struct world *w = *state;
	struct fs_ids *ids = &w->fs->opts.ids;
	struct fuse_mknod_in in = { .mode = S_IFREG | 0640 };
	const struct pool_entry *e;
	const struct k_reply *r;
	uint64_t id[3];
	struct k_file f;

	k_start_other(w);
	*ids = (struct fs_ids){ SHOWN, SHOWN + 1, 0, 0777 };
	w->k.uid = w->k.gid = USER;
	r = k_wait(w, k_send(w, FUSE_MKNOD, ROOT, &in, sizeof(in), "n", NULL));
	assert_int_equal(0, r->err);
	assert_int_equal(SHOWN, r->entry.attr.uid);
	id[0] = r->entry.nodeid;
	w->k.inodes[id[0]].nlookup++;
	assert_int_equal(0, k_create(w, ROOT, "f", O_RDWR, &f));
	r = w->k.replies[w->k.unique];
	assert_int_equal(SHOWN, r->create.entry.attr.uid);
	assert_int_equal(SHOWN + 1, r->create.entry.attr.gid);
	assert_int_equal(S_IFREG | 0666, r->create.entry.attr.mode);
	id[1] = f.nodeid;
	k_close(w, &f);
	w->k.uid = w->k.gid = 0; /* root is no exception */
	assert_int_equal(0, k_mkdir(w, ROOT, "d", &id[2]));
	*ids = (struct fs_ids)FS_ALL_AS_STORED;
	assert_shows(w, id[0], SHOWN, SHOWN + 1, 0640);
	assert_shows(w, id[1], SHOWN, SHOWN + 1, 0644);
	assert_shows(w, id[2], SHOWN, SHOWN + 1, 0755);
	k_until(w, k_published(w, "f") &&
		   (e = pool_tree_lookup(pool_node_tree(w->m[1].node), "f",
					 1)) != NULL);
	assert_int_equal(SHOWN, pool_node_attr(e)->uid);
	assert_int_equal(SHOWN + 1, pool_node_attr(e)->gid);
	assert_int_equal(0644, pool_node_attr(e)->mode);
}

static void modes_and_owners_that_are_set_are_stored_not_shown(void **state)
{
	struct world *w = *state;
	struct fuse_setattr_in in = { .valid = FATTR_MODE | FATTR_UID,
				      .mode = S_IFREG | 0700, .uid = OTHER };
	uint64_t id = publish_as(w, USER, "a");
	const struct k_reply *r;

	w->fs->opts.ids = (struct fs_ids){ SHOWN, 0, 022, FS_AS_STORED };
	r = k_wait(w, k_send(w, FUSE_SETATTR, id, &in, sizeof(in), NULL,
			     NULL));
	assert_int_equal(0, r->err);
	assert_int_equal(SHOWN, r->attr.attr.uid);
	assert_int_equal(S_IFREG | 0755, r->attr.attr.mode);
	w->fs->opts.ids = (struct fs_ids)FS_ALL_AS_STORED;
	assert_shows(w, id, OTHER, USER, 0700);
}

/* Where the mount checks permissions itself, it uses the owner and mode that
 * the kernel sees. */
static void callers_are_checked_against_what_is_shown(void **state)
{
	static const char rule[] = "user.kvpool.replicas";
	struct world *w = *state;
	struct fs_ids *ids = &w->fs->opts.ids;
	uint64_t id = replaced(w, "a", 0600), own;

	assert_int_equal(EACCES, open_again(w, id, O_RDONLY));
	ids->umask = 0;
	assert_int_equal(0, open_again(w, id, O_RDWR));
	id = replaced(w, "b", 0666); /* root's, but shown as USER's */
	*ids = (struct fs_ids){ USER, FS_AS_STORED, 0600, FS_AS_STORED };
	assert_int_equal(EACCES, open_again(w, id, O_RDONLY));
	w->k.uid = w->k.gid = OTHER;
	assert_int_equal(0, open_again(w, id, O_RDONLY));
	assert_int_equal(EPERM, setxattr_of(w, ROOT, rule));
	assert_int_equal(0, k_mkdir(w, ROOT, "d", &own));
	assert_int_equal(EPERM, setxattr_of(w, own, rule));
	w->k.uid = USER;
	assert_int_equal(0, setxattr_of(w, own, rule));
	assert_int_equal(0, removexattr_of(w, own, rule));
}

static void the_root_is_as_sticky_as_it_is_shown(void **state)
{
	struct world *w = *state;
	struct fs_ids *ids = &w->fs->opts.ids;

	(void)publish_as(w, USER, "a");
	(void)publish_as(w, USER, "b");
	(void)publish_as(w, 0, "c");
	w->k.uid = w->k.gid = OTHER;
	assert_int_equal(EPERM, k_unlink(w, ROOT, "a"));
	ids->dmode = 0777;
	assert_int_equal(0, k_unlink(w, ROOT, "a"));
	*ids = (struct fs_ids){ OTHER, 0, 0, 01777 };
	assert_int_equal(0, k_rename(w, ROOT, "c", ROOT, "d", 0));
	w->k.uid = w->k.gid = USER; /* the owner as stored */
	assert_int_equal(EPERM, k_unlink(w, ROOT, "b"));
}

static void changes_count_in_the_share_of_the_shown_owner(void **state)
{
	struct world *w = *state;
	struct pool_quota *q = &w->m[0].node->changers;
	const unsigned int many = NODE_OPS_MAX / 4;
	uint64_t d;

	assert_int_equal(0, k_mkdir(w, ROOT, "d", &d));
	w->fs->opts.ids.uid = SHOWN;
	k_until(w, w->m[0].node->nops == 0);
	pool_quota_add(q, SHOWN, many, 0);
	w->k.uid = w->k.gid = USER;
	assert_int_equal(EAGAIN, setxattr_of(w, d, "user.x"));
	w->k.uid = w->k.gid = 0;
	assert_int_equal(0, setxattr_of(w, d, "user.x"));
	pool_quota_sub(q, SHOWN, many, 0);
	k_until(w, w->m[0].node->nops == 0);
	pool_quota_add(q, USER, many, 0);
	w->k.uid = w->k.gid = USER;
	assert_int_equal(0, removexattr_of(w, d, "user.x"));
	pool_quota_sub(q, USER, many, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		both(a_nodeid_follows_its_name_to_what_its_user_may),
		both(a_user_in_many_groups_gets_what_members_and_others_get),
		both(attributes_are_set_by_their_owner),
		both(rules_are_set_by_their_owner),
		both(root_changes_the_files_of_a_user_who_has_no_more_changes),
		both(a_directory_that_is_closed_closes_what_is_in_it),
		both(the_sticky_root_keeps_what_is_anothers),
		both(options_set_what_is_shown_and_nothing_else),
		both(what_is_made_is_the_shown_owners_with_the_mode_asked_for),
		both(modes_and_owners_that_are_set_are_stored_not_shown),
		both(callers_are_checked_against_what_is_shown),
		both(the_root_is_as_sticky_as_it_is_shown),
		both(changes_count_in_the_share_of_the_shown_owner),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
