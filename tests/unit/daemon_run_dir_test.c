#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/run_dir.h"

static char *top, dir[64], sub[128], got[256];

static int setup(void **state)
{
	(void)state;
	top = unit_dir_make("/tmp/run_dir");
	snprintf(dir, sizeof(dir), "%s/run", top);
	snprintf(sub, sizeof(sub), "%s/a", dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	rmdir(sub);
	unlink(sub);
	rmdir(dir);
	unit_dir_remove_empty(top);
	return 0;
}

static int make(void)
{
	return daemon_run_dir_make(dir, "a", got, sizeof(got));
}

static void a_name_is_one_plain_file_name(void **state)
{
	static const char *const good[] = { "a", "gpu-7_B.example.org-7072",
					    "a..", "-" };
	static const char *const bad[] = { "", ".", "..", ".a", "a/b", "/",
					   "a b", "a\n", "a\xc3\xa4", "a:b" };
	char name[DAEMON_NAME_MAX + 2];

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_true(daemon_name_valid(good[i]));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(daemon_name_valid(bad[i]));
	memset(name, 'a', sizeof(name));
	name[DAEMON_NAME_MAX] = '\0';
	assert_true(daemon_name_valid(name));
	name[DAEMON_NAME_MAX] = 'a';
	name[DAEMON_NAME_MAX + 1] = '\0';
	assert_false(daemon_name_valid(name));
}

static void any_host_makes_a_valid_default_name(void **state)
{
	static const char *const hosts[] = {
		"gpu7", ".x", "a b/c", "",
		"a-host-name-as-long-as-linux-lets-one-be-0123456789-"
		"0123456789-x"
	};
	char name[DAEMON_NAME_MAX + 1];

	(void)state;
	for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
		daemon_name_default(hosts[i], 65535, name);
		assert_true(daemon_name_valid(name));
	}
	daemon_name_default("gpu7", 7072, name);
	assert_string_equal(name, "gpu7-7072");
	daemon_name_default(".x/y", 1, name);
	assert_string_equal(name, "_x_y-1");
}

static void the_run_directory_depends_on_the_user(void **state)
{
	char want[64];

	(void)state;
	setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
	assert_int_equal(daemon_run_dir_default(got, sizeof(got)), 0);
	assert_string_equal(got, geteuid() ? "/run/user/7/kvpool" :
					     "/run/kvpool");
	unsetenv("XDG_RUNTIME_DIR");
	snprintf(want, sizeof(want), "/tmp/kvpool-%u", (unsigned)geteuid());
	assert_int_equal(daemon_run_dir_default(got, sizeof(got)), 0);
	assert_string_equal(got, geteuid() ? want : "/run/kvpool");
	assert_int_equal(daemon_run_dir_default(got, 4), -ENAMETOOLONG);
}

static void both_directories_are_made_and_found_again(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(make(), 0);
	assert_string_equal(got, sub);
	assert_int_equal(stat(sub, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(make(), 0);
}

static void what_others_may_change_is_refused(void **state)
{
	(void)state;
	assert_int_equal(make(), 0);
	assert_int_equal(chmod(dir, 0777), 0);
	assert_int_equal(make(), -EPERM);
	assert_int_equal(chmod(dir, 01777), 0);
	assert_int_equal(make(), 0);
	assert_int_equal(chmod(sub, 01777), 0);
	assert_int_equal(make(), -EPERM);
	assert_int_equal(chmod(sub, 0700), 0);
	if (geteuid() == 0) {
		assert_int_equal(chown(sub, 65534, 65534), 0);
		assert_int_equal(make(), -EPERM);
	}
}

static void a_link_in_its_place_is_not_followed(void **state)
{
	(void)state;
	assert_int_equal(mkdir(dir, 0700), 0);
	assert_int_equal(symlink(top, sub), 0);
	assert_int_equal(make(), -ENOTDIR);
}

static void what_cannot_be_made_is_an_error(void **state)
{
	(void)state;
	assert_int_equal(daemon_run_dir_make("/nonexistent/a", "b", got,
					     sizeof(got)),
			 -ENOENT);
	assert_int_equal(daemon_run_dir_make(dir, "a", got, 8), -ENAMETOOLONG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_name_is_one_plain_file_name),
		T(any_host_makes_a_valid_default_name),
		T(the_run_directory_depends_on_the_user),
		T(both_directories_are_made_and_found_again),
		T(what_others_may_change_is_refused),
		T(a_link_in_its_place_is_not_followed),
		T(what_cannot_be_made_is_an_error),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
