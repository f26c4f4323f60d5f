/* The message types: names, who may send them, bounds of their payloads. */
#include <stdbool.h>

#include "pool/conn/kvpool.pb-c.h"
#include "pool/conn/unpack.h"
#include "pool/conn/wire.h"

#define SMALL 4096u	    /* bytes: numbers, a node's description, a text */
#define PATH 8192u	    /* bytes: one path and numbers */
#define BATCH (1u << 20)    /* bytes: 4 * POOL_BATCH_BYTES */
#define RESULTS (8u * POOL_BATCH_MAX) /* OpResults in a WELCOME */
#define OTHERS 16u	    /* fields unknown to this version */
#define NODES 4096u	    /* NodeInfos */
#define XATTRS (64u << 10)  /* xattrs of all files of a batch */
#define HOLDERS (192u << 10) /* xattrs and holders of all files of a batch */

/* Who may send a message. */
#define MASTER POOL_ROLE_BIT(POOL_ROLE_MASTER)
#define USER POOL_ROLES_USERS
#define ANY (MASTER | USER | POOL_ROLE_BIT(POOL_ROLE_ADMIN))

#define MSG(type, name, from, bytes, entries, nested) \
	[POOL_MSG_##type] = { &kvpool__##name##__descriptor, bytes, entries, \
			      nested, from, #type }

static const struct pool_bound bounds[POOL_MSG_MAX] = {
	MSG(JOIN, join, USER, SMALL, 0, OTHERS),
	MSG(WELCOME, welcome, MASTER, BATCH, RESULTS, RESULTS),
	MSG(INVENTORY, inventory, USER, BATCH, POOL_BATCH_MAX, XATTRS),
	MSG(SUBSCRIBE, subscribe, USER, SMALL, 0, OTHERS),
	MSG(FEED, feed, MASTER, POOL_PAYLOAD_MAX, POOL_BATCH_MAX + NODES,
	    HOLDERS),
	MSG(FEED_ACK, feed_ack, USER, SMALL, 0, OTHERS),
	MSG(OPS, ops, USER, BATCH, POOL_BATCH_MAX, XATTRS),
	MSG(OPS_DONE, ops_done, MASTER, BATCH, POOL_BATCH_MAX, POOL_BATCH_MAX),
	MSG(EVICT, evict, MASTER | USER, POOL_PAYLOAD_MAX, POOL_BATCH_MAX,
	    POOL_BATCH_MAX),
	MSG(DROP, drop, MASTER, BATCH, POOL_BATCH_MAX, POOL_BATCH_MAX),
	MSG(REPLICATE, replicate, MASTER, BATCH, POOL_BATCH_MAX + NODES,
	    XATTRS),
	MSG(HELD, held, USER, BATCH, POOL_BATCH_MAX, POOL_BATCH_MAX),
	MSG(SYNC, sync, USER, SMALL, 0, OTHERS),
	MSG(SYNCED, sync, MASTER, SMALL, 0, OTHERS),
	MSG(HEARTBEAT, heartbeat, MASTER | USER, BATCH, POOL_BATCH_MAX,
	    POOL_BATCH_MAX),
	MSG(ERROR, error, ANY, SMALL, 0, OTHERS),
	MSG(HELLO, hello, USER, SMALL, 0, OTHERS),
	MSG(GET, get, USER, PATH, 0, OTHERS),
	[POOL_MSG_DATA] = { NULL, SMALL, 0, 0, USER, "DATA" },
	MSG(LENT, lent, USER, SMALL, 0, OTHERS),
	MSG(RETURN, key, USER, PATH, 0, OTHERS),
	MSG(RECALL, key, USER, PATH, 0, OTHERS),
	MSG(DOUBT, key, USER, PATH, 0, OTHERS),
	MSG(LINK, link, USER, PATH, 0, OTHERS),
	MSG(BUFFER, buffer, USER, SMALL, 0, OTHERS),
};

const struct pool_bound pool_kept_bound = {
	&kvpool__meta__descriptor, 32768, 2048, 2048, 0, "Meta"
};

bool pool_msg_known(uint16_t type)
{
	return type < POOL_MSG_MAX && bounds[type].name;
}

const char *pool_msg_name(uint16_t type)
{
	return pool_msg_known(type) ? bounds[type].name : "unknown";
}

const struct pool_bound *pool_msg_bound(uint16_t type)
{
	static const struct pool_bound unknown = { NULL, POOL_PAYLOAD_MAX, 0,
						   0, ANY, NULL };

	return pool_msg_known(type) ? &bounds[type] : &unknown;
}
