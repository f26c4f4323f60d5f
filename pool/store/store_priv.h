/*
 * Inside the store: what store*.c share. Nobody else includes this (its tests
 * do).
 *
 *   files.c  files by id: descriptors, leases, removal
 *   store.c  open, close, metrics
 *   dir.c    the directory: tmpfs mounts, sizes, options
 *   scan.c   what is found at start
 *   bad.c    quarantine
 *   space.c  used and free bytes, breaches
 *   ready.c  ready files: reserved ahead by workers
 *   reuse.c  a file that goes becomes another
 *   seal.c   work on one file: seal, verify, copy, reserve, metadata
 *   sum.c    checksum of a file
 *
 * Thread: loop, unless a field or function says otherwise. Workers read the
 * fields that open sets and close frees (`dirfd`, `path`, ...) without a lock:
 * close waits for `pending` to fall to 0 first.
 */
#ifndef POOL_STORE_STORE_PRIV_H
#define POOL_STORE_STORE_PRIV_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/statfs.h>

#include "pool/base/list.h"
#include "pool/store/store.h"

#define STORE_PAGE 4096u
#define STORE_NAME_LEN 16 /* hex digits */
/* Of files that are not sealed; of sealed ones, where metadata is in a trusted
 * attribute; and in a user.* one, which takes write permission. */
#define STORE_MODE_OPEN 0600
#define STORE_MODE_SEALED 0400
#define STORE_MODE_SEALED_USER 0700
#define STORE_IDS_AHEAD (1ull << 36) /* put on record at a time */
#define STORE_ID_FILE "kvpool.store"
/* Files from here up are released by a worker: freeing 8 MiB of small pages
 * takes about a millisecond. */
#define STORE_RELEASE_MIN (8u << 20)
#define STORE_RELEASE_MAX 64 /* releases under way at once; more: inline */
#define STORE_UNREMOVED_MAX 256 /* files that could not be removed yet */
/* Small files of a burst are unlinked by a worker: beyond so many in one
 * millisecond, and as long as so many at most wait for it (else inline). */
#define STORE_UNLINKS_INLINE 8
#define STORE_UNLINKS_MAX 1024

#define STORE_READY_CLASSES 16	/* sizes kept ready at once */
#define STORE_READY_FILES 512	/* ready files (and descriptors) in all */
#define STORE_READY_CLASS_FILES 128 /* of one size */
#define STORE_READY_FILLS 2	/* fills under way at once */
#define STORE_FILL_FILES 32	/* made by one fill at most */
#define STORE_FILL_BYTES (16u << 20) /* but one file, whatever its size */
#define STORE_READY_IDLE_MS 60000
#define STORE_READY_TICK_MS 250

struct store_ready_file {
	uint64_t id;
	int fd; /* owns */
};

/* One announced size. */
struct store_class {
	uint64_t size; /* whole pages; 0: the slot is free */
	uint64_t used_ms; /* last announced or asked for */
	uint64_t retry_ms; /* no fill before */
	unsigned int nready;
	unsigned int nfilling; /* files in fills under way */
	struct store_ready_file files[STORE_READY_CLASS_FILES];
};

struct store_ready {
	struct store_class classes[STORE_READY_CLASSES];
	unsigned int nfiles; /* ready and being made */
	unsigned int nfills;
	uint64_t bytes;	     /* ready */
	uint64_t filling;    /* bytes being made */
	uint64_t keep_free;
	uint64_t epoch;	     /* raised by drop: older fills are thrown away */
};

/* How full a directory is that shares its filesystem: the sum of our files
 * when last counted, and the filesystem's use then. */
struct store_usage {
	_Atomic uint64_t counted;
	_Atomic uint64_t fs_used;
	uint64_t next_ms; /* count again from */
	/* the last one; 0: none but that of the start */
	_Atomic uint64_t ended_ms;
	bool counting;
	void (*cb)(void *arg); /* when one has ended, or NULL */
	void *arg;
	uv_work_t work;
	uint64_t took_ms;
};

/* Files that a worker unlinks, one work item at a time: it takes what has come
 * meanwhile, too. */
struct store_unlinks {
	pthread_mutex_t lock;
	uint64_t id[STORE_UNLINKS_MAX]; /* under lock */
	uint32_t bytes[STORE_UNLINKS_MAX]; /* the same: part of `releasing` */
	unsigned int n; /* under lock */
	uint64_t failed[STORE_UNLINKS_MAX]; /* the worker's while it runs */
	unsigned int nfailed;
	bool running; /* loop */
	uint64_t burst_ms; /* loop: small files removed in this millisecond */
	unsigned int burst;
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
	uint64_t object_min;
	bool plain;   /* nothing is to be mounted */
	bool told;    /* `used` is what the owner has told */
	uint64_t used;
	/* told: of statfs(2), asked in that millisecond */
	uint64_t fs_free, fs_ms;
	bool clients; /* there is POOL_STORE_CLIENTS */
	bool own;     /* the filesystem is ours alone (a tmpfs) */
	bool tmpfs;
	bool huge;    /* large folios */
	bool mounted; /* by this open: taken away again if open fails */
	bool said;    /* why the open fails has been logged */
	const char *xattr; /* constant: which name space works */
	uint8_t id[16];
	uint64_t next_id, id_end; /* ids below id_end are on record */

	struct store_ready ready;
	struct store_usage usage;
	_Atomic uint64_t releasing; /* bytes removed, not yet given back */
	unsigned int nreleases;
	unsigned int nbad; /* in quarantine */
	uint64_t bad_bytes;
	struct store_unlinks unlinks;
	uint64_t unremoved[STORE_UNREMOVED_MAX]; /* tried again at each tick */
	unsigned int nunremoved;

	unsigned int sampling;
	uint64_t breaches;
	uv_timer_t sample_timer, tick_timer;

	unsigned int pending; /* work under way */
	/* closing, and none is: store.c */
	void (*on_idle)(struct pool_store *s);
	unsigned int nhandles;	/* timers not closed yet */
	bool closing, unmount;
	_Atomic uint64_t stop_ms; /* closing: workers give up then; else 0 */
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
/* n new ids, the first is returned; 0 if the record cannot be kept. */
uint64_t store_ids(struct pool_store *s, uint64_t n);
/* Count work that close must wait for. store_work_end may finish the close:
 * it comes last in an after-work callback. */
void store_work_begin(struct pool_store *s);
void store_work_end(struct pool_store *s);
/* Unlink a file. One that cannot go now goes at a later tick. Thread: loop. */
void store_unlink(struct pool_store *s, uint64_t id);
/* A worker unlinks what waits for that, unless it is at it. */
void store_unlinks_start(struct pool_store *s);
/* Unlink a file of which the caller had fd (closed here). */
void store_discard(struct pool_store *s, uint64_t id, int fd, uint64_t bytes);

/* ---- dir.c ---- */

/* Make, mount or remount the directory; sets path, dirfd, idfd, own, tmpfs,
 * huge, mounted, headroom, xattr, id. 0 or -errno, logged; the caller then
 * undoes by store_dir_close(s, s->mounted). */
int store_dir_open(struct pool_store *s, const char *dir);
void store_dir_close(struct pool_store *s, bool unmount);
/* Bytes of headroom for a store of size. */
uint64_t store_headroom(uint64_t size);
/* Bytes of memory that a limit leaves for a store and its headroom. */
uint64_t store_allowed(uint64_t limit);
/* Write the ids' high-water mark. 0 or -errno. */
int store_identity_write(struct pool_store *s, uint64_t id_end);

/* ---- scan.c ---- */

int store_scan(struct pool_store *s, pool_store_found_cb found, void *arg);

/* ---- bad.c ---- */

/* Is it the name of a file in quarantine? */
bool store_bad_name(const char *name);
/* Count what is in quarantine. 0 or -errno. */
int store_bad_scan(struct pool_store *s);

/* ---- link.c ---- */

/* Without it clients have their buffers elsewhere. */
void store_make_clients(struct pool_store *s);

/* ---- space.c ---- */

/* Count our files in a directory that shares its filesystem. Blocks; at open
 * and in the worker of store_count_maybe. */
void store_count(struct pool_store *s);
/* Bytes free below size, and bytes free on the filesystem. Thread: any. */
uint64_t store_space_free(const struct pool_store *s);
void store_sample(struct pool_store *s);
void store_count_maybe(struct pool_store *s); /* recount a shared directory */

/* ---- ready.c ---- */

int store_ready_take(struct pool_store *s, uint64_t size,
		     struct pool_file *ret_file);
void store_ready_tick(struct pool_store *s); /* expire, refill */

/* ---- seal.c ---- */

/* Fill in b's header for a blob of len bytes that is in place. */
void store_blob_seal(struct store_blob_buf *b, size_t len, uint64_t size);
mode_t store_mode_sealed(const struct pool_store *s);
/* Is what getxattr returned (n bytes) whole? */
bool store_blob_valid(const struct store_blob_buf *b, size_t n);

/* fallocate [0, size) of fd, but not out of the headroom (-ENOSPC). Blocks.
 * Thread: any. */
int store_reserve(const struct pool_store *s, int fd, uint64_t size);

/* ---- sum.c ---- */

/*
 * XXH3-128 of bytes [0, size) of fd. dense: the file has no holes, so it may be
 * mapped. stop_ms: NULL, or where somebody sets the time after which it is
 * given up with -ECANCELED. 0, -EBADMSG (it is shorter), or -errno. Thread:
 * any.
 */
int store_sum(int fd, uint64_t size, bool dense,
	      const _Atomic uint64_t *stop_ms, XXH128_hash_t *ret_sum);
/* Is it set, and past? */
bool store_is_over(const _Atomic uint64_t *stop_ms);
uint64_t store_sum64(const void *p, size_t n); /* XXH3-64 */

#endif
