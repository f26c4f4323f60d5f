#include "daemon/node_conf.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/advertise.h"
#include "daemon/options.h"
#include "daemon/run_dir.h"
#include "master/etcd.h"
#include "master/ha.h"
#include "pool/base/log.h"
#include "pool/kvpool.h"
#include "pool/verbs/device.h"

#define STORE_MIN (16ull << 20)

static const char usage[] =
	"usage: kvpoold --store-size N [--mount DIR] [OPTION]...\n"
	"       kvpoold --mount DIR [OPTION]...              (a client)\n"
	"\n"
	"A node of a pool: gives memory to it (--store-size), mounts it (--mount),\n"
	"or both.";

static struct daemon_node_conf conf = {
	.masters = { 1, { { "127.0.0.1", 7070 } } },
	.cluster = "default",
	.listen = { "127.0.0.1", 7072 },
	.admin = { "127.0.0.1", 7073 },
	.buffer_size = 256ull << 20,
	.movers = 2,
	.prefetch = 64,
	.busy_poll_us = 200,
	.hot_gets = 4,
	.cold_ms = 30000,
	.deadline_ms = 2000,
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
	{ .name = "source",
	  .type = OPT_STRING,
	  .value = &conf.source,
	  .arg = "TEXT",
	  .help = "Of the mount: what it is shown to come from (df, findmnt);\n"
		  "default: --master." },
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
	{ .name = "transport",
	  .type = OPT_CHOICE,
	  .value = &conf.transport,
	  .arg = "auto|rdma|tcp",
	  .help = "What bytes move over between nodes. auto: RDMA where both have\n"
		  "it, else TCP; rdma: the same, but no start without RDMA here." },
	{ .name = "rdma-device",
	  .type = OPT_STRING,
	  .value = &conf.rdma_device,
	  .arg = "NAME[,NAME]...",
	  .help = "Use only these RDMA devices; default: all that can be used\n"
		  "(kvpool devices lists them)." },
	{ .name = "rdma-connect",
	  .type = OPT_CHOICE,
	  .value = &conf.rdma_connect,
	  .arg = "auto|cm",
	  .help = "How RDMA connections are made. auto: by addresses told over TCP\n"
		  "(by librdmacm only for iWARP); cm: by librdmacm, always." },
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
	{ .name = "deadline",
	  .type = OPT_DURATION,
	  .value = &conf.deadline_ms,
	  .arg = "DURATION",
	  .help = "What waits for other nodes or the master waits no longer: an open\n"
		  "so long and 1 s for each 50 MiB, then it is a miss.",
	  .min = 100,
	  .max = 600000 },
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
	  .help = "Look for the next request so long, at most, before sleeping\n"
		  "(no longer than 25 where others want the CPU; with one CPU\n"
		  "not at all).",
	  .max = 10000 },
	{ .name = "rdma-busy-poll",
	  .type = OPT_COUNT,
	  .value = &conf.rdma_busy_poll_us,
	  .arg = "MICROSECONDS",
	  .help = "The same for what RDMA devices have done, by each mover;\n"
		  "0: they sleep at once.",
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
	{ .name = "recover",
	  .type = OPT_FLAG,
	  .value = &conf.recover,
	  .help = "Of an embedded master, once, after its state file was lost: see\n"
		  "kvpool-master --help.",
	  .no_env = true },
	{ .name = "heartbeat",
	  .type = OPT_DURATION,
	  .value = &conf.heartbeat_ms,
	  .arg = "DURATION",
	  .help = "Of an embedded master: how often nodes report.",
	  .min = 10,
	  .max = 60000 },
	{ .name = "takeover",
	  .type = OPT_FLAG,
	  .value = &conf.takeover,
	  .help = "Take the place of the running daemon of the same --name: its\n"
		  "mount, open files and addresses stay. With its options.",
	  .no_env = true },
	DAEMON_OPTIONS_COMMON(conf, "/var/log/kvpool/kvpoold-NAME.log"),
	{ .name = NULL },
};

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

static int check_transport(void)
{
	struct daemon_option *device = daemon_option_find(options,
							  "rdma-device");

	if (!conf.rdma_device)
		return 0;
	if (!verbs_names_valid(conf.rdma_device))
		return daemon_option_reject(device, VERBS_NAMES_ACCEPTED,
					    stderr);
	if (conf.transport == TRANSPORT_TCP)
		return daemon_option_reject(
			device, "no device with --transport tcp", stderr);
	return 0;
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
	if (check_master_options() || check_transport() ||
	    daemon_option_users(daemon_option_find(options, "allow-user"),
				&conf.trust, stderr) ||
	    daemon_option_admin_names(daemon_option_find(options, "admin-name"),
				      stderr))
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
	if (conf.takeover && (conf.embedded || !conf.mount)) {
		fprintf(stderr, "kvpoold: --takeover without --mount, or with "
				"--embedded; accepted: with --mount, and a "
				"master elsewhere; restart the daemon instead\n");
		return -EINVAL;
	}
	if (conf.recover && !conf.embedded)
		return daemon_option_reject(
			daemon_option_find(options, "recover"),
			"with --embedded; else it is an option of kvpool-master",
			stderr);
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

int daemon_node_conf_read(int argc, char **argv,
			  const struct daemon_node_conf **ret_conf)
{
	int nops, rc;
	char **ops;

	rc = daemon_options_parse(options, argc, argv, usage, &nops, &ops,
				  stdout, stderr);
	if (rc)
		return rc;
	if (conf.version) {
		printf("kvpoold %s\n", kvpool_version());
		return 1;
	}
	if (nops) {
		fprintf(stderr, "kvpoold: \"%s\" given; accepted: options only, see --help\n",
			ops[0]);
		return -EINVAL;
	}
	rc = check_options();
	if (!rc)
		rc = set_defaults();
	if (!rc)
		*ret_conf = &conf;
	return rc;
}
