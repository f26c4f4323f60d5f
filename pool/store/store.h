/*
 * The local store: objects as plain files in one directory, normally a tmpfs of
 * its own. It manages files, space and checksums. It does not know names, peers
 * or FUSE.
 *
 * A file starts writable (pool_store_take) and is sealed once
 * (pool_seal_start): trimmed to its size and checksummed, with its metadata
 * attached as an xattr (trusted.kvpool, or user.kvpool where trusted.* is not
 * allowed). The content of a sealed file never changes; its metadata can be
 * replaced. After a crash, pool_store_open finds the sealed files and removes
 * unsealed ones.
 *
 * A file is identified by a 64-bit id that the store never uses again; its name
 * is the id in hex. Descriptors are opened on demand.
 *
 * Thread: loop. Long operations run in libuv's workers, as their comments say.
 *
 * Filesystem: normally tmpfs. Any other must have write(2) (hugetlbfs has not),
 * fallocate(2) with KEEP_SIZE, trusted.* or user.* attributes of some KiB,
 * leases (F_SETLEASE), flock(2), sendfile(2), and an st_blocks that shows what
 * a file uses. Not only daemons write to the files: in passthrough mode the
 * kernel does, for programs that have them open. Pages are taken to have 4 KiB.
 *
 * Space: the tmpfs is larger than `size` by a headroom. With passthrough, a
 * write that outgrows its reservation does not pass through the daemon; the
 * headroom absorbs it. `breaches` counts samples that find less than 1/16 of
 * the headroom free: a write may then have failed with ENOSPC.
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
	const char *dir;	/* created if missing, mode 0700 */
	uint64_t size;		/* bytes of objects; > 0 */
	uint64_t memory_max;	/* bytes of a memory limit that this process
				   cannot see itself; 0: none */
	uint64_t object_min;	/* smallest object expected, for nr_inodes; 0:
				   4 KiB */
	bool plain;		/* never mount: use dir as it is */
	bool clients;		/* create POOL_STORE_CLIENTS */
	bool owner_counts;	/* with plain: the owner reports the space that
				   its files use (pool_store_use); the store
				   does not count it */
	struct pool_metrics *metrics; /* borrows; NULL: none. Not to be printed
					 once the store is closed */
	/* > 0: take-over; pool_store_lock_fd of the old process. The store owns
	 * it from here on, also after an error. Open then neither scans the
	 * directory nor removes files; pool_store_sweep does. */
	int lock_fd;
	/* Must this file stay, although pool_store_open would remove it: it has
	 * no metadata, or was refused? Called with the arg of `found`; NULL:
	 * no. */
	bool (*keep)(void *arg, uint64_t id);
};

/* Called by pool_store_open for each sealed file, lowest id first. blob: the
 * metadata given at sealing, borrowed until return. Return 0 to keep the file,
 * -ESTALE to remove it, -EBADMSG to quarantine it; any other -errno fails the
 * open, and all files stay. */
typedef int (*pool_store_found_cb)(void *arg, uint64_t id, uint64_t size,
				   const void *blob, size_t blob_len);

/*
 * Open the store in opts->dir. An empty directory that is no mount point gets a
 * tmpfs if this process may mount (size + headroom, nr_inodes, mode 0700,
 * noatime, large folios where they do not waste memory; see store/dir.c). Such
 * a tmpfs of an earlier process is remounted to the requested size. Any other
 * directory is used as it is, also a tmpfs that somebody else mounted.
 *
 * Only files named like objects are ever removed. Damaged files are
 * quarantined. A file that cannot be read for lack of memory or descriptors
 * fails the open, so that no good file is lost.
 *
 * 0 or -errno, logged with the remedy:
 *   -EBUSY      another process has the store open (flock on a file in it)
 *   -EDOM       the size exceeds the machine's memory, the limit of this
 *               process's memory cgroup (v1 or v2), or memory_max
 *   -ENOSPC     the filesystem's size cannot be set, and it has no room for
 *               size + headroom; or the tmpfs holds more than the new size
 *   -EPERM      a user other than ours and root owns the directory, or may
 *               write to it and we cannot change that
 *   -ENOTEMPTY  not a store, but it has files named like objects
 */
int pool_store_open(const struct pool_store_opts *opts,
		    pool_store_found_cb found, void *arg,
		    struct pool_store **ret_store);
/* Close the store; its files stay. Work in flight ends first; checksums and
 * copies that take more than two seconds end with -ECANCELED.
 * closed(arg) runs in a later loop iteration, when no loop handle of the store
 * is left. unmount: unmount the store's own tmpfs, too, which frees the files.
 */
void pool_store_close(struct pool_store *s, bool unmount,
		      void (*closed)(void *arg), void *arg);

/*
 * For a start that fails after pool_store_open: unmount the tmpfs if that call
 * mounted it (it is empty). Only before the loop has run, in a process that is
 * about to exit.
 */
void pool_store_undo(struct pool_store *s);

/* The locked descriptor that keeps other processes out; borrowed. */
int pool_store_lock_fd(const struct pool_store *s);
/* Absolute, without symbolic links. */
const char *pool_store_path(const struct pool_store *s);
/* Is it a tmpfs? Then reading what was written waits for no disk, unless it was
 * swapped out. */
bool pool_store_in_memory(const struct pool_store *s);
/* Is work in flight in workers? */
bool pool_store_busy(const struct pool_store *s);
/* After a take-over, before any file is created: remove all files except those
 * with these ids (ascending). */
void pool_store_sweep(struct pool_store *s, const uint64_t *ids, size_t n);

/* 16 random bytes stored in the directory: the node id, across restarts. */
const uint8_t *pool_store_id(const struct pool_store *s);

struct pool_space {
	uint64_t size;	   /* as configured, without headroom */
	uint64_t headroom; /* bytes of tmpfs beyond size */
	uint64_t used;	   /* by all files and reservations */
	uint64_t ready;	   /* part of used: reserved files not taken yet */
	uint64_t free;	   /* size - used, or less if the filesystem has less;
			      0 if used > size */
	uint64_t reach;	   /* for short-lived data: free, plus the headroom
			      without its last 1/16 */
	uint64_t releasing; /* counted as free: pages that a worker frees now */
};
/*
 * One statfs(2). In a directory that shares its filesystem (without
 * opts.owner_counts), space that others use or free is attributed to the store
 * until the next count. Counts are a second apart, or more where counting is
 * slow. Where it is quick, this function counts at once if more than half of
 * the store seems to be used, or if the filesystem's use has fallen a lot.
 * Thread: loop.
 */
void pool_store_space(struct pool_store *s, struct pool_space *ret);
/*
 * Is pool_store_space() accurate enough to evict by? Always true in a tmpfs of
 * our own and with opts.owner_counts. In a shared filesystem: true if its use
 * has hardly changed since the last count, or a count has just ended; otherwise
 * a count is started. cb(arg) is called when any count ends, until
 * pool_store_close. Thread: loop.
 */
bool pool_store_counted(struct pool_store *s);
void pool_store_on_counted(struct pool_store *s, void (*cb)(void *arg),
			   void *arg);
/* With opts.owner_counts: the owner's files use `bytes` more (or less) from now
 * on. Thread: loop. */
void pool_store_use(struct pool_store *s, int64_t bytes);
/* The configured size; no system call. */
uint64_t pool_store_size(const struct pool_store *s);
/*
 * Number of samples that found less than 1/16 of the headroom free. A sample is
 * taken every 10 ms while pool_store_sampling is on, and before files are
 * removed, because freed pages would hide a breach. The owner of a file that
 * may outgrow its reservation compares the values before and after writing.
 */
uint64_t pool_store_breaches(struct pool_store *s);
/* Calls nest. Returns the number so far, without another sample. */
uint64_t pool_store_sampling(struct pool_store *s, bool on);

/* ---- creating files ---- */

struct pool_file {
	uint64_t id;
	int fd;		   /* O_RDWR; the caller closes it */
	uint64_t reserved; /* bytes fallocated (KEEP_SIZE); the size is 0 */
};
/*
 * Take a new empty file. size > 0: a ready file, reserved for at least size
 * bytes, or -EAGAIN if there is none (a worker makes more if the size was
 * announced). size 0: a new file without a reservation. Never waits for pages
 * to be allocated.
 */
int pool_store_take(struct pool_store *s, uint64_t size,
		    struct pool_file *ret_file);
/*
 * Create a file with a reservation now, on the calling thread: for a burst that
 * has used up the ready files. -EAGAIN if that could take more than some 0.2 ms
 * (size beyond POOL_MAKE_MAX with large folios, POOL_MAKE_SMALL_MAX without);
 * -ENOSPC if it would leave less than 1/8 of the store free.
 */
#define POOL_MAKE_MAX (32u << 20)
#define POOL_MAKE_SMALL_MAX (512u << 10)
int pool_store_make(struct pool_store *s, uint64_t size,
		    struct pool_file *ret_file);
/*
 * Remove the file `id` and reuse its pages, with their old content, as a new
 * file of the same size, which the caller must overwrite completely. This saves
 * freeing, allocating and zeroing pages: some 0.5 ms of CPU for 1 MiB of small
 * pages. Possible only if the file has exactly size bytes and as many pages,
 * and no other descriptor, mapping or name. The caller must know that none of
 * its pages is still in a socket's send queue (sendfile(2)). 0 and ret_file; on
 * an error, -EBUSY (in use), -EAGAIN (another size) or other, the file is
 * removed all the same. Thread: loop, while nothing can open the file by its
 * id.
 */
int pool_store_reuse(struct pool_store *s, uint64_t id, uint64_t size,
		     struct pool_file *ret_file);
/*
 * Announce that files of this size are being written. Workers then keep some of
 * this size ready, until the size has been neither announced nor taken for a
 * minute. Ready files take 2 % of the store, or up to 1/8 if 2 % is too little
 * for one file of each announced size; none is larger than 1/16 of the store.
 * No ready file is made if it would leave less than `keep_free` bytes free
 * (pool_store_set_keep_free).
 */
void pool_store_announce(struct pool_store *s, uint64_t size);
void pool_store_set_keep_free(struct pool_store *s, uint64_t bytes);
/* Remove the ready files, to free space. Returns their bytes. */
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
void pool_store_reserve_start(struct pool_store *s, struct pool_reserve *r,
			      void (*cb)(struct pool_reserve *r, int status));

/* ---- files of clients ---- */

/*
 * A subdirectory of the store where clients of this host (libkvpool) may keep
 * their buffers. A file that a client has written there and lends can become an
 * object without being copied: it is linked under a second name.
 */
#define POOL_STORE_CLIENTS ".clients"
/* Is there such a directory? (pool_store_opts.clients) */
bool pool_store_has_clients(const struct pool_store *s);
/*
 * Link a client's file into the store. fd: O_RDONLY, borrowed. The content is
 * not verified. 0 and ret_file (fd: O_RDONLY); -EXDEV (on another filesystem),
 * -EBADMSG (another size, or linked already), -EBUSY (open for writing), other
 * -errno.
 */
int pool_store_link(struct pool_store *s, int fd, uint64_t size,
		    struct pool_file *ret_file);
/* For the client's own store: has another store linked this file? */
bool pool_store_linked(const struct pool_store *s, uint64_t id);

/* ---- sealing ---- */

struct pool_seal {
	/* in */
	uint64_t id;
	int fd; /* > 0: of id, O_RDWR; owned from start on, closed at the end */
	bool have_sum; /* sum is already set, and the file has no holes: the
			  file is not read */
	/* Builds the metadata, given sum and size. Runs in the WORKER thread
	 * (pool_seal_now: the caller's): may touch only what this request owns.
	 * Returns length or -errno. */
	ptrdiff_t (*blob)(struct pool_seal *seal, void *buf, size_t cap);
	/* out */
	uint64_t size;
	XXH128_hash_t sum;
	int status;
	/* private */
	struct pool_store *store;
	uv_work_t work;
	struct store_slices *slices; /* NULL at first */
	void (*cb)(struct pool_seal *seal, int status);
};
/*
 * In a worker: free what is reserved beyond the size, checksum the file, attach
 * the metadata, make it read-only. cb gets 0 or -errno, in a later turn. The id
 * must not be removed before cb.
 */
void pool_seal_start(struct pool_store *s, struct pool_seal *seal,
		     void (*cb)(struct pool_seal *seal, int status));
/* The same on the calling thread, for files so small that passing them to a
 * worker would cost more. Returns the status; no callback. */
int pool_seal_now(struct pool_store *s, struct pool_seal *seal);
/* The same in slices of 128 KiB (some 15 us) on the calling thread, which does
 * other work between them. -EAGAIN: call again; else the status; no callback.
 * Once begun, it must be completed. have_sum must not be set. */
int pool_seal_slice(struct pool_store *s, struct pool_seal *seal);
/* Instead of the next slice: ends the seal. -ECANCELED. */
int pool_seal_cancel(struct pool_store *s, struct pool_seal *seal);
/* Replace the metadata of a sealed file of that size, with one setxattr. */
int pool_store_set_blob(struct pool_store *s, uint64_t id, uint64_t size,
			const void *blob, size_t len);
/* Remove the metadata: pool_store_open will not find the file again. */
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
 * In a worker: read the file and compare its checksum: 0, -EBADMSG, other
 * -errno. fd > 0: verify this lent file (O_RDONLY, borrowed) instead of id; its
 * offset is 0 afterwards.
 */
void pool_verify_start(struct pool_store *s, struct pool_verify *v,
		       void (*cb)(struct pool_verify *v, int status));

struct pool_copy {
	/* O_RDONLY, borrowed; may be a descriptor that a peer lent */
	int from;
	int fd;	  /* to, O_RDWR, borrowed */
	uint64_t limit; /* bytes to copy at most */
	struct pool_store *store;
	uv_work_t work;
	int status;
	void (*cb)(struct pool_copy *c, int status);
};
/* In a worker: copy a file's content, after reserving space for it. */
void pool_copy_start(struct pool_store *s, struct pool_copy *c,
		     void (*cb)(struct pool_copy *c, int status));

/* ---- using files ---- */

/* openat(2) with flags (O_RDONLY, O_PATH, O_RDWR) | O_CLOEXEC: fd or -errno. */
int pool_store_fd(struct pool_store *s, uint64_t id, int flags);
/* The file's current size, blocks and time of the last write (since 1970), by
 * one system call. 0 or -errno. */
int pool_store_stat(struct pool_store *s, uint64_t id, uint64_t *ret_size,
		    uint64_t *ret_blocks, uint64_t *ret_mtime_ns);
/*
 * Unlink the file. Its pages are freed when it is no longer open or mapped; a
 * worker frees those of large files.
 */
void pool_store_remove(struct pool_store *s, uint64_t id);
/*
 * The same for a sealed file of known size; saves an fstatat for small ones.
 * evicted: the file may be found again after a crash. In a burst of evictions,
 * a worker then unlinks it a little later, and `releasing` counts it until
 * then.
 */
void pool_store_remove_sealed(struct pool_store *s, uint64_t id, uint64_t size,
			      bool evicted);

/*
 * Quarantine a damaged file: rename it to "bad-ID" in the store's directory,
 * for inspection. It is removed instead if that would exceed POOL_BAD_FILES
 * files or 1/POOL_BAD_SHARE of the store. Counted, logged with `why`.
 */
#define POOL_BAD_FILES 16
#define POOL_BAD_SHARE 64
void pool_store_quarantine(struct pool_store *s, uint64_t id, const char *why);

/* For qsort and bsearch of ids of files, ascending. */
static inline int pool_store_by_id(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* *ret_size: bytes. 0 or -errno. */
int pool_file_size(int fd, uint64_t *ret_size);
/*
 * Is the file open for writing, or mapped shared and writable, by any process,
 * FUSE passthrough included? Tests by F_SETLEASE(F_RDLCK) on fd, an O_RDONLY
 * descriptor. 0: no; -EBUSY: yes; other -errno.
 */
int pool_file_has_writer(int fd);
/* Is it open or mapped at all, other than by fd? (F_WRLCK. O_PATH descriptors
 * and passthrough registrations do not count.) 0: no; -EBUSY; other -errno. */
int pool_file_in_use(int fd);

#endif
