#include "daemon/drain_page.h"

#include <errno.h>
#include <string.h>

/* 0, or -EINVAL. */
static int parse_flag(const char *text, bool *ret)
{
	*ret = text && (!strcmp(text, "1") || !strcmp(text, "true"));
	return !text || *ret || !strcmp(text, "0") || !strcmp(text, "false") ?
		       0 : -EINVAL;
}

static unsigned int http_status(int err)
{
	switch (err) {
	case -ENOENT:
		return 404;
	case -ENOTUNIQ:
	case -EINVAL:
		return 409;
	default:
		return 500;
	}
}

json_t *daemon_drain_page(struct master *m, const struct daemon_admin_query *q,
			  bool post, unsigned int *ret_status,
			  const char **ret_text)
{
	enum master_drain_do what = MASTER_DRAIN_SHOW;
	const char *node = q->get(q, "node");
	json_t *json = NULL;
	bool cancel;
	int err;

	*ret_status = 400;
	*ret_text = "node: give the name of a node, /api/drain?node=NAME";
	if (!node || !node[0])
		return NULL;
	*ret_text = "cancel: accepted: 1, 0";
	if (parse_flag(q->get(q, "cancel"), &cancel))
		return NULL;
	if (post)
		what = cancel ? MASTER_DRAIN_CANCEL : MASTER_DRAIN_BEGIN;
	err = master_drain(m, node, what, &json, ret_text);
	*ret_status = http_status(err);
	return err ? NULL : json;
}
