#include "pool/verbs/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/base/map.h"
#include "pool/verbs/verbs_priv.h"

#define LOG_INTERVAL_MS 60000u
#define ACCESS_BY_PEERS \
	(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

int verbs_pd_open(const struct verbs_port *port, struct ibv_pd **ret_pd)
{
	errno = 0;
	*ret_pd = ibv_alloc_pd(port->ctx);
	return *ret_pd ? 0 : verbs_errno();
}

void verbs_pd_close(const struct verbs_port *port, struct ibv_pd *pd)
{
	int err = verbs_err(ibv_dealloc_pd(pd));

	if (err)
		pool_error("RDMA device %s: cannot free a protection domain: "
			   "%s", port->device, strerror(-err));
}

/* Remote write access requires local write access. On iWARP the response to our
 * READ arrives as a write by the peer. */
static int whole_access(const struct verbs_port *port, int access)
{
	if (access & ACCESS_BY_PEERS)
		return access | IBV_ACCESS_LOCAL_WRITE;
	if (port->link == VERBS_IWARP && access & IBV_ACCESS_LOCAL_WRITE)
		return access | IBV_ACCESS_REMOTE_WRITE;
	return access;
}

static int register_memory(const struct verbs_port *port, struct ibv_pd *pd,
			   void *mem, uint64_t length, int access,
			   struct verbs_region *ret_region)
{
	struct verbs_region r = { .addr = mem, .length = length };

	if (length == 0 || length > port->region_max || length > SIZE_MAX)
		return -EINVAL;
	errno = 0;
	r.mr = ibv_reg_mr(pd, mem, (size_t)length,
			  (unsigned int)whole_access(port, access));
	if (!r.mr)
		return verbs_errno();
	*ret_region = r;
	return 0;
}

/* Until a limit is raised, every range fails with the same error: that is
 * logged once a minute, a new error at once. */
static bool should_log(int err)
{
	static _Atomic int logged_err;
	static _Atomic uint64_t logged_ms;
	uint64_t now = pool_now_ms();

	if (logged_err == err && now - logged_ms < LOG_INTERVAL_MS)
		return false;
	logged_err = err;
	logged_ms = now;
	return true;
}

static int log_failure(const struct verbs_port *port, uint64_t length, int err)
{
	if (err && err != -EINVAL && should_log(err))
		pool_warn_limited("cannot register %llu bytes with RDMA "
				  "device %s: %s; %s",
				  (unsigned long long)length, port->device,
				  strerror(-err), verbs_remedy(err));
	return err;
}

int verbs_region_open_memory(const struct verbs_port *port, struct ibv_pd *pd,
			     void *mem, uint64_t length, int access,
			     struct verbs_region *ret_region)
{
	return log_failure(port, length,
			   register_memory(port, pd, mem, length, access,
					   ret_region));
}

static int map_open(const struct verbs_port *port, struct ibv_pd *pd, int fd,
		    uint64_t offset, uint64_t length, uint64_t first, int prot,
		    int access, struct verbs_region *ret_region)
{
	uint64_t ahead = offset % (uint64_t)sysconf(_SC_PAGESIZE);
	size_t map_length = (size_t)(ahead + length);
	void *map = pool_map_object(map_length, prot, 0, fd,
				    (off_t)(offset - ahead));
	int err;

	if (map == MAP_FAILED)
		return -errno;
	err = register_memory(port, pd, (uint8_t *)map + ahead, first, access,
			      ret_region);
	if (err) {
		munmap(map, map_length);
		return err;
	}
	ret_region->map = map;
	ret_region->map_length = map_length;
	return 0;
}

/* Opens the same file read-write. The descriptor or -errno. */
static int reopen(int fd)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Up to Linux 6.1 the kernel registers only writable mappings, even for reading
 * (ib_umem_get always uses FOLL_WRITE). Set after the first such failure, so
 * that later sources are mapped read-write at once. */
static _Atomic bool sources_writable;

int verbs_region_open_first(const struct verbs_port *port, struct ibv_pd *pd,
			    int fd, uint64_t offset, uint64_t length,
			    uint64_t first, int access,
			    struct verbs_region *ret_region)
{
	const int rw = PROT_READ | PROT_WRITE;
	int err = -EFAULT;

	if (first == 0 || first > length || first > port->region_max ||
	    length > SIZE_MAX / 2 || offset > INT64_MAX)
		return -EINVAL;
	if (whole_access(port, access) & IBV_ACCESS_LOCAL_WRITE)
		return log_failure(port, first,
				   map_open(port, pd, fd, offset, length,
					    first, rw, access, ret_region));
	if (!sources_writable)
		err = map_open(port, pd, fd, offset, length, first, PROT_READ,
			       access, ret_region);
	if (err != -EFAULT)
		return log_failure(port, first, err);
	fd = reopen(fd);
	if (fd < 0)
		return fd;
	err = map_open(port, pd, fd, offset, length, first, rw, access,
		       ret_region);
	close(fd);
	if (!err)
		sources_writable = true;
	return log_failure(port, first, err);
}

int verbs_region_open(const struct verbs_port *port, struct ibv_pd *pd, int fd,
		      uint64_t offset, uint64_t length, int access,
		      struct verbs_region *ret_region)
{
	return verbs_region_open_first(port, pd, fd, offset, length, length,
				       access, ret_region);
}

void verbs_region_deregister(struct verbs_region *r)
{
	int err = r->mr ? verbs_err(ibv_dereg_mr(r->mr)) : 0;

	/* The kernel has already freed the regions of a removed device. */
	if (err)
		pool_warn_limited("cannot deregister RDMA memory: %s",
				  strerror(-err));
	r->mr = NULL;
}

void verbs_region_close(struct verbs_region *r)
{
	verbs_region_deregister(r);
	if (r->map)
		munmap(r->map, r->map_length);
	memset(r, 0, sizeof(*r));
}
