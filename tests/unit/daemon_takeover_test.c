#include "tests/lib/unit.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_one_did_not_take_over_is_offered_to_the_next),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
