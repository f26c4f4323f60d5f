/*
 * Bounds on the resources of one connection, one address, one user, and of all
 * together.
 *
 *   connections    MASTER_SESSIONS_MAX, MASTER_SESSIONS_ADDR from one address
 *   nodes          MASTER_NODES_MAX; from one address 1.5 times the bound on
 *                  connections, counting absent nodes that may come back.
 *                  Beyond that, new nodes are refused
 *   before JOIN    MASTER_GRACE heartbeats; one message of POOL_CONN_FIRST_MAX
 *   after JOIN     at most MASTER_GRACE heartbeats without a byte, and
 *                  MASTER_WHOLE_GRACE times as long without a whole message
 *                  (server.c)
 *   node ids       an id belongs to the address that its node joined from,
 *                  until the node is gone: others cannot end the node's session
 *                  by joining with its id
 *   memory         messages not yet read by the peer, held back or deferred, or
 *                  partly received: MASTER_SESSIONS_BYTES for all sessions.
 *                  Beyond that, the address that uses most loses its largest
 *                  session, so that many sessions from one address do not end
 *                  those of others
 *   names          directories and bytes of attributes, per user and in total:
 *                  pool/model/quota.h
 *
 * Memory is checked four times a heartbeat or more often (ticks, server.c). In
 * between, a session can grow by its own bounds: MASTER_HELD_BYTES,
 * MASTER_DEFERRED_MAX and the connection's queue.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "master/impl.h"
#include "pool/base/log.h"

static const uint8_t no_address[POOL_ADDRESS_SIZE];

static bool same_address(const uint8_t *a, const uint8_t *b)
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
		n += same_address(session_of(it)->addr, addr);
	if (m->nsessions < MASTER_SESSIONS_MAX &&
	    (n < m->sessions_addr_max || same_address(addr, no_address)))
		return true;
	master_count(m, MC_SESSIONS_REFUSED);
	pool_warn_limited("a connection was refused: there are %u, %u of them "
			  "from its address; limits: %u, %u",
			  m->nsessions, n, MASTER_SESSIONS_MAX,
			  m->sessions_addr_max);
	return false;
}

bool master_limits_taken(const struct master *m,
			 const struct master_member *mb,
			 const struct master_session *s, uint64_t now_ms)
{
	uint64_t limit = (uint64_t)m->heartbeat_ms * MASTER_GRACE;

	if (same_address(mb->addr, no_address) ||
	    same_address(mb->addr, s->addr))
		return false;
	return mb->session || (!mb->gone && now_ms - mb->away_ms <= limit);
}

bool master_limits_crowded(const struct master *m,
			   const struct master_session *s)
{
	unsigned int n = 0;

	if (same_address(s->addr, no_address))
		return false;
	for (unsigned int i = 0; i < m->members.n; i++)
		n += !m->members.by_index[i]->gone &&
		     same_address(m->members.by_index[i]->addr, s->addr);
	return n >= m->sessions_addr_max + m->sessions_addr_max / 2;
}

static uint64_t bytes_of(const struct master_session *s)
{
	size_t issued = s->issued.ring ?
				MASTER_ISSUED_MAX * sizeof(*s->issued.ring) :
				0;
	size_t results = s->results ? POOL_BATCH_MAX * sizeof(*s->results) : 0;

	return pool_conn_memory(s->conn) + s->held_bytes + s->deferred_bytes +
	       s->inventory_bytes + s->drops_bytes + issued + results;
}

uint64_t master_limits_bytes(const struct master *m)
{
	const struct pool_list *it;
	uint64_t sum = 0;

	for (it = m->sessions.next; it != &m->sessions; it = it->next)
		sum += bytes_of(session_of((struct pool_list *)it));
	return sum;
}

/* Memory of all sessions from addr; *ret_largest: the largest of them. */
static uint64_t bytes_of_address(struct master *m, const uint8_t *addr,
				 struct master_session **ret_largest)
{
	struct pool_list *it, *tmp;
	uint64_t sum = 0, most = 0;

	*ret_largest = NULL;
	pool_list_each(it, tmp, &m->sessions) {
		struct master_session *s = session_of(it);

		if (s->ended || !same_address(s->addr, addr))
			continue;
		sum += bytes_of(s);
		if (!*ret_largest || bytes_of(s) > most) {
			most = bytes_of(s);
			*ret_largest = s;
		}
	}
	return sum;
}

/* The largest session of the address that uses most memory. */
static struct master_session *largest_session(struct master *m)
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

	while (sum > m->sessions_bytes_max && (s = largest_session(m))) {
		uint64_t bytes = bytes_of(s);
		char why[128];

		snprintf(why, sizeof(why),
			 "it uses %llu bytes of the master's memory, all "
			 "sessions %llu; limit: %llu",
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
			  "bytes of attributes. The user has %llu and %llu, "
			  "the pool %llu and %llu; limits of the pool: %llu "
			  "and %llu",
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
