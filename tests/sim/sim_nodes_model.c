/* What has to be true of names. See tests/sim_nodes.h. */
#include "tests/sim/sim_nodes.h"

#include <stdio.h>
#include <string.h>

#include "master/impl.h"

/* "k": two copies; "n": not to be evicted; "e": what fills the stores. */
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

static struct sn *the; /* of the disks' callback */

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

/* Which write made it, 0: none of ours, else its index + 1. */
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

/* What a mount shows. false: it is being written. */
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

/* Those who have removed what is known, of whom others may have heard. */
static uint64_t removed_by(const struct sn_name *nm, uint64_t known)
{
	uint64_t by = 0;
	unsigned int i;

	for (i = 0; i < nm->nops; i++)
		if (nm->op[i].kind == SN_REMOVE && !nm->op[i].void_ &&
		    nm->op[i].told && (nm->op[i].knows & known) == known)
			by |= bit(nm, &nm->op[i]);
	return by;
}

/* Which write made it what it is in the map; 0: none of ours. */
static uint64_t writer_in(const struct master_file *f, const struct sn_name *nm)
{
	XXH128_canonical_t c;

	memcpy(c.digest, f->sum, sizeof(c.digest));
	return writer_of(nm, XXH128_hashFromCanonical(&c));
}

/* While there is no master, it stays what it was. */
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
	else if (nm->shown[p->index]) /* it goes now, and not before */
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

/* One fsync tells of what was lost, be it one that began before that was put. It
 * tells nothing of a file that is being written anew. */
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

/* An acknowledged operation that knew op, or NULL. */
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

/* Has its own mount written it anew before the pool had it? Then an fsync may
 * have acknowledged only that. */
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
 * Has the name gone to a directory? One that is made when the pool has no file of
 * that name stays, as a file would that is put then: of one that its holder
 * brings back later, the bytes are dropped. It is made when the master executes
 * the MKDIR, which may be long after the user's mkdir: a file may have been put,
 * acknowledged and lost from view with its holder in between, by mounts that did
 * not know of the directory. But what is put later, or is not in the pool when
 * the directory is made, finds it there: its fsync must fail.
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
			continue; /* it made one while it knew of no file */
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
		sn_wrong(s, "%s shows %llx of node %u: node %u's %s %llx was acknowledged, which knew that",
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

/* What is gone with its last copy nobody has asked for, and all may be told. If
 * it is unlinked then, the tombstone has just the generation that was asked for, or
 * that of the file; of what is there it has a new one. And gen may have been given up, or gone when
 * a newer one was put and unlinked. */
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

/* Had the file left with its last copy before anybody asked to remove it? Its
 * tombstone then has the file's generation, which no feed need have had. */
static bool had_left(const struct sn *s, const char *path, size_t len,
		     uint64_t tomb)
{
	const struct master_grave *g =
		master_map_grave_below(&s->master->master->map, path, len);

	return g && g->last_gen == tomb;
}

static void told_gone(struct sn *s, const char *path, size_t len, uint64_t gen,
		      const char *how)
{
	const struct sn_name *nm = name_at(path, len);
	uint64_t tomb;

	if (!nm || !has_removal(nm))
		return;
	tomb = sim_etcd_owed_tomb(s->master->state, path, len, gen);
	if (was_there(nm, gen, tomb) && !had_left(s, path, len, tomb))
		sn_wrong(s, "%s says that %.*s is removed, and etcd does not have that",
			 how, (int)len, path);
}

static void told(struct sn_name *nm, unsigned int node)
{
	unsigned int i;

	for (i = 0; i < nm->nops; i++)
		nm->op[i].told |= nm->op[i].kind == SN_REMOVE &&
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
		told(nm, node);
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
			told_gone(s, (const char *)d->items[i]->path.data,
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
			told_gone(s, (const char *)f->entries[i]->path.data,
				  f->entries[i]->path.len, f->entries[i]->gen,
				  "the feed");
}

/* A copy that counts from now on: are its bytes what its name says? */
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
			sn_wrong(s, "node %u says it holds %s, which is damaged",
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

/* It has left the master: whatever it dies of now, it has been told. */
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

/* One that a node may evict whenever it likes, and does not list then. What a
 * dead node has will count at its start. */
static bool is_cache(const char *dir, const struct sn_name *nm,
		     const struct sim_file *f)
{
	struct sn_proc *p = proc_of(dir);
	struct pool_entry *pe = p ? pool_tree_lookup(&p->node->tree, nm->path,
						     strlen(nm->path)) : NULL;
	struct node_entry *e = pe ? node_file(pe) : NULL;

	return e && e->obj && e->obj->id == f->id && !e->obj->counted;
}

/* In the stores, but that one. */
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

/* Has anybody changed the name, or tried to, but for what op knew? */
static bool changed_since(const struct sn_name *nm, const struct sn_op *op)
{
	unsigned int i;

	for (i = 0; i < nm->nops; i++)
		if (&nm->op[i] != op && !nm->op[i].void_ &&
		    !(op->knows & bit(nm, &nm->op[i])))
			return true;
	return false;
}

/* What it has granted as the last copy that it knows of is gone for it. (One that
 * has just begun knows of nothing, and has granted nothing.) */
static bool master_has(const struct sn_name *nm)
{
	struct master *m = the->master ? the->master->master : NULL;

	return !m || !m->ready ||
	       master_map_file(&m->map, nm->path, strlen(nm->path));
}

/* Is it because room was wanted? alone: without the master's word. */
static bool evicted(const char *dir, bool *ret_alone)
{
	struct sn_proc *p = proc_of(dir);
	uint64_t alone, granted;
	bool any;

	if (!p || !p->node) /* what it finds at its start */
		return false;
	alone = pool_counter_value(&p->node->c.evicted_alone);
	granted = pool_counter_value(&p->node->c.evicted_last);
	*ret_alone = alone > p->alone;
	any = *ret_alone || granted > p->granted;
	p->alone = alone;
	p->granted = granted;
	return any;
}

/* Of files in "k" the master may let one copy go, where no store has room. Who
 * evicts the last counted copy alone lists that; a cached one that is left may
 * be found by a master, or go with the next put. */
static void on_remove(const char *dir, const struct sim_file *f)
{
	struct sn_name *nm = name_of(f);
	uint64_t w = nm ? writer_of(nm, sim_bytes_sum(f->bytes, f->size)) : 0;
	bool alone = false, room = evicted(dir, &alone);
	struct sn_op *op = w ? &nm->op[w - 1] : NULL;

	if (!op)
		return;
	sn_say(the, "%s: %s %llx goes%s", dir, nm->path,
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
		sn_wrong(the, "%s gives up %s %llx alone", dir, nm->path,
			 (unsigned long long)f->bytes);
	if (nm->dir == 3 && op->evicted)
		sn_wrong(the, "%s gives up the last copy of %s %llx", dir,
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
		sn_say(s, "%s: a bit turns in %s", dir, nm->path);
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
