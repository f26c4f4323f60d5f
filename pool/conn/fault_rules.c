#include "pool/conn/fault_rules.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

const char *const pool_fault_kind_names[POOL_FAULT_KINDS] = {
	[POOL_FAULT_DELAY] = "delay",
	[POOL_FAULT_DROP] = "drop",
	[POOL_FAULT_RESET] = "reset",
	[POOL_FAULT_CORRUPT] = "corrupt",
};

struct pool_faults {
	_Atomic size_t nrules; /* read without the lock: usually 0 */
	pthread_mutex_t lock;  /* protects what follows */
	struct pool_fault_rule rules[POOL_FAULT_RULES_MAX];
	uint64_t random;
	struct pool_counter done[POOL_FAULT_KINDS]; /* any thread */
};

static struct pool_faults *_Atomic installed;

void pool_faults_install(struct pool_faults *f)
{
	atomic_store(&installed, f);
}

struct pool_faults *pool_faults_installed(void)
{
	return atomic_load_explicit(&installed, memory_order_acquire);
}

static int register_metrics(struct pool_faults *f, struct pool_metrics *m)
{
	static const char *const labels[POOL_FAULT_KINDS] = {
		[POOL_FAULT_DELAY] = "kind=\"delay\"",
		[POOL_FAULT_DROP] = "kind=\"drop\"",
		[POOL_FAULT_RESET] = "kind=\"reset\"",
		[POOL_FAULT_CORRUPT] = "kind=\"corrupt\"",
	};
	int err = 0;

	for (int k = 0; k < POOL_FAULT_KINDS && !err; k++)
		err = pool_metrics_counter(m, &f->done[k],
					   "kvpool_faults_injected_total",
					   labels[k],
					   "Faults injected");
	return err;
}

int pool_faults_open(struct pool_metrics *metrics, uint64_t seed,
		     struct pool_faults **ret_faults)
{
	struct pool_faults *f = calloc(1, sizeof(*f));
	int err;

	if (!f)
		return -ENOMEM;
	f->random = seed;
	pthread_mutex_init(&f->lock, NULL);
	err = register_metrics(f, metrics);
	if (err) {
		pool_faults_close(f);
		return err;
	}
	*ret_faults = f;
	return 0;
}

void pool_faults_close(struct pool_faults *f)
{
	if (!f)
		return;
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static bool rule_makes_sense(const struct pool_fault_rule *r)
{
	unsigned int both = POOL_FAULT_SEND | POOL_FAULT_RECEIVE;

	if (!r->peer[0] || !memchr(r->peer, '\0', sizeof(r->peer)) ||
	    (unsigned int)r->kind >= POOL_FAULT_KINDS || !r->directions ||
	    (r->directions & ~both && r->directions != POOL_FAULT_RDMA))
		return false;
	if (r->kind == POOL_FAULT_DROP && r->directions == POOL_FAULT_RDMA)
		return false;
	if (r->kind == POOL_FAULT_DELAY &&
	    (r->delay_ms == 0 || r->delay_ms > POOL_FAULT_DELAY_MAX_MS))
		return false;
	return r->nth || (r->probability > 0 && r->probability <= 1);
}

int pool_faults_add(struct pool_faults *f, const struct pool_fault_rule *rule)
{
	int err = 0;

	if (!rule_makes_sense(rule))
		return -EINVAL;
	pthread_mutex_lock(&f->lock);
	if (f->nrules == POOL_FAULT_RULES_MAX) {
		err = -ENOSPC;
	} else {
		struct pool_fault_rule *r = &f->rules[f->nrules];

		*r = *rule;
		r->seen = r->done = 0;
		f->nrules++;
	}
	pthread_mutex_unlock(&f->lock);
	return err;
}

void pool_faults_clear(struct pool_faults *f)
{
	pthread_mutex_lock(&f->lock);
	f->nrules = 0;
	pthread_mutex_unlock(&f->lock);
}

size_t pool_faults_list(struct pool_faults *f,
			struct pool_fault_rule rules[POOL_FAULT_RULES_MAX])
{
	size_t n;

	pthread_mutex_lock(&f->lock);
	n = f->nrules;
	memcpy(rules, f->rules, n * sizeof(*rules));
	pthread_mutex_unlock(&f->lock);
	return n;
}

/* rule: "all", the peer's whole name, or its host. */
static bool peer_matches(const char *rule, const char *peer)
{
	size_t n = strlen(rule);

	if (strcmp(rule, "all") == 0 || strcmp(rule, peer) == 0)
		return true;
	return strncmp(rule, peer, n) == 0 && peer[n] == ':' &&
	       !strchr(peer + n + 1, ':');
}

/* 0 <= x < 1. xorshift64*: a seed repeats the sequence. */
static double chance(struct pool_faults *f)
{
	uint64_t x = f->random ? f->random : 1;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	f->random = x;
	return (double)((x * 0x2545f4914f6cdd1dull) >> 11) / 0x1p53;
}

/* Does r apply to this message? Counts it. Called under f->lock. */
static bool rule_applies(struct pool_faults *f, struct pool_fault_rule *r,
			 const char *peer, unsigned int direction,
			 bool has_bulk)
{
	if (!(r->directions & direction) || !peer_matches(r->peer, peer) ||
	    (r->kind == POOL_FAULT_CORRUPT && !has_bulk))
		return false;
	r->seen++;
	if (r->nth ? r->seen != r->nth : chance(f) >= r->probability)
		return false;
	r->done++;
	return true;
}

enum pool_fault_kind pool_faults_judge(struct pool_faults *f, const char *peer,
				       unsigned int direction, bool has_bulk,
				       uint32_t *ret_delay_ms)
{
	enum pool_fault_kind kind = POOL_FAULT_KINDS;

	if (atomic_load_explicit(&f->nrules, memory_order_relaxed) == 0)
		return kind;
	pthread_mutex_lock(&f->lock);
	for (size_t i = 0; i < f->nrules && kind == POOL_FAULT_KINDS; i++)
		if (rule_applies(f, &f->rules[i], peer, direction, has_bulk)) {
			kind = f->rules[i].kind;
			if (kind == POOL_FAULT_DELAY)
				*ret_delay_ms = f->rules[i].delay_ms;
		}
	pthread_mutex_unlock(&f->lock);
	if (kind != POOL_FAULT_KINDS)
		pool_count(&f->done[kind]);
	return kind;
}
