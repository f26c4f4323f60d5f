/* Per-thread buffers, which all connections of the thread use in turn. */
#include <pthread.h>
#include <stdlib.h>

#include "pool/base/map.h"
#include "pool/conn/conn_priv.h"

static pthread_once_t staging_once = PTHREAD_ONCE_INIT;
static pthread_key_t staging_key;
static __thread uint8_t *staging_buf;

static void staging_free(void *buf)
{
	pool_map_hide(buf, 2 * POOL_CONN_SLICE, false);
	free(buf);
}

static void staging_key_make(void)
{
	if (pthread_key_create(&staging_key, staging_free))
		abort(); /* at the first connection: nothing works without it */
}

/* POOL_CONN_SLICE bytes for receiving, followed by as many for sending. */
uint8_t *conn_staging(void)
{
	if (!staging_buf) {
		pthread_once(&staging_once, staging_key_make);
		staging_buf = aligned_alloc(4096, 2 * POOL_CONN_SLICE);
		if (staging_buf) {
			pool_map_hide(staging_buf, 2 * POOL_CONN_SLICE, true);
			pthread_setspecific(staging_key, staging_buf);
		}
	}
	return staging_buf;
}

uint8_t *conn_staging_out(void)
{
	uint8_t *buf = conn_staging();

	return buf ? buf + POOL_CONN_SLICE : NULL;
}
