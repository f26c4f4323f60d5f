/* Messages that would take much more memory than their size: each is refused
 * before it is unpacked, with the reason. */
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/conn/kvpool.pb-c.h"
#include "pool/conn/unpack.h"

struct bytes {
	size_t len;
	uint8_t at[POOL_PAYLOAD_MAX];
};

static int setup(void **state)
{
	*state = calloc(1, sizeof(struct bytes));
	return *state ? 0 : -1;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

/* Appends len bytes, n times. */
static void say(struct bytes *b, const void *what, size_t len, size_t n)
{
	for (; n > 0; n--, b->len += len) {
		assert_true(len <= sizeof(b->at) - b->len);
		memcpy(b->at + b->len, what, len);
	}
}

static void say_varint(struct bytes *b, uint64_t v)
{
	uint8_t byte;

	do {
		byte = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
		say(b, &byte, 1, 1);
		v >>= 7;
	} while (v);
}

/* Begins the field `number`, which contains what is appended until its end. */
static size_t begin(struct bytes *b, uint32_t number)
{
	static const uint8_t room[5];

	say_varint(b, number << 3 | 2);
	say(b, room, sizeof(room), 1);
	return b->len;
}

static void end(struct bytes *b, size_t at)
{
	uint64_t len = b->len - at;

	for (unsigned int i = 0; i < 5; i++)
		b->at[at - 5 + i] = (uint8_t)((len >> (7 * i) & 0x7f) |
					      (i < 4 ? 0x80 : 0));
}

static void accepted(const struct bytes *b, uint16_t type)
{
	char why[POOL_UNPACK_WHY] = "";
	ProtobufCMessage *msg;

	if (pool_unpack(pool_msg_bound(type), b->at, b->len, &msg, why))
		fail_msg("%s %s", pool_msg_name(type), why);
	assert_ptr_equal(msg->descriptor, pool_msg_bound(type)->desc);
	protobuf_c_message_free_unpacked(msg, NULL);
}

static void refused(const struct bytes *b, uint16_t type, int err,
		    const char *reason)
{
	char why[POOL_UNPACK_WHY] = "";
	ProtobufCMessage *msg;

	assert_int_equal(err, pool_unpack(pool_msg_bound(type), b->at, b->len,
					  &msg, why));
	assert_string_equal(reason, why);
	assert_int_equal(err, pool_unpack(pool_msg_bound(type), b->at, b->len,
					  &msg, NULL));
}

static const uint8_t empty_entry[] = { 0x0a, 0 };

static void a_whole_batch_is_accepted_and_no_entry_more(void **state)
{
	struct bytes *b = *state;

	say(b, empty_entry, 2, POOL_BATCH_MAX);
	accepted(b, POOL_MSG_INVENTORY);
	accepted(b, POOL_MSG_OPS);
	accepted(b, POOL_MSG_EVICT);
	say(b, empty_entry, 2, 1);
	refused(b, POOL_MSG_INVENTORY, -EMSGSIZE,
		"has 1025 entries or more: at most 1024 are accepted");
	refused(b, POOL_MSG_OPS, -EMSGSIZE,
		"has 1025 entries or more: at most 1024 are accepted");
}

static void nothing_is_an_empty_message(void **state)
{
	struct bytes *b = *state;

	for (uint16_t t = 0; t < POOL_MSG_MAX; t++)
		if (pool_msg_known(t) && pool_msg_bound(t)->desc)
			accepted(b, t);
}

static void some_fields_of_a_neighbour_are_accepted_and_not_thousands(
	void **state)
{
	static const uint8_t field_1000[] = { 0xc2, 0x3e, 1, 'x' };
	struct bytes *b = *state;

	say(b, field_1000, 4, 16);
	accepted(b, POOL_MSG_JOIN);
	accepted(b, POOL_MSG_HELLO);
	say(b, field_1000, 4, 900);
	refused(b, POOL_MSG_JOIN, -EMSGSIZE,
		"has 17 nested, unknown or duplicate fields or more: "
		"at most 16 are accepted");
}

static void each_entry_may_have_some_of_a_neighbour(void **state)
{
	static const uint8_t entry[] = { 0x0a, 9, 0x0a, 1, 'k',
					 0xc2, 0x3e, 3, 'a', 'b', 'c' };
	struct bytes *b = *state;

	say(b, entry, sizeof(entry), POOL_BATCH_MAX);
	accepted(b, POOL_MSG_INVENTORY);
}

static void repeated_fields_are_bounded(void **state)
{
	static const uint8_t node[] = { 0x12, 0 };
	struct bytes *b = *state;

	say(b, node, sizeof(node), 500);
	refused(b, POOL_MSG_JOIN, -EMSGSIZE,
		"has 17 nested, unknown or duplicate fields or more: "
		"at most 16 are accepted");
}

/* 2 bytes each on the wire, and some fifty in memory. */
static void xattrs_in_an_entry_are_bounded(void **state)
{
	static const uint8_t empty_xattr[] = { 0x52, 0 };
	struct bytes *b = *state;
	size_t at = begin(b, 1);

	say(b, empty_xattr, 2, 1000);
	end(b, at);
	accepted(b, POOL_MSG_INVENTORY);
	b->len = 0;
	at = begin(b, 1);
	say(b, empty_xattr, 2, 100000);
	end(b, at);
	refused(b, POOL_MSG_INVENTORY, -EMSGSIZE,
		"has 65537 nested, unknown or duplicate fields or more: "
		"at most 65536 are accepted");
}

/* Packed: one byte each on the wire, and four in memory. */
static void holders_in_an_entry_are_bounded(void **state)
{
	struct bytes *b = *state;
	size_t at = begin(b, 4), packed = begin(b, 11); /* Feed.entries */

	say(b, "\x01", 1, 255);
	end(b, packed);
	end(b, at);
	accepted(b, POOL_MSG_FEED);
	b->len = 0;
	at = begin(b, 4);
	packed = begin(b, 11);
	say(b, "\x01", 1, 1000000);
	end(b, packed);
	end(b, at);
	refused(b, POOL_MSG_FEED, -EMSGSIZE,
		"has 1000001 nested, unknown or duplicate fields or more: "
		"at most 196608 are accepted");
}

static void a_payload_beyond_its_types_is_refused(void **state)
{
	struct bytes *b = *state;

	b->len = 5000;
	refused(b, POOL_MSG_JOIN, -EMSGSIZE,
		"has a payload of 5000 bytes: at most 4096 are accepted");
}

static void what_does_not_decode_is_refused_where_it_breaks(void **state)
{
	static const struct {
		size_t len;
		const char *bytes, *why;
	} bad[] = {
		{ 1, "\x0a", "byte 1 of 1" },		   /* no length */
		{ 3, "\x0a\x05x", "byte 2 of 3" },	   /* cut short */
		{ 2, "\x0b\x00", "byte 1 of 2" },	   /* a group */
		{ 3, "\x19\x00\x00", "byte 1 of 3" },	   /* cut short */
		{ 6, "\xff\xff\xff\xff\xff\x01", "byte 5 of 6" },
		{ 4, "\x0a\x02\x0a\x05", "byte 4 of 4" },  /* inside */
	};
	char why[64];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct bytes *b = *state;

		b->len = 0;
		say(b, bad[i].bytes, bad[i].len, 1);
		snprintf(why, sizeof(why), "does not decode: %s fits no field",
			 bad[i].why);
		refused(b, POOL_MSG_INVENTORY, -EBADMSG, why);
	}
}

static void a_field_of_another_kind_is_refused(void **state)
{
	struct bytes *b = *state;

	say(b, "\x08\x01", 2, 1); /* Inventory.entries as a number */
	refused(b, POOL_MSG_INVENTORY, -EBADMSG,
		"does not decode: a field has the wrong type or form");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_whole_batch_is_accepted_and_no_entry_more),
		T(nothing_is_an_empty_message),
		T(some_fields_of_a_neighbour_are_accepted_and_not_thousands),
		T(each_entry_may_have_some_of_a_neighbour),
		T(repeated_fields_are_bounded),
		T(xattrs_in_an_entry_are_bounded),
		T(holders_in_an_entry_are_bounded),
		T(a_payload_beyond_its_types_is_refused),
		T(what_does_not_decode_is_refused_where_it_breaks),
		T(a_field_of_another_kind_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
