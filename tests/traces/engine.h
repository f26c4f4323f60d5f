/*
 * Engine traces: programs that treat a mount as inference engines do.
 *
 * Every file's bytes are a function of (key, version); the key is the name
 * under which the file is published. So a reader detects a short, torn, mixed
 * or misplaced file.
 *
 * Two directories are driven: D, the mount under test, and B, the mount of
 * another node of the same pool (in plain mode: the same directory of an
 * ordinary file system, to debug the traces themselves; what only a pool can
 * promise is then skipped).
 *
 * Thread: everything here may be called from any thread; a failure is
 * recorded once per test, the first one wins.
 */
#ifndef TESTS_ENGINE_H
#define TESTS_ENGINE_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENG_PATH 1024
/* For what is eventual between nodes. */
#define ENG_DEADLINE_MS (10000 * eng.patience)
#define KIB ((size_t)1024)
#define MIB ((size_t)1024 * 1024)
#define GIB ((size_t)1024 * 1024 * 1024)

enum eng_mode { ENG_PASSTHROUGH, ENG_SERVED, ENG_PLAIN };

struct eng {
	const char *d, *b;
	enum eng_mode mode;
	unsigned scale;	   /* multiplies counts */
	unsigned patience; /* multiplies limits of time */
	uint64_t capacity; /* of the file system at d, bytes */
};
extern struct eng eng;

/* A test's own directory, seen through both mounts. */
struct eng_dir {
	char d[512], b[512];
};

struct eng_test {
	const char *name;
	int (*run)(const struct eng_dir *t); /* 0, or -1 after eng_fail */
};
/* Tables end with name == NULL. */
extern const struct eng_test eng_lmcache[], eng_sglang[], eng_vllm[],
	eng_llama[], eng_scratch[], eng_posix_names[], eng_posix_data[],
	eng_posix_attrs[], eng_posix_times[], eng_posix_race[];

/* Record a failure; returns -1. */
int eng_fail(const char *func, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Say on stdout what was not tested, or a figure. */
void eng_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
bool eng_failed(void);
/* The first failure's text, or ""; forgets it. */
void eng_failure_take(char *buf, size_t cap);

#define EXPECT(cond, ...)                                               \
	do {                                                            \
		if (!(cond))                                            \
			return eng_fail(__func__, __LINE__, __VA_ARGS__); \
	} while (0)
/* The call must succeed; what names it in the message. */
#define EXPECT_OK(call, what)                                                 \
	do {                                                                  \
		if ((call) < 0)                                               \
			return eng_fail(__func__, __LINE__,                   \
					"expected success of %s, got %s",     \
					what, strerror(errno));               \
	} while (0)
/* The call must fail with the errno given. */
#define EXPECT_ERR(call, want)                                            \
	do {                                                              \
		errno = 0;                                                \
		long got_ = (long)(call);                                 \
		if (got_ >= 0 || errno != (want))                         \
			return eng_fail(__func__, __LINE__,               \
					"expected %s from %s, got %s",    \
					strerrorname_np(want), #call,     \
					got_ >= 0 ? "success" :           \
						    strerrorname_np(errno)); \
	} while (0)
#define TRY(call)                  \
	do {                       \
		if ((call) != 0)   \
			return -1; \
	} while (0)

/* Content. */
uint64_t eng_seed(const char *key, unsigned version);
void eng_fill(void *buf, size_t len, uint64_t seed);
/* Offset of the first wrong byte (word), or -1 if all are right. */
ssize_t eng_mismatch(const void *buf, size_t len, uint64_t seed);
/* The version, of 0..nver-1, whose bytes these are; -1: none, or a mix. */
int eng_version(const void *buf, size_t len, const char *key, unsigned nver);
/* len bytes at a page boundary, faulted in; the caller frees. Exits if none. */
void *eng_alloc(size_t len);
/* The same, filled with the content of (key, version). */
void *eng_content(const char *key, unsigned version, size_t len);

/* Files. */
char *eng_join(char buf[ENG_PATH], const char *dir, const char *name);
/* n * scale, but no more than fit in a sixth of the capacity; at least 1. */
unsigned eng_count(unsigned n, size_t size);
/* All of len by write(2), each call complete; -1 recorded. */
int eng_write_all(int fd, const void *buf, size_t len, const char *what);
/*
 * Open (O_RDONLY | flags), fstat, one read of the whole, compare.
 * 0: whole and right, *ret_version (may be NULL) says which; -ENOENT: absent
 * at open; -1: anything else, recorded. size 0: any size but 0.
 */
int eng_read(const char *path, int flags, const char *key, unsigned nver,
	     size_t size, int *ret_version);
/* eng_read until it is there; with version >= 0 until it is that version. */
int eng_await(const char *path, const char *key, unsigned nver, size_t size,
	      int version);
/* Until a look-up says ENOENT. */
int eng_await_gone(const char *path);
/* Until a look-up succeeds. */
int eng_await_name(const char *path);
/* Open dir, fsync it, close it. */
int eng_sync_dir(const char *dir);
/* Write key's content as dir/key by way of dir/tmp. */
int eng_put(const char *dir, const char *tmp, const char *key,
	    unsigned version, size_t size, int flags);
/* mkdir that takes EEXIST for success. */
int eng_mkdir(const char *path);
/* rm -r, silent. */
void eng_remove_tree(const char *path);
double eng_now(void); /* seconds */
void eng_sleep_ms(unsigned ms);

/* Run fn(0..n-1, arg) on n threads; 0 if all returned 0. */
int eng_parallel(unsigned n, int (*fn)(unsigned i, void *arg), void *arg);

/*
 * A thread that keeps looking at files through B: each must be absent or
 * whole and right at every look.
 */
struct eng_watch {
	char path[ENG_PATH];
	char key[300];
	size_t size;
	unsigned nver;
	uint64_t reads;
};
struct eng_poller {
	struct eng_watch *watch; /* owns */
	size_t nwatch;
	atomic_bool stop;
	bool running;
	uint64_t looks, hits;
	unsigned long thread;
};
void eng_poller_init(struct eng_poller *p);
void eng_poller_add(struct eng_poller *p, const char *dir, const char *key,
		    unsigned nver, size_t size);
/* in_place: the writers write under the final name; a plain directory shows
 * such files half written, so nothing is started there. */
int eng_poller_start(struct eng_poller *p, bool in_place);
void eng_poller_fini(struct eng_poller *p);

/* Subcommands for shell tests: fill, verify, load-loop, writer. */
int eng_load_main(int argc, char **argv);

#endif
