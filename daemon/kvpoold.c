/*
 * kvpoold: the loop, signals, the admin pages. Its options are in
 * daemon/node_conf.h, what a node does in pool/node.h, the mount in
 * fs/session.h.
 *
 * Start: options -> background -> lock of the name -> admin (the address alone:
 *        the loop does not run yet) -> RDMA devices -> (embedded: master) ->
 *        node -> mount -> ready. What fails last may be mounted last: a failed
 *        start leaves no mount behind.
 * SIGTERM or SIGINT, or the mount taken away: admin closes, the mount, the node
 * (which publishes what is pending), the embedded master, the devices; the loop
 * ends when no handle is left, and the program with 0.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/admin.h"
#include "daemon/advertise.h"
#include "daemon/daemonize.h"
#include "daemon/drain_page.h"
#include "daemon/fault_page.h"
#include "daemon/name_lock.h"
#include "daemon/node_conf.h"
#include "daemon/program.h"
#include "daemon/run_dir.h"
#include "daemon/takeover.h"
#include "fs/session.h"
#include "master/etcd.h"
#include "master/ha.h"
#include "master/server.h"
#include "pool/base/busy.h"
#include "pool/base/log.h"
#include "pool/base/parse.h"
#include "pool/kvpool_api.h"
#include "pool/node.h"
#include "pool/verbs/device.h"

#define PUBLISH_TIMEOUT_MS 5000

static const struct daemon_node_conf *conf;

struct program {
	struct daemon_program base; /* first */
	struct pool_busy busy;
	struct verbs *verbs; /* NULL with --transport tcp */
	struct master *master; /* embedded, else NULL */
	struct pool_node *node;
	struct master_finder *finder; /* NULL without --etcd */
	struct fs *fs; /* NULL without --mount */
	struct daemon_admin *admin;
	struct daemon_takeover *takeover; /* NULL: cannot be handed over */
	struct daemon_taken taken; /* with --takeover, until it serves */
	char *mount; /* absolute */
	char dir[PATH_MAX]; /* of this node, in --run-dir */
	bool serving;
};

/* ---- pages ---- */

static json_t *status_json(void *arg)
{
	struct program *p = arg;
	json_t *j = pool_node_status_json(p->node);

	if (!j)
		return NULL;
	json_object_set_new(j, "version", json_string(kvpool_version()));
	json_object_set_new(j, "admin",
			    json_sprintf(strchr(conf->admin.host, ':') ?
						 "[%s]:%u" : "%s:%u",
					 conf->admin.host,
					 daemon_admin_port(p->admin)));
	if (p->mount)
		json_object_set_new(j, "mount", json_string(p->mount));
	if (p->master)
		json_object_set_new(j, "embedded_master",
				    master_status_json(p->master));
	return j;
}

static json_t *nodes_json(void *arg)
{
	struct program *p = arg;

	return p->master ? master_nodes_json(p->master) :
			   pool_node_nodes_json(p->node);
}

static json_t *status_page(void *arg, const struct daemon_admin_query *q,
			   unsigned int *ret_status, const char **ret_text)
{
	(void)q;
	(void)ret_status;
	(void)ret_text;
	return status_json(arg);
}

static json_t *nodes_page(void *arg, const struct daemon_admin_query *q,
			  unsigned int *ret_status, const char **ret_text)
{
	(void)q;
	(void)ret_status;
	(void)ret_text;
	return nodes_json(arg);
}

static int list_objects(void *arg, const char *prefix, const char *token,
			unsigned int limit, json_t **ret_json)
{
	struct program *p = arg;

	return pool_node_objects_json(p->node, prefix, token, limit,
				      ret_json);
}

static json_t *objects_page(void *arg, const struct daemon_admin_query *q,
			    unsigned int *ret_status, const char **ret_text)
{
	return daemon_objects_page(q, list_objects, arg, ret_status, ret_text);
}

static json_t *drain(struct program *p, const struct daemon_admin_query *q,
		     bool post, unsigned int *ret_status, const char **ret_text)
{
	if (p->master)
		return daemon_drain_page(p->master, q, post, ret_status,
					 ret_text);
	*ret_status = 404;
	*ret_text = "there is no master in this process: ask the master's admin address";
	return NULL;
}

static json_t *drain_page(void *arg, const struct daemon_admin_query *q,
			  unsigned int *ret_status, const char **ret_text)
{
	return drain(arg, q, false, ret_status, ret_text);
}

static json_t *drain_post(void *arg, const struct daemon_admin_query *q,
			  unsigned int *ret_status, const char **ret_text)
{
	return drain(arg, q, true, ret_status, ret_text);
}

static json_t *devices_page(void *arg, const struct daemon_admin_query *q,
			    unsigned int *ret_status, const char **ret_text)
{
	static const char *const names[] = { "auto", "rdma", "tcp" };
	struct program *p = arg;

	(void)q;
	(void)ret_status;
	(void)ret_text;
	return json_pack("{s:s, s:o}", "transport", names[conf->transport],
			 "devices", verbs_json(p->verbs));
}

static const struct daemon_admin_page pages[] = {
	{ .path = "/api/status", .fn = status_page },
	{ .path = "/api/nodes", .fn = nodes_page },
	{ .path = "/api/devices", .fn = devices_page },
	{ .path = "/api/objects",
	  .fn = objects_page,
	  .params = DAEMON_OBJECTS_PARAMS },
	{ .path = "/api/faults",
	  .fn = daemon_faults_get,
	  .post = daemon_faults_post,
	  .post_params = DAEMON_FAULTS_POST_PARAMS },
	{ .path = "/api/drain",
	  .fn = drain_page,
	  .params = DAEMON_DRAIN_PARAMS,
	  .post = drain_post,
	  .post_params = DAEMON_DRAIN_POST_PARAMS,
	  .post_insecure = true },
	{ .path = NULL },
};

static bool is_ready(void *arg)
{
	struct program *p = arg;

	return p->serving && !p->base.closing && pool_node_ready(p->node);
}

/* ---- end: admin, mount, node, embedded master, RDMA devices ---- */

static void on_unwatched(void *arg)
{
	struct program *p = arg;

	pool_busy_close(&p->busy, NULL);
	daemon_program_closed(&p->base);
}

static void on_master_closed(void *arg)
{
	struct program *p = arg;

	if (p->verbs)
		verbs_unwatch(p->verbs, on_unwatched, p);
	else
		on_unwatched(p);
}

static void on_finder_closed(void *arg)
{
	struct program *p = arg;

	if (p->master)
		master_close(p->master, on_master_closed, p);
	else
		on_master_closed(p);
}

static void on_node_closed(void *arg)
{
	struct program *p = arg;

	fs_free(p->fs);
	p->node = NULL;
	if (p->finder)
		master_finder_close(p->finder, on_finder_closed, p);
	else
		on_finder_closed(p);
}

static void on_fs_closed(void *arg)
{
	struct program *p = arg;

	pool_node_close(p->node, PUBLISH_TIMEOUT_MS, on_node_closed, p);
}

static void on_admin_closed(void *arg)
{
	struct program *p = arg;

	if (p->fs)
		fs_close(p->fs, on_fs_closed, p);
	else
		on_fs_closed(p);
}

static void stop(struct daemon_program *base)
{
	struct program *p = (struct program *)base;

	daemon_name_lock_ending();
	daemon_takeover_close(p->takeover);
	daemon_admin_close(p->admin, on_admin_closed, p);
}

static void on_unmounted(void *arg)
{
	pool_info("the mount was taken away: closing");
	daemon_program_stop(arg);
}

/* ---- handing over to another daemon ---- */

static const char *handover_refuse(void *arg)
{
	struct program *p = arg;

	if (p->base.closing)
		return "the daemon is ending";
	return p->master ? "the master runs in this process: restart it instead" :
			   NULL;
}

static void handover_pause(void *arg)
{
	fs_pause(((struct program *)arg)->fs);
}

static const char *handover_busy(void *arg)
{
	struct program *p = arg;
	const char *busy = fs_busy(p->fs);

	return busy ? busy : pool_node_busy(p->node);
}

static void handover_put(void *arg, struct pool_handover *h)
{
	struct program *p = arg;

	pool_handover_set_fd(h, POOL_HANDOVER_FD_ADMIN,
			     daemon_admin_fd(p->admin));
	pool_node_hand_over(p->node, h);
	if (!h->err)
		fs_hand_over(p->fs, h);
}

static void handover_resume(void *arg)
{
	fs_resume(((struct program *)arg)->fs);
}

static void handover_leave(void *arg)
{
	fs_leave(((struct program *)arg)->fs);
}

static const struct daemon_takeover_ops handover_ops = {
	.refuse = handover_refuse,
	.pause = handover_pause,
	.busy = handover_busy,
	.hand_over = handover_put,
	.resume = handover_resume,
	.leave = handover_leave,
};

/* ---- start ---- */

/* All that there is to say for want of a port. */
static int no_rdma(struct program *p, int err)
{
	char there[1024];

	if (conf->transport != TRANSPORT_RDMA) {
		if (err)
			pool_warn("bytes move over TCP alone");
		return 0;
	}
	if (!err)
		pool_error("--transport rdma: no RDMA port can be used; there are: %s. Make one active, with an IP address (kvpool devices), or choose --transport auto",
			   verbs_format(p->verbs, there, sizeof(there)));
	return -ENODEV;
}

static int start_verbs(struct program *p)
{
	char used[1024];
	int err;

	if (conf->transport == TRANSPORT_TCP)
		return 0;
	err = verbs_open(conf->rdma_device, &p->verbs);
	if (err == -ENODEV || (!err && verbs_nports(p->verbs) == 0))
		err = no_rdma(p, err);
	else if (!err)
		pool_info("RDMA devices: %s",
			  verbs_format(p->verbs, used, sizeof(used)));
	if (err || !p->verbs)
		return err;
	if (conf->rdma_connect == CONNECT_CM)
		verbs_connect_by_cm(p->verbs);
	err = verbs_metrics(p->verbs, p->base.metrics);
	if (!err)
		err = verbs_watch(p->verbs, &p->base.loop);
	return err;
}

static int start_master(struct program *p)
{
	char state[PATH_MAX + 32];
	struct master_opts opts = {
		.loop = &p->base.loop,
		.listen = conf->masters.at[0],
		.state_file = conf->state_file,
		.heartbeat_ms = (unsigned int)conf->heartbeat_ms,
		.recover_ms = conf->recover ? MASTER_RECOVER_MS : 0,
		.summary_s = 10,
		.repair_rate = MASTER_REPAIR_RATE,
		.metrics = p->base.metrics,
	};

	if (!conf->embedded)
		return 0;
	if (!opts.state_file) {
		snprintf(state, sizeof(state), "%s/master.state", p->dir);
		opts.state_file = state;
	}
	return master_open(&opts, &p->master);
}

static int start_node(struct program *p)
{
	char store[PATH_MAX + 32], sock[PATH_MAX + 32];
	struct pool_node_opts opts = {
		.loop = &p->base.loop,
		.masters = conf->masters,
		.listen = conf->listen,
		.advertise = conf->advertise,
		.unix_path = sock,
		.name = conf->name,
		.store_dir = conf->store_dir ? conf->store_dir : store,
		.store_size = conf->store_size,
		.buffer_size = conf->buffer_size,
		.mount = conf->mount != NULL,
		.fd_passing = !conf->no_fd_passing,
		.reserve = !conf->no_passthrough && conf->mount,
		.verbs = p->verbs,
		.movers = (unsigned int)conf->movers,
		.prefetch_max = (unsigned int)conf->prefetch,
		.hot_gets = (unsigned int)conf->hot_gets,
		.cold_ms = (unsigned int)conf->cold_ms,
		.deadline_ms = (unsigned int)conf->deadline_ms,
		.handover = conf->takeover ? &p->taken.h : NULL,
		.metrics = p->base.metrics,
	};

	if (p->master)
		opts.masters.at[0].port = master_port(p->master);
	snprintf(store, sizeof(store), "%s/store", p->dir);
	snprintf(sock, sizeof(sock), "%s/peer.sock", p->dir);
	return pool_node_open(&opts, &p->node);
}

static bool master_wanted(void *arg)
{
	struct program *p = arg;

	return p->node && !pool_node_connected(p->node);
}

static void on_master_found(void *arg, const struct pool_hostport *leader)
{
	struct program *p = arg;

	if (p->node)
		pool_node_master_found(p->node, leader);
}

static int start_finder(struct program *p)
{
	struct master_finder_opts opts = {
		.loop = &p->base.loop,
		.etcd = conf->etcd,
		.cluster = conf->cluster,
		.metrics = p->base.metrics,
		.wanted = master_wanted,
		.found = on_master_found,
		.arg = p,
	};

	return conf->etcd ? master_finder_open(&opts, &p->finder) : 0;
}

/* As mount(8) was told it, so that it knows its mount again; else the masters. */
static const char *mount_source(char *buf, size_t cap)
{
	size_t n = 0;

	if (conf->source)
		return conf->source;
	if (conf->embedded || conf->masters.n == 0)
		return "kvpool";
	for (unsigned int i = 0; i < conf->masters.n; i++) {
		char one[POOL_HOSTPORT_TEXT];

		pool_format_hostport(&conf->masters.at[i], one, sizeof(one));
		n += (size_t)snprintf(buf + n, cap - n, "%s%s", i ? "," : "",
				      one);
	}
	return buf;
}

static int start_mount(struct program *p)
{
	char source[POOL_HOSTPORTS_MAX * (POOL_HOSTPORT_TEXT + 1)];
	struct fs_opts opts = {
		.loop = &p->base.loop,
		.node = p->node,
		.mountpoint = p->mount,
		.source = mount_source(source, sizeof(source)),
		.passthrough = !conf->no_passthrough,
		.noexec = conf->noexec,
		.noatime = conf->noatime,
		.metrics = p->base.metrics,
		.status = status_json,
		.nodes = nodes_json,
		.gone = on_unmounted,
		.arg = p,
	};

	if (conf->takeover)
		return fs_take(&opts, &p->taken.h, &p->fs);
	return p->mount ? fs_open(&opts, &p->fs) : 0;
}

/* All is there that the other daemon had: from GO on it is ours. */
static int commit_takeover(struct program *p)
{
	int err;

	fs_guarded(p->fs);
	err = daemon_takeover_commit(&p->taken);
	if (err) {
		fs_leave(p->fs);
		return err;
	}
	err = pool_node_begin(p->node);
	if (!err)
		fs_begin(p->fs);
	return err;
}

/* For the next one: only a mount cannot simply be restarted. */
static int start_takeover(struct program *p)
{
	int fd = conf->takeover ? pool_handover_take_fd(&p->taken.h,
						       POOL_HANDOVER_FD_TAKEOVER)
			       : 0;

	return p->mount ? daemon_takeover_open(&p->base.loop, p->dir, fd,
					       &handover_ops, p, &p->takeover) :
			  0;
}

static int start_admin(struct program *p)
{
	struct daemon_admin_opts opts = {
		.loop = &p->base.loop,
		.listen = conf->admin,
		.metrics = p->base.metrics,
		.pages = pages,
		.arg = p,
		.ready = is_ready,
		.insecure = conf->insecure,
	};

	if (conf->takeover)
		opts.listen_fd = pool_handover_take_fd(&p->taken.h,
						       POOL_HANDOVER_FD_ADMIN);
	return daemon_admin_open(&opts, &p->admin);
}

/* Descriptors up to the hard limit: each object under way needs some. */
static void raise_nofile(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur < rl.rlim_max) {
		rl.rlim_cur = rl.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &rl);
	}
}

static void no_work(uv_work_t *w)
{
	(void)w;
}

static void no_work_done(uv_work_t *w, int status)
{
	(void)w;
	(void)status;
}

/*
 * Requests are answered before anything is checksummed: the loop's thread runs
 * ahead of the workers (which exist by now, and the movers) where both want one
 * CPU. Without the privilege it does not; nothing depends on it.
 */
static void prefer_loop(void)
{
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), -10);
}

/* The mount point need not exist, its parent must; a mount whose daemon died
 * does not resolve. */
static int absolute_mount(struct program *p)
{
	char real[PATH_MAX], cwd[PATH_MAX];

	if (!conf->mount)
		return 0;
	if (conf->mount[0] == '/') {
		p->mount = strdup(conf->mount);
	} else if (getcwd(cwd, sizeof(cwd))) {
		snprintf(real, sizeof(real), "%.*s/%.*s", PATH_MAX / 2 - 2,
			 cwd, PATH_MAX / 2 - 2, conf->mount);
		p->mount = strdup(real);
	}
	if (!p->mount) {
		pool_error("%s: not a path that can be mounted at",
			   conf->mount);
		return -ENOENT;
	}
	for (size_t n = strlen(p->mount); n > 1 && p->mount[n - 1] == '/';)
		p->mount[--n] = '\0';
	return 0;
}

/* After a failure the process ends, and what is open with it, but for the
 * store's tmpfs. */
static int start(struct program *p)
{
	int rc = daemon_run_dir_make(conf->run_dir, conf->name, p->dir,
				     sizeof(p->dir));

	if (!rc)
		rc = absolute_mount(p);
	/* Before signals are the loop's: it may take a while. */
	if (!rc && !conf->takeover)
		rc = daemon_name_lock(p->dir, conf->name);
	if (!rc)
		rc = daemon_program_open(&p->base, stop);
	if (!rc)
		rc = pool_busy_open(&p->busy, &p->base.loop,
				    (unsigned int)conf->busy_poll_us,
				    p->base.metrics);
	if (!rc && conf->allow_faults)
		rc = daemon_faults_allow(p->base.metrics);
	if (!rc && conf->takeover)
		rc = daemon_takeover_ask(p->dir, &p->taken);
	if (!rc)
		rc = start_admin(p);
	if (!rc)
		rc = start_verbs(p);
	if (!rc)
		rc = start_master(p);
	if (!rc)
		rc = start_node(p);
	if (!rc)
		rc = start_finder(p);
	if (!rc)
		rc = start_takeover(p);
	if (!rc)
		rc = start_mount(p);
	if (rc && p->node)
		pool_node_undo(p->node);
	if (!rc && conf->takeover)
		rc = commit_takeover(p);
	return rc;
}

static int run(void)
{
	static struct program p;
	static uv_work_t first;
	int rc;

	raise_nofile();
	daemon_advertise_warn(&conf->listen, conf->advertise,
			      &conf->masters.at[0]);
	rc = start(&p);
	if (rc)
		return daemon_start_failed(rc);
	pool_handover_close(&p.taken.h);
	/* libuv makes its workers with the first work. */
	(void)uv_queue_work(&p.base.loop, &first, no_work, no_work_done);
	prefer_loop();
	p.serving = true;
	if (conf->takeover)
		daemon_name_lock_taken(p.dir);
	daemon_name_lock_serving(p.mount);
	daemon_pidfile_sweep(conf->run_dir, conf->name);
	if (p.mount)
		(void)daemon_pidfile_write(conf->run_dir, p.mount, conf->name);
	pool_info("kvpoold %s: %s, admin at %s:%u", kvpool_version(),
		  conf->name, conf->admin.host, daemon_admin_port(p.admin));
	rc = daemon_program_run(&p.base);
	if (p.mount)
		daemon_pidfile_remove(conf->run_dir, p.mount);
	verbs_close(p.verbs);
	free(p.mount);
	return rc;
}

int main(int argc, char **argv)
{
	char log_name[sizeof("kvpoold-") + DAEMON_NAME_MAX];
	int rc = daemon_node_conf_read(argc, argv, &conf);

	if (rc)
		return rc > 0 ? 0 : 2;
	pool_log_set_level((enum pool_log_level)conf->log_level);
	/* Nodes of one machine do not write into each other's log. */
	snprintf(log_name, sizeof(log_name), "kvpoold-%s", conf->name);
	rc = conf->foreground ?
		     daemon_foreground_start(conf->log_file) :
		     daemon_background_start(conf->log_file, log_name);
	return rc ? 1 : run();
}
