#include "daemon/master_pages.h"

#include "pool/base/parse.h"

#define EVENTS_LIMIT 1000
#define EVENTS_LIMIT_MAX 10000

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
