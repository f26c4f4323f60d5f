/*
 * The state, in a file or in etcd: conversion of its records to and from the
 * map. Code elsewhere appends records without knowing which of the two it is.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "master/etcd_state.h"
#include "master/impl.h"
#include "master/meta.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/model/root.h"

/* ---- loading ---- */

/*
 * The attributes of the root that a user has set. Records of older versions
 * have no meta->set, but all attributes: 0755 and zeros where none was set.
 */
static uint16_t root_set(const Kvpool__Meta *meta)
{
	uint16_t set = POOL_ROOT_RECORDED;

	if (meta->set)
		return set | (meta->set & POOL_ROOT_SETS);
	if (meta->mtime_ns)
		set |= POOL_SET_MTIME;
	if (meta->uid || meta->gid)
		set |= POOL_SET_UID | POOL_SET_GID;
	/* If an owner was set, assume that the mode was intended, too. */
	if (meta->mode != 0755 || meta->uid || meta->gid)
		return set | POOL_SET_MODE;
	pool_warn("the state of an older version does not say whether mode 755 "
		  "of the pool's root was set by a user: it has mode %o now "
		  "(if 755 was meant, chmod 755 the mount point)",
		  POOL_ROOT_MODE);
	return set;
}

/* Attributes that no user has set keep their defaults. */
static void load_root(struct master_dir *d, const Kvpool__Meta *meta)
{
	d->set = root_set(meta);
	if (d->set & POOL_SET_MODE)
		d->mode = (uint16_t)(meta->mode & 01777u);
	if (d->set & POOL_SET_UID)
		d->uid = meta->uid;
	if (d->set & POOL_SET_GID)
		d->gid = meta->gid;
	if (d->set & POOL_SET_MTIME)
		d->mtime_ns = meta->mtime_ns;
}

static void load_attrs(struct master_dir *d, const struct master_attrs *attrs)
{
	d->mode = attrs->mode;
	d->uid = attrs->uid;
	d->gid = attrs->gid;
	d->mtime_ns = attrs->mtime_ns;
}

static int load_dir(struct master *m, const Kvpool__Meta *meta)
{
	struct pool_xattrs *xattrs = NULL;
	struct pool_rules rules;
	struct master_attrs attrs;
	struct master_dir *d;
	bool made;
	int err;

	master_meta_attrs(meta, &attrs);
	err = master_map_make_dir(&m->map, (const char *)meta->path.data,
				  meta->path.len, &attrs, &d, &made);
	if (err == -ENOMEM)
		return err;
	if (err)
		return -EPROTO;
	err = master_meta_xattrs(meta, true, false, pool_wall_ns(), &xattrs,
				 &rules);
	if (err)
		return err == -ENOMEM ? err : -EPROTO;
	if (rules.pin_until_ns)
		rules.pin_until_ns = meta->base_gen;
	err = master_extra_set(&d->extra, xattrs, &rules);
	if (err) {
		pool_xattrs_free(xattrs);
		return err;
	}
	if (d->d.e.parent)
		load_attrs(d, &attrs);
	else
		load_root(d, meta);
	master_map_account(&m->map, &d->d.e);
	m->ndirs_made += !d->made;
	d->made = 1;
	master_map_touch_dir(&m->map, d);
	return 0;
}

static int load_rmdir(struct master *m, const Kvpool__Meta *meta)
{
	struct master_dir *d = master_map_dir(
		&m->map, (const char *)meta->path.data, meta->path.len);
	bool was_made;
	int err;

	if (!d)
		return 0;
	was_made = d->made;
	err = master_map_remove_dir(&m->map, d, pool_wall_ns());
	if (!err)
		m->ndirs_made -= was_made;
	return err == -ENOMEM ? err : 0;
}

static int load_member(struct master *m, const struct master_record *r)
{
	struct master_member *mb;
	int err = master_members_make(&m->members, r->id, &mb);

	if (err == -ENOSPC)
		return 0;
	if (err)
		return err;
	strncpy(mb->name, r->name, sizeof(mb->name) - 1);
	mb->role = r->role;
	if (r->role)
		snprintf(mb->advertise, sizeof(mb->advertise), "%s",
			 r->advertise);
	mb->left_wall_ns = r->u64;
	mb->expected = !r->u64;
	master_answers_load(mb, r);
	return 0;
}

static int load_drain(struct master *m, const struct master_record *r)
{
	struct master_member *mb = master_members_find(&m->members, r->id);

	if (mb)
		master_member_drain(&m->members, mb, r->u64 != 0);
	return 0;
}

static int load_tomb(struct master *m, const Kvpool__Meta *meta)
{
	const char *path = (const char *)meta->path.data;
	uint32_t uid = meta->uid - 1; /* absent: MASTER_UID_ANYONE */
	struct master_account a = master_account_of_owner(uid);
	struct master_grave *g = NULL;
	int err;

	if (!meta->path.len || meta->mode >= MASTER_BY_KINDS)
		return -EPROTO;
	if (meta->mode)
		a = (struct master_account){ (uint32_t)meta->attr_gen,
					     (uint8_t)meta->mode };
	else if (meta->attr_gen)
		a.id = (uint32_t)meta->attr_gen - 1;
	if (meta->gid) {
		(void)master_map_add_former(&m->map, path, meta->path.len, uid,
					    a, meta->gen, meta->gid == 2,
					    meta->mtime_ns);
		return 0;
	}
	err = master_map_add_tomb(&m->map, path, meta->path.len, uid,
				  meta->gen, meta->mtime_ns);
	if (!err)
		g = master_map_grave_below(&m->map, path, meta->path.len);
	if (g && g->gen == meta->gen) {
		if (g->uid == uid)
			master_map_charge(&m->map, g, a);
		g->by_run = meta->base_gen;
		g->by_ticket = meta->seq;
		g->last_gen = meta->seen_gen;
		g->last_sum = meta->size;
		g->evicted = meta->deleted ? 1 : 0;
		g->blind = meta->set ? 1 : 0;
	}
	return err;
}

static void load_lost(struct master *m, const struct master_record *r)
{
	struct master_owner *w = master_owners_of(&m->map.owners, r->account);

	master_owner_lost(&m->map.owners, w, r->u64, 0);
	if (master_account_same(w->account, r->account) &&
	    w->kept_wall_ns < r->u64)
		w->kept_wall_ns = r->u64;
}

int master_load_record(void *arg, const struct master_record *r)
{
	struct master *m = arg;
	const Kvpool__Meta *meta = r->meta;

	if (meta && meta->path.len &&
	    pool_path_check((const char *)meta->path.data, meta->path.len))
		return -EPROTO;
	switch (r->type) {
	case MASTER_REC_EPOCH:
		return 0;
	case MASTER_REC_LOST:
		load_lost(m, r);
		return 0;
	case MASTER_REC_MEMBER:
		return load_member(m, r);
	case MASTER_REC_DRAIN:
		return load_drain(m, r);
	case MASTER_REC_DIR:
		return load_dir(m, meta);
	case MASTER_REC_RMDIR:
		return load_rmdir(m, meta);
	case MASTER_REC_TOMB:
		return load_tomb(m, meta);
	}
	return -EPROTO;
}

/* ---- keeping ---- */

bool master_keeps(const struct master *m)
{
	return m->state || m->etcd_state;
}

void master_keep_flush(struct master *m)
{
	if (m->state)
		master_state_flush(m->state);
	if (m->etcd_state)
		etcd_state_flush(m->etcd_state);
}

uint64_t master_keep_mark(const struct master *m)
{
	return m->etcd_state ? etcd_state_mark(m->etcd_state) : 0;
}

uint64_t master_keep_changes(const struct master *m)
{
	return m->nkept;
}

void master_keep(struct master *m, const struct master_record *r)
{
	m->nkept += master_keeps(m);
	if (m->etcd_state)
		return etcd_state_append(m->etcd_state, r);
	if (m->state && master_state_append(m->state, r))
		pool_warn_limited("state file: a record could not be kept; the "
				  "file is rewritten once its disk accepts "
				  "writes");
}

void master_keep_dir(struct master *m, struct master_dir *d)
{
	struct master_record r = { .type = MASTER_REC_DIR };
	struct master_batch *b;

	if (!master_keeps(m))
		return;
	b = master_batch_start(m);
	if (!master_batch_add(b, &d->item)) {
		r.meta = b->list[0];
		if (d->extra)
			r.meta->base_gen = d->extra->rules.pin_until_ns;
		master_keep(m, &r);
	}
	master_batch_reset(b);
}

static void keep_path(struct master *m, enum master_record_type type,
		      const char *path, size_t len, Kvpool__Meta *meta)
{
	struct master_record r = { .type = type, .meta = meta };

	meta->path.data = (uint8_t *)(uintptr_t)path;
	meta->path.len = len;
	master_keep(m, &r);
}

void master_keep_rmdir(struct master *m, const char *path, size_t len)
{
	Kvpool__Meta meta = KVPOOL__META__INIT;

	keep_path(m, MASTER_REC_RMDIR, path, len, &meta);
}

void master_keep_tomb_meta(const struct master_grave *g, Kvpool__Meta *ret)
{
	ret->gen = g->gen;
	ret->mtime_ns = g->wall_ns;
	ret->base_gen = g->by_run;
	ret->seq = g->by_ticket;
	ret->seen_gen = g->last_gen;
	ret->size = g->last_sum;
	ret->deleted = g->evicted;
	ret->set = g->blind;
	ret->uid = g->uid + 1;
	ret->gid = g->former + g->given;
	ret->mode = g->account.kind;
	if (g->account.kind)
		ret->attr_gen = g->account.id;
	else if (g->account.id != g->uid)
		ret->attr_gen = 1 + (uint64_t)g->account.id;
}

void master_keep_tomb(struct master *m, const struct master_grave *g)
{
	Kvpool__Meta meta = KVPOOL__META__INIT;

	master_keep_tomb_meta(g, &meta);
	keep_path(m, MASTER_REC_TOMB, g->path, g->path_len, &meta);
}

void master_keep_lost(struct master *m)
{
	struct master_record r = { .type = MASTER_REC_LOST };
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &m->map.owners.unkept) {
		struct master_owner *w =
			pool_list_entry(it, struct master_owner, unkept);

		pool_list_del(&w->unkept);
		if (w->kept_wall_ns >= w->lost_wall_ns)
			continue;
		r.u64 = w->kept_wall_ns = w->lost_wall_ns;
		r.account = w->account;
		master_keep(m, &r);
	}
}

uint64_t master_blind_id(const struct master_member *mb)
{
	uint64_t id;

	memcpy(&id, mb->id, sizeof(id));
	return id;
}

void master_keep_blind(struct master *m, const char *path, size_t len,
		       uint32_t uid, const struct master_member *by,
		       uint64_t replaced_gen)
{
	Kvpool__Meta meta = KVPOOL__META__INIT;

	meta.gen = replaced_gen - 1;
	meta.mtime_ns = pool_wall_ns();
	meta.seen_gen = replaced_gen;
	meta.set = 1;
	meta.base_gen = master_blind_id(by);
	meta.uid = uid + 1;
	keep_path(m, MASTER_REC_TOMB, path, len, &meta);
}

struct master_record master_member_record(const struct master_member *mb)
{
	return (struct master_record){ .type = MASTER_REC_MEMBER,
				       .id = mb->id,
				       .name = mb->name,
				       .u64 = mb->left_wall_ns,
				       .ops_run = mb->answers.run,
				       .ops_done = mb->answers.done,
				       .ops_gen = mb->answers.gen,
				       .role = mb->role,
				       .advertise = mb->advertise };
}

void master_keep_member(struct master *m, const struct master_member *mb)
{
	struct master_record r = master_member_record(mb);

	master_keep(m, &r);
}

void master_keep_drain(struct master *m, const struct master_member *mb)
{
	struct master_record r = { .type = MASTER_REC_DRAIN,
				   .id = mb->id,
				   .u64 = mb->drain.on };

	master_keep(m, &r);
}
