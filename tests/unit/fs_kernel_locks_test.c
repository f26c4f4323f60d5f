/*
 * A passthrough write holds the inode lock of the store's file while it waits
 * for the pages that it copies from. The loop must never wait for that lock
 * (fs/fs_priv.h, fs_writers_clash).
 *
 * The lock is real: a thread writes from a page that userfaultfd(2) withholds.
 * If the loop waits for the lock, the test fails after PATIENCE in stuck_end.
 */
#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pool/node/node_priv.h" /* opts.reserve */
#include "tests/unit/fs_kernel.h"

#define ROOT FUSE_ROOT_ID
#define PAGE 4096
#define PATIENCE 5000 /* ms */
#define SIZE (24u << 20) /* more than the headroom, less than the store */

/* ---- a write that does not end ---- */

struct stuck {
	int uffd, fd;
	char *page;
	pthread_t writer, guard;
	int go[2]; /* a pipe: its closing ends the guard */
	bool waited; /* set if the guard had to release the write */
	ssize_t wrote;
};

static void *write_page(void *arg)
{
	struct stuck *s = arg;

	s->wrote = pwrite(s->fd, s->page, PAGE, 0);
	return NULL;
}

static void give_page(struct stuck *s)
{
	struct uffdio_zeropage z = {
		.range = { (uintptr_t)s->page, PAGE },
	};

	(void)ioctl(s->uffd, UFFDIO_ZEROPAGE, &z);
}

static void *guard_main(void *arg)
{
	struct stuck *s = arg;
	struct pollfd p = { .fd = s->go[0], .events = POLLIN };

	s->waited = poll(&p, 1, PATIENCE) == 0;
	give_page(s);
	return NULL;
}

/* Begins a write to f, which holds the file's lock until stuck_end. */
static void stuck_begin(struct stuck *s, const struct k_file *f)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffd_msg msg;

	memset(s, 0, sizeof(*s));
	s->fd = f->fd;
	s->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	assert_true(s->uffd >= 0);
	assert_int_equal(0, ioctl(s->uffd, UFFDIO_API, &api));
	s->page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(s->page != MAP_FAILED);
	reg.range.start = (uintptr_t)s->page;
	reg.range.len = PAGE;
	assert_int_equal(0, ioctl(s->uffd, UFFDIO_REGISTER, &reg));
	assert_int_equal(0, pipe(s->go));
	assert_int_equal(0, pthread_create(&s->writer, NULL, write_page, s));
	assert_int_equal(sizeof(msg), read(s->uffd, &msg, sizeof(msg)));
	assert_int_equal(0, pthread_create(&s->guard, NULL, guard_main, s));
}

static void stuck_end(struct stuck *s)
{
	close(s->go[1]);
	pthread_join(s->guard, NULL);
	pthread_join(s->writer, NULL);
	close(s->go[0]);
	close(s->uffd);
	munmap(s->page, PAGE);
	if (s->waited)
		fail_msg("the loop waited for a write of a program's");
	assert_int_equal(PAGE, s->wrote);
}

/* ---- */

/* A new file in passthrough mode. The files before it announce its size. */
static void create_direct(struct world *w, const char *name, struct k_file *f)
{
	static const char text[PAGE] = { [0 ... PAGE - 2] = 'x' };
	char other[16];
	int i;

	w->m[0].node->opts.reserve = true; /* as the daemon does with a mount */
	for (i = 0; i < 8; i++) {
		snprintf(other, sizeof(other), "%s-%d", name, i);
		(void)k_publish(w, other, text);
	}
	assert_int_equal(0, k_create(w, ROOT, name, O_RDWR, f));
	assert_true(f->fd >= 0);
	k_write(w, f, text, 0);
}

/* O_TRUNC of a file that is being written gets a new file; the first writer
 * continues with the old one. */
static void emptying_a_file_being_written_gives_a_new_one(void **state)
{
	struct world *w = *state;
	struct k_file f, g;
	struct stuck s;

	create_direct(w, "a", &f);
	stuck_begin(&s, &f);
	assert_int_equal(0, k_open_name(w, "a", O_WRONLY | O_TRUNC, &g));
	assert_int_not_equal(f.nodeid, g.nodeid);
	k_write(w, &g, "new", 0);
	k_close(w, &g);
	k_until(w, k_published(w, "a"));
	k_expect_name(w, "a", "new");
	stuck_end(&s);
	k_close(w, &f);
	k_expect_name(w, "a", "new");
}

/* Three writers empty the file. The repeated OPEN of the first gets a file that
 * others write already, as if it had come after them. */
static void several_writers_that_empty_it_are_served(void **state)
{
	struct world *w = *state;
	struct k_file f, g[3];
	uint64_t id;
	int i;

	create_direct(w, "a", &f);
	assert_int_equal(ESTALE, k_open(w, f.nodeid, O_WRONLY | O_TRUNC, g));
	for (i = 1; i < 3; i++) {
		w->k.tid = (uint32_t)i + 1;
		assert_int_equal(0, k_open_name(w, "a", O_WRONLY | O_TRUNC,
						&g[i]));
		assert_true(g[i].fd >= 0);
		k_write(w, &g[i], "new", 0);
	}
	w->k.tid = 1;
	assert_int_equal(0, k_lookup(w, ROOT, "a", &id));
	assert_int_equal(g[2].nodeid, id);
	assert_int_equal(0, k_open(w, id, O_WRONLY | O_TRUNC, &g[0]));
	k_write(w, &g[0], "newer", 0);
	for (i = 0; i < 3; i++)
		k_close(w, &g[i]);
	k_close(w, &f);
	k_until(w, k_published(w, "a"));
	k_expect_name(w, "a", "newer");
}

/* Others empty the file between the LOOKUP and the second OPEN of the first
 * writer: it gets the file that it looked up. */
static void an_open_gets_the_file_it_looked_up(void **state)
{
	struct world *w = *state;
	struct k_file f, g[3];
	uint64_t id;
	int i;

	create_direct(w, "a", &f);
	assert_int_equal(ESTALE, k_open(w, f.nodeid, O_WRONLY | O_TRUNC, g));
	assert_int_equal(0, k_lookup(w, ROOT, "a", &id));
	for (i = 1; i < 3; i++) {
		w->k.tid = (uint32_t)i + 1;
		assert_int_equal(0, k_open_name(w, "a", O_WRONLY | O_TRUNC,
						&g[i]));
		k_write(w, &g[i], "new", 0);
	}
	assert_int_equal(id, g[1].nodeid);
	assert_int_not_equal(id, g[2].nodeid);
	w->k.tid = 1;
	assert_int_equal(0, k_open(w, id, O_WRONLY | O_TRUNC, &g[0]));
	for (i = 0; i < 3; i++)
		k_close(w, &g[i]);
	k_close(w, &f);
	k_until(w, k_published(w, "a"));
	k_expect_name(w, "a", "new");
}

/* The OPEN has an old nodeid, still open by a reader, whose file has been
 * replaced. */
static void an_open_by_an_old_nodeid_is_served(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "old");
	struct k_file reader, f, g;

	create_direct(w, "b", &f);
	k_close(w, &f);
	assert_int_equal(0, k_open(w, id, O_RDONLY, &reader));
	assert_int_equal(0, k_open_name(w, "a", O_WRONLY | O_TRUNC, &f));
	assert_true(f.fd >= 0);
	k_write(w, &f, "new", 0);
	assert_int_equal(ESTALE, k_open(w, id, O_WRONLY | O_TRUNC, &g));
	assert_int_equal(0, k_lookup(w, ROOT, "a", &id));
	assert_int_equal(0, k_open(w, id, O_WRONLY | O_TRUNC, &g));
	k_write(w, &g, "newest", 0);
	k_close(w, &f);
	k_close(w, &g);
	k_until(w, k_published(w, "a"));
	k_expect_name(w, "a", "newest");
	k_expect(w, &reader, "old");
	k_close(w, &reader);
}

/* The same, but another file that is being written was renamed to the name. */
static void an_open_by_a_renamed_over_nodeid_is_served(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "old");
	struct k_file reader, f, g;

	create_direct(w, "b", &f);
	assert_int_equal(0, k_open(w, id, O_RDONLY, &reader));
	assert_int_equal(0, k_rename(w, ROOT, "b", ROOT, "a", 0));
	assert_int_equal(ESTALE, k_open(w, id, O_WRONLY | O_TRUNC, &g));
	assert_int_equal(0, k_lookup(w, ROOT, "a", &id));
	assert_int_equal(0, k_open(w, id, O_WRONLY | O_TRUNC, &g));
	k_write(w, &g, "newest", 0);
	k_close(w, &f);
	k_close(w, &g);
	k_until(w, k_published(w, "a"));
	k_expect_name(w, "a", "newest");
	k_close(w, &reader);
}

static size_t size_of(const struct k_file *f)
{
	return (size_t)lseek(f->fd, 0, SEEK_END);
}

/* After ESTALE, the LOOKUP of another name empties nothing. */
static void no_other_file_is_emptied(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "old"), found;
	struct k_file reader, f, g;

	create_direct(w, "b", &f);
	assert_int_equal(0, k_open(w, id, O_RDONLY, &reader));
	assert_int_equal(ESTALE, k_open(w, id, O_WRONLY | O_TRUNC, &g));
	assert_int_equal(0, k_lookup(w, ROOT, "b", &found));
	assert_int_equal(f.nodeid, found);
	assert_int_equal(PAGE - 1, size_of(&f));
	assert_int_equal(0, w->fs->npins); /* no reader has to wait */
	k_close(w, &f);
	k_close(w, &reader);
	k_until(w, !fs_busy(w->fs));
}

/* The LOOKUP empties no file that the user of the OPEN may not write, even if
 * the thread runs as root by then. */
static void nobody_elses_file_is_emptied(void **state)
{
	struct world *w = *state;
	struct k_file reader, f, g;
	uint64_t id, found;

	create_direct(w, "b", &f);
	w->k.uid = w->k.gid = 1000;
	id = k_publish(w, "a", "old");
	assert_int_equal(0, k_open(w, id, O_RDONLY, &reader));
	assert_int_equal(ESTALE, k_open(w, id, O_WRONLY | O_TRUNC, &g));
	w->k.uid = w->k.gid = 0;
	assert_int_equal(0, k_rename(w, ROOT, "b", ROOT, "a", 0));
	w->k.uid = w->k.gid = 1000;
	assert_int_equal(0, k_lookup(w, ROOT, "a", &found));
	assert_int_equal(f.nodeid, found);
	assert_int_equal(PAGE - 1, size_of(&f));
	w->k.uid = w->k.gid = 0;
	assert_int_equal(0, k_lookup(w, ROOT, "a", &found));
	assert_int_equal(f.nodeid, found);
	assert_int_equal(PAGE - 1, size_of(&f));
	assert_int_equal(0, w->fs->npins); /* no reader has to wait */
	k_close(w, &f);
	k_close(w, &reader);
	k_until(w, k_published(w, "a"));
}

/* O_TRUNC of an empty file keeps the file: several processes open a lock file
 * like this, and must lock the same one. */
static void an_empty_one_stays(void **state)
{
	struct world *w = *state;
	struct k_file f, g;
	struct stuck s;

	create_direct(w, "a", &f);
	assert_int_equal(0, k_truncate(w, f.nodeid, 0));
	stuck_begin(&s, &f);
	assert_int_equal(0, k_open_name(w, "a", O_RDWR | O_TRUNC, &g));
	assert_int_equal(f.nodeid, g.nodeid);
	k_close(w, &g);
	stuck_end(&s);
	k_close(w, &f);
	k_until(w, k_published(w, "a"));
}

/* An OPEN by /proc/PID/fd of an unlinked file: no name can get a new file. */
static void an_unlinked_one_is_not_emptied(void **state)
{
	struct world *w = *state;
	struct k_file f, g;
	struct stuck s;

	create_direct(w, "a", &f);
	assert_int_equal(0, k_unlink(w, ROOT, "a"));
	stuck_begin(&s, &f);
	assert_int_not_equal(0, k_open(w, f.nodeid, O_WRONLY | O_TRUNC, &g));
	stuck_end(&s);
	assert_int_equal(0, k_open(w, f.nodeid, O_WRONLY, &g));
	k_close(w, &g);
	k_close(w, &f);
}

/* The second OPEN after ESTALE has the first one's nodeid, which is not the
 * name's any more. The kernel does not serialize requests of two nodeids, so
 * the OPEN is refused while the file is written by the other nodeid. */
static void a_file_is_not_written_by_two_nodeids(void **state)
{
	struct world *w = *state;
	struct k_file reader, f, g;
	uint64_t id, again, stale;
	struct stuck s;

	create_direct(w, "a", &f);
	k_close(w, &f);
	k_until(w, k_published(w, "a"));
	assert_int_equal(0, k_lookup(w, ROOT, "a", &id));
	assert_int_equal(0, k_open(w, id, O_RDONLY, &reader));
	assert_int_equal(0, k_open_name(w, "a", O_WRONLY | O_TRUNC, &f));
	assert_true(f.fd >= 0);
	assert_int_not_equal(id, f.nodeid);
	k_write(w, &f, "new", 0);
	k_close(w, &reader);
	assert_int_equal(ESTALE, k_open(w, id, O_WRONLY, &g));
	assert_int_equal(0, k_lookup(w, ROOT, "a", &again));
	assert_int_equal(f.nodeid, again);
	assert_int_equal(ETXTBSY, k_open(w, id, O_WRONLY, &g));
	stuck_begin(&s, &f);
	stale = pool_counter_value(&w->fs->opens_stale);
	assert_int_equal(ESTALE, k_truncate(w, id, 1));
	assert_int_equal(stale, pool_counter_value(&w->fs->opens_stale));
	assert_int_equal(0, k_lookup(w, ROOT, "a", &again));
	assert_int_equal(ETXTBSY, k_truncate(w, id, 1));
	stuck_end(&s);
	k_close(w, &f);
	k_until(w, k_published(w, "a"));
}

/* ---- a size that is being set ---- */

/* The kernel holds the inode's lock until the reply. The reply must not come
 * before the size is set, even if the request is interrupted. */
static void setattr_is_answered_when_the_size_is_set(void **state)
{
	struct fuse_setattr_in in = { .valid = FATTR_SIZE, .size = SIZE };
	struct world *w = *state;
	uint64_t claimed, unique;
	struct k_file f;

	create_direct(w, "a", &f);
	claimed = k_claim_all_but(w, 16 * PAGE);
	unique = k_send(w, FUSE_SETATTR, f.nodeid, &in, sizeof(in), NULL, NULL);
	k_until(w, w->fs->ndeferred[FS_DEFERRED_OPEN] == 1);
	k_interrupt(w, unique);
	k_until(w, pool_counter_value(&w->fs->interrupts) == 1);
	assert_false(k_answered(w, unique));
	pool_node_claim_end(w->m[0].node, claimed);
	assert_int_equal(0, k_wait(w, unique)->err);
	assert_int_equal(SIZE, lseek(f.fd, 0, SEEK_END));
	k_close(w, &f);
	k_until(w, k_published(w, "a"));
}

/* SETATTR without a handle is the only writer of the file meanwhile. */
static void setattr_counts_as_a_writer_of_its_nodeid(void **state)
{
	struct fuse_setattr_in in = { .valid = FATTR_SIZE, .size = SIZE };
	struct world *w = *state;
	const struct fs_inode *i;
	uint64_t claimed, unique;
	const void *direct;
	struct k_file f;

	create_direct(w, "a", &f);
	k_close(w, &f);
	k_until(w, k_published(w, "a"));
	assert_int_equal(0, k_lookup(w, ROOT, "a", &f.nodeid));
	i = fs_inode_find(w->fs, f.nodeid);
	claimed = k_claim_all_but(w, 256 * PAGE);
	unique = k_send(w, FUSE_SETATTR, f.nodeid, &in, sizeof(in), NULL, NULL);
	k_until(w, i->obj && node_object_state(i->obj) == NODE_WRITING);
	assert_int_equal(1, node_object_writers(i->obj));
	assert_int_equal(1, node_object_direct(i->obj, &direct));
	assert_ptr_equal(i, direct);
	pool_node_claim_end(w->m[0].node, claimed);
	assert_int_equal(0, k_wait(w, unique)->err);
	k_until(w, k_published(w, "a"));
}

/* A daemon-served SETATTR holds no lock while it waits, so others may open the
 * file for writing. */
static void daemon_served_others_write_beside_it(void **state)
{
	struct fuse_setattr_in in = { .valid = FATTR_SIZE, .size = SIZE };
	struct world *w = *state;
	uint64_t claimed, unique;
	struct k_file f, g;

	(void)k_publish(w, "other", "something that may be evicted");
	assert_int_equal(0, k_create(w, ROOT, "a", O_RDWR, &f));
	k_write(w, &f, "text", 0);
	claimed = k_claim_all_but(w, 256 * PAGE);
	unique = k_send(w, FUSE_SETATTR, f.nodeid, &in, sizeof(in), NULL, NULL);
	k_until(w, w->fs->ndeferred[FS_DEFERRED_OPEN] == 1);
	assert_int_equal(0, k_open(w, f.nodeid, O_WRONLY, &g));
	assert_false(k_answered(w, unique));
	pool_node_claim_end(w->m[0].node, claimed);
	assert_int_equal(0, k_wait(w, unique)->err);
	k_close(w, &g);
	k_close(w, &f);
	k_until(w, k_published(w, "a"));
}

/* ---- a handle that is about to be open ---- */

/* A thread may be delayed between the reply to its OPEN and the kernel's open
 * of the backing file. No lease shows this writer yet. */
static void it_is_not_published_before_that_is_closed(void **state)
{
	struct world *w = *state;
	struct k_file f, g;

	create_direct(w, "a", &f);
	assert_int_equal(0, k_open(w, f.nodeid, O_WRONLY, &g));
	close(g.fd);
	g.fd = -1;
	k_close(w, &f);
	assert_int_equal(0, k_fsyncdir(w, ROOT));
	assert_int_equal(NODE_WRITING,
			 node_object_state(fs_inode_find(w->fs,
							 g.nodeid)->obj));
	k_close(w, &g);
	k_until(w, k_published(w, "a"));
}

#define passthrough(test) \
	cmocka_unit_test_setup_teardown(test, k_setup_passthrough, k_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		passthrough(emptying_a_file_being_written_gives_a_new_one),
		passthrough(several_writers_that_empty_it_are_served),
		passthrough(an_open_gets_the_file_it_looked_up),
		passthrough(an_open_by_an_old_nodeid_is_served),
		passthrough(an_open_by_a_renamed_over_nodeid_is_served),
		passthrough(no_other_file_is_emptied),
		passthrough(nobody_elses_file_is_emptied),
		passthrough(an_empty_one_stays),
		passthrough(an_unlinked_one_is_not_emptied),
		passthrough(a_file_is_not_written_by_two_nodeids),
		passthrough(it_is_not_published_before_that_is_closed),
		passthrough(setattr_is_answered_when_the_size_is_set),
		passthrough(setattr_counts_as_a_writer_of_its_nodeid),
		cmocka_unit_test_setup_teardown(
			daemon_served_others_write_beside_it, k_setup_served,
			k_teardown),
	};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0) {
		print_message("SKIP: userfaultfd is not permitted: %s\n",
			      strerror(errno));
		return 77;
	}
	close(fd);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
