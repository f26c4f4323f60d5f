/*
 * A read-write lock that is held for microseconds at most. A thread that finds
 * it taken spins briefly before it sleeps, because on a busy machine a thread
 * that has slept may wait milliseconds for a CPU, a thousand times as long as
 * the lock is held.
 *
 * A waiting writer comes before new readers, so that readers cannot starve it.
 * Not recursive, not even for readers.
 *
 * Thread: any.
 */
#ifndef POOL_BASE_SHORTLOCK_H
#define POOL_BASE_SHORTLOCK_H

#include <pthread.h>

struct pool_shortlock {
	pthread_rwlock_t lock;
};

void pool_shortlock_init(struct pool_shortlock *l);
void pool_shortlock_fini(struct pool_shortlock *l);
void pool_shortlock_read(struct pool_shortlock *l);
void pool_shortlock_write(struct pool_shortlock *l);
void pool_shortlock_give(struct pool_shortlock *l); /* unlocks either */

#endif
