/*
 * The local store: objects as plain files in one directory, best a tmpfs of
 * its own. Knows files, space and sums; knows nothing of names' meaning, of
 * peers or of FUSE.
 *
 * A file is born writable (pool_store_take), is written by whoever has it,
 * and is sealed once (pool_store_seal_start): trimmed to its size, checksummed,
 * its metadata attached as an xattr (trusted.kvpool, or user.kvpool where
 * trusted.* is not allowed). A sealed file never changes; metadata may be
 * replaced whole. After a crash, pool_store_open finds the sealed files again
 * and removes all others.
 *
 * Files are known by a 64-bit id, unique in the store for ever (the file's
 * name is its id in hex); descriptors are opened on demand.
 *
 * Thread: loop, except where work is handed to libuv's workers inside.
 *
 * Space: pool_store_space() tells what the tmpfs says. The tmpfs is larger
 * than `size` by a headroom, so that a write that outgrew its reservation does
 * not fail unseen: falling into its last sixteenth is what `breaches` counts.
 */
#ifndef POOL_STORE_STORE_H
#define POOL_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>
#include <xxhash.h>

#include "pool/base/metric.h"

struct pool_store;

struct pool_store_opts {
	uv_loop_t *loop;
	const char *dir;	/* made if missing, mode 0700 */
	uint64_t size;		/* bytes of objects; > 0 */
	uint64_t object_min;	/* smallest object expected, for nr_inodes; 0:
				   4 KiB */
	bool plain;		/* mount nothing: dir is used as it is */
	bool clients;		/* make POOL_STORE_CLIENTS */
	bool told;		/* plain: the owner tells what its files take
				   (pool_store_use), so none are counted */
	struct pool_metrics *metrics; /* borrows; NULL: none. Not to be printed
					 once the store is closed */
	/* > 0: what pool_store_lock_fd was in the process that is to be taken
	 * over from; the store's from here on, also after an error. Nothing is
	 * looked for, and nothing removed, until pool_store_sweep. */
	int lock_fd;
};

/* What was found at start: called for each sealed file, oldest id first. blob
 * is the metadata given at sealing (borrowed until return). 0: it is kept;
 * -ESTALE: removed; -EBADMSG: quarantined; another -errno: the open fails with
 * that, and all files stay. */
typedef int (*pool_store_found_cb)(void *arg, uint64_t id, uint64_t size,
				   const void *blob, size_t blob_len);

/*
 * Open the store in opts->dir: if the directory is no mount point yet and we
 * may, mount a tmpfs there (size + headroom, nr_inodes, huge=within_size where
 * the kernel's write sizes are respected (Linux >= 6.14 or so: measured, else
 * huge=never; see store/dir.c), mode 0700, noatime); a tmpfs found there is
 * remounted to the size asked for; else the directory is used as it is. Locked
 * against a second user (flock on a file in it: -EBUSY, logged). Sizes beyond
 * what the machine's memory or this process's memory cgroup (v1 or v2) allows
 * are refused with -EDOM, logged with both figures. -ENOSPC: a filesystem whose
 * size is not ours to set has no room for size + headroom, or a tmpfs to be
 * made smaller holds more. -EPERM: the directory is neither this user's nor
 * root's. -ENOTEMPTY: no store, but files in it that are named like objects.
 * Only files with such names are ever removed. What is damaged is quarantined;
 * what cannot be read for want of memory or descriptors makes the open fail:
 * nothing whole is given up. 0 or -errno, logged with the remedy.
 */
int pool_store_open(const struct pool_store_opts *opts,
		    pool_store_found_cb found, void *arg,
		    struct pool_store **ret_store);
/* Waits for workers, which give up (-ECANCELED) to read a file after two
 * seconds. The files stay. The store has no loop handles left when
 * closed(arg) runs, from a later turn. unmount: take the tmpfs away too. */
void pool_store_close(struct pool_store *s, bool unmount,
		      void (*closed)(void *arg), void *arg);

/*
 * What a start that fails after pool_store_open must not leave behind: if that
 * call mounted the tmpfs, take it away again (nothing was put into it yet).
 * Before the loop has run; the process is about to end.
 */
void pool_store_undo(struct pool_store *s);

/* The lock by which a second user is kept out; borrowed. */
int pool_store_lock_fd(const struct pool_store *s);
/* Absolute, without symbolic links. */
const char *pool_store_path(const struct pool_store *s);
/* Work that workers have not ended? */
bool pool_store_busy(const struct pool_store *s);
/* Taken over: remove all files but these, before any is made. ids: ascending.
 */
void pool_store_sweep(struct pool_store *s, const uint64_t *ids, size_t n);

/* 16 random bytes kept in the directory: the node's identity across restarts.*/
const uint8_t *pool_store_id(const struct pool_store *s);

struct pool_space {
	uint64_t size;	   /* as configured (never in the headroom) */
	uint64_t headroom; /* further bytes of tmpfs behind size */
	uint64_t used;	   /* by everything in it, reservations included */
	uint64_t ready;	   /* of these: reserved files that nobody uses yet */
	uint64_t free;	   /* size - used, 0 if breached */
	uint64_t reach;	   /* free and what of the headroom may be used for a
			      short while: all but its last sixteenth */
	uint64_t releasing; /* of these: given up, pages still being freed */
};
/*
 * One statfs(2). In a directory (not opts.told) that shares its filesystem,
 * what neighbours write or free is taken for ours until the next count, a
 * second later at most (later where counting is slow); at once if that leaves
 * less than half or frees much, and counting is quick. Thread: loop.
 */
void pool_store_space(struct pool_store *s, struct pool_space *ret);
/*
 * May data go for what that says? Always in a tmpfs of our own, and with
 * opts.told. Else if hardly anything has changed since the last count, or it
 * has ended just now; if not, a new one is begun, and cb(arg) is called at its
 * end (at the end of any; not after pool_store_close). Thread: loop.
 */
bool pool_store_counted(struct pool_store *s);
void pool_store_on_counted(struct pool_store *s, void (*cb)(void *arg),
			   void *arg);
/* With opts.told: so many bytes more (or less) are used from here on. Thread:
 * loop. */
void pool_store_use(struct pool_store *s, int64_t bytes);
/* Its size alone, without a system call. */
uint64_t pool_store_size(const struct pool_store *s);
/*
 * Number of samples that found less than 1/16 of the headroom free. One is
 * taken every 10 ms while pool_store_sampling is on, and before anything is
 * removed, so that none is missed by what is freed in between. A writer that
 * may outgrow its reservation compares the counts before and after.
 */
uint64_t pool_store_breaches(struct pool_store *s);
void pool_store_sampling(struct pool_store *s, bool on); /* counted on/off */

/* ---- making files ---- */

struct pool_file {
	uint64_t id;
	int fd;		   /* O_RDWR, the taker's to close */
	uint64_t reserved; /* bytes fallocated (KEEP_SIZE), size is 0 */
};
/*
 * A new empty file. With size > 0 only a ready one, reserved for at least size
 * bytes (-EAGAIN if there is none: then a filler is already on its way if the
 * size has been announced); with size == 0 an unreserved one, at once.
 * Never blocks on memory.
 */
int pool_store_take(struct pool_store *s, uint64_t size,
		    struct pool_file *ret_file);
/*
 * A new empty file, reserved here and now: for a burst that has outrun the
 * ready ones. -EAGAIN where that could take more than some 0.2 ms (beyond
 * POOL_MAKE_MAX with large folios, POOL_MAKE_SMALL_MAX without), -ENOSPC where
 * less than an eighth of the store would be free.
 */
#define POOL_MAKE_MAX (32u << 20)
#define POOL_MAKE_SMALL_MAX (512u << 10)
int pool_store_make(struct pool_store *s, uint64_t size,
		    struct pool_file *ret_file);
/*
 * As pool_store_remove of id; and where nobody else has that file, by a
 * descriptor, a mapping or another name, and it has exactly size bytes and as
 * many pages, these are ret_file's, with what is in them: for who writes all of
 * it. (1 MiB of small pages to free, find and zero is some 0.5 ms of CPU.) What
 * is still on its way out of a socket by sendfile(2) is the caller's to know.
 * 0; -EBUSY (somebody has it), -EAGAIN (its size), other -errno: then it is
 * just removed. Thread: loop, while nobody can open the file by its id.
 */
int pool_store_reuse(struct pool_store *s, uint64_t id, uint64_t size,
		     struct pool_file *ret_file);
/*
 * Announce that files of this size are being written: keeps some ready, filled
 * by a worker, until they have not been taken for a minute. All ready files
 * together stay within 2 % of the store (at least one file of a size is kept
 * if it is <= 1/16 of the store); none are made when free space would fall
 * below `keep_free` (pool_store_set_keep_free).
 */
void pool_store_announce(struct pool_store *s, uint64_t size);
void pool_store_set_keep_free(struct pool_store *s, uint64_t bytes);
/* Give up unused ready files (space is short). Returns bytes freed. */
uint64_t pool_store_drop_ready(struct pool_store *s);
/* Reserve [0, size) of a file again (after a truncation), in a worker. */
struct pool_reserve {
	struct pool_store *store; /* private */
	uv_work_t work;
	int fd; /* borrowed */
	uint64_t size;
	int status;
	void (*cb)(struct pool_reserve *r, int status);
};
int pool_store_reserve_start(struct pool_store *s, struct pool_reserve *r,
			     void (*cb)(struct pool_reserve *r, int status));

/* ---- files of clients ---- */

/*
 * A directory in the store's own where clients of this host may have their
 * buffers (libkvpool does). What such a client has written, and lends, becomes
 * the store's without being moved: the file gets a second name.
 */
#define POOL_STORE_CLIENTS ".clients"
/* Is there such a directory? (pool_store_opts.clients) */
bool pool_store_has_clients(const struct pool_store *s);
/*
 * fd: of a client's file, O_RDONLY, borrowed; its bytes are not looked at. 0
 * and ret_file (fd: O_RDONLY); -EXDEV (it is elsewhere), -EBADMSG (not of that
 * size, or it is somebody's already), -EBUSY (it may still be written), other
 * -errno.
 */
int pool_store_link(struct pool_store *s, int fd, uint64_t size,
		    struct pool_file *ret_file);
/* A client's: has a store taken this file over? */
bool pool_store_linked(const struct pool_store *s, uint64_t id);

/* ---- sealing ---- */

struct pool_seal {
	/* in */
	uint64_t id;
	int fd; /* > 0: of id, O_RDWR; taken over, and closed at the end */
	bool have_sum; /* sum is already known, of every byte: the file has no
			  holes, and is not read */
	/* builds the metadata when sum and size are known; runs in the WORKER
	 * thread: must touch only what this request owns. Returns length or
	 * -errno. */
	ptrdiff_t (*blob)(struct pool_seal *seal, void *buf, size_t cap);
	/* out */
	uint64_t size;
	XXH128_hash_t sum;
	int status;
	/* private */
	struct pool_store *store;
	uv_work_t work;
	void (*cb)(struct pool_seal *seal, int status);
};
/*
 * In a worker: trim what is reserved beyond the size, checksum the whole file,
 * attach the metadata, make it read-only. 0 or -ENOMEM (cb never runs); cb has
 * 0 or -errno. The id must not be removed before cb.
 */
int pool_seal_start(struct pool_store *s, struct pool_seal *seal,
		    void (*cb)(struct pool_seal *seal, int status));
/* The same on the calling thread, for files so small that the way to a worker
 * and back costs more. Returns the status; no callback. */
int pool_seal_now(struct pool_store *s, struct pool_seal *seal);
/* Replace the metadata of a sealed file of that size, now (one setxattr). */
int pool_store_set_blob(struct pool_store *s, uint64_t id, uint64_t size,
			const void *blob, size_t len);
/* Take it away, now: from here on the file is not found at a start any more. */
int pool_store_detach(struct pool_store *s, uint64_t id);
#define POOL_BLOB_MAX 16384 /* on tmpfs; ext4 takes some 4000: -ENOSPC */

struct pool_verify {
	uint64_t id;
	int fd; /* > 0: instead of id */
	XXH128_hash_t sum; /* expected */
	struct pool_store *store;
	uv_work_t work;
	int status;
	void (*cb)(struct pool_verify *v, int status);
};
/*
 * In a worker: read the file and compare: 0, -EBADMSG, -errno. With fd > 0 that
 * file, which was lent (O_RDONLY, borrowed), and not id's; its offset is 0
 * after.
 */
int pool_verify_start(struct pool_store *s, struct pool_verify *v,
		      void (*cb)(struct pool_verify *v, int status));

struct pool_copy {
	/* O_RDONLY, borrowed; a descriptor that a peer lent will do */
	int from;
	int fd;	  /* to, O_RDWR, borrowed */
	uint64_t limit; /* bytes to copy at most */
	struct pool_store *store;
	uv_work_t work;
	int status;
	void (*cb)(struct pool_copy *c, int status);
};
/* In a worker: copy a file's content. */
int pool_copy_start(struct pool_store *s, struct pool_copy *c,
		    void (*cb)(struct pool_copy *c, int status));

/* ---- using files ---- */

/* openat(2) with flags (O_RDONLY, O_PATH, O_RDWR) | O_CLOEXEC: fd or -errno. */
int pool_store_fd(struct pool_store *s, uint64_t id, int flags);
/* Its size, blocks and time of the last write (since 1970) as they are now, in
 * one system call. 0 or -errno. */
int pool_store_stat(struct pool_store *s, uint64_t id, uint64_t *ret_size,
		    uint64_t *ret_blocks, uint64_t *ret_mtime_ns);
/*
 * Gone from the directory at once; its pages when the last user is done. Large
 * files are released by a worker.
 */
void pool_store_remove(struct pool_store *s, uint64_t id);
/*
 * The same of a sealed file of that size: a small one is not looked at first.
 * evicted: it goes for want of room, and nothing is wrong with finding it again
 * after a crash: of many such, a worker unlinks most, soon (`releasing` has
 * them meanwhile).
 */
void pool_store_remove_sealed(struct pool_store *s, uint64_t id, uint64_t size,
			      bool evicted);

/*
 * The file is damaged: no longer found, and kept aside as "bad-ID" in the
 * store's directory for people to look at, as long as there are few such
 * (POOL_BAD_FILES, and 1/POOL_BAD_SHARE of the store), else removed. Counted,
 * logged with `why`.
 */
#define POOL_BAD_FILES 16
#define POOL_BAD_SHARE 64
void pool_store_quarantine(struct pool_store *s, uint64_t id, const char *why);

/*
 * Does anyone have the file open for writing, or mapped shared-writable, be it
 * through FUSE passthrough? By F_SETLEASE(F_RDLCK) on fd, an O_RDONLY
 * descriptor. 0: nobody; -EBUSY: somebody; other -errno.
 */
int pool_file_has_writer(int fd);
/* Does anyone else have it open or mapped at all? (F_WRLCK; O_PATH descriptors
 * and backing registrations do not count.) 0, -EBUSY, other -errno. */
int pool_file_in_use(int fd);

#endif
