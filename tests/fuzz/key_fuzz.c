/*
 * Fuzz target: any bytes as a key of libkvpool, and as a path. A key leads to a
 * valid path, and back; a path that has a key is the key's.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pool/model/key.h"
#include "pool/model/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool cond)
{
	if (!cond)
		abort();
}

static void try_key(const uint8_t *key, size_t len, bool root)
{
	char path[POOL_PATH_MAX + 1], back[POOL_KEY_MAX];
	int n = pool_key_path(key, len, root, path, sizeof(path));

	if (n < 0) {
		require(len > POOL_PATH_MAX / 3 - 64);
		return;
	}
	require(pool_path_check(path, (size_t)n) == 0);
	require(!root || strncmp(path, ".kvpool", 8) != 0);
	require(pool_key_of_path(path, (size_t)n, root, back, sizeof(back)) ==
		(int)len);
	require(memcmp(back, key, len) == 0);
	if (pool_key_plain(key, len, root))
		require((size_t)n == len && memcmp(path, key, len) == 0);
}

static void try_path(const uint8_t *path, size_t len, bool root)
{
	char key[POOL_KEY_MAX], again[POOL_PATH_MAX + 1];
	int n = pool_key_of_path((const char *)path, len, root, key,
				 sizeof(key));

	if (n < 0)
		return;
	require(pool_key_path(key, (size_t)n, root, again, sizeof(again)) ==
		(int)len);
	require(memcmp(path, again, len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	try_key(data + 1, size - 1, data[0] & 1);
	try_path(data + 1, size - 1, data[0] & 1);
	return 0;
}
