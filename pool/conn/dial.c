#include "pool/conn/dial.h"

#include <string.h>

static bool several(const struct pool_dial *d)
{
	return d->list.n > 1 || d->others;
}

static bool same(const struct pool_hostport *a, const struct pool_hostport *b)
{
	return a->port == b->port && !strcmp(a->host, b->host);
}

static bool listed(const struct pool_dial *d, const struct pool_hostport *hp)
{
	unsigned int i;

	for (i = 0; i < d->list.n; i++)
		if (same(&d->list.at[i], hp))
			return true;
	return false;
}

static bool just_failed(const struct pool_dial *d,
			const struct pool_hostport *hp, uint64_t now_ms)
{
	return d->failed.host[0] && same(hp, &d->failed) &&
	       now_ms - d->failed_ms < POOL_DIAL_FAILED_MS;
}

void pool_dial_init(struct pool_dial *d, const struct pool_hostports *list)
{
	memset(d, 0, sizeof(*d));
	d->list = *list;
	d->others = !list->n;
	d->delay_ms = POOL_DIAL_MIN_MS;
	d->join_ms = POOL_DIAL_JOIN_MS;
}

bool pool_dial_next(struct pool_dial *d, uint64_t now_ms)
{
	if (now_ms < d->due_ms)
		return false;
	if (d->named.host[0]) {
		d->at = d->named;
		d->named.host[0] = 0;
		return true;
	}
	if (!d->list.n)
		return false;
	do {
		d->at = d->list.at[d->next++ % d->list.n];
		d->tried++;
	} while (d->list.n > 1 && d->tried < d->list.n &&
		 just_failed(d, &d->at, now_ms));
	return true;
}

/* Dial the next address at once, or after a backoff if this was the last of a
 * round. */
static void go_on(struct pool_dial *d, uint64_t now_ms)
{
	uint64_t max = several(d) ? POOL_DIAL_ROUND_MAX_MS :
				    POOL_DIAL_ALONE_MAX_MS;

	d->due_ms = now_ms;
	if (d->tried < d->list.n)
		return;
	d->tried = 0;
	d->due_ms += d->delay_ms;
	d->delay_ms = d->delay_ms * 2 < max ? d->delay_ms * 2 : max;
}

void pool_dial_failed(struct pool_dial *d, uint64_t now_ms)
{
	d->failed = d->at;
	d->failed_ms = now_ms;
	go_on(d, now_ms);
}

void pool_dial_standby(struct pool_dial *d, const char *leader, uint64_t now_ms)
{
	struct pool_hostport hp;

	go_on(d, now_ms);
	if (!pool_parse_hostport(leader, 0, &hp) && hp.port)
		(void)pool_dial_named(d, &hp, now_ms);
}

bool pool_dial_named(struct pool_dial *d, const struct pool_hostport *at,
		     uint64_t now_ms)
{
	/* This node has seen that address fail; the standby or etcd that names
	 * it has not detected that yet. */
	if (just_failed(d, at, now_ms))
		return false;
	d->others |= !listed(d, at);
	d->named = *at;
	d->due_ms = now_ms;
	return !same(at, &d->at);
}

void pool_dial_slow(struct pool_dial *d)
{
	if (!same(&d->at, &d->slow))
		d->join_ms = POOL_DIAL_JOIN_MS;
	d->slow = d->at;
	d->join_ms *= 2;
	if (d->join_ms > POOL_DIAL_JOIN_MAX_MS)
		d->join_ms = POOL_DIAL_JOIN_MAX_MS;
}

void pool_dial_joined(struct pool_dial *d)
{
	d->delay_ms = POOL_DIAL_MIN_MS;
	d->slow.host[0] = 0;
	d->tried = 0;
	d->failed.host[0] = 0;
}

unsigned int pool_dial_connect_ms(const struct pool_dial *d)
{
	return several(d) ? POOL_DIAL_CONNECT_MS : 0;
}

unsigned int pool_dial_join_ms(const struct pool_dial *d)
{
	if (!several(d))
		return 0;
	return same(&d->at, &d->slow) ? d->join_ms : POOL_DIAL_JOIN_MS;
}
