/*
 * Chaos: many threads change and read names through several mounts of one pool
 * while a script injects faults into its daemons, its network and its files,
 * and every single read is judged.
 *
 *   chaos_model.c  what each name may hold: versions, and the verdict on a read
 *   chaos_ops.c    the operations, and which errors each may return
 *   chaos_final.c  the checks after all faults have been repaired
 *   chaos_clock.c  time without stalls of the machine; the state of mounts
 *   chaos.c        threads, commands of the script, the report
 *
 * A version's bytes are a function of its id, and begin with that id, so a
 * reader detects a short, torn, mixed or outdated file.
 *
 * Thread: any, unless noted otherwise.
 */
#ifndef TESTS_CHAOS_H
#define TESTS_CHAOS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHAOS_MOUNTS_MAX 8
#define CHAOS_THREADS_MAX 8	      /* a mount */
#define CHAOS_SIZE_MAX (4u << 20)     /* of a file */
#define CHAOS_VERSIONS 128	      /* of a key that are remembered */
#define CHAOS_HISTORY 48	      /* events of a key that are remembered */
#define CHAOS_PATH 512

/* ---- directories ---- */

struct chaos_dir {
	const char *name, *rules[2][2]; /* attributes set on it */
	unsigned int keys;
	unsigned int size_shift; /* files have at most 4 MiB >> this */
	bool kept; /* noevict and replicated: a safe version is never lost */
	unsigned int replicas;
};
#define CHAOS_DIRS 3
extern const struct chaos_dir chaos_dirs[]; /* name NULL: the end */

/* ---- mounts and their faults ---- */

enum chaos_mount_state {
	CHAOS_UP,
	CHAOS_CUT,  /* misses changes: may show old versions, no wrong bytes */
	CHAOS_DOWN, /* its daemon is dead: any error, but no wrong bytes */
};

struct chaos_mount {
	const char *dir;
	_Atomic int state;
	_Atomic uint32_t changes; /* of state */
	_Atomic uint32_t deaths;
	_Atomic uint32_t sleeps; /* odd while its daemon is stopped */
	/* Odd while a directory is synced, which locks it in the kernel. */
	_Atomic uint32_t syncs[CHAOS_DIRS];
};

/* The state of a mount when an operation began. */
struct chaos_mark {
	const struct chaos_mount *mount;
	int state;
	uint32_t changes, deaths, stills;
};
struct chaos_mark chaos_mark_take(const struct chaos_mount *m);
/* Was it UP then, and has its state not changed since? */
bool chaos_mark_clean(const struct chaos_mark *mark);
/* Has one daemon served it since then, without a stall of the machine? */
bool chaos_mark_served(const struct chaos_mark *mark);

/* ---- versions ---- */

struct chaos_version {
	uint64_t id;  /* of the content; 0: the name is gone */
	bool aborted; /* was never published: must never be seen elsewhere */
	bool loose;   /* not acknowledged when another mount made the next one:
			 the master may have received the two in reverse
			 order */
	bool settled; /* the master has received it, or never will */
	int mount;    /* that made it; -1: all mounts have received it */
	int any_of;   /* >= 0: made by renaming that key, of uncertain content:
			 any content is right */
	bool moved;   /* made by renaming the previous key */
};

struct chaos_event {
	uint64_t ms;
	uint32_t version;
	int result;
	int16_t mount;
	char what[22];
};

struct chaos_key {
	const struct chaos_dir *dir;
	int index;	     /* among all keys */
	char name[64];	     /* below a mount */
	pthread_mutex_t writer; /* held while the name is changed */

	pthread_mutex_t lock; /* what follows */
	uint32_t last;	 /* version begun last; 0: the name never existed */
	uint32_t floor;	 /* acknowledged last: reads must not return an older
			    one */
	uint32_t safe;	 /* version that was seen on enough stores; 0: none */
	uint32_t lossy;	 /* versions up to this one may be lost */
	/* A file written in place is visible on its own mount while it grows.
	 * Odd while one is being written. */
	uint32_t growing[CHAOS_MOUNTS_MAX];
	struct chaos_version ring[CHAOS_VERSIONS];
	struct chaos_event history[CHAOS_HISTORY];
	unsigned int events;
};

struct chaos {
	uint64_t seed;
	unsigned int nmounts, nkeys, threads;
	unsigned int call_ms; /* of one call, and of an fsync of a directory */
	unsigned int fsync_ms;
	struct chaos_mount mounts[CHAOS_MOUNTS_MAX];
	struct chaos_key *keys;
	_Atomic bool stop, failed;
	/* At most one store is away at a time, so an object on two stores must
	 * be found; and how often this has changed. */
	_Atomic bool tight;
	_Atomic uint32_t tight_changes;
	_Atomic uint32_t fulls; /* odd while nothing can be evicted for a put */
	/* Read-locked by each operation; write-locked to run code without any
	 * operation in progress. */
	pthread_rwlock_t turn;
};
extern struct chaos chaos;

/* Prints the first violation, with the key's history, and stops all threads.
 * Later calls do nothing. key may be NULL. */
void chaos_fail(struct chaos_key *key, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

int chaos_model_init(void); /* 0 or -ENOMEM */

uint64_t chaos_random(uint64_t *state);

/*
 * Time without stalls of the machine. If no thread of this program has run for
 * longer than CHAOS_STILL_MS, the machine stalled, which is no fault of the
 * pool. The time beyond CHAOS_STILL_MS is then not counted, and every mount
 * that is UP becomes CUT, because all deadlines of its daemon may have expired
 * at once, until the script reports it as up again.
 */
#define CHAOS_STILL_MS 1000
uint64_t chaos_now_ms(void);
/* The number of stalls; *ret_ms: the time that was not counted, in all. */
uint32_t chaos_stills(uint64_t *ret_ms);

/* The length of the content of this id, and its bytes. */
size_t chaos_size(uint64_t id);
void chaos_fill(uint64_t id, uint8_t *buf);

/* Under key->writer: a new version; gone: the name is being removed. */
uint32_t chaos_version_begin(struct chaos_key *key, int mount, bool gone);
/* The same, for a rename of `from`. certain: the content is the acknowledged
 * one of `from`; otherwise it may be any. */
uint32_t chaos_version_move(struct chaos_key *key, int mount,
			    const struct chaos_key *from, bool certain);
/* Another mount that made a version after the acknowledged one that is not
 * settled; -1: there is none. */
int chaos_version_unsettled(struct chaos_key *key, int mount);
/* Marks the mount's versions after the acknowledged one as settled: the master
 * cannot receive them after versions that are made from now on. */
void chaos_version_settle(struct chaos_key *key, int mount);
/* Marks all versions after the acknowledged one as loose: the name may end up
 * with any of them. */
void chaos_version_loosen(struct chaos_key *key);
uint64_t chaos_version_id(struct chaos_key *key, uint32_t version);
void chaos_version_abort(struct chaos_key *key, uint32_t version);
void chaos_version_ack(struct chaos_key *key, uint32_t version);
/* Has this mount made, or have all mounts received, the acknowledged version
 * and all later ones? Later ones that are aborted or loose do not count. */
bool chaos_version_known(struct chaos_key *key, int mount);
/* Is this version (not 0) the newest, apart from aborted ones? */
bool chaos_newest(struct chaos_key *key, uint32_t version);
/* Is the acknowledged version the only one that the name may hold? */
bool chaos_certain(struct chaos_key *key);
/* Call it when all faults have been repaired, without an operation in progress:
 * the name holds this content (0: it does not exist), and from now on no
 * earlier version is right. */
void chaos_version_rebase(struct chaos_key *key, uint64_t id);
/* All versions of the name made so far may be lost from now on. */
void chaos_lossy(struct chaos_key *key);
/* The same for the key of this path (or of this temporary file's path), and for
 * the keys to which its file was renamed since the last rebase: a node that was
 * cut off reports the file by its former name. No-op if no key has the path. */
void chaos_lossy_path(const char *path);
/* The version that the name must hold: the acknowledged one, if it is the only
 * one possible (chaos_certain), is no removal, and cannot be lost (`lossy`).
 * Else 0. */
uint32_t chaos_owed(struct chaos_key *key);
void chaos_growing(struct chaos_key *key, int mount);
void chaos_note(struct chaos_key *key, int mount, uint32_t version,
		const char *what, int result);

/* What a read that begins now may see. */
struct chaos_view {
	struct chaos_mark mark;
	int mount;
	uint32_t floor, growing, last;
	uint32_t safe;
	bool tight;
	uint32_t tight_changes;
};
void chaos_view_take(struct chaos_key *key, int mount, struct chaos_view *view);
/* Judges what was read: a violation goes to chaos_fail. */
void chaos_judge(struct chaos_key *key, const struct chaos_view *view,
		 const uint8_t *buf, size_t len);
/* The name was not there. */
void chaos_judge_missing(struct chaos_key *key, const struct chaos_view *view,
			 const char *how);
/* The name was found, or listed; its content was not read. */
void chaos_judge_present(struct chaos_key *key, const struct chaos_view *view,
			 const char *how);

/* ---- operations ---- */

enum chaos_op {
	OP_PUT,
	OP_PUT_OPEN, /* renamed while still open */
	OP_DIRECT,   /* written in place */
	OP_ABANDON,  /* a temporary that is never renamed */
	OP_READ,
	OP_UNLINK,
	OP_RENAME,
	OP_ACCESS,
	OP_READDIR,
	OP_SETTLE, /* has the key all its copies? */
	OP_FSYNC,  /* of a directory, by one of the above; timed separately */
	OP_COUNT,
};

struct chaos_worker {
	pthread_t thread;
	int mount, number;
	uint64_t random;
	uint8_t *buf; /* CHAOS_SIZE_MAX and a little */
	_Atomic uint64_t busy_since; /* ms; 0: idle */
	_Atomic int busy_with;
};

/* Chooses, executes and judges one operation. */
void chaos_op_run(struct chaos_worker *w);
/* Counts, latencies and errors so far, to stderr. */
void chaos_ops_report(void);
uint64_t chaos_ops_verified(void);
/* Reads a whole file. Its length, or -errno; *ret_opened: was it opened? */
long chaos_read(const char *path, uint8_t *buf, bool *ret_opened);
void chaos_path(char path[CHAOS_PATH], int mount, const struct chaos_key *key);
int chaos_fsync_dir(int mount, const struct chaos_dir *dir);

/* ---- after all faults have been repaired ---- */

/* Call it without an operation in progress. Within limit_s all changes must be
 * acknowledged, all mounts agree, all owed versions (chaos_owed) be found, and
 * all copies exist; then every key is rebased to what its name holds. Otherwise
 * calls chaos_fail. Returns the number of owed names. */
unsigned int chaos_whole(unsigned int limit_s);

#endif
