/* A store directory, or a part of its path, that belongs to another user or
 * that others may write to. Needs root, to act as two users. */
#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/store/store.h"

#define USER 65534
#define OTHER 65533
#define MIB (1024ull * 1024)

static uv_loop_t loop;
static char *top;

static int on_found(void *arg, uint64_t id, uint64_t size, const void *blob,
		    size_t len)
{
	(void)arg, (void)id, (void)size, (void)blob, (void)len;
	return 0;
}

static void on_closed(void *arg)
{
	*(bool *)arg = true;
}

static int open_at(const char *dir)
{
	struct pool_store_opts o = { .loop = &loop, .dir = dir,
				     .size = 16 * MIB, .plain = true };
	struct pool_store *s = NULL;
	bool closed = false;
	int err = pool_store_open(&o, on_found, NULL, &s);

	if (!err)
		pool_store_close(s, false, on_closed, &closed);
	unit_run_until(&loop, err || closed);
	return err;
}

static void make(const char *path, uid_t owner, mode_t mode)
{
	assert_int_equal(0, mkdir(path, 0700));
	assert_int_equal(0, chown(path, owner, owner));
	assert_int_equal(0, chmod(path, mode));
}

/* Result of an open by `user` of a directory created by `owner`. */
static int opened(uid_t user, uid_t owner, mode_t mode)
{
	char dir[64], file[sizeof(dir) + 16];
	struct stat st;
	int err;

	snprintf(dir, sizeof(dir), "%s/store", top);
	snprintf(file, sizeof(file), "%s/kvpool.store", dir);
	make(dir, owner, mode);
	assert_int_equal(0, seteuid(user));
	err = open_at(dir);
	assert_int_equal(0, seteuid(0));
	assert_int_equal(0, stat(dir, &st));
	if (!err) {
		assert_int_equal(0, st.st_mode & 022);
		assert_int_equal(0, unlink(file));
	}
	assert_int_equal(0, rmdir(dir));
	return err;
}

static int setup(void **state)
{
	(void)state;
	if (getuid() != 0)
		return 0;
	top = unit_dir_make("/tmp/pool_store_users");
	assert_int_equal(0, chmod(top, 0711));
	return uv_loop_init(&loop);
}

static int teardown(void **state)
{
	(void)state;
	if (getuid() != 0)
		return 0;
	unit_dir_remove_empty(top);
	return uv_loop_close(&loop);
}

static void need_root(void)
{
	if (getuid() == 0)
		return;
	print_message("skipped: needs root, to be other users\n");
	skip();
}

static void a_directory_of_another_users_is_refused(void **state)
{
	(void)state;
	need_root();
	assert_int_equal(0, opened(0, 0, 0700));
	assert_int_equal(-EPERM, opened(0, USER, 0777));
	assert_int_equal(-EPERM, opened(OTHER, USER, 0777));
	assert_int_equal(0, opened(USER, USER, 0700));
}

/* Like a tmpfs mounted without a mode. */
static void a_directory_that_others_may_write_is_closed_or_refused(void **state)
{
	(void)state;
	need_root();
	assert_int_equal(0, opened(0, 0, 01777));
	assert_int_equal(0, opened(USER, USER, 0775));
	assert_int_equal(-EPERM, opened(USER, 0, 01777));
}

/* A name in a directory such as /dev/shm, created by another user
 * beforehand. */
static void a_name_that_another_user_made_is_refused(void **state)
{
	char all[64], real[96], link[96], below[112], sub[112];

	(void)state;
	need_root();
	snprintf(all, sizeof(all), "%s/all", top);
	snprintf(real, sizeof(real), "%s/own", top);
	snprintf(link, sizeof(link), "%s/kvpool", all);
	snprintf(below, sizeof(below), "%s/store", link);
	snprintf(sub, sizeof(sub), "%s/store", real);
	make(all, 0, 01777);
	make(real, 0, 0700);
	/* A link to a directory of our own. */
	assert_int_equal(0, symlink(real, link));
	assert_int_equal(0, lchown(link, USER, USER));
	assert_int_equal(-EPERM, open_at(link));
	assert_int_equal(-EPERM, open_at(below));
	assert_int_equal(0, rmdir(real)); /* nothing was created in it */
	assert_int_equal(0, unlink(link));
	/* Our own directory, inside another user's. */
	make(link, USER, 0777);
	make(below, 0, 0700);
	assert_int_equal(-EPERM, open_at(below));
	assert_int_equal(0, rmdir(below));
	assert_int_equal(0, rmdir(link));
	assert_int_equal(0, rmdir(all));
}

static void a_file_that_another_user_made_is_not_taken(void **state)
{
	char dir[64], file[96];

	(void)state;
	need_root();
	snprintf(dir, sizeof(dir), "%s/store", top);
	snprintf(file, sizeof(file), "%s/kvpool.store", dir);
	make(dir, 0, 0700);
	close(open(file, O_CREAT | O_WRONLY, 0644));
	assert_int_equal(0, chown(file, USER, USER));
	assert_int_equal(-EPERM, open_at(dir));
	assert_int_equal(0, unlink(file));
	assert_int_equal(0, rmdir(dir));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_directory_of_another_users_is_refused),
		T(a_directory_that_others_may_write_is_closed_or_refused),
		T(a_name_that_another_user_made_is_refused),
		T(a_file_that_another_user_made_is_not_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
