#include "master/throttle.h"

#include <assert.h>
#include <string.h>

#include "master/server.h" /* MASTER_REPAIR_COPIES */

#define BURST_MS 500u /* size of the bucket: tokens of this time */
#define METER_MS 1000u /* interval of measuring the speed */
#define REFILL_MS_MAX 60000u

void master_throttle_init(struct master_throttle *t, uint64_t rate,
			  unsigned int copies_max, uint64_t now_ms)
{
	memset(t, 0, sizeof(*t));
	t->rate = rate;
	t->copies_max = copies_max ? copies_max : MASTER_REPAIR_COPIES;
	t->refilled_ms = t->meter_ms = now_ms;
	t->tokens = (int64_t)(rate / 1000 * BURST_MS);
}

static void refill(struct master_throttle *t, uint64_t now_ms)
{
	int64_t full = (int64_t)(t->rate * BURST_MS / 1000);
	uint64_t ms = now_ms - t->refilled_ms;

	if (ms > REFILL_MS_MAX)
		ms = REFILL_MS_MAX;
	t->refilled_ms = now_ms;
	t->tokens += (int64_t)(t->rate * ms / 1000);
	if (t->tokens > full)
		t->tokens = full;
}

static void meter(struct master_throttle *t, uint64_t now_ms)
{
	uint64_t ms = now_ms - t->meter_ms, bps;

	if (ms < METER_MS)
		return;
	bps = t->metered * 1000 / ms;
	t->bytes_per_s = t->bytes_per_s ? (t->bytes_per_s + bps) / 2 : bps;
	t->metered = 0;
	t->meter_ms = now_ms;
}

void master_throttle_tick(struct master_throttle *t, uint64_t now_ms)
{
	refill(t, now_ms);
	meter(t, now_ms);
}

bool master_throttle_open(const struct master_throttle *t)
{
	return t->copies < t->copies_max && (!t->rate || t->tokens > 0);
}

void master_throttle_begin(struct master_throttle *t, uint64_t bytes)
{
	t->copies++;
	if (t->rate)
		t->tokens -= (int64_t)bytes;
}

void master_throttle_end(struct master_throttle *t)
{
	assert(t->copies);
	t->copies--;
}

void master_throttle_done(struct master_throttle *t, uint64_t bytes)
{
	t->metered += bytes;
}
