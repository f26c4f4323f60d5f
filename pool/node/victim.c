/* Which objects may be evicted, and which is the next victim. See victim.h. */
#include "pool/node/victim.h"

#include <fcntl.h>
#include <unistd.h>

#define SCAN_MAX 256 /* candidates examined for one victim */

struct judge {
	struct pool_node *n;
	uint64_t now;
	bool soft;    /* soft-pinned and recently looked-up ones qualify, too */
	bool to_move; /* it is copied elsewhere first: noevict ones qualify */
	bool alone; /* without the master's permission */
	bool pinned;  /* hard-pinned ones qualify, too (with to_move) */
	/* objects qualify, too, that may become evictable soon: those with an
	 * EVICT in flight, and those that a peer borrows or receives */
	bool soon;
	uint64_t size_max;
};

static bool soft_pinned(const struct pool_rules *r)
{
	return r->pin == POOL_PIN_SOFT &&
	       (r->pin_until_ns == 0 || r->pin_until_ns > pool_wall_ns());
}

/* Is o not in use: not open, mapped or lent? Recalls it if it is lent. soon: as
 * in struct judge. */
static bool unused(struct pool_node *n, struct node_object *o, bool soon)
{
	char path[POOL_PATH_MAX + 1];
	int len, fd, rc;

	if (o->users > 0)
		return false;
	if (o->lent > 0) {
		len = node_entry_path(&o->entry->e, path);
		if (len > 0)
			pool_peers_recall(n->peers, path, (size_t)len, o->gen);
		return soon;
	}
	if (soon || o->lent_fd >= 0 || node_is_ours_alone(n, o))
		return true;
	fd = pool_store_fd(n->store, o->id, O_RDONLY);
	if (fd < 0)
		return true;
	/* RDMA registrations are not use: ended before the test. */
	pool_peers_forget(n->peers, fd);
	rc = pool_file_in_use(fd);
	close(fd);
	return rc == 0;
}

/* May this object be evicted, by the conditions in arg (struct judge)? */
static bool may_go(struct pool_evict_node *ev, void *arg)
{
	struct node_object *o =
		pool_container_of(ev, struct node_object, ev);
	uint32_t looked = node_object_looked(o);
	struct judge *j = arg;
	struct pool_rules r;

	if (o->state != NODE_HELD || o->w || ev->size > j->size_max)
		return false;
	if (!j->soft && looked &&
	    node_stamp_age(looked, j->now) < NODE_LEASE_MS)
		return false;
	if (o->asked && !(j->soon && !o->refused) &&
	    node_stamp_age(o->asked, j->now) <
		    (o->refused ? NODE_REFUSED_MS : NODE_ASK_MS))
		return false;
	pool_node_rules(j->n, &o->entry->e, &r);
	if (node_guarded(j->n, o) && !j->pinned && r.pin == POOL_PIN_HARD)
		return false;
	if (node_guarded(j->n, o) && !j->to_move &&
	    r.class == POOL_CLASS_NOEVICT)
		return false;
	/* The rules are not known before the first picture, and never outside
	 * of the node's namespaces. */
	if (o->counted && j->alone &&
	    (r.replicas > 1 || !j->n->complete ||
	     !node_is_fed(j->n, &o->entry->e)))
		return false;
	if (node_guarded(j->n, o) && !j->soft && soft_pinned(&r))
		return false;
	return unused(j->n, o, j->soon);
}

static struct node_object *victim(enum pool_evict_class class, struct judge *j)
{
	struct pool_evict_node *ev =
		pool_evict_victim(j->n->evict, class, may_go, j, SCAN_MAX);

	return ev ? pool_container_of(ev, struct node_object, ev) : NULL;
}

/* Last resort: an object that may be moved but not evicted. */
static struct node_object *victim_of(enum pool_evict_class class,
				     struct judge *j)
{
	struct node_object *o = victim(class, j);

	if (!o && class == POOL_EVICT_COUNTED && j->to_move)
		o = victim(POOL_EVICT_KEPT, j);
	return o;
}

/* As victim_of; soft-pinned and recently looked-up objects come last. */
static struct node_object *victim_soft(struct pool_node *n,
				       enum pool_evict_class class,
				       bool to_move, uint64_t size_max)
{
	struct judge j = { .n = n, .now = pool_now_ms(), .to_move = to_move,
			   .size_max = size_max };
	struct node_object *o = victim_of(class, &j);

	if (o)
		return o;
	j.soft = true;
	return victim_of(class, &j);
}

struct node_object *node_victim_pinned(struct pool_node *n, uint64_t size_max)
{
	struct judge j = { .n = n, .now = pool_now_ms(), .soft = true,
			   .to_move = true, .pinned = true,
			   .size_max = size_max };

	return victim(POOL_EVICT_KEPT, &j);
}

struct node_object *node_victim(struct pool_node *n, bool to_move,
				uint64_t size_max)
{
	return victim_soft(n, POOL_EVICT_COUNTED, to_move, size_max);
}

struct node_object *node_victim_alone(struct pool_node *n, uint64_t size_max)
{
	struct judge j = { .n = n, .now = pool_now_ms(), .alone = true,
			   .size_max = size_max };
	struct node_object *o = victim(POOL_EVICT_COUNTED, &j);

	if (o)
		return o;
	j.soft = true;
	return victim(POOL_EVICT_COUNTED, &j);
}

struct node_object *node_victim_cached(struct pool_node *n)
{
	return victim_soft(n, POOL_EVICT_CACHE, false, UINT64_MAX);
}

bool node_victim_any(struct pool_node *n, enum pool_evict_class class,
		     bool pinned)
{
	bool room = node_room_elsewhere(n) > 0;
	struct judge j = { .n = n, .now = pool_now_ms(), .soft = true,
			   .to_move = room, .pinned = pinned && room,
			   .alone = !node_session_up(n), .soon = true,
			   .size_max = UINT64_MAX };

	return pool_evict_any(n->evict, class, may_go, &j, SCAN_MAX) ||
	       (class == POOL_EVICT_COUNTED && room &&
		pool_evict_any(n->evict, POOL_EVICT_KEPT, may_go, &j,
			       SCAN_MAX));
}

bool node_judge_slice(struct pool_node *n)
{
	struct pool_entry *e;
	struct node_entry *f;
	bool leaving;

	while ((e = node_walk_step(n, &n->judging, &leaving))) {
		f = node_file(e);
		if (f && f->obj && f->obj->state == NODE_HELD)
			node_judge(n, f->obj);
	}
	if (n->judging.at)
		return true;
	pool_tree_walk_close(&n->judging);
	if (!n->judge_again)
		return false;
	n->judge_again = false;
	pool_tree_walk_open(&n->tree, n->tree.root, &n->judging);
	return true;
}

/*
 * An object that the walk has not reached yet may be in the wrong class. That
 * does no harm: may_go() checks its rules again, and an object that has become
 * evictable is found when the walk reaches it.
 */
void node_judge_below(struct pool_node *n, struct node_dirent *d)
{
	if (pool_list_empty(&d->d.children))
		return;
	if (pool_tree_walk_is_open(&n->judging)) {
		n->judge_again = true;
		return;
	}
	pool_tree_walk_open(&n->tree, &d->d, &n->judging);
	node_judge_slice(n);
}

uint64_t node_evictable(struct pool_node *n)
{
	return pool_evict_bytes(n->evict, POOL_EVICT_CACHE) +
	       pool_evict_bytes(n->evict, POOL_EVICT_COUNTED);
}
