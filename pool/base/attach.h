/*
 * Descriptors attached to a message of a Unix socket (SCM_RIGHTS). Thread: any,
 * no state.
 */
#ifndef POOL_BASE_ATTACH_H
#define POOL_BASE_ATTACH_H

#include <string.h>
#include <sys/socket.h>

/* control: room for CMSG_SPACE(n * sizeof(int)), aligned as a struct cmsghdr,
 * borrowed until *m is sent. n > 0. */
static inline void pool_attach_fds(struct msghdr *m, void *control,
				   const int *fds, size_t n)
{
	struct cmsghdr *h;

	m->msg_control = control;
	m->msg_controllen = CMSG_SPACE(n * sizeof(int));
	memset(control, 0, m->msg_controllen);
	h = CMSG_FIRSTHDR(m);
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(h), fds, n * sizeof(int));
}

#endif
