/*
 * Batches, one window (CLIENT_WINDOW keys) at a time. The caller's thread posts
 * a window to the loop and then takes back what the loop hands it: ops that
 * have ended, and ops whose file must be copied to or from the caller's memory.
 * It copies these while the loop works on the others.
 *
 *	caller:	start --mail--> loop: begin .. --back--> copy --mail--> end
 *		  |                     \                              /
 *		  +---------------------- results <------back---------+
 */
#include "pool/client/direct.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/clock.h"

/* ---- the loop's side ---- */

void client_hand_back(struct client_op *op)
{
	struct client_window *w = op->win;

	pthread_mutex_lock(&w->mutex);
	if (op->ended)
		w->left--;
	else
		pool_list_add_tail(&w->back, &op->link);
	/* Not for each ended op: the wake-ups would cost most of a CPU. */
	if (!op->ended || !w->left)
		pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->mutex);
}

void client_end(struct client_op *op, int64_t result)
{
	op->result = result;
	op->ended = true;
	client_hand_back(op);
}

static void on_retry(uv_timer_t *timer)
{
	struct kvpool *p = timer->data;
	struct client_op *op;
	struct pool_list now;

	/* A list of our own: `begin` may append ops to p->waiting again. */
	pool_list_init(&now);
	while (!pool_list_empty(&p->waiting)) {
		op = pool_list_first(&p->waiting, struct client_op, link);
		pool_list_del(&op->link);
		pool_list_add_tail(&now, &op->link);
	}
	while (!pool_list_empty(&now)) {
		op = pool_list_first(&now, struct client_op, link);
		pool_list_del(&op->link);
		op->win->kind->begin(op);
	}
}

void client_again(struct client_op *op, int err)
{
	struct kvpool *p = client_pool(op);

	if (pool_now_ms() >= op->deadline_ms) {
		client_end(op, err);
		return;
	}
	client_count(&p->stats, COUNT_RETRIES, 1);
	if (pool_list_empty(&p->waiting))
		uv_timer_start(&p->retry, on_retry, CLIENT_RETRY_MS, 0);
	pool_list_add_tail(&p->waiting, &op->link);
}

static void on_window(struct pool_mail *mail)
{
	struct client_window *w =
		pool_container_of(mail, struct client_window, mail);
	uint64_t now = pool_now_ms();
	size_t i, n = w->n; /* at least one has not ended */

	/* The caller frees w when the last op ends: do not touch w after it. */
	while (w->op[n - 1].ended)
		n--;
	for (i = 0; i < n; i++) {
		if (w->op[i].ended)
			continue;
		w->op[i].deadline_ms = now + CLIENT_DEADLINE_MS;
		w->kind->begin(&w->op[i]);
	}
}

static void on_copied(struct pool_mail *mail)
{
	struct client_op *op = pool_container_of(mail, struct client_op, mail);

	op->win->kind->end(op);
}

/* ---- the caller's side ---- */

/* An op with a bad key or buffer ends here; the loop never sees it. */
static void set_op(struct client_op *op, const struct kvpool_key *key,
		   const struct kvpool_buf *buf)
{
	struct kvpool *p = client_pool(op);
	int err = client_path_set(op->win->ns, key, &op->path);

	op->fd = op->trip = -1;
	pool_list_init(&op->link);
	if (!err && buf) {
		op->buf = buf->data;
		op->len = buf->len;
		if (op->len > 0)
			op->buffer = client_buffer_take(&p->buffers, op->buf,
							op->len);
		if (op->len > 0 && !op->buffer)
			err = -EFAULT;
	}
	op->ended = err != 0;
	op->result = err;
}

static void set_last_error(const struct client_op *op)
{
	static const char hex[] = "0123456789abcdef";
	char text[64 + 1];
	size_t n = op->path.at ? op->path.len : 0, i;

	for (i = 0; i < n && i < 64; i++) {
		char c = op->path.at[i];

		text[i] = c < ' ' || c == 127 ? hex[c & 15] : c;
	}
	text[i] = '\0';
	if (!op->path.at && op->result == -ENAMETOOLONG)
		client_fail(-ENAMETOOLONG, "a key has more than %u bytes, or "
			    "a path of more than %u", KVPOOL_KEY_MAX,
			    POOL_PATH_MAX);
	else if (op->result == -EMSGSIZE)
		client_fail(-EMSGSIZE, "\"%s\" has %llu bytes, the buffer %zu",
			    text, (unsigned long long)op->size, op->len);
	else if (op->result == -EFAULT && !op->buffer)
		client_fail(-EFAULT, "\"%s\": %zu bytes at %p are not in a "
			    "registered buffer", text, op->len, op->buf);
	else if (op->result == -EACCES)
		client_denied(client_pool(op), text);
	else
		client_fail((int)op->result, "\"%s\": %s", text,
			    kvpool_strerror(op->result));
}

/* Waits for an op that the caller must copy; NULL: all ops have ended. */
static struct client_op *take_back(struct client_window *w)
{
	struct client_op *op = NULL;

	pthread_mutex_lock(&w->mutex);
	while (pool_list_empty(&w->back) && w->left > 0)
		pthread_cond_wait(&w->cond, &w->mutex);
	if (!pool_list_empty(&w->back)) {
		op = pool_list_first(&w->back, struct client_op, link);
		pool_list_del(&op->link);
	}
	pthread_mutex_unlock(&w->mutex);
	return op;
}

static void copied_last(struct client_op *op)
{
	struct client_window *w = op->win;

	op->ended = true;
	pthread_mutex_lock(&w->mutex);
	w->left--;
	pthread_mutex_unlock(&w->mutex);
}

/* Hands the ops that have not ended to the loop, and waits until all have. */
static void run_window(struct client_window *w)
{
	struct kvpool *p = w->ns->pool;
	struct client_op *op;
	size_t i;

	w->left = 0;
	for (i = 0; i < w->n; i++)
		w->left += !w->op[i].ended;
	if (w->left == 0)
		return;
	pool_mailbox_post(&p->box, &w->mail, on_window);
	while ((op = take_back(w))) {
		if (w->kind->copy(op))
			pool_mailbox_post(&p->box, &op->mail, on_copied);
		else
			copied_last(op);
	}
}

/* lock held: opens local copies, and plans which holders to ask for the
 * rest. */
static void look_for(struct client_window *w, struct client_direct *d)
{
	const struct kvpool *p = w->ns->pool;
	struct node_dirent *dir;
	struct node_entry *e;
	struct pool_entry *pe;

	if (client_ns_dir(w->ns, &dir))
		return;
	for (size_t i = 0; i < w->n; i++) {
		struct client_op *op = &w->op[i];

		if (op->ended)
			continue;
		pe = client_find(p, dir, op->path.at, op->path.len);
		if (!pe || pe->is_dir || !pool_node_visible(pe))
			continue;
		e = node_file(pe);
		if (client_open_here(op, e) == 0)
			continue;
		op->fd = -1;
		client_direct_plan(d, op, e);
	}
}

/* Gets that need no work of the loop. */
static void get_at_once(struct client_window *w)
{
	struct kvpool *p = w->ns->pool;
	struct client_direct d;
	uint64_t retries = 0;

	d.n = 0;
	pthread_rwlock_rdlock(&p->lock);
	look_for(w, &d);
	pthread_rwlock_unlock(&p->lock);
	for (size_t i = 0; i < w->n; i++) {
		if (w->op[i].fd < 0)
			continue;
		(void)w->kind->copy(&w->op[i]);
		w->op[i].ended = true;
	}
	client_direct_run(w, &d);
	/* The loop gets the objects that no holder has sent. */
	for (size_t i = 0; i < w->n; i++)
		retries += w->op[i].asked && !w->op[i].ended;
	client_count(&p->stats, COUNT_RETRIES, retries);
}

static size_t finish(struct client_window *w, int64_t *ret)
{
	size_t i, good = 0;

	client_count_results(w);
	for (i = 0; i < w->n; i++) {
		struct client_op *op = &w->op[i];

		ret[i] = op->result;
		good += op->result >= 0;
		if (op->result < 0)
			set_last_error(op);
		client_buffer_give(op->buffer);
		client_path_free(&op->path);
	}
	return good;
}

static int check_layout(const struct kvpool_ns *ns)
{
	struct node_dirent *dir;
	int err;

	pool_shortlock_read(&ns->pool->names);
	err = client_ns_dir(ns, &dir);
	pool_shortlock_give(&ns->pool->names);
	return err;
}

ssize_t client_run(const struct kvpool_ns *ns, const struct client_kind *kind,
		   const struct kvpool_key *keys,
		   const struct kvpool_buf *bufs, size_t n, unsigned int flags,
		   uint64_t arg, int64_t *ret)
{
	size_t most = n < CLIENT_WINDOW ? n : CLIENT_WINDOW, at, k, good = 0;
	const enum client_timed timed =
		kind->counted == CLIENT_PUTS ? TIMED_PUTS : TIMED_GETS;
	struct client_window *w;
	uint64_t began = 0;
	int err = client_check_batch(ns, keys, n, ret);

	if (!err && kind->moves && n > 0 && !bufs)
		err = client_fail(-EINVAL, "bufs is NULL");
	if (!err)
		err = check_layout(ns);
	if (err || n == 0)
		return err;
	if (kind->counted != CLIENT_UNCOUNTED)
		began = client_timed_begin(timed);
	w = malloc(sizeof(*w) + most * sizeof(w->op[0]));
	if (!w)
		return client_fail(-ENOMEM, "no memory for %zu keys", most);
	pthread_mutex_init(&w->mutex, NULL);
	pthread_cond_init(&w->cond, NULL);
	pool_list_init(&w->back);
	w->ns = ns;
	w->kind = kind;
	w->flags = flags;
	w->arg = arg;
	for (at = 0; at < n; at += w->n) {
		w->n = n - at < most ? n - at : most;
		memset(w->op, 0, w->n * sizeof(w->op[0]));
		client_count_asked(w);
		for (k = 0; k < w->n; k++) {
			w->op[k].win = w;
			set_op(&w->op[k], &keys[at + k],
			       kind->moves ? &bufs[at + k] : NULL);
		}
		if (kind == &client_get || kind == &client_get_fd)
			get_at_once(w);
		run_window(w);
		good += finish(w, ret + at);
	}
	pthread_cond_destroy(&w->cond);
	pthread_mutex_destroy(&w->mutex);
	free(w);
	client_timed_end(&ns->pool->stats, timed, began);
	return (ssize_t)good;
}
