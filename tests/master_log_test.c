/*
 * Who may connect may do so as often as he likes: what the log has of it stays
 * readable.
 */
#define NNODES 2
#include "master_fake_pool.h"

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

static void joining_again_and_again_does_not_fill_the_log(void **state)
{
	uint64_t start = pool_now_ms(),
		 before = pool_counter_value(&pool_log_left_out);
	int saved = dup(STDERR_FILENO);
	FILE *f = tmpfile();
	size_t joined, most;

	(void)state;
	assert_non_null(f);
	pool_log_set_level(POOL_LOG_INFO);
	assert_true(dup2(fileno(f), STDERR_FILENO) >= 0);
	for (int i = 0; i < JOINS; i++) {
		fake_dial(&node[0], &loop, master_port(master));
		fake_send_join(&node[0]);
		run_until(&loop, node[0].welcomed);
		fake_inventory(&node[0], NULL, 0, true);
		fake_hang_up(&node[0]);
	}
	assert_true(dup2(saved, STDERR_FILENO) >= 0);
	close(saved);
	most = POOL_LOG_BURST + 2 + (pool_now_ms() - start) / 1000;
	joined = lines_with(f, " joined as ");
	assert_in_range(joined, 1, most);
	assert_in_range(lines_with(f, ": connection lost: "), 1, most);
	assert_true(pool_counter_value(&pool_log_left_out) - before >=
		    JOINS - most);
	fclose(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			joining_again_and_again_does_not_fill_the_log, setup,
			teardown),
	};

	return run_all_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
