/*
 * Subcommands for shell tests, which kill and stop processes around them:
 *
 *   fill --d DIR --files N --size N [--threads N]
 *       store keys 0..N-1 by temp + rename; prints stored=, failed=
 *   verify --d DIR --files N --size N [--threads N] [--min-present N]
 *       open each key: absent, or whole and right. Prints present=, absent=,
 *       short=, wrong=, errors=, max_ms= (slowest open + read)
 *   load-loop SECONDS --d DIR --files N --size N [--threads N]
 *       verify over and over
 *   writer --d DIR --name NAME --size N [--pieces N] [--delay-ms N] [--rename]
 *       write NAME slowly (in place, or as NAME.tmp renamed at the end);
 *       prints "started", "piece I" and "done"
 *
 * All take --prefix P (default "k") and --version N. Exit status 1 if
 * anything was short, wrong or an error; 0 otherwise.
 */
#include "tests/traces/engine.h"

#include <getopt.h>

struct load {
	const char *dir, *prefix, *name;
	unsigned files, threads, version, pieces, delay_ms, min_present;
	size_t size;
	double seconds; /* 0: once */
	bool by_rename;
	atomic_ullong present, absent, cut, wrong, errors, stored, failed;
	atomic_ullong max_us;
};

static void load_key(const struct load *l, char key[200], unsigned i)
{
	snprintf(key, 200, "%s%08u.bin", l->prefix, i);
}

static int fill_one(unsigned thread, void *arg)
{
	struct load *l = arg;
	char key[200], tmp[220], why[512];

	for (unsigned i = thread; i < l->files; i += l->threads) {
		load_key(l, key, i);
		snprintf(tmp, sizeof(tmp), "%s_%u.tmp", key, i);
		if (eng_put(l->dir, tmp, key, l->version, l->size, 0) == 0) {
			l->stored++;
			continue;
		}
		l->failed++;
		eng_failure_take(why, sizeof(why));
		fprintf(stderr, "%s\n", why);
	}
	return 0;
}

/* One open: counted as absent, short, wrong, error or present. */
static void verify_key(struct load *l, const char *key, char *buf)
{
	char path[ENG_PATH];
	double start = eng_now();
	int fd = open(eng_join(path, l->dir, key), O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		if (errno == ENOENT) {
			l->absent++;
		} else {
			l->errors++;
			fprintf(stderr, "open %s: %s\n", path, strerror(errno));
		}
	} else {
		ssize_t n = read(fd, buf, l->size);
		if (n < 0) {
			l->errors++;
			fprintf(stderr, "read %s: %s\n", path, strerror(errno));
		} else if ((size_t)n != l->size) {
			l->cut++;
			fprintf(stderr, "read %s: %zd of %zu bytes\n", path, n,
				l->size);
		} else if (eng_version(buf, l->size, key, l->version + 1) < 0) {
			l->wrong++;
			fprintf(stderr, "read %s: wrong bytes\n", path);
		} else {
			l->present++;
		}
		close(fd);
	}
	unsigned long long us = (unsigned long long)((eng_now() - start) * 1e6);
	unsigned long long old = l->max_us;
	while (us > old && !atomic_compare_exchange_weak(&l->max_us, &old, us))
		;
}

static int verify_one(unsigned thread, void *arg)
{
	struct load *l = arg;
	char key[200];
	char *buf = eng_alloc(l->size);
	double end = eng_now() + l->seconds;

	do {
		for (unsigned i = thread; i < l->files; i += l->threads) {
			load_key(l, key, i);
			verify_key(l, key, buf);
			if (l->seconds > 0 && eng_now() >= end)
				break;
		}
	} while (eng_now() < end);
	free(buf);
	return 0;
}

static int run_fill(struct load *l)
{
	if (eng_parallel(l->threads, fill_one, l) != 0)
		return 1;
	printf("stored=%llu failed=%llu\n", l->stored, l->failed);
	return l->failed ? 1 : 0;
}

static int run_verify(struct load *l)
{
	if (eng_parallel(l->threads, verify_one, l) != 0)
		return 1;
	printf("present=%llu absent=%llu short=%llu wrong=%llu errors=%llu "
	       "max_ms=%llu\n",
	       l->present, l->absent, l->cut, l->wrong, l->errors,
	       l->max_us / 1000);
	if (l->present < l->min_present)
		fprintf(stderr, "expected at least %u present, got %llu\n",
			l->min_present, l->present);
	return l->cut || l->wrong || l->errors ||
	       l->present < l->min_present;
}

static int run_writer(struct load *l)
{
	char path[ENG_PATH], final[ENG_PATH], name[300];

	snprintf(name, sizeof(name), "%s%s", l->name,
		 l->by_rename ? ".tmp" : "");
	eng_join(path, l->dir, name);
	eng_join(final, l->dir, l->name);
	char *buf = eng_content(l->name, l->version, l->size);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0) {
		fprintf(stderr, "open %s: %s\n", path, strerror(errno));
		return 1;
	}
	puts("started");
	fflush(stdout);
	size_t piece = l->size / l->pieces + 1;
	unsigned i = 0;
	for (size_t at = 0; at < l->size; at += piece) {
		size_t n = l->size - at < piece ? l->size - at : piece;
		ssize_t put = write(fd, buf + at, n);
		if (put != (ssize_t)n) {
			fprintf(stderr, "write %s: %zd of %zu: %s\n", path, put,
				n, put < 0 ? strerror(errno) : "short");
			return 1;
		}
		printf("piece %u\n", ++i);
		fflush(stdout);
		eng_sleep_ms(l->delay_ms);
	}
	free(buf);
	if (close(fd) < 0 || (l->by_rename && rename(path, final) < 0)) {
		fprintf(stderr, "publish %s: %s\n", path, strerror(errno));
		return 1;
	}
	puts("done");
	return 0;
}

static const struct option options[] = {
	{ "d", required_argument, NULL, 'd' },
	{ "files", required_argument, NULL, 'f' },
	{ "size", required_argument, NULL, 's' },
	{ "threads", required_argument, NULL, 't' },
	{ "prefix", required_argument, NULL, 'p' },
	{ "version", required_argument, NULL, 'v' },
	{ "name", required_argument, NULL, 'n' },
	{ "pieces", required_argument, NULL, 'c' },
	{ "delay-ms", required_argument, NULL, 'y' },
	{ "min-present", required_argument, NULL, 'm' },
	{ "rename", no_argument, NULL, 'r' },
	{ NULL, 0, NULL, 0 },
};

/* 0, or 2 on wrong usage. */
static int parse(struct load *l, int argc, char **argv)
{
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		unsigned n = optarg ? (unsigned)strtoul(optarg, NULL, 10) : 0;
		switch (c) {
		case 'd':
			l->dir = optarg;
			break;
		case 'p':
			l->prefix = optarg;
			break;
		case 'n':
			l->name = optarg;
			break;
		case 'f':
			l->files = n;
			break;
		case 's':
			l->size = strtoull(optarg, NULL, 10);
			break;
		case 't':
			l->threads = n;
			break;
		case 'v':
			l->version = n;
			break;
		case 'c':
			l->pieces = n;
			break;
		case 'y':
			l->delay_ms = n;
			break;
		case 'm':
			l->min_present = n;
			break;
		case 'r':
			l->by_rename = true;
			break;
		default:
			return 2;
		}
	}
	if (!l->dir || !l->size || !l->threads || !l->files || !l->pieces)
		return 2;
	return 0;
}

int eng_load_main(int argc, char **argv)
{
	struct load l = { .prefix = "k", .name = "slow.bin", .files = 1,
			  .threads = 4, .pieces = 16, .delay_ms = 100,
			  .size = 1 << 20 };
	const char *what = argv[0];
	int rc = parse(&l, argc, argv);

	/* load-loop's operand: getopt has moved it to the end. */
	if (rc == 0 && strcmp(what, "load-loop") == 0) {
		if (optind < argc)
			l.seconds = strtod(argv[optind], NULL);
		if (l.seconds > 0)
			return run_verify(&l);
	} else if (rc == 0 && strcmp(what, "verify") == 0) {
		return run_verify(&l);
	} else if (rc == 0 && strcmp(what, "fill") == 0) {
		return run_fill(&l);
	} else if (rc == 0 && strcmp(what, "writer") == 0) {
		return run_writer(&l);
	}
	fputs("usage: engine_traces fill|verify|load-loop SECONDS|writer "
	      "--d DIR\n"
	      "         [--files N] [--size BYTES] [--threads N] [--prefix P] "
	      "[--version N]\n"
	      "         [--min-present N] [--name NAME] [--pieces N] "
	      "[--delay-ms N] [--rename]\n",
	      stderr);
	return 2;
}
