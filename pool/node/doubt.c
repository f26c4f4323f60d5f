/*
 * Local copies that may be damaged. A copy is verified when it arrives, and
 * once after a start, but not at each read. A reader on another node verifies
 * what it receives. After a mismatch it asks another holder, and sends DOUBT to
 * this one, which believes only its own check:
 *
 *   DOUBT --> waiting --tick, one at a time--> check (node/want.c) --> whole
 *                                                            \--> quarantined
 *
 * A damaged copy is reported to the master (HELD, -EBADMSG), which orders a new
 * one. The same happens if a peer asks for an object whose file is missing or
 * has a wrong size.
 */
#include "pool/node/node_priv.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Never 0: that means "never checked". */
static uint32_t now_s(void)
{
	return (uint32_t)(pool_now_ms() / 1000) + 1;
}

void pool_node_doubt(struct pool_node *n, struct node_object *o)
{
	if (o->state != NODE_HELD || o->lent_fd >= 0 || n->closing)
		return;
	if ((o->doubted_s && now_s() - o->doubted_s < NODE_DOUBT_S) ||
	    n->ndoubted == NODE_DOUBTS_MAX) {
		pool_count(&n->c.doubts_skipped);
		return;
	}
	pool_count(&n->c.doubts);
	o->doubted_s = now_s();
	o->verified = false; /* not served until it is checked */
	n->doubted[n->ndoubted++] = node_object_ref(o);
	node_not_idle(n);
}

/* Removes the first one. */
static void forget_first(struct pool_node *n)
{
	struct node_object *o = n->doubted[0];

	n->ndoubted--;
	memmove(n->doubted, n->doubted + 1,
		n->ndoubted * sizeof(n->doubted[0]));
	n->checking = false;
	node_object_unref(n, o);
}

void node_doubt_tick(struct pool_node *n)
{
	struct node_object *o;

	if (n->checking || n->ndoubted == 0)
		return;
	o = n->doubted[0];
	/* Dropped or verified (for an OPEN) meanwhile. */
	if (o->state != NODE_HELD || o->verified) {
		forget_first(n);
	} else if (node_recheck(n, o)) {
		/* no memory: checked at the next DOUBT, or before it is read */
		o->doubted_s = 0;
		forget_first(n);
	} else {
		n->checking = true;
	}
}

void node_doubt_checked(struct pool_node *n, const struct node_object *o,
			int status)
{
	if (!n->checking || n->doubted[0] != o)
		return;
	if (status == 0)
		pool_count(&n->c.doubts_unfounded);
	forget_first(n);
}

void node_doubt_fini(struct pool_node *n)
{
	while (n->ndoubted > 0)
		forget_first(n);
}

void node_object_damaged(struct pool_node *n, struct node_object *o, int status)
{
	struct node_entry *e = o->entry;
	char path[POOL_PATH_MAX + 1];
	int len = node_entry_path(&e->e, path);

	pool_count(&n->c.damaged);
	if (status == -ENOENT) {
		pool_warn_paced("store file %016llx of \"%s\" is missing",
			  (unsigned long long)o->id, len > 0 ? path : "?");
	} else {
		pool_count(&n->c.bad_sums);
		pool_store_quarantine(n->store, o->id,
				      "its bytes do not match its checksum");
	}
	if (len > 0) {
		node_report_held(n, path, (size_t)len, o->gen, false, -EBADMSG);
		if (o->lent > 0 && !n->closing)
			pool_peers_recall(n->peers, path, (size_t)len, o->gen);
	}
	node_object_drop(n, o, false);
	if (!node_is_fed(n, &e->e))
		node_unpublish(n, e);
}
