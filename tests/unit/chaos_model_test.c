/* Which names the checker of it_chaos excuses from being readable: those that
 * nodes report as evicted, and no others. */
#include "tests/lib/unit.h"

#include "tests/chaos/chaos.h"

/* Stubs of chaos_clock.c: time stands still, and every mount is clean. */
uint64_t chaos_now_ms(void)
{
	return 0;
}

struct chaos_mark chaos_mark_take(const struct chaos_mount *m)
{
	return (struct chaos_mark){ .mount = m };
}

bool chaos_mark_clean(const struct chaos_mark *mark)
{
	(void)mark;
	return true;
}

/* All names are acknowledged. */
static int setup(void **state)
{
	(void)state;
	memset(&chaos, 0, sizeof(chaos));
	assert_int_equal(0, chaos_model_init());
	for (unsigned int i = 0; i < chaos.nkeys; i++) {
		struct chaos_key *key = &chaos.keys[i];

		chaos_version_ack(key, chaos_version_begin(key, 0, false));
		assert_int_equal(1, chaos_owed(key));
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(chaos.keys);
	return 0;
}

/* Key k and the `more` keys after it are excused, and no others. */
static void only_these(unsigned int k, unsigned int more)
{
	for (unsigned int i = 0; i < chaos.nkeys; i++)
		if (i >= k && i <= k + more)
			assert_int_equal(0, chaos_owed(&chaos.keys[i]));
		else
			assert_int_not_equal(0, chaos_owed(&chaos.keys[i]));
}

static void an_evicted_name_is_excused_and_no_other(void **state)
{
	(void)state;
	chaos_lossy_path(chaos.keys[3].name);
	only_these(3, 0);
}

static void a_temporary_is_the_name_that_it_becomes(void **state)
{
	char path[96];

	(void)state;
	snprintf(path, sizeof(path), "%s.7.tmp", chaos.keys[3].name);
	chaos_lossy_path(path);
	only_these(3, 0);
}

static void a_path_that_is_no_name_excuses_nothing(void **state)
{
	(void)state;
	chaos_lossy_path("elsewhere/k3");
	only_these(chaos.nkeys, 0);
}

/* A node that was disconnected during a rename reports the former name. */
static void what_was_moved_from_there_is_excused_too(void **state)
{
	struct chaos_key *key = chaos.keys;

	(void)state;
	chaos_version_ack(&key[4], chaos_version_move(&key[4], 0, &key[3],
						      true));
	chaos_lossy_path(key[3].name);
	only_these(3, 1);
}

static void what_is_written_later_is_owed_again(void **state)
{
	struct chaos_key *key = &chaos.keys[3];

	(void)state;
	chaos_lossy_path(key->name);
	chaos_version_ack(key, chaos_version_begin(key, 0, false));
	only_these(chaos.nkeys, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(an_evicted_name_is_excused_and_no_other),
		T(a_temporary_is_the_name_that_it_becomes),
		T(a_path_that_is_no_name_excuses_nothing),
		T(what_was_moved_from_there_is_excused_too),
		T(what_is_written_later_is_owed_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
