/* libkvpool's accounting: each key is counted once, under one heading. */
#include <sys/resource.h>

#include "pool/client/client_priv.h"
#include "pool/node/node_priv.h"
#include "tests/unit/client_pool.h"

/* ---- figures ---- */

#define MEMBERS(M)                                                           \
	M(lookups) M(hits_here) M(hits_peer) M(misses) M(lookups_skipped)    \
	M(lookups_invalid) M(lookups_away)                                   \
	M(gets) M(gets_here) M(gets_lent) M(gets_tcp) M(gets_rdma)           \
	M(gets_missed) M(gets_undelivered) M(gets_unfit) M(gets_invalid)     \
	M(gets_failed)                                                       \
	M(bytes_got) M(bytes_here) M(bytes_lent) M(bytes_tcp) M(bytes_rdma)  \
	M(puts) M(puts_stored) M(puts_existed) M(puts_full) M(puts_invalid)  \
	M(puts_failed) M(bytes_put)                                          \
	M(retries)

static struct kvpool_stats stats_of(const struct kvpool *p)
{
	struct kvpool_stats s = { .struct_size = sizeof(s) };

	assert_int_equal(kvpool_stats(p, &s), 0);
	return s;
}

static uint64_t lookups_known(const struct kvpool_stats *s)
{
	return s->hits_here + s->hits_peer + s->misses + s->lookups_skipped +
	       s->lookups_invalid;
}

static uint64_t gets_known(const struct kvpool_stats *s)
{
	return s->gets_here + s->gets_lent + s->gets_tcp + s->gets_rdma +
	       s->gets_missed + s->gets_undelivered + s->gets_unfit +
	       s->gets_invalid + s->gets_failed;
}

static uint64_t puts_known(const struct kvpool_stats *s)
{
	return s->puts_stored + s->puts_existed + s->puts_full +
	       s->puts_invalid + s->puts_failed;
}

static uint64_t bytes_known(const struct kvpool_stats *s)
{
	return s->bytes_here + s->bytes_lent + s->bytes_tcp + s->bytes_rdma;
}

/* No call is in flight. */
static void assert_adds_up(const struct kvpool_stats *s)
{
	assert_int_equal(s->lookups, lookups_known(s));
	assert_int_equal(s->gets, gets_known(s));
	assert_int_equal(s->puts, puts_known(s));
	assert_int_equal(s->bytes_got, bytes_known(s));
}

/* Since `was`, exactly what `want` has, and nothing else. Sets *was. */
static void assert_counted(const struct kvpool *p, struct kvpool_stats *was,
			   struct kvpool_stats want)
{
	struct kvpool_stats now = stats_of(p);
	bool right = true;

#define COMPARE(member)                                                    \
	if (now.member - was->member != want.member) {                     \
		print_message(#member ": %llu, not %llu\n",                \
			      (unsigned long long)(now.member - was->member), \
			      (unsigned long long)want.member);            \
		right = false;                                             \
	}
	MEMBERS(COMPARE)
#undef COMPARE
	assert_true(right);
	assert_adds_up(&now);
	*was = now;
}

#define COUNTED(p, was, ...) \
	assert_counted(p, was, (struct kvpool_stats){ __VA_ARGS__ })

/* On a busy machine no holder is given up, nor the master. */
static int setup_patient(void **state)
{
	int err;
	struct fixture *f;

	client_heartbeat_ms = 5000;
	err = setup(state);
	f = *state;
	f->pool->lines.stall_ms = f->other->lines.stall_ms = 30000;
	return err;
}

static int setup_patient_local(void **state)
{
	int err;
	struct fixture *f;

	client_heartbeat_ms = 5000;
	err = setup_local(state);
	f = *state;
	f->pool->lines.stall_ms = f->other->lines.stall_ms = 30000;
	return err;
}

/* ---- look-ups ---- */

static void a_look_up_is_a_hit_or_a_miss(void **state)
{
	struct fixture *f = *state;
	struct kvpool_stats pool, other;
	struct kvpool_key keys[] = { { "a", 1 }, { "b", 1 }, { "none", 4 },
				     { "a", 1 }, { NULL, 3 } };
	int64_t ret[5];

	put(f, "a", 1000, 1);
	put(f, "b", 1000, 2);
	pool = stats_of(f->pool);
	other = stats_of(f->other);
	assert_int_equal(kvpool_exists(f->ns, "a", 1), 1);
	assert_int_equal(kvpool_get_size(f->ns, "b", 1), 1000);
	COUNTED(f->pool, &pool, .lookups = 2, .hits_here = 2);
	assert_int_equal(kvpool_exists(f->other_ns, "a", 1), 1);
	assert_int_equal(kvpool_get_size(f->other_ns, "b", 1), 1000);
	COUNTED(f->other, &other, .lookups = 2, .hits_peer = 2);
	assert_int_equal(kvpool_exists(f->ns, "none", 4), 0);
	assert_int_equal(kvpool_get_size(f->ns, "none", 4), -ENOENT);
	COUNTED(f->pool, &pool, .lookups = 2, .misses = 2);
	assert_int_equal(kvpool_batch_exists(f->other_ns, keys, 5, ret), 3);
	COUNTED(f->other, &other, .lookups = 5, .hits_peer = 3, .misses = 1,
		.lookups_invalid = 1);
	assert_int_equal(kvpool_batch_get_size(f->ns, keys, 5, ret), 3);
	COUNTED(f->pool, &pool, .lookups = 5, .hits_here = 3, .misses = 1,
		.lookups_invalid = 1);
	/* one that is put, but not on a store yet */
	assert_int_equal(kvpool_put_from(f->ns, "c", 1, f->mem, 1000, 0), 0);
	assert_int_equal(kvpool_exists(f->ns, "c", 1), 1);
	COUNTED(f->pool, &pool, .lookups = 1, .hits_here = 1, .puts = 1,
		.puts_stored = 1, .bytes_put = 1000);
}

static void behind_the_first_missing_key_all_are_skipped(void **state)
{
	struct fixture *f = *state;
	enum { N = 1000 };
	struct kvpool_key *keys = calloc(N, sizeof(*keys));
	struct kvpool_stats was;

	put(f, "a", 10, 1);
	for (unsigned int i = 0; i < N; i++)
		keys[i] = (struct kvpool_key){ "a", 1 };
	was = stats_of(f->other);
	assert_int_equal(kvpool_exists_prefix(f->other_ns, keys, N), N);
	COUNTED(f->other, &was, .lookups = N, .hits_peer = N);
	keys[300] = (struct kvpool_key){ "none", 4 };
	assert_int_equal(kvpool_exists_prefix(f->other_ns, keys, N), 300);
	COUNTED(f->other, &was, .lookups = N, .hits_peer = 300, .misses = 1,
		.lookups_skipped = N - 301);
	keys[5] = (struct kvpool_key){ NULL, 3 };
	assert_int_equal(kvpool_exists_prefix(f->other_ns, keys, N), 5);
	COUNTED(f->other, &was, .lookups = N, .hits_peer = 5,
		.lookups_invalid = 1, .lookups_skipped = N - 6);
	free(keys);
}

static void while_no_master_is_there_look_ups_are_counted(void **state)
{
	struct fixture *f = *state;
	struct kvpool_key keys[] = { { "a", 1 }, { "none", 4 }, { "a", 1 } };
	struct kvpool_stats was;

	put(f, "a", 10, 1);
	was = stats_of(f->other);
	assert_int_equal(kvpool_exists(f->other_ns, "a", 1), 1);
	COUNTED(f->other, &was, .lookups = 1, .hits_peer = 1);
	call(f, on_stop_master);
	unit_poll_until(f->other->away);
	assert_int_equal(kvpool_exists_prefix(f->other_ns, keys, 3), 1);
	COUNTED(f->other, &was, .lookups = 3, .lookups_away = 3,
		.hits_peer = 1, .misses = 1, .lookups_skipped = 1);
}

/* ---- gets ---- */

static void what_is_got_has_one_source(void **state)
{
	struct fixture *f = *state;
	struct kvpool_stats pool, other;
	const void *at;
	size_t len;
	int fd;

	put(f, "small", 5000, 1);
	put(f, "large", 700000, 2);
	pool = stats_of(f->pool);
	other = stats_of(f->other);
	/* The one that put them has them. */
	assert_int_equal(kvpool_get_into(f->ns, "small", 5, f->mem, MEM, 0),
			 5000);
	assert_int_equal(kvpool_get_into(f->ns, "large", 5, f->mem, MEM, 0),
			 700000);
	COUNTED(f->pool, &pool, .gets = 2, .gets_here = 2, .bytes_got = 705000,
		.bytes_here = 705000);
	/* The other receives them, each time. */
	for (unsigned int i = 0; i < 5; i++) {
		assert_int_equal(get_other(f, "small", MEM), 5000);
		assert_int_equal(get_other(f, "large", MEM), 700000);
	}
	COUNTED(f->other, &other, .gets = 10, .gets_tcp = 10,
		.bytes_got = 5 * 705000, .bytes_tcp = 5 * 705000);
	/* Into a file, which then is here. */
	fd = kvpool_open(f->other_ns, "large", 5);
	assert_true(fd >= 0);
	close(fd);
	COUNTED(f->other, &other, .gets = 1, .gets_tcp = 1,
		.bytes_got = 700000, .bytes_tcp = 700000);
	assert_int_equal(kvpool_map(f->other_ns, "large", 5, &at, &len), 0);
	kvpool_unmap(at, len);
	assert_int_equal(get_other(f, "large", MEM), 700000);
	assert_int_equal(kvpool_exists(f->other_ns, "large", 5), 1);
	COUNTED(f->other, &other, .gets = 2, .gets_here = 2,
		.bytes_got = 1400000, .bytes_here = 1400000, .lookups = 1,
		.hits_here = 1);
}

/* Larger than what the caller's thread receives itself. */
static void a_large_object_is_received_by_the_movers(void **state)
{
	struct fixture *f = *state;
	enum { SIZE = 9 << 20 };
	char *mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kvpool_stats was;

	assert_int_equal(kvpool_register_buffer(f->pool, mem, SIZE), 0);
	assert_int_equal(kvpool_register_buffer(f->other, mem, SIZE), 0);
	assert_int_equal(kvpool_put_from(f->ns, "k", 1, mem, SIZE,
					 KVPOOL_SYNC), 0);
	was = stats_of(f->other);
	assert_int_equal(kvpool_get_into(f->other_ns, "k", 1, mem, SIZE, 0),
			 SIZE);
	COUNTED(f->other, &was, .gets = 1, .gets_tcp = 1, .bytes_got = SIZE,
		.bytes_tcp = SIZE);
	assert_int_equal(kvpool_unregister_buffer(f->pool, mem), 0);
	assert_int_equal(kvpool_unregister_buffer(f->other, mem), 0);
	munmap(mem, SIZE);
}

static void a_store_of_this_host_lends(void **state)
{
	struct fixture *f = *state;
	struct kvpool_stats was;

	put(f, "small", 5000, 1);
	put(f, "large", 700000, 2);
	was = stats_of(f->other);
	assert_int_equal(get_other(f, "large", MEM), 700000);
	assert_int_equal(get_other(f, "large", MEM), 700000);
	COUNTED(f->other, &was, .gets = 2, .gets_lent = 2,
		.bytes_got = 1400000, .bytes_lent = 1400000);
	/* A small one is sent three times, then lent. */
	for (unsigned int i = 0; i < 5; i++)
		assert_int_equal(get_other(f, "small", MEM), 5000);
	COUNTED(f->other, &was, .gets = 5, .gets_tcp = 3, .gets_lent = 2,
		.bytes_got = 25000, .bytes_tcp = 15000, .bytes_lent = 10000);
	assert_int_equal(kvpool_exists(f->other_ns, "small", 5), 1);
	COUNTED(f->other, &was, .lookups = 1, .hits_here = 1);
}

static void a_copy_that_is_verified_first_is_here(void **state)
{
	struct fixture *f = *state;
	struct kvpool_stats was;
	struct node_dirent *dir;
	struct node_entry *e;
	int err;

	put(f, "k", 1000, 1);
	pthread_rwlock_wrlock(&f->pool->lock);
	err = client_ns_dir(f->ns, &dir);
	e = err ? NULL : node_file(client_find(f->pool, dir, "k", 1));
	if (e && e->obj)
		e->obj->verified = false; /* as after a start */
	pthread_rwlock_unlock(&f->pool->lock);
	assert_true(e && e->obj);
	was = stats_of(f->pool);
	assert_int_equal(kvpool_get_into(f->ns, "k", 1, f->mem, MEM, 0), 1000);
	COUNTED(f->pool, &was, .gets = 1, .gets_here = 1, .bytes_got = 1000,
		.bytes_here = 1000);
}

static void a_get_that_fails_has_one_cause(void **state)
{
	struct fixture *f = *state;
	struct kvpool_stats was;
	struct kvpool_ns *root;
	char outside[16];

	put(f, "k", 1000, 1);
	assert_int_equal(kvpool_open_ns(f->other, "", NULL, &root), 0);
	was = stats_of(f->other);
	assert_int_equal(get_other(f, "none", MEM), -ENOENT);
	assert_int_equal(kvpool_open(f->other_ns, "none", 4), -ENOENT);
	COUNTED(f->other, &was, .gets = 2, .gets_missed = 2);
	assert_int_equal(get_other(f, "k", 999), -EMSGSIZE);
	assert_int_equal(kvpool_get_into(f->other_ns, "k", 1, f->mem, 1001,
					 KVPOOL_EXACT), -EMSGSIZE);
	COUNTED(f->other, &was, .gets = 2, .gets_unfit = 2);
	assert_int_equal(kvpool_get_into(f->other_ns, "k", 1, outside, 16, 0),
			 -EFAULT);
	assert_int_equal(kvpool_get_into(f->other_ns, f->mem,
					 KVPOOL_KEY_MAX + 1, f->mem, MEM, 0),
			 -ENAMETOOLONG);
	assert_int_equal(kvpool_get_into(f->other_ns, NULL, 1, f->mem, MEM, 0),
			 -EINVAL);
	assert_int_equal(kvpool_get_into(root, "ns", 2, f->mem, MEM, 0),
			 -EISDIR);
	COUNTED(f->other, &was, .gets = 4, .gets_invalid = 4);
	/* Refused as a whole. */
	assert_int_equal(kvpool_get_into(f->other_ns, "k", 1, f->mem, 1000,
					 1u << 9), -EINVAL);
	COUNTED(f->other, &was, .gets = 0);
	kvpool_close_ns(root);
}

static void what_no_holder_sends_is_undelivered(void **state)
{
	struct fixture *f = *state;
	struct kvpool_stats was, now;

	put(f, "k", 1000, 1);
	call(f, on_stop_master); /* so that nobody says that it is gone */
	call(f, on_stop_stores);
	was = stats_of(f->other);
	assert_int_equal(get_other(f, "k", MEM), -ENOENT);
	now = stats_of(f->other);
	assert_true(now.retries > was.retries);
	was.retries = now.retries;
	COUNTED(f->other, &was, .gets = 1, .gets_undelivered = 1);
}

/* ---- puts ---- */

static void a_put_has_one_result(void **state)
{
	struct fixture *f = *state;
	size_t large = 25 << 20; /* more than the buffer */
	char *mem = mmap(NULL, large, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kvpool_stats was = stats_of(f->pool);
	struct kvpool_ns *root;
	char outside[16] = "";

	assert_int_equal(kvpool_register_buffer(f->pool, mem, large), 0);
	assert_int_equal(kvpool_open_ns(f->pool, "", NULL, &root), 0);
	put(f, "k", 1000, 1);
	put(f, "k", 200000, 1);
	COUNTED(f->pool, &was, .puts = 2, .puts_stored = 2,
		.bytes_put = 201000);
	assert_int_equal(kvpool_put_from(f->ns, "k", 1, f->mem, 1000,
					 KVPOOL_IF_ABSENT), -EEXIST);
	assert_int_equal(kvpool_put_from(f->ns, "l", 1, f->mem, 1000,
					 KVPOOL_IF_ABSENT), 0);
	COUNTED(f->pool, &was, .puts = 2, .puts_stored = 1, .puts_existed = 1,
		.bytes_put = 1000);
	assert_int_equal(kvpool_put_from(f->ns, "m", 1, outside, 16, 0),
			 -EFAULT);
	assert_int_equal(kvpool_put_from(f->ns, "m", 1, mem, large, 0),
			 -EFBIG);
	assert_int_equal(kvpool_put_from(f->ns, NULL, 1, f->mem, 16, 0),
			 -EINVAL);
	assert_int_equal(kvpool_put_from(f->ns, f->mem, KVPOOL_KEY_MAX + 1,
					 f->mem, 16, 0), -ENAMETOOLONG);
	assert_int_equal(kvpool_put_from(root, "ns", 2, f->mem, 16, 0),
			 -EISDIR);
	COUNTED(f->pool, &was, .puts = 5, .puts_invalid = 5);
	kvpool_close_ns(root);
	assert_int_equal(kvpool_unregister_buffer(f->pool, mem), 0);
	munmap(mem, large);
}

static void what_finds_no_space_is_counted(void **state)
{
	struct fixture *f = *state;
	struct kvpool_stats was;
	unsigned int n;
	char key[16];
	int err;

	call(f, on_stop_stores); /* nobody takes what was put */
	pthread_rwlock_wrlock(&f->pool->lock);
	f->pool->node->opts.deadline_ms = 50; /* a put waits five times this */
	pthread_rwlock_unlock(&f->pool->lock);
	was = stats_of(f->pool);
	for (n = 0, err = 0; !err && n < 20; n++) {
		snprintf(key, sizeof(key), "k%u", n);
		fill(f->mem, 3 << 20, n);
		err = kvpool_put_from(f->ns, key, strlen(key), f->mem, 3 << 20,
				      0);
	}
	assert_int_equal(err, -ENOSPC);
	COUNTED(f->pool, &was, .puts = n, .puts_stored = n - 1,
		.bytes_put = (n - 1) * (3ull << 20), .puts_full = 1);
	call(f, on_start_stores);
}

/* Without descriptors: an error that no other heading has. */
static void other_errors_are_failures(void **state)
{
	struct rlimit all, none = { 0 };
	struct fixture *f = *state;
	struct kvpool_stats was;
	int64_t got;
	int err;

	put(f, "k", 1000, 1);
	was = stats_of(f->pool);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
	none.rlim_max = all.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	got = kvpool_get_into(f->ns, "k", 1, f->mem, MEM, 0);
	err = kvpool_put_from(f->ns, "l", 1, f->mem, 1000, 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
	assert_int_equal(got, -EMFILE);
	assert_int_equal(err, -EMFILE);
	COUNTED(f->pool, &was, .gets = 1, .gets_failed = 1, .puts = 1,
		.puts_failed = 1);
}

/* ---- retries ---- */

/* No line is taken to any peer. */
static void back_off(struct fixture *f, struct client_lines *lines)
{
	pthread_mutex_lock(&lines->lock);
	for (int i = 0; i < STORES; i++) {
		memcpy(lines->backoff[i].id,
		       pool_store_id(pool_node_store(f->s[i].node)),
		       POOL_ID_SIZE);
		lines->backoff[i].until_ms = UINT64_MAX;
	}
	pthread_mutex_unlock(&lines->lock);
}

static void further_attempts_are_counted(void **state)
{
	struct fixture *f = *state;
	char *fixed = mmap(NULL, 4096, PROT_READ,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kvpool_stats was;

	put(f, "k", 1000, 1);
	assert_int_equal(kvpool_register_buffer(f->other, fixed, 4096), 0);
	was = stats_of(f->other);
	/* Not by a line, but by the loop. */
	back_off(f, &f->other->lines);
	assert_int_equal(get_other(f, "k", MEM), 1000);
	COUNTED(f->other, &was, .gets = 1, .gets_tcp = 1, .bytes_got = 1000,
		.bytes_tcp = 1000, .retries = 1);
	/* Nor directly: a file is received, and cannot be copied either. */
	assert_int_equal(kvpool_get_into(f->other_ns, "k", 1, fixed, 4096, 0),
			 -EFAULT);
	COUNTED(f->other, &was, .gets = 1, .gets_invalid = 1, .retries = 2);
	assert_int_equal(get_other(f, "k", MEM), 1000);
	COUNTED(f->other, &was, .gets = 1, .gets_here = 1, .bytes_got = 1000,
		.bytes_here = 1000);
	assert_int_equal(kvpool_unregister_buffer(f->other, fixed), 0);
	munmap(fixed, 4096);
}

/* A get whose bytes cannot be delivered. A slow call may outlast the name,
 * which goes with its only copy. Returns its retries. */
static uint64_t get_undelivered(struct fixture *f, const char *key)
{
	struct kvpool_stats was = stats_of(f->pool), now;
	uint64_t retries;

	assert_int_equal(kvpool_get_into(f->ns, key, 1, f->mem, MEM, 0),
			 -ENOENT);
	now = stats_of(f->pool);
	retries = now.retries - was.retries;
	was.retries = now.retries;
	if (now.gets_missed > was.gets_missed)
		COUNTED(f->pool, &was, .gets = 1, .gets_missed = 1);
	else
		COUNTED(f->pool, &was, .gets = 1, .gets_undelivered = 1);
	return retries;
}

/* The file of what was put, and is on no store yet, is damaged; that of another
 * object is lost. */
static void an_attempt_is_made_again_and_again(void **state)
{
	struct fixture *f = *state;
	char cmd[200];

	call(f, on_stop_master);
	assert_int_equal(kvpool_put_from(f->ns, "k", 1, f->mem, 1000, 0), 0);
	snprintf(cmd, sizeof(cmd), "truncate -s 10 %s/0/store/????????????????",
		 f->buffer_dir);
	assert_int_equal(system(cmd), 0);
	(void)get_undelivered(f, "k");
	assert_int_equal(kvpool_put_from(f->ns, "l", 1, f->mem, 1000, 0), 0);
	snprintf(cmd, sizeof(cmd), "rm %s/0/store/????????????????",
		 f->buffer_dir);
	assert_int_equal(system(cmd), 0);
	assert_true(get_undelivered(f, "l") > 10);
}

/* ---- all at once ---- */

#define THREADS 4
#define ROUNDS 40
#define SIZE 3000

struct worker {
	struct fixture *f;
	pthread_t thread;
	unsigned int nth, wrong;
};

/* One round: of `other` 5 look-ups and 4 gets; of `pool` 1 look-up, 2 gets, and
 * 3 puts. */
static void round_of(struct worker *w, unsigned int i)
{
	char *mem = w->f->mem + w->nth * 65536, key[32];
	struct kvpool_ns *ns = w->f->ns, *other = w->f->other_ns;
	struct kvpool_key keys[] = { { "k", 1 }, { "none", 4 }, { "k", 1 } };
	struct kvpool_buf bufs[] = { { mem, SIZE }, { mem, SIZE },
				     { mem + SIZE, SIZE } };
	size_t len = (size_t)snprintf(key, sizeof(key), "k%u-%u", w->nth, i);
	int64_t ret[3];

	w->wrong += kvpool_exists(other, "k", 1) != 1;
	w->wrong += kvpool_exists(other, "none", 4) != 0;
	w->wrong += kvpool_exists_prefix(other, keys, 3) != 1;
	w->wrong += kvpool_batch_get_into(other, keys, bufs, 3, 0, ret) != 2;
	w->wrong += kvpool_get_into(other, "k", 1, mem, SIZE - 1, 0) !=
		    -EMSGSIZE;
	w->wrong += kvpool_put_from(ns, key, len, mem, SIZE, 0) != 0;
	w->wrong += kvpool_put_from(ns, key, len, mem, SIZE,
				    KVPOOL_IF_ABSENT) != -EEXIST;
	w->wrong += kvpool_put_from(ns, key, len, key, 4, 0) != -EFAULT;
	w->wrong += kvpool_exists(ns, "k", 1) != 1;
	w->wrong += kvpool_get_into(ns, "k", 1, mem, SIZE, 0) != SIZE;
	w->wrong += kvpool_get_into(ns, "k", 1, key, 4, 0) != -EFAULT;
}

static void *work(void *arg)
{
	struct worker *w = arg;

	for (unsigned int i = 0; i < ROUNDS; i++)
		round_of(w, i);
	return NULL;
}

static void run_workers(struct fixture *f, void *(*run_one)(void *arg))
{
	struct worker w[THREADS];

	for (unsigned int i = 0; i < THREADS; i++) {
		w[i] = (struct worker){ .f = f, .nth = i };
		pthread_create(&w[i].thread, NULL, run_one, &w[i]);
	}
	for (unsigned int i = 0; i < THREADS; i++) {
		pthread_join(w[i].thread, NULL);
		assert_int_equal(w[i].wrong, 0);
	}
}

static void threads_count_together(void **state)
{
	struct fixture *f = *state;
	struct kvpool_stats pool, other;
	enum { N = THREADS * ROUNDS };

	put(f, "k", SIZE, 1);
	pool = stats_of(f->pool);
	other = stats_of(f->other);
	run_workers(f, work);
	COUNTED(f->other, &other, .lookups = 5 * N, .hits_peer = 2 * N,
		.misses = 2 * N, .lookups_skipped = N, .gets = 4 * N,
		.gets_tcp = 2 * N, .gets_missed = N, .gets_unfit = N,
		.bytes_got = 2 * N * SIZE, .bytes_tcp = 2 * N * SIZE);
	COUNTED(f->pool, &pool, .lookups = N, .hits_here = N, .gets = 2 * N,
		.gets_here = N, .gets_invalid = N, .bytes_got = N * SIZE,
		.bytes_here = N * SIZE, .puts = 3 * N, .puts_stored = N,
		.puts_existed = N, .puts_invalid = N, .bytes_put = N * SIZE);
}

/* What is quick, so that threads meet in the counters. */
#define QUICK_ROUNDS 20000

static void *be_quick(void *arg)
{
	struct worker *w = arg;
	char *mem = w->f->mem + w->nth * 65536;

	for (unsigned int i = 0; i < QUICK_ROUNDS; i++) {
		w->wrong += kvpool_exists(w->f->ns, "none", 4) != 0;
		w->wrong += kvpool_get_into(w->f->ns, "k", 1, mem, 10, 0) != 10;
	}
	return NULL;
}

static _Atomic bool ended;

static void *watch(void *arg)
{
	struct worker *w = arg;

	while (!ended) {
		struct kvpool_stats s = { .struct_size = sizeof(s) };

		w->wrong += kvpool_stats(w->f->pool, &s) != 0;
		w->wrong += lookups_known(&s) > s.lookups;
		w->wrong += gets_known(&s) > s.gets;
		w->wrong += bytes_known(&s) > s.bytes_got;
	}
	return NULL;
}

static void at_no_moment_are_there_more_results_than_keys(void **state)
{
	struct fixture *f = *state;
	struct worker watcher = { .f = f };
	struct kvpool_stats was;
	enum { N = THREADS * QUICK_ROUNDS };

	put(f, "k", 10, 1);
	was = stats_of(f->pool);
	ended = false;
	pthread_create(&watcher.thread, NULL, watch, &watcher);
	run_workers(f, be_quick);
	ended = true;
	pthread_join(watcher.thread, NULL);
	assert_int_equal(watcher.wrong, 0);
	COUNTED(f->pool, &was, .lookups = N, .misses = N, .gets = N,
		.gets_here = N, .bytes_got = 10 * N, .bytes_here = 10 * N);
}

static void requests_are_counted_as_calls(void **state)
{
	struct fixture *f = *state;
	struct pollfd at = { .fd = kvpool_event_fd(f->other),
			     .events = POLLIN };
	struct kvpool_key k = { "k", 1 };
	struct kvpool_buf b = { f->mem, MEM };
	struct kvpool_completion c;
	struct kvpool_stats was;
	int64_t ret[2];

	put(f, "k", 1000, 1);
	was = stats_of(f->other);
	assert_int_equal(kvpool_submit(f->other_ns, KVPOOL_CALL_EXISTS, &k,
				       NULL, 1, 0, &ret[0], 0), 0);
	assert_int_equal(kvpool_submit(f->other_ns, KVPOOL_CALL_GET_INTO, &k,
				       &b, 1, 0, &ret[1], 1), 0);
	for (unsigned int left = 2; left > 0;) {
		assert_int_equal(poll(&at, 1, 10000), 1);
		left -= (unsigned int)kvpool_completions(f->other, &c, 1);
	}
	COUNTED(f->other, &was, .lookups = 1, .hits_peer = 1, .gets = 1,
		.gets_tcp = 1, .bytes_got = 1000, .bytes_tcp = 1000);
	/* Other calls are neither. */
	assert_int_equal(kvpool_touch(f->other_ns, "k", 1), 0);
	assert_int_equal(kvpool_pin(f->other_ns, "k", 1, 60), 0);
	assert_int_equal(kvpool_remove(f->other_ns, "k", 1), 0);
	COUNTED(f->other, &was, .retries = 0);
}

/* ---- latency ---- */

static void one_of_64_calls_is_timed(void **state)
{
	struct fixture *f = *state;
	struct kvpool_key keys[] = { { "k", 1 }, { "none", 4 } };
	struct kvpool_stats was, now;
	int64_t ret[2];

	put(f, "k", 1000, 1);
	was = stats_of(f->pool);
	for (unsigned int i = 0; i < 640; i++) {
		assert_int_equal(kvpool_batch_exists(f->ns, keys, 2, ret), 1);
		if (i % 10 == 0) /* neither is counted for the other */
			assert_int_equal(kvpool_get_into(f->ns, "k", 1, f->mem,
							 4096, 0), 1000);
	}
	now = stats_of(f->pool);
	assert_int_equal(now.lookup_calls_timed - was.lookup_calls_timed, 10);
	assert_int_equal(now.get_calls_timed - was.get_calls_timed, 1);
	assert_int_equal(now.put_calls_timed, was.put_calls_timed);
	assert_true(now.lookup_calls_p50_ns >= 1000);
	assert_true(now.lookup_calls_p50_ns <= now.lookup_calls_p99_ns);
	assert_true(now.get_calls_p50_ns >= 1000);
	for (unsigned int i = 0; i < 64; i++)
		put(f, "k", 1000, 1);
	now = stats_of(f->pool);
	assert_int_equal(now.put_calls_timed - was.put_calls_timed, 1);
	assert_true(now.put_calls_p99_ns >= 1000);
	/* A call that is refused takes no turn. */
	was = now;
	for (unsigned int i = 0; i < 64; i++)
		assert_int_equal(kvpool_batch_exists(f->ns, NULL, 2, ret),
				 -EINVAL);
	now = stats_of(f->pool);
	assert_int_equal(now.lookup_calls_timed, was.lookup_calls_timed);
}

/* ---- the struct ---- */

static void the_struct_may_grow(void **state)
{
	struct fixture *f = *state;
	struct {
		struct kvpool_stats s;
		uint64_t more[2];
	} newer = { .s.struct_size = sizeof(newer), .more = { 7, 7 } };
	/* As the struct was when it was new. */
	const size_t first = offsetof(struct kvpool_stats, retries) + 8;
	struct kvpool_stats s = { .struct_size = first - 1 };

	put(f, "k", 1000, 1);
	assert_int_equal(kvpool_stats(f->pool, &newer.s), 0);
	assert_int_equal(newer.s.struct_size, sizeof(newer));
	assert_int_equal(newer.s.puts, 1);
	assert_int_equal(newer.more[0] + newer.more[1], 0);
	assert_int_equal(kvpool_stats(f->pool, &s), -EINVAL);
	assert_int_equal(kvpool_stats(f->pool, NULL), -EINVAL);
	assert_int_equal(kvpool_stats(NULL, &s), -EINVAL);
	s.struct_size = first;
	s.lookup_calls_timed = 7;
	assert_int_equal(kvpool_stats(f->pool, &s), 0);
	assert_int_equal(s.puts, 1);
	assert_int_equal(s.lookup_calls_timed, 7);
}

/* The same figures are metrics, which the log shows at the end. */
static void figures_are_metrics(void **state)
{
	struct fixture *f = *state;
	char *text;
	size_t len;

	put(f, "k", 1000, 1);
	assert_int_equal(get_other(f, "k", MEM), 1000);
	assert_int_equal(get_other(f, "none", MEM), -ENOENT);
	pthread_rwlock_wrlock(&f->other->lock);
	assert_int_equal(pool_metrics_print(f->other->metrics, &text, &len),
			 0);
	pthread_rwlock_unlock(&f->other->lock);
	assert_non_null(strstr(text, "\nkvpool_client_gets_total 2\n"));
	assert_non_null(strstr(text, "\nkvpool_client_get_results_total{"
				     "result=\"tcp\"} 1\n"));
	assert_non_null(strstr(text, "\nkvpool_client_get_results_total{"
				     "result=\"missed\"} 1\n"));
	assert_non_null(strstr(text, "\nkvpool_client_got_bytes_total{"
				     "source=\"tcp\"} 1000\n"));
	assert_non_null(strstr(text, "\nkvpool_client_call_seconds_count{"
				     "call=\"put\"} 0\n"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define P(t) { #t, t, setup_patient, teardown, NULL }
		P(a_look_up_is_a_hit_or_a_miss),
		P(behind_the_first_missing_key_all_are_skipped),
		P(while_no_master_is_there_look_ups_are_counted),
		P(what_is_got_has_one_source),
		P(a_large_object_is_received_by_the_movers),
		{ "a_store_of_this_host_lends", a_store_of_this_host_lends,
		  setup_patient_local, teardown, NULL },
		P(a_copy_that_is_verified_first_is_here),
		P(a_get_that_fails_has_one_cause),
		T(what_no_holder_sends_is_undelivered),
		P(a_put_has_one_result),
		P(what_finds_no_space_is_counted),
		P(other_errors_are_failures),
		P(further_attempts_are_counted),
		P(an_attempt_is_made_again_and_again),
		P(threads_count_together),
		P(at_no_moment_are_there_more_results_than_keys),
		P(requests_are_counted_as_calls),
		P(one_of_64_calls_is_timed),
		P(the_struct_may_grow),
		P(figures_are_metrics),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
