#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "pool/conn/conn.h"
#include "pool/conn/unpack.h"
#include "pool/conn/wire.h"

static const struct pool_frame good = {
	.version = POOL_WIRE_VERSION,
	.type = POOL_MSG_FEED, /* of the largest */
	.payload_len = 0x01020304 & (POOL_PAYLOAD_MAX - 1),
	.req = 0x1122334455667788ull,
	.bulk_len = 0x0102030405ull,
};

static int decode(const struct pool_frame *f, struct pool_frame *ret)
{
	uint8_t b[POOL_WIRE_HEADER];

	pool_frame_encode(f, b);
	return pool_frame_decode(b, ret);
}

static void a_frame_survives_encoding_and_decoding(void **state)
{
	struct pool_frame f;

	(void)state;
	assert_int_equal(decode(&good, &f), 0);
	assert_int_equal(f.version, good.version);
	assert_int_equal(f.type, good.type);
	assert_int_equal(f.payload_len, good.payload_len);
	assert_int_equal(f.flags, 0);
	assert_true(f.req == good.req);
	assert_true(f.bulk_len == good.bulk_len);
}

static void the_layout_is_the_documented_one(void **state)
{
	static const uint8_t want[POOL_WIRE_HEADER] = {
		'K', 'V', 'P', '1', 1, 0, POOL_MSG_DATA, 0,
		5, 0, 0, 0, 0, 0, 0, 0,
		7, 0, 0, 0, 0, 0, 0, 0x80,
		0, 0, 0, 0, 1, 0, 0, 0,
	};
	struct pool_frame f = {
		.version = 1,
		.type = POOL_MSG_DATA,
		.payload_len = 5,
		.req = 0x8000000000000007ull,
		.bulk_len = 1ull << 32,
	};
	uint8_t b[POOL_WIRE_HEADER];

	(void)state;
	pool_frame_encode(&f, b);
	assert_memory_equal(b, want, sizeof(b));
}

static void another_magic_is_refused(void **state)
{
	struct pool_frame f;
	uint8_t b[POOL_WIRE_HEADER];

	(void)state;
	for (int i = 0; i < 4; i++) {
		pool_frame_encode(&good, b);
		b[i] ^= 1;
		assert_int_equal(pool_frame_decode(b, &f), -EPROTO);
	}
}

static void unknown_types_and_flags_are_refused(void **state)
{
	static const uint16_t types[] = { 0, POOL_MSG_ERROR + 1,
					  POOL_MSG_HELLO - 1, POOL_MSG_MAX,
					  0xffff };
	struct pool_frame in = good, f;

	(void)state;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		in.type = types[i];
		assert_int_equal(decode(&in, &f), -EPROTO);
	}
	in = good;
	in.flags = 1;
	assert_int_equal(decode(&in, &f), -EPROTO);
}

static void a_neighbour_version_is_accepted_and_no_other(void **state)
{
	struct pool_frame in = good, f;

	(void)state;
	in.version = POOL_WIRE_VERSION + 1;
	assert_int_equal(decode(&in, &f), 0);
	in.version = POOL_WIRE_VERSION + 2;
	assert_int_equal(decode(&in, &f), -EPROTONOSUPPORT);
	assert_int_equal(f.version, POOL_WIRE_VERSION + 2);
	in.version = 0;
	assert_int_equal(decode(&in, &f), -EPROTONOSUPPORT);
	in.version = 0xffff;
	assert_int_equal(decode(&in, &f), -EPROTONOSUPPORT);
}

static void types_of_a_newer_neighbour_pass_but_not_its_flags(void **state)
{
	struct pool_frame in = good, f;

	(void)state;
	in.version = POOL_WIRE_VERSION + 1;
	in.type = 0x7777;
	assert_int_equal(decode(&in, &f), 0);
	assert_int_equal(f.type, 0x7777);
	assert_false(pool_msg_known(f.type));
	in.flags = 1;
	assert_int_equal(decode(&in, &f), -EPROTO);
}

static void a_refusal_names_both_versions(void **state)
{
	char text[POOL_WIRE_REFUSAL], want[32];

	(void)state;
	pool_wire_refusal(65535, text);
	assert_non_null(strstr(text, "speaks version 65535 of"));
	snprintf(want, sizeof(want), "program version %d ", POOL_WIRE_VERSION);
	assert_non_null(strstr(text, want));
}

static void lengths_beyond_the_limits_are_refused(void **state)
{
	struct pool_frame in = good, f;

	(void)state;
	in.payload_len = POOL_PAYLOAD_MAX;
	in.bulk_len = POOL_BULK_MAX;
	assert_int_equal(decode(&in, &f), 0);
	in.payload_len++;
	assert_int_equal(decode(&in, &f), -EMSGSIZE);
	in = good;
	in.bulk_len = POOL_BULK_MAX + 1;
	assert_int_equal(decode(&in, &f), -EMSGSIZE);
	in.bulk_len = UINT64_MAX;
	assert_int_equal(decode(&in, &f), -EMSGSIZE);
}

static void each_type_has_a_limit_of_its_own(void **state)
{
	struct pool_frame in = { .version = POOL_WIRE_VERSION }, f;

	(void)state;
	for (in.type = 0; in.type < POOL_MSG_MAX; in.type++) {
		const struct pool_bound *b = pool_msg_bound(in.type);

		if (!pool_msg_known(in.type))
			continue;
		assert_true(b->bytes > 0 && b->bytes <= POOL_PAYLOAD_MAX);
		assert_true(b->desc || in.type == POOL_MSG_DATA);
		in.payload_len = b->bytes;
		assert_int_equal(decode(&in, &f), 0);
		in.payload_len++;
		assert_int_equal(decode(&in, &f), -EMSGSIZE);
		assert_int_equal(f.type, in.type);
		assert_int_equal(f.payload_len, b->bytes + 1);
	}
	assert_true(pool_msg_bound(POOL_MSG_JOIN)->bytes <=
		    POOL_CONN_FIRST_MAX);
	assert_true(pool_msg_bound(POOL_MSG_HELLO)->bytes <=
		    POOL_CONN_FIRST_MAX);
}

static void a_refused_frame_leaves_the_result_alone(void **state)
{
	struct pool_frame in = good, f = { .req = 42 };

	(void)state;
	in.flags = 4;
	assert_int_equal(decode(&in, &f), -EPROTO);
	assert_true(f.req == 42);
}

static void every_message_has_a_name(void **state)
{
	(void)state;
	for (uint16_t t = POOL_MSG_JOIN; t <= POOL_MSG_ERROR; t++)
		assert_string_not_equal(pool_msg_name(t), "unknown");
	for (uint16_t t = POOL_MSG_HELLO; t < POOL_MSG_MAX; t++)
		assert_string_not_equal(pool_msg_name(t), "unknown");
	assert_string_equal(pool_msg_name(0), "unknown");
	assert_string_equal(pool_msg_name(POOL_MSG_MAX), "unknown");
	assert_string_equal(pool_msg_name(POOL_MSG_GET), "GET");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_frame_survives_encoding_and_decoding),
		cmocka_unit_test(the_layout_is_the_documented_one),
		cmocka_unit_test(another_magic_is_refused),
		cmocka_unit_test(unknown_types_and_flags_are_refused),
		cmocka_unit_test(a_neighbour_version_is_accepted_and_no_other),
		cmocka_unit_test(
			types_of_a_newer_neighbour_pass_but_not_its_flags),
		cmocka_unit_test(a_refusal_names_both_versions),
		cmocka_unit_test(lengths_beyond_the_limits_are_refused),
		cmocka_unit_test(each_type_has_a_limit_of_its_own),
		cmocka_unit_test(a_refused_frame_leaves_the_result_alone),
		cmocka_unit_test(every_message_has_a_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
