/*
 * What the next daemon must know of a mount if this one is killed
 * (daemon/keeper.h): a memfd that both have mapped. The daemon writes it while
 * it serves; every state of it is valid, whenever the daemon dies.
 *
 *   head     INIT's request and reply, the mount's id, the incarnation
 *   records  directories that the kernel knows, with their paths, and with the
 *            number of the last change in each; files that are open, with the
 *            attributes that they had at the open; daemon-served handles of
 *            readers, with the store's file that each reads
 *
 * An incarnation is a daemon that had this mount. Nodeids and file handles have
 * its number in their upper 32 bits, so no number is ever used for two files.
 * What the next daemon does with those of earlier incarnations:
 *
 *   directory, if its path exists    the nodeid stays valid, so working
 *                                    directories and bind mounts of
 *                                    subdirectories still work
 *   other directory; file            ESTALE to all but the following: the
 *                                    kernel looks the path up again, once
 *     GETATTR of a file that is open the attributes of its record
 *     READ by a handle with a record the bytes of that file, if it is still
 *                                    there: it is found by its id in the store,
 *                                    stays until the RELEASE, and is not
 *                                    evicted before
 *     FLUSH, FSYNC                   EIO: what was written may be lost
 *     RELEASE, RELEASEDIR, FORGET    done
 *
 * A handle has a record if its file was published when it was opened, or was
 * sealed. Bytes of a published file never change, so its id suffices. A sealed
 * one that is not acked may be written again: it must have a name and the same
 * checksum. Files that a peer has lent (fd passing) are not in the store: no
 * record.
 *
 * A file that is open for writing is lost with the daemon. A change that was
 * answered but not acked, or a file that was closed but not published, may be
 * lost. The next fsync of its directory then fails with EIO, once. For this the
 * changes of a mount are numbered, and all up to `safe` survive. `safe`
 * advances when an fsync ends, and when nothing is in flight (checked every
 * FS_KEPT_MS while there are changes beyond it).
 *
 * Before the next daemon reads a request, it expires all dentries (before Linux
 * 6.16 it cannot: what other nodes changed meanwhile shows up to a minute
 * late), and has the kernel resend the requests that were read and not answered
 * (before Linux 6.9 it cannot: they wait until their callers are killed). It
 * does this when it has a picture of the namespace, at the latest after
 * FS_ADOPT_MS.
 *
 * Limits: FS_KEPT_MAX records, FS_KEPT_ORPHANS of them for directories that the
 * kernel has forgotten; FS_KEPT_PATH bytes of a path. What exceeds them is not
 * recorded, and counted in kvpool_kept_left_out_total: its nodeid or handle
 * gets ESTALE.
 *
 * Thread: loop; the keeper reads `begun_ms`, `mount_id` and `incarnation`.
 */
#ifndef FS_KEPT_H
#define FS_KEPT_H

#include <linux/fuse.h>
#include <stddef.h>
#include <stdint.h>
#include <xxhash.h>

#define FS_RESENT (1ull << 63) /* of `unique`; Linux: FUSE_UNIQUE_RESEND */
#define FS_KEPT_MAX 131072u
#define FS_KEPT_PATH 384u
#define FS_KEPT_ORPHANS 1024u
#define FS_KEPT_DEATHS 3 /* deaths during one request, which then fails */
#define FS_ADOPT_MS 5000
#define FS_KEPT_MS 200
/* The kernel resolves the backing id of an open only when the caller runs
 * again; if the id is closed by then, the open fails with EIO. So a killed
 * daemon's ids are closed after this time, at most twice this time (they hold
 * space of the store). */
#define FS_KEPT_BACKINGS_MS 1000

struct fs_kept_head {
	uint32_t magic, size; /* of a record */
	uint32_t incarnation; /* of the present or last daemon */
	uint32_t init_len, reply_len;
	uint32_t passthrough;
	uint8_t init[256], reply[128];
	uint64_t mount_id;  /* fs_guard_mount_now's; 0: not known */
	uint64_t dev;	    /* fs_guard_dev's; 0: not known */
	uint64_t begun_ms;  /* pool_now_ms() when this incarnation began to
			       serve; 0: it has not yet */
	uint64_t handling;  /* unique of the request being handled; 0: none */
	uint64_t suspect;   /* of the request during which the last daemons
			       died */
	uint32_t deaths;    /* how many daemons, in a row */
	uint32_t backings;  /* backing ids below this one have been closed */
	uint64_t changes;   /* made through this mount, in all directories */
	uint64_t safe;      /* those up to this one survive a daemon's death */
	uint64_t root_changed; /* as in a record */
	uint32_t root_lost;
	uint32_t used;      /* records from this one on were never used */
	uint32_t closing;   /* backing ids below it close at close_ms */
	uint64_t close_ms;  /* pool_now_ms(); 0: none */
};

#define FS_KEPT_ORPHAN UINT64_MAX
#define FS_KEPT_HANDLE (1ull << 63) /* or'ed with a file handle */
struct fs_kept_rec {
	uint64_t nodeid; /* 0: free. FS_KEPT_HANDLE: of a handle, not of a
			    nodeid. FS_KEPT_ORPHAN: the kernel has forgotten
			    it, but its path has a change that may be lost.
			    Written last */
	uint64_t nlookup; /* never less than the kernel's count */
	uint16_t path_len; /* of a directory; 0: it is gone */
	uint16_t is_dir;
	uint8_t lost;    /* directory: changes in it may have been lost; its
			    next fsync says so */
	uint8_t written; /* file: it is open for writing */
	uint16_t pad;
	uint64_t changed; /* directory: number of its last change; file that is
			     written: nodeid of its directory */
	struct fuse_attr attr; /* of a file */
	union {
		char path[FS_KEPT_PATH]; /* of a directory */
		struct {
			uint64_t id, size; /* of the store's file */
			XXH128_hash_t sum;
			uint64_t published; /* 1: yes */
			uint64_t unique; /* of the OPEN; 0: not known */
		} file; /* of a handle */
	};
};

struct fs_kept {
	struct fs_kept_head *head;
	struct fs_kept_rec *recs;
	uint32_t *spare; /* owns; free records below head->used */
	uint32_t nspare;
	uint32_t orphans[FS_KEPT_ORPHANS]; /* their records */
	uint32_t norphans;
	struct fs_kept_ghost { /* records of earlier incarnations, by nodeid */
		uint64_t nodeid;
		uint32_t rec;
	} *ghosts; /* owns */
	uint32_t nghosts;
};

/* An empty memfd, or -errno. */
int fs_kept_create(void);
/* Maps such a memfd: 0, -errno, or -EINVAL if another version made it. */
int fs_kept_map(int fd, struct fs_kept_head **ret_head);
void fs_kept_unmap(struct fs_kept_head *head);
/* The ids of the store's files that handles in such a memfd read, ascending:
 * the caller owns *ret_ids. 0 or -errno. */
int fs_kept_files(int fd, uint64_t **ret_ids, size_t *ret_n);

#endif
