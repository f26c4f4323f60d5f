/*
 * kvpoold: start and shutdown. Options: daemon/node_conf.h; admin pages:
 * daemon/node_pages.c; the node: pool/node/node.h; the mount: fs/session.h.
 *
 * Start: options -> privileges that are not needed are given up -> background
 *        -> lock of the name -> admin (only the address is taken: the loop does
 *        not run yet) -> RDMA devices -> (embedded: master) -> node -> mount
 *        -> ready. The mount comes last, so that a failed start leaves no mount
 *        behind.
 *
 * Shutdown, by SIGTERM, SIGINT or an unmount: closes admin, the mount, the node
 * (which publishes what is pending), the embedded master, the devices. The loop
 * ends when no handle is left, and the program exits with 0.
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

#include "daemon/advertise.h"
#include "daemon/daemonize.h"
#include "daemon/fault_page.h"
#include "daemon/fdstore.h"
#include "daemon/name_lock.h"
#include "daemon/node_program.h"
#include "daemon/privileges.h"
#include "daemon/run_dir.h"
#include "daemon/surge.h"
#include "daemon/web.h"
#include "fs/kept.h"
#include "pool/base/log.h"
#include "pool/base/parse.h"
#include "pool/kvpool.h"

#define PUBLISH_TIMEOUT_MS 5000

static bool is_ready(void *arg)
{
	struct node_program *p = arg;

	return p->serving && !p->base.closing && pool_node_ready(p->node);
}

/* ---- the keeper ---- */

static void on_keeper_lost(void *arg)
{
	struct node_program *p = arg;

	pool_warn("the keeper has died: the mount will end with this daemon");
	fs_unkept(p->fs);
}

/* From here on the mount ends with this process. */
static void let_go(struct node_program *p)
{
	if (!daemon_keeper_keeps(&p->keeper) || !p->fs)
		return;
	fs_unkept(p->fs);
	daemon_keeper_let_go(&p->keeper);
}

/* ---- ending for the next daemon, which the keeper starts ---- */

static void restart_pause(void *arg)
{
	fs_pause(((struct node_program *)arg)->fs);
}

static const char *restart_busy(void *arg)
{
	struct node_program *p = arg;
	const char *busy = fs_busy(p->fs);

	if (!busy)
		busy = pool_node_busy(p->node);
	if (!busy && !pool_node_acked(p->node))
		busy = "the master has not acked all changes";
	return busy;
}

static void restart_resume(void *arg)
{
	fs_resume(((struct node_program *)arg)->fs);
}

static void restart_leave(void *arg)
{
	fs_keep_now(((struct node_program *)arg)->fs);
}

static const struct daemon_restart_ops restart_ops = {
	.pause = restart_pause,
	.busy = restart_busy,
	.resume = restart_resume,
	.leave = restart_leave,
};

/* From here on the mount survives this process. */
static int put_keeper(struct node_program *p)
{
	int err = p->fs ? daemon_keeper_put(&p->keeper, fs_device(p->fs)) : 0;

	if (!err && p->fs && daemon_keeper_keeps(&p->keeper))
		err = daemon_restart_open(&p->base.loop, &restart_ops, p,
					  &p->restart);
	return err || !p->fs ? err :
	       daemon_keeper_watch(&p->keeper, &p->base.loop, on_keeper_lost,
				   p);
}

/* ---- shutdown: admin, mount, node, embedded master, RDMA devices ---- */

static void on_unwatched(void *arg)
{
	struct node_program *p = arg;

	pool_busy_close(&p->busy, NULL);
	daemon_program_closed(&p->base);
}

static void on_master_closed(void *arg)
{
	struct node_program *p = arg;

	if (p->verbs)
		verbs_unwatch(p->verbs, on_unwatched, p);
	else
		on_unwatched(p);
}

static void on_finder_closed(void *arg)
{
	struct node_program *p = arg;

	if (p->master)
		master_close(p->master, on_master_closed, p);
	else
		on_master_closed(p);
}

static void on_node_closed(void *arg)
{
	struct node_program *p = arg;

	fs_free(p->fs);
	p->node = NULL;
	if (p->finder)
		master_finder_close(p->finder, on_finder_closed, p);
	else
		on_finder_closed(p);
}

static void on_fs_closed(void *arg)
{
	struct node_program *p = arg;

	pool_node_close(p->node, PUBLISH_TIMEOUT_MS, on_node_closed, p);
}

static void on_admin_closed(void *arg)
{
	struct node_program *p = arg;

	if (p->fs)
		fs_close(p->fs, on_fs_closed, p);
	else
		on_fs_closed(p);
}

static void stop(struct daemon_program *base)
{
	struct node_program *p = (struct node_program *)base;

	daemon_name_lock_ending();
	let_go(p);
	daemon_takeover_close(p->takeover);
	daemon_restart_close(&p->restart);
	daemon_admin_close(p->admin, on_admin_closed, p);
}

static void on_unmounted(void *arg)
{
	pool_info("the mount was unmounted: closing");
	daemon_program_stop(arg);
}

/* ---- handing over to another daemon ---- */

static const char *handover_refuse(void *arg)
{
	struct node_program *p = arg;

	if (p->base.closing)
		return "the daemon is ending";
	return p->master ?
		       "the master runs in this process: restart it instead" :
		       NULL;
}

static void handover_pause(void *arg)
{
	fs_pause(((struct node_program *)arg)->fs);
}

static const char *handover_busy(void *arg)
{
	struct node_program *p = arg;
	const char *busy = fs_busy(p->fs);

	return busy ? busy : pool_node_busy(p->node);
}

static void handover_put(void *arg, struct pool_handover *h)
{
	struct node_program *p = arg;

	pool_handover_set_fd(h, POOL_HANDOVER_FD_ADMIN,
			     daemon_admin_fd(p->admin));
	pool_node_hand_over(p->node, h);
	if (!h->err)
		fs_hand_over(p->fs, h);
}

static void handover_resume(void *arg)
{
	fs_resume(((struct node_program *)arg)->fs);
}

static pid_t handover_main_pid(void *arg)
{
	return daemon_keeper_main_pid(&((struct node_program *)arg)->keeper);
}

static void handover_leave(void *arg)
{
	struct node_program *p = arg;

	/* The other daemon has a keeper of its own, or a guard. */
	daemon_keeper_handed_over(&p->keeper);
	fs_leave(p->fs);
}

static void handover_end(void *arg)
{
	if (((struct node_program *)arg)->conf->surge)
		daemon_surge_wait();
}

static const struct daemon_takeover_ops handover_ops = {
	.refuse = handover_refuse,
	.pause = handover_pause,
	.busy = handover_busy,
	.hand_over = handover_put,
	.resume = handover_resume,
	.main_pid = handover_main_pid,
	.leave = handover_leave,
	.end = handover_end,
};

/* ---- start ---- */

/* Reports that no RDMA port can be used. */
static int no_rdma(struct node_program *p, int err)
{
	char there[1024];

	if (p->conf->transport != TRANSPORT_RDMA) {
		if (err)
			pool_warn("bytes move over TCP only");
		return 0;
	}
	if (!err)
		pool_error("--transport rdma: no RDMA port can be used; there "
			   "are: %s. Make one active, with an IP address "
			   "(kvpool devices), or choose --transport auto",
			   verbs_format(p->verbs, there, sizeof(there)));
	return -ENODEV;
}

static int start_verbs(struct node_program *p)
{
	char used[1024];
	int err;

	if (p->conf->transport == TRANSPORT_TCP)
		return 0;
	err = verbs_open(p->conf->rdma_device, &p->verbs);
	if (err == -ENODEV || (!err && verbs_nports(p->verbs) == 0))
		err = no_rdma(p, err);
	else if (!err)
		pool_info("RDMA devices: %s",
			  verbs_format(p->verbs, used, sizeof(used)));
	if (err || !p->verbs)
		return err;
	if (p->conf->rdma_connect == CONNECT_CM)
		verbs_connect_by_cm(p->verbs);
	verbs_busy_poll(p->verbs, (unsigned int)p->conf->rdma_busy_poll_us);
	err = verbs_metrics(p->verbs, p->base.metrics);
	if (!err)
		err = verbs_watch(p->verbs, &p->base.loop);
	return err;
}

static struct pool_trust *trust_of(struct node_program *p)
{
	return p->conf->insecure ? NULL : &p->trust;
}

static int start_master(struct node_program *p)
{
	char state[PATH_MAX + 32];
	struct master_opts opts = {
		.loop = &p->base.loop,
		.listen = p->conf->masters.at[0],
		.trust = trust_of(p),
		.state_file = p->conf->state_file,
		.heartbeat_ms = (unsigned int)p->conf->heartbeat_ms,
		.recover_ms = p->conf->recover ? MASTER_RECOVER_MS : 0,
		.summary_s = 10,
		.repair_rate = MASTER_REPAIR_RATE,
		.metrics = p->base.metrics,
		.program = kvpool_version(),
	};

	if (!p->conf->embedded)
		return 0;
	if (!opts.state_file) {
		snprintf(state, sizeof(state), "%s/master.state", p->dir);
		opts.state_file = state;
	}
	return master_open(&opts, &p->master);
}

/*
 * Bound of the descriptors kept for files that users of the mount have open.
 * Any local user may open any number of files, so they share a quarter of this
 * process's descriptors, at most 4096. Beyond that one is closed, which costs
 * little: opening it again takes microseconds. The other three quarters are for
 * what users of the mount cannot keep open: sessions and answers of peers, who
 * are trusted (peer_priv.h, mover.h: each kind has a bound, 4096 or 8192),
 * borrowed files, 64 HTTP connections, and short uses by open, create, seal and
 * fetch.
 */
static unsigned int fds_max(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) < 0 || rl.rlim_cur > 4 * 4096)
		return 4096;
	return rl.rlim_cur >= 32 ? (unsigned int)rl.rlim_cur / 4 : 8;
}

static int start_node(struct node_program *p)
{
	char store[PATH_MAX + 32], sock[PATH_MAX + 32];
	struct pool_node_opts opts = {
		.loop = &p->base.loop,
		.masters = p->conf->masters,
		.listen = p->conf->listen,
		.advertise = p->conf->advertise,
		.unix_path = sock,
		.name = p->conf->name,
		.program = kvpool_version(),
		.store_dir = p->conf->store_dir ? p->conf->store_dir : store,
		.store_size = p->conf->store_size,
		.memory_max = p->conf->memory_limit,
		.buffer_size = p->conf->buffer_size,
		.mount = p->conf->mount != NULL,
		.fd_passing = !p->conf->no_fd_passing,
		.reserve = !p->conf->no_passthrough && p->conf->mount,
		.verbs = p->verbs,
		.trust = trust_of(p),
		.tls = p->base.tls.tls,
		.movers = (unsigned int)p->conf->movers,
		.prefetch_max = (unsigned int)p->conf->prefetch,
		.hot_gets = (unsigned int)p->conf->hot_gets,
		.cold_ms = (unsigned int)p->conf->cold_ms,
		.deadline_ms = (unsigned int)p->conf->deadline_ms,
		.fds_max = fds_max(),
		.handover = p->conf->takeover ? &p->taken.h : NULL,
		.check = p->conf->allow_faults,
		.metrics = p->base.metrics,
	};

	if (p->keeper.dev_fd >= 0 && !p->conf->takeover &&
	    fs_kept_files(p->keeper.kept_fd, &p->were_open, &opts.nwere_open))
		pool_warn("files that were open may be lost");
	opts.were_open = p->were_open;
	if (p->master)
		opts.masters.at[0].port = master_port(p->master);
	snprintf(store, sizeof(store), "%s/store", p->dir);
	snprintf(sock, sizeof(sock), "%s/" POOL_PEER_SOCKET, p->dir);
	return pool_node_open(&opts, &p->node);
}

static bool master_wanted(void *arg)
{
	struct node_program *p = arg;

	return p->node && !pool_node_connected(p->node);
}

static void on_master_found(void *arg, const struct pool_hostport *leader)
{
	struct node_program *p = arg;

	if (p->node)
		pool_node_master_found(p->node, leader);
}

static int start_finder(struct node_program *p)
{
	struct master_finder_opts opts = {
		.loop = &p->base.loop,
		.etcd = p->conf->etcd,
		.cluster = p->conf->cluster,
		.metrics = p->base.metrics,
		.wanted = master_wanted,
		.found = on_master_found,
		.arg = p,
	};

	return p->conf->etcd.urls ? master_finder_open(&opts, &p->finder) : 0;
}

/* The mount's source: as given to mount(8), which recognises its mount by that;
 * else the masters. */
static const char *mount_source(const struct daemon_node_conf *conf,
				char *buf, size_t cap)
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

static int start_mount(struct node_program *p)
{
	char source[POOL_HOSTPORTS_MAX * (POOL_HOSTPORT_TEXT + 1)];
	struct fs_opts opts = {
		.loop = &p->base.loop,
		.node = p->node,
		.mountpoint = p->mount,
		.source = mount_source(p->conf, source, sizeof(source)),
		.passthrough = !p->conf->no_passthrough,
		.noexec = p->conf->noexec,
		.noatime = p->conf->noatime,
		/* DAEMON_NOT_GIVEN becomes FS_AS_STORED. */
		.ids = { (uint32_t)p->conf->uid, (uint32_t)p->conf->gid,
			 (uint32_t)p->conf->umask, (uint32_t)p->conf->dmode },
		.metrics = p->base.metrics,
		.status = daemon_node_status_json,
		.nodes = daemon_node_nodes_json,
		.kept_fd = daemon_keeper_keeps(&p->keeper) ?
				   p->keeper.kept_fd : 0,
		.guarded = p->keeper.guard >= 0,
		.dev_fd = p->keeper.dev_fd,
		.gone = on_unmounted,
		.arg = p,
	};

	if (p->conf->takeover)
		return fs_take(&opts, &p->taken.h, &p->fs);
	if (p->keeper.dev_fd >= 0)
		return fs_adopt(&opts, &p->fs);
	return p->mount ? fs_mount(&opts, &p->fs) : 0;
}

/* The old daemon's state is complete here: take over with GO. */
static int commit_takeover(struct node_program *p)
{
	int err;

	fs_guarded(p->fs);
	err = daemon_takeover_commit(&p->taken,
				     daemon_keeper_main_pid(&p->keeper));
	if (err) {
		fs_leave(p->fs);
		return err;
	}
	err = pool_node_begin(p->node);
	if (!err)
		fs_begin(p->fs);
	return err;
}

/* Allows the next take-over. Only with a mount: without one a restart suffices.
 */
static int start_takeover(struct node_program *p)
{
	int fd = p->conf->takeover ?
			 pool_handover_take_fd(&p->taken.h,
					       POOL_HANDOVER_FD_TAKEOVER) :
			 0;

	return p->mount ? daemon_takeover_open(&p->base.loop, p->dir, fd,
					       &handover_ops, p, &p->takeover) :
			  0;
}

static int start_admin(struct node_program *p)
{
	struct daemon_admin_opts opts = {
		.loop = &p->base.loop,
		.listen = p->conf->admin,
		.metrics = p->base.metrics,
		.pages = daemon_node_pages,
		.files = p->conf->embedded ? daemon_web_files : NULL,
		.files_at = "/pool",
		.arg = p,
		.ready = is_ready,
		.insecure = p->conf->insecure,
		.trust = trust_of(p),
		.tls = p->base.tls.tls,
		.names = p->conf->admin_name,
	};

	if (p->conf->takeover)
		opts.listen_fd = pool_handover_take_fd(&p->taken.h,
						       POOL_HANDOVER_FD_ADMIN);
	return daemon_admin_open(&opts, &p->admin);
}

/* Raises the limit of descriptors to the hard limit: each transfer needs
 * some. */
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
 * Gives the loop thread priority over workers and movers, which exist by now,
 * so that requests are answered before checksums are computed if they compete
 * for a CPU. An optimisation: without the privilege it has no effect.
 */
static void prefer_loop(void)
{
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), -10);
}

static int show_bulk(struct node_program *p)
{
	/* In the order of enum daemon_bulk. The registry borrows them. */
	static const char *const labels[] = { "mode=\"tls\"", "mode=\"auth\"",
					      "mode=\"plain\"" };

	pool_gauge_set(&p->bulk, 1);
	return pool_metrics_gauge(
		p->base.metrics, &p->bulk, "kvpool_bulk",
		labels[p->conf->bulk], "1: how bytes of objects are protected "
		"over TCP (--bulk); auth only where both ends have it.");
}

/* On an error the process exits, which closes all that is open; only the
 * store's tmpfs stays. */
static int start(struct node_program *p)
{
	int rc = daemon_run_dir_make(p->conf->run_dir, p->conf->name, p->dir,
				     sizeof(p->dir));

	/* Before the loop handles signals: this may block for a while. */
	if (!rc && !p->conf->takeover)
		rc = daemon_name_lock(p->dir, p->conf->name);
	if (!rc)
		rc = daemon_program_open(&p->base, stop);
	if (!rc)
		rc = POOL_TURNS_REGISTER(p->base.metrics, &p->base.turns,
					 "kvpool_node_loop_turn");
	if (!rc)
		rc = pool_busy_open(&p->busy, &p->base.loop,
				    (unsigned int)p->conf->busy_poll_us,
				    p->base.metrics);
	if (!rc)
		rc = pool_trust_metrics(&p->trust, p->base.metrics);
	if (!rc)
		rc = daemon_tls_open(&p->base.tls, p->conf->tls_dir,
				     POOL_ROLE_NODE, &p->base.loop,
				     p->base.metrics);
	if (!rc && p->conf->bulk == BULK_AUTH)
		pool_info("bulk: not encrypted where the other node has "
			  "--bulk auth, too");
	if (!rc && p->base.tls.tls) {
		pool_tls_set_renew(p->base.tls.tls, p->conf->tls_renew_ms);
		pool_tls_allow_plain(p->base.tls.tls,
				     p->conf->bulk == BULK_AUTH);
		rc = daemon_tls_use_kernel(&p->base.tls, p->conf->ktls);
	}
	if (!rc)
		rc = daemon_links_show(&p->base.tls, p->conf->insecure,
				       p->base.metrics);
	if (!rc)
		rc = show_bulk(p);
	if (!rc && p->conf->allow_faults)
		rc = daemon_faults_allow(p->base.metrics);
	if (!rc && p->conf->takeover)
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
	free(p->were_open);
	p->were_open = NULL;
	if (rc && p->node)
		pool_node_undo(p->node);
	if (!rc && p->conf->takeover)
		rc = commit_takeover(p);
	if (!rc)
		rc = put_keeper(p);
	return rc;
}

/* Makes the path absolute without realpath: the mount point need not exist, and
 * a mount whose daemon died does not resolve. Its parent must exist. */
static int absolute_mount(struct node_program *p)
{
	char real[PATH_MAX], cwd[PATH_MAX];

	if (!p->conf->mount)
		return 0;
	if (p->conf->mount[0] == '/') {
		p->mount = strdup(p->conf->mount);
	} else if (getcwd(cwd, sizeof(cwd))) {
		snprintf(real, sizeof(real), "%.*s/%.*s", PATH_MAX / 2 - 2,
			 cwd, PATH_MAX / 2 - 2, p->conf->mount);
		p->mount = strdup(real);
	}
	if (!p->mount) {
		pool_error("%s: not a path that can be mounted at",
			   p->conf->mount);
		return -ENOENT;
	}
	for (size_t n = strlen(p->mount); n > 1 && p->mount[n - 1] == '/';)
		p->mount[--n] = '\0';
	return 0;
}

/* Forks the keeper. What follows runs once for each daemon that it starts; only
 * the first one takes over. */
static int start_keeper(struct node_program *p)
{
	static struct daemon_node_conf later;
	int err;

	p->keeper = (struct daemon_keeper){
		.socket = p->conf->keeper_socket,
		.takeover = p->conf->takeover,
		.sock = -1, .kept_fd = -1, .dev_fd = -1, .guard = -1
	};
	err = absolute_mount(p);
	if (!err && (p->conf->keeper || p->conf->keeper_socket))
		err = daemon_keeper_start(p->mount, &p->keeper);
	if (err || p->keeper.dev_fd < 0)
		return err;
	later = *p->conf;
	later.takeover = false;
	p->conf = &later;
	return 0;
}

/* With --surge: takes over if a daemon runs. */
static const struct daemon_node_conf *
surge(const struct daemon_node_conf *conf)
{
	static struct daemon_node_conf surging;
	char dir[PATH_MAX];

	snprintf(dir, sizeof(dir), "%.*s/%s", PATH_MAX - DAEMON_NAME_MAX - 2,
		 conf->run_dir, conf->name);
	if (!conf->surge || !daemon_surge_is_running(dir))
		return conf;
	surging = *conf;
	surging.takeover = true;
	return &surging;
}

static int run(const struct daemon_node_conf *conf)
{
	static struct node_program p;
	static uv_work_t first;
	int rc;

	p.conf = surge(conf);
	rc = start_keeper(&p);
	if (rc)
		return daemon_start_failed(rc);
	conf = p.conf;
	p.trust = conf->trust;
	raise_nofile();
	daemon_advertise_warn(&conf->listen, conf->advertise,
			      &conf->masters.at[0]);
	rc = start(&p);
	if (rc)
		return daemon_start_failed(rc);
	pool_handover_close(&p.taken.h);
	/* libuv starts its workers with the first work. */
	(void)uv_queue_work(&p.base.loop, &first, no_work, no_work_done);
	prefer_loop();
	p.serving = true;
	if (conf->takeover)
		daemon_name_lock_taken(&p.base.loop, p.dir, p.mount);
	else
		daemon_name_lock_serving(p.mount);
	daemon_admin_open_local(p.admin, conf->run_dir);
	daemon_pidfile_sweep(conf->run_dir, conf->name);
	if (p.mount)
		(void)daemon_pidfile_write(conf->run_dir, p.mount, conf->name);
	pool_info("privileges: %s", daemon_privileges_text());
	pool_info("kvpoold %s: %s, admin at %s:%u", kvpool_version(),
		  conf->name, conf->admin.host, daemon_admin_port(p.admin));
	rc = daemon_program_run(&p.base);
	if (p.mount)
		daemon_pidfile_remove(conf->run_dir, p.mount);
	verbs_close(p.verbs);
	free(p.mount);
	return rc;
}

static bool is_low(const struct pool_hostport *at)
{
	return at->port > 0 && at->port < 1024;
}

static int keep_privileges(const struct daemon_node_conf *conf)
{
	const struct daemon_needs needs = {
		/* A store is a tmpfs of its own. */
		.mounts = true,
		.helper = conf->mount,
		.rdma = conf->transport != TRANSPORT_TCP &&
			access("/sys/class/infiniband", F_OK) == 0,
		.priority = true,
		.again = conf->keeper && !conf->keeper_socket &&
			 !daemon_fdstore_offered(),
		.low_port = is_low(&conf->listen) || is_low(&conf->admin) ||
			    (conf->embedded && is_low(&conf->masters.at[0])),
	};

	return daemon_privileges_keep(&needs);
}

int main(int argc, char **argv)
{
	char log_name[sizeof("kvpoold-") + DAEMON_NAME_MAX];
	const struct daemon_node_conf *conf;
	int rc;

	if (daemon_surge_waits(argc, argv))
		return daemon_surge_wait_main();
	rc = daemon_node_conf_read(argc, argv, &conf);
	if (rc)
		return rc > 0 ? 0 : 2;
	pool_log_set_level((enum pool_log_level)conf->log_level);
	if (keep_privileges(conf))
		return 1;
	/* One log file per node of the machine. */
	snprintf(log_name, sizeof(log_name), "kvpoold-%s", conf->name);
	if (conf->foreground)
		rc = daemon_foreground_start(conf->log_file);
	else if (daemon_keeper_renewed())
		rc = daemon_background_again(conf->log_file, log_name);
	else
		rc = daemon_background_start(conf->log_file, log_name);
	return rc ? 1 : run(conf);
}
