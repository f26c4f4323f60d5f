#include "daemon/master_pages.h"

#include <unistd.h>

#include "daemon/privileges.h"
#include "daemon/program.h"
#include "pool/base/parse.h"
#include "pool/kvpool.h"

#define EVENTS_LIMIT 1000
#define EVENTS_LIMIT_MAX 10000

json_t *daemon_master_status_page(struct master *m, const struct daemon_tls *t,
				  json_t *election)
{
	json_t *figures = m ? master_status_json(m) : json_object();
	json_t *json = json_pack("{s:s, s:s, s:i, s:o, s:o}", "role", "master",
				 "version", kvpool_version(), "pid",
				 (int)getpid(), "links", daemon_links_json(t),
				 "privileges", daemon_privileges_json());

	if (election && json)
		json_object_set(json, "election", election);
	json_decref(election);
	/* The program's fields first, then the master's. */
	if (!figures || !json || json_object_update(json, figures)) {
		json_decref(json);
		json = NULL;
	}
	json_decref(figures);
	return json;
}

static int list_objects(void *arg, const char *prefix, const char *token,
			unsigned int limit, json_t **ret_json)
{
	return master_objects_json(arg, prefix, token, limit, ret_json);
}

json_t *daemon_master_objects_page(struct master *m,
				   const struct daemon_admin_query *q,
				   unsigned int *ret_status,
				   const char **ret_text)
{
	return daemon_objects_page(q, list_objects, m, ret_status, ret_text);
}

json_t *daemon_events_page(struct master *m, const struct daemon_admin_query *q,
			   unsigned int *ret_status, const char **ret_text)
{
	const char *since = q->get(q, "since"), *limit = q->get(q, "limit");
	uint64_t from = 0, most = EVENTS_LIMIT;

	*ret_status = 400;
	*ret_text = "since: accepted: 0 to 2^63 - 1; limit: 1 to 10000";
	if ((since && pool_parse_u64(since, 0, INT64_MAX, &from)) ||
	    (limit && pool_parse_u64(limit, 1, EVENTS_LIMIT_MAX, &most)))
		return NULL;
	*ret_status = 500;
	*ret_text = "out of memory";
	return master_happened_json(m, from, (unsigned int)most);
}

json_t *daemon_directories_page(struct master *m, unsigned int *ret_status,
				const char **ret_text)
{
	*ret_status = 500;
	*ret_text = "out of memory";
	return master_directories_json(m);
}
