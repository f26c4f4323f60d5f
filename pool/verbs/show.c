/* The ports as text and JSON, for status pages and logs. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "pool/verbs/verbs_priv.h"

static const char *state_name(const struct verbs_entry *e)
{
	const struct verbs_port *p = &e->port;
	int now = atomic_load(&p->state);

	if (!p->why_not && now != VERBS_ACTIVE)
		return now == VERBS_GONE ? "removed" : "down";
	switch (e->state) {
	case IBV_PORT_DOWN:
		return "down";
	case IBV_PORT_INIT:
		return "init";
	case IBV_PORT_ARMED:
		return "armed";
	case IBV_PORT_ACTIVE:
	case IBV_PORT_ACTIVE_DEFER:
		return "active";
	default:
		return "unknown";
	}
}

/* NULL: the port can be used now; or why not. */
static const char *why_not_now(const struct verbs_port *p)
{
	if (p->why_not)
		return p->why_not;
	switch (atomic_load(&p->state)) {
	case VERBS_DOWN:
		return "it went down, or lost its address, after the start";
	case VERBS_GONE:
		return "it was removed or failed: restart the daemon when it "
		       "is back";
	default:
		return NULL;
	}
}

static json_t *address_json(const struct verbs_entry *e)
{
	char text[VERBS_GID_TEXT];

	return e->has_gid && e->port.link != VERBS_IWARP ?
		       json_string(verbs_gid_format(e->port.gid.raw, text)) :
		       json_null();
}

static json_t *entry_json(const struct verbs_entry *e)
{
	const struct verbs_port *p = &e->port;
	const char *why_not = why_not_now(p);

	return json_pack(
		"{s:s, s:i, s:s, s:o, s:s, s:b, s:s?, s:i, s:i, s:I, s:I}",
		"device", p->device, "port", (int)p->number, "link", e->link,
		"address", address_json(e), "state", state_name(e), "used",
		why_not == NULL, "why_not", why_not, "mtu",
		p->mtu ? 128 << (int)p->mtu : 0, "failures",
		(int)atomic_load(&p->failures), "sent_bytes",
		(json_int_t)pool_counter_value(&p->sent), "received_bytes",
		(json_int_t)pool_counter_value(&p->received));
}

json_t *verbs_json(const struct verbs *v)
{
	json_t *all = json_array();

	for (unsigned int i = 0; all && v && i < v->n; i++) {
		if (json_array_append_new(all, entry_json(&v->entries[i]))) {
			json_decref(all);
			return NULL;
		}
	}
	return all;
}

static int format_one(const struct verbs_entry *e, char *buf, size_t cap)
{
	const struct verbs_port *p = &e->port;
	char gid[VERBS_GID_TEXT] = "";
	int n;

	if (p->number == 0)
		n = snprintf(buf, cap, "%s", p->device);
	else
		n = snprintf(buf, cap, "%s/%u %s %s", p->device, p->number,
			     state_name(e), e->link);
	if (p->why_not)
		return n + snprintf(buf + n, cap - (size_t)n, " (%s)",
				    p->why_not);
	if (e->has_gid && p->link != VERBS_IWARP)
		n += snprintf(buf + n, cap - (size_t)n, " %s",
			      verbs_gid_format(p->gid.raw, gid));
	return n;
}

char *verbs_format(const struct verbs *v, char *buf, size_t cap)
{
	size_t at = 0;

	assert(cap >= 8);
	strcpy(buf, "none");
	for (unsigned int i = 0; v && i < v->n; i++) {
		char one[256];
		int len = format_one(&v->entries[i], one, sizeof(one));

		if (at + (size_t)len + 3 > cap) {
			strcpy(buf + (at > cap - 4 ? cap - 4 : at), "...");
			return buf;
		}
		at += (size_t)snprintf(buf + at, cap - at, "%s%s",
				       i > 0 ? ", " : "", one);
	}
	return buf;
}
