#include "master/etcd_state.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "master/map.h"
#include "master/state_rec.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/conn/peer_addr.h"
#include "pool/model/tree.h" /* POOL_PATH_MAX */

#define CALL_MS 1000
#define RETRY_MS 200
#define KEY_MAX (POOL_PATH_MAX + 256)

/* A record in the queue, or a loaded one. */
struct item {
	struct pool_list link;
	uint64_t key_hash;
	size_t key_len, value_len; /* value_len 0: delete the key */
	char bytes[];		   /* key, value */
};

struct etcd_state {
	struct etcd_state_opts o;
	struct etcd_req req;
	bool busy, closed;
	struct pool_list loaded; /* struct item */
	struct pool_list queue;	 /* struct item, the oldest first */
	size_t queue_bytes;
	uint64_t appended, settled, cost;
	unsigned int writing;	 /* items of the transaction in flight */
	int64_t last;		 /* revision of the last transaction; it may
				    not be known */
	uint64_t retry_ms;	 /* no transaction before */
	unsigned int kind;	 /* enum kind being loaded */
	char from[KEY_MAX];	 /* first key of the next page */
	size_t from_len;
};

/* In the order of loading. Tombstones come before directories: a deleted name
 * may have been made again as a directory, which removes its tombstone. */
static const char *const kinds[] = { "tomb/", "dir/", "lost", "member/",
				     "drain/" };
#define NKINDS (sizeof(kinds) / sizeof(kinds[0]))
/* Follows the id in the key of a LOST record. */
static const char *const kind_of_account[MASTER_BY_KINDS] = { "", "d", "g",
							      "a", "s" };
enum kind { TOMBS, DIRS, LOST_TIME, MEMBERS, DRAINS };

static void free_items(struct pool_list *list)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, list)
		free(pool_list_entry(it, struct item, link));
	pool_list_init(list);
}

static void free_state(struct etcd_state *s)
{
	free_items(&s->loaded);
	free_items(&s->queue);
	free(s);
}

static size_t make_key(const struct etcd_state *s, enum kind kind,
		       const void *name, size_t len, char key[KEY_MAX])
{
	int n = snprintf(key, KEY_MAX, "%sstate/%s", s->o.prefix, kinds[kind]);

	assert(n > 0 && (size_t)n + len <= KEY_MAX);
	if (len)
		memcpy(key + n, name, len);
	return (size_t)n + len;
}

/* A former owner's key has an empty component, so it is no other name's key. */
static size_t tomb_key(const struct etcd_state *s, const void *path,
		       size_t len, bool former, uint32_t uid,
		       char key[KEY_MAX])
{
	size_t n = make_key(s, TOMBS, path, len, key);

	if (former)
		n += (size_t)snprintf(key + n, KEY_MAX - n, "//%u", uid);
	return n;
}

static struct item *new_item(struct etcd_slice key, struct etcd_slice value)
{
	struct item *i = malloc(sizeof(*i) + key.len + value.len);

	if (!i)
		return NULL;
	i->key_hash = XXH3_64bits(key.p, key.len);
	i->key_len = key.len;
	i->value_len = value.len;
	memcpy(i->bytes, key.p, key.len);
	if (value.len)
		memcpy(i->bytes + key.len, value.p, value.len);
	return i;
}

/* ---- loading ---- */

static int load_page(struct etcd_state *s);

static int take_kv(struct etcd_state *s, const json_t *kv)
{
	char *key = NULL, *value = NULL;
	size_t key_len, value_len;
	struct item *i = NULL;
	int err = etcd_bytes(kv, "key", &key, &key_len);

	if (!err)
		err = etcd_bytes(kv, "value", &value, &value_len);
	if (!err && key_len >= KEY_MAX)
		err = -EPROTO;
	if (!err) {
		i = new_item(etcd_slice(key, key_len),
			     etcd_slice(value, value_len));
		err = i ? 0 : -ENOMEM;
	}
	if (i) {
		pool_list_add_tail(&s->loaded, &i->link);
		/* The next page begins at the smallest key after this one. */
		memcpy(s->from, key, key_len);
		s->from[key_len] = 0;
		s->from_len = key_len + 1;
	}
	free(key);
	free(value);
	return err;
}

static int take_page(struct etcd_state *s, const json_t *answer)
{
	const json_t *kvs = json_object_get(answer, "kvs"), *kv;
	size_t i;
	int err;

	json_array_foreach(kvs, i, kv) {
		err = take_kv(s, kv);
		if (err)
			return err;
	}
	if (json_is_true(json_object_get(answer, "more")) && i)
		return 0;
	if (++s->kind < NKINDS)
		s->from_len = make_key(s, s->kind, NULL, 0, s->from);
	return 0;
}

static void on_page(struct etcd_req *r, int err, json_t *answer)
{
	struct etcd_state *s = pool_container_of(r, struct etcd_state, req);

	s->busy = false;
	if (s->closed)
		return free_state(s);
	if (!err)
		err = take_page(s, answer);
	if (!err && s->kind < NKINDS)
		err = load_page(s);
	if (err || s->kind == NKINDS)
		s->o.loaded(s->o.arg, err);
}

/* "lost" is one key: the range up to "losu". */
static int load_page(struct etcd_state *s)
{
	char end[KEY_MAX];
	size_t n = make_key(s, s->kind, NULL, 0, end);
	int err;

	end[n - 1]++;
	s->req.cb = on_page;
	err = etcd_start(s->o.etcd, &s->req, ETCD_RANGE,
			 etcd_range(etcd_slice(s->from, s->from_len),
				    etcd_slice(end, n), ETCD_STATE_PAGE),
			 2 * CALL_MS);
	s->busy = !err;
	return err;
}

int etcd_state_open(const struct etcd_state_opts *opts,
		    struct etcd_state **ret_state)
{
	struct etcd_state *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return -ENOMEM;
	s->o = *opts;
	pool_list_init(&s->loaded);
	pool_list_init(&s->queue);
	s->from_len = make_key(s, TOMBS, NULL, 0, s->from);
	err = load_page(s);
	if (err)
		free(s);
	else
		*ret_state = s;
	return err;
}

void etcd_state_close(struct etcd_state *s)
{
	if (!s)
		return;
	pool_gauge_set(&s->o.stats->queued, 0);
	pool_gauge_set(&s->o.stats->queued_bytes, 0);
	s->closed = true;
	if (!s->busy)
		free_state(s);
}

int etcd_state_replay(struct etcd_state *s,
		      int (*load)(void *arg, const struct master_record *r),
		      void *arg)
{
	struct pool_list *it, *tmp;
	int err = 0;

	pool_list_each(it, tmp, &s->loaded) {
		struct item *i = pool_list_entry(it, struct item, link);

		err = state_rec_decode((const uint8_t *)i->bytes + i->key_len,
				       i->value_len, load, arg);
		if (err == -EPROTO)
			pool_error("etcd: %.*s: damaged; it is left as it is "
				   "(restore etcd's data, or delete that key)",
				   (int)i->key_len, i->bytes);
		if (err == -EPROTONOSUPPORT) {
			pool_error("etcd: %.*s: of a type that this version of "
				   "the program does not know: a newer one "
				   "wrote it; it is left as it is (use that "
				   "one for all masters)",
				   (int)i->key_len, i->bytes);
			err = -EPROTO;
		}
		if (err)
			break;
	}
	free_items(&s->loaded);
	return err;
}

/* ---- writing ---- */

static void show_queue(const struct etcd_state *s)
{
	pool_gauge_set(&s->o.stats->queued,
		       (int64_t)(s->appended - s->settled));
	pool_gauge_set(&s->o.stats->queued_bytes, (int64_t)s->queue_bytes);
}

static void enqueue(struct etcd_state *s, struct etcd_slice key,
		    struct etcd_slice value)
{
	struct item *i;

	if (s->queue_bytes + key.len + value.len > ETCD_STATE_QUEUE_MAX)
		return s->o.failed(s->o.arg,
				   "too many records wait for etcd");
	i = new_item(key, value);
	if (!i)
		return s->o.failed(
			s->o.arg,
			"no memory for a record to be written to etcd");
	pool_list_add_tail(&s->queue, &i->link);
	s->queue_bytes += key.len + value.len;
	s->appended++;
	s->cost += 1 + (key.len + value.len) / ETCD_STATE_UNIT;
	show_queue(s);
}

static size_t record_key(const struct etcd_state *s,
			 const struct master_record *r, char key[KEY_MAX])
{
	char id[2 * POOL_ID_SIZE + 1];
	int i, n;

	switch (r->type) {
	case MASTER_REC_TOMB:
		return tomb_key(s, r->meta->path.data, r->meta->path.len,
				r->meta->gid != 0, r->meta->uid - 1, key);
	case MASTER_REC_DIR:
	case MASTER_REC_RMDIR:
		return make_key(s, DIRS, r->meta->path.data, r->meta->path.len,
				key);
	case MASTER_REC_LOST:
		if (r->account.id == MASTER_UID_ANYONE &&
		    r->account.kind == MASTER_BY_OWNER)
			return make_key(s, LOST_TIME, NULL, 0, key);
		n = snprintf(id, sizeof(id), "/%u%s", r->account.id,
			     kind_of_account[r->account.kind]);
		return make_key(s, LOST_TIME, id, (size_t)n, key);
	case MASTER_REC_MEMBER:
	case MASTER_REC_DRAIN:
		for (i = 0; i < POOL_ID_SIZE; i++)
			sprintf(id + 2 * i, "%02x", r->id[i]);
		return make_key(s, r->type == MASTER_REC_MEMBER ? MEMBERS :
								DRAINS,
				id, sizeof(id) - 1, key);
	case MASTER_REC_EPOCH: /* written by the election */
		break;
	}
	return 0;
}

void etcd_state_append(struct etcd_state *s, const struct master_record *r)
{
	uint8_t value[STATE_REC_MAX];
	char key[KEY_MAX];
	size_t key_len = record_key(s, r, key);
	ptrdiff_t len = 0;

	if (!key_len)
		return;
	if (r->type != MASTER_REC_RMDIR)
		len = state_rec_encode(r, value, sizeof(value));
	if (len < 0)
		return s->o.failed(s->o.arg, "a record is too large");
	enqueue(s, etcd_slice(key, key_len), etcd_slice(value, (size_t)len));
}

void etcd_state_forget(struct etcd_state *s, const struct master_grave *g)
{
	char key[KEY_MAX];

	enqueue(s, etcd_slice(key, tomb_key(s, g->path, g->path_len, g->former,
					    g->uid, key)),
		etcd_slice(NULL, 0));
}

/* The operation on i's key among the n, or n: there is none. */
static unsigned int op_of_key(struct item *const *ops, unsigned int n,
			      const struct item *i)
{
	unsigned int k;

	for (k = 0; k < n; k++)
		if (ops[k]->key_hash == i->key_hash &&
		    ops[k]->key_len == i->key_len &&
		    !memcmp(ops[k]->bytes, i->bytes, i->key_len))
			break;
	return k;
}

/* The next transaction's operations: the newest item of each key among the
 * first s->writing of the queue. Returns how many. */
static unsigned int choose_ops(struct etcd_state *s,
			       struct item *ops[ETCD_STATE_BATCH])
{
	unsigned int n = 0, k;
	struct pool_list *it, *tmp;
	size_t bytes = 0;

	s->writing = 0;
	pool_list_each(it, tmp, &s->queue) {
		struct item *i = pool_list_entry(it, struct item, link);

		k = op_of_key(ops, n, i);
		bytes += i->key_len + i->value_len;
		if (k < n)
			bytes -= ops[k]->key_len + ops[k]->value_len;
		if (k == ETCD_STATE_BATCH || bytes > ETCD_STATE_BATCH_BYTES ||
		    s->writing == ETCD_STATE_MERGED)
			break;
		ops[k] = i;
		n += k == n;
		s->writing++;
	}
	return n;
}

/* NULL: no memory. */
static json_t *op_of(const struct item *i)
{
	struct etcd_slice key = etcd_slice(i->bytes, i->key_len);

	if (!i->value_len)
		return etcd_op_delete(key);
	return etcd_op_put(key,
			   etcd_slice(i->bytes + i->key_len, i->value_len), 0);
}

/* The first items of the queue as operations; s->writing: how many. NULL: no
 * memory. */
static json_t *batch(struct etcd_state *s)
{
	struct item *chosen[ETCD_STATE_BATCH];
	unsigned int n = choose_ops(s, chosen), k;
	json_t *ops = json_array();

	for (k = 0; k < n; k++)
		if (json_array_append_new(ops, op_of(chosen[k]))) {
			json_decref(ops);
			return NULL;
		}
	return ops;
}

static void written(struct etcd_state *s)
{
	while (s->writing) {
		struct item *i = pool_list_first(&s->queue, struct item, link);

		pool_list_del(&i->link);
		s->queue_bytes -= i->key_len + i->value_len;
		free(i);
		s->writing--;
		s->settled++;
		pool_count(&s->o.stats->written);
	}
	show_queue(s);
	etcd_state_flush(s);
	s->o.settled(s->o.arg);
}

static struct etcd_slice key_of(const struct etcd_state *s, const char *name,
				char key[KEY_MAX])
{
	int n = snprintf(key, KEY_MAX, "%s%s", s->o.prefix, name);

	assert(n > 0 && n < KEY_MAX);
	return etcd_slice(key, (size_t)n);
}

/* If this is still the leader, one that timed out was executed, or it is the
 * leader's first: now the last one is known, and it is sent again. */
static void refused(struct etcd_state *s, const json_t *answer)
{
	const json_t *leader = etcd_txn_kv(answer, 0);

	if (!leader || etcd_int(leader, "create_revision") != s->o.fence)
		return s->o.failed(s->o.arg, "etcd has another leader");
	s->last = etcd_int(etcd_txn_kv(answer, 1), "mod_revision");
	etcd_state_flush(s);
}

static void on_written(struct etcd_req *r, int err, json_t *answer)
{
	struct etcd_state *s = pool_container_of(r, struct etcd_state, req);

	s->busy = false;
	if (s->closed)
		return free_state(s);
	if (err) {
		pool_count(&s->o.stats->failed);
		pool_warn_limited("etcd: %u records wait: %s",
				  (unsigned int)(s->appended - s->settled),
				  etcd_error(s->o.etcd));
		s->retry_ms = pool_now_ms() + RETRY_MS;
		return;
	}
	if (!json_is_true(json_object_get(answer, "succeeded")))
		return refused(s, answer);
	s->last = etcd_int(json_object_get(answer, "header"), "revision");
	written(s);
}

void etcd_state_flush(struct etcd_state *s)
{
	json_t *compare, *ops, *put, *gets;
	struct etcd_slice leader, last;
	char leader_key[KEY_MAX], last_key[KEY_MAX];

	if (s->busy || s->closed || pool_list_empty(&s->queue) ||
	    pool_now_ms() < s->retry_ms)
		return;
	leader = key_of(s, "leader", leader_key);
	last = key_of(s, "state/last", last_key);
	ops = batch(s);
	put = etcd_op_put(last, etcd_slice(NULL, 0), 0);
	gets = json_pack("[o,o]", etcd_op_get(leader), etcd_op_get(last));
	/* No memory: without one of these etcd would take a transaction of
	 * another meaning. */
	if (json_array_append_new(ops, put) || !gets) {
		json_decref(ops);
		json_decref(gets);
		return;
	}
	compare = json_pack(
		"[o,o]", etcd_compare(leader, "create_revision", s->o.fence),
		etcd_compare(last, "mod_revision", s->last));
	s->req.cb = on_written;
	s->busy = !etcd_start(s->o.etcd, &s->req, ETCD_TXN,
			      etcd_txn(compare, ops, gets), CALL_MS);
}

uint64_t etcd_state_cost(const struct etcd_state *s)
{
	return s->cost;
}

bool etcd_state_is_crowded(const struct etcd_state *s)
{
	return s->queue_bytes > ETCD_STATE_CROWDED;
}

uint64_t etcd_state_mark(const struct etcd_state *s)
{
	return s->appended;
}

uint64_t etcd_state_settled(const struct etcd_state *s)
{
	return s->settled;
}

int etcd_state_stats_register(struct etcd_state_stats *st,
			      struct pool_metrics *m)
{
	int err = pool_metrics_counter(m, &st->written,
				       "kvpool_master_state_writes_total",
				       NULL, "Records written to etcd.");

	if (!err)
		err = pool_metrics_counter(
			m, &st->failed,
			"kvpool_master_state_writes_failed_total", NULL,
			"Transactions with records that failed.");
	if (!err)
		err = pool_metrics_gauge(
			m, &st->queued, "kvpool_master_state_writes_queued",
			NULL, "Records not in etcd yet.");
	return err ? err :
		     pool_metrics_gauge(m, &st->queued_bytes,
					"kvpool_master_state_queued_bytes",
					NULL,
					"Bytes of records not in etcd yet.");
}
