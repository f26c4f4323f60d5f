/*
 * Copies to memory of somebody else in this process, which may be gone or not
 * to be written: an error then, as of a system call, and no crash.
 *
 * Thread: any.
 */
#ifndef POOL_BASE_GUARD_H
#define POOL_BASE_GUARD_H

#include <stddef.h>

/* 0; -EFAULT: not all of it. (Where the system call for it, process_vm_writev,
 * is forbidden - by seccomp - it is a memcpy.) */
int pool_guard_copy(void *to, const void *from, size_t len);

#endif
