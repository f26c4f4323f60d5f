/* The node as a whole: start, the loop, stop. See pool/node/node.h. */
#include "pool/node/node_priv.h"
#include "pool/model/root.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the loop ---- */

static void on_kick(uv_idle_t *h)
{
	struct pool_node *n = h->data;

	n->kicked = false;
	uv_idle_stop(h);
	node_barriers_begin(n);
	node_seal_small(n);
	node_publish_sealed(n);
	node_space_run(n);
	if (!pool_list_empty(&n->barriers))
		node_ops_send(n);
	node_helds_send(n);
	node_barriers_check(n);
}

static void finish_close(struct pool_node *n);
static void all_closed(struct pool_node *n);

static bool all_acked(const struct pool_node *n)
{
	return !node_seals_due(n) && pool_list_empty(&n->sealing) &&
	       pool_list_empty(&n->pending) &&
	       pool_list_empty(&n->ops_waiting) &&
	       pool_list_empty(&n->ops_sent);
}

static bool is_idle(const struct pool_node *n)
{
	return node_session_up(n) && !n->closing && !n->in_picture &&
	       !n->ack_waits && n->asked_bytes == 0 &&
	       pool_list_empty(&n->sealing) && pool_list_empty(&n->pending) &&
	       !node_has_work(n);
}

static void on_tick(uv_timer_t *h)
{
	struct pool_node *n = h->data;
	uint64_t now = pool_now_ms();
	unsigned int every;

	if (n->opts.check)
		node_check_files(n);
	node_writers_tick(n, now);
	node_fetch_tick(n, now);
	node_doubt_tick(n);
	node_heat_tick(n, now);
	node_asked_tick(n, now);
	node_session_tick(n, now);
	pool_peers_renew(n->peers);
	node_publish_sealed(n);
	node_space_run(n);
	node_ops_send(n);
	node_barriers_check(n);
	if (n->closing && (all_acked(n) || now >= n->close_deadline_ms))
		finish_close(n);
	every = is_idle(n) ? NODE_TICK_IDLE_MS : NODE_TICK_MS;
	if (!n->closing && uv_timer_get_repeat(h) != every)
		node_tick_every(n, every);
}

/* ---- start ---- */

static void read_host_id(char *buf, size_t cap)
{
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	buf[0] = '\0';
	if (!f)
		return;
	if (!fgets(buf, (int)cap, f))
		buf[0] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	fclose(f);
}

static int copy_names(struct pool_node *n)
{
	const struct pool_node_opts *o = &n->opts;

	n->name = strdup(o->name ? o->name : "node");
	n->store_dir = strdup(o->store_dir);
	n->unix_path = o->unix_path ? strdup(o->unix_path) : NULL;
	n->advertise = o->advertise ? strdup(o->advertise) : NULL;
	if (!n->name || !n->store_dir || (o->unix_path && !n->unix_path) ||
	    (o->advertise && !n->advertise))
		return -ENOMEM;
	return 0;
}

static int open_store(struct pool_node *n)
{
	bool client = n->opts.store_size == 0;
	struct pool_store_opts so = {
		.loop = n->loop,
		.dir = n->store_dir,
		.memory_max = n->opts.memory_max,
		.size = client ? n->opts.buffer_size : n->opts.store_size,
		.plain = n->opts.store_plain,
		.owner_counts = n->opts.puts_whole,
		.clients = !client && n->opts.fd_passing,
		.metrics = n->metrics,
		.keep = node_was_open,
	};
	int err;

	n->evict = pool_evict_open(so.size);
	if (!n->evict)
		return -ENOMEM;
	if (n->opts.handover)
		so.lock_fd = pool_handover_take_fd(n->opts.handover,
						   POOL_HANDOVER_FD_STORE);
	if (so.lock_fd < 0)
		return so.lock_fd;
	err = pool_store_open(&so, node_adopt, n, &n->store);
	if (err)
		return err;
	pool_store_use(n->store, (int64_t)n->found_bytes);
	while (n->nleftovers > 0)
		pool_store_remove(n->store, n->leftovers[--n->nleftovers]);
	free(n->leftovers);
	n->leftovers = NULL;
	memcpy(n->id, pool_store_id(n->store), POOL_ID_SIZE);
	return 0;
}

static int open_peers(struct pool_node *n)
{
	struct pool_peers_opts po = {
		.loop = n->loop,
		.listen = n->opts.listen,
		.unix_path = n->opts.fd_passing ? n->unix_path : NULL,
		.listen_fd = n->listen_fd,
		.unix_fd = n->unix_fd,
		.fd_passing = n->opts.fd_passing,
		.verbs = n->opts.verbs,
		.trust = n->opts.trust,
		.tls = n->opts.tls,
		.foreign_memory = n->opts.foreign_memory,
		.movers = n->opts.movers,
		.ops = &node_peers_ops,
		.arg = n,
		.metrics = n->metrics,
	};
	char buf[POOL_HOST_MAX + 16];
	int err;

	memcpy(po.id, n->id, POOL_ID_SIZE);
	err = pool_peers_open(&po, &n->peers);
	if (err)
		return err;
	if (!n->advertise) {
		bool v6 = strchr(n->opts.listen.host, ':') != NULL;

		snprintf(buf, sizeof(buf), "%s%s%s:%u", v6 ? "[" : "",
			 n->opts.listen.host, v6 ? "]" : "",
			 pool_peers_port(n->peers));
		n->advertise = strdup(buf);
	}
	return n->advertise ? 0 : -ENOMEM;
}

/* From here on, peers and the master can reach the node. */
static int node_begin(struct pool_node *n)
{
	int err = open_peers(n);

	if (!err)
		err = node_session_open(n);
	if (!err)
		uv_timer_start(&n->tick, on_tick, NODE_TICK_MS, NODE_TICK_MS);
	return err;
}

int pool_node_begin(struct pool_node *n)
{
	node_orphans_known(n);
	pool_store_sweep(n->store, n->kept, n->nkept);
	free(n->kept);
	n->kept = NULL;
	n->listen_fd = pool_handover_take_fd(n->opts.handover,
					     POOL_HANDOVER_FD_PEERS);
	n->unix_fd = pool_handover_take_fd(n->opts.handover,
					   POOL_HANDOVER_FD_LOCAL);
	n->opts.handover = NULL;
	return node_begin(n);
}

int pool_node_open(const struct pool_node_opts *opts,
		   struct pool_node **ret_node)
{
	struct pool_node *n = calloc(1, sizeof(*n));
	struct pool_entry *e;
	int err;

	if (!n)
		return -ENOMEM;
	n->opts = *opts;
	n->loop = opts->loop;
	n->metrics = opts->metrics;
	if (n->opts.deadline_ms == 0)
		n->opts.deadline_ms = 2000;
	n->ops_run = pool_random_u64() | 1; /* never 0 */
	pool_list_init(&n->writers);
	pool_list_init(&n->candidates);
	pool_list_init(&n->sealing);
	pool_list_init(&n->pending);
	pool_list_init(&n->small_seals);
	pool_list_init(&n->fds);
	pool_hash_init(&n->orphans);
	pool_list_init(&n->ops_waiting);
	pool_list_init(&n->ops_sent);
	pool_hash_init(&n->changes);
	pool_list_init(&n->barriers);
	pool_list_init(&n->claims);
	pool_list_init(&n->rewrites);
	pool_list_init(&n->fetches);
	pool_list_init(&n->heats);
	uv_idle_init(n->loop, &n->kick);
	n->on_kick = on_kick;
	n->on_slices = node_on_slices;
	n->on_handles_closed = all_closed;
	uv_timer_init(n->loop, &n->tick);
	uv_timer_init(n->loop, &n->soon);
	uv_timer_init(n->loop, &n->batch);
	uv_idle_init(n->loop, &n->slices);
	uv_idle_init(n->loop, &n->slicing);
	n->slices.data = n->slicing.data = n;
	n->kick.data = n->tick.data = n->soon.data = n->batch.data = n;
	n->members = calloc(NODE_NODES_MAX, sizeof(*n->members));
	n->cut_off_ms = pool_now_ms();
	strcpy(n->data_mode, "none");
	read_host_id(n->host_id, sizeof(n->host_id));
	err = -ENOMEM;
	pool_quota_init(&n->quota);
	pool_quota_init(&n->changers);
	pool_quota_limit(&n->changers, NODE_OPS_MAX, 0);
	n->caller = NODE_NO_CALLER;
	if (!n->members || copy_names(n) < 0 ||
	    pool_tree_init(&n->tree, sizeof(struct node_entry),
			   sizeof(struct node_dirent)) < 0)
		goto err_free;
	pool_node_root(n)->attr.mode = POOL_ROOT_MODE;
	pool_node_root(n)->attr.uid = geteuid();
	pool_node_root(n)->attr.gid = getegid();
	pool_node_root(n)->attr.mtime_ns = pool_wall_ns();
	pool_node_root(n)->known = true;
	n->self = pool_tls_self(opts->tls);
	pool_node_root(n)->reach = (uint8_t)pool_tls_id_reach(n->self, "", 0);
	err = node_metrics_register(n);
	if (err)
		goto err_free;
	err = open_store(n);
	if (err)
		goto err_free;
	node_space_init(n);
	err = opts->handover ? node_take_over(n, opts->handover) :
			       node_begin(n);
	if (err)
		goto err_free;
	for (e = &n->tree.root->e; e; e = pool_tree_next(&n->tree, e))
		node_account(n, e);
	*ret_node = n;
	return 0;
err_free:
	/* Start-up failed: the process is about to exit with the message that
	 * the failing part logged. */
	pool_node_undo(n);
	return err;
}

void pool_node_undo(struct pool_node *n)
{
	if (n->store)
		pool_store_undo(n->store);
}

void pool_node_set_ops(struct pool_node *n, const struct pool_node_ops *ops,
		       void *arg, const char *data_mode)
{
	n->ops = ops;
	n->ops_arg = arg;
	snprintf(n->data_mode, sizeof(n->data_mode), "%s", data_mode);
}

/* ---- stop ----
 *
 * publish what is pending -> leave the master, close peers -> store (workers)
 * -> free
 */

static void free_entry(struct pool_entry *pe, void *arg)
{
	struct pool_node *n = arg;
	struct node_entry *e = node_file(pe);

	if (!e) {
		pool_xattrs_free(node_dir(pe)->xattrs);
		return;
	}
	if (e->obj) {
		pool_evict_remove(n->evict, &e->obj->ev, false);
		if (e->obj->w)
			node_writer_free(n, e->obj);
		e->obj->entry = NULL;
		node_object_unref(n, e->obj);
	}
	if (e->own) {
		node_writer_free(n, e->own);
		e->own->entry = NULL;
		node_object_unref(n, e->own);
	}
	pool_xattrs_free(e->xattrs);
}

static void all_closed(struct pool_node *n)
{
	void (*closed)(void *arg) = n->closed;
	void *arg = n->closed_arg;

	pool_evict_close(n->evict);
	free(n->members);
	free(n->name);
	free(n->store_dir);
	free(n->unix_path);
	free(n->advertise);
	free(n);
	closed(arg);
}

static void on_uv_closed(uv_handle_t *h)
{
	node_handle_closed(h->data);
}

static void on_store_closed(void *arg)
{
	struct pool_node *n = arg;

	n->store = NULL;
	node_helds_send(n); /* without a session: discards late results */
	node_ops_free(n);
	pool_tree_fini(&n->tree, free_entry, n);
	pool_quota_fini(&n->quota);
	pool_quota_fini(&n->changers);
	node_handle_closed(n);
}

/* The store's workers end now. The tree is freed later, because their callbacks
 * use it. */
static void on_peers_closed(void *arg)
{
	struct pool_node *n = arg;

	pool_store_close(n->store, false, on_store_closed, n);
}

static void finish_close(struct pool_node *n)
{
	uv_timer_stop(&n->tick);
	uv_idle_stop(&n->kick);
	n->kicked = true;
	/* normally done by the kick */
	node_seals_end(n);
	/* kick, tick, soon, batch, slices, slicing, link, store (last) */
	n->handles = 8;
	node_walks_stop(n);
	node_fetch_fini(n);
	node_doubt_fini(n);
	node_heat_cut_off(n);
	node_space_fini(n);
	pool_node_barriers_end(n);
	uv_close((uv_handle_t *)&n->kick, on_uv_closed);
	uv_close((uv_handle_t *)&n->tick, on_uv_closed);
	uv_close((uv_handle_t *)&n->soon, on_uv_closed);
	uv_close((uv_handle_t *)&n->batch, on_uv_closed);
	uv_close((uv_handle_t *)&n->slices, on_uv_closed);
	uv_close((uv_handle_t *)&n->slicing, on_uv_closed);
	node_helds_send(n);
	node_session_close(n);
	pool_peers_close(n->peers, on_peers_closed, n);
}

void pool_node_close(struct pool_node *n, unsigned int timeout_ms,
		     void (*closed)(void *arg), void *arg)
{
	n->closed_arg = arg;
	n->ops = NULL;
	/* Waits for complete files to be published; others are lost. */
	node_seal_candidates(n);
	node_kick(n);
	n->closed = closed;
	n->close_deadline_ms = pool_now_ms() + timeout_ms;
	n->closing = true;
}
