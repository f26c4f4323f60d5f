#include "pool/base/shortlock.h"

#define SPINS 200 /* some 10 us */

void pool_shortlock_init(struct pool_shortlock *l)
{
	pthread_rwlockattr_t writers_first;

	pthread_rwlockattr_init(&writers_first);
	pthread_rwlockattr_setkind_np(
		&writers_first, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&l->lock, &writers_first);
	pthread_rwlockattr_destroy(&writers_first);
}

void pool_shortlock_fini(struct pool_shortlock *l)
{
	pthread_rwlock_destroy(&l->lock);
}

/* Yield to the other hardware thread of this core. */
static inline void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static void take(pthread_rwlock_t *lock, int (*try)(pthread_rwlock_t *),
		 int (*wait)(pthread_rwlock_t *))
{
	for (unsigned int i = 0; i < SPINS; i++) {
		if (try(lock) == 0)
			return;
		pause_cpu();
	}
	wait(lock);
}

void pool_shortlock_read(struct pool_shortlock *l)
{
	take(&l->lock, pthread_rwlock_tryrdlock, pthread_rwlock_rdlock);
}

void pool_shortlock_write(struct pool_shortlock *l)
{
	take(&l->lock, pthread_rwlock_trywrlock, pthread_rwlock_wrlock);
}

void pool_shortlock_give(struct pool_shortlock *l)
{
	pthread_rwlock_unlock(&l->lock);
}
