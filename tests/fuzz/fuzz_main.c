/*
 * The main program of every *_fuzz.c: each defines
 *
 *	int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
 *
 * which decodes the bytes and must come back, whatever they are. Built with the
 * sanitizers and gcc's trace-pc, so that inputs which reach new code are kept
 * and mutated further.
 *
 *   PROGRAM [SECONDS [SEED]]    fuzz (default 5 seconds)
 *   PROGRAM FILE...             run these inputs, as after a crash
 *
 * Starts from tests/fuzz/corpus/<program>/, if there is one, and from nothing.
 * The seed is printed. An input that ends the program, or takes over a second,
 * is printed in hex (xxd -r -p makes a file of it).
 *
 * Thread: main.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sanitizer/common_interface_defs.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define INPUT_MAX ((size_t)8192)
#define CORPUS_MAX 4096
#define EDGES (1u << 16)
#define SLOW_NS 1000000000u

#define UNTRACED                             \
	__attribute__((no_sanitize_coverage, \
		       no_sanitize("address", "undefined")))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
void __sanitizer_cov_trace_pc(void);

struct input {
	uint8_t *data; /* owns */
	size_t len;
};

static struct input corpus[CORPUS_MAX];
static size_t ncorpus;
static uint64_t rng;

/* Which pairs of traced places have followed each other: in this run, ever. */
static uint8_t hit[EDGES], ever[EDGES];
static uint32_t touched[EDGES]; /* the indices that are set in hit */
static size_t ntouched;
static uintptr_t last_pc;

/* The input under way. */
static struct {
	size_t len;
	uint8_t data[INPUT_MAX];
} current;

UNTRACED void __sanitizer_cov_trace_pc(void)
{
	uintptr_t pc = (uintptr_t)__builtin_return_address(0);

	uint32_t edge = (uint32_t)((pc ^ (last_pc >> 1)) % EDGES);

	if (!hit[edge]) {
		hit[edge] = 1;
		touched[ntouched++] = edge;
	}
	last_pc = pc;
}

UNTRACED static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* xorshift64*; n > 0. */
UNTRACED static size_t pick(size_t n)
{
	rng ^= rng >> 12;
	rng ^= rng << 25;
	rng ^= rng >> 27;
	return (size_t)((rng * 0x2545f4914f6cdd1d) >> 16) % n;
}

UNTRACED static void keep(const uint8_t *data, size_t len)
{
	/* When full, forget at random: what is left still covers most. */
	size_t i = ncorpus < CORPUS_MAX ? ncorpus++ : pick(CORPUS_MAX);

	free(corpus[i].data);
	corpus[i].data = malloc(len + 1);
	if (!corpus[i].data)
		abort();
	memcpy(corpus[i].data, data, len);
	corpus[i].len = len;
}

/* Run one input; true if it went where none has gone before. */
UNTRACED static bool run_one(const uint8_t *data, size_t len)
{
	/* On the heap in its exact size, so that reading past it is seen. */
	uint8_t *copy = malloc(len ? len : 1);
	uint64_t begin = now_ns();
	bool fresh = false;

	if (!copy)
		abort();
	memcpy(copy, data, len);
	last_pc = 0;
	LLVMFuzzerTestOneInput(len ? copy : NULL, len);
	free(copy);
	if (now_ns() - begin > SLOW_NS) {
		fprintf(stderr, "an input of %zu bytes took over a second\n",
			len);
		abort();
	}
	while (ntouched) {
		uint32_t edge = touched[--ntouched];

		fresh |= !ever[edge];
		ever[edge] = 1;
		hit[edge] = 0;
	}
	return fresh;
}

UNTRACED static size_t insert(uint8_t *data, size_t len)
{
	size_t n = 1 + pick(16), at = pick(len + 1);

	if (len + n > INPUT_MAX)
		return len;
	memmove(data + at + n, data + at, len - at);
	for (size_t i = 0; i < n; i++)
		data[at + i] = (uint8_t)pick(256);
	return len + n;
}

UNTRACED static size_t delete(uint8_t *data, size_t len)
{
	size_t at = pick(len), n = 1 + pick(len - at);

	memmove(data + at, data + at + n, len - at - n);
	return len - n;
}

/* Numbers that lengths and counts are compared with, in 1 to 8 bytes. */
UNTRACED static void set_number(uint8_t *data, size_t len)
{
	static const uint64_t values[] = {
		0,	    1,		0x7f,	    0x80,
		0xff,	    0x7fff,	0xffff,	    0x7fffffff,
		0x80000000, 0xffffffff, UINT64_MAX, (uint64_t)INT64_MAX + 1,
	};
	uint64_t v = values[pick(sizeof(values) / sizeof(values[0]))];
	size_t n = (size_t)1 << pick(4), at = pick(len);

	memcpy(data + at, &v, n < len - at ? n : len - at);
}

/* A piece of another input of the corpus, over what is there. */
UNTRACED static size_t graft(uint8_t *data, size_t len)
{
	const struct input *other = &corpus[pick(ncorpus)];
	size_t from, n, at = pick(len + 1);

	if (!other->len)
		return len;
	from = pick(other->len);
	n = 1 + pick(other->len - from);
	if (at + n > INPUT_MAX)
		n = INPUT_MAX - at;
	memcpy(data + at, other->data + from, n);
	return at + n > len ? at + n : len;
}

UNTRACED static size_t mutate(uint8_t *data, size_t len)
{
	for (size_t i = 1 + pick(6); i; i--) {
		switch (len ? pick(6) : 0) {
		case 0:
			len = insert(data, len);
			break;
		case 1:
			len = delete(data, len);
			break;
		case 2:
			data[pick(len)] ^= (uint8_t)(1u << pick(8));
			break;
		case 3:
			data[pick(len)] = (uint8_t)pick(256);
			break;
		case 4:
			set_number(data, len);
			break;
		case 5:
			len = graft(data, len);
			break;
		}
	}
	return len;
}

UNTRACED static int read_input(const char *path, uint8_t *data, size_t *ret_len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, data, INPUT_MAX);
	close(fd);
	if (n < 0)
		return -EIO;
	*ret_len = (size_t)n;
	return 0;
}

UNTRACED static void load_corpus(void)
{
	static uint8_t data[INPUT_MAX];
	char dir[256], path[600];
	struct dirent *d;
	size_t len;
	DIR *list;

	snprintf(dir, sizeof(dir), "tests/fuzz/corpus/%s",
		 program_invocation_short_name);
	list = opendir(dir);
	while (list && (d = readdir(list))) {
		snprintf(path, sizeof(path), "%s/%s", dir, d->d_name);
		if (d->d_name[0] != '.' && !read_input(path, data, &len))
			keep(data, len);
	}
	if (list)
		closedir(list);
	keep(data, 0);
}

UNTRACED static int replay(int argc, char **argv)
{
	static uint8_t data[INPUT_MAX];
	size_t len = 0;

	for (int i = 1; i < argc; i++) {
		if (read_input(argv[i], data, &len)) {
			perror(argv[i]);
			return 1;
		}
		printf("%s: %zu bytes\n", argv[i], len);
		run_one(data, len);
	}
	return 0;
}

/* A sanitizer's report has been printed, or an assertion has failed. */
UNTRACED static void on_death(void)
{
	fprintf(stderr, "the input, %zu bytes:", current.len);
	for (size_t i = 0; i < current.len; i++)
		fprintf(stderr, "%s%02x", i % 32 ? "" : "\n",
			current.data[i]);
	fprintf(stderr, "\n");
}

UNTRACED static void on_abort(int signum)
{
	signal(signum, SIG_DFL);
	on_death();
	raise(signum);
}

UNTRACED static void fuzz(unsigned int seconds)
{
	uint64_t end = now_ns() + seconds * (uint64_t)1000000000u, runs = 0;

	for (size_t i = 0; i < ncorpus; i++, runs++) {
		memcpy(current.data, corpus[i].data, corpus[i].len);
		current.len = corpus[i].len;
		run_one(current.data, current.len);
	}
	for (; now_ns() < end; runs++) {
		const struct input *in = &corpus[pick(ncorpus)];

		memcpy(current.data, in->data, in->len);
		current.len = mutate(current.data, in->len);
		if (run_one(current.data, current.len))
			keep(current.data, current.len);
	}
	printf("%s: %llu runs, %zu inputs kept\n",
	       program_invocation_short_name, (unsigned long long)runs,
	       ncorpus);
}

UNTRACED int main(int argc, char **argv)
{
	char *end = NULL;
	unsigned long seconds = argc > 1 ? strtoul(argv[1], &end, 10) : 5;

	if (end && *end)
		return replay(argc, argv);
	rng = argc > 2 ? strtoull(argv[2], NULL, 10) : now_ns();
	rng |= 1;
	printf("seed %llu\n", (unsigned long long)rng);
	fflush(stdout);
	__sanitizer_set_death_callback(on_death);
	signal(SIGABRT, on_abort);
	load_corpus();
	fuzz((unsigned int)seconds);
	for (size_t i = 0; i < ncorpus; i++)
		free(corpus[i].data);
	/* Nothing new found from nothing means that nothing was traced. */
	return ncorpus > 1 ? 0 : 1;
}
