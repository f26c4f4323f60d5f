/* The model: which outcomes a name may show. See tests/sim/sim_nodes.h. */
#include "tests/sim/sim_nodes.h"

#include <stdio.h>
#include <string.h>

#include "master/impl.h"

/* "k": replicas=2; "n": noevict; "e": large files, which fill the stores. */
const char *const sn_dirs[] = { "", "a", "k", "n", "e", "a/d" };
static const struct {
	const char *path;
	unsigned int dir;
} names[SN_NAMES] = {
	{ "r", 0 },   { "a/x", 1 }, { "a/y", 1 }, { "k/x", 2 },
	{ "k/y", 2 }, { "n/x", 3 }, { "e/1", 4 }, { "e/2", 4 },
	{ "e/3", 4 }, { "e/4", 4 }, { "e/5", 4 },
	{ "a/d/f", 5 },
};

static struct sn *the; /* for the disks' callback */

uint64_t sn_size_of(uint64_t bytes, unsigned int dir)
{
	return dir == 4 ? 400000 + bytes % 7 * 50000 : 3000 + bytes % 5 * 70000;
}

struct sn_op *sn_op_new(struct sn *s, unsigned int name, unsigned int node,
			enum sn_kind kind, uint64_t knows)
{
	struct sn_name *nm = &s->name[name];
	struct sn_op *op;

	if (nm->nops == SN_OPS)
		return NULL;
	op = &nm->op[nm->nops++];
	op->kind = kind;
	op->node = node;
	op->knows = knows;
	op->number = ++s->noperations;
	return op;
}

static uint64_t bit(const struct sn_name *nm, const struct sn_op *op)
{
	return 1ull << (op - nm->op);
}

/* ---- what is shown ---- */

/* Index + 1 of the write with this checksum; 0: none. */
static uint64_t writer_of(const struct sn_name *nm, XXH128_hash_t sum)
{
	unsigned int i;

	for (i = 0; i < nm->nops; i++)
		if (nm->op[i].kind == SN_WRITE && !nm->op[i].void_ &&
		    XXH128_isEqual(nm->op[i].sum, sum))
			return i + 1;
	return 0;
}

static bool shows_dir(const struct sn_proc *p, const struct sn_name *nm)
{
	struct pool_entry *pe = pool_tree_lookup(&p->node->tree, nm->path,
						 strlen(nm->path));

	return pe && pe->is_dir && pool_node_visible(pe);
}

/* What a mount shows, as in sn_name.shown. False: a file is being written. */
static bool shows(const struct sn_proc *p, const struct sn_name *nm,
		  uint64_t *ret_shown)
{
	struct pool_entry *pe = pool_tree_lookup(&p->node->tree, nm->path,
						 strlen(nm->path));
	struct node_entry *e = pe ? node_file(pe) : NULL;

	*ret_shown = 0;
	if (!e || !pool_node_visible(pe))
		return true;
	if (e->own && e->own->state <= NODE_SEALING) {
		char dir[16];
		struct sim_file *f;

		snprintf(dir, sizeof(dir), "node%u", p->index);
		f = sim_disk_file(dir, e->own->id);
		if (!f || e->own->w->opens || !f->bytes)
			return false;
		*ret_shown = writer_of(nm, sim_bytes_sum(f->bytes, f->size));
		return *ret_shown != 0;
	}
	*ret_shown = writer_of(nm, e->own ? e->own->sum : e->sum);
	return true;
}

/* Bit mask of the removals that knew all of `known` and reached the master, so
 * that other mounts may show their outcome. */
static uint64_t removed_by(const struct sn_name *nm, uint64_t known)
{
	uint64_t by = 0;
	unsigned int i;

	for (i = 0; i < nm->nops; i++)
		if (nm->op[i].kind == SN_REMOVE && !nm->op[i].void_ &&
		    nm->op[i].sent && (nm->op[i].knows & known) == known)
			by |= bit(nm, &nm->op[i]);
	return by;
}

/* As writer_of, for the version in the map. */
static uint64_t writer_in(const struct master_file *f, const struct sn_name *nm)
{
	XXH128_canonical_t c;

	memcpy(c.digest, f->sum, sizeof(c.digest));
	return writer_of(nm, XXH128_hashFromCanonical(&c));
}

/* Without a master, the last observation stays. */
static void observe_master(struct sn_name *nm, uint64_t now)
{
	struct master *m = the->master ? the->master->master : NULL;
	struct pool_entry *e = m ? pool_tree_lookup(&m->map.tree, nm->path,
						    strlen(nm->path)) : NULL;
	uint64_t writer = e && !e->is_dir ? writer_in(master_entry_file(e), nm)
					  : 0;

	if (!m)
		return;
	if (writer)
		nm->op[writer - 1].in_pool = true;
	if (e && e->is_dir && !nm->is_dir)
		nm->dir_made = now;
	nm->is_dir = e && e->is_dir;
}

static void observe(struct sn_name *nm, const struct sn_proc *p)
{
	uint64_t *known = &nm->known[p->index], shown;

	if (!shows(p, nm, &shown))
		return;
	if (shown)
		*known = nm->op[shown - 1].knows | 1ull << (shown - 1);
	else if (nm->shown[p->index]) /* gone since the last call */
		*known |= removed_by(nm, *known);
	nm->shown[p->index] = shown;
}

void sn_removed(struct sn *s, unsigned int name, const struct sn_op *op)
{
	struct sn_name *nm = &s->name[name];

	nm->known[op->node] |= bit(nm, op);
	nm->shown[op->node] = 0;
}

void sn_observe(struct sn *s)
{
	unsigned int i, k;

	for (i = 0; i < SN_NODES; i++)
		for (k = 0; s->node[i] && k < SN_NAMES; k++)
			observe(&s->name[k], s->node[i]);
	for (k = 0; k < SN_NAMES; k++)
		observe_master(&s->name[k], s->noperations);
}

void sn_forget_shown(struct sn *s, unsigned int node)
{
	unsigned int k;

	for (k = 0; k < SN_NAMES; k++)
		s->name[k].known[node] = s->name[k].shown[node] = 0;
}

/* ---- what was acknowledged ---- */

/* The error of an fsync covers all operations there, even later ones: it is
 * returned only once. Success does not cover a file reopened for writing. */
void sn_acked(struct sn *s, unsigned int node, unsigned int dir,
	      uint64_t number, int status)
{
	bool error = status && status != -ETIMEDOUT && status != -ECANCELED;
	unsigned int k, i;

	for (k = 0; k < SN_NAMES; k++)
		for (i = 0; i < s->name[k].nops; i++) {
			struct sn_op *op = &s->name[k].op[i];

			if (s->name[k].dir != dir || op->node != node ||
			    (op->number > number && !error) || op->void_)
				continue;
			if (error)
				op->lost = true;
			else if (!status && !op->lost && !op->acked &&
				 !op->taken) {
				op->acked = true;
				s->nacks++;
			}
		}
}

/* An acknowledged operation (writes: a write) that knew op, or NULL. */
static const struct sn_op *superseder(const struct sn_name *nm,
				      const struct sn_op *op, bool writes)
{
	unsigned int i;

	for (i = 0; i < nm->nops; i++)
		if (nm->op[i].acked && nm->op[i].knows & bit(nm, op) &&
		    (!writes || nm->op[i].kind == SN_WRITE))
			return &nm->op[i];
	return NULL;
}

/* Did the same mount rewrite the file before the master had it? Then the fsync
 * may have acknowledged only the rewritten version. */
static bool is_rewritten(const struct sn_name *nm, const struct sn_op *op)
{
	const struct sn_op *by;

	for (by = op + 1; by < nm->op + nm->nops; by++)
		if (by->node == op->node && by->kind == SN_WRITE &&
		    !by->void_ && by->knows & bit(nm, op))
			return !op->in_pool;
	return false;
}

/*
 * May a directory have taken the name? If the map has no file of this name when
 * the master executes an MKDIR, the directory stays, and a holder that returns
 * with a copy of a file must drop it. That may be long after the user's mkdir:
 * in between, mounts that do not know the directory may have published and
 * acknowledged a file, whose holder then died. But a file that is written
 * later, or was not published by then, meets the directory: its fsync must
 * fail.
 */
static bool gave_way(const struct sn_name *nm)
{
	unsigned int i;

	for (i = 0; i < nm->nops; i++) {
		const struct sn_op *op = &nm->op[i];

		if (op->acked && op->kind == SN_WRITE &&
		    (op->number > nm->dir_made || !op->in_pool) &&
		    !superseder(nm, op, true) && !is_rewritten(nm, op))
			return false;
	}
	return nm->dir_made != 0;
}

/* May the name show nothing? */
static bool may_be_gone(const struct sn_name *nm)
{
	bool acked = false;
	unsigned int i;

	if (gave_way(nm))
		return true;
	for (i = 0; i < nm->nops; i++) {
		const struct sn_op *op = &nm->op[i];

		acked |= op->acked && op->kind == SN_WRITE;
		if ((op->kind == SN_REMOVE || op->evicted || op->cut) &&
		    !op->void_ &&
		    !superseder(nm, op, true))
			return true;
	}
	return !acked;
}

static void check_name(struct sn *s, const struct sn_name *nm)
{
	const struct sn_op *op, *by;
	struct pool_entry *e = pool_tree_lookup(
		&s->master->master->map.tree, nm->path, strlen(nm->path));
	uint64_t shown, of_master = 0;
	unsigned int i;

	if (e && !e->is_dir)
		of_master = writer_in(master_entry_file(e), nm);
	for (i = 0; i < SN_NODES; i++) {
		(void)shows(s->node[i], nm, &shown);
		if (shows_dir(s->node[i], nm))
			continue; /* its mkdir preceded the file's feed entry */
		if (shown != of_master)
			sn_wrong(s, "%s: node %u shows %llu, the master %llu",
				 nm->path, i, (unsigned long long)shown,
				 (unsigned long long)of_master);
	}
	if (!of_master) {
		if (!may_be_gone(nm))
			sn_wrong(s, "%s is gone", nm->path);
		return;
	}
	op = &nm->op[of_master - 1];
	by = superseder(nm, op, false);
	if (by)
		sn_wrong(s,
			 "%s shows %llx of node %u, but node %u's %s %llx knew "
			 "it and was acknowledged",
			 nm->path, (unsigned long long)op->bytes, op->node,
			 by->node, by->kind == SN_WRITE ? "write" : "unlink",
			 (unsigned long long)by->bytes);
}

void sn_check(struct sn *s)
{
	unsigned int k;

	for (k = 0; k < SN_NAMES; k++)
		if (!s->name[k].rotten)
			check_name(s, &s->name[k]);
}

/* ---- frames ---- */

static struct sn_name *name_at(const char *path, size_t len)
{
	unsigned int k;

	for (k = 0; k < SN_NAMES; k++)
		if (strlen(the->name[k].path) == len &&
		    !memcmp(the->name[k].path, path, len))
			return &the->name[k];
	return NULL;
}

static bool has_removal(const struct sn_name *nm)
{
	unsigned int i;

	for (i = 0; i < nm->nops; i++)
		if (nm->op[i].kind == SN_REMOVE && !nm->op[i].void_)
			return true;
	return false;
}

/*
 * Was generation gen in the map until the UNLINK that made this tombstone? Only
 * then must its removal be in etcd before it is revealed. If the last copy was
 * gone before, the tombstone has the generation that the UNLINK named, or the
 * file's; else it has a new one. Nor does the rule hold if a node asked to
 * evict gen, or if a generation between gen and the tombstone was unlinked.
 */
static bool was_there(const struct sn_name *nm, uint64_t gen, uint64_t tomb)
{
	unsigned int i;

	for (i = 0; i < SN_UNLINKED; i++)
		if (nm->unlinked[i] == tomb || nm->put[i] == tomb ||
		    nm->given_up[i] == gen ||
		    (nm->unlinked[i] > gen && nm->unlinked[i] < tomb))
			return false;
	return tomb != 0;
}

/* Was the last copy gone before the UNLINK? The tombstone then has the file's
 * generation, which need not have been in a feed. */
static bool had_left(const struct sn *s, const char *path, size_t len,
		     uint64_t tomb)
{
	const struct master_grave *g =
		master_map_grave_below(&s->master->master->map, path, len);

	return g && g->last_gen == tomb;
}

static void note_gone(struct sn *s, const char *path, size_t len, uint64_t gen,
		      const char *how)
{
	const struct sn_name *nm = name_at(path, len);
	uint64_t tomb;

	if (!nm || !has_removal(nm))
		return;
	tomb = sim_etcd_owed_tomb(s->master->state, path, len, gen);
	if (was_there(nm, gen, tomb) && !had_left(s, path, len, tomb))
		sn_wrong(s,
			 "%s reveals the removal of %.*s, which etcd does not "
			 "have",
			 how, (int)len, path);
}

static void note_sent(struct sn_name *nm, unsigned int node)
{
	unsigned int i;

	for (i = 0; i < nm->nops; i++)
		nm->op[i].sent |= nm->op[i].kind == SN_REMOVE &&
				  nm->op[i].node == node;
}

static void note_unlinks(const Kvpool__Ops *o, unsigned int node)
{
	size_t i;

	for (i = 0; i < o->n_ops; i++) {
		const Kvpool__Meta *m = o->ops[i]->meta;
		struct sn_name *nm =
			o->ops[i]->kind == KVPOOL__OP__KIND__UNLINK ?
				name_at((const char *)m->path.data,
					m->path.len) :
				NULL;

		if (!nm)
			continue;
		nm->unlinked[nm->nunlinked++ % SN_UNLINKED] = m->gen;
		note_sent(nm, node);
	}
}

static void note_evicts(const Kvpool__Evict *e)
{
	size_t i;

	for (i = 0; i < e->n_entries; i++) {
		const Kvpool__Meta *m = e->entries[i];
		struct sn_name *nm = name_at((const char *)m->path.data,
					     m->path.len);

		if (nm)
			nm->given_up[nm->ngiven_up++ % SN_UNLINKED] = m->gen;
	}
}

static void check_drop(struct sn *s, const Kvpool__Drop *d)
{
	size_t i;

	for (i = 0; i < d->n_items; i++)
		if (d->items[i]->reason == KVPOOL__DROP__REASON__DELETED)
			note_gone(s, (const char *)d->items[i]->path.data,
				  d->items[i]->path.len, d->items[i]->gen,
				  "a DROP");
}

static void note_put(const Kvpool__Meta *m)
{
	struct sn_name *nm = name_at((const char *)m->path.data, m->path.len);

	if (nm && !m->is_dir && !m->deleted)
		nm->put[nm->nput++ % SN_UNLINKED] = m->gen;
}

static void check_feed(struct sn *s, const Kvpool__Feed *f)
{
	size_t i;

	for (i = 0; i < f->n_entries; i++)
		note_put(f->entries[i]);
	for (i = 0; i < f->n_entries; i++)
		if (f->entries[i]->deleted && !f->entries[i]->is_dir)
			note_gone(s, (const char *)f->entries[i]->path.data,
				  f->entries[i]->path.len, f->entries[i]->gen,
				  "the feed");
}

/* HELD makes a copy count: do the bytes match the checksum? */
static void check_held(struct sn *s, const struct sn_proc *p,
		       const Kvpool__Held *h)
{
	char dir[16];
	size_t i;

	snprintf(dir, sizeof(dir), "node%u", p->index);
	for (i = 0; i < h->n_items; i++) {
		const Kvpool__Held__Item *it = h->items[i];
		struct pool_entry *pe = pool_tree_lookup(
			&p->node->tree, (const char *)it->path.data,
			it->path.len);
		struct node_entry *e = pe ? node_file(pe) : NULL;
		struct node_object *o = e ? e->obj : NULL;
		struct sim_file *f = o ? sim_disk_file(dir, o->id) : NULL;

		if (!it->status && !it->extra && f && o->gen == it->gen &&
		    !XXH128_isEqual(o->sum, sim_bytes_sum(f->bytes, f->size)))
			sn_wrong(s,
				 "node %u says it holds %s, which is damaged",
				 p->index, (const char *)pool_entry_name(pe));
	}
}

void sn_check_frame(struct sn *s, const struct sn_proc *from,
		    const struct pool_frame *f, const uint8_t *payload)
{
	const ProtobufCMessageDescriptor *desc;
	ProtobufCMessage *m;

	if (from->index == SN_NODES)
		return;
	if (f->type == POOL_MSG_OPS)
		desc = &kvpool__ops__descriptor;
	else if (f->type == POOL_MSG_EVICT)
		desc = &kvpool__evict__descriptor;
	else if (from == s->node[from->index] && f->type == POOL_MSG_HELD &&
		 s->with & SN_WITH_ROT)
		desc = &kvpool__held__descriptor;
	else
		return;
	m = protobuf_c_message_unpack(desc, NULL, f->payload_len, payload);
	if (!m)
		return;
	if (f->type == POOL_MSG_OPS)
		note_unlinks((Kvpool__Ops *)m, from->index);
	else if (f->type == POOL_MSG_EVICT)
		note_evicts((Kvpool__Evict *)m);
	else
		check_held(s, from, (Kvpool__Held *)m);
	protobuf_c_message_free_unpacked(m, NULL);
}

/* Checked when sent: it may arrive even if the master dies now. */
void sn_check_sent(struct sn *s, const struct sn_proc *from,
		   const struct pool_frame *f, const uint8_t *payload)
{
	const ProtobufCMessageDescriptor *desc =
		f->type == POOL_MSG_DROP ? &kvpool__drop__descriptor :
		f->type == POOL_MSG_FEED ? &kvpool__feed__descriptor :
					   NULL;
	ProtobufCMessage *m;

	if (!(s->with & SN_WITH_ETCD_FIRST) || from != s->master || !desc)
		return;
	m = protobuf_c_message_unpack(desc, NULL, f->payload_len, payload);
	if (!m)
		return;
	if (f->type == POOL_MSG_DROP)
		check_drop(s, (Kvpool__Drop *)m);
	else
		check_feed(s, (Kvpool__Feed *)m);
	protobuf_c_message_free_unpacked(m, NULL);
}

/* ---- copies ---- */

static struct sn_name *name_of(const struct sim_file *f)
{
	Kvpool__Meta *m = kvpool__meta__unpack(NULL, f->blob_len, f->blob);
	struct sn_name *ret = NULL;

	if (m)
		ret = name_at((const char *)m->path.data, m->path.len);
	if (m)
		kvpool__meta__free_unpacked(m, NULL);
	return ret;
}

static struct sn_proc *proc_of(const char *dir)
{
	return the->node[dir[4] - '0'];
}

/* A cached copy: its node may evict it at any time, and does not report that.
 * The copies of a dead node are counted ones at its next start. */
static bool is_cache(const char *dir, const struct sn_name *nm,
		     const struct sim_file *f)
{
	struct sn_proc *p = proc_of(dir);
	struct pool_entry *pe = p ? pool_tree_lookup(&p->node->tree, nm->path,
						     strlen(nm->path)) : NULL;
	struct node_entry *e = pe ? node_file(pe) : NULL;

	return e && e->obj && e->obj->id == f->id && !e->obj->counted;
}

/* Number of copies in the stores other than `but`. */
static unsigned int copies(const struct sn_name *nm, uint64_t bytes,
			   const char *but, bool cached)
{
	unsigned int i, n = 0;

	for (i = 0; i < 2; i++) { /* the stores */
		char dir[16];
		struct sim_file *f;

		snprintf(dir, sizeof(dir), "node%u", i);
		if (!strcmp(dir, but))
			continue;
		for (f = sim_disk_next(dir, NULL); f; f = sim_disk_next(dir, f))
			if (f->bytes == bytes && f->blob_len &&
			    name_of(f) == nm &&
			    (cached || !is_cache(dir, nm, f)))
				n++;
	}
	return n;
}

/* Is there an operation on the name that op did not know, acknowledged or not?
 */
static bool changed_since(const struct sn_name *nm, const struct sn_op *op)
{
	unsigned int i;

	for (i = 0; i < nm->nops; i++)
		if (&nm->op[i] != op && !nm->op[i].void_ &&
		    !(op->knows & bit(nm, &nm->op[i])))
			return true;
	return false;
}

/* Does the master still have the file? It removes a file when it grants the
 * eviction of the last copy that it knows. (True for a master that is not ready
 * yet: it has granted nothing.) */
static bool master_has(const struct sn_name *nm)
{
	struct master *m = the->master ? the->master->master : NULL;

	return !m || !m->ready ||
	       master_map_file(&m->map, nm->path, strlen(nm->path));
}

/* Is this removal an eviction? alone: without the master's permission. */
static bool evicted(const char *dir, bool *ret_alone)
{
	struct sn_proc *p = proc_of(dir);
	uint64_t alone, granted;
	bool any;

	if (!p || !p->node) /* by the scan of a start */
		return false;
	alone = pool_counter_value(&p->node->c.evicted_alone);
	granted = pool_counter_value(&p->node->c.evicted_last);
	*ret_alone = alone > p->alone;
	any = *ret_alone || granted > p->granted;
	p->alone = alone;
	p->granted = granted;
	return any;
}

/* The master may grant the eviction of one copy of a file in "k" when no store
 * has space. A store reports the last counted copy that it evicted alone.
 * Cached copies that are left do not count then: the next master may adopt one,
 * or the next put may evict it. */
static void on_remove(const char *dir, const struct sim_file *f)
{
	struct sn_name *nm = name_of(f);
	uint64_t w = nm ? writer_of(nm, sim_bytes_sum(f->bytes, f->size)) : 0;
	bool alone = false, room = evicted(dir, &alone);
	struct sn_op *op = w ? &nm->op[w - 1] : NULL;

	if (!op)
		return;
	sn_say(the, "%s: %s %llx is removed%s", dir, nm->path,
	       (unsigned long long)f->bytes,
	       alone ? ", evicted alone" : room ? ", evicted" : "");
	if (!room)
		return;
	if (copies(nm, f->bytes, dir, !alone) == 0 ||
	    (!alone && !master_has(nm)))
		op->evicted = true;
	if (!op->acked || changed_since(nm, op))
		return;
	if (nm->dir == 2 && alone && the->with & SN_WITH_EVICTION)
		sn_wrong(the, "%s evicts %s %llx alone", dir, nm->path,
			 (unsigned long long)f->bytes);
	if (nm->dir == 3 && op->evicted)
		sn_wrong(the, "%s evicts the last copy of %s %llx", dir,
			 nm->path, (unsigned long long)f->bytes);
}

void sn_rot(struct sn *s, unsigned int node)
{
	struct sim_file *f;
	struct sn_name *nm;
	char dir[16];

	snprintf(dir, sizeof(dir), "node%u", node);
	for (f = sim_disk_next(dir, NULL); f; f = sim_disk_next(dir, f)) {
		nm = f->blob_len && sim_random(3) == 0 ? name_of(f) : NULL;
		if (!nm)
			continue;
		nm->rotten = true;
		f->bytes = ~f->bytes;
		sn_say(s, "%s: a bit flips in %s", dir, nm->path);
	}
}

void sn_model_open(struct sn *s)
{
	unsigned int k;

	the = s;
	for (k = 0; k < SN_NAMES; k++) {
		snprintf(s->name[k].path, sizeof(s->name[k].path), "%s",
			 names[k].path);
		s->name[k].dir = names[k].dir;
	}
	sim_disk_on_remove(on_remove);
}
