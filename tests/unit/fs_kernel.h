/*
 * A simulated kernel: a mount whose /dev/fuse is a socket of this process.
 * Tests send requests and look at the answers and at what the kernel is
 * notified of; there is no mount, and the machine's kernel need not support
 * what is tested. fs/ and all below it, a master and a second node are real.
 *
 * Of the kernel's own rules it keeps, and asserts at each answer:
 *   - a nodeid that is open in passthrough mode is answered with the same
 *     backing id, and in no other mode, as long as it is (else EIO);
 *   - a nodeid that is not known (no look-up count left) is never used;
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

/* An answer; 0 or an errno, and what came with it. */
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

/* An open file of a program's. */
struct k_file {
	uint64_t nodeid, fh;
	uint32_t flags, open_flags; /* asked for; answered */
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
	bool hears_not; /* whoever asks next has been killed meanwhile: what
			   would be the answer is refused, as by Linux */
	uint32_t tid; /* of the thread that asks */
	uint32_t uid, gid;
	uint64_t unique;
	struct k_reply *replies[K_UNIQUE]; /* owns */
	struct k_inode inodes[K_INODES];
	int backing[K_FILES]; /* descriptors by backing id; 0: none */
	pthread_mutex_t lock; /* of the notes, as of what follows */
	pthread_cond_t changed;
	bool locked; /* the directories: no dentry is invalidated */
	bool waiting; /* for that lock, a notification */
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

/* The keeper's memfd of the mounts that are set up next; 0: no keeper. */
extern int k_kept_fd;

/* cmocka fixtures: a master, a node and its mount in that data mode. */
int k_setup_passthrough(void **state);
int k_setup_served(void **state);
/* A test in both modes, for cmocka's list. */
#define both(test)                                                      \
	{ #test " (passthrough)", test, k_setup_passthrough, k_teardown, \
	  NULL },                                                       \
	{ #test " (served)", test, k_setup_served, k_teardown, NULL }
/* The kernel forgets everything, and nothing may be left; ends it all. */
int k_teardown(void **state);
/* The second node, a store with a mirror. */
void k_start_other(struct world *w);
/* Invariants of the inodes (fs/fs_priv.h); called after each answer, too. */
void k_check(struct world *w);
/* Handles with a number: open daemon-served files and directories. */
unsigned int k_handles(struct world *w);

/* ---- requests as they are ---- */

/* Sent; its number. in: the request's struct, or NULL; then the names. */
uint64_t k_send(struct world *w, uint32_t opcode, uint64_t nodeid,
		const void *in, size_t in_len, const char *name,
		const char *name2);
/* The answer to it, waited for; borrowed until the end. */
const struct k_reply *k_wait(struct world *w, uint64_t unique);
bool k_answered(struct world *w, uint64_t unique);
/* The answer to an OPEN or CREATE as a file: 0 or an errno. */
int k_opened(struct world *w, uint64_t nodeid, uint32_t flags,
	     const struct k_reply *r, struct k_file *ret);

/* ---- what programs do: 0 or an errno ---- */

/* Counts the look-up. nodeid 0 in a good answer: a miss that is remembered. */
int k_lookup(struct world *w, uint64_t dir, const char *name,
	     uint64_t *ret_nodeid);
int k_getattr(struct world *w, uint64_t nodeid, struct fuse_attr *ret);
int k_open(struct world *w, uint64_t nodeid, uint32_t flags,
	   struct k_file *ret);
/* In the root, as open(2) does it: looked up anew after ESTALE, once. */
int k_open_name(struct world *w, const char *name, uint32_t flags,
		struct k_file *ret);
int k_create(struct world *w, uint64_t dir, const char *name, uint32_t flags,
	     struct k_file *ret);
/* Whole, or the test fails. */
void k_write(struct world *w, const struct k_file *f, const char *text,
	     uint64_t offset);
/* Up to size bytes from the start; their number. */
size_t k_read(struct world *w, const struct k_file *f, char *buf, size_t size);
/* The file has exactly these bytes. */
void k_expect(struct world *w, const struct k_file *f, const char *text);
/* What open(2) and read(2) of the name find. */
void k_expect_name(struct world *w, const char *name, const char *text);
/* Claims all the room that the store has but so much; what it claimed, for
 * pool_node_claim_end. */
uint64_t k_claim_all_but(struct world *w, uint64_t bytes);
/* close(2): FLUSH where it is asked for, RELEASE. */
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

/* A file of the root with this content, closed, published; it stays looked up
 * (its nodeid). */
uint64_t k_publish(struct world *w, const char *name, const char *text);
/* The same by the other node, until node 0 knows of it. */
void k_publish_elsewhere(struct world *w, const char *name, const char *text);
/* Shown by node 0, published and with nothing newer here? */
bool k_published(struct world *w, const char *name);

/* Somebody holds the locks of all directories, or no longer does. */
void k_lock(struct world *w, bool on);
/* Does a notification wait for such a lock? */
bool k_waiting(struct world *w);
/* How often were all dentries expired? */
unsigned int k_epochs(struct world *w);
/* How often was the kernel told to look the name in this directory up anew; or
 * (name NULL) that the file's attributes and pages are out of date? */
unsigned int k_noted(struct world *w, uint64_t nodeid, const char *name);

#endif
