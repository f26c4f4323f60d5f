/*
 * The sweep over failing calls: for N = 1, 2, ... the Nth call of one daemon
 * fails (tests/sweep/failing.h) while a scenario is played on the mounts of a
 * pool, until one is played in which none failed. After each,
 *
 *   every operation succeeded, or failed with an error that makes sense;
 *   what it made is whole or absent, and the same through every mount;
 *   the objects committed before are there, with the right bytes;
 *   the daemon lives, and what failed works when it is done again.
 *
 * and at the end the daemon has no more descriptors, and its store no more
 * pages in use, than at the beginning.
 *
 *   sweep.c      the program: arguments, counting, judging
 *   sweep_ops.c  operations on a mount, and the scenarios
 *   sweep_use.c  descriptors and pages in use
 */
#ifndef TESTS_SWEEP_H
#define TESTS_SWEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The result of one operation. */
struct result {
	const char *op;
	int err; /* 0 or -errno */
};

#define RESULTS_MAX 64
#define KEYS_MAX 8

/* An object that a scenario makes; the bytes follow from the seed. */
struct key {
	char name[32]; /* in the directory of the sweep */
	size_t size;
	uint32_t seed;
	uint32_t older_seed; /* 0, or of the version that it may show as well */
	bool removed;	     /* acknowledged: it must not be there */
};

struct play {
	const char *a, *b; /* the directory of the sweep, through two mounts */
	unsigned int n;	   /* of the run: names and bytes follow from it */
	struct result results[RESULTS_MAX];
	unsigned int nresults;
	struct key keys[KEYS_MAX]; /* to be judged and removed afterwards */
	unsigned int nkeys;
};

struct scenario {
	const char *name, *what;
	void (*prepare)(struct play *p); /* undisturbed; or NULL */
	void (*act)(struct play *p);	 /* one call fails in here */
	/* Has what was wanted come about (later, by itself)? Or NULL. */
	bool (*settled)(struct play *p);
	bool fills; /* leaves the store as full as it can be */
};

extern const struct scenario scenarios[];
extern const size_t nscenarios;

/* Prints why, and where the call was that failed; does not return. */
void sweep_fail(const char *format, ...)
	__attribute__((noreturn, format(printf, 1, 2)));

/* ---- operations: 0 or -errno; wrong or missing bytes end the program ---- */

int op_put(const char *dir, const struct key *k, bool rename_it);
int op_get(const char *dir, const struct key *k);
int op_sync(const char *dir);
int op_unlink(const char *dir, const char *name);

/* ---- what is in use ---- */

struct use {
	int fds; /* but live connections and ready files */
	long long bytes[2]; /* of the two stores */
};

void use_now(struct use *u, pid_t pid, const char *const mounts[2]);
/* Prints those that count. */
void use_print_fds(pid_t pid);

#endif
