/*
 * Copies into memory of the application that uses libkvpool. If that memory is
 * unmapped or read-only, the copy returns an error and does not crash.
 *
 * Thread: any.
 */
#ifndef POOL_BASE_GUARD_H
#define POOL_BASE_GUARD_H

#include <stddef.h>

/* 0, or -EFAULT if not all of `to` can be written. Falls back to memcpy where
 * process_vm_writev is not allowed (seccomp). */
int pool_guard_copy(void *to, const void *from, size_t len);

#endif
