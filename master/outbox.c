/*
 * Sending to a session, and ending one. Cleaning up after a session (its
 * subscription, its copies in flight) is done by session.c, through
 * m->on_session_end.
 */
#include <errno.h>
#include <unistd.h>

#include "master/impl.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"

#define STALE_LOG_MS 60000

void master_session_send(struct master_session *s, enum pool_msg type,
			 uint64_t req, const ProtobufCMessage *msg)
{
	int err;

	if (s->ended)
		return;
	/* There may be hundreds of REPLICATEs, one for each object: together in
	 * one system call, and one wake-up of the node. */
	err = (type == POOL_MSG_REPLICATE ? pool_conn_send_soon :
					    pool_conn_send)(
		s->conn, (uint16_t)type, req, msg);
	/* This is WELCOME: the node could not send heartbeats before it. */
	if (!s->sent_ms && s->member)
		s->member->received_ms = pool_now_ms();
	s->sent_ms = pool_now_ms();
	if (err == -ENOBUFS)
		master_count(s->m, MC_CUT_OFF);
	if (err)
		master_session_end(s, err == -ENOBUFS ?
					      "it reads too slowly" :
					      "cannot send to it");
}

void master_session_end(struct master_session *s, const char *why)
{
	if (s->ended)
		return;
	pool_info_paced("node %s (%s): connection ended: %s",
		  s->member ? s->member->name : "?",
		  pool_conn_peer_name(s->conn), why);
	if (s->member)
		master_event(s->m->events, "left", "%s: %s", s->member->name,
			     why);
	s->m->on_session_end(s);
	pool_conn_close(s->conn);
}

/* Should a refusal be logged? A refused node retries each second for the same
 * reason. */
static bool logs_refusal(struct master *m, int status)
{
	uint64_t now_ms = pool_now_ms();

	if (status == -EAGAIN)
		return false;
	if (status != -ESTALE)
		return true;
	if (m->stale_logged_ms && now_ms - m->stale_logged_ms < STALE_LOG_MS)
		return false;
	m->stale_logged_ms = now_ms;
	return true;
}

void master_session_fail(struct master_session *s, int status, const char *text)
{
	Kvpool__Error msg = KVPOOL__ERROR__INIT;

	if (s->ended)
		return;
	if (logs_refusal(s->m, status))
		pool_warn_limited("node %s (%s): refused: %s",
				  s->member ? s->member->name : "?",
				  pool_conn_peer_name(s->conn), text);
	msg.status = status;
	msg.text = (char *)text;
	pool_conn_send(s->conn, POOL_MSG_ERROR, 0, &msg.base);
	s->m->on_session_end(s);
	pool_conn_drain_close(s->conn, 1000);
}
