/*
 * Names and attributes on the wire: Meta, in both directions. No file but
 * meta.c knows its fields' encoding.
 *
 * Thread: loop.
 */
#ifndef MASTER_META_H
#define MASTER_META_H

#include "master/map.h"
#include "master/members.h"
#include "pool/conn/kvpool.pb-c.h"
#include "pool/conn/wire.h"

struct master;

/* Validate a node's Meta: 0 or -EINVAL. whole: it describes an object, so it
 * needs a sum of 16 bytes. */
int master_meta_check(const Kvpool__Meta *meta, bool whole);
void master_meta_attrs(const Kvpool__Meta *meta, struct master_attrs *ret);
/*
 * The xattrs of a Meta and the rules among them. A bad rule is -EINVAL or
 * -ENOTSUP if strict, else ignored. 0 or -errno; *ret_xattrs is the caller's,
 * NULL if empty.
 */
int master_meta_xattrs(const Kvpool__Meta *meta, bool is_dir, bool strict,
		       uint64_t wall_ns, struct pool_xattrs **ret_xattrs,
		       struct pool_rules *ret_rules);
/* POOL_SET_XATTR_EACH: `old` with meta's xattrs set, strictly, and `remove`
 * ("": none) removed. Errors as above, and -ENOSPC. */
int master_meta_xattr_each(const Kvpool__Meta *meta, const char *remove,
			   const struct pool_xattrs *old, bool is_dir,
			   uint64_t wall_ns, struct pool_xattrs **ret_xattrs,
			   struct pool_rules *ret_rules);

/* Entries collected for one message. The metas borrow from the map, which must
 * not change before master_batch_reset. */
struct master_batch {
	size_t n, bytes;
	size_t used; /* of arena */
	Kvpool__Meta metas[POOL_BATCH_MAX];
	Kvpool__Meta *list[POOL_BATCH_MAX];
	void *xattrs[POOL_BATCH_MAX]; /* owns */
	uint8_t arena[512u << 10];
};
/* Returns the batch, of which there is only one, emptied. */
struct master_batch *master_batch_start(struct master *m);
bool master_batch_full(const struct master_batch *b);
/* 0 or -ENOMEM. The batch must not be full. */
int master_batch_add(struct master_batch *b, struct master_item *i);
/* The same for a FEED: if the name was a directory and is now a file, or the
 * reverse, an entry that deletes the old one comes first. */
int master_batch_add_feed(struct master_batch *b, struct master_item *i);
void master_batch_reset(struct master_batch *b);

/* Memory for the one message that is being built, in use until that message has
 * been sent. */
struct master_buffers {
	struct master_batch batch;
	Kvpool__OpResult results[POOL_BATCH_MAX];
	Kvpool__OpResult *result_list[POOL_BATCH_MAX];
	Kvpool__NodeInfo nodes[MASTER_NODES_MAX];
	Kvpool__NodeInfo *node_list[MASTER_NODES_MAX];
};

#endif
