/*
 * The truth about the bytes, for simulations: which node holds which generation
 * of which key. Played nodes (sim_crowd.h) update it; sim_check.c compares the
 * master's map and the mirrors with it.
 *
 * A key is a number, and its path, size and sum follow from it (the sum also
 * from a version, which each publication raises).
 */
#ifndef TESTS_SIM_KEYS_H
#define TESTS_SIM_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/conn/kvpool.pb-c.h"

#define SIM_KEY_COPIES 6
#define SIM_PATH_LEN 35
#define SIM_NODES_MAX 4096

struct sim_key {
	uint64_t gen; /* last published; 0: never published */
	uint64_t copies[SIM_KEY_COPIES]; /* gen << 16 | node */
	uint16_t version;
	uint8_t ncopies;
	bool deleted;
	bool busy;   /* a change of it is in flight */
	bool unsure; /* a change of it may or may not have been executed */
};

struct sim_keys {
	struct sim_key *key; /* owns */
	uint32_t n;
};

static inline unsigned int sim_copy_node(uint64_t copy)
{
	return copy & 0xffff;
}
static inline uint64_t sim_copy_gen(uint64_t copy)
{
	return copy >> 16;
}

void sim_keys_open(struct sim_keys *k, uint32_t n);
void sim_keys_close(struct sim_keys *k);

/* SIM_PATH_LEN bytes and a zero. */
void sim_key_path(uint32_t id, char path[SIM_PATH_LEN + 1]);
/* The key with this path, or -1. */
int64_t sim_key_of_path(const struct sim_keys *k, const void *path, size_t len);
uint64_t sim_key_size(uint32_t id);
void sim_key_sum(uint32_t id, uint16_t version, uint8_t sum[16]);

/* Index of the node's copy in key->copies, or -1. */
int sim_key_copy(const struct sim_key *key, unsigned int node);
/* Adds the node's copy, or updates its generation. True: it was added. */
bool sim_key_hold(struct sim_key *key, unsigned int node, uint64_t gen);
void sim_key_drop(struct sim_key *key, int copy);

#endif
