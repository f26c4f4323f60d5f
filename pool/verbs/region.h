/*
 * Memory registered with a device: a mapped range of a file, or the caller's
 * memory. A file's pages are the ones that engines read and map through the
 * mount.
 *
 * Registering pins every page. This is slow for pages that were never accessed,
 * so it must not happen on the node's loop.
 *
 * Thread: any, for verbs_region_*; a region is used by one thread at a time.
 */
#ifndef POOL_VERBS_REGION_H
#define POOL_VERBS_REGION_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "pool/base/metric.h"
#include "pool/verbs/device.h"

/* Opens a protection domain: the peer of a queue pair made in it can access the
 * memory registered in it, and no other. 0 or -errno. */
int verbs_pd_open(const struct verbs_port *port, struct ibv_pd **ret_pd);
/* All regions and queue pairs in pd must have been closed. An error is logged.
 */
void verbs_pd_close(const struct verbs_port *port, struct ibv_pd *pd);

struct verbs_region {
	uint8_t *addr;	 /* of the range's first byte */
	uint64_t length; /* bytes registered: exactly the range */
	struct ibv_mr *mr;
	void *map; /* owns; NULL: the caller owns the memory */
	size_t map_length;
};

/*
 * Maps and registers length > 0 bytes at offset of fd (O_RDWR if access permits
 * any writes). The file must be that long and must not shrink until the region
 * is closed. access: of enum ibv_access_flags; 0: the device only reads it, for
 * our own sends. 0 or -errno: -ENOMEM and -EPERM may be limits, see
 * verbs_remedy; -EINVAL: longer than the port's region_max.
 */
int verbs_region_open(const struct verbs_port *port, struct ibv_pd *pd, int fd,
		      uint64_t offset, uint64_t length, int access,
		      struct verbs_region *ret_region);
/* Maps length bytes and registers the first `first` of them. The rest stays
 * mapped until the region is closed, to be registered by
 * verbs_region_open_memory. */
int verbs_region_open_first(const struct verbs_port *port, struct ibv_pd *pd,
			    int fd, uint64_t offset, uint64_t length,
			    uint64_t first, int access,
			    struct verbs_region *ret_region);
/* Registers the caller's memory. */
int verbs_region_open_memory(const struct verbs_port *port, struct ibv_pd *pd,
			     void *mem, uint64_t length, int access,
			     struct verbs_region *ret_region);
/* Deregisters and unmaps. No work request that uses it may be in flight. After
 * this no peer can access it: an access by a peer fails and breaks the peer's
 * queue pair. A zeroed region: no-op. */
void verbs_region_close(struct verbs_region *r);
/* Deregisters only: no device or peer can access it any more, but the mapping
 * stays until verbs_region_close. */
void verbs_region_deregister(struct verbs_region *r);

/*
 * A cache of whole objects registered for sending (access 0, in their port's
 * pd). An object that several peers fetch, or that one peer fetches in pieces,
 * is thus registered once. When the cache exceeds its count or bytes, it drops
 * the least recently used idle registrations; verbs_cache_forget drops those of
 * a file. Registrations in use are never closed, so they may exceed these
 * bounds; only the number of sends in flight bounds them.
 *
 * Thread: any; the cache has a lock, which is not held while registering.
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
/* No registration may be in use. NULL: no-op. */
void verbs_cache_close(struct verbs_cache *c);
/* The registration of the whole file fd (borrowed; O_RDONLY suffices) on that
 * port, until verbs_cache_put. Blocks while it is being registered. 0, or
 * -errno as verbs_region_open; -EINVAL also if the file is empty. */
int verbs_cache_get(struct verbs_cache *c, const struct verbs_port *port,
		    int fd, struct verbs_cached **ret_cached);
void verbs_cache_put(struct verbs_cache *c, struct verbs_cached *cached);
/* The file was deleted or evicted: closes its registrations, because they keep
 * its pages; at once, or when their last user puts them. */
void verbs_cache_forget(struct verbs_cache *c, dev_t dev, ino_t ino);

#endif
