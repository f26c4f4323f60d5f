#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/conn/conn.h"
#include "pool/conn/fault_rules.h"

#define BULK 300000u

/* A sender and a receiver, and what was received. */
static struct {
	uv_loop_t loop;
	struct pool_metrics *metrics;
	struct pool_faults *faults;
	struct pool_conn *a, *b;
	unsigned int frames, sent;
	bool a_closed, b_closed;
	int a_err;
	uint8_t got[BULK];
	uint64_t got_len;
	int file;
	uint8_t content[BULK];
} t;

static void on_frame(struct pool_conn *c, const struct pool_frame *f,
		     const uint8_t *payload, int fd)
{
	(void)c;
	(void)payload;
	(void)fd;
	assert_int_equal(t.frames + 1, f->req); /* in order */
	t.frames++;
}

static void on_bulk_data(struct pool_conn *c, const struct pool_frame *f,
			 const void *data, size_t len, uint64_t offset)
{
	(void)c;
	(void)f;
	memcpy(t.got + offset, data, len);
	t.got_len += len;
}

static void on_close(struct pool_conn *c, int err)
{
	if (c == t.a) {
		t.a_closed = true;
		t.a_err = err;
	} else {
		t.b_closed = true;
	}
}

static const struct pool_conn_ops ops = {
	.on_frame = on_frame,
	.on_bulk_data = on_bulk_data,
	.on_close = on_close,
};

static int setup(void **state)
{
	struct pool_conn_opts opts = { .ops = &ops };
	int sv[2];

	(void)state;
	memset(&t, 0, sizeof(t));
	uv_loop_init(&t.loop);
	t.metrics = pool_metrics_open();
	assert_int_equal(0, pool_faults_open(t.metrics, 7, &t.faults));
	pool_faults_install(t.faults);
	assert_int_equal(0, socketpair(AF_UNIX,
				       SOCK_STREAM | SOCK_NONBLOCK, 0, sv));
	assert_int_equal(0, pool_conn_from_fd(&t.loop, sv[0], &opts, &t.a));
	assert_int_equal(0, pool_conn_from_fd(&t.loop, sv[1], &opts, &t.b));
	t.file = memfd_create("bulk", 0);
	for (size_t i = 0; i < BULK; i++)
		t.content[i] = (uint8_t)(i * 31 >> 3);
	assert_int_equal(BULK, write(t.file, t.content, BULK));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	if (!t.a_closed)
		pool_conn_close(t.a);
	if (!t.b_closed)
		pool_conn_close(t.b);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_int_equal(0, uv_loop_close(&t.loop));
	pool_faults_install(NULL);
	pool_metrics_close(t.metrics);
	pool_faults_close(t.faults);
	close(t.file);
	return 0;
}

static void run_for(unsigned int ms)
{
	uint64_t end = pool_now_ms() + ms;

	while (pool_now_ms() < end) {
		uv_run(&t.loop, UV_RUN_NOWAIT);
		usleep(500);
	}
}

#define run_until(cond) unit_turn_until(&t.loop, cond)

static int rule(enum pool_fault_kind kind, unsigned int directions,
		uint64_t nth, double probability)
{
	struct pool_fault_rule r = { .peer = "all",
				     .kind = kind,
				     .directions = directions,
				     .nth = nth,
				     .probability = probability };

	r.delay_ms = kind == POOL_FAULT_DELAY ? 100 : 0;
	return pool_faults_add(t.faults, &r);
}

static void send_frames(unsigned int n)
{
	while (n-- > 0)
		assert_int_equal(0, pool_conn_send(t.a, POOL_MSG_HEARTBEAT,
						   ++t.sent, NULL));
}

static void on_sent(void *arg, int err)
{
	*(int *)arg = err;
}

/* *ret_status: 1 while in flight. */
static void send_bulk(int *ret_status)
{
	*ret_status = 1;
	assert_int_equal(0, pool_conn_send_file(t.a, POOL_MSG_DATA, 1, NULL,
						t.file, 0, BULK, on_sent,
						ret_status));
}

static unsigned int bits_wrong(void)
{
	unsigned int n = 0;

	for (size_t i = 0; i < BULK; i++)
		n += (unsigned int)__builtin_popcount(t.got[i] ^ t.content[i]);
	return n;
}

static struct pool_fault_rule listed(void)
{
	struct pool_fault_rule rules[POOL_FAULT_RULES_MAX];

	assert_int_equal(1, pool_faults_list(t.faults, rules));
	return rules[0];
}

static void rules_out_of_range_are_refused(void **state)
{
	struct pool_fault_rule r = { .peer = "all", .directions = 1 };

	(void)state;
	assert_int_equal(-EINVAL, rule(POOL_FAULT_DROP, 0, 1, 0));
	assert_int_equal(-EINVAL, rule(POOL_FAULT_DROP, 4, 1, 0));
	assert_int_equal(-EINVAL, rule(POOL_FAULT_KINDS, 1, 1, 0));
	assert_int_equal(-EINVAL, rule(POOL_FAULT_DROP, 1, 0, 0));
	assert_int_equal(-EINVAL, rule(POOL_FAULT_DROP, 1, 0, 1.5));
	r.kind = POOL_FAULT_DELAY; /* of no time */
	r.nth = 1;
	assert_int_equal(-EINVAL, pool_faults_add(t.faults, &r));
	for (int i = 0; i < POOL_FAULT_RULES_MAX; i++)
		assert_int_equal(0, rule(POOL_FAULT_DROP, 1, 1000, 0));
	assert_int_equal(-ENOSPC, rule(POOL_FAULT_DROP, 1, 1000, 0));
	pool_faults_clear(t.faults);
	assert_int_equal(0, rule(POOL_FAULT_DROP, 1, 1000, 0));
}

static void a_rule_is_for_its_peer_and_direction(void **state)
{
	struct pool_fault_rule r = { .peer = "10.0.0.2",
				     .kind = POOL_FAULT_RESET,
				     .directions = POOL_FAULT_RECEIVE,
				     .probability = 1 };
	uint32_t ms;

	(void)state;
	assert_int_equal(0, pool_faults_add(t.faults, &r));
#define SAYS(kind, peer, direction)                                       \
	assert_int_equal(kind, pool_faults_judge(t.faults, peer,          \
						 direction, false, &ms))
	SAYS(POOL_FAULT_RESET, "10.0.0.2:7072", POOL_FAULT_RECEIVE);
	SAYS(POOL_FAULT_RESET, "10.0.0.2", POOL_FAULT_RECEIVE);
	SAYS(POOL_FAULT_KINDS, "10.0.0.2:7072", POOL_FAULT_SEND);
	SAYS(POOL_FAULT_KINDS, "10.0.0.20:7072", POOL_FAULT_RECEIVE);
	SAYS(POOL_FAULT_KINDS, "[10.0.0.2::1]:7072", POOL_FAULT_RECEIVE);
#undef SAYS
	assert_int_equal(2, listed().seen);
	assert_int_equal(2, listed().done);
}

static void a_probability_is_about_that_often(void **state)
{
	unsigned int n = 0;
	uint32_t ms;

	(void)state;
	assert_int_equal(0, rule(POOL_FAULT_DROP, 1, 0, 0.25));
	for (int i = 0; i < 4000; i++)
		n += pool_faults_judge(t.faults, "x", 1, false, &ms) ==
		     POOL_FAULT_DROP;
	assert_in_range(n, 850, 1150); /* the seed is fixed */
}

static void a_delayed_frame_and_all_behind_it_wait(void **state)
{
	uint64_t begin = pool_now_ms();

	(void)state;
	assert_int_equal(0, rule(POOL_FAULT_DELAY, POOL_FAULT_SEND, 2, 0));
	send_frames(5);
	run_until(t.frames == 1);
	run_until(t.frames == 5);
	assert_true(pool_now_ms() - begin >= 100);
	assert_int_equal(1, listed().done);
}

static void after_a_dropped_frame_nothing_arrives(void **state)
{
	(void)state;
	assert_int_equal(0, rule(POOL_FAULT_DROP, POOL_FAULT_SEND, 3, 0));
	send_frames(5);
	run_until(t.frames == 2 && pool_conn_queued(t.a) == 0);
	run_for(50);
	assert_int_equal(2, t.frames);
	assert_false(t.a_closed || t.b_closed);
}

static void a_reset_ends_both_sides(void **state)
{
	(void)state;
	assert_int_equal(0, rule(POOL_FAULT_RESET, POOL_FAULT_SEND, 2, 0));
	send_frames(1);
	run_until(t.frames == 1);
	send_frames(1);
	run_until(t.a_closed && t.b_closed);
	assert_int_equal(-ECONNRESET, t.a_err);
	assert_int_equal(1, t.frames);
}

static void one_bit_of_bulk_is_turned_over(unsigned int direction)
{
	int status;

	assert_int_equal(0, rule(POOL_FAULT_CORRUPT, direction, 0, 1));
	send_frames(1); /* not affected: it has no bulk */
	send_bulk(&status);
	run_until(t.got_len == BULK && status == 0);
	assert_int_equal(1, t.frames);
	assert_int_equal(1, bits_wrong());
	assert_int_equal(1, listed().done);
}

static void a_bit_is_turned_over_when_sending(void **state)
{
	(void)state;
	one_bit_of_bulk_is_turned_over(POOL_FAULT_SEND);
}

static void a_bit_is_turned_over_when_receiving(void **state)
{
	(void)state;
	one_bit_of_bulk_is_turned_over(POOL_FAULT_RECEIVE);
}

static void bulk_is_cut_in_its_middle(void **state)
{
	int status;

	(void)state;
	assert_int_equal(0, rule(POOL_FAULT_DROP, POOL_FAULT_SEND, 1, 0));
	send_bulk(&status);
	run_until(status == 0); /* the sender reports success */
	run_until(t.got_len == BULK / 2);
	run_for(50);
	assert_int_equal(BULK / 2, t.got_len);
	assert_false(t.a_closed || t.b_closed);
}

static void a_reset_in_bulk_calls_done(void **state)
{
	int status;

	(void)state;
	assert_int_equal(0, rule(POOL_FAULT_RESET, POOL_FAULT_SEND, 1, 0));
	send_bulk(&status);
	run_until(t.a_closed && t.b_closed);
	assert_int_equal(-ECONNRESET, status);
	assert_in_range(t.got_len, 0, BULK / 2);
}

static void the_receiver_s_faults(void **state)
{
	uint64_t begin = pool_now_ms();

	(void)state;
	assert_int_equal(0, rule(POOL_FAULT_DELAY, POOL_FAULT_RECEIVE, 1, 0));
	send_frames(1);
	run_until(t.frames == 1);
	send_frames(1); /* not read before the delay has passed */
	run_until(t.frames == 2);
	assert_true(pool_now_ms() - begin >= 100);
	pool_faults_clear(t.faults);
	assert_int_equal(0, rule(POOL_FAULT_DROP, POOL_FAULT_RECEIVE, 1, 0));
	send_frames(2);
	run_for(50);
	assert_int_equal(2, t.frames);
	assert_false(t.b_closed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(rules_out_of_range_are_refused),
		T(a_rule_is_for_its_peer_and_direction),
		T(a_probability_is_about_that_often),
		T(a_delayed_frame_and_all_behind_it_wait),
		T(after_a_dropped_frame_nothing_arrives),
		T(a_reset_ends_both_sides),
		T(a_bit_is_turned_over_when_sending),
		T(a_bit_is_turned_over_when_receiving),
		T(bulk_is_cut_in_its_middle),
		T(a_reset_in_bulk_calls_done),
		T(the_receiver_s_faults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
