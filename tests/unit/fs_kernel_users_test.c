/*
 * Users, on a kernel that is played: what it has asked permission of is what it
 * knew; where another file is there by now, the mount asks for itself.
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

/* A file of this user's, published. */
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

/* The nodeid of a file of USER's whose name has one of root's now. */
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

/* As through /proc/PID/fd: asked again it is the same nodeid. */
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

/* In more groups than are looked at: perhaps in the file's, too. */
static void who_is_in_many_groups_has_what_members_and_others_have(void **state)
{
	struct world *w = *state;
	gid_t groups[300];
	uint64_t id = replaced(w, "a", 0604), both = replaced(w, "b", 0644);

	for (unsigned int i = 0; i < 300; i++)
		groups[i] = 70000 + i;
	w->k.tid = (uint32_t)gettid(); /* whose groups are looked up */
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

/* What the kernel lets anybody who may write to it set. */
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

/* Changes of a user's that the master has not acknowledged take all that he may
 * have in flight: root's changes of his files go on, and he has no more by
 * changing root's. */
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
	pool_quota_add(q, USER, many, 0); /* as if so many waited */
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
	/* (0644, in a directory of 0666.) */
	assert_int_equal(EACCES, open_again(w, id, O_RDONLY));
}

/* The kernel has looked at the file that had the name before. */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		both(a_nodeid_follows_its_name_to_what_its_user_may),
		both(who_is_in_many_groups_has_what_members_and_others_have),
		both(attributes_are_set_by_their_owner),
		both(rules_are_set_by_their_owner),
		both(root_changes_the_files_of_a_user_who_has_no_more_changes),
		both(a_directory_that_is_closed_closes_what_is_in_it),
		both(the_sticky_root_keeps_what_is_anothers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
