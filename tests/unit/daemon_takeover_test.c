#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/takeover.h"

struct fixture {
	uv_loop_t loop;
	char *dir; /* owns */
	struct daemon_takeover *takeover;
	int paused; /* incremented by pause(), decremented by resume() */
	int offered;
};

/* A new daemon that exits after it has been offered everything. */
struct other {
	const char *dir;
	uv_async_t done;
	bool is_done;
	int status;
};

static const char *no_reason(void *arg)
{
	(void)arg;
	return NULL;
}

static void pause_it(void *arg)
{
	((struct fixture *)arg)->paused++;
}

static void offer(void *arg, struct pool_handover *h)
{
	(void)h;
	((struct fixture *)arg)->offered++;
}

static void resume_it(void *arg)
{
	((struct fixture *)arg)->paused--;
}

static pid_t this_one(void *arg)
{
	(void)arg;
	return getpid();
}

static void leave(void *arg)
{
	(void)arg;
	abort(); /* must not be called: no take-over succeeds */
}

static const struct daemon_takeover_ops ops = {
	.refuse = no_reason,
	.pause = pause_it,
	.busy = no_reason,
	.hand_over = offer,
	.resume = resume_it,
	.main_pid = this_one,
	.leave = leave,
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	if (!f)
		return -1;
	*state = f;
	f->dir = unit_dir_make("/tmp/takeover");
	return uv_loop_init(&f->loop) == 0 &&
	       daemon_takeover_open(&f->loop, f->dir, 0, &ops, f,
				    &f->takeover) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	char path[64];

	daemon_takeover_close(f->takeover);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	uv_loop_close(&f->loop);
	snprintf(path, sizeof(path), "%s/%s", f->dir, DAEMON_TAKEOVER_SOCKET);
	unlink(path);
	unit_dir_remove_empty(f->dir);
	free(f);
	return 0;
}

static void ask(void *arg)
{
	struct other *o = arg;
	struct daemon_taken taken;

	o->status = daemon_takeover_ask(o->dir, &taken);
	pool_handover_close(&taken.h);
	close(taken.fd);
	uv_async_send(&o->done);
}

static void on_done(uv_async_t *async)
{
	struct other *o = async->data;

	o->is_done = true;
	uv_close((uv_handle_t *)async, NULL);
}

/* Returns the status that the new daemon received. */
static int come_and_go(struct fixture *f)
{
	struct other o = { .dir = f->dir };
	uv_thread_t thread;

	uv_async_init(&f->loop, &o.done, on_done);
	o.done.data = &o;
	assert_int_equal(0, uv_thread_create(&thread, ask, &o));
	unit_run_until(&f->loop, o.is_done);
	uv_thread_join(&thread);
	return o.status;
}

static void what_one_did_not_take_over_is_offered_to_the_next(void **state)
{
	struct fixture *f = *state;
	int i;

	for (i = 1; i <= 2; i++) {
		assert_int_equal(0, come_and_go(f));
		assert_int_equal(i, f->offered);
		assert_int_equal(0, f->paused);
	}
}

/* ---- processes that are no new daemon ---- */

static int connect_to(struct fixture *f)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(un.sun_path, sizeof(un.sun_path), "%s/%s", f->dir,
		 DAEMON_TAKEOVER_SOCKET);
	assert_int_equal(0, connect(fd, (struct sockaddr *)&un, sizeof(un)));
	return fd;
}

static void one_that_says_nothing_is_not_waited_for(void **state)
{
	struct fixture *f = *state;
	int silent = connect_to(f);

	for (int i = 0; i < 3; i++)
		uv_run(&f->loop, UV_RUN_NOWAIT); /* accepted */
	assert_int_equal(0, come_and_go(f));
	assert_int_equal(1, f->offered);
	close(silent);
}

static unsigned int open_fds(void)
{
	unsigned int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Returns when the daemon has closed the connection. */
static void send_fd(struct fixture *f, int fd)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} control = { .buf = { 0 } };
	char text[252] = "KKTO\1";
	struct iovec iov = { text, sizeof(text) };
	struct msghdr mh = { .msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.buf,
			     .msg_controllen = sizeof(control.buf) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
	int at = connect_to(f);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	assert_int_equal(sizeof(text), sendmsg(at, &mh, 0));
	unit_run_until(&f->loop, recv(at, text, 1, MSG_DONTWAIT) >= 0 ||
					 errno != EAGAIN);
	close(at);
}

static void descriptors_sent_with_hello_are_closed(void **state)
{
	struct fixture *f = *state;
	unsigned int before = open_fds();

	send_fd(f, 0);
	assert_int_equal(before, open_fds());
	assert_int_equal(0, f->offered);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_one_did_not_take_over_is_offered_to_the_next),
		T(one_that_says_nothing_is_not_waited_for),
		T(descriptors_sent_with_hello_are_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
