/* The attributes of the root that the master sends: those that users have set,
 * and no others. */
#define NNODES 1
#include "master_fake_pool.h"

#include "master/state.h"
#include "pool/model/root.h"

static void join_root(void)
{
	node[0].nnames = node[0].completes = 0;
	fake_dial(&node[0], &loop, master_port(master));
	fake_send_join(&node[0]);
	run_until(&loop, node[0].welcomed || node[0].closed);
	assert_true(node[0].welcomed);
	fake_inventory(&node[0], NULL, 0, true);
	fake_subscribe(&node[0], 0, 0);
	run_until(&loop, node[0].completes >= 1);
}

static void end_master(void)
{
	stop_master();
	run_until(&loop, node[0].closed || !node[0].conn);
}

static void restart(void)
{
	end_master();
	start_master();
	join_root();
}

static const struct seen_name *root_seen(void)
{
	const struct seen_name *s = fake_find(&node[0], "");

	assert_non_null(s);
	return s;
}

static int set_root(uint32_t set, uint32_t mode, uint32_t uid, uint64_t mtime)
{
	Kvpool__Op op = KVPOOL__OP__INIT;
	Kvpool__Meta meta;

	fake_meta(&meta, "", 0);
	meta.mode = mode;
	meta.uid = uid;
	meta.mtime_ns = mtime;
	op.kind = KVPOOL__OP__KIND__SETATTR;
	op.set = set;
	op.meta = &meta;
	return fake_op(&node[0], &op);
}

static void a_rule_of_the_root_sets_none_of_its_attributes(void **state)
{
	(void)state;
	join_root();
	assert_null(fake_find(&node[0], ""));
	assert_int_equal(0, fake_rule(&node[0], "", "user.kvpool.replicas",
				      "2"));
	run_until(&loop, fake_find(&node[0], ""));
	assert_int_equal(POOL_ROOT_RECORDED, root_seen()->set);
	assert_int_equal(POOL_ROOT_MODE, root_seen()->mode);
	assert_true(root_seen()->mtime_ns != 0);
	restart();
	assert_int_equal(POOL_ROOT_RECORDED, root_seen()->set);
	assert_int_equal(POOL_ROOT_MODE, root_seen()->mode);
}

static void what_was_set_of_the_root_outlives_the_master(void **state)
{
	(void)state;
	join_root();
	assert_int_equal(0, set_root(POOL_SET_MODE, 0750, 0, 0));
	restart();
	assert_int_equal(POOL_ROOT_RECORDED | POOL_SET_MODE, root_seen()->set);
	assert_int_equal(0750, root_seen()->mode);
	assert_int_equal(0, set_root(POOL_SET_UID | POOL_SET_MTIME, 0, 12, 5));
	restart();
	assert_int_equal(POOL_ROOT_RECORDED | POOL_SET_MODE | POOL_SET_UID |
			 POOL_SET_MTIME, root_seen()->set);
	assert_int_equal(0750, root_seen()->mode);
	assert_int_equal(12, root_seen()->uid);
	assert_int_equal(5, root_seen()->mtime_ns);
}

static int skip_record(void *arg, const struct master_record *r)
{
	(void)arg;
	(void)r;
	return 0;
}

/* The root's record as written by an older version, without the bits of the
 * attributes that were set. */
static void an_older_version_kept(uint32_t mode, uint32_t uid, uint64_t mtime)
{
	Kvpool__Xattr x = KVPOOL__XATTR__INIT, *xs[1] = { &x };
	struct master_record r = { .type = MASTER_REC_DIR };
	struct master_state *s;
	uint64_t epoch;
	Kvpool__Meta meta = KVPOOL__META__INIT;

	end_master();
	unlink(state_path);
	assert_int_equal(0, master_state_open(state_path, skip_record, NULL,
					      &epoch, &s));
	x.name = (char *)"user.kvpool.replicas";
	x.value.data = (uint8_t *)"2";
	x.value.len = 1;
	meta.is_dir = 1;
	meta.mode = mode;
	meta.uid = uid;
	meta.mtime_ns = mtime;
	meta.xattrs = xs;
	meta.n_xattrs = 1;
	r.meta = &meta;
	assert_int_equal(0, master_state_append(s, &r));
	master_state_close(s);
	start_master();
	join_root();
}

static void a_root_recorded_by_an_older_version_is_sent_right(void **state)
{
	(void)state;
	an_older_version_kept(0755, 0, 0);
	assert_int_equal(POOL_ROOT_RECORDED, root_seen()->set);
	assert_int_equal(POOL_ROOT_MODE, root_seen()->mode);
	assert_true(root_seen()->mtime_ns != 0);
	an_older_version_kept(0750, 0, 0);
	assert_int_equal(POOL_ROOT_RECORDED | POOL_SET_MODE, root_seen()->set);
	assert_int_equal(0750, root_seen()->mode);
	assert_true(root_seen()->mtime_ns != 0);
	an_older_version_kept(0755, 12, 7);
	assert_int_equal(POOL_ROOT_RECORDED | POOL_ROOT_SETS, root_seen()->set);
	assert_int_equal(0755, root_seen()->mode);
	assert_int_equal(12, root_seen()->uid);
	assert_int_equal(7, root_seen()->mtime_ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_rule_of_the_root_sets_none_of_its_attributes),
		T(what_was_set_of_the_root_outlives_the_master),
		T(a_root_recorded_by_an_older_version_is_sent_right),
	};

	return run_all_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
