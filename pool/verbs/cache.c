/* Registrations of whole objects, kept for the next peer that requests them. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "pool/base/hash.h"
#include "pool/base/list.h"
#include "pool/verbs/region.h"

enum entry_state { REGISTERING, READY, FAILED };

struct entry {
	struct verbs_cached pub;
	const struct verbs_port *port;
	dev_t dev;
	ino_t ino; /* not reused, as the mapping keeps the file */
	uint64_t bytes;
	enum entry_state state;
	int err; /* FAILED */
	unsigned int users;
	bool listed; /* in verbs_cache.files */
	struct pool_hash_node node;
	struct pool_list link; /* in idle (no users), or to be closed */
};

struct verbs_cache {
	pthread_mutex_t lock; /* protects the rest */
	pthread_cond_t settled; /* an entry left REGISTERING */
	struct pool_hash files;	/* by device and inode; one entry a port */
	struct pool_list idle;	/* READY, listed, no users; LRU first */
	unsigned int count, count_max;
	uint64_t bytes, bytes_max;
	struct verbs_cache_metrics *metrics;
};

static uint32_t file_hash(dev_t dev, ino_t ino)
{
	uint64_t h = ((uint64_t)ino ^ ((uint64_t)dev << 40)) *
		     0x9e3779b97f4a7c15ull;

	return (uint32_t)(h >> 32);
}

static struct entry *entry_of(struct pool_hash_node *n)
{
	return pool_container_of(n, struct entry, node);
}

static struct entry *find_locked(struct verbs_cache *c,
				 const struct verbs_port *port, dev_t dev,
				 ino_t ino)
{
	struct pool_hash_node *n;

	for (n = pool_hash_first(&c->files, file_hash(dev, ino)); n;
	     n = pool_hash_next(n)) {
		struct entry *e = entry_of(n);

		if (e->dev == dev && e->ino == ino && e->port == port)
			return e;
	}
	return NULL;
}

static void unlist_locked(struct verbs_cache *c, struct entry *e)
{
	if (e->listed)
		pool_hash_remove(&c->files, &e->node);
	e->listed = false;
}

static void account_locked(struct verbs_cache *c, const struct entry *e,
			   int sign)
{
	c->count += (unsigned int)sign;
	c->bytes += (uint64_t)sign * e->bytes;
	pool_gauge_set(&c->metrics->count, c->count);
	pool_gauge_set(&c->metrics->bytes, (int64_t)c->bytes);
}

/* Moves e to `gone`, for close_all without the lock: deregistering is slow. */
static void retire_locked(struct verbs_cache *c, struct entry *e,
			  struct pool_list *gone)
{
	unlist_locked(c, e);
	account_locked(c, e, -1);
	pool_list_del(&e->link);
	pool_list_add_tail(gone, &e->link);
}

static void close_all(struct pool_list *gone)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, gone) {
		struct entry *e = pool_list_entry(it, struct entry, link);

		verbs_region_close(&e->pub.region);
		free(e);
	}
}

static void drop_idle_locked(struct verbs_cache *c, unsigned int count_max,
			     uint64_t bytes_max, struct pool_list *gone)
{
	while ((c->count > count_max || c->bytes > bytes_max) &&
	       !pool_list_empty(&c->idle)) {
		retire_locked(c, pool_list_first(&c->idle, struct entry, link),
			      gone);
		pool_count(&c->metrics->dropped);
	}
}

int verbs_cache_open(unsigned int count_max, uint64_t bytes_max,
		     struct verbs_cache_metrics *metrics,
		     struct verbs_cache **ret_cache)
{
	struct verbs_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->settled, NULL);
	pool_hash_init(&c->files);
	pool_list_init(&c->idle);
	c->count_max = count_max;
	c->bytes_max = bytes_max;
	c->metrics = metrics;
	*ret_cache = c;
	return 0;
}

void verbs_cache_close(struct verbs_cache *c)
{
	struct pool_list gone;

	if (!c)
		return;
	pool_list_init(&gone);
	drop_idle_locked(c, 0, 0, &gone);
	close_all(&gone);
	assert(c->count == 0);
	pool_hash_fini(&c->files);
	pthread_cond_destroy(&c->settled);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/* Drops a user. After the last one, e becomes idle, or, if it is not listed any
 * more, is closed. */
static void leave_locked(struct verbs_cache *c, struct entry *e,
			 struct pool_list *gone)
{
	if (--e->users)
		return;
	if (!e->listed) {
		retire_locked(c, e, gone);
		return;
	}
	pool_list_add_tail(&c->idle, &e->link);
	drop_idle_locked(c, c->count_max, c->bytes_max, gone);
}

/* Uses an existing entry; waits while another thread registers it. 0 or -errno.
 */
static int join_locked(struct verbs_cache *c, struct entry *e,
		       struct pool_list *gone)
{
	int err = 0;

	e->users++;
	pool_list_del(&e->link);
	while (e->state == REGISTERING)
		pthread_cond_wait(&c->settled, &c->lock);
	if (e->state == READY) {
		pool_count(&c->metrics->hits);
	} else {
		err = e->err;
		leave_locked(c, e, gone);
	}
	return err;
}

static struct entry *add_locked(struct verbs_cache *c,
				const struct verbs_port *port,
				const struct stat *st)
{
	struct entry *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->port = port;
	e->dev = st->st_dev;
	e->ino = st->st_ino;
	e->bytes = (uint64_t)st->st_size;
	e->users = 1;
	pool_list_init(&e->link);
	if (pool_hash_insert(&c->files, &e->node, file_hash(e->dev, e->ino))) {
		free(e);
		return NULL;
	}
	e->listed = true;
	account_locked(c, e, 1);
	return e;
}

/* Registers e. If the system's limits are hit before our own, drops all idle
 * entries and retries. */
static int register_entry(struct verbs_cache *c, struct entry *e, int fd)
{
	struct pool_list gone;
	int err = verbs_region_open(e->port, e->port->pd, fd, 0, e->bytes, 0,
				    &e->pub.region);

	if (err != -ENOMEM && err != -ENOSPC)
		return err;
	pool_list_init(&gone);
	pthread_mutex_lock(&c->lock);
	drop_idle_locked(c, 0, 0, &gone);
	pthread_mutex_unlock(&c->lock);
	if (pool_list_empty(&gone))
		return err;
	close_all(&gone);
	return verbs_region_open(e->port, e->port->pd, fd, 0, e->bytes, 0,
				 &e->pub.region);
}

static int settle(struct verbs_cache *c, struct entry *e, int err)
{
	struct pool_list gone;

	pool_list_init(&gone);
	pthread_mutex_lock(&c->lock);
	e->state = err ? FAILED : READY;
	e->err = err;
	if (err) {
		pool_count(&c->metrics->failed);
		unlist_locked(c, e);
		leave_locked(c, e, &gone);
	}
	pthread_cond_broadcast(&c->settled);
	pthread_mutex_unlock(&c->lock);
	close_all(&gone);
	return err;
}

int verbs_cache_get(struct verbs_cache *c, const struct verbs_port *port,
		    int fd, struct verbs_cached **ret_cached)
{
	struct pool_list gone;
	struct entry *e;
	struct stat st;
	bool fresh;
	int err = 0;

	if (fstat(fd, &st))
		return -errno;
	if (st.st_size <= 0)
		return -EINVAL;
	pool_list_init(&gone);
	pthread_mutex_lock(&c->lock);
	e = find_locked(c, port, st.st_dev, st.st_ino);
	fresh = !e;
	if (!fresh) {
		err = join_locked(c, e, &gone);
	} else {
		pool_count(&c->metrics->misses);
		e = add_locked(c, port, &st);
		drop_idle_locked(c, c->count_max, c->bytes_max, &gone);
	}
	pthread_mutex_unlock(&c->lock);
	close_all(&gone);
	if (!e)
		return -ENOMEM;
	if (fresh)
		err = settle(c, e, register_entry(c, e, fd));
	if (!err)
		*ret_cached = &e->pub;
	return err;
}

void verbs_cache_put(struct verbs_cache *c, struct verbs_cached *cached)
{
	struct entry *e = pool_container_of(cached, struct entry, pub);
	struct pool_list gone;

	pool_list_init(&gone);
	pthread_mutex_lock(&c->lock);
	leave_locked(c, e, &gone);
	pthread_mutex_unlock(&c->lock);
	close_all(&gone);
}

void verbs_cache_forget(struct verbs_cache *c, dev_t dev, ino_t ino)
{
	struct pool_hash_node *n, *next;
	struct pool_list gone;

	pool_list_init(&gone);
	pthread_mutex_lock(&c->lock);
	for (n = pool_hash_first(&c->files, file_hash(dev, ino)); n; n = next) {
		struct entry *e = entry_of(n);

		next = pool_hash_next(n);
		if (e->dev != dev || e->ino != ino)
			continue;
		pool_count(&c->metrics->dropped);
		if (e->users)
			unlist_locked(c, e); /* its last user closes it */
		else
			retire_locked(c, e, &gone);
	}
	pthread_mutex_unlock(&c->lock);
	close_all(&gone);
}
