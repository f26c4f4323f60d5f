/*
 * Which page frames a mapping has, from /proc/PID/pagemap (as root), so that a
 * test can tell whether two are the same memory or copies.
 *
 *   page_frames map FILE             of FILE, mapped and read here
 *   page_frames write FILE BYTES     of FILE, made here by write(2) with bytes
 *                                    of some pattern, before it is closed
 *   page_frames watch PID DIR BYTES PERMS SECONDS
 *                                    of the first mapping of so many bytes of a
 *                                    file in DIR that process PID has, with all
 *                                    its pages, and permissions that begin so
 *
 * Prints a line for each page, its frame in hex; watch first says "PERMS PATH"
 * on stderr. 1 and what was wrong otherwise.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PRESENT (1ull << 63)
#define FRAME ((1ull << 55) - 1)

static size_t page;

static void die(const char *what)
{
	fprintf(stderr, "page_frames: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Entries of /proc/PID/pagemap for the n pages at addr; true: all are there. */
static bool frames_read(const char *pid, uint64_t addr, uint64_t *frames,
			size_t n)
{
	ssize_t want = (ssize_t)(n * sizeof(*frames)), got;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%s/pagemap", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		die(path);
	got = pread(fd, frames, (size_t)want,
		    (off_t)(addr / page * sizeof(*frames)));
	close(fd);
	if (got != want)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (!(frames[i] & PRESENT))
			return false;
		frames[i] &= FRAME;
		if (!frames[i]) {
			errno = EPERM; /* hidden */
			die(path);
		}
	}
	return true;
}

static size_t pages_of(uint64_t bytes)
{
	return (size_t)((bytes + page - 1) / page);
}

static int print(const uint64_t *frames, size_t n)
{
	for (size_t i = 0; i < n; i++)
		printf("%" PRIx64 "\n", frames[i]);
	return fflush(stdout) == 0 ? 0 : 1;
}

static uint64_t *frames_new(size_t n)
{
	uint64_t *frames = calloc(n ? n : 1, sizeof(*frames));

	if (!frames)
		die("calloc");
	return frames;
}

static int map_and_print(int fd, size_t size)
{
	size_t n = pages_of(size);
	uint64_t *frames = frames_new(n);
	const volatile uint8_t *map =
		mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED)
		die("mmap");
	for (size_t i = 0; i < size; i += page)
		(void)map[i];
	if (!frames_read("self", (uint64_t)(uintptr_t)map, frames, n)) {
		errno = EFAULT;
		die("not all pages of the mapping are there");
	}
	munmap((void *)(uintptr_t)map, size);
	print(frames, n);
	free(frames);
	return 0;
}

static int cmd_map(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		die(path);
	map_and_print(fd, (size_t)st.st_size);
	close(fd);
	return 0;
}

static int cmd_write(const char *path, size_t size)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	uint64_t x = 88172645463325252ull, *buf = malloc(size + sizeof(x));

	if (fd < 0 || !buf)
		die(path);
	for (size_t i = 0; i * sizeof(x) < size; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		buf[i] = x;
	}
	if (write(fd, buf, size) != (ssize_t)size)
		die("write");
	free(buf);
	map_and_print(fd, size);
	if (close(fd))
		die("close");
	return 0;
}

/* ---- watch ---- */

struct wanted {
	const char *pid, *dir, *perms;
	uint64_t bytes;
};

/* A line of /proc/PID/maps: where, or 0 if it is not such a mapping. */
static uint64_t is_wanted(const struct wanted *w, const char *line)
{
	uint64_t from, to;
	char perms[8];
	int at = 0;

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %*s %*s %*s %n", &from,
		   &to, perms, &at) < 3 || at == 0)
		return 0;
	return to - from == pages_of(w->bytes) * page &&
	       strncmp(perms, w->perms, strlen(w->perms)) == 0 &&
	       strncmp(line + at, w->dir, strlen(w->dir)) == 0 ? from : 0;
}

static bool look(const struct wanted *w, uint64_t *frames)
{
	char path[64], line[512];
	uint64_t addr = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/maps", w->pid);
	f = fopen(path, "re");
	if (!f)
		die(path);
	while (!addr && fgets(line, sizeof(line), f))
		addr = is_wanted(w, line);
	fclose(f);
	if (!addr || !frames_read(w->pid, addr, frames, pages_of(w->bytes)))
		return false;
	fputs(strchr(line, ' ') + 1, stderr);
	return true;
}

static int cmd_watch(const struct wanted *w, long seconds)
{
	size_t n = pages_of(w->bytes);
	uint64_t *frames = frames_new(n);
	time_t end = time(NULL) + seconds;

	while (!look(w, frames)) {
		if (time(NULL) > end) {
			errno = ETIMEDOUT;
			die("no such mapping with all its pages");
		}
		usleep(200);
	}
	print(frames, n);
	free(frames);
	return 0;
}

int main(int argc, char **argv)
{
	page = (size_t)sysconf(_SC_PAGESIZE);
	if (argc == 3 && strcmp(argv[1], "map") == 0)
		return cmd_map(argv[2]);
	if (argc == 4 && strcmp(argv[1], "write") == 0)
		return cmd_write(argv[2], strtoul(argv[3], NULL, 10));
	if (argc == 7 && strcmp(argv[1], "watch") == 0) {
		struct wanted w = { .pid = argv[2],
				    .dir = argv[3],
				    .bytes = strtoull(argv[4], NULL, 10),
				    .perms = argv[5] };

		return cmd_watch(&w, strtol(argv[6], NULL, 10));
	}
	fprintf(stderr, "usage: page_frames map FILE | write FILE BYTES | "
			"watch PID DIR BYTES PERMS SECONDS\n");
	return 2;
}
