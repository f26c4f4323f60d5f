/*
 * A program that uses a mount while its daemon is killed again and again
 * (tests/it/it_keeper.sh).
 *
 *   keeper_user DIR SUB MODE
 *
 * DIR: a directory of the mount; SUB: its subdirectory "sub", bound to another
 * place. Makes files, prints "ready", and works until a line comes on stdin:
 *
 *   readers  open, stat and read names that exist, by DIR, by SUB, and from a
 *            directory that was opened before: nothing may fail
 *   holder   reads a file that it has open and mapped: nothing may fail
 *   writer   writes files and renames them; some of it may fail with the
 *            daemon, but a name shows a whole file, and what an fsync of the
 *            directory has acknowledged stays
 *
 * In daemon-served mode (MODE served) a descriptor of what was just written may
 * be lost with the daemon; names may not. Prints what it did; 0: all was as it
 * should be.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILES 48u
#define HELD_SIZE (3u << 20)
#define LARGEST (256u << 10)
#define WRITTEN_MAX 2048u
#define SYNC_EVERY 8u

static bool served;
static atomic_bool over, failed;
static atomic_ulong reads, writes, lost, stale, cut, synced;
static atomic_ulong longest_ms;
static int dir_fd;

#define FAIL(...)                                                          \
	do {                                                               \
		int err_ = errno;                                          \
		fprintf(stderr, "keeper_user:%d: ", __LINE__);             \
		fprintf(stderr, __VA_ARGS__);                              \
		fprintf(stderr, " (errno %d, %s)\n", err_, strerror(err_)); \
		failed = true;                                             \
	} while (0)

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void took(uint64_t since_ms)
{
	uint64_t ms = now_ms() - since_ms, was = longest_ms;

	while (ms > was && !atomic_compare_exchange_weak(&longest_ms, &was, ms))
		;
}

static size_t size_of(unsigned int n)
{
	return 4096 + (size_t)(n * 7919) % (LARGEST - 4096);
}

static void fill(char *buf, size_t len, unsigned int n)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (char)(n + i % 251 + i / 4096 % 7);
}

/* ---- files ---- */

static int put(int at, const char *name, size_t len, unsigned int n)
{
	char *buf = malloc(len);
	int fd = openat(at, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	size_t done = 0;
	int err = fd < 0 ? errno : 0;

	fill(buf, len, n);
	while (!err && done < len) {
		ssize_t r = write(fd, buf + done,
				  len - done < 65536 ? len - done : 65536);

		if (r < 0)
			err = errno;
		else
			done += (size_t)r;
	}
	free(buf);
	if (fd >= 0 && close(fd) < 0 && !err)
		err = errno;
	return err;
}

/* May a descriptor of this file fail with this? It may have been opened before
 * the file was sealed. */
static bool is_lost(const char *name, int err)
{
	return served && name[0] == 'w' && err == ESTALE;
}

/* 0: whole, or a descriptor that was lost with its daemon. Else the errno of
 * the open, or of the first call that failed. */
static int check(int at, const char *name, size_t len, unsigned int n)
{
	uint64_t since = now_ms();
	int fd = openat(at, name, O_RDONLY);
	char *buf, *want;
	struct stat st;
	size_t have = 0;
	int err = 0;

	if (fd < 0)
		return errno;
	buf = malloc(len + 1);
	want = malloc(len);
	fill(want, len, n);
	while (!err && have <= len) {
		ssize_t r = read(fd, buf + have, len + 1 - have);

		if (r < 0)
			err = errno;
		if (r <= 0)
			break;
		have += (size_t)r;
	}
	if (!err && fstat(fd, &st) < 0)
		err = errno;
	if (!err && ((size_t)st.st_size != len || have != len ||
		     memcmp(buf, want, len) != 0)) {
		errno = 0;
		FAIL("%s: %zu bytes, size %jd, not the %zu that it has", name,
		     have, (intmax_t)st.st_size, len);
	}
	close(fd);
	free(buf);
	free(want);
	reads++;
	took(since);
	if (is_lost(name, err)) {
		stale++;
		return 0;
	}
	errno = err;
	if (err)
		FAIL("%s: reading it after its open", name);
	return err;
}

/* ---- threads ---- */

struct reader {
	const char *dir; /* NULL: dir_fd */
	const char *below;
};

static void *read_names(void *arg)
{
	const struct reader *r = arg;
	char path[4096];
	struct stat st;

	for (unsigned int k = 0; !over && !failed; k++) {
		unsigned int n = k % FILES;
		int err;

		if (r->dir)
			snprintf(path, sizeof(path), "%s/%sf%u", r->dir,
				 r->below, n);
		else
			snprintf(path, sizeof(path), "%sf%u", r->below, n);
		if (fstatat(dir_fd, path, &st, 0) < 0)
			FAIL("stat %s", path);
		else if ((size_t)st.st_size != size_of(n))
			FAIL("%s: size %jd", path, (intmax_t)st.st_size);
		if (faccessat(dir_fd, path, R_OK, 0) < 0)
			FAIL("access %s", path);
		err = check(dir_fd, path, size_of(n), n);
		errno = err;
		if (err)
			FAIL("read %s", path);
		usleep(500);
	}
	return NULL;
}

static void *hold(void *arg)
{
	const char *path = arg;
	int fd = open(path, O_RDONLY);
	char *want = malloc(HELD_SIZE), *map, buf[4096];
	struct stat st;

	fill(want, HELD_SIZE, 7);
	map = mmap(NULL, HELD_SIZE, PROT_READ, MAP_SHARED, fd, 0);
	if (fd < 0 || map == MAP_FAILED) {
		FAIL("%s", path);
		return NULL;
	}
	for (uint64_t k = 0; !over && !failed; k++) {
		size_t at = k * 4096 * 37 % HELD_SIZE;
		ssize_t r = pread(fd, buf, sizeof(buf), (off_t)at);

		if (r != sizeof(buf) || memcmp(buf, want + at, sizeof(buf)))
			FAIL("pread of what is open: %zd", r);
		if (memcmp(map + at, want + at, 4096))
			FAIL("the mapping is not as it was");
		if (fstat(fd, &st) < 0 || st.st_size != HELD_SIZE)
			FAIL("fstat of what is open");
		usleep(200);
	}
	munmap(map, HELD_SIZE);
	close(fd);
	free(want);
	return NULL;
}

static void *list(void *arg)
{
	const char *dir = arg;

	while (!over && !failed) {
		unsigned int seen = 0;
		DIR *d = opendir(dir);
		struct dirent *e;

		if (!d)
			FAIL("opendir %s", dir);
		while (d && (errno = 0, e = readdir(d)))
			seen += e->d_name[0] == 'f';
		if (d && errno == ESTALE)
			cut++;
		else if (d && (errno || seen != FILES))
			FAIL("%s: %u names", dir, seen);
		if (d)
			closedir(d);
		usleep(2000);
	}
	return NULL;
}

/* Which files are acknowledged: an fsync of their directory was a success. */
static bool acked[WRITTEN_MAX], written[WRITTEN_MAX];

static void check_written(int at, unsigned int n)
{
	char name[32];
	int err;

	snprintf(name, sizeof(name), "w%u", n);
	err = check(at, name, size_of(n), n);
	errno = err;
	if (err && (acked[n] || err != ENOENT))
		FAIL("%s, which is %sacknowledged", name,
		     acked[n] ? "" : "not ");
}

static void *write_names(void *arg)
{
	const char *dir = arg;
	int at = open(dir, O_RDONLY | O_DIRECTORY);
	char tmp[32], name[32];
	unsigned int n;
	int err;

	for (n = 0; n < WRITTEN_MAX && !over && !failed; n++) {
		snprintf(tmp, sizeof(tmp), "w%u.tmp", n);
		snprintf(name, sizeof(name), "w%u", n);
		err = put(at, tmp, size_of(n), n);
		if (!err && renameat(at, tmp, at, name) < 0)
			err = errno;
		writes++;
		written[n] = !err;
		if (err)
			lost++;
		if (err && err != ENOENT && err != EIO && err != ESTALE) {
			errno = err;
			FAIL("writing %s", name);
		}
		if (n % SYNC_EVERY == SYNC_EVERY - 1 && fsync(at) == 0) {
			for (unsigned int k = n + 1 - SYNC_EVERY; k <= n; k++)
				acked[k] = written[k];
			synced++;
		}
		check_written(at, (unsigned int)(n * 2654435761u) % (n + 1));
		usleep(10000);
	}
	while (!over && !failed)
		usleep(10000);
	for (unsigned int k = 0; k < n; k++)
		check_written(at, k);
	close(at);
	return NULL;
}

/* ---- */

static void make_files(const char *dir)
{
	char path[4096];
	int err = 0, fd;

	for (int sub = 0; sub < 2; sub++) {
		for (unsigned int n = 0; n < FILES && !err; n++) {
			snprintf(path, sizeof(path), "%s/%sf%u", dir,
				 sub ? "sub/" : "", n);
			err = put(AT_FDCWD, path, size_of(n), n);
		}
	}
	snprintf(path, sizeof(path), "%s/held", dir);
	if (!err)
		err = put(AT_FDCWD, path, HELD_SIZE, 7);
	snprintf(path, sizeof(path), "%s/sub", dir);
	fd = open(path, O_RDONLY | O_DIRECTORY);
	if (err || fsync(fd) < 0 || fsync(dir_fd) < 0) {
		FAIL("making files (%s)", strerror(err));
		exit(1);
	}
	close(fd);
}

int main(int argc, char **argv)
{
	struct reader by[3];
	char held[4096], line[64];
	pthread_t t[6];

	if (argc != 4)
		return 2;
	served = strcmp(argv[3], "served") == 0;
	dir_fd = open(argv[1], O_RDONLY | O_DIRECTORY);
	make_files(argv[1]);
	snprintf(held, sizeof(held), "%s/held", argv[1]);
	by[0] = (struct reader){ argv[1], "" };
	by[1] = (struct reader){ argv[2], "" };
	by[2] = (struct reader){ NULL, "sub/" };
	for (int k = 0; k < 3; k++)
		pthread_create(&t[k], NULL, read_names, &by[k]);
	pthread_create(&t[3], NULL, hold, held);
	pthread_create(&t[4], NULL, list, argv[1]);
	pthread_create(&t[5], NULL, write_names, argv[2]);
	printf("ready\n");
	fflush(stdout);
	(void)!fgets(line, sizeof(line), stdin);
	over = true;
	for (int k = 0; k < 6; k++)
		pthread_join(t[k], NULL);
	printf("%lu reads, %lu files written (%lu lost), %lu fsyncs, "
	       "%lu descriptors and %lu listings lost, the longest read took "
	       "%lu ms\n", reads, writes, lost, synced, stale, cut, longest_ms);
	return failed;
}
