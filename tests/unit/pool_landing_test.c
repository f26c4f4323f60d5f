/* Landings in files: results and errors are reported to their owners. */
#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pool/lane/landing.h"

#define LENGTH (POOL_LANDING_CHUNK + 4096)

static struct {
	uv_loop_t loop;
	struct pool_chunks chunks;
	struct pool_landing l;
	int good, bad; /* the same file; bad is read-only */
	bool done;
} t;

static void on_done(struct pool_landing *l)
{
	(void)l;
	t.done = true;
}

static int setup(void **state)
{
	char path[64];

	(void)state;
	memset(&t, 0, sizeof(t));
	if (uv_loop_init(&t.loop))
		return -1;
	pool_chunks_init(&t.chunks, &t.loop);
	t.good = memfd_create("landing", MFD_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", t.good);
	t.bad = open(path, O_RDONLY | O_CLOEXEC);
	t.l.length = LENGTH;
	t.l.chunks = &t.chunks;
	t.l.done = on_done;
	return t.good < 0 || t.bad < 0 || pool_landing_init(&t.l) ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	uv_run(&t.loop, UV_RUN_DEFAULT);
	pool_landing_fini(&t.l);
	pool_chunks_fini(&t.chunks);
	close(t.good);
	close(t.bad);
	return uv_loop_close(&t.loop);
}

/* `len` bytes arrive, as from a connection. */
static void come(size_t len)
{
	size_t room;
	void *at;

	while (len > 0 && (at = pool_landing_room(&t.l, &room)) != NULL) {
		if (room > len)
			room = len;
		memset(at, 'x', room);
		pool_landing_data(&t.l, at, room);
		len -= room;
	}
}

static void all_of_it_is_in_the_file_and_summed(void **state)
{
	static uint8_t all[LENGTH], read_back[LENGTH];
	XXH128_hash_t sum;

	(void)state;
	t.l.fd = t.good;
	come(LENGTH);
	pool_landing_stop(&t.l, 0);
	unit_run_until(&t.loop, t.done);
	assert_int_equal(0, t.l.status);
	memset(all, 'x', LENGTH);
	assert_int_equal(LENGTH, pread(t.good, read_back, LENGTH, 0));
	assert_memory_equal(all, read_back, LENGTH);
	sum = XXH3_128bits(all, LENGTH);
	assert_true(XXH128_isEqual(sum, t.l.sum));
}

/* The checksum is right although the write failed, so only the status shows
 * it. */
static void what_could_not_be_written_has_not_landed(void **state)
{
	int fd;

	(void)state;
	t.l.fd = fd = dup(t.bad);
	come(POOL_LANDING_CHUNK);
	unit_run_until(&t.loop, t.l.writing == 0);
	/* Later bytes can be written. */
	assert_int_equal(fd, dup2(t.good, fd));
	come(LENGTH - POOL_LANDING_CHUNK);
	pool_landing_stop(&t.l, 0);
	assert_true(t.done);
	assert_int_equal(-EIO, t.l.status);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(all_of_it_is_in_the_file_and_summed),
		T(what_could_not_be_written_has_not_landed),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
