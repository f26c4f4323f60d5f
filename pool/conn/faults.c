/*
 * Applies injected faults (pool/conn/fault_rules.h) to a stream. A connection
 * has this state only if injection was allowed when it was created.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pool/conn/conn_priv.h"
#include "pool/conn/fault_rules.h"

int conn_faults_open(struct pool_conn *c)
{
	struct pool_faults *rules = pool_faults_installed();

	if (!rules)
		return 0;
	c->faults = calloc(1, sizeof(*c->faults));
	if (!c->faults)
		return -ENOMEM;
	c->faults->rules = rules;
	uv_timer_init(c->loop, &c->faults->out_timer);
	uv_timer_init(c->loop, &c->faults->in_timer);
	c->faults->out_timer.data = c->faults->in_timer.data = c;
	c->refs += 2;
	return 0;
}

static void on_timer_closed(uv_handle_t *h)
{
	conn_unref(h->data);
}

void conn_faults_close(struct pool_conn *c)
{
	if (!c->faults)
		return;
	uv_close((uv_handle_t *)&c->faults->out_timer, on_timer_closed);
	uv_close((uv_handle_t *)&c->faults->in_timer, on_timer_closed);
}

/* Make close send a reset instead of an orderly end. */
static int reset(struct pool_conn *c)
{
	struct linger now = { .l_onoff = 1, .l_linger = 0 };

	(void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	return -ECONNRESET;
}

/* ---- sending ---- */

static void on_out_timer(uv_timer_t *t)
{
	struct pool_conn *c = t->data;

	c->faults->out_delayed = false;
	if (c->state == CONN_OPEN || c->state == CONN_DRAINING) {
		c->write_more = true;
		conn_watch(c);
	}
}

/* Consult the rules for o, the head of the queue, before any of it is sent. */
static int out_judge(struct pool_conn *c, struct conn_out *o)
{
	uint32_t delay_ms = 0;

	o->judged = true;
	o->fault = pool_faults_judge(c->faults->rules, c->name,
				     POOL_FAULT_SEND, o->file_left > 0,
				     &delay_ms);
	o->fault_left = o->file_left / 2;
	if (o->fault == POOL_FAULT_DELAY) {
		c->faults->out_delayed = true;
		uv_update_time(c->loop); /* a stale time would shorten it */
		uv_timer_start(&c->faults->out_timer, on_out_timer, delay_ms,
			       0);
		return -EAGAIN;
	}
	if (o->fault == POOL_FAULT_DROP && o->file_left == 0)
		c->faults->out_lost = true;
	if (o->fault == POOL_FAULT_RESET && o->file_left == 0)
		return reset(c);
	return 0;
}

int conn_faults_out(struct pool_conn *c, struct conn_out *o)
{
	int err = 0;

	if (c->faults->out_delayed)
		return -EAGAIN;
	if (!c->faults->out_lost && !o->judged)
		err = out_judge(c, o);
	return err ? err : c->faults->out_lost;
}

bool conn_faults_out_delayed(const struct pool_conn *c)
{
	return c->faults && c->faults->out_delayed;
}

/* Send one byte of the file with one bit flipped. */
static int send_flipped(struct pool_conn *c, struct conn_out *o)
{
	unsigned char byte;

	if (pread(o->file_fd, &byte, 1, (off_t)o->file_offset) != 1)
		return -EIO;
	byte ^= 1;
	if (send(c->fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
		return -errno;
	o->file_offset++;
	o->file_left--;
	return 0;
}

int conn_faults_bulk(struct pool_conn *c, struct conn_out *o, size_t *want)
{
	int err = 0;

	if (!c->faults || o->fault == POOL_FAULT_KINDS ||
	    o->fault == POOL_FAULT_DELAY || !o->judged)
		return 0;
	if (o->file_left > o->fault_left) {
		if (*want > o->file_left - o->fault_left)
			*want = (size_t)(o->file_left - o->fault_left);
		return 0;
	}
	if (o->fault == POOL_FAULT_RESET)
		return reset(c);
	if (o->fault == POOL_FAULT_DROP) {
		c->faults->out_lost = true;
		return 1;
	}
	err = send_flipped(c, o);
	if (!err) {
		o->fault = POOL_FAULT_KINDS;
		*want = *want > 1 ? *want - 1 : 0;
	}
	return err;
}

/* ---- receiving ---- */

static void on_in_timer(uv_timer_t *t)
{
	struct pool_conn *c = t->data;

	c->faults->in_delayed = false;
	if (c->state == CONN_OPEN || c->state == CONN_DRAINING)
		conn_watch(c);
}

int conn_faults_in(struct pool_conn *c)
{
	uint32_t delay_ms = 0;

	switch (pool_faults_judge(c->faults->rules, c->name,
				  POOL_FAULT_RECEIVE,
				  c->rx.frame.bulk_len > 0, &delay_ms)) {
	case POOL_FAULT_DELAY:
		c->faults->in_delayed = true;
		uv_update_time(c->loop);
		uv_timer_start(&c->faults->in_timer, on_in_timer, delay_ms, 0);
		break;
	case POOL_FAULT_DROP:
		c->faults->in_lost = true;
		break;
	case POOL_FAULT_RESET:
		return reset(c);
	case POOL_FAULT_CORRUPT:
		c->faults->in_flip = true;
		break;
	case POOL_FAULT_KINDS:
		break;
	}
	return 0;
}

bool conn_faults_in_delayed(const struct pool_conn *c)
{
	return c->faults && c->faults->in_delayed;
}

bool conn_faults_in_lost(const struct pool_conn *c)
{
	return c->faults && c->faults->in_lost;
}

void conn_faults_in_bulk(struct pool_conn *c, uint8_t *data)
{
	if (!c->faults || !c->faults->in_flip)
		return;
	c->faults->in_flip = false;
	data[0] ^= 1;
}
