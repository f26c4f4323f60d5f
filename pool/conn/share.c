#include "pool/conn/share.h"

/* A prepare handle runs before polling: waiting users come before those whose
 * sockets become readable. */
static void on_next(uv_prepare_t *h)
{
	struct pool_share *s = pool_container_of(h, struct pool_share, next);

	s->left = s->turn;
	while (s->left && !pool_list_empty(&s->waiting)) {
		struct pool_share_user *u = pool_list_first(
			&s->waiting, struct pool_share_user, link);

		pool_list_del(&u->link);
		u->go(u);
	}
	if (s->left == s->turn) /* no budget was used, no user waits */
		uv_prepare_stop(h);
}

void pool_share_open(struct pool_share *s, uv_loop_t *loop, size_t turn)
{
	s->turn = s->left = turn;
	pool_list_init(&s->waiting);
	uv_prepare_init(loop, &s->next);
	uv_unref((uv_handle_t *)&s->next);
}

void pool_share_close(struct pool_share *s, uv_close_cb cb)
{
	while (!pool_list_empty(&s->waiting))
		pool_list_del(s->waiting.next);
	uv_close((uv_handle_t *)&s->next, cb);
}

void pool_share_user_init(struct pool_share_user *u,
			  void (*go)(struct pool_share_user *u))
{
	pool_list_init(&u->link);
	u->go = go;
}

bool pool_share_take(struct pool_share *s, struct pool_share_user *u)
{
	if (s->left)
		return true;
	if (pool_list_empty(&u->link))
		pool_list_add_tail(&s->waiting, &u->link);
	return false;
}

void pool_share_spend(struct pool_share *s, size_t units)
{
	if (!uv_is_closing((uv_handle_t *)&s->next))
		uv_prepare_start(&s->next, on_next); /* no-op while active */
	s->left -= units < s->left ? units : s->left;
}

void pool_share_leave(struct pool_share_user *u)
{
	pool_list_del(&u->link);
}
