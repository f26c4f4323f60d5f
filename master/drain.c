/*
 * Draining: emptying a node before it is switched off. The node's copies no
 * longer count as replicas (master/place.h), so repair makes the missing ones
 * on other stores. The node's own copies are then surplus and become cache. The
 * node is drained when a patrol finds no counted copy on it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "master/impl.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/model/pages.h"

#define SOON_MS 500 /* to a patrol, when a drained node has a copy again */

/* ---- counting what is left ---- */

void master_drain_pass_begin(struct master *m)
{
	unsigned int i;

	for (i = 0; m->members.ndraining && i < m->members.n; i++) {
		struct master_member *mb = m->members.by_index[i];
		struct master_drain *d = &mb->drain;

		d->counting = d->on && mb->session && mb->inventoried;
		d->pass_keys = d->pass_bytes = 0;
		d->pass_stuck_keys = d->pass_stuck_bytes = 0;
		d->touched = false;
	}
}

/* f's holder at this position, if it is a draining node with a counted copy;
 * else NULL. */
static struct master_member *draining_holder(struct master *m,
					    const struct master_file *f,
					    unsigned int pos)
{
	master_holder h = master_file_holders(f)[pos];
	struct master_member *mb =
		master_member_at(&m->members, master_holder_index(h));

	return mb && mb->drain.on && !master_holder_extra(h) ? mb : NULL;
}

bool master_drain_pass(struct master *m, const struct master_file *f)
{
	bool leaves = false;
	unsigned int i;

	for (i = 0; m->members.ndraining && i < f->nholders; i++) {
		struct master_member *mb = draining_holder(m, f, i);

		if (!mb)
			continue;
		leaves = true;
		mb->drain.pass_keys++;
		mb->drain.pass_bytes += f->size;
		if (f->extra && f->extra->need)
			continue;
		mb->drain.pass_stuck_keys++;
		mb->drain.pass_stuck_bytes += f->size;
	}
	return leaves;
}

/* A patrol misses files that change after it has begun; every change is
 * reviewed, so they are seen here. */
void master_drain_reviewed(struct master *m, const struct master_file *f)
{
	uint64_t soon = pool_now_ms() + SOON_MS;
	unsigned int i;

	for (i = 0; m->members.ndraining && i < f->nholders; i++) {
		struct master_member *mb = draining_holder(m, f, i);

		if (!mb)
			continue;
		mb->drain.touched = true;
		if (!mb->drain.known || mb->drain.keys)
			continue;
		mb->drain.keys = 1;
		mb->drain.bytes = f->size;
		if (m->patrol.next_ms > soon)
			m->patrol.next_ms = soon;
		master_member_changed(&m->members, mb);
	}
}

static void pass_end(struct master *m, struct master_member *mb)
{
	struct master_drain *d = &mb->drain;
	unsigned int before = master_member_drained(mb);

	if (!d->counting)
		return;
	d->counting = false;
	if (!d->pass_keys && d->touched)
		return; /* a file missed by this patrol may remain */
	d->known = true;
	d->keys = d->pass_keys;
	d->bytes = d->pass_bytes;
	d->stuck_keys = d->pass_stuck_keys;
	d->stuck_bytes = d->pass_stuck_bytes;
	if (d->bytes > d->total_bytes)
		d->total_bytes = d->bytes;
	if (master_member_drained(mb) == before)
		return;
	if (!d->keys) {
		pool_info("node %s is drained: it may be switched off",
			  mb->name);
		master_event(m->events, "drained",
			     "%s: it may be switched off", mb->name);
	}
	master_member_changed(&m->members, mb);
	master_kick(m);
}

void master_drain_pass_end(struct master *m)
{
	unsigned int i;

	for (i = 0; m->members.ndraining && i < m->members.n; i++)
		pass_end(m, m->members.by_index[i]);
}

bool master_drain_busy(const struct master *m)
{
	unsigned int i;

	for (i = 0; m->members.ndraining && i < m->members.n; i++) {
		const struct master_member *mb = m->members.by_index[i];
		const struct master_drain *d = &mb->drain;

		if (d->on && mb->session &&
		    (!d->known || d->keys > d->stuck_keys))
			return true;
	}
	return false;
}

/* ---- the operator's requests ---- */

static const char *state_of(const struct master_member *mb)
{
	const struct master_drain *d = &mb->drain;

	if (!d->on)
		return "none";
	if (!mb->session)
		return "away";
	if (d->known && !d->keys)
		return "drained";
	return d->known && d->keys == d->stuck_keys ? "stuck" : "draining";
}

/* Until the drain is done. 0: done, or no drain; -1: unknown, or never. */
static int64_t seconds_left(const struct master *m,
			    const struct master_member *mb)
{
	const struct master_drain *d = &mb->drain;
	int64_t repair = master_repair_seconds_left(&m->repair);

	if (!d->on || (d->known && !d->keys))
		return 0;
	return d->keys == d->stuck_keys || repair <= 0 ? -1 : repair;
}

static json_t *state_json(const struct master *m,
			  const struct master_member *mb)
{
	const struct master_drain *d = &mb->drain;

	return json_pack(
		"{so ss sb si sI sI sI sI sI sI sI}", "node",
		pool_pages_text(mb->name, strlen(mb->name)), "state",
		state_of(mb), "recorded", master_keep_settled(m, d->mark),
		"percent", (int)master_member_drained(mb),
		"total_bytes", (json_int_t)d->total_bytes, "left_keys",
		(json_int_t)d->keys, "left_bytes", (json_int_t)d->bytes,
		"no_room_keys", (json_int_t)d->stuck_keys, "no_room_bytes",
		(json_int_t)d->stuck_bytes, "bytes_per_second",
		(json_int_t)m->repair.throttle.bytes_per_s, "seconds_left",
		(json_int_t)seconds_left(m, mb));
}

static bool has_id(const struct master_member *mb, const char *node)
{
	char id[2 * POOL_ID_SIZE + 1];
	unsigned int i;

	for (i = 0; i < POOL_ID_SIZE; i++)
		sprintf(id + 2 * i, "%02x", mb->id[i]);
	return !strcmp(id, node);
}

/* An id comes before names, which members choose: one may have named itself
 * like another's id. */
static int find(struct master *m, const char *node, struct master_member **ret,
		const char **ret_text)
{
	struct master_member *found = NULL;
	unsigned int i, named = 0;

	for (i = 0; i < m->members.n; i++) {
		struct master_member *mb = m->members.by_index[i];

		if (has_id(mb, node)) {
			*ret = mb;
			return 0;
		}
		if (!strcmp(mb->name, node)) {
			named++;
			found = mb;
		}
	}
	if (named > 1) {
		*ret_text = "several nodes have that name; give the id, as "
			    "/api/nodes lists it";
		return -ENOTUNIQ;
	}
	*ret_text = "no node has that name or id; /api/nodes lists them";
	*ret = found;
	return found ? 0 : -ENOENT;
}

static void set(struct master *m, struct master_member *mb, bool on)
{
	master_member_drain(&m->members, mb, on);
	master_keep_drain(m, mb);
	mb->drain.mark = master_keep_mark(m);
	master_keep_flush(m);
	pool_info("node %s: %s", mb->name,
		  on ? "draining" : "no longer draining");
	master_event(m->events, "draining", "%s: %s", mb->name,
		     on ? "begun" : "cancelled");
	if (m->ready)
		master_patrol_start(m);
	master_kick(m);
}

int master_drain(struct master *m, const char *node, enum master_drain_do what,
		 json_t **ret_json, const char **ret_text)
{
	struct master_member *mb;
	int err = find(m, node, &mb, ret_text);

	if (err)
		return err;
	if (what == MASTER_DRAIN_BEGIN && mb->session && !mb->is_store) {
		*ret_text = "that node gives the pool no memory: nothing has "
			    "to be moved, it may be switched off";
		return -EINVAL;
	}
	if (what != MASTER_DRAIN_SHOW &&
	    mb->drain.on != (what == MASTER_DRAIN_BEGIN))
		set(m, mb, what == MASTER_DRAIN_BEGIN);
	*ret_json = state_json(m, mb);
	*ret_text = "out of memory";
	return *ret_json ? 0 : -ENOMEM;
}
