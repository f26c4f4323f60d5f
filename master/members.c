#include "master/members.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "master/place.h"
#include "pool/base/clock.h"
#include "pool/base/pages.h"

#define SENT_REPORT_MS 10000 /* between two changes for sent_bytes */
#define FIGURES_PER_MS 1000 /* bound of figures sent: nodes times mounts */

void master_members_init(struct master_members *ms)
{
	memset(ms, 0, sizeof(*ms));
}

static void free_parts(struct master_member *mb)
{
	free(mb->answers.list);
	if (mb->asked)
		kvpool__asked__free_unpacked(mb->asked, NULL);
}

void master_members_fini(struct master_members *ms)
{
	unsigned int i;

	for (i = 0; i < ms->n; i++) {
		free_parts(ms->by_index[i]);
		free(ms->by_index[i]);
	}
	ms->n = 0;
}

void master_member_changed(struct master_members *ms, struct master_member *mb)
{
	mb->changed = ++ms->changes;
	mb->figures_unsent = false;
}

struct master_member *master_members_find(const struct master_members *ms,
					  const uint8_t id[POOL_ID_SIZE])
{
	unsigned int i;

	for (i = 0; i < ms->n; i++)
		if (!memcmp(ms->by_index[i]->id, id, POOL_ID_SIZE))
			return ms->by_index[i];
	return NULL;
}

/* The member that has been gone longest and whose index no file and no order
 * refers to, or NULL. */
static struct master_member *reusable(const struct master_members *ms)
{
	struct master_member *best = NULL;
	unsigned int i;

	for (i = 0; i < ms->n; i++) {
		struct master_member *mb = ms->by_index[i];

		if (!mb->gone || mb->unswept || mb->expected || mb->coming ||
		    mb->leaving || mb->drain.on)
			continue;
		if (!best || mb->left_wall_ns < best->left_wall_ns)
			best = mb;
	}
	return best;
}

int master_members_make(struct master_members *ms,
			const uint8_t id[POOL_ID_SIZE],
			struct master_member **ret)
{
	struct master_member *mb = master_members_find(ms, id);
	uint16_t index;
	uint8_t phase;

	if (mb) {
		*ret = mb;
		return 0;
	}
	if (ms->n < MASTER_NODES_MAX) {
		mb = calloc(1, sizeof(*mb));
		if (!mb)
			return -ENOMEM;
		mb->index = (uint16_t)ms->n;
		ms->by_index[ms->n++] = mb;
	} else {
		mb = reusable(ms);
		if (!mb)
			return -ENOSPC;
		index = mb->index;
		phase = mb->phase;
		free_parts(mb);
		memset(mb, 0, sizeof(*mb));
		mb->index = index;
		mb->phase = phase;
	}
	memcpy(mb->id, id, POOL_ID_SIZE);
	mb->gone = true;
	master_member_changed(ms, mb);
	*ret = mb;
	return 0;
}

static bool fits(const char *text, size_t cap)
{
	return strnlen(text, cap) < cap;
}

int master_member_check(const Kvpool__NodeInfo *info)
{
	const struct master_member *mb = NULL;

	if (!info || info->id.len != POOL_ID_SIZE)
		return -EINVAL;
	if (!fits(info->name, sizeof(mb->name)) ||
	    !fits(info->advertise, sizeof(mb->advertise)) ||
	    !fits(info->unix_path, sizeof(mb->unix_path)) ||
	    !fits(info->host_id, sizeof(mb->host_id)) ||
	    !fits(info->data_mode, sizeof(mb->data_mode)))
		return -EINVAL;
	return 0;
}

/* Without control bytes: the text is shown in terminals. */
static void set_text(char *to, size_t cap, const char *from)
{
	snprintf(to, cap, "%s", from);
	for (; *to; to++)
		if (iscntrl((unsigned char)*to))
			*to = '?';
}

static uint64_t at_most(uint64_t n, uint64_t max)
{
	return n < max ? n : max;
}

/* Not the reported bytes less the kept ones: the node may have subtracted some
 * of these itself. */
static void set_evictable(struct master_member *mb)
{
	uint64_t most = mb->used > mb->kept ? mb->used - mb->kept : 0;

	mb->evictable = mb->reported_evictable;
	if (!mb->is_mount && mb->kept)
		mb->evictable = at_most(mb->evictable, most);
}

/* Headroom makes a store's evictable bytes exceed its capacity a little. */
static bool are_possible(const Kvpool__NodeInfo *info)
{
	return info->capacity <= MASTER_CAPACITY_MAX &&
	       info->used <= info->capacity &&
	       info->evictable / 2 <= info->capacity;
}

static bool set_figures(struct master_member *mb, const Kvpool__NodeInfo *info)
{
	mb->capacity = info->capacity <= MASTER_CAPACITY_MAX ? info->capacity :
							       0;
	mb->used = at_most(info->used, mb->capacity);
	mb->reported_evictable = at_most(info->evictable, mb->capacity);
	set_evictable(mb);
	mb->objects = info->objects;
	mb->sent_bytes = info->sent_bytes;
	mb->cert_expires = info->cert_expires;
	master_place_accepting(mb);
	return are_possible(info);
}

/* Must mounts receive the new sent_bytes? It changes with each heartbeat while
 * there are readers, so they receive it only every SENT_REPORT_MS. */
static bool report_sent(struct master_member *mb, uint64_t sent_bytes)
{
	uint64_t now_ms = pool_now_ms();

	if (mb->sent_bytes == sent_bytes ||
	    now_ms - mb->sent_reported_ms < SENT_REPORT_MS)
		return false;
	mb->sent_reported_ms = now_ms;
	return true;
}

bool master_member_describe(struct master_members *ms,
			    struct master_member *mb,
			    const Kvpool__NodeInfo *info)
{
	set_text(mb->name, sizeof(mb->name), info->name);
	set_text(mb->advertise, sizeof(mb->advertise), info->advertise);
	set_text(mb->unix_path, sizeof(mb->unix_path), info->unix_path);
	set_text(mb->host_id, sizeof(mb->host_id), info->host_id);
	set_text(mb->data_mode, sizeof(mb->data_mode), info->data_mode);
	pool_wire_program(mb->program, info->program);
	mb->is_store = info->is_store;
	mb->is_mount = info->is_mount;
	master_member_changed(ms, mb);
	return set_figures(mb, info);
}

static void send_figures(struct master_members *ms, struct master_member *mb)
{
	if (ms->round_ms)
		mb->figures_unsent = true;
	else
		master_member_changed(ms, mb);
}

bool master_member_figures(struct master_members *ms, struct master_member *mb,
			   const Kvpool__NodeInfo *info)
{
	uint64_t capacity = mb->capacity, used = mb->used;
	uint64_t evictable = mb->reported_evictable, objects = mb->objects;
	bool sent = report_sent(mb, info->sent_bytes);
	bool possible = set_figures(mb, info);

	if (sent || mb->capacity != capacity || mb->used != used ||
	    mb->reported_evictable != evictable || mb->objects != objects)
		send_figures(ms, mb);
	return possible;
}

void master_members_round(struct master_members *ms, unsigned int mounts,
			  uint64_t now_ms)
{
	unsigned int i;

	if (now_ms < ms->round_due_ms)
		return;
	ms->round_ms = (uint64_t)ms->n * mounts / FIGURES_PER_MS;
	ms->round_due_ms = now_ms + ms->round_ms;
	for (i = 0; i < ms->n; i++)
		if (ms->by_index[i]->figures_unsent)
			master_member_changed(ms, ms->by_index[i]);
}

void master_member_drain(struct master_members *ms, struct master_member *mb,
			 bool on)
{
	if (mb->drain.on == on)
		return;
	memset(&mb->drain, 0, sizeof(mb->drain));
	mb->drain.on = on;
	ms->ndraining += on ? 1 : -1u;
	master_member_changed(ms, mb);
}

unsigned int master_member_drained(const struct master_member *mb)
{
	const struct master_drain *d = &mb->drain;
	uint64_t percent;

	if (!d->known)
		return 0;
	if (!d->keys)
		return 100;
	if (!d->total_bytes)
		return 0;
	percent = (d->total_bytes - d->bytes) * 100 / d->total_bytes;
	return percent > 99 ? 99 : (unsigned int)percent;
}

int master_member_join(struct master_members *ms, struct master_member *mb,
		       struct master_session *session, uint64_t now_ms)
{
	if (mb->unswept >= MASTER_PHASES - 1)
		return -EAGAIN;
	mb->unswept++;
	mb->sweeping = false;
	mb->phase = (uint8_t)((mb->phase + 1) % MASTER_PHASES);
	mb->session = session;
	mb->received_ms = now_ms;
	mb->gone = false;
	mb->inventoried = false;
	mb->drain.known = mb->drain.counting = false;
	mb->copies_failed = 0;
	master_member_changed(ms, mb);
	return 0;
}

void master_member_away(struct master_members *ms, struct master_member *mb,
			uint64_t now_ms)
{
	mb->session = NULL;
	mb->away_ms = now_ms;
	master_member_changed(ms, mb);
}

void master_member_gone(struct master_members *ms, struct master_member *mb,
			uint64_t left_wall_ns)
{
	mb->session = NULL;
	mb->expected = false;
	mb->gone = true;
	mb->left_wall_ns = left_wall_ns;
	mb->sweeping = false;
	if (!mb->unswept)
		mb->unswept = 1;
	master_member_changed(ms, mb);
}

void master_member_info(const struct master_member *mb, Kvpool__NodeInfo *ret)
{
	kvpool__node_info__init(ret);
	ret->index = mb->index;
	ret->id.data = (uint8_t *)mb->id;
	ret->id.len = POOL_ID_SIZE;
	ret->name = (char *)mb->name;
	ret->advertise = (char *)mb->advertise;
	ret->unix_path = (char *)mb->unix_path;
	ret->host_id = (char *)mb->host_id;
	ret->data_mode = (char *)mb->data_mode;
	ret->program = (char *)mb->program;
	ret->is_store = mb->is_store;
	ret->is_mount = mb->is_mount;
	ret->alive = master_member_alive(mb);
	ret->capacity = mb->capacity;
	ret->used = mb->used;
	ret->evictable = mb->evictable;
	ret->objects = mb->objects;
	ret->sent_bytes = mb->sent_bytes;
	ret->draining = mb->drain.on;
	ret->drained_percent = mb->drain.on ? master_member_drained(mb) : 0;
}

void master_members_sweep_begin(struct master_members *ms)
{
	unsigned int i;

	for (i = 0; i < ms->n; i++) {
		struct master_member *mb = ms->by_index[i];

		mb->sweeping = mb->gone || mb->inventoried;
		mb->kept_seen = 0;
	}
}

void master_member_keeps(struct master_member *mb, uint64_t bytes)
{
	mb->kept_seen += pool_whole_pages(bytes);
}

void master_members_sweep_end(struct master_members *ms)
{
	unsigned int i;

	for (i = 0; i < ms->n; i++) {
		struct master_member *mb = ms->by_index[i];

		if (mb->sweeping)
			mb->unswept = 0;
		mb->sweeping = false;
		if (mb->kept == mb->kept_seen)
			continue;
		mb->kept = mb->kept_seen;
		set_evictable(mb);
		if (!mb->is_mount)
			send_figures(ms, mb);
	}
}

void master_members_totals(const struct master_members *ms,
			   struct master_totals *ret)
{
	unsigned int i;

	memset(ret, 0, sizeof(*ret));
	for (i = 0; i < ms->n; i++) {
		const struct master_member *mb = ms->by_index[i];

		ret->nodes++;
		if (!master_member_alive(mb))
			continue;
		ret->alive++;
		if (!mb->is_store)
			continue;
		ret->capacity += mb->capacity;
		ret->used += mb->used;
		ret->evictable += mb->evictable;
	}
}

bool master_members_recovering(const struct master_members *ms)
{
	unsigned int i;

	for (i = 0; i < ms->n; i++)
		if (ms->by_index[i]->expected)
			return true;
	return false;
}

bool master_members_joining(const struct master_members *ms)
{
	unsigned int i;

	for (i = 0; i < ms->n; i++)
		if (ms->by_index[i]->expected && ms->by_index[i]->session)
			return true;
	return false;
}
