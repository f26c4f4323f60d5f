/* Extended attributes of one entry: the set, its limits, its protobuf form. */
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "pool/conn/wire.h"
#include "pool/model/xattrs.h"

#define RECORD 5 /* bytes of a record besides its name and value */

static int set(struct pool_xattrs **x, const char *name, const char *value)
{
	return pool_xattrs_set(x, name, value, strlen(value), 0);
}

static void assert_value(const struct pool_xattrs *x, const char *name,
			 const char *value)
{
	size_t len = 12345;
	const void *v = pool_xattrs_get(x, name, &len);

	assert_non_null(v);
	assert_int_equal(strlen(value), len);
	assert_memory_equal(v, value, len);
}

static unsigned int count(const struct pool_xattrs *x)
{
	size_t cursor = 0, len;
	unsigned int n = 0;
	const char *name;
	const void *value;

	while (pool_xattrs_next(x, &cursor, &name, &value, &len))
		n++;
	return n;
}

static void the_empty_set_has_nothing_and_equals_itself(void **state)
{
	struct pool_xattrs *x = NULL, *y;
	size_t len;

	(void)state;
	assert_null(pool_xattrs_get(x, "user.a", &len));
	assert_int_equal(0, count(x));
	assert_int_equal(0, pool_xattrs_dup(x, &y));
	assert_null(y);
	assert_true(pool_xattrs_equal(NULL, NULL));
	pool_xattrs_free(NULL);
}

static void what_is_set_is_read_back_and_replaced_whole(void **state)
{
	struct pool_xattrs *x = NULL;
	size_t len = 1;

	(void)state;
	assert_int_equal(0, set(&x, "user.a", "one"));
	assert_int_equal(0, set(&x, "user.ab", "two"));
	assert_int_equal(0, set(&x, "user.b", ""));
	assert_value(x, "user.a", "one");
	assert_value(x, "user.ab", "two");
	assert_non_null(pool_xattrs_get(x, "user.b", &len));
	assert_int_equal(0, len);
	assert_null(pool_xattrs_get(x, "user.", &len));
	assert_int_equal(0, set(&x, "user.a", "a longer one"));
	assert_value(x, "user.a", "a longer one");
	assert_value(x, "user.ab", "two");
	assert_int_equal(3, count(x));
	pool_xattrs_free(x);
}

static void values_may_hold_zero_bytes(void **state)
{
	struct pool_xattrs *x = NULL;
	size_t len;

	(void)state;
	assert_int_equal(0, pool_xattrs_set(&x, "user.z", "\0a\0", 3, 0));
	assert_int_equal(0, set(&x, "user.y", "after"));
	assert_memory_equal(pool_xattrs_get(x, "user.z", &len), "\0a\0", 3);
	assert_int_equal(3, len);
	assert_value(x, "user.y", "after");
	pool_xattrs_free(x);
}

static void removing_the_last_one_leaves_the_empty_set(void **state)
{
	struct pool_xattrs *x = NULL;
	size_t len;

	(void)state;
	assert_int_equal(0, set(&x, "user.a", "1"));
	assert_int_equal(0, set(&x, "user.b", "2"));
	assert_int_equal(0, set(&x, "user.c", "3"));
	assert_int_equal(0, pool_xattrs_set(&x, "user.b", NULL, 0, 0));
	assert_null(pool_xattrs_get(x, "user.b", &len));
	assert_value(x, "user.a", "1");
	assert_value(x, "user.c", "3");
	assert_int_equal(-ENODATA, pool_xattrs_set(&x, "user.b", NULL, 0, 0));
	assert_int_equal(0, pool_xattrs_set(&x, "user.a", NULL, 0, 0));
	assert_int_equal(0, pool_xattrs_set(&x, "user.c", NULL, 0, 0));
	assert_null(x);
}

static void create_and_replace_are_held_to_their_word(void **state)
{
	struct pool_xattrs *x = NULL;

	(void)state;
	assert_int_equal(-ENODATA, pool_xattrs_set(&x, "user.a", "1", 1,
						   XATTR_REPLACE));
	assert_null(x);
	assert_int_equal(0, pool_xattrs_set(&x, "user.a", "1", 1,
					    XATTR_CREATE));
	assert_int_equal(-EEXIST, pool_xattrs_set(&x, "user.a", "2", 1,
						  XATTR_CREATE));
	assert_value(x, "user.a", "1");
	assert_int_equal(0, pool_xattrs_set(&x, "user.a", "3", 1,
					    XATTR_REPLACE));
	assert_value(x, "user.a", "3");
	pool_xattrs_free(x);
}

static void the_bound_is_on_all_together(void **state)
{
	static char big[POOL_XATTRS_MAX + 1];
	struct pool_xattrs *x = NULL;
	size_t room = POOL_XATTRS_MAX - 2 * (RECORD + 1) - 10;

	(void)state;
	assert_int_equal(-ENOSPC, pool_xattrs_set(&x, "a", big, sizeof(big),
						  0));
	assert_int_equal(-ENOSPC, pool_xattrs_set(&x, "a", big,
						  1u << 20, 0));
	assert_null(x);
	assert_int_equal(0, pool_xattrs_set(&x, "a", big, 10, 0));
	assert_int_equal(-ENOSPC, pool_xattrs_set(&x, "b", big, room + 1, 0));
	assert_int_equal(1, count(x));
	assert_int_equal(0, pool_xattrs_set(&x, "b", big, room, 0));
	assert_int_equal(-ENOSPC, set(&x, "c", ""));
	/* The replaced value does not count. */
	assert_int_equal(0, pool_xattrs_set(&x, "b", big, room, 0));
	assert_int_equal(-ENOSPC, pool_xattrs_set(&x, "b", big, room + 1, 0));
	assert_int_equal(2, count(x));
	pool_xattrs_free(x);
}

static void names_are_at_most_255_bytes(void **state)
{
	struct pool_xattrs *x = NULL;
	char name[257];

	(void)state;
	memset(name, 'n', 256);
	name[256] = '\0';
	assert_int_equal(-ERANGE, set(&x, name, "v"));
	assert_null(x);
	name[255] = '\0';
	assert_int_equal(0, set(&x, name, "v"));
	assert_value(x, name, "v");
	pool_xattrs_free(x);
}

static void sets_are_equal_in_any_order(void **state)
{
	struct pool_xattrs *a = NULL, *b = NULL;

	(void)state;
	assert_int_equal(0, set(&a, "user.a", "1"));
	assert_false(pool_xattrs_equal(a, NULL));
	assert_false(pool_xattrs_equal(NULL, a));
	assert_int_equal(0, set(&a, "user.b", "22"));
	assert_int_equal(0, set(&b, "user.b", "22"));
	assert_false(pool_xattrs_equal(a, b));
	assert_false(pool_xattrs_equal(b, a));
	assert_int_equal(0, set(&b, "user.a", "1"));
	assert_true(pool_xattrs_equal(a, b));
	assert_true(pool_xattrs_equal(b, a));
	assert_int_equal(0, set(&b, "user.a", "2"));
	assert_false(pool_xattrs_equal(a, b));
	assert_int_equal(0, set(&b, "user.a", "11"));
	assert_false(pool_xattrs_equal(a, b));
	pool_xattrs_free(a);
	pool_xattrs_free(b);
}

static void a_copy_lives_on_its_own(void **state)
{
	struct pool_xattrs *a = NULL, *b;

	(void)state;
	assert_int_equal(0, set(&a, "user.a", "1"));
	assert_int_equal(0, pool_xattrs_dup(a, &b));
	assert_true(pool_xattrs_equal(a, b));
	assert_int_equal(0, set(&a, "user.a", "2"));
	assert_value(b, "user.a", "1");
	pool_xattrs_free(a);
	assert_value(b, "user.a", "1");
	pool_xattrs_free(b);
}

/* ---- protobuf ---- */

static void the_protobuf_form_comes_back_equal(void **state)
{
	struct pool_xattrs *a = NULL, *b = NULL;
	Kvpool__Meta m = KVPOOL__META__INIT, *back;
	uint8_t buf[256];
	size_t len;

	(void)state;
	assert_int_equal(0, set(&a, "user.a", "1"));
	assert_int_equal(0, set(&a, "user.empty", ""));
	assert_int_equal(0, pool_xattrs_set(&a, "user.z", "\0\1", 2, 0));
	assert_int_equal(0, pool_xattrs_to_pb(a, &m.xattrs, &m.n_xattrs));
	assert_int_equal(3, m.n_xattrs);
	len = kvpool__meta__get_packed_size(&m);
	assert_true(len <= sizeof(buf));
	kvpool__meta__pack(&m, buf);
	free(m.xattrs);
	back = kvpool__meta__unpack(NULL, len, buf);
	assert_non_null(back);
	assert_int_equal(0, pool_xattrs_from_pb(back->xattrs, back->n_xattrs,
						&b));
	kvpool__meta__free_unpacked(back, NULL);
	assert_true(pool_xattrs_equal(a, b));
	assert_int_equal(3, count(b));
	pool_xattrs_free(a);
	pool_xattrs_free(b);
}

static void the_empty_set_needs_no_protobuf(void **state)
{
	Kvpool__Xattr **list = (void *)&list;
	struct pool_xattrs *x = (void *)&list;
	size_t n = 7;

	(void)state;
	assert_int_equal(0, pool_xattrs_to_pb(NULL, &list, &n));
	assert_null(list);
	assert_int_equal(0, n);
	assert_int_equal(0, pool_xattrs_from_pb(NULL, 0, &x));
	assert_null(x);
}

static int from_two(char *name0, size_t len0, char *name1, size_t len1,
		    struct pool_xattrs **ret_x)
{
	static uint8_t bytes[2 * POOL_XATTRS_MAX];
	Kvpool__Xattr a[2] = { KVPOOL__XATTR__INIT, KVPOOL__XATTR__INIT };
	Kvpool__Xattr *list[2] = { &a[0], &a[1] };

	a[0].name = name0;
	a[0].value.data = bytes;
	a[0].value.len = len0;
	a[1].name = name1;
	a[1].value.data = bytes;
	a[1].value.len = len1;
	return pool_xattrs_from_pb(list, 2, ret_x);
}

static void bad_protobuf_is_refused_and_nothing_is_kept(void **state)
{
	struct pool_xattrs *x = NULL;
	char good[] = "user.a", other[] = "user.b", empty[] = "";
	char name[257];

	(void)state;
	memset(name, 'n', 256);
	name[256] = '\0';
	assert_int_equal(-EINVAL, from_two(good, 1, empty, 1, &x));
	assert_int_equal(-EINVAL, from_two(good, 1, NULL, 1, &x));
	assert_int_equal(-EINVAL, from_two(good, 1, name, 1, &x));
	assert_int_equal(-EINVAL, from_two(good, 1, other, POOL_XATTRS_MAX + 1,
					   &x));
	assert_int_equal(-EINVAL, from_two(good, POOL_XATTRS_MAX / 2, other,
					   POOL_XATTRS_MAX / 2, &x));
	assert_null(x);
	/* The same name twice: one attribute. */
	assert_int_equal(0, from_two(good, 1, good, 2, &x));
	assert_int_equal(1, count(x));
	pool_xattrs_free(x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_empty_set_has_nothing_and_equals_itself),
		cmocka_unit_test(what_is_set_is_read_back_and_replaced_whole),
		cmocka_unit_test(values_may_hold_zero_bytes),
		cmocka_unit_test(removing_the_last_one_leaves_the_empty_set),
		cmocka_unit_test(create_and_replace_are_held_to_their_word),
		cmocka_unit_test(the_bound_is_on_all_together),
		cmocka_unit_test(names_are_at_most_255_bytes),
		cmocka_unit_test(sets_are_equal_in_any_order),
		cmocka_unit_test(a_copy_lives_on_its_own),
		cmocka_unit_test(the_protobuf_form_comes_back_equal),
		cmocka_unit_test(the_empty_set_needs_no_protobuf),
		cmocka_unit_test(bad_protobuf_is_refused_and_nothing_is_kept),
	};

	alarm(30);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
