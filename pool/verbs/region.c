#include "pool/verbs/region.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pool/base/log.h"
#include "pool/verbs/priv.h"

#define ACCESS_BY_PEERS \
	(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

/* What a peer may write, the device has to be allowed to. On iWARP the answer to
 * a READ of ours is a write of the peer's. */
static int whole_access(const struct verbs_port *port, int access)
{
	if (access & ACCESS_BY_PEERS)
		return access | IBV_ACCESS_LOCAL_WRITE;
	if (port->link == VERBS_IWARP && access & IBV_ACCESS_LOCAL_WRITE)
		return access | IBV_ACCESS_REMOTE_WRITE;
	return access;
}

int verbs_region_open_memory(const struct verbs_port *port, struct ibv_pd *pd,
			     void *mem, uint64_t length, int access,
			     struct verbs_region *ret_region)
{
	struct verbs_region r = { .addr = mem, .length = length };
	int err;

	if (length == 0 || length > port->region_max || length > SIZE_MAX)
		return -EINVAL;
	errno = 0;
	r.mr = ibv_reg_mr(pd, mem, (size_t)length,
			  (unsigned int)whole_access(port, access));
	if (!r.mr) {
		err = verbs_errno();
		pool_warn_limited("%llu bytes cannot be registered with RDMA device %s: %s; %s",
				  (unsigned long long)length, port->device,
				  strerror(-err), verbs_remedy(err));
		return err;
	}
	*ret_region = r;
	return 0;
}

int verbs_region_open(const struct verbs_port *port, struct ibv_pd *pd, int fd,
		      uint64_t offset, uint64_t length, int access,
		      struct verbs_region *ret_region)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t ahead = offset % page;
	int prot = PROT_READ;
	void *map;
	int err;

	if (length == 0 || length > port->region_max ||
	    length > SIZE_MAX - page || offset > INT64_MAX)
		return -EINVAL;
	if (whole_access(port, access) & IBV_ACCESS_LOCAL_WRITE)
		prot |= PROT_WRITE;
	map = mmap(NULL, (size_t)(ahead + length), prot, MAP_SHARED, fd,
		   (off_t)(offset - ahead));
	if (map == MAP_FAILED)
		return -errno;
	err = verbs_region_open_memory(port, pd, (uint8_t *)map + ahead,
				       length, access, ret_region);
	if (err) {
		munmap(map, (size_t)(ahead + length));
		return err;
	}
	ret_region->map = map;
	ret_region->map_length = (size_t)(ahead + length);
	return 0;
}

void verbs_region_close(struct verbs_region *r)
{
	int err = r->mr ? verbs_err(ibv_dereg_mr(r->mr)) : 0;

	/* Of a device that was removed, the kernel has ended it already. */
	if (err)
		pool_warn_limited("a registration is not given back: %s",
				  strerror(-err));
	if (r->map)
		munmap(r->map, r->map_length);
	memset(r, 0, sizeof(*r));
}
