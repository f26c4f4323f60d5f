/* The memory limit, with fake /proc and cgroup files. */
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/base/memory.h"

#define MIB (1024ull * 1024)
#define V1_NONE "9223372036854771712\n"

static char *root;

static int setup(void **state)
{
	(void)state;
	alarm(10);
	root = unit_dir_make("/tmp/pool_memory_test");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unit_dir_remove(root);
	alarm(0);
	return 0;
}

static void put(const char *path, const char *text)
{
	char full[512];
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *p = strchr(full + strlen(root) + 1, '/'); p != NULL;
	     p = strchr(p + 1, '/')) {
		*p = '\0';
		mkdir(full, 0755);
		*p = '/';
	}
	f = fopen(full, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static uint64_t limit(const char *source_has)
{
	const char *source = NULL;
	uint64_t bytes = 0;

	assert_int_equal(pool_memory_limit_in(root, &bytes, &source), 0);
	assert_non_null(source);
	if (strstr(source, source_has) == NULL)
		fail_msg("source is '%s', not '%s'", source, source_has);
	return bytes;
}

static void meminfo_1_gib(void)
{
	put("/proc/meminfo", "MemTotal:        1048576 kB\n"
			     "MemFree:             100 kB\n");
}

#define V1_MOUNT                                                          \
	"35 31 0:32 / /sys/fs/cgroup/memory rw shared:3 - cgroup cgroup " \
	"rw,memory\n"
#define OTHER_MOUNTS                                                      \
	"23 1 254:0 / / rw,relatime - ext4 /dev/root rw\n"                \
	"33 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
#define V2_MOUNT "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"

static void without_cgroups_it_is_the_machines_memory(void **state)
{
	(void)state;
	meminfo_1_gib();
	assert_int_equal(limit("machine"), 1024 * MIB);
}

static void memory_set_aside_for_huge_pages_does_not_count(void **state)
{
	(void)state;
	put("/proc/meminfo", "MemTotal: 1048576 kB\nHugetlb:  262144 kB\n");
	assert_int_equal(limit("machine"), 768 * MIB);
}

static void unreadable_or_senseless_meminfo_is_an_error(void **state)
{
	const char *source;
	uint64_t bytes = 5;

	(void)state;
	assert_int_equal(pool_memory_limit_in(root, &bytes, &source), -ENOENT);
	put("/proc/meminfo", "nonsense\n");
	assert_int_equal(pool_memory_limit_in(root, &bytes, &source), -EINVAL);
	put("/proc/meminfo", "MemTotal: 10 kB\nHugetlb: 10 kB\n");
	assert_int_equal(pool_memory_limit_in(root, &bytes, &source), -EINVAL);
	assert_int_equal(bytes, 5);
}

static void v1_takes_the_least_limit_up_to_the_root(void **state)
{
	(void)state;
	meminfo_1_gib();
	put("/proc/self/cgroup", "9:name=systemd:/x\n4:memory:/a/b/c\n0::/\n");
	put("/proc/self/mountinfo", OTHER_MOUNTS V1_MOUNT V2_MOUNT);
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", V1_NONE);
	put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "268435456\n");
	put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "536870912\n");
	put("/sys/fs/cgroup/memory/a/b/c/memory.limit_in_bytes", V1_NONE);
	assert_int_equal(limit("(v1)"), 256 * MIB);
	put("/sys/fs/cgroup/memory/a/b/c/memory.limit_in_bytes", "1048576\n");
	assert_int_equal(limit("(v1)"), 1 * MIB);
}

static void v1_without_a_limit_is_the_machines_memory(void **state)
{
	(void)state;
	meminfo_1_gib();
	put("/proc/self/cgroup", "4:cpu,memory:/a\n");
	put("/proc/self/mountinfo", V1_MOUNT);
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", V1_NONE);
	put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", V1_NONE);
	assert_int_equal(limit("machine"), 1024 * MIB);
}

static void v1_in_a_container_whose_group_is_the_mounts_top(void **state)
{
	(void)state;
	meminfo_1_gib();
	put("/proc/self/cgroup", "4:memory:/docker/abc/sub\n");
	put("/proc/self/mountinfo",
	    "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup "
	    "rw,memory\n");
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "67108864\n");
	assert_int_equal(limit("(v1)"), 64 * MIB);
	put("/sys/fs/cgroup/memory/sub/memory.limit_in_bytes", "33554432\n");
	assert_int_equal(limit("(v1)"), 32 * MIB);
	/* A group outside of the mount, whose name has the mount's root as a
	 * prefix. */
	put("/proc/self/cgroup", "4:memory:/docker/abcd/sub\n");
	assert_int_equal(limit("(v1)"), 64 * MIB);
}

static void v1_shows_the_limit_of_hidden_groups(void **state)
{
	(void)state;
	meminfo_1_gib();
	put("/proc/self/cgroup", "4:memory:/\n");
	put("/proc/self/mountinfo", V1_MOUNT);
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", V1_NONE);
	put("/sys/fs/cgroup/memory/memory.stat",
	    "cache 4096\nhierarchical_memory_limit 134217728\n"
	    "hierarchical_memsw_limit 4096\ntotal_cache 8192\n");
	assert_int_equal(limit("(v1)"), 128 * MIB);
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "67108864\n");
	assert_int_equal(limit("(v1)"), 64 * MIB);
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", V1_NONE);
	put("/sys/fs/cgroup/memory/memory.stat",
	    "hierarchical_memory_limit cats\n");
	assert_int_equal(limit("machine"), 1024 * MIB);
}

static void v2_takes_the_least_max_along_the_path(void **state)
{
	(void)state;
	meminfo_1_gib();
	put("/proc/self/cgroup", "0::/k.slice/pod/app\n");
	put("/proc/self/mountinfo", OTHER_MOUNTS V2_MOUNT);
	put("/sys/fs/cgroup/k.slice/memory.max", "max\n");
	put("/sys/fs/cgroup/k.slice/pod/memory.max", "134217728\n");
	put("/sys/fs/cgroup/k.slice/pod/app/memory.max", "max\n");
	assert_int_equal(limit("(v2)"), 128 * MIB);
	put("/sys/fs/cgroup/k.slice/pod/app/memory.max", "67108864\n");
	assert_int_equal(limit("(v2)"), 64 * MIB);
	put("/sys/fs/cgroup/k.slice/memory.max", "4096\n");
	assert_int_equal(limit("(v2)"), 4096);
}

static void v2_in_a_cgroup_namespace_looks_at_the_mounts_top(void **state)
{
	(void)state;
	meminfo_1_gib();
	put("/proc/self/mountinfo", V2_MOUNT);
	put("/sys/fs/cgroup/memory.max", "67108864\n");
	put("/proc/self/cgroup", "0::/\n");
	assert_int_equal(limit("(v2)"), 64 * MIB);
	put("/proc/self/cgroup", "0::/../other\n");
	put("/sys/fs/other/memory.max", "4096\n");
	assert_int_equal(limit("(v2)"), 64 * MIB);
}

static void mount_points_with_blanks_are_understood(void **state)
{
	(void)state;
	meminfo_1_gib();
	put("/proc/self/cgroup", "0::/a\n");
	put("/proc/self/mountinfo",
	    "41 31 0:38 / /sys/my\\040groups rw - cgroup2 none rw\n");
	put("/sys/my groups/a/memory.max", "8388608");
	assert_int_equal(limit("(v2)"), 8 * MIB);
}

static void
what_cannot_be_understood_of_the_cgroups_limits_nothing(void **state)
{
	(void)state;
	meminfo_1_gib();
	put("/proc/self/cgroup", "\n:\n0\n0:\n4:memory\n0::relative\n");
	put("/proc/self/mountinfo", " - \n - cgroup2\n1 2 3 - cgroup2 x\n"
				    "1 2 3 4 5\n");
	assert_int_equal(limit("machine"), 1024 * MIB);
	put("/proc/self/cgroup", "0::/a\n");
	put("/proc/self/mountinfo", V2_MOUNT);
	put("/sys/fs/cgroup/memory.max", "12cats\n");
	put("/sys/fs/cgroup/a/memory.max", "99999999999999999999999\n");
	assert_int_equal(limit("machine"), 1024 * MIB);
}

static void this_machine_has_some_memory(void **state)
{
	const char *source;
	uint64_t bytes;

	(void)state;
	assert_int_equal(pool_memory_limit(&bytes, &source), 0);
	assert_true(bytes > MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(without_cgroups_it_is_the_machines_memory),
		T(memory_set_aside_for_huge_pages_does_not_count),
		T(unreadable_or_senseless_meminfo_is_an_error),
		T(v1_takes_the_least_limit_up_to_the_root),
		T(v1_without_a_limit_is_the_machines_memory),
		T(v1_in_a_container_whose_group_is_the_mounts_top),
		T(v1_shows_the_limit_of_hidden_groups),
		T(v2_takes_the_least_max_along_the_path),
		T(v2_in_a_cgroup_namespace_looks_at_the_mounts_top),
		T(mount_points_with_blanks_are_understood),
		T(what_cannot_be_understood_of_the_cgroups_limits_nothing),
		T(this_machine_has_some_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
