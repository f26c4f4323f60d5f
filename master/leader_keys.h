/*
 * The election's keys, and the parts of transactions that read and write them.
 * Private to master/leader*.c.
 *
 * Thread: any, no state.
 */
#ifndef MASTER_LEADER_KEYS_H
#define MASTER_LEADER_KEYS_H

#include <stddef.h>

#include "master/leader.h"

/* In the order in which leader_query asks for them. */
enum leader_key {
	LEADER_KEY_VERSION,
	LEADER_KEY_HOLDER,
	LEADER_KEY_EPOCH,
	LEADER_NKEYS,
};

json_t *leader_key_get(const char *prefix, enum leader_key key);
json_t *leader_key_put(const char *prefix, enum leader_key key,
		       const char *value, int64_t lease);
json_t *leader_key_compare(const char *prefix, enum leader_key key,
			   const char *what, int64_t revision);
/* A key's value in the answer to leader_query. 0, -ENOENT, -EPROTO, -ENOMEM. */
int leader_key_value(const json_t *answer, enum leader_key key, char *buf,
		     size_t cap);
/* Check the version in the answer to leader_query. 0: ours, or there is none
 * yet; -EPROTO (logged): another one. */
int leader_check_version(const char *prefix, const json_t *answer);

#endif
