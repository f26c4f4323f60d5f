/* Identity and addresses of a node. Plain data; thread: any. */
#ifndef POOL_CONN_PEER_ADDR_H
#define POOL_CONN_PEER_ADDR_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/base/parse.h"
#include "pool/tls/tls_id.h"

/* Bytes of a node id, which is stored with its objects (pool_store_id). */
#define POOL_ID_SIZE 16

/* The last component of each peer's Unix socket. Peers tell each other the
 * path, so a node dials no other: on its host, other programs' sockets may take
 * bytes from its user for commands. */
#define POOL_PEER_SOCKET "peer.sock"

/* Equal ids mean the same peer; the addresses may change. */
struct pool_peer_addr {
	uint8_t id[POOL_ID_SIZE];
	struct pool_hostport tcp;
	char unix_path[108]; /* "" if it has none or is on another host */
	bool is_store;
};

/* Roles that the peer's certificate may have. A store has the role node; other
 * peers are mounts (node) or libraries (client). */
static inline unsigned int pool_peer_roles(const struct pool_peer_addr *a)
{
	return a->is_store ? POOL_ROLE_BIT(POOL_ROLE_NODE) : POOL_ROLES_USERS;
}

#endif
