/*
 * Records passed from one process to the next: the reader gets them complete,
 * in order and unchanged.
 */
#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/conn/handover.h"
#include "pool/conn/kvpool.pb-c.h"

/* A reader of w's records without their last `cut` bytes. */
static void pass_on(const struct pool_handover *w, struct pool_handover *r,
		    off_t cut)
{
	unsigned int i;

	memset(r, 0, sizeof(*r));
	r->fds = calloc(w->nfds, sizeof(int));
	for (i = 0; i < w->nfds; i++)
		r->fds[i] = w->fds[i] < 0 ?
				    -1 :
				    fcntl(w->fds[i], F_DUPFD_CLOEXEC, 0);
	r->nfds = w->nfds;
	if (cut)
		assert_int_equal(0, ftruncate(r->fds[0],
					      lseek(r->fds[0], 0, SEEK_END) -
						      cut));
	assert_int_equal(0, pool_handover_open(r));
}

static void write_some(struct pool_handover *w)
{
	Kvpool__HandoverFs fs = KVPOOL__HANDOVER_FS__INIT;
	Kvpool__HandoverInode i = KVPOOL__HANDOVER_INODE__INIT;

	assert_int_equal(0, pool_handover_create(w));
	fs.mountpoint = (char *)"/mnt/x";
	i.nodeid = 4711;
	pool_handover_put(w, POOL_HANDOVER_FS, &fs.base);
	pool_handover_put(w, POOL_HANDOVER_INODE, &i.base);
	assert_int_equal(0, pool_handover_finish(w));
}

static void what_was_put_is_got_in_order(void **state)
{
	struct pool_handover w, r;
	ProtobufCMessage *m;

	(void)state;
	write_some(&w);
	pass_on(&w, &r, 0);
	assert_int_equal(-ENOENT, pool_handover_get(&r, POOL_HANDOVER_INODE,
				 &kvpool__handover_inode__descriptor, &m));
	assert_int_equal(0, pool_handover_get(&r, POOL_HANDOVER_FS,
				 &kvpool__handover_fs__descriptor, &m));
	assert_string_equal("/mnt/x", ((Kvpool__HandoverFs *)m)->mountpoint);
	protobuf_c_message_free_unpacked(m, NULL);
	assert_int_equal(0, pool_handover_get(&r, POOL_HANDOVER_INODE,
				 &kvpool__handover_inode__descriptor, &m));
	assert_int_equal(4711, ((Kvpool__HandoverInode *)m)->nodeid);
	protobuf_c_message_free_unpacked(m, NULL);
	assert_int_equal(0, pool_handover_get(&r, POOL_HANDOVER_END, NULL,
					      NULL));
	assert_int_equal(-EBADMSG, pool_handover_get(&r, POOL_HANDOVER_END,
						     NULL, NULL));
	pool_handover_close(&r);
	pool_handover_close(&w);
}

static void what_is_cut_short_is_an_error(void **state)
{
	struct pool_handover w, r;
	ProtobufCMessage *m;

	(void)state;
	write_some(&w);
	pass_on(&w, &r, 9); /* END, and one byte more */
	assert_int_equal(0, pool_handover_get(&r, POOL_HANDOVER_FS,
				 &kvpool__handover_fs__descriptor, &m));
	protobuf_c_message_free_unpacked(m, NULL);
	assert_int_equal(-EBADMSG, pool_handover_get(&r, POOL_HANDOVER_INODE,
				 &kvpool__handover_inode__descriptor, &m));
	pool_handover_close(&r);
	pool_handover_close(&w);
}

static void descriptors_are_taken_once(void **state)
{
	struct pool_handover w, r;
	int fd;

	(void)state;
	assert_int_equal(0, pool_handover_create(&w));
	assert_int_equal(POOL_HANDOVER_FD_MORE, pool_handover_add_fd(&w, 0));
	assert_int_equal(0, pool_handover_finish(&w));
	pass_on(&w, &r, 0);
	fd = pool_handover_take_fd(&r, POOL_HANDOVER_FD_MORE);
	assert_true(fd > 0);
	close(fd);
	assert_int_equal(-EBADF,
			 pool_handover_take_fd(&r, POOL_HANDOVER_FD_MORE));
	assert_int_equal(-EBADF, pool_handover_take_fd(&r, 1000));
	assert_int_equal(-EBADF,
			 pool_handover_take_fd(&r, POOL_HANDOVER_FD_FUSE));
	pool_handover_close(&r);
	pool_handover_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_put_is_got_in_order),
		cmocka_unit_test(what_is_cut_short_is_an_error),
		cmocka_unit_test(descriptors_are_taken_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
