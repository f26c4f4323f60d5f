/*
 * One of several masters, of which etcd says which one acts.
 *
 *   standby --elected--> loading --> leading --lost--> closing --> standby
 *      |                    |           |                            ^
 *      | nodes are told     +-----------|----------- lost -----------+
 *      | where the leader is            +- a struct master, with an epoch of its
 *      +- (master/standby.h)               own, and the state in etcd
 *
 * A leader that loses its lease closes all sessions and forgets everything;
 * what the nodes have not been answered they ask the next leader.
 *
 * Thread: loop.
 */
#ifndef MASTER_HA_H
#define MASTER_HA_H

#include "master/server.h"

#define MASTER_CLUSTER_ACCEPTED \
	"1 to 64 letters, digits, '-', '_' or '.', such as kv-prod"

struct master_ha;

struct master_ha_opts {
	struct master_opts master; /* without what is said below */
	const char *etcd;	   /* URLs, checked (etcd_urls_check) */
	const char *cluster;	   /* checked */
	const char *advertise;	   /* "HOST:PORT"; NULL: as listened on */
	unsigned int ttl_s;	   /* of the lease; 0: LEADER_TTL_S */
	unsigned int start_ms;	   /* how long etcd may take to answer at all */
	/* What is in etcd is not for this program (logged): end, with an error.
	 */
	void (*unusable)(void *arg);
	void *arg;
};

/* Is it a name as MASTER_CLUSTER_ACCEPTED says? 0 or -EINVAL. */
int master_cluster_check(const char *name);
/*
 * Listens, waits for etcd (before the loop runs). 0 or -errno, logged with the
 * remedy: -EPROTO, -EHOSTUNREACH, -ETIMEDOUT are of etcd.
 */
int master_ha_open(const struct master_ha_opts *opts,
		   struct master_ha **ret_ha);
/* A leader gives its lease back. */
void master_ha_close(struct master_ha *ha, void (*closed)(void *arg),
		     void *arg);

uint16_t master_ha_port(const struct master_ha *ha);
/* The acting master; NULL: this is not the leader. */
struct master *master_ha_leading(const struct master_ha *ha);
/* Why it is not ready to serve nodes (one line); NULL: it is. */
const char *master_ha_not_ready(struct master_ha *ha);
/* {"state": "leader"|"standby", ...}; NULL on ENOMEM. */
json_t *master_ha_json(const struct master_ha *ha);

/* ---- for nodes that ask etcd where the leader is ---- */

struct master_finder;

struct master_finder_opts {
	uv_loop_t *loop;
	const char *etcd, *cluster; /* as above */
	struct pool_metrics *metrics;
	/* Is it wanted now? Asked every MASTER_FINDER_MS. */
	bool (*wanted)(void *arg);
	void (*found)(void *arg, const struct pool_hostport *leader);
	void *arg;
};
#define MASTER_FINDER_MS 200

/* 0 or -errno, logged. */
int master_finder_open(const struct master_finder_opts *opts,
		       struct master_finder **ret_finder);
void master_finder_close(struct master_finder *f, void (*closed)(void *arg),
			 void *arg);

#endif
