/*
 * The namespace: a tree of directories and names, as the master keeps it and
 * as every mount mirrors it.
 *
 * Entries are found by (parent, name) in one hash table, and linked below
 * their directory in order of creation for listing. The user of a tree embeds
 * struct pool_entry at the START of its own file entry and struct pool_dir at
 * the START of its own directory entry; the tree allocates them (zeroed, and
 * followed by the name) and frees them.
 *
 * Memory, per file: the user's struct + name + 16 bytes of bucket and malloc,
 * and the directory's marks (marks.h).
 *
 * Thread: any; the caller serialises access to one tree (here: loop).
 *
 *   root (pool_dir) --children--> pool_entry | pool_dir --children--> ...
 */
#ifndef POOL_MODEL_TREE_H
#define POOL_MODEL_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/base/hash.h"
#include "pool/base/list.h"

#define POOL_NAME_MAX 255
#define POOL_PATH_MAX 4096 /* bytes of a whole path, without a final NUL */

struct pool_dir;
struct pool_marks; /* pool/model/marks.h */

struct pool_entry {
	struct pool_hash_node hash;
	uint8_t is_dir;
	uint8_t name_len;  /* 1..255; 0 for the root */
	uint16_t name_off; /* of the name, from the start of the entry */
	uint8_t marked;	   /* is in parent->marks */
	struct pool_dir *parent; /* NULL for the root */
	struct pool_list sibling;
	uint64_t cookie; /* unique in the tree, grows with each add: the
			    directory offset, and good as an inode number */
};

struct pool_dir {
	struct pool_entry e;
	struct pool_list children; /* entries, by sibling; oldest first */
	struct pool_marks *marks; /* owns; NULL: few children, or no memory */
	uint64_t nchildren; /* files and directories, also those that the tree's
			       user does not show (of a node: hidden names) */
	uint64_t ndirs; /* of these, directories */
	uint64_t nremoved; /* children that were removed so far */
};

struct pool_tree {
	struct pool_hash hash;
	struct pool_list walks; /* open pool_tree_walk */
	struct pool_dir *root;	/* owns */
	size_t file_size, dir_size;
	uint64_t next_cookie;
};

/*
 * file_size and dir_size are the sizes of the user's structs. 0 or -ENOMEM.
 */
int pool_tree_init(struct pool_tree *t, size_t file_size, size_t dir_size);
/*
 * Frees every entry, the root too, children before their directory. free_cb
 * (may be NULL) is called before each is freed, so that the user can release
 * what its part of the entry owns. No walk may be open.
 */
void pool_tree_fini(struct pool_tree *t,
		    void (*free_cb)(struct pool_entry *e, void *arg),
		    void *arg);
/* The same for at most max entries. Returns whether more are left. After the
 * first call look-ups find nothing, and no name may be added. */
bool pool_tree_fini_some(struct pool_tree *t, size_t max,
			 void (*free_cb)(struct pool_entry *e, void *arg),
			 void *arg);

/* The name is not NUL-terminated: name_len bytes. */
const char *pool_entry_name(const struct pool_entry *e);
static inline struct pool_dir *pool_entry_dir(struct pool_entry *e)
{
	return e->is_dir ? (struct pool_dir *)(void *)e : NULL;
}

/* NULL if there is no such name. */
struct pool_entry *pool_tree_find(const struct pool_tree *t,
				  const struct pool_dir *dir, const char *name,
				  size_t len);
/* The same for n names of one directory, in the same order in ret. The memory
 * accesses of these look-ups overlap. In a tree much larger than the CPU's
 * caches they are a few times as fast as n calls of pool_tree_find. */
struct pool_tree_name {
	const char *name;
	size_t len;
};
void pool_tree_find_many(const struct pool_tree *t, const struct pool_dir *dir,
			 const struct pool_tree_name *names, size_t n,
			 struct pool_entry **ret);
/*
 * Add a name that dir does not have. Returns NULL on ENOMEM. name must satisfy
 * pool_name_check().
 */
struct pool_entry *pool_tree_add(struct pool_tree *t, struct pool_dir *dir,
				 const char *name, size_t len, bool is_dir);
/* Unlink and free; a directory must be empty, the root cannot be removed. */
void pool_tree_remove(struct pool_tree *t, struct pool_entry *e);

/*
 * Resolve a path relative to the root ("" is the root; no leading slash).
 * Returns NULL if any component is missing or an inner one is no directory.
 */
struct pool_entry *pool_tree_lookup(const struct pool_tree *t,
				    const char *path, size_t len);
/* How many components of path do not exist. */
size_t pool_tree_missing(const struct pool_tree *t, const char *path,
			 size_t len);
/*
 * As pool_tree_lookup, adding what is missing: inner components as
 * directories, the last as a directory if is_dir. on_add (may be NULL) is
 * called for each entry added, outermost first. On success *ret_entry is the
 * entry, which may have existed before.
 * Returns 0; -EISDIR or -ENOTDIR if an entry is of the other kind; -ENOMEM; or
 * an error of pool_path_check. After an error, directories added so far stay.
 */
int pool_tree_make(struct pool_tree *t, const char *path, size_t len,
		   bool is_dir,
		   void (*on_add)(struct pool_entry *e, void *arg), void *arg,
		   struct pool_entry **ret_entry);
/*
 * Write the path of e into buf (cap >= POOL_PATH_MAX + 1), NUL-terminated.
 * Returns its length ("" for the root), or -ENAMETOOLONG.
 */
int pool_tree_path(const struct pool_entry *e, char *buf, size_t cap);

/*
 * The entry after e when the whole tree is walked from the root: a directory
 * before its contents, siblings from the oldest. NULL at the end. Between the
 * calls, entries may be added below or after e; nothing else may change.
 */
struct pool_entry *pool_tree_next(const struct pool_tree *t,
				  struct pool_entry *e);

/* The oldest child of dir with a greater cookie; NULL: none. O(log n):
 * pool/model/marks.h. */
struct pool_entry *pool_tree_after(const struct pool_dir *dir, uint64_t cookie);

/*
 * Readers walk the children of one directory in cookie order while entries
 * come and go: every entry that existed throughout is returned exactly once,
 * entries added after the open are not (so a listing always ends).
 *
 * A reader is a value in the caller's storage that the tree does not know: it
 * does not slow down additions and removals, and needs no close. After a
 * removal in its directory it finds its place again by the cookie. It must not
 * be used after its directory was removed.
 */
struct pool_tree_reader {
	struct pool_dir *dir;	 /* borrows */
	struct pool_entry *next; /* borrows; valid until a child is removed */
	uint64_t nremoved;	 /* dir->nremoved when next was set */
	uint64_t passed;      /* cookie: all up to this one were returned */
	uint64_t last_cookie; /* highest one that will be returned */
	uint64_t nsteps; /* entries walked to find cookies' places; for tests */
};
void pool_tree_reader_open(const struct pool_tree *t, struct pool_dir *dir,
			   struct pool_tree_reader *r);
/* The entry that the next call of pool_tree_reader_advance passes; NULL: end.
 */
struct pool_entry *pool_tree_reader_peek(struct pool_tree_reader *r);
void pool_tree_reader_advance(struct pool_tree_reader *r);
/* Continue after cookie (0: from the start), up to the same last_cookie. O(1)
 * if the reader is at that place already, else as pool_tree_after. */
void pool_tree_reader_seek(struct pool_tree_reader *r, uint64_t cookie);

/*
 * A walk visits a directory and everything below it, one entry a step, while
 * entries come and go: an entry that existed throughout is returned exactly
 * once (a directory twice: before and after its contents), one that was added
 * meanwhile once or not at all. An entry may be removed as soon as it was
 * returned. The walk is the caller's storage.
 */
struct pool_tree_walk {
	struct pool_list link;
	struct pool_dir *top;	/* borrows */
	/* borrows: the next one to return; the tree updates it when entries are
	 * removed. NULL: the end, or top was removed */
	struct pool_entry *at;
	/* at is a directory, to be returned for the second time */
	bool leaving;
};
void pool_tree_walk_open(struct pool_tree *t, struct pool_dir *top,
			 struct pool_tree_walk *w);
/* The next entry, or NULL at the end. *ret_leaving: it is a directory, returned
 * for the second time. */
struct pool_entry *pool_tree_walk_step(struct pool_tree_walk *w,
				       bool *ret_leaving);
/* No-op for one that is zeroed, or closed. */
void pool_tree_walk_close(struct pool_tree_walk *w);
static inline bool pool_tree_walk_is_open(const struct pool_tree_walk *w)
{
	return w->top != NULL;
}

/* 0, or -EINVAL (empty, ".", "..", '/' or NUL inside), -ENAMETOOLONG. */
int pool_name_check(const char *name, size_t len);
/* Checks each component with pool_name_check, so leading, trailing and double
 * slashes are -EINVAL. "" is -EINVAL, too; more than POOL_PATH_MAX bytes are
 * -ENAMETOOLONG. */
int pool_path_check(const char *path, size_t len);

#endif
