/* Two nodes' peer modules in one process, on one loop, over 127.0.0.1 and over
 * Unix sockets. */
#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/conn/conn.h"
#include "pool/conn/kvpool.pb-c.h"
#include "pool/peer/peer_priv.h"

#define TIME_LIMIT_S 60
#define MIB ((size_t)1 << 20)

/* One node: its peer module and its only object. */
struct node {
	struct pool_peers *peers;
	bool open;
	int obj; /* owns, or -1 */
	uint64_t obj_size;
	int get_error; /* if set, the answer to every GET */
	bool unverified;
	unsigned int gets, lent, returned, recalled, lender_gone;
	char unix_path[64];
};

static struct {
	uv_loop_t loop;
	char *dir; /* owns */
	struct node a, b; /* a asks, b has */
	uint8_t *content;
} t;

/* ---- the holder's side ---- */

static int on_get(void *arg, const char *path, size_t path_len, uint64_t gen,
		  uint64_t length, bool copy, uint64_t *ret_size,
		  bool *ret_lendable)
{
	struct node *n = arg;
	char proc[64];

	(void)length;
	(void)copy;
	n->gets++;
	if (n->get_error)
		return n->get_error;
	if (path_len != 3 || memcmp(path, "obj", 3) || gen != 7)
		return -ENOENT;
	*ret_size = n->obj_size;
	*ret_lendable = !n->unverified;
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", n->obj);
	return open(proc, O_RDONLY | O_CLOEXEC);
}

static void on_lent(void *arg, const char *path, size_t len, uint64_t gen)
{
	(void)path;
	(void)len;
	(void)gen;
	((struct node *)arg)->lent++;
}

static void on_returned(void *arg, const char *path, size_t len, uint64_t gen)
{
	(void)path;
	(void)len;
	(void)gen;
	((struct node *)arg)->returned++;
}

static void on_recall(void *arg, const char *path, size_t len, uint64_t gen)
{
	assert_int_equal(len, 3);
	assert_memory_equal(path, "obj", 3);
	assert_true(gen == 7);
	((struct node *)arg)->recalled++;
}

static void on_lender_gone(void *arg, const uint8_t id[POOL_ID_SIZE])
{
	assert_int_equal(id[0], 'b');
	((struct node *)arg)->lender_gone++;
}

static const struct pool_peers_ops ops = {
	.get = on_get,
	.lent = on_lent,
	.returned = on_returned,
	.recall = on_recall,
	.lender_gone = on_lender_gone,
};

static void node_open_at(struct node *n, char name, bool fd_passing,
			 uint16_t port)
{
	struct pool_peers_opts opts = {
		.loop = &t.loop,
		.id = { (uint8_t)name },
		.listen = { .host = "127.0.0.1", .port = port },
		.unix_path = n->unix_path,
		.fd_passing = fd_passing,
		.movers = 2,
		.ops = &ops,
		.arg = n,
	};

	snprintf(n->unix_path, sizeof(n->unix_path), "%s/%c", t.dir, name);
	assert_int_equal(pool_peers_open(&opts, &n->peers), 0);
	n->open = true;
}

static void on_closed(void *arg)
{
	((struct node *)arg)->open = false;
}

static void node_close(struct node *n)
{
	if (!n->open)
		return;
	pool_peers_close(n->peers, on_closed, n);
	unit_run_until(&t.loop, !n->open);
}

/* As a store's file: on a tmpfs, and without writers. */
static int object_file(const void *bytes, size_t size)
{
	char proc[64];
	int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), ret;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, size), size);
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	ret = open(proc, O_RDONLY | O_CLOEXEC);
	assert_true(ret >= 0);
	close(fd);
	return ret;
}

static void object_make(struct node *n, size_t size)
{
	uint64_t x = 88172645463325252ull;

	if (n->obj >= 0)
		close(n->obj);
	free(t.content);
	t.content = malloc(size);
	for (size_t i = 0; i < size; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		t.content[i] = (uint8_t)x;
	}
	n->obj = object_file(t.content, size);
	n->obj_size = size;
}

static void object_cut(struct node *n, size_t size)
{
	char proc[64];

	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", n->obj);
	assert_int_equal(truncate(proc, (off_t)size), 0);
}

static int setup_with(bool fd_passing)
{
	alarm(TIME_LIMIT_S);
	memset(&t, 0, sizeof(t));
	t.a.obj = t.b.obj = -1;
	t.dir = unit_dir_make("/tmp/kvpool-peer");
	if (uv_loop_init(&t.loop))
		return -1;
	node_open_at(&t.a, 'a', fd_passing, 0);
	node_open_at(&t.b, 'b', fd_passing, 0);
	return 0;
}

static int setup(void **state)
{
	(void)state;
	return setup_with(true);
}

static int teardown(void **state)
{
	(void)state;
	node_close(&t.a);
	node_close(&t.b);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&t.loop), 0);
	if (t.b.obj >= 0)
		close(t.b.obj);
	free(t.content);
	/* Listeners remove their sockets: the directory is empty. */
	unit_dir_remove_empty(t.dir);
	return 0;
}

/* ---- the requester's side ---- */

struct want {
	struct pool_fetch f;
	int calls, status;
};

static void on_fetched(struct pool_fetch *f, int status)
{
	struct want *w = (struct want *)f;

	w->calls++;
	w->status = status;
}

static void want_init(struct want *w, uint64_t offset, uint64_t length)
{
	memset(w, 0, sizeof(*w));
	w->f.from.id[0] = 'b';
	strcpy(w->f.from.tcp.host, "127.0.0.1");
	w->f.from.tcp.port = t.b.open ? pool_peers_port(t.b.peers) : 1;
	w->f.path = "obj";
	w->f.path_len = 3;
	w->f.gen = 7;
	w->f.offset = offset;
	w->f.length = length;
	w->f.fd = -1;
	w->f.timeout_ms = 20000;
}

static void want_start(struct want *w)
{
	assert_int_equal(pool_fetch_start(t.a.peers, &w->f, on_fetched), 0);
	assert_int_equal(w->calls, 0);
}

static void want_wait(struct want *w)
{
	unit_run_until(&t.loop, w->calls);
	assert_int_equal(w->calls, 1);
}

static void assert_sum(const struct want *w)
{
	XXH128_hash_t sum = XXH3_128bits(t.content + w->f.offset,
					 w->f.length);

	assert_true(XXH128_isEqual(sum, w->f.sum));
}

static void fetch_to_file(uint64_t offset, uint64_t length)
{
	struct want w;
	uint8_t *got = malloc(length);
	int fd = memfd_create("to", MFD_CLOEXEC);
	struct stat st;

	want_init(&w, offset, length);
	w.f.fd = fd;
	want_start(&w);
	want_wait(&w);
	assert_int_equal(w.status, 0);
	assert_int_equal(w.f.lent_fd, -1);
	assert_sum(&w);
	assert_int_equal(pread(fd, got, length, (off_t)offset), length);
	assert_memory_equal(got, t.content + offset, length);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, offset + length);
	close(fd);
	free(got);
}

static void fetch_to_memory(uint64_t offset, uint64_t length)
{
	struct want w;
	/* The bytes around the range must not change. */
	uint8_t *got = malloc(length + 16);

	memset(got, 0xee, length + 16);
	want_init(&w, offset, length);
	w.f.mem = got + 8;
	want_start(&w);
	want_wait(&w);
	assert_int_equal(w.status, 0);
	assert_sum(&w);
	assert_memory_equal(got + 8, t.content + offset, length);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(got[i], 0xee);
		assert_int_equal(got[length + 8 + (size_t)i], 0xee);
	}
	free(got);
}

/* ---- tests ---- */

static void ranges_of_any_size_land_in_files_and_memory(void **state)
{
	static const uint64_t sizes[] = {
		1, 4095, POOL_INLINE_MAX, POOL_INLINE_MAX + 1, MIB - 1,
		2 * MIB, 2 * MIB + 1, 9 * MIB + 13,
	};

	(void)state;
	object_make(&t.b, 10 * MIB);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		fetch_to_file(0, sizes[i]);
		fetch_to_memory(0, sizes[i]);
		fetch_to_file(12345, sizes[i]);
		fetch_to_memory(12345, sizes[i]);
	}
}

static void many_fetches_at_once_all_end_well(void **state)
{
	enum { N = 600 }; /* beyond POOL_PEER_INFLIGHT_MAX */
	struct want *w = calloc(N, sizeof(*w));
	uint8_t *got = malloc(N * (size_t)4096 + 20 * MIB);
	size_t at = 0;

	(void)state;
	object_make(&t.b, 4 * MIB);
	for (int i = 0; i < N; i++) {
		uint64_t len = i % 30 ? 4096 : MIB;

		want_init(&w[i], (uint64_t)i * 1000, len);
		w[i].f.mem = got + at;
		at += len;
		want_start(&w[i]);
	}
	for (int i = 0; i < N; i++) {
		want_wait(&w[i]);
		assert_int_equal(w[i].status, 0);
		assert_sum(&w[i]);
		assert_memory_equal(w[i].f.mem, t.content + w[i].f.offset,
				    w[i].f.length);
	}
	free(got);
	free(w);
}

static void a_missing_object_is_enoent_small_and_large(void **state)
{
	struct want w;
	static const uint64_t sizes[] = { 100, 3 * MIB };
	uint8_t *mem = malloc(3 * MIB);

	(void)state;
	object_make(&t.b, 4 * MIB);
	for (int i = 0; i < 2; i++) {
		want_init(&w, 0, sizes[i]);
		w.f.gen = 8;
		w.f.mem = mem;
		want_start(&w);
		want_wait(&w);
		assert_int_equal(w.status, -ENOENT);
	}
	/* The lane still works. */
	fetch_to_memory(0, 3 * MIB);
	free(mem);
}

static void a_range_beyond_the_object_is_refused(void **state)
{
	struct want w;
	uint8_t mem[200];

	(void)state;
	object_make(&t.b, 100);
	want_init(&w, 50, 51);
	w.f.mem = mem;
	want_start(&w);
	want_wait(&w);
	assert_int_equal(w.status, -EINVAL);
}

static void senseless_fetches_never_start(void **state)
{
	struct want w;
	uint8_t mem[8];

	(void)state;
	want_init(&w, 0, 0);
	w.f.mem = mem;
	assert_int_equal(pool_fetch_start(t.a.peers, &w.f, on_fetched),
			 -EINVAL);
	want_init(&w, INT64_MAX, 8);
	w.f.mem = mem;
	assert_int_equal(pool_fetch_start(t.a.peers, &w.f, on_fetched),
			 -EINVAL);
	want_init(&w, 0, 8);
	assert_int_equal(pool_fetch_start(t.a.peers, &w.f, on_fetched),
			 -EINVAL);
	assert_int_equal(w.calls, 0);
}

/* A borrower does not verify the bytes, so only verified objects are lent. */
static void what_is_not_verified_is_sent_not_lent(void **state)
{
	struct want w;
	uint8_t got[1000];

	(void)state;
	object_make(&t.b, sizeof(got));
	t.b.unverified = true;
	want_init(&w, 0, sizeof(got));
	strcpy(w.f.from.unix_path, t.b.unix_path);
	w.f.mem = got;
	w.f.fd_ok = true;
	want_start(&w);
	want_wait(&w);
	assert_int_equal(w.status, 0);
	assert_int_equal(w.f.lent_fd, -1);
	assert_memory_equal(got, t.content, sizeof(got));
	assert_sum(&w);
	t.b.unverified = false;
}

static void on_one_host_a_descriptor_is_lent_and_given_back(void **state)
{
	struct want w;
	uint8_t *got = malloc(4 * MIB);

	(void)state;
	object_make(&t.b, 4 * MIB);
	want_init(&w, 0, 4 * MIB);
	strcpy(w.f.from.unix_path, t.b.unix_path);
	w.f.mem = got;
	w.f.fd_ok = true;
	want_start(&w);
	want_wait(&w);
	assert_int_equal(w.status, 0);
	assert_true(w.f.lent_fd >= 0);
	assert_int_equal(fcntl(w.f.lent_fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_true(fcntl(w.f.lent_fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(pread(w.f.lent_fd, got, 4 * MIB, 0), 4 * MIB);
	assert_memory_equal(got, t.content, 4 * MIB);
	assert_int_equal(t.b.lent, 1);
	assert_int_equal(t.b.returned, 0);

	assert_int_equal(pool_peers_recall(t.b.peers, "obj", 3, 7), 1);
	assert_int_equal(pool_peers_recall(t.b.peers, "obj", 3, 6), 0);
	unit_run_until(&t.loop, t.a.recalled);
	close(w.f.lent_fd);
	pool_peers_return(t.a.peers, w.f.from.id, "obj", 3, 7);
	unit_run_until(&t.loop, t.b.returned);
	assert_int_equal(pool_peers_recall(t.b.peers, "obj", 3, 7), 0);
	free(got);
}

/* b's object of 8 bytes, lent to a by its descriptor. */
static void borrow(struct want *w, uint8_t mem[8])
{
	object_make(&t.b, 8);
	want_init(w, 0, 8);
	strcpy(w->f.from.unix_path, t.b.unix_path);
	w->f.mem = mem;
	w->f.fd_ok = true;
	want_start(w);
	want_wait(w);
	assert_true(w->f.lent_fd >= 0);
}

static void what_was_lent_is_back_when_the_borrower_goes(void **state)
{
	struct want w;
	uint8_t mem[8];

	(void)state;
	borrow(&w, mem);
	node_close(&t.a);
	unit_run_until(&t.loop, t.b.returned);
	assert_int_equal(t.b.returned, 1);
	/* The descriptor is still valid. */
	assert_int_equal(pread(w.f.lent_fd, mem, 8, 0), 8);
	close(w.f.lent_fd);
}

/* Closing the connection would return the descriptors. Another idle connection,
 * which was used later, is closed; when that happens, this one has been checked
 * as well. */
static void a_borrower_keeps_its_connection(void **state)
{
	struct want w, other;
	uint8_t mem[8], got[8];

	(void)state;
	t.b.peers->opts.session_idle_ms = 50;
	borrow(&w, mem);
	want_init(&other, 0, 8);
	other.f.mem = got;
	want_start(&other);
	want_wait(&other);
	assert_int_equal(other.status, 0);
	assert_int_equal(other.f.lent_fd, -1);
	unit_run_until(&t.loop, t.b.peers->metrics.sessions_idle.v);
	/* Runs some turns, in which a close would be noticed. */
	want_init(&other, 0, 8);
	other.f.mem = got;
	want_start(&other);
	want_wait(&other);
	assert_int_equal(t.b.returned, 0);
	assert_int_equal(t.a.lender_gone, 0);
	close(w.f.lent_fd);
	pool_peers_return(t.a.peers, w.f.from.id, "obj", 3, 7);
	unit_run_until(&t.loop, t.b.returned);
}

static void the_borrower_is_notified_when_the_lender_closes(void **state)
{
	struct want w;
	uint8_t mem[8];

	(void)state;
	borrow(&w, mem);
	node_close(&t.b);
	assert_int_equal(t.b.returned, 1);
	unit_run_until(&t.loop, t.a.lender_gone);
	close(w.f.lent_fd);
}

static void beyond_the_lending_limit_bytes_are_sent(void **state)
{
	int fds[POOL_LENT_MAX];
	struct want w;
	uint8_t mem[8];

	(void)state;
	object_make(&t.b, 8);
	for (int i = 0; i <= POOL_LENT_MAX; i++) {
		want_init(&w, 0, 8);
		strcpy(w.f.from.unix_path, t.b.unix_path);
		w.f.mem = mem;
		w.f.fd_ok = true;
		want_start(&w);
		want_wait(&w);
		assert_int_equal(w.status, 0);
		if (i < POOL_LENT_MAX) {
			assert_true(w.f.lent_fd >= 0);
			fds[i] = w.f.lent_fd;
		}
	}
	assert_int_equal(w.f.lent_fd, -1);
	assert_sum(&w);
	assert_memory_equal(mem, t.content, 8);
	for (int i = 0; i < POOL_LENT_MAX; i++)
		close(fds[i]);
}

static void without_the_unix_socket_bytes_come_by_tcp(void **state)
{
	struct want w;
	uint8_t *mem = malloc(MIB);

	(void)state;
	object_make(&t.b, MIB);
	for (int i = 0; i < 2; i++) {
		want_init(&w, 0, MIB);
		strcpy(w.f.from.unix_path, "/nonexistent/socket");
		w.f.mem = mem;
		w.f.fd_ok = true;
		want_start(&w);
		want_wait(&w);
		assert_int_equal(w.status, 0);
		assert_int_equal(w.f.lent_fd, -1);
		assert_memory_equal(mem, t.content, MIB);
	}
	free(mem);
}

static void parts_of_an_object_are_never_lent(void **state)
{
	struct want w;
	uint8_t mem[8];

	(void)state;
	object_make(&t.b, 16);
	for (uint64_t offset = 0; offset <= 8; offset += 8) {
		want_init(&w, offset, 8);
		strcpy(w.f.from.unix_path, t.b.unix_path);
		w.f.mem = mem;
		w.f.fd_ok = true;
		want_start(&w);
		want_wait(&w);
		assert_int_equal(w.status, 0);
		assert_int_equal(w.f.lent_fd, -1);
		assert_sum(&w);
	}
	assert_int_equal(t.b.lent, 0);
}

static void a_refused_connection_fails_the_fetch_at_once(void **state)
{
	struct want w[2];
	uint8_t *mem = malloc(MIB);

	(void)state;
	node_close(&t.b);
	want_init(&w[0], 0, 100);
	want_init(&w[1], 0, MIB);
	for (int i = 0; i < 2; i++) {
		w[i].f.mem = mem;
		want_start(&w[i]);
	}
	for (int i = 0; i < 2; i++) {
		want_wait(&w[i]);
		assert_int_equal(w[i].status, -ECONNREFUSED);
	}
	free(mem);
}

static void after_the_holder_restarted_fetches_work_again(void **state)
{
	struct want w;
	uint16_t port = pool_peers_port(t.b.peers);
	uint8_t *mem = malloc(3 * MIB);

	(void)state;
	object_make(&t.b, 3 * MIB);
	fetch_to_memory(0, 3 * MIB);
	fetch_to_memory(0, 100);
	node_close(&t.b);
	node_open_at(&t.b, 'b', true, port);
	/* Requests on the old connections may fail. */
	do {
		want_init(&w, 0, 3 * MIB);
		w.f.mem = mem;
		want_start(&w);
		want_wait(&w);
	} while (w.status == -ECONNRESET);
	assert_int_equal(w.status, 0);
	fetch_to_memory(0, 100);
	fetch_to_file(0, 3 * MIB);
	free(mem);
}

static void another_node_at_the_address_is_not_taken_for_it(void **state)
{
	struct want w[2];
	uint8_t *mem = malloc(MIB);

	(void)state;
	object_make(&t.b, MIB);
	want_init(&w[0], 0, 100);
	want_init(&w[1], 0, MIB);
	for (int i = 0; i < 2; i++) {
		w[i].f.from.id[0] = 'c';
		w[i].f.mem = mem;
		want_start(&w[i]);
	}
	for (int i = 0; i < 2; i++) {
		want_wait(&w[i]);
		assert_int_equal(w[i].status, -EHOSTDOWN);
	}
	free(mem);
}

/* A listener whose connections the kernel accepts, and that never sends
 * anything. */
static int silent_listener(uint16_t *ret_port)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	socklen_t len = sizeof(in);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof(in)), 0);
	assert_int_equal(listen(fd, 8), 0);
	getsockname(fd, (struct sockaddr *)&in, &len);
	*ret_port = ntohs(in.sin_port);
	return fd;
}

static void a_silent_holder_ends_in_a_timeout(void **state)
{
	struct want w[2];
	uint8_t *mem = malloc(MIB);
	uint16_t port;
	int fd = silent_listener(&port);

	(void)state;
	want_init(&w[0], 0, 100);
	want_init(&w[1], 0, MIB);
	for (int i = 0; i < 2; i++) {
		w[i].f.from.tcp.port = port;
		w[i].f.mem = mem;
		w[i].f.timeout_ms = 100 + 50 * (unsigned int)i;
		want_start(&w[i]);
	}
	for (int i = 0; i < 2; i++) {
		want_wait(&w[i]);
		assert_int_equal(w[i].status, -ETIMEDOUT);
	}
	close(fd);
	free(mem);
}

static void a_cancelled_fetch_says_so_once_and_nothing_lands_after(
	void **state)
{
	enum { N = 40 };
	size_t len = 6 * MIB;
	uint8_t *mem = malloc(len);

	(void)state;
	object_make(&t.b, len);
	fetch_to_memory(0, len);
	/* Cancels after different numbers of turns of a transfer. */
	for (int turns = 0; turns < N; turns++) {
		struct want w;
		uint8_t before[64];

		want_init(&w, 0, turns % 4 == 3 ? 1000 : len);
		w.f.mem = mem;
		want_start(&w);
		for (int i = 0; i < turns && !w.calls; i++) {
			uv_run(&t.loop, UV_RUN_NOWAIT);
			usleep(20);
		}
		if (w.calls)
			continue;
		pool_fetch_cancel(t.a.peers, &w.f);
		assert_int_equal(w.calls, 0);
		want_wait(&w);
		assert_int_equal(w.status, -ECANCELED);
		memset(mem, turns, len);
		memset(before, turns, sizeof(before));
		fetch_to_memory(0, 2 * MIB); /* the lane still works */
		for (size_t at = 0; at < len; at += MIB / 2)
			assert_memory_equal(mem + at, before, sizeof(before));
	}
	free(mem);
}

static void a_fetch_to_file_can_be_cancelled_at_any_moment(void **state)
{
	size_t len = 8 * MIB;

	(void)state;
	object_make(&t.b, len);
	for (int turns = 0; turns < 30; turns++) {
		int fd = memfd_create("to", MFD_CLOEXEC);
		struct want w;

		want_init(&w, 0, len);
		w.f.fd = fd;
		want_start(&w);
		for (int i = 0; i < turns && !w.calls; i++) {
			uv_run(&t.loop, UV_RUN_NOWAIT);
			usleep(50);
		}
		if (!w.calls)
			pool_fetch_cancel(t.a.peers, &w.f);
		want_wait(&w);
		assert_true(w.status == 0 || w.status == -ECANCELED);
		/* A late write would hit the next file with this descriptor. */
		close(fd);
	}
	fetch_to_file(0, len);
}

static void a_cancelled_loan_is_given_back(void **state)
{
	struct want w;
	uint8_t mem[8];

	(void)state;
	object_make(&t.b, 8);
	want_init(&w, 0, 8);
	strcpy(w.f.from.unix_path, t.b.unix_path);
	w.f.mem = mem;
	w.f.fd_ok = true;
	want_start(&w);
	pool_fetch_cancel(t.a.peers, &w.f);
	want_wait(&w);
	assert_int_equal(w.status, -ECANCELED);
	unit_run_until(&t.loop, t.b.lent && t.b.returned == t.b.lent);
}

static void a_file_that_cannot_be_written_fails_the_fetch(void **state)
{
	static const uint64_t sizes[] = { 100, 5 * MIB };
	struct want w;

	(void)state;
	object_make(&t.b, 5 * MIB);
	for (int i = 0; i < 2; i++) {
		want_init(&w, 0, sizes[i]);
		w.f.fd = open("/dev/full", O_RDWR | O_CLOEXEC);
		want_start(&w);
		want_wait(&w);
		assert_int_equal(w.status, -ENOSPC);
		close(w.f.fd);
	}
	fetch_to_file(0, 5 * MIB); /* the connections still work */
}

static void a_get_that_comes_too_early_is_answered_later(void **state)
{
	struct want w[2];
	uint8_t *mem = malloc(2000);

	(void)state;
	object_make(&t.b, 1000);
	t.b.get_error = -EINPROGRESS;
	for (int i = 0; i < 2; i++) {
		want_init(&w[i], 0, 1000);
		w[i].f.mem = mem + 1000 * i;
		want_start(&w[i]);
	}
	unit_run_until(&t.loop, t.b.gets >= 2);
	pool_peers_again(t.b.peers); /* still not */
	assert_int_equal(t.b.gets, 4);
	t.b.get_error = 0;
	pool_peers_again(t.b.peers);
	for (int i = 0; i < 2; i++) {
		want_wait(&w[i]);
		assert_int_equal(w[i].status, 0);
		assert_memory_equal(mem + 1000 * i, t.content, 1000);
	}
	/* It never comes. */
	t.b.get_error = -EINPROGRESS;
	want_init(&w[0], 0, 1000);
	w[0].f.mem = mem;
	want_start(&w[0]);
	want_wait(&w[0]);
	assert_int_equal(w[0].status, -ENOENT);
	/* The asker closes before the answer. */
	want_init(&w[0], 0, 1000);
	w[0].f.mem = mem;
	want_start(&w[0]);
	unit_run_until(&t.loop, t.b.gets >= 8);
	node_close(&t.a);
	want_wait(&w[0]);
	t.b.get_error = 0;
	pool_peers_again(t.b.peers);
	free(mem);
}

static void an_object_shorter_than_promised_breaks_the_transfer(void **state)
{
	static const uint64_t sizes[] = { 1000, 3 * MIB };
	uint8_t *mem = malloc(3 * MIB);
	struct want w;

	(void)state;
	object_make(&t.b, 4 * MIB);
	for (int i = 0; i < 2; i++) {
		object_cut(&t.b, sizes[i] / 2);
		want_init(&w, 0, sizes[i]);
		w.f.mem = mem;
		want_start(&w);
		want_wait(&w);
		assert_int_equal(w.status, -ECONNRESET);
	}
	free(mem);
}

static void closing_cancels_what_is_under_way(void **state)
{
	enum { N = 20 };
	struct want w[N];
	uint8_t *mem = malloc(N * 3 * MIB);

	(void)state;
	object_make(&t.b, 3 * MIB);
	fetch_to_memory(0, 3 * MIB);
	for (int i = 0; i < N; i++) {
		want_init(&w[i], 0, i % 3 ? 3 * MIB : 1000);
		w[i].f.mem = mem + (size_t)i * 3 * MIB;
		want_start(&w[i]);
	}
	uv_run(&t.loop, UV_RUN_NOWAIT);
	pool_peers_close(t.a.peers, on_closed, &t.a);
	for (int i = 0; i < N; i++) {
		assert_int_equal(w[i].calls, 1);
		assert_true(w[i].status == -ECANCELED || w[i].status == 0);
	}
	free(mem);
	unit_run_until(&t.loop, !t.a.open);
}

/* A raw connection to b. */
static int dial_raw(void)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	in.sin_port = htons(pool_peers_port(t.b.peers));
	assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof(in)), 0);
	return fd;
}

static void send_raw(int fd, uint16_t type, const ProtobufCMessage *msg)
{
	uint8_t b[1024];
	struct pool_frame f = { .version = POOL_WIRE_VERSION, .type = type };

	f.payload_len =
		(uint32_t)protobuf_c_message_pack(msg, b + POOL_WIRE_HEADER);
	pool_frame_encode(&f, b);
	assert_int_equal(write(fd, b, POOL_WIRE_HEADER + f.payload_len),
			 POOL_WIRE_HEADER + f.payload_len);
}

/* Runs the loop until the other side has closed fd; discards the input. */
static void wait_closed(int fd)
{
	char buf[4096];
	ssize_t r;

	do {
		uv_run(&t.loop, UV_RUN_NOWAIT);
		r = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
	} while (r > 0 || (r < 0 && errno == EAGAIN));
	close(fd);
}

static void connections_without_hello_are_closed(void **state)
{
	Kvpool__Get get = KVPOOL__GET__INIT;
	Kvpool__Hello hello = KVPOOL__HELLO__INIT;
	uint8_t id[POOL_ID_SIZE] = { 'z' };
	int fd = dial_raw();

	(void)state;
	send_raw(fd, POOL_MSG_GET, &get.base);
	wait_closed(fd);
	fd = dial_raw();
	hello.id.data = id;
	hello.id.len = 5;
	send_raw(fd, POOL_MSG_HELLO, &hello.base);
	wait_closed(fd);
	fd = dial_raw();
	hello.id.len = sizeof(id);
	hello.lane = 4000000000u;
	send_raw(fd, POOL_MSG_HELLO, &hello.base);
	wait_closed(fd);
	assert_int_equal(t.b.gets, 0);
}

static void a_lane_that_speaks_is_closed(void **state)
{
	Kvpool__Get get = KVPOOL__GET__INIT;
	Kvpool__Hello hello = KVPOOL__HELLO__INIT;
	uint8_t id[POOL_ID_SIZE] = { 'z' };
	int fd = dial_raw();
	char b[256];

	(void)state;
	hello.id.data = id;
	hello.id.len = sizeof(id);
	hello.lane = 1;
	send_raw(fd, POOL_MSG_HELLO, &hello.base);
	while (recv(fd, b, sizeof(b), MSG_DONTWAIT) < 0)
		uv_run(&t.loop, UV_RUN_NOWAIT);
	send_raw(fd, POOL_MSG_GET, &get.base);
	wait_closed(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(ranges_of_any_size_land_in_files_and_memory),
		T(many_fetches_at_once_all_end_well),
		T(a_missing_object_is_enoent_small_and_large),
		T(a_range_beyond_the_object_is_refused),
		T(senseless_fetches_never_start),
		T(on_one_host_a_descriptor_is_lent_and_given_back),
		T(what_is_not_verified_is_sent_not_lent),
		T(what_was_lent_is_back_when_the_borrower_goes),
		T(a_borrower_keeps_its_connection),
		T(the_borrower_is_notified_when_the_lender_closes),
		T(beyond_the_lending_limit_bytes_are_sent),
		T(without_the_unix_socket_bytes_come_by_tcp),
		T(parts_of_an_object_are_never_lent),
		T(a_refused_connection_fails_the_fetch_at_once),
		T(after_the_holder_restarted_fetches_work_again),
		T(another_node_at_the_address_is_not_taken_for_it),
		T(a_silent_holder_ends_in_a_timeout),
		T(a_cancelled_fetch_says_so_once_and_nothing_lands_after),
		T(a_fetch_to_file_can_be_cancelled_at_any_moment),
		T(a_cancelled_loan_is_given_back),
		T(a_file_that_cannot_be_written_fails_the_fetch),
		T(an_object_shorter_than_promised_breaks_the_transfer),
		T(closing_cancels_what_is_under_way),
		T(a_get_that_comes_too_early_is_answered_later),
		T(connections_without_hello_are_closed),
		T(a_lane_that_speaks_is_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
