#include "master/leader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "master/leader_keys.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/base/parse.h"

#define TICK_MS 50
#define CALL_MS 1000 /* each request's time */

enum state { STANDBY, CANDIDATE, LEADER, LEAVING, CLOSED };
struct leader {
	struct leader_opts o;
	enum state state;
	uv_timer_t timer;
	uint64_t since_ms, poll_ms, renew_ms;
	char address[LEADER_ADDRESS_MAX]; /* of the leader */
	/* candidate and leader: */
	int64_t lease;
	uint64_t asked_ms; /* boot time of the last grant or renewal request */
	uint64_t until_ms; /* boot time when the lease ends */
	uint64_t epoch;	   /* to begin with this election */
	int64_t epoch_rev; /* mod revision of the epoch's key, as read */
	bool first;	   /* the version's key does not exist yet */
	/* at most one of each kind is in flight */
	struct etcd_req poll, campaign, renew, revoke;
	bool polling, campaigning, renewing, revoking;
	int64_t renewed; /* the lease that `renew` renews */
	struct pool_counter elections, lost, renewals, renewals_failed;
	struct pool_gauge leading;
	void (*closed)(void *arg);
	void *closed_arg;
};

int leader_check(struct etcd *etcd, const char *prefix, unsigned int timeout_ms)
{
	uint64_t end_ms = pool_now_ms() + timeout_ms, now;
	json_t *answer = NULL;
	int err;

	do {
		err = etcd_call(etcd, ETCD_TXN, leader_query(prefix), CALL_MS,
				&answer);
		now = pool_now_ms();
		if (err == -EHOSTUNREACH && now < end_ms)
			uv_sleep(LEADER_POLL_MS);
	} while ((err == -EHOSTUNREACH || err == -ETIMEDOUT) && now < end_ms);
	if (err) {
		pool_error("etcd: %s cannot be used: %s%s",
			   etcd_access(etcd)->urls, etcd_error(etcd),
			   err == -EHOSTUNREACH || err == -ETIMEDOUT ?
				   " (start etcd, or correct --etcd)" : "");
		return err;
	}
	err = leader_check_version(prefix, answer);
	json_decref(answer);
	return err;
}

/* ---- changes of state ---- */

static void enter(struct leader *l, enum state state)
{
	l->state = state;
	l->since_ms = pool_now_ms();
	pool_gauge_set(&l->leading, state == LEADER);
}

static void on_revoked(struct etcd_req *r, int err, json_t *answer)
{
	struct leader *l = pool_container_of(r, struct leader, revoke);

	(void)err; /* after an error the lease expires */
	(void)answer;
	l->revoking = false;
}

/* So that the next leader need not wait until the lease expires. */
static void revoke_lease(struct leader *l)
{
	json_t *body;

	if (!l->lease)
		return;
	if (!l->revoking) {
		body = json_pack("{sI}", "ID", (json_int_t)l->lease);
		l->revoke.cb = on_revoked;
		l->revoking = !etcd_start(l->o.etcd, &l->revoke, ETCD_REVOKE,
					  body, CALL_MS);
	}
	l->lease = 0;
}

static void lose(struct leader *l, const char *why)
{
	if (l->state != LEADER)
		return;
	pool_warn("no longer the leader (epoch %llu): %s",
		  (unsigned long long)l->epoch, why);
	pool_count(&l->lost);
	enter(l, LEAVING);
	l->until_ms = 0;
	l->address[0] = 0;
	revoke_lease(l);
	l->o.lost(l->o.arg);
}

void leader_resign(struct leader *l, const char *why)
{
	lose(l, why);
}

void leader_stopped(struct leader *l)
{
	if (l->state != LEAVING)
		return;
	enter(l, STANDBY);
	l->poll_ms = pool_now_ms() + LEADER_POLL_MS;
}

static void give_up(struct leader *l, const char *why)
{
	if (why)
		pool_warn_limited("election: %s (%s)", why,
				  etcd_error(l->o.etcd));
	revoke_lease(l);
	if (l->state == CANDIDATE)
		enter(l, STANDBY);
}

/* ---- campaigning ---- */

static void granted_until(struct leader *l, uint64_t asked_ms, int64_t ttl_s)
{
	uint64_t ms = (uint64_t)ttl_s * 1000;

	l->until_ms = asked_ms + (ms > LEADER_MARGIN_MS ?
					  ms - LEADER_MARGIN_MS : 0);
}

static void won(struct leader *l, int64_t fence)
{
	pool_info("elected leader, epoch %llu", (unsigned long long)l->epoch);
	pool_count(&l->elections);
	enter(l, LEADER);
	snprintf(l->address, sizeof(l->address), "%s", l->o.address);
	l->renew_ms = pool_now_ms();
	l->o.elected(l->o.arg, l->epoch, fence);
}

/* The transaction may also have been executed by an earlier attempt whose
 * answer was lost: then the key exists already, with our lease. */
static void on_campaigned(struct etcd_req *r, int err, json_t *answer)
{
	struct leader *l = pool_container_of(r, struct leader, campaign);
	const json_t *kv = etcd_txn_kv(answer, 0);
	bool succeeded = json_is_true(json_object_get(answer, "succeeded"));
	int64_t fence = etcd_int(json_object_get(answer, "header"), "revision");

	l->campaigning = false;
	if (l->state != CANDIDATE)
		return;
	if (err)
		return give_up(l, "failed");
	if (!succeeded && kv && etcd_int(kv, "lease") == l->lease)
		fence = etcd_int(kv, "create_revision");
	else if (!succeeded)
		return give_up(l, NULL); /* another candidate was first */
	if (!fence || pool_boot_ms() >= l->until_ms)
		return give_up(l, "took too long");
	won(l, fence);
}

static json_t *campaign_txn(const struct leader *l)
{
	const char *prefix = l->o.prefix;
	json_t *puts, *compare;
	char epoch[24];

	snprintf(epoch, sizeof(epoch), "%llu", (unsigned long long)l->epoch);
	puts = json_pack("[o,o]",
			 leader_key_put(prefix, LEADER_KEY_HOLDER,
					l->o.address, l->lease),
			 leader_key_put(prefix, LEADER_KEY_EPOCH, epoch, 0));
	if (puts && l->first)
		json_array_append_new(puts,
				      leader_key_put(prefix, LEADER_KEY_VERSION,
						     LEADER_VERSION, 0));
	compare = json_pack("[o,o]",
			    leader_key_compare(prefix, LEADER_KEY_HOLDER,
					       "create_revision", 0),
			    leader_key_compare(prefix, LEADER_KEY_EPOCH,
					       "mod_revision", l->epoch_rev));
	return etcd_txn(compare, puts,
			json_pack("[o]", leader_key_get(prefix,
							LEADER_KEY_HOLDER)));
}

static void on_granted(struct etcd_req *r, int err, json_t *answer)
{
	struct leader *l = pool_container_of(r, struct leader, campaign);
	int64_t id = etcd_int(answer, "ID"), ttl = etcd_int(answer, "TTL");

	l->campaigning = false;
	if (!err && id)
		l->lease = id;
	if (l->state != CANDIDATE)
		return give_up(l, NULL);
	if (err || !id || ttl <= 0)
		return give_up(l, "no lease");
	granted_until(l, l->asked_ms, ttl);
	l->campaign.cb = on_campaigned;
	if (etcd_start(l->o.etcd, &l->campaign, ETCD_TXN, campaign_txn(l),
		       CALL_MS))
		return give_up(l, "out of memory");
	l->campaigning = true;
}

static void campaign_start(struct leader *l)
{
	json_t *body = json_pack("{si}", "TTL", (int)l->o.ttl_s);

	enter(l, CANDIDATE);
	l->asked_ms = pool_boot_ms();
	l->campaign.cb = on_granted;
	if (etcd_start(l->o.etcd, &l->campaign, ETCD_GRANT, body, CALL_MS))
		give_up(l, "out of memory");
	else
		l->campaigning = true;
}

/* ---- polling ---- */

/* The last epoch, 0 if there was none. */
static int read_epoch(struct leader *l, const json_t *answer, uint64_t *ret)
{
	char text[32];
	int err =
		leader_key_value(answer, LEADER_KEY_EPOCH, text, sizeof(text));

	*ret = 0;
	if (err == -ENOENT)
		return 0;
	if (!err && !pool_parse_u64(text, 0, l->o.epoch_max - 1, ret))
		return 0;
	if (err == -ENOMEM)
		return err;
	pool_error("etcd: %sepoch is no number below %llu; it is left as it is "
		   "(restore it, or use another --cluster)",
		   l->o.prefix, (unsigned long long)l->o.epoch_max);
	return -EPROTO;
}

static void on_query(struct leader *l, const json_t *answer)
{
	uint64_t epoch;
	int err = leader_answer(answer, l->address);

	if (err)
		l->address[0] = 0;
	if (!err || (err != -ENOENT && etcd_txn_kv(answer, LEADER_KEY_HOLDER)))
		return; /* there is a leader */
	if (err != -ENOENT) {
		pool_warn_limited("etcd: invalid answer to the leader query");
		return;
	}
	err = leader_check_version(l->o.prefix, answer);
	if (!err)
		err = read_epoch(l, answer, &epoch);
	if (err == -EPROTO) {
		enter(l, LEAVING); /* for good: the program exits */
		return l->o.unusable(l->o.arg);
	}
	/* Our previous lease must be revoked first. */
	if (err || l->revoking)
		return;
	l->epoch = epoch + 1;
	l->epoch_rev =
		etcd_int(etcd_txn_kv(answer, LEADER_KEY_EPOCH), "mod_revision");
	l->first = !etcd_txn_kv(answer, LEADER_KEY_VERSION);
	campaign_start(l);
}

static void on_polled(struct etcd_req *r, int err, json_t *answer)
{
	struct leader *l = pool_container_of(r, struct leader, poll);

	l->polling = false;
	if (l->state != STANDBY)
		return;
	if (err) {
		l->address[0] = 0;
		pool_warn_limited("etcd: %s", etcd_error(l->o.etcd));
		return;
	}
	on_query(l, answer);
}

static void poll_leader(struct leader *l, uint64_t now_ms)
{
	if (l->polling || now_ms < l->poll_ms)
		return;
	l->poll_ms = now_ms + LEADER_POLL_MS;
	l->poll.cb = on_polled;
	l->polling = !etcd_start(l->o.etcd, &l->poll, ETCD_TXN,
				 leader_query(l->o.prefix), CALL_MS);
}

/* ---- leading ---- */

static void on_renewed(struct etcd_req *r, int err, json_t *answer)
{
	struct leader *l = pool_container_of(r, struct leader, renew);
	int64_t ttl = etcd_int(answer, "TTL");

	l->renewing = false;
	if (l->state != LEADER || l->renewed != l->lease)
		return;
	if (!err && ttl > 0) {
		pool_count(&l->renewals);
		granted_until(l, l->asked_ms, ttl);
		return;
	}
	pool_count(&l->renewals_failed);
	if (!err || err == -ENOENT) {
		l->lease = 0;
		return lose(l, "etcd has ended its lease");
	}
	pool_warn_limited(
		"the lease was not renewed, %lld ms of it are left: %s",
		(long long)(l->until_ms - pool_boot_ms()),
		etcd_error(l->o.etcd));
	l->renew_ms = pool_now_ms() + LEADER_POLL_MS;
}

static void renew(struct leader *l, uint64_t now_ms)
{
	json_t *body;

	if (l->renewing || now_ms < l->renew_ms)
		return;
	body = json_pack("{sI}", "ID", (json_int_t)l->lease);
	l->renew_ms = now_ms + l->o.ttl_s * 1000 / 3;
	l->asked_ms = pool_boot_ms();
	l->renewed = l->lease;
	l->renew.cb = on_renewed;
	l->renewing = !etcd_start(l->o.etcd, &l->renew, ETCD_KEEPALIVE, body,
				  CALL_MS);
}

bool leader_acting(const struct leader *l)
{
	return l->state == LEADER && pool_boot_ms() < l->until_ms;
}

static void on_timer_closed(uv_handle_t *h)
{
	struct leader *l = pool_container_of((uv_timer_t *)h, struct leader,
					     timer);
	void (*closed)(void *arg) = l->closed;
	void *arg = l->closed_arg;

	free(l);
	if (closed)
		closed(arg);
}

static void on_tick(uv_timer_t *t)
{
	struct leader *l = pool_container_of(t, struct leader, timer);
	uint64_t now_ms = pool_now_ms();

	switch (l->state) {
	case STANDBY:
		return poll_leader(l, now_ms);
	case LEADER:
		if (leader_acting(l))
			return renew(l, now_ms);
		return lose(l, "its lease has ended");
	case CANDIDATE: /* continues when its request ends */
	case LEAVING:
		return;
	case CLOSED:
		if (!l->polling && !l->campaigning && !l->renewing &&
		    !l->revoking)
			uv_close((uv_handle_t *)t, on_timer_closed);
		return;
	}
}

/* ---- open and close ---- */

static int register_metrics(struct leader *l, struct pool_metrics *m)
{
	int err =
		pool_metrics_counter(m, &l->elections,
				     "kvpool_master_elections_won_total", NULL,
				     "Times this master became leader.");

	if (!err)
		err = pool_metrics_counter(
			m, &l->lost, "kvpool_master_leadership_lost_total",
			NULL, "Times it stopped being the leader.");
	if (!err)
		err = pool_metrics_counter(
			m, &l->renewals, "kvpool_master_lease_renewals_total",
			NULL, "Lease renewals.");
	if (!err)
		err = pool_metrics_counter(
			m, &l->renewals_failed,
			"kvpool_master_lease_renewals_failed_total", NULL,
			"Lease renewals that failed.");
	return err ? err :
		     pool_metrics_gauge(m, &l->leading,
					"kvpool_master_leader", NULL,
					"1 if this master is the leader.");
}

int leader_open(const struct leader_opts *opts, struct leader **ret_leader)
{
	struct leader *l = calloc(1, sizeof(*l));
	int err;

	if (!l)
		return -ENOMEM;
	l->o = *opts;
	if (!l->o.ttl_s)
		l->o.ttl_s = LEADER_TTL_S;
	err = opts->metrics ? register_metrics(l, opts->metrics) : 0;
	if (err) {
		free(l);
		return err;
	}
	enter(l, STANDBY);
	uv_timer_init(opts->loop, &l->timer);
	uv_timer_start(&l->timer, on_tick, 0, TICK_MS);
	*ret_leader = l;
	return 0;
}

void leader_close(struct leader *l, void (*closed)(void *arg), void *arg)
{
	l->closed = closed;
	l->closed_arg = arg;
	l->state = CLOSED;
	l->until_ms = 0;
	revoke_lease(l);
}

bool leader_is_leader(const struct leader *l)
{
	return l->state == LEADER;
}

const char *leader_address(const struct leader *l)
{
	return l->address;
}

uint64_t leader_since_ms(const struct leader *l)
{
	return l->since_ms;
}
