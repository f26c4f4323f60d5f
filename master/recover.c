/*
 * A master whose state was lost, or is an old copy, begins with an epoch that
 * nodes have seen already. Their objects would be newer than all generations
 * that it issues, so it refuses these nodes.
 *
 * If the operator requests it (master_opts.recover_ms), the master first
 * collects epochs: for that long it notes each JOIN and refuses it with
 * -EAGAIN, as a standby does. Then it raises its epoch above the highest one
 * reported. It waits for the inventories of the nodes that have reported, like
 * for those of members of the last epoch. A node that joins later and has seen
 * a higher epoch makes it raise its epoch again.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "master/impl.h"
#include "master/state_rec.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"

bool master_recovering(const struct master *m)
{
	return m->recover_until_ms != 0;
}

void master_recover_begin(struct master *m, unsigned int ms)
{
	m->recovers = ms > 0;
	if (!ms)
		return;
	m->recover_until_ms = m->start_ms + ms;
	pool_info("recovering: for %u s nodes are asked for the epoch they "
		  "have seen",
		  (ms + 999) / 1000);
}

/* The sessions have the old epoch: their nodes must join again. */
static void end_sessions(struct master *m)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &m->sessions) {
		struct master_session *s =
			pool_list_entry(it, struct master_session, link);

		if (s->member)
			master_session_end(s, "the epoch has been raised");
	}
}

static int raise_above(struct master *m, uint64_t seen)
{
	int err = 0;

	if (seen >= STATE_EPOCH_MAX)
		return -EOVERFLOW;
	if (m->state)
		err = master_state_raise_epoch(m->state, seen + 1);
	if (err)
		return err;
	pool_info("recovering: epoch %" PRIu64 " -> %" PRIu64, m->epoch,
		  seen + 1);
	m->epoch = seen + 1;
	m->gen_seq = 0;
	end_sessions(m);
	return 0;
}

void master_recover_tick(struct master *m, uint64_t now_ms)
{
	if (!m->recover_until_ms || now_ms < m->recover_until_ms)
		return;
	m->recover_until_ms = 0;
	m->start_ms = now_ms;
	m->stalled_ms = 0;
	if (m->recover_seen >= m->epoch &&
	    raise_above(m, m->recover_seen))
		return; /* logged; those nodes are refused as usual */
	pool_info("recovering: %u nodes have reported their epoch, %" PRIu64
		  " begins",
		  m->members.n, m->epoch);
}

void master_recover_note(struct master *m, const Kvpool__Join *j)
{
	struct master_member *mb;

	if (master_join_epoch(j) > m->recover_seen)
		m->recover_seen = master_join_epoch(j);
	/* Its inventory may restore names: wait for it before being ready. */
	if (master_members_make(&m->members, j->node->id.data, &mb) == 0 &&
	    !mb->session)
		mb->expected = true;
}

bool master_recover_raise(struct master *m, uint64_t seen)
{
	return m->recovers && raise_above(m, seen) == 0;
}

uint64_t master_join_epoch(const Kvpool__Join *j)
{
	return j->seen_epoch > j->epoch ? j->seen_epoch : j->epoch;
}

void master_recover_remedy(const struct master *m, uint64_t seen,
			   char text[MASTER_REMEDY_MAX])
{
	snprintf(text, MASTER_REMEDY_MAX,
		 "the node has seen epoch %" PRIu64 " of its master, but this "
		 "one is at %" PRIu64 ": does it belong to another pool, or "
		 "have the wrong %s was lost, %s (kvpool-master(8): RECOVERY)",
		 seen, m->epoch,
		 m->etcd_state ? "--cluster? If the state in etcd" :
				 "--state-file? If the state file",
		 m->etcd_state ? "raise its epoch there" :
				 "start the master with --recover");
}
