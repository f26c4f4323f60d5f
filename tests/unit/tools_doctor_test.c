#include "tests/lib/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "pool/kvpool.h"
#include "tools/doctor.h"

/* A machine and a node at which nothing is to be found. */
#define GB "1073741824"
static const struct fact {
	const char *path, *text;
} machine[] = {
	{ "/proc/sys/kernel/osrelease", "6.18.44\n" },
	{ "/proc/meminfo", "MemTotal:       25165824 kB\nSwapTotal: 0 kB\n" },
	{ "/proc/sys/vm/swappiness", "60\n" },
	{ "/proc/7/limits",
	  "Limit                     Soft Limit           Hard Limit\n"
	  "Max open files            1048576              1048576    files\n"
	  "Max locked memory         2147483648           2147483648 bytes\n" },
	{ "/proc/7/cgroup", "0::/kubepods/pod1/kvpool\n" },
	{ "/sys/fs/cgroup/kubepods/pod1/kvpool/memory.max", "max\n" },
	{ "/sys/fs/cgroup/kubepods/pod1/memory.max", "4294967296\n" },
	{ "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
	  "always within_size advise [never] deny force\n" },
	{ "/sys/module/haltpoll/parameters/guest_halt_poll_ns", "200000\n" },
	{ "/sys/module/page_reporting/parameters/page_reporting_order",
	  "11\n" },
	{ "/sys/class/net/eth0/mtu", "9000\n" },
	{ "/sys/class/net/eth0/speed", "25000\n" },
};

static char *root;
static json_t *nodes; /* of the next `found`, which takes it; or NULL */
static struct doctor_finding last; /* that it found */

static void put(const char *path, const char *text)
{
	char full[512];
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		mkdir(full, 0700);
		*p = '/';
	}
	f = fopen(full, "we");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void put_machine(void)
{
	for (size_t i = 0; i < sizeof(machine) / sizeof(*machine); i++)
		put(machine[i].path, machine[i].text);
}

static int setup(void **state)
{
	(void)state;
	root = unit_dir_make("/tmp/tools_doctor_test");
	put_machine();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unit_dir_remove(root);
	return 0;
}

static json_t *status_of_node(void)
{
	return json_pack("{s:i, s:s, s:s, s:s, s:{s:I}, s:{s:b, s:s}, s:{s:s, "
			 "s:i}, s:b, "
			 "s:{s:[s]}}",
			 "pid", 7, "data_mode", "passthrough", "mount",
			 "/mnt/kv", "version", kvpool_version(), "store",
			 "size", (json_int_t)1073741824, "master", "connected",
			 1, "address", "h:7070", "links", "protected", "tls",
			 "expires_days", 90, "rdma", 1, "privileges",
			 "capabilities", "sys_admin");
}

/* Sets member (of part, if not NULL) of the status; takes value. */
static json_t *but(const char *part, const char *member, json_t *value)
{
	json_t *status = status_of_node();

	json_object_set_new(part ? json_object_get(status, part) : status,
			    member, value);
	return status;
}

/* What is found, as "name name ". Takes status and devices. */
static const char *found(json_t *status, json_t *devices)
{
	struct doctor d = { .root = root, .status = status,
			    .devices = devices, .nodes = nodes,
			    .interface = "eth0" };
	struct doctor_finding f[DOCTOR_FINDINGS_MAX];
	static char names[512];
	size_t n = doctor_look(&d, f), at = 0;

	names[0] = '\0';
	for (size_t i = 0; i < n; i++) {
		assert_true(f[i].what[0] && f[i].mend[0]);
		assert_true(strlen(f[i].what) < sizeof(f[i].what) - 1);
		at += (size_t)snprintf(names + at, sizeof(names) - at, "%s ",
				       f[i].check);
	}
	if (n)
		last = f[n - 1];
	json_decref(status);
	json_decref(devices);
	json_decref(nodes);
	nodes = NULL;
	return names;
}

static const char *with(const char *path, const char *text)
{
	const char *names;

	put(path, text);
	names = found(status_of_node(), NULL);
	put_machine();
	return names;
}

static void nothing_is_found_on_a_good_machine(void **state)
{
	(void)state;
	assert_string_equal(found(status_of_node(), NULL), "");
	assert_string_equal(
		found(status_of_node(),
		      json_pack("{s:[{s:s, s:n}]}", "devices", "device",
				"mlx5_0", "why_not")),
		"");
}

static void each_fact_of_the_machine_is_found(void **state)
{
	(void)state;
	assert_string_equal(with("/proc/sys/kernel/osrelease", "6.15.2\n"),
			    "kernel ");
	assert_string_equal(with("/proc/meminfo", "MemTotal: 1048576 kB\n"),
			    "memory ");
	assert_string_equal(with("/proc/meminfo", "MemTotal: 25165824 kB\n"
						  "SwapTotal: 1024 kB\n"),
			    "swap ");
	assert_string_equal(
		with("/proc/7/limits",
		     "Max open files            1024       1024\n"
		     "Max locked memory         unlimited  unlimited\n"),
		"open-files ");
	assert_string_equal(
		with("/proc/7/limits",
		     "Max open files            unlimited  unlimited\n"
		     "Max locked memory         8388608    8388608\n"),
		"memlock ");
	assert_string_equal(with("/sys/fs/cgroup/kubepods/pod1/memory.max",
				 GB "\n"),
			    "cgroup ");
	assert_string_equal(
		with("/sys/fs/cgroup/kubepods/pod1/kvpool/memory.max", GB "\n"),
		"cgroup ");
	assert_string_equal(
		with("/sys/kernel/mm/transparent_hugepage/shmem_enabled",
		     "always within_size advise never [deny] force\n"),
		"huge-pages ");
	assert_string_equal(
		with("/sys/module/haltpoll/parameters/guest_halt_poll_ns",
		     "0\n"),
		"haltpoll ");
	assert_string_equal(with("/sys/module/page_reporting/parameters/"
				 "page_reporting_order",
				 "9\n"),
			    "page-reporting ");
	assert_string_equal(with("/sys/class/net/eth0/mtu", "1500\n"), "mtu ");
}

static void each_fact_of_the_daemon_is_found(void **state)
{
	(void)state;
	assert_string_equal(found(but(NULL, "data_mode", json_string("served")),
				  NULL),
			    "passthrough ");
	assert_string_equal(found(but(NULL, "version", json_string("0.1.0")),
				  NULL),
			    "version ");
	assert_string_equal(found(but("master", "connected", json_false()),
				  NULL),
			    "master ");
	assert_string_equal(found(but("links", "protected",
				      json_string("insecure")),
				  NULL),
			    "links ");
	assert_string_equal(found(but("links", "expires_days",
				      json_integer(13)),
				  NULL),
			    "certificate ");
	assert_string_equal(
		found(status_of_node(),
		      json_pack("{s:[{s:s, s:s}]}", "devices", "device",
				"mlx5_0", "why_not", "its port is down")),
		"rdma ");
}

static void add_node(const char *name, const char *version, bool alive)
{
	if (!nodes)
		nodes = json_pack("{s:[]}", "nodes");
	json_array_append_new(json_object_get(nodes, "nodes"),
			      json_pack("{s:s, s:s, s:b}", "name", name,
					"version", version, "alive", alive));
}

static void other_versions_in_the_pool_are_named(void **state)
{
	char name[64];

	(void)state;
	/* The same; of an older version, which does not tell; away. */
	add_node("a", kvpool_version(), true);
	add_node("b", "", true);
	add_node("c", "0.1.0", false);
	assert_string_equal(found(but("master", "version", json_string("")),
				  NULL), "");
	assert_string_equal(found(but("master", "version",
				      json_string(kvpool_version())),
				  NULL), "");
	assert_string_equal(found(but("master", "version",
				      json_string("0.1.0")),
				  NULL), "versions ");
	assert_non_null(strstr(last.what, "(the master 0.1.0)"));
	assert_int_equal(DOCTOR_SAFETY, last.cost);
	assert_non_null(strstr(last.mend, "kvpool restart"));
	add_node("a", kvpool_version(), true);
	add_node("b", "0.1.0", true);
	add_node("c", "0.3.0", true);
	assert_string_equal(found(status_of_node(), NULL), "versions ");
	assert_non_null(strstr(last.what, "(b 0.1.0, c 0.3.0)"));
	/* Names that leave no room are counted. */
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "%063d", i);
		add_node(name,
			 "01234567890123456789012345678901234567890123456",
			 true);
	}
	assert_string_equal(found(status_of_node(), NULL), "versions ");
	assert_non_null(strstr(last.what, "0001 0123"));
	assert_non_null(strstr(last.what, " and 998 more)"));
}

static void a_clock_that_differs_is_found(void **state)
{
	(void)state;
	assert_string_equal(found(but("master", "clock_ahead_ms", json_null()),
				  NULL), "");
	assert_string_equal(found(but("master", "clock_ahead_ms",
				      json_integer(2000)),
				  NULL), "");
	assert_string_equal(found(but("master", "clock_ahead_ms",
				      json_integer(-2000)),
				  NULL), "");
	assert_string_equal(found(but("master", "clock_ahead_ms",
				      json_integer(2100)),
				  NULL), "clock ");
	assert_non_null(strstr(last.what, "2.1 s ahead of the master's"));
	assert_non_null(strstr(last.mend, "chrony"));
	assert_string_equal(found(but("master", "clock_ahead_ms",
				      json_integer(-86400000)),
				  NULL), "clock ");
	assert_non_null(strstr(last.what, "86400.0 s behind the master's"));
	assert_string_equal(found(but("master", "clock_ahead_ms",
				      json_integer(INT64_MIN)),
				  NULL), "clock ");
}

/* Limits that do not matter to this node are not reported. */
static void what_does_not_matter_is_not_found(void **state)
{
	json_t *status = but("store", "size", json_integer(0));

	(void)state;
	put("/sys/module/page_reporting/parameters/page_reporting_order",
	    "9\n");
	put("/proc/meminfo", "MemTotal: 1024 kB\nSwapTotal: 1024 kB\n");
	put("/sys/fs/cgroup/kubepods/pod1/memory.max", "1048576\n");
	json_object_del(status, "mount");
	put("/proc/sys/kernel/osrelease", "6.1.0\n");
	assert_string_equal(found(status, NULL), "");
	put_machine();
	put("/proc/7/limits", "Max locked memory         65536    65536\n");
	assert_string_equal(found(but(NULL, "rdma", json_false()), NULL), "");
}

/* A daemon's answer of another kind, or files that are no numbers. */
static void odd_answers_are_survived(void **state)
{
	(void)state;
	put("/proc/7/cgroup", "12:memory:/old\n");
	put("/proc/7/limits", "");
	put("/sys/class/net/eth0/speed", "-1\n");
	put("/sys/module/haltpoll/parameters/guest_halt_poll_ns", "none\n");
	assert_string_equal(found(status_of_node(), NULL), "");
	assert_string_equal(found(json_pack("{s:s, s:i, s:[], s:n}", "pid", "x",
					    "data_mode", 3, "store", "links"),
				  json_pack("{s:i}", "devices", 1)),
			    "version ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			nothing_is_found_on_a_good_machine, setup, teardown),
		cmocka_unit_test_setup_teardown(
			each_fact_of_the_machine_is_found, setup, teardown),
		cmocka_unit_test_setup_teardown(
			each_fact_of_the_daemon_is_found, setup, teardown),
		cmocka_unit_test_setup_teardown(
			other_versions_in_the_pool_are_named, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_clock_that_differs_is_found, setup, teardown),
		cmocka_unit_test_setup_teardown(
			what_does_not_matter_is_not_found, setup, teardown),
		cmocka_unit_test_setup_teardown(odd_answers_are_survived, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
