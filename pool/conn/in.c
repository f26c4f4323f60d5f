/* The receiving half of a connection: headers, payloads, bulk. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pool/base/busy.h"
#include "pool/base/guard.h"
#include "pool/base/log.h"
#include "pool/conn/conn_priv.h"
#include "pool/conn/kvpool.pb-c.h"
#include "pool/conn/unpack.h"

/*
 * How much to read at a header that bulk probably follows: enough for header
 * and payload. Bulk bytes that this read catches are in staging and have to be
 * copied; the rest is received in place.
 */
#define PEEK_BEFORE_BULK 4096u
#define REFUSED_MS 1000 /* input is discarded this long after a refusal */

void conn_rx_clear(struct pool_conn *c)
{
	free(c->rx.payload);
	c->rx.payload = NULL;
	if (c->rx.fd >= 0)
		close(c->rx.fd);
	c->rx.fd = -1;
}

/* Keep the descriptor that came with one recvmsg. More than one in flight is
 * -EPROTO; the excess is closed. */
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

/* Bytes read (0: the peer closed), or -errno. */
static ssize_t read_some(struct pool_conn *c, void *buf, size_t cap)
{
	ssize_t r;

	if (c->is_unix)
		return read_unix(c, buf, cap);
	if (c->stream)
		return conn_secure_read(c, buf, cap);
	do
		r = recv(c->fd, buf, cap, MSG_DONTWAIT);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r;
}

/* Ask the owner for memory for the next bytes of bulk: sets bulk and room. */
static void rx_room(struct pool_conn *c)
{
	struct conn_rx *rx = &c->rx;
	uint64_t left = rx->frame.bulk_len - rx->bulk_have;
	size_t len = 0;

	if (rx->room > 0 || rx->skip || !c->ops->on_bulk_room)
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
 * memory, else into staging. (OpenSSL must not be given memory of the
 * application, see guard.h: such bulk goes through staging.)
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
	} else if (rx->state == RX_BULK && rx->room > 0 &&
		   !(c->stream && c->foreign_memory)) {
		left = rx->room;
		to = rx->bulk;
	} else {
		*ret_direct = false;
		to = conn_staging();
		if (rx->state == RX_BULK)
			left = rx->frame.bulk_len - rx->bulk_have;
		else if (rx->after_bulk)
			left = PEEK_BEFORE_BULK;
	}
	*ret_cap = left < budget ? (size_t)left : budget;
	return to;
}

/* The descriptor that belongs to the frame that ends here, or -1. The sender
 * writes such a frame alone, and the kernel ends a read at a descriptor, so it
 * belongs to the first frame that reaches the end of that read. */
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

/* Skip a message of a type that only a newer version knows. */
static void pass_over(const struct pool_conn *c, const struct pool_frame *f,
		      int fd)
{
	if (fd >= 0)
		close(fd);
	pool_warn_limited("%s: a message of type %u of a newer version (%u; "
			  "this is %u): ignored", c->name, f->type,
			  f->version, pool_wire_version);
}

/* Header and payload are complete. */
static void rx_deliver(struct pool_conn *c, const uint8_t *payload)
{
	struct conn_rx *rx = &c->rx;
	struct pool_frame frame = rx->frame;
	uint8_t *own = rx->payload; /* freed when the callee has returned */

	rx->payload = NULL;
	if (c->share)
		pool_share_spend(c->share,
				 POOL_WIRE_HEADER + frame.payload_len);
	if (frame.bulk_len > 0) {
		rx->state = RX_BULK;
		rx->bulk_have = 0;
		rx->bulk = NULL;
		rx->skip = !pool_msg_known(frame.type);
		if (rx->skip)
			pass_over(c, &frame, rx_take_fd(rx));
		else if (c->ops->on_bulk_begin)
			rx->bulk = c->ops->on_bulk_begin(c, &rx->frame,
							 payload);
		rx->room = rx->bulk ? frame.bulk_len : 0;
	} else if (!pool_msg_known(frame.type)) {
		rx_next(rx);
		pass_over(c, &frame, rx_take_fd(rx));
	} else {
		rx_next(rx);
		c->ops->on_frame(c, &frame, payload, rx_take_fd(rx));
	}
	free(own);
}

/* Account for len bytes of bulk at data: in the owner's memory, or staging. */
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
	if (c->ops->on_bulk_data && !rx->skip && conn_callbacks_on(c))
		c->ops->on_bulk_data(c, &rx->frame, data, len, at);
	if (!last || !conn_callbacks_on(c))
		return;
	rx_next(rx);
	rx->bulk = NULL;
	rx->room = 0;
	if (c->ops->on_bulk_end && !rx->skip)
		c->ops->on_bulk_end(c, &rx->frame);
}

/*
 * Send an ERROR, whose header has our version; the caller then ends the
 * connection. The peer's first frame has been read, so closing does not reset
 * the connection and the ERROR arrives.
 */
static void refuse_version(struct pool_conn *c, uint16_t version)
{
	Kvpool__Error msg = KVPOOL__ERROR__INIT;
	char text[POOL_WIRE_REFUSAL];

	pool_wire_refusal(version, text);
	pool_warn_limited("%s: refused: %s", c->name, text);
	msg.status = -EPROTONOSUPPORT;
	msg.text = text;
	(void)pool_conn_send(c, POOL_MSG_ERROR, 0, &msg.base);
}

/* Refuse a frame by its header: send an ERROR, then drain. The payload and all
 * later input are read and discarded: closing with unread input would reset the
 * connection and lose the ERROR. */
static void refuse(struct pool_conn *c, int err, const char *text)
{
	Kvpool__Error msg = KVPOOL__ERROR__INIT;

	pool_warn_limited("%s: refused: %s", c->name, text);
	if (c->refused)
		pool_count(c->refused);
	msg.status = err;
	msg.text = (char *)(uintptr_t)text;
	(void)pool_conn_send(c, POOL_MSG_ERROR, 0, &msg.base);
	if (c->state != CONN_OPEN)
		return;
	c->refusal = err;
	pool_conn_drain_close(c, REFUSED_MS);
}

static void refuse_size(struct pool_conn *c)
{
	const struct pool_frame *f = &c->rx.frame;
	uint32_t max = pool_msg_bound(f->type)->bytes;
	char text[128];

	if (f->payload_len > max)
		snprintf(text, sizeof(text), "%s has a payload of %u bytes: at "
			 "most %u are accepted", pool_msg_name(f->type),
			 f->payload_len, max);
	else
		snprintf(text, sizeof(text), "%s has %llu bytes of bulk: at "
			 "most %llu are accepted", pool_msg_name(f->type),
			 (unsigned long long)f->bulk_len, POOL_BULK_MAX);
	refuse(c, -EMSGSIZE, text);
}

/* May a peer of this role send the current frame? If not, it is refused. */
static bool rx_may_come(struct pool_conn *c)
{
	const struct pool_frame *f = &c->rx.frame;
	const struct pool_tls_id *peer = pool_conn_peer_id(c);
	char text[128];

	if (!peer ||
	    pool_msg_bound(f->type)->from & POOL_ROLE_BIT(peer->role))
		return true;
	snprintf(text, sizeof(text), "the role %s may not send %s",
		 pool_role_name(peer->role), pool_msg_name(f->type));
	refuse(c, -EACCES, text);
	return false;
}

/* While opts.first is due: is this frame acceptable? If not, it is refused. */
static bool rx_first(struct pool_conn *c)
{
	const struct pool_frame *f = &c->rx.frame;
	char text[128];

	if (f->type == c->first && !f->bulk_len) {
		c->first = 0;
		return true;
	}
	if ((f->type == POOL_MSG_ERROR || !pool_msg_known(f->type)) &&
	    f->payload_len <= POOL_CONN_FIRST_MAX && !f->bulk_len)
		return true;
	snprintf(text, sizeof(text), "%s must come first, not %s (%u bytes, "
		 "%llu of bulk)", pool_msg_name(c->first),
		 pool_msg_name(f->type), f->payload_len,
		 (unsigned long long)f->bulk_len);
	refuse(c, -EPROTO, text);
	return false;
}

/* Use the lower of both versions; each side's first frame carries its own. */
static void agree_version(struct pool_conn *c, uint16_t version)
{
	c->version = version < pool_wire_version ? version : pool_wire_version;
}

/* Takes n header bytes. 0, or -errno to end the connection. */
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
	if (err == -EPROTONOSUPPORT && !c->version)
		refuse_version(c, rx->frame.version);
	if (!err || err == -EMSGSIZE)
		agree_version(c, rx->frame.version);
	if (err == -EMSGSIZE) {
		refuse_size(c);
		return 0;
	}
	if (!err && (!rx_may_come(c) || (c->first && !rx_first(c))))
		return 0;
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

/* Takes n payload bytes in staging. A whole payload is delivered from there; a
 * partial one is collected in rx->payload. */
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

/* Copy up to *n bulk bytes from staging to the owner's memory, if it gave any.
 * That may be memory of the application (guard.h). 0 and *n, or -errno. */
static int rx_bulk_copy(struct pool_conn *c, uint8_t *data, size_t *n)
{
	struct conn_rx *rx = &c->rx;
	int err;

	rx_room(c);
	if (rx->room > 0) {
		if (*n > rx->room)
			*n = (size_t)rx->room;
		err = pool_guard_copy(rx->bulk, data, *n);
		if (err)
			return err;
		data = rx->bulk;
	}
	rx->pos += *n;
	rx_bulk(c, data, *n);
	return 0;
}

/* Parse len received bytes. 0, or -errno to end the connection. */
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
			err = rx_bulk_copy(c, data, &n);
			break;
		}
		data += n;
		len -= n;
	}
	return err;
}

/* n bytes were received in place: no copy. */
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

/* A received descriptor must belong to a frame without bulk that is not
 * complete yet. */
static bool rx_fd_is_stray(const struct conn_rx *rx)
{
	return rx->fd >= 0 && (rx->state == RX_BULK ||
			       (rx->state == RX_HEADER && rx->have == 0));
}

/* One read. Bytes received, or -errno. *ret_dry: the socket is empty. */
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
	*ret_dry = (size_t)r < cap &&
		   !(c->stream && pool_tls_is_broken(c->stream));
	if (conn_faults_in_lost(c))
		return r;
	conn_received(c);
	if (c->share)
		pool_share_spend(c->share,
				 (size_t)r / POOL_CONN_SHARE_RECEIVED + 1);
	if (c->state == CONN_DRAINING) { /* discard input */
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

void conn_wake_at(struct pool_conn *c, int bytes)
{
	if (c->is_unix || c->stream ||
	    bytes == (c->wake_at ? c->wake_at : 1))
		return;
	if (setsockopt(c->fd, SOL_SOCKET, SO_RCVLOWAT, &bytes,
		       sizeof(bytes)) == 0)
		c->wake_at = bytes;
}

/*
 * In the middle of bulk, wake the loop only for a whole slice, or for the rest.
 * Otherwise the receiver would wake for every few segments, and over loopback
 * interrupt the sender's sendfile: 4 MiB took 1.4 to 2.5 times as long (medians
 * of interleaved rounds). A full socket buffer wakes the loop in any case.
 */
static void receive_later(struct pool_conn *c)
{
	struct conn_rx *rx = &c->rx;
	uint64_t left = 1;

	if (c->state != CONN_OPEN)
		return;
	if (rx->state == RX_BULK)
		left = rx->frame.bulk_len - rx->bulk_have;
	conn_wake_at(c, left < POOL_CONN_SLICE ? (int)left :
						 (int)POOL_CONN_SLICE);
}

/* Read until the socket is empty or the slice is used up. */
static void receive_slice(struct pool_conn *c)
{
	size_t slice = c->share ? POOL_CONN_SHARE_SLICE : POOL_CONN_SLICE;
	size_t done = 0;
	bool dry = false;
	ssize_t r;

	c->more_in = false;
	while (!dry && done < slice && !conn_waits(c) &&
	       (c->state == CONN_OPEN || c->state == CONN_DRAINING)) {
		r = receive_step(c, slice - done, &dry);
		if (r == -EAGAIN) {
			if (c->broken)
				conn_broken_end(c);
			return;
		}
		if (r < 0) {
			if (c->state != CONN_CLOSING)
				conn_fail(c, (int)r);
			return;
		}
		done += (size_t)r;
	}
	c->more_in = c->stream && !dry;
}

void conn_receive(struct pool_conn *c)
{
	if (!conn_is_trusted(c))
		return;
	c->receiving = true;
	receive_slice(c);
	c->receiving = false;
	if (c->flush_due)
		conn_flush(c);
	conn_watch(c); /* for more_in and write_more */
	receive_later(c);
	if (c->rx.state != RX_BULK) /* SO_RCVLOWAT wakes the loop for bulk */
		pool_busy_touch(c->loop);
}

void conn_receive_turn(struct pool_conn *c)
{
	if (!c->share || pool_share_take(c->share, &c->turn))
		conn_receive(c);
}
