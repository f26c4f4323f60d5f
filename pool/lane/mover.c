#include "pool/lane/mover.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/conn/hello.h"
#include "pool/lane/link.h"
#include "pool/lane/mover_priv.h"

/* ---- expectations ---- */

static void expect_run(struct pool_mail *mail)
{
	struct pool_expect *x =
		pool_container_of(mail, struct pool_expect, mail);
	struct pool_mover *m = x->mover;
	int err = x->lane->conn ? 0 : x->lane->err;

	x->begun_ms = pool_now_ms();
	pool_list_init(&x->link);
	x->landing.chunks = &m->chunks;
	if (!err)
		err = pool_hash_insert(&m->expected, &x->node,
				       expect_hash(x->req));
	if (err) {
		pool_landing_stop(&x->landing, err);
		return;
	}
	pool_list_add_tail(&x->lane->expected, &x->link);
	if (x->buffer || x->want_pull)
		expect_map(x);
}

int pool_mover_expect(struct pool_expect *x)
{
	int err = pool_landing_init(&x->landing);

	if (err)
		return err;
	x->landing.done = expect_landed;
	x->fd = x->landing.fd;
	x->mem = x->landing.mem;
	x->mover = x->lane->mover;
	x->number = x->lane->number;
	pool_mailbox_post(&x->mover->box, &x->mail, expect_run);
	return 0;
}

struct pool_mover_cancel {
	struct pool_mail mail;
	struct pool_mover *mover;
	uint64_t req;
};

struct pool_mover_cancel *pool_mover_cancel_new(void)
{
	return calloc(1, sizeof(struct pool_mover_cancel));
}

static bool is_silent(const struct pool_expect *x)
{
	return x->landing.got == 0 && x->lane->received_ms < x->begun_ms &&
	       pool_now_ms() - x->begun_ms >= POOL_LANE_SILENT_MS;
}

static void cancel_run(struct pool_mail *mail)
{
	struct pool_mover_cancel *c =
		pool_container_of(mail, struct pool_mover_cancel, mail);
	struct pool_expect *x = expect_find(c->mover, c->req);
	struct pool_lane *lane = x && is_silent(x) ? x->lane : NULL;

	if (x)
		expect_end(x, -ECANCELED);
	if (lane && lane->conn) {
		pool_warn_limited("%s: bulk connection is silent: closed",
				  pool_conn_peer_name(lane->conn));
		pool_count(&c->mover->counters->lanes_silent);
		lane->err = -ETIMEDOUT;
		pool_conn_close(lane->conn);
	}
	free(c);
}

void pool_mover_cancel(struct pool_mover *m, struct pool_mover_cancel *mail,
		       uint64_t req)
{
	mail->mover = m;
	mail->req = req;
	pool_mailbox_post(&m->box, &mail->mail, cancel_run);
}

/* ---- dialled lanes ---- */

static void lane_on_open(struct pool_conn *c)
{
	struct pool_lane *lane = pool_conn_user(c);

	if (pool_hello_send(c, lane->mover->id, lane->number,
			    mover_allows_plain(lane->mover)))
		pool_conn_close(c);
}

static bool hello_is_ours(struct pool_lane *lane, const struct pool_frame *f,
			  const uint8_t *payload)
{
	Kvpool__Hello *hello = pool_hello_unpack(lane->conn, f, payload, NULL);
	bool ours;

	if (!hello)
		return false;
	lane->plain = hello->plain;
	ours = pool_hello_is_from(hello, lane->peer_id) &&
	       hello->lane == lane->number &&
	       (!hello->plain || mover_allows_plain(lane->mover));
	kvpool__hello__free_unpacked(hello, NULL);
	return ours;
}

static void lane_on_frame(struct pool_conn *c, const struct pool_frame *f,
			  const uint8_t *payload, int fd)
{
	struct pool_lane *lane = pool_conn_user(c);

	assert(fd < 0); /* TCP */
	lane->received_ms = pool_now_ms();
	/* On a plain lane a third party may have written the frame. */
	if (lane->up && !lane->plain &&
	    (f->type == POOL_MSG_LINK || f->type == POOL_MSG_BUFFER) &&
	    lane_link_frame(lane, f, payload))
		return;
	if (lane->up || !hello_is_ours(lane, f, payload) ||
	    (lane->plain && pool_conn_end_tls(c))) {
		pool_warn_limited(lane->up ?
					  "%s: invalid message about links "
					  "on a bulk connection" :
					  "%s: HELLO of another node",
				  pool_conn_peer_name(c));
		pool_count(&lane->mover->counters->bad_messages);
		lane->err = -EHOSTDOWN;
		pool_conn_close(c);
		return;
	}
	lane->up = true;
	if (lane->plain)
		pool_tls_ended(lane->mover->tls);
	lane_link_start(lane);
}

static void *lane_on_bulk_begin(struct pool_conn *c,
				const struct pool_frame *f,
				const uint8_t *payload)
{
	struct pool_lane *lane = pool_conn_user(c);
	struct pool_mover *m = lane->mover;
	struct pool_expect *x = expect_find(m, f->req);

	(void)payload;
	if (!x) {
		/* The response may have overtaken the expectation's mail. */
		pool_mailbox_drain(&m->box);
		x = expect_find(m, f->req);
	}
	lane->cur = NULL;
	if (!x || x->lane != lane || f->type != POOL_MSG_DATA || x->draining)
		return NULL;
	expect_unmap(x); /* the holder has fallen back to TCP */
	if (f->bulk_len != x->landing.length)
		expect_end(x, -EBADMSG);
	else
		lane->cur = x;
	return NULL;
}

static void *lane_on_bulk_room(struct pool_conn *c, const struct pool_frame *f,
			       uint64_t offset, size_t *ret_len)
{
	struct pool_lane *lane = pool_conn_user(c);

	(void)f;
	(void)offset;
	return lane->cur ? pool_landing_room(&lane->cur->landing, ret_len) :
			   NULL;
}

static void lane_on_bulk_data(struct pool_conn *c, const struct pool_frame *f,
			      const void *data, size_t len, uint64_t offset)
{
	struct pool_lane *lane = pool_conn_user(c);
	struct pool_mover_counters *n = lane->mover->counters;
	struct pool_expect *x = lane->cur;

	lane->received_ms = pool_now_ms();
	pool_count_add(x ? &n->bytes_in : &n->stray_bytes, len);
	if (!x)
		return;
	pool_landing_data(&x->landing, data, len);
	if (offset + len == f->bulk_len)
		expect_end(x, 0);
}

static void lane_free_run(struct pool_mail *mail)
{
	struct pool_lane *lane =
		pool_container_of(mail, struct pool_lane, free_mail);

	free(lane);
}

static void lane_down_home(struct pool_mail *mail)
{
	struct pool_lane *lane =
		pool_container_of(mail, struct pool_lane, down_mail);
	struct pool_mover *m = lane->mover;

	lane->on_down(lane, lane->err);
	/* The mover frees it, because its mailbox may still hold earlier mails
	 * of expectations on this lane. */
	pool_mailbox_post(&m->box, &lane->free_mail, lane_free_run);
}

static void lane_down(struct pool_lane *lane, int err)
{
	struct pool_list *it, *tmp;

	lane->conn = NULL;
	lane->cur = NULL;
	if (!lane->err)
		lane->err = err ? err : -ECANCELED;
	pool_list_each(it, tmp, &lane->expected)
		expect_end(pool_list_entry(it, struct pool_expect, link),
			   lane->err);
	lane_link_end(lane);
	pool_list_del(&lane->link);
	pool_mailbox_post(lane->mover->home, &lane->down_mail,
			  lane_down_home);
}

static void lane_on_close(struct pool_conn *c, int err)
{
	lane_down(pool_conn_user(c), err);
}

static const struct pool_conn_ops lane_ops = {
	.on_open = lane_on_open,
	.on_frame = lane_on_frame,
	.on_bulk_begin = lane_on_bulk_begin,
	.on_bulk_room = lane_on_bulk_room,
	.on_bulk_data = lane_on_bulk_data,
	.on_close = lane_on_close,
};

static void lane_dial_run(struct pool_mail *mail)
{
	struct pool_lane *lane =
		pool_container_of(mail, struct pool_lane, dial_mail);
	struct pool_mover *m = lane->mover;
	struct pool_conn_opts opts = {
		.ops = &lane_ops,
		.user = lane,
		.first = POOL_MSG_HELLO,
		.refused = &m->counters->bad_messages,
		.trust = m->trust,
		.tls = m->tls,
		.tls_roles = lane->roles,
		.tls_bulk = true,
		.foreign_memory = m->foreign_memory,
	};
	int err = m->stopping ? -ECANCELED : 0;

	pool_list_add_tail(&m->lanes, &lane->link);
	if (!err)
		err = pool_conn_connect(&m->loop, &lane->to, &opts,
					&lane->conn);
	if (err)
		lane_down(lane, err);
}

struct pool_lane *pool_lane_dial(const struct pool_lane *like,
				 const struct pool_hostport *to)
{
	struct pool_lane *lane = malloc(sizeof(*lane));

	if (!lane)
		return NULL;
	*lane = *like;
	lane->to = *to;
	lane->conn = NULL;
	lane->cur = NULL;
	lane->up = lane->plain = false;
	lane->received_ms = 0;
	for (int kind = 0; kind < LINK_KINDS; kind++) {
		lane->linked[kind] = false;
		lane->links[kind] = NULL;
	}
	lane->err = 0;
	pool_list_init(&lane->expected);
	pool_list_init(&lane->link);
	pool_mailbox_post(&lane->mover->box, &lane->dial_mail, lane_dial_run);
	return lane;
}

static void lane_close_run(struct pool_mail *mail)
{
	struct pool_lane *lane =
		pool_container_of(mail, struct pool_lane, close_mail);

	if (lane->conn)
		pool_conn_close(lane->conn);
}

void pool_lane_close(struct pool_lane *lane)
{
	pool_mailbox_post(&lane->mover->box, &lane->close_mail,
			  lane_close_run);
}

/* ---- the thread ---- */

static void stop_run(struct pool_mail *mail)
{
	struct pool_mover *m =
		pool_container_of(mail, struct pool_mover, stop_mail);
	struct pool_list *it, *tmp;

	m->stopping = true;
	pool_list_each(it, tmp, &m->lanes) {
		struct pool_lane *lane =
			pool_list_entry(it, struct pool_lane, link);

		if (lane->conn)
			pool_conn_close(lane->conn);
	}
	mover_adopted_close_all(m);
	if (m->links)
		link_ports_stop(m->links);
	/* Does not keep the loop alive after the connections and writes have
	 * ended. */
	uv_unref((uv_handle_t *)&m->box.async);
}

static void thread_main(void *arg)
{
	struct pool_mover *m = arg;

	prctl(PR_SET_NAME, "kv-mover");
	uv_run(&m->loop, UV_RUN_DEFAULT);
}

int pool_mover_open(const struct pool_mover_opts *opts,
		    struct pool_mover **ret_mover)
{
	struct pool_mover *m = calloc(1, sizeof(*m));
	int err;

	if (!m)
		return -ENOMEM;
	m->home = opts->home;
	m->counters = opts->counters;
	m->trust = opts->trust;
	m->tls = opts->tls;
	m->foreign_memory = opts->foreign_memory;
	memcpy(m->id, opts->id, POOL_ID_SIZE);
	pool_list_init(&m->lanes);
	pool_list_init(&m->adopted);
	pool_hash_init(&m->expected);
	err = uv_loop_init(&m->loop);
	if (err)
		goto err_free;
	pool_chunks_init(&m->chunks, &m->loop);
	err = pool_mailbox_init(&m->box, &m->loop, NULL);
	if (err)
		goto err_loop;
	if (opts->verbs)
		err = link_ports_open(m, opts->verbs, opts->cache, &m->links);
	if (!err)
		err = uv_thread_create(&m->thread, thread_main, m);
	if (err)
		goto err_box;
	*ret_mover = m;
	return 0;

err_box:
	if (m->links)
		link_ports_stop(m->links);
	pool_mailbox_close(&m->box, NULL);
	uv_run(&m->loop, UV_RUN_DEFAULT);
err_loop:
	uv_loop_close(&m->loop);
	link_ports_free(m->links);
err_free:
	free(m);
	return err;
}

void pool_mover_stop(struct pool_mover *m)
{
	pool_mailbox_post(&m->box, &m->stop_mail, stop_run);
	uv_thread_join(&m->thread);
}

void pool_mover_free(struct pool_mover *m)
{
	int err;

	if (!m)
		return;
	pool_mailbox_drain(&m->box); /* frees lanes */
	pool_mailbox_close(&m->box, NULL);
	uv_run(&m->loop, UV_RUN_DEFAULT);
	err = uv_loop_close(&m->loop);
	assert(err == 0);
	assert(m->expected.count == 0);
	link_ports_free(m->links);
	pool_chunks_fini(&m->chunks);
	pool_hash_fini(&m->expected);
	free(m);
}
