/*
 * A lock for readers and a writer, each of which holds it for microseconds at
 * most: so who finds it taken looks again for a moment before it sleeps. On a
 * busy machine a thread that has slept may wait milliseconds for a CPU, a
 * thousand times what it waited for.
 *
 * Writers go first, so that readers in a row keep none from its turn; who has
 * it does not take it again.
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
void pool_shortlock_give(struct pool_shortlock *l); /* by either */

#endif
