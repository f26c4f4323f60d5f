/*
 * Asynchronous requests: threads of the library execute batches, each by the
 * batch call of its name. Threads are started as requests arrive, up to
 * kvpool_options.threads.
 *
 *	submit -> todo -> a thread, which calls -> done + eventfd -> completions
 *	   \--touch--> later --CLIENT_LATER_MS--/
 *
 * A touch makes the loop borrow and fetch objects, which delays queries.
 * Callers often touch what one query found while they wait for the next. So a
 * touch starts later.
 */
#include "pool/client/client_priv.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct request {
	struct pool_list link; /* in todo or later, then done */
	struct timespec due;   /* in later */
	struct kvpool_ns *ns;
	enum kvpool_call call;
	uint64_t arg, id;
	int64_t *ret;
	int64_t result;
	size_t n;
	struct kvpool_buf *bufs; /* in this allocation, after keys; or NULL */
	struct kvpool_key keys[]; /* then bufs, then the keys' bytes */
};

static int64_t perform(const struct request *r)
{
	unsigned int flags = (unsigned int)r->arg;

	switch (r->call) {
	case KVPOOL_CALL_PUT_FROM:
		return kvpool_batch_put_from(r->ns, r->keys, r->bufs, r->n,
					     flags, r->ret);
	case KVPOOL_CALL_GET_INTO:
		return kvpool_batch_get_into(r->ns, r->keys, r->bufs, r->n,
					     flags, r->ret);
	case KVPOOL_CALL_GET_SIZE:
		return kvpool_batch_get_size(r->ns, r->keys, r->n, r->ret);
	case KVPOOL_CALL_EXISTS:
		return kvpool_batch_exists(r->ns, r->keys, r->n, r->ret);
	case KVPOOL_CALL_REMOVE:
		return kvpool_batch_remove(r->ns, r->keys, r->n, r->ret);
	case KVPOOL_CALL_TOUCH:
		return kvpool_batch_touch(r->ns, r->keys, r->n, r->ret);
	case KVPOOL_CALL_PIN:
		return kvpool_batch_pin(r->ns, r->keys, r->n, r->arg, r->ret);
	case KVPOOL_CALL_UNPIN:
		return kvpool_batch_unpin(r->ns, r->keys, r->n, r->ret);
	case KVPOOL_CALL_EXISTS_PREFIX:
		return kvpool_exists_prefix(r->ns, r->keys, r->n);
	}
	return -EINVAL;
}

/* ---- threads ---- */

static void signal_completion(struct client_requests *r)
{
	uint64_t one = 1;

	/* If the counter is full, the eventfd is readable already. */
	(void)!write(r->event_fd, &one, sizeof(one));
}

static bool is_due(const struct request *q)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec > q->due.tv_sec ||
	       (now.tv_sec == q->due.tv_sec && now.tv_nsec >= q->due.tv_nsec);
}

/* lock held. Waits for another request. One of the waiting threads, the
 * watcher, also wakes up when the first of `later` is due. */
static void wait_more(struct client_requests *r)
{
	if (r->watched || pool_list_empty(&r->later)) {
		pthread_cond_wait(&r->more, &r->lock);
		return;
	}
	r->watched = true;
	pthread_cond_timedwait(&r->more, &r->lock,
			       &pool_list_first(&r->later, struct request,
						link)->due);
	r->watched = false;
}

/* lock held. The request to execute next, or NULL. */
static struct request *first_ready(const struct client_requests *r)
{
	struct request *q;

	if (!pool_list_empty(&r->later)) {
		q = pool_list_first(&r->later, struct request, link);
		if (r->ending || is_due(q))
			return q;
	}
	return pool_list_empty(&r->todo) ?
		       NULL : pool_list_first(&r->todo, struct request, link);
}

/* lock held. Waits for a request; NULL: `ending` is set and none is left. */
static struct request *take(struct client_requests *r)
{
	struct request *q;

	while (!(q = first_ready(r)) && !r->ending)
		wait_more(r);
	if (q)
		pool_list_del(&q->link);
	/* If this thread was the watcher, another one takes over. */
	if (!pool_list_empty(&r->later) && !r->watched)
		pthread_cond_signal(&r->more);
	return q;
}

static void *work(void *arg)
{
	struct client_requests *r = arg;
	struct request *q;

	pthread_mutex_lock(&r->lock);
	while ((q = take(r))) {
		pthread_mutex_unlock(&r->lock);
		q->result = perform(q);
		pthread_mutex_lock(&r->lock);
		pool_list_add_tail(&r->done, &q->link);
		signal_completion(r);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

/* lock held. Starts a thread if all may be busy. 0 if at least one runs. */
static int start_thread(struct client_requests *r)
{
	sigset_t all, before;
	int err;

	if (r->nthreads == r->threads_max || r->n < r->nthreads)
		return 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&r->thread[r->nthreads], NULL, work, r);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!err)
		r->nthreads++;
	return r->nthreads > 0 ? 0 : -err;
}

int client_requests_init(struct client_requests *r, unsigned int threads)
{
	pthread_condattr_t monotonic;

	r->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (r->event_fd < 0)
		return client_fail(-errno, "no eventfd: %s", strerror(errno));
	pthread_mutex_init(&r->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&r->more, &monotonic);
	pthread_condattr_destroy(&monotonic);
	pool_list_init(&r->todo);
	pool_list_init(&r->later);
	pool_list_init(&r->done);
	r->threads_max = threads;
	return 0;
}

void client_requests_fini(struct client_requests *r)
{
	struct request *q;
	unsigned int i;

	pthread_mutex_lock(&r->lock);
	r->ending = true;
	pthread_cond_broadcast(&r->more);
	pthread_mutex_unlock(&r->lock);
	for (i = 0; i < r->nthreads; i++)
		pthread_join(r->thread[i], NULL);
	while (!pool_list_empty(&r->done)) {
		q = pool_list_first(&r->done, struct request, link);
		pool_list_del(&q->link);
		free(q);
	}
	close(r->event_fd);
	pthread_cond_destroy(&r->more);
	pthread_mutex_destroy(&r->lock);
}

/* ---- submitting ---- */

static int check(struct kvpool_ns *ns, enum kvpool_call call,
		 const struct kvpool_key *keys, const struct kvpool_buf *bufs,
		 size_t n, uint64_t arg, const int64_t *ret)
{
	bool moves = call == KVPOOL_CALL_PUT_FROM ||
		     call == KVPOOL_CALL_GET_INTO;
	int err = client_check_ns(ns);

	if (err)
		return err;
	if (call < KVPOOL_CALL_PUT_FROM || call > KVPOOL_CALL_EXISTS_PREFIX ||
	    n > KVPOOL_BATCH_MAX || (n > 0 && !keys) ||
	    (n > 0 && moves && !bufs) ||
	    (n > 0 && !ret && call != KVPOOL_CALL_EXISTS_PREFIX))
		return client_fail(-EINVAL, "keys, bufs or ret is NULL, there "
				   "are too many keys, or the call is unknown");
	if (moves && arg > UINT32_MAX)
		return client_fail(-EINVAL, "invalid flags");
	for (size_t i = 0; i < n; i++)
		if (keys[i].len > 0 && !keys[i].data)
			return client_fail(-EINVAL, "key %zu is NULL", i);
	return 0;
}

static struct request *copy(const struct kvpool_key *keys,
			    const struct kvpool_buf *bufs, size_t n)
{
	size_t size = sizeof(struct request), i, bytes = 0;
	struct request *q;
	char *at;

	/* A key that is too long is cut to one byte above the limit, enough to
	 * fail with -ENAMETOOLONG later. */
	for (i = 0; i < n; i++)
		bytes += keys[i].len > KVPOOL_KEY_MAX ? KVPOOL_KEY_MAX + 1 :
							keys[i].len;
	size += n * (sizeof(q->keys[0]) + (bufs ? sizeof(*bufs) : 0)) + bytes;
	q = malloc(size);
	if (!q)
		return NULL;
	at = (char *)(q->keys + n);
	q->bufs = NULL;
	if (bufs) {
		q->bufs = (struct kvpool_buf *)(void *)at;
		if (n > 0)
			memcpy(at, bufs, n * sizeof(*bufs));
		at += n * sizeof(*bufs);
	}
	for (i = 0; i < n; i++) {
		q->keys[i].len = keys[i].len > KVPOOL_KEY_MAX ?
					 KVPOOL_KEY_MAX + 1 : keys[i].len;
		q->keys[i].data = at;
		if (keys[i].len > 0)
			memcpy(at, keys[i].data, q->keys[i].len);
		at += q->keys[i].len;
	}
	q->n = n;
	return q;
}

/* lock held. */
static void queue(struct client_requests *r, struct request *q)
{
	r->n++;
	if (q->call != KVPOOL_CALL_TOUCH) {
		pool_list_add_tail(&r->todo, &q->link);
	} else {
		clock_gettime(CLOCK_MONOTONIC, &q->due);
		q->due.tv_nsec += CLIENT_LATER_MS * 1000000;
		if (q->due.tv_nsec >= 1000000000) {
			q->due.tv_nsec -= 1000000000;
			q->due.tv_sec++;
		}
		pool_list_add_tail(&r->later, &q->link);
	}
	pthread_cond_signal(&r->more);
}

int kvpool_submit(struct kvpool_ns *ns, enum kvpool_call call,
		  const struct kvpool_key *keys, const struct kvpool_buf *bufs,
		  size_t n, uint64_t arg, int64_t *ret, uint64_t id)
{
	struct client_requests *r;
	struct request *q;
	int err = check(ns, call, keys, bufs, n, arg, ret);

	if (err)
		return err;
	r = &ns->pool->requests;
	q = copy(keys, bufs, n);
	if (!q)
		return client_fail(-ENOMEM, "no memory for a request");
	q->ns = ns;
	q->call = call;
	q->arg = arg;
	q->id = id;
	q->ret = ret;
	pthread_mutex_lock(&r->lock);
	err = r->n >= KVPOOL_REQUESTS_MAX ? -EAGAIN : start_thread(r);
	if (!err)
		queue(r, q);
	pthread_mutex_unlock(&r->lock);
	if (!err)
		return 0;
	free(q);
	return client_fail(err, err == -EAGAIN ? "too many requests: take the "
			   "completions" : "no thread could be started");
}

/* ---- completions ---- */

int kvpool_event_fd(const struct kvpool *pool)
{
	return pool ? pool->requests.event_fd : -EINVAL;
}

size_t kvpool_completions(struct kvpool *pool, struct kvpool_completion *ret,
			  size_t max)
{
	struct client_requests *r;
	struct request *q;
	uint64_t count;
	size_t n = 0;

	if (!ret || client_check(pool))
		return 0;
	r = &pool->requests;
	pthread_mutex_lock(&r->lock);
	for (; n < max && !pool_list_empty(&r->done); n++) {
		q = pool_list_first(&r->done, struct request, link);
		pool_list_del(&q->link);
		ret[n].id = q->id;
		ret[n].result = q->result;
		r->n--;
		free(q);
	}
	/* The eventfd stays readable while completions are left. */
	if (pool_list_empty(&r->done))
		(void)!read(r->event_fd, &count, sizeof(count));
	pthread_mutex_unlock(&r->lock);
	return n;
}
