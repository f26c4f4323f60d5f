/*
 * The space of a store in a directory that shares its filesystem (/dev/shm),
 * while other programs free space there.
 */
#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/store/store_priv.h"

#define MIB (1024ull * 1024)
#define SIZE (64 * MIB)
#define OURS (40 * MIB)

struct fixture {
	char *top; /* owns */
	char dir[96], neighbour[96];
	uv_loop_t loop;
	struct pool_store *store;
};

static int on_found(void *arg, uint64_t id, uint64_t size, const void *blob,
		    size_t blob_len)
{
	(void)arg;
	(void)id;
	(void)size;
	(void)blob;
	(void)blob_len;
	return 0;
}

static void allocate(int fd, uint64_t bytes)
{
	assert_true(fd >= 0);
	assert_int_equal(fallocate(fd, 0, 0, (off_t)bytes), 0);
	close(fd);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct pool_store_opts o = { .size = SIZE, .plain = true };
	struct pool_file file;

	alarm(60);
	f->top = unit_dir_make("/dev/shm/pool_store_shared");
	snprintf(f->dir, sizeof(f->dir), "%s/store", f->top);
	snprintf(f->neighbour, sizeof(f->neighbour), "%s/neighbour", f->top);
	assert_int_equal(uv_loop_init(&f->loop), 0);
	o.loop = &f->loop;
	o.dir = f->dir;
	assert_int_equal(pool_store_open(&o, on_found, f, &f->store), 0);
	assert_false(f->store->own);
	assert_int_equal(pool_store_take(f->store, 0, &file), 0);
	allocate(file.fd, OURS);
	allocate(open(f->neighbour, O_CREAT | O_RDWR, 0600), 2 * SIZE);
	*state = f;
	return 0;
}

static void on_closed(void *arg)
{
	*(bool *)arg = true;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	bool closed = false;

	pool_store_close(f->store, false, on_closed, &closed);
	unit_run_until(&f->loop, closed);
	assert_int_equal(uv_loop_close(&f->loop), 0);
	unit_dir_remove(f->top);
	free(f);
	alarm(0);
	return 0;
}

static uint64_t used(struct fixture *f)
{
	struct pool_space sp;

	pool_store_space(f->store, &sp);
	return sp.used;
}

/* As if a count of these files had taken took_ms, and had ended long ago. */
static void count(struct fixture *f, uint64_t took_ms)
{
	store_count(f->store);
	f->store->usage.took_ms = took_ms;
	f->store->usage.ended_ms = pool_now_ms() - 1000;
	f->store->usage.next_ms = UINT64_MAX;
	assert_true(used(f) >= OURS);
}

static void what_a_neighbour_frees_was_not_ours(void **state)
{
	struct fixture *f = *state;

	count(f, 0);
	assert_int_equal(unlink(f->neighbour), 0);
	assert_true(used(f) >= OURS);
}

/* Then a worker counts, without waiting for the next periodic count. */
static void nor_where_counting_is_slow(void **state)
{
	struct fixture *f = *state;

	count(f, 20);
	assert_int_equal(unlink(f->neighbour), 0);
	(void)used(f);
	assert_true(f->store->usage.counting);
	unit_run_until(&f->loop, !f->store->usage.counting);
	assert_true(used(f) >= OURS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_a_neighbour_frees_was_not_ours),
		T(nor_where_counting_is_slow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
