/*
 * What who connects may cost the master, and what all may together.
 *
 *   connections    MASTER_SESSIONS_MAX, MASTER_SESSIONS_ADDR of one address
 *   before JOIN    MASTER_GRACE heartbeats; one message of POOL_CONN_FIRST_MAX
 *   after it       no byte for MASTER_GRACE heartbeats, no whole message for
 *                  MASTER_WHOLE_GRACE times as long (server.c)
 *   an id          is its node's address's while that is connected, and until
 *                  the node is gone: nobody else ends its session by joining as it
 *   memory         what waits to be read by them, waits for etcd or inventories, or
 *                  has come in part: MASTER_SESSIONS_BYTES of all. Beyond it the
 *                  address that has most loses the session that has most of it, so
 *                  that a crowd does not cost others theirs.
 *   names          directories and bytes of attributes, of one user and in all:
 *                  pool/model/quota.h
 *
 * Memory is looked at four times a heartbeat. In between a session grows by
 * what its own bounds allow: MASTER_HELD_BYTES, MASTER_LATER_MAX and the
 * connection's queue.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "master/impl.h"
#include "pool/base/log.h"

static const uint8_t nowhere[POOL_ADDRESS_SIZE];

static bool same(const uint8_t *a, const uint8_t *b)
{
	return memcmp(a, b, POOL_ADDRESS_SIZE) == 0;
}

static struct master_session *session_of(struct pool_list *it)
{
	return pool_list_entry(it, struct master_session, link);
}

bool master_limits_admit(struct master *m,
			 const uint8_t addr[POOL_ADDRESS_SIZE])
{
	unsigned int n = 0;
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &m->sessions)
		n += same(session_of(it)->addr, addr);
	if (m->nsessions < MASTER_SESSIONS_MAX &&
	    (n < m->sessions_addr_max || same(addr, nowhere)))
		return true;
	master_count(m, MC_SESSIONS_REFUSED);
	pool_warn_limited("a connection was refused: there are %u, %u of its "
			  "address; accepted: %u, %u",
			  m->nsessions, n, MASTER_SESSIONS_MAX,
			  m->sessions_addr_max);
	return false;
}

bool master_limits_taken(const struct master *m,
			 const struct master_member *mb,
			 const struct master_session *s, uint64_t now_ms)
{
	uint64_t limit = (uint64_t)m->heartbeat_ms * MASTER_GRACE;

	if (same(mb->addr, nowhere) || same(mb->addr, s->addr))
		return false;
	return mb->session || (!mb->gone && now_ms - mb->away_ms <= limit);
}

static uint64_t bytes_of(const struct master_session *s)
{
	size_t own = s->own.ring ? MASTER_OWN_MAX * sizeof(*s->own.ring) : 0;

	return pool_conn_memory(s->conn) + s->held_bytes + s->later_bytes +
	       s->drops_bytes + own;
}

uint64_t master_limits_bytes(const struct master *m)
{
	const struct pool_list *it;
	uint64_t sum = 0;

	for (it = m->sessions.next; it != &m->sessions; it = it->next)
		sum += bytes_of(session_of((struct pool_list *)it));
	return sum;
}

/* Of its whole address; ret_largest: the session there that keeps most. */
static uint64_t bytes_of_address(struct master *m, const uint8_t *addr,
				 struct master_session **ret_largest)
{
	struct pool_list *it, *tmp;
	uint64_t sum = 0, most = 0;

	*ret_largest = NULL;
	pool_list_each(it, tmp, &m->sessions) {
		struct master_session *s = session_of(it);

		if (s->ended || !same(s->addr, addr))
			continue;
		sum += bytes_of(s);
		if (!*ret_largest || bytes_of(s) > most) {
			most = bytes_of(s);
			*ret_largest = s;
		}
	}
	return sum;
}

static struct master_session *who_keeps_most(struct master *m)
{
	struct master_session *s, *ret = NULL;
	struct pool_list *it, *tmp;
	uint64_t sum, most = 0;

	pool_list_each(it, tmp, &m->sessions) {
		sum = bytes_of_address(m, session_of(it)->addr, &s);
		if (s && sum > most) {
			most = sum;
			ret = s;
		}
	}
	return ret;
}

void master_limits_check(struct master *m)
{
	uint64_t sum = master_limits_bytes(m);
	struct master_session *s;

	while (sum > m->sessions_bytes_max && (s = who_keeps_most(m))) {
		uint64_t bytes = bytes_of(s);
		char why[128];

		snprintf(why, sizeof(why),
			 "it keeps %llu bytes here, all together %llu; "
			 "accepted: %llu",
			 (unsigned long long)bytes, (unsigned long long)sum,
			 (unsigned long long)m->sessions_bytes_max);
		master_count(m, MC_MEMORY_ENDED);
		master_session_end(s, why);
		sum -= bytes;
	}
}

/* ---- names ---- */

int master_limits_names(struct master *m, uint32_t uid, uint64_t dirs,
			uint64_t bytes)
{
	const struct pool_quota *q = &m->map.quota;
	int err = pool_quota_check(q, uid, dirs, bytes);
	struct pool_usage own;

	if (!err)
		return 0;
	own = pool_quota_of(q, uid);
	master_count(m, err == -EDQUOT ? MC_QUOTA_USER : MC_QUOTA_POOL);
	pool_warn_limited("refused to user %u: another %llu directories, %llu "
			  "bytes of attributes. It has %llu and %llu; all have "
			  "%llu and %llu; accepted: %llu and %llu",
			  uid, (unsigned long long)dirs,
			  (unsigned long long)bytes,
			  (unsigned long long)own.dirs,
			  (unsigned long long)own.bytes,
			  (unsigned long long)q->used.dirs,
			  (unsigned long long)q->used.bytes,
			  (unsigned long long)q->max.dirs,
			  (unsigned long long)q->max.bytes);
	return err;
}
