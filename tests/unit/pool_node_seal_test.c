/* Many files that are written or wait to be sealed, on a node that gets no
 * other events (pool/node/seal.c). */
#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/pool_node_fixture.h"

#define FILES 200

/* Without a master. */
static struct pool_node *start_alone(struct fixture *f)
{
	start_node(f, 0);
	return node(f, 0);
}

/* Creates dN/f, writes and closes it. */
static struct node_dirent *put_below(struct pool_node *n, unsigned int i)
{
	static const struct node_attr attr = { .mode = 0755 };
	struct node_dirent *dir;
	struct node_object *o;
	char name[16];
	int fd;

	snprintf(name, sizeof(name), "d%u", i);
	assert_int_equal(0, pool_node_mkdir(n, pool_node_root(n), name,
					    strlen(name), &attr, &dir));
	assert_int_equal(0, pool_node_create(n, dir, "f", 1, &attr, 4, &o));
	pool_node_writer_opened(n, o);
	fd = pool_store_fd(pool_node_store(n), o->id, O_RDWR);
	assert_int_equal(4, pwrite(fd, &i, 4, 0));
	close(fd);
	pool_node_writer_flushed(n, o);
	pool_node_writer_closed(n, o);
	return dir;
}

static void put_all(struct fixture *f, struct node_dirent *dir[FILES])
{
	struct pool_node *n = node(f, 0);
	uint64_t last = n->ticket;

	for (unsigned int i = 0; i < FILES; i++)
		dir[i] = put_below(n, i);
	while (n->ticket == last) /* until the first ones are begun */
		uv_run(&f->loop, UV_RUN_NOWAIT);
}

/* The next turn starts at once, without an event. */
static void the_loop_does_not_sleep_while_files_wait(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n = start_alone(f);
	struct node_dirent *dir[FILES];
	unsigned int turns = 0;

	put_all(f, dir);
	while (!pool_list_empty(&n->small_seals)) {
		assert_int_equal(0, uv_backend_timeout(&f->loop));
		uv_run(&f->loop, UV_RUN_NOWAIT);
		turns++;
	}
	assert_true(turns > 1);
	while (n->kicked)
		uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_int_not_equal(0, uv_backend_timeout(&f->loop)); /* idle */
}

/* A turn visits the files that it seals, not all that wait. */
static void a_turn_is_no_longer_for_many_that_wait(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n = start_alone(f);
	struct node_dirent *dir[FILES];

	put_all(f, dir);
	while (n->pending.next == &n->pending)
		uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_false(pool_list_empty(&n->small_seals));
	assert_true(n->pass > 0);
	assert_int_equal(0, dir[FILES - 1]->pass);
	while (!pool_list_empty(&n->sealing))
		uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_int_equal(0, n->nsealed);
}

/* ---- seals in slices ---- */

#define LARGE (4 * MIB)

/* Runs turns while a large file is sealed in slices. */
static unsigned int run_slices(struct fixture *f, struct pool_node *n)
{
	unsigned int turns = 0;

	while (n->sliced) {
		assert_int_equal(0, uv_backend_timeout(&f->loop));
		uv_run(&f->loop, UV_RUN_NOWAIT);
		turns++;
		node_check(n);
		/* A slice does not look at everything that waits. */
		assert_false(n->kicked && n->sliced);
	}
	return turns;
}

/* Without any worker. */
static void one_large_file_is_sealed_in_slices(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n = start_alone(f);

	need_own_tmpfs(f, 0);
	workers_begin(f);
	put(f, 0, "k", LARGE, 1);
	assert_int_equal(0, n->nworker_seals);
	assert_true(run_slices(f, n) > 2);
	assert_true(is_pending(f, 0, "k"));
	assert_int_equal(LARGE, find(f, 0, "k")->own->size);
	workers_end(f);
}

static void several_large_files_are_sealed_by_workers(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n = start_alone(f);

	need_own_tmpfs(f, 0);
	workers_begin(f);
	put(f, 0, "a", LARGE, 1);
	put(f, 0, "b", LARGE, 2);
	assert_non_null(n->sliced);
	assert_int_equal(1, n->nworker_seals);
	run_slices(f, n);
	put(f, 0, "c", LARGE, 3);
	assert_null(n->sliced);
	assert_int_equal(2, n->nworker_seals);
	put(f, 0, "small", 1000, 4);
	assert_int_equal(2, n->nworker_seals);
	workers_end(f);
	run_until(f, n->nworker_seals == 0);
	put(f, 0, "d", LARGE, 4);
	assert_non_null(n->sliced);
	run_until(f, is_pending(f, 0, "d"));
}

/* As many as take half as long as the rest of the turn. */
static void long_turns_have_more_slices(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n = start_alone(f);
	unsigned int turns = 0;

	need_own_tmpfs(f, 0);
	put(f, 0, "k", 30 * MIB, 1);
	while (n->sliced) {
		for (uint64_t end = pool_now_ns() + 1000000;
		     pool_now_ns() < end;)
			;
		uv_run(&f->loop, UV_RUN_NOWAIT);
		turns++;
	}
	assert_true(turns < 30 * MIB / (128 << 10) / 2);
}

/* So much is freed by a worker. */
static void a_file_with_much_reserved_beyond_its_end_is_not_sliced(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n = start_alone(f);
	struct node_object *o;

	need_own_tmpfs(f, 0);
	o = create_in(f, 0, pool_node_root(n), "k", 0);
	write_bytes(f, 0, o, MIB, 1);
	o->w->reserved = 6 * MIB;
	close_whole(f, 0, o);
	assert_null(n->sliced);
	assert_int_equal(1, n->nworker_seals);
	run_until(f, is_pending(f, 0, "k"));
}

static void what_is_unlinked_between_two_slices_is_removed(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n = start_alone(f);
	uint64_t id;

	need_own_tmpfs(f, 0);
	put(f, 0, "k", LARGE, 1);
	id = find(f, 0, "k")->own->id;
	uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_non_null(n->sliced);
	assert_int_equal(0, pool_node_unlink(n, find(f, 0, "k")));
	node_check(n);
	assert_int_equal(1, run_slices(f, n)); /* the rest is not read */
	assert_int_equal(-ENOENT,
			 pool_store_fd(pool_node_store(n), id, O_RDONLY));
}

static void files_may_be_dropped_while_they_are_sealed(void **state)
{
	static const char *const names[] = { "sliced", "by-worker", "small" };
	struct fixture *f = *state;
	struct pool_node *n = start_alone(f);

	need_own_tmpfs(f, 0);
	workers_begin(f);
	for (uint32_t i = 0; i < 3; i++)
		put(f, 0, names[i], i < 2 ? LARGE : 1000, i);
	assert_non_null(n->sliced);
	assert_int_equal(1, n->nworker_seals);
	assert_int_equal(1, n->nsmall_seals);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(0, pool_node_unlink(n, find(f, 0, names[i])));
		node_check(n);
	}
	workers_end(f);
	run_until(f, pool_list_empty(&n->sealing));
	node_check(n);
}

/* As when the node is closed and waits no longer. */
static void slices_are_completed_at_once_at_the_end(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n = start_alone(f);

	need_own_tmpfs(f, 0);
	put(f, 0, "k", LARGE, 1);
	assert_non_null(n->sliced);
	node_seals_end(n);
	assert_null(n->sliced);
	assert_int_equal(WRITER_SEALED, find(f, 0, "k")->own->w->phase);
	run_until(f, is_pending(f, 0, "k"));
}

/* The next daemon finds it, and publishes it. */
static void a_node_that_ends_completes_its_slices(void **state)
{
	struct fixture *f = *state;

	start_node(f, 0);
	need_own_tmpfs(f, 0);
	put(f, 0, "k", LARGE, 1);
	assert_non_null(node(f, 0)->sliced);
	assert_non_null(pool_node_busy(node(f, 0)));
	stop_node(f, 0);
	start_master(f);
	start_node(f, 0);
	run_until(f, find(f, 0, "k") && is_published(f, 0, "k"));
	assert_bytes(f, 0, find(f, 0, "k")->obj, LARGE, 1);
}

/* ---- what an fsync looks at ---- */

/* A reserved file in the root, open for writing. */
static struct node_object *make(struct pool_node *n, unsigned int i)
{
	static const struct node_attr attr = { .mode = 0644 };
	struct node_object *o;
	char name[16];

	snprintf(name, sizeof(name), "f%u", i);
	assert_int_equal(0, pool_node_create(n, pool_node_root(n), name,
					     strlen(name), &attr, 4, &o));
	assert_false(o->w->served);
	pool_node_writer_opened(n, o);
	node_check(n);
	return o;
}

/* A closed file that another descriptor may still write to, as a mapping
 * may. */
static int make_busy(struct pool_node *n, unsigned int i,
		     struct node_object **ret_o)
{
	struct node_object *o = make(n, i);
	int fd = pool_store_fd(pool_node_store(n), o->id, O_RDWR);

	assert_true(fd >= 0);
	pool_node_writer_flushed(n, o);
	pool_node_writer_closed(n, o);
	assert_int_equal(WRITER_RETRYING, o->w->phase);
	o->w->tries = NODE_RETRY_FAST; /* retried at ticks */
	node_check(n);
	*ret_o = o;
	return fd;
}

static void on_synced(struct node_barrier *b, int status)
{
	(void)b;
	(void)status;
}

/* Number of files that `count` fsyncs visit. No other retry happens
 * meanwhile. */
static uint64_t looked_at(struct fixture *f, struct node_barrier *b, int count)
{
	struct pool_node *n = node(f, 0);
	uint64_t before = pool_counter_value(&n->c.seal_tries);

	uv_timer_stop(&n->tick);
	uv_timer_stop(&n->soon);
	for (int i = 0; i < count; i++)
		assert_int_equal(0, pool_node_barrier_start(n, &b[i],
							    on_synced));
	while (n->kicked)
		uv_run(&f->loop, UV_RUN_NOWAIT);
	for (int i = 0; i < count; i++)
		pool_node_barrier_cancel(n, &b[i]);
	uv_timer_again(&n->tick);
	node_check(n);
	return pool_counter_value(&n->c.seal_tries) - before;
}

/* A program may keep any number of files open that it has flushed (by closing a
 * duplicate descriptor). */
static void an_fsync_looks_at_what_it_may_seal(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n = start_alone(f);
	struct node_object *o[FILES], *busy;
	struct node_barrier b[1];
	int fd;

	n->opts.reserve = true;
	for (unsigned int i = 0; i < FILES; i++) {
		o[i] = make(n, i);
		pool_node_writer_direct(n, o[i], o, 1);
		pool_node_writer_flushed(n, o[i]);
	}
	fd = make_busy(n, FILES, &busy);
	assert_int_equal(1, looked_at(f, b, 1));
	assert_int_equal(NODE_WRITING, busy->state);
	close(fd);
	assert_int_equal(1, looked_at(f, b, 1));
	assert_int_not_equal(NODE_WRITING, busy->state);
	assert_int_equal(0, looked_at(f, b, 1));
	/* Files pinned by the mount, without a handle; one is poisoned, one
	 * unlinked. */
	for (unsigned int i = 0; i < 3; i++)
		pool_node_writer_direct(n, o[i], NULL, 0);
	node_check(n);
	pool_node_poison(n, o[1], -EIO);
	node_object_ref(o[2]);
	assert_int_equal(0, pool_node_unlink(n, o[2]->entry));
	assert_int_equal(1, looked_at(f, b, 1));
	assert_int_not_equal(NODE_WRITING, o[0]->state);
	assert_int_equal(NODE_WRITING, o[1]->state);
	pool_node_writer_closed(n, o[2]);
	node_object_unref(n, o[2]);
	for (unsigned int i = 3; i < FILES; i++) {
		pool_node_writer_direct(n, o[i], NULL, 0);
		pool_node_writer_closed(n, o[i]);
		node_check(n);
		assert_int_not_equal(NODE_WRITING, o[i]->state);
	}
	assert_int_equal(0, looked_at(f, b, 1));
}

/* Flush, rename and close may come in any order. */
static void a_file_is_looked_at_from_its_flush_or_rename_on(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n = start_alone(f);
	struct node_object *o, *busy;
	struct pool_entry *to;
	struct node_barrier b[1];
	int fd;

	n->opts.reserve = true;
	o = make(n, 0);
	assert_int_equal(0, looked_at(f, b, 1));
	pool_node_writer_flushed(n, o);
	assert_int_equal(1, looked_at(f, b, 1));
	assert_int_not_equal(NODE_WRITING, o->state);
	pool_node_writer_closed(n, o);
	fd = make_busy(n, 1, &busy);
	assert_int_equal(0, pool_node_rename(n, &busy->entry->e,
					     pool_node_root(n), "k.tmp", 5,
					     false, &to));
	assert_int_equal(1, looked_at(f, b, 1));
	close(fd);
	o = make(n, 2);
	assert_int_equal(0, pool_node_rename(n, &o->entry->e,
					     pool_node_root(n), "to", 2,
					     false, &to));
	node_check(n);
	assert_int_equal(2, looked_at(f, b, 1));
	assert_int_not_equal(NODE_WRITING, busy->state);
	assert_int_not_equal(NODE_WRITING, o->state);
	pool_node_writer_closed(n, o);
}

static void fsyncs_of_one_turn_look_once(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n = start_alone(f);
	struct node_object *o[10];
	struct node_barrier b[20];
	int fd[10];

	n->opts.reserve = true;
	for (unsigned int i = 0; i < 10; i++)
		fd[i] = make_busy(n, i, &o[i]);
	assert_int_equal(10, looked_at(f, b, 20));
	/* A file whose writer ends between two fsyncs is sealed before both
	 * end. */
	assert_int_equal(0, pool_node_barrier_start(n, &b[0], on_synced));
	close(fd[0]);
	assert_int_equal(10, looked_at(f, b + 1, 1));
	assert_int_not_equal(NODE_WRITING, o[0]->state);
	assert_true(o[0]->w->ticket < b[0].ticket &&
		    b[0].ticket < b[1].ticket);
	pool_node_barrier_cancel(n, &b[0]);
	for (unsigned int i = 1; i < 10; i++)
		close(fd[i]);
}

static void ticks_are_rare_while_nothing_is_under_way(void **state)
{
	struct fixture *f = *state;
	struct node_barrier b;
	struct pool_node *n;

	start_pool(f, 1);
	n = node(f, 0);
	run_until(f, uv_timer_get_repeat(&n->tick) == NODE_TICK_IDLE_MS);
	assert_int_equal(0, pool_node_barrier_start(n, &b, on_synced));
	assert_int_equal(NODE_TICK_MS, uv_timer_get_repeat(&n->tick));
	pool_node_barrier_cancel(n, &b);
	run_until(f, uv_timer_get_repeat(&n->tick) == NODE_TICK_IDLE_MS);
	publish(f, 0, "x", 1000, 1);
	assert_int_equal(NODE_TICK_MS, uv_timer_get_repeat(&n->tick));
	run_until(f, uv_timer_get_repeat(&n->tick) == NODE_TICK_IDLE_MS);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(ticks_are_rare_while_nothing_is_under_way),
		T(the_loop_does_not_sleep_while_files_wait),
		T(a_turn_is_no_longer_for_many_that_wait),
		T(one_large_file_is_sealed_in_slices),
		T(several_large_files_are_sealed_by_workers),
		T(long_turns_have_more_slices),
		T(a_file_with_much_reserved_beyond_its_end_is_not_sliced),
		T(what_is_unlinked_between_two_slices_is_removed),
		T(files_may_be_dropped_while_they_are_sealed),
		T(slices_are_completed_at_once_at_the_end),
		T(a_node_that_ends_completes_its_slices),
		T(an_fsync_looks_at_what_it_may_seal),
		T(a_file_is_looked_at_from_its_flush_or_rename_on),
		T(fsyncs_of_one_turn_look_once),
	};

	if (argc > 1) /* run only the tests that match these cmocka patterns */
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
