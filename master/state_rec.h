/*
 * The state file's records: bytes to and from struct master_record, and the
 * loading of a whole file. Nobody's but master/state*.c.
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
/* The generation has 24 bits for it. */
#define STATE_EPOCH_MAX ((1ull << 24) - 1)

/* Length, or -EMSGSIZE. */
ptrdiff_t state_rec_encode(const struct master_record *r, uint8_t *buf,
			   size_t cap);

/* One whole record: load's result, -EPROTO if it is damaged, -EPROTONOSUPPORT
 * if its type is not known: a newer version wrote it. */
int state_rec_decode(const uint8_t *buf, size_t len,
		     int (*load)(void *arg, const struct master_record *r),
		     void *arg);

struct state_loaded {
	uint64_t size; /* of the whole records; 0: the file is new */
	uint64_t records;
	uint64_t epoch; /* highest */
};
/* Reads fd, cuts off a torn end. As master_state_open says. */
int state_load(int fd, const char *path,
	       int (*load)(void *arg, const struct master_record *r), void *arg,
	       struct state_loaded *ret);

#endif
