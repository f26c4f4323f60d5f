/* Sockets belong to the user who created or accepted them, so one process can
 * act as several users. Needs root for that. */
#include "tests/lib/unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/conn/conn.h"
#include "pool/conn/kvpool.pb-c.h"
#include "pool/conn/trust.h"

#define STRANGER 65533u
#define FRIEND 65532u
#define OWN 0u

static struct pool_trust trust;
static uv_loop_t loop;

static void become(uid_t uid)
{
	if (geteuid() != uid)
		assert_int_equal(0, seteuid(OWN));
	if (uid != OWN)
		assert_int_equal(0, seteuid(uid));
}

static int setup(void **state)
{
	if (getuid() != 0)
		return 0;
	(void)state;
	memset(&trust, 0, sizeof(trust));
	trust_without_diag = false;
	become(OWN);
	return uv_loop_init(&loop);
}

static int teardown(void **state)
{
	if (getuid() != 0)
		return 0;
	(void)state;
	become(OWN);
	uv_run(&loop, UV_RUN_DEFAULT);
	return uv_loop_close(&loop);
}

static void need_root(void)
{
	if (getuid() == 0)
		return;
	print_message("skipped: needs root, to play other users\n");
	skip();
}

/* ---- sockets of other users ---- */

static int socket_of(uid_t uid, int family)
{
	int fd;

	become(uid);
	fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	become(OWN);
	assert_true(fd >= 0);
	return fd;
}

static void at(struct sockaddr_storage *ss, const char *host)
{
	struct sockaddr_in *in4 = (void *)ss;
	struct sockaddr_in6 *in6 = (void *)ss;

	memset(ss, 0, sizeof(*ss));
	if (inet_pton(AF_INET, host, &in4->sin_addr) == 1) {
		in4->sin_family = AF_INET;
	} else {
		assert_int_equal(1, inet_pton(AF_INET6, host, &in6->sin6_addr));
		in6->sin6_family = AF_INET6;
	}
}

static int listen_as(uid_t uid, const char *host, struct sockaddr_storage *ss)
{
	socklen_t len = sizeof(*ss);
	int fd;

	at(ss, host);
	fd = socket_of(uid, ss->ss_family);
	assert_int_equal(0, bind(fd, (void *)ss, sizeof(*ss)));
	assert_int_equal(0, listen(fd, 8));
	assert_int_equal(0, getsockname(fd, (void *)ss, &len));
	return fd;
}

/* from: NULL, or the address to bind to. */
static int dial_as(uid_t uid, const struct sockaddr_storage *to,
		   const char *from)
{
	struct sockaddr_storage ss;
	int fd = socket_of(uid, to->ss_family);

	if (from) {
		at(&ss, from);
		assert_int_equal(0, bind(fd, (void *)&ss, sizeof(ss)));
	}
	assert_int_equal(0, connect(fd, (const void *)to, sizeof(*to)));
	return fd;
}

static int accept_as(uid_t uid, int listener)
{
	int fd;

	become(uid);
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	become(OWN);
	assert_true(fd >= 0);
	return fd;
}

static int peer(int fd)
{
	uid_t uid = 12345;
	int err = pool_trust_peer(&trust, fd, &uid);

	if (err == -EPERM)
		assert_int_equal(STRANGER, uid);
	return err;
}

static int listener(int fd)
{
	uid_t uid = 12345;

	return pool_trust_listener(&trust, fd, &uid);
}

/* ---- whose ---- */

static void who_dials(const char *host)
{
	struct sockaddr_storage ss;
	int l = listen_as(OWN, host, &ss);
	int good = dial_as(OWN, &ss, NULL), a = accept_as(OWN, l);
	int bad = dial_as(STRANGER, &ss, NULL), b = accept_as(OWN, l);
	int other = dial_as(FRIEND, &ss, NULL), c = accept_as(OWN, l);

	assert_int_equal(0, peer(a));
	assert_int_equal(0, peer(good));
	assert_int_equal(-EPERM, peer(b));
	trust.n = 0;
	assert_int_equal(0, pool_trust_add(&trust, "65532"));
	assert_int_equal(0, peer(c));
	assert_int_equal(-EPERM, peer(b));
	/* They dialled root, which everybody trusts. */
	assert_int_equal(0, peer(bad));
	trust.n = 0;
	close(good), close(bad), close(other);
	close(a), close(b), close(c), close(l);
}

static void whoever_dials_over_loopback_is_known(void **state)
{
	static const char *const hosts[] = { "127.0.0.1", "127.1.2.3", "::1",
					     "::ffff:127.0.0.1" };

	(void)state;
	need_root();
	for (int without = 0; without < 2; without++)
		for (size_t i = 0; i < 4; i++) {
			trust_without_diag = without;
			who_dials(hosts[i]);
		}
}

/* An IPv4 connection with an IPv6 socket on one side. */
static void a_listener_of_both_protocols_knows_them_too(void **state)
{
	struct sockaddr_storage ss, to;
	int l, bad, b, off = 0;
	socklen_t len = sizeof(ss);

	(void)state;
	need_root();
	l = socket_of(OWN, AF_INET6);
	setsockopt(l, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	at(&ss, "::");
	assert_int_equal(0, bind(l, (void *)&ss, sizeof(ss)));
	assert_int_equal(0, listen(l, 8));
	assert_int_equal(0, getsockname(l, (void *)&ss, &len));
	at(&to, "127.0.0.1");
	((struct sockaddr_in *)(void *)&to)->sin_port =
		((struct sockaddr_in6 *)(void *)&ss)->sin6_port;
	bad = dial_as(STRANGER, &to, NULL);
	b = accept_as(OWN, l);
	for (int without = 0; without < 2; without++) {
		trust_without_diag = without;
		assert_int_equal(-EPERM, peer(b));
		assert_int_equal(0, peer(bad));
	}
	close(b), close(bad), close(l);
}

static void
coming_from_another_address_of_the_machine_does_not_help(void **state)
{
	char host[INET_ADDRSTRLEN] = "127.9.9.9";
	struct sockaddr_storage ss;
	struct ifaddrs *list, *i;
	int l, bad, b;

	(void)state;
	need_root();
	assert_int_equal(0, getifaddrs(&list));
	for (i = list; i; i = i->ifa_next)
		if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET &&
		    !(i->ifa_flags & IFF_LOOPBACK))
			inet_ntop(AF_INET,
				  &((struct sockaddr_in *)(void *)i->ifa_addr)
					   ->sin_addr,
				  host, sizeof(host));
	freeifaddrs(list);
	l = listen_as(OWN, "127.0.0.1", &ss);
	bad = dial_as(STRANGER, &ss, host);
	b = accept_as(OWN, l);
	assert_int_equal(-EPERM, peer(b));
	close(b), close(bad), close(l);
}

static void a_closed_peer_is_not_taken_for_root(void **state)
{
	struct sockaddr_storage ss;
	int l, bad, b;

	(void)state;
	need_root();
	for (int without = 0; without < 2; without++) {
		trust_without_diag = without;
		l = listen_as(OWN, "127.0.0.1", &ss);
		bad = dial_as(STRANGER, &ss, NULL);
		assert_int_equal(4, write(bad, "JOIN", 4));
		close(bad); /* FIN_WAIT2 */
		b = accept_as(OWN, l);
		assert_int_equal(-EAGAIN, peer(b));
		bad = dial_as(STRANGER, &ss, NULL);
		close(b);
		b = accept_as(OWN, l);
		shutdown(b, SHUT_WR);
		close(bad); /* CLOSING, TIME_WAIT */
		assert_int_equal(-EAGAIN, peer(b));
		close(b), close(l);
	}
}

static void a_listener_is_known_before_it_accepts(void **state)
{
	struct sockaddr_storage ss;
	int l, mine, b;

	(void)state;
	need_root();
	for (int without = 0; without < 2; without++) {
		trust_without_diag = without;
		l = listen_as(STRANGER, "127.0.0.1", &ss);
		mine = dial_as(OWN, &ss, NULL);
		assert_int_equal(-EAGAIN, peer(mine));
		assert_int_equal(-EPERM, listener(mine));
		b = accept_as(STRANGER, l);
		assert_int_equal(-EPERM, peer(mine));
		close(l);
		assert_int_equal(-ECONNRESET, listener(mine));
		close(b);
		assert_int_equal(-EAGAIN, peer(mine));
		close(mine);
		l = listen_as(OWN, "127.0.0.1", &ss);
		mine = dial_as(OWN, &ss, NULL);
		assert_int_equal(-EAGAIN, peer(mine));
		assert_int_equal(0, listener(mine));
		close(mine), close(l);
	}
}

/* Bytes that this process has read from files, including /proc/net/tcp and by
 * this function. */
static unsigned long long have_read(void)
{
	unsigned long long n = 0;
	FILE *f = fopen("/proc/self/io", "re");

	assert_non_null(f);
	assert_int_equal(1, fscanf(f, "rchar: %llu", &n));
	fclose(f);
	return n;
}

/* Users can make /proc/net/tcp as long as they like, so it must not be read. */
static void one_bound_to_a_device_is_found_without_proc(void **state)
{
	unsigned long long before, after;
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	int l, bad, mine, b;

	(void)state;
	need_root();
	at(&ss, "127.0.0.1");
	l = socket_of(STRANGER, AF_INET);
	assert_int_equal(0, setsockopt(l, SOL_SOCKET, SO_BINDTODEVICE, "lo",
				       2));
	assert_int_equal(0, bind(l, (void *)&ss, sizeof(ss)));
	assert_int_equal(0, listen(l, 8));
	assert_int_equal(0, getsockname(l, (void *)&ss, &len));
	mine = dial_as(OWN, &ss, NULL);
	before = have_read();
	assert_int_equal(-EPERM, listener(mine));
	after = have_read();
	assert_true(after - before < have_read() - after + 64);
	close(mine), close(l);

	l = listen_as(OWN, "127.0.0.1", &ss);
	bad = socket_of(STRANGER, AF_INET);
	assert_int_equal(0, setsockopt(bad, SOL_SOCKET, SO_BINDTODEVICE, "lo",
				       2));
	assert_int_equal(0, connect(bad, (void *)&ss, sizeof(ss)));
	b = accept_as(OWN, l);
	before = have_read();
	assert_int_equal(-EPERM, peer(b));
	after = have_read();
	assert_true(after - before < have_read() - after + 64);
	close(b), close(bad), close(l);
}

static void unix_sockets_know_the_peers_user(void **state)
{
	char *dir;
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int l, c, a;

	(void)state;
	need_root();
	dir = unit_dir_make("/tmp/kvt");
	assert_int_equal(0, chmod(dir, 0777));
	snprintf(un.sun_path, sizeof(un.sun_path), "%s/s", dir);
	become(STRANGER);
	l = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(0, bind(l, (void *)&un, sizeof(un)));
	assert_int_equal(0, listen(l, 1));
	become(OWN);
	c = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(0, connect(c, (void *)&un, sizeof(un)));
	a = accept_as(OWN, l);
	assert_int_equal(-EPERM, peer(c));
	assert_int_equal(0, peer(a));
	close(a), close(c), close(l);
	unlink(un.sun_path);
	unit_dir_remove_empty(dir);
}

/* In a user namespace without users all of them look alike: the peer, and this
 * process, which must not take it for its own user. */
static void users_without_a_number_are_not_known(void **state)
{
	struct sockaddr_storage ss;
	int l, c, a, status, pair[2];
	uid_t uid;
	pid_t pid;

	(void)state;
	need_root();
	l = listen_as(OWN, "127.0.0.1", &ss);
	c = dial_as(STRANGER, &ss, NULL);
	a = accept_as(OWN, l);
	become(STRANGER);
	assert_int_equal(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	become(OWN);
	pid = fork();
	if (pid == 0)
		_exit(unshare(CLONE_NEWUSER) ? 77 :
		      pool_trust_peer(&trust, a, &uid) != -ENOTSUP ? 1 :
		      pool_trust_peer(&trust, pair[0], &uid) != -ENOTSUP);
	assert_int_equal(pid, waitpid(pid, &status, 0));
	close(a), close(c), close(l), close(pair[0]), close(pair[1]);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip(); /* no user namespaces */
	assert_int_equal(0, status);
}

/* ---- connections ---- */

static struct {
	bool opened, closed;
	int err;
	unsigned int frames;
} e;

static void on_open(struct pool_conn *c)
{
	e.opened = true;
	assert_int_equal(0, pool_conn_send(c, POOL_MSG_JOIN, 1, NULL));
}

static void on_frame(struct pool_conn *c, const struct pool_frame *f,
		     const uint8_t *payload, int fd)
{
	(void)c;
	(void)f;
	(void)payload;
	assert_int_equal(-1, fd);
	e.frames++;
}

static void on_close(struct pool_conn *c, int err)
{
	(void)c;
	e.closed = true;
	e.err = err;
}

static const struct pool_conn_ops ops = { .on_open = on_open,
					  .on_frame = on_frame,
					  .on_close = on_close };

static struct pool_conn *dial(const struct sockaddr_storage *to)
{
	struct pool_conn_opts opts = { .ops = &ops, .trust = &trust };
	struct pool_hostport hp = { .host = "127.0.0.1" };
	struct pool_conn *c;

	memset(&e, 0, sizeof(e));
	hp.port =
		ntohs(((const struct sockaddr_in *)(const void *)to)->sin_port);
	assert_int_equal(0, pool_conn_connect(&loop, &hp, &opts, &c));
	return c;
}

static void a_listener_of_a_stranger_gets_no_data(void **state)
{
	struct sockaddr_storage ss;
	char buf[64];
	int l, b;

	(void)state;
	need_root();
	l = listen_as(STRANGER, "127.0.0.1", &ss);
	dial(&ss);
	unit_run_until(&loop, e.closed);
	assert_int_equal(-EPERM, e.err);
	assert_false(e.opened);
	assert_int_equal(1, pool_counter_value(&trust.impostors));
	b = accept_as(STRANGER, l);
	assert_true(recv(b, buf, sizeof(buf), 0) <= 0);
	close(b), close(l);
}

/* As if another process had taken over the port between connect and accept. */
static void the_accepting_user_is_checked_before_data(void **state)
{
	uint8_t frame[POOL_WIRE_HEADER];
	struct pool_frame f = { .version = pool_wire_version,
				.type = POOL_MSG_WELCOME };
	struct sockaddr_storage ss;
	struct pool_conn *c;
	int l, b;

	(void)state;
	need_root();
	pool_frame_encode(&f, frame);
	for (int i = 0; i < 2; i++) {
		l = listen_as(OWN, "127.0.0.1", &ss);
		c = dial(&ss);
		unit_run_until(&loop, e.opened);
		b = accept_as(i ? STRANGER : OWN, l);
		assert_int_equal(sizeof(frame), write(b, frame, sizeof(frame)));
		unit_run_until(&loop, e.frames || e.closed);
		assert_int_equal(i ? 0 : 1, e.frames);
		if (!i)
			pool_conn_close(c);
		unit_run_until(&loop, e.closed);
		assert_int_equal(i ? -EPERM : 0, e.err);
		close(b), close(l);
	}
}

static unsigned int accepted;

static void on_accept(void *arg, int fd)
{
	(void)arg;
	accepted++;
	close(fd);
}

/* Reads the whole ERROR, which is short. */
static Kvpool__Error *read_error(int fd)
{
	uint8_t buf[1024];
	struct pool_frame f;
	ssize_t n;

	do {
		uv_run(&loop, UV_RUN_NOWAIT);
		n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
	} while (n < 0 && errno == EAGAIN);
	assert_true(n > POOL_WIRE_HEADER);
	assert_int_equal(0, pool_frame_decode(buf, &f));
	assert_int_equal(POOL_MSG_ERROR, f.type);
	assert_int_equal(n, POOL_WIRE_HEADER + f.payload_len);
	return kvpool__error__unpack(NULL, f.payload_len,
				     buf + POOL_WIRE_HEADER);
}

static void strangers_get_an_error_and_are_not_accepted(void **state)
{
	struct pool_hostport hp = { .host = "127.0.0.1" };
	struct pool_listener *l;
	struct sockaddr_storage ss;
	Kvpool__Error *error;
	int bad, good;

	(void)state;
	need_root();
	accepted = 0;
	assert_int_equal(0,
			 pool_listener_open(&loop, &hp, on_accept, NULL, &l));
	pool_listener_trust(l, &trust);
	at(&ss, "127.0.0.1");
	((struct sockaddr_in *)(void *)&ss)->sin_port =
		htons(pool_listener_port(l));
	bad = dial_as(STRANGER, &ss, NULL);
	error = read_error(bad);
	assert_non_null(error);
	assert_int_equal(-EPERM, error->status);
	assert_non_null(strstr(error->text, "user 65533 is not trusted"));
	assert_non_null(strstr(error->text, "--allow-user"));
	kvpool__error__free_unpacked(error, NULL);
	assert_int_equal(0, accepted);
	assert_int_equal(1, pool_counter_value(&trust.strangers));
	good = dial_as(OWN, &ss, NULL);
	unit_run_until(&loop, accepted);
	assert_int_equal(1, pool_counter_value(&trust.strangers));
	close(bad), close(good);
	pool_listener_close(l);
}

/* More than REFUSED_MAX: the rest gets no ERROR. Each uses a descriptor for a
 * moment, and no memory. */
static void a_crowd_of_strangers_is_cut_off(void **state)
{
	struct pool_hostport hp = { .host = "127.0.0.1" };
	struct pool_listener *l;
	struct sockaddr_storage ss;
	int fds[40];
	bool got, cut = false;
	char c;

	(void)state;
	need_root();
	assert_int_equal(0,
			 pool_listener_open(&loop, &hp, on_accept, NULL, &l));
	pool_listener_trust(l, &trust);
	at(&ss, "127.0.0.1");
	((struct sockaddr_in *)(void *)&ss)->sin_port =
		htons(pool_listener_port(l));
	for (size_t i = 0; i < 40; i++)
		fds[i] = dial_as(STRANGER, &ss, NULL);
	unit_run_until(&loop, pool_counter_value(&trust.strangers) >= 40);
	for (size_t i = 0; i < 40; i++) {
		got = recv(fds[i], &c, 1, MSG_DONTWAIT) == 1;
		cut |= !got;
	}
	assert_true(cut);
	for (size_t i = 0; i < 40; i++)
		close(fds[i]);
	pool_listener_close(l);
}

/* Reads to the end. Was anything received? */
static bool receives_something(int fd)
{
	char buf[1024];
	bool received = false;
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0 ||
	       (n < 0 && errno == EAGAIN)) {
		received |= n > 0;
		uv_run(&loop, UV_RUN_NOWAIT);
	}
	return received;
}

static void strangers_one_by_one_all_get_an_error(void **state)
{
	struct pool_hostport hp = { .host = "127.0.0.1" };
	struct pool_listener *l;
	struct sockaddr_storage ss;
	unsigned int answered = 0;
	int fd;

	(void)state;
	need_root();
	assert_int_equal(0,
			 pool_listener_open(&loop, &hp, on_accept, NULL, &l));
	pool_listener_trust(l, &trust);
	at(&ss, "127.0.0.1");
	((struct sockaddr_in *)(void *)&ss)->sin_port =
		htons(pool_listener_port(l));
	for (size_t i = 0; i < 40; i++) {
		fd = dial_as(STRANGER, &ss, NULL);
		answered += receives_something(fd);
		close(fd);
	}
	pool_listener_close(l);
	assert_int_equal(40, answered);
}

/* ---- words ---- */

static void users_are_named_or_numbered(void **state)
{
	struct pool_trust t = { 0 };
	char many[64 * 8 + 1] = "";

	(void)state;
	assert_int_equal(0, pool_trust_add(&t, "root,1001"));
	assert_int_equal(2, t.n);
	assert_int_equal(1001, t.uids[1]);
	assert_true(pool_trusts(&t, 1001));
	assert_true(pool_trusts(&t, geteuid()));
	assert_false(pool_trusts(&t, 1002));
	assert_int_equal(-ENOENT, pool_trust_add(&t, "no-such-user-here"));
	assert_int_equal(-EINVAL, pool_trust_add(&t, "1002,"));
	assert_int_equal(-EINVAL, pool_trust_add(&t, ""));
	assert_int_equal(-EINVAL, pool_trust_add(&t, "1002x"));
	assert_int_equal(-EINVAL, pool_trust_add(&t, "4294967295"));
	assert_int_equal(-EINVAL, pool_trust_add(&t, "99999999999999999999"));
	assert_false(pool_trusts(&t, 1002));
	for (int i = 0; i < 63; i++)
		sprintf(many + strlen(many), "%s%d", i ? "," : "", 2000 + i);
	assert_int_equal(-E2BIG, pool_trust_add(&t, many));
	assert_int_equal(2, t.n);
}

static void lines_of_proc_are_read(void **state)
{
	struct trust_line l;

	(void)state;
	assert_true(trust_line_read(
		"   2: 0100007F:1B9E 0200007F:0016 01 00000000:00000000 "
		"00:00000000 00000000  1000        0 17364 1 0000000000000000 "
		"100 0 0 10 0\n",
		&l));
	assert_int_equal(0x1b9e, l.local_port);
	assert_int_equal(22, l.remote_port);
	assert_int_equal(1, l.state);
	assert_int_equal(1000, l.uid);
	assert_int_equal(17364, l.inode);
	assert_false(trust_line_read(
		"  sl  local_address rem_address   st tx_queue rx_queue tr "
		"tm->when retrnsmt   uid  timeout inode\n",
		&l));
	assert_false(trust_line_read(
		"   2: 0100007:1B9E 0200007F:0016 01 00000000:00000000 "
		"00:00000000 00000000  1000        0 17364 1\n",
		&l));
	assert_false(trust_line_read("", &l));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(whoever_dials_over_loopback_is_known),
		T(a_listener_of_both_protocols_knows_them_too),
		T(coming_from_another_address_of_the_machine_does_not_help),
		T(a_closed_peer_is_not_taken_for_root),
		T(a_listener_is_known_before_it_accepts),
		T(one_bound_to_a_device_is_found_without_proc),
		T(unix_sockets_know_the_peers_user),
		T(users_without_a_number_are_not_known),
		T(a_listener_of_a_stranger_gets_no_data),
		T(the_accepting_user_is_checked_before_data),
		T(strangers_get_an_error_and_are_not_accepted),
		T(a_crowd_of_strangers_is_cut_off),
		T(strangers_one_by_one_all_get_an_error),
		cmocka_unit_test(users_are_named_or_numbered),
		cmocka_unit_test(lines_of_proc_are_read),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
