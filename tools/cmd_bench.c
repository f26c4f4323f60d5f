/*
 * kvpool bench: ratios of a mount's speed to that of references, measured in
 * one run (see bench.h). The reader judges the ratios; the exit status only
 * says whether the measurement worked.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/bench.h"
#include "tools/cmd.h"

#define MOUNT_MAX 600
#define ROUNDS_MAX 101
#define RESULTS_MAX 64

struct result {
	const char *name, *what, *unit;
	double ours, ref, ratio; /* 0: none */
	double p50, p99, ref_p99; /* us; 0: none */
};

struct report {
	struct result rows[RESULTS_MAX];
	unsigned n;
	struct bench_machine machine;
	struct bench_memory memory[4];
	unsigned nmemory;
	bool counted; /* the daemon reports its count of requests */
	double reads, writes, look_reads;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	(void)sig;
	interrupted = 1;
}

/* -------------------------------------------------------------- measuring */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v, unsigned n)
{
	qsort(v, n, sizeof(*v), by_value);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static struct result *new_row(struct report *rep, const char *name,
			      const char *what, const char *unit)
{
	if (rep->n == RESULTS_MAX)
		return NULL;
	struct result *row = &rep->rows[rep->n++];
	*row = (struct result){ .name = name, .what = what, .unit = unit };
	return row;
}

/* The result of a case from the times of one operation, in seconds. */
static void add_result(struct report *rep, const struct bench_case *c,
		       double ours_s, double ref_s, const struct bench_hist *h,
		       const struct bench_hist *ref_h)
{
	struct result *row =
		new_row(rep, c->name, c->what, c->is_time ? "us" : "GiB/s");

	if (!row)
		return;
	if (c->is_time) {
		row->ours = ours_s * 1e6;
		row->ref = ref_s * 1e6;
		row->ratio = ours_s / ref_s;
	} else {
		row->ours = (double)c->bytes / ours_s / (1 << 30);
		row->ref = (double)c->bytes / ref_s / (1 << 30);
		row->ratio = ref_s / ours_s;
	}
	if (h->count) {
		row->p50 = bench_hist_us(h, 0.5);
		row->p99 = bench_hist_us(h, 0.99);
	}
	if (ref_h->count)
		row->ref_p99 = bench_hist_us(ref_h, 0.99);
}

/* READ and WRITE requests that have reached the daemon. Reading the counters
 * costs READs, too; run_data measures how many first. */
struct looks {
	double reads, writes;
};
static void look(const struct bench *b, struct report *rep, struct looks *l)
{
	if (rep->counted && bench_requests(b, &l->reads, &l->writes) < 0)
		rep->counted = false;
}

/* One warm-up of both sides, then the rounds: each begins with the side that
 * the round before ended with. */
static int run_case(struct bench *b, const struct bench_case *c,
		    struct report *rep)
{
	static struct bench_hist lat[2], warm;
	double times[2][ROUNDS_MAX];
	struct looks before = { 0 }, after = { 0 };
	int rc = 0;

	memset(lat, 0, sizeof(lat));
	for (unsigned r = 0; r <= b->rounds && rc == 0; r++) {
		if (r == 1)
			look(b, rep, &before);
		for (unsigned k = 0; k < 2 && rc == 0; k++) {
			unsigned i = (r + k) % 2;
			double s = 0;
			if (interrupted)
				return -EINTR;
			rc = c->turn(b, c, i ? c->ref : BENCH_OURS,
				     r ? &lat[i] : &warm, &s);
			if (r)
				times[i][r - 1] = s;
		}
	}
	look(b, rep, &after);
	rep->reads += after.reads - before.reads - rep->look_reads;
	rep->writes += after.writes - before.writes;
	if (rc == 0)
		add_result(rep, c, median(times[0], (unsigned)b->rounds),
			   median(times[1], (unsigned)b->rounds), &lat[0],
			   &lat[1]);
	return rc;
}

/* Does name match the comma-separated list of prefixes? */
static bool wanted(const char *only, const char *name)
{
	if (!only)
		return true;
	while (*only) {
		size_t n = strcspn(only, ",");
		if (n && strncmp(only, name, n) == 0)
			return true;
		only += n + (only[n] == ',');
	}
	return false;
}

static bool applies(const struct bench *b, const struct bench_case *c)
{
	if (c->needs_mount2 && !b->mount2)
		return false;
	/* Compare like with like: bytes with a socket, descriptors with local
	 * files. */
	if (c->ref == BENCH_SOCKET)
		return !b->fd_passing;
	return c->ref != BENCH_LOCAL || b->fd_passing;
}

static int run_cases(struct bench *b, const struct bench_case *cases,
		     const char *only, bool data, struct report *rep)
{
	for (const struct bench_case *c = cases; c->name; c++) {
		if (c->is_data != data || !wanted(only, c->name) ||
		    !applies(b, c))
			continue;
		fprintf(stderr, "kvpool bench: %s ...\n", c->name);
		int rc = run_case(b, c, rep);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Runs the data cases and counts the requests of their rounds. The warm-up is
 * not counted: a file of a new size goes through the daemon. */
static int run_data(struct bench *b, const char *only, struct report *rep)
{
	struct looks l[2] = { { 0 } };
	unsigned before = rep->n;
	int rc;

	rep->counted = true;
	look(b, rep, &l[0]);
	look(b, rep, &l[1]);
	rep->look_reads = l[1].reads - l[0].reads;
	rc = run_cases(b, bench_io_cases, only, true, rep);
	if (rc == 0 && !rep->counted)
		fprintf(stderr,
			"kvpool bench: %s/.kvpool/metrics has no counts of "
			"requests: not counted\n", b->mount);
	if (rc < 0 || rep->n == before || !rep->counted)
		return rc;
	for (int i = 0; i < 2; i++) {
		struct result *row = new_row(
			rep, i ? "requests_write" : "requests_read",
			i ? "WRITE requests that reached the daemon" :
			    "READ requests that reached the daemon", "");
		if (!row)
			return -ENOSPC;
		row->ours = i ? rep->writes : rep->reads;
	}
	return 0;
}

static int run_busy(struct bench *b, struct report *rep)
{
	struct bench_hist ours = { 0 }, ref = { 0 };
	int rc = bench_busy_access(b, b->dirs[BENCH_OURS], &ours);

	if (rc == 0)
		rc = bench_busy_access(b, b->dirs[BENCH_PLAIN], &ref);
	struct result *row = rc ? NULL :
		new_row(rep, "access_busy",
			"access() p99 while 16 writers run, time / tmpfs",
			"us");
	if (!row)
		return rc;
	row->ours = row->p99 = bench_hist_us(&ours, 0.99);
	row->ref = row->ref_p99 = bench_hist_us(&ref, 0.99);
	row->ratio = row->ours / row->ref;
	row->p50 = bench_hist_us(&ours, 0.5);
	return 0;
}

static int run_visible(struct bench *b, struct report *rep)
{
	struct bench_hist lat = { 0 };
	int rc = bench_visible(b, &lat);
	struct result *row = rc ? NULL :
		new_row(rep, "visible", "closed here until readable there, p99",
			"us");

	if (!row)
		return rc;
	row->p50 = bench_hist_us(&lat, 0.5);
	row->ours = row->p99 = bench_hist_us(&lat, 0.99);
	return 0;
}

static const struct {
	size_t size;
	unsigned objects;
} memory_sets[] = { { 4096, 20000 }, { 10000, 20000 }, { 128 << 10, 4000 } };
#define NSETS (sizeof(memory_sets) / sizeof(memory_sets[0]))

/* Do the objects fit? If some must be evicted, the figures mean nothing. */
static bool memory_fits(const struct bench *b)
{
	char path[BENCH_PATH], has[32], needs[32];
	uint64_t need = 0, room;
	json_t *status, *store;

	for (unsigned i = 0; i < NSETS; i++) {
		uint64_t n = bench_memory_bytes(memory_sets[i].size,
						memory_sets[i].objects);

		need = n > need ? n : need;
	}
	snprintf(path, sizeof(path), "%s/.kvpool/status", b->mount);
	status = json_load_file(path, 0, NULL);
	store = json_object_get(status, "store");
	room = (uint64_t)json_integer_value(json_object_get(store, "free"));
	json_decref(status);
	if (room >= need)
		return true;
	fprintf(stderr,
		"kvpool bench: --memory needs %s free in the store of this "
		"node, which has %s: give it a larger --store-size, or empty "
		"it\n",
		pool_format_size(need, needs, sizeof(needs)),
		pool_format_size(room, has, sizeof(has)));
	return false;
}

static int run_memory(struct bench *b, struct report *rep)
{
	int rc = 0;

	for (unsigned i = 0; i < NSETS && rc == 0; i++) {
		fprintf(stderr, "kvpool bench: memory, %zu bytes ...\n",
			memory_sets[i].size);
		rc = bench_memory(b, memory_sets[i].size,
				  memory_sets[i].objects,
				  &rep->memory[i]);
		rep->nmemory += rc == 0;
	}
	return rc;
}

static int run_all(struct bench *b, const char *only, bool memory,
		   struct report *rep)
{
	int rc = bench_machine(&rep->machine);

	if (rc == 0)
		rc = run_data(b, only, rep);
	if (rc == 0)
		rc = run_cases(b, bench_probe_cases, only, false, rep);
	if (rc == 0 && wanted(only, "access_busy"))
		rc = run_busy(b, rep);
	if (rc == 0)
		rc = run_cases(b, bench_remote_cases, only, false, rep);
	if (rc == 0 && b->mount2 && wanted(only, "visible"))
		rc = run_visible(b, rep);
	if (rc == 0 && memory)
		rc = run_memory(b, rep);
	return rc;
}

/* ----------------------------------------------------------------- report */

static void cell(double v, int width)
{
	if (v <= 0)
		printf(" %*s", width, v < 0 ? "?" : "-");
	else
		printf(" %*.*f", width, v < 10 ? 2 : v < 1000 ? 1 : 0, v);
}

static void print_row(const struct result *r)
{
	printf("%-54s", r->what);
	if (strncmp(r->name, "requests", 8) == 0)
		printf(" %9.0f", r->ours);
	else
		cell(r->ours, 9);
	cell(r->ref, 9);
	printf(" %-5s", r->unit);
	cell(r->ratio, 7);
	cell(r->p50, 8);
	cell(r->p99, 8);
	cell(r->ref_p99, 8);
	putchar('\n');
}

static void print_table(const struct report *rep)
{
	printf("This machine: a thread on another CPU wakes in %.0f us (2 to 5 "
	       "without a hypervisor);\nfresh memory costs %.0f us a MiB at "
	       "its "
	       "first touch (20 to 100).\n",
	       rep->machine.wake_us, rep->machine.fresh_us_per_mib);
	printf("%-54s %9s %9s %-5s %7s %8s %8s %8s\n", "what", "ours",
	       "reference", "unit", "ratio", "p50 us", "p99 us", "ref p99");
	for (unsigned i = 0; i < rep->n; i++)
		print_row(&rep->rows[i]);
	for (unsigned i = 0; i < rep->nmemory; i++) {
		const struct bench_memory *m = &rep->memory[i];
		printf("memory of an object of %6zu bytes: its pages + %.0f "
		       "bytes (slab %.0f, anonymous %.0f), mean of %u\n",
		       m->size, m->over, m->slab, m->anon, m->objects);
	}
}

static void print_json(const struct report *rep)
{
	json_t *rows = json_array(), *memory = json_array();

	for (unsigned i = 0; i < rep->n; i++) {
		const struct result *r = &rep->rows[i];
		json_t *j = json_pack(
			"{s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f}",
			"name", r->name, "what", r->what, "unit", r->unit,
			"ours", r->ours, "reference", r->ref, "ratio",
			r->ratio, "p50_us", r->p50, "p99_us", r->p99,
			"reference_p99_us", r->ref_p99);

		json_array_append_new(rows, j);
	}
	for (unsigned i = 0; i < rep->nmemory; i++) {
		const struct bench_memory *m = &rep->memory[i];
		json_array_append_new(
			memory,
			json_pack("{s:I, s:I, s:f, s:f, s:f, s:f}", "size",
				  (json_int_t)m->size, "objects",
				  (json_int_t)m->objects, "total", m->total,
				  "over", m->over, "slab", m->slab, "anon",
				  m->anon));
	}
	json_t *all = json_pack("{s:{s:f, s:f}, s:o, s:o}", "machine",
				"wake_us", rep->machine.wake_us,
				"fresh_us_per_mib",
				rep->machine.fresh_us_per_mib, "rows", rows,
				"memory", memory);
	json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
	putchar('\n');
	json_decref(all);
}

/* ------------------------------------------------------------- set-up */

static void remove_dir(const char *dir)
{
	char path[BENCH_PATH + 256];
	struct dirent *e;

	for (int again = 0; again < 3; again++) {
		DIR *d = opendir(dir);
		if (!d)
			return;
		while ((e = readdir(d))) {
			if (strcmp(e->d_name, ".") == 0 ||
			    strcmp(e->d_name, "..") == 0)
				continue;
			snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
			if (unlink(path) < 0 && errno == EISDIR)
				remove_dir(path);
		}
		closedir(d);
		if (rmdir(dir) == 0)
			return;
	}
}

static int own_dirs(struct bench *b)
{
	struct stat st;

	snprintf(b->dirs[BENCH_OURS], BENCH_DIR, "%s/bench_%d", b->mount,
		 getpid());
	if (mkdir(b->dirs[BENCH_OURS], 0755) < 0) {
		int rc = bench_error("mkdir", b->dirs[BENCH_OURS]);
		b->dirs[BENCH_OURS][0] = 0;
		return rc;
	}
	if (!b->mount2)
		return 0;
	snprintf(b->dir2, sizeof(b->dir2), "%s/bench_%d", b->mount2, getpid());
	double end = bench_now() + 10;
	while (stat(b->dir2, &st) < 0) {
		if (bench_now() > end)
			return bench_error("a directory made through the "
					   "other mount,", b->dir2);
		usleep(2000);
	}
	return 0;
}

static unsigned char *warm_buffer(void)
{
	void *p;

	if (posix_memalign(&p, 2 * BENCH_MIB, BENCH_BUF) != 0)
		return NULL;
	/* All words differ, so that pages cannot be compared or merged. */
	uint64_t *w = p;
	for (size_t i = 0; i < BENCH_BUF / 8; i++)
		w[i] = i * 0x9e3779b97f4a7c15ull;
	return p;
}

static int bench_run(struct bench *b, const char *only, bool memory,
		     struct report *rep)
{
	struct sigaction sa = { .sa_handler = on_signal };
	int rc;

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	b->buf = warm_buffer();
	b->other = warm_buffer();
	rc = b->buf && b->other ? bench_refs_open(b) : -ENOMEM;
	if (rc == 0)
		rc = own_dirs(b);
	if (rc == 0)
		rc = run_all(b, only, memory, rep);
	if (b->dirs[BENCH_OURS][0])
		remove_dir(b->dirs[BENCH_OURS]);
	bench_refs_close(b);
	free(b->buf);
	free(b->other);
	return rc;
}

/* Without this check a plain directory would be measured as a pool. */
static bool is_pool(const char *option, const char *dir)
{
	char path[PATH_MAX], mount[PATH_MAX], key[PATH_MAX];
	int rc = cmd_mount_path(dir, path, sizeof(path));

	if (!rc)
		rc = cmd_mount_key(path, mount, key);
	if (!rc && !key[0])
		return true;
	fprintf(stderr,
		"kvpool bench: %s: \"%s\" given; accepted: where a pool is "
		"mounted\n",
		option, dir);
	return false;
}

/* Prints what is wrong with the node or its machine, because it affects the
 * figures. */
static void say_what_costs(const char *mount)
{
	struct pool_hostport admin = { 0 };

	cmd_mount_admin(mount, &admin);
	if (admin.host[0])
		cmd_doctor_brief(&admin, stderr);
}

int cmd_bench(int argc, char **argv)
{
	struct bench b = { .rounds = 9, .socket_fd = -1 };
	const char *only = NULL;
	bool json = false, memory = false;
	struct daemon_option opts[] = {
		{ .name = "mount",
		  .type = OPT_STRING,
		  .value = &b.mount,
		  .arg = "DIR",
		  .help = "The mount to measure." },
		{ .name = "mount2",
		  .type = OPT_STRING,
		  .value = &b.mount2,
		  .arg = "DIR",
		  .help = "Another node's mount of the same pool, to measure\n"
			  "transfers between nodes." },
		{ .name = "only",
		  .type = OPT_STRING,
		  .value = &only,
		  .arg = "NAME,...",
		  .help = "Only cases whose names begin with one of these, as\n"
			  "--json prints them: read_4m, write, access, "
			  "remote." },
		{ .name = "rounds",
		  .type = OPT_COUNT,
		  .value = &b.rounds,
		  .arg = "N",
		  .help = "Rounds; each measures both sides.",
		  .min = 1,
		  .max = ROUNDS_MAX },
		{ .name = "fd-passing",
		  .type = OPT_FLAG,
		  .value = &b.fd_passing,
		  .help = "Nodes pass descriptors: compare a first read with "
			  "a\n"
			  "local one, not with a socket." },
		{ .name = "memory",
		  .type = OPT_FLAG,
		  .value = &memory,
		  .help = "Also measure memory per object (900 MiB, 20 s)." },
		{ .name = "json",
		  .type = OPT_FLAG,
		  .value = &json,
		  .help = "Print JSON." },
		{ .name = NULL },
	};
	static struct report rep;
	char **operands;
	int noperands;
	int rc = daemon_options_parse(
		opts, argc, argv,
		"usage: kvpool bench --mount DIR [--mount2 DIR] [OPTION]...\n"
		"\n"
		"Compares the mount with tmpfs, with a FUSE daemon that does "
		"nothing and,\n"
		"between two nodes, with a plain socket. Needs root, for its "
		"own mounts.",
		&noperands, &operands, stdout, stderr);

	if (rc != 0)
		return rc > 0 ? 0 : 2;
	if (!b.mount || noperands) {
		fputs("kvpool bench: --mount DIR is needed, and no operand\n",
		      stderr);
		return 2;
	}
	if (strlen(b.mount) > MOUNT_MAX ||
	    (b.mount2 && strlen(b.mount2) > MOUNT_MAX)) {
		fprintf(stderr, "kvpool bench: a mount's name of more than %d "
			"bytes\n", MOUNT_MAX);
		return 2;
	}
	if (!is_pool("--mount", b.mount) ||
	    (b.mount2 && !is_pool("--mount2", b.mount2)) ||
	    (memory && !memory_fits(&b)))
		return 1;
	rc = bench_run(&b, only, memory, &rep);
	if (json)
		print_json(&rep);
	else if (rep.n || rep.nmemory)
		print_table(&rep);
	if (rc < 0)
		fprintf(stderr, "kvpool bench: stopped: %s\n", strerror(-rc));
	say_what_costs(b.mount);
	return rc < 0;
}
