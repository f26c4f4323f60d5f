#include "daemon/name_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "fs/guard.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"

#define END_WAIT_MS 15000  /* for an ending daemon: it publishes for 5 s */
#define SERVE_WAIT_MS 2000 /* for one that may not have received SIGTERM yet */
#define POLL_US 10000
#define RETRY_MS 10

static int lock_fd = -1; /* owns */

/* Retries of the lock after a take-over, until the old daemon has ended. */
static struct {
	uv_timer_t retry;
	bool trying, warned;
	uint64_t since_ms;
	const char *dir, *mount; /* borrow */
} taken;

/* "PID STATE MOUNT\n" */
#define STATE_ENDING "ending"
#define STATE_SERVING "serving"

struct holder {
	int pid; /* 0: not known */
	bool ending;
	char mount[PATH_MAX]; /* "": none */
};

static void write_state(const char *state, const char *mount)
{
	char text[PATH_MAX + 64];
	int len = snprintf(text, sizeof(text), "%d %s %s\n", (int)getpid(),
			   state, mount);

	/* If this fails, the next daemon does not wait for our end. */
	if (lock_fd >= 0 && ftruncate(lock_fd, 0) == 0)
		(void)!pwrite(lock_fd, text, (size_t)len, 0);
}

static void read_holder(struct holder *h)
{
	char text[PATH_MAX + 64], state[16];
	ssize_t n = pread(lock_fd, text, sizeof(text) - 1, 0);
	int at = 0;

	memset(h, 0, sizeof(*h));
	text[n > 0 ? n : 0] = '\0';
	if (sscanf(text, "%d %15s %n", &h->pid, state, &at) != 2 || !at)
		return;
	h->ending = strcmp(state, STATE_ENDING) == 0;
	snprintf(h->mount, sizeof(h->mount), "%.*s",
		 (int)strcspn(text + at, "\n"), text + at);
}

/* umount(8) returns before the daemon has noticed. */
static bool is_ending(const struct holder *h)
{
	uint64_t id;

	return h->ending || (h->mount[0] &&
			     fs_guard_mount_now(h->mount, &id) == -ENOENT);
}

static int refuse(const struct holder *h, const char *name, bool ending)
{
	if (ending)
		pool_error("kvpoold %s (pid %d) has not ended after %d s: to "
			   "give up what it has not published: kill -9 %d",
			   name, h->pid, END_WAIT_MS / 1000, h->pid);
	else
		pool_error("kvpoold %s is running already (pid %d%s%s): stop "
			   "it, take its place with --takeover, or give this "
			   "one a --name of its own", name, h->pid,
			   h->mount[0] ? ", mounted at " : "", h->mount);
	return -EBUSY;
}

static int wait_for_lock(const char *dir, const char *name)
{
	uint64_t start = pool_now_ms(), waited = 0;
	struct holder h;
	bool ending, logged = false;
	int err;

	while (flock(lock_fd, LOCK_EX | LOCK_NB) < 0) {
		err = -errno;
		if (err != -EWOULDBLOCK && err != -EINTR) {
			pool_error("%s/" DAEMON_NAME_LOCK_FILE
				   ": cannot lock it: %s", dir, strerror(-err));
			return err;
		}
		read_holder(&h);
		ending = is_ending(&h);
		waited = pool_now_ms() - start;
		if (waited > (ending ? END_WAIT_MS : SERVE_WAIT_MS))
			return refuse(&h, name, ending);
		if (ending && !logged)
			pool_info("waiting for kvpoold %s (pid %d), which is "
				  "ending", name, h.pid);
		logged = logged || ending;
		usleep(POLL_US);
	}
	if (logged)
		pool_info("it has ended, after %llu ms",
			  (unsigned long long)waited);
	return 0;
}

static int open_file(const char *dir)
{
	char path[PATH_MAX];

	if ((size_t)snprintf(path, sizeof(path), "%s/" DAEMON_NAME_LOCK_FILE,
			     dir) >= sizeof(path))
		return -ENAMETOOLONG;
	lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	return lock_fd < 0 ? -errno : 0;
}

int daemon_name_lock(const char *dir, const char *name)
{
	int err = open_file(dir);

	if (err)
		pool_error("%s/" DAEMON_NAME_LOCK_FILE ": %s", dir,
			   strerror(-err));
	else
		err = wait_for_lock(dir, name);
	if (!err)
		write_state("starting", "");
	return err;
}

static bool try_lock(void)
{
	return flock(lock_fd, LOCK_EX | LOCK_NB) == 0;
}

static void on_retry(uv_timer_t *h)
{
	bool have = try_lock();

	if (have) {
		write_state(STATE_SERVING, taken.mount);
		uv_close((uv_handle_t *)h, NULL);
	} else if (!taken.warned &&
		   pool_now_ms() - taken.since_ms > SERVE_WAIT_MS) {
		taken.warned = true;
		pool_warn("%s/" DAEMON_NAME_LOCK_FILE " is locked by another "
			  "process than the daemon that handed over: until it "
			  "is unlocked, another start of this name will not "
			  "wait for this daemon's end", taken.dir);
	}
}

void daemon_name_lock_taken(uv_loop_t *loop, const char *dir,
			    const char *mount)
{
	int err = open_file(dir);

	if (err) {
		pool_warn("%s/" DAEMON_NAME_LOCK_FILE ": %s: another start of "
			  "this name will not wait for this daemon's end", dir,
			  strerror(-err));
		return;
	}
	if (try_lock()) {
		write_state(STATE_SERVING, mount ? mount : "");
		return;
	}
	taken.dir = dir;
	taken.mount = mount ? mount : "";
	taken.since_ms = pool_now_ms();
	taken.trying = true;
	uv_timer_init(loop, &taken.retry);
	uv_timer_start(&taken.retry, on_retry, RETRY_MS, RETRY_MS);
}

void daemon_name_lock_serving(const char *mount)
{
	write_state(STATE_SERVING, mount ? mount : "");
}

void daemon_name_lock_ending(void)
{
	if (taken.trying && !uv_is_closing((uv_handle_t *)&taken.retry))
		uv_close((uv_handle_t *)&taken.retry, NULL);
	write_state(STATE_ENDING, "");
}
