/*
 * engine_traces: replays what inference engines do to a disk-offload
 * directory, on mount D and, as another node would, on mount B.
 *
 *   engine_traces --d DIR [--b DIR] [--only T1,T7,posix] [--mode MODE]
 *                 [--scale N] [--patience N]
 *   engine_traces fill|verify|load-loop|writer ...   (see engine_load.c)
 *
 * Prints one line a trace, "ok NAME (1.2 s)" or "not ok NAME: what was
 * expected, what was seen"; exit status 1 if any is not ok, 2 on wrong usage.
 */
#include "tests/traces/engine.h"

#include <getopt.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#define TEST_SECONDS 120 /* times scale and patience */

static const char *volatile current;

static void on_alarm(int sig)
{
	(void)sig;
	static const char head[] = "not ok ", tail[] = ": timed out\n";
	const char *name = current ? current : "?";
	/* Nothing can be done about a failed write here. */
	if (write(1, head, sizeof(head) - 1) < 0 ||
	    write(1, name, strlen(name)) < 0 ||
	    write(1, tail, sizeof(tail) - 1) < 0)
		_exit(3);
	_exit(1);
}

static void usage(FILE *out)
{
	fputs("usage: engine_traces --d DIR [--b DIR] [--only NAME,...]\n"
	      "         [--mode passthrough|served|plain] [--scale N]\n"
	      "         [--patience N] [--list]\n"
	      "       engine_traces fill|verify|load-loop|writer --help\n"
	      "--only takes prefixes of names: T1 or posix or posix_rename\n",
	      out);
}

/* Is name chosen by the comma list? "T1" means T1 and no T11. */
static bool chosen(const char *only, const char *name)
{
	while (only && *only) {
		size_t n = strcspn(only, ",");
		if (n && strncmp(only, name, n) == 0 &&
		    (name[n] == 0 || name[n] == '_'))
			return true;
		only += n + (only[n] == ',');
	}
	return false;
}

static int make_dir(const char *name, struct eng_dir *t)
{
	snprintf(t->d, sizeof(t->d), "%s/eng_%s_%d", eng.d, name, getpid());
	snprintf(t->b, sizeof(t->b), "%s/eng_%s_%d", eng.b, name, getpid());
	EXPECT_OK(mkdir(t->d, 0755), t->d);
	return eng_await_name(t->b);
}

static bool run_one(const struct eng_test *test)
{
	struct eng_dir t;
	char why[2048];
	double start = eng_now();

	current = test->name;
	alarm(TEST_SECONDS * eng.scale * eng.patience);
	int rc = make_dir(test->name, &t);
	if (rc == 0)
		rc = test->run(&t);
	alarm(0);
	eng_remove_tree(t.d);
	bool failed = eng_failed() || rc != 0;
	eng_failure_take(why, sizeof(why));
	if (failed)
		printf("not ok %s: %s\n", test->name, why);
	else
		printf("ok %s (%.1f s)\n", test->name, eng_now() - start);
	fflush(stdout);
	return !failed;
}

static const struct eng_test *const all_tests[] = {
	eng_lmcache, eng_sglang,      eng_vllm,	       eng_llama,
	eng_scratch, eng_posix_names, eng_posix_data, eng_posix_attrs,
	eng_posix_times, eng_posix_race,
};
#define NTABLES (sizeof(all_tests) / sizeof(all_tests[0]))

static int run_all(const char *only)
{
	unsigned ran = 0, failed = 0;

	for (size_t i = 0; i < NTABLES; i++) {
		for (const struct eng_test *t = all_tests[i]; t->name; t++) {
			if (only && !chosen(only, t->name))
				continue;
			ran++;
			failed += !run_one(t);
		}
	}
	printf("# %u run, %u failed\n", ran, failed);
	if (!ran)
		fprintf(stderr, "engine_traces: --only %s names no trace\n",
			only);
	return failed || !ran ? 1 : 0;
}

static int list_all(void)
{
	for (size_t i = 0; i < NTABLES; i++)
		for (const struct eng_test *t = all_tests[i]; t->name; t++)
			puts(t->name);
	return 0;
}

static int bad_value(const char *opt, const char *given, const char *accepted)
{
	fprintf(stderr, "engine_traces: --%s %s: expected %s\n", opt, given,
		accepted);
	return 2;
}

static int parse_mode(const char *text)
{
	if (strcmp(text, "passthrough") == 0)
		eng.mode = ENG_PASSTHROUGH;
	else if (strcmp(text, "served") == 0)
		eng.mode = ENG_SERVED;
	else if (strcmp(text, "plain") == 0)
		eng.mode = ENG_PLAIN;
	else
		return bad_value("mode", text, "passthrough, served or plain");
	return 0;
}

static int prepare(void)
{
	struct statvfs sv;
	struct rlimit lim;

	if (!eng.b)
		eng.b = eng.d;
	if (access(eng.d, W_OK) < 0)
		return bad_value("d", eng.d, "a writable directory");
	if (access(eng.b, W_OK) < 0)
		return bad_value("b", eng.b, "a writable directory");
	if (statvfs(eng.d, &sv) < 0)
		return bad_value("d", eng.d, "a directory with statvfs");
	eng.capacity = (uint64_t)sv.f_blocks * sv.f_frsize;
	if (getrlimit(RLIMIT_NOFILE, &lim) == 0) {
		lim.rlim_cur = lim.rlim_max;
		setrlimit(RLIMIT_NOFILE, &lim);
	}
	signal(SIGALRM, on_alarm);
	umask(022);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "d", required_argument, NULL, 'd' },
		{ "b", required_argument, NULL, 'b' },
		{ "only", required_argument, NULL, 'o' },
		{ "mode", required_argument, NULL, 'm' },
		{ "scale", required_argument, NULL, 's' },
		{ "patience", required_argument, NULL, 'p' },
		{ "list", no_argument, NULL, 'l' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const char *only = NULL;
	int c, rc;

	if (argc > 1 && argv[1][0] != '-')
		return eng_load_main(argc - 1, argv + 1);
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'd':
			eng.d = optarg;
			break;
		case 'b':
			eng.b = optarg;
			break;
		case 'o':
			only = optarg;
			break;
		case 'm':
			rc = parse_mode(optarg);
			if (rc)
				return rc;
			break;
		case 's':
			eng.scale = (unsigned)strtoul(optarg, NULL, 10);
			if (eng.scale < 1 || eng.scale > 1000)
				return bad_value("scale", optarg, "1..1000");
			break;
		case 'p':
			eng.patience = (unsigned)strtoul(optarg, NULL, 10);
			if (eng.patience < 1 || eng.patience > 1000)
				return bad_value("patience", optarg, "1..1000");
			break;
		case 'l':
			return list_all();
		case 'h':
			usage(stdout);
			return 0;
		default:
			usage(stderr);
			return 2;
		}
	}
	if (!eng.d || optind < argc) {
		usage(stderr);
		return 2;
	}
	rc = prepare();
	return rc ? rc : run_all(only);
}
