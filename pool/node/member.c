/* The pool's members, by the index that the master gave them. */
#include "pool/node/node_priv.h"

#include <stdio.h>
#include <string.h>

struct node_member *node_member(struct pool_node *n, uint32_t index)
{
	if (index >= NODE_NODES_MAX || !n->members[index].known)
		return NULL;
	return &n->members[index];
}

struct node_member *node_member_by_id(struct pool_node *n,
				      const uint8_t id[POOL_ID_SIZE])
{
	for (uint32_t i = 0; i < n->nmembers; i++)
		if (n->members[i].known &&
		    memcmp(n->members[i].addr.id, id, POOL_ID_SIZE) == 0)
			return &n->members[i];
	return NULL;
}

/* Is it the path of a peer's socket? Another host says it, and must not choose
 * which programs this daemon dials. */
static bool is_peer_socket(const char *path)
{
	const char *last = strrchr(path, '/');

	return path[0] == '/' && strcmp(last + 1, POOL_PEER_SOCKET) == 0;
}

void node_member_apply(struct pool_node *n, const Kvpool__NodeInfo *info)
{
	struct node_member *m;
	bool was_alive;

	if (info->index >= NODE_NODES_MAX || info->id.len != POOL_ID_SIZE) {
		pool_warn_limited("the master's node %u has an index or an id "
				  "out of range: ignored",
				  info->index);
		return;
	}
	m = &n->members[info->index];
	was_alive = m->known && m->alive;
	m->known = true;
	m->alive = info->alive;
	m->is_store = m->addr.is_store = info->is_store;
	m->is_mount = info->is_mount;
	memcpy(m->addr.id, info->id.data, POOL_ID_SIZE);
	snprintf(m->name, sizeof(m->name), "%s", info->name);
	snprintf(m->advertise, sizeof(m->advertise), "%s", info->advertise);
	snprintf(m->host_id, sizeof(m->host_id), "%s", info->host_id);
	snprintf(m->data_mode, sizeof(m->data_mode), "%s", info->data_mode);
	pool_wire_program(m->program, info->program);
	snprintf(m->addr.unix_path, sizeof(m->addr.unix_path), "%s",
		 info->unix_path);
	if (!is_peer_socket(m->addr.unix_path)) /* as cut above */
		m->addr.unix_path[0] = '\0';
	if (pool_parse_hostport(info->advertise, 0, &m->addr.tcp) < 0)
		m->alive = false;
	m->capacity = info->capacity;
	m->used = info->used;
	m->evictable = info->evictable;
	m->objects = info->objects;
	m->sent_bytes = info->sent_bytes;
	m->draining = info->draining;
	m->drained_percent = info->drained_percent;
	if (info->index >= n->nmembers)
		n->nmembers = info->index + 1;
	if (was_alive && !m->alive)
		m->left_ms = pool_now_ms();
	if (was_alive != m->alive)
		pool_info_paced("node %s (%s) %s", m->name, m->advertise,
			  m->alive ? "joined" : "left");
}

uint64_t node_room_elsewhere(const struct pool_node *n)
{
	uint64_t most = 0, taken;
	unsigned int i;

	for (i = 0; i < n->nmembers; i++) {
		const struct node_member *m = &n->members[i];

		if (i == n->index || !m->known || !m->alive || !m->is_store ||
		    m->draining)
			continue;
		taken = m->used + m->capacity / 50;
		if (m->capacity > taken && m->capacity - taken > most)
			most = m->capacity - taken;
	}
	return most;
}
