#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "pool/kvpool.h"

static char path[64];

/* A file of five bytes. */
static int setup(void **state)
{
	FILE *f;
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "/tmp/kvtest_api.XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	f = fdopen(fd, "w");
	fputs("hello", f);
	fclose(f);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	return 0;
}

static void set(const char *name, const char *value)
{
	if (setxattr(path, name, value, strlen(value), 0)) {
		print_message("no user attributes in /tmp: %s\n",
			      strerror(errno));
		skip();
	}
}

static void the_version_is_that_of_the_header(void **state)
{
	const char *version = kvpool_version();
	size_t len = strlen(KVPOOL_VERSION);

	(void)state;
	assert_memory_equal(version, KVPOOL_VERSION, len);
	/* A commit, or nothing: from an unpacked archive. */
	assert_true(version[len] == '+' ?
			    strspn(version + len + 1, "0123456789abcdef") >= 7 :
			    version[len] == '\0');
}

static void paths_are_judged_as_the_pool_does(void **state)
{
	(void)state;
	assert_int_equal(kvpool_path_check("a/b.bin"), 0);
	assert_int_equal(kvpool_path_check("/a"), -EINVAL);
	assert_int_equal(kvpool_path_check("a/../b"), -EINVAL);
	assert_int_equal(kvpool_path_check("a//b"), -EINVAL);
	assert_int_equal(kvpool_path_check("a/"), -EINVAL);
}

static void sizes_are_parsed(void **state)
{
	uint64_t bytes = 0;

	(void)state;
	assert_int_equal(kvpool_parse_size("50gb", &bytes), 0);
	assert_int_equal(bytes, (uint64_t)50 << 30);
	assert_int_equal(kvpool_parse_size("12Q", &bytes), -EINVAL);
	assert_int_equal(bytes, (uint64_t)50 << 30);
}

static void a_files_attributes_become_a_struct(void **state)
{
	struct kvpool_stat s = { .struct_size = sizeof(s) };

	(void)state;
	set("user.kvpool.state", "held");
	set("user.kvpool.generation", "3.77");
	set("user.kvpool.replicas", "1");
	set("user.kvpool.holders", "2");
	set("user.kvpool.checksum", "00112233445566778899aabbccddeeff");
	assert_int_equal(kvpool_stat(path, &s), 0);
	assert_int_equal(s.size, 5);
	assert_int_equal(s.generation, (uint64_t)3 << 40 | 77);
	assert_int_equal(s.replicas, 2);
	assert_string_equal(s.state, "held");
	assert_string_equal(s.checksum, "00112233445566778899aabbccddeeff");
}

static void missing_values_are_zero_or_empty(void **state)
{
	struct kvpool_stat s = { .struct_size = sizeof(s), .generation = 1 };

	(void)state;
	set("user.kvpool.state", "writing");
	assert_int_equal(kvpool_stat(path, &s), 0);
	assert_int_equal(s.generation, 0);
	assert_int_equal(s.replicas, 0);
	assert_string_equal(s.checksum, "");
}

static void values_that_make_no_sense_are_refused(void **state)
{
	static const char *const bad[] = { "7",	  "7x",	  "1.",	    ".1",
					   "1.x", "1.-1", "1.2.3", "16777216.1",
					   "1.1099511627776" };
	struct kvpool_stat s = { .struct_size = sizeof(s), .size = 9 };

	(void)state;
	set("user.kvpool.state", "held");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		set("user.kvpool.generation", bad[i]);
		assert_int_equal(kvpool_stat(path, &s), -EBADMSG);
	}
	set("user.kvpool.generation", "1.7");
	set("user.kvpool.checksum", "012345678901234567890123456789012345678901"
				    "2345678901234567890123456789");
	assert_int_equal(kvpool_stat(path, &s), -ERANGE);
	assert_int_equal(s.size, 9);
}

/* What it has more than this version's says nothing. */
static void a_newer_caller_gets_what_there_is(void **state)
{
	struct {
		struct kvpool_stat s;
		char more[8];
	} newer = { .s.struct_size = sizeof(newer), .more = "garbage" };

	(void)state;
	set("user.kvpool.state", "held");
	set("user.kvpool.holders", "2");
	set("user.kvpool.generation", "1.7");
	set("user.kvpool.checksum", "01");
	assert_int_equal(kvpool_stat(path, &newer.s), 0);
	assert_int_equal(newer.s.struct_size, sizeof(newer));
	assert_int_equal(newer.s.replicas, 2);
	assert_int_equal(newer.more[0], 0);
}

static void other_files_and_callers_are_refused(void **state)
{
	struct kvpool_stat s = { .struct_size = sizeof(s) };

	(void)state;
	assert_int_equal(kvpool_stat("/nonexistent/file", &s), -ENOENT);
	assert_int_equal(kvpool_stat(path, &s), -ENOTSUP);
	s.struct_size = 1;
	assert_int_equal(kvpool_stat(path, &s), -EINVAL);
	assert_int_equal(kvpool_stat(NULL, &s), -EINVAL);
	assert_int_equal(kvpool_stat(path, NULL), -EINVAL);
	assert_int_equal(kvpool_path_check(NULL), -EINVAL);
	assert_int_equal(kvpool_parse_size(NULL, &s.size), -EINVAL);
	assert_int_equal(kvpool_parse_size("1", NULL), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(the_version_is_that_of_the_header),
		T(paths_are_judged_as_the_pool_does),
		T(sizes_are_parsed),
		T(a_files_attributes_become_a_struct),
		T(missing_values_are_zero_or_empty),
		T(values_that_make_no_sense_are_refused),
		T(a_newer_caller_gets_what_there_is),
		T(other_files_and_callers_are_refused),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
