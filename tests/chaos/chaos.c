/*
 * chaos --mounts DIR[,DIR...] [--seed N] [--threads N] [--call-ms N]
 *       [--fsync-ms N]
 *
 * Runs operations until "end". The script that injects faults sends commands on
 * stdin, one a line; each is answered with "ok" on stdout. N: a mount, from 0.
 *
 *   down N   its daemon is about to be killed or ended
 *   stop N   its daemon is about to be stopped (SIGSTOP); cont N: it runs again
 *   cut N    it may miss changes from now on
 *   sync N   fsync a directory of it; the answer is "no" if that fails
 *   up N     it serves, and has received all changes
 *   loose    several stores may be away or slow at the same time
 *   tight    at most one store is
 *   full     puts may find no space; roomy: they do again
 *   lossy all|shared
 *            the present objects may be lost. all: copies were damaged; shared:
 *            the stores were full, which spares the keys that are `kept`
 *   evicted PATH
 *            a node has reported that it evicted the last copy of this path
 *   plant    lose a name that must exist, and print it to stderr: the next
 *            "whole" must detect that
 *   whole    all faults have been repaired: make the final checks, without an
 *            operation in progress
 *   end      the same, and print the report
 *
 * Exit status: 0; 1 after a violation; 2 for wrong usage.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/chaos/chaos.h"

#define FINAL_S 40
#define NEVER_MS 80000 /* an operation has many calls, and waits for others */
#define READS_MIN 200 /* with fewer, a run proves nothing */
#define OWED_MIN 20   /* the same, of names that had to exist */

static struct chaos_worker workers[CHAOS_MOUNTS_MAX * CHAOS_THREADS_MAX];
static unsigned int nworkers;
static unsigned int owed; /* names that had to exist, of all "whole" */
static _Atomic bool over; /* the watcher may end */

static void *work(void *arg)
{
	while (!chaos.stop) {
		pthread_rwlock_rdlock(&chaos.turn);
		chaos_op_run(arg);
		pthread_rwlock_unlock(&chaos.turn);
	}
	return NULL;
}

/* Reports operations that never end. It also reads the clock all the time, so
 * that one long call does not look like a stall of the machine. */
static void *watch(void *arg)
{
	(void)arg;
	while (!over) {
		uint64_t now = chaos_now_ms();

		for (unsigned int i = 0; i < nworkers; i++) {
			uint64_t since = workers[i].busy_since;

			if (since && now > since + NEVER_MS) {
				chaos_fail(NULL,
					   "mount %d: operation %d has not "
					   "ended after %" PRIu64 " ms",
					   workers[i].mount,
					   workers[i].busy_with, now - since);
				chaos_ops_report();
				_exit(1); /* its thread cannot be joined */
			}
		}
		usleep(100000);
	}
	return NULL;
}

static int make_dirs(void)
{
	char path[CHAOS_PATH];

	for (const struct chaos_dir *d = chaos_dirs; d->name; d++) {
		snprintf(path, sizeof(path), "%s/%s", chaos.mounts[0].dir,
			 d->name);
		if (mkdir(path, 0755) && errno != EEXIST)
			goto err;
		for (int i = 0; i < 2 && d->rules[i][0]; i++)
			if (setxattr(path, d->rules[i][0], d->rules[i][1],
				     strlen(d->rules[i][1]), 0))
				goto err;
		if (chaos_fsync_dir(0, d))
			goto err;
	}
	return 0;
err:
	fprintf(stderr, "chaos: %s: %s\n", path, strerror(errno));
	return -1;
}

static int start_workers(void)
{
	for (unsigned int i = 0; i < chaos.nmounts * chaos.threads; i++) {
		struct chaos_worker *w = &workers[i];

		w->mount = (int)(i % chaos.nmounts);
		w->number = (int)i;
		w->random = chaos.seed * 1000003 + i * 0x10001;
		w->buf = malloc(CHAOS_SIZE_MAX + 8);
		if (!w->buf || pthread_create(&w->thread, NULL, work, w))
			return -1;
		nworkers++;
	}
	return 0;
}

static void join_workers(void)
{
	for (unsigned int i = 0; i < nworkers; i++) {
		pthread_join(workers[i].thread, NULL);
		free(workers[i].buf);
	}
}

static bool set_tight(bool tight)
{
	chaos.tight = tight;
	chaos.tight_changes++;
	return true;
}

static bool set_lossy(const char *whose)
{
	bool all = strcmp(whose, "all") == 0;

	if (!all && strcmp(whose, "shared") != 0)
		return false;
	for (unsigned int i = 0; i < chaos.nkeys; i++)
		if (all || !chaos.keys[i].dir->kept)
			chaos_lossy(&chaos.keys[i]);
	return true;
}

static bool set_mount(const char *what, const char *number)
{
	unsigned int n = (unsigned int)atoi(number);
	struct chaos_mount *m = &chaos.mounts[n];

	if (n >= chaos.nmounts)
		return false;
	if (strcmp(what, "down") == 0)
		m->state = CHAOS_DOWN;
	else if (strcmp(what, "cut") == 0)
		m->state = m->state == CHAOS_DOWN ? CHAOS_DOWN : CHAOS_CUT;
	else if (strcmp(what, "up") == 0)
		m->state = CHAOS_UP;
	else
		return false;
	m->changes++;
	m->deaths += m->state == CHAOS_DOWN;
	return true;
}

static bool set_asleep(const char *number)
{
	unsigned int n = (unsigned int)atoi(number);

	if (n >= chaos.nmounts)
		return false;
	chaos.mounts[n].sleeps++;
	return true;
}

static bool check_whole(void)
{
	pthread_rwlock_wrlock(&chaos.turn);
	owed += chaos_whole(FINAL_S);
	pthread_rwlock_unlock(&chaos.turn);
	return true;
}

/* Removes a file without a record in the model. */
static bool plant_loss(void)
{
	char path[CHAOS_PATH];
	int err = -1;

	pthread_rwlock_wrlock(&chaos.turn);
	for (unsigned int i = 0; err && i < chaos.nkeys; i++) {
		if (chaos.keys[i].dir->kept || !chaos_owed(&chaos.keys[i]))
			continue;
		chaos_path(path, 0, &chaos.keys[i]);
		err = unlink(path);
		if (!err)
			fprintf(stderr, "planted: %s\n", chaos.keys[i].name);
	}
	pthread_rwlock_unlock(&chaos.turn);
	return !err;
}

static bool set_full(void)
{
	chaos.fulls++;
	return true;
}

/* Executes a command. False: it is "end", or not valid. */
static bool obey(const char *line)
{
	char what[8], which[96];
	int words = sscanf(line, "%7s %95s", what, which);

	if (words == 1 && strcmp(what, "loose") == 0)
		return set_tight(false);
	if (words == 1 && (!strcmp(what, "full") || !strcmp(what, "roomy")))
		return set_full();
	if (words == 1 && strcmp(what, "whole") == 0)
		return check_whole();
	if (words == 1 && strcmp(what, "plant") == 0)
		return plant_loss();
	if (words == 1 && strcmp(what, "tight") == 0)
		return set_tight(true);
	if (words == 2 && strcmp(what, "lossy") == 0)
		return set_lossy(which);
	if (words == 2 && strcmp(what, "evicted") == 0) {
		chaos_lossy_path(which);
		return true;
	}
	if (words == 2 && (!strcmp(what, "stop") || !strcmp(what, "cont")))
		return set_asleep(which);
	return words == 2 && set_mount(what, which);
}

/* Executes "sync", which the script uses instead of an fsync of its own,
 * because the kernel would make the two wait for each other. After a death of
 * the mount's daemon, syncs each directory: the first fsync of each may report
 * that the daemon lost something there. */
static bool sync_one(const char *line, const char **ret_answer)
{
	static uint32_t synced_deaths[CHAOS_MOUNTS_MAX];
	const struct chaos_dir *d = chaos_dirs;
	uint32_t deaths;
	unsigned int n;
	int err;

	if (sscanf(line, "sync %u", &n) != 1 || n >= chaos.nmounts)
		return false;
	deaths = chaos.mounts[n].deaths;
	err = chaos_fsync_dir((int)n, d);
	while (deaths != synced_deaths[n] && (++d)->name)
		err |= chaos_fsync_dir((int)n, d);
	if (!err)
		synced_deaths[n] = deaths;
	*ret_answer = err ? "no" : "ok";
	return true;
}

static void report_stills(void)
{
	uint64_t ms;
	uint32_t n = chaos_stills(&ms);

	if (n > 0)
		fprintf(stderr,
			"this machine stood still %u times, for %" PRIu64
			" ms in all\n",
			n, ms);
}

static int run(void)
{
	const char *answer = "ok";
	pthread_rwlockattr_t attr;
	pthread_t watcher;
	char line[128];

	/* Otherwise new operations could delay the checks of all names without
	 * end. */
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(
		&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&chaos.turn, &attr);

	if (chaos_model_init() ||
	    pthread_create(&watcher, NULL, watch, NULL) || make_dirs() ||
	    start_workers())
		return 1;
	while (!chaos.failed && fgets(line, sizeof(line), stdin) &&
	       (sync_one(line, &answer) || obey(line))) {
		printf("%s\n", answer);
		fflush(stdout);
		answer = "ok";
	}
	chaos.stop = true;
	join_workers();
	if (!chaos.failed && strcmp(line, "end\n") == 0)
		check_whole();
	over = true;
	pthread_join(watcher, NULL);
	chaos_ops_report();
	report_stills();
	if (!chaos.failed && chaos_ops_verified() < READS_MIN)
		chaos_fail(NULL, "only %" PRIu64 " files were read: this shows "
				 "nothing", chaos_ops_verified());
	if (!chaos.failed && owed < OWED_MIN)
		chaos_fail(NULL, "only %u names had to be there: this shows "
				 "nothing", owed);
	printf("%s\n", chaos.failed ? "failed" : "ok");
	return chaos.failed;
}

static int parse_mounts(char *list)
{
	for (char *dir = strtok(list, ","); dir; dir = strtok(NULL, ",")) {
		if (chaos.nmounts == CHAOS_MOUNTS_MAX)
			return -1;
		chaos.mounts[chaos.nmounts++].dir = dir;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "mounts", required_argument, NULL, 'm' },
		{ "seed", required_argument, NULL, 's' },
		{ "threads", required_argument, NULL, 't' },
		{ "call-ms", required_argument, NULL, 'c' },
		{ "fsync-ms", required_argument, NULL, 'f' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	chaos.seed = 1;
	chaos.threads = 3;
	chaos.call_ms = 7000;
	chaos.fsync_ms = 12000;
	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (c == 'm' && parse_mounts(optarg))
			return 2;
		if (c == 's')
			chaos.seed = strtoull(optarg, NULL, 0);
		if (c == 't')
			chaos.threads = (unsigned int)atoi(optarg);
		if (c == 'c')
			chaos.call_ms = (unsigned int)atoi(optarg);
		if (c == 'f')
			chaos.fsync_ms = (unsigned int)atoi(optarg);
		if (c == '?')
			return 2;
	}
	if (chaos.nmounts == 0 || chaos.threads == 0 ||
	    chaos.threads > CHAOS_THREADS_MAX) {
		fprintf(stderr,
			"usage: chaos --mounts DIR[,DIR...] [--seed N] "
			"[--threads 1..%d] [--call-ms N] [--fsync-ms N]\n",
			CHAOS_THREADS_MAX);
		return 2;
	}
	return run();
}
