#include "tests/lib/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pool/base/map.h"

#define LEN 65536u

/* Is the page at `at` included in core dumps? Reads smaps: "BEGIN-END ...",
 * later "VmFlags: rd wr dd ...". */
static bool is_dumped(const void *at)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	bool here = false, found = false, dumped = true;
	unsigned long begin, end;
	char line[512];

	assert_non_null(f);
	while (!found && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
			here = (unsigned long)at >= begin &&
			       (unsigned long)at < end;
		if (!here || strncmp(line, "VmFlags:", 8))
			continue;
		found = true;
		dumped = !strstr(line, " dd");
	}
	fclose(f);
	assert_true(found);
	return dumped;
}

static int file_of(size_t len)
{
	int fd = memfd_create("object", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	return fd;
}

static void a_core_dump_has_no_mapped_object(void **state)
{
	int fd = file_of(LEN);
	unsigned char *plain = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
	unsigned char *map = pool_map_object(LEN, PROT_READ | PROT_WRITE, 0, fd,
					     0);

	(void)state;
	assert_ptr_not_equal(map, MAP_FAILED);
	assert_true(is_dumped(plain)); /* the reverse case, so that the test can
				          fail */
	assert_false(is_dumped(map));
	assert_false(is_dumped(map + LEN - 1));
	map[1] = 7;
	assert_int_equal(plain[1], 7);
	munmap(map, LEN);
	munmap(plain, LEN);
	close(fd);
}

static void what_cannot_be_mapped_fails_as_mmap_does(void **state)
{
	(void)state;
	assert_ptr_equal(pool_map_object(LEN, PROT_READ, 0, -1, 0), MAP_FAILED);
}

static void a_buffer_is_hidden_until_it_is_freed(void **state)
{
	unsigned char *buf = aligned_alloc(LEN, LEN);

	(void)state;
	assert_non_null(buf);
	memset(buf, 1, LEN);
	pool_map_hide(buf, LEN, true);
	assert_false(is_dumped(buf));
	assert_false(is_dumped(buf + LEN - 1));
	pool_map_hide(buf, LEN, false);
	assert_true(is_dumped(buf));
	free(buf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_core_dump_has_no_mapped_object),
		cmocka_unit_test(what_cannot_be_mapped_fails_as_mmap_does),
		cmocka_unit_test(a_buffer_is_hidden_until_it_is_freed),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
