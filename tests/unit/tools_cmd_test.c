#include "tests/lib/unit.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/daemonize.h"
#include "tools/cmd.h"

static char *text;
static size_t text_len;

static int teardown(void **state)
{
	(void)state;
	free(text);
	text = NULL;
	return 0;
}

static void print(void (*fn)(const json_t *json, FILE *out), const char *json)
{
	json_t *j = json_loads(json, 0, NULL);
	FILE *out = open_memstream(&text, &text_len);

	assert_non_null(j);
	fn(j, out);
	fclose(out);
	json_decref(j);
}

static void a_status_is_printed_leaf_by_leaf(void **state)
{
	(void)state;
	print(cmd_print_flat,
	      "{\"name\":\"a\",\"store\":{\"size\":1073741824,\"full\":false},"
	      "\"list\":[1,2],\"none\":[],\"deep\":[{\"x\":1},{\"x\":2}],"
	      "\"nothing\":null}");
	assert_string_equal(text, "name        a\n"
				  "store.size  1.0 GiB\n"
				  "store.full  no\n"
				  "list        1,2\n"
				  "none        -\n"
				  "deep.0.x    1\n"
				  "deep.1.x    2\n"
				  "nothing     -\n");
}

static void print_status(const json_t *json, FILE *out)
{
	cmd_print_summary(json, "h:7073", out);
}

#define NODE                                                               \
	"\"role\":\"node\",\"name\":\"a\",\"mount\":\"/m\","                   \
	"\"data_mode\":\"passthrough\",\"objects\":3,\"bytes\":4096,"         \
	"\"cached\":1,\"cached_bytes\":1024,\"names\":9,\"hits\":3,"          \
	"\"misses\":1,\"evictions\":2,"

static void a_nodes_status_is_a_few_lines(void **state)
{
	(void)state;
	print(print_status,
	      "{" NODE
	      "\"master\":{\"address\":\"m:7070\",\"connected\":true},"
	      "\"store\":{\"size\":8192,\"used\":4096,\"free\":4096}}");
	assert_string_equal(
		text, "node a at h:7073, mounted at /m (passthrough)\n"
		      "master   m:7070, connected\n"
		      "store    [##########----------]  50 %  4.0 KiB of "
		      "8.0 KiB\n"
		      "objects  3 (4.0 KiB), and 1 cached (1.0 KiB); 9 names "
		      "in the pool\n"
		      "look-ups 4, 75 % hits; 2 evictions\n"
		      "no problems\n");
}

static void a_nodes_problems_come_with_their_remedies(void **state)
{
	(void)state;
	print(print_status,
	      "{" NODE "\"degraded_since\":\"2026\",\"pending\":7,"
	      "\"master\":{\"address\":\"m:7070\",\"connected\":false},"
	      "\"store\":{\"size\":8192,\"used\":8192,\"free\":0,"
	      "\"evictable\":409}}");
	assert_non_null(strstr(text, "m:7070, NOT connected\n"));
	assert_non_null(strstr(text, "\nDEGRADED since 2026: reads go on; 7 "
				     "files wait to be published\n"
				     "problem: no master at m:7070: start it"));
	assert_non_null(strstr(text, "\nproblem: less than 5 % of the store"));
	assert_null(strstr(text, "no problems"));
	assert_null(strstr(text, "passes through"));
}

#define MASTER                                                            \
	"\"role\":\"master\",\"capacity\":8192,\"used\":2048,\"keys\":5," \
	"\"bytes\":2048,\"directories\":1,\"nodes\":2,"

static void a_masters_status_names_its_problems(void **state)
{
	(void)state;
	print(print_status,
	      "{" MASTER "\"ready\":true,\"nodes_alive\":2,\"repair\":{}}");
	assert_string_equal(text,
			    "master at h:7073\n"
			    "capacity [#####---------------]  25 %  2.0 KiB of "
			    "8.0 KiB\n"
			    "nodes    2, 2 of them alive\n"
			    "objects  5 (2.0 KiB), directories: 1\n"
			    "repair: every key has its copies\n"
			    "no problems\n");
	free(text);
	print(print_status,
	      "{" MASTER "\"ready\":false,\"nodes_alive\":1,\"repair\":"
	      "{\"endangered\":1,\"no_room_keys\":1}}");
	assert_non_null(strstr(text, "\nproblem: the master waits for nodes"));
	assert_non_null(strstr(text, "\nproblem: 1 of 2 nodes away"));
	assert_non_null(strstr(text, "\nproblem: copies have no room"));
}

static void a_table_has_a_column_for_each_member_of_any_row(void **state)
{
	(void)state;
	print(cmd_print_table, "[{\"name\":\"a\",\"objects\":5},"
			       "{\"name\":\"longer\",\"objects\":12345678,"
			       "\"extra\":true}]");
	assert_string_equal(text, "NAME     OBJECTS  EXTRA\n"
				  "a              5  -\n"
				  "longer  12345678  yes\n");
}

static void only_members_that_hold_bytes_get_units(void **state)
{
	char buf[64];
	json_t *n = json_integer(2048);

	(void)state;
	cmd_format_leaf("cached_bytes", n, buf, sizeof(buf));
	assert_string_equal(buf, "2.0 KiB");
	cmd_format_leaf("bytes_per_second", n, buf, sizeof(buf));
	assert_string_equal(buf, "2.0 KiB/s");
	cmd_format_leaf("uptime_ms", n, buf, sizeof(buf));
	assert_string_equal(buf, "2.05 s");
	cmd_format_leaf("objects", n, buf, sizeof(buf));
	assert_string_equal(buf, "2048");
	cmd_format_leaf("sized", n, buf, sizeof(buf));
	assert_string_equal(buf, "2048");
	json_decref(n);
}

static void control_bytes_never_reach_the_terminal(void **state)
{
	char buf[64];
	json_t *s = json_string("a\x1b[2J\nb");

	(void)state;
	cmd_format_leaf("path", s, buf, sizeof(buf));
	assert_string_equal(buf, "a?[2J?b");
	json_decref(s);
}

static void long_values_are_cut_to_the_buffer(void **state)
{
	char buf[8];
	json_t *list = json_pack("[s,s,s]", "abc", "def", "ghi");

	(void)state;
	cmd_format_leaf("nodes", list, buf, sizeof(buf));
	assert_string_equal(buf, "abc,def");
	json_decref(list);
}

static void urls_are_escaped_but_for_slashes(void **state)
{
	char *url = cmd_url_escape("a/b c&d=%e?\xff~");

	(void)state;
	assert_string_equal(url, "a/b%20c%26d%3D%25e%3F%FF~");
	free(url);
}

static bool mounted(const char *mountinfo, const char *path)
{
	FILE *f =
		fmemopen((void *)(uintptr_t)mountinfo, strlen(mountinfo), "r");
	bool found = cmd_mounted_in(f, path);

	fclose(f);
	return found;
}

static void a_mount_is_found_by_its_point_and_type(void **state)
{
	static const char info[] =
		"22 1 0:20 / / rw - ext4 /dev/vda rw\n"
		"23 22 0:21 / /mnt/tmp rw shared:3 master:1 - tmpfs tmpfs rw\n"
		"24 22 0:22 / /mnt/kv\\040pool rw - fuse.kvpool kvpool rw\n"
		"25 22 0:23 / /mnt/kv rw shared:4 - fuse.kvpool m:7070 rw\n"
		"26 22 0:24 / /mnt/ssh rw - fuse.sshfs host: rw\n"
		"27 22 0:25 / /mnt/under rw - fuse.kvpool m:7070 rw\n"
		"28 27 0:26 / /mnt/under rw - tmpfs tmpfs rw\n";

	(void)state;
	assert_true(mounted(info, "/mnt/kv pool"));
	assert_true(mounted(info, "/mnt/kv"));
	assert_false(mounted(info, "/mnt/tmp"));
	assert_false(mounted(info, "/mnt/k"));
	assert_false(mounted(info, "/mnt/ssh"));
	assert_false(mounted(info, "/mnt/under"));
	assert_false(mounted(info, "/"));
}

static int key_of(const char *mountinfo, const char *path, char *mount,
		  char *key)
{
	FILE *f =
		fmemopen((void *)(uintptr_t)mountinfo, strlen(mountinfo), "r");
	int rc = cmd_mount_key_in(f, path, mount, key);

	fclose(f);
	return rc;
}

static void a_path_in_a_mount_has_a_key_there(void **state)
{
	static const char info[] =
		"22 1 0:20 / / rw - ext4 /dev/vda rw\n"
		"24 22 0:22 / /mnt/kv\\040pool rw - fuse.kvpool kvpool rw\n"
		"25 22 0:23 / /mnt/kv rw shared:4 - fuse.kvpool kvpool rw\n"
		"26 25 0:24 / /mnt/kv/d/other rw - tmpfs tmpfs rw\n"
		"27 22 0:25 / /mnt/sshfs rw - fuse.sshfs x rw\n";
	char mount[PATH_MAX], key[PATH_MAX];

	(void)state;
	assert_int_equal(key_of(info, "/mnt/kv/d/k", mount, key), 0);
	assert_string_equal(mount, "/mnt/kv");
	assert_string_equal(key, "d/k");
	assert_int_equal(key_of(info, "/mnt/kv", mount, key), 0);
	assert_string_equal(key, "");
	assert_int_equal(key_of(info, "/mnt/kv pool/k", mount, key), 0);
	assert_string_equal(mount, "/mnt/kv pool");
	assert_int_equal(key_of(info, "/mnt/kv/d/other/k", mount, key),
			 -ENOTSUP);
	assert_int_equal(key_of(info, "/mnt/kvx", mount, key), -ENOTSUP);
	assert_int_equal(key_of(info, "/mnt/sshfs/k", mount, key), -ENOTSUP);
	assert_int_equal(key_of(info, "/mnt", mount, key), -ENOTSUP);
}

static void
a_mount_point_is_named_absolutely_though_it_cannot_be_entered(void **state)
{
	char *dir = unit_dir_make("/tmp/kvtest_cmd");
	char real[4096], path[4096], name[4200];

	(void)state;
	assert_non_null(realpath(dir, real));
	assert_int_equal(cmd_mount_path(dir, path, sizeof(path)), 0);
	assert_string_equal(path, real);
	/* as for a stale mount, realpath(3) of the whole fails */
	snprintf(name, sizeof(name), "%s/gone///", dir);
	assert_int_equal(cmd_mount_path(name, path, sizeof(path)), 0);
	snprintf(name, sizeof(name), "%s/gone", real);
	assert_string_equal(path, name);
	assert_int_equal(cmd_mount_path("/nonexistent/a/b", path, sizeof(path)),
			 -2);
	unit_dir_remove_empty(dir);
}

static void pid_files_are_named_after_the_mount_without_ambiguity(void **state)
{
	char a[512], b[512], long_path[400];

	(void)state;
	assert_int_equal(daemon_pidfile_path("/run/x", "/mnt/kvpool", a,
					     sizeof(a)), 0);
	assert_string_equal(a, "/run/x/mnt-kvpool.pid");
	assert_int_equal(daemon_pidfile_path("/run/x", "/mnt//kvpool/", b,
					     sizeof(b)), 0);
	assert_string_equal(a, b);
	assert_int_equal(daemon_pidfile_path("/run/x", "/mnt-kvpool", b,
					     sizeof(b)), 0);
	assert_string_equal(b, "/run/x/mnt\\x2dkvpool.pid");
	memset(long_path, 'a', sizeof(long_path) - 1);
	long_path[sizeof(long_path) - 1] = '\0';
	assert_int_equal(daemon_pidfile_path("/run/x", long_path, b,
					     sizeof(b)), -36);
}

/* The pid of no process: a child that has been reaped. */
static pid_t ended_pid(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
	return pid;
}

static void leave_pidfile(const char *dir, const char *mount, pid_t pid,
			  const char *name)
{
	char path[512];
	FILE *f;

	assert_int_equal(daemon_pidfile_path(dir, mount, path, sizeof(path)),
			 0);
	f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, "%d\n%s\n", (int)pid, name);
	fclose(f);
}

static void pid_files_of_ended_daemons_of_the_same_name_are_swept(void **state)
{
	char *dir = unit_dir_make("/tmp/cmd_test");
	pid_t gone = ended_pid();

	(void)state;
	assert_int_equal(daemon_pidfile_write(dir, "/mine", "a"), 0);
	assert_int_equal(daemon_pidfile_read(dir, "/mine"), getpid());
	leave_pidfile(dir, "/ended", gone, "a");
	leave_pidfile(dir, "/others", gone, "b");
	daemon_pidfile_sweep(dir, "a");
	assert_int_equal(daemon_pidfile_read(dir, "/mine"), getpid());
	assert_int_equal(daemon_pidfile_read(dir, "/ended"), -ENOENT);
	assert_int_equal(daemon_pidfile_read(dir, "/others"), gone);
	daemon_pidfile_sweep(dir, "b");
	daemon_pidfile_remove(dir, "/mine");
	unit_dir_remove_empty(dir);
}

static void the_default_store_is_a_fraction_of_the_memory(void **state)
{
	uint64_t size = cmd_default_store_size();
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) *
			  (uint64_t)sysconf(_SC_PAGESIZE);

	(void)state;
	assert_true(size > 0 && size <= memory / 4);
	assert_true(size <= (uint64_t)16 << 30);
	assert_int_equal(size % (1 << 20), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define cmd_test(f) cmocka_unit_test_teardown(f, teardown)
		cmd_test(a_status_is_printed_leaf_by_leaf),
		cmd_test(a_nodes_status_is_a_few_lines),
		cmd_test(a_nodes_problems_come_with_their_remedies),
		cmd_test(a_masters_status_names_its_problems),
		cmd_test(a_table_has_a_column_for_each_member_of_any_row),
		cmd_test(only_members_that_hold_bytes_get_units),
		cmd_test(control_bytes_never_reach_the_terminal),
		cmd_test(long_values_are_cut_to_the_buffer),
		cmd_test(urls_are_escaped_but_for_slashes),
		cmd_test(a_mount_is_found_by_its_point_and_type),
		cmd_test(a_path_in_a_mount_has_a_key_there),
		cmd_test(
			a_mount_point_is_named_absolutely_though_it_cannot_be_entered),
		cmd_test(pid_files_are_named_after_the_mount_without_ambiguity),
		cmd_test(pid_files_of_ended_daemons_of_the_same_name_are_swept),
		cmd_test(the_default_store_is_a_fraction_of_the_memory),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
