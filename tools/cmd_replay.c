/*
 * kvpool replay: sends a recorded trace of real traffic to mounts.
 *
 * The trace is JSON, an object a line, of which "hash_ids" is used: the blocks
 * of a request's prompt, shared by prefix. Requests alternate between the
 * mounts; each looks up its blocks, reads those that exist and stores the
 * others (replay_io.c). Every byte read is compared. At the same time a plain
 * LRU and a FIFO of the same total capacity are simulated over the same blocks
 * in the order of the trace (replay_sim.c).
 *
 * Memory: one block and one request per thread, and the two simulated caches
 * (at most as many entries as blocks fit in the capacity).
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "tools/cmd.h"
#include "tools/replay.h"

#define MOUNTS_MAX 64
#define THREADS_MAX 256
#define FAULTS_SHOWN 10
#define BLOCKS_MAX 65536 /* of one request */

struct replay {
	/* Options. */
	const char *trace_path, *mounts_text, *min_ratio;
	uint64_t block_size, nthreads, limit, capacity;
	bool json;
	/* Constant while threads run. */
	char *mounts_copy; /* owns */
	const char *mounts[MOUNTS_MAX];
	unsigned nmounts;

	/* Under lock: the trace and what is computed along it. */
	pthread_mutex_t lock;
	struct replay_result result;
	FILE *trace; /* owns */
	char *line; /* owns */
	size_t line_cap;
	struct replay_sim *lru, *fifo; /* own */
	char *faults[FAULTS_SHOWN]; /* own */
	unsigned nfaults;
	unsigned running; /* threads */
	pthread_cond_t ended;
	int rc; /* -errno that stopped the replay */

	/* For the progress line. */
	_Atomic uint64_t done_requests, done_blocks, done_hits, done_faults;
	_Atomic uint64_t done_bytes;
};

struct replay_thread {
	pthread_t thread;
	struct replay *r; /* borrows */
	struct replay_io io;
	uint64_t *ids; /* owns; BLOCKS_MAX */
	bool *present; /* owns; BLOCKS_MAX */
};

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void on_fault(const char *text, void *arg)
{
	struct replay *r = arg;

	atomic_fetch_add(&r->done_faults, 1);
	pthread_mutex_lock(&r->lock);
	if (r->nfaults < FAULTS_SHOWN) {
		r->faults[r->nfaults] = strdup(text);
		r->nfaults += r->faults[r->nfaults] != NULL;
	}
	pthread_mutex_unlock(&r->lock);
}

/* --------------------------------------------------------------- trace */

/* Parses one line's ids; returns how many, or -EINVAL: not a request. */
static ssize_t parse_line(const char *line, size_t len, uint64_t *ids)
{
	json_t *root = json_loadb(line, len, 0, NULL);
	const json_t *list = json_object_get(root, "hash_ids");
	size_t n = json_array_size(list);
	ssize_t rc = json_is_array(list) && n <= BLOCKS_MAX ? (ssize_t)n :
							      -EINVAL;

	for (size_t i = 0; rc >= 0 && i < n; i++) {
		const json_t *id = json_array_get(list, i);
		if (!json_is_integer(id))
			rc = -EINVAL;
		ids[i] = (uint64_t)json_integer_value(id);
	}
	json_decref(root);
	return rc;
}

static int simulate_locked(struct replay *r, const uint64_t *ids, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int lru = replay_sim_access(r->lru, ids[i]);
		int fifo = replay_sim_access(r->fifo, ids[i]);
		if (lru < 0 || fifo < 0)
			return -ENOMEM;
		r->result.lru_hits += (uint64_t)lru;
		r->result.fifo_hits += (uint64_t)fifo;
	}
	r->result.sim_blocks += n;
	return 0;
}

/*
 * The next request, in the order of the trace. Returns the number of blocks (it
 * may be 0), or -ENOENT at the end; *ret_mount: the mount whose turn it is.
 */
static ssize_t take_request(struct replay *r, uint64_t *ids,
			    const char **ret_mount)
{
	ssize_t n = -ENOENT;

	pthread_mutex_lock(&r->lock);
	while (n < 0 && r->rc == 0 &&
	       (!r->limit || r->result.requests < r->limit)) {
		ssize_t len = getline(&r->line, &r->line_cap, r->trace);
		if (len < 0) {
			if (ferror(r->trace))
				r->rc = -EIO;
			break;
		}
		if (strspn(r->line, " \t\r\n") == (size_t)len)
			continue;
		n = parse_line(r->line, (size_t)len, ids);
		if (n < 0) {
			r->result.bad_lines++;
			continue;
		}
		r->rc = simulate_locked(r, ids, (size_t)n);
		*ret_mount = r->mounts[r->result.requests % r->nmounts];
		r->result.requests++;
	}
	if (r->rc < 0)
		n = -ENOENT;
	pthread_mutex_unlock(&r->lock);
	return n < 0 ? -ENOENT : n;
}

static void *thread_main(void *arg)
{
	struct replay_thread *t = arg;
	struct replay *r = t->r;
	const char *mount;
	ssize_t n;

	while ((n = take_request(r, t->ids, &mount)) >= 0) {
		uint64_t hits = t->io.stats.hits;
		uint64_t bytes = t->io.stats.bytes_read +
				 t->io.stats.bytes_written;
		replay_io_request(&t->io, mount, t->ids, (size_t)n,
				  t->present);
		atomic_fetch_add(&r->done_requests, 1);
		atomic_fetch_add(&r->done_blocks, (uint64_t)n);
		atomic_fetch_add(&r->done_hits, t->io.stats.hits - hits);
		atomic_fetch_add(&r->done_bytes, t->io.stats.bytes_read +
				 t->io.stats.bytes_written - bytes);
	}
	pthread_mutex_lock(&r->lock);
	r->running--;
	pthread_cond_signal(&r->ended);
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

/* ------------------------------------------------------------ progress */

static void progress(const struct replay *r, double seconds, bool tty)
{
	uint64_t blocks = r->done_blocks;

	fprintf(stderr,
		"%s%llu requests, %llu blocks, %.1f %% hits, %.2f GB/s, "
		"%llu faults, %.0f s%s",
		tty ? "\r" : "", (unsigned long long)r->done_requests,
		(unsigned long long)blocks,
		100 * replay_ratio(r->done_hits, blocks),
		(double)r->done_bytes / 1e9 / (seconds > 0 ? seconds : 1),
		(unsigned long long)r->done_faults, seconds,
		tty ? "  \033[K" : "\n");
}

/* Prints progress until the last thread has ended. */
static void watch(struct replay *r, double start)
{
	bool tty = isatty(STDERR_FILENO);
	struct timespec until;

	pthread_mutex_lock(&r->lock);
	while (r->running > 0) {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += tty ? 1 : 5;
		int rc = 0;
		while (r->running > 0 && rc != ETIMEDOUT)
			rc = pthread_cond_timedwait(&r->ended, &r->lock,
						    &until);
		if (r->running == 0)
			break;
		pthread_mutex_unlock(&r->lock);
		progress(r, now_s() - start, tty);
		pthread_mutex_lock(&r->lock);
	}
	pthread_mutex_unlock(&r->lock);
	if (tty)
		fputs("\r\033[K", stderr);
}

static void thread_fini(struct replay_thread *t)
{
	replay_io_fini(&t->io);
	free(t->ids);
	free(t->present);
}

static int thread_init(struct replay_thread *t, struct replay *r, unsigned i)
{
	t->r = r;
	t->ids = calloc(BLOCKS_MAX, sizeof(*t->ids));
	t->present = calloc(BLOCKS_MAX, sizeof(*t->present));
	if (!t->ids || !t->present)
		return -ENOMEM;
	return replay_io_init(&t->io, r->block_size,
			      (uint64_t)getpid() << 32 | i, on_fault, r);
}

static void stats_merge(struct replay_stats *to,
			const struct replay_stats *from)
{
	to->blocks += from->blocks;
	to->hits += from->hits;
	to->vanished += from->vanished;
	to->stored += from->stored;
	to->skipped += from->skipped;
	to->wrong += from->wrong;
	to->errors += from->errors;
	to->bytes_read += from->bytes_read;
	to->bytes_written += from->bytes_written;
	bench_hist_merge(&to->access_hit, &from->access_hit);
	bench_hist_merge(&to->access_miss, &from->access_miss);
	bench_hist_merge(&to->read, &from->read);
	bench_hist_merge(&to->write, &from->write);
}

/* 0, or -errno: the replay was stopped. */
static int run_threads(struct replay *r)
{
	struct replay_thread *t = calloc(r->nthreads, sizeof(*t));
	unsigned ready = 0, started = 0;
	double start = now_s();
	int rc = t ? 0 : -ENOMEM;

	for (; rc == 0 && ready < r->nthreads; ready++)
		rc = thread_init(&t[ready], r, ready);
	for (; rc == 0 && started < r->nthreads; started++) {
		pthread_mutex_lock(&r->lock);
		r->running++;
		pthread_mutex_unlock(&r->lock);
		rc = -pthread_create(&t[started].thread, NULL, thread_main,
				     &t[started]);
		if (rc < 0) {
			pthread_mutex_lock(&r->lock);
			r->running--;
			r->rc = rc; /* the others stop */
			pthread_mutex_unlock(&r->lock);
			break;
		}
	}
	watch(r, start);
	for (unsigned i = 0; i < started; i++)
		pthread_join(t[i].thread, NULL);
	for (unsigned i = 0; i < ready; i++) {
		stats_merge(&r->result.stats, &t[i].io.stats);
		thread_fini(&t[i]);
	}
	free(t);
	return rc < 0 ? rc : r->rc;
}

/* --------------------------------------------------------------- verdict */

/* The ratio that --min-ratio requires; parsed before the run. */
static double wanted_ratio(const struct replay *r)
{
	if (!r->min_ratio)
		return 0;
	if (strcmp(r->min_ratio, "lru") == 0)
		return replay_ratio(r->result.lru_hits, r->result.sim_blocks);
	if (strcmp(r->min_ratio, "fifo") == 0)
		return replay_ratio(r->result.fifo_hits, r->result.sim_blocks);
	return strtod(r->min_ratio, NULL);
}

/* Prints what is wrong with the run to stderr; returns the exit status. */
static int judge(const struct replay *r)
{
	const struct replay_stats *s = &r->result.stats;
	double want = wanted_ratio(r), got = replay_ratio(s->hits, s->blocks);
	int status = 0;

	for (unsigned i = 0; i < r->nfaults; i++)
		fprintf(stderr, "kvpool replay: %s\n", r->faults[i]);
	if (s->wrong || s->errors) {
		fprintf(stderr,
			"kvpool replay: %llu blocks with wrong bytes, %llu "
			"errors\n", (unsigned long long)s->wrong,
			(unsigned long long)s->errors);
		status = 1;
	}
	if (r->result.bad_lines) {
		fprintf(stderr,
			"kvpool replay: %llu lines of %s are not requests\n",
			(unsigned long long)r->result.bad_lines, r->trace_path);
		status = 1;
	}
	if (!s->blocks) {
		fprintf(stderr, "kvpool replay: %s holds no request\n",
			r->trace_path);
		status = 1;
	}
	if (got < want) {
		fprintf(stderr,
			"kvpool replay: hit ratio %.4f, wanted at least %.4f\n",
			got, want);
		status = 1;
	}
	return status;
}

/* ------------------------------------------------------------- options */

static int bad_value(const char *option, const char *given,
		     const char *accepted)
{
	fprintf(stderr,
		"kvpool replay: --%s: \"%s\" given; accepted: %s\n", option,
		given, accepted);
	return -EINVAL;
}

static int split_mounts(struct replay *r)
{
	char *rest, *dir;

	r->mounts_copy = strdup(r->mounts_text);
	if (!r->mounts_copy)
		return -ENOMEM;
	for (rest = r->mounts_copy; (dir = strsep(&rest, ","));) {
		if (!*dir || r->nmounts == MOUNTS_MAX ||
		    access(dir, W_OK) < 0)
			return bad_value("mounts", r->mounts_text,
					 "writable directories, DIR[,DIR...]");
		r->mounts[r->nmounts++] = dir;
	}
	return 0;
}

/* Without --capacity: the capacity that the first mount reports. */
static int default_capacity(struct replay *r)
{
	struct statvfs sv;

	if (r->capacity)
		return 0;
	if (statvfs(r->mounts[0], &sv) < 0)
		return -errno;
	r->capacity = (uint64_t)sv.f_blocks * sv.f_frsize;
	return 0;
}

static int check_min_ratio(const char *text)
{
	char *end;

	if (!text || strcmp(text, "lru") == 0 || strcmp(text, "fifo") == 0)
		return 0;
	double v = strtod(text, &end);
	if (*end || end == text || !(v >= 0 && v <= 1))
		return bad_value("min-ratio", text,
				 "lru, fifo or a number from 0 to 1");
	return 0;
}

static int replay_open(struct replay *r)
{
	pthread_condattr_t attr;
	int rc = split_mounts(r);

	if (rc == 0)
		rc = default_capacity(r);
	if (rc == 0)
		rc = check_min_ratio(r->min_ratio);
	if (rc < 0)
		return rc;
	r->trace = fopen(r->trace_path, "re");
	if (!r->trace) {
		fprintf(stderr, "kvpool replay: --trace %s: %s\n",
			r->trace_path, strerror(errno));
		return -EINVAL;
	}
	r->lru = replay_sim_open(true, r->capacity / r->block_size);
	r->fifo = replay_sim_open(false, r->capacity / r->block_size);
	pthread_mutex_init(&r->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&r->ended, &attr);
	pthread_condattr_destroy(&attr);
	return r->lru && r->fifo ? 0 : -ENOMEM;
}

static void replay_close(struct replay *r)
{
	if (r->trace)
		fclose(r->trace);
	replay_sim_close(r->lru);
	replay_sim_close(r->fifo);
	for (unsigned i = 0; i < r->nfaults; i++)
		free(r->faults[i]);
	free(r->line);
	free(r->mounts_copy);
}

static int replay_run(struct replay *r)
{
	double start = now_s();
	int rc = run_threads(r);

	if (rc < 0) {
		fprintf(stderr, "kvpool replay: stopped: %s\n", strerror(-rc));
		return 1;
	}
	r->result.block_size = r->block_size;
	r->result.capacity = r->capacity;
	r->result.seconds = now_s() - start;
	if (r->json)
		replay_print_json(&r->result);
	else
		replay_print_table(&r->result);
	return judge(r);
}

int cmd_replay(int argc, char **argv)
{
	struct replay r = { .block_size = 128 << 10, .nthreads = 1 };
	struct daemon_option opts[] = {
		{ .name = "trace",
		  .type = OPT_STRING,
		  .value = &r.trace_path,
		  .arg = "FILE",
		  .help = "The trace: JSON lines with \"hash_ids\"." },
		{ .name = "mounts",
		  .type = OPT_STRING,
		  .value = &r.mounts_text,
		  .arg = "DIR,DIR",
		  .help = "Requests alternate between them." },
		{ .name = "block-size",
		  .type = OPT_SIZE,
		  .value = &r.block_size,
		  .arg = "N",
		  .help = "Size of a block.",
		  .min = 8,
		  .max = 1 << 30 },
		{ .name = "threads",
		  .type = OPT_COUNT,
		  .value = &r.nthreads,
		  .arg = "N",
		  .help = "Requests in flight.",
		  .min = 1,
		  .max = THREADS_MAX },
		{ .name = "requests",
		  .type = OPT_COUNT,
		  .value = &r.limit,
		  .arg = "N",
		  .help = "Number of requests; 0: all." },
		{ .name = "capacity",
		  .type = OPT_SIZE,
		  .value = &r.capacity,
		  .arg = "N",
		  .help = "Size of the computed LRU and FIFO caches; 0: that\n"
			  "of the first mount, by statvfs." },
		{ .name = "min-ratio",
		  .type = OPT_STRING,
		  .value = &r.min_ratio,
		  .arg = "lru|fifo|X",
		  .help = "Exit status 1 if fewer blocks hit." },
		{ .name = "json",
		  .type = OPT_FLAG,
		  .value = &r.json,
		  .help = "Print JSON." },
		{ .name = NULL },
	};
	char **operands;
	int noperands;
	int rc = daemon_options_parse(
		opts, argc, argv,
		"usage: kvpool replay --trace FILE "
		"--mounts DIR[,DIR...] [OPTION]...\n\n"
		"Replays a trace of requests, and compares the hit "
		"ratio with that of an LRU\nand a FIFO cache of the "
		"same size.",
		&noperands, &operands, stdout, stderr);

	if (rc != 0)
		return rc > 0 ? 0 : 2;
	if (!r.trace_path || !r.mounts_text || noperands) {
		fputs("kvpool replay: --trace FILE and --mounts DIR[,DIR...] "
		      "are needed, and no operand\n", stderr);
		return 2;
	}
	rc = replay_open(&r);
	if (rc == 0)
		rc = replay_run(&r);
	else if (rc != -EINVAL)
		fprintf(stderr, "kvpool replay: %s\n", strerror(-rc));
	replay_close(&r);
	return rc == -EINVAL ? 2 : rc < 0 ? 1 : rc;
}
