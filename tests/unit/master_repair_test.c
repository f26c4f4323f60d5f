/*
 * Lost and restored copies: the order of repair and its rate limit, nodes that
 * return, nodes that are drained, and extra copies of hot objects. The nodes
 * are fakes.
 */
#include <errno.h>

#define NNODES 5
#define NODE_BYTES(i) ((uint64_t)(NNODES - (i)) << 30)
#define SIZE 1000u /* of each object: fake_meta */
#include "master_fake_pool.h"
#include "master/impl.h"

static void dial(struct fake_node *n)
{
	fake_dial(n, &loop, master_port(master));
	fake_send_join(n);
	run_until(&loop, n->welcomed || n->closed);
	assert_true(n->welcomed);
}

static void join(struct fake_node *n)
{
	dial(n);
	fake_inventory(n, NULL, 0, true);
}

static void join_and_watch(struct fake_node *n)
{
	unsigned int completes = n->completes;

	join(n);
	fake_subscribe(n, 0, 0);
	run_until(&loop, n->completes > completes);
}

static json_int_t repair(const char *key)
{
	json_t *j = master_status_json(master);
	json_int_t v = json_integer_value(
		json_object_get(json_object_get(j, "repair"), key));

	json_decref(j);
	return v;
}

static unsigned int holders(struct fake_node *n, const char *path)
{
	const struct seen_name *s = fake_find(n, path);

	return s ? s->nholders : 0;
}

static bool holds(struct fake_node *watch, const char *path,
		  const struct fake_node *n)
{
	const struct seen_name *s = fake_find(watch, path);
	unsigned int i;

	for (i = 0; s && i < s->nholders; i++)
		if (s->holders[i] == n->index)
			return true;
	return false;
}

/* Index of the order for path among n's orders; -1: none. */
static int ordered(const struct fake_node *n, const char *path)
{
	unsigned int i;

	for (i = 0; i < n->nreplicates && i < 64; i++)
		if (!strcmp(n->replicates[i].path, path))
			return (int)i;
	return -1;
}

static bool is_gone(int i)
{
	json_t *j = master_nodes_json(master);
	json_t *row = json_array_get(json_object_get(j, "nodes"), (size_t)i);
	bool gone = !strcmp(json_string_value(json_object_get(row, "state")),
			    "gone");

	json_decref(j);
	return gone;
}

/* Has the master received n's current figures? */
static bool has_figures_of(const struct fake_node *n)
{
	json_t *j = master_nodes_json(master), *row;
	char name[32];
	bool has = false;
	size_t i;

	snprintf(name, sizeof(name), "node-%d", (int)(n - node));
	json_array_foreach(json_object_get(j, "nodes"), i, row)
		if (!strcmp(name, json_string_value(
					  json_object_get(row, "name"))))
			has = (uint64_t)json_integer_value(json_object_get(
				      row, "used")) == n->used &&
			      (uint64_t)json_integer_value(json_object_get(
				      row, "capacity")) == n->capacity;
	json_decref(j);
	return has;
}

/* Published by a, with the rule replicas=copies; b and c (may be NULL) report
 * copies. */
static uint64_t put(struct fake_node *a, const char *path, const char *copies,
		    struct fake_node *b, struct fake_node *c)
{
	uint64_t gen = fake_publish(a, path);

	assert_int_equal(0, fake_rule(a, path, "user.kvpool.replicas", copies));
	fake_held(b, path, gen, 0);
	if (c)
		fake_held(c, path, gen, 0);
	run_until(&loop, holders(a, path) == (c ? 3 : 2));
	return gen;
}

/* ---- repair ---- */

static void what_has_fewest_copies_left_is_repaired_first(void **state)
{
	(void)state;
	opts.repair_copies = 1;
	stop_master();
	start_master();
	join_and_watch(&node[2]);
	join(&node[3]);
	join(&node[4]);
	put(&node[2], "two-left", "3", &node[3], &node[4]);
	put(&node[2], "one-left", "2", &node[3], NULL);
	node[4].used = node[4].capacity; /* no other node has space */
	run_until(&loop, has_figures_of(&node[4]));
	fake_hang_up(&node[3]);
	run_until(&loop, repair("endangered") == 2);
	assert_int_equal(1, repair("left_1"));
	assert_int_equal(1, repair("left_2"));
	join(&node[0]);
	run_until(&loop, node[0].nreplicates == 1);
	assert_int_equal(0, ordered(&node[0], "one-left"));
	assert_int_equal(1, repair("copies_under_way"));
	run_ms(&loop, 50); /* only one copy is in flight at a time */
	assert_int_equal(1, node[0].nreplicates);
	fake_held(&node[0], "one-left", node[0].replicates[0].gen, 0);
	run_until(&loop, node[0].nreplicates == 2);
	assert_int_equal(1, ordered(&node[0], "two-left"));
	fake_held(&node[0], "two-left", node[0].replicates[1].gen, 0);
	run_until(&loop, !repair("endangered"));
	assert_int_equal(0, repair("bytes_left"));
	assert_int_equal(0, repair("copies_under_way"));
}

/* A limit of one object a second. The token bucket starts with one of three. */
static void repair_keeps_to_its_rate_and_puts_do_not(void **state)
{
	uint64_t begin;
	uint64_t gen[3];
	char path[16];
	int i;

	(void)state;
	opts.repair_rate = 2 * SIZE;
	stop_master();
	start_master();
	join_and_watch(&node[0]);
	join(&node[1]);
	for (i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "k%d", i);
		gen[i] = put(&node[0], path, "2", &node[1], NULL);
	}
	fake_hang_up(&node[1]);
	run_until(&loop, repair("endangered") == 3);
	begin = pool_now_ms();
	join(&node[2]);
	/* The bucket holds half a second's worth: a copy may overdraw it, and
	 * the next one waits until that is repaid. */
	run_until(&loop, node[2].nreplicates == 3);
	assert_true(pool_now_ms() - begin >= 500);
	/* Copies of a put are not limited; replicas is a rule of the
	 * directory. */
	assert_int_equal(0, fake_do(&node[0], KVPOOL__OP__KIND__MKDIR, "d"));
	assert_int_equal(0, fake_rule(&node[0], "d", "user.kvpool.replicas",
				      "2"));
	for (i = 0; i < 20; i++) {
		snprintf(path, sizeof(path), "d/%d", i);
		fake_publish(&node[0], path);
	}
	begin = pool_now_ms();
	run_until(&loop, node[2].nreplicates == 23);
	assert_true(pool_now_ms() - begin < 20 * 500);
	for (i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "k%d", i);
		fake_held(&node[2], path, gen[i], 0);
	}
	run_until(&loop, holders(&node[0], "k2") == 2);
}

static void a_node_that_returns_keeps_surplus_copies_as_cache(void **state)
{
	uint64_t gen;

	(void)state;
	join_and_watch(&node[0]);
	join(&node[1]);
	gen = put(&node[0], "k", "2", &node[1], NULL);
	fake_hang_up(&node[1]);
	run_until(&loop, is_gone(1));
	join(&node[2]);
	run_until(&loop, ordered(&node[2], "k") >= 0);
	fake_held(&node[2], "k", gen, 0);
	run_until(&loop, holders(&node[0], "k") == 2);
	node[1].used = node[1].capacity - (1 << 20); /* the fullest */
	dial(&node[1]);
	fake_inventory(&node[1], "k", gen, true);
	run_until(&loop, fake_dropped(&node[1], "k", gen,
				      KVPOOL__DROP__REASON__SURPLUS));
	run_until(&loop, holders(&node[0], "k") == 2);
	assert_false(holds(&node[0], "k", &node[1]));
	assert_int_equal(1, node[1].ndrops);
	/* A copy of an older generation is not kept as a cached copy. */
	fake_hang_up(&node[1]);
	fake_rewrite(&node[0], "k");
	dial(&node[1]);
	fake_inventory(&node[1], "k", gen, true);
	run_until(&loop, fake_dropped(&node[1], "k", gen,
				      KVPOOL__DROP__REASON__SUPERSEDED));
}

static void a_silent_node_is_dead_and_comes_back_as_itself(void **state)
{
	uint32_t index;
	uint64_t gen;

	(void)state;
	join_and_watch(&node[0]);
	join(&node[1]);
	gen = put(&node[0], "k", "2", &node[1], NULL);
	index = node[1].index;
	node[1].silent = true; /* stopped, but still connected */
	run_until(&loop, is_gone(1) && node[1].closed);
	run_until(&loop, repair("left_1") == 1);
	node[1].silent = false;
	dial(&node[1]);
	fake_inventory(&node[1], "k", gen, true);
	run_until(&loop, !repair("endangered") && holds(&node[0], "k",
							&node[1]));
	assert_int_equal(index, node[1].index);
}

/* ---- moves ---- */

/* The copy moves to another node, which cannot keep it, and back to the first.
 * The first node's DROP must not arrive after the new order, which its old copy
 * would seem to answer. */
static void a_copy_that_moves_back_is_made_anew(void **state)
{
	uint64_t gen;

	(void)state;
	join_and_watch(&node[0]);
	join(&node[1]);
	gen = fake_publish(&node[0], "k");
	fake_evict(&node[0], "k", gen);
	run_until(&loop, ordered(&node[1], "k") >= 0);
	fake_held(&node[1], "k", gen, 0);
	fake_evict(&node[1], "k", gen); /* in the same turn */
	run_until(&loop, ordered(&node[0], "k") >= 0);
	assert_true(fake_dropped(&node[0], "k", gen,
				 KVPOOL__DROP__REASON__EVICTED));
	/* The first node may have asked again before it received its DROP: that
	 * DROP does not mean the copy that it is going to make. */
	fake_evict(&node[0], "k", gen);
	run_until(&loop, node[0].ndrops == 2);
	assert_int_equal(1, node[0].drops[1].helds);
	fake_held(&node[0], "k", gen, 0);
	run_until(&loop, node[1].ndrops == 1);
	assert_int_equal(2, node[1].drops[0].helds); /* its HELD, and 1 */
	fake_evict(&node[0], "k", gen);
	run_until(&loop, node[1].nreplicates == 2);
	fake_held(&node[1], "k", gen, 0);
	run_until(&loop, node[0].ndrops == 3);
	assert_int_equal(2, node[0].drops[2].helds);
}

/* Its inventory may list the copy, so it gets no order for it. */
static void a_rejoining_node_gets_no_orders_before_its_inventory(void **state)
{
	uint64_t gen;

	(void)state;
	join(&node[1]);
	node[1].used = node[1].capacity / 2;
	join_and_watch(&node[2]);
	node[2].used = node[2].capacity;
	join(&node[0]);
	gen = fake_publish(&node[0], "k");
	fake_evict(&node[0], "k", gen);
	run_until(&loop, ordered(&node[1], "k") >= 0);
	fake_hang_up(&node[0]);
	dial(&node[0]);
	fake_held(&node[1], "k", gen, 0);
	run_until(&loop, holds(&node[2], "k", &node[1]));
	assert_int_equal(0, node[0].ndrops);
	fake_inventory(&node[0], "k", gen, true);
	run_until(&loop, node[0].ndrops + node[1].ndrops == 1);
	run_until(&loop, holders(&node[2], "k") == 1);
	assert_true(holds(&node[2], "k", node[0].ndrops ? &node[1] : &node[0]));
}

/* ---- draining ---- */

static json_t *drain(const char *name, enum master_drain_do what)
{
	const char *text;
	json_t *j = NULL;

	assert_int_equal(0, master_drain(master, name, what, &j, &text));
	return j;
}

static bool drain_is(const char *name, const char *state)
{
	json_t *j = drain(name, MASTER_DRAIN_SHOW);
	bool is = !strcmp(json_string_value(json_object_get(j, "state")),
			  state);

	json_decref(j);
	return is;
}

static json_int_t drain_figure(const char *name, const char *key)
{
	json_t *j = drain(name, MASTER_DRAIN_SHOW);
	json_int_t v = json_integer_value(json_object_get(j, key));

	json_decref(j);
	return v;
}

static void begin_drain(const char *name)
{
	json_decref(drain(name, MASTER_DRAIN_BEGIN));
}

static void a_drained_node_is_emptied_and_gets_no_more(void **state)
{
	uint64_t alone, twice, pinned, late;

	(void)state;
	join_and_watch(&node[0]);
	join(&node[1]);
	alone = fake_publish(&node[0], "alone");
	pinned = fake_publish(&node[0], "pinned");
	assert_int_equal(0, fake_rule(&node[0], "pinned", "user.kvpool.pin",
				      "hard"));
	join(&node[2]);
	node[3].used = node[3].capacity;
	twice = put(&node[0], "twice", "2", &node[2], NULL);
	begin_drain("node-0");
	/* The object with two copies keeps the second; the first moves to node
	 * 2. */
	run_until(&loop, node[1].nreplicates + node[2].nreplicates >= 3);
	run_until(&loop, drain_figure("node-0", "left_keys") == 3);
	assert_true(drain_is("node-0", "draining"));
	assert_int_equal(0, repair("endangered")); /* no object is endangered */
	assert_int_equal(0, node[0].ndrops);
	fake_held(&node[1], "alone", alone, 0);
	fake_held(&node[1], "pinned", pinned, 0);
	run_until(&loop, drain_figure("node-0", "percent") == 66);
	assert_true(fake_dropped(&node[0], "alone", alone,
				 KVPOOL__DROP__REASON__SURPLUS));
	fake_held(&node[1], "twice", twice, 0);
	run_until(&loop, drain_is("node-0", "drained"));
	assert_false(holds(&node[0], "twice", &node[0]));
	assert_int_equal(2, holders(&node[0], "twice"));
	/* A put of the draining node moves to others, and the node is not
	 * drained before that. */
	late = fake_publish(&node[0], "late");
	assert_true(drain_is("node-0", "draining"));
	run_until(&loop, ordered(&node[1], "late") >= 0 ||
				 ordered(&node[2], "late") >= 0);
	fake_held(ordered(&node[1], "late") >= 0 ? &node[1] : &node[2], "late",
		  late, 0);
	run_until(&loop, drain_is("node-0", "drained"));
	/* Node 0 has the most free space, but gets no copies. */
	assert_int_equal(0, fake_rule(&node[0], "late", "user.kvpool.replicas",
				      "3"));
	run_until(&loop, ordered(&node[1], "late") >= 0 &&
				 ordered(&node[2], "late") >= 0);
	fake_held(&node[1], "late", late, 0);
	fake_held(&node[2], "late", late, 0);
	run_until(&loop, holders(&node[0], "late") == 2);
	run_ms(&loop, 100);
	assert_int_equal(0, node[0].nreplicates);
	json_decref(drain("node-0", MASTER_DRAIN_CANCEL));
	run_until(&loop, ordered(&node[0], "late") >= 0);
}

/* A patrol may miss a file that is published while it runs. */
static void what_is_put_during_a_patrol_is_not_called_drained(void **state)
{
	uint64_t late;

	(void)state;
	join(&node[0]);
	join(&node[1]);
	begin_drain("node-0");
	run_until(&loop, drain_is("node-0", "drained"));
	master_drain_pass_begin(master);
	late = fake_publish(&node[0], "late");
	assert_true(drain_is("node-0", "draining"));
	master_drain_pass_end(master);
	assert_true(drain_is("node-0", "draining"));
	run_until(&loop, ordered(&node[1], "late") >= 0);
	fake_held(&node[1], "late", late, 0);
	run_until(&loop, drain_is("node-0", "drained"));
}

static void a_damaged_copy_does_not_count_and_is_made_again(void **state)
{
	uint64_t two, one;

	(void)state;
	join_and_watch(&node[0]);
	join(&node[1]);
	join(&node[2]);
	two = put(&node[0], "two", "2", &node[1], NULL);
	one = fake_publish(&node[0], "one");
	node[1].nreplicates = node[2].nreplicates = 0;
	fake_held(&node[1], "two", two, -EBADMSG);
	run_until(&loop, ordered(&node[1], "two") >= 0 ||
				 ordered(&node[2], "two") >= 0);
	assert_false(holds(&node[0], "two", &node[1]));
	/* A node without a copy cannot lose one. */
	fake_held(&node[1], "one", one, -EBADMSG);
	fake_held(&node[0], "one", one, -EBADMSG);
	run_until(&loop, !fake_find(&node[0], "one"));
	assert_non_null(fake_find(&node[0], "two"));
}

/* The node is back before a patrol has checked the order. */
static void an_order_that_a_broken_connection_took_is_given_again(void **state)
{
	uint64_t gen;

	(void)state;
	join(&node[0]);
	join(&node[1]);
	gen = fake_publish(&node[0], "k");
	assert_int_equal(0, fake_rule(&node[0], "k", "user.kvpool.replicas",
				      "2"));
	run_until(&loop, ordered(&node[1], "k") >= 0);
	fake_hang_up(&node[1]);
	node[1].nreplicates = 0;
	join(&node[1]);
	run_until(&loop, ordered(&node[1], "k") >= 0);
	assert_int_equal(gen, node[1].replicates[0].gen);
}

/* The node dials again before the master notices the broken connection. */
static void an_order_that_a_replaced_connection_took_is_given_again(
	void **state)
{
	struct fake_node *again = &node[2];

	(void)state;
	join(&node[0]);
	join(&node[1]);
	fake_publish(&node[0], "k");
	assert_int_equal(0, fake_rule(&node[0], "k", "user.kvpool.replicas",
				      "2"));
	run_until(&loop, ordered(&node[1], "k") >= 0);
	memcpy(again->id, node[1].id, sizeof(again->id));
	join(again);
	run_until(&loop, node[1].closed && ordered(again, "k") >= 0);
}

static void a_drain_outlives_its_node_and_its_master(void **state)
{
	uint64_t gen;

	(void)state;
	join(&node[0]);
	join(&node[1]);
	gen = fake_publish(&node[0], "k");
	begin_drain("node-0");
	run_until(&loop, ordered(&node[1], "k") >= 0);
	stop_master();
	run_until(&loop, node[0].closed && node[1].closed);
	start_master();
	dial(&node[0]);
	fake_inventory(&node[0], "k", gen, true);
	join(&node[1]);
	run_until(&loop, node[1].nreplicates == 2);
	assert_true(drain_is("node-0", "draining"));
	fake_hang_up(&node[0]);
	assert_true(drain_is("node-0", "away"));
	dial(&node[0]);
	fake_inventory(&node[0], "k", gen, true);
	fake_held(&node[1], "k", gen, 0);
	run_until(&loop, drain_is("node-0", "drained"));
	/* Disconnected and back with its object, now a cached copy. */
	fake_hang_up(&node[0]);
	node[0].ndrops = 0;
	dial(&node[0]);
	fake_inventory(&node[0], "k", gen, true);
	run_until(&loop, fake_dropped(&node[0], "k", gen,
				      KVPOOL__DROP__REASON__SURPLUS));
}

static void lack_of_space_is_reported(void **state)
{
	const char *text = NULL;
	json_t *j = NULL;

	(void)state;
	node[1].used = node[1].capacity;
	join(&node[0]);
	join(&node[1]);
	fake_publish(&node[0], "k");
	begin_drain("node-0");
	run_until(&loop, drain_is("node-0", "stuck"));
	assert_int_equal(SIZE, drain_figure("node-0", "no_room_bytes"));
	assert_int_equal(1, drain_figure("node-0", "no_room_keys"));
	assert_int_equal(-1, drain_figure("node-0", "seconds_left"));
	assert_int_equal(1, repair("no_room_keys"));
	assert_int_equal(SIZE, repair("no_room_bytes"));
	assert_int_equal(-1, repair("seconds_left"));
	assert_int_equal(-ENOENT, master_drain(master, "nobody",
					       MASTER_DRAIN_BEGIN, &j, &text));
	assert_non_null(text);
	node[2].is_store = false;
	join(&node[2]);
	assert_int_equal(-EINVAL, master_drain(master, "node-2",
					       MASTER_DRAIN_BEGIN, &j, &text));
	assert_null(j);
}

static void an_id_names_its_node_whatever_others_call_themselves(void **state)
{
	const char *text = NULL;
	char id[33] = "";
	json_t *j = NULL;

	(void)state;
	for (unsigned int i = 0; i < 16; i++)
		sprintf(id + 2 * i, "%02x", node[1].id[i]);
	strcpy(node[0].name, id);
	strcpy(node[2].name, node[1].name);
	join(&node[0]);
	join(&node[1]);
	join(&node[2]);
	assert_int_equal(-ENOTUNIQ, master_drain(master, node[1].name,
						 MASTER_DRAIN_BEGIN, &j,
						 &text));
	assert_non_null(strstr(text, "give the id"));
	j = drain(id, MASTER_DRAIN_BEGIN);
	assert_string_equal(node[1].name,
			    json_string_value(json_object_get(j, "node")));
	json_decref(j);
}

/* An fsync on the client waits for the copy. */
static void
what_a_client_has_put_is_stored_as_soon_as_there_is_room(void **state)
{
	uint64_t begin;

	(void)state;
	node[0].is_store = false;
	node[1].used = node[1].capacity;
	join(&node[0]);
	join(&node[1]);
	fake_publish(&node[0], "k");
	run_ms(&loop, 2 * HEARTBEAT_MS);
	assert_int_equal(0, node[1].nreplicates);
	node[1].used = 0;
	begin = pool_now_ms();
	run_until(&loop, node[1].nreplicates == 1);
	assert_in_range(pool_now_ms() - begin, 0, 5000);
}

static void missing_copies_are_made_as_soon_as_there_is_room(void **state)
{
	uint64_t begin;

	(void)state;
	node[1].used = node[1].capacity;
	join(&node[0]);
	join(&node[1]);
	run_ms(&loop, 2 * HEARTBEAT_MS); /* the first patrols end */
	fake_publish(&node[0], "k");
	assert_int_equal(0, fake_rule(&node[0], "k", "user.kvpool.replicas",
				      "2"));
	run_ms(&loop, 2 * HEARTBEAT_MS);
	assert_int_equal(0, node[1].nreplicates);
	assert_int_equal(-1, repair("seconds_left")); /* never, as it is */
	node[1].used = 0;
	begin = pool_now_ms();
	run_until(&loop, node[1].nreplicates == 1);
	assert_in_range(pool_now_ms() - begin, 0, 9000);
}

/* Stores have no free space, only objects that may be evicted. */
static void what_is_put_or_kept_displaces_and_what_is_repaired_does_not(
	void **state)
{
	(void)state;
	node[1].used = node[1].evictable = node[1].capacity;
	join(&node[0]);
	join(&node[1]);
	fake_publish(&node[0], "repaired");
	assert_int_equal(0, fake_rule(&node[0], "repaired",
				      "user.kvpool.replicas", "2"));
	run_ms(&loop, 2 * HEARTBEAT_MS);
	assert_int_equal(0, node[1].nreplicates);
	assert_int_equal(0, fake_do(&node[0], KVPOOL__OP__KIND__MKDIR, "d"));
	assert_int_equal(0, fake_rule(&node[0], "d", "user.kvpool.replicas",
				      "2"));
	fake_publish(&node[0], "d/put");
	run_until(&loop, node[1].nreplicates == 1);
	assert_int_equal(0, ordered(&node[1], "d/put"));
	assert_int_equal(0, fake_do(&node[0], KVPOOL__OP__KIND__MKDIR, "n"));
	assert_int_equal(0, fake_rule(&node[0], "n", "user.kvpool.class",
				      "noevict"));
	fake_publish(&node[0], "n/kept");
	assert_int_equal(0, fake_rule(&node[0], "n/kept",
				      "user.kvpool.replicas", "2"));
	run_until(&loop, node[1].nreplicates == 2);
	assert_int_equal(1, ordered(&node[1], "n/kept"));
}

/* Answers all orders that store s has received. */
static unsigned int answer_orders_of(struct fake_node *s, int status)
{
	unsigned int n = s->nreplicates, i;

	assert_true(n <= 64);
	for (i = 0; i < n; i++)
		fake_held(s, s->replicates[i].path, s->replicates[i].gen,
			  status);
	s->nreplicates = 0;
	return n;
}

/* The same for stores 1 and 2. */
static unsigned int answer_orders(int status)
{
	return answer_orders_of(&node[1], status) +
	       answer_orders_of(&node[2], status);
}

/* node[0], which gives no copies, publishes so many files. Returns the copies
 * that were ordered; all have failed. */
static unsigned int publish_without_copies(unsigned int files)
{
	unsigned int n = 0;
	char path[32];

	for (unsigned int i = 0; i < files; i++) {
		snprintf(path, sizeof(path), "k%u", i);
		fake_publish(&node[0], path);
		run_ms(&loop, 5);
		n += answer_orders(-ENOENT);
	}
	return n;
}

/* The copies of a client that cannot be reached fail: few are ordered, however
 * much it publishes. Once one succeeds, all others are ordered. */
static void a_source_that_gives_no_copies_is_probed_now_and_then(void **state)
{
	const unsigned int files = 60;
	unsigned int n, most;
	uint64_t began;

	(void)state;
	node[0].is_store = false;
	node[0].capacity = 0;
	join_and_watch(&node[0]);
	join(&node[1]);
	join(&node[2]);
	began = pool_now_ms();
	n = publish_without_copies(files);
	/* After 16 failures, one in 250 ms. */
	most = 17 + (unsigned int)((pool_now_ms() - began) / 250);
	assert_in_range(n, 16, most);
	n = 0;
	began = pool_now_ms();
	while (n < files) {
		run_ms(&loop, 5);
		n += answer_orders(0);
		assert_true(pool_now_ms() - began < 20000);
	}
	assert_int_equal(files, n);
}

/* Whether the source or a target is unreachable is not known: another target
 * makes the copies. */
static void a_target_that_makes_no_copies_holds_up_no_source(void **state)
{
	const unsigned int files = 40;
	uint64_t began = pool_now_ms();
	unsigned int n = 0, i;
	char path[32];

	(void)state;
	node[0].is_store = false;
	node[0].capacity = 0;
	join_and_watch(&node[0]);
	join(&node[1]);
	join(&node[2]);
	for (i = 0; i < files; i++) {
		snprintf(path, sizeof(path), "k%u", i);
		fake_publish(&node[0], path);
	}
	while (n < files) {
		run_ms(&loop, 5);
		answer_orders_of(&node[1], -ENOENT);
		n += answer_orders_of(&node[2], 0);
		assert_true(pool_now_ms() - began < 20000);
	}
	assert_int_equal(files, n);
}

/* PUBLISHes `files` files in few messages, and waits for the results. */
static void publish_many(struct fake_node *n, unsigned int files)
{
	enum { BATCH = 1000 };
	static Kvpool__Op ops[BATCH], *list[BATCH];
	static Kvpool__Meta metas[BATCH];
	static char paths[BATCH][32];
	Kvpool__Ops msg = KVPOOL__OPS__INIT;

	for (unsigned int i = 0; i < files; i++) {
		unsigned int k = i % BATCH;

		snprintf(paths[k], sizeof(paths[k]), "many%u", i);
		fake_meta(&metas[k], paths[k], 0);
		kvpool__op__init(&ops[k]);
		ops[k].kind = KVPOOL__OP__KIND__PUBLISH;
		ops[k].meta = &metas[k];
		list[k] = &ops[k];
		if (k + 1 < BATCH && i + 1 < files)
			continue;
		msg.ops = list;
		msg.n_ops = k + 1;
		n->ops_done = false;
		assert_int_equal(0, pool_conn_send(n->conn, POOL_MSG_OPS, 7,
						   &msg.base));
		run_until(&loop, n->ops_done);
	}
}

/* More than can be looked at until they are due again. */
static void a_source_that_gives_no_copies_holds_up_no_repair(void **state)
{
	const unsigned int files = 100000;
	uint64_t began;

	(void)state;
	node[0].is_store = false;
	node[0].capacity = 0;
	join(&node[0]);
	join(&node[1]);
	join(&node[2]);
	fake_publish(&node[1], "good");
	(void)publish_without_copies(20);
	publish_many(&node[0], files);
	began = pool_now_ms();
	assert_int_equal(0, fake_rule(&node[1], "good", "user.kvpool.replicas",
				      "2"));
	while (ordered(&node[2], "good") < 0) {
		(void)answer_orders(-ENOENT);
		run_ms(&loop, 5);
		assert_true(pool_now_ms() - began < 10000);
	}
}

/* The store may not have received WELCOME yet, and would lose an order. */
static void a_store_that_is_still_joining_gets_no_copies(void **state)
{
	(void)state;
	node[0].is_store = false;
	join_and_watch(&node[0]);
	dial(&node[1]);
	fake_publish(&node[0], "k");
	run_ms(&loop, 3 * HEARTBEAT_MS);
	assert_int_equal(0, node[1].nreplicates);
	fake_inventory(&node[1], NULL, 0, true);
	run_until(&loop, node[1].nreplicates == 1);
}

/* ---- extra copies ---- */

static void hot_objects_gain_extra_copies_and_lose_them_again(void **state)
{
	struct fake_node *to;
	uint64_t gen;
	int i;

	(void)state;
	for (i = 0; i < 3; i++)
		join_and_watch(&node[i]);
	gen = fake_publish(&node[0], "k");
	fake_heat(&node[0], "k", gen, false);
	run_until(&loop, node[1].nreplicates + node[2].nreplicates == 1);
	to = node[1].nreplicates ? &node[1] : &node[2];
	assert_true(to->replicates[0].extra);
	fake_held(to, "k", gen, 0);
	run_until(&loop, holds(&node[0], "k", to));
	/* The extra copy is no counted copy: the counted one is not dropped for
	 * it. */
	assert_int_equal(0, node[0].ndrops);
	/* The object stays hot: another extra copy is made. */
	fake_heat(to, "k", gen, false);
	run_until(&loop, node[1].nreplicates == 1 && node[2].nreplicates == 1);
	fake_held(to == &node[1] ? &node[2] : &node[1], "k", gen, 0);
	run_until(&loop, holders(&node[0], "k") == 3);
	fake_heat(&node[1], "k", gen, true);
	fake_heat(&node[2], "k", gen, true);
	run_until(&loop, holders(&node[0], "k") == 1);
	assert_true(holds(&node[0], "k", &node[0]));
	/* A counted copy is not dropped for being cold. */
	fake_heat(&node[0], "k", gen, true);
	run_ms(&loop, 50);
	assert_int_equal(1, holders(&node[0], "k"));
}

/* "k" of node 0, with an extra copy on node 1. Returns its generation. */
static uint64_t share_hot_k(void)
{
	uint64_t gen;
	int i;

	for (i = 0; i < 2; i++)
		join_and_watch(&node[i]);
	gen = fake_publish(&node[0], "k");
	fake_heat(&node[0], "k", gen, false);
	run_until(&loop, node[1].nreplicates == 1);
	fake_held(&node[1], "k", gen, 0);
	run_until(&loop, holders(&node[1], "k") == 2);
	return gen;
}

static uint64_t kept_on(const struct fake_node *n)
{
	return master->members.by_index[n->index]->kept;
}

/* It is cache, which a node gives up whatever the rules of the object. */
static void an_extra_copy_is_not_kept(void **state)
{
	(void)state;
	(void)share_hot_k();
	assert_int_equal(0, fake_rule(&node[0], "k", "user.kvpool.pin",
				      "hard"));
	master_patrol_start(master);
	run_until(&loop, kept_on(&node[0]));
	assert_int_equal(0, kept_on(&node[1]));
}

static void an_extra_copy_is_the_first_to_replace_a_lost_one(void **state)
{
	uint64_t gen = share_hot_k();

	(void)state;
	join(&node[2]);
	node[2].capacity = 100ull << 30; /* more free space than node 1 */
	run_until(&loop, has_figures_of(&node[2]));
	fake_hang_up(&node[0]);
	run_until(&loop, node[1].nreplicates == 2);
	assert_false(node[1].replicates[1].extra);
	assert_int_equal(1, repair("left_0"));
	fake_held(&node[1], "k", gen, 0);
	run_until(&loop, !repair("endangered"));
	assert_int_equal(0, node[2].nreplicates);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_has_fewest_copies_left_is_repaired_first),
		T(repair_keeps_to_its_rate_and_puts_do_not),
		T(a_node_that_returns_keeps_surplus_copies_as_cache),
		T(a_silent_node_is_dead_and_comes_back_as_itself),
		T(a_copy_that_moves_back_is_made_anew),
		T(a_rejoining_node_gets_no_orders_before_its_inventory),
		T(a_drained_node_is_emptied_and_gets_no_more),
		T(what_is_put_during_a_patrol_is_not_called_drained),
		T(a_damaged_copy_does_not_count_and_is_made_again),
		T(an_order_that_a_broken_connection_took_is_given_again),
		T(an_order_that_a_replaced_connection_took_is_given_again),
		T(a_drain_outlives_its_node_and_its_master),
		T(lack_of_space_is_reported),
		T(an_id_names_its_node_whatever_others_call_themselves),
		T(what_a_client_has_put_is_stored_as_soon_as_there_is_room),
		T(missing_copies_are_made_as_soon_as_there_is_room),
		T(what_is_put_or_kept_displaces_and_what_is_repaired_does_not),
		T(a_source_that_gives_no_copies_is_probed_now_and_then),
		T(a_target_that_makes_no_copies_holds_up_no_source),
		T(a_source_that_gives_no_copies_holds_up_no_repair),
		T(a_store_that_is_still_joining_gets_no_copies),
		T(hot_objects_gain_extra_copies_and_lose_them_again),
		T(an_extra_copy_is_not_kept),
		T(an_extra_copy_is_the_first_to_replace_a_lost_one),
	};

	return run_all_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
