#include "master/ha.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "master/etcd_state.h"
#include "master/events.h"
#include "master/leader.h"
#include "master/standby.h"
#include "master/state_rec.h" /* STATE_EPOCH_MAX */
#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/conn/conn.h"

struct master_ha {
	struct master_ha_opts o;
	char prefix[128], address[LEADER_ADDRESS_MAX], text[384];
	struct etcd *etcd;	      /* owns */
	struct leader *leader;	      /* owns */
	struct pool_listener *listener; /* owns */
	uint16_t port;
	struct standby standby;
	struct etcd_state *state; /* owns; loading, leading, closing */
	struct etcd_state_stats stats;
	uint64_t epoch;
	struct master_events events; /* of all times that it led */
	struct master *master; /* owns; leading, closing */
	bool master_opening, master_closing, closing;
	const char *failed; /* why the state failed inside master_open */
	void (*closed)(void *arg);
	void *closed_arg;
};

int master_cluster_check(const char *name)
{
	size_t n = strlen(name), i;

	for (i = 0; i < n; i++)
		if (!isalnum((unsigned char)name[i]) && !strchr("-_.", name[i]))
			return -EINVAL;
	return n >= 1 && n <= 64 ? 0 : -EINVAL;
}

/* ---- leading ---- */

static void end_leader(struct master_ha *ha);

static void on_master_closed(void *arg)
{
	struct master_ha *ha = arg;

	ha->master = NULL;
	ha->master_closing = false;
	etcd_state_close(ha->state);
	ha->state = NULL;
	leader_stopped(ha->leader);
	if (ha->closing)
		end_leader(ha);
}

/* Close all sessions and free the map. */
static void stop_master(struct master_ha *ha)
{
	if (ha->master_closing)
		return;
	if (ha->master) {
		ha->master_closing = true;
		master_close(ha->master, on_master_closed, ha);
		return;
	}
	on_master_closed(ha);
}

static void on_lost(void *arg)
{
	struct master_ha *ha = arg;

	master_event(&ha->events, "deposed",
		     "epoch %llu: %s no longer leads",
		     (unsigned long long)ha->epoch, ha->address);
	stop_master(ha);
}

static bool acting(void *arg)
{
	struct master_ha *ha = arg;

	return leader_acting(ha->leader);
}

static void on_settled(void *arg)
{
	struct master_ha *ha = arg;

	if (ha->master && !ha->master_closing)
		master_settled(ha->master);
}

static void on_failed(void *arg, const char *why)
{
	struct master_ha *ha = arg;

	if (ha->master_opening)
		ha->failed = why;
	else
		leader_resign(ha->leader, why);
}

static void on_loaded(void *arg, int err)
{
	struct master_ha *ha = arg;
	struct master_opts opts = ha->o.master;

	if (err)
		return leader_resign(ha->leader,
				     "the state cannot be read from etcd");
	opts.listen.host[0] = 0;
	opts.state_file = NULL;
	opts.etcd_state = ha->state;
	opts.epoch = ha->epoch;
	opts.events = &ha->events;
	opts.acting = acting;
	opts.acting_arg = ha;
	ha->failed = NULL;
	ha->master_opening = true;
	err = master_open(&opts, &ha->master);
	ha->master_opening = false;
	if (!err && !ha->failed)
		return;
	leader_resign(ha->leader, err ? strerror(-err) : ha->failed);
	if (err == -EPROTO)
		ha->o.unusable(ha->o.arg);
}

static void on_elected(void *arg, uint64_t epoch, int64_t fence)
{
	struct master_ha *ha = arg;
	struct etcd_state_opts opts = {
		.etcd = ha->etcd,
		.prefix = ha->prefix,
		.fence = fence,
		.stats = &ha->stats,
		.loaded = on_loaded,
		.settled = on_settled,
		.failed = on_failed,
		.arg = ha,
	};

	ha->epoch = epoch;
	master_event(&ha->events, "elected", "epoch %llu: %s leads%s",
		     (unsigned long long)epoch, ha->address,
		     epoch > 1 ? "; other leaders' events are in their logs" :
				 "");
	if (etcd_state_open(&opts, &ha->state))
		leader_resign(ha->leader, "no memory for the state");
}

static void on_unusable(void *arg)
{
	struct master_ha *ha = arg;

	ha->o.unusable(ha->o.arg);
}

/* ---- accepting connections ---- */

static const char *leader_elsewhere(void *arg)
{
	const struct master_ha *ha = arg;
	const char *address = leader_address(ha->leader);

	/* Do not refer nodes to ourselves: we are loading or closing. */
	return strcmp(address, ha->address) ? address : "";
}

static void on_accept(void *arg, int fd)
{
	struct master_ha *ha = arg;

	if (ha->master && !ha->master_closing && leader_acting(ha->leader))
		master_accept(ha->master, fd);
	else
		standby_accept(&ha->standby, fd);
}

/* ---- open ---- */

static int start_etcd(struct master_ha *ha)
{
	int err = etcd_open(ha->o.master.loop, &ha->o.etcd,
			    ha->o.master.metrics, &ha->etcd);

	if (err)
		return err;
	return leader_check(ha->etcd, ha->prefix, ha->o.start_ms);
}

static int start_listener(struct master_ha *ha)
{
	const struct pool_hostport *at = &ha->o.master.listen;
	int err = pool_listener_open(ha->o.master.loop, at, on_accept, ha,
				     &ha->listener);

	if (err)
		return err;
	if (!ha->o.master.tls)
		pool_listener_trust(ha->listener, ha->o.master.trust);
	ha->port = pool_listener_port(ha->listener);
	if (ha->o.advertise)
		snprintf(ha->address, sizeof(ha->address), "%s",
			 ha->o.advertise);
	else
		snprintf(ha->address, sizeof(ha->address),
			 strchr(at->host, ':') ? "[%s]:%u" : "%s:%u",
			 at->host, ha->port);
	return 0;
}

static int start_metrics(struct master_ha *ha)
{
	struct pool_metrics *m = ha->o.master.metrics;

	if (!m)
		return 0;
	return etcd_state_stats_register(&ha->stats, m) ||
			       pool_metrics_counter(
				       m, &ha->standby.turned_away,
				       "kvpool_master_turned_away_total", NULL,
				       "Joins refused because this master is a "
				       "standby.") ?
		       -ENOMEM :
		       0;
}

static int start_leader(struct master_ha *ha)
{
	struct leader_opts opts = {
		.loop = ha->o.master.loop,
		.etcd = ha->etcd,
		.prefix = ha->prefix,
		.address = ha->address,
		.ttl_s = ha->o.ttl_s,
		.epoch_max = STATE_EPOCH_MAX,
		.metrics = ha->o.master.metrics,
		.elected = on_elected,
		.lost = on_lost,
		.unusable = on_unusable,
		.arg = ha,
	};

	return leader_open(&opts, &ha->leader);
}

static void on_nothing(void *arg)
{
	(void)arg;
}

int master_ha_open(const struct master_ha_opts *opts,
		   struct master_ha **ret_ha)
{
	struct master_ha *ha = calloc(1, sizeof(*ha));
	int err;

	if (!ha)
		return -ENOMEM;
	ha->o = *opts;
	snprintf(ha->prefix, sizeof(ha->prefix), "/kvpool/%s/", opts->cluster);
	standby_init(&ha->standby, opts->master.loop, opts->master.tls,
		     leader_elsewhere, ha);
	err = master_events_init(&ha->events);
	if (!err)
		err = start_etcd(ha);
	if (!err)
		err = start_listener(ha);
	if (!err)
		err = start_metrics(ha);
	if (!err)
		err = start_leader(ha);
	if (err)
		goto err_close;
	*ret_ha = ha;
	return 0;

err_close:
	pool_listener_close(ha->listener);
	if (opts->master.metrics)
		pool_metrics_remove(opts->master.metrics, ha, sizeof(*ha));
	if (ha->etcd)
		etcd_close(ha->etcd, on_nothing, NULL);
	master_events_fini(&ha->events);
	free(ha);
	return err;
}

/* ---- close: the master, the lease, etcd, the standby's connections ---- */

static void on_standby_closed(void *arg)
{
	struct master_ha *ha = arg;
	void (*closed)(void *arg) = ha->closed;
	void *closed_arg = ha->closed_arg;

	if (ha->o.master.metrics)
		pool_metrics_remove(ha->o.master.metrics, ha, sizeof(*ha));
	master_events_fini(&ha->events);
	free(ha);
	if (closed)
		closed(closed_arg);
}

static void on_etcd_closed(void *arg)
{
	struct master_ha *ha = arg;

	standby_fini(&ha->standby, on_standby_closed, ha);
}

static void on_leader_closed(void *arg)
{
	struct master_ha *ha = arg;

	etcd_close(ha->etcd, on_etcd_closed, ha);
}

static void end_leader(struct master_ha *ha)
{
	leader_close(ha->leader, on_leader_closed, ha);
}

void master_ha_close(struct master_ha *ha, void (*closed)(void *arg), void *arg)
{
	ha->closing = true;
	ha->closed = closed;
	ha->closed_arg = arg;
	pool_listener_close(ha->listener);
	stop_master(ha);
}

/* ---- status ---- */

uint16_t master_ha_port(const struct master_ha *ha)
{
	return ha->port;
}

struct master *master_ha_leading(const struct master_ha *ha)
{
	return ha->master_closing ? NULL : ha->master;
}

const char *master_ha_not_ready(struct master_ha *ha)
{
	struct master *m = master_ha_leading(ha);
	const char *address = leader_address(ha->leader);

	if (m && leader_acting(ha->leader))
		return master_ready(m) ?
			       NULL :
			       "the leader; inventories are not complete";
	if (leader_is_leader(ha->leader))
		return "the leader; the state is being loaded";
	snprintf(ha->text, sizeof(ha->text), "standby; %s%s",
		 address[0] ? "the leader is at " : "no leader is known",
		 address);
	return ha->text;
}

static json_t *etcd_json(const struct etcd *etcd)
{
	const struct etcd_access *a = etcd_access(etcd);

	return json_pack("{ss sb ss* sb ss}", "urls", a->urls, "tls",
			 etcd_urls_tls(a->urls), "user", a->user, "healthy",
			 etcd_healthy(etcd), "last_error", etcd_error(etcd));
}

json_t *master_ha_json(const struct master_ha *ha)
{
	const struct leader *l = ha->leader;

	return json_pack("{ss sI ss ss so sI}", "state",
			 leader_is_leader(l) ? "leader" : "standby", "for_ms",
			 (json_int_t)(pool_now_ms() - leader_since_ms(l)),
			 "leader", leader_address(l), "address", ha->address,
			 "etcd", etcd_json(ha->etcd), "state_writes_queued",
			 (json_int_t)pool_gauge_value(&ha->stats.queued));
}
