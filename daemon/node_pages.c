/* The admin pages of kvpoold. */
#include <string.h>

#include "daemon/master_pages.h"
#include "daemon/node_program.h"
#include "daemon/privileges.h"
#include "pool/kvpool.h"

/* enum daemon_bulk */
static const char *const bulk_names[] = { "tls", "auth", "plain" };

static json_t *uses_ktls(const struct node_program *p)
{
	return json_boolean(pool_tls_allows_kernel(p->base.tls.tls));
}

json_t *daemon_node_status_json(void *arg)
{
	struct node_program *p = arg;
	json_t *j = pool_node_status_json(p->node);

	if (!j)
		return NULL;
	json_object_set_new(j, "version", json_string(kvpool_version()));
	json_object_set_new(j, "admin",
			    json_sprintf(strchr(p->conf->admin.host, ':') ?
						 "[%s]:%u" : "%s:%u",
					 p->conf->admin.host,
					 daemon_admin_port(p->admin)));
	json_object_set_new(j, "links", daemon_links_json(&p->base.tls));
	json_object_set_new(j, "bulk",
			    json_string(bulk_names[p->conf->bulk]));
	json_object_set_new(j, "ktls", uses_ktls(p));
	json_object_set_new(j, "rdma",
			    json_boolean(p->verbs && verbs_nports(p->verbs)));
	json_object_set_new(j, "privileges", daemon_privileges_json());
	if (p->mount)
		json_object_set_new(j, "mount", json_string(p->mount));
	if (p->master)
		json_object_set_new(j, "embedded_master",
				    master_status_json(p->master));
	return j;
}

json_t *daemon_node_nodes_json(void *arg)
{
	struct node_program *p = arg;

	return p->master ? master_nodes_json(p->master) :
			   pool_node_nodes_json(p->node);
}

static json_t *status_page(void *arg, const struct daemon_admin_query *q,
			   unsigned int *ret_status, const char **ret_text)
{
	(void)q;
	(void)ret_status;
	(void)ret_text;
	return daemon_node_status_json(arg);
}

static json_t *nodes_page(void *arg, const struct daemon_admin_query *q,
			  unsigned int *ret_status, const char **ret_text)
{
	(void)q;
	(void)ret_status;
	(void)ret_text;
	return daemon_node_nodes_json(arg);
}

static int list_objects(void *arg, const char *prefix, const char *token,
			unsigned int limit, json_t **ret_json)
{
	struct node_program *p = arg;

	return pool_node_objects_json(p->node, prefix, token, limit,
				      ret_json);
}

static json_t *objects_page(void *arg, const struct daemon_admin_query *q,
			    unsigned int *ret_status, const char **ret_text)
{
	return daemon_objects_page(q, list_objects, arg, ret_status, ret_text);
}

static json_t *no_master(unsigned int *ret_status, const char **ret_text)
{
	*ret_status = 404;
	*ret_text = "there is no master in this process: ask the master's "
		    "admin address";
	return NULL;
}

static json_t *events_page(void *arg, const struct daemon_admin_query *q,
			   unsigned int *ret_status, const char **ret_text)
{
	struct node_program *p = arg;

	if (!p->master)
		return no_master(ret_status, ret_text);
	return daemon_events_page(p->master, q, ret_status, ret_text);
}

static json_t *directories_page(void *arg, const struct daemon_admin_query *q,
				unsigned int *ret_status, const char **ret_text)
{
	struct node_program *p = arg;

	(void)q;
	if (!p->master)
		return no_master(ret_status, ret_text);
	return daemon_directories_page(p->master, ret_status, ret_text);
}

static json_t *pool_status_page(void *arg, const struct daemon_admin_query *q,
				unsigned int *ret_status, const char **ret_text)
{
	struct node_program *p = arg;

	(void)q;
	if (!p->master)
		return no_master(ret_status, ret_text);
	return daemon_master_status_page(p->master, &p->base.tls, NULL);
}

static json_t *pool_nodes_page(void *arg, const struct daemon_admin_query *q,
			       unsigned int *ret_status, const char **ret_text)
{
	struct node_program *p = arg;

	(void)q;
	if (!p->master)
		return no_master(ret_status, ret_text);
	return master_nodes_json(p->master);
}

static json_t *pool_objects_page(void *arg, const struct daemon_admin_query *q,
				 unsigned int *ret_status,
				 const char **ret_text)
{
	struct node_program *p = arg;

	if (!p->master)
		return no_master(ret_status, ret_text);
	return daemon_master_objects_page(p->master, q, ret_status, ret_text);
}

static json_t *drain(struct node_program *p, const struct daemon_admin_query *q,
		     bool post, unsigned int *ret_status, const char **ret_text)
{
	if (!p->master)
		return no_master(ret_status, ret_text);
	return daemon_drain_page(p->master, q, post, ret_status, ret_text);
}

static json_t *drain_page(void *arg, const struct daemon_admin_query *q,
			  unsigned int *ret_status, const char **ret_text)
{
	return drain(arg, q, false, ret_status, ret_text);
}

static json_t *drain_post(void *arg, const struct daemon_admin_query *q,
			  unsigned int *ret_status, const char **ret_text)
{
	return drain(arg, q, true, ret_status, ret_text);
}

static json_t *evicted_page(void *arg, const struct daemon_admin_query *q,
			    unsigned int *ret_status, const char **ret_text)
{
	struct node_program *p = arg;

	(void)q;
	(void)ret_status;
	(void)ret_text;
	return pool_node_evicted_json(p->node);
}

static json_t *devices_page(void *arg, const struct daemon_admin_query *q,
			    unsigned int *ret_status, const char **ret_text)
{
	static const char *const names[] = { "auto", "rdma", "tcp" };
	struct node_program *p = arg;

	(void)q;
	(void)ret_status;
	(void)ret_text;
	return json_pack("{s:s, s:s, s:o, s:o}", "transport",
			 names[p->conf->transport], "bulk",
			 bulk_names[p->conf->bulk], "ktls", uses_ktls(p),
			 "devices", verbs_json(p->verbs));
}

const struct daemon_admin_page daemon_node_pages[] = {
	{ .path = "/api/status", .fn = status_page },
	{ .path = "/api/nodes", .fn = nodes_page },
	{ .path = "/api/devices", .fn = devices_page },
	{ .path = "/api/evicted", .fn = evicted_page, .names = true },
	DAEMON_PAGES_COMMON,
	/* What the web page of the embedded master asks for (files_at). */
	{ .path = "/pool/api/status", .fn = pool_status_page },
	{ .path = "/pool/api/nodes", .fn = pool_nodes_page },
	{ .path = "/pool/api/objects",
	  .fn = pool_objects_page,
	  .params = DAEMON_OBJECTS_PARAMS,
	  .names = true },
	{ .path = "/pool/api/directories",
	  .fn = directories_page,
	  .names = true },
	{ .path = "/pool/api/events",
	  .fn = events_page,
	  .params = DAEMON_EVENTS_PARAMS },
	{ .path = NULL },
};
