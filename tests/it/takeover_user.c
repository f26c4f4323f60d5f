/*
 * A program that has all kinds of things open in a mount while the daemon is
 * replaced (tests/it/it_takeover.sh).
 *
 *   takeover_user DIR REMOTE MODE
 *   takeover_user --fill		  (writes REMOTE's bytes to stdout)
 *
 * DIR: an empty directory of the mount. REMOTE: a file of another node, of
 * which this mount has no copy (bytes as fill makes them from 'R', FILE_SIZE).
 * Makes its files, prints "ready", and at each line on stdin "again" does a
 * part of what it was about to do and checks what it has; at "end" the rest.
 * Exits with 0 if all was as it should be.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define FILE_SIZE (3u << 20)
#define PIECE (256u << 10)
#define NAMES 2000

static bool passthrough;

#define CHECK(what)                                                       \
	do {                                                              \
		if (!(what)) {                                            \
			fprintf(stderr, "line %d: %s (errno %d, %s)\n",   \
				__LINE__, #what, errno, strerror(errno)); \
			exit(1);                                          \
		}                                                         \
	} while (0)

static void fill(char *buf, size_t len, uint64_t at, char kind)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (char)((uint64_t)kind + (at + i) % 251 +
				(at + i) / 4096 % 7);
}

static bool filled(const char *buf, size_t len, uint64_t at, char kind)
{
	char c;

	for (size_t i = 0; i < len; i++) {
		fill(&c, 1, at + i, kind);
		if (buf[i] != c)
			return false;
	}
	return true;
}

static void write_piece(int fd, uint64_t at, char kind)
{
	static char buf[PIECE];

	fill(buf, PIECE, at, kind);
	CHECK(pwrite(fd, buf, PIECE, (off_t)at) == PIECE);
}

static int make(const char *name, int flags)
{
	int fd = open(name, flags | O_CREAT, 0644);

	CHECK(fd >= 0);
	return fd;
}

static void put(const char *name, char kind)
{
	int fd = make(name, O_WRONLY | O_TRUNC);

	for (uint64_t at = 0; at < FILE_SIZE; at += PIECE)
		write_piece(fd, at, kind);
	CHECK(close(fd) == 0);
}

static void check_fd(int fd, uint64_t size, char kind)
{
	static char buf[PIECE];
	struct stat st;

	CHECK(fstat(fd, &st) == 0);
	if ((uint64_t)st.st_size != size)
		fprintf(stderr, "'%c' has %lld bytes, not %llu\n", kind,
			(long long)st.st_size, (unsigned long long)size);
	CHECK((uint64_t)st.st_size == size);
	for (uint64_t at = 0; at < size; at += PIECE) {
		CHECK(pread(fd, buf, PIECE, (off_t)at) == PIECE);
		CHECK(filled(buf, PIECE, at, kind));
	}
}

static void check_name(const char *name, uint64_t size, char kind)
{
	int fd = open(name, O_RDONLY);

	CHECK(fd >= 0);
	check_fd(fd, size, kind);
	CHECK(close(fd) == 0);
}

/* A file that somebody reads, and its mapping. */
static struct reader {
	const char *name;
	char kind;
	int fd;
	char *map;
	struct stat st;
} readers[] = {
	{ .name = "kept", .kind = 'k' },      /* published, stays */
	{ .name = "rewritten", .kind = 'r' }, /* has a newer version */
	{ .name = "unlinked", .kind = 'u' },  /* its name has gone */
	{ .kind = 'R' }, /* of another node, perhaps borrowed */
};
#define NREADERS (sizeof(readers) / sizeof(readers[0]))

static void reader_open(struct reader *r, const char *name)
{
	r->fd = open(name, O_RDONLY);
	CHECK(r->fd >= 0);
	CHECK(fstat(r->fd, &r->st) == 0);
	r->map = mmap(NULL, FILE_SIZE, PROT_READ, MAP_SHARED, r->fd, 0);
	CHECK(r->map != MAP_FAILED);
}

static void reader_check(struct reader *r)
{
	struct stat st;

	check_fd(r->fd, FILE_SIZE, r->kind);
	CHECK(filled(r->map, FILE_SIZE, 0, r->kind));
	CHECK(fstat(r->fd, &st) == 0);
	CHECK(st.st_ino == r->st.st_ino);
}

/* Writers, each a piece further in each round. */
static struct writer {
	const char *name, *to; /* to: renamed at the end, or before its close */
	char kind;
	bool unlink, early;
	int fd;
	uint64_t at;
} writers[] = {
	{ .name = "in-place", .kind = 'p' },
	{ .name = "w.tmp", .to = "renamed-after", .kind = 't' },
	{ .name = "v.tmp", .to = "renamed-while-open", .kind = 'v',
	  .early = true },
	{ .name = "orphan", .kind = 'o', .unlink = true },
};
#define NWRITERS (sizeof(writers) / sizeof(writers[0]))

static void writer_step(struct writer *w)
{
	write_piece(w->fd, w->at, w->kind);
	w->at += PIECE;
	check_fd(w->fd, w->at, w->kind);
}

static void writer_open(struct writer *w)
{
	w->fd = make(w->name, O_RDWR | O_EXCL);
	writer_step(w);
	CHECK(fsetxattr(w->fd, "user.mark", &w->kind, 1, 0) == 0);
	if (w->early)
		CHECK(rename(w->name, w->to) == 0);
	if (w->unlink)
		CHECK(unlink(w->name) == 0);
}

static void writer_end(struct writer *w)
{
	const char *name = w->to ? w->to : w->name;
	char mark = 0;

	writer_step(w);
	if (w->unlink)
		CHECK(ftruncate(w->fd, PIECE) == 0);
	if (w->unlink)
		check_fd(w->fd, PIECE, w->kind);
	CHECK(close(w->fd) == 0);
	if (w->to && !w->early)
		CHECK(rename(w->name, w->to) == 0);
	if (w->unlink) {
		CHECK(access(name, F_OK) < 0 && errno == ENOENT);
		return;
	}
	check_name(name, w->at, w->kind);
	CHECK(getxattr(name, "user.mark", &mark, 1) == 1 && mark == w->kind);
}

/* A listing. */
static DIR *dir;
static char seen[NAMES];
static unsigned int nseen;

static void list_some(unsigned int max)
{
	struct dirent *e;
	int n;

	while (max-- > 0 && (errno = 0, e = readdir(dir)) != NULL) {
		if (sscanf(e->d_name, "n%d", &n) != 1)
			continue;
		CHECK(n >= 0 && n < NAMES && !seen[n]);
		seen[n] = 1;
		nseen++;
	}
	CHECK(errno == 0);
}

/* Two files behind one nodeid: one that is written, and was replaced since, and
 * the one in its place. (In passthrough mode the kernel does not allow it.) */
static int replaced = -1, in_place = -1;

static void moved_open(void)
{
	char path[64];

	replaced = make("moved", O_RDWR | O_EXCL);
	write_piece(replaced, 0, 'x');
	put("moved.tmp", 'y');
	CHECK(rename("moved.tmp", "moved") == 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", replaced);
	CHECK((in_place = open(path, O_RDWR)) >= 0);
	check_fd(in_place, FILE_SIZE, 'y');
}

static void moved_check(void)
{
	char c;

	write_piece(replaced, 0, 'z');
	check_fd(in_place, FILE_SIZE, 'y');
	CHECK(pread(replaced, &c, 1, 0) == 1 && c == 'z');
	write_piece(replaced, 0, 'x');
}

static void prepare(const char *remote)
{
	char name[32];
	size_t i;
	int fd;

	for (i = 0; i < NREADERS - 1; i++) {
		put(readers[i].name, readers[i].kind);
		CHECK((fd = open(".", O_RDONLY)) >= 0);
		CHECK(fsync(fd) == 0);
		close(fd);
		reader_open(&readers[i], readers[i].name);
	}
	reader_open(&readers[i], remote);
	put("rewritten", 'n');
	CHECK(unlink("unlinked") == 0);
	CHECK(mkdir("names", 0755) == 0);
	for (i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "names/n%zu", i);
		CHECK((fd = make(name, O_WRONLY)) >= 0);
		CHECK(close(fd) == 0);
	}
	CHECK((dir = opendir("names")) != NULL);
	list_some(50);
	put("closed.tmp", 'c');
	for (i = 0; i < NWRITERS; i++)
		writer_open(&writers[i]);
	CHECK(mkdir("gone", 0755) == 0);
	if (!passthrough)
		moved_open();
}

static void check_again(void)
{
	size_t i;

	for (i = 0; i < NREADERS; i++)
		reader_check(&readers[i]);
	for (i = 0; i < NWRITERS; i++)
		writer_step(&writers[i]);
	check_name("kept", FILE_SIZE, 'k');
	check_name("rewritten", FILE_SIZE, 'n');
	if (!passthrough)
		moved_check();
	list_some(300);
	CHECK(access("unlinked", F_OK) < 0 && errno == ENOENT);
	CHECK(access("never", F_OK) < 0 && errno == ENOENT);
}

/* A writable mapping; the daemon sees none of what goes through it. */
static char *shared_map(int *ret_fd)
{
	char *map;

	*ret_fd = make("mapped", O_RDWR);
	CHECK(ftruncate(*ret_fd, PIECE) == 0);
	map = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED, *ret_fd, 0);
	CHECK(map != MAP_FAILED);
	fill(map, PIECE / 2, 0, 'm');
	return map;
}

static void read_status(int fd)
{
	static char text[1 << 20];
	ssize_t n, len = 0;

	CHECK(pread(fd, text, 1, 0) == 1 && text[0] == '{');
	while ((n = pread(fd, text + len, 100, len)) > 0)
		len += n;
	CHECK(n == 0 && len > 2 && text[len - 2] == '}');
}

static int fill_stdout(void)
{
	static char buf[FILE_SIZE];

	fill(buf, FILE_SIZE, 0, 'R');
	return fwrite(buf, FILE_SIZE, 1, stdout) != 1;
}

int main(int argc, char **argv)
{
	char line[16], top[4096], path[4200];
	int status_fd, map_fd = -1, back;
	char *map = NULL;
	size_t i;

	if (argc == 2 && strcmp(argv[1], "--fill") == 0)
		return fill_stdout();
	CHECK(argc == 4);
	passthrough = strcmp(argv[3], "passthrough") == 0;
	snprintf(top, sizeof(top), "%s", argv[2]);
	*strrchr(top, '/') = '\0';
	snprintf(path, sizeof(path), "%s/.kvpool/status", top);
	CHECK(chdir(argv[1]) == 0);
	prepare(argv[2]);
	if (passthrough)
		map = shared_map(&map_fd);
	CHECK((status_fd = open(path, O_RDONLY)) >= 0);
	CHECK((back = open(".", O_RDONLY | O_DIRECTORY)) >= 0);
	CHECK(chdir("names") == 0); /* as a shell that stands there */
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) && strcmp(line, "end\n")) {
		CHECK(access("n7", F_OK) == 0);
		CHECK(access("../kept", F_OK) == 0);
		CHECK(fchdir(back) == 0);
		check_again();
		CHECK(chdir("names") == 0);
		printf("fine\n");
		fflush(stdout);
	}
	CHECK(fchdir(back) == 0);
	read_status(status_fd);
	if (map) {
		fill(map + PIECE / 2, PIECE / 2, PIECE / 2, 'm');
		CHECK(munmap(map, PIECE) == 0);
		CHECK(close(map_fd) == 0);
		check_name("mapped", PIECE, 'm');
	}
	if (!passthrough) {
		moved_check();
		CHECK(close(replaced) == 0);
		CHECK(close(in_place) == 0);
		check_name("moved", FILE_SIZE, 'y');
	}
	list_some(NAMES);
	CHECK(nseen == NAMES);
	CHECK(rename("closed.tmp", "closed") == 0);
	check_name("closed", FILE_SIZE, 'c');
	CHECK(rmdir("gone") == 0);
	for (i = 0; i < NWRITERS; i++)
		writer_end(&writers[i]);
	for (i = 0; i < NREADERS; i++) {
		reader_check(&readers[i]);
		CHECK(munmap(readers[i].map, FILE_SIZE) == 0);
		CHECK(close(readers[i].fd) == 0);
	}
	CHECK(fsync(back) == 0);
	printf("done\n");
	return 0;
}
