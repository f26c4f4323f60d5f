/* DROP: copies that a node must give up. The items of a turn are collected and
 * sent in one message. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "master/impl.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"

void master_session_free_drops(struct master_session *s)
{
	size_t i;

	for (i = 0; i < s->ndrops; i++)
		free(s->drops[i]);
	s->ndrops = s->drops_bytes = 0;
}

void master_session_flush_drops(struct master_session *s)
{
	Kvpool__Drop msg = KVPOOL__DROP__INIT;

	if (!s->ndrops)
		return;
	msg.items = s->drops;
	msg.n_items = s->ndrops;
	msg.granted = s->granted;
	master_session_send_after(s, POOL_MSG_DROP, 0, &msg.base,
			      master_keep_mark(s->m));
	master_session_free_drops(s);
}

static int grow_drops(struct master_session *s)
{
	size_t cap = s->drops_cap ? s->drops_cap * 2 : 16;
	Kvpool__Drop__Item **drops;

	if (s->ndrops < s->drops_cap)
		return 0;
	drops = realloc(s->drops, cap * sizeof(*drops));
	if (!drops)
		return -ENOMEM;
	s->drops = drops;
	s->drops_cap = cap;
	return 0;
}

void master_session_drop(struct master_session *s, const char *path, size_t len,
			 uint64_t gen, Kvpool__Drop__Reason reason)
{
	Kvpool__Drop__Item *item;

	if (!s || s->ended)
		return;
	/* A lost DROP only costs the node memory, until its next inventory or
	 * EVICT: the map does not refer to that copy any more. */
	item = malloc(sizeof(*item) + len);
	if (!item || grow_drops(s)) {
		free(item);
		return;
	}
	kvpool__drop__item__init(item);
	item->path.data = (uint8_t *)(item + 1);
	item->path.len = len;
	memcpy(item->path.data, path, len);
	item->gen = gen;
	item->reason = reason;
	item->helds = s->nheld + 1;
	s->drops[s->ndrops++] = item;
	s->drops_bytes += len + 16;
	if (s->ndrops == POOL_BATCH_MAX || s->drops_bytes >= POOL_BATCH_BYTES)
		master_session_flush_drops(s);
	else
		master_kick(s->m);
}

void master_session_grant(struct master_session *s, const char *path,
			  size_t len, uint64_t gen, uint64_t size)
{
	if (s)
		s->granted += size;
	master_session_drop(s, path, len, gen, KVPOOL__DROP__REASON__EVICTED);
}

void master_drop_copies(struct master *m, const char *path, size_t len,
			uint64_t gen, const master_holder *held, unsigned int n,
			Kvpool__Drop__Reason reason)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		struct master_member *mb = master_member_at(
			&m->members, master_holder_index(held[i]));

		if (mb)
			master_session_drop(mb->session, path, len, gen,
					    reason);
	}
}

void master_drop_holders(struct master *m, const struct master_file *f,
			 const struct master_member *except,
			 Kvpool__Drop__Reason reason)
{
	char path[POOL_PATH_MAX + 1];
	int len = -1;
	unsigned int i;

	for (i = 0; i < f->nholders; i++) {
		struct master_member *mb = master_member_at(
			&m->members,
			master_holder_index(master_file_holders(f)[i]));

		if (!mb || mb == except || !mb->session)
			continue;
		if (len < 0)
			len = pool_tree_path(&f->e, path, sizeof(path));
		master_session_drop(mb->session, path, (size_t)len, f->gen,
				    reason);
	}
}
