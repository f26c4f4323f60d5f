/*
 * Nodeids of a killed daemon, with a simulated kernel: the memfd has what the
 * earlier daemon recorded (fs/kept.h), and the kernel still uses its nodeids.
 */
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pool/node/node_priv.h"
#include "tests/unit/fs_kernel.h"

#define ROOT FUSE_ROOT_ID
#define OLD(n) (1ull << 32 | (n))
#define RESENT (1ull << 63)
#define DEADLY 77 /* unique of a request during which daemons crashed */

#define UNANSWERED 78 /* unique of the OPEN of the handle of record 4 */

static struct fs_kept_head *head;

static struct fs_kept_rec *rec(uint32_t n)
{
	return (struct fs_kept_rec *)((char *)head + 4096) + n;
}

/* Incarnation 1 knew the directory "d" and had two files open. A change in "d"
 * had not been acknowledged, and a file of the root was being written. */
static void earlier(void)
{
	k_kept_fd = fs_kept_create();
	assert_true(k_kept_fd > 0);
	assert_int_equal(0, fs_kept_map(k_kept_fd, &head));
	head->incarnation = 1;
	head->changes = 9;
	head->safe = 8;
	head->handling = DEADLY;
	head->suspect = DEADLY;
	head->deaths = FS_KEPT_DEATHS - 1;
	head->used = 5;
	*rec(0) = (struct fs_kept_rec){ .nodeid = OLD(40), .nlookup = 2,
					.path_len = 1, .is_dir = true,
					.changed = 9, .path = "d" };
	*rec(1) = (struct fs_kept_rec){ .nodeid = OLD(41),
					.attr = { .mode = S_IFREG | 0640,
						  .size = 12345 } };
	*rec(2) = (struct fs_kept_rec){ .nodeid = OLD(42), .written = true,
					.changed = ROOT };
	*rec(3) = (struct fs_kept_rec){ .nodeid = OLD(43), .nlookup = 1,
					.path_len = 4, .is_dir = true,
					.changed = 3, .path = "gone" };
	*rec(4) = (struct fs_kept_rec){ .nodeid = FS_KEPT_HANDLE | OLD(9),
					.file.unique = UNANSWERED };
}

static int setup_kept(void **state)
{
	earlier();
	return k_setup_passthrough(state);
}

static int setup_kept_served(void **state)
{
	earlier();
	return k_setup_served(state);
}

static int teardown_kept(void **state)
{
	int rc = k_teardown(state);

	fs_kept_unmap(head);
	close(k_kept_fd);
	k_kept_fd = 0;
	return rc;
}

static int ask(struct world *w, uint32_t opcode, uint64_t nodeid)
{
	char arg[64] = { 0 };

	return k_wait(w, k_send(w, opcode, nodeid, arg, sizeof(arg), NULL,
				NULL))->err;
}

static void what_is_gone_is_looked_up_anew(void **state)
{
	struct world *w = *state;
	uint64_t now = k_publish(w, "f", "text");

	assert_int_equal(2, now >> 32);
	assert_int_equal(ESTALE, ask(w, FUSE_OPEN, OLD(41)));
	assert_int_equal(ESTALE, ask(w, FUSE_SETATTR, OLD(41)));
	assert_int_equal(ESTALE, ask(w, FUSE_READ, OLD(41)));
	assert_int_equal(ESTALE, ask(w, FUSE_GETATTR, OLD(43)));
	assert_int_equal(ESTALE, ask(w, FUSE_OPENDIR, OLD(43)));
	assert_int_equal(ESTALE, ask(w, FUSE_GETATTR, OLD(99))); /* unknown */
	/* The same number, with the incarnation of the earlier daemon. */
	assert_int_equal(ESTALE, ask(w, FUSE_OPEN, OLD(now & UINT32_MAX)));
	k_expect_name(w, "f", "text");
}

/* The timer sleeps while there is nothing that may be lost. */
static void each_change_is_safe_a_while_later(void **state)
{
	struct world *w = *state;
	const uv_handle_t *keeping = (uv_handle_t *)&w->fs->keeping;
	uint64_t before;

	for (int i = 0; i < 2; i++) {
		k_until(w, !uv_is_active(keeping));
		assert_true(head->safe == head->changes);
		assert_int_equal(0, head->close_ms);
		before = head->changes;
		(void)k_publish(w, i ? "g" : "f", "text");
		assert_true(head->changes > before);
		k_until(w, head->safe == head->changes);
	}
}

static void the_open_after_it_is_a_repeated_one(void **state)
{
	struct world *w = *state;
	struct fs_pin pin;

	assert_int_equal(ESTALE, ask(w, FUSE_OPEN, OLD(41)));
	assert_true(fs_stale_take(w->fs, w->k.tid, &pin));
	/* Opens add up: it is none of op="open", nor a result of one. */
	assert_int_equal(1, pool_counter_value(&w->fs->ghosts));
	assert_int_equal(0, pool_counter_value(&w->fs->requests[OP_OPEN]));
	assert_int_equal(0, pool_counter_value(&w->fs->stale_opens));
}

static void open_files_keep_their_attributes(void **state)
{
	struct world *w = *state;
	struct fuse_attr a;

	assert_int_equal(0, k_getattr(w, OLD(41), &a));
	assert_int_equal(12345, a.size);
	assert_int_equal(S_IFREG | 0640, a.mode);
	/* Attributes are not kept for a file that was being written, nor after
	 * a FORGET. */
	assert_int_equal(ESTALE, k_getattr(w, OLD(42), &a));
	(void)k_send(w, FUSE_FORGET, OLD(41), &(struct fuse_forget_in){ 1 },
		     sizeof(struct fuse_forget_in), NULL, NULL);
	assert_int_equal(ESTALE, k_getattr(w, OLD(41), &a));
	assert_int_equal(0, rec(1)->nodeid);
}

static void what_was_written_is_not_acknowledged(void **state)
{
	struct world *w = *state;

	assert_int_equal(EIO, ask(w, FUSE_FLUSH, OLD(42)));
	assert_int_equal(EIO, ask(w, FUSE_FSYNC, OLD(42)));
	assert_int_equal(0, ask(w, FUSE_RELEASE, OLD(42)));
	assert_int_equal(EIO, k_fsyncdir(w, ROOT));
	assert_int_equal(0, k_fsyncdir(w, ROOT));
}

static void a_directory_reports_it_by_any_nodeid(void **state)
{
	struct world *w = *state;
	uint64_t d, gone;

	/* The FORGET makes the record an orphan, which the new nodeid takes
	 * over. */
	(void)k_send(w, FUSE_FORGET, OLD(40), &(struct fuse_forget_in){ 2 },
		     sizeof(struct fuse_forget_in), NULL, NULL);
	assert_int_equal(0, k_mkdir(w, ROOT, "d", &d));
	assert_int_equal(0, k_mkdir(w, ROOT, "gone", &gone));
	assert_int_equal(EIO, k_fsyncdir(w, d));
	assert_int_equal(0, k_fsyncdir(w, d));
	assert_int_equal(0, k_fsyncdir(w, gone));
}

static void directories_go_on_by_their_paths(void **state)
{
	struct world *w = *state;
	uint64_t d, f;

	assert_int_equal(0, k_mkdir(w, ROOT, "d", &d));
	k_forget(w, d, 1);
	assert_int_equal(0, k_mkdir(w, ROOT, "gone", &d));
	k_forget(w, d, 1);
	k_until(w, pool_gauge_value(&w->fs->ninodes) == 0);
	assert_int_equal(0, ask(w, FUSE_GETATTR, OLD(43)));
	assert_int_equal(0, k_lookup(w, ROOT, "gone", &f));
	assert_int_equal(OLD(43), f);
	assert_int_equal(2, rec(3)->nlookup); /* one of them counted by the
					         earlier daemon */
	k_forget(w, f, 1);
	(void)k_send(w, FUSE_FORGET, OLD(43), &(struct fuse_forget_in){ 1 },
		     sizeof(struct fuse_forget_in), NULL, NULL);
	k_until(w, pool_gauge_value(&w->fs->ninodes) == 0);
}

static void renamed_and_removed_directories_are_kept_so(void **state)
{
	struct world *w = *state;
	const struct fs_inode *i;
	const struct fs_kept_rec *r;
	uint64_t d;

	assert_int_equal(0, k_mkdir(w, ROOT, "a", &d));
	i = fs_inode_find(w->fs, d);
	r = rec(fs_inode_kept(i)->rec - 1);
	assert_int_equal(d, r->nodeid);
	assert_int_equal(1, r->nlookup);
	assert_memory_equal("a", r->path, r->path_len);
	assert_int_equal(0, k_rename(w, ROOT, "a", ROOT, "longer", 0));
	assert_int_equal(6, r->path_len);
	assert_memory_equal("longer", r->path, 6);
	assert_int_equal(0, k_rmdir(w, ROOT, "longer"));
	assert_int_equal(0, r->path_len);
	k_forget(w, d, 1);
	k_until(w, r->nodeid == 0);
}

/* As k_send, but marked as resent, as the kernel marks it. */
static int send_again(struct world *w, uint32_t opcode, uint64_t unique,
		      uint64_t nodeid, const char *name)
{
	char buf[256] = { 0 };
	struct fuse_in_header h = { .opcode = opcode, .nodeid = nodeid,
				    .unique = unique | RESENT, .pid = 1 };
	struct fuse_out_header out = { 0 };
	size_t arg = opcode == FUSE_MKDIR ? sizeof(struct fuse_mkdir_in) : 0;
	ssize_t n = -1;

	h.len = (uint32_t)(sizeof(h) + arg + strlen(name) + 1);
	memcpy(buf, &h, sizeof(h));
	strcpy(buf + sizeof(h) + arg, name);
	assert_int_equal(0, ask(w, FUSE_GETATTR, ROOT)); /* (INIT's, too) */
	assert_int_equal(h.len, write(w->k.fd, buf, h.len));
	k_until(w, (n = recv(w->k.fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0);
	memcpy(&out, buf, sizeof(out));
	assert_int_equal(unique | RESENT, out.unique);
	return -out.error;
}

static void what_daemons_died_of_fails(void **state)
{
	struct world *w = *state;

	assert_int_equal(EIO, send_again(w, FUSE_UNLINK, DEADLY, ROOT, "x"));
	assert_int_equal(0, head->handling);
}

static void what_may_have_been_done_is_done(void **state)
{
	struct world *w = *state;
	uint64_t d;

	assert_int_equal(ENOENT, k_unlink(w, ROOT, "x"));
	assert_int_equal(0, send_again(w, FUSE_UNLINK, 200, ROOT, "x"));
	assert_int_equal(0, send_again(w, FUSE_RMDIR, 201, ROOT, "x"));
	assert_int_equal(0, k_mkdir(w, ROOT, "x", &d));
	assert_int_equal(EEXIST, k_mkdir(w, ROOT, "x", &d));
	assert_int_equal(0, send_again(w, FUSE_MKDIR, 202, ROOT, "x"));
	assert_int_equal(0, k_lookup(w, ROOT, "x", &d));
	k_forget(w, d, 2);
	(void)k_send(w, FUSE_FORGET, d, &(struct fuse_forget_in){ 1 },
		     sizeof(struct fuse_forget_in), NULL, NULL);
}

/* ---- open files ---- */

static uint64_t were_open;

/* The store has a file with this text, which has no name any more; the handle
 * of record 4 reads a file of that size. */
static void a_nameless_file(struct world *w, const char *text, uint64_t size)
{
	struct pool_node *n = w->m[0].node;
	struct pool_file f;

	assert_int_equal(0, pool_store_take(pool_node_store(n), 0, &f));
	assert_int_equal(strlen(text), write(f.fd, text, strlen(text)));
	close(f.fd);
	rec(4)->file.id = were_open = f.id;
	rec(4)->file.size = size;
	rec(4)->file.published = true;
	n->opts.were_open = &were_open;
	n->opts.nwere_open = 1;
	fs_ghosts_reopen(w->fs);
}

static bool has_file(struct world *w)
{
	uint64_t size, blocks, mtime_ns;

	return pool_store_stat(pool_node_store(w->m[0].node), were_open, &size,
			       &blocks, &mtime_ns) == 0;
}

static const struct k_reply *read_by(struct world *w, uint64_t fh)
{
	struct fuse_read_in in = { .fh = fh, .offset = 1, .size = 100 };

	return k_wait(w, k_send(w, FUSE_READ, OLD(41), &in, sizeof(in), NULL,
				NULL));
}

static void an_open_handle_reads_its_file_until_its_release(void **state)
{
	const struct fuse_release_in end = { .fh = OLD(9) };
	struct world *w = *state;
	const struct fs_handle *h;
	const struct k_reply *r;
	char got[8] = "";

	a_nameless_file(w, "text", 4);
	assert_int_equal(1, pool_counter_value(&w->fs->reopened));
	h = fs_fh_get(w->fs, OLD(9));
	assert_true(node_object_in_use(h->obj)); /* it is not evicted */
	r = read_by(w, OLD(9));
	assert_int_equal(0, r->err);
	assert_int_equal(3, r->len);
	memcpy(got, r->bytes, 3);
	assert_string_equal("ext", got);
	assert_int_equal(0, pool_counter_value(&w->fs->ghosts));
	assert_int_equal(ESTALE, read_by(w, OLD(10))->err);
	assert_int_equal(ESTALE, read_by(w, 9)->err);
	assert_int_equal(0, k_wait(w, k_send(w, FUSE_RELEASE, OLD(41), &end,
					     sizeof(end), NULL, NULL))->err);
	assert_int_equal(ESTALE, read_by(w, OLD(9))->err);
	assert_int_equal(0, rec(4)->nodeid);
	assert_false(has_file(w));
}

static void other_bytes_are_not_read(void **state)
{
	struct world *w = *state;

	a_nameless_file(w, "longer", 4);
	assert_int_equal(1, pool_counter_value(&w->fs->not_reopened));
	assert_int_equal(ESTALE, read_by(w, OLD(9))->err);
	assert_int_equal(0, rec(4)->nodeid);
	assert_false(has_file(w));
}

static void a_handle_that_was_not_answered_is_not_kept(void **state)
{
	struct world *w = *state;

	a_nameless_file(w, "text", 4);
	assert_int_equal(ESTALE, send_again(w, FUSE_OPEN, 200, OLD(41), ""));
	assert_int_equal(0, read_by(w, OLD(9))->err);
	assert_int_equal(ESTALE,
			 send_again(w, FUSE_OPEN, UNANSWERED, OLD(41), ""));
	assert_int_equal(ESTALE, read_by(w, OLD(9))->err);
	assert_int_equal(0, rec(4)->nodeid);
	assert_false(has_file(w));
}

static const struct fs_kept_rec *rec_of_handle(const struct k_file *f)
{
	for (uint32_t n = 0; n < head->used; n++)
		if (rec(n)->nodeid == (FS_KEPT_HANDLE | f->fh))
			return rec(n);
	return NULL;
}

static void readers_handles_have_records(void **state)
{
	struct world *w = *state;
	uint64_t f = k_publish(w, "f", "text"), *ids;
	struct k_file a, b, c;
	const struct fs_kept_rec *r;
	uint64_t id;
	size_t n;

	assert_int_equal(0, k_open(w, f, O_RDONLY, &a));
	assert_int_equal(0, k_open(w, f, O_RDONLY, &b));
	id = fs_inode_find(w->fs, f)->obj->id;
	r = rec_of_handle(&a);
	assert_non_null(r);
	assert_int_equal(id, r->file.id);
	assert_int_equal(4, r->file.size);
	assert_true(r->file.published);
	assert_int_not_equal(0, r->file.unique);
	assert_int_not_equal(r->file.unique, rec_of_handle(&b)->file.unique);
	assert_int_equal(0, k_create(w, ROOT, "g", O_RDWR, &c));
	assert_null(rec_of_handle(&c));
	assert_int_equal(0, fs_kept_files(k_kept_fd, &ids, &n));
	assert_int_equal(3, n); /* and that of record 4 */
	assert_int_equal(0, ids[0]);
	assert_int_equal(id, ids[1]);
	assert_int_equal(id, ids[2]);
	free(ids);
	k_close(w, &c);
	k_close(w, &a);
	assert_null(rec_of_handle(&a));
	assert_non_null(rec_of_handle(&b));
	k_close(w, &b);
	assert_null(rec_of_handle(&b));
}

static void what_another_version_kept_is_refused(void **state)
{
	struct fs_kept_head *h;
	int fd = fs_kept_create();

	(void)state;
	assert_int_equal(0, fs_kept_map(fd, &h));
	h->size++;
	assert_int_equal(-EINVAL, fs_kept_map(fd, &h));
	fs_kept_unmap(h);
	close(fd);
}

int main(void)
{
#define kept(test) \
	cmocka_unit_test_setup_teardown(test, setup_kept, teardown_kept)
#define served(test) \
	cmocka_unit_test_setup_teardown(test, setup_kept_served, teardown_kept)
	const struct CMUnitTest tests[] = {
		kept(what_is_gone_is_looked_up_anew),
		kept(each_change_is_safe_a_while_later),
		kept(the_open_after_it_is_a_repeated_one),
		kept(open_files_keep_their_attributes),
		kept(what_was_written_is_not_acknowledged),
		kept(a_directory_reports_it_by_any_nodeid),
		kept(directories_go_on_by_their_paths),
		kept(renamed_and_removed_directories_are_kept_so),
		kept(what_daemons_died_of_fails),
		kept(what_may_have_been_done_is_done),
		served(an_open_handle_reads_its_file_until_its_release),
		served(other_bytes_are_not_read),
		served(a_handle_that_was_not_answered_is_not_kept),
		served(readers_handles_have_records),
		cmocka_unit_test(what_another_version_kept_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
