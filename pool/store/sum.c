/*
 * The checksum of a file, at memory speed, because every put needs one.
 *
 * xxhash's plain functions are compiled for SSE2 and take 0.92 ms for 4 MiB in
 * the cache; those of xxh_x86dispatch.h, which select by CPU at run time, take
 * 0.17 ms. With reading (4 MiB files, one CPU; memcpy takes 0.37 ms):
 *
 *                    mapped    pread in 128 KiB    pread at once
 *     2 MiB folios   0.41 ms   0.59 ms             0.84 ms
 *     4 KiB pages    0.86 ms   0.80 ms             1.09 ms
 *
 * Therefore files that can have large folios are mapped, and others are read in
 * slices that stay in the cache. A file with holes is never mapped: a fault
 * would allocate pages, or raise SIGBUS if none are left.
 */
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY /* for XXH3_state_t on the stack */
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>
#endif
#include "pool/base/clock.h"
#include "pool/base/map.h"
#include "pool/store/store_priv.h"

#define SLICE (128u << 10)
#define MAP_MIN (2u << 20)
#define MAP_WINDOW (64u << 20) /* bounds the page tables in use */

bool store_must_stop(const _Atomic uint64_t *stop_ms)
{
	uint64_t ms = stop_ms ? *stop_ms : 0;

	return ms && pool_now_ms() >= ms;
}

static int sum_read(int fd, uint64_t off, uint64_t end,
		    const _Atomic uint64_t *stop_ms, XXH3_state_t *st)
{
	_Alignas(64) unsigned char buf[SLICE];
	ssize_t n;

	while (off < end) {
		size_t want = end - off < SLICE ? (size_t)(end - off) : SLICE;

		if (store_must_stop(stop_ms))
			return -ECANCELED;
		n = pread(fd, buf, want, (off_t)off);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EBADMSG;
		XXH3_128bits_update(st, buf, (size_t)n);
		off += (uint64_t)n;
	}
	return 0;
}

static int sum_mapped(int fd, uint64_t size, const _Atomic uint64_t *stop_ms,
		      XXH3_state_t *st)
{
	for (uint64_t off = 0; off < size; off += MAP_WINDOW) {
		size_t n = size - off < MAP_WINDOW ? (size_t)(size - off) :
						     MAP_WINDOW;
		void *p;

		if (store_must_stop(stop_ms))
			return -ECANCELED;
		p = pool_map_object(n, PROT_READ, 0, fd, (off_t)off);
		if (p == MAP_FAILED)
			return sum_read(fd, off, size, stop_ms, st);
		XXH3_128bits_update(st, p, n);
		munmap(p, n);
	}
	return 0;
}

int store_sum(int fd, uint64_t size, bool dense,
	      const _Atomic uint64_t *stop_ms, XXH128_hash_t *ret_sum)
{
	XXH3_state_t st;
	int rc;

	XXH3_128bits_reset(&st);
	if (dense && size >= MAP_MIN)
		rc = sum_mapped(fd, size, stop_ms, &st);
	else
		rc = sum_read(fd, 0, size, stop_ms, &st);
	if (rc == 0)
		*ret_sum = XXH3_128bits_digest(&st);
	return rc;
}

uint64_t store_sum64(const void *p, size_t n)
{
	return XXH3_64bits(p, n);
}
