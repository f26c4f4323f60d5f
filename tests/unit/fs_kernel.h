/*
 * A simulated kernel: /dev/fuse is a socket of this process. Tests send
 * requests, and examine the replies and the notifications. Nothing is mounted,
 * and the machine's kernel need not support what is tested. fs/ and all layers
 * below it, a master and a second node are real.
 *
 * With each reply it asserts these rules of the real kernel:
 *   - while a nodeid is open in passthrough mode, every OPEN of it is answered
 *     in that mode and with the same backing id (otherwise Linux returns EIO);
 *   - a nodeid whose lookup count is 0 is never used;
 *   - each request is answered once.
 *
 * Linked with -Wl,--wrap for what would need a mount (fs_kernel.c lists them).
 * Thread: the test's, which runs the loop while it waits; notifications come
 * from fs/'s notifier, under `lock`.
 */
#ifndef TESTS_FS_KERNEL_H
#define TESTS_FS_KERNEL_H

#include "fs/fs_priv.h"
#include "master/server.h"
#include "pool/node/node.h"
#include "tests/lib/unit.h"

#define K_NODES 2    /* node 0 has the mount */
#define K_INODES 256 /* nodeids that one test may see */
#define K_UNIQUE 4096 /* requests of one test */
#define K_NOTES 1024
#define K_FILES 256 /* backing files */

/* A reply: 0 or an errno, and its payload. */
struct k_reply {
	int err;
	size_t len;
	union {
		struct fuse_entry_out entry;
		struct fuse_attr_out attr;
		struct fuse_open_out open;
		struct {
			struct fuse_entry_out entry;
			struct fuse_open_out open;
		} create;
		struct fuse_write_out write;
		char bytes[1];
	};
};

/* A file that the simulated program has open. */
struct k_file {
	uint64_t nodeid, fh;
	uint32_t flags, open_flags; /* of the OPEN; of the reply (FOPEN_*) */
	int fd; /* of the backing file, as the kernel has it; -1: served */
};

struct k_inode { /* by the lower half of the nodeid */
	uint64_t nodeid, nlookup;
	unsigned int through, served; /* open handles, by mode */
	uint32_t backing;	      /* of those in passthrough mode */
};

struct k_note {
	uint64_t nodeid; /* of the directory, or of the file itself */
	char name[POOL_NAME_MAX + 1]; /* "": the file */
};

struct kernel {
	int fd;	    /* our end of the device */
	int dev_fd; /* the mount's, which libfuse closes */
	bool offers_passthrough;
	bool caller_killed; /* of the next request, before it gets the
			     reply: writing it fails with ENOENT, as by Linux */
	uint32_t tid; /* of the thread that sends requests */
	uint32_t uid, gid;
	uint64_t unique;
	struct k_reply *replies[K_UNIQUE]; /* owns */
	struct k_inode inodes[K_INODES];
	int backing[K_FILES]; /* descriptors by backing id; 0: none */
	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t changed;
	bool locked; /* all directories: invalidating a dentry blocks */
	bool waiting; /* a notification is blocked by that */
	struct k_note notes[K_NOTES];
	unsigned int nnotes;
	unsigned int epochs; /* times that all dentries were expired */
	unsigned int aborts; /* of the connection */
};

struct world {
	char *top; /* owns */
	uv_loop_t loop;
	struct kernel k;
	struct fs *fs;
	struct master *master;
	struct pool_metrics *master_metrics;
	struct {
		struct pool_node *node; /* NULL: not started */
		struct pool_metrics *metrics;
		char dir[128], name[16];
	} m[K_NODES];
	struct pool_node_opts opts;
};

#define k_until(w, cond) unit_run_until(&(w)->loop, cond)

/* The keeper's memfd for mounts that are set up from now on; 0: no keeper. */
extern int k_kept_fd;

/* cmocka fixtures: a master, a node and its mount in that data mode. */
int k_setup_passthrough(void **state);
int k_setup_served(void **state);
/* A test in both modes, for cmocka's list. */
#define both(test)                                                      \
	{ #test " (passthrough)", test, k_setup_passthrough, k_teardown, \
	  NULL },                                                       \
	{ #test " (served)", test, k_setup_served, k_teardown, NULL }
/* Sends FORGET for all nodeids, asserts that no inode is left, and closes
 * everything. */
int k_teardown(void **state);
/* Starts the second node, a store with a mirror. */
void k_start_other(struct world *w);
/* Asserts the invariants of inodes (fs/fs_priv.h); also called after each
 * reply. */
void k_check(struct world *w);
/* Number of handles that have state in the daemon: daemon-served files, and
 * directories. */
unsigned int k_handles(struct world *w);

/* ---- single requests ---- */

/* Sends a request and returns its unique. in: the struct of the request's body,
 * or NULL; the names follow it. */
uint64_t k_send(struct world *w, uint32_t opcode, uint64_t nodeid,
		const void *in, size_t in_len, const char *name,
		const char *name2);
/* Waits for the reply. Borrowed until k_teardown. */
const struct k_reply *k_wait(struct world *w, uint64_t unique);
bool k_answered(struct world *w, uint64_t unique);
/* Makes a file of the reply to an OPEN or CREATE: 0 or its errno. */
int k_opened(struct world *w, uint64_t nodeid, uint32_t flags,
	     const struct k_reply *r, struct k_file *ret);

/* ---- system calls of programs: 0 or an errno ---- */

/* Adds to the lookup count. 0 with nodeid 0: a negative dentry. */
int k_lookup(struct world *w, uint64_t dir, const char *name,
	     uint64_t *ret_nodeid);
int k_getattr(struct world *w, uint64_t nodeid, struct fuse_attr *ret);
int k_open(struct world *w, uint64_t nodeid, uint32_t flags,
	   struct k_file *ret);
/* open(2) of a name in the root: after ESTALE, one more LOOKUP and OPEN. */
int k_open_name(struct world *w, const char *name, uint32_t flags,
		struct k_file *ret);
int k_create(struct world *w, uint64_t dir, const char *name, uint32_t flags,
	     struct k_file *ret);
/* Writes all of text, or the test fails. */
void k_write(struct world *w, const struct k_file *f, const char *text,
	     uint64_t offset);
/* Reads up to size bytes from offset 0; returns their number. */
size_t k_read(struct world *w, const struct k_file *f, char *buf, size_t size);
/* Asserts that the file has exactly these bytes. */
void k_expect(struct world *w, const struct k_file *f, const char *text);
/* The same for a name, which it opens. */
void k_expect_name(struct world *w, const char *name, const char *text);
/* Claims the store's free space except this many bytes. Returns the number of
 * bytes claimed, for pool_node_claim_end. */
uint64_t k_claim_all_but(struct world *w, uint64_t bytes);
/* close(2): FLUSH, unless FOPEN_NOFLUSH, and RELEASE. */
void k_close(struct world *w, struct k_file *f);
int k_unlink(struct world *w, uint64_t dir, const char *name);
int k_rename(struct world *w, uint64_t dir, const char *name, uint64_t newdir,
	     const char *newname, uint32_t flags);
int k_mkdir(struct world *w, uint64_t dir, const char *name,
	    uint64_t *ret_nodeid);
int k_rmdir(struct world *w, uint64_t dir, const char *name);
int k_truncate(struct world *w, uint64_t nodeid, uint64_t size);
int k_fsyncdir(struct world *w, uint64_t nodeid);
void k_forget(struct world *w, uint64_t nodeid, uint64_t n);
void k_interrupt(struct world *w, uint64_t unique);

/* Creates a file in the root, and waits until it is published. Returns its
 * nodeid, which keeps a lookup count. */
uint64_t k_publish(struct world *w, const char *name, const char *text);
/* The same on the other node; waits until node 0 knows of it. */
void k_publish_elsewhere(struct world *w, const char *name, const char *text);
/* Does node 0 show the name, published, and with no newer file of its own? */
bool k_published(struct world *w, const char *name);

/* Takes or releases the locks of all directories. */
void k_lock(struct world *w, bool on);
/* Is a notification blocked by such a lock? */
bool k_waiting(struct world *w);
/* How often were all dentries expired? */
unsigned int k_epochs(struct world *w);
/* How often was this name's dentry invalidated; or, with name NULL, the
 * attributes and pages of the file `nodeid`? */
unsigned int k_noted(struct world *w, uint64_t nodeid, const char *name);

#endif
