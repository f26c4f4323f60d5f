#include "tests/sim/sim_keys.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

void sim_keys_open(struct sim_keys *k, uint32_t n)
{
	k->n = n;
	k->key = calloc(n, sizeof(*k->key));
	assert(k->key);
}

void sim_keys_close(struct sim_keys *k)
{
	free(k->key);
	k->key = NULL;
}

void sim_key_path(uint32_t id, char path[SIM_PATH_LEN + 1])
{
	uint64_t hash = XXH3_64bits(&id, sizeof(id));

	snprintf(path, SIM_PATH_LEN + 1, "kv/%03x/%016llx%08x.bin",
		 (unsigned int)(hash & 0xfff), (unsigned long long)hash, id);
}

int64_t sim_key_of_path(const struct sim_keys *k, const void *path, size_t len)
{
	char hex[9] = { 0 };
	unsigned long id;

	if (len != SIM_PATH_LEN)
		return -1;
	memcpy(hex, (const char *)path + SIM_PATH_LEN - 12, 8);
	id = strtoul(hex, NULL, 16);
	return id < k->n ? (int64_t)id : -1;
}

uint64_t sim_key_size(uint32_t id)
{
	return (XXH3_64bits_withSeed(&id, sizeof(id), 1) % 16 + 1) << 16;
}

void sim_key_sum(uint32_t id, uint16_t version, uint8_t sum[16])
{
	uint64_t in = (uint64_t)version << 32 | id;
	XXH128_canonical_t out;

	XXH128_canonicalFromHash(&out, XXH3_128bits(&in, sizeof(in)));
	memcpy(sum, out.digest, 16);
}

int sim_key_copy(const struct sim_key *key, unsigned int node)
{
	int i;

	for (i = 0; i < key->ncopies; i++)
		if (sim_copy_node(key->copies[i]) == node)
			return i;
	return -1;
}

bool sim_key_hold(struct sim_key *key, unsigned int node, uint64_t gen)
{
	int i = sim_key_copy(key, node);
	bool fresh = i < 0;

	if (fresh) {
		assert(key->ncopies < SIM_KEY_COPIES);
		i = key->ncopies++;
	}
	key->copies[i] = gen << 16 | node;
	return fresh;
}

void sim_key_drop(struct sim_key *key, int copy)
{
	key->copies[copy] = key->copies[--key->ncopies];
}
