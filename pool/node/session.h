/*
 * The session with the master. session.c dispatches its messages, and makes
 * JOIN and HEARTBEAT (heat.c makes further ones). outbox.c sends all of them.
 */
#ifndef POOL_NODE_SESSION_H
#define POOL_NODE_SESSION_H

#include "pool/conn/dial.h"
#include "pool/node/node.h"

/* States of the session with the master, as drawn in session.c. */
enum node_session_state {
	SESSION_DISCONNECTED,
	SESSION_DIALLING,
	SESSION_JOINING,
	SESSION_INVENTORY,
	SESSION_UP,
	SESSION_CLOSED,
};

/* How far our wall clock was ahead of the master's when its last heartbeats
 * arrived, their time on the way included. */
#define NODE_CLOCKS 8
#define NODE_CLOCK_MAX_MS (1ll << 42) /* 139 years; fits in ns, too */
struct node_clocks {
	int64_t ahead_ms[NODE_CLOCKS];
	unsigned int n; /* heartbeats that contained the master's time */
};

struct node_session {
	struct pool_conn *conn; /* NULL while DISCONNECTED */
	/* TLS: will replace conn. Sends JOIN once it is open and conn has
	 * closed. NULL: none. */
	struct pool_conn *next;
	bool next_open;
	uint64_t due_ms; /* when to replace conn */
	enum node_session_state state;
	struct pool_dial dial;
	char master[POOL_HOSTPORT_TEXT]; /* dial.at, as text */
	uint64_t joining_ms;		 /* JOINING: since when */
	bool standby;			 /* the peer answered as a standby */
	uint64_t beat_ms, heartbeat_ms;
	unsigned int beats; /* sent in this session */
	uint64_t asked_sent; /* node->asked_changes at the last report; 0: none
				was sent in this session */
	bool logged; /* the current failure has been logged */
	int refused; /* status of the last refusal that was logged */
	uint64_t refused_logged_ms;
	char program[POOL_PROGRAM_SIZE]; /* the master's; "": unknown */
	struct node_clocks clocks;
};

/* ---- session.c: the session with the master; dispatch ---- */

int node_session_open(struct pool_node *n);
void node_session_close(struct pool_node *n);
void node_session_tick(struct pool_node *n, uint64_t now);
bool node_inventory_slice(struct pool_node *n); /* is there more to do now? */
/* The address of the current or last master, or the one being dialled; "": none
 * yet. */
const char *node_session_master(const struct pool_node *n);
/* The version of its program; "": it does not tell, or there is none. */
const char *node_session_program(const struct pool_node *n);
/* How far our wall clock is ahead of the master's (negative: behind): the least
 * that the last heartbeats show, because a late one shows too much. False:
 * there is no master, or it does not tell. */
bool node_session_clock(const struct pool_node *n, int64_t *ret_ms);
/* A heartbeat: the master's wall clock, or 0. */
void node_session_note_clock(struct pool_node *n, uint64_t wall_ms);

#endif
