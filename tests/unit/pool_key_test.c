#include "tests/lib/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/model/key.h"
#include "pool/model/tree.h"

static char path[POOL_PATH_MAX + 1];

/* The path of a key. Asserts that it is valid and leads back to the key. */
static const char *path_of(const void *key, size_t len, bool root)
{
	char back[POOL_KEY_MAX];
	int n = pool_key_path(key, len, root, path, sizeof(path));

	assert_true(n > 0);
	assert_int_equal(strlen(path), n);
	assert_int_equal(pool_path_check(path, (size_t)n), 0);
	assert_int_equal(pool_key_of_path(path, (size_t)n, root, back,
					  sizeof(back)), len);
	assert_memory_equal(back, key, len);
	if (pool_key_plain(key, len, root))
		assert_memory_equal(path, key, len);
	return path;
}

#define is(key, name) \
	assert_string_equal(path_of(key, sizeof(key) - 1, false), name)

static void most_keys_are_their_own_names(void **state)
{
	(void)state;
	is("9f3a.bin", "9f3a.bin");
	is("llama@8@1f00@ab", "llama@8@1f00@ab");
	is("x.tmp", "x.tmp");
	is("50%", "50%");
	is("a%2", "a%2");
	is("%zz%41", "%zz%41");
	is("...", "...");
	is("\377\1\n", "\377\1\n");
	assert_true(pool_key_plain("0123456789abcdef.bin", 20, false));
}

static void what_a_name_cannot_hold_is_escaped(void **state)
{
	(void)state;
	is("a/b", "a%2Fb");
	is("/", "%2F");
	is("a\0b", "a%00b");
	is("", "%0E");
	is(".", "%2E");
	is("..", "%2E.");
	assert_false(pool_key_plain("0123456789/", 11, false));
	assert_false(pool_key_plain("..", 2, false));
}

static void escapes_themselves_are_escaped(void **state)
{
	(void)state;
	is("%2F", "%252F");
	is("%252F", "%25252F");
	is("%25", "%25");
	is("%2%00", "%2%2500");
	is("%%00", "%%2500");
	is("%0E", "%250E");
}

static void the_status_files_directory_is_not_in_the_way(void **state)
{
	(void)state;
	assert_string_equal(path_of(".kvpool", 7, true), "%2Ekvpool");
	assert_string_equal(path_of(".kvpool", 7, false), ".kvpool");
	assert_string_equal(path_of(".kvpoolx", 8, true), ".kvpoolx");
}

static void long_keys_become_several_names(void **state)
{
	char key[POOL_KEY_MAX], want[POOL_PATH_MAX];

	(void)state;
	memset(key, 'a', sizeof(key));
	assert_int_equal(strlen(path_of(key, 255, false)), 255);
	memset(want, 'a', 252);
	strcpy(want + 252, "%0C/aaaa");
	assert_string_equal(path_of(key, 256, false), want);
	path_of(key, sizeof(key), false);
	/* All paths are valid and differ, wherever the special bytes are. */
	for (size_t i = 0; i < 300; i++) {
		memset(key, 'a', 300);
		key[i] = '/';
		path_of(key, 300, false);
		key[i] = '%';
		path_of(key, 300, false);
		memcpy(key + (i < 298 ? i : 297), "%0C", 3);
		path_of(key, 300, false);
	}
	memset(key, 'a', 300);
	key[252] = '.';
	path_of(key, 253 + 3, false);
	memset(key, '.', 254);
	memset(key, 'a', 252);
	key[0] = '/';
	path_of(key, 254, false);
	memset(key, '%', 1300);
	path_of(key, 1300, false);
	for (size_t i = 0; i + 2 <= 1200; i += 2)
		memcpy(key + i, "25", 2);
	key[0] = '%';
	memcpy(key + 1198, "2F", 2);
	path_of(key, 1200, false);
}

static void keys_beyond_the_limit_are_refused(void **state)
{
	char key[POOL_KEY_MAX + 1], small[8];

	(void)state;
	memset(key, 'a', sizeof(key));
	assert_int_equal(pool_key_path(key, sizeof(key), false, path,
				       sizeof(path)), -ENAMETOOLONG);
	memset(key, 0, sizeof(key));
	assert_int_equal(pool_key_path(key, POOL_KEY_MAX, false, path,
				       sizeof(path)), -ENAMETOOLONG);
	assert_int_equal(pool_key_path("12345678", 8, false, small, 8),
			 -ENAMETOOLONG);
	assert_int_equal(pool_key_of_path("123456789", 9, false, small, 8),
			 -ENAMETOOLONG);
}

static void paths_without_a_key_are_recognised(void **state)
{
	static const char *const none[] = { "",	     "a/b",   "%2Ex", "%2E%2E",
					    "a%0E",  "%0C",   "a%0C/b",
					    ".",     "..",    "%2Ekvpool" };
	char key[64];

	(void)state;
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		assert_int_equal(pool_key_of_path(none[i], strlen(none[i]),
						  false, key, sizeof(key)),
				 -EINVAL);
	assert_int_equal(pool_key_of_path(".kvpool", 7, true, key,
					  sizeof(key)), -EINVAL);
	assert_int_equal(pool_key_of_path("a\0b", 3, false, key, sizeof(key)),
			 -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(most_keys_are_their_own_names),
		cmocka_unit_test(what_a_name_cannot_hold_is_escaped),
		cmocka_unit_test(escapes_themselves_are_escaped),
		cmocka_unit_test(the_status_files_directory_is_not_in_the_way),
		cmocka_unit_test(long_keys_become_several_names),
		cmocka_unit_test(keys_beyond_the_limit_are_refused),
		cmocka_unit_test(paths_without_a_key_are_recognised),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
