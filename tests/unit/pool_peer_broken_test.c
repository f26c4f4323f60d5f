/*
 * Requests to a peer whose connection breaks before its owner knows, as when
 * the peer's daemon is replaced; and connections that are renewed. Two peer
 * modules on one loop, over 127.0.0.1.
 */
#include "tests/lib/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pool/peer/peer_priv.h"

#define SIZE ((size_t)300 << 10) /* sent over a lane */
#define SMALL 1000u

struct node {
	struct pool_peers *peers;
	bool open;
};

static struct {
	uv_loop_t loop;
	struct node a, b; /* a asks, b has */
	int obj;
	unsigned int gets;
	uint8_t content[SIZE], got[SIZE];
} t;

static int on_get(void *arg, const char *path, size_t path_len, uint64_t gen,
		  uint64_t length, bool copy, uint64_t *ret_size,
		  bool *ret_lendable)
{
	(void)length;
	(void)arg;
	(void)path;
	(void)path_len;
	(void)gen;
	(void)copy;
	t.gets++;
	*ret_size = SIZE;
	*ret_lendable = false;
	return fcntl(t.obj, F_DUPFD_CLOEXEC, 0);
}

static const struct pool_peers_ops ops = { .get = on_get };

static void node_open(struct node *n, char name)
{
	struct pool_peers_opts opts = {
		.loop = &t.loop,
		.id = { (uint8_t)name },
		.listen = { .host = "127.0.0.1" },
		.movers = 1,
		.ops = &ops,
	};

	assert_int_equal(0, pool_peers_open(&opts, &n->peers));
	n->open = true;
}

static void on_closed(void *arg)
{
	((struct node *)arg)->open = false;
}

static void node_close(struct node *n)
{
	pool_peers_close(n->peers, on_closed, n);
	unit_run_until(&t.loop, !n->open);
}

static int setup(void **state)
{
	size_t i;

	(void)state;
	alarm(60);
	memset(&t, 0, sizeof(t));
	for (i = 0; i < SIZE; i++)
		t.content[i] = (uint8_t)(i * 31 >> 3);
	t.obj = memfd_create("obj", MFD_CLOEXEC);
	assert_int_equal(SIZE, write(t.obj, t.content, SIZE));
	assert_int_equal(0, uv_loop_init(&t.loop));
	node_open(&t.a, 'a');
	node_open(&t.b, 'b');
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	node_close(&t.a);
	node_close(&t.b);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_int_equal(0, uv_loop_close(&t.loop));
	close(t.obj);
	alarm(0);
	return 0;
}

struct want {
	struct pool_fetch f;
	int calls, status;
	bool breaks; /* break the connection when this fetch ends */
	struct want *next; /* asked then */
};

static void want_start(struct want *w);

static struct peer *peer_b(void)
{
	static const uint8_t id[POOL_ID_SIZE] = { 'b' };

	return peer_find(t.a.peers, id);
}

static void break_connection(void)
{
	pool_conn_close(peer_b()->conns->tcp.conn);
}

static void on_fetched(struct pool_fetch *f, int status)
{
	struct want *w = (struct want *)f;

	w->calls++;
	w->status = status;
	if (w->breaks)
		break_connection();
	if (w->next)
		want_start(w->next);
}

static void want_start(struct want *w)
{
	assert_int_equal(0, pool_fetch_start(t.a.peers, &w->f, on_fetched));
	assert_int_equal(0, w->calls);
}

static void want_init(struct want *w, size_t length)
{
	memset(w, 0, sizeof(*w));
	w->f.from.id[0] = 'b';
	strcpy(w->f.from.tcp.host, "127.0.0.1");
	w->f.from.tcp.port = pool_peers_port(t.b.peers);
	w->f.path = "obj";
	w->f.path_len = 3;
	w->f.gen = 7;
	w->f.length = length;
	w->f.fd = -1;
	w->f.mem = t.got;
	w->f.timeout_ms = 20000;
}

static void want_wait(struct want *w)
{
	unit_run_until(&t.loop, w->calls);
	assert_int_equal(1, w->calls);
}

static void assert_came(struct want *w)
{
	want_wait(w);
	assert_int_equal(0, w->status);
	assert_memory_equal(t.got, t.content, w->f.length);
}

static void requests_before_the_end_is_known_use_the_next(size_t length)
{
	struct want first, next;

	want_init(&first, length);
	want_init(&next, length);
	want_start(&first);
	assert_came(&first);
	break_connection();
	want_start(&next);
	assert_came(&next);
}

static void
what_is_asked_of_a_broken_connection_goes_over_the_next(void **state)
{
	(void)state;
	requests_before_the_end_is_known_use_the_next(SMALL);
}

static void so_does_what_has_a_lane(void **state)
{
	(void)state;
	requests_before_the_end_is_known_use_the_next(SIZE);
}

/* One turn handles the answer to a request and the end of the connection. */
static void so_does_what_is_asked_from_a_callback(void **state)
{
	struct want first, next;

	(void)state;
	want_init(&first, SMALL);
	want_init(&next, SMALL);
	first.breaks = true;
	first.next = &next;
	want_start(&first);
	want_wait(&first);
	assert_came(&next);
	assert_int_equal(2, t.gets);
}

/* Before the next connection is up. */
static void what_waits_for_the_next_can_be_cancelled(void **state)
{
	struct want first, next;

	(void)state;
	want_init(&first, SMALL);
	want_init(&next, SMALL);
	want_start(&first);
	assert_came(&first);
	break_connection();
	want_start(&next);
	pool_fetch_cancel(t.a.peers, &next.f);
	want_wait(&next);
	assert_int_equal(-ECANCELED, next.status);
}

static void renew(void)
{
	struct peer_conns *before = peer_b()->conns;

	before->due_ms = 0;
	peers_renew_due(t.a.peers);
	assert_ptr_equal(before, peer_b()->old);
}

/* Earlier requests end on the old connections, later ones use new ones. */
static void connections_are_renewed_under(size_t length)
{
	struct want first, on_old, on_new;

	want_init(&first, length);
	want_init(&on_old, length);
	want_init(&on_new, length);
	want_start(&first);
	assert_came(&first);
	want_start(&on_old);
	renew();
	want_start(&on_new);
	assert_came(&on_old);
	assert_came(&on_new);
	assert_int_equal(3, t.gets);
	unit_run_until(&t.loop, !peer_b()->old);
	/* A second renewal uses the first lane numbers again. */
	renew();
	want_init(&on_new, length);
	want_start(&on_new);
	assert_came(&on_new);
	unit_run_until(&t.loop, !peer_b()->old);
}

static void connections_are_renewed_under_small_requests(void **state)
{
	(void)state;
	connections_are_renewed_under(SMALL);
}

static void connections_are_renewed_under_large_requests(void **state)
{
	(void)state;
	connections_are_renewed_under(SIZE);
}

/* Each request counts, and the last one makes them due. */
static void connections_whose_key_is_used_up_are_renewed(void **state)
{
	struct peer_conns *before;
	struct want w;

	(void)state;
	want_init(&w, SIZE);
	want_start(&w);
	assert_came(&w);
	before = peer_b()->conns;
	assert_int_equal(pool_tls_records(SIZE), before->records);
	before->records = POOL_TLS_KEY_RECORDS - pool_tls_records(SIZE) - 1;
	for (int i = 0; i < 2; i++) {
		want_init(&w, SIZE);
		want_start(&w);
		assert_came(&w);
		peers_renew_due(t.a.peers);
		assert_ptr_equal(i ? before : NULL, peer_b()->old);
	}
	assert_int_equal(0, peer_b()->conns->records);
	unit_run_until(&t.loop, !peer_b() || !peer_b()->old);
}

/* Connections without requests are closed; the next request makes new ones. */
static void idle_connections_that_are_due_are_closed(void **state)
{
	struct want w;

	(void)state;
	want_init(&w, SIZE);
	want_start(&w);
	assert_came(&w);
	renew();
	unit_run_until(&t.loop, !peer_b());
	want_init(&w, SIZE);
	want_start(&w);
	assert_came(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_is_asked_of_a_broken_connection_goes_over_the_next),
		T(so_does_what_has_a_lane),
		T(so_does_what_is_asked_from_a_callback),
		T(what_waits_for_the_next_can_be_cancelled),
		T(connections_are_renewed_under_small_requests),
		T(connections_are_renewed_under_large_requests),
		T(connections_whose_key_is_used_up_are_renewed),
		T(idle_connections_that_are_due_are_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
