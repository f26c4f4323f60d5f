/*
 * Opens: what an OPEN is answered with, by what the nodeid shows. These rows
 * are a summary; all states are in the table at the head of fs/open.c. Each
 * test runs in both data modes. "ESTALE, X": the repeated OPEN gets X.
 *
 *   nodeid shows               to read                to write
 *   published, not open        that version           the next, same nodeid (1)
 *   published, open            that version           ESTALE, then another
 *   being written              the growing file       the same file
 *   waits for the master       that file              the same, taken back
 *   replaced, not open         the version now (1)    the version now (1)
 *   replaced, open             the version it has (2) ESTALE, then the new one
 *   unlinked, open             the version it has     ESTALE, ENOENT (3)
 *   unlinked, not open         ENOENT                 ESTALE, ENOENT
 *
 * (1) ESTALE where the nodeid has been open daemon-served in passthrough mode.
 * (2) ESTALE, then the new one, where it is daemon-served.
 * (3) If it is still being written: that file.
 */
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/fs_kernel.h"

#define ROOT FUSE_ROOT_ID

static bool through(const struct world *w)
{
	return w->k.offers_passthrough;
}

/* ---- published ---- */

static void what_is_closed_is_published_and_read(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "hello");
	struct k_file f, g;

	assert_int_equal(0, k_open(w, id, O_RDONLY, &f));
	assert_int_equal(through(w), f.fd >= 0);
	assert_int_equal(0, k_open(w, id, O_RDONLY, &g));
	k_expect(w, &f, "hello");
	k_expect(w, &g, "hello");
	k_close(w, &f);
	k_expect(w, &g, "hello");
	k_close(w, &g);
}

static void a_file_that_is_not_closed_is_not_published(void **state)
{
	struct world *w = *state;
	struct k_file f;
	int turn;

	assert_int_equal(0, k_create(w, ROOT, "a", O_WRONLY, &f));
	k_write(w, &f, "half", 0);
	for (turn = 0; turn < 20; turn++)
		uv_run(&w->loop, UV_RUN_NOWAIT);
	assert_false(k_published(w, "a"));
	k_close(w, &f);
	k_until(w, k_published(w, "a"));
}

static void a_published_file_that_nobody_has_open_is_rewritten(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "old");
	struct k_file f;
	int err = k_open(w, id, O_WRONLY | O_TRUNC, &f);

	assert_int_equal(0, err);
	k_write(w, &f, "new one", 0);
	k_close(w, &f);
	k_until(w, k_published(w, "a"));
	k_expect_name(w, "a", "new one");
}

/* Only OPENs are among the results of opens. */
static void a_resize_answered_with_estale_is_no_open(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "old");
	struct k_file reader;

	assert_int_equal(0, k_open(w, id, O_RDONLY, &reader));
	assert_int_equal(ESTALE, k_truncate(w, id, 1));
	assert_int_equal(0, pool_counter_value(&w->fs->opens_stale));
	k_close(w, &reader);
}

static void a_file_that_readers_have_is_rewritten_beside_them(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "old");
	struct k_file reader, f;

	assert_int_equal(0, k_open(w, id, O_RDONLY, &reader));
	assert_int_equal(ESTALE, k_open(w, id, O_WRONLY | O_TRUNC, &f));
	assert_int_equal(1, pool_counter_value(&w->fs->opens_stale));
	assert_int_equal(0, k_open_name(w, "a", O_WRONLY | O_TRUNC, &f));
	assert_int_not_equal(id, f.nodeid);
	k_write(w, &f, "new one", 0);
	k_expect(w, &reader, "old");
	k_close(w, &f);
	k_until(w, k_published(w, "a"));
	k_expect(w, &reader, "old");
	k_expect_name(w, "a", "new one");
	k_close(w, &reader);
}

static void a_rewrite_without_truncation_begins_as_a_copy(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "abcdef");
	struct k_file f;

	assert_int_equal(0, k_open(w, id, O_RDWR, &f));
	k_expect(w, &f, "abcdef");
	k_write(w, &f, "XY", 2);
	k_close(w, &f);
	k_until(w, k_published(w, "a"));
	k_expect_name(w, "a", "abXYef");
}

static uint64_t gen_of(struct world *w, const char *name)
{
	struct pool_entry *e = pool_tree_lookup(pool_node_tree(w->m[0].node),
						name, strlen(name));

	return e ? pool_node_version(node_file(e)).gen : 0;
}

static void what_is_opened_to_write_and_not_changed_stays(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "abcdef"), gen = gen_of(w, "a");
	struct k_file f;

	assert_int_equal(0, k_open(w, id, O_RDWR, &f));
	k_close(w, &f);
	k_until(w, k_published(w, "a"));
	assert_int_equal(gen, gen_of(w, "a"));
	k_expect_name(w, "a", "abcdef");
}

static void a_file_that_readers_have_is_truncated_beside_them(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "abcdef"), again;
	struct k_file reader;
	int err;

	assert_int_equal(0, k_open(w, id, O_RDONLY, &reader));
	err = k_truncate(w, id, 3);
	if (err == ESTALE) {
		assert_int_equal(0, k_lookup(w, ROOT, "a", &again));
		err = k_truncate(w, again, 3);
	}
	assert_int_equal(0, err);
	k_until(w, k_published(w, "a"));
	k_expect(w, &reader, "abcdef");
	k_close(w, &reader);
	k_expect_name(w, "a", "abc");
}

/* ---- being written ---- */

static void a_writer_is_joined_and_read_as_it_grows(void **state)
{
	struct world *w = *state;
	struct k_file f, g, reader;

	assert_int_equal(0, k_create(w, ROOT, "a", O_WRONLY, &f));
	k_write(w, &f, "one", 0);
	assert_int_equal(0, k_open(w, f.nodeid, O_RDONLY, &reader));
	k_expect(w, &reader, "one");
	assert_int_equal(0, k_open(w, f.nodeid, O_WRONLY, &g));
	k_write(w, &g, "two", 3);
	k_expect(w, &reader, "onetwo");
	k_close(w, &f);
	assert_false(k_published(w, "a")); /* g still writes */
	k_close(w, &g);
	k_close(w, &reader);
	k_until(w, k_published(w, "a"));
	k_expect_name(w, "a", "onetwo");
}

static void a_name_that_has_come_meanwhile_is_no_new_file(void **state)
{
	struct world *w = *state;
	struct k_file f;

	(void)k_publish(w, "a", "here");
	assert_int_equal(ESTALE, k_create(w, ROOT, "a", O_RDWR, &f));
	assert_int_equal(EEXIST, k_create(w, ROOT, "a", O_RDWR | O_EXCL, &f));
	/* open(2): after ESTALE the same thread repeats the OPEN. */
	assert_int_equal(0, k_open_name(w, "a", O_RDWR, &f));
	k_expect(w, &f, "here");
	k_close(w, &f);
}

/* ---- renamed ---- */

static void a_rename_publishes_what_was_written_under_another_name(void **state)
{
	struct world *w = *state;
	struct k_file f;
	uint64_t id;

	assert_int_equal(0, k_create(w, ROOT, "a.tmp", O_WRONLY, &f));
	k_write(w, &f, "whole", 0);
	k_close(w, &f);
	assert_int_equal(0, k_rename(w, ROOT, "a.tmp", ROOT, "a", 0));
	k_until(w, k_published(w, "a"));
	assert_int_equal(ENOENT, k_lookup(w, ROOT, "a.tmp", &id));
	k_expect_name(w, "a", "whole");
}

static void a_rename_over_what_readers_have_leaves_it_to_them(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "old");
	struct k_file reader, f;

	assert_int_equal(0, k_open(w, id, O_RDONLY, &reader));
	assert_int_equal(0, k_create(w, ROOT, "a.tmp", O_WRONLY, &f));
	k_write(w, &f, "new", 0);
	k_close(w, &f);
	assert_int_equal(0, k_rename(w, ROOT, "a.tmp", ROOT, "a", 0));
	k_expect(w, &reader, "old");
	k_expect_name(w, "a", "new");
	k_until(w, k_published(w, "a"));
	k_expect(w, &reader, "old");
	k_close(w, &reader);
}

static void a_failed_write_is_never_published(void **state)
{
	struct world *w = *state;
	struct k_file f;
	struct pool_entry *e;

	assert_int_equal(0, k_create(w, ROOT, "a.tmp", O_WRONLY, &f));
	k_write(w, &f, "half", 0);
	e = pool_tree_lookup(pool_node_tree(w->m[0].node), "a.tmp", 5);
	pool_node_poison(w->m[0].node, pool_node_own(node_file(e)), -ENOSPC);
	k_close(w, &f);
	assert_int_not_equal(0, k_rename(w, ROOT, "a.tmp", ROOT, "a", 0));
	assert_false(k_published(w, "a"));
}

/* ---- unlinked ---- */

static void what_is_unlinked_stays_readable_while_open(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "text"), missing;
	struct k_file f, g;

	assert_int_equal(0, k_open(w, id, O_RDONLY, &f));
	assert_int_equal(0, k_unlink(w, ROOT, "a"));
	k_expect(w, &f, "text");
	/* An open by a descriptor (/proc/PID/fd). */
	assert_int_equal(0, k_open(w, id, O_RDONLY, &g));
	k_expect(w, &g, "text");
	k_close(w, &g);
	k_close(w, &f);
	assert_int_equal(ENOENT, k_lookup(w, ROOT, "a", &missing));
}

static void what_is_unlinked_and_not_open_is_missing(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "text");
	struct k_file f;

	assert_int_equal(0, k_unlink(w, ROOT, "a"));
	assert_int_equal(ENOENT, k_open(w, id, O_RDONLY, &f));
	assert_int_equal(ESTALE, k_open(w, id, O_WRONLY, &f));
	assert_int_equal(ENOENT, k_open_name(w, "a", O_WRONLY, &f));
}

static void an_unlinked_writer_goes_on_and_leaves_nothing(void **state)
{
	struct world *w = *state;
	struct fuse_attr a;
	struct k_file f;

	assert_int_equal(0, k_create(w, ROOT, "a", O_RDWR, &f));
	k_write(w, &f, "one", 0);
	assert_int_equal(0, k_unlink(w, ROOT, "a"));
	k_write(w, &f, "two", 3);
	k_expect(w, &f, "onetwo");
	assert_int_equal(0, k_getattr(w, f.nodeid, &a));
	k_close(w, &f);
	assert_false(k_published(w, "a"));
}

/* ---- what other nodes do ---- */

static void a_name_of_another_node_is_fetched_when_opened(void **state)
{
	struct world *w = *state;

	k_start_other(w);
	k_publish_elsewhere(w, "a", "from afar");
	k_expect_name(w, "a", "from afar");
}

static unsigned int opens_remote(struct world *w)
{
	return (unsigned int)pool_counter_value(&w->fs->opens_remote);
}

static void an_open_that_waits_for_a_fetch_counts_as_remote(void **state)
{
	struct world *w = *state;
	struct k_file f;

	k_start_other(w);
	k_publish_elsewhere(w, "read", "far");
	k_publish_elsewhere(w, "changed", "far");
	k_publish_elsewhere(w, "emptied", "far");
	assert_int_equal(0, k_open_name(w, "read", O_RDONLY, &f));
	k_close(w, &f);
	assert_int_equal(1, opens_remote(w));
	assert_int_equal(0, k_open_name(w, "changed", O_RDWR, &f));
	k_close(w, &f);
	assert_int_equal(2, opens_remote(w));
	assert_int_equal(0, k_open_name(w, "emptied", O_RDWR | O_TRUNC, &f));
	k_close(w, &f);
	assert_int_equal(2, opens_remote(w));
	assert_int_equal(1, pool_counter_value(&w->fs->opens_local));
	assert_int_equal(0, k_open_name(w, "read", O_RDWR, &f));
	k_close(w, &f);
	assert_int_equal(2, opens_remote(w)); /* its copy is here */
}

static void the_kernel_is_notified_of_names_it_found_missing(void **state)
{
	struct world *w = *state;
	uint64_t id;

	k_start_other(w);
	assert_int_equal(ENOENT, k_lookup(w, ROOT, "asked", &id));
	k_publish_elsewhere(w, "asked", "1");
	k_publish_elsewhere(w, "not-asked", "2");
	k_until(w, k_noted(w, ROOT, "asked") > 0);
	assert_int_equal(0, k_noted(w, ROOT, "not-asked"));
}

static void what_another_node_replaces_stays_readable_while_open(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "old");
	struct k_file reader, f;
	int err;

	k_start_other(w);
	assert_int_equal(0, k_open(w, id, O_RDONLY, &reader));
	k_publish_elsewhere(w, "a", "newer");
	k_until(w, k_noted(w, ROOT, "a") > 0);
	k_expect(w, &reader, "old");
	err = k_open(w, id, O_RDONLY, &f);
	if (through(w)) {
		assert_int_equal(0, err);
		k_expect(w, &f, "old");
		k_close(w, &f);
	} else {
		assert_int_equal(ESTALE, err);
	}
	k_expect_name(w, "a", "newer");
	k_expect(w, &reader, "old");
	k_close(w, &reader);
}

static void what_another_node_replaces_shows_at_the_next_open(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "old");
	struct k_file f;

	k_start_other(w);
	k_publish_elsewhere(w, "a", "newer");
	k_until(w, k_noted(w, ROOT, "a") > 0);
	/* An open by the dentry that the kernel had before the notification. */
	if (k_open(w, id, O_RDONLY, &f) == 0) {
		k_expect(w, &f, "newer");
		k_close(w, &f);
	}
	k_expect_name(w, "a", "newer");
}

/* ---- waiting, and giving up ---- */

static void an_open_that_waits_ends_when_it_is_interrupted(void **state)
{
	static const uint32_t flags[] = { O_RDONLY, O_RDWR };
	struct world *w = *state;
	unsigned int i;

	k_start_other(w);
	for (i = 0; i < 2; i++) {
		char name[] = { (char)('a' + i), '\0' };
		struct fuse_open_in in = { .flags = flags[i] };
		uint64_t id, unique;

		k_publish_elsewhere(w, name, "far");
		assert_int_equal(0, k_lookup(w, ROOT, name, &id));
		/* OPEN and INTERRUPT are both in the socket before the loop
		 * runs, so that no fetch can end in between. */
		unique = k_send(w, FUSE_OPEN, id, &in, sizeof(in), NULL, NULL);
		k_interrupt(w, unique);
		assert_int_equal(EINTR, k_wait(w, unique)->err);
		assert_int_equal(i + 1, pool_counter_value(&w->fs->interrupts));
		assert_int_equal(
			i + 1, pool_counter_value(&w->fs->opens_interrupted));
		k_until(w, !fs_busy(w->fs));
		k_expect_name(w, name, "far");
	}
}

static void an_unanswered_create_leaves_nothing(void **state)
{
	struct world *w = *state;
	struct fuse_create_in in = { .flags = O_WRONLY | O_CREAT,
				     .mode = S_IFREG | 0644, .umask = 022 };
	int64_t before = pool_gauge_value(&w->fs->ninodes);
	uint64_t id;

	w->k.caller_killed = true;
	(void)k_send(w, FUSE_CREATE, ROOT, &in, sizeof(in), "a", NULL);
	k_until(w, !w->k.caller_killed);
	assert_int_equal(0, k_handles(w));
	assert_int_equal(0, pool_gauge_value(&w->fs->nopen));
	assert_int_equal(ENOENT, k_lookup(w, ROOT, "a", &id));
	k_until(w, pool_gauge_value(&w->fs->ninodes) == before);
	(void)k_publish(w, "a", "made after all");
	k_expect_name(w, "a", "made after all");
}

static void an_unanswered_open_leaves_nothing(void **state)
{
	struct world *w = *state;
	struct fuse_open_in in = { .flags = O_RDWR };
	uint64_t id = k_publish(w, "a", "text");

	w->k.caller_killed = true;
	(void)k_send(w, FUSE_OPEN, id, &in, sizeof(in), NULL, NULL);
	k_until(w, !w->k.caller_killed);
	assert_int_equal(0, k_handles(w));
	assert_int_equal(0, pool_gauge_value(&w->fs->nopen));
	k_until(w, k_published(w, "a")); /* the killed OPEN counts as no writer
					    any more */
	k_expect_name(w, "a", "text");
}

static void a_writer_is_served_after_estale_although_others_read(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "old"), again;
	struct k_file reader, other, f;
	struct fuse_open_in in = { .flags = O_RDONLY };
	uint64_t waits;

	assert_int_equal(0, k_open(w, id, O_RDONLY, &reader));
	assert_int_equal(ESTALE, k_open(w, id, O_WRONLY, &f));
	assert_int_equal(0, k_lookup(w, ROOT, "a", &again));
	/* Another thread opens that nodeid for reading before the writer
	 * repeats its OPEN. */
	w->k.tid = 2;
	waits = k_send(w, FUSE_OPEN, again, &in, sizeof(in), NULL, NULL);
	uv_run(&w->loop, UV_RUN_NOWAIT);
	w->k.tid = 1;
	assert_int_equal(0, k_open(w, again, O_WRONLY, &f));
	assert_int_equal(0, k_opened(w, again, O_RDONLY, k_wait(w, waits),
				     &other));
	k_close(w, &f);
	k_close(w, &other);
	k_expect(w, &reader, "old");
	k_close(w, &reader);
}

/* Sends an OPEN and waits until the daemon has read it: an immediate reply has
 * been sent by then. */
static uint64_t send_open(struct world *w, uint64_t nodeid, uint32_t flags)
{
	struct fuse_open_in in = { .flags = flags };
	uint64_t before = pool_counter_value(&w->fs->requests[OP_OPEN]);
	uint64_t unique = k_send(w, FUSE_OPEN, nodeid, &in, sizeof(in), NULL,
				 NULL);

	k_until(w, pool_counter_value(&w->fs->requests[OP_OPEN]) > before);
	return unique;
}

static void a_reader_waits_for_the_writer_and_not_longer(void **state)
{
	struct world *w = *state;
	struct k_file f, reader;
	uint64_t id, waits;

	(void)k_publish(w, "a", "text");
	assert_int_equal(ESTALE, k_create(w, ROOT, "a", O_RDWR, &f));
	assert_int_equal(0, k_lookup(w, ROOT, "a", &id));
	w->k.tid = 2;
	waits = send_open(w, id, O_RDONLY);
	assert_false(k_answered(w, waits));
	w->k.tid = 1;
	assert_int_equal(0, k_open(w, id, O_RDWR, &f));
	assert_int_equal(0, k_opened(w, id, O_RDONLY, k_wait(w, waits),
				     &reader));
	k_close(w, &reader);
	k_close(w, &f);
	k_until(w, k_published(w, "a"));
	/* No writer is expected any more: the OPEN is answered at once. */
	w->k.tid = 2;
	waits = send_open(w, id, O_RDONLY);
	assert_true(k_answered(w, waits));
	if (k_opened(w, id, O_RDONLY, k_wait(w, waits), &reader) == 0)
		k_close(w, &reader);
	k_expect_name(w, "a", "text");
}

static void a_program_is_written_again_when_all_of_it_have_ended(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "text");
	struct k_file one, two, f;

	assert_int_equal(0, k_open(w, id, O_RDONLY | FS_O_EXEC, &one));
	assert_int_equal(0, k_open(w, id, O_RDONLY | FS_O_EXEC, &two));
	assert_int_equal(ETXTBSY, k_open_name(w, "a", O_WRONLY, &f));
	k_close(w, &one);
	assert_int_equal(ETXTBSY, k_open_name(w, "a", O_WRONLY, &f));
	k_close(w, &two);
	assert_int_equal(0, k_open_name(w, "a", O_WRONLY, &f));
	k_close(w, &f);
	k_until(w, k_published(w, "a"));
}

/* An OPEN with the flag of execve(2). */
static void what_is_being_written_is_not_executed(void **state)
{
	struct world *w = *state;
	struct k_file f, run;

	assert_int_equal(0, k_create(w, ROOT, "a", O_WRONLY, &f));
	k_write(w, &f, "text", 0);
	assert_int_equal(ETXTBSY, k_open(w, f.nodeid, O_RDONLY | FS_O_EXEC,
					 &run));
	assert_int_equal(1, pool_counter_value(&w->fs->opens_failed));
	assert_int_equal(0, pool_counter_value(&w->fs->opens_local));
	k_close(w, &f);
	k_until(w, k_published(w, "a"));
	assert_int_equal(0, k_open_name(w, "a", O_RDONLY | FS_O_EXEC, &run));
	assert_int_equal(1, pool_counter_value(&w->fs->opens_local));
	k_close(w, &run);
}

static void a_write_that_waits_for_room_ends_when_there_is_some(void **state)
{
	struct world *w = *state;
	struct {
		struct fuse_write_in in;
		char text[16384];
	} q = { .in = { .size = sizeof(q.text) } };
	const struct k_reply *r;
	uint64_t unique, claimed;
	struct k_file f;

	(void)k_publish(w, "other", "something that may be evicted");
	assert_int_equal(0, k_create(w, ROOT, "a", O_WRONLY, &f));
	claimed = k_claim_all_but(w, 4096);
	q.in.fh = f.fh;
	unique = k_send(w, FUSE_WRITE, f.nodeid, &q, sizeof(q), NULL, NULL);
	k_until(w, pool_counter_value(&w->fs->write_waits) == 1);
	assert_false(k_answered(w, unique));
	assert_non_null(fs_busy(w->fs)); /* no take-over is possible while a
					    write waits */
	pool_node_claim_end(w->m[0].node, claimed);
	r = k_wait(w, unique);
	assert_int_equal(0, r->err);
	assert_int_equal(sizeof(q.text), r->write.size);
	assert_null(fs_busy(w->fs));
	k_close(w, &f);
	k_until(w, k_published(w, "a"));
}

/* The write fails at once. A program may ignore that, so the incomplete file is
 * not published. */
static void a_write_beyond_what_a_file_may_have_poisons_it(void **state)
{
	struct world *w = *state;
	struct fuse_write_in in = { .offset = 1ull << 50, .size = 1 };
	char both[sizeof(in) + 1] = { 0 };
	struct k_file f;
	uint64_t id;

	assert_int_equal(0, k_create(w, ROOT, "a", O_WRONLY, &f));
	k_write(w, &f, "text", 0);
	in.fh = f.fh;
	memcpy(both, &in, sizeof(in));
	assert_int_equal(EFBIG, k_wait(w, k_send(w, FUSE_WRITE, f.nodeid, both,
						 sizeof(both), NULL,
						 NULL))->err);
	k_close(w, &f);
	assert_true(k_lookup(w, ROOT, "a", &id) == ENOENT || id == 0);
	assert_false(k_published(w, "a"));
}

/* ---- registrations ---- */

static void a_registration_is_kept_while_nobody_has_the_file_open(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "text");
	struct k_file f;
	uint32_t first;
	int turn;

	assert_int_equal(0, k_open(w, id, O_RDONLY, &f));
	first = w->k.inodes[id].backing;
	for (turn = 0; turn < 3; turn++) {
		k_close(w, &f);
		assert_int_equal(1, w->fs->nbackings);
		assert_int_equal(0, k_open(w, id, O_RDONLY, &f));
		assert_int_equal(0, w->fs->nbackings);
		assert_int_equal(first, w->k.inodes[id].backing);
	}
	k_close(w, &f);
	assert_int_equal(0, k_unlink(w, ROOT, "a"));
	k_until(w, pool_gauge_value(&w->fs->gbackings) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		both(what_is_closed_is_published_and_read),
		both(a_file_that_is_not_closed_is_not_published),
		both(a_published_file_that_nobody_has_open_is_rewritten),
		both(a_resize_answered_with_estale_is_no_open),
		both(a_file_that_readers_have_is_rewritten_beside_them),
		both(a_rewrite_without_truncation_begins_as_a_copy),
		both(what_is_opened_to_write_and_not_changed_stays),
		both(a_file_that_readers_have_is_truncated_beside_them),
		both(a_writer_is_joined_and_read_as_it_grows),
		both(a_name_that_has_come_meanwhile_is_no_new_file),
		both(a_rename_publishes_what_was_written_under_another_name),
		both(a_rename_over_what_readers_have_leaves_it_to_them),
		both(a_failed_write_is_never_published),
		both(what_is_unlinked_stays_readable_while_open),
		both(what_is_unlinked_and_not_open_is_missing),
		both(an_unlinked_writer_goes_on_and_leaves_nothing),
		both(a_name_of_another_node_is_fetched_when_opened),
		both(an_open_that_waits_for_a_fetch_counts_as_remote),
		both(the_kernel_is_notified_of_names_it_found_missing),
		both(what_another_node_replaces_stays_readable_while_open),
		both(what_another_node_replaces_shows_at_the_next_open),
		both(an_open_that_waits_ends_when_it_is_interrupted),
		both(an_unanswered_create_leaves_nothing),
		both(an_unanswered_open_leaves_nothing),
		both(a_writer_is_served_after_estale_although_others_read),
		both(a_reader_waits_for_the_writer_and_not_longer),
		both(a_program_is_written_again_when_all_of_it_have_ended),
		both(what_is_being_written_is_not_executed),
		cmocka_unit_test_setup_teardown(
			a_write_beyond_what_a_file_may_have_poisons_it,
			k_setup_served, k_teardown),
		cmocka_unit_test_setup_teardown(
			a_write_that_waits_for_room_ends_when_there_is_some,
			k_setup_served, k_teardown),
		cmocka_unit_test_setup_teardown(
			a_registration_is_kept_while_nobody_has_the_file_open,
			k_setup_passthrough, k_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
