/*
 * Shared by the requester (ask.c) and the holder (answer.c): ids, decoding,
 * the timer of all deadlines, the last reference.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "pool/conn/unpack.h"
#include "pool/peer/peer_priv.h"

bool id_equal(const uint8_t a[POOL_ID_SIZE], const uint8_t b[POOL_ID_SIZE])
{
	return memcmp(a, b, POOL_ID_SIZE) == 0;
}

uint32_t id_hash(const uint8_t id[POOL_ID_SIZE])
{
	return (uint32_t)XXH3_64bits(id, POOL_ID_SIZE);
}

void *peers_unpack(struct pool_peers *p, const struct pool_conn *c,
		   const struct pool_frame *f, const uint8_t *payload)
{
	return pool_frame_unpack(c, f, payload,
				 &p->metrics.mover.bad_messages);
}

void peers_timer_arm(struct pool_peers *p)
{
	uint64_t now = uv_now(p->loop), due = p->answers_due_ms;

	if (p->closing)
		return;
	if (!pool_list_empty(&p->due)) {
		uint64_t first = pool_list_first(&p->due,
						 struct pool_fetch_priv,
						 due_link)->deadline_ms;

		if (!due || first < due)
			due = first;
	}
	if (!due)
		uv_timer_stop(&p->timer);
	else
		uv_timer_start(&p->timer, p->on_timer,
			       due > now ? due - now : 0, 0);
}

void peers_free(struct pool_peers *p)
{
	pool_hash_fini(&p->peers);
	pool_hash_fini(&p->by_req);
	free(p->unix_path);
	free(p);
}

void peers_unref(struct pool_peers *p)
{
	void (*closed)(void *arg) = p->closed;
	void *arg = p->closed_arg;

	assert(p->refs > 0);
	if (--p->refs > 0)
		return;
	peers_free(p);
	if (closed)
		closed(arg);
}
