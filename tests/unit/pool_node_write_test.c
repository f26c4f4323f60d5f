/* Files that a node writes, from creation until they are sealed: writers,
 * reserved pages, and files removed or written again meanwhile
 * (pool/node/write.c, seal.c, resize.c, rewrite.c). */
#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/pool_node_fixture.h"

/* ---- closing and sealing ---- */

static void a_file_is_sealed_and_waits_for_a_master(void **state)
{
	struct fixture *f = *state;
	struct node_object *o, *again = NULL;
	struct node_attr attr = { .mode = 0600 };
	struct node_entry *e;
	struct stat st;
	int fd;

	start_node(f, 0);
	assert_null(find(f, 0, "k"));
	o = create_in(f, 0, pool_node_root(node(f, 0)), "k", 0);
	e = find(f, 0, "k");
	assert_ptr_equal(o, e->own);
	assert_int_equal(-EEXIST,
			 pool_node_create(node(f, 0),
					  pool_node_root(node(f, 0)), "k", 1,
					  &attr, 0, &again));
	assert_info(f, 0, "k", "user.kvpool.state", "writing");
	write_bytes(f, 0, o, 100000, 1);
	close_whole(f, 0, o);
	assert_int_equal(NODE_SEALING, o->state);
	run_until(f, o->state == NODE_PENDING);
	assert_info(f, 0, "k", "user.kvpool.state", "pending");
	assert_bytes(f, 0, o, 100000, 1);
	assert_int_equal(0640, pool_node_attr(&e->e)->mode);
	assert_int_equal(1000, pool_node_attr(&e->e)->uid);
	assert_int_equal(0, e->gen);
	assert_false(pool_node_published(e));
	assert_true(pool_node_visible(&e->e));
	fd = pool_store_fd(pool_node_store(node(f, 0)), o->id, O_RDONLY);
	assert_int_equal(0, fstat(fd, &st));
	close(fd);
	assert_int_equal(0400, st.st_mode & 0777);
	run_for(f, 60);
	assert_true(is_pending(f, 0, "k"));
	assert_count(0, f, 0, published);
}

static void a_file_nobody_flushed_is_not_sealed(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	start_node(f, 0);
	o = create_in(f, 0, pool_node_root(node(f, 0)), "k", 0);
	write_bytes(f, 0, o, 1000, 1);
	pool_node_writer_closed(node(f, 0), o);
	run_for(f, 60);
	assert_int_equal(NODE_WRITING, o->state);
	/* Opened and closed again, this time with a flush. */
	assert_int_equal(0, pool_node_unseal(node(f, 0), o));
	pool_node_writer_opened(node(f, 0), o);
	close_whole(f, 0, o);
	run_until(f, is_pending(f, 0, "k"));
}

static void a_file_is_sealed_when_its_last_writer_is_gone(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	start_node(f, 0);
	o = create_in(f, 0, pool_node_root(node(f, 0)), "k", 0);
	pool_node_writer_opened(node(f, 0), o);
	write_bytes(f, 0, o, 1000, 1);
	close_whole(f, 0, o);
	run_for(f, 40);
	assert_int_equal(NODE_WRITING, o->state);
	close_whole(f, 0, o);
	run_until(f, is_pending(f, 0, "k"));
}

static void a_temporary_name_waits_for_its_rename(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *to = NULL;

	start_node(f, 0);
	put(f, 0, "k.tmp", 1000, 1);
	run_for(f, 60);
	assert_int_equal(NODE_WRITING, find(f, 0, "k.tmp")->own->state);
	assert_int_equal(0, pool_node_rename(node(f, 0),
					     &find(f, 0, "k.tmp")->e,
					     pool_node_root(node(f, 0)), "k",
					     1, false, &to));
	assert_ptr_equal(&find(f, 0, "k")->e, to);
	assert_null(find(f, 0, "k.tmp"));
	run_until(f, is_pending(f, 0, "k"));
}

/* An fsync does not seal a daemon-served file that is open, even after flushes:
 * no lease proves that nobody writes. */
static void a_served_file_is_not_sealed_while_it_is_open(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	f->opts.reserve = false;
	start_pool(f, 1);
	o = create_in(f, 0, pool_node_root(node(f, 0)), "k", 0);
	assert_true(o->w->served);
	write_bytes(f, 0, o, 1000, 1);
	pool_node_writer_flushed(node(f, 0), o); /* a duplicate is closed */
	node_seal_candidates(node(f, 0));
	run_for(f, 5 * NODE_TICK_MS);
	assert_int_equal(NODE_WRITING, o->state);
	write_bytes(f, 0, o, 100000, 2);
	close_whole(f, 0, o);
	run_until(f, is_published(f, 0, "k"));
	assert_readable(f, 0, "k", 100000, 2);
}

static uint64_t stopped_ns(void)
{
	return 1000000000000;
}
static uint64_t stopped_wall(void)
{
	return 1700000000000000000;
}
static void stopped_random(void *buf, size_t n)
{
	memset(buf, 7, n);
}

/* However fast files are put, few bytes wait to be sealed: without any time
 * passing (the clock stands still) a turn seals those beyond the limit. */
static void what_waits_to_be_sealed_is_bounded(void **state)
{
	static const struct pool_clock stopped = { stopped_ns, stopped_wall,
						   stopped_random };
	struct fixture *f = *state;
	char name[16];

	start_pool(f, 1);
	for (int k = 0; k < 1500; k++) {
		snprintf(name, sizeof(name), "k%d", k);
		put(f, 0, name, 100, 1);
	}
	assert_int_equal(1500, node(f, 0)->nsmall_seals);
	pool_clock_set(&stopped);
	node_seal_small(node(f, 0));
	pool_clock_set(NULL);
	assert_in_range(node(f, 0)->nsmall_seals, 1000, 1024);
	node_seal_small(node(f, 0));
	assert_in_range(node(f, 0)->nsmall_seals, 984, 1008);
	run_until(f, is_published(f, 0, "k1499"));
	assert_int_equal(0, node(f, 0)->nsmall_seals);
}

static void what_was_closed_first_is_published_first_in_its_directory(
	void **state)
{
	static const struct node_attr attr = { .mode = 0755 };
	struct fixture *f = *state;
	struct node_dirent *other;

	start_pool(f, 1);
	assert_int_equal(0, pool_node_mkdir(node(f, 0),
					    pool_node_root(node(f, 0)), "d", 1,
					    &attr, &other));
	workers_begin(f);
	put_in(f, 0, other, "slices", MIB, 4); /* in slices on the loop */
	put(f, 0, "large", MIB, 1); /* so this one is for a worker */
	put(f, 0, "small", 1000, 2); /* for the loop */
	put_in(f, 0, other, "elsewhere", 1000, 3);
	run_until(f, find_in(f, 0, other, "elsewhere")->gen &&
			     find_in(f, 0, other, "slices")->gen);
	assert_int_equal(NODE_PENDING, find(f, 0, "small")->own->state);
	assert_int_equal(NODE_SEALING, find(f, 0, "large")->own->state);
	assert_int_equal(0, node(f, 0)->nops); /* neither is queued */
	workers_end(f);
	run_until(f, is_published(f, 0, "small"));
	assert_true(is_published(f, 0, "large"));
}

/* ---- files that go before they are published ---- */

static void a_poisoned_file_keeps_its_name_and_goes_with_its_writer(
	void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	struct pool_entry *to = NULL;

	start_node(f, 0);
	o = create_in(f, 0, pool_node_root(node(f, 0)), "k.tmp", 0);
	write_bytes(f, 0, o, 1000, 1);
	pool_node_poison(node(f, 0), o, -ENOSPC);
	pool_node_poison(node(f, 0), o, -EIO); /* the first error is kept */
	assert_int_equal(-ENOSPC,
			 pool_node_rename(node(f, 0), &find(f, 0, "k.tmp")->e,
					  pool_node_root(node(f, 0)), "k", 1,
					  false, &to));
	assert_null(to);
	assert_null(find(f, 0, "k"));
	assert_false(known(f, 0, "k"));
	assert_ptr_equal(o, find(f, 0, "k.tmp")->own);
	close_whole(f, 0, o);
	assert_null(find(f, 0, "k.tmp"));
	assert_count(1, f, 0, poisoned);
	assert_int_equal(1, f->m[0].calls.object_gone);
}

static void unlink_before_and_during_sealing_leaves_nothing(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	struct pool_space sp;

	start_node(f, 0);
	o = create_in(f, 0, pool_node_root(node(f, 0)), "open", 0);
	write_bytes(f, 0, o, MIB, 1);
	node_object_ref(o);
	assert_int_equal(0, pool_node_unlink(node(f, 0), find(f, 0, "open")));
	assert_null(find(f, 0, "open"));
	assert_int_equal(NODE_DROPPED, o->state);
	pool_node_writer_closed(node(f, 0), o);
	node_object_unref(node(f, 0), o);

	put(f, 0, "sealing", MIB, 2);
	assert_int_equal(NODE_SEALING, find(f, 0, "sealing")->own->state);
	assert_int_equal(0, pool_node_unlink(node(f, 0),
					     find(f, 0, "sealing")));
	assert_null(find(f, 0, "sealing"));

	put(f, 0, "pending", MIB, 3);
	run_until(f, is_pending(f, 0, "pending"));
	assert_int_equal(0, pool_node_unlink(node(f, 0),
					     find(f, 0, "pending")));
	assert_null(find(f, 0, "pending"));
	run_until(f, f->m[0].calls.object_gone == 3);
	assert_int_equal(0, node(f, 0)->nops);
	pool_store_space(pool_node_store(node(f, 0)), &sp);
	need_own_tmpfs(f, 0);
	run_until(f, (pool_store_space(pool_node_store(node(f, 0)), &sp),
		      sp.used < MIB));
}

/* An open handle (users) can still read the file. */
static void what_is_unlinked_while_sealed_stays_until_it_is_closed(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	uint64_t id;
	int fd;

	start_node(f, 0);
	workers_begin(f);
	put(f, 0, "k", MIB, 1);
	o = node_object_ref(find(f, 0, "k")->own);
	id = o->id;
	assert_int_equal(NODE_SEALING, o->state);
	o->users++;
	assert_int_equal(0, pool_node_unlink(node(f, 0), find(f, 0, "k")));
	workers_end(f);
	run_until(f, f->m[0].calls.object_gone == 1);
	fd = node_object_open(node(f, 0), o, O_RDONLY);
	if (fd < 0)
		fail_msg("the file went with its name: %s", strerror(-fd));
	close(fd);
	o->users--;
	node_object_unref(node(f, 0), o);
	assert_true(pool_store_fd(pool_node_store(node(f, 0)), id, O_RDONLY) <
		    0);
}

static void queries_do_not_wait_for_the_removal_of_a_file(void **state)
{
	static struct pool_shortlock names; /* outlives this function */
	struct fixture *f = *state;

	pool_shortlock_init(&names);
	f->opts.names = &names;
	start_node(f, 0);
	put(f, 0, "k", 1000, 1);
	run_until(f, is_pending(f, 0, "k"));
	put(f, 0, "k.tmp", 1000, 2);
	assert_int_equal(0, rename_to(f, 0, "k.tmp", "k", false));
	assert_int_equal(1, f->m[0].calls.object_gone);
	assert_int_equal(0, f->m[0].calls.kept_waiting);
	assert_null(find(f, 0, "k.tmp"));
	assert_int_equal(0, pool_node_unlink(node(f, 0), find(f, 0, "k")));
	run_until(f, f->m[0].calls.object_gone == 2);
	assert_int_equal(0, f->m[0].calls.kept_waiting);
}

/* ---- reserved pages ---- */

/* A new file, after others of 100 KiB. */
static struct node_object *create_reserved(struct fixture *f)
{
	struct node_object *o;
	int i;

	/* The first file only announces the size. */
	put(f, 0, "k0", 100 * KIB, 0);
	for (i = 0; i < 100; i++) {
		char name[16];

		snprintf(name, sizeof(name), "k%d", i + 1);
		o = create_in(f, 0, pool_node_root(node(f, 0)), name,
			      100 * KIB);
		if (!o->w->served)
			break;
		write_bytes(f, 0, o, 100 * KIB, (uint32_t)i);
		close_whole(f, 0, o);
		run_for(f, 20);
	}
	assert_false(o->w->served);
	assert_true(o->w->reserved >= 100 * KIB);
	return o;
}

static void a_reserved_file_waits_for_descriptors_of_its_writer(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	int fd;

	f->opts.reserve = true;
	start_node(f, 0);
	o = create_reserved(f);
	assert_true(pool_counter_value(&node(f, 0)->c.reserved_creates) > 0);
	write_bytes(f, 0, o, 50 * KIB, 7);
	fd = pool_store_fd(pool_node_store(node(f, 0)), o->id, O_RDWR);
	assert_true(fd >= 0);
	close_whole(f, 0, o);
	run_for(f, 60);
	assert_int_equal(NODE_WRITING, o->state);
	assert_int_equal(-EAGAIN, pool_node_unseal(node(f, 0), o));
	assert_true(pool_counter_value(&node(f, 0)->c.seal_retries) > 0);
	close(fd);
	run_until(f, o->state == NODE_PENDING);
	assert_bytes(f, 0, o, 50 * KIB, 7);
}

/* A process that exits at the same moment may still hold a descriptor. */
static void a_node_that_ends_waits_for_descriptors_of_what_is_closed(
	void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	bool closed = false;
	char name[16];
	int fd;

	f->opts.reserve = true;
	start_pool(f, 1);
	o = create_reserved(f);
	snprintf(name, sizeof(name), "%.*s", o->entry->e.name_len,
		 pool_entry_name(&o->entry->e));
	write_bytes(f, 0, o, 50 * KIB, 7);
	fd = pool_store_fd(pool_node_store(node(f, 0)), o->id, O_RDWR);
	assert_true(fd >= 0);
	close_whole(f, 0, o);
	pool_node_close(node(f, 0), 5000, on_closed, &closed);
	run_for(f, 60);
	assert_false(closed);
	close(fd);
	unit_run_until(&f->loop, closed);
	f->m[0].node = NULL;
	pool_metrics_close(f->m[0].metrics);
	assert_non_null(master_map_file(&f->master->map, name,
					strlen(name)));
}

static void a_file_that_outgrew_is_learnt_from_though_it_goes(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	f->opts.reserve = true;
	start_node(f, 0);
	o = node_object_ref(create_reserved(f));
	write_bytes(f, 0, o, 700 * KIB, 1); /* as much as there was space for */
	assert_int_equal(0, pool_node_unlink(node(f, 0), o->entry));
	pool_node_writer_closed(node(f, 0), o);
	node_object_unref(node(f, 0), o);
	assert_true(node_learn_predict(node(f, 0), pool_node_root(node(f, 0)))
		    >= 700 * KIB);
}

static void a_temporary_that_outgrew_goes_when_it_is_closed(void **state)
{
	struct fixture *f = *state;
	struct pool_file file;
	struct pool_space sp;
	struct node_object *o;

	f->opts.reserve = true;
	start_node(f, 0);
	need_own_tmpfs(f, 0);
	o = create_reserved(f);
	assert_int_equal(0, pool_node_rename(node(f, 0), &o->entry->e,
					     pool_node_root(node(f, 0)),
					     "k.tmp", 5, false,
					     &(struct pool_entry *){ NULL }));
	o->w->renamed = false; /* as if created under this name */
	node_candidate_update(node(f, 0), o);
	write_bytes(f, 0, o, 700 * KIB, 1);
	/* Others use up the space meanwhile, so that a write would fail. No
	 * worker is making ready files at that time. */
	run_until(f, !pool_store_busy(pool_node_store(node(f, 0))));
	pool_store_space(pool_node_store(node(f, 0)), &sp);
	assert_int_equal(0, pool_store_take(pool_node_store(node(f, 0)), 0,
					    &file));
	assert_int_equal(0, fallocate(file.fd, 0, 0, (off_t)(sp.reach + MIB)));
	close_whole(f, 0, o);
	assert_false(known(f, 0, "k.tmp"));
	assert_count(1, f, 0, outgrown);
	assert_count(1, f, 0, poisoned);
	close(file.fd);
}

/* One byte written far beyond the store's size, past the daemon. */
static void a_file_larger_than_the_store_is_lost_and_holds_nothing_up(
	void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	int fd;

	f->opts.reserve = true;
	start_pool(f, 1);
	o = create_reserved(f);
	fd = pool_store_fd(pool_node_store(node(f, 0)), o->id, O_RDWR);
	assert_int_equal(1, pwrite(fd, "x", 1, 1ll << 40));
	close(fd);
	close_whole(f, 0, o);
	run_until(f, pool_counter_value(&node(f, 0)->c.outgrown) == 1);
	assert_count(1, f, 0, poisoned);
	assert_int_equal(-EFBIG, pool_node_lost(pool_node_root(node(f, 0))));
	assert_true(node_learn_predict(node(f, 0), pool_node_root(node(f, 0)))
		    < MIB);
	publish(f, 0, "next", 1000, 1);
}

static void in_the_headroom_nothing_is_reserved(void **state)
{
	struct fixture *f = *state;
	struct pool_file file;
	struct node_object *o;
	struct pool_space sp;

	f->opts.reserve = true;
	start_node(f, 0);
	need_own_tmpfs(f, 0);
	close_whole(f, 0, create_reserved(f));
	run_until(f, (pool_store_space(pool_node_store(node(f, 0)), &sp),
		      sp.ready > 0));
	assert_int_equal(0, pool_store_take(pool_node_store(node(f, 0)), 0,
					    &file));
	assert_int_equal(0, fallocate(file.fd, 0, 0, STORE_SIZE));
	run_for(f, 2); /* node_space_lately */
	o = create_in(f, 0, pool_node_root(node(f, 0)), "served", 100 * KIB);
	assert_true(o->w->served);
	pool_node_writer_closed(node(f, 0), o);
	close(file.fd);
}

/* The reservation would use only headroom, because nothing can be evicted. */
static void beside_what_is_kept_nothing_is_reserved_by_guess(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	struct pool_space sp;

	f->opts.reserve = true;
	start_node(f, 0);
	need_own_tmpfs(f, 0);
	start_master(f);
	run_until(f, is_up(f, 0));
	publish(f, 0, "k", 26 * MIB, 1);
	close_whole(f, 0, create_reserved(f)); /* k may be evicted */
	pin(f, 0, "k");
	for (int i = 0; i < 16; i++) /* again the usual size */
		node_learn_size(node(f, 0), find(f, 0, "k"), 100 * KIB);
	assert_int_equal(100 * KIB,
			 node_learn_predict(node(f, 0),
					    pool_node_root(node(f, 0))));
	run_until(f, (pool_store_space(pool_node_store(node(f, 0)), &sp),
		      sp.ready > 0));
	assert_true(sp.free > 0);
	o = create_in(f, 0, pool_node_root(node(f, 0)), "guess", 0);
	assert_true(o->w->served);
	pool_node_writer_closed(node(f, 0), o);
	o = create_in(f, 0, pool_node_root(node(f, 0)), "known", 100 * KIB);
	assert_false(o->w->served);
	pool_node_writer_closed(node(f, 0), o);
}

/* ---- written again ---- */

static void a_file_written_again_before_its_publication_is_unsealed(
	void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	start_node(f, 0);
	put(f, 0, "k", 1000, 1);
	o = find(f, 0, "k")->own;
	assert_int_equal(-EAGAIN, pool_node_unseal(node(f, 0), o));
	run_until(f, is_pending(f, 0, "k"));
	assert_int_equal(1, node(f, 0)->nops);
	assert_int_equal(0, pool_node_unseal(node(f, 0), o));
	assert_int_equal(0, node(f, 0)->nops);
	pool_node_writer_opened(node(f, 0), o);
	assert_true(pool_node_writer_fd(node(f, 0), o) >= 0);
	assert_int_equal(3, pwrite(pool_node_writer_fd(node(f, 0), o), "abc",
				   3, 1000));
	close_whole(f, 0, o);
	run_until(f, is_pending(f, 0, "k"));
	assert_int_equal(1003, o->size);
	start_master(f);
	run_until(f, is_published(f, 0, "k"));
	assert_count(1, f, 0, published);
}

static void a_file_lost_after_its_close_does_not_show_the_one_before(
	void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	struct node_entry *e;

	start_pool(f, 2);
	publish(f, 0, "k", 1000, 1);
	run_until(f, find(f, 1, "k"));
	e = find(f, 0, "k");
	assert_int_equal(1, pool_node_rewrite_start(node(f, 0), e, 0, NULL,
						    NULL));
	o = e->own;
	pool_node_writer_opened(node(f, 0), o);
	write_bytes(f, 0, o, 300000, 2);
	pool_store_remove(pool_node_store(node(f, 0)), o->id);
	close_whole(f, 0, o);
	run_until(f, !find(f, 0, "k"));
	run_until(f, !known(f, 0, "k") && !known(f, 1, "k"));
	/* The next fsync returns the error. */
	assert_int_equal(-ENOENT, pool_node_lost(pool_node_root(node(f, 0))));
	assert_int_equal(0, pool_node_lost(pool_node_root(node(f, 0))));
}

static void a_rewrite_begins_empty_or_with_what_is_to_be_kept(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;
	uint64_t gen;
	int status = 1;

	start_pool(f, 1);
	publish(f, 0, "k", 100000, 1);
	e = find(f, 0, "k");
	gen = e->gen;
	assert_int_equal(0, pool_node_rewrite_start(node(f, 0), e, 60000,
						    on_done, &status));
	run_until(f, status != 1);
	assert_int_equal(0, status);
	assert_non_null(e->own);
	assert_true(e->own->w->pristine_copy);
	pool_node_writer_opened(node(f, 0), e->own);
	close_whole(f, 0, e->own);
	run_until(f, is_published(f, 0, "k") && e->gen != gen);
	assert_readable(f, 0, "k", 60000, 1);

	assert_int_equal(1, pool_node_rewrite_start(node(f, 0), e, 0, on_done,
						    &status));
	assert_false(e->own->w->pristine_copy);
	pool_node_writer_opened(node(f, 0), e->own);
	write_bytes(f, 0, e->own, 10, 5);
	close_whole(f, 0, e->own);
	run_until(f, is_published(f, 0, "k"));
	assert_readable(f, 0, "k", 10, 5);
	/* If no handle is open, the entry is removed by itself; here the mount
	 * unlinks it. */
	assert_int_equal(0, pool_node_unlink(node(f, 0), e));
	assert_int_equal(-ENOENT, pool_node_rewrite_start(node(f, 0), e, 0,
							  on_done, &status));
}

/* Readers that have the old name open, or borrowed its file, keep the old
 * bytes. */
static void what_was_published_is_not_written_again_under_a_new_name(
	void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;
	uint64_t id;

	start_pool(f, 1);
	publish(f, 0, "old", 300000, 1);
	stop_master(f);
	assert_int_equal(0, rename_to(f, 0, "old", "new", false));
	e = find(f, 0, "new");
	id = e->own->id;
	assert_int_equal(-EROFS, pool_node_unseal(node(f, 0), e->own));
	assert_int_equal(NODE_PENDING, e->own->state);
	assert_int_equal(0, pool_node_own_replace(node(f, 0), e));
	assert_int_equal(NODE_WRITING, e->own->state);
	assert_int_not_equal(id, e->own->id);
	assert_int_equal(0640, e->own->w->attr.mode);
	pool_node_writer_opened(node(f, 0), e->own);
	write_bytes(f, 0, e->own, 1000, 2);
	close_whole(f, 0, e->own);
	start_master(f);
	run_until(f, is_published(f, 0, "new"));
	assert_readable(f, 0, "new", 1000, 2);
	assert_null(find(f, 0, "old"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(a_file_is_sealed_and_waits_for_a_master),
		T(a_file_nobody_flushed_is_not_sealed),
		T(a_file_is_sealed_when_its_last_writer_is_gone),
		T(a_temporary_name_waits_for_its_rename),
		T(a_served_file_is_not_sealed_while_it_is_open),
		T(what_waits_to_be_sealed_is_bounded),
		T(what_was_closed_first_is_published_first_in_its_directory),
		T(a_poisoned_file_keeps_its_name_and_goes_with_its_writer),
		T(unlink_before_and_during_sealing_leaves_nothing),
		T(what_is_unlinked_while_sealed_stays_until_it_is_closed),
		T(queries_do_not_wait_for_the_removal_of_a_file),
		T(a_reserved_file_waits_for_descriptors_of_its_writer),
		T(a_node_that_ends_waits_for_descriptors_of_what_is_closed),
		T(a_file_that_outgrew_is_learnt_from_though_it_goes),
		T(a_temporary_that_outgrew_goes_when_it_is_closed),
		T(a_file_larger_than_the_store_is_lost_and_holds_nothing_up),
		T(in_the_headroom_nothing_is_reserved),
		T(beside_what_is_kept_nothing_is_reserved_by_guess),
		T(a_file_written_again_before_its_publication_is_unsealed),
		T(a_file_lost_after_its_close_does_not_show_the_one_before),
		T(a_rewrite_begins_empty_or_with_what_is_to_be_kept),
		T(what_was_published_is_not_written_again_under_a_new_name),
	};

	if (argc > 1) /* run only the tests that match these cmocka patterns */
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
