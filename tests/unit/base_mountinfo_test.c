#include "tests/lib/unit.h"

#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "pool/base/mountinfo.h"

static bool parse(const char *text, struct pool_mountinfo *ret)
{
	static char line[512];

	assert_true(strlen(text) < sizeof(line));
	strcpy(line, text);
	return pool_mountinfo_parse(line, ret);
}

static void fields_are_those_of_the_manual(void **state)
{
	struct pool_mountinfo m;

	(void)state;
	assert_true(parse("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 "
			  "- ext3 /dev/root rw,errors=continue\n",
			  &m));
	assert_int_equal(36, m.id);
	assert_string_equal("98:0", m.device);
	assert_string_equal("/mnt1", m.root);
	assert_string_equal("/mnt2", m.point);
	assert_string_equal("ext3", m.type);
	assert_string_equal("/dev/root", m.source);
	assert_string_equal("rw,errors=continue", m.options);
	/* No tags. */
	assert_true(parse("1 2 0:3 / /a rw - fuse.kvpool kvpool rw", &m));
	assert_string_equal("fuse.kvpool", m.type);
	assert_string_equal("rw", m.options);
}

static void escapes_are_decoded(void **state)
{
	struct pool_mountinfo m;

	(void)state;
	assert_true(parse("1 2 0:3 /r\\134 /a\\040b\\011c\\9\\04 rw - t s o",
			  &m));
	assert_string_equal("/r\\", m.root);
	assert_string_equal("/a b\tc\\9\\04", m.point);
}

static void other_lines_are_refused(void **state)
{
	static const char *const lines[] = {
		"", "\n", " - ", "1 2 0:3 / /a rw tmpfs", "1 2 0:3 / - t s o",
		"1 2 0:3 / /a rw - t", "1 2 0:3 / /a rw - t s",
	};
	struct pool_mountinfo m;

	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		assert_false(parse(lines[i], &m));
}

static bool is_proc(const struct pool_mountinfo *m)
{
	return strcmp(m->type, "proc") == 0;
}

static void a_mount_is_found_by_its_id(void **state)
{
	struct statx st;

	(void)state;
	assert_int_equal(0, statx(AT_FDCWD, "/proc", 0, STATX_MNT_ID, &st));
	assert_true(pool_mountinfo_is(st.stx_mnt_id, is_proc));
	assert_int_equal(0, statx(AT_FDCWD, "/tmp", 0, STATX_MNT_ID, &st));
	assert_false(pool_mountinfo_is(st.stx_mnt_id, is_proc));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_are_those_of_the_manual),
		cmocka_unit_test(escapes_are_decoded),
		cmocka_unit_test(other_lines_are_refused),
		cmocka_unit_test(a_mount_is_found_by_its_id),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
