/* The preloaded object. See tests/failing.h. */
#include "tests/sweep/failing.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <uv.h>

/* ---- whose calls count ---- */

#define RANGES_MAX 16

/* Executable pages; set by the constructor, then read only. */
static struct range {
	uintptr_t begin, end;
	bool own;  /* the program, else a library */
	bool fuse; /* libfuse */
} ranges[RANGES_MAX];
static size_t nranges;
static uintptr_t program_base;

static struct failing *page; /* NULL: no test */

static bool counted_library(const char *name)
{
	static const char *const names[] = { "libprotobuf-c", "libjansson",
					     "libfuse3", "libmicrohttpd",
					     "libcurl" };
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strstr(name, names[i]))
			return true;
	return false;
}

static int add_ranges(struct dl_phdr_info *info, size_t size, void *arg)
{
	bool own = !info->dlpi_name[0] && !program_base;
	int i;

	(void)size;
	(void)arg;
	if (!own && !counted_library(info->dlpi_name))
		return 0;
	if (own)
		program_base = info->dlpi_addr;
	for (i = 0; i < info->dlpi_phnum && nranges < RANGES_MAX; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
			continue;
		ranges[nranges].begin = info->dlpi_addr + p->p_vaddr;
		ranges[nranges].end = ranges[nranges].begin + p->p_memsz;
		ranges[nranges].fuse = strstr(info->dlpi_name, "libfuse3");
		ranges[nranges++].own = own;
	}
	return 0;
}

static const struct range *range_of(const void *at)
{
	uintptr_t a = (uintptr_t)at;
	size_t i;

	for (i = 0; i < nranges; i++)
		if (a >= ranges[i].begin && a < ranges[i].end)
			return &ranges[i];
	return NULL;
}

__attribute__((constructor)) static void start(void)
{
	const char *path = getenv(FAILING_ENV);
	void *warm[1], *p;
	int fd;

	fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	p = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		 0);
	close(fd);
	if (p == MAP_FAILED)
		return;
	dl_iterate_phdr(add_ranges, NULL);
	backtrace(warm, 1); /* it loads a library at first */
	page = p;
}

/* ---- the one that fails ---- */

static __thread bool inside; /* backtrace(3) may call what is here */

static void record(const char *call)
{
	void *at[FAILING_FRAMES + 4];
	const struct range *r;
	int i, n, out = 0;

	snprintf(page->call, sizeof(page->call), "%s", call);
	memset(page->frames, 0, sizeof(page->frames));
	n = backtrace(at, FAILING_FRAMES + 4);
	for (i = 0; i < n && out < FAILING_FRAMES; i++) {
		r = range_of(at[i]);
		if (r && r->own)
			page->frames[out++] = (uintptr_t)at[i] - program_base;
	}
	page->fired = 1;
}

/* Is this call, made at `from`, the one that is to fail? */
static bool due(const char *call, const void *from, bool library_too)
{
	const struct range *r;

	if (!page || !page->nth || inside)
		return false;
	r = range_of(from);
	if (!r || (!r->own && !library_too))
		return false;
	if (++page->seen != page->nth)
		return false;
	inside = true;
	record(call);
	inside = false;
	return true;
}

static bool due_errno(const char *call, const void *from, bool library_too,
		      int err)
{
	if (!due(call, from, library_too))
		return false;
	errno = err;
	return true;
}

static void *next_of(const char *call)
{
	return dlsym(RTLD_NEXT, call);
}

#define FROM __builtin_return_address(0)

/* ---- allocations ---- */

#define ALLOCATION(ret, call, params, args)                           \
	ret call params                                               \
	{                                                             \
		static ret(*next) params;                             \
		if (!next)                                            \
			*(void **)&next = next_of(#call);             \
		return due_errno(#call, FROM, true, ENOMEM) ? NULL :  \
							      next args; \
	}

ALLOCATION(void *, malloc, (size_t n), (n))
ALLOCATION(void *, realloc, (void *p, size_t n), (p, n))
ALLOCATION(void *, reallocarray, (void *p, size_t n, size_t size), (p, n, size))
ALLOCATION(void *, aligned_alloc, (size_t align, size_t n), (align, n))
ALLOCATION(char *, strdup, (const char *s), (s))
ALLOCATION(char *, strndup, (const char *s, size_t n), (s, n))
ALLOCATION(char *, realpath, (const char *path, char *out), (path, out))
ALLOCATION(FILE *, fopen, (const char *path, const char *mode), (path, mode))
ALLOCATION(FILE *, open_memstream, (char **buf, size_t *n), (buf, n))

/* libfuse's are its requests: it answers ENOMEM by itself, and a RELEASE or a
 * FORGET is lost with one. */
void *calloc(size_t n, size_t size)
{
	static void *(*next)(size_t, size_t);
	const struct range *r = page && page->nth ? range_of(FROM) : NULL;

	if (!next)
		*(void **)&next = next_of("calloc");
	return (!r || !r->fuse) && due_errno("calloc", FROM, true, ENOMEM) ?
		       NULL : next(n, size);
}

int asprintf(char **ret, const char *format, ...)
{
	va_list ap;
	int n;

	if (due_errno("asprintf", FROM, true, ENOMEM))
		return -1;
	va_start(ap, format);
	n = vasprintf(ret, format, ap);
	va_end(ap);
	return n;
}

/* As fortified programs call it. */
int __asprintf_chk(char **ret, int flag, const char *format, ...);
int __asprintf_chk(char **ret, int flag, const char *format, ...)
{
	va_list ap;
	int n;

	(void)flag;
	if (due_errno("asprintf", FROM, true, ENOMEM))
		return -1;
	va_start(ap, format);
	n = vasprintf(ret, format, ap);
	va_end(ap);
	return n;
}

char *__realpath_chk(const char *path, char *out, size_t n);
char *__realpath_chk(const char *path, char *out, size_t n)
{
	static char *(*next)(const char *, char *, size_t);

	if (!next)
		*(void **)&next = next_of("__realpath_chk");
	return due_errno("realpath", FROM, true, ENOMEM) ? NULL :
							   next(path, out, n);
}

/* ---- calls ---- */

#define CALL(ret, bad, err, call, params, args)                   \
	ret call params                                           \
	{                                                         \
		static ret(*next) params;                         \
		if (!next)                                        \
			*(void **)&next = next_of(#call);         \
		return due_errno(#call, FROM, false, err) ? bad : \
							    next args; \
	}

/* files */
CALL(int, -1, ENOSPC, fallocate, (int fd, int mode, off_t at, off_t n),
     (fd, mode, at, n))
CALL(int, -1, ENOMEM, ftruncate, (int fd, off_t n), (fd, n))
CALL(int, -1, ENOMEM, fstat, (int fd, struct stat *st), (fd, st))
CALL(int, -1, ENOMEM, stat, (const char *path, struct stat *st), (path, st))
CALL(int, -1, ENOMEM, lstat, (const char *path, struct stat *st), (path, st))
CALL(int, -1, ENOMEM, fstatat,
     (int dir, const char *path, struct stat *st, int flags),
     (dir, path, st, flags))
CALL(int, -1, ENOMEM, statx,
     (int dir, const char *path, int flags, unsigned int mask,
      struct statx *st),
     (dir, path, flags, mask, st))
CALL(int, -1, EIO, statfs, (const char *path, struct statfs *sf), (path, sf))
CALL(int, -1, EIO, fstatfs, (int fd, struct statfs *sf), (fd, sf))
CALL(int, -1, EIO, fchmod, (int fd, mode_t mode), (fd, mode))
CALL(int, -1, ENOSPC, fsetxattr,
     (int fd, const char *key, const void *p, size_t n, int flags),
     (fd, key, p, n, flags))
CALL(int, -1, ENOSPC, lsetxattr,
     (const char *path, const char *key, const void *p, size_t n, int flags),
     (path, key, p, n, flags))
CALL(ssize_t, -1, ENOMEM, getxattr,
     (const char *path, const char *key, void *p, size_t n), (path, key, p, n))
CALL(ssize_t, -1, ENOMEM, lgetxattr,
     (const char *path, const char *key, void *p, size_t n), (path, key, p, n))
CALL(int, -1, EIO, lremovexattr, (const char *path, const char *key),
     (path, key))
CALL(ssize_t, -1, EIO, pread, (int fd, void *p, size_t n, off_t at),
     (fd, p, n, at))
CALL(ssize_t, -1, ENOSPC, pwrite, (int fd, const void *p, size_t n, off_t at),
     (fd, p, n, at))
CALL(ssize_t, -1, ENOMEM, sendfile, (int out, int in, off_t *at, size_t n),
     (out, in, at, n))
CALL(off_t, -1, EIO, lseek, (int fd, off_t at, int whence), (fd, at, whence))
CALL(int, -1, EIO, fsync, (int fd), (fd))
CALL(int, -1, EIO, fdatasync, (int fd), (fd))
CALL(int, -1, ENOSPC, rename, (const char *from, const char *to), (from, to))
CALL(int, -1, ENOMEM, unlink, (const char *path), (path))
CALL(int, -1, ENOMEM, unlinkat, (int dir, const char *path, int flags),
     (dir, path, flags))
CALL(int, -1, ENOSPC, mkdir, (const char *path, mode_t mode), (path, mode))
CALL(DIR *, NULL, EMFILE, opendir, (const char *path), (path))
CALL(struct dirent *, NULL, EIO, readdir, (DIR *dir), (dir))
CALL(int, -1, ENOLCK, flock, (int fd, int op), (fd, op))
CALL(int, -1, ENOMEM, access, (const char *path, int mode), (path, mode))
CALL(int, -1, EMFILE, memfd_create, (const char *name, unsigned int flags),
     (name, flags))
CALL(int, -1, EMFILE, pipe2, (int fds[2], int flags), (fds, flags))
/* Without flags it fails in no other way: the product asserts so. */
CALL(ssize_t, -1, EINTR, getrandom, (void *p, size_t n, unsigned int flags),
     (p, n, flags))
CALL(void *, MAP_FAILED, ENOMEM, mmap,
     (void *p, size_t n, int prot, int flags, int fd, off_t at),
     (p, n, prot, flags, fd, at))
CALL(int, -1, ENOMEM, madvise, (void *p, size_t n, int advice), (p, n, advice))
CALL(int, -1, ENOMEM, mount,
     (const char *from, const char *to, const char *type, unsigned long flags,
      const void *data),
     (from, to, type, flags, data))
CALL(int, -1, EBUSY, umount2, (const char *path, int flags), (path, flags))
CALL(pid_t, -1, EAGAIN, fork, (void), ())

/* sockets */
CALL(int, -1, EMFILE, socket, (int domain, int type, int proto),
     (domain, type, proto))
CALL(int, -1, ENETUNREACH, connect,
     (int fd, const struct sockaddr *sa, socklen_t n), (fd, sa, n))
CALL(int, -1, EMFILE, accept4,
     (int fd, struct sockaddr *sa, socklen_t *n, int flags), (fd, sa, n, flags))
CALL(int, -1, ENOMEM, bind, (int fd, const struct sockaddr *sa, socklen_t n),
     (fd, sa, n))
CALL(int, -1, ENOMEM, listen, (int fd, int n), (fd, n))
CALL(int, -1, ENOBUFS, setsockopt,
     (int fd, int level, int key, const void *p, socklen_t n),
     (fd, level, key, p, n))
CALL(int, -1, ENOBUFS, getsockopt,
     (int fd, int level, int key, void *p, socklen_t *n),
     (fd, level, key, p, n))
CALL(int, -1, ENOBUFS, getsockname, (int fd, struct sockaddr *sa, socklen_t *n),
     (fd, sa, n))
CALL(int, -1, ENOBUFS, getpeername, (int fd, struct sockaddr *sa, socklen_t *n),
     (fd, sa, n))
CALL(ssize_t, -1, ECONNRESET, recv, (int fd, void *p, size_t n, int flags),
     (fd, p, n, flags))
CALL(ssize_t, -1, ECONNRESET, recvmsg, (int fd, struct msghdr *m, int flags),
     (fd, m, flags))
CALL(ssize_t, -1, ECONNRESET, send,
     (int fd, const void *p, size_t n, int flags), (fd, p, n, flags))
CALL(ssize_t, -1, ECONNRESET, sendmsg,
     (int fd, const struct msghdr *m, int flags), (fd, m, flags))

/* Some say what went wrong by what they return. */
#define CALL_STATUS(bad, call, params, args)                    \
	int call params                                         \
	{                                                       \
		static int(*next) params;                       \
		if (!next)                                      \
			*(void **)&next = next_of(#call);       \
		return due(#call, FROM, false) ? bad : next args; \
	}

CALL_STATUS(EAI_MEMORY, getaddrinfo,
	    (const char *host, const char *port, const struct addrinfo *hints,
	     struct addrinfo **ret),
	    (host, port, hints, ret))
CALL_STATUS(UV_ENOMEM, uv_getaddrinfo,
	    (uv_loop_t *loop, uv_getaddrinfo_t *req, uv_getaddrinfo_cb cb,
	     const char *host, const char *port, const struct addrinfo *hints),
	    (loop, req, cb, host, port, hints))
CALL_STATUS(UV_EMFILE, uv_loop_init, (uv_loop_t *loop), (loop))
CALL_STATUS(UV_EMFILE, uv_signal_init, (uv_loop_t *loop, uv_signal_t *h),
	    (loop, h))
CALL_STATUS(UV_EMFILE, uv_async_init,
	    (uv_loop_t *loop, uv_async_t *h, uv_async_cb cb), (loop, h, cb))
CALL_STATUS(UV_ENOMEM, uv_poll_init, (uv_loop_t *loop, uv_poll_t *h, int fd),
	    (loop, h, fd))
CALL_STATUS(UV_EAGAIN, uv_thread_create,
	    (uv_thread_t *thread, uv_thread_cb fn, void *arg),
	    (thread, fn, arg))
CALL_STATUS(EAGAIN, pthread_create,
	    (pthread_t *thread, const pthread_attr_t *attr,
	     void *(*fn)(void *), void *arg),
	    (thread, attr, fn, arg))

/* ---- with an optional argument; or perhaps at /dev/fuse ---- */

int open(const char *path, int flags, ...)
{
	static int (*next)(const char *, int, ...);
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	if (!next)
		*(void **)&next = next_of("open");
	return due_errno("open", FROM, false, EMFILE) ? -1 :
							next(path, flags, mode);
}

/* As fortified programs call it: without O_CREAT. */
int __open_2(const char *path, int flags);
int __open_2(const char *path, int flags)
{
	static int (*next)(const char *, int);

	if (!next)
		*(void **)&next = next_of("__open_2");
	return due_errno("open", FROM, false, EMFILE) ? -1 : next(path, flags);
}

int openat(int dir, const char *path, int flags, ...)
{
	static int (*next)(int, const char *, int, ...);
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	if (!next)
		*(void **)&next = next_of("openat");
	return due_errno("openat", FROM, false, EMFILE) ?
		       -1 : next(dir, path, flags, mode);
}

int __openat_2(int dir, const char *path, int flags);
int __openat_2(int dir, const char *path, int flags)
{
	static int (*next)(int, const char *, int);

	if (!next)
		*(void **)&next = next_of("__openat_2");
	return due_errno("openat", FROM, false, EMFILE) ?
		       -1 : next(dir, path, flags);
}

/* FUSE_DEV_IOC_BACKING_CLOSE: gives back, as close does. */
#define BACKING_CLOSE _IOW(229, 2, uint32_t)

int ioctl(int fd, unsigned long request, ...)
{
	static int (*next)(int, unsigned long, ...);
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (!next)
		*(void **)&next = next_of("ioctl");
	return request != BACKING_CLOSE &&
	       due_errno("ioctl", FROM, false, ENOMEM) ?
		       -1 : next(fd, request, arg);
}

int fcntl(int fd, int cmd, ...)
{
	static int (*next)(int, int, ...);
	va_list ap;
	void *arg;
	bool takes;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	takes = cmd == F_DUPFD_CLOEXEC || cmd == F_DUPFD ||
		(cmd == F_SETLEASE && (intptr_t)arg != F_UNLCK);
	if (!next)
		*(void **)&next = next_of("fcntl");
	return takes && due_errno("fcntl", FROM, false,
				  cmd == F_SETLEASE ? ENOMEM : EMFILE) ?
		       -1 : next(fd, cmd, arg);
}

static bool is_device(int fd)
{
	struct stat st;

	return page && page->nth &&
	       syscall(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH) == 0 &&
	       S_ISCHR(st.st_mode);
}

ssize_t read(int fd, void *p, size_t n)
{
	static ssize_t (*next)(int, void *, size_t);

	if (!next)
		*(void **)&next = next_of("read");
	return !is_device(fd) && due_errno("read", FROM, false, EIO) ?
		       -1 : next(fd, p, n);
}

ssize_t write(int fd, const void *p, size_t n)
{
	static ssize_t (*next)(int, const void *, size_t);

	if (!next)
		*(void **)&next = next_of("write");
	return fd > STDERR_FILENO && !is_device(fd) &&
	       due_errno("write", FROM, false, ENOSPC) ? -1 : next(fd, p, n);
}

ssize_t writev(int fd, const struct iovec *v, int n)
{
	static ssize_t (*next)(int, const struct iovec *, int);

	if (!next)
		*(void **)&next = next_of("writev");
	return !is_device(fd) && due_errno("writev", FROM, false, EIO) ?
		       -1 : next(fd, v, n);
}
