/*
 * Connections. The loop does not run in uv_run(UV_RUN_DEFAULT): callbacks must
 * run under `lock`, but the thread must not hold it while it sleeps. So the
 * thread sleeps in poll(2) on the loop's descriptor (what uv_backend_fd is
 * meant for), and runs one turn under the lock whenever there is work.
 */
#include "pool/client/client_priv.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/base/parse.h"
#include "pool/verbs/device.h"

#define PUBLISH_TIMEOUT_MS 2000

/* ---- the loop thread ---- */

static void set_state(struct kvpool *p, enum client_state state, int error)
{
	pthread_mutex_lock(&p->mutex);
	p->state = state;
	p->error = error;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->mutex);
}

/* Is a prepare handle active? Its callback must run before the loop sleeps, and
 * uv_backend_timeout does not take that into account. */
static void look_at(uv_handle_t *h, void *arg)
{
	bool *ret_more = arg;

	if (h->type == UV_PREPARE && uv_is_active(h))
		*ret_more = true;
}

/* One turn of the loop. Readers get `lock` between turns. false: no handles are
 * left. *ret_more: run the next turn without sleeping. */
static bool turn(struct kvpool *p, bool *ret_more)
{
	bool alive;
	uint64_t begin;

	*ret_more = false;
	pthread_rwlock_wrlock(&p->lock);
	begin = pool_now_ns();
	alive = uv_run(&p->loop, UV_RUN_NOWAIT) != 0;
	atomic_store_explicit(&p->away,
			      !p->node || !pool_node_connected(p->node),
			      memory_order_relaxed);
	uv_walk(&p->loop, look_at, ret_more);
	if (p->state == CLIENT_STARTING && p->node &&
	    pool_node_connected(p->node) && pool_node_complete(p->node))
		set_state(p, CLIENT_READY, 0);
	pool_turns_add(&p->turns, pool_now_ns() - begin);
	pthread_rwlock_unlock(&p->lock);
	return alive;
}

static void run_loop(struct kvpool *p)
{
	struct pollfd at = { .fd = uv_backend_fd(&p->loop), .events = POLLIN };

	bool more;

	while (turn(p, &more)) {
		uv_update_time(&p->loop);
		poll(&at, 1, more ? 0 : uv_backend_timeout(&p->loop));
	}
}

static int register_metrics(struct kvpool *p)
{
	int err;

	p->metrics = pool_metrics_open();
	if (!p->metrics)
		return -ENOMEM;
	err = POOL_TURNS_REGISTER(p->metrics, &p->turns,
				  "kvpool_client_loop_turn");
	if (!err)
		err = pool_metrics_counter(
			p->metrics, &p->lines.objects,
			"kvpool_client_direct_gets_total", NULL,
			"Objects that the calling thread received itself, on "
			"its own connection to a holder.");
	if (!err)
		err = client_stats_register(&p->stats, p->metrics);
	if (!err && p->tls)
		err = pool_tls_metrics(p->tls, p->metrics);
	return err;
}

/* A library has no admin address: its counters that are not 0 are logged. */
static void log_metrics(struct kvpool *p)
{
	char *text, *line, *rest;
	size_t len;

	if (pool_metrics_print(p->metrics, &text, &len))
		return;
	for (line = strtok_r(text, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest)) {
		const char *value = strrchr(line, ' ');

		if (line[0] != '#' && value && strcmp(value, " 0") != 0 &&
		    !strstr(line, "_bucket{"))
			pool_debug("metric: %s", line);
	}
	free(text);
}

static int open_node(struct kvpool *p)
{
	int err = register_metrics(p);

	if (err)
		return err;
	p->opts.metrics = p->metrics;
	p->opts.loop = &p->loop;
	p->opts.verbs = p->verbs;
	if (p->verbs && verbs_watch(p->verbs, &p->loop)) {
		/* Without events of the devices RDMA cannot be used. */
		verbs_close(p->verbs);
		p->opts.verbs = p->verbs = NULL;
	}
	err = pool_node_open(&p->opts, &p->node);
	if (!err) {
		memcpy(p->lines.id, pool_store_id(pool_node_store(p->node)),
		       POOL_ID_SIZE);
		p->lines.first_lane = p->opts.movers + 1;
	}
	return err;
}

static void *loop_thread(void *arg)
{
	struct kvpool *p = arg;
	int err;

	pthread_rwlock_wrlock(&p->lock);
	err = open_node(p);
	pthread_rwlock_unlock(&p->lock);
	if (err) {
		set_state(p, CLIENT_FAILED, err);
		return NULL;
	}
	run_loop(p);
	set_state(p, CLIENT_CLOSED, 0);
	return NULL;
}

/* Signals are blocked: they are for the program's own threads. */
static int start_thread(struct kvpool *p)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&p->thread, NULL, loop_thread, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -err;
}

/* Waits until the state is not `old`, or until the timeout (0: none). Returns
 * the state. */
static enum client_state wait_state(struct kvpool *p, enum client_state old,
				    uint64_t timeout_ms)
{
	enum client_state state;
	struct timespec end;
	int err = 0;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += (time_t)(timeout_ms / 1000);
	end.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
	if (end.tv_nsec >= 1000000000) {
		end.tv_nsec -= 1000000000;
		end.tv_sec++;
	}
	pthread_mutex_lock(&p->mutex);
	while (p->state == old && err == 0)
		err = timeout_ms ? pthread_cond_timedwait(&p->changed,
							  &p->mutex, &end) :
				   pthread_cond_wait(&p->changed, &p->mutex);
	state = p->state;
	pthread_mutex_unlock(&p->mutex);
	return state;
}

/* ---- allocation and release ---- */

/* Runs the loop until its handles are closed. No thread uses it yet. */
static void discard_loop(struct kvpool *p)
{
	uv_run(&p->loop, UV_RUN_DEFAULT);
	uv_loop_close(&p->loop);
}

static void on_renew(uv_timer_t *t)
{
	struct kvpool *p = t->data;

	pool_tls_check(p->tls);
}

static int make_loop(struct kvpool *p)
{
	int err = uv_loop_init(&p->loop);

	if (err)
		return err;
	err = pool_mailbox_init(&p->box, &p->loop, NULL);
	if (err) {
		uv_loop_close(&p->loop);
		return err;
	}
	uv_timer_init(&p->loop, &p->retry);
	p->retry.data = p;
	uv_timer_init(&p->loop, &p->renew);
	p->renew.data = p;
	if (p->tls)
		uv_timer_start(&p->renew, on_renew, POOL_TLS_CHECK_MS,
			       POOL_TLS_CHECK_MS);
	return 0;
}

static void make_locks(struct kvpool *p)
{
	pthread_rwlockattr_t fair;
	pthread_condattr_t monotonic;

	/* Prefer writers: continuous readers must not starve the loop. */
	pthread_rwlockattr_init(&fair);
	pthread_rwlockattr_setkind_np(
		&fair, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&p->lock, &fair);
	pool_shortlock_init(&p->names);
	pthread_rwlockattr_destroy(&fair);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&p->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	pthread_mutex_init(&p->mutex, NULL);
	client_buffers_init(&p->buffers);
	client_lines_init(&p->lines);
	pool_list_init(&p->waiting);
}

/* The loop thread has ended, or was never started. */
static void pool_free(struct kvpool *p, bool remove_files)
{
	verbs_close(p->verbs);
	pool_metrics_close(p->metrics); /* before the counters are freed */
	client_dir_give(p, remove_files);
	client_lines_fini(&p->lines);
	pool_tls_close(p->tls);
	client_buffers_fini(&p->buffers);
	pthread_mutex_destroy(&p->mutex);
	pthread_cond_destroy(&p->changed);
	pool_shortlock_fini(&p->names);
	pthread_rwlock_destroy(&p->lock);
	free(p->advertise);
	free(p->name);
	free(p->dir);
	free(p->store_dir);
	free(p->sock);
	free(p);
}

static void on_unwatched(void *arg)
{
	struct kvpool *p = arg;

	uv_close((uv_handle_t *)&p->retry, NULL);
	uv_close((uv_handle_t *)&p->renew, NULL);
	pool_mailbox_close(&p->box, NULL);
}

static void on_node_closed(void *arg)
{
	struct kvpool *p = arg;

	p->node = NULL;
	if (p->verbs)
		verbs_unwatch(p->verbs, on_unwatched, p);
	else
		on_unwatched(p);
}

struct closing {
	struct pool_mail mail;
	struct kvpool *p;
};

static void begin_close(struct pool_mail *mail)
{
	struct closing *c = pool_container_of(mail, struct closing, mail);

	log_metrics(c->p);
	pool_node_close(c->p->node, PUBLISH_TIMEOUT_MS, on_node_closed, c->p);
}

static void end_thread(struct kvpool *p)
{
	struct closing c = { .p = p };

	pool_mailbox_post(&p->box, &c.mail, begin_close);
	pthread_join(p->thread, NULL);
	uv_loop_close(&p->loop);
}

/* ---- options ---- */

static int copy_options(const struct kvpool_options *from,
			struct kvpool_options *o)
{
	int err = from ? client_copy_struct(o, sizeof(*o), from,
					    from->struct_size,
					    offsetof(struct kvpool_options,
						     buffer_dir), "options") :
			 client_fail(-EINVAL, "options is NULL");

	if (err)
		return err;
	if (o->flags & ~KVPOOL_INSECURE || o->threads > 64 ||
	    o->log_level < 0 || o->log_level > POOL_LOG_DEBUG)
		return client_fail(-EINVAL, "options: flags, threads or "
				   "log_level is out of range");
	return 0;
}

static int set_addresses(struct kvpool *p, const struct kvpool_options *o)
{
	const char *listen = o->listen ? o->listen : "127.0.0.1:0";
	int err;

	if (!o->at || !o->at[0])
		return client_fail(-EINVAL, "`at` is empty: it must be a "
					    "master's HOST:PORT or a path in "
					    "a mount");
	err = o->at[0] == '/' ? client_mount_find(o->at, &p->opts.masters,
						 &p->store_dir) :
	      pool_parse_hostports(o->at, 7070, &p->opts.masters);
	if (err && o->at[0] != '/')
		client_fail(err, "`at`: \"%s\" is not HOST:PORT", o->at);
	if (err)
		return err;
	err = pool_parse_hostport(listen, 0, &p->opts.listen);
	if (err < 0)
		return client_fail(err, "`listen`: \"%s\" is not HOST:PORT",
				   listen);
	if (!pool_host_is_loopback(p->opts.listen.host) && !p->tls &&
	    !(o->flags & KVPOOL_INSECURE))
		return client_fail(-EINVAL, "`listen`: %s is not loopback, and "
				   "there is no authentication: set `tls_dir`, "
				   "or KVPOOL_INSECURE to allow it", listen);
	return 0;
}

/* names NULL: all usable RDMA devices, if any; else exactly these. */
static int open_devices(struct kvpool *p, const char *names)
{
	char there[256];
	int err;

	if (names && !names[0])
		return 0;
	err = verbs_open(names, &p->verbs);
	if (err == -EINVAL)
		return client_fail(err, "`rdma_device`: \"%s\" is not a list "
				   "of " VERBS_NAMES_ACCEPTED, names);
	if (err == -ENODEV)
		return client_fail(err, "`rdma_device`: one of %s does not "
				   "exist, or none can be used", names);
	if (err || verbs_nports(p->verbs) > 0)
		return err;
	if (names)
		return client_fail(-ENODEV, "`rdma_device`: none can be used: "
				   "%s", verbs_format(p->verbs, there,
						      sizeof(there)));
	verbs_close(p->verbs);
	p->verbs = NULL;
	return 0;
}

static int set_trust(struct kvpool *p, const struct kvpool_options *o)
{
	const char *users = o->allow_users ? o->allow_users : "";
	int err = users[0] ? pool_trust_add(&p->trust, users) : 0;

	if (err)
		return client_fail(-EINVAL, "`allow_users`: \"%s\": %s; "
				   "accepted: " POOL_TRUST_ACCEPTED, users,
				   err == -ENOENT ? "no such user" :
						    strerror(-err));
	if (o->flags & KVPOOL_INSECURE)
		return 0;
	p->opts.trust = p->lines.trust = &p->trust;
	return 0;
}

static int set_tls(struct kvpool *p, const struct kvpool_options *o)
{
	const char *dir = o->tls_dir ? o->tls_dir : getenv("KVPOOL_TLS_DIR");
	char why[POOL_TLS_WHY];
	int err;

	if (!dir || !dir[0])
		return 0;
	err = pool_tls_open(dir, &p->tls, why);
	if (err)
		return client_fail(err, "`tls_dir`: %s", why);
	if (pool_tls_role(p->tls) != POOL_ROLE_CLIENT)
		return client_fail(-EINVAL, "`tls_dir`: %s/" POOL_TLS_CERT
				   " is the certificate of a %s; this needs "
				   "that of a client", dir,
				   pool_role_name(pool_tls_role(p->tls)));
	p->opts.tls = p->lines.tls = p->tls;
	return 0;
}

/* Before the first connection. */
static int set_renew(struct kvpool *p, const struct kvpool_options *o)
{
	const char *text = getenv("KVPOOL_TLS_RENEW");
	uint64_t ms = o->tls_renew_ms ? o->tls_renew_ms : POOL_TLS_RENEW_MS;

	if (!p->tls)
		return 0;
	if (!o->tls_renew_ms && text && text[0] &&
	    pool_parse_duration_ms(text, &ms))
		ms = 0;
	if (ms < 1000 || ms > 31536000000)
		return client_fail(-EINVAL, "`tls_renew_ms` (or "
				   "KVPOOL_TLS_RENEW) must be between 1s and "
				   "31536000s");
	pool_tls_set_renew(p->tls, ms);
	return 0;
}

static int set_bulk(struct kvpool *p, const struct kvpool_options *o)
{
	const char *bulk = o->bulk ? o->bulk : getenv("KVPOOL_BULK");

	if (!bulk || !bulk[0] || (!p->tls && strcmp(bulk, "plain") == 0))
		return 0;
	if (!p->tls)
		return client_fail(-EINVAL, "`bulk` (or KVPOOL_BULK) is "
				   "\"%.20s\", must be plain without "
				   "`tls_dir`; set that for tls or auth", bulk);
	if (strcmp(bulk, "tls") != 0 && strcmp(bulk, "auth") != 0)
		return client_fail(-EINVAL, "`bulk` (or KVPOOL_BULK) is "
				   "\"%.20s\", must be tls or auth", bulk);
	pool_tls_allow_plain(p->tls, strcmp(bulk, "auth") == 0);
	return 0;
}

static int set_options(struct kvpool *p, const struct kvpool_options *o)
{
	char name[64];
	int err = set_tls(p, o);

	if (!err)
		err = set_renew(p, o);
	if (!err)
		err = set_bulk(p, o);
	if (!err)
		err = set_addresses(p, o);
	if (!err)
		err = open_devices(p, o->rdma_device);
	if (err)
		return err;
	snprintf(name, sizeof(name), "%s", o->name ? o->name : "");
	if (!name[0])
		snprintf(name, sizeof(name), "lib-%d", (int)getpid());
	p->name = strdup(name);
	p->advertise = o->advertise ? strdup(o->advertise) : NULL;
	if (!p->name || (o->advertise && !p->advertise))
		return -ENOMEM;
	p->opts.buffer_size = o->buffer_size ? o->buffer_size : 256u << 20;
	err = client_dir_take(p, o->buffer_dir);
	if (err)
		return err;
	p->opts.name = p->name;
	p->opts.program = kvpool_version();
	p->opts.advertise = p->advertise;
	p->opts.store_dir = p->dir;
	p->opts.unix_path = p->sock;
	p->opts.store_plain = true;
	p->opts.foreign_memory = true;
	p->opts.puts_whole = true;
	p->opts.mount = true;
	p->opts.fd_passing = true;
	p->opts.movers = 2;
	p->opts.prefetch_max = 64;
	p->opts.deadline_ms = CLIENT_DEADLINE_MS;
	p->opts.names = &p->names;
	return set_trust(p, o);
}

/* ---- kvpool_connect, kvpool_close ---- */

static int no_master(const struct kvpool_options *o, uint64_t timeout_ms)
{
	return client_fail(-EHOSTDOWN, "no master at %s within %llu ms (is it "
			   "the address of a node that is only a store? Give "
			   "the master's)", o->at,
			   (unsigned long long)timeout_ms);
}

static int start(struct kvpool *p, const struct kvpool_options *o)
{
	uint64_t timeout_ms = o->timeout_ms ? o->timeout_ms : CLIENT_TIMEOUT_MS;
	int err = make_loop(p);

	if (err)
		return err;
	err = client_requests_init(&p->requests, o->threads ? o->threads : 4);
	if (!err)
		err = start_thread(p);
	if (err) {
		on_unwatched(p);
		discard_loop(p);
		return err;
	}
	switch (wait_state(p, CLIENT_STARTING, timeout_ms)) {
	case CLIENT_READY:
		return 0;
	case CLIENT_FAILED: /* handles remain open: leak the loop */
		pthread_join(p->thread, NULL);
		p->verbs = NULL;
		err = client_fail(p->error, "no node could be started in %s: "
				  "%s", p->dir, strerror(-p->error));
		break;
	default:
		end_thread(p);
		err = no_master(o, timeout_ms);
	}
	client_requests_fini(&p->requests);
	return err;
}

int kvpool_connect(const struct kvpool_options *options,
		   struct kvpool **ret_pool)
{
	struct kvpool_options o;
	struct kvpool *p;
	int err = copy_options(options, &o);

	if (!err && !ret_pool)
		err = client_fail(-EINVAL, "ret_pool is NULL");
	if (err)
		return err;
	pool_log_set_level((enum pool_log_level)o.log_level);
	p = calloc(1, sizeof(*p));
	if (!p)
		return client_fail(-ENOMEM, "no memory for a connection");
	p->forks = client_forks();
	p->dir_fd = -1;
	make_locks(p);
	err = set_options(p, &o);
	if (!err)
		err = start(p, &o);
	if (err) {
		pool_free(p, true);
		return err;
	}
	*ret_pool = p;
	return 0;
}

int kvpool_close(struct kvpool *p)
{
	int err;

	if (!p)
		return 0;
	err = client_check(p);
	if (err) /* a fork: threads and files are the parent's */
		return err;
	client_requests_fini(&p->requests);
	err = kvpool_sync(p);
	end_thread(p);
	/* Objects that no store has yet stay for the next connection here. */
	pool_free(p, err == 0);
	return err;
}

/* ---- kvpool_sync ---- */

struct sync {
	struct pool_mail mail;
	struct kvpool *p;
	struct node_barrier barrier;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	bool done;
	int status;
};

static void on_synced(struct node_barrier *b, int status)
{
	struct sync *s = pool_container_of(b, struct sync, barrier);

	pthread_mutex_lock(&s->mutex);
	s->status = status;
	s->done = true;
	pthread_cond_signal(&s->cond);
	pthread_mutex_unlock(&s->mutex);
}

static void begin_sync(struct pool_mail *mail)
{
	struct sync *s = pool_container_of(mail, struct sync, mail);

	if (pool_node_barrier_start(s->p->node, &s->barrier, on_synced))
		on_synced(&s->barrier, 0);
	else
		pool_node_barrier_patient(&s->barrier);
}

int kvpool_sync(struct kvpool *p)
{
	struct sync s = { .p = p };
	int err = client_check(p);

	if (err)
		return err;
	pthread_mutex_init(&s.mutex, NULL);
	pthread_cond_init(&s.cond, NULL);
	pool_mailbox_post(&p->box, &s.mail, begin_sync);
	pthread_mutex_lock(&s.mutex);
	while (!s.done)
		pthread_cond_wait(&s.cond, &s.mutex);
	pthread_mutex_unlock(&s.mutex);
	pthread_mutex_destroy(&s.mutex);
	pthread_cond_destroy(&s.cond);
	if (s.status)
		client_fail(s.status, "not all that was put is on stores yet: "
			    "%s", strerror(-s.status));
	return s.status;
}
