/*
 * The map: every name of the pool, who holds it, and its place in the feed.
 *
 * Files and directories are the entries of a pool_tree; a name that is gone
 * leaves a grave, so that the feed can tell of it:
 *
 *   tombstone  it was deleted or overwritten: copies up to a generation must
 *              not come back. Bounded by number and time, the oldest go first.
 *   ghost      it merely left (evicted, its holders died): nothing forbids its
 *              return, but that of what it had replaced. Bounded by number.
 *
 * Memory per file: sizeof(struct master_file) + name + about 24 bytes.
 * Directories, once there, stay until they are removed by name.
 *
 * No I/O. Thread: loop.
 */
#ifndef MASTER_MAP_H
#define MASTER_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "master/feed.h"
#include "pool/base/hash.h"
#include "pool/model/quota.h"
#include "pool/model/rules.h"
#include "pool/model/tree.h"
#include "pool/model/xattrs.h"

#define MASTER_SUM_SIZE 16
#define MASTER_HOLDERS_MAX 255 /* of one file */
#define MASTER_HOLDERS_INLINE 4

/* A holder: node index and the phase in which it was confirmed
 * (master/members.h). An extra one is cache: named to readers while the object
 * is hot, and never counted as a copy. */
typedef uint16_t master_holder; /* extra << 15 | index << 4 | phase */
#define MASTER_PHASES 16u
#define MASTER_HOLDER_EXTRA 0x8000u
static inline master_holder master_holder_make(unsigned int index,
					       unsigned int phase)
{
	return (master_holder)(index << 4 | (phase & (MASTER_PHASES - 1)));
}
static inline unsigned int master_holder_index(master_holder h)
{
	return (h & ~MASTER_HOLDER_EXTRA) >> 4;
}
static inline bool master_holder_extra(master_holder h)
{
	return h & MASTER_HOLDER_EXTRA;
}
static inline unsigned int master_holder_phase(master_holder h)
{
	return h & (MASTER_PHASES - 1);
}

struct master_need; /* master/impl.h */

/* Files that have fewer copies than their rules want, by copies left. */
#define MASTER_SAFE 0u
#define MASTER_DANGERS 5u /* safe; 0, 1, 2, 3 or more copies are left */

/* What few names have. */
struct master_extra {
	struct pool_rules rules;  /* its own, not inherited */
	struct master_need *need; /* borrows: a copy is wanted or on its way */
	struct pool_xattrs *xattrs; /* owns */
};

struct master_file {
	struct pool_entry e; /* first */
	struct master_item item;
	uint64_t gen;
	uint64_t attr_gen; /* as Meta's */
	uint64_t size;
	uint64_t mtime_ns;
	struct master_extra *extra; /* owns; NULL: nothing special */
	union {
		master_holder in[MASTER_HOLDERS_INLINE];
		master_holder *heap; /* owns; if holders_cap */
	} holders;
	uint8_t sum[MASTER_SUM_SIZE];
	uint32_t uid, gid;
	uint16_t mode;
	uint8_t nholders;
	uint8_t holders_cap; /* 0: inline */
	uint8_t pin;	     /* enum pool_pin as last counted in map.pinned */
	uint8_t had_older;   /* older generations may exist somewhere */
	uint8_t was_dir : 1; /* not long ago: mirrors may still think so */
	uint8_t unsure : 1;  /* its extra holders may be dead: not told */
	uint8_t given_up : 1; /* its last copy was */
	uint8_t was_deleted : 1; /* it was made over a tombstone */
	uint8_t danger;	     /* as last counted in map.endangered */
};

struct master_dir {
	struct pool_dir d; /* first */
	struct master_item item;
	uint64_t mtime_ns;
	struct master_extra *extra; /* owns */
	uint32_t uid, gid;
	uint32_t payer; /* the uid in whose account it is; not the root's */
	uint16_t mode;
	uint8_t made;	  /* explicitly, so it is kept in the state */
	uint8_t was_file; /* not long ago: mirrors may still think so */
	/* the root: what somebody has set (pool/model/root.h) */
	uint16_t set;
};

struct master_grave {
	struct master_item item;
	struct pool_hash_node hash;
	struct pool_list age; /* in map.tombs or map.ghosts, oldest first */
	uint64_t gen;	      /* tombstone: up to this one, copies are dead */
	uint64_t left_gen;    /* the one that left, for those who still have
				 the name; >= gen or not */
	uint64_t left_sum;    /* of left_gen: the first 8 bytes; 0: not known */
	uint64_t wall_ns;     /* when */
	/* Who deleted it: Join.ops_run, Op.ticket; blind: master_blind_id */
	uint64_t by_run, by_ticket;
	uint8_t tomb;
	uint8_t is_dir : 1;
	uint8_t given_up : 1; /* left_gen was evicted; else its holders died */
	uint8_t blind : 1; /* see master_keep_blind */
	uint16_t path_len;
	char path[];
};

struct master_map {
	struct pool_tree tree;
	struct master_feed feed;
	struct pool_hash graves;
	struct pool_list tombs, ghosts;
	uint64_t ntombs, nghosts, nfiles, ndirs, bytes;
	uint64_t pinned[POOL_PIN_HARD + 1]; /* files by effective pin */
	uint64_t endangered[MASTER_DANGERS];
	/* bounds; directories and attributes */
	uint64_t tombs_max, ghosts_max;
	struct pool_quota quota;
	/* A tombstone is being forgotten; NULL: nobody needs to know. */
	void (*forgetting)(void *arg, const struct master_grave *g);
	void *forgetting_arg;
	/* the newest tombstone that was forgotten: 0 if none was */
	uint64_t lost_wall_ns, lost_seq;
	uint64_t nforgotten; /* graves, for the metrics */
	uint64_t holders_full; /* holders not noted for lack of room */
};

struct master_attrs {
	uint64_t mtime_ns;
	uint32_t uid, gid;
	uint16_t mode;
};

/* 0 or -ENOMEM. */
int master_map_init(struct master_map *m, uint64_t tombs_max,
		    uint64_t ghosts_max);
void master_map_fini(struct master_map *m);
/* The same in pieces of about `max` names: true as long as there are more. From
 * the first piece on nothing else may be done with it. */
bool master_map_fini_some(struct master_map *m, unsigned int max);

static inline struct master_file *master_item_file(struct master_item *i)
{
	return pool_container_of(i, struct master_file, item);
}
static inline struct master_dir *master_item_dir(struct master_item *i)
{
	return pool_container_of(i, struct master_dir, item);
}
static inline struct master_grave *master_item_grave(struct master_item *i)
{
	return pool_container_of(i, struct master_grave, item);
}
static inline struct master_file *master_entry_file(struct pool_entry *e)
{
	return (struct master_file *)(void *)e;
}
static inline struct master_dir *master_entry_dir(struct pool_entry *e)
{
	return (struct master_dir *)(void *)e;
}

/* ---- names ---- */

/* NULL if there is no file of that name. */
struct master_file *master_map_file(struct master_map *m, const char *path,
				    size_t len);
/* NULL if there is no directory of that name; "" is the root. */
struct master_dir *master_map_dir(struct master_map *m, const char *path,
				  size_t len);
/*
 * The file of that name, made (generation 0, no holders, attributes as given,
 * not yet in the feed: touch it) with its parents if it is not there.
 * Returns 0, -ENOMEM, -EINVAL, -EISDIR (it is a directory), -ENOTDIR.
 */
int master_map_make_file(struct master_map *m, const char *path, size_t len,
			 const struct master_attrs *attrs,
			 struct master_file **ret_file, bool *ret_made);
/* The same for a directory, which is in the feed afterwards. A new one has the
 * attributes given. -ENOTDIR if the name or an inner one is a file. */
int master_map_make_dir(struct master_map *m, const char *path, size_t len,
			const struct master_attrs *attrs,
			struct master_dir **ret_dir, bool *ret_made);
/* The file has changed: tell the feed. */
void master_map_touch_file(struct master_map *m, struct master_file *f);
void master_map_touch_dir(struct master_map *m, struct master_dir *d);
void master_file_set_size(struct master_map *m, struct master_file *f,
			  uint64_t size);
/* Count the file under another effective pin. */
void master_file_set_pin(struct master_map *m, struct master_file *f,
			 enum pool_pin pin);
/* Count the file as in this danger. */
void master_file_set_danger(struct master_map *m, struct master_file *f,
			    unsigned int danger);

/*
 * The file is gone. tomb_gen != 0: leaves a tombstone of that generation;
 * else a ghost, or, if it had older generations, a tombstone for these.
 * f->extra->need must be NULL. 0 (then f is freed), or -ENOMEM: nothing
 * changed.
 */
int master_map_remove_file(struct master_map *m, struct master_file *f,
			   uint64_t tomb_gen, uint64_t wall_ns);
/* 0, -ENOTEMPTY, -EBUSY (the root), -ENOMEM. */
int master_map_remove_dir(struct master_map *m, struct master_dir *d,
			  uint64_t wall_ns);

/* ---- graves ---- */

struct master_grave *master_map_grave(struct master_map *m, const char *path,
				      size_t len);
/* Generation up to which copies of the name are dead; 0: none are known. */
uint64_t master_map_tomb_gen(struct master_map *m, const char *path,
			     size_t len);
/* A tombstone for a name that is not there (raises one that is). 0, -ENOMEM. */
int master_map_bury(struct master_map *m, const char *path, size_t len,
		    uint64_t gen, uint64_t wall_ns);
/* The same of a name of which this generation was given up: copies of older
 * ones are dead. */
int master_map_bury_left(struct master_map *m, const char *path, size_t len,
			 uint64_t gen, uint64_t wall_ns);
/* Forget at most `max` graves: beyond the bounds, and tombstones from before
 * before_wall_ns. Returns how many. */
unsigned int master_map_forget(struct master_map *m, uint64_t before_wall_ns,
			       unsigned int max);

/* ---- holders ---- */

static inline const master_holder *
master_file_holders(const struct master_file *f)
{
	return f->holders_cap ? f->holders.heap : f->holders.in;
}
/* Position in master_file_holders, or -1. */
int master_file_find_holder(const struct master_file *f, unsigned int index);
/* How many of the holders are extra ones. */
unsigned int master_file_extras(const struct master_file *f);
/* This one may be dead: it is an extra one, which nobody is told of, until it
 * or another node says that it holds f. */
void master_file_doubt_holder(struct master_file *f, unsigned int pos);
/*
 * Note a holder, or that it is confirmed in this phase. 1: it is new, 0: it was
 * known (one that counts stays so), -ENOSPC (counted), -ENOMEM.
 */
int master_file_add_holder(struct master_map *m, struct master_file *f,
			   master_holder h);
/* By position; the last one takes its place. */
void master_file_remove_holder(struct master_file *f, unsigned int pos);
void master_file_clear_holders(struct master_file *f);

/* ---- attributes and rules ---- */

/* *slot's struct, made if there is none; NULL: ENOMEM. */
struct master_extra *master_extra_get(struct master_extra **slot);
/* Frees the struct if it says nothing any more. */
void master_extra_trim(struct master_extra **slot);
/*
 * Replace the xattrs and the rules among them. xattrs (NULL: none) is taken
 * over. 0, or -ENOMEM: nothing changed, and xattrs are the caller's still.
 */
int master_extra_set(struct master_extra **slot, struct pool_xattrs *xattrs,
		     const struct pool_rules *rules);
/* After a change of e's owner or xattrs: who is charged for it. */
void master_map_account(struct master_map *m, struct pool_entry *e);
/* What holds for the file: its own rules, inherited ones, defaults. A soft pin
 * whose time is over counts as none. */
void master_file_rules(const struct master_file *f, uint64_t now_wall_ns,
		       struct pool_rules *ret_rules);

/* For tests: every count, link and bound, asserted. */
void master_map_check(struct master_map *m);

#endif
