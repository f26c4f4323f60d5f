/*
 * Encoding and decoding of the state's records, and loading of a state file.
 * For master/state*.c and master/etcd_state.c; others use only STATE_EPOCH_MAX.
 *
 * Thread: any, no state.
 */
#ifndef MASTER_STATE_REC_H
#define MASTER_STATE_REC_H

#include <stddef.h>

#include "master/state.h"

#define STATE_HEADER "kvpool-master-state 1\n"
#define STATE_HEADER_LEN (sizeof(STATE_HEADER) - 1)
#define STATE_REC_HEAD 12
#define STATE_REC_MAX 32768 /* head included: a path, all its xattrs */
/* A generation has 24 bits for the epoch. */
#define STATE_EPOCH_MAX ((1ull << 24) - 1)

/* Length, or -EMSGSIZE. */
ptrdiff_t state_rec_encode(const struct master_record *r, uint8_t *buf,
			   size_t cap);

/* Decode exactly one record. Returns load's result; -EPROTO: damaged;
 * -EPROTONOSUPPORT: of a type that only a newer version knows. */
int state_rec_decode(const uint8_t *buf, size_t len,
		     int (*load)(void *arg, const struct master_record *r),
		     void *arg);

struct state_loaded {
	uint64_t size; /* header and whole records; 0: the file is new */
	uint64_t records;
	uint64_t epoch; /* highest */
};
/* Load all records and cut off a torn end; errors as in master_state_open. */
int state_load(int fd, const char *path,
	       int (*load)(void *arg, const struct master_record *r), void *arg,
	       struct state_loaded *ret);

#endif
