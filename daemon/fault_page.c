#include "daemon/fault_page.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/base/parse.h"
#include "pool/conn/fault_rules.h"

static const char *const direction_names[] = {
	[POOL_FAULT_SEND] = "send",
	[POOL_FAULT_RECEIVE] = "receive",
	[POOL_FAULT_SEND | POOL_FAULT_RECEIVE] = "both",
	[POOL_FAULT_RDMA] = "rdma",
};

int daemon_faults_allow(struct pool_metrics *metrics)
{
	struct pool_faults *f;
	int err = pool_faults_open(metrics, pool_random_u64(), &f);

	if (err) {
		pool_error("faults cannot be allowed: %s", strerror(-err));
		return err;
	}
	pool_faults_install(f);
	pool_warn("faults are allowed: anyone who reaches the admin address "
		  "from this machine can break this program's connections");
	return 0;
}

static struct pool_faults *allowed(unsigned int *ret_status,
				   const char **ret_text)
{
	struct pool_faults *f = pool_faults_installed();

	if (!f) {
		*ret_status = 404;
		*ret_text = "faults are not allowed here; start the program "
			    "with --allow-faults";
	}
	return f;
}

static json_t *rule_json(const struct pool_fault_rule *r)
{
	json_t *j = json_pack("{s:s, s:s, s:s, s:I, s:I}", "peer", r->peer,
			      "direction", direction_names[r->directions],
			      "kind", pool_fault_kind_names[r->kind], "seen",
			      (json_int_t)r->seen, "done",
			      (json_int_t)r->done);

	if (r->kind == POOL_FAULT_DELAY)
		json_object_set_new(j, "delay_ms", json_integer(r->delay_ms));
	if (r->nth)
		json_object_set_new(j, "nth", json_integer((json_int_t)r->nth));
	else
		json_object_set_new(j, "probability",
				    json_real(r->probability));
	return j;
}

json_t *daemon_faults_get(void *arg, const struct daemon_admin_query *q,
			  unsigned int *ret_status, const char **ret_text)
{
	struct pool_faults *f = allowed(ret_status, ret_text);
	struct pool_fault_rule rules[POOL_FAULT_RULES_MAX];
	json_t *list;
	size_t n;

	(void)arg;
	(void)q;
	if (!f)
		return NULL;
	list = json_array();
	n = pool_faults_list(f, rules);
	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, rule_json(&rules[i]));
	return json_pack("{s:o}", "faults", list);
}

/* The index of text in names; -1: not there. */
static int index_of(const char *text, const char *const *names, int n)
{
	for (int i = 0; i < n; i++)
		if (names[i] && strcmp(text, names[i]) == 0)
			return i;
	return -1;
}

static bool parse_which(const struct daemon_admin_query *q,
			struct pool_fault_rule *r)
{
	const char *nth = q->get(q, "nth");
	const char *probability = q->get(q, "probability");
	char *end;

	r->probability = 1;
	if (nth)
		return !probability &&
		       pool_parse_u64(nth, 1, UINT64_MAX, &r->nth) == 0;
	if (probability) {
		r->probability = strtod(probability, &end);
		return end != probability && !*end && r->probability > 0 &&
		       r->probability <= 1;
	}
	return true;
}

/* What is wrong with the query, or NULL. */
static const char *parse_rule(const struct daemon_admin_query *q,
			      struct pool_fault_rule *r)
{
	const char *kind = q->get(q, "kind"), *peer = q->get(q, "peer");
	const char *direction = q->get(q, "direction");
	const char *delay = q->get(q, "delay");
	uint64_t ms = 0;
	int k = kind ? index_of(kind, pool_fault_kind_names, POOL_FAULT_KINDS) :
		       -1;
	int d = direction ? index_of(direction, direction_names,
				     POOL_FAULT_RDMA + 1) :
			    (int)POOL_FAULT_SEND;

	memset(r, 0, sizeof(*r));
	if (k < 0)
		return "kind: delay, drop, reset or corrupt";
	if (d < 0)
		return "direction: send, receive, both or rdma";
	if (d == (int)POOL_FAULT_RDMA && k == POOL_FAULT_DROP)
		return "kind: delay, reset or corrupt, with direction=rdma";
	if (peer && (!*peer || strlen(peer) > POOL_FAULT_PEER_MAX))
		return "peer: all, HOST or HOST:PORT";
	if ((k == POOL_FAULT_DELAY) != (delay != NULL) ||
	    (delay && (pool_parse_duration_ms(delay, &ms) || ms == 0 ||
		       ms > POOL_FAULT_DELAY_MAX_MS)))
		return "delay: with kind=delay, a duration up to 10m";
	if (!parse_which(q, r))
		return "nth: a number from 1; or probability: more than 0, at "
		       "most 1";
	r->kind = (enum pool_fault_kind)k;
	r->directions = (unsigned int)d;
	r->delay_ms = (uint32_t)ms;
	strcpy(r->peer, peer ? peer : "all");
	return NULL;
}

json_t *daemon_faults_post(void *arg, const struct daemon_admin_query *q,
			   unsigned int *ret_status, const char **ret_text)
{
	struct pool_faults *f = allowed(ret_status, ret_text);
	const char *clear = q->get(q, "clear"), *wrong;
	struct pool_fault_rule rule;
	bool yes = false;

	if (!f)
		return NULL;
	if (clear) {
		if (pool_parse_bool(clear, &yes) || !yes) {
			*ret_status = 400;
			*ret_text = "clear: yes";
			return NULL;
		}
		pool_faults_clear(f);
		return daemon_faults_get(arg, q, ret_status, ret_text);
	}
	wrong = parse_rule(q, &rule);
	if (!wrong && pool_faults_add(f, &rule))
		wrong = "there are 64 rules already; clear=yes removes them";
	if (wrong) {
		*ret_status = 400;
		*ret_text = wrong;
		return NULL;
	}
	return daemon_faults_get(arg, q, ret_status, ret_text);
}
