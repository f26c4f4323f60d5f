#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pool/conn_priv.h"

#define IOV_MAX_FRAMES 64
/* Room in the queue that a frame takes besides its bytes. */
#define OUT_OVERHEAD sizeof(struct conn_out)
/*
 * How much to read when the next thing is a header that bulk probably follows:
 * enough for the header and payload; what is read of the bulk is copied once
 * more than what is received straight into place.
 */
#define PEEK_BEFORE_BULK 4096u

/* ---- sending ---- */

static bool out_is_done(const struct conn_out *o)
{
	return o->sent == o->len && o->file_left == 0;
}

static void out_free(struct conn_out *o)
{
	if (o->ride_fd >= 0)
		close(o->ride_fd);
	free(o);
}

/* Unlinks, frees, then tells the owner of the file: last, as it may send. */
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
 * A new frame, not yet queued. Errors as pool_conn_send.
 */
static int out_new(struct pool_conn *c, uint16_t type, uint64_t req,
		   const ProtobufCMessage *msg, uint64_t bulk_len,
		   struct conn_out **ret_out)
{
	size_t payload = msg ? protobuf_c_message_get_packed_size(msg) : 0;
	size_t len = POOL_WIRE_HEADER + payload;
	struct pool_frame f = {
		.version = POOL_WIRE_VERSION,
		.type = type,
		.req = req,
		.bulk_len = bulk_len,
	};
	struct conn_out *o;

	if (!conn_callbacks_on(c))
		return -ENOTCONN;
	if (payload > POOL_PAYLOAD_MAX || bulk_len > POOL_BULK_MAX)
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

/* Write at once if nothing is ahead; else the poll handle sees to it. */
static void out_kick(struct pool_conn *c)
{
	if (c->state == CONN_OPEN && !c->flushing && !c->write_more)
		conn_flush(c);
}

int pool_conn_send(struct pool_conn *c, uint16_t type, uint64_t req,
		   const ProtobufCMessage *msg)
{
	struct conn_out *o;
	int err = out_new(c, type, req, msg, 0, &o);

	if (err)
		return err;
	out_queue(c, o);
	out_kick(c);
	return 0;
}

int pool_conn_send_fd(struct pool_conn *c, uint16_t type, uint64_t req,
		      const ProtobufCMessage *msg, int fd)
{
	struct conn_out *o;
	int err;

	if (!c->is_unix)
		return -ENOTSUP;
	err = out_new(c, type, req, msg, 0, &o);
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

int pool_conn_send_file(struct pool_conn *c, uint16_t type, uint64_t req,
			const ProtobufCMessage *msg, int fd, uint64_t offset,
			uint64_t len, void (*done)(void *arg, int err),
			void *arg)
{
	struct conn_out *o;
	int err;

	if (offset > INT64_MAX || len > INT64_MAX - offset)
		return -EMSGSIZE;
	err = out_new(c, type, req, msg, len, &o);
	if (err)
		return err;
	o->file_fd = fd;
	o->file_offset = offset;
	o->file_left = len;
	o->done = done;
	o->arg = arg;
	out_queue(c, o);
	/* Not at once: done must not run inside this call. */
	if (c->state == CONN_OPEN && !c->flushing) {
		c->write_more = true;
		conn_want(c);
	}
	return 0;
}

/* Collects the bytes of queued frames up to the first that must end a write:
 * one with a file behind it, or (exclusive) one that a descriptor rides on. */
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
			/* The receiver relies on it: the bytes that carry a
			 * descriptor belong to its frame alone. */
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
			break; /* each is judged by itself */
	}
	return n;
}

static ssize_t write_iov(struct pool_conn *c, struct iovec *iov, int n,
			 int ride_fd, bool more)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = (size_t)n };
	int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0);
	ssize_t r;

	if (ride_fd >= 0) {
		struct cmsghdr *h;

		m.msg_control = control.buf;
		m.msg_controllen = sizeof(control.buf);
		h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(h), &ride_fd, sizeof(int));
	}
	do
		r = sendmsg(c->fd, &m, flags);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r;
}

/* Accounts n bytes written and ends the frames that are complete. */
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

static ssize_t write_file(struct pool_conn *c, struct conn_out *o)
{
	size_t want = o->file_left < POOL_CONN_SLICE ? (size_t)o->file_left :
						       POOL_CONN_SLICE;
	ssize_t r = conn_faults_bulk(c, o, &want);
	off_t off = (off_t)o->file_offset;

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
		r = sendfile(c->fd, o->file_fd, &off, want);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return -errno;
	if (r == 0)
		return -EIO; /* shorter than promised */
	o->file_offset += (uint64_t)r;
	o->file_left -= (uint64_t)r;
	if (out_is_done(o))
		out_end(c, o, 0);
	return r;
}

/* One system call's worth. Bytes written, or -errno. */
static ssize_t flush_step(struct pool_conn *c)
{
	struct conn_out *o = pool_list_first(&c->queue, struct conn_out, link);
	struct iovec iov[IOV_MAX_FRAMES];
	int ride_fd, n;
	bool more;
	ssize_t r = c->faults ? conn_faults_out(c, o) : 0;

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
	       !pool_list_empty(&c->queue);
}

void conn_flush(struct pool_conn *c)
{
	size_t done = 0;
	ssize_t r = 0;

	c->flushing = true;
	while (flush_going(c) && done < POOL_CONN_SLICE) {
		r = flush_step(c);
		if (r < 0)
			break;
		done += (size_t)r;
	}
	c->flushing = false;
	if (c->state == CONN_CLOSING)
		return;
	if (r < 0 && r != -EAGAIN) {
		conn_fail(c, (int)r);
		return;
	}
	c->write_more = flush_going(c) && !conn_faults_out_held(c);
	if (c->state == CONN_DRAINING && !flush_going(c) && !c->shut) {
		/* Not closed yet: unread input would make it a reset, which
		 * takes what was just sent with it. The peer's end ends it. */
		shutdown(c->fd, SHUT_WR);
		c->shut = true;
	}
	conn_want(c);
}

/* ---- receiving ---- */

static pthread_once_t staging_once = PTHREAD_ONCE_INIT;
static pthread_key_t staging_key;
static __thread uint8_t *staging_buf;

static void staging_key_make(void)
{
	if (pthread_key_create(&staging_key, free))
		abort(); /* at the first connection: nothing works without */
}

/* POOL_CONN_SLICE bytes shared by all connections of a thread, in use only
 * within one conn_receive. NULL on ENOMEM. */
static uint8_t *staging(void)
{
	if (!staging_buf) {
		pthread_once(&staging_once, staging_key_make);
		staging_buf = aligned_alloc(4096, POOL_CONN_SLICE);
		if (staging_buf)
			pthread_setspecific(staging_key, staging_buf);
	}
	return staging_buf;
}

void conn_rx_clear(struct pool_conn *c)
{
	free(c->rx.payload);
	c->rx.payload = NULL;
	if (c->rx.fd >= 0)
		close(c->rx.fd);
	c->rx.fd = -1;
}

/* Keeps the descriptors of one recvmsg: one at most, else all are closed. */
static int take_fds(struct pool_conn *c, struct msghdr *m)
{
	int err = m->msg_flags & MSG_CTRUNC ? -EPROTO : 0;

	for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
		size_t n;

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(h) + i * sizeof(int),
			       sizeof(int));
			if (c->rx.fd < 0) {
				c->rx.fd = fd;
			} else {
				close(fd);
				err = -EPROTO;
			}
		}
	}
	return err;
}

static ssize_t read_unix(struct pool_conn *c, void *buf, size_t cap)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { .iov_base = buf, .iov_len = cap };
	struct msghdr m = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf),
	};
	bool had_fd = c->rx.fd >= 0;
	ssize_t r;
	int err;

	do
		r = recvmsg(c->fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return -errno;
	err = take_fds(c, &m);
	if (err)
		return err;
	if (!had_fd)
		c->rx.fd_end = c->rx.end + (uint64_t)r;
	return r;
}

/* Bytes read (0: the peer's end), or -errno. */
static ssize_t read_some(struct pool_conn *c, void *buf, size_t cap)
{
	ssize_t r;

	if (c->is_unix)
		return read_unix(c, buf, cap);
	do
		r = recv(c->fd, buf, cap, MSG_DONTWAIT);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r;
}

/* Room for the next bytes of bulk, if the receiver has some: *bulk, room. */
static void rx_room(struct pool_conn *c)
{
	struct conn_rx *rx = &c->rx;
	uint64_t left = rx->frame.bulk_len - rx->bulk_have;
	size_t len = 0;

	if (rx->room > 0 || !c->ops->on_bulk_room)
		return;
	rx->bulk = c->ops->on_bulk_room(c, &rx->frame, rx->bulk_have, &len);
	rx->room = rx->bulk ? (len < left ? len : left) : 0;
}

void pool_conn_bulk_drop(struct pool_conn *c)
{
	c->rx.bulk = NULL;
	c->rx.room = 0;
}

/*
 * Where the next bytes go: straight into a payload or bulk that has its own
 * memory, else into staging.
 */
static uint8_t *rx_target(struct pool_conn *c, size_t budget, size_t *ret_cap,
			  bool *ret_direct)
{
	struct conn_rx *rx = &c->rx;
	uint64_t left = budget;
	uint8_t *to;

	*ret_direct = true;
	if (rx->state == RX_BULK)
		rx_room(c);
	if (rx->state == RX_PAYLOAD && rx->payload) {
		left = rx->frame.payload_len - rx->have;
		to = rx->payload + rx->have;
	} else if (rx->state == RX_BULK && rx->room > 0) {
		left = rx->room;
		to = rx->bulk;
	} else {
		*ret_direct = false;
		to = staging();
		if (rx->state == RX_BULK)
			left = rx->frame.bulk_len - rx->bulk_have;
		else if (rx->after_bulk)
			left = PEEK_BEFORE_BULK;
	}
	*ret_cap = left < budget ? (size_t)left : budget;
	return to;
}

/* The descriptor that rode on the frame ending here, or -1. The sender writes
 * such a frame by itself and the kernel ends a read at it, so the frame that
 * reaches or passes the end of that read is the one. */
static int rx_take_fd(struct conn_rx *rx)
{
	int fd = -1;

	if (rx->fd >= 0 && rx->pos >= rx->fd_end) {
		fd = rx->fd;
		rx->fd = -1;
	}
	return fd;
}

static void rx_next(struct conn_rx *rx)
{
	rx->after_bulk = rx->frame.bulk_len > 0;
	rx->state = RX_HEADER;
	rx->have = 0;
}

/* Header and payload are complete. */
static void rx_deliver(struct pool_conn *c, const uint8_t *payload)
{
	struct conn_rx *rx = &c->rx;
	struct pool_frame frame = rx->frame;
	uint8_t *own = rx->payload; /* until the callee has returned */

	rx->payload = NULL;
	if (frame.bulk_len > 0) {
		rx->state = RX_BULK;
		rx->bulk_have = 0;
		rx->bulk = NULL;
		if (c->ops->on_bulk_begin)
			rx->bulk = c->ops->on_bulk_begin(c, &rx->frame,
							 payload);
		rx->room = rx->bulk ? frame.bulk_len : 0;
	} else {
		rx_next(rx);
		c->ops->on_frame(c, &frame, payload, rx_take_fd(rx));
	}
	free(own);
}

/* len bytes of bulk are at data, in their room if there is any. */
static void rx_bulk(struct pool_conn *c, uint8_t *data, size_t len)
{
	struct conn_rx *rx = &c->rx;
	uint64_t at = rx->bulk_have;
	bool last;

	conn_faults_in_bulk(c, data);

	rx->bulk_have += len;
	if (rx->room > 0) {
		rx->bulk += len;
		rx->room -= len;
	}
	last = rx->bulk_have == rx->frame.bulk_len;
	if (c->ops->on_bulk_data && conn_callbacks_on(c))
		c->ops->on_bulk_data(c, &rx->frame, data, len, at);
	if (!last || !conn_callbacks_on(c))
		return;
	rx_next(rx);
	rx->bulk = NULL;
	rx->room = 0;
	if (c->ops->on_bulk_end)
		c->ops->on_bulk_end(c, &rx->frame);
}

/* Header bytes; 0 or why it is not one of ours. */
static int rx_header(struct pool_conn *c, const uint8_t *data, size_t n)
{
	struct conn_rx *rx = &c->rx;
	int err;

	memcpy(rx->header + rx->have, data, n);
	rx->have += n;
	rx->pos += n;
	if (rx->have < POOL_WIRE_HEADER)
		return 0;
	err = pool_frame_decode(rx->header, &rx->frame);
	if (!err && c->faults)
		err = conn_faults_in(c);
	if (err)
		return err;
	rx->state = RX_PAYLOAD;
	rx->have = 0;
	if (rx->frame.payload_len == 0 && !conn_faults_in_lost(c))
		rx_deliver(c, rx->header);
	return 0;
}

/* Payload bytes in staging: used there if it is whole, else gathered. */
static int rx_payload(struct pool_conn *c, const uint8_t *data, size_t n)
{
	struct conn_rx *rx = &c->rx;
	size_t whole = rx->frame.payload_len;

	rx->pos += n;
	if (n == whole) {
		rx_deliver(c, data);
		return 0;
	}
	if (!rx->payload) {
		rx->payload = malloc(whole);
		if (!rx->payload)
			return -ENOMEM;
	}
	memcpy(rx->payload + rx->have, data, n);
	rx->have += n;
	if (rx->have == whole)
		rx_deliver(c, rx->payload);
	return 0;
}

static size_t rx_missing(const struct conn_rx *rx, size_t max)
{
	uint64_t left = 0;

	switch (rx->state) {
	case RX_HEADER:
		left = POOL_WIRE_HEADER - rx->have;
		break;
	case RX_PAYLOAD:
		left = rx->frame.payload_len - rx->have;
		break;
	case RX_BULK:
		left = rx->frame.bulk_len - rx->bulk_have;
		break;
	}
	return left < max ? (size_t)left : max;
}

/* Bulk bytes in staging: to their room if there is any. Returns how many. */
static size_t rx_bulk_copy(struct pool_conn *c, uint8_t *data, size_t n)
{
	struct conn_rx *rx = &c->rx;

	rx_room(c);
	if (rx->room > 0) {
		if (n > rx->room)
			n = (size_t)rx->room;
		data = memcpy(rx->bulk, data, n);
	}
	rx->pos += n;
	rx_bulk(c, data, n);
	return n;
}

/* Takes len received bytes apart. 0 or -errno for a broken stream. */
static int rx_feed(struct pool_conn *c, uint8_t *data, size_t len)
{
	struct conn_rx *rx = &c->rx;
	int err = 0;

	while (len > 0 && !err && conn_callbacks_on(c) &&
	       !conn_faults_in_lost(c)) {
		size_t n = rx_missing(rx, len);

		switch (rx->state) {
		case RX_HEADER:
			err = rx_header(c, data, n);
			break;
		case RX_PAYLOAD:
			err = rx_payload(c, data, n);
			break;
		case RX_BULK:
			n = rx_bulk_copy(c, data, n);
			break;
		}
		data += n;
		len -= n;
	}
	return err;
}

/* Bytes that already lie where they belong. */
static void rx_direct(struct pool_conn *c, uint8_t *at, size_t n)
{
	struct conn_rx *rx = &c->rx;

	rx->pos += n;
	if (rx->state == RX_BULK) {
		rx_bulk(c, at, n);
		return;
	}
	rx->have += n;
	if (rx->have == rx->frame.payload_len)
		rx_deliver(c, rx->payload);
}

/* A descriptor belongs to a frame without bulk that is still coming. */
static bool rx_fd_is_stray(const struct conn_rx *rx)
{
	return rx->fd >= 0 && (rx->state == RX_BULK ||
			       (rx->state == RX_HEADER && rx->have == 0));
}

/* One read's worth. Bytes received, or -errno. *ret_dry: no more for now. */
static ssize_t receive_step(struct pool_conn *c, size_t budget, bool *ret_dry)
{
	bool direct;
	size_t cap;
	uint8_t *to = rx_target(c, budget, &cap, &direct);
	ssize_t r;
	int err = 0;

	if (!to)
		return -ENOMEM;
	r = read_some(c, to, cap);
	if (r == 0)
		return -ECONNRESET;
	if (r < 0)
		return r;
	*ret_dry = (size_t)r < cap;
	if (conn_faults_in_lost(c))
		return r;
	c->last_rx_ms = uv_now(c->loop);
	if (c->state == CONN_DRAINING) { /* nobody listens */
		conn_rx_clear(c);
		return r;
	}
	c->rx.end += (uint64_t)r;
	if (direct)
		rx_direct(c, to, (size_t)r);
	else
		err = rx_feed(c, to, (size_t)r);
	if (!err && conn_callbacks_on(c) && rx_fd_is_stray(&c->rx))
		err = -EPROTO;
	return err ? err : r;
}

void conn_receive(struct pool_conn *c)
{
	size_t done = 0;
	bool dry = false;
	ssize_t r;

	while (!dry && done < POOL_CONN_SLICE && !conn_faults_in_held(c) &&
	       (c->state == CONN_OPEN || c->state == CONN_DRAINING)) {
		r = receive_step(c, POOL_CONN_SLICE - done, &dry);
		if (r == -EAGAIN)
			return;
		if (r < 0) {
			if (c->state != CONN_CLOSING)
				conn_fail(c, (int)r);
			return;
		}
		done += (size_t)r;
	}
}
