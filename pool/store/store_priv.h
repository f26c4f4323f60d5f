/*
 * Internals of the store; only pool/store/ and its tests include this.
 *
 *   store.c    open, close, metrics
 *   dir.c      the directory: tmpfs mounts, sizes, options, identity
 *   scan.c     finding files at start
 *   bad.c      quarantine
 *   files.c    files by id: descriptors, leases, removal
 *   clients.c  linking files of clients
 *   space.c    used and free bytes, breaches
 *   ready.c    ready files: reserved ahead by workers
 *   reuse.c    reusing the pages of a removed file
 *   seal.c     work on one file: seal, verify, copy, reserve, metadata
 *   sum.c      checksum of a file
 *
 * Thread: loop, unless a field or function says otherwise. Workers read fields
 * that open sets and close frees (`dirfd`, `path`, ...) without a lock, because
 * close waits until `pending` is 0.
 */
#ifndef POOL_STORE_STORE_PRIV_H
#define POOL_STORE_STORE_PRIV_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/statfs.h>

#define XXH_STATIC_LINKING_ONLY /* for XXH3_state_t in struct store_sum */
#include <xxhash.h>

#include "pool/base/list.h"
#include "pool/base/pages.h"
#include "pool/store/store.h"

#define STORE_NAME_LEN 16 /* hex digits */
/* File modes: not sealed; sealed with metadata in trusted.*; sealed with
 * metadata in user.*, which needs write permission to be replaced. */
#define STORE_MODE_OPEN 0600
#define STORE_MODE_SEALED 0400
#define STORE_MODE_SEALED_USER 0700
#define STORE_IDS_AHEAD (1ull << 36) /* ids reserved on disk at a time */
#define STORE_ID_FILE "kvpool.store"
/* A worker frees files of at least this size: freeing 8 MiB of small pages
 * takes about a millisecond. */
#define STORE_RELEASE_MIN (8u << 20)
#define STORE_RELEASE_MAX 64 /* releases in flight; beyond: on the loop */
#define STORE_UNREMOVED_MAX 256 /* removals to be retried */
/* Small evicted files: the loop unlinks this many per millisecond, a worker the
 * rest. While STORE_UNLINKS_MAX wait for the worker, the loop unlinks all. */
#define STORE_UNLINKS_INLINE 8
#define STORE_UNLINKS_MAX 1024

#define STORE_READY_CLASSES 16	/* sizes kept ready at once */
#define STORE_READY_FILES 512	/* ready files (and descriptors) in all */
#define STORE_READY_CLASS_FILES 128 /* of one size */
#define STORE_READY_FILLS 2	/* fills in flight */
#define STORE_FILL_FILES 32	/* per fill, at most */
#define STORE_FILL_BYTES (16u << 20) /* per fill, but at least one file */
#define STORE_READY_IDLE_MS 60000
#define STORE_READY_TICK_MS 250

struct store_ready_file {
	uint64_t id;
	int fd; /* owns */
};

/* One announced size. */
struct store_class {
	uint64_t size; /* whole pages; 0: the slot is free */
	uint64_t used_ms; /* last announced or taken */
	uint64_t retry_ms; /* no fill before this time */
	unsigned int nready;
	unsigned int nfilling; /* files in fills in flight */
	struct store_ready_file files[STORE_READY_CLASS_FILES];
};

struct store_ready {
	struct store_class classes[STORE_READY_CLASSES];
	unsigned int nfiles; /* ready and being made */
	unsigned int nfills;
	uint64_t bytes;	     /* ready */
	uint64_t filling;    /* bytes being made */
	uint64_t keep_free;
	uint64_t epoch;	     /* raised by drop: older fills are discarded */
};

/* The last count of our files' bytes, in a directory that shares its
 * filesystem, and the use of the whole filesystem at that time. */
struct store_usage {
	_Atomic uint64_t counted;
	_Atomic uint64_t fs_used;
	uint64_t next_ms; /* next periodic count */
	/* end of the last count; 0: only open has counted */
	_Atomic uint64_t ended_ms;
	bool counting;
	void (*cb)(void *arg); /* at the end of a count, or NULL */
	void *arg;
	uv_work_t work;
	uint64_t took_ms;
};

/* Files to be unlinked by a worker. At most one work item is in flight; it also
 * handles files that are added while it runs. */
struct store_unlinks {
	pthread_mutex_t lock;
	uint64_t id[STORE_UNLINKS_MAX]; /* under lock */
	uint32_t bytes[STORE_UNLINKS_MAX]; /* under lock; in `releasing` */
	unsigned int n; /* under lock */
	uint64_t failed[STORE_UNLINKS_MAX]; /* the worker's while it runs */
	unsigned int nfailed;
	bool running; /* loop */
	uint64_t burst_ms; /* loop: a millisecond ... */
	unsigned int burst; /* loop: ... and the small files evicted in it */
	uv_work_t work;
};

struct store_counters {
	struct pool_counter takes_ready, takes_plain, takes_missed, makes;
	struct pool_counter takes_reused;
	struct pool_counter fills, fills_failed, fills_short;
	struct pool_counter seals, seals_failed, verify_bad;
	struct pool_counter removes, removes_failed, releases_inline;
	struct pool_counter found, gone_unsealed, gone_refused;
	struct pool_counter quarantined, quarantine_full;
	struct pool_counter breaches;
	struct pool_gauge size, headroom, used, ready;
	struct pool_hist seal_time;
};

struct pool_store {
	uv_loop_t *loop; /* borrows */
	char *path;	 /* owns; absolute, no symlinks */
	int dirfd;	 /* owns */
	int idfd;	 /* owns; the identity file, flocked */
	uint64_t size, headroom;
	uint64_t memory_max; /* 0: not known; see pool_store_opts */
	uint64_t object_min;
	bool plain;	   /* never mount */
	bool owner_counts; /* the owner maintains `used` (pool_store_use) */
	uint64_t used;
	/* owner_counts: free bytes by statfs(2), and when it was called */
	uint64_t fs_free, fs_ms;
	bool clients; /* POOL_STORE_CLIENTS exists */
	bool own;     /* the filesystem is a tmpfs of the store alone */
	bool given;   /* own, but others mounted it: neither resized nor
			 unmounted */
	bool tmpfs;
	bool huge;    /* large folios */
	bool mounted; /* by this open: unmounted if it fails */
	bool logged;  /* the reason why open fails was logged */
	const char *xattr; /* constant: the metadata's attribute name */
	uint8_t id[16];
	uint64_t next_id, id_end; /* ids below id_end are reserved on disk */

	struct store_ready ready;
	struct store_usage usage;
	_Atomic uint64_t releasing; /* bytes removed, pages not freed yet */
	unsigned int nreleases;
	unsigned int nbad; /* in quarantine */
	uint64_t bad_bytes;
	struct store_unlinks unlinks;
	uint64_t unremoved[STORE_UNREMOVED_MAX]; /* retried at each tick */
	unsigned int nunremoved;

	unsigned int sampling; /* calls that turned it on */
	uint64_t breaches;
	uv_timer_t sample_timer, tick_timer;

	unsigned int pending; /* work items in flight */
	/* called when closing and pending is 0 (set by store.c) */
	void (*on_idle)(struct pool_store *s);
	unsigned int nhandles;	/* timers not closed yet */
	bool closing, unmount;
	_Atomic uint64_t stop_ms; /* closing: workers cancel then; else 0 */
	void (*closed)(void *arg);
	void *closed_arg;

	struct store_counters n;
};

/* The metadata xattr: this header, then the blob. Host byte order: an xattr
 * never leaves its machine. */
#define STORE_BLOB_MAGIC 0x424f564bu /* "KVOB" */
#define STORE_BLOB_VERSION 1
struct store_blob {
	uint32_t magic;
	uint16_t version;
	uint16_t header_len;
	uint32_t blob_len;
	uint32_t zero;
	uint64_t size; /* of the file */
	uint64_t sum;  /* XXH3-64 of this header with sum = 0, then the blob */
};
#define STORE_XATTR_MAX (sizeof(struct store_blob) + POOL_BLOB_MAX)
struct store_blob_buf {
	struct store_blob head;
	unsigned char blob[POOL_BLOB_MAX];
};
_Static_assert(sizeof(struct store_blob_buf) == STORE_XATTR_MAX,
	       "the blob follows its header");

/* ---- store.c ---- */

/* Name of a file; out has STORE_NAME_LEN + 1 bytes. */
void store_name(uint64_t id, char *out);
/* Absolute path of a file; out has PATH_MAX bytes. */
void store_path(const struct pool_store *s, uint64_t id, char *out);
/* The inverse; false if name is no file's name. */
bool store_name_parse(const char *name, uint64_t *ret_id);
/* n new ids; returns the first, or 0 if they cannot be reserved on disk. */
uint64_t store_ids(struct pool_store *s, uint64_t n);
/* Count work that close must wait for. store_work_end may complete the close:
 * call it last in an after-work callback. */
void store_work_begin(struct pool_store *s);
void store_work_end(struct pool_store *s);
/* Something may be due at a tick: the next one is at most STORE_READY_TICK_MS
 * from now. Each tick decides when the next one is. Thread: loop. */
void store_tick_soon(struct pool_store *s);
/* Unlink a file; a failure is retried at each tick. Thread: loop. */
void store_unlink(struct pool_store *s, uint64_t id);
/* Start the worker for s->unlinks, unless it runs. */
void store_unlinks_start(struct pool_store *s);
/* Unlink a file and close its descriptor fd. */
void store_discard(struct pool_store *s, uint64_t id, int fd, uint64_t bytes);

/* ---- dir.c ---- */

/* Create, mount or remount the directory; sets path, dirfd, idfd, own, tmpfs,
 * huge, mounted, headroom, xattr, id. 0 or -errno, logged; on error the caller
 * calls store_dir_close(s, s->mounted). */
int store_dir_open(struct pool_store *s, const char *dir);
void store_dir_close(struct pool_store *s, bool unmount);
/* Bytes of headroom for a store of size. */
uint64_t store_headroom(uint64_t size);
/* Bytes for a store and its headroom under a memory limit. */
uint64_t store_allowed(uint64_t limit);
/* Reserve all ids below id_end on disk. 0 or -errno. */
int store_identity_write(struct pool_store *s, uint64_t id_end);

/* ---- scan.c ---- */

int store_scan(struct pool_store *s, pool_store_found_cb found,
	       bool (*keep)(void *arg, uint64_t id), void *arg);

/* ---- bad.c ---- */

/* Is it the name of a file in quarantine? */
bool store_bad_name(const char *name);
/* Count what is in quarantine. 0 or -errno. */
int store_bad_scan(struct pool_store *s);

/* ---- clients.c ---- */

/* Create POOL_STORE_CLIENTS; on failure clients keep their buffers elsewhere.
 */
void store_make_clients(struct pool_store *s);

/* ---- space.c ---- */

/* Count our files in a directory that shares its filesystem. Blocks. Thread:
 * any, one at a time. */
void store_count(struct pool_store *s);
/* Bytes that can be used without using headroom. Thread: any. */
uint64_t store_space_free(const struct pool_store *s);
/* Count a breach if there is one; a no-op unless sampling. */
void store_sample(struct pool_store *s);
/* Start a periodic count of a shared directory if one is due. Returns the ms
 * until the next may be; UINT64_MAX: there are none. */
uint64_t store_count_maybe(struct pool_store *s);

/* ---- ready.c ---- */

int store_ready_take(struct pool_store *s, uint64_t size,
		     struct pool_file *ret_file);
void store_ready_tick(struct pool_store *s); /* expire, refill */
/* Until the next tick must expire or refill: ms; UINT64_MAX: there is nothing
 * to expire. */
uint64_t store_ready_rest_ms(struct pool_store *s);

/* ---- seal.c ---- */

mode_t store_mode_sealed(const struct pool_store *s);
/* Are the n bytes that getxattr returned intact? */
bool store_blob_valid(const struct store_blob_buf *b, size_t n);

/* fallocate [0, size) of fd. One call for the whole range: if it fails, the
 * kernel undoes exactly what it has allocated. Doing that here would race with
 * a writer. Blocks. Thread: any. */
int store_allocate(int fd, uint64_t size);
/* The same; -ENOSPC if that would use headroom. */
int store_reserve(const struct pool_store *s, int fd, uint64_t size);

/* ---- sum.c ---- */

/*
 * XXH3-128 of bytes [0, size) of fd. dense: the file has no holes, so it may be
 * mapped. stop_ms: NULL, or a time that another thread may set; from then on
 * the sum ends with -ECANCELED. 0, -EBADMSG (the file is shorter), or -errno.
 * Thread: any.
 */
int store_sum(int fd, uint64_t size, bool dense,
	      const _Atomic uint64_t *stop_ms, XXH128_hash_t *ret_sum);

/* The same in slices of 128 KiB, on any thread. */
struct store_sum {
	int fd; /* borrows */
	uint64_t size, at;
	bool dense; /* and can be mapped */
	uint8_t *map; /* owns; NULL: nothing is mapped */
	size_t map_len;
	uint64_t map_at;
	XXH3_state_t hash;
};
void store_sum_begin(struct store_sum *m, int fd, uint64_t size, bool dense);
/* Adds the next slice. 0: that was the last one; -EAGAIN: call again; or
 * -errno. */
int store_sum_next(struct store_sum *m, XXH128_hash_t *ret_sum);
void store_sum_end(struct store_sum *m);
/* Is stop_ms set and reached? */
bool store_must_stop(const _Atomic uint64_t *stop_ms);
uint64_t store_sum64(const void *p, size_t n); /* XXH3-64 */

#endif
