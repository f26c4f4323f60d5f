/* Many files that are written or wait to be sealed, at a node that nobody else
 * wakes. */
#include "tests/lib/unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pool/node/node_priv.h"

#define FILES 200

struct fixture {
	char *top; /* owns */
	char dir[80];
	uv_loop_t loop;
	struct pool_metrics *metrics;
	struct pool_node *n;
	int port_fd; /* holds the master's port, and never listens */
};

/* There is no master. */
static int hold_port(struct pool_hostport *hp)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(0, bind(fd, (void *)&sa, sizeof(sa)));
	assert_int_equal(0, getsockname(fd, (void *)&sa, &len));
	strcpy(hp->host, "127.0.0.1");
	hp->port = ntohs(sa.sin_port);
	return fd;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct pool_node_opts o = { .store_size = 32u << 20,
				    .mount = true,
				    .movers = 1,
				    .name = "node" };

	assert_non_null(f);
	alarm(40);
	f->top = unit_dir_make("/tmp/pool_node_seal_test");
	snprintf(f->dir, sizeof(f->dir), "%s/store", f->top);
	assert_int_equal(0, uv_loop_init(&f->loop));
	f->metrics = pool_metrics_open();
	o.loop = &f->loop;
	o.metrics = f->metrics;
	o.store_dir = f->dir;
	o.masters.n = 1;
	f->port_fd = hold_port(&o.masters.at[0]);
	strcpy(o.listen.host, "127.0.0.1");
	assert_int_equal(0, pool_node_open(&o, &f->n));
	*state = f;
	return 0;
}

static void on_closed(void *arg)
{
	*(bool *)arg = true;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	bool closed = false;

	pool_node_close(f->n, 0, on_closed, &closed);
	unit_run_until(&f->loop, closed);
	assert_int_equal(0, uv_run(&f->loop, UV_RUN_DEFAULT));
	assert_int_equal(0, uv_loop_close(&f->loop));
	pool_metrics_close(f->metrics);
	close(f->port_fd);
	while (umount2(f->dir, MNT_DETACH) == 0)
		;
	unit_dir_remove(f->top);
	free(f);
	alarm(0);
	return 0;
}

/* dN/f, written and closed. */
static struct node_dirent *put(struct fixture *f, unsigned int i)
{
	static const struct node_attr attr = { .mode = 0755 };
	struct node_dirent *dir;
	struct node_object *o;
	char name[16];
	int fd;

	snprintf(name, sizeof(name), "d%u", i);
	assert_int_equal(0, pool_node_mkdir(f->n, pool_node_root(f->n), name,
					    strlen(name), &attr, &dir));
	assert_int_equal(0, pool_node_create(f->n, dir, "f", 1, &attr, 4, &o));
	pool_node_writer_opened(f->n, o);
	fd = pool_store_fd(pool_node_store(f->n), o->id, O_RDWR);
	assert_int_equal(4, pwrite(fd, &i, 4, 0));
	close(fd);
	pool_node_writer_flushed(f->n, o);
	pool_node_writer_closed(f->n, o);
	return dir;
}

static void put_all(struct fixture *f, struct node_dirent *dir[FILES])
{
	uint64_t last = f->n->ticket;

	for (unsigned int i = 0; i < FILES; i++)
		dir[i] = put(f, i);
	while (f->n->ticket == last) /* the first ones are taken */
		uv_run(&f->loop, UV_RUN_NOWAIT);
}

/* The next turn comes at once: nobody has to wake the loop for it. */
static void the_loop_does_not_sleep_while_files_wait(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *dir[FILES];
	unsigned int turns = 0;

	put_all(f, dir);
	while (!pool_list_empty(&f->n->small_seals)) {
		assert_int_equal(0, uv_backend_timeout(&f->loop));
		uv_run(&f->loop, UV_RUN_NOWAIT);
		turns++;
	}
	assert_true(turns > 1);
	while (f->n->kicked)
		uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_int_not_equal(0, uv_backend_timeout(&f->loop)); /* and then it does */
}

/* A turn looks at what it seals, and not at all that waits. */
static void a_turn_is_no_longer_for_many_that_wait(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *dir[FILES];

	put_all(f, dir);
	while (f->n->pending.next == &f->n->pending)
		uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_false(pool_list_empty(&f->n->small_seals));
	assert_true(f->n->pass > 0);
	assert_int_equal(0, dir[FILES - 1]->pass);
	while (!pool_list_empty(&f->n->sealing))
		uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_int_equal(0, f->n->nsealed);
}

/* ---- what an fsync looks at ---- */

/* A reserved file in the root, open for writing. */
static struct node_object *make(struct fixture *f, unsigned int i)
{
	static const struct node_attr attr = { .mode = 0644 };
	struct node_object *o;
	char name[16];

	snprintf(name, sizeof(name), "f%u", i);
	assert_int_equal(0, pool_node_create(f->n, pool_node_root(f->n), name,
					     strlen(name), &attr, 4, &o));
	assert_false(o->w->served);
	pool_node_writer_opened(f->n, o);
	node_check(f->n);
	return o;
}

/* Closed, while another descriptor may write to it: as by a mapping. */
static int make_busy(struct fixture *f, unsigned int i,
		     struct node_object **ret_o)
{
	struct node_object *o = make(f, i);
	int fd = pool_store_fd(pool_node_store(f->n), o->id, O_RDWR);

	assert_true(fd >= 0);
	pool_node_writer_flushed(f->n, o);
	pool_node_writer_closed(f->n, o);
	assert_true(o->w->queued);
	o->w->tries = NODE_RETRY_FAST; /* for so long: no retry but at a tick */
	node_check(f->n);
	*ret_o = o;
	return fd;
}

static void on_synced(struct node_barrier *b, int status)
{
	(void)b;
	(void)status;
}

/* The files that so many fsyncs look at in their turn. No retry of another
 * reason comes meanwhile. */
static uint64_t looked_at(struct fixture *f, struct node_barrier *b, int n)
{
	uint64_t before = pool_counter_value(&f->n->c.seal_tries);

	uv_timer_stop(&f->n->tick);
	uv_timer_stop(&f->n->soon);
	for (int i = 0; i < n; i++)
		assert_int_equal(0, pool_node_barrier_start(f->n, &b[i],
							    on_synced));
	while (f->n->kicked)
		uv_run(&f->loop, UV_RUN_NOWAIT);
	for (int i = 0; i < n; i++)
		pool_node_barrier_cancel(f->n, &b[i]);
	uv_timer_again(&f->n->tick);
	node_check(f->n);
	return pool_counter_value(&f->n->c.seal_tries) - before;
}

/* A program may hold any number of files open that it has flushed (closed a
 * duplicate of). */
static void an_fsync_looks_at_what_it_may_seal(void **state)
{
	struct fixture *f = *state;
	struct node_object *o[FILES], *busy;
	struct node_barrier b[1];
	int fd;

	f->n->opts.reserve = true;
	for (unsigned int i = 0; i < FILES; i++) {
		o[i] = make(f, i);
		pool_node_writer_direct(f->n, o[i], o, 1);
		pool_node_writer_flushed(f->n, o[i]);
	}
	fd = make_busy(f, FILES, &busy);
	assert_int_equal(1, looked_at(f, b, 1));
	assert_int_equal(NODE_WRITING, busy->state);
	close(fd);
	assert_int_equal(1, looked_at(f, b, 1));
	assert_int_not_equal(NODE_WRITING, busy->state);
	assert_int_equal(0, looked_at(f, b, 1));
	/* Pinned by the mount, without a handle; one of them is poisoned, one
	 * unlinked. */
	for (unsigned int i = 0; i < 3; i++)
		pool_node_writer_direct(f->n, o[i], NULL, 0);
	node_check(f->n);
	pool_node_poison(f->n, o[1], -EIO);
	node_object_ref(o[2]);
	assert_int_equal(0, pool_node_unlink(f->n, o[2]->entry));
	assert_int_equal(1, looked_at(f, b, 1));
	assert_int_not_equal(NODE_WRITING, o[0]->state);
	assert_int_equal(NODE_WRITING, o[1]->state);
	pool_node_writer_closed(f->n, o[2]);
	node_object_unref(f->n, o[2]);
	for (unsigned int i = 3; i < FILES; i++) {
		pool_node_writer_direct(f->n, o[i], NULL, 0);
		pool_node_writer_closed(f->n, o[i]);
		node_check(f->n);
		assert_int_not_equal(NODE_WRITING, o[i]->state);
	}
	assert_int_equal(0, looked_at(f, b, 1));
}

/* What makes it one may come in any order. */
static void a_file_is_looked_at_from_its_flush_or_rename_on(void **state)
{
	struct fixture *f = *state;
	struct node_object *o, *busy;
	struct pool_entry *to;
	struct node_barrier b[1];
	int fd;

	f->n->opts.reserve = true;
	o = make(f, 0);
	assert_int_equal(0, looked_at(f, b, 1));
	pool_node_writer_flushed(f->n, o);
	assert_int_equal(1, looked_at(f, b, 1));
	assert_int_not_equal(NODE_WRITING, o->state);
	pool_node_writer_closed(f->n, o);
	fd = make_busy(f, 1, &busy);
	assert_int_equal(0, pool_node_rename(f->n, &busy->entry->e,
					     pool_node_root(f->n), "k.tmp", 5,
					     false, &to));
	assert_int_equal(1, looked_at(f, b, 1));
	close(fd);
	o = make(f, 2);
	assert_int_equal(0, pool_node_rename(f->n, &o->entry->e,
					     pool_node_root(f->n), "to", 2,
					     false, &to));
	node_check(f->n);
	assert_int_equal(2, looked_at(f, b, 1));
	assert_int_not_equal(NODE_WRITING, busy->state);
	assert_int_not_equal(NODE_WRITING, o->state);
	pool_node_writer_closed(f->n, o);
}

static void fsyncs_of_one_turn_look_once(void **state)
{
	struct fixture *f = *state;
	struct node_object *o[10];
	struct node_barrier b[20];
	int fd[10];

	f->n->opts.reserve = true;
	for (unsigned int i = 0; i < 10; i++)
		fd[i] = make_busy(f, i, &o[i]);
	assert_int_equal(10, looked_at(f, b, 20));
	/* What ends between two of them is sealed for both. */
	assert_int_equal(0, pool_node_barrier_start(f->n, &b[0], on_synced));
	close(fd[0]);
	assert_int_equal(10, looked_at(f, b + 1, 1));
	assert_int_not_equal(NODE_WRITING, o[0]->state);
	assert_true(o[0]->w->ticket < b[0].ticket &&
		    b[0].ticket < b[1].ticket);
	pool_node_barrier_cancel(f->n, &b[0]);
	for (unsigned int i = 1; i < 10; i++)
		close(fd[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(the_loop_does_not_sleep_while_files_wait),
		T(a_turn_is_no_longer_for_many_that_wait),
		T(an_fsync_looks_at_what_it_may_seal),
		T(a_file_is_looked_at_from_its_flush_or_rename_on),
		T(fsyncs_of_one_turn_look_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
