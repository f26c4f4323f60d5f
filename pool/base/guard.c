#include "pool/base/guard.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

int pool_guard_copy(void *to, const void *from, size_t len)
{
	struct iovec in = { .iov_base = (void *)(uintptr_t)from,
			    .iov_len = len };
	struct iovec out = { .iov_base = to, .iov_len = len };
	ssize_t r;

	if (len == 0)
		return 0;
	r = process_vm_writev(getpid(), &in, 1, &out, 1, 0);
	if (r < 0 && errno != EFAULT)
		memcpy(to, from, len);
	else if (r != (ssize_t)len)
		return -EFAULT;
	return 0;
}
