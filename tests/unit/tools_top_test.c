#include "tests/lib/unit.h"

#include <stdlib.h>
#include <string.h>

#include "tools/top.h"

#define GB 1073741824

/* One node as a master's page has it. */
static json_t *node(int index, const char *name, json_int_t used,
		    json_int_t evictable, json_int_t sent)
{
	return json_pack("{s:i, s:s, s:s, s:b, s:I, s:I, s:I, s:i, s:i, s:i, "
			 "s:I}",
			 "index", index, "name", name, "state", "alive",
			 "is_store", 1, "capacity", (json_int_t)4 * GB, "used",
			 used, "evictable", evictable, "objects", 10 + index,
			 "copies_coming", 1, "copies_leaving", 2, "sent_bytes",
			 sent);
}

static json_t *three(json_int_t sent)
{
	json_t *nodes = json_array();

	json_array_append_new(nodes,
			      node(2, "gpu3", (json_int_t)3 * GB, GB, 0));
	json_array_append_new(nodes, node(0, "gpu1", GB, GB, sent));
	json_array_append_new(nodes,
			      node(1, "gpu2", (json_int_t)2 * GB, 0, 0));
	return nodes;
}

static void take(struct top *t, json_t *nodes, uint64_t now_ms)
{
	json_t *status = json_pack("{s:{s:i, s:i, s:i, s:i}}", "repair",
				   "endangered", 7, "copies_under_way", 2,
				   "bytes_left", 1024, "bytes_per_second", 512);

	assert_int_equal(top_take(t, status, nodes, now_ms), 0);
	json_decref(status);
	json_decref(nodes);
}

/* The frame; the caller frees it. Each line fits, as do all. */
static char *frame(struct top *t, unsigned int width, unsigned int height)
{
	char *text = NULL, *line, *end;
	size_t len = 0;
	unsigned int n = 0;
	FILE *f = open_memstream(&text, &len);

	assert_non_null(f);
	top_print(t, "12:00:00", "gpu1:7071", width, height, f);
	assert_int_equal(fclose(f), 0);
	for (line = text; (end = strchr(line, '\n')); line = end + 1, n++)
		assert_true(end - line <= (long)width);
	if (height)
		assert_true(n <= height);
	return text;
}

static void assert_has(struct top *t, const char *wanted)
{
	char *text = frame(t, 80, 0);

	if (!strstr(text, wanted))
		fail_msg("no \"%s\" in:\n%s", wanted, text);
	free(text);
}

/* The nodes' names in the frame, "132". */
static void assert_order(struct top *t, const char *wanted)
{
	char *text = frame(t, 80, 0), got[8] = "";
	size_t n = 0;

	for (char *p = text; (p = strstr(p, "\ngpu")) && n < 7; p++)
		got[n++] = p[4];
	assert_string_equal(got, wanted);
	free(text);
}

static void a_frame_has_the_pool_and_a_line_per_node(void **state)
{
	struct top t = { 0 };

	(void)state;
	take(&t, three(0), 1000);
	assert_has(&t,
		   "kvpool top - 12:00:00, gpu1:7071, 3 of 3 nodes alive\n");
	assert_has(&t, "\nStores: 12.0 GiB, % used 50.0, % kept 33.3; "
		       "sent/s -\n");
	assert_has(&t,
		   "\nRepair: 7 short of copies, 2 in flight, 1.0 KiB left, "
		   "512 B/s\n");
	assert_has(
		&t,
		"\nNODE             STATE     %USED %KEPT       SIZE   "
		"OBJECTS   IN  OUT     SENT/S\n"
		"gpu1             alive      25.0   0.0    4.0 GiB        10 "
		"   1    2          -\n");
	top_fini(&t);
}

static void rates_are_those_between_two_samples(void **state)
{
	struct top t = { 0 };

	(void)state;
	take(&t, three(5000), 1000);
	take(&t, three(5000 + 2 * 2048), 3000);
	assert_has(&t, "sent/s 2.0 KiB\n");
	assert_has(&t, "   1    2    2.0 KiB\ngpu2 ");
	take(&t, three(1), 5000); /* the node has started again */
	assert_has(&t, "sent/s 0 B\n");
	top_fini(&t);
}

static void keys_choose_the_order(void **state)
{
	struct top t = { 0 };

	(void)state;
	take(&t, three(0), 1000);
	take(&t, three(1000), 2000);
	assert_order(&t, "123");
	assert_true(top_key(&t, 'u'));
	assert_order(&t, "321");
	assert_true(top_key(&t, 'k'));
	assert_order(&t, "231"); /* the same is kept: by name */
	assert_true(top_key(&t, 't'));
	assert_order(&t, "123");
	assert_true(top_key(&t, 'o'));
	assert_order(&t, "321");
	assert_true(top_key(&t, 'R'));
	assert_order(&t, "123");
	assert_true(top_key(&t, '?'));
	assert_order(&t, "123");
	assert_false(top_key(&t, 'q'));
	take(&t, three(2000), 3000); /* rates, whatever the order was */
	assert_has(&t, "sent/s 1000 B\n");
	top_fini(&t);
}

static void lies_and_long_names_stay_in_their_columns(void **state)
{
	struct top t = { 0 };
	char name[300];
	json_t *nodes = json_array(), *liar;

	(void)state;
	memset(name, 'x', 255);
	memcpy(name + 250, "-last", 6);
	liar = node(0, name, INT64_MAX, INT64_MAX, INT64_MAX);
	json_object_set_new(liar, "objects", json_integer(INT64_MAX));
	json_object_set_new(liar, "copies_coming", json_integer(-1));
	json_object_set_new(liar, "copies_leaving", json_integer(INT64_MAX));
	json_object_set_new(liar, "state", json_string("draining 4711 %"));
	json_array_append_new(nodes, liar);
	json_array_append_new(nodes, node(1, "\033[31m\xc2\x9b", -5, 9, -1));
	json_array_append_new(nodes, json_object());
	json_array_append_new(nodes, json_integer(1));
	take(&t, nodes, 1000);
	assert_has(&t, "\nxxxxxxxxx~x-last drain 99% 100.0   0.0    4.0 GiB "
		       "999999999    0 9999          -\n");
	assert_has(&t, "\n?[31m??          alive       0.0   0.0 ");
	assert_has(&t, "\n?                ?             -     -          -");
	free(frame(&t, 400, 0));
	top_fini(&t);
}

static void what_does_not_fit_is_counted(void **state)
{
	struct top t = { 0 };
	json_t *nodes = json_array();
	char *text;

	(void)state;
	for (int i = 0; i < (int)TOP_ROWS_MAX + 10; i++)
		json_array_append_new(nodes, node(i, "gpu", 0, 0, 0));
	take(&t, nodes, 1000);
	text = frame(&t, 80, 24);
	assert_non_null(strstr(text, "\n4087 more\n"));
	free(text);
	assert_has(&t, "\n10 more\n");
	free(frame(&t, 80, 6));
	top_fini(&t);
}

static void a_node_says_its_hits(void **state)
{
	struct top t = { 0 };
	json_t *status = json_pack("{s:i, s:i}", "hits", 3, "misses", 1);
	json_t *none = json_object();

	(void)state;
	assert_int_equal(top_take(&t, status, NULL, 1), 0);
	assert_has(&t, "\nThis node: 4 look-ups, % hits 75.0\n");
	assert_int_equal(top_take(&t, none, NULL, 2), 0);
	assert_has(&t, "\nThis node: 0 look-ups, % hits -\n");
	json_decref(status);
	json_decref(none);
	top_fini(&t);
}

static json_t *dir(json_t *name, json_int_t bytes, int objects, int age_s,
		   json_int_t lookups, json_int_t hits, json_t *best,
		   json_t *loaded)
{
	return json_pack("{s:o, s:I, s:i, s:i, s:I, s:I, s:o, s:o}", "name",
			 name, "bytes", bytes, "objects", objects,
			 "age_seconds", age_s, "lookups", lookups, "hits",
			 hits, "best_hits", best, "loaded_bytes", loaded);
}

/* The directories' names in the frame, "gpu1" as 1. */
static void directories_have_a_table_and_orders_of_their_own(void **state)
{
	struct top t = { .order = { [TOP_DIRECTORIES] = TOP_BY_SIZE } };
	json_t *list = json_array();

	(void)state;
	json_array_append_new(list, dir(json_string("gpu1"), 2048, 1, 7, 0, 0,
					json_integer(0), json_integer(0)));
	json_array_append_new(list, dir(json_string("gpu2"), 4096, 2, 7200,
					1000, 250, json_integer(625),
					json_integer(3 << 20)));
	json_array_append_new(list, dir(json_string("gpu3"), 1024, 3, 172800,
					10, 11, json_null(), json_null()));
	take(&t, three(0), 1000);
	assert_int_equal(top_take_directories(&t, list), 0);
	json_decref(list);
	assert_order(&t, "123");
	assert_true(top_key(&t, 'o'));
	assert_order(&t, "321");
	assert_true(top_key(&t, 'd'));
	assert_has(&t, "\nRepair: 7 short");
	assert_has(&t, "\nDIRECTORY                 SIZE   OBJECTS  LOOK-UPS "
		       "%HITS %BEST     LOADED    AGE\n"
		       "gpu2                   4.0 KiB         2      1000 "
		       " 25.0  62.5    3.0 MiB     2h\n"
		       "gpu1                   2.0 KiB         1         0 "
		       "    -     -        0 B     7s\n"
		       "gpu3                   1.0 KiB         3        10 "
		       "100.0     -          -     2d\n");
	assert_true(top_key(&t, 'o'));
	assert_order(&t, "321");
	assert_true(top_key(&t, 'h'));
	assert_order(&t, "321");
	assert_true(top_key(&t, 'a'));
	assert_order(&t, "321");
	assert_true(top_key(&t, 'R'));
	assert_order(&t, "123");
	assert_true(top_key(&t, 'u')); /* of nodes */
	assert_order(&t, "123");
	assert_true(top_key(&t, 'n'));
	assert_order(&t, "321");
	assert_true(top_key(&t, 'd'));
	assert_true(top_key(&t, 'R'));
	assert_order(&t, "321"); /* as it was */
	top_fini(&t);
}

static void directories_that_lie_stay_in_their_columns(void **state)
{
	struct top t = { .view = TOP_DIRECTORIES };
	json_t *list = json_array();

	(void)state;
	json_array_append_new(list, dir(json_null(), INT64_MAX, INT32_MAX,
					INT32_MAX, INT64_MAX, INT64_MAX,
					json_integer(INT64_MAX),
					json_integer(INT64_MAX)));
	json_array_append_new(list, dir(json_string(""), -1, -1, -1, -1, -1,
					json_integer(-1), json_integer(-1)));
	json_array_append_new(list, dir(json_string("\033[31m"), 0, 1, 119, 1,
					2, json_integer(3), json_string("x")));
	json_array_append_new(list, json_integer(1));
	take(&t, three(0), 1000);
	assert_has(&t, "\nDIRECTORY ");
	assert_int_equal(top_take_directories(&t, list), 0);
	json_decref(list);
	assert_has(&t, "\n(others)               8.0 EiB 999999999 999999999 "
		       "100.0 100.0    8.0 EiB 24855d\n");
	assert_has(&t, "\n(root)                     0 B         0         0 "
		       "    -     -        0 B      -\n");
	assert_has(&t, "\n?[31m                      0 B         1         1 "
		       "100.0 100.0          -   119s\n");
	assert_has(&t, "\n?                          0 B ");
	free(frame(&t, 400, 7));
	top_fini(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_frame_has_the_pool_and_a_line_per_node),
		cmocka_unit_test(rates_are_those_between_two_samples),
		cmocka_unit_test(keys_choose_the_order),
		cmocka_unit_test(lies_and_long_names_stay_in_their_columns),
		cmocka_unit_test(what_does_not_fit_is_counted),
		cmocka_unit_test(a_node_says_its_hits),
		cmocka_unit_test(
			directories_have_a_table_and_orders_of_their_own),
		cmocka_unit_test(directories_that_lie_stay_in_their_columns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
