/* Which RDMA ports are found and used, and later events of theirs. */
#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "pool/base/log.h"
#include "pool/verbs/device.h"
#include "pool/verbs/queue.h"
#include "tests/unit/fake_verbs.h"

static struct verbs *v;

static int setup(void **state)
{
	(void)state;
	fake_verbs_reset();
	v = NULL;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	verbs_close(v);
	assert_int_equal(fake_verbs_left(), 0);
	return 0;
}

static void open_all(const char *names)
{
	assert_int_equal(verbs_open(names, &v), 0);
}

static const char *text(void)
{
	static char buf[2048];

	return verbs_format(v, buf, sizeof(buf));
}

/* A member of the i-th port, as text. */
static const char *member(unsigned int i, const char *key)
{
	static char buf[256];
	json_t *all = verbs_json(v);
	json_t *value = json_object_get(json_array_get(all, i), key);

	assert_non_null(value);
	if (json_is_string(value))
		snprintf(buf, sizeof(buf), "%s", json_string_value(value));
	else if (json_is_integer(value))
		snprintf(buf, sizeof(buf), "%d",
			 (int)json_integer_value(value));
	else
		snprintf(buf, sizeof(buf), "%s",
			 json_is_true(value) ? "yes" :
			 json_is_null(value) ? "null" : "no");
	json_decref(all);
	return buf;
}

static void without_devices_there_are_no_ports(void **state)
{
	(void)state;
	open_all(NULL);
	assert_int_equal(verbs_nports(v), 0);
	assert_string_equal(text(), "none");
	assert_string_equal(verbs_format(NULL, (char[8]){ 0 }, 8), "none");
	assert_int_equal(fake_verbs_calls("rdma_get_devices"), 0);
}

static void a_kernel_without_support_is_no_error_but_no_memory_is(void **state)
{
	(void)state;
	fake_verbs_fail("ibv_get_device_list", 1, ENOSYS);
	open_all(NULL);
	assert_int_equal(verbs_nports(v), 0);
	verbs_close(v);
	v = NULL;
	fake_verbs_fail("ibv_get_device_list", 1, ENOMEM);
	assert_int_equal(verbs_open(NULL, &v), -ENOMEM);
}

static void an_active_port_is_used_with_what_its_device_can(void **state)
{
	struct fake_device *d = fake_verbs_roce("mlx5_0");
	struct verbs_port *p;

	(void)state;
	fake_verbs_attr(d)->max_qp_rd_atom = 4;
	fake_verbs_attr(d)->max_qp_init_rd_atom = 0;
	fake_verbs_attr(d)->max_qp_wr = 100;
	fake_verbs_attr(d)->max_mr_size = 1 << 30;
	open_all(NULL);
	assert_int_equal(verbs_nports(v), 1);
	p = verbs_port_at(v, 0);
	assert_string_equal(p->device, "mlx5_0");
	assert_int_equal(p->number, 1);
	assert_null(p->why_not);
	assert_int_equal(p->link, VERBS_ROCE);
	assert_true(p->cm);
	assert_non_null(p->pd);
	assert_ptr_equal(p->pd->context, p->ctx);
	assert_int_equal(p->gid_index, 1);
	assert_int_equal(p->mtu, IBV_MTU_4096);
	assert_int_equal(p->send_depth, VERBS_SEND_DEPTH);
	assert_int_equal(p->recv_depth, 100);
	assert_int_equal(p->message_max, VERBS_MESSAGE_MAX);
	assert_int_equal(p->region_max, 1 << 30);
	assert_int_equal(p->reads_in, 4);
	assert_int_equal(p->reads_out, 1);
	assert_string_equal(text(), "mlx5_0/1 active roce 10.0.0.1");
	assert_string_equal(member(0, "used"), "yes");
	assert_string_equal(member(0, "why_not"), "null");
	assert_string_equal(member(0, "address"), "10.0.0.1");
	assert_string_equal(member(0, "mtu"), "4096");
	assert_string_equal(member(0, "failures"), "0");
}

static void the_best_address_is_chosen(void **state)
{
	static const struct {
		uint32_t type;
		const char *address;
	} worst_first[] = {
		{ IBV_GID_TYPE_ROCE_V1, "fe80::1" },
		{ IBV_GID_TYPE_ROCE_V1, "2001:db8::1" },
		{ IBV_GID_TYPE_ROCE_V1, "10.0.0.1" },
		{ IBV_GID_TYPE_ROCE_V2, "fe80::1" },
		{ IBV_GID_TYPE_ROCE_V2, "2001:db8::1" },
		{ IBV_GID_TYPE_ROCE_V2, "10.0.0.1" },
	};

	(void)state;
	for (size_t best = 0; best < 6; best++) {
		struct fake_device *d;

		fake_verbs_reset();
		d = fake_verbs_roce("rxe0");
		fake_verbs_clear_gids(d);
		/* None of these is ever used. */
		fake_verbs_gid(d, 1, IBV_GID_TYPE_ROCE_V2, "::");
		fake_verbs_gid(d, 1, IBV_GID_TYPE_ROCE_V2, "127.0.0.1");
		fake_verbs_gid(d, 1, IBV_GID_TYPE_IB, "10.9.9.9");
		fake_verbs_gid(d, 2, IBV_GID_TYPE_ROCE_V2, "10.8.8.8");
		fake_verbs_gid(d, 1, worst_first[best].type,
			       worst_first[best].address);
		for (size_t i = 0; i < best; i++)
			fake_verbs_gid(d, 1, worst_first[i].type,
				       worst_first[i].address);
		open_all(NULL);
		assert_int_equal(verbs_nports(v), 1);
		assert_string_equal(member(0, "address"),
				    worst_first[best].address);
		assert_int_equal(verbs_port_at(v, 0)->gid_index, 3);
		verbs_close(v);
		v = NULL;
	}
}

static void what_is_not_used_is_listed_with_the_reason(void **state)
{
	struct fake_device *d;

	(void)state;
	d = fake_verbs_roce("down0");
	fake_verbs_port(d, IBV_PORT_DOWN, IBV_LINK_LAYER_ETHERNET);
	d = fake_verbs_device("bare0", IBV_TRANSPORT_IB, true);
	fake_verbs_port(d, IBV_PORT_ACTIVE, IBV_LINK_LAYER_ETHERNET);
	d = fake_verbs_device("ib0", IBV_TRANSPORT_IB, true);
	fake_verbs_port(d, IBV_PORT_ACTIVE, IBV_LINK_LAYER_INFINIBAND)->lid = 0;
	fake_verbs_gid(d, 1, IBV_GID_TYPE_IB, "fe80::5");
	d = fake_verbs_device("efa0", IBV_TRANSPORT_UNSPECIFIED, false);
	fake_verbs_port(d, IBV_PORT_ACTIVE, IBV_LINK_LAYER_UNSPECIFIED);
	d = fake_verbs_device("erdma0", IBV_TRANSPORT_IWARP, false);
	fake_verbs_port(d, IBV_PORT_ACTIVE, IBV_LINK_LAYER_ETHERNET);
	open_all(NULL);
	assert_int_equal(verbs_nports(v), 1);
	assert_string_equal(verbs_port_at(v, 0)->device, "down0");
	assert_non_null(
		strstr(text(), "down0/2 down roce (the port is not active"));
	assert_non_null(
		strstr(text(), "bare0/1 active roce (it has no address"));
	assert_non_null(
		strstr(text(), "ib0/1 active infiniband (it has no LID"));
	assert_non_null(
		strstr(text(), "efa0/1 active unknown (it has no reliable"));
	assert_non_null(strstr(
		text(), "erdma0/1 active iwarp (librdmacm does not have it"));
	assert_string_equal(member(1, "used"), "no");
	assert_string_equal(member(2, "address"), "null");
}

static void infiniband_is_used_by_lid_and_iwarp_by_librdmacm(void **state)
{
	struct fake_device *d =
		fake_verbs_device("ib0", IBV_TRANSPORT_IB, false);

	(void)state;
	fake_verbs_port(d, IBV_PORT_ACTIVE, IBV_LINK_LAYER_INFINIBAND);
	fake_verbs_gid(d, 1, IBV_GID_TYPE_IB, "fe80::5");
	d = fake_verbs_device("erdma0", IBV_TRANSPORT_IWARP, true);
	fake_verbs_port(d, IBV_PORT_ACTIVE, IBV_LINK_LAYER_ETHERNET);
	open_all(NULL);
	assert_int_equal(verbs_nports(v), 2);
	assert_int_equal(verbs_port_at(v, 0)->link, VERBS_INFINIBAND);
	assert_int_equal(verbs_port_at(v, 0)->lid, 7);
	assert_false(verbs_port_at(v, 0)->cm);
	assert_int_equal(verbs_port_at(v, 1)->link, VERBS_IWARP);
	assert_true(verbs_port_at(v, 1)->cm);
}

static void only_named_devices_are_used(void **state)
{
	(void)state;
	fake_verbs_roce("mlx5_0");
	fake_verbs_roce("mlx5_1");
	fake_verbs_roce("mlx5_10");
	open_all("mlx5_1,mlx5_10");
	assert_int_equal(verbs_nports(v), 2);
	assert_string_equal(verbs_port_at(v, 0)->device, "mlx5_1");
	assert_string_equal(verbs_port_at(v, 1)->device, "mlx5_10");
	assert_non_null(
		strstr(text(), "mlx5_0/1 active roce (it is not named"));
}

static void
a_named_device_that_is_not_there_or_unusable_is_an_error(void **state)
{
	struct fake_device *d;

	(void)state;
	assert_int_equal(verbs_open("mlx5_0", &v), -ENODEV);
	fake_verbs_roce("mlx5_0");
	assert_int_equal(verbs_open("mlx5_0,mlx5_7", &v), -ENODEV);
	assert_int_equal(verbs_open("mlx5_", &v), -ENODEV);
	d = fake_verbs_device("down0", IBV_TRANSPORT_IB, true);
	fake_verbs_port(d, IBV_PORT_DOWN, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(verbs_open("down0", &v), -ENODEV);
	open_all("down0,mlx5_0");
	assert_int_equal(verbs_nports(v), 1);
}

static void lists_of_names_are_checked(void **state)
{
	static const char *const wrong[] = {
		"",
		",",
		"a,",
		",a",
		"a,,b",
		"a b",
		"a:1",
		"a/b",
		"a\n",
		"01234567890123456789012345678901234567890123456789012345678901"
		"23",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_false(verbs_names_valid(wrong[i]));
		assert_int_equal(verbs_open(wrong[i], &v), -EINVAL);
	}
	assert_true(verbs_names_valid("mlx5_0"));
	assert_true(verbs_names_valid("erdma_0,erdma_1"));
}

static void
a_device_that_cannot_be_asked_is_listed_and_the_others_used(void **state)
{
	static const char *const cases[][2] = {
		{ "ibv_open_device", "cannot be opened" },
		{ "ibv_query_device", "cannot be read" },
		{ "ibv_query_gid_table", "no address" },
		{ "ibv_alloc_pd", "no protection domain" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fake_verbs_reset();
		fake_verbs_roce("bad0");
		fake_verbs_roce("good0");
		fake_verbs_fail("rdma_get_devices", 1, ENODEV);
		fake_verbs_fail(cases[i][0], 1, EIO);
		open_all(NULL);
		assert_int_equal(verbs_nports(v), 1);
		assert_string_equal(verbs_port_at(v, 0)->device, "good0");
		assert_string_equal(member(0, "used"), "no");
		assert_non_null(strstr(member(0, "why_not"), cases[i][1]));
		verbs_close(v);
		v = NULL;
		assert_int_equal(fake_verbs_left(), 0);
	}
	/* Once to size the list of addresses, once for its state. */
	fake_verbs_fail("ibv_query_port", 2, EIO);
	open_all(NULL);
	assert_non_null(strstr(text(), "cannot be read"));
}

static void permission_to_open_is_named_as_the_remedy(void **state)
{
	(void)state;
	fake_verbs_roce("mlx5_0");
	fake_verbs_fail("rdma_get_devices", 1, EACCES);
	fake_verbs_fail("ibv_open_device", 1, EACCES);
	open_all(NULL);
	assert_non_null(
		strstr(text(), "mlx5_0 (it may not be opened: run as root"));
	assert_non_null(strstr(verbs_remedy(-ENOMEM), "memlock"));
	assert_non_null(strstr(verbs_remedy(-EPERM), "memlock"));
	assert_non_null(strstr(verbs_remedy(-EACCES), "/dev/infiniband"));
	assert_true(verbs_remedy(-12345)[0]);
}

static void failures_of_closing_are_survived(void **state)
{
	(void)state;
	fake_verbs_roce("mlx5_0");
	fake_verbs_fail("rdma_get_devices", 1, ENODEV);
	fake_verbs_fail("ibv_close_device", 1, EBUSY);
	fake_verbs_fail("ibv_dealloc_pd", 1, EBUSY);
	open_all(NULL);
	assert_false(verbs_port_at(v, 0)->cm);
}

static void more_ports_than_there_is_room_for_are_passed_over(void **state)
{
	char name[16];

	(void)state;
	for (int i = 0; i < VERBS_PORTS_MAX + 3; i++) {
		snprintf(name, sizeof(name), "rxe%d", i);
		fake_verbs_roce(name);
	}
	open_all(NULL);
	assert_int_equal(verbs_nports(v), VERBS_PORTS_MAX);
}

static void what_does_not_fit_is_cut_with_dots(void **state)
{
	char buf[256], whole[256];

	(void)state;
	fake_verbs_roce("mlx5_0");
	fake_verbs_roce("mlx5_1");
	open_all(NULL);
	verbs_format(v, whole, sizeof(whole));
	for (size_t cap = 8; cap < strlen(whole) + 4; cap++) {
		memset(buf, 'x', sizeof(buf));
		verbs_format(v, buf, cap);
		assert_true(strlen(buf) < cap);
		assert_int_equal(buf[cap], 'x');
		if (strcmp(buf, whole) != 0)
			assert_string_equal(buf + strlen(buf) - 3, "...");
	}
	assert_string_equal(verbs_format(v, buf, sizeof(buf)), whole);
}

/* ---- what happens later ---- */

static uv_loop_t loop;
static int nclosed;

static void on_closed(void *arg)
{
	(void)arg;
	nclosed++;
}

static void turns(void)
{
	for (int i = 0; i < 5; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
}

static void watch(void)
{
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(verbs_watch(v, &loop), 0);
	nclosed = 0;
}

static void unwatch(void)
{
	verbs_unwatch(v, on_closed, NULL);
	assert_int_equal(nclosed, 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(nclosed, 1);
	assert_int_equal(uv_loop_close(&loop), 0);
}

static void a_port_goes_down_and_comes_up_again(void **state)
{
	struct fake_device *d = fake_verbs_device("rxe0", IBV_TRANSPORT_IB,
						  true);
	struct ibv_port_attr *attr = fake_verbs_port(d, IBV_PORT_ACTIVE,
						     IBV_LINK_LAYER_ETHERNET);
	struct verbs_port *p;

	(void)state;
	fake_verbs_gid(d, 1, IBV_GID_TYPE_ROCE_V2, "10.0.0.1");
	open_all(NULL);
	p = verbs_port_at(v, 0);
	watch();
	attr->state = IBV_PORT_DOWN;
	fake_verbs_event(d, IBV_EVENT_PORT_ERR, NULL, 1);
	turns();
	assert_int_equal(p->state, VERBS_DOWN);
	assert_string_equal(member(0, "state"), "down");
	assert_string_equal(member(0, "used"), "no");
	assert_non_null(strstr(member(0, "why_not"), "after the start"));
	attr->state = IBV_PORT_ACTIVE;
	fake_verbs_event(d, IBV_EVENT_PORT_ACTIVE, NULL, 1);
	turns();
	assert_int_equal(p->state, VERBS_ACTIVE);
	/* The port's address is removed, and added again. */
	fake_verbs_clear_gids(d);
	fake_verbs_event(d, IBV_EVENT_GID_CHANGE, NULL, 1);
	turns();
	assert_int_equal(p->state, VERBS_DOWN);
	fake_verbs_gid(d, 1, IBV_GID_TYPE_ROCE_V2, "10.0.0.1");
	fake_verbs_event(d, IBV_EVENT_GID_CHANGE, NULL, 1);
	turns();
	assert_int_equal(p->state, VERBS_ACTIVE);
	/* Events that are ignored. */
	fake_verbs_event(d, IBV_EVENT_SM_CHANGE, NULL, 1);
	turns();
	assert_int_equal(p->state, VERBS_ACTIVE);
	/* Its addresses cannot be read. */
	fake_verbs_fail("ibv_query_gid", 1, EIO);
	fake_verbs_event(d, IBV_EVENT_GID_CHANGE, NULL, 1);
	turns();
	assert_int_equal(p->state, VERBS_DOWN);
	unwatch();
}

static void a_removed_device_stays_gone(void **state)
{
	struct fake_device *d = fake_verbs_roce("rxe0");
	struct verbs_cq *cq;

	(void)state;
	fake_verbs_roce("rxe1");
	open_all(NULL);
	watch();
	fake_verbs_remove(d, true);
	turns();
	assert_int_equal(verbs_port_at(v, 0)->state, VERBS_GONE);
	assert_int_equal(verbs_port_at(v, 1)->state, VERBS_ACTIVE);
	assert_string_equal(member(0, "state"), "removed");
	assert_non_null(strstr(member(0, "why_not"), "restart the daemon"));
	fake_verbs_event(d, IBV_EVENT_PORT_ACTIVE, NULL, 1);
	turns();
	assert_int_equal(verbs_port_at(v, 0)->state, VERBS_GONE);
	assert_int_equal(verbs_cq_open(verbs_port_at(v, 0), &loop, 1, &cq),
			 -ENODEV);
	unwatch();
}

/* A file plays the device's directory in sysfs. */
static void a_device_that_goes_silently_is_missed(void **state)
{
	struct fake_device *d[2] = { fake_verbs_roce("rxe0"),
				     fake_verbs_roce("rxe1") };
	char path[2][32] = { "/tmp/kvtest.XXXXXX", "/tmp/kvtest.XXXXXX" };
	char other[sizeof(path[0]) + 1];

	(void)state;
	for (int i = 0; i < 2; i++) {
		close(mkstemp(path[i]));
		fake_verbs_path(d[i], path[i]);
	}
	open_all(NULL);
	watch();
	uv_sleep(1100);
	turns();
	for (unsigned int i = 0; i < 2; i++)
		assert_int_equal(verbs_port_at(v, i)->state, VERBS_ACTIVE);
	unlink(path[0]);
	/* Another device of the same name has appeared. */
	snprintf(other, sizeof(other), "%sx", path[1]);
	close(open(other, O_CREAT | O_WRONLY, 0600));
	assert_int_equal(rename(other, path[1]), 0);
	uv_sleep(1100);
	turns();
	for (unsigned int i = 0; i < 2; i++)
		assert_int_equal(verbs_port_at(v, i)->state, VERBS_GONE);
	unlink(path[1]);
	unwatch();
}

static void events_that_cannot_be_read_are_the_end_of_a_device(void **state)
{
	struct fake_device *d = fake_verbs_roce("rxe0");

	(void)state;
	open_all(NULL);
	watch();
	fake_verbs_fail("ibv_get_async_event", 1, EINTR);
	fake_verbs_event(d, IBV_EVENT_SM_CHANGE, NULL, 1);
	turns();
	assert_int_equal(verbs_port_at(v, 0)->state, VERBS_ACTIVE);
	fake_verbs_fail("ibv_get_async_event", 1, EIO);
	fake_verbs_event(d, IBV_EVENT_SM_CHANGE, NULL, 1);
	turns();
	assert_int_equal(verbs_port_at(v, 0)->state, VERBS_GONE);
	unwatch();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(without_devices_there_are_no_ports),
		T(a_kernel_without_support_is_no_error_but_no_memory_is),
		T(an_active_port_is_used_with_what_its_device_can),
		T(the_best_address_is_chosen),
		T(what_is_not_used_is_listed_with_the_reason),
		T(infiniband_is_used_by_lid_and_iwarp_by_librdmacm),
		T(only_named_devices_are_used),
		T(a_named_device_that_is_not_there_or_unusable_is_an_error),
		T(lists_of_names_are_checked),
		T(a_device_that_cannot_be_asked_is_listed_and_the_others_used),
		T(permission_to_open_is_named_as_the_remedy),
		T(failures_of_closing_are_survived),
		T(more_ports_than_there_is_room_for_are_passed_over),
		T(what_does_not_fit_is_cut_with_dots),
		T(a_port_goes_down_and_comes_up_again),
		T(a_removed_device_stays_gone),
		T(a_device_that_goes_silently_is_missed),
		T(events_that_cannot_be_read_are_the_end_of_a_device),
	};

	alarm(60);
	pool_log_set_level(POOL_LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
