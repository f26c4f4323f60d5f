/* A store's directory that is another user's. Needs root, to be two of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
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
static char top[] = "/tmp/pool_store_users.XXXXXX";

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

/* What its open says, by this user, of a directory that `owner` has made. */
static int opened(uid_t user, uid_t owner)
{
	char dir[sizeof(top) + 8];
	struct pool_store_opts o = { .loop = &loop, .dir = dir,
				     .size = 16 * MIB, .plain = true };
	struct pool_store *s = NULL;
	bool closed = false;
	int err;

	snprintf(dir, sizeof(dir), "%s/store", top);
	assert_int_equal(0, mkdir(dir, 0777));
	assert_int_equal(0, chmod(dir, 0777));
	assert_int_equal(0, chown(dir, owner, owner));
	assert_int_equal(0, seteuid(user));
	err = pool_store_open(&o, on_found, NULL, &s);
	if (!err)
		pool_store_close(s, false, on_closed, &closed);
	while (!err && !closed)
		uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(0, seteuid(0));
	if (!err) {
		char file[sizeof(dir) + 16];

		snprintf(file, sizeof(file), "%s/kvpool.store", dir);
		assert_int_equal(0, unlink(file));
	}
	assert_int_equal(0, rmdir(dir));
	return err;
}

static void a_directory_of_another_users_is_refused(void **state)
{
	(void)state;
	if (getuid() != 0) {
		print_message("skipped: needs root, to be other users\n");
		skip();
	}
	assert_non_null(mkdtemp(top));
	assert_int_equal(0, chmod(top, 0711));
	assert_int_equal(0, uv_loop_init(&loop));
	assert_int_equal(0, opened(0, 0));
	assert_int_equal(-EPERM, opened(0, USER));
	assert_int_equal(-EPERM, opened(OTHER, USER));
	assert_int_equal(0, opened(USER, USER));
	assert_int_equal(0, opened(USER, 0));
	assert_int_equal(0, uv_loop_close(&loop));
	assert_int_equal(0, rmdir(top));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_directory_of_another_users_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
