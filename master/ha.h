/*
 * One of several masters; an election in etcd decides which one is the leader.
 *
 *   standby --elected--> loading --> leading --lost--> closing --> standby
 *      |                    |           |                            ^
 *      | refers nodes       +-----------|----------- lost -----------+
 *      | to the leader                  +- a struct master, with its own epoch
 *      +- (master/standby.h)               and the state in etcd
 *
 * A leader that loses its lease closes all sessions and frees its map; nodes
 * send the changes that it has not acked to the next leader.
 *
 * Thread: loop.
 */
#ifndef MASTER_HA_H
#define MASTER_HA_H

#include "master/etcd_access.h"
#include "master/server.h"

#define MASTER_CLUSTER_ACCEPTED \
	"1 to 64 letters, digits, '-', '_' or '.', such as kv-prod"

struct master_ha;

struct master_ha_opts {
	struct master_opts master; /* state and epoch come from etcd */
	struct etcd_access etcd;   /* URLs, valid (etcd_urls_check) */
	const char *cluster;	   /* valid (master_cluster_check) */
	const char *advertise;	   /* "HOST:PORT"; NULL: as master.listen */
	unsigned int ttl_s;	   /* of the lease; 0: LEADER_TTL_S */
	unsigned int start_ms;	   /* how long to wait for etcd at the start */
	/* The data in etcd is of another version, or damaged (logged): the
	 * program must exit with an error. */
	void (*unusable)(void *arg);
	void *arg;
};

/* Is the name valid (MASTER_CLUSTER_ACCEPTED)? 0 or -EINVAL. */
int master_cluster_check(const char *name);
/*
 * Waits for etcd (blocks; before the loop runs), then listens. 0 or -errno,
 * logged with the remedy. Errors of etcd: -EPROTO, -EHOSTUNREACH, -ETIMEDOUT,
 * -EREMOTEIO, -EKEYREJECTED.
 */
int master_ha_open(const struct master_ha_opts *opts,
		   struct master_ha **ret_ha);
/* A leader revokes its lease, so that another is elected at once. */
void master_ha_close(struct master_ha *ha, void (*closed)(void *arg),
		     void *arg);

uint16_t master_ha_port(const struct master_ha *ha);
/* The leader's master; NULL: this is not the leader. */
struct master *master_ha_leading(const struct master_ha *ha);
/* Why it is not ready to serve nodes (one line); NULL: it is ready. */
const char *master_ha_not_ready(struct master_ha *ha);
/* {"state": "leader"|"standby", ...}; NULL on ENOMEM. */
json_t *master_ha_json(const struct master_ha *ha);

/* ---- for nodes: finding the leader's address in etcd ---- */

struct master_finder;

struct master_finder_opts {
	uv_loop_t *loop;
	struct etcd_access etcd;
	const char *cluster; /* as above */
	struct pool_metrics *metrics;
	/* Should etcd be queried now? Called every MASTER_FINDER_MS. */
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
