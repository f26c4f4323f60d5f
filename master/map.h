/*
 * The map: every name of the pool, its holders and its place in the feed.
 *
 * Files and directories are the entries of a pool_tree. A removed name leaves a
 * grave, which the feed sends as a deletion:
 *
 *   tombstone  the name was deleted, or older generations of it were
 *              overwritten: copies up to a certain generation must not come
 *              back. Bounded by number, bytes and age; the account that has
 *              the most loses its oldest ones first (master/owners.h).
 *   ghost      the name only disappeared, because it was evicted or its holders
 *              died (or it was a directory): copies may come back. Bounded by
 *              number and bytes.
 *
 * A name may pass from one owner to another: by chown, by being replaced, or
 * by being made again after a deletion. An absent node may hold a copy that
 * belongs to the former owner, and the tombstone, which is on the new owner's
 * account, may be forgotten. So the map keeps a second grave (MASTER_FORMER)
 * for the former owner, which keeps his old copies from coming back. It is in
 * no feed, and may outlive the file and the name's own grave.
 *
 * If the name of a deleted file becomes a directory, the file's grave belongs
 * to the directory (master_dir.file), and returns to the map's lists when the
 * directory is removed. A name that was a file and a directory has one grave,
 * which the feed sends as two deletions.
 *
 * Where a grave is, and what counts it:
 *
 *   grave              hash     lists                   counters    in the feed
 *   tombstone          graves   tombs, and tombs of     ntombs,     a deletion
 *                               its owner (account)     tomb_bytes
 *   of a former owner  formers  as a tombstone          as above    not sent
 *   ghost              graves   ghosts                  nghosts,    a deletion
 *                                                       ghost_bytes
 *   of a directory     none     none, master_dir.file   nbelow (a   with the
 *                               refers to it            tombstone)  directory
 *
 * When it moves:
 *
 *   a file is removed        -> tombstone or ghost
 *   its name is a file again -> freed; nremade counts those files whose grave
 *                               was a tombstone (was_deleted)
 *   ... a directory          -> of the directory, if it was a file's; or freed
 *   the directory is removed -> tombstone or ghost
 *   too many, or (tombstone) -> forgotten: freed; of a tombstone, the time goes
 *   too old                     to lost_wall_ns of its owner (account)
 *
 * In the state, a grave is a TOMB record, whose Meta fields mean other things
 * than elsewhere: the table is at MASTER_REC_TOMB (master/state.h).
 *
 * Memory per file: sizeof(struct master_file) + name + about 24 bytes.
 * Directories stay until they are removed by name, even if they are empty.
 *
 * No I/O. Thread: loop.
 */
#ifndef MASTER_MAP_H
#define MASTER_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "master/feed.h"
#include "master/owners.h"
#include "master/tops.h"
#include "pool/base/hash.h"
#include "pool/model/quota.h"
#include "pool/model/rules.h"
#include "pool/model/tree.h"
#include "pool/model/xattrs.h"

#define MASTER_SUM_SIZE 16
/* Bound of the graves' bytes: tombs_max and ghosts_max times this. A grave with
 * a path of more than some 350 bytes takes more than this. */
#define MASTER_GRAVE_BYTES 512u
#define MASTER_HOLDERS_MAX 255 /* of one file */
#define MASTER_HOLDERS_INLINE 4

/* A holder: node index and the phase in which the node confirmed the copy
 * (master/members.h). An extra copy is cache: readers learn of it while the
 * object is hot, and it never counts as a copy. */
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

struct master_need; /* master/copies.h */

/* Danger of a file: 0, or 1 + copies left if these are fewer than its rules
 * want. */
#define MASTER_SAFE 0u
#define MASTER_DANGERS 5u /* safe; 0, 1, 2, 3 or more copies are left */

/* Attributes that few names have, allocated on demand. */
struct master_extra {
	struct pool_rules rules;  /* its own, not inherited */
	struct master_need *need; /* borrows: a copy wanted or in flight */
	struct pool_xattrs *xattrs; /* owns */
};

struct master_file {
	struct pool_entry e; /* first */
	struct master_item item;
	uint64_t gen;
	uint64_t attr_gen; /* see Meta.attr_gen */
	uint64_t size;
	uint64_t mtime_ns;
	struct master_extra *extra; /* owns; NULL: none of it is set */
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
	uint8_t had_older;   /* nodes may hold older generations */
	uint8_t was_dir : 1; /* the name was a directory until recently:
				subscribers may not know of its removal yet */
	uint8_t unsure : 1;  /* extra holders may be dead: not sent to nodes */
	uint8_t evicted : 1; /* its last copy was evicted */
	uint8_t was_deleted : 1; /* the name had a tombstone when made */
	uint8_t danger;	     /* as last counted in map.endangered */
};

struct master_dir {
	struct pool_dir d; /* first */
	struct master_item item;
	uint64_t mtime_ns;
	struct master_extra *extra; /* owns */
	uint32_t uid, gid;
	uint32_t payer; /* uid whose quota it counts against; unused for the
			   root */
	uint16_t mode;
	uint8_t made;	  /* by MKDIR or SETATTR: has a record in the state */
	/* the grave of a file that had this name before, or NULL. Subscribers
	 * may still show the file. Owns; in none of the map's lists */
	struct master_grave *file;
	/* the root: attributes set by a user (pool/model/root.h) */
	uint16_t set;
	uint16_t top; /* of the root: its number in map.tops; else unused */
};

struct master_grave {
	struct master_item item;
	struct pool_hash_node hash;
	struct pool_list age; /* in map.tombs or map.ghosts, oldest first */
	struct pool_list own; /* tombstone in map.tombs: in owner->tombs */
	struct master_owner *owner; /* borrows; tombstone in map.tombs: the
				     * owner that has `account` */
	uint64_t gen;	      /* tombstone: copies up to this one are dead */
	uint64_t last_gen;    /* the file's generation when it was removed; may
				 be below, equal to or above gen */
	uint64_t last_sum;    /* first 8 bytes of the checksum of last_gen; 0:
				 unknown */
	uint64_t wall_ns;     /* time of removal */
	/* Join.ops_run and Op.ticket of the UNLINK; 0: unknown. blind: by_run
	 * is master_blind_id of the publisher. */
	uint64_t by_run, by_ticket;
	uint8_t tomb;	      /* tombstone; else ghost */
	uint8_t is_dir : 1; /* the name was a directory; if it was a file,
			       too, master_grave_upto is not 0 */
	uint8_t evicted : 1; /* last_gen was evicted; else deleted, or its
				holders died */
	uint8_t blind : 1; /* a blind write's record: master_keep_blind */
	uint8_t former : 1; /* of a former owner; in map.formers, no feed */
	uint8_t given : 1; /* only with `former`: he gave the file away by
			      chown, so copies of its current generation may
			      still be his */
	uint16_t path_len;
	uint32_t uid; /* of the file's owner, or MASTER_UID_ANYONE */
	struct master_account account; /* it counts against this one */
	char path[];
};

/* The generation up to which the feed reports a file of that name as deleted;
 * 0: there was none. */
static inline uint64_t master_grave_upto(const struct master_grave *g)
{
	return g->gen > g->last_gen ? g->gen : g->last_gen;
}

struct master_map {
	struct pool_tree tree;
	struct master_feed feed;
	struct pool_hash graves;
	struct pool_hash formers; /* by name and owner; by name if `given` */
	struct pool_list tombs, ghosts;
	struct master_owners owners; /* of tombs */
	uint64_t ntombs /* with formers */, nghosts, nfiles, ndirs, bytes;
	uint64_t tomb_bytes, ghost_bytes; /* of the graves, paths included */
	uint64_t nbelow; /* tombstones that belong to directories */
	uint64_t nremade; /* files with was_deleted */
	uint64_t pinned[POOL_PIN_HARD + 1]; /* files by effective pin */
	uint64_t endangered[MASTER_DANGERS]; /* files by danger */
	uint64_t tombs_max, ghosts_max;
	struct pool_quota quota; /* of directories and xattrs */
	struct master_tops tops; /* sums by directory of the root */
	/* Called before a tombstone is forgotten; may be NULL. */
	void (*forgetting)(void *arg, const struct master_grave *g);
	/* Called when a grave of a former owner is added or covers more
	 * generations, to record it in the state. May be NULL. */
	void (*disowned)(void *arg, const struct master_grave *g);
	void *arg; /* of both */
	uint64_t nforgotten; /* graves, for the metrics */
	uint64_t holders_full; /* holders refused: MASTER_HOLDERS_MAX */
};

struct master_attrs {
	/* for a new file: the generation of the copy that a node reports
	 * (INVENTORY); 0: the file will get a new generation */
	uint64_t gen;
	uint64_t mtime_ns;
	uint32_t uid, gid;
	uint16_t mode;
};

/* 0 or -ENOMEM. */
int master_map_init(struct master_map *m, uint64_t tombs_max,
		    uint64_t ghosts_max);
void master_map_fini(struct master_map *m);
/* The same, a slice of about `max` names a call: true as long as there are
 * more. After the first call only this function may be used on the map. */
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

/* The sums that e counts in: those of the directory of the root above it. */
struct master_top *master_map_top(struct master_map *m,
				  const struct pool_entry *e);
/* NULL if there is no file of that name. */
struct master_file *master_map_file(struct master_map *m, const char *path,
				    size_t len);
/* NULL if there is no directory of that name; "" is the root. */
struct master_dir *master_map_dir(struct master_map *m, const char *path,
				  size_t len);
/*
 * The file of that name. If it does not exist, it is made with its parents:
 * generation 0, no holders, attributes as given, not yet in the feed (the
 * caller touches it). 0, -ENOMEM, -EINVAL, -EISDIR (it is a directory),
 * -ENOTDIR.
 */
int master_map_make_file(struct master_map *m, const char *path, size_t len,
			 const struct master_attrs *attrs,
			 struct master_file **ret_file, bool *ret_made);
/* The same for a directory, which is put in the feed. Only a new one takes the
 * attributes given. -ENOTDIR if the name or a parent is a file. */
int master_map_make_dir(struct master_map *m, const char *path, size_t len,
			const struct master_attrs *attrs,
			struct master_dir **ret_dir, bool *ret_made);
/* The entry has changed: moves it to the end of the feed. */
void master_map_touch_file(struct master_map *m, struct master_file *f);
void master_map_touch_dir(struct master_map *m, struct master_dir *d);
void master_file_set_size(struct master_map *m, struct master_file *f,
			  uint64_t size);
/* Set the mtime, and the sums that it counts in. */
void master_file_set_mtime(struct master_map *m, struct master_file *f,
			   uint64_t ns);
/* Count the file under another effective pin. */
void master_file_set_pin(struct master_map *m, struct master_file *f,
			 enum pool_pin pin);
/* Count the file under another danger. */
void master_file_set_danger(struct master_map *m, struct master_file *f,
			    unsigned int danger);

/*
 * Remove a file. tomb_gen != 0: it leaves a tombstone of that generation. 0: it
 * leaves a ghost, or, if it had older generations, a tombstone for these.
 * f->extra->need must be NULL. 0 (f is freed), or -ENOMEM: nothing changed.
 */
int master_map_remove_file(struct master_map *m, struct master_file *f,
			   uint64_t tomb_gen, uint64_t wall_ns);
/* 0, -ENOTEMPTY, -EBUSY (the root), -ENOMEM. */
int master_map_remove_dir(struct master_map *m, struct master_dir *d,
			  uint64_t wall_ns);

/* ---- graves ---- */

struct master_grave *master_map_grave(struct master_map *m, const char *path,
				      size_t len);
/* The same, also of a file whose name is a directory now. */
struct master_grave *master_map_grave_below(struct master_map *m,
					    const char *path, size_t len);
/* Make a tombstone for a name that is no file, or raise the existing one to
 * gen. uid: the owner of the dead copies. 0, -ENOMEM. */
int master_map_add_tomb(struct master_map *m, const char *path, size_t len,
			uint32_t uid, uint64_t gen, uint64_t wall_ns);
/* The same for a name whose generation `gen` was evicted: a tombstone for the
 * generations below it. */
int master_map_add_evicted(struct master_map *m, const char *path, size_t len,
			   uint32_t uid, uint64_t gen, uint64_t wall_ns);
/* At most this many graves of a name are `given`, because each deletion of the
 * name changes all of these. Further graves are not `given`. */
#define MASTER_GIVEN_MAX 16
/* The file was given away (chown); uid is its former owner. Copies of its
 * current generation may still be his until it is deleted. Returns the former
 * owner's grave; NULL: nothing changed. */
struct master_grave *master_map_disown(struct master_map *m,
				       const struct master_file *f,
				       uint32_t uid, uint64_t wall_ns);
/* Copies of the name up to gen that belonged to uid, a former owner, are dead.
 * given: see struct master_grave. Returns as master_map_disown does. If the
 * grave cannot be allocated, it counts as a forgotten tombstone of account. */
struct master_grave *master_map_add_former(struct master_map *m,
					   const char *path, size_t len,
					   uint32_t uid,
					   struct master_account account,
					   uint64_t gen, bool given,
					   uint64_t wall_ns);
/* The grave of this former owner of the name, or NULL. */
struct master_grave *master_map_former(struct master_map *m, const char *path,
				       size_t len, uint32_t uid);
/* Is generation gen dead, if it belonged to uid, a former owner of the name? */
bool master_map_former_dead(struct master_map *m, const char *path, size_t len,
			    uint32_t uid, uint64_t gen);
/* Move a tombstone, made just now, to another account. */
void master_map_charge(struct master_map *m, struct master_grave *g,
		       struct master_account account);
/* Forget at most `max` graves: those beyond the bounds, and tombstones older
 * than before_wall_ns. Returns how many. */
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
/* This holder may be dead: makes its copy an extra one and sets `unsure`, until
 * a node confirms a counted copy (master_file_add_holder). */
void master_file_doubt_holder(struct master_file *f, unsigned int pos);
/*
 * Add a holder, or confirm it in h's phase. 1: added; 0: it was known (a
 * counted copy stays counted); -ENOSPC (counted in holders_full), -ENOMEM.
 */
int master_file_add_holder(struct master_map *m, struct master_file *f,
			   master_holder h);
/* By position; the last holder takes that position. */
void master_file_remove_holder(struct master_file *f, unsigned int pos);
void master_file_clear_holders(struct master_file *f);

/* ---- attributes and rules ---- */

/* *slot's struct, allocated if needed; NULL: ENOMEM. */
struct master_extra *master_extra_get(struct master_extra **slot);
/* Frees the struct if all of it is empty. */
void master_extra_trim(struct master_extra **slot);
/*
 * Replace the xattrs and the rules among them. Takes ownership of xattrs (NULL:
 * none). 0, or -ENOMEM: nothing changed, and the caller keeps xattrs.
 */
int master_extra_set(struct master_extra **slot, struct pool_xattrs *xattrs,
		     const struct pool_rules *rules);
/* Update the quota after a change of e's owner or xattrs. */
void master_map_account(struct master_map *m, struct pool_entry *e);
/* The file's effective rules: its own, then inherited ones, then defaults. A
 * soft pin that has expired counts as none. */
void master_file_rules(const struct master_file *f, uint64_t now_wall_ns,
		       struct pool_rules *ret_rules);

/* For tests: every count, link and bound, asserted. */
void master_map_check(struct master_map *m);

#endif
