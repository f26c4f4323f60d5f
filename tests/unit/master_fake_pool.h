/*
 * A master on loopback and NNODES fake nodes, each on a host of its own, with
 * stores of NODE_BYTES(i) bytes; made anew for each test. Define NNODES before
 * including this, and NODE_BYTES if the stores differ in size.
 */
#ifndef TESTS_MASTER_FAKE_POOL_H
#define TESTS_MASTER_FAKE_POOL_H

#include "master_fake_node.h"

#include "master/impl.h"

#ifndef NODE_BYTES
#define NODE_BYTES(i) (1ull << 30)
#endif

static uv_loop_t loop;
static struct master *master;
static struct pool_metrics *metrics;	/* of the running master */
static struct master_opts opts;		/* of the next start_master */
static struct fake_node node[NNODES];
static char *dir, state_path[64];

/* Starts a master with the state file of the one before. */
static void start_master(void)
{
	opts.loop = &loop;
	strcpy(opts.listen.host, "127.0.0.1");
	opts.heartbeat_ms = HEARTBEAT_MS;
	opts.state_file = state_path;
	opts.metrics = metrics = pool_metrics_open();
	assert_int_equal(0, master_open(&opts, &master));
	assert_true(master_port(master) != 0);
}

static void on_master_closed(void *arg)
{
	*(bool *)arg = true;
}

static void stop_master(void)
{
	bool closed = false;

	master_close(master, on_master_closed, &closed);
	run_until(&loop, closed);
	pool_metrics_close(metrics);
	master = NULL;
}

static void make_nodes(void)
{
	static char hosts[NNODES][16];
	int i;

	memset(node, 0, sizeof(node));
	for (i = 0; i < NNODES; i++) {
		snprintf(hosts[i], sizeof(hosts[i]), "h%d", i);
		snprintf(node[i].name, sizeof(node[i].name), "node-%d", i);
		node[i].id[0] = (uint8_t)(i + 1);
		node[i].host = hosts[i];
		node[i].is_store = node[i].is_mount = true;
		node[i].capacity = NODE_BYTES(i);
	}
}

static int setup(void **state)
{
	(void)state;
	snprintf(state_path, sizeof(state_path), "%s/state", dir);
	unlink(state_path);
	assert_int_equal(0, uv_loop_init(&loop));
	memset(&opts, 0, sizeof(opts));
	make_nodes();
	start_master();
	return 0;
}

static int teardown(void **state)
{
	int i;

	(void)state;
	pool_clock_set(NULL);
	for (i = 0; i < NNODES; i++)
		fake_fini(&node[i]);
	stop_master();
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(0, uv_loop_close(&loop));
	return 0;
}

/* A figure of a directory of the root, in a window ("1h") or, NULL, of its own.
 * name NULL: of all other directories together. -1: no such directory; -2: the
 * figure is null; -3: there is none of this key. */
static inline json_int_t figure_of(const char *name, const char *window,
				   const char *key)
{
	json_t *j = master_directories_json(master), *d, *at;
	json_int_t v = -1;
	size_t i;

	json_array_foreach(json_object_get(j, "directories"), i, d) {
		const char *is = json_string_value(json_object_get(d, "name"));

		if (name ? !is || strcmp(is, name) != 0 : is != NULL)
			continue;
		at = window ? json_object_get(json_object_get(d, "asked"),
					      window) :
			      d;
		at = json_object_get(at, key);
		v = json_is_integer(at) ? json_integer_value(at) :
		    json_is_null(at)	? -2 :
					  -3;
	}
	json_decref(j);
	return v;
}

/* Rewrites the state file, to its end. */
static inline void rewrite_state(void)
{
	master_compaction_start(master);
	run_until(&loop, !master->compaction.walking &&
				 !master->compaction.syncing);
}

/* The body of main(). */
static int run_all_tests(const struct CMUnitTest *tests, size_t n)
{
	int failed;

	alarm(120);
	pool_log_set_level(POOL_LOG_ERROR);
	dir = unit_dir_make("/tmp/kvpool_master");
	failed = _cmocka_run_group_tests("tests", tests, n, NULL,
					 NULL);
	unlink(state_path);
	unit_dir_remove_empty(dir);
	return failed;
}

#endif
