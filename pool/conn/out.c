/* The sending half of a connection: frames, and files as their bulk. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pool/base/attach.h"
#include "pool/base/map.h"
#include "pool/conn/conn_priv.h"
#include "pool/conn/unpack.h"

#define IOV_MAX_FRAMES 64
#define COPY_SLICE (128u << 10) /* fits the cache between read and send */
/* File bulk up to here is copied into the frame: the copy costs less than the
 * two system calls of sending it separately. */
#define COPY_MAX (8u << 10)
#define MAP_MIN (256u << 10) /* map a file if this much is left to send */
#define MAP_WINDOW (4u << 20)
#define MAP_ALIGN \
	((uint64_t)2 << 20) /* so that large folios are mapped whole */
/* Counted against queue_max for each frame, besides its bytes. */
#define OUT_OVERHEAD sizeof(struct conn_out)

static bool out_is_done(const struct conn_out *o)
{
	return o->sent == o->len && o->file_left == 0;
}

static void out_unmap(struct conn_out *o)
{
	if (o->map)
		munmap(o->map, o->map_len);
	o->map = NULL;
}

static void out_free(struct conn_out *o)
{
	out_unmap(o);
	if (o->ride_fd >= 0)
		close(o->ride_fd);
	free(o);
}

/* Unlink and free o, then call done: last, because done may send. */
static void out_end(struct pool_conn *c, struct conn_out *o, int err)
{
	void (*done)(void *arg, int err) = o->done;
	void *arg = o->arg;

	pool_list_del(&o->link);
	c->queued -= o->len + OUT_OVERHEAD;
	out_free(o);
	if (done)
		done(arg, err);
}

void conn_queue_clear(struct pool_conn *c, int err)
{
	while (!pool_list_empty(&c->queue))
		out_end(c, pool_list_first(&c->queue, struct conn_out, link),
			err);
}

/*
 * A new frame, not queued yet, with space for `copied` bytes of bulk at its
 * end. Errors as pool_conn_send.
 */
static int out_new(struct pool_conn *c, uint16_t type, uint64_t req,
		   const ProtobufCMessage *msg, uint64_t bulk_len,
		   size_t copied, struct conn_out **ret_out)
{
	size_t payload = msg ? protobuf_c_message_get_packed_size(msg) : 0;
	size_t len = POOL_WIRE_HEADER + payload + copied;
	struct pool_frame f = {
		.version = c->version ? c->version : pool_wire_version,
		.type = type,
		.req = req,
		.bulk_len = bulk_len,
	};
	struct conn_out *o;

	if (!conn_callbacks_on(c))
		return -ENOTCONN;
	if (payload > pool_msg_bound(type)->bytes || bulk_len > POOL_BULK_MAX)
		return -EMSGSIZE;
	if (len + OUT_OVERHEAD > c->queue_max ||
	    c->queued > c->queue_max - len - OUT_OVERHEAD)
		return -ENOBUFS;
	o = malloc(sizeof(*o) + len);
	if (!o)
		return -ENOMEM;
	*o = (struct conn_out){ .len = len, .ride_fd = -1, .file_fd = -1 };
	f.payload_len = (uint32_t)payload;
	pool_frame_encode(&f, o->bytes);
	if (msg)
		protobuf_c_message_pack(msg, o->bytes + POOL_WIRE_HEADER);
	*ret_out = o;
	return 0;
}

static void out_queue(struct pool_conn *c, struct conn_out *o)
{
	pool_list_add_tail(&c->queue, &o->link);
	c->queued += o->len + OUT_OVERHEAD;
}

/* Write now, unless the queue already waits for UV_WRITABLE. */
static void out_kick(struct pool_conn *c)
{
	if (c->state == CONN_OPEN && !c->flushing && !c->write_more)
		conn_flush(c);
}

/* Write frames queued from now on together: answers when all frames of this
 * turn have been read, others in the next loop iteration. Answers do not wait
 * for UV_WRITABLE, which would cost changes of the epoll set and a turn. */
static void flush_soon(struct pool_conn *c)
{
	if (c->state != CONN_OPEN || c->flushing || c->write_more)
		return;
	if (c->receiving) {
		c->flush_due = true;
		return;
	}
	c->write_more = true;
	conn_watch(c);
}

static int queue_msg(struct pool_conn *c, uint16_t type, uint64_t req,
		     const ProtobufCMessage *msg)
{
	struct conn_out *o;
	int err = out_new(c, type, req, msg, 0, 0, &o);

	if (!err)
		out_queue(c, o);
	return err;
}

int pool_conn_send(struct pool_conn *c, uint16_t type, uint64_t req,
		   const ProtobufCMessage *msg)
{
	int err = queue_msg(c, type, req, msg);

	if (!err)
		out_kick(c);
	return err;
}

int pool_conn_send_soon(struct pool_conn *c, uint16_t type, uint64_t req,
			const ProtobufCMessage *msg)
{
	int err = queue_msg(c, type, req, msg);

	if (!err)
		flush_soon(c);
	return err;
}

int pool_conn_send_fd(struct pool_conn *c, uint16_t type, uint64_t req,
		      const ProtobufCMessage *msg, int fd)
{
	struct conn_out *o;
	int err;

	if (!c->is_unix)
		return -ENOTSUP;
	err = out_new(c, type, req, msg, 0, 0, &o);
	if (err)
		return err;
	o->ride_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (o->ride_fd < 0) {
		err = errno == EMFILE ? -ENOMEM : -errno;
		out_free(o);
		return err;
	}
	out_queue(c, o);
	out_kick(c);
	return 0;
}

/* Copy a small bulk into the frame, so that one write sends many frames. Not
 * with fault rules, which apply to frames one by one. False: use the general
 * path, which reports any error. */
static bool copy_small(const struct pool_conn *c, int fd, uint64_t offset,
		       uint64_t len, uint8_t buf[COPY_MAX])
{
	ssize_t n;

	if (c->faults || len > COPY_MAX)
		return false;
	do
		n = pread(fd, buf, len, (off_t)offset);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)len;
}

int pool_conn_send_file(struct pool_conn *c, uint16_t type, uint64_t req,
			const ProtobufCMessage *msg, int fd, uint64_t offset,
			uint64_t len, void (*done)(void *arg, int err),
			void *arg)
{
	uint8_t small[COPY_MAX];
	struct conn_out *o;
	size_t copied;
	int err;

	if (offset > INT64_MAX || len > INT64_MAX - offset)
		return -EMSGSIZE;
	copied = copy_small(c, fd, offset, len, small) ? (size_t)len : 0;
	err = out_new(c, type, req, msg, len, copied, &o);
	if (err)
		return err;
	memcpy(o->bytes + o->len - copied, small, copied);
	o->file_fd = fd;
	o->file_offset = offset;
	o->file_left = len - copied;
	o->done = done;
	o->arg = arg;
	out_queue(c, o);
	flush_soon(c); /* not at once: done must not run inside this call */
	return 0;
}

/* Collect bytes of queued frames for one write, up to and including a frame
 * with file bulk. A frame with a descriptor is written alone. */
static int gather(struct pool_conn *c, struct iovec iov[IOV_MAX_FRAMES],
		  int *ret_ride_fd, bool *ret_more)
{
	struct pool_list *it, *tmp;
	size_t total = 0;
	int n = 0;

	*ret_ride_fd = -1;
	*ret_more = false;
	pool_list_each(it, tmp, &c->queue) {
		struct conn_out *o = pool_list_entry(it, struct conn_out, link);
		size_t left = o->len - o->sent;

		if (n == IOV_MAX_FRAMES || total >= POOL_CONN_SLICE)
			break;
		if (o->ride_fd >= 0) {
			/* The receiver relies on a descriptor's write having
			 * bytes of its frame only (rx_take_fd). */
			if (n > 0)
				break;
			*ret_ride_fd = o->ride_fd;
		}
		if (left > 0) {
			iov[n].iov_base = o->bytes + o->sent;
			iov[n].iov_len = left;
			total += left;
			n++;
		}
		if (o->file_left > 0) {
			*ret_more = true;
			break;
		}
		if (*ret_ride_fd >= 0 || c->faults)
			break; /* fault rules apply to frames one by one */
	}
	return n;
}

static ssize_t write_iov(struct pool_conn *c, struct iovec *iov, int n,
			 int ride_fd, bool more)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = (size_t)n };
	int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0);
	ssize_t r;

	if (c->stream)
		return conn_secure_write(c, iov, n);
	if (ride_fd >= 0)
		pool_attach_fds(&m, control.buf, &ride_fd, 1);
	do
		r = sendmsg(c->fd, &m, flags);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r;
}

/* Account for n bytes written; remove complete frames from the queue. */
static void written(struct pool_conn *c, size_t n)
{
	while (n > 0) {
		struct conn_out *o =
			pool_list_first(&c->queue, struct conn_out, link);
		size_t part = o->len - o->sent;

		if (part > n)
			part = n;
		o->sent += part;
		n -= part;
		if (o->ride_fd >= 0) {
			close(o->ride_fd);
			o->ride_fd = -1;
		}
		if (out_is_done(o))
			out_end(c, o, 0);
		else
			assert(n == 0);
	}
}

/* Reading a hole through a mapping would allocate pages for it. */
static bool has_hole(const struct conn_out *o)
{
	off_t hole = lseek(o->file_fd, (off_t)o->file_offset, SEEK_HOLE);

	return hole < 0 ||
	       (uint64_t)hole < o->file_offset + o->file_left;
}

/* After it, o->map covers file_offset, or o->unmappable is set. */
static void out_map(struct conn_out *o)
{
	uint64_t begin = o->file_offset / MAP_ALIGN * MAP_ALIGN;
	uint64_t len = o->file_offset - begin + o->file_left;
	void *at;

	if (o->map && o->file_offset < o->map_offset + o->map_len)
		return;
	if (!o->map) /* the first time */
		o->unmappable = o->file_left < MAP_MIN || has_hole(o);
	out_unmap(o);
	if (o->unmappable)
		return;
	if (len > MAP_WINDOW)
		len = MAP_WINDOW;
	at = pool_map_object(len, PROT_READ, MAP_POPULATE, o->file_fd,
			     (off_t)begin);
	if (at == MAP_FAILED) {
		o->unmappable = true;
		return;
	}
	o->map = at;
	o->map_offset = begin;
	o->map_len = len;
}

/* As send(2). */
static ssize_t send_bytes(struct pool_conn *c, uint8_t *from, size_t len)
{
	struct iovec iov = { .iov_base = from, .iov_len = len };
	ssize_t r;

	if (!c->stream)
		return send(c->fd, from, len, MSG_NOSIGNAL | MSG_DONTWAIT);
	r = conn_secure_write(c, &iov, 1);
	if (r >= 0)
		return r;
	errno = (int)-r;
	return -1;
}

/* As sendfile(2); EFAULT: the file cannot be mapped. */
static ssize_t send_mapped(struct pool_conn *c, struct conn_out *o,
			   size_t want)
{
	uint64_t at, left;

	if (!o->unmappable)
		out_map(o);
	if (o->unmappable) {
		errno = EFAULT;
		return -1;
	}
	at = o->file_offset - o->map_offset;
	left = o->map_len - at;
	return send_bytes(c, o->map + at, want < left ? want : left);
}

/*
 * With TLS, unless the kernel encrypts, and to a peer on this host, send a
 * copy. After sendfile the receiver copies the file's pages from memory. A copy
 * made here leaves the bytes in the CPU's cache, and both sides copy at the
 * same time. The source is a mapping of the file, or a buffer if it cannot be
 * mapped.
 *
 * Over loopback, two busy CPUs, in ms, for 4 MiB and 32 x 1 MiB: a plain write
 * of memory 1.2 and 11.3; a mapping that is kept 1.2 and 9.4; a buffer 1.5 and
 * 12.6; sendfile 1.5 to 2.2 and 12.
 *
 * *r as sendfile(2). False: no memory for the buffer.
 */
static bool send_copied(struct pool_conn *c, struct conn_out *o,
			size_t want, ssize_t *r)
{
	uint8_t *buf;
	ssize_t n;

	*r = send_mapped(c, o, want);
	if (*r >= 0 || errno != EFAULT)
		return true;
	o->unmappable = true;
	buf = conn_staging_out();
	if (!buf)
		return false;
	n = pread(o->file_fd, buf, want < COPY_SLICE ? want : COPY_SLICE,
		  (off_t)o->file_offset);
	*r = n > 0 ? send_bytes(c, buf, (size_t)n) : n;
	return true;
}

/* As sendfile(2). */
static ssize_t send_file(struct pool_conn *c, struct conn_out *o, size_t want)
{
	off_t off = (off_t)o->file_offset;
	bool in_kernel = c->stream && pool_tls_is_in_kernel(c->stream);
	ssize_t r;

	if ((c->stream ? !in_kernel : c->same_host) &&
	    send_copied(c, o, want, &r))
		return r;
	if (in_kernel)
		return pool_tls_send_file(c->stream, o->file_fd, &off, want);
	if (!c->stream)
		return sendfile(c->fd, o->file_fd, &off, want);
	errno = ENOMEM;
	return -1;
}

static ssize_t write_file(struct pool_conn *c, struct conn_out *o)
{
	size_t want = o->file_left < POOL_CONN_SLICE ? (size_t)o->file_left :
						       POOL_CONN_SLICE;
	ssize_t r = conn_faults_bulk(c, o, &want);

	if (r < 0)
		return r;
	if (r > 0 || want == 0) {
		if (r > 0)
			o->file_left = 0;
		if (out_is_done(o))
			out_end(c, o, 0);
		return 1;
	}
	do
		r = send_file(c, o, want);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return -errno;
	if (r == 0)
		return -EIO; /* the file is shorter than the frame says */
	o->file_offset += (uint64_t)r;
	o->file_left -= (uint64_t)r;
	if (out_is_done(o))
		out_end(c, o, 0);
	return r;
}

static bool is_unsent(const struct pool_conn *c)
{
	return c->stream && pool_tls_unsent(c->stream);
}

/* One system call. Bytes written, or -errno. */
static ssize_t flush_step(struct pool_conn *c)
{
	struct conn_out *o;
	struct iovec iov[IOV_MAX_FRAMES];
	int ride_fd, n;
	bool more;
	ssize_t r;

	if (is_unsent(c)) {
		r = pool_tls_flush(c->stream);
		if (r < 0 || pool_list_empty(&c->queue))
			return r;
	}
	o = pool_list_first(&c->queue, struct conn_out, link);
	r = c->faults ? conn_faults_out(c, o) : 0;
	if (r < 0)
		return r;
	if (r > 0) {
		out_end(c, o, 0);
		return r;
	}
	if (o->sent == o->len)
		return write_file(c, o);
	n = gather(c, iov, &ride_fd, &more);
	r = write_iov(c, iov, n, ride_fd, more);
	if (r > 0)
		written(c, (size_t)r);
	return r;
}

static bool flush_going(const struct pool_conn *c)
{
	return (c->state == CONN_OPEN || c->state == CONN_DRAINING) &&
	       (!pool_list_empty(&c->queue) || is_unsent(c));
}

void conn_flush(struct pool_conn *c)
{
	size_t done = 0;
	ssize_t r = 0;

	c->flush_due = false;
	if (c->broken)
		return;
	c->flushing = true;
	while (flush_going(c) && done < POOL_CONN_SLICE) {
		r = flush_step(c);
		if (r < 0)
			break;
		done += (size_t)r;
	}
	c->flushing = false;
	if (done > 0 && c->unread)
		conn_taken(c);
	if (c->state == CONN_CLOSING)
		return;
	if (r == -EPIPE || r == -ECONNRESET) {
		conn_break(c, (int)r);
		return;
	}
	if (r < 0 && r != -EAGAIN) {
		conn_fail(c, (int)r);
		return;
	}
	c->write_more = flush_going(c) && !conn_faults_out_delayed(c);
	if (c->state == CONN_DRAINING && !flush_going(c) && !c->shut) {
		/* Do not close yet: with unread input that would reset the
		 * connection and lose what was just sent. It ends when the
		 * peer closes. */
		shutdown(c->fd, SHUT_WR);
		c->shut = true;
	}
	conn_watch(c);
}
