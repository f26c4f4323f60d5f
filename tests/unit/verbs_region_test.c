/* Memory registered with a device, and the cache of registrations. */
#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/base/log.h"
#include "pool/verbs/region.h"
#include "tests/unit/fake_verbs.h"

#define KIB 1024u

static struct verbs *v;
static struct verbs_port *port;
static struct verbs_cache *cache;
static struct verbs_cache_metrics metrics;
static int files[8];

static void make_files(void)
{
	for (int i = 0; i < 8; i++) {
		files[i] = memfd_create("object", MFD_CLOEXEC);
		assert_true(files[i] >= 0);
		assert_int_equal(ftruncate(files[i], 64 * KIB), 0);
	}
}

static int setup(void **state)
{
	(void)state;
	fake_verbs_reset();
	fake_verbs_attr(fake_verbs_roce("rxe0"))->max_mr_size = 1 << 20;
	fake_verbs_roce("rxe1");
	assert_int_equal(verbs_open(NULL, &v), 0);
	port = verbs_port_at(v, 0);
	memset(&metrics, 0, sizeof(metrics));
	assert_int_equal(verbs_cache_open(3, 256 * KIB, &metrics, &cache), 0);
	make_files();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	verbs_cache_close(cache);
	assert_int_equal(fake_verbs_regions(), 0);
	verbs_close(v);
	for (int i = 0; i < 8; i++)
		close(files[i]);
	assert_int_equal(fake_verbs_left(), 0);
	return 0;
}

/* ---- regions ---- */

static void a_region_is_the_very_pages_of_the_file(void **state)
{
	struct verbs_region r;
	char buf[5] = "";

	(void)state;
	assert_int_equal(verbs_region_open(port, port->pd, files[0], 5000, 300,
					   IBV_ACCESS_LOCAL_WRITE, &r), 0);
	assert_int_equal(r.length, 300);
	assert_ptr_equal(r.mr->addr, r.addr);
	assert_int_equal(r.mr->length, 300);
	memcpy(r.addr, "bytes", 5);
	assert_int_equal(pread(files[0], buf, 5, 5000), 5);
	assert_memory_equal(buf, "bytes", 5);
	assert_int_equal(pwrite(files[0], "other", 5, 5000), 5);
	assert_memory_equal(r.addr, "other", 5);
	verbs_region_close(&r);
	assert_null(r.mr);
	verbs_region_close(&r);
	assert_int_equal(fake_verbs_regions(), 0);
}

static void what_follows_the_first_bytes_is_mapped_for_later(void **state)
{
	struct verbs_region first, next;
	char buf[5] = "";

	(void)state;
	assert_int_equal(verbs_region_open_first(port, port->pd, files[0], 5000,
						 300, 301, 0, &first), -EINVAL);
	assert_int_equal(verbs_region_open_first(port, port->pd, files[0], 5000,
						 300, 100,
						 IBV_ACCESS_LOCAL_WRITE,
						 &first), 0);
	assert_int_equal(first.length, 100);
	assert_int_equal(first.mr->length, 100);
	assert_int_equal(verbs_region_open_memory(port, port->pd,
						  first.addr + 100, 200,
						  IBV_ACCESS_LOCAL_WRITE,
						  &next), 0);
	memcpy(next.addr + 195, "bytes", 5);
	assert_int_equal(pread(files[0], buf, 5, 5295), 5);
	assert_memory_equal(buf, "bytes", 5);
	verbs_region_close(&next);
	verbs_region_close(&first);
	assert_int_equal(fake_verbs_regions(), 0);
}

static void only_what_peers_may_write_needs_a_writable_file(void **state)
{
	struct verbs_region r;
	char path[64];
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", files[0]);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(verbs_region_open(port, port->pd, fd, 0, 100, 0, &r),
			 0);
	verbs_region_close(&r);
	assert_int_equal(verbs_region_open(port, port->pd, fd, 0, 100,
					   IBV_ACCESS_REMOTE_WRITE, &r),
			 -EACCES);
	close(fd);
	/* Remote write access requires local write access. */
	assert_int_equal(verbs_region_open(port, port->pd, files[0], 0, 100,
					   IBV_ACCESS_REMOTE_WRITE, &r), 0);
	verbs_region_close(&r);
}

static void callers_memory_is_registered_as_it_is(void **state)
{
	struct verbs_region r;
	char mem[100];

	(void)state;
	assert_int_equal(verbs_region_open_memory(port, port->pd, mem + 1, 98,
						  IBV_ACCESS_LOCAL_WRITE, &r),
			 0);
	assert_ptr_equal(r.addr, mem + 1);
	assert_int_equal(r.mr->length, 98);
	assert_null(r.map);
	verbs_region_close(&r);
}

static void bad_ranges_and_failures_leave_nothing(void **state)
{
	struct verbs_region r;
	char mem[8];

	(void)state;
	assert_int_equal(verbs_region_open(port, port->pd, files[0], 0, 0, 0,
					   &r), -EINVAL);
	assert_int_equal(verbs_region_open(port, port->pd, files[0], 0,
					   (1 << 20) + 1, 0, &r), -EINVAL);
	assert_int_equal(verbs_region_open(port, port->pd, files[0],
					   UINT64_MAX, 1, 0, &r), -EINVAL);
	assert_int_equal(verbs_region_open(port, port->pd, -1, 0, 1, 0, &r),
			 -EBADF);
	assert_int_equal(verbs_region_open_memory(port, port->pd, mem, 0, 0,
						  &r), -EINVAL);
	fake_verbs_fail("ibv_reg_mr", 1, ENOMEM);
	assert_int_equal(verbs_region_open(port, port->pd, files[0], 0, 1, 0,
					   &r), -ENOMEM);
	fake_verbs_fail("ibv_reg_mr", 1, EPERM);
	assert_int_equal(verbs_region_open_memory(port, port->pd, mem, 8, 0,
						  &r), -EPERM);
	/* A failure without an errno is a failure, too. */
	fake_verbs_fail("ibv_reg_mr", 1, 0);
	assert_int_equal(verbs_region_open_memory(port, port->pd, mem, 8, 0,
						  &r), -EIO);
	/* Deregistering fails: the region is closed all the same. */
	assert_int_equal(verbs_region_open(port, port->pd, files[0], 0, 1, 0,
					   &r), 0);
	fake_verbs_fail("ibv_dereg_mr", 1, EIO);
	verbs_region_close(&r);
	assert_null(r.map);
}

static void what_is_read_over_iwarp_may_be_written_by_the_peer(void **state)
{
	struct verbs_port iwarp = *port;
	struct verbs_region r;
	char mem[8];

	(void)state;
	iwarp.link = VERBS_IWARP;
	assert_int_equal(verbs_region_open_memory(&iwarp, port->pd, mem, 8,
						  IBV_ACCESS_LOCAL_WRITE, &r),
			 0);
	assert_int_equal(fake_verbs_access(r.mr), IBV_ACCESS_LOCAL_WRITE |
						  IBV_ACCESS_REMOTE_WRITE);
	verbs_region_close(&r);
	assert_int_equal(verbs_region_open_memory(&iwarp, port->pd, mem, 8, 0,
						  &r), 0);
	assert_int_equal(fake_verbs_access(r.mr), 0);
	verbs_region_close(&r);
}

/* ---- the cache ---- */

static struct verbs_cached *get(int file)
{
	struct verbs_cached *c;

	assert_int_equal(verbs_cache_get(cache, port, files[file], &c), 0);
	assert_int_equal(fake_verbs_access(c->region.mr), 0);
	return c;
}

static void get_put(int file)
{
	verbs_cache_put(cache, get(file));
}

static void expect(uint64_t hits, uint64_t misses, uint64_t dropped,
		   int64_t count)
{
	assert_int_equal(pool_counter_value(&metrics.hits), hits);
	assert_int_equal(pool_counter_value(&metrics.misses), misses);
	assert_int_equal(pool_counter_value(&metrics.dropped), dropped);
	assert_int_equal(pool_gauge_value(&metrics.count), count);
	assert_int_equal(fake_verbs_regions(), count);
	assert_int_equal(pool_gauge_value(&metrics.bytes),
			 (int64_t)fake_verbs_region_bytes());
}

static void what_is_asked_for_again_is_registered_once(void **state)
{
	struct verbs_cached *a = get(0), *b = get(0), *c;

	(void)state;
	assert_ptr_equal(a, b);
	verbs_cache_put(cache, a);
	verbs_cache_put(cache, b);
	get_put(0);
	expect(2, 1, 0, 1);
	/* Each port has a registration of its own. */
	assert_int_equal(verbs_cache_get(cache, verbs_port_at(v, 1), files[0],
					 &c), 0);
	assert_ptr_equal(c->region.mr->pd, verbs_port_at(v, 1)->pd);
	verbs_cache_put(cache, c);
	expect(2, 2, 0, 2);
}

static void beyond_the_count_the_longest_unused_goes(void **state)
{
	(void)state;
	get_put(0);
	get_put(1);
	get_put(2);
	get_put(0);
	get_put(3); /* 1 goes */
	expect(1, 4, 1, 3);
	get_put(0);
	get_put(2);
	expect(3, 4, 1, 3);
	get_put(1);
	expect(3, 5, 2, 3);
}

static void beyond_the_bytes_the_longest_unused_go(void **state)
{
	(void)state;
	assert_int_equal(ftruncate(files[4], 160 * KIB), 0);
	get_put(0);
	get_put(1);
	get_put(4); /* 64 + 64 + 160 > 256 */
	expect(0, 3, 1, 2);
	get_put(1);
	expect(1, 3, 1, 2);
	/* A file larger than the whole cache is registered while it is in
	 * use. */
	assert_int_equal(ftruncate(files[5], 512 * KIB), 0);
	{
		struct verbs_cached *c = get(5);

		expect(1, 4, 3, 1);
		verbs_cache_put(cache, c);
	}
	expect(1, 4, 4, 0);
}

static void what_is_in_use_stays_though_over_the_bounds(void **state)
{
	struct verbs_cached *c[6];

	(void)state;
	for (int i = 0; i < 6; i++)
		c[i] = get(i);
	expect(0, 6, 0, 6);
	for (int i = 0; i < 6; i++)
		verbs_cache_put(cache, c[i]);
	assert_int_equal(fake_verbs_regions(), 3);
	get_put(5);
	assert_int_equal(pool_counter_value(&metrics.hits), 1);
}

static void a_forgotten_file_is_let_go_at_once_or_by_its_last_user(void **state)
{
	struct verbs_cached *a, *b;
	struct stat st;

	(void)state;
	assert_int_equal(fstat(files[0], &st), 0);
	get_put(0);
	get_put(1);
	verbs_cache_forget(cache, st.st_dev, st.st_ino);
	expect(0, 2, 1, 1);
	a = get(0);
	verbs_cache_forget(cache, st.st_dev, st.st_ino);
	verbs_cache_forget(cache, st.st_dev, st.st_ino);
	expect(0, 3, 2, 2);
	/* A later user gets another registration. */
	b = get(0);
	assert_ptr_not_equal(a, b);
	expect(0, 4, 2, 3);
	verbs_cache_put(cache, a);
	expect(0, 4, 2, 2);
	verbs_cache_put(cache, b);
	expect(0, 4, 2, 2);
}

static void a_failed_registration_is_no_entry(void **state)
{
	struct verbs_cached *c;

	(void)state;
	fake_verbs_fail("ibv_reg_mr", 1, ENOMEM);
	assert_int_equal(verbs_cache_get(cache, port, files[0], &c), -ENOMEM);
	expect(0, 1, 0, 0);
	assert_int_equal(pool_counter_value(&metrics.failed), 1);
	get_put(0);
	expect(0, 2, 0, 1);
	assert_int_equal(verbs_cache_get(cache, port, -1, &c), -EBADF);
	assert_int_equal(ftruncate(files[1], 0), 0);
	assert_int_equal(verbs_cache_get(cache, port, files[1], &c), -EINVAL);
	assert_int_equal(ftruncate(files[1], (1 << 20) + 1), 0);
	assert_int_equal(verbs_cache_get(cache, port, files[1], &c), -EINVAL);
	expect(0, 3, 1, 0);
}

static void limits_below_our_own_drop_what_is_unused(void **state)
{
	struct verbs_cached *c;

	(void)state;
	get_put(0);
	c = get(1);
	fake_verbs_fail("ibv_reg_mr", 1, ENOMEM);
	get_put(2);
	expect(0, 3, 1, 2);
	verbs_cache_put(cache, c);
	/* No registration is idle: the failure is returned. */
	c = get(1);
	assert_int_equal(pool_counter_value(&metrics.hits), 1);
	fake_verbs_fail("ibv_reg_mr", 1, ENOMEM);
	fake_verbs_fail("ibv_reg_mr", 2, ENOMEM);
	{
		struct verbs_cached *d;

		assert_int_equal(verbs_cache_get(cache, port, files[3], &d),
				 -ENOMEM);
	}
	verbs_cache_put(cache, c);
}

/* ---- several threads ---- */

static _Atomic int registering, most;
static struct verbs_cached *got[4];
static int results[4];

static void slow(void)
{
	int now = ++registering;

	if (now > most)
		most = now;
	usleep(20000);
	registering--;
}

static void *get_thread(void *arg)
{
	size_t i = (size_t)arg;

	results[i] = verbs_cache_get(cache, port, files[0], &got[i]);
	return NULL;
}

static void get_by_four(void)
{
	pthread_t t[4];

	registering = most = 0;
	fake_verbs_registering = slow;
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, get_thread,
						(void *)i), 0);
	for (size_t i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	fake_verbs_registering = NULL;
}

static void a_second_user_waits_for_the_registration(void **state)
{
	(void)state;
	get_by_four();
	for (int i = 0; i < 4; i++) {
		assert_int_equal(results[i], 0);
		assert_ptr_equal(got[i], got[0]);
	}
	for (int i = 0; i < 4; i++)
		verbs_cache_put(cache, got[i]);
	assert_int_equal(most, 1);
	expect(3, 1, 0, 1);
}

/* Many threads: no registration is closed while in use, and none is left. */
static void *use_thread(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg + 1;
	struct stat st;

	for (int i = 0; i < 2000; i++) {
		int f = rand_r(&seed) % 8;
		struct verbs_cached *c;

		if (rand_r(&seed) % 16 == 0) {
			fstat(files[f], &st);
			verbs_cache_forget(cache, st.st_dev, st.st_ino);
		}
		if (verbs_cache_get(cache, port, files[f], &c))
			return arg;
		if (c->region.addr[f] != f) /* stable in use */
			return arg;
		verbs_cache_put(cache, c);
	}
	return NULL;
}

static void threads_use_forget_and_drop_at_once(void **state)
{
	pthread_t t[4];
	void *wrong;

	(void)state;
	for (int i = 0; i < 8; i++)
		assert_int_equal(pwrite(files[i], &(char){ (char)i }, 1, i), 1);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, use_thread,
						(void *)(i + 1)), 0);
	for (size_t i = 0; i < 4; i++) {
		pthread_join(t[i], &wrong);
		assert_null(wrong);
	}
	assert_true(fake_verbs_regions() <= 3);
	assert_int_equal(pool_gauge_value(&metrics.count),
			 fake_verbs_regions());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_region_is_the_very_pages_of_the_file),
		T(what_follows_the_first_bytes_is_mapped_for_later),
		T(only_what_peers_may_write_needs_a_writable_file),
		T(callers_memory_is_registered_as_it_is),
		T(bad_ranges_and_failures_leave_nothing),
		T(what_is_read_over_iwarp_may_be_written_by_the_peer),
		T(what_is_asked_for_again_is_registered_once),
		T(beyond_the_count_the_longest_unused_goes),
		T(beyond_the_bytes_the_longest_unused_go),
		T(what_is_in_use_stays_though_over_the_bounds),
		T(a_forgotten_file_is_let_go_at_once_or_by_its_last_user),
		T(a_failed_registration_is_no_entry),
		T(limits_below_our_own_drop_what_is_unused),
		T(a_second_user_waits_for_the_registration),
		T(threads_use_forget_and_drop_at_once),
	};

	alarm(60);
	pool_log_set_level(POOL_LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
