/*
 * An attacker that speaks the protocol, for it_intruder.sh and it_locked.sh.
 * Arguments, and what each does:
 *
 *   join MASTER
 *	tries to become a node
 *   lend MASTER DIR KEY FILE HOW
 *	publishes KEY, of FILE's size, and answers requests for it on its Unix
 *	socket (DIR/peer.sock) with a descriptor of FILE, until it is ended.
 *	HOW: path (O_PATH), read or write
 *   crowd PEER N
 *	opens N connections and sends a HELLO on each
 *   members MASTER N
 *	joins as N nodes
 *   idle PEER SECONDS
 *	opens one connection and sends nothing
 *   flood MASTER join|inventory
 *	sends 4 MiB of unknown fields before it has joined, or 1 MiB of empty
 *	entries afterwards
 *   follow FILE
 *	makes FILE, keeps an O_PATH descriptor, removes FILE, and prints
 *	"waits". After a line on stdin it tries, by that descriptor, what only
 *	the owner of the present FILE may do
 *   hold DIR N
 *	makes N files in DIR, writes to them, removes every second one, and
 *	prints "waits". After a line on stdin it writes, reads and closes them
 *   stall FILE
 *	makes FILE and writes to it from a page that is withheld until a line
 *	comes on stdin; prints "waits"
 *   lock DIR
 *	has the kernel keep DIR locked until a line comes on stdin, by a listing
 *	into such a page
 *   makes DIR N
 *	makes N directories with long names and 1,900 bytes of attributes, or
 *	without attributes once these are refused
 *
 * It prints what it achieves, one line each: "joined", "published", "asked",
 * "lent", "in N", "followed: HOW", "held", "locked", "made N, M with
 * attributes"; or "refused: WHY", with status 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "pool/base/parse.h"
#include "pool/conn/kvpool.pb-c.h"
#include "pool/conn/wire.h"

#define ANSWER_S 10

static uint8_t own_id[16] = "intruder";
static uint64_t epoch; /* the master's */

__attribute__((noreturn, format(printf, 1, 2))) static void
refused(const char *format, ...)
{
	va_list ap;

	printf("refused: ");
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
	_exit(1); /* what it still holds is no leak */
}

static void say(const char *what)
{
	printf("%s\n", what);
	fflush(stdout);
}

/* ---- frames ---- */

static int dial(const char *at)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list;
	struct timeval tv = { .tv_sec = ANSWER_S };
	struct pool_hostport hp;
	char port[8];
	int fd;

	if (pool_parse_hostport(at, 0, &hp))
		refused("no address: %s", at);
	snprintf(port, sizeof(port), "%u", hp.port);
	if (getaddrinfo(hp.host, port, &hints, &list))
		refused("no such host: %s", hp.host);
	fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, list->ai_addr, list->ai_addrlen))
		refused("connect: %s", strerror(errno));
	freeaddrinfo(list);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	return fd;
}

/* ride: a descriptor that rides on it, or -1. False: the connection is gone. */
static bool send_frame(int fd, uint16_t type, uint64_t req,
		       const ProtobufCMessage *msg, int ride)
{
	size_t payload = protobuf_c_message_get_packed_size(msg);
	struct pool_frame f = { .version = pool_wire_version, .type = type,
				.req = req,
				.payload_len = (uint32_t)payload };
	uint8_t *buf = malloc(POOL_WIRE_HEADER + payload);
	struct iovec iov = { .iov_base = buf,
			     .iov_len = POOL_WIRE_HEADER + payload };
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;
	bool sent;

	if (!buf)
		refused("no memory");
	pool_frame_encode(&f, buf);
	protobuf_c_message_pack(msg, buf + POOL_WIRE_HEADER);
	if (ride >= 0) {
		m.msg_control = control.bytes;
		m.msg_controllen = sizeof(control.bytes);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &ride, sizeof(int));
	}
	sent = sendmsg(fd, &m, MSG_NOSIGNAL) == (ssize_t)iov.iov_len;
	free(buf);
	return sent;
}

/* The payload, to be freed; NULL: nothing (more) came. */
static uint8_t *recv_frame(int fd, struct pool_frame *ret)
{
	uint8_t header[POOL_WIRE_HEADER], *payload;

	if (recv(fd, header, sizeof(header), MSG_WAITALL) !=
		    (ssize_t)sizeof(header) ||
	    pool_frame_decode(header, ret))
		return NULL;
	payload = malloc(ret->payload_len + 1);
	if (payload && ret->payload_len &&
	    recv(fd, payload, ret->payload_len, MSG_WAITALL) !=
		    (ssize_t)ret->payload_len) {
		free(payload);
		return NULL;
	}
	return payload;
}

/* ---- as a node ---- */

static void read_host_id(char *buf, size_t cap)
{
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (!f || !fgets(buf, (int)cap, f))
		buf[0] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	if (f)
		fclose(f);
}

static void refused_by(const struct pool_frame *f, const uint8_t *payload)
{
	Kvpool__Error *e = payload && f->type == POOL_MSG_ERROR ?
				   kvpool__error__unpack(NULL, f->payload_len,
							 payload) :
				   NULL;

	if (e)
		refused("%d %s", e->status, e->text);
	refused(payload ? "another answer" : "no answer");
}

/* A session with the master: a store with the Unix socket `local` and the TCP
 * listener `advertise`. */
static int join(const char *master, const char *local, const char *advertise)
{
	Kvpool__NodeInfo info = KVPOOL__NODE_INFO__INIT;
	Kvpool__Join msg = KVPOOL__JOIN__INIT;
	Kvpool__Inventory none = KVPOOL__INVENTORY__INIT;
	Kvpool__Welcome *welcome;
	char host_id[64];
	int fd = dial(master);
	struct pool_frame f;
	uint8_t *payload;

	read_host_id(host_id, sizeof(host_id));
	info.id.data = own_id;
	info.id.len = sizeof(own_id);
	info.name = (char *)"intruder";
	info.advertise = (char *)(uintptr_t)advertise;
	info.unix_path = (char *)(uintptr_t)local;
	info.host_id = host_id;
	info.is_store = info.alive = true;
	info.capacity = 1 << 30;
	msg.version = pool_wire_version;
	msg.node = &info;
	if (!send_frame(fd, POOL_MSG_JOIN, 0, &msg.base, -1))
		refused("%s", strerror(errno));
	payload = recv_frame(fd, &f);
	if (!payload || f.type != POOL_MSG_WELCOME)
		refused_by(&f, payload);
	welcome = kvpool__welcome__unpack(NULL, f.payload_len, payload);
	free(payload);
	if (!welcome)
		refused("no WELCOME");
	epoch = welcome->epoch;
	kvpool__welcome__free_unpacked(welcome, NULL);
	none.last = true;
	if (!send_frame(fd, POOL_MSG_INVENTORY, 0, &none.base, -1))
		refused("%s", strerror(errno));
	say("joined");
	return fd;
}

static void publish(int fd, const char *key, uint64_t size)
{
	static uint8_t sum[16];
	Kvpool__Meta meta = KVPOOL__META__INIT;
	Kvpool__Op op = KVPOOL__OP__INIT, *one = &op;
	Kvpool__Ops ops = KVPOOL__OPS__INIT;

	meta.path.data = (uint8_t *)(uintptr_t)key;
	meta.path.len = strlen(key);
	meta.size = size;
	meta.sum.data = sum;
	meta.sum.len = sizeof(sum);
	meta.mode = 0644;
	op.kind = KVPOOL__OP__KIND__PUBLISH;
	op.meta = &meta;
	ops.ops = &one;
	ops.n_ops = 1;
	if (!send_frame(fd, POOL_MSG_OPS, 1, &ops.base, -1))
		refused("%s", strerror(errno));
}

/* ---- lending ---- */

struct lender {
	int master, local, tcp, file;
	struct stat st;
	int peer[64]; /* 0: none */
	bool is_unix[64];
};

static int listen_unix(const char *path)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
	unlink(path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&un, sizeof(un)) ||
	    listen(fd, 16))
		refused("%s: %s", path, strerror(errno));
	return fd;
}

static int listen_tcp(char *at, size_t cap)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	socklen_t len = sizeof(in);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (struct sockaddr *)&in, sizeof(in)) ||
	    listen(fd, 16) || getsockname(fd, (struct sockaddr *)&in, &len))
		refused("listen: %s", strerror(errno));
	snprintf(at, cap, "127.0.0.1:%u", ntohs(in.sin_port));
	return fd;
}

static void say_error(int fd, uint64_t req, int status)
{
	Kvpool__Error e = KVPOOL__ERROR__INIT;

	e.status = status;
	(void)send_frame(fd, POOL_MSG_ERROR, req, &e.base, -1);
}

static void say_lent(const struct lender *l, int fd, uint64_t req)
{
	Kvpool__Lent lent = KVPOOL__LENT__INIT;

	lent.size = (uint64_t)l->st.st_size;
	if (send_frame(fd, POOL_MSG_LENT, req, &lent.base, l->file))
		say("lent");
}

static bool answer_peer(const struct lender *l, int fd, bool is_unix)
{
	Kvpool__Hello hello = KVPOOL__HELLO__INIT;
	struct pool_frame f;
	uint8_t *payload = recv_frame(fd, &f);

	if (!payload)
		return false;
	free(payload);
	hello.version = pool_wire_version;
	hello.id.data = own_id;
	hello.id.len = sizeof(own_id);
	if (f.type == POOL_MSG_HELLO)
		return send_frame(fd, POOL_MSG_HELLO, 0, &hello.base, -1);
	if (f.type != POOL_MSG_GET)
		return true;
	say("asked");
	if (is_unix)
		say_lent(l, fd, f.req);
	else
		say_error(fd, f.req, -ENOENT);
	return true;
}

static void accept_peer(struct lender *l, int at, bool is_unix)
{
	int fd = accept(at, NULL, NULL);

	for (size_t i = 0; fd >= 0 && i < 64; i++) {
		if (l->peer[i])
			continue;
		l->peer[i] = fd;
		l->is_unix[i] = is_unix;
		return;
	}
	close(fd);
}

static void from_master(struct lender *l)
{
	struct pool_frame f;
	uint8_t *payload = recv_frame(l->master, &f);
	Kvpool__OpsDone *done = NULL;

	if (!payload)
		refused("the master's connection ended");
	if (f.type == POOL_MSG_ERROR)
		refused_by(&f, payload);
	if (f.type == POOL_MSG_OPS_DONE)
		done = kvpool__ops_done__unpack(NULL, f.payload_len, payload);
	if (done && done->n_results == 1 && done->results[0]->status)
		refused("PUBLISH: %d", done->results[0]->status);
	if (done) {
		say("published");
		kvpool__ops_done__free_unpacked(done, NULL);
	}
	free(payload);
}

static void heartbeat(int fd)
{
	Kvpool__Heartbeat beat = KVPOOL__HEARTBEAT__INIT;
	Kvpool__NodeInfo info = KVPOOL__NODE_INFO__INIT;

	info.id.data = own_id;
	info.id.len = sizeof(own_id);
	info.is_store = info.alive = true;
	info.capacity = 1 << 30;
	beat.epoch = epoch;
	beat.node = &info;
	if (!send_frame(fd, POOL_MSG_HEARTBEAT, 0, &beat.base, -1))
		refused("the master's connection ended");
}

static void lend_turn(struct lender *l)
{
	struct pollfd at[3 + 64] = {
		{ .fd = l->master, .events = POLLIN },
		{ .fd = l->local, .events = POLLIN },
		{ .fd = l->tcp, .events = POLLIN },
	};

	for (size_t i = 0; i < 64; i++) {
		at[3 + i].fd = l->peer[i] ? l->peer[i] : -1;
		at[3 + i].events = POLLIN;
	}
	(void)poll(at, 3 + 64, 200);
	if (at[0].revents)
		from_master(l);
	if (at[1].revents)
		accept_peer(l, l->local, true);
	if (at[2].revents)
		accept_peer(l, l->tcp, false);
	for (size_t i = 0; i < 64; i++) {
		if (at[3 + i].fd < 0 || !at[3 + i].revents ||
		    answer_peer(l, l->peer[i], l->is_unix[i]))
			continue;
		close(l->peer[i]);
		l->peer[i] = 0;
	}
}

static int lend(const char *master, const char *dir, const char *key,
		const char *file, const char *how)
{
	char local[108], advertise[64];
	struct lender l = { 0 };
	time_t beat = 0;
	int flags = strcmp(how, "path") == 0  ? O_PATH :
		    strcmp(how, "write") == 0 ? O_RDWR :
						O_RDONLY;

	snprintf(local, sizeof(local), "%s/peer.sock", dir);
	l.file = open(file, flags | O_CLOEXEC);
	if (l.file < 0 || fstat(l.file, &l.st))
		refused("%s: %s", file, strerror(errno));
	l.local = listen_unix(local);
	l.tcp = listen_tcp(advertise, sizeof(advertise));
	l.master = join(master, local, advertise);
	publish(l.master, key, (uint64_t)l.st.st_size);
	for (;;) {
		if (time(NULL) != beat)
			heartbeat(l.master);
		beat = time(NULL);
		lend_turn(&l);
	}
}

/* ---- exhaustion ---- */

static bool say_hello(int fd, const uint8_t id[16])
{
	Kvpool__Hello hello = KVPOOL__HELLO__INIT;

	hello.version = pool_wire_version;
	hello.id.data = (uint8_t *)(uintptr_t)id;
	hello.id.len = 16;
	return send_frame(fd, POOL_MSG_HELLO, 0, &hello.base, -1);
}

static bool is_greeted(int fd)
{
	struct pool_frame f;
	uint8_t *payload = recv_frame(fd, &f);
	bool good = payload && f.type == POOL_MSG_HELLO;

	free(payload);
	return good;
}

static int crowd(const char *peer, unsigned int n)
{
	struct rlimit lim = { n + 64, n + 64 };
	uint8_t id[16] = "crowd";
	unsigned int in = 0;

	(void)setrlimit(RLIMIT_NOFILE, &lim);
	for (unsigned int i = 0; i < n; i++) {
		int fd = dial(peer); /* stays open */

		memcpy(id + 8, &i, sizeof(i));
		in += say_hello(fd, id) && is_greeted(fd);
	}
	printf("in %u\n", in);
	fflush(stdout);
	if (in < n)
		refused("%u of %u", n - in, n);
	return 0;
}

static int members(const char *master, unsigned int n)
{
	struct rlimit lim = { n + 64, n + 64 };

	(void)setrlimit(RLIMIT_NOFILE, &lim);
	for (unsigned int i = 0; i < n; i++) {
		memcpy(own_id + 8, &i, sizeof(i));
		(void)join(master, "", "127.0.0.1:1"); /* stays open */
	}
	return 0;
}

static int idle(const char *peer, int seconds)
{
	struct timeval tv = { .tv_sec = seconds };
	int fd = dial(peer);
	char byte;

	if (!say_hello(fd, own_id) || !is_greeted(fd))
		refused("no HELLO");
	say("in");
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	if (recv(fd, &byte, 1, 0) >= 0 || errno != EAGAIN)
		refused("closed");
	return 0;
}

/* Fields of two bytes, over and over; what the master says to it is the end. */
static int flood(const char *master, uint16_t type, const char *field,
		 size_t len)
{
	struct pool_frame f = { .version = pool_wire_version, .type = type,
				.payload_len = (uint32_t)len };
	int fd = type == POOL_MSG_JOIN ? dial(master) :
					 join(master, "", "127.0.0.1:1");
	uint8_t *buf = malloc(POOL_WIRE_HEADER + len), *payload;
	size_t done = 0;
	ssize_t n;

	if (!buf)
		refused("no memory");
	pool_frame_encode(&f, buf);
	for (size_t i = 0; i < len; i++)
		buf[POOL_WIRE_HEADER + i] = (uint8_t)field[i % 2];
	for (; done < POOL_WIRE_HEADER + len; done += (size_t)n) {
		n = send(fd, buf + done, POOL_WIRE_HEADER + len - done,
			 MSG_NOSIGNAL);
		if (n <= 0)
			break;
	}
	free(buf);
	while ((payload = recv_frame(fd, &f)) && f.type != POOL_MSG_ERROR)
		free(payload);
	refused_by(&f, payload);
	return 0;
}

/* ---- a file that was ours ---- */

static bool opens(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* Modes last: they would open the way for the others. */
static int follow(const char *file)
{
	int fd = open(file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	unsigned int done = 0;
	char path[64], byte;

	if (fd < 0)
		refused("%s: %s", file, strerror(errno));
	close(fd);
	fd = open(file, O_PATH | O_CLOEXEC);
	if (fd < 0 || unlink(file))
		refused("%s: %s", file, strerror(errno));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	say("waits");
	if (read(STDIN_FILENO, &byte, 1) != 1)
		return 2;
#define TRY(what)                               \
	do {                                    \
		if (what) {                     \
			say("followed: " #what); \
			done++;                 \
		}                               \
	} while (0)
	TRY(getxattr(path, "user.secret", NULL, 0) >= 0);
	TRY(setxattr(path, "user.mine", "1", 1, 0) == 0);
	TRY(opens(path, O_RDONLY));
	TRY(opens(path, O_WRONLY));
	TRY(truncate(path, 0) == 0);
	TRY(utimensat(AT_FDCWD, path, NULL, 0) == 0);
	TRY(chmod(path, 0666) == 0);
#undef TRY
	if (!done)
		refused("%s", strerror(EACCES));
	return 0;
}

/* ---- files held open ---- */

static int hold(const char *dir, unsigned int n)
{
	struct rlimit lim = { n + 64, n + 64 };
	int *fds = calloc(n, sizeof(*fds));
	char path[4096], byte, got[16], want[32];

	(void)setrlimit(RLIMIT_NOFILE, &lim);
	for (unsigned int i = 0; fds && i < n; i++) {
		snprintf(path, sizeof(path), "%s/%07u", dir, i);
		fds[i] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		if (fds[i] < 0 || pwrite(fds[i], path + strlen(dir) + 1, 7,
					 0) != 7)
			refused("%s: %s", path, strerror(errno));
		if (i % 2 && unlink(path))
			refused("%s: %s", path, strerror(errno));
	}
	say("waits");
	if (!fds || read(STDIN_FILENO, &byte, 1) != 1)
		return 2;
	for (unsigned int i = 0; i < n; i++) {
		snprintf(want, sizeof(want), "%07u%07u", i, i);
		if (pwrite(fds[i], want + 7, 7, 7) != 7 ||
		    pread(fds[i], got, sizeof(got), 0) != 14 ||
		    memcmp(got, want, 14) || close(fds[i]))
			refused("%u: %s", i, strerror(errno));
	}
	free(fds);
	say("held");
	return 0;
}

/* ---- what costs no store anything ---- */

static int makes(const char *dir, int n)
{
	static const char value[1900];
	char path[4096];
	int made, err, with = 0;

	for (made = 0; made < n; made++) {
		snprintf(path, sizeof(path), "%s/%0200d", dir, made);
		if (mkdir(path, 0755))
			break;
		with += !setxattr(path, "user.x", value, sizeof(value), 0);
	}
	err = errno;
	printf("made %d, %d with attributes\n", made, with);
	if (made < n)
		refused("%s", strerror(err));
	return 0;
}

/* ---- a system call that does not end ---- */

/* Memory whose pages do not come, and the descriptor that says who wants one.
 * They are withheld by userfaultfd(2), which is root's; who is not root
 * withholds them by a FUSE of his own. */
static int withheld(size_t len, char **ret)
{
	int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	*ret = mmap(NULL, len, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	reg.range.start = (uintptr_t)*ret;
	reg.range.len = len;
	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api) < 0 ||
	    ioctl(uffd, UFFDIO_REGISTER, &reg) < 0)
		refused("userfaultfd: %s", strerror(errno));
	return uffd;
}

/* Waits until the page is wanted, and for a line on stdin. Its address. */
static uint64_t wanted(int uffd, const char *what)
{
	struct uffd_msg msg;
	char line[8];

	if (read(uffd, &msg, sizeof(msg)) != sizeof(msg))
		refused("no fault");
	say(what);
	(void)!fgets(line, sizeof(line), stdin);
	return msg.arg.pagefault.address;
}

static void *gives_page(void *uffd)
{
	struct uffdio_zeropage z = { .range = { .len = 4096 } };

	z.range.start = wanted(*(int *)uffd, "waits") & ~4095ull;
	if (ioctl(*(int *)uffd, UFFDIO_ZEROPAGE, &z) < 0)
		refused("the page: %s", strerror(errno));
	return NULL;
}

static int stall(const char *file)
{
	int fd = open(file, O_WRONLY | O_CREAT, 0666), uffd;
	static char first[4096];
	pthread_t thread;
	char *page;

	if (fd < 0 || write(fd, first, sizeof(first)) != sizeof(first))
		refused("%s: %s", file, strerror(errno));
	uffd = withheld(4096, &page);
	if (pthread_create(&thread, NULL, gives_page, &uffd))
		refused("no thread");
	if (pwrite(fd, page, 4096, 0) != 4096)
		refused("%s: %s", file, strerror(errno));
	pthread_join(thread, NULL);
	close(fd);
	return 0;
}

#define LISTING 65536u

struct listing {
	int fd;
	char *into;
};

static void *list(void *arg)
{
	struct listing *l = arg;

	syscall(SYS_getdents64, l->fd, l->into, LISTING);
	return NULL;
}

static int lock(const char *dir)
{
	struct listing l = { .fd = open(dir, O_RDONLY | O_DIRECTORY) };
	int uffd = withheld(LISTING, &l.into);
	pthread_t thread;

	if (l.fd < 0 || pthread_create(&thread, NULL, list, &l))
		refused("%s: %s", dir, strerror(errno));
	(void)wanted(uffd, "locked");
	close(uffd); /* all come */
	pthread_join(thread, NULL);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "stall") == 0)
		return stall(argv[2]);
	if (argc == 3 && strcmp(argv[1], "lock") == 0)
		return lock(argv[2]);
	if (argc == 3 && strcmp(argv[1], "follow") == 0)
		return follow(argv[2]);
	if (argc == 4 && strcmp(argv[1], "flood") == 0)
		return strcmp(argv[3], "join") == 0 ?
			       flood(argv[2], POOL_MSG_JOIN, "\x50", 4u << 20) :
			       flood(argv[2], POOL_MSG_INVENTORY, "\x0a",
				     1u << 20);
	if (argc == 3 && strcmp(argv[1], "join") == 0)
		return join(argv[2], "", "127.0.0.1:1") < 0;
	if (argc == 7 && strcmp(argv[1], "lend") == 0)
		return lend(argv[2], argv[3], argv[4], argv[5], argv[6]);
	if (argc == 4 && strcmp(argv[1], "crowd") == 0)
		return crowd(argv[2], (unsigned int)atoi(argv[3]));
	if (argc == 4 && strcmp(argv[1], "members") == 0)
		return members(argv[2], (unsigned int)atoi(argv[3]));
	if (argc == 4 && strcmp(argv[1], "makes") == 0)
		return makes(argv[2], atoi(argv[3]));
	if (argc == 4 && strcmp(argv[1], "idle") == 0)
		return idle(argv[2], atoi(argv[3]));
	if (argc == 4 && strcmp(argv[1], "hold") == 0)
		return hold(argv[2], (unsigned int)atoi(argv[3]));
	fprintf(stderr, "usage: see the head of tests/it/intruder.c\n");
	return 2;
}
