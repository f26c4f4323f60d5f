/*
 * kvpoold's configuration: options, environment and defaults, validated.
 *
 * Thread: main, before anything else runs; then any, because it never changes.
 */
#ifndef DAEMON_NODE_CONF_H
#define DAEMON_NODE_CONF_H

#include <stdbool.h>
#include <stdint.h>

#include "master/etcd_access.h"
#include "pool/base/parse.h"
#include "pool/conn/trust.h"

/* How the bytes of objects are protected on TCP; in the order of --bulk. */
enum daemon_bulk { BULK_TLS, BULK_AUTH, BULK_PLAIN };

/* The transport of bulk data between nodes; in the order of --transport. */
enum daemon_transport { TRANSPORT_AUTO, TRANSPORT_RDMA, TRANSPORT_TCP };

/* How RDMA connections are made; in the order of --rdma-connect. */
enum daemon_connect { CONNECT_AUTO, CONNECT_CM };

struct daemon_node_conf {
	struct pool_hostports masters;
	struct pool_hostport listen, admin;
	struct etcd_access etcd;
	const char *cluster;
	const char *advertise, *name, *run_dir, *store_dir, *mount, *source;
	const char *state_file, *log_file;
	uint64_t store_size, memory_limit, buffer_size;
	uint64_t movers, prefetch, busy_poll_us;
	uint64_t rdma_busy_poll_us;
	uint64_t hot_gets, cold_ms, deadline_ms;
	uint64_t heartbeat_ms;
	uint64_t uid, gid, umask, dmode; /* or DAEMON_NOT_GIVEN */
	const char *rdma_device;
	const char *allow_user, *admin_name, *tls_dir;
	uint64_t tls_renew_ms;
	unsigned int bulk; /* enum daemon_bulk */
	unsigned int ktls; /* enum daemon_ktls */
	struct pool_trust trust; /* from allow_user; unused if insecure */
	unsigned int log_level;
	unsigned int transport; /* enum daemon_transport */
	unsigned int rdma_connect; /* enum daemon_connect */
	bool no_passthrough, no_fd_passing, embedded, insecure, foreground;
	bool allow_faults, noexec, noatime, takeover, surge, keeper;
	const char *keeper_socket; /* of `kvpool keep`; NULL: none */
	bool recover, version;
};

/*
 * 0 and *ret_conf (static, one per process); 1: --help or --version was printed
 * to stdout; -errno: the wrong option and what is accepted were printed to
 * stderr.
 */
int daemon_node_conf_read(int argc, char **argv,
			  const struct daemon_node_conf **ret_conf);

#endif
