/*
 * Memory that a device may touch: a range of a file, mapped, or a caller's
 * memory, registered. What engines read and map through the mount are the same
 * pages.
 *
 * Registering pins every page, which takes long for pages that were never
 * touched: never on the node's loop.
 *
 * Thread: any for verbs_region_*; a region is used by one at a time.
 */
#ifndef POOL_VERBS_REGION_H
#define POOL_VERBS_REGION_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "pool/base/metric.h"
#include "pool/verbs/device.h"

/* A protection domain of its own: what is registered in it, and nothing else,
 * can be touched by way of a queue pair that is made in it. 0 or -errno. */
int verbs_pd_open(const struct verbs_port *port, struct ibv_pd **ret_pd);
/* Nothing in it is left (an error is logged). */
void verbs_pd_close(const struct verbs_port *port, struct ibv_pd *pd);

struct verbs_region {
	uint8_t *addr;	 /* of the range's first byte */
	uint64_t length; /* of what is registered, exactly the range */
	struct ibv_mr *mr;
	void *map; /* owns; NULL: the memory is the caller's */
	size_t map_length;
};

/*
 * length > 0 bytes at offset of fd (O_RDWR if access lets anybody write; the
 * file must be that long and keep its bytes until the region is closed).
 * access: of enum ibv_access_flags; 0: only our own sends read it.
 * 0, or -errno: -ENOMEM and -EPERM may be limits, see verbs_remedy; -EINVAL
 * (longer than the port's region_max).
 */
int verbs_region_open(const struct verbs_port *port, struct ibv_pd *pd, int fd,
		      uint64_t offset, uint64_t length, int access,
		      struct verbs_region *ret_region);
/* The same, but only the first bytes are registered; the others are mapped
 * behind them until the region is closed, for verbs_region_open_memory. */
int verbs_region_open_first(const struct verbs_port *port, struct ibv_pd *pd,
			    int fd, uint64_t offset, uint64_t length,
			    uint64_t first, int access,
			    struct verbs_region *ret_region);
int verbs_region_open_memory(const struct verbs_port *port, struct ibv_pd *pd,
			     void *mem, uint64_t length, int access,
			     struct verbs_region *ret_region);
/* No work request with it is under way. A zeroed one: no-op. From here on no
 * peer can touch it: what it still sends is answered by an error. */
void verbs_region_close(struct verbs_region *r);
/* The same for devices and peers; what is mapped stays so until it is closed.
 */
void verbs_region_deregister(struct verbs_region *r);

/*
 * A cache of whole objects registered as sources (access 0, in their port's
 * pd), by file: what several peers fetch, or one fetches in pieces, is
 * registered once. Unused ones go when the cache is over its count or bytes,
 * the longest unused first, and all of a file when it is forgotten. Those in
 * use are never closed under their user, so the bounds may be exceeded by what
 * is in use, which the sends under way bound.
 *
 * Thread: any; it has a lock, held for look-ups and not while registering.
 */
struct verbs_cache;

struct verbs_cached {
	struct verbs_region region;
};

struct verbs_cache_metrics {
	struct pool_counter hits, misses, failed, dropped;
	struct pool_gauge count, bytes;
};

/* metrics: the owner's storage, outlives the cache. 0 or -ENOMEM. */
int verbs_cache_open(unsigned int count_max, uint64_t bytes_max,
		     struct verbs_cache_metrics *metrics,
		     struct verbs_cache **ret_cache);
/* None is in use. NULL is allowed. */
void verbs_cache_close(struct verbs_cache *c);
/* The whole of fd (borrowed; O_RDONLY is enough) on that port. 0 or -errno as
 * verbs_region_open; -EINVAL also if the file is empty. */
int verbs_cache_get(struct verbs_cache *c, const struct verbs_port *port,
		    int fd, struct verbs_cached **ret_cached);
void verbs_cache_put(struct verbs_cache *c, struct verbs_cached *cached);
/* The file is gone, or its room is wanted: its pages are let go at once, or
 * when its last user puts it. */
void verbs_cache_forget(struct verbs_cache *c, dev_t dev, ino_t ino);

#endif
