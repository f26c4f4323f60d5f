/*
 * Names: the entries and directories of the mirror, their attributes and rules.
 */
#ifndef POOL_NODE_ENTRY_H
#define POOL_NODE_ENTRY_H

#include "pool/node/node.h"
#include "pool/model/evict.h"

#define NODE_HOLDERS_INLINE 4 /* holders remembered per name */
#define NODE_HIDES_ANY (UINT64_MAX - UINT16_MAX) /* see hidden_gen */

struct node_entry {
	struct pool_entry e;
	uint64_t gen; /* published generation, 0: not published */
	uint64_t size;
	XXH128_hash_t sum;
	struct node_attr attr;
	uint8_t nholders; /* in `holders` */
	uint8_t sweep;	  /* n->sweep of the last picture that had it */
	uint8_t replicas; /* number of holders, as the feed says */
	/* node->stage when an ack or order named it before the feed did: a
	 * picture of that stage keeps it even if it lacks it (feed.c). 0: the
	 * feed has named it */
	uint8_t ahead;
	/* Generations <= this are hidden here, because they were unlinked.
	 * An UNLINK of any generation hides all: while N of these are in
	 * flight, this is UINT64_MAX - (N - 1) (a counter that counts down from
	 * UINT64_MAX), and >= NODE_HIDES_ANY */
	uint64_t hidden_gen;
	struct pool_xattrs *xattrs; /* owns */
	struct node_object *obj;    /* owns a ref, or NULL. Set by node_set_obj
				     */
	struct node_object *own;    /* owns a ref, or NULL */
	struct node_fetch *fetch;   /* in flight, or NULL; borrows */
	void *fs;		    /* the mount's inode of the name; borrows */
	uint16_t holders[NODE_HOLDERS_INLINE]; /* node indices */
};

/* Sizes of files written below a directory: they predict what to reserve. */
struct node_learn {
	uint64_t last, largest;
	uint32_t count;
	uint32_t varied; /* > 0: the last few sizes differed */
};

struct node_dirent {
	struct pool_dir d;
	struct node_attr attr;
	struct pool_xattrs *xattrs; /* owns */
	struct pool_rules rules;    /* parsed from xattrs; not inherited ones */
	struct node_learn learn;
	void *fs;
	/* Set when an entry is made or removed here, and shown instead of
	 * attr.mtime_ns; 0: attr's. */
	uint64_t mtime_ns;
	uint64_t ctime_ns; /* last change here; 0: as mtime */
	uint32_t ngone; /* subdirectories with `gone` set */
	uint8_t sweep;	/* as node_entry.sweep */
	uint8_t ahead;	/* as node_entry.ahead; set by the ack of an MKDIR */
	bool known;	/* the master knows it, or a name below it */
	/* removed, here or in the pool, and not shown. Stays in the tree while
	 * hidden names are below it, an RMDIR of it is in flight, or the mount
	 * has its inode (node_dir_tidy) */
	bool gone;
	/* removed in the pool, but still shown, because an unpublished file of
	 * this mount is below it; `gone` once there is none */
	bool leaving;
	/* the last pass of node_publish_sealed (node->pass) that found a file
	 * of this directory still being sealed: its later files wait */
	uint32_t pass;
	bool counted;	/* in pool_node.quota, in the account of `payer` */
	uint8_t reach;	  /* enum pool_reach of its path for node->self */
	/* Changes in flight, up to NODE_OPS_MAX. */
	uint32_t removing; /* RMDIRs: it counts as removed */
	uint32_t making;   /* MKDIRs: it counts as existing */
	uint32_t payer;
	/* -errno: a file in it was lost after its close, or the master refused
	 * a change (quota). The next fsync reports that and clears it */
	int lost;
};

/* Other threads read whether there is one (pool_node_where). */
static inline void node_set_obj(struct node_entry *e, struct node_object *o)
{
	__atomic_store_n(&e->obj, o, __ATOMIC_RELAXED);
}

/* ---- entry.c: names and their rules ---- */

/* The path from the root into buf (POOL_PATH_MAX + 1 bytes); its length, or
 * -ENAMETOOLONG. */
int node_entry_path(const struct pool_entry *e, char *buf);
/* Can dir have an entry of this name? 0, -EINVAL, or -ENAMETOOLONG (the name,
 * or its path). */
int node_name_check(const struct node_dirent *dir, const char *name,
		    size_t len);
/* pool_tree_add and pool_tree_make, while no other thread reads (opts.names).
 */
struct pool_entry *node_tree_add(struct pool_node *n, struct node_dirent *dir,
				 const char *name, size_t len, bool is_dir);
int node_tree_make(struct pool_node *n, const char *path, size_t len,
		   bool is_dir,
		   void (*on_add)(struct pool_entry *e, void *arg), void *arg,
		   struct pool_entry **ret_entry);
/* Is the name in a namespace of this node, a namespace itself, or above one?
 * Other names are here only because the master ordered copies of them. As in a
 * store without a mount, they are not shown, and the feed does not bring them.
 */
bool node_is_ours(const struct pool_entry *e);
/* May names in dir be made, changed and removed? 0 or -EACCES. */
int node_may_change_in(const struct node_dirent *dir);
/* May attributes of e be changed? Also of a namespace itself. 0 or -EACCES. */
int node_may_set(const struct pool_entry *e);
/* Does the certificate speak for uid, so that files and directories of this
 * user can be made and published? 0 or -EACCES. */
int node_may_own(const struct pool_node *n, uint32_t uid);
/* Hides published generations <= gen; 0 hides none. */
void node_hide(struct pool_node *n, struct node_entry *e, uint64_t gen);
/* e has no published state any more. */
void node_unpublish(struct pool_node *n, struct node_entry *e);
void node_dir_gone(struct pool_node *n, struct node_dirent *d, bool gone);
/* Charges e (if a directory) and its xattrs to its owner's quota. Call it after
 * each change of what e shows, of its owner or its xattrs; an extra call does
 * no harm. */
void node_account(struct pool_node *n, struct pool_entry *e);
/* May uid have this many more directories, and `xattrs` instead of `old`? 0,
 * -EDQUOT, -ENOSPC. */
int node_admit(struct pool_node *n, uint32_t uid, unsigned int dirs,
	       const struct pool_xattrs *old, const struct pool_xattrs *xattrs);
/* The master knows d, or a name in it: marks d and the directories above as
 * known to it. */
void node_make_dirs_known(struct pool_node *n, struct pool_dir *d);
/* Sets d->rules from its attributes. Returns whether a rule that node_judge
 * uses has changed. */
bool node_dir_rules(struct node_dirent *d);
/* Removes the entry if nothing refers to it; then its directory and those above
 * if they are gone and empty, or leaving and show nothing. */
void node_entry_tidy(struct pool_node *n, struct node_entry *e);
void node_dir_tidy(struct pool_node *n, struct node_dirent *d);
/* Is no name below visible? The hidden ones are being removed at the master. */
bool node_dir_empty(struct node_dirent *dir);
/* The master does not have d any more: removes d, unless something below is
 * visible. If hidden names or unpublished files of this mount are left in it, d
 * is removed with the last of these. */
void node_dir_remove(struct pool_node *n, struct node_dirent *d);

/* ---- change.c: one change of attributes ---- */

/* As a SETATTR carries it. */
struct node_change {
	unsigned int set; /* POOL_SET_* bits */
	struct node_attr attr;
	/* POOL_SET_XATTRS: they replace all; _XATTR_EACH: only these are set */
	struct pool_xattrs *xattrs;
	const char *remove; /* _XATTR_EACH: this one is removed; NULL: none */
};
/* node_change_set applies mode, owner and times of c, node_change_apply all of
 * c: 0 or -ENOMEM. */
void node_change_set(struct node_attr *a, const struct node_change *c);
int node_change_apply(const struct node_change *c, struct node_attr *a,
		      struct pool_xattrs **x);
/* Makes a copy that owns what it points to: 0 or -ENOMEM. _free frees that. */
int node_change_dup(const struct node_change *c, struct node_change *ret_copy);
void node_change_free(struct node_change *c);

/* ---- learn.c: sizes to expect ---- */

void node_learn_size(struct pool_node *n, struct node_entry *e, uint64_t size);
/* Bytes to reserve for a new file in dir; 0: unknown. */
uint64_t node_learn_predict(struct pool_node *n, struct node_dirent *dir);
/* A name under which engines write before they rename ("Publication" in
 * kvpool(7)). */
bool node_name_is_temporary(const char *name, size_t len);

/* ---- attr.c ---- */

/* Sets both from m, with unacked changes applied on top. 1: what is shown has
 * changed; 0; or -ENOMEM: nothing was changed. */
int node_attr_update(struct pool_node *n, struct node_attr *a,
		     struct pool_xattrs **x, const Kvpool__Meta *m);

#endif
