/* The message types: names, and bounds of their payloads. */
#include <stdbool.h>

#include "pool/conn/kvpool.pb-c.h"
#include "pool/conn/unpack.h"
#include "pool/conn/wire.h"

static const char *const names[POOL_MSG_MAX] = {
	[POOL_MSG_JOIN] = "JOIN",
	[POOL_MSG_WELCOME] = "WELCOME",
	[POOL_MSG_INVENTORY] = "INVENTORY",
	[POOL_MSG_SUBSCRIBE] = "SUBSCRIBE",
	[POOL_MSG_FEED] = "FEED",
	[POOL_MSG_FEED_ACK] = "FEED_ACK",
	[POOL_MSG_OPS] = "OPS",
	[POOL_MSG_OPS_DONE] = "OPS_DONE",
	[POOL_MSG_EVICT] = "EVICT",
	[POOL_MSG_DROP] = "DROP",
	[POOL_MSG_REPLICATE] = "REPLICATE",
	[POOL_MSG_HELD] = "HELD",
	[POOL_MSG_SYNC] = "SYNC",
	[POOL_MSG_SYNCED] = "SYNCED",
	[POOL_MSG_HEARTBEAT] = "HEARTBEAT",
	[POOL_MSG_ERROR] = "ERROR",
	[POOL_MSG_HELLO] = "HELLO",
	[POOL_MSG_GET] = "GET",
	[POOL_MSG_DATA] = "DATA",
	[POOL_MSG_LENT] = "LENT",
	[POOL_MSG_RETURN] = "RETURN",
	[POOL_MSG_RECALL] = "RECALL",
	[POOL_MSG_DOUBT] = "DOUBT",
	[POOL_MSG_LINK] = "LINK",
	[POOL_MSG_BUFFER] = "BUFFER",
};

bool pool_msg_known(uint16_t type)
{
	return type < POOL_MSG_MAX && names[type];
}

const char *pool_msg_name(uint16_t type)
{
	return pool_msg_known(type) ? names[type] : "unknown";
}

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
			      nested, from }

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
	[POOL_MSG_DATA] = { NULL, SMALL, 0, 0, USER },
	MSG(LENT, lent, USER, SMALL, 0, OTHERS),
	MSG(RETURN, key, USER, PATH, 0, OTHERS),
	MSG(RECALL, key, USER, PATH, 0, OTHERS),
	MSG(DOUBT, key, USER, PATH, 0, OTHERS),
	MSG(LINK, link, USER, PATH, 0, OTHERS),
	MSG(BUFFER, buffer, USER, SMALL, 0, OTHERS),
};

const struct pool_bound pool_kept_bound = {
	&kvpool__meta__descriptor, 32768, 2048, 2048, 0
};

const struct pool_bound *pool_msg_bound(uint16_t type)
{
	static const struct pool_bound unknown = { NULL, POOL_PAYLOAD_MAX, 0,
						   0, ANY };

	return pool_msg_known(type) ? &bounds[type] : &unknown;
}
