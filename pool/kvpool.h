/*
 * libkvpool: get and put objects of the pool by key, without the file API.
 *
 *	struct kvpool_options o = { sizeof(o), .at = "10.0.0.1:7070" };
 *	struct kvpool *pool;
 *	struct kvpool_ns *ns;
 *
 *	kvpool_connect(&o, &pool);
 *	kvpool_open_ns(pool, "llama", NULL, &ns);
 *	kvpool_register_buffer(pool, buf, len);
 *	kvpool_put_from(ns, "key", 3, buf, 4096, 0);
 *	kvpool_get_into(ns, "key", 3, buf, len, 0);
 *
 * CONNECTIONS. A connection is a node of the pool inside the caller's process.
 * It has a loop thread of its own and stores nothing for other nodes (like
 * kvpoold without --store-size and --mount). Like every mount it keeps a live
 * mirror of the pool's names. So queries (exists, get_size, exists_prefix) are
 * look-ups in this process's memory: they may be made from any thread, and need
 * no system call and no message. They work without a master, and they never
 * wait for this connection's puts and gets. Why not an index in shared
 * memory, exported by a daemon? It would save each process its mirror (some 300
 * bytes per name), but it would be a second implementation. This one is the
 * daemon's own code, so a query and the get that follows it cannot disagree.
 *
 * KEYS are 0 to KVPOOL_KEY_MAX arbitrary bytes (somewhat fewer if many of them
 * are NUL or '/'). A key belongs to a namespace, which is a directory of the
 * mount. kvpool_key_path returns a key's path below that directory; two keys
 * never have the same path. A key that is a valid file name is its own path.
 * Otherwise NUL becomes %00, '/' becomes %2F, the first dot of "." and ".."
 * (and of ".kvpool" in the root) becomes %2E, the empty key becomes %0E, and a
 * '%' that would start such an escape becomes %25. A name of more than 255
 * bytes is split into pieces of 252 bytes; all but the last are directories,
 * whose names end in %0C. So objects that were put can be listed with ls and
 * read by path, and the files of a directory are objects of the namespace of
 * that name.
 *
 * UNITS. Sizes are bytes, times are seconds, unless a name says otherwise. An
 * object has 0 bytes or more, up to what the smallest store and this
 * connection's buffer can hold.
 *
 * COPIES. put_from copies once: from the caller's buffer, which must not change
 * meanwhile, to a file in this connection's buffer_dir. A store then reads that
 * file over TCP. If buffer_dir is the directory that a store of this host keeps
 * for clients, the store takes over the file itself.
 *
 * get_into copies once, from the object's file, if the object is in this
 * process or in a store of this host, which lends its descriptor. An object on
 * another host is received directly into the caller's buffer and is not kept;
 * if it has up to 8 MiB, the caller's own thread receives it. If that fails, or
 * if this process is fetching the object already, it is received into a local
 * file and copied from there. Objects of up to 64 KiB are an exception: a store
 * of this host sends them the first three times, then lends them. Where both
 * hosts have RDMA, the peer writes ranges above 256 KiB into the caller's
 * buffer by RDMA. Each range is registered only while it is in flight, the peer
 * cannot access the rest of the buffer, and the bytes are verified as over TCP.
 *
 * kvpool_open and kvpool_map copy nothing if a store of this host has the
 * object: they give access to that store's pages. Otherwise the object is
 * received into a local file.
 *
 * ERRORS. Calls return >= 0 or a negative errno with the meanings below; a
 * batch returns one result per key. kvpool_strerror describes each error,
 * kvpool_last_error describes the last failure of the calling thread in detail.
 *
 *	-ENOENT		a miss: not in the pool, or no holder sent it in time
 *	-EEXIST		KVPOOL_IF_ABSENT, and the key exists
 *	-ENAMETOOLONG	the key, or its path, is too long
 *	-EFAULT		the memory is not in a registered buffer, or not mapped
 *	-EMSGSIZE	the object has another size: larger than the buffer, or
 *			(KVPOOL_EXACT) smaller; nothing was written
 *	-EFBIG		larger than this connection's buffer
 *	-ENOSPC		no space, and nothing may be evicted
 *	-EISDIR		the key's path is a directory
 *	-ENOTDIR	a parent directory's name belongs to a file
 *	-EACCES		the namespace (kvpool_open_ns), or the key to be
 *			changed, is not in the directories to which this
 *			connection's certificate is limited
 *	-EMEDIUMTYPE	the namespace has another layout
 *	-ETIMEDOUT	no answer in time; kvpool_sync: also if no store has
 *			space for what was put (all of it is pinned)
 *	-EHOSTDOWN	no master could be reached (kvpool_connect)
 *	-EAGAIN		too many requests are in flight (kvpool_submit)
 *	-EBUSY		in use (kvpool_unregister_buffer)
 *	-EIO		the file was lost while it was written
 *	-EMFILE		too many open files
 *	-ENOMEM		no memory
 *	-EINVAL		invalid argument
 *	-ECHILD		this process is a fork of the one that connected
 *
 * DAEMONS THAT DIE. The connection reconnects by itself to the master, or to
 * the one that has taken over. Meanwhile gets and queries go on, and so do puts
 * while the buffer has space. When it is full, a put waits up to 10 s for space
 * and then fails with -ENOSPC. If a node dies, a get of its object is served by
 * another holder or is a miss.
 *
 * THREADS. All calls may be made from any thread at any time, on the same pool
 * and namespace. The exceptions are kvpool_close and kvpool_close_ns: no other
 * call on that object may be in flight. There are no callbacks. Signals are
 * blocked in the library's threads. After a fork the child's calls fail with
 * -ECHILD.
 *
 * STABILITY. Symbols and structs declared here stay compatible within a major
 * version. Structs only grow: the caller sets struct_size to its sizeof.
 * Members that the caller does not use must be zero.
 */
#ifndef KVPOOL_H
#define KVPOOL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVPOOL_VERSION "0.2.0"

/* Version of the library at run time: its KVPOOL_VERSION; "+COMMIT" follows if
 * it was built from a git checkout. Constant text. */
const char *kvpool_version(void);

/* ---- errors ---- */

/* Describes a result (0 or a negative errno). Constant text, never NULL. */
const char *kvpool_strerror(int64_t error);
/* Describes why this thread's last failing call failed; of a batch, the last
 * key that failed. At most 511 bytes, owned by the library, valid until this
 * thread's next call. Not set for requests (kvpool_submit): these have results
 * only. */
const char *kvpool_last_error(void);

/* ---- connections ---- */

struct kvpool;

#define KVPOOL_INSECURE 1u /* allow `listen` on other interfaces than loopback,
			      and loopback peers of any local user: there is no
			      authentication */

struct kvpool_options {
	size_t struct_size;
	/* "HOST:PORT" of the master, or several separated by commas; or a
	 * "/PATH" in a mount of the pool on this machine, which then supplies
	 * the master's address. */
	const char *at;
	/* "HOST:PORT" where other nodes connect to read what this one puts.
	 * NULL: "127.0.0.1:0" (any port), enough for a pool on one host. */
	const char *listen;
	const char *advertise;	/* address that the others see; NULL: listen */
	const char *name;	/* shown by tools; NULL: "lib-" and the pid */
	/* Directory for objects that were put and that no store has yet. Each
	 * connection uses a subdirectory of its own.
	 * NULL: ".clients" in the directory of this host's store, if `at` is a
	 * path in that store's mount, this user may write there and it has
	 * space; else /dev/shm/kvpool-UID.
	 * Fastest is ".clients" of a store of this host that lends descriptors,
	 * next a tmpfs with huge=within_size. With pages of 4 KiB (the usual
	 * /dev/shm) a put takes four times as long, because it allocates them.
	 * If all objects have one size, that drops to about twice as long after
	 * the first buffer_size bytes: objects reuse the pages of earlier ones.
	 */
	const char *buffer_dir;
	uint64_t buffer_size;	/* most bytes in buffer_dir; 0: 256 MiB */
	uint64_t timeout_ms;	/* of kvpool_connect; 0: 10 s. Other calls have
				   limits that cannot be set. */
	unsigned int flags;	/* KVPOOL_INSECURE */
	unsigned int threads;	/* that execute requests, 1 to 64; 0: 4 */
	int log_level;		/* to stderr: 0 errors (default), 1 warnings, 2
				   info, 3 debugging; for the whole process */
	/* "mlx5_0,mlx5_1": RDMA devices to use, each of which must exist;
	 * NULL: all usable ones, if any; "": none, TCP only. */
	const char *rdma_device;
	/* "vllm,1001": local users whose daemons and clients this connection
	 * accepts over loopback, besides root and its own user; NULL: none.
	 * Those daemons must accept this user, too (--allow-user). Users are
	 * not checked with KVPOOL_INSECURE; with tls_dir they are checked on
	 * Unix sockets only. */
	const char *allow_users;
	/* Directory with ca.crt, tls.crt and tls.key: the certificate of a
	 * client of this pool. Needed if its masters and nodes have --tls-dir;
	 * then `listen` may be any address. NULL: the environment variable
	 * KVPOOL_TLS_DIR, if it is set and not empty; "": none. */
	const char *tls_dir;
	/* With tls_dir: "tls" encrypts the bytes of objects; "auth" does not
	 * where the other node has --bulk auth (kvpoold(8)). Without tls_dir
	 * only "plain". NULL: the environment variable KVPOOL_BULK, if it is
	 * set and not empty; else "tls", or "plain" without tls_dir. */
	const char *bulk;
	/* With tls_dir: connections of this age are replaced, so that new
	 * certificates are used in time; 1000 to 31536000000. 0: the
	 * environment variable KVPOOL_TLS_RENEW ("90s", "1h"), if it is set and
	 * not empty; else a day. */
	uint64_t tls_renew_ms;
};

/*
 * Connects, and returns when the mirror is complete: queries are right from
 * then on. Strings in options are copied. The caller owns *ret_pool and closes
 * it.
 *
 * 0; -EINVAL; -EHOSTDOWN (no master answered in time, or what listens at `at`
 * is no master, but for example a node); -ENOTSUP (the path is in no pool's
 * mount); -ENOSPC (the filesystem of buffer_dir has less than buffer_size);
 * -EPERM (other users may write to buffer_dir); -EMFILE (too many connections
 * use it); -ENOMEM; other -errno.
 */
int kvpool_connect(const struct kvpool_options *options,
		   struct kvpool **ret_pool);
/* Waits like kvpool_sync, then disconnects and frees pool. The caller has
 * closed all namespaces, and no call is in flight. Descriptors and mappings
 * stay valid. NULL is a no-op. 0, or -ETIMEDOUT: something that was put may be
 * lost. */
int kvpool_close(struct kvpool *pool);

/* Waits until everything that this connection put before the call is on stores
 * and visible in every mount. 0, or -ETIMEDOUT (no progress for 10 s, or no
 * master reachable for 2 s). */
int kvpool_sync(struct kvpool *pool);

/* ---- namespaces ---- */

struct kvpool_ns;

/* How the bytes of a namespace's objects are to be interpreted. Strings: at
 * most 200 bytes each, no control characters and no ';'. NULL means "". */
struct kvpool_layout {
	size_t struct_size;
	const char *model, *dtype, *layout;
	uint32_t tp, tokens; /* number of ranks; tokens per object */
};

/*
 * path: the directory, relative to the mount; "" is the root. It need not
 * exist. layout: NULL for any, or the one that the namespace must have. A
 * namespace without a layout gets this one, as the attribute user.kvpool_layout
 * of its directory ("model=..;dtype=..;layout=..;tp=..;tokens=..").
 *
 * 0; -EMEDIUMTYPE (the namespace has another layout; kvpool_last_error shows
 * both); -EACCES (the certificate is for other directories, which
 * kvpool_last_error names); -EINVAL; -ENOTDIR; -ETIMEDOUT (the layout could
 * not be published); -ENOMEM. If the directory gets another layout later, all
 * calls on the namespace fail with -EMEDIUMTYPE. The caller closes *ret_ns
 * before the pool.
 */
int kvpool_open_ns(struct kvpool *pool, const char *path,
		   const struct kvpool_layout *layout,
		   struct kvpool_ns **ret_ns);
/* Frees ns; no call on it may be in flight. NULL is a no-op. */
void kvpool_close_ns(struct kvpool_ns *ns);

/* Writes the key's path below the namespace's directory to buf (cap bytes),
 * NUL-terminated. Returns its length; -ENAMETOOLONG, also if cap is too small
 * (4097 is always enough); or -EINVAL. */
int kvpool_key_path(const struct kvpool_ns *ns, const void *key,
		    size_t key_len, char *buf, size_t cap);
/* The reverse: writes the key, without a terminator, to buf (cap bytes).
 * Returns its length; -EINVAL (no key has this path); or -ENAMETOOLONG (cap is
 * too small; KVPOOL_KEY_MAX is always enough). */
int kvpool_path_key(const struct kvpool_ns *ns, const char *path, void *buf,
		    size_t cap);
#define KVPOOL_KEY_MAX 4000

/* ---- buffers ---- */

/* Registers memory for put_from to read and get_into to write: both accept only
 * ranges that lie in one registered buffer. The caller keeps ownership, and
 * keeps the memory mapped until unregister_buffer. 0; -EINVAL (len is 0, or it
 * overlaps another one); -EFAULT (not mapped); -ENOSPC (more than 4096);
 * -ENOMEM. */
int kvpool_register_buffer(struct kvpool *pool, void *addr, size_t len);
/* addr: the start of a registered buffer. 0, -ENOENT, -EBUSY (a call uses
 * it). */
int kvpool_unregister_buffer(struct kvpool *pool, void *addr);

/* ---- one key ---- */

#define KVPOOL_IF_ABSENT 1u /* put: -EEXIST if the key exists */
#define KVPOOL_SYNC 2u	    /* put: kvpool_sync before returning. If that
			       fails, its error is the result of every key
			       that was put, even of those that a store has */
#define KVPOOL_EXACT 4u	    /* get: -EMSGSIZE unless the object fills buf */

/*
 * Stores len bytes under the key. 0: the object is complete, visible to this
 * connection, and on its way to the pool. It replaces an older version; readers
 * that have the older one open go on reading it. Putting the same bytes again
 * makes no new version. The caller may reuse buf when the call returns.
 */
int kvpool_put_from(struct kvpool_ns *ns, const void *key, size_t key_len,
		    const void *buf, size_t len, unsigned int flags);
/* Reads the whole object into buf (cap bytes) and verifies its checksum.
 * Returns the object's size, or an error. */
int64_t kvpool_get_into(struct kvpool_ns *ns, const void *key, size_t key_len,
			void *buf, size_t cap, unsigned int flags);
/* Returns the object's size in bytes, or an error. */
int64_t kvpool_get_size(struct kvpool_ns *ns, const void *key, size_t key_len);
/* Returns 1 or 0, or an error. */
int kvpool_exists(struct kvpool_ns *ns, const void *key, size_t key_len);
/* Removes the object from the whole pool. Readers that have it open or mapped
 * keep it. 0; -ENOENT. */
int kvpool_remove(struct kvpool_ns *ns, const void *key, size_t key_len);
/* Counts as a use of the object, without reading it. A local copy moves to the
 * end of the eviction order, and for 5 s others are evicted before it. Without
 * a local copy the object is fetched in the background, if limits allow; the
 * holder counts that as a use. 0; -ENOENT. */
int kvpool_touch(struct kvpool_ns *ns, const void *key, size_t key_len);
/* Pins the object: for that many seconds it is evicted only after all others;
 * seconds == 0: it is never evicted until kvpool_unpin. Sets the attribute
 * user.kvpool.pin. 0; -ENOENT. */
int kvpool_pin(struct kvpool_ns *ns, const void *key, size_t key_len,
	       uint64_t seconds);
int kvpool_unpin(struct kvpool_ns *ns, const void *key, size_t key_len);

/* Opens the object as a file: returns a read-only, close-on-exec descriptor
 * that the caller closes, or an error. Read it with pread(2), because others
 * may share its file offset. Its bytes never change and stay readable, whatever
 * happens to the key. */
int kvpool_open(struct kvpool_ns *ns, const void *key, size_t key_len);
/* The same, mapped (PROT_READ): *ret_len is the object's size in bytes. The
 * address of an empty object must not be read. 0 or an error. The caller unmaps
 * with kvpool_unmap. */
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
 * Each call does for n keys what its single-key variant does for one; ret[i] is
 * the result for keys[i]. Gets and puts of a batch run concurrently.
 *
 * Returns the number of results >= 0 (exists: the number of keys that exist);
 * or -EINVAL (n > KVPOOL_BATCH_MAX), -EMEDIUMTYPE, -ECHILD, -ENOMEM, and then
 * ret is unchanged. If a batch puts one key twice, either version may remain.
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

/* Returns how many leading keys of the list exist, or an error as above. A key
 * that is not valid does not exist. */
ssize_t kvpool_exists_prefix(struct kvpool_ns *ns,
			     const struct kvpool_key *keys, size_t n);

/* ---- accounting ---- */

/*
 * What a connection has done since kvpool_connect. Each key that a call was
 * given is counted once as asked for (`lookups`, `gets`, `puts`), and once,
 * when its result is known, under one heading of its group. So, while no call
 * is in flight:
 *
 *	lookups = hits_here + hits_peer + misses
 *		  + lookups_skipped + lookups_invalid
 *	gets    = gets_here + gets_lent + gets_tcp + gets_rdma
 *		  + gets_missed + gets_undelivered + gets_unfit
 *		  + gets_invalid + gets_failed
 *	puts    = puts_stored + puts_existed + puts_full + puts_invalid
 *		  + puts_failed
 *	bytes_got = bytes_here + bytes_lent + bytes_tcp + bytes_rdma
 *
 * At any other moment the left side of the first three is greater by the keys
 * in flight, never less. Figures only grow. A call that is refused as a whole
 * (a batch that returns a negative errno) counts nothing.
 *
 * Look-ups are the keys of exists, get_size and exists_prefix. Gets are those
 * of get_into, open and map, and do not count as look-ups; open and map count
 * the object's size as bytes got (map even if there is no address space for
 * it). Puts are those of put_from. If only the KVPOOL_SYNC of a put fails, the
 * put counts as stored.
 */
struct kvpool_stats {
	size_t struct_size;
	/* look-ups */
	uint64_t lookups;
	uint64_t hits_here; /* this process has the bytes: it put the object and
			       no store has it yet, or it keeps a copy or a
			       descriptor that a store of this host has lent */
	uint64_t hits_peer; /* only other nodes have them */
	uint64_t misses;
	uint64_t lookups_skipped; /* exists_prefix: the keys behind the first
				     missing one, which are of no use */
	uint64_t lookups_invalid; /* the key is not valid, or no memory */
	uint64_t lookups_away; /* of `lookups`: while no master was connected;
				  what others put meanwhile is a miss */
	/* gets, by where the bytes came from */
	uint64_t gets;
	uint64_t gets_here; /* a file of this process */
	uint64_t gets_lent; /* the pages of a store of this host */
	uint64_t gets_tcp;  /* received from another node, by TCP or TLS */
	uint64_t gets_rdma; /* the same, some or all of it by RDMA */
	/* gets that failed, by cause */
	uint64_t gets_missed;	   /* -ENOENT: no such object */
	uint64_t gets_undelivered; /* -ENOENT: there is one, but no holder sent
				      it in time, or it was replaced or removed
				      meanwhile */
	uint64_t gets_unfit;	   /* -EMSGSIZE */
	uint64_t gets_invalid; /* -EFAULT, -EINVAL, -EISDIR, -ENAMETOOLONG,
				  -ENOTDIR */
	uint64_t gets_failed;  /* other errors */
	uint64_t bytes_got, bytes_here, bytes_lent, bytes_tcp, bytes_rdma;
	/* puts */
	uint64_t puts;
	uint64_t puts_stored;
	uint64_t puts_existed; /* -EEXIST */
	uint64_t puts_full;    /* -ENOSPC, -EDQUOT */
	uint64_t puts_invalid; /* -EFAULT, -EFBIG, -EINVAL, -EISDIR,
				  -ENAMETOOLONG, -ENOTDIR */
	uint64_t puts_failed;  /* other errors */
	uint64_t bytes_put;    /* of puts_stored */
	/* Attempts after a failed one, inside these calls and inside remove,
	 * pin and unpin: by another way, or by the same way a moment later.
	 * Many of them mean slow or lost peers. */
	uint64_t retries;
	/* Latency, from one of 64 calls of each thread, of whatever number of
	 * keys: how many calls were timed; upper bounds (powers of two of 1 us)
	 * of the median and of 99 of 100. 0: none was; UINT64_MAX: > 33 s. */
	uint64_t lookup_calls_timed, lookup_calls_p50_ns, lookup_calls_p99_ns;
	uint64_t get_calls_timed, get_calls_p50_ns, get_calls_p99_ns;
	uint64_t put_calls_timed, put_calls_p50_ns, put_calls_p99_ns;
};

/* Sets *ret_stats. The caller sets its struct_size; members that this version
 * of the library does not have become 0. Never blocks. 0; -EINVAL (NULL, or
 * struct_size is too small); -ECHILD. */
int kvpool_stats(const struct kvpool *pool, struct kvpool_stats *ret_stats);

/* ---- asynchronous requests ---- */

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
#define KVPOOL_REQUESTS_MAX 4096 /* requests whose completion was not taken */

/*
 * Queues the batch call of that name for a thread of the library. The arrays
 * keys and bufs and the bytes of the keys are copied. The buffers themselves
 * and ret belong to the library until the completion has been taken. bufs: NULL
 * for calls without buffers. arg: flags (32 bits), or seconds. id is returned
 * with the completion. 0; -EAGAIN; -EINVAL; -ENOMEM.
 *
 * A touch starts after 2 ms at the earliest, so that it does not delay the
 * queries that usually surround it.
 */
int kvpool_submit(struct kvpool_ns *ns, enum kvpool_call call,
		  const struct kvpool_key *keys, const struct kvpool_buf *bufs,
		  size_t n, uint64_t arg, int64_t *ret, uint64_t id);

struct kvpool_completion {
	uint64_t id;
	int64_t result; /* what the batch call returned */
};

/* Returns the pool's eventfd (EFD_NONBLOCK), or -EINVAL if pool is NULL. It is
 * readable while there are completions to take. The library owns it: the caller
 * polls it, but neither reads nor closes it. */
int kvpool_event_fd(const struct kvpool *pool);
/* Takes up to max completions, in order of completion, without blocking.
 * Returns how many. */
size_t kvpool_completions(struct kvpool *pool, struct kvpool_completion *ret,
			  size_t max);

/* ---- files of a mount; no connection needed ---- */

/*
 * Can `path` (relative to the mount, NUL-terminated) be the path of an object?
 * 0; -EINVAL (an empty, "." or ".." component, or a leading, trailing or double
 * slash); -ENAMETOOLONG (a component of more than 255 bytes, or more than 4096
 * in all).
 */
int kvpool_path_check(const char *path);

/* Parses "50G", "50gb", "512MiB", "1.5T" or a number of bytes; units are powers
 * of 1024. 0, -EINVAL or -ERANGE. */
int kvpool_parse_size(const char *text, uint64_t *ret_bytes);

#define KVPOOL_STATE_MAX 32
#define KVPOOL_CHECKSUM_MAX 64
struct kvpool_stat {
	size_t struct_size;
	uint64_t size;	     /* bytes */
	uint64_t generation; /* grows with each rewrite of the name; 0: not
				published yet. Tools show it as EPOCH.SEQUENCE,
				the upper 24 and the lower 40 bits */
	uint32_t replicas;   /* complete copies known; 0: unknown */
	char state[KVPOOL_STATE_MAX]; /* "held", "cached", "remote", ... */
	char checksum[KVPOOL_CHECKSUM_MAX]; /* hex XXH3-128; "": unknown */
};

/*
 * Reports what the pool knows about the file at `path` in a mount of a pool.
 * The caller sets ret_stat->struct_size. 0; -EINVAL (struct_size is too small,
 * or an argument is NULL); -ENOTSUP (not in a pool's mount); -EBADMSG or
 * -ERANGE (malformed attributes); -errno of stat(2) and getxattr(2).
 */
int kvpool_stat(const char *path, struct kvpool_stat *ret_stat);

#ifdef __cplusplus
}
#endif

#endif
