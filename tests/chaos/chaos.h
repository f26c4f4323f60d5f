/*
 * Chaos: many threads change and read names through several mounts of one pool
 * while somebody else breaks its daemons, its network and its disks, and every
 * single read is judged.
 *
 *   chaos_model.c  what each name may hold: versions, and the verdict on a read
 *   chaos_ops.c    the operations, each with its own idea of what is an error
 *   chaos_final.c  what must hold once everything is whole again
 *   chaos_clock.c  whether time passed, and a mount was all right meanwhile
 *   chaos.c        threads, orders from the one who breaks things, the report
 *
 * A version's bytes are a function of its id, and begin with that id, so that
 * a short, torn, mixed or old file is told from a right one by reading it.
 *
 * Thread: any, unless said otherwise.
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
	bool kept; /* noevict and replicated: what was safe once is never lost */
	unsigned int replicas;
};
#define CHAOS_DIRS 3
extern const struct chaos_dir chaos_dirs[]; /* name NULL: the end */

/* ---- mounts, and what is being done to them ---- */

enum chaos_mount_state {
	CHAOS_UP,
	CHAOS_CUT,  /* may not hear of changes: old is right, wrong is not */
	CHAOS_DOWN, /* its daemon is gone: any error is right, wrong is not */
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

/* How a mount was when an operation began. */
struct chaos_mark {
	const struct chaos_mount *mount;
	int state;
	uint32_t changes, deaths, stills;
};
struct chaos_mark chaos_mark_take(const struct chaos_mount *m);
/* Nothing was wrong with it from then until now. */
bool chaos_mark_clean(const struct chaos_mark *mark);
/* One daemon has served it from then until now, on a machine that runs. */
bool chaos_mark_served(const struct chaos_mark *mark);

/* ---- versions ---- */

struct chaos_version {
	uint64_t id;  /* of the content; 0: the name is gone */
	bool aborted; /* was never published: must never be seen elsewhere */
	bool loose;   /* not acknowledged when another mount made the next: the
			 master may have heard of them the other way round */
	bool settled; /* its mount's master has heard of it, if ever it will */
	int mount;    /* that made it; -1: all know it */
	int any_of;   /* >= 0: renamed while it was unclear what that key held */
	bool moved;   /* by a rename, from the key before */
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
	uint32_t floor;	 /* acknowledged: what is read from now on is not older */
	uint32_t safe;	 /* version that was seen on enough stores; 0: none */
	uint32_t lossy;	 /* this one, and those before, may be lost */
	/* Files written in place are seen growing through their own mount. */
	uint32_t growing[CHAOS_MOUNTS_MAX]; /* odd while one is */
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
	/* One store at a time is away at most: what is on two is found. Its
	 * changes are counted. */
	_Atomic bool tight;
	_Atomic uint32_t tight_changes;
	_Atomic uint32_t fulls; /* odd while nothing can be evicted for a put */
	/* Held for each operation, or to look at all while there is none. */
	pthread_rwlock_t turn;
};
extern struct chaos chaos;

/* The one who finds the first violation prints it, with the key's history;
 * all stop then. key may be NULL. */
void chaos_fail(struct chaos_key *key, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

int chaos_model_init(void); /* 0 or -ENOMEM */

uint64_t chaos_random(uint64_t *state);

/*
 * Time as this machine's programs have it: when nobody here has run for longer
 * than this, the machine stood still, which is not the pool's doing. Beyond this
 * it is not counted, and every mount counts as cut off (its daemon's deadlines
 * are over, all at once) until it is told to be up.
 */
#define CHAOS_STILL_MS 1000
uint64_t chaos_now_ms(void);
/* How often the machine stood still, and for how many ms in all. */
uint32_t chaos_stills(uint64_t *ret_ms);

/* The length of the content of this id, and its bytes. */
size_t chaos_size(uint64_t id);
void chaos_fill(uint64_t id, uint8_t *buf);

/* Under key->writer: a new version; gone: the name is being removed. */
uint32_t chaos_version_begin(struct chaos_key *key, int mount, bool gone);
/* The same, but the content is what another key holds. */
uint32_t chaos_version_move(struct chaos_key *key, int mount,
			    const struct chaos_key *from, bool certain);
/* A mount, other than this one, that made a version which nobody has
 * acknowledged or settled; -1: there is none. */
int chaos_version_unsettled(struct chaos_key *key, int mount);
/* What that mount has made may not overtake what comes from now on. */
void chaos_version_settle(struct chaos_key *key, int mount);
/* All of these stay possible. */
void chaos_version_loosen(struct chaos_key *key);
uint64_t chaos_version_id(struct chaos_key *key, uint32_t version);
void chaos_version_abort(struct chaos_key *key, uint32_t version);
void chaos_version_ack(struct chaos_key *key, uint32_t version);
/* Has this mount made what is acknowledged, and all that the master may have
 * after that, or do all know it? What is loose stays possible anyway. */
bool chaos_version_known(struct chaos_key *key, int mount);
/* Has nothing been done to the name since this version, not 0? */
bool chaos_newest(struct chaos_key *key, uint32_t version);
/* Is the acknowledged version what the name holds, and can it be no other? */
bool chaos_certain(struct chaos_key *key);
/* All is whole and nobody changes anything: this is what the name holds (0:
 * nothing), and everything before is past. */
void chaos_version_rebase(struct chaos_key *key, uint64_t id);
/* Whatever the name holds now may be lost from here on. */
void chaos_lossy(struct chaos_key *key);
/* The same of this path, or of the key whose temporary it is, and of what has
 * been renamed from there since all was whole: who was cut off knows it by its
 * former name. A path that is no key's says nothing. */
void chaos_lossy_path(const char *path);
/* The newest version, if it was acknowledged, is nothing else, and nothing has
 * happened that it may be lost by; else 0. */
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
/* The name was there (or listed) without anybody reading it. */
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
	OP_FSYNC,  /* timed apart: what of the above waits for it */
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

/* One operation, chosen and judged. */
void chaos_op_run(struct chaos_worker *w);
/* Counts, latencies and errors so far, to stderr. */
void chaos_ops_report(void);
uint64_t chaos_ops_verified(void);
/* Reads a whole file. Its length, or -errno; *ret_opened as soon as the open
 * was a success. */
long chaos_read(const char *path, uint8_t *buf, bool *ret_opened);
void chaos_path(char path[CHAOS_PATH], int mount, const struct chaos_key *key);
int chaos_fsync_dir(int mount, const struct chaos_dir *dir);

/* ---- after healing ---- */

/* Everything that was made is acknowledged, all mounts agree, nothing owed is
 * lost, all copies are there: within `limit_s`; and that is what names hold from
 * then on. No operation is under way. Violations go to chaos_fail. Returns how
 * many names were owed. */
unsigned int chaos_whole(unsigned int limit_s);

#endif
