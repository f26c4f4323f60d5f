/*
 * POSIX semantics of what stat(2) shows of times and counts, of programs that
 * are executed, and of who may do what. On an ordinary filesystem (--mode
 * plain) they hold as they are.
 */
#include "tests/traces/engine.h"

#include <signal.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

#define SIZE (128 * KIB)
#define NOBODY 65534

static int put(const struct eng_dir *t, const char *key, unsigned version)
{
	char tmp[300];

	snprintf(tmp, sizeof(tmp), "%s.tmp", key);
	return eng_put(t->d, tmp, key, version, SIZE, 0);
}

static bool later(struct timespec a, struct timespec b)
{
	return a.tv_sec > b.tv_sec ||
	       (a.tv_sec == b.tv_sec && a.tv_nsec > b.tv_nsec);
}

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* Until what changes from now on has another time than what has changed. */
static void next_tick(void)
{
	struct timespec begin, now;

	clock_gettime(CLOCK_REALTIME_COARSE, &begin);
	for (int i = 0; i < 2; i++) {
		do {
			eng_sleep_ms(1);
			clock_gettime(CLOCK_REALTIME_COARSE, &now);
		} while (!later(now, begin));
		begin = now;
	}
}

/* ---- directories ---- */

struct seen {
	char path[ENG_PATH], other[ENG_PATH]; /* through D, through B */
	struct stat d, b;
};

static int look(const struct eng_dir *t, const char *name, struct seen *s)
{
	if (name[0]) {
		eng_join(s->path, t->d, name);
		eng_join(s->other, t->b, name);
	} else {
		strcpy(s->path, t->d);
		strcpy(s->other, t->b);
	}
	EXPECT_OK(stat(s->path, &s->d), s->path);
	TRY(eng_await_name(s->other));
	EXPECT_OK(stat(s->other, &s->b), s->other);
	next_tick();
	return 0;
}

/* Something in it was made, renamed or removed since `look`. */
static int advanced(const struct seen *s, const char *what)
{
	double end = eng_now() + ENG_DEADLINE_MS / 1e3;
	struct stat st;

	EXPECT_OK(stat(s->path, &st), s->path);
	EXPECT(later(st.st_mtim, s->d.st_mtim),
	       "expected the mtime of %s to advance at %s", s->path, what);
	EXPECT(later(st.st_ctim, s->d.st_ctim),
	       "expected the ctime of %s to advance at %s", s->path, what);
	do {
		EXPECT(eng_now() < end,
		       "expected the times of %s to advance at %s through D",
		       s->other, what);
		eng_sleep_ms(2);
		EXPECT_OK(stat(s->other, &st), s->other);
	} while (!later(st.st_mtim, s->b.st_mtim) ||
		 !later(st.st_ctim, s->b.st_ctim));
	return 0;
}

static int make_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);

	EXPECT_OK(fd, path);
	EXPECT_OK(close(fd), path);
	return 0;
}

static int directory_times(const struct eng_dir *t)
{
	char path[ENG_PATH], to[ENG_PATH];
	struct seen top, sub;

	TRY(look(t, "", &top));
	EXPECT_OK(mkdir(eng_join(path, t->d, "sub"), 0755), path);
	TRY(advanced(&top, "mkdir"));
	TRY(look(t, "sub", &sub));
	TRY(make_file(eng_join(path, t->d, "sub/f")));
	TRY(advanced(&sub, "open(O_CREAT)"));
	TRY(look(t, "sub", &sub));
	TRY(look(t, "", &top));
	EXPECT_OK(rename(path, eng_join(to, t->d, "sub/g")), to);
	TRY(advanced(&sub, "rename"));
	TRY(look(t, "sub", &sub));
	EXPECT_OK(rename(to, eng_join(path, t->d, "g")), path);
	TRY(advanced(&sub, "rename to another directory"));
	TRY(advanced(&top, "rename from another directory"));
	TRY(look(t, "", &top));
	EXPECT_OK(unlink(path), path);
	TRY(advanced(&top, "unlink"));
	TRY(look(t, "", &top));
	EXPECT_OK(mknod(path, S_IFREG | 0644, 0), path);
	TRY(advanced(&top, "mknod"));
	TRY(look(t, "", &top));
	EXPECT_OK(rmdir(eng_join(path, t->d, "sub")), path);
	return advanced(&top, "rmdir");
}

/* What is set stays, until a name is made; nothing else moves it. */
static int directory_time_set(const struct eng_dir *t)
{
	struct timespec ts[2] = { { 1000000000, 0 }, { 1000000001, 7 } };
	char path[ENG_PATH], other[ENG_PATH];
	double end = eng_now() + ENG_DEADLINE_MS / 1e3;
	struct stat st, before;

	EXPECT_OK(mkdir(eng_join(path, t->d, "dir"), 0755), path);
	TRY(eng_await_name(eng_join(other, t->b, "dir")));
	next_tick();
	EXPECT_OK(stat(path, &before), path);
	next_tick();
	EXPECT_OK(utimensat(AT_FDCWD, path, ts, 0), path);
	EXPECT_OK(stat(path, &st), path);
	EXPECT(same_time(st.st_mtim, ts[1]), "expected the mtime that was set");
	EXPECT(later(st.st_ctim, before.st_ctim),
	       "expected the ctime to advance at utimensat");
	do {
		EXPECT(eng_now() < end, "expected the mtime through B");
		eng_sleep_ms(2);
		EXPECT_OK(stat(other, &st), other);
	} while (!same_time(st.st_mtim, ts[1]));
	next_tick();
	EXPECT_OK(stat(path, &before), path);
	next_tick();
	EXPECT_OK(chmod(path, 0700), path);
	EXPECT_OK(stat(path, &st), path);
	EXPECT(same_time(st.st_mtim, ts[1]) &&
		       later(st.st_ctim, before.st_ctim),
	       "expected chmod to move the ctime only");
	TRY(make_file(eng_join(other, path, "f")));
	EXPECT_OK(stat(path, &st), path);
	EXPECT(later(st.st_mtim, before.st_mtim),
	       "expected the mtime to advance");
	return 0;
}

static int await_nlink(const char *path, nlink_t want)
{
	double end = eng_now() + ENG_DEADLINE_MS / 1e3;
	struct stat st;

	for (;;) {
		EXPECT_OK(stat(path, &st), path);
		if (st.st_nlink == want)
			return 0;
		EXPECT(eng_now() < end, "expected %lu links of %s, got %lu",
		       (unsigned long)want, path, (unsigned long)st.st_nlink);
		eng_sleep_ms(2);
	}
}

static int has_links(const struct eng_dir *t, const char *name, nlink_t want)
{
	char path[ENG_PATH];
	struct stat st;

	eng_join(path, t->d, name);
	EXPECT_OK(stat(path, &st), path);
	EXPECT(st.st_nlink == want, "expected %lu links of %s, got %lu",
	       (unsigned long)want, path, (unsigned long)st.st_nlink);
	return await_nlink(eng_join(path, t->b, name), want);
}

static int directory_links(const struct eng_dir *t)
{
	char path[ENG_PATH], to[ENG_PATH];
	struct stat st;

	TRY(eng_mkdir(eng_join(path, t->d, "top")));
	TRY(eng_await_name(eng_join(path, t->b, "top")));
	TRY(has_links(t, "top", 2));
	for (int i = 0; i < 3; i++) {
		snprintf(to, sizeof(to), "top/%d", i);
		EXPECT_OK(mkdir(eng_join(path, t->d, to), 0755), path);
		snprintf(to, sizeof(to), "top/f%d", i);
		TRY(make_file(eng_join(path, t->d, to)));
		TRY(has_links(t, "top", (nlink_t)(3 + i)));
	}
	EXPECT_OK(rmdir(eng_join(path, t->d, "top/1")), path);
	TRY(has_links(t, "top", 4));
	EXPECT_OK(rename(eng_join(path, t->d, "top/2"),
			 eng_join(to, t->d, "top/0/2")), to);
	TRY(has_links(t, "top", 3));
	TRY(has_links(t, "top/0", 3));
	int fd = open(to, O_RDONLY | O_DIRECTORY);
	EXPECT_OK(fd, to);
	EXPECT_OK(rmdir(to), to);
	EXPECT_OK(fstat(fd, &st), to);
	EXPECT(st.st_nlink == 0, "expected no link of a removed directory, got "
	       "%lu", (unsigned long)st.st_nlink);
	close(fd);
	return has_links(t, "top/0", 2);
}

/* ---- files ---- */

static int links_are(int fd, nlink_t want, const char *when)
{
	struct stat st;

	EXPECT_OK(fstat(fd, &st), when);
	EXPECT(st.st_nlink == want, "expected %lu links %s, got %lu",
	       (unsigned long)want, when, (unsigned long)st.st_nlink);
	return 0;
}

static int unlinked_links(const struct eng_dir *t)
{
	char path[ENG_PATH], other[ENG_PATH];

	for (int i = 0; i < 3; i++) {
		/* Published; the first one gets another nodeid by that. */
		TRY(put(t, "k", 0));
		eng_join(path, t->d, "k");
		int fd = open(path, O_RDONLY);
		EXPECT_OK(fd, path);
		TRY(links_are(fd, 1, "before it is published"));
		TRY(eng_sync_dir(t->d));
		TRY(links_are(fd, 1, "of what is published"));
		if (i == 1) {
			TRY(put(t, "other", 1));
			EXPECT_OK(rename(eng_join(other, t->d, "other"), path),
				  path);
			TRY(links_are(fd, 0, "of what was replaced"));
		}
		EXPECT_OK(unlink(path), path);
		TRY(links_are(fd, 0, "of what was unlinked"));
		close(fd);
		/* Being written. */
		fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
		EXPECT_OK(fd, path);
		TRY(eng_write_all(fd, "hello", 5, path));
		TRY(links_are(fd, 1, "of what is written"));
		EXPECT_OK(unlink(path), path);
		TRY(links_are(fd, 0, "of what is written and unlinked"));
		close(fd);
	}
	return 0;
}

/* By fd (of a file that is being written) or path. */
static int change_file(int fd, const char *path, int how)
{
	struct timespec ts[2] = { { 1000000000, 0 }, { 1000000001, 0 } };

	switch (how) {
	case 0:
		return fd >= 0 ? fchmod(fd, 0600) : chmod(path, 0600);
	case 1:
		return fd >= 0 ? fchown(fd, geteuid(), getegid()) :
				 chown(path, geteuid(), getegid());
	case 2:
		return fd >= 0 ? futimens(fd, ts) :
				 utimensat(AT_FDCWD, path, ts, 0);
	case 3:
		return fd >= 0 ? ftruncate(fd, 1000) : truncate(path, 1000);
	case 4:
		return setxattr(path, "user.x", "1", 1, 0);
	case 5:
		return fd >= 0 ? posix_fallocate(fd, 0, 5000) : 0;
	}
	return 0;
}
static const char *const changes[] = { "chmod", "chown", "utimens", "truncate",
				       "setxattr", "fallocate" };

static int ctime_moves(int fd, const char *path, int how)
{
	struct stat before, after;

	EXPECT_OK(stat(path, &before), path);
	next_tick();
	int rc = change_file(fd, path, how);
	if (how == 4 && rc < 0 && errno == EOPNOTSUPP)
		return 0; /* an old tmpfs */
	EXPECT(rc == 0, "expected %s of %s to work, got %s", changes[how],
	       path, strerror(rc > 0 ? rc : errno));
	EXPECT_OK(stat(path, &after), path);
	EXPECT(later(after.st_ctim, before.st_ctim),
	       "expected the ctime of %s to advance at %s%s", path,
	       changes[how], fd >= 0 ? " while it is written" : "");
	if (how == 3)
		EXPECT(later(after.st_mtim, before.st_mtim),
		       "expected the mtime of %s to advance at %s", path,
		       changes[how]);
	if (how == 2)
		EXPECT(after.st_mtim.tv_sec == 1000000001,
		       "expected the mtime that was set, got %lld",
		       (long long)after.st_mtim.tv_sec);
	return 0;
}

static int file_ctime(const struct eng_dir *t)
{
	char path[ENG_PATH], to[ENG_PATH];
	struct stat before, after;

	for (int round = 0; round < 2; round++) {
		for (int how = 0; how < 5; how++) {
			TRY(put(t, "k", (unsigned)round));
			eng_join(path, t->d, "k");
			if (round)
				TRY(eng_sync_dir(t->d));
			TRY(ctime_moves(-1, path, how));
			TRY(ctime_moves(-1, path, 0));
		}
		eng_join(path, t->d, "w");
		int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
		EXPECT_OK(fd, path);
		for (int how = 0; how < 6; how++)
			TRY(ctime_moves(fd, path, how));
		close(fd);
		EXPECT_OK(stat(path, &before), path);
		next_tick();
		EXPECT_OK(rename(path, eng_join(to, t->d, "v")), to);
		EXPECT_OK(stat(to, &after), to);
		EXPECT(later(after.st_ctim, before.st_ctim),
		       "expected the ctime to advance at rename");
		EXPECT(same_time(after.st_mtim, before.st_mtim),
		       "expected the mtime to stay at rename");
		TRY(eng_sync_dir(t->d));
		EXPECT_OK(stat(to, &before), to);
		EXPECT(!later(after.st_ctim, before.st_ctim) &&
			       same_time(after.st_mtim, before.st_mtim),
		       "expected the times to stay at the publication");
		next_tick();
		EXPECT_OK(rename(to, eng_join(path, t->d, "u")), path);
		EXPECT_OK(stat(path, &after), path);
		EXPECT(later(after.st_ctim, before.st_ctim),
		       "expected the ctime to advance at a second rename");
		EXPECT_OK(unlink(path), path);
	}
	return 0;
}

/* O_TRUNC, and what is written. */
static int write_times(const struct eng_dir *t)
{
	struct stat before, after;
	char path[ENG_PATH];

	for (int i = 0; i < 6; i++) {
		bool published = i % 2, truncates = i < 4, empty = i >= 2;

		TRY(put(t, "k", (unsigned)i));
		eng_join(path, t->d, "k");
		if (empty)
			EXPECT_OK(truncate(path, truncates ? 0 : 100), path);
		if (published)
			TRY(eng_sync_dir(t->d));
		EXPECT_OK(stat(path, &before), path);
		next_tick();
		int fd = open(path, O_WRONLY | (truncates ? O_TRUNC : 0));
		EXPECT_OK(fd, path);
		if (!truncates)
			TRY(eng_write_all(fd, "hello", 5, path));
		EXPECT_OK(stat(path, &after), path);
		EXPECT(later(after.st_mtim, before.st_mtim) &&
			       later(after.st_ctim, before.st_ctim),
		       "expected %s to set the times (case %d)",
		       truncates ? "O_TRUNC" : "write", i);
		EXPECT(after.st_size == (truncates ? 0 : 100),
		       "expected its size, got %lld",
		       (long long)after.st_size);
		close(fd);
		TRY(eng_sync_dir(t->d));
		EXPECT_OK(stat(path, &before), path);
		EXPECT(!later(after.st_mtim, before.st_mtim),
		       "expected the mtime to stay at the publication (case "
		       "%d)", i);
	}
	return 0;
}

/* ---- programs ---- */

static int copy_program(const char *path)
{
	static char buf[MIB];
	int from = open("/bin/sleep", O_RDONLY);
	int to = open(path, O_WRONLY | O_CREAT | O_EXCL, 0755);
	ssize_t n = read(from, buf, sizeof(buf));

	EXPECT(from >= 0 && to >= 0 && n > 0, "expected to copy /bin/sleep");
	TRY(eng_write_all(to, buf, (size_t)n, path));
	close(from);
	EXPECT_OK(close(to), path);
	return 0;
}

/* 0, or the errno that execve had. *ret_pid: of one that runs. */
static int run_program(const char *path, pid_t *ret_pid)
{
	int pipes[2], err = 0;
	pid_t pid;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		return errno;
	pid = fork();
	if (pid == 0) {
		execl(path, path, "1000", (char *)NULL);
		err = errno;
		_exit(write(pipes[1], &err, sizeof(err)) < 0);
	}
	close(pipes[1]);
	if (read(pipes[0], &err, sizeof(err)) < 0) /* nothing: it runs */
		err = errno;
	close(pipes[0]);
	*ret_pid = pid;
	if (err)
		waitpid(pid, NULL, 0);
	return err;
}

static void end_program(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static int expect_run(const char *path, int want, const char *when)
{
	pid_t pid;
	int err = run_program(path, &pid);

	if (!err)
		end_program(pid);
	EXPECT(err == want, "expected %s to execute what is %s, got %s",
	       want ? strerrorname_np(want) : "success", when,
	       err ? strerrorname_np(err) : "success");
	return 0;
}

/* Nobody writes to what is executed. */
static int busy(const char *path, const char *when)
{
	static const int flags[] = { O_WRONLY, O_RDWR, O_WRONLY | O_TRUNC,
				     O_WRONLY | O_APPEND,
				     O_WRONLY | O_CREAT | O_TRUNC };
	struct stat before, after;

	EXPECT_OK(stat(path, &before), path);
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		errno = 0;
		int fd = open(path, flags[i], 0755);
		EXPECT(fd < 0 && errno == ETXTBSY,
		       "expected ETXTBSY from open(%#x) of a program %s, got "
		       "%s", flags[i], when,
		       fd < 0 ? strerrorname_np(errno) : "success");
	}
	errno = 0;
	EXPECT(truncate(path, 0) < 0 && errno == ETXTBSY,
	       "expected ETXTBSY from truncate of a program %s, got %s", when,
	       errno ? strerrorname_np(errno) : "success");
	EXPECT_OK(stat(path, &after), path);
	EXPECT(after.st_size == before.st_size,
	       "expected the program to be as it was");
	return 0;
}

static int text_busy(const struct eng_dir *t)
{
	char path[ENG_PATH], to[ENG_PATH], name[32];
	pid_t pid;

	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "p%d", i);
		TRY(copy_program(eng_join(path, t->d, name)));
		if (i % 2)
			TRY(eng_sync_dir(t->d));
		int err = run_program(path, &pid);
		EXPECT(!err, "expected to execute %s, got %s", path,
		       strerror(err));
		int rc = busy(path, i % 2 ? "(published)" : "(new)");
		/* It runs while it is published. */
		if (!rc && !eng_sync_dir(t->d))
			rc = busy(path, "(published since)");
		if (!rc && rename(path, eng_join(to, t->d, "renamed")) == 0)
			rc = busy(to, "(renamed)");
		end_program(pid);
		TRY(rc);
		/* It has ended. */
		int fd = open(to, O_WRONLY);
		EXPECT_OK(fd, to);
		TRY(expect_run(to, ETXTBSY, "open for writing"));
		close(fd);
		TRY(expect_run(to, 0, "closed"));
		fd = open(to, O_WRONLY | O_APPEND);
		EXPECT_OK(fd, to);
		TRY(eng_write_all(fd, "x", 1, to));
		TRY(expect_run(to, ETXTBSY, "being written"));
		close(fd);
		TRY(eng_sync_dir(t->d));
		TRY(expect_run(to, 0, "closed and published"));
		fd = open(eng_join(path, t->d, "new"), O_RDWR | O_CREAT, 0755);
		EXPECT_OK(fd, path);
		TRY(expect_run(path, ETXTBSY, "being created"));
		close(fd);
		EXPECT_OK(unlink(path), path);
		EXPECT_OK(unlink(to), to);
	}
	return 0;
}

/* ---- who may do what ---- */

/* fn, of t by the name ".", as a user who owns nothing but what it makes. (The
 * path to t is perhaps closed to it.) */
static int as_nobody(const struct eng_dir *t,
		     int (*fn)(const struct eng_dir *t))
{
	static const struct eng_dir here = { ".", "." };
	char text[512] = "";
	int pipes[2], status = 0;
	pid_t pid;

	if (geteuid() != 0) {
		eng_note("another user's rights skipped: not root");
		return 0;
	}
	EXPECT_OK(pipe(pipes), "pipe");
	pid = fork();
	if (pid == 0) {
		if (chdir(t->d) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
		    setresuid(NOBODY, NOBODY, NOBODY) < 0)
			_exit(2);
		status = fn(&here) ? 1 : 0;
		eng_failure_take(text, sizeof(text));
		if (write(pipes[1], text, strlen(text)) < 0)
			status = 2;
		_exit(status);
	}
	close(pipes[1]);
	ssize_t n = read(pipes[0], text, sizeof(text) - 1);
	close(pipes[0]);
	text[n > 0 ? n : 0] = '\0';
	waitpid(pid, &status, 0);
	EXPECT(status == 0, "as another user: %s", text);
	return 0;
}

static int others_renames(const struct eng_dir *t)
{
	char a[ENG_PATH], b[ENG_PATH];

	/* In a directory that it may not write. */
	EXPECT_ERR(rename(eng_join(a, t->d, "closed/d"),
			  eng_join(b, t->d, "closed/e")), EACCES);
	/* Another's, in a sticky one. */
	EXPECT_ERR(rename(eng_join(a, t->d, "sticky/d"),
			  eng_join(b, t->d, "sticky/e")), EPERM);
	EXPECT_ERR(rename(eng_join(a, t->d, "sticky/f"),
			  eng_join(b, t->d, "sticky/e")), EPERM);
	EXPECT_ERR(unlink(a), EPERM);
	EXPECT_ERR(rmdir(eng_join(a, t->d, "sticky/d")), EPERM);
	/* Another's, in one that all may write: within it, as its own; but
	 * ".." in it would change. */
	EXPECT_OK(rename(eng_join(a, t->d, "open/d"),
			 eng_join(b, t->d, "open/e")), b);
	EXPECT_ERR(rename(b, eng_join(a, t->d, "open2/e")), EACCES);
	EXPECT_OK(rename(eng_join(a, t->d, "open/f"),
			 eng_join(b, t->d, "open2/f")), b);
	/* Its own, over another's in a sticky one. */
	TRY(make_file(eng_join(a, t->d, "sticky/mine")));
	EXPECT_ERR(rename(a, eng_join(b, t->d, "sticky/f")), EPERM);
	EXPECT_OK(rename(a, eng_join(b, t->d, "sticky/mine2")), b);
	EXPECT_OK(mkdir(eng_join(a, t->d, "sticky/dir"), 0755), a);
	EXPECT_OK(rename(a, eng_join(b, t->d, "open2/dir")), b);
	/* What is another's is not this one's to change. */
	EXPECT_ERR(chmod(eng_join(a, t->d, "open2/f"), 0666), EPERM);
	EXPECT_ERR(chown(a, NOBODY, NOBODY), EPERM);
	EXPECT_ERR(utimensat(AT_FDCWD, a, NULL, 0), EACCES);
	EXPECT_ERR(truncate(a, 0), EACCES);
	return 0;
}

static int rename_rights(const struct eng_dir *t)
{
	static const struct {
		const char *name;
		mode_t mode;
	} dirs[] = { { "closed", 0755 }, { "sticky", 01777 },
		     { "open", 0777 }, { "open2", 0777 } };
	char path[ENG_PATH], sub[ENG_PATH];

	EXPECT_OK(chmod(t->d, 0755), t->d);
	for (size_t i = 0; i < 4; i++) {
		eng_join(path, t->d, dirs[i].name);
		EXPECT_OK(mkdir(path, 0755), path);
		EXPECT_OK(chmod(path, dirs[i].mode), path);
		EXPECT_OK(mkdir(eng_join(sub, path, "d"), 0755), sub);
		TRY(make_file(eng_join(sub, path, "f")));
	}
	return as_nobody(t, others_renames);
}

/* One errno each, and nothing is there afterwards. */
static int refused(const struct eng_dir *t)
{
	char path[ENG_PATH], file[ENG_PATH];

	if (eng.mode == ENG_PLAIN) {
		eng_note("what is refused skipped: a plain directory has it");
		return 0;
	}
	TRY(put(t, "f", 0));
	eng_join(file, t->d, "f");
	eng_join(path, t->d, "new");
	EXPECT_ERR(symlink("f", path), EPERM);
	EXPECT_ERR(link(file, path), EPERM);
	EXPECT_ERR(mknod(path, S_IFIFO | 0644, 0), EPERM);
	EXPECT_ERR(mknod(path, S_IFSOCK | 0644, 0), EPERM);
	EXPECT_ERR(mknod(path, S_IFCHR | 0644, makedev(1, 3)), EPERM);
	EXPECT_ERR(mknod(path, S_IFBLK | 0644, makedev(7, 0)), EPERM);
	EXPECT_ERR(mknod(path, S_IFREG | 04755, 0), EPERM);
	EXPECT_ERR(open(path, O_WRONLY | O_CREAT, 04755), EPERM);
	EXPECT_ERR(open(path, O_WRONLY | O_CREAT, 02755), EPERM);
	EXPECT_ERR(access(path, F_OK), ENOENT);
	EXPECT_ERR(chmod(file, 04644), EPERM);
	EXPECT_ERR(chmod(file, 02755), EPERM);
	EXPECT_OK(mkdir(path, 0755), path);
	EXPECT_ERR(chmod(path, 02775), EPERM);
	EXPECT_OK(chmod(path, 01777), path);
	return 0;
}

const struct eng_test eng_posix_times[] = {
	{ "posix_directory_times", directory_times },
	{ "posix_directory_time_set", directory_time_set },
	{ "posix_directory_links", directory_links },
	{ "posix_unlinked_links", unlinked_links },
	{ "posix_file_ctime", file_ctime },
	{ "posix_write_times", write_times },
	{ "posix_text_busy", text_busy },
	{ "posix_rename_rights", rename_rights },
	{ "posix_refused", refused },
	{ NULL, NULL },
};
