/* Users' operations at a mount. See tests/sim/sim_nodes.h. */
#include "tests/sim/sim_nodes.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_NS (2 * SIM_MS)
#define WAIT_NS (2 * SIM_S) /* an open waits for a publication */

/* A user's operation in flight. */
struct task {
	struct pool_list link; /* proc.tasks */
	struct sn_proc *p;
	struct sim_event later;
	struct sim_call call;
	void (*step)(struct task *t);
	unsigned int name, other, dir; /* other: of a rename */
	uint64_t knows, bytes, until_ns, number;
	struct node_object *obj; /* ref */
	struct node_barrier barrier;
	struct node_want want;
	bool waits; /* barrier or want */
	bool judged; /* a read that must succeed */
	uint64_t count; /* fsync: count_of() the directory when it began */
	/* read: the generation and claims_refused when it began */
	uint64_t gen, refused;
};

static void on_later(struct sim_event *e)
{
	struct task *t = pool_container_of(e, struct task, later);

	sim_call(&t->p->host, &t->call);
}

static void on_call(struct sim_call *c)
{
	struct task *t = pool_container_of(c, struct task, call);

	if (!t->p->dead) /* sn_users_leave() ends it */
		t->step(t);
}

static struct task *task_new(struct sn_proc *p, void (*step)(struct task *t))
{
	struct task *t = calloc(1, sizeof(*t));

	assert(t);
	t->p = p;
	t->step = step;
	t->later.run = on_later;
	t->call.run = on_call;
	t->until_ns = sim_now_ns() + WAIT_NS;
	pool_list_init(&t->call.link);
	pool_list_add_tail(&p->tasks, &t->link);
	p->sn->tasks++;
	return t;
}

/* Runs the next step in a turn of the node. */
static void task_go(struct task *t, uint64_t after_ns)
{
	sim_at(&t->later, sim_now_ns() + after_ns);
}

static void task_begin(struct task *t)
{
	t->name %= SN_NAMES;
	t->p->busy |= 1u << t->name;
	if (t->other < SN_NAMES)
		t->p->busy |= 1u << t->other;
	sim_call(&t->p->host, &t->call);
}

static void task_end(struct task *t)
{
	struct sn_proc *p = t->p;

	sim_cancel(&t->later);
	pool_list_del(&t->call.link);
	pool_list_del(&t->link);
	if (t->name < SN_NAMES)
		p->busy &= ~(1u << t->name);
	if (t->other < SN_NAMES)
		p->busy &= ~(1u << t->other);
	if (t->obj)
		node_object_unref(p->node, t->obj);
	p->sn->tasks--;
	free(t);
}

static void write_close(struct task *t);

static struct node_dirent *dir_of(struct sn_proc *p, unsigned int dir)
{
	const char *path = sn_dirs[dir];
	struct pool_entry *e = pool_tree_lookup(pool_node_tree(p->node), path,
						strlen(path));

	return e && e->is_dir && pool_node_visible(e) ? node_dir(e) : NULL;
}

/* The file is reopened with O_TRUNC. If the node dies now, its unacknowledged
 * content may be lost, as on a local file system. (An fsync in flight does not
 * acknowledge it, because it also returns 0 if the file is reopened.) */
static void taken_back(struct task *t)
{
	struct sn_name *nm = &t->p->sn->name[t->name];

	for (unsigned int i = 0; i < nm->nops; i++)
		if (nm->op[i].node == t->p->index && !nm->op[i].acked)
			nm->op[i].taken = true;
}

static void given_again(struct task *t)
{
	struct sn_name *nm = &t->p->sn->name[t->name];

	for (unsigned int i = 0; i < nm->nops; i++)
		if (nm->op[i].node == t->p->index)
			nm->op[i].taken = false;
}

static void dies_while_written(struct task *t)
{
	struct sn_name *nm = &t->p->sn->name[t->name];

	taken_back(t);
	for (unsigned int i = 0; i < nm->nops; i++)
		if (nm->op[i].node == t->p->index && nm->op[i].taken) {
			nm->op[i].lost = nm->op[i].cut = true;
			nm->op[i].acked = false;
		}
}

/* Closed, but its checksum is not stored yet: the next start removes the file,
 * like a half-written one. */
static void dies_while_sealed(struct sn_proc *p, struct sn_name *nm)
{
	struct pool_entry *pe = pool_tree_lookup(&p->node->tree, nm->path,
						 strlen(nm->path));
	struct node_entry *e = pe ? node_file(pe) : NULL;
	struct sn_op *op;

	if (!e || !e->own || e->own->state != NODE_SEALING)
		return;
	for (op = nm->op; op < nm->op + nm->nops; op++)
		op->lost |= op->node == p->index && !op->acked;
}

/* A node dies: a name that it removed, unacknowledged, may return or not, but
 * never with the unacknowledged writes that it removed. Later fsyncs
 * acknowledge neither (`lost`), only what the next process finds. */
static void removals_are_open(struct sn_name *nm, unsigned int node)
{
	struct sn_op *op, *put;

	for (op = nm->op; op < nm->op + nm->nops; op++) {
		if (op->node != node || op->kind != SN_REMOVE || op->acked)
			continue;
		op->lost = true;
		for (put = nm->op; put < op; put++)
			if (put->node == node && !put->acked &&
			    op->knows >> (put - nm->op) & 1)
				put->lost = true;
	}
}

/* An error that the next fsync of a directory would have returned is lost with
 * the node: fsyncs of its next process report only what that finds. */
static void losses_are_not_reported(struct sn_proc *p)
{
	for (unsigned int i = 0; i < SN_DIRS; i++) {
		struct node_dirent *d = dir_of(p, i);

		if (d && d->lost)
			sn_acked(p->sn, p->index, i, p->sn->noperations,
				 d->lost);
	}
}

void sn_users_lose(struct sn_proc *p)
{
	struct pool_list *it, *tmp;

	losses_are_not_reported(p);
	for (unsigned int k = 0; k < SN_NAMES; k++) {
		removals_are_open(&p->sn->name[k], p->index);
		dies_while_sealed(p, &p->sn->name[k]);
	}
	pool_list_each(it, tmp, &p->tasks) {
		struct task *t = pool_list_entry(it, struct task, link);

		if (t->step == write_close)
			dies_while_written(t);
	}
}

void sn_users_leave(struct sn_proc *p)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &p->tasks) {
		struct task *t = pool_list_entry(it, struct task, link);

		if (t->waits && t->barrier.cb)
			pool_node_barrier_cancel(p->node, &t->barrier);
		if (t->waits && t->want.cb)
			pool_node_want_cancel(p->node, &t->want);
		/* The last handle to close frees a dropped file. */
		if (t->step == write_close && t->obj->state == NODE_DROPPED)
			pool_node_writer_closed(p->node, t->obj);
		task_end(t);
	}
}

/* ---- names ---- */

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The name's entry, or NULL. */
static struct pool_entry *find(struct sn_proc *p, unsigned int name)
{
	const struct sn_name *nm = &p->sn->name[name];
	struct node_dirent *d = dir_of(p, nm->dir);
	const char *last = last_part(nm->path);

	return d ? pool_node_lookup(p->node, d, last, strlen(last)) : NULL;
}

static uint64_t known(struct sn_proc *p, unsigned int name)
{
	sn_observe(p->sn);
	return p->sn->name[name].known[p->index];
}

static void say_op(struct task *t, const char *what, int status)
{
	sn_say(t->p->sn, "node %u %s %s %llx: %s", t->p->index, what,
	       t->p->sn->name[t->name].path, (unsigned long long)t->bytes,
	       status ? strerror(-status) : "done");
}

/* ---- writing ---- */

static void write_close(struct task *t)
{
	struct sn_proc *p = t->p;
	struct node_object *o = t->obj;
	struct sim_file *f;
	struct sn_op *op;
	char dir[16];

	snprintf(dir, sizeof(dir), "node%u", p->index);
	f = sim_disk_file(dir, o->id);
	op = o->entry && f ? sn_op_new(p->sn, t->name, p->index, SN_WRITE,
				       t->knows) : NULL;
	if (op) {
		f->bytes = op->bytes = t->bytes;
		f->size = op->size =
			sn_size_of(t->bytes, p->sn->name[t->name].dir);
		op->sum = sim_bytes_sum(op->bytes, op->size);
		say_op(t, "writes", 0);
		given_again(t);
		pool_node_writer_flushed(p->node, o);
	}
	pool_node_writer_closed(p->node, o);
	task_end(t);
}

static void write_fails(struct task *t, int err)
{
	say_op(t, "cannot write", err);
	task_end(t);
}

/* As open(2) with O_TRUNC of the mount's own file. */
static void write_own(struct task *t, struct node_entry *e)
{
	struct pool_node *n = t->p->node;
	int rc = pool_node_unseal(n, e->own);

	if (rc == -EAGAIN && sim_now_ns() < t->until_ns) {
		task_go(t, AGAIN_NS);
		return;
	}
	if (rc == -EROFS || (rc == -EAGAIN && e->own->state == NODE_PENDING))
		rc = pool_node_own_replace(n, e);
	if (rc) {
		write_fails(t, rc);
		return;
	}
	t->obj = node_object_ref(e->own);
	pool_node_writer_opened(n, t->obj);
	taken_back(t);
	t->step = write_close;
	task_go(t,
		sim_random(4) ? sim_random(SIM_MS) : sim_random(200 * SIM_MS));
}

static void write_step(struct task *t)
{
	struct pool_node *n = t->p->node;
	const struct sn_name *nm = &t->p->sn->name[t->name];
	struct node_dirent *d = dir_of(t->p, nm->dir);
	struct pool_entry *pe = find(t->p, t->name);
	const char *last = last_part(nm->path);
	struct node_attr attr = { .mode = 0644 };
	struct node_object *o;
	int rc;

	if (!d || (pe && pe->is_dir)) {
		write_fails(t, d ? -EISDIR : -ENOENT);
		return;
	}
	t->knows = known(t->p, t->name);
	if (pe && node_file(pe)->own) {
		write_own(t, node_file(pe));
		return;
	}
	rc = pe ? pool_node_rewrite_start(n, node_file(pe), 0, NULL, NULL) :
		  pool_node_create(n, d, last, strlen(last), &attr, 0, &o);
	pe = find(t->p, t->name);
	if (rc < 0 || !pe)
		write_fails(t, rc);
	else
		write_own(t, node_file(pe));
}

/* ---- removing, moving ---- */

static void unlink_step(struct task *t)
{
	struct pool_entry *pe = find(t->p, t->name);
	struct sn_op *op;
	int err;

	if (!pe || pe->is_dir) {
		task_end(t);
		return;
	}
	op = sn_op_new(t->p->sn, t->name, t->p->index, SN_REMOVE,
		       known(t->p, t->name));
	err = op ? pool_node_unlink(t->p->node, node_file(pe)) : 0;
	if (op) {
		say_op(t, "unlinks", err);
		op->void_ = err != 0;
		if (!err) {
			sn_removed(t->p->sn, t->name, op);
			pool_node_tidy(t->p->node, pe);
		}
	}
	task_end(t);
}

static bool has_been(const struct sn_name *nm, uint64_t bytes)
{
	unsigned int i;

	for (i = 0; i < nm->nops; i++)
		if (nm->op[i].kind == SN_WRITE && nm->op[i].bytes == bytes)
			return true;
	return false;
}

/* Only to a name that never had these bytes, which identify a write there.
 * may_move() has checked that, but the node may have been stopped since. */
static void rename_step(struct task *t)
{
	struct sn *s = t->p->sn;
	const struct sn_name *to = &s->name[t->other];
	struct pool_entry *pe = find(t->p, t->name), *ret;
	struct pool_entry *there = find(t->p, t->other);
	struct node_dirent *d = dir_of(t->p, to->dir);
	struct sn_op *made, *gone;
	struct sn_op *src;
	uint64_t knows, knows_to, shown;
	int err;

	knows = known(t->p, t->name);
	knows_to = known(t->p, t->other);
	shown = s->name[t->name].shown[t->p->index];
	if (!pe || pe->is_dir || (there && there->is_dir) || !d || !shown ||
	    has_been(to, s->name[t->name].op[shown - 1].bytes)) {
		task_end(t);
		return;
	}
	gone = sn_op_new(s, t->name, t->p->index, SN_REMOVE, knows);
	made = gone ? sn_op_new(s, t->other, t->p->index, SN_WRITE, knows_to) :
		      NULL;
	if (gone && !made)
		gone->void_ = true;
	if (made) {
		src = &s->name[t->name].op[shown - 1];
		made->bytes = t->bytes = src->bytes;
		made->size = src->size;
		made->sum = src->sum;
		err = pool_node_rename(t->p->node, pe, d, last_part(to->path),
				       strlen(last_part(to->path)), false,
				       &ret);
		sn_say(s, "node %u renames %s to %s, %llx: %s", t->p->index,
		       s->name[t->name].path, to->path,
		       (unsigned long long)made->bytes,
		       err ? strerror(-err) : "done");
		gone->void_ = made->void_ = err != 0;
		if (!err) {
			sn_removed(s, t->name, gone);
			s->name[t->other].rotten |= s->name[t->name].rotten;
			pool_node_tidy(t->p->node, pe);
		}
	}
	task_end(t);
}

/* mkdir or rmdir of a name that other users use for a file. */
static void mkdir_step(struct task *t)
{
	const struct sn_name *nm = &t->p->sn->name[t->name];
	struct node_dirent *d = dir_of(t->p, nm->dir), *made;
	struct pool_entry *pe = find(t->p, t->name);
	struct node_attr attr = { .mode = 0755 };
	const char *last = last_part(nm->path);
	int err = -ENOENT;

	sn_observe(t->p->sn); /* while the directory exists */
	if (pe && pe->is_dir) {
		err = pool_node_rmdir(t->p->node, node_dir(pe));
	} else if (d && !pe) {
		err = pool_node_mkdir(t->p->node, d, last, strlen(last), &attr,
				      &made);
	}
	say_op(t, pe ? "rmdir" : "mkdir", err);
	task_end(t);
}

/* Removes "a/d", or makes it again. */
static void dir_step(struct task *t)
{
	struct node_dirent *a = dir_of(t->p, 1), *d = dir_of(t->p, 5);
	struct node_attr attr = { .mode = 0755 };
	int err = -ENOENT;

	if (d)
		err = pool_node_rmdir(t->p->node, d);
	else if (a)
		err = pool_node_mkdir(t->p->node, a, "d", 1, &attr, &d);
	sn_say(t->p->sn, "node %u makes or removes a/d: %s", t->p->index,
	       err ? strerror(-err) : "done");
	task_end(t);
}

/* Sets `replicas` of files in "a". */
static void rule_step(struct task *t)
{
	struct node_dirent *a = dir_of(t->p, 1);
	const char *copies = sim_random(2) ? "2" : "1";

	if (a)
		(void)pool_node_setxattr(t->p->node, &a->d.e,
					 "user.kvpool.replicas", copies, 1, 0);
	sn_say(t->p->sn, "node %u: %s copies of files in a", t->p->index,
	       copies);
	task_end(t);
}

/* One change of the attributes of a file or its directory. */
static int change_any(struct task *t, struct pool_entry *pe)
{
	static const char value[900]; /* three xattrs of this size fit */
	struct node_attr attr = { .mode = (uint32_t)sim_random(01000),
				  .mtime_ns = sim_now_ns() };
	char name[] = "user.a";

	name[5] = (char)('a' + sim_random(3));
	switch (sim_random(4)) {
	case 0:
		return pool_node_setattr(t->p->node, pe, POOL_SET_MODE, &attr,
					 NULL);
	case 1:
		return pool_node_setattr(t->p->node, pe, POOL_SET_MTIME, &attr,
					 NULL);
	case 2:
		return pool_node_setxattr(t->p->node, pe, name, NULL, 0, 0);
	default:
		return pool_node_setxattr(t->p->node, pe, name, value,
					  sim_random(sizeof(value)), 0);
	}
}

/* Writes the node's next number to the directory: see sn_check_counts. */
static void count_up(struct task *t, struct pool_entry *dir)
{
	uint64_t count = ++t->p->sn->count;
	char name[16];

	snprintf(name, sizeof(name), "user.n%u", t->p->index);
	(void)pool_node_setxattr(t->p->node, dir, name, &count, sizeof(count),
				 0);
}

static uint64_t count_of(struct sn_proc *p, struct pool_entry *dir)
{
	uint64_t count = 0;
	char name[16];
	const void *v;
	size_t len;

	snprintf(name, sizeof(name), "user.n%u", p->index);
	v = pool_xattrs_get(pool_node_xattrs(dir), name, &len);
	if (v)
		memcpy(&count, v, sizeof(count));
	return count;
}

/* Several changes at once, as programs make that restore a file. */
static void attr_step(struct task *t)
{
	const struct sn_name *nm = &t->p->sn->name[t->name];
	struct node_dirent *d = dir_of(t->p, nm->dir);
	unsigned int i, n = 1 + (unsigned int)sim_random(8);
	struct pool_entry *pe;

	for (i = 0; d && i < n; i++) {
		pe = sim_random(2) ? find(t->p, t->name) : NULL;
		(void)change_any(t, pe ? pe : &d->d.e);
		count_up(t, &d->d.e);
	}
	sn_say(t->p->sn,
	       "node %u changes attributes of %s and its directory, up to %llu",
	       t->p->index, nm->path, (unsigned long long)t->p->sn->count);
	task_end(t);
}

/* ---- fsync, reading ---- */

static void on_synced(struct node_barrier *b, int status)
{
	struct task *t = pool_container_of(b, struct task, barrier);
	struct node_dirent *d = status ? NULL : dir_of(t->p, t->dir);
	struct sn *s = t->p->sn;

	if (d)
		status = pool_node_lost(d);
	sn_say(s, "node %u fsync of \"%s\" after %llu: %s", t->p->index,
	       sn_dirs[t->dir], (unsigned long long)t->number,
	       status ? strerror(-status) : "done");
	if (!t->p->dead && (d || status))
		sn_acked(s, t->p->index, t->dir, t->number, status);
	if (d && !status && !t->p->dead &&
	    s->acked[t->p->index][t->dir] < t->count)
		s->acked[t->p->index][t->dir] = t->count;
	task_end(t);
}

static void sync_step(struct task *t)
{
	struct node_dirent *d = dir_of(t->p, t->dir);

	t->number = t->p->sn->noperations;
	t->count = d ? count_of(t->p, &d->d.e) : 0;
	t->waits = true;
	if (pool_node_barrier_start(t->p->node, &t->barrier, on_synced) == 1)
		on_synced(&t->barrier, 0);
}

/* May the open have failed? Engines treat that as a miss. Yes, if the version
 * is gone, or if a full store did not get space in time. */
static bool may_miss(struct task *t)
{
	struct pool_entry *pe = find(t->p, t->name);

	return !pe || !node_file(pe) || node_file(pe)->gen != t->gen ||
	       pool_counter_value(&t->p->node->c.claims_refused) > t->refused;
}

static void read_end(struct task *t, struct node_object *o, int status)
{
	struct sn *s = t->p->sn;
	const struct sn_name *nm = &s->name[t->name];
	char dir[16];
	struct sim_file *f;

	t->waits = false;
	t->obj = o;
	snprintf(dir, sizeof(dir), "node%u", t->p->index);
	f = o ? sim_disk_file(dir, o->id) : NULL;
	if (!t->p->dead && f &&
	    !XXH128_isEqual(o->sum, sim_bytes_sum(f->bytes, f->size)))
		sn_wrong(s, "node %u reads wrong bytes of %s",
			 t->p->index, nm->path);
	if (!t->p->dead && t->judged && status && !may_miss(t))
		sn_wrong(s, "node %u cannot read %s: %s", t->p->index,
			 nm->path, strerror(-status));
	task_end(t);
}

static void on_wanted(struct node_want *w, struct node_object *obj, int status)
{
	read_end(pool_container_of(w, struct task, want), obj, status);
}

static void read_step(struct task *t)
{
	struct pool_entry *pe = find(t->p, t->name);
	struct node_entry *e = pe ? node_file(pe) : NULL;
	struct node_object *o = NULL;
	int rc;

	if (!e || e->own || !pool_node_published(e)) {
		task_end(t);
		return;
	}
	t->waits = true;
	t->gen = e->gen;
	t->refused = pool_counter_value(&t->p->node->c.claims_refused);
	rc = pool_node_want_start(t->p->node, e, &t->want, &o, on_wanted);
	if (rc)
		read_end(t, rc == 1 ? o : NULL, rc == 1 ? 0 : rc);
}

void sn_read_all(struct sn *s, struct sn_proc *p)
{
	unsigned int i;

	for (i = 0; i < SN_NAMES; i++) {
		struct task *t = task_new(p, read_step);

		t->name = i;
		t->other = SN_NAMES;
		t->judged = s->name[i].dir != 4 && !s->name[i].rotten;
		task_begin(t);
		while (s->tasks)
			sim_run_until(sim_now_ns() + 5 * SIM_MS);
	}
}

static void sync_dir(struct sn_proc *p, unsigned int dir)
{
	struct task *t = task_new(p, sync_step);

	t->name = t->other = SN_NAMES;
	t->dir = dir;
	sim_call(&p->host, &t->call);
}

/* ---- random choices ---- */

static void (*choose(struct sn *s))(struct task *t)
{
	unsigned int dice = (unsigned int)sim_random(100);

	if (dice < 15 && s->with & SN_WITH_UNLINKS)
		return unlink_step;
	if (dice < 25 && s->with & SN_WITH_RENAMES)
		return rename_step;
	if (dice < 40)
		return read_step;
	return write_step;
}

/* Often the name of the user's last operation. */
static unsigned int choose_name(struct sn *s, unsigned int node)
{
	unsigned int n;

	do
		n = sim_random(2) ? s->last[node] :
				    (unsigned int)sim_random(SN_NAMES);
	while (s->name[n].dir == 4 && !(s->with & SN_WITH_EVICTION) &&
	       (s->last[node] = (unsigned int)sim_random(SN_NAMES), true));
	s->last[node] = n;
	return n;
}

static bool may_move(struct sn *s, unsigned int node, unsigned int from,
		     unsigned int to)
{
	uint64_t shown = s->name[from].shown[node];

	return shown && to != from && s->name[from].dir != 4 &&
	       s->name[to].dir != 4 &&
	       !has_been(&s->name[to], s->name[from].op[shown - 1].bytes);
}

void sn_user_acts(struct sn *s, struct sn_proc *p)
{
	unsigned int name = choose_name(s, p->index), other = SN_NAMES;
	void (*step)(struct task *t) = choose(s);
	struct task *t;

	if (sim_random(4) == 0) {
		sync_dir(p, s->name[name].dir);
		return;
	}
	if (s->with & SN_WITH_DIRS && name == 0 && sim_random(2))
		step = mkdir_step;
	if (s->with & SN_WITH_DIRS && s->name[name].dir == 5 && sim_random(3))
		step = sim_random(2) ? dir_step : unlink_step;
	if (s->with & SN_WITH_ROT && s->name[name].dir == 1 &&
	    sim_random(3) == 0)
		step = rule_step;
	if (s->with & SN_WITH_ATTRS && sim_random(4) == 0)
		step = attr_step;
	if (step == rename_step) {
		other = (unsigned int)sim_random(SN_NAMES);
		sn_observe(s);
		if (!may_move(s, p->index, name, other))
			return;
	}
	if (p->busy & (1u << name) ||
	    (other < SN_NAMES && p->busy & (1u << other)))
		return;
	t = task_new(p, step);
	t->name = name;
	t->other = other;
	t->bytes = ++s->nbytes;
	task_begin(t);
}

/* ---- the directories ---- */

static void prepare_step(struct task *t)
{
	struct pool_node *n = t->p->node;
	struct node_attr attr = { .mode = 0755 };
	struct node_dirent *d, *a = NULL;
	unsigned int i;
	int err;

	for (i = 1; i < 5; i++) {
		err = pool_node_mkdir(n, pool_node_root(n), sn_dirs[i],
				      strlen(sn_dirs[i]), &attr, &d);
		assert(!err);
		if (i == 1)
			a = d;
		if (i == 2)
			err = pool_node_setxattr(n, &d->d.e,
						 "user.kvpool.replicas", "2",
						 1, 0);
		if (i == 3)
			err = pool_node_setxattr(n, &d->d.e,
						 "user.kvpool.class",
						 "noevict", 7, 0);
		assert(!err);
	}
	err = pool_node_mkdir(n, a, "d", 1, &attr, &d);
	assert(!err);
	task_end(t);
}

void sn_prepare(struct sn *s, struct sn_proc *p)
{
	struct task *t = task_new(p, prepare_step);

	(void)s;
	t->name = t->other = SN_NAMES;
	sim_call(&p->host, &t->call);
}
