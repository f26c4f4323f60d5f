/*
 * put and get.
 *
 * put, happy path: create a private file under a temporary name in the
 * namespace's directory (begin, on the loop) -> reserve space -> write it, on
 * the caller's thread, or on the loop if it is small -> rename it to its key;
 * it is sealed and published like any file that is renamed in a mount. Failure
 * modes: no space, or the caller's memory cannot be read: the file is poisoned
 * and removed.
 *
 * get, happy path: the caller's thread opens and reads a local copy, or one
 * that a store of this host has lent, without the loop; or it asks a holder
 * itself (direct.c). Otherwise the loop borrows the object, or has it sent into
 * the caller's buffer; if that fails, it fetches it. Failure modes: a miss; or
 * the object is replaced meanwhile: then the new version is read.
 */
#include "pool/base/map.h"
#include "pool/client/client_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/lane/landing.h"

/* ---- copying ---- */

/* Whole large folios: tmpfs zeroes a new folio unless one write covers it. */
#define SLICE ((size_t)2 << 20)

/* pwrite reports a bad address, where memcpy would crash. So the checksum reads
 * only bytes that the kernel has copied already. */
static int write_all(const struct client_op *op, struct pool_landing *sum)
{
	const char *p = op->buf;
	size_t done = 0;
	ssize_t n;

	while (done < op->len) {
		n = pwrite(op->fd, p + done,
			   op->len - done < SLICE ? op->len - done : SLICE,
			   (off_t)done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ENOSPC;
		pool_landing_data(sum, p + done, (size_t)n);
		done += (size_t)n;
	}
	return 0;
}

/* Writes the file and computes its checksum: a landing whose bytes are already
 * in place does just that. */
static int write_summed(struct client_op *op)
{
	struct pool_landing sum = { .fd = -1, .mem = op->buf,
				    .length = op->len };
	int err = pool_landing_init(&sum);

	if (err)
		return err;
	err = write_all(op, &sum);
	pool_landing_stop(&sum, err);
	op->sum = sum.sum;
	pool_landing_fini(&sum);
	return err;
}

bool client_fits(const struct client_op *op)
{
	return op->win->flags & KVPOOL_EXACT ? op->size == op->len :
					       op->size <= op->len;
}

static int64_t read_all(const struct client_op *op)
{
	uint64_t done = 0;
	ssize_t n;

	if (!client_fits(op))
		return -EMSGSIZE;
	while (done < op->size) {
		n = pread(op->fd, (char *)op->buf + done, op->size - done,
			  (off_t)done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ENOENT;
		done += (uint64_t)n;
	}
	return (int64_t)done;
}

/* ---- put ---- */

static void put_end(struct client_op *op)
{
	struct node_dirent *dir = NULL;
	struct pool_node *n = client_pool(op)->node;
	struct node_object *o = op->o;
	struct node_entry *e = node_object_name(o);
	const char *name = memrchr(op->path.at, '/', op->path.len);
	struct pool_entry *to;
	int err = (int)op->result;

	name = name ? name + 1 : op->path.at;
	if (!e || pool_node_own(e) != o)
		err = err ? err : -EIO;
	else
		dir = pool_node_parent(node_file_entry(e));
	if (err)
		pool_node_poison(n, o, err);
	if (!err) {
		pool_node_writer_summed(n, o, op->len, op->sum);
		pool_node_writer_flushed(n, o);
	}
	pool_node_writer_closed(n, o);
	if (!err)
		err = pool_node_rename(
			n, node_file_entry(e), dir, name,
			op->path.len - (size_t)(name - op->path.at),
			op->win->flags & KVPOOL_IF_ABSENT, &to);
	if (err && dir && node_object_name(o) == e && pool_node_own(e) == o)
		(void)pool_node_unlink(n, e);
	/* After a failed write the poisoned object's entry was removed. */
	if (dir && (int)op->result == 0)
		pool_node_tidy(n, node_file_entry(e));
	op->o = NULL;
	node_object_unref(n, o);
	client_end(op, err);
}

static bool put_copy(struct client_op *op)
{
	op->result = write_summed(op);
	op->fd = -1; /* the node closes it */
	return true;
}

static void put_room(struct client_op *op, int err)
{
	if (!err) {
		op->fd = pool_node_writer_fd(client_pool(op)->node, op->o);
		err = op->fd < 0 ? op->fd : 0;
	}
	if (!err && op->len > CLIENT_INLINE) {
		client_hand_back(op);
		return;
	}
	op->result = err;
	if (!err)
		(void)put_copy(op);
	put_end(op);
}

static void on_room(void *arg, int status)
{
	put_room(arg, status);
}

/* Loop: checks whether op may be put, and creates its directory. */
static int put_check(struct client_op *op, struct node_dirent **ret_dir,
		     const char **ret_name)
{
	struct kvpool *p = client_pool(op);
	struct pool_entry *e;
	size_t len;
	int err;

	if (op->len > pool_node_size_max(p->node))
		return -EFBIG;
	err = client_make_dirs(op->win->ns, &op->path, ret_dir, ret_name);
	if (err)
		return err;
	len = op->path.len - (size_t)(*ret_name - op->path.at);
	e = pool_tree_find(pool_node_tree(p->node), node_dir_tree(*ret_dir),
			   *ret_name, len);
	if (!e || !pool_node_visible(e))
		return 0;
	if (e->is_dir)
		return -EISDIR;
	return op->win->flags & KVPOOL_IF_ABSENT ? -EEXIST : 0;
}

/* A name that does not exist and that no key has (pool/model/key.h). */
static int put_name(struct kvpool *p, const struct node_dirent *dir, char *buf,
		    size_t cap)
{
	int n;

	do
		n = snprintf(buf, cap, "%%2E.tmp.kvpool.%llu",
			     (unsigned long long)++p->tmp_seq);
	while (pool_tree_find(pool_node_tree(p->node), node_dir_tree(dir), buf,
			      (size_t)n));
	return n;
}

static void put_begin(struct client_op *op)
{
	struct kvpool *p = client_pool(op);
	struct node_attr attr = { .mode = 0644,
				  .uid = geteuid(),
				  .gid = getegid() };
	struct node_dirent *dir;
	struct node_object *o;
	const char *name;
	char tmp[64];
	int err = put_check(op, &dir, &name);

	if (err == -EAGAIN) {
		client_again(op, -ETIMEDOUT);
		return;
	}
	if (!err)
		err = pool_node_create(p->node, dir, tmp,
				       (size_t)put_name(p, dir, tmp,
							sizeof(tmp)),
				       &attr, op->len, &o);
	if (err) {
		client_end(op, err);
		return;
	}
	op->o = node_object_ref(o);
	pool_node_writer_opened(p->node, o);
	err = pool_node_extend_start(p->node, o, 0, op->len, on_room, op);
	if (err != 0)
		put_room(op, err == 1 ? 0 : err);
}

static const struct client_kind client_put = {
	.begin = put_begin,
	.copy = put_copy,
	.end = put_end,
	.moves = true,
	.counted = CLIENT_PUTS,
};

/* ---- get ---- */

/* Does the caller get the descriptor itself? */
static bool gives(const struct client_op *op)
{
	return op->win->kind == &client_get_fd;
}

int client_open_here(struct client_op *op, const struct node_entry *e)
{
	op->fd = pool_node_open_here(client_pool(op)->node, e, gives(op),
				     &op->size);
	op->source = pool_node_borrowed(e) ? CLIENT_LENT : CLIENT_HERE;
	if (op->fd < 0)
		return -EAGAIN; /* the loop handles it */
	op->found = true;
	return 0;
}

static bool get_copy(struct client_op *op)
{
	op->result = read_all(op);
	close(op->fd);
	op->fd = -1;
	return false;
}

static bool get_fd_copy(struct client_op *op)
{
	op->result = op->fd;
	return false;
}

static void get_begin(struct client_op *op);

/* Loop: a local copy exists. It came from `source` unless it was lent. Consumes
 * a ref to o. */
static void get_have(struct client_op *op, struct node_object *o,
		     enum client_source source)
{
	struct pool_node *n = client_pool(op)->node;

	op->source = node_object_borrowed(o) ? CLIENT_LENT : source;
	op->fd = pool_node_open_file(n, o, gives(op), &op->size);
	pool_node_used(n, o);
	if (op->fd == -ENOENT) /* its file was removed: fetch it next time */
		pool_node_doubt(n, o);
	node_object_unref(n, o);
	if (op->fd < 0) {
		client_end(op, op->fd == -EMFILE ? op->fd : -ENOENT);
		return;
	}
	if (op->size <= CLIENT_INLINE) {
		op->ended = !op->win->kind->copy(op);
	}
	client_hand_back(op);
}

static enum client_source source_of(const struct node_want *want)
{
	if (!want->fetched)
		return CLIENT_HERE;
	return want->by_rdma ? CLIENT_RDMA : CLIENT_TCP;
}

static void on_wanted(struct node_want *want, struct node_object *o, int status)
{
	struct client_op *op = pool_container_of(want, struct client_op, want);

	if (!status)
		get_have(op, o, source_of(&op->want));
	else if (status == -ESTALE || status == -EAGAIN)
		client_again(op, -ENOENT); /* replaced meanwhile */
	else
		client_end(op, -ENOENT);
}

static void on_read(void *arg, int status)
{
	struct client_op *op = arg;

	if (status >= 0) {
		op->source = status == NODE_READ_RDMA ? CLIENT_RDMA :
							CLIENT_TCP;
		client_end(op, (int64_t)op->size);
		return;
	}
	client_count(&client_pool(op)->stats, COUNT_RETRIES, 1);
	op->indirect = true;
	get_begin(op);
}

/* Starts receiving into the caller's buffer, if that is possible. */
static bool read_directly(struct client_op *op, struct node_entry *e)
{
	if (op->win->kind != &client_get || op->indirect)
		return false;
	op->size = pool_node_version(e).size;
	return pool_node_read_start(client_pool(op)->node, e, op->buf, on_read,
				    op) == 0;
}

static void get_begin(struct client_op *op)
{
	struct kvpool *p = client_pool(op);
	struct node_dirent *dir;
	struct node_object *o;
	struct pool_entry *pe;
	struct node_entry *e;
	int rc = client_ns_dir(op->win->ns, &dir);

	pe = rc ? NULL : client_find(p, dir, op->path.at, op->path.len);
	op->found = pe && pool_node_visible(pe);
	if (!pe || !pool_node_visible(pe) || pe->is_dir) {
		client_end(op, rc ? rc : pe && pe->is_dir ? -EISDIR : -ENOENT);
		return;
	}
	e = node_file(pe);
	op->size = pool_node_version(e).size;
	if (op->win->kind->moves && !pool_node_own(e) && !client_fits(op)) {
		client_end(op, -EMSGSIZE); /* without moving any byte */
		return;
	}
	if (pool_node_own(e)) {
		if (client_open_here(op, e) == 0)
			client_hand_back(op);
		else
			client_again(op, -ENOENT);
		return;
	}
	if (read_directly(op, e))
		return;
	rc = pool_node_want_start(p->node, e, &op->want, &o, on_wanted);
	if (rc == 1)
		get_have(op, o, CLIENT_HERE);
	else if (rc == -EAGAIN)
		client_again(op, -ENOENT);
	else if (rc < 0)
		client_end(op, -ENOENT);
}

const struct client_kind client_get = {
	.begin = get_begin,
	.copy = get_copy,
	.moves = true,
	.counted = CLIENT_GETS,
};

const struct client_kind client_get_fd = {
	.begin = get_begin,
	.copy = get_fd_copy,
	.counted = CLIENT_GETS,
};

/* ---- as descriptors, as memory ---- */

static int open_sized(struct kvpool_ns *ns, const void *key, size_t key_len,
		      uint64_t *ret_size)
{
	struct kvpool_key k = { key, key_len };
	struct stat st;
	int64_t fd;
	ssize_t n = client_run(ns, &client_get_fd, &k, NULL, 1, 0, 0, &fd);

	if (n < 0)
		return (int)n;
	if (fd >= 0 && ret_size) {
		if (fstat((int)fd, &st) < 0) {
			close((int)fd);
			return client_fail(-EIO, "fstat of the object failed");
		}
		*ret_size = (uint64_t)st.st_size;
	}
	return (int)fd;
}

int kvpool_open(struct kvpool_ns *ns, const void *key, size_t key_len)
{
	return open_sized(ns, key, key_len, NULL);
}

int kvpool_map(struct kvpool_ns *ns, const void *key, size_t key_len,
	       const void **ret_addr, size_t *ret_len)
{
	static const char empty;
	void *at = (void *)(uintptr_t)&empty;
	uint64_t size = 0;
	int fd, err = 0;

	if (!ret_addr || !ret_len)
		return client_fail(-EINVAL, "ret_addr or ret_len is NULL");
	fd = open_sized(ns, key, key_len, &size);
	if (fd < 0)
		return fd;
	if (size > 0)
		at = pool_map_object(size, PROT_READ, 0, fd, 0);
	if (at == MAP_FAILED)
		err = client_fail(-errno, "the object cannot be mapped: %s",
				  strerror(errno));
	close(fd);
	if (err)
		return err;
	*ret_addr = at;
	*ret_len = size;
	return 0;
}

void kvpool_unmap(const void *addr, size_t len)
{
	if (len > 0)
		munmap((void *)(uintptr_t)addr, len);
}

/* ---- kvpool.h ---- */

ssize_t kvpool_batch_put_from(struct kvpool_ns *ns,
			      const struct kvpool_key *keys,
			      const struct kvpool_buf *bufs, size_t n,
			      unsigned int flags, int64_t *ret)
{
	ssize_t good;
	int err;

	if (flags & ~(KVPOOL_IF_ABSENT | KVPOOL_SYNC))
		return client_fail(-EINVAL, "invalid flags for a put");
	good = client_run(ns, &client_put, keys, bufs, n, flags, 0, ret);
	if (good <= 0 || !(flags & KVPOOL_SYNC))
		return good;
	err = kvpool_sync(ns->pool);
	for (size_t i = 0; err && i < n; i++)
		if (ret[i] >= 0)
			ret[i] = err;
	return err ? 0 : good;
}

ssize_t kvpool_batch_get_into(struct kvpool_ns *ns,
			      const struct kvpool_key *keys,
			      const struct kvpool_buf *bufs, size_t n,
			      unsigned int flags, int64_t *ret)
{
	if (flags & ~KVPOOL_EXACT)
		return client_fail(-EINVAL, "invalid flags for a get");
	return client_run(ns, &client_get, keys, bufs, n, flags, 0, ret);
}

int kvpool_put_from(struct kvpool_ns *ns, const void *key, size_t key_len,
		    const void *buf, size_t len, unsigned int flags)
{
	struct kvpool_key k = { key, key_len };
	struct kvpool_buf b = { (void *)(uintptr_t)buf, len };
	int64_t result;
	ssize_t n = kvpool_batch_put_from(ns, &k, &b, 1, flags, &result);

	return n < 0 ? (int)n : (int)result;
}

int64_t kvpool_get_into(struct kvpool_ns *ns, const void *key, size_t key_len,
			void *buf, size_t cap, unsigned int flags)
{
	struct kvpool_key k = { key, key_len };
	struct kvpool_buf b = { buf, cap };
	int64_t result;
	ssize_t n = kvpool_batch_get_into(ns, &k, &b, 1, flags, &result);

	return n < 0 ? n : result;
}
