/*
 * What kvpoold was told: options, environment, defaults, all of it checked.
 *
 * Thread: main, before anything else runs; then any, as it does not change.
 */
#ifndef DAEMON_NODE_CONF_H
#define DAEMON_NODE_CONF_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/base/parse.h"
#include "pool/conn/trust.h"

/* What bytes move over between nodes; in the order of --transport. */
enum daemon_transport { TRANSPORT_AUTO, TRANSPORT_RDMA, TRANSPORT_TCP };

/* How RDMA connections are made; in the order of --rdma-connect. */
enum daemon_connect { CONNECT_AUTO, CONNECT_CM };

struct daemon_node_conf {
	struct pool_hostports masters;
	struct pool_hostport listen, admin;
	const char *etcd, *cluster;
	const char *advertise, *name, *run_dir, *store_dir, *mount, *source;
	const char *state_file, *log_file;
	uint64_t store_size, buffer_size, movers, prefetch, busy_poll_us;
	uint64_t rdma_busy_poll_us;
	uint64_t hot_gets, cold_ms, deadline_ms;
	uint64_t heartbeat_ms;
	const char *rdma_device;
	const char *allow_user, *admin_name;
	struct pool_trust trust; /* what that says; not with insecure */
	unsigned int log_level;
	unsigned int transport; /* enum daemon_transport */
	unsigned int rdma_connect; /* enum daemon_connect */
	bool no_passthrough, no_fd_passing, embedded, insecure, foreground;
	bool allow_faults, noexec, noatime, takeover, recover, version;
};

/*
 * 0 and *ret_conf (there is one in a process); 1: --help or --version was
 * answered on stdout; -errno: what was wrong and what is accepted is on stderr.
 */
int daemon_node_conf_read(int argc, char **argv,
			  const struct daemon_node_conf **ret_conf);

#endif
