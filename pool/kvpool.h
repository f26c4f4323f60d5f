/*
 * libkvpool: the pool for programs that want no file API.
 *
 *	struct kvpool_options o = { sizeof(o), .at = "10.0.0.1:7070" };
 *	struct kvpool *pool;
 *	struct kvpool_ns *ns;
 *
 *	kvpool_connect(&o, &pool);
 *	kvpool_open_ns(pool, "llama", NULL, &ns);
 *	kvpool_register_buffer(pool, buf, len);
 *	kvpool_put_from(ns, "key", 3, buf, 4096, 0);
 *	kvpool_get_into(ns, "key", 3, buf, len);
 *
 * WHAT IT IS. A connection is a node of the pool in the caller's process, with
 * a loop thread of its own: one that stores nothing for others (what kvpoold is
 * without --store-size and --mount), and has what every mount has, a live
 * mirror of the pool's names. So questions (exists, get_size, exists_prefix)
 * are look-ups in this process's memory, from any thread, with no system call
 * and no message; they go on while the master is away, and wait for nothing
 * that the connection's puts and gets do. An index in shared
 * memory, exported by a daemon, would spare each process its mirror (some 300
 * bytes a name) but be a second form of the same thing; this one is the
 * daemon's own code, and what it finds and what a get then does cannot differ.
 *
 * KEYS are any bytes, 0 to KVPOOL_KEY_MAX of them (somewhat less if they are
 * full of NUL and '/'), in a namespace, which is a directory of the mount. Each
 * has one path below it, told by kvpool_key_path, and two never the same: the
 * key itself where that can be a file's name, else with NUL as %00, '/' as %2F,
 * a '%' that would begin such as %25, and in pieces of 252 bytes (directories
 * that end in %0C) beyond 255 bytes. So what is put is seen by ls and read by
 * path, and files of a directory are objects of the namespace of that name.
 *
 * SIZES are bytes, times seconds. An object is 0 bytes up to what the smallest
 * store and this connection's buffer hold.
 *
 * COPIES. put_from: one, from the caller's buffer, which is not to change
 * meanwhile, to a file in this connection's buffer_dir, from where a store
 * reads it (over TCP). If that is the directory that a store of this host keeps
 * for it, the store takes the very file. get_into: one, from the object's file,
 * if it is here or in a store of this host, whose descriptor is borrowed; what
 * another host has is received into the caller's buffer itself, by the caller's
 * thread if it has up to 8 MiB (if that fails, or somebody here fetches it
 * already, into a file here, and copied), and not kept; so is what has up to 64
 * KiB, whoever has it, the first three times. Where both hosts have RDMA,
 * ranges above 256 KiB are written into the caller's buffer by the other side's
 * device: each range is registered for that while it is under way, nothing else
 * of the buffer is in its reach, and the bytes are verified as over TCP.
 * kvpool_open, kvpool_map: none where a store of this host has it, the pages
 * are that store's; else it is received into a file here.
 *
 * ERRORS. Calls return >= 0 or a negative error number, those of errno with
 * these meanings, per key in a batch; kvpool_strerror has a text for each, and
 * kvpool_last_error what exactly went wrong in this thread's last failing call.
 *
 *	-ENOENT		a miss: not in the pool, or nobody could give it in time
 *	-EEXIST		KVPOOL_IF_ABSENT, and it is there
 *	-ENAMETOOLONG	the key is beyond the mapping's limit
 *	-EFAULT		the buffer is not in a registered one, or not in memory
 *	-EMSGSIZE	the object has another size: larger than the buffer, or
 *			(KVPOOL_EXACT) smaller; nothing was written
 *	-EFBIG		larger than this connection's buffer
 *	-ENOSPC		no room, and nothing may be evicted
 *	-EISDIR		a directory has this name, that is not of this mapping
 *	-ENOTDIR	a file has the name of a directory above
 *	-EMEDIUMTYPE	the namespace has another layout
 *	-ETIMEDOUT	no answer in time; of kvpool_sync, also: no store has
 *			room for what was put (all of it is pinned)
 *	-EHOSTDOWN	no master could be reached (kvpool_connect)
 *	-EAGAIN		too many requests are under way (kvpool_submit)
 *	-EBUSY		in use (kvpool_unregister_buffer)
 *	-EIO		the file was lost while it was written
 *	-EMFILE		too many open files
 *	-ENOMEM		no memory
 *	-EINVAL		an argument makes no sense
 *	-ECHILD		this process is a fork of the one that connected
 *
 * DAEMONS THAT DIE. The connection finds the master again by itself, also
 * another one; till then gets and questions go on, and puts while there is room
 * in the buffer (then they wait for some, 10 s at most: -ENOSPC). A get from a
 * node that died is a miss, or comes from another one that has the object.
 *
 * THREADS. Any, at once, on the same pool and namespace, but for kvpool_close
 * and kvpool_close_ns, which end them: nothing else of them may be under way.
 * No callbacks. Signals are blocked in the library's threads. After a fork the
 * child's calls fail with -ECHILD.
 *
 * STABILITY. Symbols and structs declared here stay compatible within a major
 * version; a struct only grows, and its user says in struct_size (in: sizeof)
 * how large it thinks it is. Unnamed members are to be zero.
 */
#ifndef KVPOOL_H
#define KVPOOL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVPOOL_VERSION "0.1.0"

/* Of the library in use: "0.1.0". */
const char *kvpool_version(void);

/* ---- errors ---- */

/* Of a result (negative, or 0): constant text, never NULL. */
const char *kvpool_strerror(int64_t error);
/* What went wrong in this thread's last call that failed, or in the last key of
 * it that did: at most 511 bytes, good until this thread's next call. Of requests
 * (kvpool_submit) there are only the results. */
const char *kvpool_last_error(void);

/* ---- connections ---- */

struct kvpool;

#define KVPOOL_INSECURE 1u /* listen may be other than loopback, and any local
			      user may be at the other end of loopback: there is
			      no authentication */

struct kvpool_options {
	size_t struct_size;
	/* "HOST:PORT", of the master, or of several with commas; or "/PATH" in a
	 * mount of the pool on this machine, whose master is asked for. */
	const char *at;
	/* Where other nodes reach this one, to read what it puts; NULL:
	 * "127.0.0.1:0" (any port), good for a pool on one host. */
	const char *listen;
	const char *advertise;	/* if they see another address; NULL: listen */
	const char *name;	/* for people; NULL: "lib-" and the pid */
	/* Best ".clients" in the directory of a store of this host (one that
	 * lends descriptors), else in a tmpfs with huge=within_size (where pages
	 * are of 4 KiB, as in /dev/shm mostly, a put takes four times as long,
	 * which is that of allocating them, and about twice once buffer_size has
	 * been put in objects of one size, which take each other's). NULL: that, if `at` is in its
	 * mount, this user may and there is room; else /dev/shm/kvpool-UID. Each
	 * connection uses a directory of its own in it. */
	const char *buffer_dir;
	uint64_t buffer_size;	/* bytes there, at most; 0: 256 MiB */
	uint64_t timeout_ms;	/* of kvpool_connect; 0: 10 s */
	unsigned int flags;	/* KVPOOL_INSECURE */
	unsigned int threads;	/* that do what is submitted, 1 to 64; 0: 4 */
	int log_level;		/* to stderr: 0 errors (default), 1 warnings, 2
				   more, 3 debugging; of the process */
	/* "mlx5_0,mlx5_1": RDMA devices to use, all of which have to be there;
	 * NULL: all that can be used, if any; "": none, TCP only. */
	const char *rdma_device;
	/* "vllm,1001": of this machine's users, whose daemons and other clients
	 * this connection deals with over loopback, besides root's and those of
	 * its own user; NULL: none. Those daemons have to be told of this user,
	 * too (--allow-user). With KVPOOL_INSECURE nobody is asked. */
	const char *allow_users;
};

/*
 * Returns when the mirror is whole: what is asked from then on is right. 0;
 * -EINVAL; -EHOSTDOWN (no master in time, or none at this address: a node
 * that only stores has none); -ENOTSUP (the path is in no pool's mount);
 * -ENOSPC (buffer_size is more than buffer_dir's filesystem has); -EPERM (others
 * may change buffer_dir); -EMFILE (too many connections use it); -ENOMEM; other
 * -errno. *ret_pool is the
 * caller's to close.
 */
int kvpool_connect(const struct kvpool_options *options,
		   struct kvpool **ret_pool);
/* Waits as kvpool_sync until stores have what was put; frees it. Namespaces are
 * closed, nothing is under way; descriptors and mappings stay good. NULL is
 * allowed. 0, or -ETIMEDOUT: something that was put may be lost. */
int kvpool_close(struct kvpool *pool);

/* What was put before the call, through this connection, is on stores and known
 * to every mount. 0, -ETIMEDOUT (for 10 s nothing of it has come any further, or
 * no master could be reached for 2 s). */
int kvpool_sync(struct kvpool *pool);

/* ---- namespaces ---- */

struct kvpool_ns;

/* How objects are to be read. Text without control characters and ';', at most
 * 200 bytes; NULL is "". */
struct kvpool_layout {
	size_t struct_size;
	const char *model, *dtype, *layout;
	uint32_t tp, tokens; /* ranks; tokens an object */
};

/*
 * path: of the directory, relative to the mount; "" is the root. It need not be
 * there. layout: NULL, or what the namespace must have; if it has none it gets
 * this one (as the directory's attribute user.kvpool_layout, "model=..;dtype=..;
 * layout=..;tp=..;tokens=.."). 0; -EMEDIUMTYPE: kvpool_last_error shows both,
 * and so end all later calls if the directory is given another one; -EINVAL,
 * -ENOTDIR, -ETIMEDOUT (the layout could not be told to the pool), -ENOMEM.
 */
int kvpool_open_ns(struct kvpool *pool, const char *path,
		   const struct kvpool_layout *layout,
		   struct kvpool_ns **ret_ns);
/* NULL is allowed. */
void kvpool_close_ns(struct kvpool_ns *ns);

/* Of the key, below the namespace's directory, NUL-terminated: its length, or
 * -ENAMETOOLONG, also if cap is too small (4097 never is). */
int kvpool_key_path(const struct kvpool_ns *ns, const void *key,
		    size_t key_len, char *buf, size_t cap);
/* The other way: the key's length; -EINVAL: no key has this path; -ENAMETOOLONG
 * (KVPOOL_KEY_MAX is always enough). */
int kvpool_path_key(const struct kvpool_ns *ns, const char *path, void *buf,
		    size_t cap);
#define KVPOOL_KEY_MAX 4000

/* ---- buffers ---- */

/* What put_from reads and get_into writes lies in one of these. The memory stays
 * the caller's, and there until unregister_buffer. 0; -EINVAL (no bytes, or it
 * overlaps another one); -EFAULT (not mapped); -ENOSPC (more than 4096). */
int kvpool_register_buffer(struct kvpool *pool, void *addr, size_t len);
/* addr: as registered. 0, -ENOENT, -EBUSY (in use by a call). */
int kvpool_unregister_buffer(struct kvpool *pool, void *addr);

/* ---- one key ---- */

#define KVPOOL_IF_ABSENT 1u /* put: -EEXIST if the key is there */
#define KVPOOL_SYNC 2u	    /* put: as kvpool_sync before it returns, whose
			       error is that of each key, also of those that
			       are in a store by then */
#define KVPOOL_EXACT 4u	    /* get: -EMSGSIZE unless the object fills buf */

/*
 * 0: the object is whole, seen by this connection, and on its way to the pool
 * (what is put under a key replaces what it had; who reads that goes on). The
 * same bytes again are no new version.
 */
int kvpool_put_from(struct kvpool_ns *ns, const void *key, size_t key_len,
		    const void *buf, size_t len, unsigned int flags);
/* The object's size, which is in buf, verified; or an error. */
int64_t kvpool_get_into(struct kvpool_ns *ns, const void *key, size_t key_len,
			void *buf, size_t cap, unsigned int flags);
/* Bytes, or an error. */
int64_t kvpool_get_size(struct kvpool_ns *ns, const void *key, size_t key_len);
/* 1 or 0, or an error. */
int kvpool_exists(struct kvpool_ns *ns, const void *key, size_t key_len);
/* From the whole pool. Who has it open or mapped keeps it. 0; -ENOENT. */
int kvpool_remove(struct kvpool_ns *ns, const void *key, size_t key_len);
/* It will be wanted soon: fetched ahead if it is elsewhere, and kept a while if
 * it is here. 0; -ENOENT. */
int kvpool_touch(struct kvpool_ns *ns, const void *key, size_t key_len);
/* Evicted after all others, for so many seconds; 0: never evicted, until
 * kvpool_unpin. The attribute user.kvpool.pin. 0; -ENOENT. */
int kvpool_pin(struct kvpool_ns *ns, const void *key, size_t key_len,
	       uint64_t seconds);
int kvpool_unpin(struct kvpool_ns *ns, const void *key, size_t key_len);

/* The object as a file: a descriptor that can only be read, close-on-exec, the
 * caller's to close. Read it by pread(2): its offset may be shared. Its bytes
 * never change, and stay, whatever becomes of the key. */
int kvpool_open(struct kvpool_ns *ns, const void *key, size_t key_len);
/* The same as memory (PROT_READ), of the object's size; an empty object is at a
 * place that may not be read. 0 or an error; to be given back with
 * kvpool_unmap. */
int kvpool_map(struct kvpool_ns *ns, const void *key, size_t key_len,
	       const void **ret_addr, size_t *ret_len);
void kvpool_unmap(const void *addr, size_t len);

/* ---- many keys ---- */

struct kvpool_key {
	const void *data;
	size_t len;
};
struct kvpool_buf {
	void *data;
	size_t len;
};

#define KVPOOL_BATCH_MAX (1u << 20)

/*
 * Each key as if by the call of its name, and its result (which there is what
 * the call returns) in ret[i]; all that move bytes move them side by side. They
 * return how many keys had a result >= 0 (exists: how many are there), or
 * -EINVAL (n > KVPOOL_BATCH_MAX), -EMEDIUMTYPE, -ECHILD, -ENOMEM: then ret is
 * as it was. The same key twice in one batch of puts: one of the two stays.
 */
ssize_t kvpool_batch_put_from(struct kvpool_ns *ns,
			      const struct kvpool_key *keys,
			      const struct kvpool_buf *bufs, size_t n,
			      unsigned int flags, int64_t *ret);
ssize_t kvpool_batch_get_into(struct kvpool_ns *ns,
			      const struct kvpool_key *keys,
			      const struct kvpool_buf *bufs, size_t n,
			      unsigned int flags, int64_t *ret);
ssize_t kvpool_batch_get_size(struct kvpool_ns *ns,
			      const struct kvpool_key *keys, size_t n,
			      int64_t *ret);
ssize_t kvpool_batch_exists(struct kvpool_ns *ns,
			    const struct kvpool_key *keys, size_t n,
			    int64_t *ret);
ssize_t kvpool_batch_remove(struct kvpool_ns *ns,
			    const struct kvpool_key *keys, size_t n,
			    int64_t *ret);
ssize_t kvpool_batch_touch(struct kvpool_ns *ns,
			   const struct kvpool_key *keys, size_t n,
			   int64_t *ret);
ssize_t kvpool_batch_pin(struct kvpool_ns *ns, const struct kvpool_key *keys,
			 size_t n, uint64_t seconds, int64_t *ret);
ssize_t kvpool_batch_unpin(struct kvpool_ns *ns,
			   const struct kvpool_key *keys, size_t n,
			   int64_t *ret);

/* How many leading keys of this list are there? A key that cannot be one is
 * not. >= 0, or as the others. */
ssize_t kvpool_exists_prefix(struct kvpool_ns *ns,
			     const struct kvpool_key *keys, size_t n);

/* ---- without waiting ---- */

enum kvpool_call {
	KVPOOL_CALL_PUT_FROM = 1,
	KVPOOL_CALL_GET_INTO,
	KVPOOL_CALL_GET_SIZE,
	KVPOOL_CALL_EXISTS,
	KVPOOL_CALL_REMOVE,
	KVPOOL_CALL_TOUCH,
	KVPOOL_CALL_PIN, /* arg: seconds */
	KVPOOL_CALL_UNPIN,
	KVPOOL_CALL_EXISTS_PREFIX /* ret: not used */
};
#define KVPOOL_REQUESTS_MAX 4096 /* submitted and not completed yet */

/*
 * The batch of that name, later, on a thread of the library's. keys (and what
 * they point at) and bufs are copied; the buffers and ret are the library's
 * until the completion has been taken. bufs: NULL where there are none. arg:
 * flags (32 bits), or seconds. id comes back with the completion. 0; -EAGAIN;
 * -EINVAL; -ENOMEM. A touch begins 2 ms later at least: what was found is to be
 * told first.
 */
int kvpool_submit(struct kvpool_ns *ns, enum kvpool_call call,
		  const struct kvpool_key *keys, const struct kvpool_buf *bufs,
		  size_t n, uint64_t arg, int64_t *ret, uint64_t id);

struct kvpool_completion {
	uint64_t id;
	int64_t result; /* what the batch call returned */
};

/* The pool's eventfd (EFD_NONBLOCK): readable when there are completions that
 * have not been taken. Borrowed; not to be read. */
int kvpool_event_fd(const struct kvpool *pool);
/* Takes up to max of them, in order of completion; never waits. How many. */
size_t kvpool_completions(struct kvpool *pool, struct kvpool_completion *ret,
			  size_t max);

/* ---- without a connection: files of a mount ---- */

/*
 * Can `path` (relative to the mount, no leading slash, NUL-terminated) be that
 * of an object? 0; -EINVAL (an empty, "." or ".." component, or a leading,
 * trailing or double slash); -ENAMETOOLONG (a component over 255 bytes, or
 * over 4096 in all).
 */
int kvpool_path_check(const char *path);

/* "50G", "50gb", "512MiB", "1.5T" or bytes; units are powers of 1024. 0,
 * -EINVAL or -ERANGE. */
int kvpool_parse_size(const char *text, uint64_t *ret_bytes);

#define KVPOOL_STATE_MAX 32
#define KVPOOL_CHECKSUM_MAX 64
struct kvpool_stat {
	size_t struct_size;
	uint64_t size;	     /* bytes */
	uint64_t generation; /* grows with each rewrite of the name; 0: not
				published yet. Elsewhere it is shown as
				EPOCH.SEQUENCE, the upper 24 and lower 40 bits */
	uint32_t replicas;   /* whole copies known of; 0: not told */
	char state[KVPOOL_STATE_MAX];	    /* "held", "cached", "remote", ... */
	char checksum[KVPOOL_CHECKSUM_MAX]; /* hex XXH3-128; "" not told */
};

/*
 * What the pool knows about the file at `path`, which lies in a mounted pool.
 * 0; -EINVAL (struct_size); -ENOTSUP (not in a pool's mount); -EBADMSG or
 * -ERANGE (attributes that make no sense); -errno as of stat(2) and
 * getxattr(2).
 */
int kvpool_stat(const char *path, struct kvpool_stat *ret_stat);

#ifdef __cplusplus
}
#endif

#endif
