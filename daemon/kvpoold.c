/*
 * kvpoold: options, the loop, signals, the admin pages. What a node does is in
 * pool/node.h, the mount in fs/session.h.
 *
 * Start: options -> background -> admin (the address alone: the loop does not
 *        run yet) -> (embedded: master) -> node -> mount -> ready. What fails
 *        last may be mounted last: a failed start leaves no mount behind.
 * SIGTERM or SIGINT, or the mount taken away: admin closes, the mount, the node
 * (which publishes what is pending), the embedded master; the loop ends when
 * no handle is left, and the program with 0.
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
#include "daemon/options.h"
#include "daemon/program.h"
#include "daemon/run_dir.h"
#include "fs/session.h"
#include "master/etcd.h"
#include "master/ha.h"
#include "master/server.h"
#include "pool/base/log.h"
#include "pool/base/parse.h"
#include "pool/kvpool_api.h"
#include "pool/node.h"

#define STORE_MIN (16ull << 20)
#define PUBLISH_TIMEOUT_MS 5000

static const char usage[] =
	"usage: kvpoold --store-size N [--mount DIR] [OPTION]...\n"
	"       kvpoold --mount DIR [OPTION]...              (a client)\n"
	"\n"
	"A node of a pool: gives memory to it (--store-size), mounts it (--mount),\n"
	"or both.";

static struct {
	struct pool_hostports masters;
	struct pool_hostport listen, admin;
	const char *etcd, *cluster;
	const char *advertise, *name, *run_dir, *store_dir, *mount;
	const char *state_file, *log_file;
	uint64_t store_size, buffer_size, movers, prefetch, busy_poll_us;
	uint64_t hot_gets, cold_ms;
	uint64_t heartbeat_ms;
	unsigned int log_level;
	bool no_passthrough, no_fd_passing, embedded, insecure, foreground;
	bool allow_faults, noexec, noatime, version;
} conf = {
	.masters = { 1, { { "127.0.0.1", 7070 } } },
	.cluster = "default",
	.listen = { "127.0.0.1", 7072 },
	.admin = { "127.0.0.1", 7073 },
	.buffer_size = 256ull << 20,
	.movers = 2,
	.prefetch = 64,
	.hot_gets = 4,
	.cold_ms = 30000,
	.heartbeat_ms = 1000,
	.log_level = POOL_LOG_INFO,
};

static struct daemon_option options[] = {
	{ .name = "master",
	  .type = OPT_HOSTPORTS,
	  .value = &conf.masters,
	  .arg = "HOST:PORT[,HOST:PORT]...",
	  .help = "The pool's master, or several of which one acts; with --embedded,\n"
		  "where it listens.",
	  .default_port = 7070 },
	{ .name = "etcd",
	  .type = OPT_STRING,
	  .value = &conf.etcd,
	  .arg = "URL[,URL]...",
	  .help = "Ask etcd where the master is; --master, if given, is tried, too." },
	{ .name = "cluster",
	  .type = OPT_STRING,
	  .value = &conf.cluster,
	  .arg = "NAME",
	  .help = "With --etcd: the pool's name, as of its masters." },
	{ .name = "listen",
	  .type = OPT_HOSTPORT,
	  .value = &conf.listen,
	  .arg = "HOST:PORT",
	  .help = "Where other nodes connect.",
	  .default_port = 7072 },
	{ .name = "advertise",
	  .type = OPT_STRING,
	  .value = &conf.advertise,
	  .arg = "HOST:PORT",
	  .help = "The address told to other nodes, if it is another than\n"
		  "--listen (NAT, pods); needed if that is 0.0.0.0 or [::].\n"
		  "Resolved anew at each connection." },
	{ .name = "admin",
	  .type = OPT_HOSTPORT,
	  .value = &conf.admin,
	  .arg = "HOST:PORT",
	  .help = "Status and metrics over HTTP.",
	  .default_port = 7073 },
	{ .name = "name",
	  .type = OPT_STRING,
	  .value = &conf.name,
	  .arg = "NAME",
	  .help = "Shown to people; default: the host's name and the port.\n"
		  "Letters, digits, . _ and -, no dot in front." },
	{ .name = "run-dir",
	  .type = OPT_STRING,
	  .value = &conf.run_dir,
	  .arg = "DIR",
	  .help = "For sockets, the store and pid files. Default: /run/kvpool;\n"
		  "if not root, $XDG_RUNTIME_DIR/kvpool or /tmp/kvpool-UID." },
	{ .name = "store-size",
	  .type = OPT_SIZE,
	  .value = &conf.store_size,
	  .arg = "N",
	  .help = "Memory given to the pool; 0: none (a client).",
	  .max = 1ull << 60 },
	{ .name = "store-dir",
	  .type = OPT_STRING,
	  .value = &conf.store_dir,
	  .arg = "DIR",
	  .help = "Where objects are kept: a tmpfs is mounted there if possible.\n"
		  "Default: NAME/store in --run-dir." },
	{ .name = "buffer-size",
	  .type = OPT_SIZE,
	  .value = &conf.buffer_size,
	  .arg = "N",
	  .help = "Of a client: memory for what it writes and caches.",
	  .min = STORE_MIN,
	  .max = 1ull << 60 },
	{ .name = "mount",
	  .type = OPT_STRING,
	  .value = &conf.mount,
	  .arg = "DIR",
	  .help = "Where the pool is mounted; not given: no mount." },
	{ .name = "noexec",
	  .type = OPT_FLAG,
	  .value = &conf.noexec,
	  .help = "Of the mount: no file in it can be executed." },
	{ .name = "noatime",
	  .type = OPT_FLAG,
	  .value = &conf.noatime,
	  .help = "Of the mount: shown as such. (Times of access are not kept.)" },
	{ .name = "no-passthrough",
	  .type = OPT_FLAG,
	  .value = &conf.no_passthrough,
	  .help = "Let data pass through the daemon (slower)." },
	{ .name = "no-fd-passing",
	  .type = OPT_FLAG,
	  .value = &conf.no_fd_passing,
	  .help = "Nodes of one host exchange bytes, not descriptors." },
	{ .name = "movers",
	  .type = OPT_COUNT,
	  .value = &conf.movers,
	  .arg = "N",
	  .help = "Threads that move bytes between nodes.",
	  .min = 1,
	  .max = 64 },
	{ .name = "hot-gets",
	  .type = OPT_COUNT,
	  .value = &conf.hot_gets,
	  .arg = "N",
	  .help = "An object that other nodes fetch from here so often within 10 s\n"
		  "gets an extra copy on another store; 0: never.",
	  .max = 1000000 },
	{ .name = "cold",
	  .type = OPT_DURATION,
	  .value = &conf.cold_ms,
	  .arg = "DURATION",
	  .help = "An extra copy here that nobody fetches for so long is given up.",
	  .min = 100,
	  .max = 86400000 },
	{ .name = "prefetch",
	  .type = OPT_COUNT,
	  .value = &conf.prefetch,
	  .arg = "N",
	  .help = "Fetches started at once because a look-up hit; 0: none.",
	  .max = 4096 },
	{ .name = "busy-poll",
	  .type = OPT_COUNT,
	  .value = &conf.busy_poll_us,
	  .arg = "MICROSECONDS",
	  .help = "Look for the next request so long before sleeping.",
	  .max = 10000 },
	{ .name = "embedded",
	  .type = OPT_FLAG,
	  .value = &conf.embedded,
	  .help = "Run the master in this process, too." },
	{ .name = "state-file",
	  .type = OPT_STRING,
	  .value = &conf.state_file,
	  .arg = "FILE",
	  .help = "Of an embedded master; default: NAME/master.state in\n"
		  "--run-dir." },
	{ .name = "heartbeat",
	  .type = OPT_DURATION,
	  .value = &conf.heartbeat_ms,
	  .arg = "DURATION",
	  .help = "Of an embedded master: how often nodes report.",
	  .min = 10,
	  .max = 60000 },
	{ .name = "insecure",
	  .type = OPT_FLAG,
	  .value = &conf.insecure,
	  .help = "Allow addresses other than loopback, without authentication." },
	{ .name = "foreground",
	  .type = OPT_FLAG,
	  .value = &conf.foreground,
	  .help = "Do not go into the background; log to stderr." },
	{ .name = "log-file",
	  .type = OPT_STRING,
	  .value = &conf.log_file,
	  .arg = "FILE",
	  .help = "Where the log goes; in the background, if not given,\n"
		  "/var/log/kvpool/kvpoold-NAME.log." },
	{ .name = "log-level",
	  .type = OPT_CHOICE,
	  .value = &conf.log_level,
	  .arg = "error|warn|info|debug",
	  .help = "What is logged." },
	{ .name = "allow-faults",
	  .type = OPT_FLAG,
	  .value = &conf.allow_faults,
	  .help = "For tests: `kvpool fault` may disturb the connections." },
	{ .name = "version",
	  .type = OPT_FLAG,
	  .value = &conf.version,
	  .help = "Print the version.",
	  .no_env = true },
	{ .name = NULL },
};

struct program {
	struct daemon_program base; /* first */
	struct master *master; /* embedded, else NULL */
	struct pool_node *node;
	struct master_finder *finder; /* NULL without --etcd */
	struct fs *fs; /* NULL without --mount */
	struct daemon_admin *admin;
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
			    json_sprintf(strchr(conf.admin.host, ':') ?
						 "[%s]:%u" : "%s:%u",
					 conf.admin.host,
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

static const struct daemon_admin_page pages[] = {
	{ .path = "/api/status", .fn = status_page },
	{ .path = "/api/nodes", .fn = nodes_page },
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

/* ---- end: admin, mount, node, embedded master ---- */

static void on_master_closed(void *arg)
{
	daemon_program_closed(arg);
}

static void on_finder_closed(void *arg)
{
	struct program *p = arg;

	if (p->master)
		master_close(p->master, on_master_closed, p);
	else
		daemon_program_closed(&p->base);
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

	daemon_admin_close(p->admin, on_admin_closed, p);
}

static void on_unmounted(void *arg)
{
	pool_info("the mount was taken away: closing");
	daemon_program_stop(arg);
}

/* ---- start ---- */

static int start_master(struct program *p)
{
	char state[PATH_MAX + 32];
	struct master_opts opts = {
		.loop = &p->base.loop,
		.listen = conf.masters.at[0],
		.state_file = conf.state_file,
		.heartbeat_ms = (unsigned int)conf.heartbeat_ms,
		.summary_s = 10,
		.repair_rate = MASTER_REPAIR_RATE,
		.metrics = p->base.metrics,
	};

	if (!conf.embedded)
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
		.masters = conf.masters,
		.listen = conf.listen,
		.advertise = conf.advertise,
		.unix_path = sock,
		.name = conf.name,
		.store_dir = conf.store_dir ? conf.store_dir : store,
		.store_size = conf.store_size,
		.buffer_size = conf.buffer_size,
		.mount = conf.mount != NULL,
		.fd_passing = !conf.no_fd_passing,
		.reserve = !conf.no_passthrough && conf.mount,
		.movers = (unsigned int)conf.movers,
		.prefetch_max = (unsigned int)conf.prefetch,
		.hot_gets = (unsigned int)conf.hot_gets,
		.cold_ms = (unsigned int)conf.cold_ms,
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
		.etcd = conf.etcd,
		.cluster = conf.cluster,
		.metrics = p->base.metrics,
		.wanted = master_wanted,
		.found = on_master_found,
		.arg = p,
	};

	return conf.etcd ? master_finder_open(&opts, &p->finder) : 0;
}

static int start_mount(struct program *p)
{
	struct fs_opts opts = {
		.loop = &p->base.loop,
		.node = p->node,
		.mountpoint = p->mount,
		.passthrough = !conf.no_passthrough,
		.noexec = conf.noexec,
		.noatime = conf.noatime,
		.busy_poll_us = (unsigned int)conf.busy_poll_us,
		.metrics = p->base.metrics,
		.status = status_json,
		.nodes = nodes_json,
		.gone = on_unmounted,
		.arg = p,
	};

	return p->mount ? fs_open(&opts, &p->fs) : 0;
}

static int start_admin(struct program *p)
{
	struct daemon_admin_opts opts = {
		.loop = &p->base.loop,
		.listen = conf.admin,
		.metrics = p->base.metrics,
		.pages = pages,
		.arg = p,
		.ready = is_ready,
		.insecure = conf.insecure,
	};

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

	if (!conf.mount)
		return 0;
	if (conf.mount[0] == '/') {
		p->mount = strdup(conf.mount);
	} else if (getcwd(cwd, sizeof(cwd))) {
		snprintf(real, sizeof(real), "%.*s/%.*s", PATH_MAX / 2 - 2,
			 cwd, PATH_MAX / 2 - 2, conf.mount);
		p->mount = strdup(real);
	}
	if (!p->mount) {
		pool_error("%s: not a path that can be mounted at",
			   conf.mount);
		return -ENOENT;
	}
	for (size_t n = strlen(p->mount); n > 1 && p->mount[n - 1] == '/';)
		p->mount[--n] = '\0';
	return 0;
}

static int run(void)
{
	static struct program p;
	int rc;

	static uv_work_t first;

	raise_nofile();
	daemon_advertise_warn(&conf.listen, conf.advertise,
			      &conf.masters.at[0]);
	/* After a failure the process ends, and what is open with it, but for
	 * the store's tmpfs. */
	if (daemon_program_open(&p.base, stop) ||
	    (conf.allow_faults && daemon_faults_allow(p.base.metrics)) ||
	    daemon_run_dir_make(conf.run_dir, conf.name, p.dir,
				sizeof(p.dir)) ||
	    absolute_mount(&p) || start_admin(&p) || start_master(&p) ||
	    start_node(&p) || start_finder(&p))
		return 1;
	if (start_mount(&p)) {
		pool_node_undo(p.node);
		return 1;
	}
	/* libuv makes its workers with the first work. */
	(void)uv_queue_work(&p.base.loop, &first, no_work, no_work_done);
	prefer_loop();
	p.serving = true;
	daemon_pidfile_sweep(conf.run_dir, conf.name);
	if (p.mount)
		(void)daemon_pidfile_write(conf.run_dir, p.mount, conf.name);
	pool_info("kvpoold %s: %s, admin at %s:%u", kvpool_version(),
		  conf.name, conf.admin.host, daemon_admin_port(p.admin));
	rc = daemon_program_run(&p.base);
	if (p.mount)
		daemon_pidfile_remove(conf.run_dir, p.mount);
	free(p.mount);
	return rc;
}

/* Where the master is: --master, --etcd, or both. */
static int check_master_options(void)
{
	struct daemon_option *master = daemon_option_find(options, "master");
	struct daemon_option *etcd = daemon_option_find(options, "etcd");

	if (conf.etcd && etcd_urls_check(conf.etcd))
		return daemon_option_reject(etcd, ETCD_URLS_ACCEPTED, stderr);
	if (master_cluster_check(conf.cluster))
		return daemon_option_reject(
			daemon_option_find(options, "cluster"),
			MASTER_CLUSTER_ACCEPTED, stderr);
	if (conf.embedded && conf.etcd)
		return daemon_option_reject(
			etcd, "no etcd for an --embedded master, which is the only one",
			stderr);
	if (conf.embedded && conf.masters.n > 1)
		return daemon_option_reject(
			master, "one HOST:PORT for an --embedded master",
			stderr);
	if (conf.etcd && !master->seen)
		conf.masters.n = 0;
	if (!conf.embedded || conf.insecure ||
	    pool_host_is_loopback(conf.masters.at[0].host))
		return 0;
	return daemon_option_reject(master, DAEMON_LISTEN_ACCEPTED, stderr);
}

static int check_options(void)
{
	static const char *const listeners[] = { "listen", "admin" };
	size_t i;

	for (i = 0; i < sizeof(listeners) / sizeof(listeners[0]); i++)
		if (daemon_option_check_listen(
			    daemon_option_find(options, listeners[i]),
			    conf.insecure, stderr))
			return -EINVAL;
	if (check_master_options())
		return -EINVAL;
	if (daemon_advertise_check(daemon_option_find(options, "listen"),
				   daemon_option_find(options, "advertise"),
				   stderr))
		return -EINVAL;
	if (conf.store_size > 0 && conf.store_size < STORE_MIN)
		return daemon_option_reject(
			daemon_option_find(options, "store-size"),
			"0, or a size such as 50G, 50gb or bytes, at least "
			"16 MiB", stderr);
	if (conf.store_size == 0 && !conf.mount) {
		fprintf(stderr, "kvpoold: neither --store-size nor --mount "
				"given; accepted: one of them, or both\n");
		return -EINVAL;
	}
	if (conf.name && !daemon_name_valid(conf.name))
		return daemon_option_reject(
			daemon_option_find(options, "name"),
			DAEMON_NAME_ACCEPTED, stderr);
	return 0;
}

/* Defaults that the options' table cannot say. */
static int set_defaults(void)
{
	static char name[DAEMON_NAME_MAX + 1], run_dir[PATH_MAX];
	char host[65] = "node";

	if (!conf.name) {
		(void)gethostname(host, sizeof(host) - 1);
		daemon_name_default(host, conf.listen.port, name);
		conf.name = name;
	}
	if (conf.run_dir)
		return 0;
	conf.run_dir = run_dir;
	return daemon_run_dir_default(run_dir, sizeof(run_dir));
}

int main(int argc, char **argv)
{
	char log_name[sizeof("kvpoold-") + DAEMON_NAME_MAX];
	int nops, rc;
	char **ops;

	rc = daemon_options_parse(options, argc, argv, usage, &nops, &ops,
				  stdout, stderr);
	if (rc)
		return rc > 0 ? 0 : 2;
	if (conf.version) {
		printf("kvpoold %s\n", kvpool_version());
		return 0;
	}
	if (nops) {
		fprintf(stderr, "kvpoold: \"%s\" given; accepted: options only, see --help\n",
			ops[0]);
		return 2;
	}
	if (check_options() || set_defaults())
		return 2;
	pool_log_set_level((enum pool_log_level)conf.log_level);
	/* Nodes of one machine do not write into each other's log. */
	snprintf(log_name, sizeof(log_name), "kvpoold-%s", conf.name);
	rc = conf.foreground ?
		     daemon_foreground_start(conf.log_file) :
		     daemon_background_start(conf.log_file, log_name);
	return rc ? 1 : run();
}
