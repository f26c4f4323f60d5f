/*
 * The trace replayer's parts: replay_sim.c computes the hits of an ideal cache;
 * replay_io.c stores and reads blocks as files, as vLLM's fs tier does;
 * replay_report.c prints the results.
 */
#ifndef TOOLS_REPLAY_H
#define TOOLS_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/bench_hist.h"

/* ---- replay_sim.c: an exact LRU or FIFO of equal-sized blocks ---- */

struct replay_sim;

/* Keeps at most capacity blocks; memory grows with them. NULL: ENOMEM. */
struct replay_sim *replay_sim_open(bool lru, uint64_t capacity);
void replay_sim_close(struct replay_sim *s);
/* Look id up and insert it if missing: 1 hit, 0 miss, or -ENOMEM.
 * Thread: the caller serialises. */
int replay_sim_access(struct replay_sim *s, uint64_t id);

/* ---- replay_io.c: one thread's access to the mounts ---- */

/* Counters. Thread: one per replay_io, merged at the end. */
struct replay_stats {
	uint64_t blocks, hits;
	uint64_t vanished; /* found by access(), but ENOENT at open() */
	uint64_t stored, skipped; /* skipped: stored by another */
	uint64_t wrong, errors;
	uint64_t bytes_read, bytes_written;
	struct bench_hist access_hit, access_miss, read, write;
};

struct replay_io {
	size_t block_size;
	unsigned char *buf; /* owns; block_size bytes, page aligned */
	uint64_t random; /* state for temporary names */
	/* Called for each error and each wrong block; any thread. */
	void (*report)(const char *text, void *arg);
	void *report_arg;
	struct replay_stats stats;
};

/* 0 or -ENOMEM. */
int replay_io_init(struct replay_io *io, size_t block_size, uint64_t seed,
		   void (*report)(const char *text, void *arg), void *arg);
void replay_io_fini(struct replay_io *io);
/*
 * Serves one request: looks up every block, reads and verifies those that
 * exist, and stores the others. Misses, faults and times are added to
 * io->stats. present is scratch space of n flags.
 */
void replay_io_request(struct replay_io *io, const char *root,
		       const uint64_t *ids, size_t n, bool *present);

/* ---- replay_report.c ---- */

struct replay_result {
	struct replay_stats stats; /* of all threads */
	uint64_t requests, bad_lines;
	uint64_t sim_blocks, lru_hits, fifo_hits; /* computed */
	uint64_t block_size, capacity;
	double seconds;
};

/* part / whole; 0 if whole is 0. */
double replay_ratio(uint64_t part, uint64_t whole);
void replay_print_table(const struct replay_result *r);
void replay_print_json(const struct replay_result *r);

#endif
