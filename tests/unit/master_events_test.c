#include "tests/lib/unit.h"

#include <string.h>

#include "master/events.h"

static struct master_events ev;

static int setup(void **state)
{
	(void)state;
	return master_events_init(&ev);
}

static int teardown(void **state)
{
	(void)state;
	master_events_fini(&ev);
	return 0;
}

static json_int_t number(const json_t *json, const char *member)
{
	return json_integer_value(json_object_get(json, member));
}

static const json_t *at(const json_t *json, size_t i)
{
	return json_array_get(json_object_get(json, "events"), i);
}

static void events_are_listed_from_a_number_on(void **state)
{
	json_t *json;

	(void)state;
	json = master_events_json(&ev, 0, 10);
	assert_null(at(json, 0));
	assert_int_equal(number(json, "next"), 0);
	json_decref(json);
	master_event(&ev, "joined", "%s (%s)", "a", "h:1");
	master_event(&ev, "left", "%s", "a");
	master_event(&ev, "gone", "%s", "a");
	json = master_events_json(&ev, 1, 1);
	assert_string_equal(json_string_value(json_object_get(at(json, 0),
							      "kind")),
			    "left");
	assert_int_equal(number(at(json, 0), "number"), 1);
	assert_int_equal(number(json, "next"), 2);
	assert_null(at(json, 1));
	json_decref(json);
	json = master_events_json(&ev, 3, 1);
	assert_null(at(json, 0));
	assert_int_equal(number(json, "next"), 3);
	json_decref(json);
}

/* Whoever followed the master before this one gets all of this one's. */
static void a_number_of_another_master_begins_anew(void **state)
{
	json_t *json;

	(void)state;
	master_event(&ev, "ready", "epoch 2");
	json = master_events_json(&ev, 1000, 10);
	assert_int_equal(number(at(json, 0), "number"), 0);
	assert_int_equal(number(json, "next"), 1);
	assert_int_equal(number(json, "forgotten"), 0);
	json_decref(json);
}

static void the_oldest_are_forgotten(void **state)
{
	json_t *json;

	(void)state;
	for (unsigned int i = 0; i < MASTER_EVENTS_MAX + 7; i++)
		master_event(&ev, "joined", "%u", i);
	json = master_events_json(&ev, 2, 3);
	assert_int_equal(number(json, "forgotten"), 5);
	assert_string_equal(json_string_value(json_object_get(at(json, 0),
							      "text")),
			    "7");
	assert_int_equal(number(json, "next"), 10);
	json_decref(json);
}

static void long_and_odd_names_are_survived(void **state)
{
	char name[600];
	json_t *json;

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	master_event(&ev, "joined", "%s", name);
	master_event(&ev, "joined", "\xff<b>\"\n");
	json = master_events_json(&ev, 0, 10);
	assert_int_equal(json_string_length(json_object_get(at(json, 0),
							    "text")),
			 MASTER_EVENT_TEXT - 1);
	assert_string_equal(json_string_value(json_object_get(at(json, 1),
							      "text")),
			    "\\xff<b>\"\n");
	json_decref(json);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			events_are_listed_from_a_number_on, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_number_of_another_master_begins_anew, setup,
			teardown),
		cmocka_unit_test_setup_teardown(the_oldest_are_forgotten, setup,
						teardown),
		cmocka_unit_test_setup_teardown(long_and_odd_names_are_survived,
						setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
