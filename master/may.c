#include "master/may.h"

#include <assert.h>

#include "master/session.h"
#include "pool/conn/conn.h"

static enum pool_reach reach(const struct master_session *s, const char *path,
			     size_t len)
{
	return pool_tls_id_reach(pool_conn_peer_id(s->conn), path, len);
}

bool master_may_speak_for(const struct master_session *s, uint32_t uid)
{
	return pool_tls_id_speaks_for(pool_conn_peer_id(s->conn), uid);
}

uint32_t master_may_user(const struct master_session *s)
{
	const struct pool_tls_id *id = pool_conn_peer_id(s->conn);

	return id && id->nuids ? id->uids[0] : MASTER_UID_ANYONE;
}

bool master_may_see(const struct master_session *s, const char *path,
		    size_t len)
{
	return reach(s, path, len) != POOL_OUTSIDE;
}

static const struct pool_entry *entry_of(struct master_item *i)
{
	assert(i->kind == MASTER_FILE || i->kind == MASTER_DIR);
	return i->kind == MASTER_FILE ? &master_item_file(i)->e :
					&master_item_dir(i)->d.e;
}

bool master_may_see_item(const struct master_session *s, struct master_item *i)
{
	const struct pool_tls_id *id = pool_conn_peer_id(s->conn);
	char path[POOL_PATH_MAX + 1];
	int len;

	if (!id || !id->ndirs)
		return true;
	if (i->kind == MASTER_GRAVE)
		return master_may_see(s, master_item_grave(i)->path,
				      master_item_grave(i)->path_len);
	len = pool_tree_path(entry_of(i), path, sizeof(path));
	return len >= 0 && master_may_see(s, path, (size_t)len);
}

bool master_may_change(const struct master_session *s, const char *path,
		       size_t len)
{
	return reach(s, path, len) == POOL_INSIDE;
}

bool master_may_set_dir(const struct master_session *s, const char *path,
			size_t len)
{
	return reach(s, path, len) <= POOL_TOP;
}
