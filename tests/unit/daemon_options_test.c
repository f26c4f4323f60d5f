/* The parser of options, with a table of its own; no program's options. */
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/mount_args.h"
#include "daemon/options.h"
#include "daemon/other_env.h"

static struct {
	bool flag;
	const char *text;
	uint64_t size, count, mode, wait_ms;
	struct pool_hostport at;
	unsigned int level;
	struct daemon_strings names;
} v;

static struct daemon_option opts[10];

/* Output of the last call. */
static char *out_text, *err_text;
static int noperands;
static char **operands;

static int setup(void **state)
{
	static const struct daemon_option table[] = {
		{ .name = "flag", .type = OPT_FLAG, .value = &v.flag,
		  .help = "A flag." },
		{ .name = "some-text", .type = OPT_STRING, .value = &v.text,
		  .arg = "TEXT", .help = "A text\nof two lines." },
		{ .name = "store-size", .type = OPT_SIZE, .value = &v.size,
		  .arg = "N", .help = "A size.", .min = 16 << 20 },
		{ .name = "count", .type = OPT_COUNT, .value = &v.count,
		  .arg = "N", .help = "A count.", .min = 1, .max = 8 },
		{ .name = "mode", .type = OPT_MODE, .value = &v.mode,
		  .arg = "M", .help = "A mode.", .max = 01777 },
		{ .name = "wait", .type = OPT_DURATION, .value = &v.wait_ms,
		  .arg = "T", .help = "A time.", .max = 60000 },
		{ .name = "at", .type = OPT_HOSTPORT, .value = &v.at,
		  .arg = "HOST:PORT", .help = "A place.",
		  .default_port = 7070 },
		{ .name = "level", .type = OPT_CHOICE, .value = &v.level,
		  .arg = "error|warn|info", .help = "A level." },
		{ .name = "names", .type = OPT_STRINGS, .value = &v.names,
		  .arg = "NAME", .help = "Names." },
		{ .name = NULL },
	};

	(void)state;
	memcpy(opts, table, sizeof(table));
	memset(&v, 0, sizeof(v));
	v.size = (uint64_t)1 << 30;
	v.count = 3;
	v.mode = DAEMON_NOT_GIVEN;
	v.wait_ms = 1500;
	v.level = 2;
	v.at = (struct pool_hostport){ "127.0.0.1", 7070 };
	for (size_t i = 0; opts[i].name; i++) {
		char env[64];

		snprintf(env, sizeof(env), "KVPOOL_%s", opts[i].name);
		for (char *p = env; *p; p++)
			*p = *p == '-' ? '_' : *p >= 'a' && *p <= 'z' ?
					       (char)(*p - 32) :
					       *p;
		unsetenv(env);
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(out_text);
	free(err_text);
	out_text = err_text = NULL;
	return 0;
}

/* Parses the arguments, a list that ends with NULL. */
static int parse(const char *first, ...)
{
	static char *argv[32];
	size_t n;
	FILE *out, *err;
	va_list ap;
	int argc = 1, rc;

	teardown(NULL);
	argv[0] = (char *)(uintptr_t)"prog";
	va_start(ap, first);
	for (const char *a = first; a; a = va_arg(ap, const char *))
		argv[argc++] = (char *)(uintptr_t)a;
	va_end(ap);
	out = open_memstream(&out_text, &n);
	err = open_memstream(&err_text, &n);
	rc = daemon_options_parse(opts, argc, argv, "usage: prog", &noperands,
				  &operands, out, err);
	fclose(out);
	fclose(err);
	return rc;
}

static void assert_says(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("\"%s\" is not in \"%s\"", part, text);
}

static void all_types_are_parsed_in_both_spellings(void **state)
{
	(void)state;
	assert_int_equal(parse("--flag", "--some-text", "hello", "--store-size",
			       "50gb", "--count=8", "--mode=1770",
			       "--wait=500ms", "--at", "[::1]:99",
			       "--level=warn", "--names=a", NULL),
			 0);
	assert_true(v.flag);
	assert_string_equal(v.text, "hello");
	assert_int_equal(v.size, (uint64_t)50 << 30);
	assert_int_equal(v.count, 8);
	assert_int_equal(v.mode, 01770);
	assert_int_equal(v.wait_ms, 500);
	assert_string_equal(v.at.host, "::1");
	assert_int_equal(v.at.port, 99);
	assert_int_equal(v.level, 1);
	assert_int_equal(noperands, 0);
	for (size_t i = 0; opts[i].name; i++)
		assert_true(opts[i].seen);
}

static void strings_are_collected(void **state)
{
	(void)state;
	assert_int_equal(parse("--names", "b", "--count=2", "--names=a", NULL),
			 0);
	assert_int_equal(v.names.n, 2);
	assert_string_equal(v.names.at[0], "b");
	assert_string_equal(v.names.at[1], "a");
	for (int i = 2; i < DAEMON_STRINGS_MAX; i++)
		assert_int_equal(parse("--names=x", NULL), 0);
	assert_int_equal(parse("--names=over", NULL), -EINVAL);
	assert_says(err_text, "\"over\" given; accepted: a text that is not "
			      "empty, up to 16 times");
	assert_int_equal(v.names.n, DAEMON_STRINGS_MAX);
}

static void what_is_not_given_keeps_its_default(void **state)
{
	(void)state;
	assert_int_equal(parse("--count", "2", NULL), 0);
	assert_int_equal(v.size, (uint64_t)1 << 30);
	assert_null(v.text);
	assert_false(daemon_option_find(opts, "store-size")->seen);
	assert_true(daemon_option_find(opts, "count")->seen);
}

static void a_default_port_is_filled_in(void **state)
{
	(void)state;
	assert_int_equal(parse("--at", "master", NULL), 0);
	assert_string_equal(v.at.host, "master");
	assert_int_equal(v.at.port, 7070);
}

static void a_flag_can_be_given_a_value_after_an_equals_sign(void **state)
{
	(void)state;
	v.flag = true;
	assert_int_equal(parse("--flag=no", NULL), 0);
	assert_false(v.flag);
	/* a flag never consumes the next argument */
	assert_int_equal(parse("--flag", "no", NULL), 0);
	assert_true(v.flag);
	assert_int_equal(noperands, 1);
}

static void the_environment_is_read(void **state)
{
	(void)state;
	setenv("KVPOOL_STORE_SIZE", "32M", 1);
	setenv("KVPOOL_FLAG", "yes", 1);
	assert_int_equal(parse(NULL, NULL), 0);
	assert_int_equal(v.size, 32 << 20);
	assert_true(v.flag);
}

static void the_command_line_wins_over_the_environment(void **state)
{
	(void)state;
	setenv("KVPOOL_STORE_SIZE", "32M", 1);
	setenv("KVPOOL_FLAG", "yes", 1);
	assert_int_equal(parse("--store-size", "64M", "--flag=off", NULL), 0);
	assert_int_equal(v.size, 64 << 20);
	assert_false(v.flag);
}

static void an_empty_variable_counts_as_not_set(void **state)
{
	(void)state;
	setenv("KVPOOL_STORE_SIZE", "", 1);
	assert_int_equal(parse(NULL, NULL), 0);
	assert_int_equal(v.size, (uint64_t)1 << 30);
	assert_false(daemon_option_find(opts, "store-size")->seen);
}

static void a_wrong_value_names_option_value_and_what_is_accepted(void **state)
{
	(void)state;
	assert_int_equal(parse("--store-size", "12Q", NULL), -EINVAL);
	assert_says(err_text,
		    ": --store-size: \"12Q\" given; accepted: a size such as "
		    "50G, 50gb, 512MiB or bytes, at least 16MiB\n");
	assert_int_equal(v.size, (uint64_t)1 << 30);
}

static void a_wrong_variable_is_reported_by_its_name(void **state)
{
	(void)state;
	setenv("KVPOOL_STORE_SIZE", "12Q", 1);
	assert_int_equal(parse(NULL, NULL), -EINVAL);
	assert_says(err_text, ": KVPOOL_STORE_SIZE: \"12Q\" given; accepted: ");
}

static void values_outside_the_limits_are_refused(void **state)
{
	(void)state;
	assert_int_equal(parse("--store-size", "15M", NULL), -EINVAL);
	assert_says(err_text, "at least 16MiB");
	assert_int_equal(parse("--count", "0", NULL), -EINVAL);
	assert_says(err_text, "a whole number, 1 to 8");
	assert_int_equal(parse("--count", "9", NULL), -EINVAL);
	assert_int_equal(parse("--wait", "61s", NULL), -EINVAL);
	assert_says(err_text, "at most 60s");
	/* values equal to the limits are accepted */
	assert_int_equal(parse("--store-size", "16M", "--count", "1", "--wait",
			       "60s", NULL),
			 0);
}

static void wrong_values_of_every_type_are_refused(void **state)
{
	(void)state;
	assert_int_equal(parse("--flag=maybe", NULL), -EINVAL);
	assert_says(err_text, "accepted: yes or no");
	assert_int_equal(parse("--some-text=", NULL), -EINVAL);
	assert_int_equal(parse("--count", "1x", NULL), -EINVAL);
	assert_int_equal(parse("--count=-1", NULL), -EINVAL);
	assert_int_equal(parse("--mode", "888", NULL), -EINVAL);
	assert_says(err_text, "an octal mode such as 022, at most 01777\n");
	assert_int_equal(parse("--mode", "2000", NULL), -EINVAL);
	assert_int_equal(parse("--mode", " 7", NULL), -EINVAL);
	assert_int_equal(parse("--mode", "7x", NULL), -EINVAL);
	assert_int_equal(parse("--mode=", NULL), -EINVAL);
	assert_true(v.mode == DAEMON_NOT_GIVEN);
	assert_int_equal(parse("--wait", "5y", NULL), -EINVAL);
	assert_int_equal(parse("--at", "host:port", NULL), -EINVAL);
	assert_says(err_text, "HOST:PORT or [IPV6]:PORT");
	assert_int_equal(parse("--level", "inf", NULL), -EINVAL);
	assert_says(err_text, "one of error|warn|info");
	assert_int_equal(parse("--level", "info2", NULL), -EINVAL);
}

static void a_missing_value_is_reported(void **state)
{
	(void)state;
	assert_int_equal(parse("--count", NULL), -EINVAL);
	assert_says(err_text, ": --count: no value given; accepted: ");
	/* an option is not taken as a value */
	assert_int_equal(parse("--some-text", "--flag", NULL), -EINVAL);
}

static void unknown_options_are_refused(void **state)
{
	(void)state;
	assert_int_equal(parse("--counts", "1", NULL), -EINVAL);
	assert_says(err_text, "unknown option \"--counts\"");
	assert_int_equal(parse("--coun", "1", NULL), -EINVAL);
	assert_int_equal(parse("-c", NULL), -EINVAL);
	assert_says(err_text, "unknown option \"-c\"");
}

static void operands_are_left_in_order(void **state)
{
	(void)state;
	assert_int_equal(parse("a", "--flag", "b", "-", "--", "--count", NULL),
			 0);
	assert_int_equal(noperands, 4);
	assert_string_equal(operands[0], "a");
	assert_string_equal(operands[1], "b");
	assert_string_equal(operands[2], "-");
	assert_string_equal(operands[3], "--count");
	assert_int_equal(v.count, 3);
}

static void help_shows_flag_variable_and_default_of_each(void **state)
{
	(void)state;
	setenv("KVPOOL_STORE_SIZE", "nonsense", 1);
	assert_int_equal(parse("--count", "99", "--help", NULL), 1);
	assert_string_equal(err_text, "");
	assert_says(out_text, "usage: prog\n");
	assert_says(out_text, "--store-size N\n");
	assert_says(out_text, "[KVPOOL_STORE_SIZE; default 1GiB]");
	assert_says(out_text, "        A text\n        of two lines.\n");
	assert_says(out_text, "[KVPOOL_SOME_TEXT]");
	assert_says(out_text, "[KVPOOL_MODE]");
	assert_says(out_text, "[KVPOOL_WAIT; default 1500ms]");
	assert_says(out_text, "[KVPOOL_AT; default 127.0.0.1:7070]");
	assert_says(out_text, "[KVPOOL_LEVEL; default info]");
	assert_says(out_text, "[KVPOOL_FLAG; default no]");
}

static void only_loopback_is_listened_on_without_insecure(void **state)
{
	struct daemon_option *o = daemon_option_find(opts, "at");
	char *text = NULL;
	size_t n;
	FILE *err = open_memstream(&text, &n);

	(void)state;
	assert_int_equal(daemon_option_check_listen(o, false, err), 0);
	assert_int_equal(parse("--at", "0.0.0.0:1", NULL), 0);
	assert_int_equal(daemon_option_check_listen(o, true, err), 0);
	fflush(err);
	assert_int_equal(n, 0);
	assert_int_equal(daemon_option_check_listen(o, false, err), -EINVAL);
	fclose(err);
	assert_says(text, ": --at: \"0.0.0.0:1\" given; accepted: a loopback");
	assert_says(text, "--insecure");
	assert_says(text, "kvpool certs init --dir CA --cluster NAME\n");
	assert_says(text, "kvpool certs issue --dir CA --role node ");
	free(text);
}

/* ---- mount(8)'s command line ---- */

static struct daemon_mount_args m;

/* The resulting argv joined by blanks, or the output. */
static int mount_args(char *text, size_t cap, int argc, const char **argv)
{
	FILE *f = fmemopen(text, cap, "w");
	int rc = daemon_mount_args_init(&m, argc,
					(char *const *)(uintptr_t)argv, f);

	for (int i = 0; rc == 0 && i < m.argc; i++)
		fprintf(f, "%s%s", i ? " " : "", m.argv[i]);
	fclose(f);
	daemon_mount_args_fini(&m);
	return rc;
}
#define MOUNT_ARGS(text, ...)                                     \
	mount_args(text, sizeof(text),                            \
		   (int)(sizeof((const char *[]){ __VA_ARGS__ }) / \
			 sizeof(char *)),                         \
		   (const char *[]){ __VA_ARGS__ })

static void mount_becomes_a_command_line_of_the_daemon(void **state)
{
	char text[1024];

	(void)state;
	assert_int_equal(MOUNT_ARGS(text, "mount.kvpool", "m:7070", "/mnt/kv",
				    "-o",
				    "rw,_netdev,store_size=50G,no_passthrough"),
			 0);
	assert_string_equal(text,
			    "kvpoold --store-size=0 --keeper --store-size=50G "
			    "--no-passthrough --master=m:7070 --source=m:7070 "
			    "--mount=/mnt/kv");
	assert_int_equal(MOUNT_ARGS(text, "mount.kvpool", "m", "/x", "-sfv",
				    "-n", "-t", "kvpool"),
			 0);
	assert_string_equal(text, "kvpoold --store-size=0 --keeper --master=m "
				  "--source=m --mount=/x");
	assert_true(m.fake);
	assert_true(m.verbose);
	assert_string_equal(m.dir, "/x");

	/* The environment decides about the keeper, if it does. */
	setenv("KVPOOL_KEEPER", "no", 1);
	assert_int_equal(MOUNT_ARGS(text, "mount.kvpool", "m", "/x"), 0);
	assert_string_equal(text,
			    "kvpoold --store-size=0 --master=m --source=m "
			    "--mount=/x");
	unsetenv("KVPOOL_KEEPER");
}

static void flags_of_the_mount_are_passed_on_or_refused(void **state)
{
	static const char *const refused[] = { "ro", "remount", "suid", "dev",
					       "strictatime", "lazytime" };
	char text[1024], want[64], list[64];

	(void)state;
	assert_int_equal(MOUNT_ARGS(text, "mount.kvpool", "m", "/x", "-o",
				    "nosuid,noexec,noatime,x-y.z=1,nofail"),
			 0);
	assert_string_equal(
		text, "kvpoold --store-size=0 --keeper --noexec --noatime "
		      "--master=m --source=m --mount=/x");
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		snprintf(list, sizeof(list), "rw,%s,insecure", refused[i]);
		snprintf(want, sizeof(want), "-o: \"%s\" given; accepted: rw",
			 refused[i]);
		assert_int_equal(MOUNT_ARGS(text, "mount.kvpool", "m", "/x",
					    "-o", list),
				 -EINVAL);
		assert_says(text, want);
	}
}

static void a_wrong_mount_command_line_is_refused(void **state)
{
	char text[1024];

	(void)state;
	assert_int_equal(MOUNT_ARGS(text, "mount.kvpool", "m:7070"), -EINVAL);
	assert_says(text, "accepted: HOST:PORT[,HOST:PORT]... DIR");
	assert_int_equal(MOUNT_ARGS(text, "mount.kvpool", "m:x", "/mnt"),
			 -EINVAL);
	assert_says(text, "\"m:x\" given");
	assert_int_equal(MOUNT_ARGS(text, "mount.kvpool", "m", "/mnt", "-o",
				    "ro"),
			 -EINVAL);
	assert_says(text, "read-only");
	assert_int_equal(MOUNT_ARGS(text, "mount.kvpool", "m", "/mnt", "-o"),
			 -EINVAL);
	assert_int_equal(MOUNT_ARGS(text, "mount.kvpool", "m", "/mnt", "-q"),
			 -EINVAL);
	assert_int_equal(MOUNT_ARGS(text, "mount.kvpool", "--help"), 1);
}

static void too_many_mount_options_are_refused(void **state)
{
	char list[2048] = "", text[1024];

	(void)state;
	for (int i = 0; i < 200; i++)
		strcat(list, "a=1,");
	assert_int_equal(MOUNT_ARGS(text, "mount.kvpool", "m", "/mnt", "-o",
				    list),
			 -EINVAL);
	assert_says(text, "more than");
}

/* Checks the environment after parse(first, NULL). */
static int other_env(const char *first)
{
	FILE *err;
	size_t n;
	int rc;

	assert_int_equal(parse(first, NULL), 0);
	free(err_text);
	err = open_memstream(&err_text, &n);
	rc = daemon_other_env_check(opts, err);
	fclose(err);
	return rc;
}

static void another_stores_variables_are_answered_with_the_option(void **state)
{
	(void)state;
	assert_int_equal(other_env(NULL), 0);
	assert_string_equal(err_text, "");
	setenv("MOONCAKE_GLOBAL_SEGMENT_SIZE", "10gb", 1);
	assert_int_equal(other_env(NULL), -EINVAL);
	assert_says(err_text, "MOONCAKE_GLOBAL_SEGMENT_SIZE: \"10gb\" given");
	assert_says(err_text, "KVPOOL_STORE_SIZE or --store-size");
	assert_int_equal(other_env("--store-size=10gb"), 0);
	assert_string_equal(err_text, "");
	setenv("MOONCAKE_GLOBAL_SEGMENT_SIZE", "0", 1);
	assert_int_equal(other_env(NULL), 0);
	setenv("MOONCAKE_GLOBAL_SEGMENT_SIZE", "", 1);
	assert_int_equal(other_env(NULL), 0);
	unsetenv("MOONCAKE_GLOBAL_SEGMENT_SIZE");
	setenv("MOONCAKE_TE_META_DATA_SERVER", "http://m:8080/metadata", 1);
	assert_int_equal(other_env(NULL), 0);
	assert_says(err_text, "MOONCAKE_TE_META_DATA_SERVER has no effect");
	unsetenv("MOONCAKE_TE_META_DATA_SERVER");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(all_types_are_parsed_in_both_spellings),
		T(strings_are_collected),
		T(what_is_not_given_keeps_its_default),
		T(a_default_port_is_filled_in),
		T(a_flag_can_be_given_a_value_after_an_equals_sign),
		T(the_environment_is_read),
		T(the_command_line_wins_over_the_environment),
		T(an_empty_variable_counts_as_not_set),
		T(a_wrong_value_names_option_value_and_what_is_accepted),
		T(a_wrong_variable_is_reported_by_its_name),
		T(values_outside_the_limits_are_refused),
		T(wrong_values_of_every_type_are_refused),
		T(a_missing_value_is_reported),
		T(unknown_options_are_refused),
		T(operands_are_left_in_order),
		T(help_shows_flag_variable_and_default_of_each),
		T(only_loopback_is_listened_on_without_insecure),
		T(mount_becomes_a_command_line_of_the_daemon),
		T(a_wrong_mount_command_line_is_refused),
		T(flags_of_the_mount_are_passed_on_or_refused),
		T(too_many_mount_options_are_refused),
		T(another_stores_variables_are_answered_with_the_option),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
