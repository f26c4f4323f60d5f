/* remove, touch, pin and unpin. */
#include "pool/client/client_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "pool/base/clock.h"

#define PIN POOL_XATTR_PREFIX "pin"

/* Loop: the file of op; or NULL, and op has been ended. */
static struct node_entry *file_of(struct client_op *op)
{
	struct node_dirent *dir;
	struct pool_entry *e;
	int err = client_ns_dir(op->win->ns, &dir);

	e = err ? NULL : client_find(client_pool(op), dir, op->path.at,
				     op->path.len);
	if (e && pool_node_visible(e) && !e->is_dir)
		return node_file(e);
	client_end(op, err ? err : e && e->is_dir ? -EISDIR : -ENOENT);
	return NULL;
}

static void changed(struct client_op *op, int err)
{
	if (err == -EAGAIN)
		client_again(op, -ETIMEDOUT);
	else
		client_end(op, err);
}

static void remove_begin(struct client_op *op)
{
	struct pool_node *n = client_pool(op)->node;
	struct node_entry *e = file_of(op);
	int err;

	if (!e)
		return;
	err = pool_node_unlink(n, e);
	if (!err)
		pool_node_tidy(n, node_file_entry(e));
	changed(op, err);
}

static void touch_begin(struct client_op *op)
{
	struct pool_node *n = client_pool(op)->node;
	struct node_entry *e = file_of(op);
	struct node_object *o;

	if (!e)
		return;
	o = pool_node_copy(e);
	if (o)
		pool_node_used(n, o);
	pool_node_prefetch(n, e);
	client_end(op, 0);
}

/* win->arg: seconds; 0: without limit; UINT64_MAX: unpin. */
static void pin_begin(struct client_op *op)
{
	struct pool_node *n = client_pool(op)->node;
	uint64_t arg = op->win->arg, now = pool_wall_ns() / 1000000000u;
	struct node_entry *e = file_of(op);
	char value[64];

	if (!e)
		return;
	if (arg == UINT64_MAX)
		strcpy(value, "none");
	else if (arg == 0)
		strcpy(value, "hard");
	else
		snprintf(value, sizeof(value), "soft@%llu",
			 (unsigned long long)(now + 1 + arg));
	changed(op, pool_node_setxattr(n, node_file_entry(e), PIN, value,
				       strlen(value), 0));
}

static const struct client_kind client_remove = { .begin = remove_begin };
static const struct client_kind client_touch = { .begin = touch_begin };
static const struct client_kind client_pin = { .begin = pin_begin };

/* ---- kvpool.h ---- */

#define SECONDS_MAX (100ull * 365 * 24 * 3600)

ssize_t kvpool_batch_remove(struct kvpool_ns *ns,
			    const struct kvpool_key *keys, size_t n,
			    int64_t *ret)
{
	return client_run(ns, &client_remove, keys, NULL, n, 0, 0, ret);
}

ssize_t kvpool_batch_touch(struct kvpool_ns *ns,
			   const struct kvpool_key *keys, size_t n,
			   int64_t *ret)
{
	return client_run(ns, &client_touch, keys, NULL, n, 0, 0, ret);
}

ssize_t kvpool_batch_pin(struct kvpool_ns *ns, const struct kvpool_key *keys,
			 size_t n, uint64_t seconds, int64_t *ret)
{
	if (seconds > SECONDS_MAX)
		return client_fail(-EINVAL, "a pin of more than a hundred "
					    "years");
	return client_run(ns, &client_pin, keys, NULL, n, 0, seconds, ret);
}

ssize_t kvpool_batch_unpin(struct kvpool_ns *ns,
			   const struct kvpool_key *keys, size_t n,
			   int64_t *ret)
{
	return client_run(ns, &client_pin, keys, NULL, n, 0, UINT64_MAX, ret);
}

static int one(ssize_t n, int64_t result)
{
	return n < 0 ? (int)n : (int)result;
}

int kvpool_remove(struct kvpool_ns *ns, const void *key, size_t key_len)
{
	struct kvpool_key k = { key, key_len };
	int64_t result = 0;
	ssize_t n = kvpool_batch_remove(ns, &k, 1, &result);

	return one(n, result);
}

int kvpool_touch(struct kvpool_ns *ns, const void *key, size_t key_len)
{
	struct kvpool_key k = { key, key_len };
	int64_t result = 0;
	ssize_t n = kvpool_batch_touch(ns, &k, 1, &result);

	return one(n, result);
}

int kvpool_pin(struct kvpool_ns *ns, const void *key, size_t key_len,
	       uint64_t seconds)
{
	struct kvpool_key k = { key, key_len };
	int64_t result = 0;
	ssize_t n = kvpool_batch_pin(ns, &k, 1, seconds, &result);

	return one(n, result);
}

int kvpool_unpin(struct kvpool_ns *ns, const void *key, size_t key_len)
{
	struct kvpool_key k = { key, key_len };
	int64_t result = 0;
	ssize_t n = kvpool_batch_unpin(ns, &k, 1, &result);

	return one(n, result);
}
