/*
 * Rules: the policy attributes user.kvpool.* that users set on directories and
 * files. A rule on a directory is inherited by everything below it, unless a
 * nearer rule overrides it. This module parses and inherits; the node and the
 * master act on rules, and pool/CHANGING.md, "Rule", lists where.
 *
 * Thread: any, no state.
 */
#ifndef POOL_MODEL_RULES_H
#define POOL_MODEL_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POOL_XATTR_PREFIX "user.kvpool."
#define POOL_REPLICAS_MAX 8

enum pool_class {
	POOL_CLASS_UNSET,
	POOL_CLASS_SHARED,  /* default: the pool evicts */
	POOL_CLASS_NOEVICT, /* ENOSPC instead of eviction */
	POOL_CLASS_SCRATCH, /* private to its mount, never published */
};
enum pool_pin {
	POOL_PIN_UNSET,
	POOL_PIN_NONE,
	POOL_PIN_SOFT, /* evicted last; until pin_until_ns if not 0 */
	POOL_PIN_HARD, /* never evicted */
};
enum pool_unlink {
	POOL_UNLINK_UNSET,
	POOL_UNLINK_POOL, /* default: the name is removed from the pool */
	POOL_UNLINK_NODE, /* only this mount hides the name */
};

/* All fields 0 = unset = inherit. */
struct pool_rules {
	uint8_t class;	  /* enum pool_class; directories only */
	uint8_t pin;	  /* enum pool_pin */
	uint8_t unlink;	  /* enum pool_unlink */
	uint8_t replicas; /* 1..POOL_REPLICAS_MAX */
	uint64_t pin_until_ns; /* wall clock; 0: no end */
};

/*
 * Apply one attribute. name is the full xattr name ("user.kvpool.replicas").
 * Values: class = shared|noevict|scratch; pin = none|soft|soft:30s|hard
 * (relative times are counted from now_wall_ns; soft@<seconds since 1970> does
 * not depend on the time at which it is read, so that it can be stored);
 * replicas = 1..8; unlink = pool|node. An empty value unsets.
 * Returns 0; -ENOTSUP: not a rule (a read-only or unknown user.kvpool name);
 * -EINVAL: a rule with a bad value, or one of more than 31 bytes (what is
 * accepted is in *ret_accepted, constant text, if not NULL).
 */
int pool_rules_set(struct pool_rules *r, const char *name, const void *value,
		   size_t len, bool is_dir, uint64_t now_wall_ns,
		   const char **ret_accepted);

/* Fill what is unset in r from the parent's. */
void pool_rules_inherit(struct pool_rules *r, const struct pool_rules *parent);
/* Fill what is still unset with the defaults (shared, none, pool, 1). */
void pool_rules_default(struct pool_rules *r);
bool pool_rules_empty(const struct pool_rules *r);

#endif
