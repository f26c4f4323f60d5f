/*
 * Which descriptors from a peer are accepted. On a Unix socket the test plays
 * the peer, and answers each GET with any descriptor; over TCP the peer is a
 * real one.
 */
#include "tests/lib/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "pool/peer/peer_priv.h"

#define SIZE 5000
#define TIME_LIMIT_S 60

static struct {
	uv_loop_t loop;
	char *dir; /* owns */
	char socket[108], file[108], holder[108];
	struct pool_peers *asker, *honest;
	bool asker_open, honest_open;
	struct pool_listener *listener;
	struct pool_conn *conn; /* the asker's connection to the played peer */
	int fd;			/* that it lends */
	unsigned int lent, returned;
	uint8_t bytes[SIZE], got[SIZE];
	int status, calls;
} t;

/* ---- the played peer ---- */

static void on_frame(struct pool_conn *c, const struct pool_frame *f,
		     const uint8_t *payload, int fd)
{
	Kvpool__Hello hello = KVPOOL__HELLO__INIT;
	Kvpool__Lent lent = KVPOOL__LENT__INIT;
	uint8_t id[POOL_ID_SIZE] = "b";

	(void)payload;
	assert_int_equal(fd, -1);
	if (f->type == POOL_MSG_HELLO) {
		hello.version = pool_wire_version;
		hello.id.data = id;
		hello.id.len = POOL_ID_SIZE;
		assert_int_equal(pool_conn_send(c, POOL_MSG_HELLO, 0,
						&hello.base), 0);
	} else if (f->type == POOL_MSG_GET) {
		lent.size = SIZE;
		assert_int_equal(pool_conn_send_fd(c, POOL_MSG_LENT, f->req,
						   &lent.base, t.fd), 0);
		t.lent++;
	} else if (f->type == POOL_MSG_RETURN) {
		t.returned++;
	}
}

static void on_close(struct pool_conn *c, int err)
{
	(void)c;
	(void)err;
	t.conn = NULL;
}

static const struct pool_conn_ops played = {
	.on_frame = on_frame,
	.on_close = on_close,
};

static void on_accept(void *arg, int fd)
{
	struct pool_conn_opts opts = { .ops = &played };

	(void)arg;
	assert_int_equal(pool_conn_from_fd(&t.loop, fd, &opts, &t.conn), 0);
}

/* ---- the honest one, and who asks ---- */

static int on_get(void *arg, const char *path, size_t len, uint64_t gen,
		  uint64_t length, bool copy, uint64_t *ret_size,
		  bool *ret_lendable)
{
	(void)length;
	(void)arg;
	(void)path;
	(void)len;
	(void)gen;
	(void)copy;
	*ret_size = SIZE;
	*ret_lendable = true;
	return open(t.file, O_RDONLY | O_CLOEXEC);
}

static const struct pool_peers_ops ops = { .get = on_get };

static void peers_open(char name, const char *path, struct pool_peers **ret)
{
	struct pool_peers_opts opts = {
		.loop = &t.loop,
		.id = { (uint8_t)name },
		.listen = { .host = "127.0.0.1" },
		.unix_path = path,
		.fd_passing = true,
		.movers = 1,
		.ops = &ops,
	};

	assert_int_equal(pool_peers_open(&opts, ret), 0);
}

static void file_make(const char *path)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, t.bytes, SIZE), SIZE);
	close(fd);
}

static int setup(void **state)
{
	(void)state;
	alarm(TIME_LIMIT_S);
	memset(&t, 0, sizeof(t));
	t.dir = unit_dir_make("/dev/shm/kvpool-lent");
	if (uv_loop_init(&t.loop))
		return -1;
	snprintf(t.socket, sizeof(t.socket), "%s/s", t.dir);
	snprintf(t.file, sizeof(t.file), "%s/f", t.dir);
	for (size_t i = 0; i < SIZE; i++)
		t.bytes[i] = (uint8_t)(i * 7);
	file_make(t.file);
	snprintf(t.holder, sizeof(t.holder), "%s/h", t.dir);
	peers_open('a', NULL, &t.asker);
	peers_open('b', t.holder, &t.honest);
	t.asker_open = t.honest_open = true;
	return pool_listener_open_unix(&t.loop, t.socket, on_accept, NULL,
				       &t.listener);
}

static void on_closed(void *arg)
{
	*(bool *)arg = false;
}

static int teardown(void **state)
{
	(void)state;
	pool_peers_close(t.asker, on_closed, &t.asker_open);
	pool_peers_close(t.honest, on_closed, &t.honest_open);
	unit_run_until(&t.loop, !t.asker_open && !t.honest_open && !t.conn);
	pool_listener_close(t.listener);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&t.loop), 0);
	unlink(t.file);
	unit_dir_remove_empty(t.dir);
	return 0;
}

static void on_fetched(struct pool_fetch *f, int status)
{
	(void)f;
	t.calls++;
	t.status = status;
}

/* Is fd, which the peer lends, accepted? If not, the asker gets bytes. */
static bool is_taken(int fd)
{
	struct pool_fetch f = { .path = "obj", .path_len = 3, .gen = 7,
				.length = SIZE, .fd = -1, .lent_fd = -1,
				.mem = t.got, .fd_ok = true,
				.timeout_ms = 20000 };
	unsigned int lent = t.lent, returned = t.returned;
	bool taken;

	assert_true(fd >= 0);
	t.fd = fd;
	t.calls = 0;
	memset(t.got, 0, SIZE);
	f.from.id[0] = 'b';
	strcpy(f.from.tcp.host, "127.0.0.1");
	f.from.tcp.port = pool_peers_port(t.honest);
	strcpy(f.from.unix_path, t.socket);
	assert_int_equal(pool_fetch_start(t.asker, &f, on_fetched), 0);
	unit_run_until(&t.loop, t.calls);
	assert_int_equal(t.status, 0);
	assert_int_equal(t.lent, lent + 1);
	taken = f.lent_fd >= 0;
	if (taken)
		close(f.lent_fd);
	else
		assert_memory_equal(t.got, t.bytes, SIZE);
	unit_run_until(&t.loop,
		       taken || t.returned != returned); /* RETURN received */
	close(fd);
	return taken;
}

static int opened(const char *path, int flags)
{
	return open(path, flags | O_CLOEXEC);
}

/* ---- tests ---- */

static void a_whole_file_of_ours_that_nobody_writes_is_taken(void **state)
{
	(void)state;
	assert_true(is_taken(opened(t.file, O_RDONLY)));
	assert_int_equal(chmod(t.file, 0444), 0);
	assert_true(is_taken(opened(t.file, O_RDONLY)));
}

static void what_cannot_be_read_through_is_not_taken(void **state)
{
	(void)state;
	assert_false(is_taken(opened(t.file, O_PATH)));
	assert_true(is_taken(opened(t.file, O_RDONLY)));
}

static void what_can_be_written_through_is_not_taken(void **state)
{
	(void)state;
	assert_false(is_taken(opened(t.file, O_RDWR)));
	assert_false(is_taken(opened(t.file, O_WRONLY)));
	assert_true(is_taken(opened(t.file, O_RDONLY)));
}

/* To read it may block. */
static void a_file_on_a_disk_is_not_taken(void **state)
{
	char *dir = unit_dir_make("/var/tmp/kvpool-lent"), path[64];
	struct statfs fs;
	bool taken;

	(void)state;
	snprintf(path, sizeof(path), "%s/f", dir);
	file_make(path);
	assert_int_equal(statfs(path, &fs), 0);
	taken = is_taken(opened(path, O_RDONLY));
	unlink(path);
	unit_dir_remove_empty(dir);
	assert_int_equal(taken, fs.f_type == TMPFS_MAGIC);
}

static void a_file_that_somebody_has_open_for_writing_is_not_taken(void **state)
{
	int writer = opened(t.file, O_WRONLY);
	void *p;

	(void)state;
	assert_false(is_taken(opened(t.file, O_RDONLY)));
	close(writer);
	assert_true(is_taken(opened(t.file, O_RDONLY)));
	writer = opened(t.file, O_RDWR);
	p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, writer, 0);
	assert_true(p != MAP_FAILED);
	close(writer);
	assert_false(is_taken(opened(t.file, O_RDONLY)));
	munmap(p, SIZE);
	assert_true(is_taken(opened(t.file, O_RDONLY)));
}

static void a_file_that_others_may_write_is_not_taken(void **state)
{
	(void)state;
	assert_int_equal(chmod(t.file, 0602), 0);
	assert_false(is_taken(opened(t.file, O_RDONLY)));
	assert_int_equal(chmod(t.file, 0620), 0);
	assert_false(is_taken(opened(t.file, O_RDONLY)));
	assert_int_equal(chmod(t.file, 0600), 0);
	if (geteuid() == 0) {
		assert_int_equal(chown(t.file, 65533, 65533), 0);
		assert_false(is_taken(opened(t.file, O_RDONLY)));
		assert_int_equal(chown(t.file, 0, 0), 0);
	}
	assert_true(is_taken(opened(t.file, O_RDONLY)));
}

static void a_file_of_another_size_is_not_taken(void **state)
{
	(void)state;
	assert_int_equal(truncate(t.file, SIZE + 1), 0);
	assert_false(is_taken(opened(t.file, O_RDONLY)));
	assert_int_equal(truncate(t.file, SIZE), 0);
	assert_true(is_taken(opened(t.file, O_RDONLY)));
}

static void what_is_no_file_of_a_tmpfs_is_not_taken(void **state)
{
	int fds[2];

	(void)state;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_false(is_taken(fds[0]));
	close(fds[1]);
	assert_false(is_taken(opened(t.dir, O_RDONLY | O_DIRECTORY)));
	assert_false(is_taken(opened("/dev/zero", O_RDONLY)));
	assert_false(is_taken(opened("/proc/self/status", O_RDONLY)));
}

/* ---- other users ---- */

#define OTHER 65533

static struct sockaddr_un unix_address(const char *path)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };

	snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
	return un;
}

/* The kernel records the user when listen and connect are called. */
static void listen_as_other(void)
{
	struct sockaddr_un un = unix_address(t.socket);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	pool_listener_close(t.listener);
	assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
	assert_int_equal(seteuid(OTHER), 0);
	assert_int_equal(listen(fd, 5), 0);
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(pool_listener_from_fd(&t.loop, fd, t.socket, on_accept,
					       NULL, &t.listener), 0);
}

static void nothing_is_asked_of_another_users_socket(void **state)
{
	struct pool_fetch f = { .path = "obj", .path_len = 3, .gen = 7,
				.length = SIZE, .fd = -1, .lent_fd = -1,
				.mem = t.got, .fd_ok = true,
				.timeout_ms = 20000 };

	(void)state;
	if (geteuid() != 0)
		skip();
	listen_as_other();
	t.fd = opened(t.file, O_RDONLY);
	f.from.id[0] = 'b';
	strcpy(f.from.tcp.host, "127.0.0.1");
	f.from.tcp.port = pool_peers_port(t.honest);
	strcpy(f.from.unix_path, t.socket);
	assert_int_equal(pool_fetch_start(t.asker, &f, on_fetched), 0);
	unit_run_until(&t.loop, t.calls);
	assert_int_equal(t.status, 0);
	assert_int_equal(f.lent_fd, -1);
	assert_memory_equal(t.got, t.bytes, SIZE);
	assert_int_equal(t.lent, 0);
	assert_int_equal(t.asker->metrics.other_users.v, 1);
	close(t.fd);
}

/* Connects as euid. The caller reads the outcome. */
static int connect_as(uid_t euid)
{
	struct sockaddr_un un = unix_address(t.holder);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(chmod(t.dir, 0755), 0);
	assert_int_equal(chmod(t.holder, 0666), 0);
	assert_int_equal(seteuid(euid), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&un, sizeof(un)), 0);
	assert_int_equal(seteuid(0), 0);
	return fd;
}

static ssize_t answer_to_hello(int fd)
{
	Kvpool__Hello hello = KVPOOL__HELLO__INIT;
	uint8_t buf[256], id[POOL_ID_SIZE] = "c";
	struct pool_frame f = { .version = pool_wire_version,
				.type = POOL_MSG_HELLO };
	ssize_t n;

	hello.version = pool_wire_version;
	hello.id.data = id;
	hello.id.len = POOL_ID_SIZE;
	f.payload_len = (uint32_t)kvpool__hello__get_packed_size(&hello);
	pool_frame_encode(&f, buf);
	kvpool__hello__pack(&hello, buf + POOL_WIRE_HEADER);
	(void)send(fd, buf, POOL_WIRE_HEADER + f.payload_len, MSG_NOSIGNAL);
	do {
		uv_run(&t.loop, UV_RUN_NOWAIT);
		n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
	} while (n < 0 && errno == EAGAIN);
	return n;
}

static void a_holder_answers_nobody_elses_socket(void **state)
{
	int theirs, ours;

	(void)state;
	if (geteuid() != 0)
		skip();
	theirs = connect_as(OTHER);
	assert_true(answer_to_hello(theirs) <= 0);
	assert_int_equal(t.honest->metrics.other_users.v, 1);
	ours = connect_as(0);
	assert_true(answer_to_hello(ours) > 0);
	assert_int_equal(t.honest->metrics.other_users.v, 1);
	close(theirs);
	close(ours);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_whole_file_of_ours_that_nobody_writes_is_taken),
		T(what_cannot_be_read_through_is_not_taken),
		T(what_can_be_written_through_is_not_taken),
		T(a_file_on_a_disk_is_not_taken),
		T(a_file_that_somebody_has_open_for_writing_is_not_taken),
		T(a_file_that_others_may_write_is_not_taken),
		T(a_file_of_another_size_is_not_taken),
		T(what_is_no_file_of_a_tmpfs_is_not_taken),
		T(nothing_is_asked_of_another_users_socket),
		T(a_holder_answers_nobody_elses_socket),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
