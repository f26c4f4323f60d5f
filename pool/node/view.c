/*
 * Queries about names and local files, for other layers: read-only. node.h
 * names the thread of each function.
 */
#include "pool/node/node_priv.h"

/* ---- names ---- */

void *pool_node_inode(const struct pool_entry *pe)
{
	const struct node_entry *e = (const void *)pe;

	return pe->is_dir ? ((const struct node_dirent *)(const void *)pe)->fs :
			    e->fs;
}

struct node_object *pool_node_own(const struct node_entry *e)
{
	return e->own;
}

struct node_object *pool_node_copy(const struct node_entry *e)
{
	return e->obj;
}

bool pool_node_borrowed(const struct node_entry *e)
{
	return !e->own && e->obj && node_object_borrowed(e->obj);
}

struct node_object *pool_node_writing(const struct node_entry *e)
{
	return e->own && e->own->state == NODE_WRITING ? e->own : NULL;
}

struct node_object *pool_node_readable(const struct node_entry *e)
{
	struct node_object *o = e->own ? e->own : e->obj;

	if (e->own)
		return node_object_sealed(o) ? o : NULL;
	return o && o->gen == e->gen && o->verified && pool_node_published(e) ?
		       o : NULL;
}

struct node_version pool_node_version(const struct node_entry *e)
{
	return (struct node_version){ e->gen, e->size, e->sum, &e->attr };
}

bool pool_node_shows(const struct node_entry *e, const struct node_object *o)
{
	if (e->own)
		return e->own == o;
	/* The copy may have been evicted, while handles keep its bytes. */
	return e->obj == o || (o->gen && e->gen == o->gen);
}

struct node_object *pool_node_file_of_id(const struct node_entry *e,
					 uint64_t id)
{
	if (!id)
		return NULL;
	if (e->own && e->own->id == id)
		return e->own;
	return e->obj && e->obj->id == id ? e->obj : NULL;
}

int pool_node_shown_size(const struct pool_node *n,
			 const struct pool_entry *pe, uint64_t *ret_size)
{
	const struct node_entry *e = (const void *)pe;
	const struct node_object *own = e->own;
	uint64_t blocks, mtime_ns;

	if (own && own->state == NODE_WRITING)
		return pool_store_stat(n->store, own->id, ret_size, &blocks,
				       &mtime_ns);
	*ret_size = own ? own->size : e->size;
	return 0;
}

uint64_t pool_node_dir_ctime(const struct node_dirent *d)
{
	return d->ctime_ns;
}

/* ---- local files ---- */

enum node_state node_object_state(const struct node_object *o)
{
	return (enum node_state)o->state;
}

bool node_object_sealed(const struct node_object *o)
{
	return o->state == NODE_SEALING || o->state == NODE_PENDING;
}

bool node_object_borrowed(const struct node_object *o)
{
	return o->lent_fd >= 0;
}

struct node_entry *node_object_name(const struct node_object *o)
{
	return o->entry;
}

uint64_t node_object_final_size(const struct node_object *o)
{
	return o->size;
}

XXH128_hash_t node_object_sum(const struct node_object *o)
{
	return o->sum;
}

void *node_object_inode(const struct node_object *o)
{
	return o->fs;
}

bool node_object_in_use(const struct node_object *o)
{
	return o->users > 0;
}

/* ---- local files with a writer part ---- */

bool node_object_has_writer(const struct node_object *o)
{
	return o->w != NULL;
}

bool node_object_unlinked(const struct node_object *o)
{
	return o->state == NODE_DROPPED && o->w;
}

bool node_object_writable(const struct node_object *o)
{
	return o->state == NODE_WRITING && o->w->phase != WRITER_RETRYING;
}

bool node_object_served(const struct node_object *o)
{
	return o->w && o->w->served;
}

uint32_t node_object_writers(const struct node_object *o)
{
	return o->w ? o->w->opens : 0;
}

uint32_t node_object_direct(const struct node_object *o,
			    const void **ret_direct)
{
	*ret_direct = o->w ? o->w->direct : NULL;
	return o->w ? o->w->ndirect : 0;
}

uint32_t node_object_served_writers(const struct node_object *o)
{
	return o->w ? o->w->nserved : 0;
}

bool node_object_emptied_since(const struct node_object *o, uint64_t since_ns)
{
	return o->w && o->w->emptied_ns > since_ns;
}

/* ---- take-over ---- */

uint64_t node_named_id(const struct node_object *o)
{
	return o->entry && o->lent_fd < 0 ? o->id : 0;
}

uint64_t node_orphan_id(const struct node_object *o)
{
	return o->remains ? o->id : 0;
}

int node_orphan_fd(const struct node_object *o)
{
	return o->w ? o->w->fd.fd : o->lent_fd;
}
