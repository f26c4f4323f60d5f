/* Publications: the time that they take, the same content again, and files
 * replaced while their publication is in flight (pool/node/own.c, ops_done.c).
 */
#include "tests/lib/unit.h"

#include <errno.h>

#include "tests/unit/pool_node_fixture.h"

static void a_publication_gets_a_generation(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;
	char gen[32];

	start_pool(f, 1);
	publish(f, 0, "k", 100000, 1);
	e = find(f, 0, "k");
	assert_int_equal(1, f->m[0].calls.published);
	assert_int_equal(NODE_HELD, e->obj->state);
	assert_true(e->obj->gen == e->gen && e->gen != 0);
	assert_int_equal(100000, e->size);
	assert_null(e->obj->w);
	assert_true(e->obj->counted);
	assert_info(f, 0, "k", "user.kvpool.state", "held");
	assert_info(f, 0, "k", "user.kvpool.nodes", "node0");
	assert_true(pool_node_info(node(f, 0), &e->e,
				   "user.kvpool.generation", gen,
				   sizeof(gen)) > 0);
	assert_string_equal("1.", (gen[2] = '\0', gen));
	assert_readable(f, 0, "k", 100000, 1);
}

static void an_empty_file_is_published_too(void **state)
{
	struct fixture *f = *state;

	start_pool(f, 2);
	publish(f, 0, "k", 0, 1);
	run_until(f, find(f, 1, "k"));
	assert_readable(f, 0, "k", 0, 1);
	assert_readable(f, 1, "k", 0, 1);
}

static void a_pending_file_is_published_under_its_last_name(void **state)
{
	struct fixture *f = *state;

	start_node(f, 0);
	start_node(f, 1);
	put(f, 0, "a", 1000, 1);
	run_until(f, is_pending(f, 0, "a"));
	assert_int_equal(0, rename_to(f, 0, "a", "b", false));
	assert_true(is_pending(f, 0, "b"));
	assert_null(find(f, 0, "a"));
	start_master(f);
	run_until(f, is_published(f, 0, "b") && find(f, 1, "b"));
	assert_null(find(f, 1, "a"));
	assert_count(1, f, 0, published);
	assert_readable(f, 1, "b", 1000, 1);
}

static uint64_t acks(struct fixture *f)
{
	return pool_hist_count(&node(f, 0)->c.publish);
}

static uint64_t acked_ms(struct fixture *f)
{
	return node(f, 0)->c.publish.sum_ns / 1000000;
}

/* kvpool_node_publish_seconds: every ack of a file, from its close. */
static void each_publication_is_timed_from_its_close(void **state)
{
	struct fixture *f = *state;
	uint64_t before;

	start_node(f, 0);
	put(f, 0, "k", 1000, 1);
	run_until(f, is_pending(f, 0, "k"));
	run_for(f, 100); /* as long as there is no master */
	assert_int_equal(0, acks(f));
	start_master(f);
	run_until(f, is_published(f, 0, "k"));
	assert_int_equal(1, acks(f));
	assert_in_range(acked_ms(f), 100, 10000);
	/* The same content, which the master acks, too; a published file that
	 * is renamed; a temporary one, which waits for its name. */
	put(f, 0, "k", 1000, 1);
	run_until(f, is_published(f, 0, "k"));
	assert_int_equal(2, acks(f));
	before = acked_ms(f);
	run_for(f, 1000);
	assert_int_equal(0, rename_to(f, 0, "k", "l", false));
	run_until(f, is_published(f, 0, "l"));
	assert_int_equal(3, acks(f));
	put(f, 0, "m.tmp", 1000, 2);
	run_for(f, 1000);
	assert_int_equal(0, rename_to(f, 0, "m.tmp", "m", false));
	run_until(f, is_published(f, 0, "m"));
	assert_int_equal(4, acks(f));
	assert_in_range(acked_ms(f), before, before + 999);
}

/* The kernel, or a mapping, may refer to it for a while after its close. */
static void a_seal_that_is_retried_counts_too(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	int fd;

	f->opts.reserve = true;
	start_pool(f, 1);
	o = create_in(f, 0, pool_node_root(node(f, 0)), "k", 4096);
	assert_false(o->w->served);
	write_bytes(f, 0, o, 1000, 1);
	fd = pool_store_fd(pool_node_store(node(f, 0)), o->id, O_RDWR);
	assert_true(fd >= 0);
	close_whole(f, 0, o);
	run_for(f, 200);
	assert_true(pool_counter_value(&node(f, 0)->c.seal_retries) > 0);
	close(fd);
	run_until(f, is_published(f, 0, "k"));
	assert_int_equal(1, acks(f));
	assert_in_range(acked_ms(f), 200, 10000);
}

static void one_fsync_reports_a_refused_publication(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *root;
	struct node_object *o;

	start_node(f, 0);
	root = pool_node_root(node(f, 0));
	put(f, 0, "k", 1000, 1);
	run_until(f, is_pending(f, 0, "k"));
	o = find(f, 0, "k")->own;
	node_op_forget(node(f, 0), o);
	node_publish_done(node(f, 0), o, -EISDIR, 0);
	assert_null(find(f, 0, "k"));
	assert_int_equal(-EISDIR, pool_node_lost(root));
	assert_int_equal(0, pool_node_lost(root));
	/* A file that a newer version has overtaken was replaced, not lost. */
	put(f, 0, "k", 1000, 1);
	run_until(f, is_pending(f, 0, "k"));
	o = find(f, 0, "k")->own;
	node_op_forget(node(f, 0), o);
	node_publish_done(node(f, 0), o, -ESTALE, 0);
	assert_int_equal(0, pool_node_lost(root));
	assert_int_equal(0, acks(f)); /* refusals are not timed */
}

static void a_new_generation_replaces_the_other_node_s_copy(void **state)
{
	struct fixture *f = *state;
	uint64_t gen;

	start_pool(f, 2);
	publish_and_see(f, "k", 1000, 1);
	assert_readable(f, 1, "k", 1000, 1);
	gen = find(f, 1, "k")->gen;
	publish(f, 0, "k", 2000, 2);
	run_until(f, find(f, 1, "k") && find(f, 1, "k")->gen > gen);
	assert_int_equal(1, f->m[1].calls.changed);
	assert_int_equal(1, f->m[1].calls.object_gone);
	assert_readable(f, 1, "k", 2000, 2);
	/* And in the other direction: a node without a copy replaces it. */
	publish(f, 1, "k", 3000, 3);
	run_until(f, find(f, 0, "k") && find(f, 0, "k")->size == 3000);
	assert_readable(f, 0, "k", 3000, 3);
}

static void what_a_client_writes_reaches_a_store(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;

	start_master(f);
	start_node(f, 0);
	f->opts.store_size = 0;
	f->opts.buffer_size = 16 * MIB;
	start_node(f, 1);
	run_until(f, is_up(f, 0) && is_up(f, 1) &&
			     node(f, 0)->nmembers == 2 &&
			     node(f, 1)->nmembers == 2);
	publish(f, 1, "k", 100000, 1);
	e = find(f, 1, "k");
	run_until(f, find(f, 0, "k") && find(f, 0, "k")->obj &&
			     find(f, 0, "k")->obj->counted);
	assert_readable(f, 0, "k", 100000, 1);
	run_until(f, e->obj && !e->obj->w); /* this node may evict it now */
	assert_false(e->obj->counted);
}

/* ---- the same content again ---- */

static void the_same_content_is_no_new_generation(void **state)
{
	struct fixture *f = *state;
	uint64_t gen, id;

	start_pool(f, 1);
	publish(f, 0, "k", 100000, 1);
	gen = find(f, 0, "k")->gen;
	id = find(f, 0, "k")->obj->id;
	put(f, 0, "k", 100000, 1);
	assert_true(id != find(f, 0, "k")->own->id);
	run_until(f, is_published(f, 0, "k"));
	assert_count(1, f, 0, same_content);
	assert_count(1, f, 0, published);
	assert_int_equal(gen, find(f, 0, "k")->gen);
	assert_int_equal(id, find(f, 0, "k")->obj->id);
	assert_int_equal(1, f->m[0].calls.object_gone);

	publish(f, 0, "k", 100000, 2);
	assert_count(2, f, 0, published);
	assert_true(find(f, 0, "k")->gen > gen);
	assert_readable(f, 0, "k", 100000, 2);
}

/* The holder is dead, which the master has not noticed yet. */
static void the_same_content_is_not_left_to_a_node_that_has_gone(void **state)
{
	struct fixture *f = *state;
	uint64_t gen;

	start_pool(f, 2);
	publish(f, 0, "read", 100000, 1);
	publish(f, 0, "unread", 100000, 2);
	run_until(f, find(f, 1, "read") && find(f, 1, "unread"));
	assert_readable(f, 1, "read", 100000, 1); /* makes a cached copy */
	gen = find(f, 1, "read")->gen;
	stop_node(f, 0);
	put(f, 1, "read", 100000, 1);
	put(f, 1, "unread", 100000, 2);
	run_until(f, is_published(f, 1, "read") &&
			     is_published(f, 1, "unread"));
	assert_int_equal(gen, find(f, 1, "read")->gen);
	assert_count(2, f, 1, same_content);
	run_for(f, 10 * HEARTBEAT_MS);
	assert_readable(f, 1, "read", 100000, 1);
	assert_readable(f, 1, "unread", 100000, 2);
	assert_true(find(f, 1, "read")->obj->counted);
}

/* The same for a client, which keeps the object until a living store has a
 * copy. */
static void a_clients_same_content_is_not_left_to_it_either(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;

	start_pool(f, 1);
	f->opts.store_size = 0;
	f->opts.buffer_size = 16 * MIB;
	start_node(f, 1);
	run_until(f, is_up(f, 1));
	publish(f, 0, "k", 100000, 1);
	run_until(f, find(f, 1, "k"));
	stop_node(f, 0);
	put(f, 1, "k", 100000, 1);
	run_until(f, is_published(f, 1, "k"));
	assert_count(1, f, 1, same_content);
	run_for(f, 10 * HEARTBEAT_MS);
	e = find(f, 1, "k");
	assert_non_null(e);
	assert_non_null(e->obj);
	assert_non_null(e->obj->w); /* no store has it */
	f->opts.store_size = STORE_SIZE;
	start_node(f, 2);
	run_until(f, find(f, 2, "k") && find(f, 2, "k")->obj &&
			     find(f, 2, "k")->obj->counted && !e->obj->w);
	assert_readable(f, 2, "k", 100000, 1);
}

static void a_put_does_not_count_on_a_copy_in_doubt(void **state)
{
	struct fixture *f = *state;
	uint64_t id;

	start_pool(f, 1);
	publish(f, 0, "k", 100000, 1);
	damage(f, 0, find(f, 0, "k")->obj);
	id = find(f, 0, "k")->obj->id;
	find(f, 0, "k")->obj->verified = false;
	publish(f, 0, "k", 100000, 1);
	assert_true(id != find(f, 0, "k")->obj->id);
	assert_readable(f, 0, "k", 100000, 1);
}

/* k is a, then b, then a again before b's publication is acked. */
static void the_same_content_again_is_published_if_another_was_on_its_way(
	void **state)
{
	struct fixture *f = *state;

	start_pool(f, 2);
	put(f, 0, "a.tmp", 1000, 1);
	publish_and_see(f, "k", 1000, 1);
	put(f, 0, "k", 1000, 2);
	run_until(f, !pool_list_empty(&node(f, 0)->ops_sent));
	assert_true(is_pending(f, 0, "k"));
	assert_int_equal(0, rename_to(f, 0, "a.tmp", "k", false));
	run_until(f, is_published(f, 0, "k") &&
			     pool_list_empty(&node(f, 0)->ops_sent) &&
			     pool_list_empty(&node(f, 0)->ops_waiting));
	run_for(f, 100);
	assert_readable(f, 0, "k", 1000, 1);
	assert_readable(f, 1, "k", 1000, 1);
}

/* ---- replaced on its way to the master ---- */

/* k is b, whose publication was in flight when an open file replaced it; so the
 * master has a removed version. Returns k's open file (with a reference). */
static struct node_object *replaced_on_its_way(struct fixture *f, const char *k)
{
	struct node_object *open;
	struct node_entry *e;

	do {
		publish(f, 0, k, 1000, 1);
		run_until(f, find(f, 1, k));
		e = find(f, 0, k);
		put(f, 0, k, 1000, 2);
		run_until(f, !e->own || (is_pending(f, 0, k) &&
					 node_op_sent(node(f, 0), e->own)));
	} while (!e->own); /* see put_on_its_way */
	open = node_object_ref(create_in(f, 0, pool_node_root(node(f, 0)),
					 "open.tmp", 0));
	assert_int_equal(0, rename_to(f, 0, "open.tmp", k, false));
	run_until(f, open->w->phantom_gen && e->gen == open->w->phantom_gen);
	run_until(f, find(f, 1, k)->gen == e->gen);
	return open;
}

static void a_name_that_is_replaced_again_and_again_is_always_there(
	void **state)
{
	struct fixture *f = *state;
	struct node_object *open, *o;

	start_pool(f, 2);
	open = replaced_on_its_way(f, "k");
	o = create_in(f, 0, pool_node_root(node(f, 0)), "b.tmp", 0);
	write_bytes(f, 0, o, 1000, 2);
	assert_int_equal(0, rename_to(f, 0, "b.tmp", "k", false));
	pool_node_writer_closed(node(f, 0), open);
	node_object_unref(node(f, 0), open);
	run_for(f, 50);
	assert_non_null(find(f, 1, "k"));
	close_whole(f, 0, o);
	run_until(f, (assert_non_null(find(f, 0, "k")), true) &&
			     (assert_non_null(find(f, 1, "k")), true) &&
			     is_published(f, 0, "k") && all_answered(f, 0) &&
			     find(f, 1, "k")->gen == find(f, 0, "k")->gen);
	assert_readable(f, 0, "k", 1000, 2);
	assert_readable(f, 1, "k", 1000, 2);
}

/* The same bytes are put again before the master has received the UNLINK. late:
 * before the feed reports the removal, if it does by itself. */
static void what_is_being_taken_back_is_not_the_same_content(void **state)
{
	struct fixture *f = *state;
	struct node_object *open, *o;
	char k[3] = "k0";
	int late;

	start_pool(f, 2);
	for (late = 0; late < 6; late++, k[1]++) {
		open = replaced_on_its_way(f, k);
		pool_node_poison(node(f, 0), open, -ENOSPC);
		pool_node_writer_closed(node(f, 0), open);
		node_object_unref(node(f, 0), open);
		o = create_in(f, 0, pool_node_root(node(f, 0)), "b.tmp", 0);
		write_bytes(f, 0, o, 1000, 2);
		if (!late)
			close_whole(f, 0, o);
		assert_int_equal(0, rename_to(f, 0, "b.tmp", k, false));
		if (late) {
			run_until(f, all_answered(f, 0));
			close_whole(f, 0, o);
		}
		run_until(f, (assert_non_null(find(f, 0, k)), true) &&
				     is_published(f, 0, k) &&
				     all_answered(f, 0) && find(f, 1, k) &&
				     find(f, 1, k)->gen == find(f, 0, k)->gen);
		run_for(f, 20);
		assert_readable(f, 0, k, 1000, 2);
		assert_readable(f, 1, k, 1000, 2);
	}
}

/* The ack names an older generation than the mirror: the master is a new one,
 * which has the same content under that. */
static void what_was_replaced_is_not_taken_back(void **state)
{
	struct fixture *f = *state;
	struct node_object *open;
	char k[] = "k";

	start_pool(f, 2);
	open = replaced_on_its_way(f, k);
	feed_names(f, 0, k, node(f, 0)->seen_gen + 100);
	close_whole(f, 0, open);
	node_object_unref(node(f, 0), open);
	run_until(f, !find(f, 0, k)->own && all_answered(f, 0));
	assert_int_equal(0, pool_counter_value(
				    &f->master->stats.c[MC_UNLINK]));
}

/* It is if the file that replaced it is lost, but not if that was refused
 * because another node has changed the name since. */
static void a_refusal_takes_back_what_the_master_still_has(void **state)
{
	static const struct {
		int status;
		unsigned int unlinks;
	} refusals[] = { { -ESTALE, 0 }, { -EIO, 0 }, { -ENOSPC, 1 } };
	struct fixture *f = *state;
	struct node_object *open;
	char k[] = "k0";

	start_pool(f, 2);
	for (size_t i = 0; i < 3; i++, k[1]++) {
		open = replaced_on_its_way(f, k);
		refuses_ops = node(f, 0);
		close_whole(f, 0, open);
		run_until(f, is_pending(f, 0, k));
		node_publish_done(node(f, 0), open, refusals[i].status, 0);
		node_object_unref(node(f, 0), open);
		refuses_ops = NULL;
		run_until(f, all_answered(f, 0));
		assert_int_equal(refusals[i].unlinks,
				 pool_counter_value(
					 &f->master->stats.c[MC_UNLINK]));
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(a_publication_gets_a_generation),
		T(an_empty_file_is_published_too),
		T(a_pending_file_is_published_under_its_last_name),
		T(each_publication_is_timed_from_its_close),
		T(a_seal_that_is_retried_counts_too),
		T(one_fsync_reports_a_refused_publication),
		T(a_new_generation_replaces_the_other_node_s_copy),
		T(what_a_client_writes_reaches_a_store),
		T(the_same_content_is_no_new_generation),
		T(the_same_content_is_not_left_to_a_node_that_has_gone),
		T(a_clients_same_content_is_not_left_to_it_either),
		T(a_put_does_not_count_on_a_copy_in_doubt),
		T(the_same_content_again_is_published_if_another_was_on_its_way),
		T(a_name_that_is_replaced_again_and_again_is_always_there),
		T(what_is_being_taken_back_is_not_the_same_content),
		T(what_was_replaced_is_not_taken_back),
		T(a_refusal_takes_back_what_the_master_still_has),
	};

	if (argc > 1) /* run only the tests that match these cmocka patterns */
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
