/* Peers may connect as often as they like: the log stays readable. */
#define NNODES 2
#include "master_fake_pool.h"
#include "master/impl.h"

#define JOINS 200

static size_t lines_with(FILE *f, const char *text)
{
	char line[2048];
	size_t n = 0;

	rewind(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, text) != NULL;
	return n;
}

/* Redirects stderr to f; returns a duplicate of the former stderr. */
static int log_to(FILE *f)
{
	int saved = dup(STDERR_FILENO);

	assert_non_null(f);
	assert_true(saved >= 0);
	assert_true(dup2(fileno(f), STDERR_FILENO) >= 0);
	return saved;
}

static void log_again(int saved)
{
	assert_true(dup2(saved, STDERR_FILENO) >= 0);
	close(saved);
}

static void joining_again_and_again_does_not_fill_the_log(void **state)
{
	uint64_t start = pool_now_ms(),
		 before = pool_counter_value(&pool_log_left_out);
	FILE *f = tmpfile();
	size_t joined, most;
	int saved;

	(void)state;
	pool_log_set_level(POOL_LOG_INFO);
	saved = log_to(f);
	for (int i = 0; i < JOINS; i++) {
		fake_dial(&node[0], &loop, master_port(master));
		fake_send_join(&node[0]);
		run_until(&loop, node[0].welcomed);
		fake_inventory(&node[0], NULL, 0, true);
		fake_hang_up(&node[0]);
	}
	log_again(saved);
	most = POOL_LOG_BURST + 2 + (pool_now_ms() - start) / 1000;
	joined = lines_with(f, " joined as ");
	assert_in_range(joined, 1, most);
	assert_in_range(lines_with(f, ": connection lost: "), 1, most);
	assert_true(pool_counter_value(&pool_log_left_out) - before >=
		    JOINS - most);
	fclose(f);
}

static void what_is_refused_does_not_fill_the_log(void **state)
{
	uint64_t start = pool_now_ms();
	FILE *f = tmpfile();
	int saved, i;
	size_t most;

	(void)state;
	stop_master();
	opts.sessions_addr_max = 1;
	start_master();
	pool_log_set_level(POOL_LOG_WARN);
	fake_dial(&node[0], &loop, master_port(master));
	fake_send_join(&node[0]);
	run_until(&loop, node[0].welcomed);
	saved = log_to(f);
	for (i = 0; i < JOINS; i++) {
		fake_dial(&node[1], &loop, master_port(master));
		run_until(&loop, node[1].closed);
		assert_true(master_limits_names(master, 1, UINT32_MAX, 0) < 0);
	}
	log_again(saved);
	most = 2 + (pool_now_ms() - start) / 1000;
	assert_in_range(lines_with(f, "a connection was refused"), 1, most);
	assert_in_range(lines_with(f, "refused to user 1"), 1, most);
	fclose(f);
	opts.sessions_addr_max = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(joining_again_and_again_does_not_fill_the_log),
		T(what_is_refused_does_not_fill_the_log),
	};

	return run_all_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
