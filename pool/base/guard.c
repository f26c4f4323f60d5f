#include "pool/base/guard.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pool/base/map.h"

/* Three times as slow as memcpy. */
static int copy_by_kernel(void *to, const void *from, size_t len)
{
	struct iovec in = { .iov_base = (void *)(uintptr_t)from,
			    .iov_len = len };
	struct iovec out = { .iov_base = to, .iov_len = len };
	ssize_t r = process_vm_writev(getpid(), &in, 1, &out, 1, 0);

	if (r < 0 && errno != EFAULT)
		memcpy(to, from, len);
	else if (r != (ssize_t)len)
		return -EFAULT;
	return 0;
}

int pool_guard_copy(void *to, const void *from, size_t len)
{
	int err;

	if (len == 0)
		return 0;
	err = pool_map_populate(to, len, true);
	if (err == -EINVAL) /* read-only memory, or that of a device */
		return copy_by_kernel(to, from, len);
	if (err)
		return -EFAULT;
	memcpy(to, from, len);
	return 0;
}
