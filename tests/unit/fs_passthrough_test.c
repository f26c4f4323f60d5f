/*
 * The INIT exchange with the kernel: what it offered, and what libfuse's answer
 * is made into on its way out.
 */
#include "tests/lib/unit.h"

#include <string.h>
#include <unistd.h>

#include "fs/passthrough.h"

#define UNIQUE 2
#define LIBFUSE_FLAGS (FUSE_ASYNC_READ | FUSE_BIG_WRITES)
#define OLD_INIT_IN 16 /* bytes of fuse_init_in before flags2 */

struct request {
	struct fuse_in_header h;
	struct fuse_init_in init;
};

struct reply {
	struct fuse_out_header h;
	uint8_t out[sizeof(struct fuse_init_out)];
	uint8_t before[sizeof(struct fuse_init_out)];
	struct iovec iov[2];
};

static struct request offer(uint32_t flags, uint32_t flags2)
{
	struct request r = { .h = { .opcode = FUSE_INIT, .unique = UNIQUE,
				    .len = sizeof(r) } };

	r.init.major = 7;
	r.init.minor = 40;
	r.init.flags = flags | FUSE_ASYNC_READ;
	r.init.flags2 = flags2;
	return r;
}

static uint32_t word(const struct reply *r, size_t offset)
{
	uint32_t v;

	memcpy(&v, r->out + offset, sizeof(v));
	return v;
}

/* As libfuse 3.14 answers: its flags, and zeros from flags2 on. */
static void reply_init(struct reply *r, uint64_t unique)
{
	struct fuse_init_out out = { .major = 7, .minor = 38,
				     .max_readahead = 131072,
				     .flags = LIBFUSE_FLAGS,
				     .max_background = 12,
				     .max_write = 1 << 20,
				     .time_gran = 1, .max_pages = 256 };

	memset(r, 0, sizeof(*r));
	r->h.unique = unique;
	r->h.len = (uint32_t)(sizeof(r->h) + sizeof(out));
	memcpy(r->out, &out, sizeof(out));
	memcpy(r->before, &out, sizeof(out));
	r->iov[0].iov_base = &r->h;
	r->iov[0].iov_len = sizeof(r->h);
	r->iov[1].iov_base = r->out;
	r->iov[1].iov_len = sizeof(r->out);
}

static void assert_untouched(const struct reply *r)
{
	assert_memory_equal(r->out, r->before, sizeof(r->out));
}

/* Everything but flags, flags2 and the stack depth is libfuse's. */
static void assert_rest_untouched(const struct reply *r)
{
	uint8_t out[sizeof(r->out)];

	memcpy(out, r->out, sizeof(out));
	memcpy(out + 12, r->before + 12, 4);
	memcpy(out + 32, r->before + 32, 8);
	assert_memory_equal(out, r->before, sizeof(out));
	assert_int_equal(0, word(r, 40));
}

static void exchange(struct fs_init *in, uint32_t flags, uint32_t flags2,
		     struct reply *r)
{
	struct request q = offer(flags, flags2);

	fs_init_request(in, &q, sizeof(q));
	assert_int_equal(UNIQUE, in->unique);
	reply_init(r, UNIQUE);
	fs_init_reply(in, r->iov, 2);
	assert_int_equal(0, in->unique);
}

/* ---- the request ---- */

static void the_init_request_is_recognised(void **state)
{
	struct fs_init in = { 0 };
	struct request q = offer(FS_INIT_EXT | FS_HANDLE_KILLPRIV_V2,
				 FS_PASSTHROUGH);

	(void)state;
	fs_init_request(&in, &q, sizeof(q));
	assert_int_equal(UNIQUE, in.unique);
	assert_int_equal(FS_INIT_EXT | FS_HANDLE_KILLPRIV_V2 |
				 FUSE_ASYNC_READ, in.flags);
	assert_int_equal(FS_PASSTHROUGH, in.flags2);
}

static void other_requests_are_ignored(void **state)
{
	struct fs_init in = { 0 }, none = { 0 };
	struct request q = offer(FS_INIT_EXT, FS_PASSTHROUGH);

	(void)state;
	q.h.opcode = FUSE_LOOKUP;
	fs_init_request(&in, &q, sizeof(q));
	q.h.opcode = FUSE_DESTROY;
	fs_init_request(&in, &q, sizeof(q));
	assert_memory_equal(&in, &none, sizeof(in));
}

static void short_requests_are_ignored(void **state)
{
	struct fs_init in = { 0 }, none = { 0 };
	struct request q = offer(FS_INIT_EXT, FS_PASSTHROUGH);
	size_t len;

	(void)state;
	for (len = 0; len < sizeof(q.h) + OLD_INIT_IN; len++)
		fs_init_request(&in, &q, len);
	assert_memory_equal(&in, &none, sizeof(in));
}

static void an_old_request_has_no_second_flags(void **state)
{
	struct fs_init in = { 0 };
	struct request q = offer(FS_INIT_EXT, FS_PASSTHROUGH);
	size_t len;

	(void)state;
	for (len = sizeof(q.h) + OLD_INIT_IN; len < sizeof(q); len++) {
		memset(&in, 0xff, sizeof(in));
		fs_init_request(&in, &q, len);
		assert_int_equal(UNIQUE, in.unique);
		assert_int_equal(0, in.flags2);
	}
}

static void second_flags_count_only_when_announced(void **state)
{
	struct fs_init in = { 0 };
	struct request q = offer(0, FS_PASSTHROUGH | FS_DIRECT_IO_ALLOW_MMAP);

	(void)state;
	fs_init_request(&in, &q, sizeof(q));
	assert_int_equal(UNIQUE, in.unique);
	assert_int_equal(0, in.flags2);
}

/* ---- the reply ---- */

static void passthrough_is_taken_when_offered_and_wanted(void **state)
{
	struct fs_init in = { .want_passthrough = 1 };
	struct reply r;

	(void)state;
	exchange(&in, FS_INIT_EXT, FS_PASSTHROUGH | FS_DIRECT_IO_ALLOW_MMAP,
		 &r);
	assert_true(in.passthrough);
	assert_true(in.allow_mmap);
	assert_int_equal(LIBFUSE_FLAGS | FS_INIT_EXT, word(&r, 12));
	assert_int_equal(FS_PASSTHROUGH | FS_DIRECT_IO_ALLOW_MMAP,
			 word(&r, 32));
	assert_int_equal(1, word(&r, 36));
	assert_rest_untouched(&r);
}

static void passthrough_is_left_when_not_wanted(void **state)
{
	struct fs_init in = { .want_passthrough = 0 };
	struct reply r;

	(void)state;
	exchange(&in, FS_INIT_EXT, FS_PASSTHROUGH | FS_DIRECT_IO_ALLOW_MMAP,
		 &r);
	assert_false(in.passthrough);
	assert_true(in.allow_mmap);
	assert_int_equal(FS_DIRECT_IO_ALLOW_MMAP, word(&r, 32));
	assert_int_equal(0, word(&r, 36));
	assert_rest_untouched(&r);
}

static void what_the_kernel_does_not_offer_is_not_taken(void **state)
{
	struct fs_init in = { .want_passthrough = 1 };
	struct reply r;

	(void)state;
	exchange(&in, FS_INIT_EXT, FS_DIRECT_IO_ALLOW_MMAP, &r);
	assert_false(in.passthrough);
	assert_true(in.allow_mmap);
	assert_int_equal(FS_DIRECT_IO_ALLOW_MMAP, word(&r, 32));
	assert_int_equal(0, word(&r, 36));

	exchange(&in, FS_INIT_EXT, FS_PASSTHROUGH, &r);
	assert_true(in.passthrough);
	assert_false(in.allow_mmap);
	assert_int_equal(FS_PASSTHROUGH, word(&r, 32));
	assert_int_equal(1, word(&r, 36));

	/* Neither, and flags2 of no meaning to us. */
	exchange(&in, FS_INIT_EXT, 0xffffff00u, &r);
	assert_false(in.passthrough);
	assert_false(in.allow_mmap);
	assert_int_equal(0, word(&r, 32));
	assert_int_equal(0, word(&r, 36));
	assert_int_equal(LIBFUSE_FLAGS | FS_INIT_EXT, word(&r, 12));
}

static void a_kernel_without_second_flags_gets_libfuse_s_answer(void **state)
{
	struct fs_init in = { .want_passthrough = 1 };
	struct reply r;

	(void)state;
	exchange(&in, 0, FS_PASSTHROUGH | FS_DIRECT_IO_ALLOW_MMAP, &r);
	assert_false(in.passthrough);
	assert_false(in.allow_mmap);
	assert_untouched(&r);
}

static void killpriv_v2_is_taken_exactly_when_offered(void **state)
{
	struct fs_init in = { 0 };
	struct reply r;

	(void)state;
	exchange(&in, FS_HANDLE_KILLPRIV_V2, 0, &r);
	assert_int_equal(LIBFUSE_FLAGS | FS_HANDLE_KILLPRIV_V2, word(&r, 12));
	assert_rest_untouched(&r);
	exchange(&in, 0, 0, &r);
	assert_int_equal(LIBFUSE_FLAGS, word(&r, 12));
}

static void look_ups_come_at_once_where_the_kernel_can(void **state)
{
	struct fs_init in = { 0 };
	struct reply r;

	(void)state;
	exchange(&in, FUSE_PARALLEL_DIROPS, 0, &r);
	assert_int_equal(LIBFUSE_FLAGS | FUSE_PARALLEL_DIROPS, word(&r, 12));
	assert_rest_untouched(&r);
	exchange(&in, 0, 0, &r);
	assert_int_equal(LIBFUSE_FLAGS, word(&r, 12));
}

/* Of a mount that was made without it, the same answer has to come again. */
static void look_ups_stay_one_by_one(void **state)
{
	struct fs_init in = { 0 };
	uint8_t sent[sizeof(struct fuse_out_header) +
		     sizeof(struct fuse_init_out)];
	struct reply r;

	(void)state;
	exchange(&in, FUSE_PARALLEL_DIROPS, 0, &r);
	memcpy(sent + sizeof(r.h), r.out, sizeof(r.out));
	assert_false(fs_init_one_by_one(sent, sizeof(sent)));
	memcpy(sent + sizeof(r.h), r.before, sizeof(r.before));
	assert_true(fs_init_one_by_one(sent, sizeof(sent)));
	assert_false(fs_init_one_by_one(sent, sizeof(sent) - 1));

	in.one_by_one = 1;
	exchange(&in, FUSE_PARALLEL_DIROPS, 0, &r);
	assert_untouched(&r);
}

static void other_replies_pass_untouched(void **state)
{
	struct fs_init in = { .want_passthrough = 1 };
	struct request q = offer(FS_INIT_EXT, FS_PASSTHROUGH);
	struct reply r;

	(void)state;
	/* Before any INIT: notifications have unique 0. */
	reply_init(&r, 0);
	fs_init_reply(&in, r.iov, 2);
	assert_untouched(&r);

	fs_init_request(&in, &q, sizeof(q));
	reply_init(&r, UNIQUE + 2);
	fs_init_reply(&in, r.iov, 2);
	assert_untouched(&r);
	reply_init(&r, 0);
	fs_init_reply(&in, r.iov, 2);
	assert_untouched(&r);
	assert_int_equal(UNIQUE, in.unique); /* still waited for */
	assert_false(in.passthrough);
}

static void the_reply_is_rewritten_once(void **state)
{
	struct fs_init in = { .want_passthrough = 1 };
	struct reply r;

	(void)state;
	exchange(&in, FS_INIT_EXT, FS_PASSTHROUGH, &r);
	reply_init(&r, UNIQUE); /* the number may come again */
	fs_init_reply(&in, r.iov, 2);
	assert_untouched(&r);
	assert_true(in.passthrough);
}

static void a_refusal_or_a_short_answer_is_not_rewritten(void **state)
{
	struct fs_init in = { .want_passthrough = 1 };
	struct request q = offer(FS_INIT_EXT, FS_PASSTHROUGH);
	struct reply r;

	(void)state;
	fs_init_request(&in, &q, sizeof(q));
	reply_init(&r, UNIQUE);
	r.h.error = -71; /* EPROTO */
	fs_init_reply(&in, r.iov, 2);
	assert_untouched(&r);

	fs_init_request(&in, &q, sizeof(q));
	reply_init(&r, UNIQUE);
	fs_init_reply(&in, r.iov, 1);
	assert_untouched(&r);

	/* To a kernel before 7.23, 24 bytes. */
	fs_init_request(&in, &q, sizeof(q));
	reply_init(&r, UNIQUE);
	r.iov[1].iov_len = FUSE_COMPAT_22_INIT_OUT_SIZE;
	fs_init_reply(&in, r.iov, 2);
	assert_untouched(&r);
	assert_false(in.passthrough);
	assert_int_equal(0, in.unique);

	/* No header at all is no answer. */
	fs_init_request(&in, &q, sizeof(q));
	reply_init(&r, UNIQUE);
	r.iov[0].iov_len = sizeof(r.h) - 1;
	fs_init_reply(&in, r.iov, 2);
	assert_untouched(&r);
	assert_int_equal(UNIQUE, in.unique);
}

/* ---- backing files ---- */

static void what_is_no_fuse_device_refuses_backing_files(void **state)
{
	int fds[2];

	(void)state;
	assert_int_equal(0, pipe(fds));
	assert_true(fs_backing_open(fds[0], fds[1]) < 0);
	assert_true(fs_backing_open(-1, fds[1]) < 0);
	fs_backing_close(fds[0], 1);
	close(fds[0]);
	close(fds[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_init_request_is_recognised),
		cmocka_unit_test(other_requests_are_ignored),
		cmocka_unit_test(short_requests_are_ignored),
		cmocka_unit_test(an_old_request_has_no_second_flags),
		cmocka_unit_test(second_flags_count_only_when_announced),
		cmocka_unit_test(passthrough_is_taken_when_offered_and_wanted),
		cmocka_unit_test(passthrough_is_left_when_not_wanted),
		cmocka_unit_test(what_the_kernel_does_not_offer_is_not_taken),
		cmocka_unit_test(
			a_kernel_without_second_flags_gets_libfuse_s_answer),
		cmocka_unit_test(killpriv_v2_is_taken_exactly_when_offered),
		cmocka_unit_test(look_ups_come_at_once_where_the_kernel_can),
		cmocka_unit_test(look_ups_stay_one_by_one),
		cmocka_unit_test(other_replies_pass_untouched),
		cmocka_unit_test(the_reply_is_rewritten_once),
		cmocka_unit_test(a_refusal_or_a_short_answer_is_not_rewritten),
		cmocka_unit_test(what_is_no_fuse_device_refuses_backing_files),
	};

	alarm(30);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
