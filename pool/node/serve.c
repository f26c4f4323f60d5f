/* Messages from peers: they request objects, return descriptors lent to them,
 * recall those that they lent, and report copies as possibly damaged (DOUBT).
 */
#include "pool/node/node_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static struct node_entry *find_file(struct pool_node *n, const char *path,
				    size_t len)
{
	struct pool_entry *pe = pool_tree_lookup(&n->tree, path, len);

	return pe ? node_file(pe) : NULL;
}

static struct node_object *find_held(struct pool_node *n, const char *path,
				     size_t len, uint64_t gen)
{
	struct node_entry *e = find_file(n, path, len);

	if (!e || !e->obj || e->obj->gen != gen ||
	    e->obj->state != NODE_HELD)
		return NULL;
	return e->obj;
}

/* Is the object about to be HELD here? A peer may receive this node's
 * publication by its feed before the ack arrives here. */
static bool may_become_held(struct pool_node *n, const char *path, size_t len,
			    uint64_t gen)
{
	struct node_entry *e = find_file(n, path, len);

	return e && e->own && e->own->state == NODE_PENDING && e->gen <= gen;
}

/* Opens the object's file for reading; or -errno. One that is missing or has
 * another size is not sent, but checked (pool_node_doubt). */
static int open_whole(struct pool_node *n, struct node_object *o)
{
	int fd = node_object_open(n, o, O_RDONLY);
	struct stat st;

	if (fd < 0 && fd != -ENOENT)
		return fd;
	if (fd >= 0 && (fstat(fd, &st) < 0 || (uint64_t)st.st_size == o->size))
		return fd;
	if (fd >= 0)
		close(fd);
	pool_node_doubt(n, o);
	return -ENOENT;
}

static int peer_get(void *arg, const char *path, size_t len, uint64_t gen,
		    uint64_t length, bool copy, uint64_t *ret_size,
		    bool *ret_lendable)
{
	struct pool_node *n = arg;
	struct node_object *o = find_held(n, path, len, gen);
	int fd;

	if (!o)
		return may_become_held(n, path, len, gen) ? -EINPROGRESS :
							    -ENOENT;
	fd = open_whole(n, o);
	if (fd < 0)
		return -ENOENT;
	*ret_size = o->size;
	*ret_lendable = o->verified;
	if (o->gets < 2)
		o->gets++;
	if (!copy)
		o->read = true;
	node_heat_asked(n, o, length);
	if (pool_evict_inserted(&o->ev))
		pool_evict_touch(n->evict, &o->ev);
	return fd;
}

static void peer_lent(void *arg, const char *path, size_t len, uint64_t gen)
{
	struct node_object *o = find_held(arg, path, len, gen);

	if (!o)
		return;
	o->lent++;
	node_object_give(o);
}

static void peer_returned(void *arg, const char *path, size_t len,
			  uint64_t gen)
{
	struct node_object *o = find_held(arg, path, len, gen);

	if (o && o->lent > 0)
		o->lent--;
}

static void peer_recall(void *arg, const char *path, size_t len, uint64_t gen)
{
	struct pool_node *n = arg;
	struct node_object *o = find_held(n, path, len, gen);

	if (o && o->lent_fd >= 0 && o->users == 0) {
		pool_count(&n->c.evicted_recalled);
		node_object_drop(n, o, true);
	}
}

static void peer_doubt(void *arg, const char *path, size_t len, uint64_t gen)
{
	struct node_object *o = find_held(arg, path, len, gen);

	if (o)
		pool_node_doubt(arg, o);
}

/* The lender's connection has closed: it no longer counts what it lent. */
static void peer_lender_gone(void *arg, const uint8_t id[POOL_ID_SIZE])
{
	(void)arg;
	(void)id; /* descriptors stay valid */
}

static const char *peer_member(void *arg, const uint8_t id[POOL_ID_SIZE],
			       bool *ret_is_store)
{
	const struct node_member *m = node_member_by_id(arg, id);

	if (!m || !m->alive || !m->advertise[0])
		return NULL;
	*ret_is_store = m->is_store;
	return m->advertise;
}

const struct pool_peers_ops node_peers_ops = {
	.member = peer_member,
	.get = peer_get,
	.lent = peer_lent,
	.returned = peer_returned,
	.recall = peer_recall,
	.doubt = peer_doubt,
	.lender_gone = peer_lender_gone,
};
