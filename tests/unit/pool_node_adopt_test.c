/* Files that a node finds in its store at start (pool/node/adopt.c). */
#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "pool/store/store_priv.h"
#include "tests/unit/pool_node_fixture.h"

static void a_restart_finds_what_was_sealed_and_drops_the_rest(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	start_node(f, 0);
	put(f, 0, "whole", 5000, 1);
	run_until(f, is_pending(f, 0, "whole"));
	o = create_in(f, 0, pool_node_root(node(f, 0)), "partial", 0);
	write_bytes(f, 0, o, 5000, 2);
	put(f, 0, "other.tmp", 5000, 3);
	stop_node(f, 0);

	start_node(f, 0);
	assert_true(is_pending(f, 0, "whole"));
	assert_bytes(f, 0, find(f, 0, "whole")->own, 5000, 1);
	assert_true(find(f, 0, "whole")->own->given);
	assert_int_equal(0640, pool_node_attr(&find(f, 0, "whole")->e)->mode);
	assert_null(find(f, 0, "partial"));
	assert_null(find(f, 0, "other.tmp"));

	start_master(f);
	run_until(f, is_published(f, 0, "whole"));
	assert_readable(f, 0, "whole", 5000, 1);
}

/* Its figures are those of the size that it has now; the master would take
 * others for false ones. */
static void a_store_started_smaller_reports_possible_figures(void **state)
{
	struct fixture *f = *state;
	char name[8];

	start_master(f);
	start_node(f, 0);
	for (uint32_t i = 0; i < 6; i++) {
		snprintf(name, sizeof(name), "k%u", i);
		publish(f, 0, name, 4 * MIB, i);
	}
	stop_node(f, 0);
	f->opts.store_size = 8 * MIB;
	f->opts.store_plain = true; /* the directory as it is */
	start_node(f, 0);
	run_until(f, is_up(f, 0));
	assert_true(f->master->members.by_index[0]->objects > 0);
	assert_false(f->master->members.by_index[0]->impossible);
}

static void a_name_changed_while_it_is_sealed_is_found_by_the_next_start(
	void **state)
{
	struct fixture *f = *state;

	start_node(f, 0);
	workers_begin(f);
	put(f, 0, "a", MIB, 1);
	run_until(f, find(f, 0, "a")->own->state == NODE_SEALING);
	assert_int_equal(0, rename_to(f, 0, "a", "b", false));
	workers_end(f);
	run_until(f, is_pending(f, 0, "b"));
	stop_node(f, 0);
	start_node(f, 0);
	assert_null(find(f, 0, "a"));
	assert_true(is_pending(f, 0, "b"));
	assert_bytes(f, 0, find(f, 0, "b")->own, MIB, 1);
}

static void what_is_written_again_is_not_found_whole_after_a_crash(
	void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	char value[256];
	int fd;

	start_node(f, 0);
	put(f, 0, "k", 1000, 1);
	run_until(f, is_pending(f, 0, "k"));
	o = find(f, 0, "k")->own;
	fd = pool_store_fd(pool_node_store(node(f, 0)), o->id, O_RDONLY);
	assert_true(fd >= 0);
	/* The xattr with the metadata and checksum. */
	assert_true(fgetxattr(fd, "trusted.kvpool", value, sizeof(value)) > 0 ||
		    fgetxattr(fd, "user.kvpool", value, sizeof(value)) > 0);
	assert_int_equal(0, pool_node_unseal(node(f, 0), o));
	assert_int_equal(-1, fgetxattr(fd, "trusted.kvpool", value,
				       sizeof(value)));
	assert_int_equal(-1, fgetxattr(fd, "user.kvpool", value,
				       sizeof(value)));
	close(fd);
}

static void what_is_published_survives_a_restart(void **state)
{
	struct fixture *f = *state;
	struct pool_xattrs *x = NULL;
	struct node_entry *e;
	uint64_t gen;
	size_t len = 0;

	start_pool(f, 1);
	publish(f, 0, "k", 100000, 1);
	e = find(f, 0, "k");
	assert_int_equal(0, pool_xattrs_set(&x, "user.a", "b", 1, 0));
	assert_int_equal(0, pool_node_setattr(node(f, 0), &e->e,
					      POOL_SET_XATTRS,
					      pool_node_attr(&e->e), x));
	run_until(f, pool_list_empty(&node(f, 0)->ops_sent) &&
			     pool_list_empty(&node(f, 0)->ops_waiting));
	publish(f, 0, "k2", 3000, 2);
	gen = e->gen;
	stop_node(f, 0);
	stop_master(f);

	start_node(f, 0);
	e = find(f, 0, "k");
	assert_non_null(e);
	assert_int_equal(gen, e->gen);
	assert_int_equal(NODE_HELD, e->obj->state);
	assert_false(e->obj->verified);
	assert_int_equal(0640, e->attr.mode);
	assert_readable(f, 0, "k", 100000, 1);
	assert_true(e->obj->verified);
	assert_non_null(find(f, 0, "k2"));

	start_master(f);
	run_until(f, is_up(f, 0));
	run_for(f, 60);
	e = find(f, 0, "k");
	assert_non_null(e);
	assert_int_equal(gen, e->gen);
	assert_non_null(pool_xattrs_get(e->xattrs, "user.a", &len));
}

static void attributes_set_elsewhere_survive_a_restart(void **state)
{
	struct fixture *f = *state;
	struct node_attr attr = { .mode = 0604 };

	start_pool(f, 2);
	publish(f, 0, "k", 1000, 1);
	run_until(f, find(f, 1, "k"));
	assert_int_equal(0, pool_node_setattr(node(f, 1), &find(f, 1, "k")->e,
					      POOL_SET_MODE, &attr, NULL));
	run_until(f, find(f, 0, "k")->attr.mode == 0604);
	stop_node(f, 0);
	stop_node(f, 1);
	stop_master(f);
	start_node(f, 0);
	assert_int_equal(0604, find(f, 0, "k")->attr.mode);
}

static void damage_found_after_a_restart_is_never_served(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	int rc;

	start_pool(f, 1);
	publish(f, 0, "k", 100000, 1);
	damage(f, 0, find(f, 0, "k")->obj);
	stop_node(f, 0);
	start_node(f, 0);
	rc = want(f, 0, "k", &o);
	/* The master may have removed the name by then. */
	assert_true(rc == -ENOENT || rc == -ESTALE);
	assert_null(o);
	assert_null(find(f, 0, "k") ? find(f, 0, "k")->obj : NULL);
	assert_count(1, f, 0, bad_sums);
}

static void
a_cached_copy_that_was_renamed_is_found_after_a_restart(void **state)
{
	struct fixture *f = *state;

	start_pool(f, 2);
	publish(f, 0, "old", 300000, 1);
	run_until(f, find(f, 1, "old"));
	assert_readable(f, 1, "old", 300000, 1);
	assert_int_equal(0, rename_to(f, 1, "old", "new", false));
	run_until(f, is_published(f, 1, "new"));
	stop_node(f, 1);
	start_node(f, 1);
	assert_non_null(find(f, 1, "new"));
	assert_readable(f, 1, "new", 300000, 1);
}

static void a_replica_is_found_again_after_a_restart(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;

	start_pool(f, 2);
	publish(f, 0, "k", 300000, 1);
	publish(f, 0, "cached", 300000, 2);
	run_until(f, find(f, 1, "cached"));
	assert_readable(f, 1, "cached", 300000, 2);
	set_replicas(f, 0, "k", "2", 0600);
	set_replicas(f, 0, "cached", "2", 0600);
	run_until(f, find(f, 1, "k")->obj && find(f, 1, "k")->obj->counted &&
			     find(f, 1, "cached")->obj->counted);
	stop_node(f, 0);
	stop_node(f, 1);
	stop_master(f);
	start_node(f, 1);
	e = find(f, 1, "k");
	assert_non_null(e);
	assert_int_equal(NODE_HELD, e->obj->state);
	assert_readable(f, 1, "k", 300000, 1);
	assert_readable(f, 1, "cached", 300000, 2);
}

/* Node 1 is a store without a mount. In whatever order the nodes return, the
 * latest attributes win. */
static void a_store_without_a_feed_keeps_up_with_attributes(void **state)
{
	struct fixture *f = *state;
	int first;

	start_master(f);
	start_node(f, 0);
	f->opts.mount = false;
	start_node(f, 1);
	run_until(f, is_up(f, 0) && node_session_up(node(f, 1)));
	publish(f, 0, "k", 1000, 1);
	set_replicas(f, 0, "k", "2", 0600);
	run_until(f, known(f, 1, "k") && find(f, 1, "k")->obj);
	set_replicas(f, 0, "k", "2", 0604);
	run_until(f, find(f, 1, "k")->attr.mode == 0604);

	/* They are changed while it is disconnected; then the master loses its
	 * state. */
	for (first = 0; first < 2; first++) {
		uint32_t mode = 0606 + (uint32_t)first;
		uint64_t gen;

		run_until(f, find(f, 0, "k")->attr.gen ==
				     find(f, 1, "k")->attr.gen);
		gen = find(f, 0, "k")->attr.gen;
		stop_node(f, 1);
		set_replicas(f, 0, "k", "2", mode);
		run_until(f, find(f, 0, "k")->attr.gen > gen);
		stop_node(f, 0);
		stop_master(f);
		start_master(f);
		f->opts.mount = first == 0;
		start_node(f, first);
		run_until(f, node_session_up(node(f, first)));
		f->opts.mount = first != 0;
		start_node(f, !first);
		run_until(f, find(f, 0, "k") && find(f, 1, "k") &&
				     find(f, 1, "k")->attr.mode == mode &&
				     is_up(f, 0));
		assert_int_equal(mode, find(f, 0, "k")->attr.mode);
	}
	f->opts.mount = true;
}

/* The generation in the metadata of the object's file; 0: not published yet. */
static uint64_t kept_gen(struct fixture *f, int i, const struct node_object *o)
{
	struct pool_store *s = pool_node_store(node(f, i));
	struct store_blob_buf b;
	Kvpool__Meta *m;
	char path[PATH_MAX];
	uint64_t gen;
	ssize_t n;

	store_path(s, o->id, path);
	n = getxattr(path, s->xattr, &b, sizeof(b));
	assert_true(n > 0);
	assert_true(store_blob_valid(&b, (size_t)n));
	m = kvpool__meta__unpack(NULL, b.head.blob_len, b.blob);
	assert_non_null(m);
	gen = m->gen;
	kvpool__meta__free_unpacked(m, NULL);
	return gen;
}

/* The metadata of a client's object must have its generation. Otherwise the
 * next start would publish it again, over a newer version. */
static void a_clients_metadata_names_the_generation(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;

	start_master(f);
	f->opts.store_size = 0;
	f->opts.buffer_size = 16 * MIB;
	start_node(f, 0);
	run_until(f, is_up(f, 0));
	publish(f, 0, "k", 1000, 1); /* no store has it */
	e = find(f, 0, "k");
	assert_non_null(e->obj->w);
	assert_int_equal(e->gen, kept_gen(f, 0, e->obj));
	f->opts.store_size = STORE_SIZE;
	start_node(f, 1);
	run_until(f, find(f, 1, "k") && find(f, 1, "k")->obj && !e->obj->w);
	assert_int_equal(e->gen, kept_gen(f, 0, e->obj));
	publish(f, 0, "l", 1000, 1);
	e = find(f, 0, "l");
	run_until(f, find(f, 1, "l") && find(f, 1, "l")->obj && !e->obj->w);
	assert_int_equal(e->gen, kept_gen(f, 0, e->obj));
}

/* ---- files that the mount of a killed daemon had open ---- */

/* As the mount does for a handle. */
static struct node_object *hold(struct fixture *f, const char *name)
{
	struct node_object *o = node_object_ref(find(f, 0, name)->obj);

	node_object_use(o, 1);
	return o;
}

static void let_go(struct pool_node *n, struct node_object *o)
{
	node_object_unuse(o);
	node_object_unref(n, o);
}

static bool has_file(struct fixture *f, uint64_t id)
{
	uint64_t size, blocks, mtime_ns;

	return pool_store_stat(pool_node_store(node(f, 0)), id, &size, &blocks,
			       &mtime_ns) == 0;
}

static struct node_was_open was(const struct node_object *o)
{
	return (struct node_was_open){ o->id, o->size, o->sum, true };
}

static void what_was_open_stays_for_its_readers(void **state)
{
	struct fixture *f = *state;
	struct node_object *kept, *gone, *left, *o;
	struct node_was_open k, g, l;
	uint64_t ids[3];

	start_pool(f, 1);
	publish(f, 0, "kept", 3000, 1);
	publish(f, 0, "gone", 4000, 2);
	publish(f, 0, "left", 5000, 3);
	k = was(kept = hold(f, "kept"));
	g = was(gone = hold(f, "gone"));
	l = was(left = hold(f, "left"));
	assert_int_equal(0, pool_node_unlink(node(f, 0), find(f, 0, "gone")));
	assert_int_equal(0, pool_node_unlink(node(f, 0), find(f, 0, "left")));
	run_until(f, !known(f, 0, "gone") && !known(f, 0, "left"));
	stop_node(f, 0);
	let_go(NULL, kept);
	let_go(NULL, gone);
	let_go(NULL, left);

	ids[0] = k.id;
	ids[1] = g.id;
	ids[2] = l.id;
	f->opts.were_open = ids;
	f->opts.nwere_open = 3;
	start_node(f, 0);
	kept = pool_node_reopen(node(f, 0), &k);
	assert_ptr_equal(find(f, 0, "kept")->obj, kept);
	assert_true(node_object_in_use(kept)); /* until it is _reopened */
	node_object_use(kept, 1);
	gone = pool_node_reopen(node(f, 0), &g);
	assert_non_null(gone);
	assert_null(find(f, 0, "gone"));
	assert_bytes(f, 0, gone, 4000, 2);
	o = pool_node_reopen(node(f, 0), &g); /* a second handle */
	assert_ptr_equal(gone, o);
	node_object_use(gone, 2);
	/* Not what is not known to be the same. */
	k.size++;
	assert_null(pool_node_reopen(node(f, 0), &k));
	l.published = false;
	assert_null(pool_node_reopen(node(f, 0), &l));
	k = was(kept);
	k.published = false;
	k.sum.low64++;
	assert_null(pool_node_reopen(node(f, 0), &k));
	k.sum.low64--;
	assert_ptr_equal(kept, pool_node_reopen(node(f, 0), &k));
	node_object_unref(node(f, 0), kept);
	k.id++;
	assert_null(pool_node_reopen(node(f, 0), &k));
	pool_node_reopened(node(f, 0));
	f->opts.were_open = NULL;
	f->opts.nwere_open = 0;

	assert_false(has_file(f, l.id)); /* nobody reads it */
	assert_true(has_file(f, g.id));
	let_go(node(f, 0), gone);
	assert_true(has_file(f, g.id));
	let_go(node(f, 0), o);
	assert_false(has_file(f, g.id));
	let_go(node(f, 0), kept);
	assert_false(node_object_in_use(kept));
	assert_readable(f, 0, "kept", 3000, 1);
}

/* The daemon was killed while it replaced a file: both are found. */
static void an_older_version_stays_for_its_readers(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s;
	struct store_blob_buf b;
	struct node_object *old;
	struct node_was_open w;
	char path[PATH_MAX], xattr[32];
	ssize_t n;

	start_pool(f, 1);
	publish(f, 0, "k", 3000, 1);
	w = was(old = hold(f, "k"));
	s = pool_node_store(node(f, 0));
	store_path(s, w.id, path);
	snprintf(xattr, sizeof(xattr), "%s", s->xattr);
	n = getxattr(path, xattr, &b, sizeof(b));
	assert_true(n > 0);
	put(f, 0, "new.tmp", 3000, 2);
	assert_int_equal(0, rename_to(f, 0, "new.tmp", "k", false));
	run_until(f, is_published(f, 0, "k") && find(f, 0, "k")->obj != old);
	/* (Closing unmounts nothing.) */
	assert_int_equal(0, setxattr(path, xattr, &b, (size_t)n, 0));
	stop_node(f, 0);
	let_go(NULL, old);

	f->opts.were_open = &w.id;
	f->opts.nwere_open = 1;
	start_node(f, 0);
	old = pool_node_reopen(node(f, 0), &w);
	assert_non_null(old);
	node_object_use(old, 1);
	pool_node_reopened(node(f, 0));
	f->opts.were_open = NULL;
	f->opts.nwere_open = 0;
	assert_bytes(f, 0, old, 3000, 1);
	assert_readable(f, 0, "k", 3000, 2);
	/* A next start does not find it by its name. */
	assert_int_equal(-1, getxattr(path, xattr, &b, sizeof(b)));
	assert_int_equal(ENODATA, errno);
	assert_true(has_file(f, w.id));
	let_go(node(f, 0), old);
	assert_false(has_file(f, w.id));
}

/* ---- taking over ---- */

/* Names that the kernel knows from other namespaces would stay visible. */
static void nothing_is_taken_over_from_other_namespaces(void **state)
{
	Kvpool__HandoverNode head = KVPOOL__HANDOVER_NODE__INIT;
	char *namespaces[] = { (char *)"mine" };
	struct fixture *f = *state;
	struct pool_handover h;

	start_pool(f, 1);
	head.store_dir = (char *)(uintptr_t)pool_store_path(node(f, 0)->store);
	head.store_size = pool_store_size(node(f, 0)->store);
	head.namespaces = namespaces;
	head.n_namespaces = 1;
	assert_int_equal(0, pool_handover_create(&h));
	pool_handover_put(&h, POOL_HANDOVER_NODE, &head.base);
	assert_int_equal(0, pool_handover_finish(&h));
	assert_int_equal(0, pool_handover_open(&h));
	assert_int_equal(-EINVAL, node_take_over(node(f, 0), &h));
	pool_handover_close(&h);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(a_restart_finds_what_was_sealed_and_drops_the_rest),
		T(a_store_started_smaller_reports_possible_figures),
		T(a_name_changed_while_it_is_sealed_is_found_by_the_next_start),
		T(what_is_written_again_is_not_found_whole_after_a_crash),
		T(what_is_published_survives_a_restart),
		T(attributes_set_elsewhere_survive_a_restart),
		T(damage_found_after_a_restart_is_never_served),
		T(a_cached_copy_that_was_renamed_is_found_after_a_restart),
		T(a_replica_is_found_again_after_a_restart),
		T(a_store_without_a_feed_keeps_up_with_attributes),
		T(a_clients_metadata_names_the_generation),
		T(what_was_open_stays_for_its_readers),
		T(an_older_version_stays_for_its_readers),
		T(nothing_is_taken_over_from_other_namespaces),
	};

	if (argc > 1) /* run only the tests that match these cmocka patterns */
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
