/*
 * The program of the sweep. See tests/sweep.h.
 *
 *   sweep run SCENARIO PAGE PID PROGRAM MOUNT_A MOUNT_B [FIRST STRIDE]
 *   sweep base MOUNT           makes the objects that must outlive everything
 *   sweep check MOUNT          are they there?
 *   sweep arm PAGE N           the Nth call of PAGE's daemon fails
 *   sweep fired PAGE PROGRAM   0 and where it was, if it has; else 1
 */
#include "tests/sweep/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/sweep/failing.h"

#define NBASE 8
#define SETTLE_MS 20000 /* for what comes right by itself */
#define RUNS_MAX 20000
#define PLACES_MAX 4096

static struct {
	struct failing *page;
	const char *program;
	pid_t pid;
	const char *mount[2];
	char dir[2][256];
	const struct scenario *scenario;
	unsigned int n;
	uint64_t places[PLACES_MAX]; /* callers that failed so far */
	unsigned int nplaces, runs, lost;
} sw;

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void sleep_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&ts, NULL);
}

/* ---- the page ---- */

static struct failing *map_page(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *p;

	if (fd < 0 || ftruncate(fd, sizeof(struct failing)))
		sweep_fail("%s: %s", path, strerror(errno));
	p = mmap(NULL, sizeof(struct failing), PROT_READ | PROT_WRITE,
		 MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		sweep_fail("%s: %s", path, strerror(errno));
	close(fd);
	return p;
}

static void arm(struct failing *f, uint64_t nth)
{
	f->nth = 0;
	f->seen = 0;
	f->fired = 0;
	f->nth = nth;
}

static void print_place(const struct failing *f, const char *program)
{
	char cmd[600];
	size_t len;
	int i;

	if (!f->fired)
		return;
	printf("  call %llu, which failed: %s\n", (unsigned long long)f->seen,
	       f->call);
	len = (size_t)snprintf(cmd, sizeof(cmd),
			       "addr2line -s -f -p -e '%s'", program);
	for (i = 0; i < FAILING_FRAMES && f->frames[i]; i++)
		len += (size_t)snprintf(cmd + len, sizeof(cmd) - len, " %llx",
					(unsigned long long)f->frames[i] - 1);
	fflush(stdout);
	if (i > 0 && system(cmd) != 0)
		printf("  (no addr2line)\n");
}

void sweep_fail(const char *format, ...)
{
	va_list ap;

	printf("FAIL: ");
	if (sw.scenario)
		printf("%s, run %u: ", sw.scenario->name, sw.n);
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	printf("\n");
	if (sw.page)
		print_place(sw.page, sw.program);
	fflush(stdout);
	exit(1);
}

/* How many places in the code have failed: two calls at one place are one. */
static void count_place(void)
{
	uint64_t at = sw.page->frames[0] ^ sw.page->frames[1] << 32;
	unsigned int i;

	for (i = 0; i < sw.nplaces; i++)
		if (sw.places[i] == at)
			return;
	if (sw.nplaces < PLACES_MAX)
		sw.places[sw.nplaces++] = at;
}

/* ---- judging ---- */

/* It could not be set before; or the feed sent an older state between the two,
 * which shows until it sends the newer one. */
static bool lost_attr(const struct result *s)
{
	return strstr(s->op, "removexattr") && s->err == -ENODATA;
}

static bool sensible(const struct result *s)
{
	static const int errs[] = { ENOMEM, EIO, ENOSPC, EAGAIN, EMFILE,
				    ENFILE, ENOBUFS, EBUSY };
	size_t i;

	if (!s->err)
		return true;
	if (!strcmp(s->op, "get"))
		return s->err == -ENOENT;
	if (!strcmp(s->op, "sync") && s->err == -ETIMEDOUT)
		return true;
	if (lost_attr(s))
		return true;
	if (!strncmp(s->op, "file ", 5) && s->err == -ENOENT)
		return true; /* lost after its close */
	for (i = 0; i < sizeof(errs) / sizeof(errs[0]); i++)
		if (s->err == -errs[i])
			return true;
	return false;
}

static void check_alive(void)
{
	char path[64], line[256] = "", *p;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", sw.pid);
	f = fopen(path, "re");
	p = f && fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
	if (f)
		fclose(f);
	if (!p || p[2] == 'Z' || p[2] == 'X')
		sweep_fail("the daemon has died");
}

static void base_key(struct key *k, unsigned int i)
{
	snprintf(k->name, sizeof(k->name), "base.%u", i);
	k->size = i % 2 ? 1000 + i : 50000 * i + 7;
	k->seed = 77000 + i;
}

static void check_base(const char *mount)
{
	uint64_t end = now_ms() + SETTLE_MS;
	char dir[300];
	struct key k;
	unsigned int i;
	int err;

	snprintf(dir, sizeof(dir), "%s/base", mount);
	for (i = 0; i < NBASE; i++) {
		base_key(&k, i);
		while ((err = op_get(dir, &k)) != 0) {
			if (now_ms() > end)
				sweep_fail("a committed object, %s/%s, is "
					   "lost: %s", dir, k.name,
					   strerror(-err));
			sleep_ms(20);
		}
	}
}

/* Whole or absent, and the same through both mounts, in the end. */
static void check_key(const struct key *k)
{
	uint64_t end = now_ms() + SETTLE_MS;
	int a, b;

	for (;;) {
		a = op_get(sw.dir[0], k);
		b = op_get(sw.dir[1], k);
		if (a == b && (!a || a == -ENOENT))
			break;
		if (now_ms() > end)
			sweep_fail("%s: one mount says %s, the other %s",
				   k->name, strerror(-a), strerror(-b));
		sleep_ms(20);
	}
	if (k->removed && !a)
		sweep_fail("%s is back", k->name);
	sw.lost += a != 0 && !k->removed;
}

static void until_ok(const char *what, int (*fn)(const struct key *k),
		     const struct key *k)
{
	uint64_t end = now_ms() + SETTLE_MS;
	int err;

	while ((err = fn(k)) != 0) {
		if (now_ms() > end)
			sweep_fail("%s does not work any more: %s", what,
				   strerror(-err));
		check_alive();
		sleep_ms(20);
	}
}

static int put_again(const struct key *k)
{
	int err = op_put(sw.dir[0], k, true);

	return err ? err : op_sync(sw.dir[0]);
}

static int get_again(const struct key *k)
{
	return op_get(sw.dir[1], k);
}

static int remove_key(const struct key *k)
{
	int err = op_unlink(sw.dir[0], k->name);

	return err && err != -ENOENT ? err : 0;
}

static int sync_again(const struct key *k)
{
	(void)k;
	return op_sync(sw.dir[0]);
}

static int settled(const struct key *k)
{
	struct play p = { .a = sw.dir[0], .b = sw.dir[1], .n = sw.n,
			  .keys = { *k }, .nkeys = 1 };

	return sw.scenario->settled(&p) ? 0 : -EINPROGRESS;
}

static void judge(struct play *p)
{
	struct key again = { .size = 5000, .seed = sw.n + 5000000 };
	unsigned int i;

	check_alive();
	for (i = 0; i < p->nresults; i++)
		if (!sensible(&p->results[i]))
			sweep_fail("%s failed with: %s", p->results[i].op,
				   strerror(-p->results[i].err));
	snprintf(again.name, sizeof(again.name), "again.%u", sw.n);
	until_ok("put", put_again, &again);
	until_ok("get", get_again, &again);
	if (sw.scenario->settled)
		until_ok("what was begun", settled, &p->keys[0]);
	check_base(sw.mount[0]);
	check_base(sw.mount[1]);
	for (i = 0; i < p->nkeys; i++)
		check_key(&p->keys[i]);
	until_ok("unlink", remove_key, &again);
	for (i = 0; i < p->nkeys; i++)
		until_ok("unlink", remove_key, &p->keys[i]);
	until_ok("fsync of the directory", sync_again, &again);
}

static void check_use(const struct use *was)
{
	uint64_t end = now_ms() + SETTLE_MS;
	struct use is;

	for (;;) {
		use_now(&is, sw.pid, sw.mount);
		if (is.fds <= was->fds && (sw.scenario->fills ||
		    (is.bytes[0] <= was->bytes[0] &&
		     is.bytes[1] <= was->bytes[1])))
			return;
		if (now_ms() > end)
			break;
		sleep_ms(50);
	}
	use_print_fds(sw.pid);
	sweep_fail("left behind: %d descriptors were %d, bytes of the stores "
		   "%lld were %lld, %lld were %lld", is.fds, was->fds,
		   is.bytes[0], was->bytes[0], is.bytes[1], was->bytes[1]);
}

/* ---- running ---- */

static void narrate(const struct play *p, uint64_t ms)
{
	unsigned int i;

	printf("run %u: %llu calls in %llu ms", sw.n,
	       (unsigned long long)sw.page->seen, (unsigned long long)ms);
	for (i = 0; i < p->nresults; i++)
		if (p->results[i].err)
			printf("; %s: %s", p->results[i].op,
			       strerror(-p->results[i].err));
	printf("\n");
	print_place(sw.page, sw.program);
}

/* Returns whether a call failed. nth: which, UINT64_MAX: none. use: what there
 * was of it, or NULL. */
static bool play(uint64_t nth, const struct use *use)
{
	struct play p = { .a = sw.dir[0], .b = sw.dir[1], .n = ++sw.n };
	uint64_t begin;
	bool fired;
	unsigned int i;

	arm(sw.page, 0);
	if (sw.scenario->prepare)
		sw.scenario->prepare(&p);
	arm(sw.page, nth);
	begin = now_ms();
	sw.scenario->act(&p);
	fired = sw.page->fired;
	sw.page->nth = 0;
	if (getenv("SWEEP_VERBOSE"))
		narrate(&p, now_ms() - begin);
	if (fired)
		count_place();
	for (i = 0; i < p.nresults && !fired; i++)
		if (p.results[i].err && !lost_attr(&p.results[i]))
			sweep_fail("%s, undisturbed: %s", p.results[i].op,
				   strerror(-p.results[i].err));
	judge(&p);
	if (use)
		check_use(use);
	sw.runs++;
	return fired;
}

static int run(uint64_t first, uint64_t stride)
{
	uint64_t begin = now_ms(), nth;
	struct use use;
	int i;

	for (i = 0; i < 2; i++) {
		snprintf(sw.dir[i], sizeof(sw.dir[i]), "%s/sweep", sw.mount[i]);
		mkdir(sw.dir[i], 0755);
	}
	for (i = 0; i < 3; i++)
		play(UINT64_MAX, NULL);
	/* A sample has at least one; no two runs have equally many. */
	if (sw.page->seen == 0)
		sweep_fail("no call was counted");
	first = 1 + (first - 1) % (sw.page->seen / 2 + 1);
	use_now(&use, sw.pid, sw.mount);
	for (nth = first; nth < RUNS_MAX && play(nth, &use); nth += stride)
		;
	if (nth >= RUNS_MAX)
		sweep_fail("a call failed each time");
	printf("%-8s %5llu runs, every %lluth call of %llu failed, at %u "
	       "places; %u files lost; %u ms a run\n", sw.scenario->name,
	       (unsigned long long)sw.runs, (unsigned long long)stride,
	       (unsigned long long)nth, sw.nplaces, sw.lost,
	       (unsigned int)((now_ms() - begin) / (sw.runs ? sw.runs : 1)));
	return sw.nplaces > 0 ? 0 : 1;
}

static const struct scenario *find(const char *name)
{
	size_t i;

	for (i = 0; i < nscenarios; i++)
		if (!strcmp(scenarios[i].name, name))
			return &scenarios[i];
	sweep_fail("no scenario %s", name);
}

static int base(const char *mount)
{
	char dir[300];
	struct key k;
	unsigned int i;
	int err;

	snprintf(dir, sizeof(dir), "%s/base", mount);
	mkdir(dir, 0755);
	for (i = 0; i < NBASE; i++) {
		base_key(&k, i);
		err = op_put(dir, &k, true);
		if (err)
			sweep_fail("%s: %s", k.name, strerror(-err));
	}
	return op_sync(dir) ? 1 : 0;
}

static int fired(const char *page, const char *program)
{
	struct failing *f = map_page(page);

	print_place(f, program);
	return f->fired ? 0 : 1;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3 && !strcmp(argv[1], "base"))
		return base(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "check")) {
		check_base(argv[2]);
		return 0;
	}
	if (argc == 4 && !strcmp(argv[1], "arm")) {
		arm(map_page(argv[2]), strtoull(argv[3], NULL, 10));
		return 0;
	}
	if (argc == 4 && !strcmp(argv[1], "fired"))
		return fired(argv[2], argv[3]);
	if (argc < 8 || strcmp(argv[1], "run")) {
		fprintf(stderr, "see tests/sweep/sweep.c\n");
		return 2;
	}
	sw.scenario = find(argv[2]);
	sw.page = map_page(argv[3]);
	sw.pid = atoi(argv[4]);
	sw.program = argv[5];
	sw.mount[0] = argv[6];
	sw.mount[1] = argv[7];
	return run(argc > 8 ? strtoull(argv[8], NULL, 10) : 1,
		   argc > 9 ? strtoull(argv[9], NULL, 10) : 1);
}
