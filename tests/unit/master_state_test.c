/*
 * The state file: what is loaded again, and the effects of crashes and damage.
 */
#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "master/state_rec.h"
#include "pool/base/log.h"

static char *dir;
static char path[64];

/* What was loaded, as text: "E1 M:node:0 D:a/b T:k:9 ..." */
static char seen[65536];

static int load(void *arg, const struct master_record *r)
{
	char *p = seen + strlen(seen);
	size_t cap = sizeof(seen) - strlen(seen);

	(void)arg;
	switch (r->type) {
	case MASTER_REC_EPOCH:
		snprintf(p, cap, "E%u ", (unsigned int)r->u64);
		break;
	case MASTER_REC_LOST:
		snprintf(p, cap, "L%u:%d ", (unsigned int)r->u64,
			 (int)r->account.id);
		break;
	case MASTER_REC_MEMBER:
		snprintf(p, cap, "M%02x:%s:%u ", r->id[0], r->name,
			 (unsigned int)r->u64);
		break;
	case MASTER_REC_DRAIN:
		snprintf(p, cap, "W%02x:%u ", r->id[0], (unsigned int)r->u64);
		break;
	case MASTER_REC_DIR:
	case MASTER_REC_RMDIR:
	case MASTER_REC_TOMB:
		snprintf(p, cap, "%d:%.*s:%u ", (int)r->type,
			 (int)r->meta->path.len, (char *)r->meta->path.data,
			 (unsigned int)r->meta->gen);
		break;
	}
	return 0;
}

static int open_state(struct master_state **s, uint64_t *epoch)
{
	seen[0] = 0;
	return master_state_open(path, load, NULL, epoch, s);
}

static struct master_state *must_open(uint64_t want_epoch)
{
	struct master_state *s = NULL;
	uint64_t epoch = 0;

	assert_int_equal(0, open_state(&s, &epoch));
	assert_int_equal(want_epoch, epoch);
	return s;
}

static struct master_record tomb(const char *name, Kvpool__Meta *meta)
{
	kvpool__meta__init(meta);
	meta->path.data = (uint8_t *)name;
	meta->path.len = strlen(name);
	meta->gen = 9;
	return (struct master_record){ .type = MASTER_REC_TOMB, .meta = meta };
}

static void add_tomb(struct master_state *s, const char *name)
{
	Kvpool__Meta meta;
	struct master_record r = tomb(name, &meta);

	assert_int_equal(0, master_state_append(s, &r));
}

static off_t size_of(void)
{
	struct stat st;

	assert_int_equal(0, stat(path, &st));
	return st.st_size;
}

static void write_at(off_t at, const void *data, size_t len)
{
	int fd = open(path, O_WRONLY);

	assert_true(fd >= 0);
	assert_int_equal(len, pwrite(fd, data, len, at));
	close(fd);
}

static int setup(void **state)
{
	(void)state;
	snprintf(path, sizeof(path), "%s/state", dir);
	unlink(path);
	return 0;
}

static void the_epoch_is_raised_at_each_start(void **state)
{
	(void)state;
	master_state_close(must_open(1));
	master_state_close(must_open(2));
	master_state_close(must_open(3));
	assert_string_equal("E1 E2 ", seen);
}

static void records_come_back_in_order(void **state)
{
	struct master_state *s = must_open(1);
	struct master_record r = { .type = MASTER_REC_MEMBER };
	uint8_t id[16] = { 0xab };
	Kvpool__Meta meta;

	(void)state;
	r.id = id;
	r.name = "node-a";
	r.u64 = 77;
	assert_int_equal(0, master_state_append(s, &r));
	add_tomb(s, "x/y");
	r = tomb("d", &meta);
	r.type = MASTER_REC_DIR;
	assert_int_equal(0, master_state_append(s, &r));
	r.type = MASTER_REC_RMDIR;
	assert_int_equal(0, master_state_append(s, &r));
	r.type = MASTER_REC_DRAIN;
	r.id = id;
	r.u64 = 1;
	assert_int_equal(0, master_state_append(s, &r));
	assert_int_equal(0, master_state_flush(s));
	master_state_close(s);
	s = must_open(2);
	assert_string_equal("E1 Mab:node-a:77 5:x/y:9 3:d:9 4:d:9 Wab:1 ",
			    seen);
	master_state_close(s);
}

static struct {
	char name[64], advertise[300];
	uint64_t done;
	uint8_t role;
} member;

static int load_member(void *arg, const struct master_record *r)
{
	(void)arg;
	snprintf(member.name, sizeof(member.name), "%s", r->name);
	snprintf(member.advertise, sizeof(member.advertise), "%s",
		 r->advertise ? r->advertise : "-");
	member.done = r->ops_done;
	member.role = r->role;
	return 0;
}

static void check_member(uint64_t run, uint8_t role, const char *advertise)
{
	uint8_t id[16] = { 0xab }, buf[STATE_REC_MAX];
	struct master_record r = { .type = MASTER_REC_MEMBER,
				   .id = id,
				   .name = "node-a",
				   .ops_run = run,
				   .ops_done = run ? 2 : 0,
				   .role = role,
				   .advertise = advertise };
	ptrdiff_t len = state_rec_encode(&r, buf, sizeof(buf));

	memset(&member, 0, sizeof(member));
	assert_true(len > 0);
	assert_int_equal(0, state_rec_decode(buf, (size_t)len, load_member,
					     NULL));
	assert_string_equal("node-a", member.name);
	assert_int_equal(r.ops_done, member.done);
	assert_int_equal(role, member.role);
	assert_string_equal(role ? advertise : "-", member.advertise);
}

/* With and without what later versions added to the record. */
static void a_member_comes_back_with_what_was_known_of_it(void **state)
{
	char longest[272];

	(void)state;
	memset(longest, 'h', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	check_member(0, 0, "gpu1:7");
	check_member(42, 0, "gpu1:7");
	check_member(0, 2, "gpu1:7");
	check_member(42, 2, "gpu1:7");
	check_member(42, 2, "");
	check_member(42, 2, longest);
}

static void flushed_records_survive_a_kill(void **state)
{
	struct master_state *s = must_open(1);
	char copy[256];
	int rc;

	(void)state;
	add_tomb(s, "x");
	assert_int_equal(0, master_state_flush(s));
	/* The file as a killed process would leave it. */
	snprintf(copy, sizeof(copy), "cp %s %s.2", path, path);
	rc = system(copy);
	assert_int_equal(0, rc);
	master_state_close(s);
	snprintf(copy, sizeof(copy), "%s.2", path);
	assert_int_equal(0, rename(copy, path));
	s = must_open(2);
	assert_string_equal("E1 5:x:9 ", seen);
	master_state_close(s);
}

static void a_torn_last_record_is_cut_off_wherever_it_tore(void **state)
{
	struct master_state *s = must_open(1);
	off_t before, size, cut;

	(void)state;
	assert_int_equal(0, master_state_flush(s));
	before = size_of();
	add_tomb(s, "torn");
	master_state_close(s);
	size = size_of();
	for (cut = before + 1; cut < size; cut++) {
		char whole[256];
		int fd = open(path, O_RDONLY);
		ssize_t n = read(fd, whole, sizeof(whole));

		close(fd);
		assert_int_equal(size, n);
		assert_int_equal(0, truncate(path, cut));
		s = must_open(2);
		assert_string_equal("E1 ", seen);
		master_state_close(s);
		s = must_open(3);
		assert_string_equal("E1 E2 ", seen);
		master_state_close(s);
		assert_int_equal(0, truncate(path, 0));
		write_at(0, whole, (size_t)n);
	}
}

static void damage_in_the_middle_is_refused_and_nothing_is_overwritten(
	void **state)
{
	struct master_state *s = must_open(1);
	uint64_t epoch;
	off_t size, at;
	uint8_t whole[512], now[512], byte;
	int fd;

	(void)state;
	add_tomb(s, "first");
	add_tomb(s, "last");
	master_state_close(s);
	size = size_of();
	fd = open(path, O_RDWR);
	assert_int_equal(size, pread(fd, whole, sizeof(whole), 0));
	/* Damages each byte before the last record in turn. */
	for (at = 0; at < size - 30; at++) {
		byte = (uint8_t)(whole[at] ^ 0x40);
		assert_int_equal(1, pwrite(fd, &byte, 1, at));
		assert_int_equal(-EPROTO, open_state(&s, &epoch));
		assert_int_equal(size, pread(fd, now, sizeof(now), 0));
		assert_int_equal(byte, now[at]);
		now[at] = whole[at];
		assert_memory_equal(whole, now, (size_t)size);
		assert_int_equal(1, pwrite(fd, &whole[at], 1, at));
	}
	close(fd);
	master_state_close(must_open(2));
}

static void another_version_is_refused(void **state)
{
	struct master_state *s;
	uint64_t epoch;

	(void)state;
	master_state_close(must_open(1));
	write_at(20, "2", 1);
	assert_int_equal(-EPROTO, open_state(&s, &epoch));
	write_at(20, "1", 1);
	master_state_close(must_open(2));
}

/* A complete record of an unknown, newer type. */
static void a_record_of_a_newer_version_is_refused_and_left(void **state)
{
	struct master_record r = { .type = MASTER_REC_EPOCH, .u64 = 1 };
	uint8_t buf[64], now[256];
	struct master_state *s;
	uint64_t epoch;
	uint32_t sum;
	ptrdiff_t len;
	off_t size;
	int fd;

	(void)state;
	master_state_close(must_open(1));
	size = size_of();
	len = state_rec_encode(&r, buf, sizeof(buf));
	assert_true(len > 0);
	buf[STATE_REC_HEAD] = 200;
	sum = (uint32_t)XXH3_64bits(buf + STATE_REC_HEAD,
				    (size_t)len - STATE_REC_HEAD);
	memcpy(buf + 8, &sum, 4);
	write_at(size, buf, (size_t)len);
	/* It is not taken for a torn record at the end. */
	assert_int_equal(-EPROTO, open_state(&s, &epoch));
	assert_int_equal(size + len, size_of());
	fd = open(path, O_RDONLY);
	assert_int_equal(len, pread(fd, now, sizeof(now), size));
	assert_memory_equal(buf, now, (size_t)len);
	close(fd);
	assert_int_equal(-EPROTONOSUPPORT,
			 state_rec_decode(buf, (size_t)len, NULL, NULL));
}

static void a_second_master_is_refused(void **state)
{
	struct master_state *s = must_open(1), *t;
	uint64_t epoch;

	(void)state;
	assert_int_equal(-EBUSY, open_state(&t, &epoch));
	master_state_close(s);
}

static void compaction_keeps_what_is_added_meanwhile(void **state)
{
	struct master_state *s = must_open(1);
	Kvpool__Meta meta;
	struct master_record r;
	off_t before;
	int i;

	(void)state;
	for (i = 0; i < 20000; i++)
		add_tomb(s, "old");
	assert_int_equal(0, master_state_flush(s));
	assert_true(master_state_compact_due(s, 1));
	assert_false(master_state_compact_due(s, 20000));
	before = size_of();
	assert_int_equal(0, master_state_compact_begin(s));
	r = tomb("kept", &meta);
	assert_int_equal(0, master_state_compact_add(s, &r));
	add_tomb(s, "meanwhile");
	assert_int_equal(0, master_state_flush(s));
	assert_int_equal(0, master_state_compact_commit(s));
	add_tomb(s, "after");
	master_state_close(s);
	assert_true(size_of() < before / 100);
	s = must_open(2);
	assert_string_equal("E1 5:kept:9 5:meanwhile:9 5:after:9 ", seen);
	assert_false(master_state_compact_due(s, 1));
	master_state_close(s);
}

static void an_abandoned_compaction_leaves_the_file_as_it_was(void **state)
{
	struct master_state *s = must_open(1);

	(void)state;
	add_tomb(s, "a");
	assert_int_equal(0, master_state_compact_begin(s));
	add_tomb(s, "b");
	master_state_close(s);
	s = must_open(2);
	assert_string_equal("E1 5:a:9 5:b:9 ", seen);
	master_state_close(s);
}

int main(void)
{
#define state_test(f) cmocka_unit_test_setup(f, setup)
	const struct CMUnitTest tests[] = {
		state_test(the_epoch_is_raised_at_each_start),
		state_test(records_come_back_in_order),
		state_test(a_member_comes_back_with_what_was_known_of_it),
		state_test(flushed_records_survive_a_kill),
		state_test(a_torn_last_record_is_cut_off_wherever_it_tore),
		state_test(
			damage_in_the_middle_is_refused_and_nothing_is_overwritten),
		state_test(another_version_is_refused),
		state_test(a_record_of_a_newer_version_is_refused_and_left),
		state_test(a_second_master_is_refused),
		state_test(compaction_keeps_what_is_added_meanwhile),
		state_test(an_abandoned_compaction_leaves_the_file_as_it_was),
	};
	int failed;

	alarm(60);
	pool_log_set_level(POOL_LOG_ERROR);
	dir = unit_dir_make("/tmp/kvpool_state");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	unit_dir_remove_empty(dir);
	return failed;
}
