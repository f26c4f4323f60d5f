#include "daemon/node_conf.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/advertise.h"
#include "daemon/etcd_options.h"
#include "daemon/options.h"
#include "daemon/other_env.h"
#include "pool/tls/tls.h"
#include "daemon/run_dir.h"
#include "daemon/tls.h"
#include "master/ha.h"
#include "pool/base/log.h"
#include "pool/kvpool.h"
#include "pool/verbs/device.h"

#define STORE_MIN (16ull << 20)
#define UID_MAX (UINT32_MAX - 1) /* -1: unchanged, to chown(2) */

static const char usage[] =
	"usage: kvpoold --store-size N [--mount DIR] [OPTION]...\n"
	"       kvpoold --mount DIR [OPTION]...              (a client)\n"
	"\n"
	"A node of a pool: gives it memory (--store-size), mounts it "
	"(--mount), or\n"
	"both. See kvpoold(8).";

static struct daemon_node_conf conf = {
	.masters = { 1, { { "127.0.0.1", 7070 } } },
	.cluster = "default",
	.listen = { "127.0.0.1", 7072 },
	.admin = { "127.0.0.1", 7073 },
	.buffer_size = 256ull << 20,
	.movers = 2,
	.tls_renew_ms = POOL_TLS_RENEW_MS,
	.prefetch = 64,
	.busy_poll_us = 200,
	.hot_gets = 4,
	.cold_ms = 30000,
	.deadline_ms = 2000,
	.heartbeat_ms = 1000,
	.uid = DAEMON_NOT_GIVEN,
	.gid = DAEMON_NOT_GIVEN,
	.umask = DAEMON_NOT_GIVEN,
	.dmode = DAEMON_NOT_GIVEN,
	.log_level = POOL_LOG_INFO,
};

static struct daemon_option options[] = {
	{ .name = "master",
	  .type = OPT_HOSTPORTS,
	  .value = &conf.masters,
	  .arg = "HOST:PORT[,HOST:PORT]...",
	  .help = "The master, or all masters of which one is active; with\n"
		  "--embedded, the address where the embedded master listens.",
	  .default_port = 7070 },
	DAEMON_OPTIONS_ETCD(conf.etcd,
			    "Ask etcd for the active master; --master, if "
			    "given, is tried\n"
			    "as well."),
	{ .name = "cluster",
	  .type = OPT_STRING,
	  .value = &conf.cluster,
	  .arg = "NAME",
	  .help = "With --etcd: the name of the pool, as given to its "
		  "masters." },
	{ .name = "listen",
	  .type = OPT_HOSTPORT,
	  .value = &conf.listen,
	  .arg = "HOST:PORT",
	  .help = "The address other nodes connect to.",
	  .default_port = 7072 },
	{ .name = "advertise",
	  .type = OPT_STRING,
	  .value = &conf.advertise,
	  .arg = "HOST:PORT",
	  .help = "The address that other nodes connect to, if it differs\n"
		  "from --listen (NAT, containers). Required if that is "
		  "0.0.0.0\n"
		  "or [::]. Resolved again for each connection." },
	{ .name = "admin",
	  .type = OPT_HOSTPORT,
	  .value = &conf.admin,
	  .arg = "HOST:PORT",
	  .help = "HTTP: status, metrics and the API of kvpool.",
	  .default_port = 7073 },
	{ .name = "name",
	  .type = OPT_STRING,
	  .value = &conf.name,
	  .arg = "NAME",
	  .help = "The node's name, also of its directory in --run-dir; "
		  "default:\n"
		  "the host name and the port. Letters, digits, . _ and -, "
		  "not\n"
		  "starting with a dot." },
	{ .name = "run-dir",
	  .type = OPT_STRING,
	  .value = &conf.run_dir,
	  .arg = "DIR",
	  .help = "Sockets, the store and pid files. Default: /run/kvpool;\n"
		  "without root $XDG_RUNTIME_DIR/kvpool or /tmp/kvpool-UID." },
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
	  .help = "Where objects are stored; root mounts a tmpfs there, if "
		  "it is not\n"
		  "one already. Default: NAME/store in --run-dir." },
	{ .name = "memory-limit",
	  .type = OPT_SIZE,
	  .value = &conf.memory_limit,
	  .arg = "N",
	  .help = "Memory that all of this pod or job may use, if that is "
		  "less than\n"
		  "its cgroup shows; --store-size must fit. 0: not known.",
	  .max = 1ull << 62 },
	{ .name = "buffer-size",
	  .type = OPT_SIZE,
	  .value = &conf.buffer_size,
	  .arg = "N",
	  .help = "Of a client: memory for objects that it writes and caches.",
	  .min = STORE_MIN,
	  .max = 1ull << 60 },
	{ .name = "mount",
	  .type = OPT_STRING,
	  .value = &conf.mount,
	  .arg = "DIR",
	  .help = "Mount the pool here." },
	{ .name = "source",
	  .type = OPT_STRING,
	  .value = &conf.source,
	  .arg = "TEXT",
	  .help = "The mount's source, as shown by df and findmnt; default:\n"
		  "--master." },
	{ .name = "uid",
	  .type = OPT_COUNT,
	  .value = &conf.uid,
	  .arg = "N",
	  .help = "This mount shows all files and directories as this user's, "
		  "and\n"
		  "new ones are this user's. See PERMISSIONS in kvpool(7).",
	  .max = UID_MAX },
	{ .name = "gid",
	  .type = OPT_COUNT,
	  .value = &conf.gid,
	  .arg = "N",
	  .help = "As --uid, for the group.",
	  .max = UID_MAX },
	{ .name = "umask",
	  .type = OPT_MODE,
	  .value = &conf.umask,
	  .arg = "MODE",
	  .help = "This mount shows files and directories with all "
		  "permissions but\n"
		  "these, in octal, whatever is stored.",
	  .max = 0777 },
	{ .name = "dmode",
	  .type = OPT_MODE,
	  .value = &conf.dmode,
	  .arg = "MODE",
	  .help = "This mount shows directories with these permissions, in "
		  "octal.",
	  .max = 01777 },
	{ .name = "noexec",
	  .type = OPT_FLAG,
	  .value = &conf.noexec,
	  .help = "Forbid executing files of the mount." },
	{ .name = "noatime",
	  .type = OPT_FLAG,
	  .value = &conf.noatime,
	  .help = "Show the mount option noatime. (Access times are never "
		  "kept.)" },
	{ .name = "no-passthrough",
	  .type = OPT_FLAG,
	  .value = &conf.no_passthrough,
	  .help = "Send all data through the daemon (slower)." },
	{ .name = "no-fd-passing",
	  .type = OPT_FLAG,
	  .value = &conf.no_fd_passing,
	  .help = "Send bytes, not descriptors, to nodes on the same host." },
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
	  .help = "auto: RDMA where both nodes have it, else TCP; rdma: the "
		  "same,\n"
		  "but do not start without an RDMA device; tcp: never RDMA." },
	{ .name = "rdma-device",
	  .type = OPT_STRING,
	  .value = &conf.rdma_device,
	  .arg = "NAME[,NAME]...",
	  .help = "Use only these RDMA devices; default: all usable ones (see\n"
		  "kvpool devices)." },
	{ .name = "rdma-connect",
	  .type = OPT_CHOICE,
	  .value = &conf.rdma_connect,
	  .arg = "auto|cm",
	  .help = "How RDMA connections are made. auto: addresses are "
		  "exchanged\n"
		  "over TCP (librdmacm for iWARP only); cm: always "
		  "librdmacm." },
	{ .name = "hot-gets",
	  .type = OPT_COUNT,
	  .value = &conf.hot_gets,
	  .arg = "N",
	  .help = "An object that other nodes fetch from here this often "
		  "within\n"
		  "10 s gets a cached copy on another store; 0: never.",
	  .max = 1000000 },
	{ .name = "cold",
	  .type = OPT_DURATION,
	  .value = &conf.cold_ms,
	  .arg = "DURATION",
	  .help = "Such a copy that nobody fetched for this long becomes "
		  "ordinary\n"
		  "cache.",
	  .min = 100,
	  .max = 86400000 },
	{ .name = "tls-renew",
	  .type = OPT_DURATION,
	  .value = &conf.tls_renew_ms,
	  .arg = "DURATION",
	  .help = "Replace connections of this age, so that new certificates\n"
		  "are used in time.",
	  .min = 1000,
	  .max = 31536000000 },
	{ .name = "bulk",
	  .type = OPT_CHOICE,
	  .value = &conf.bulk,
	  .arg = "tls|auth|plain",
	  .help = "Bytes of objects over TCP, with --tls-dir. tls: encrypted; "
		  "auth:\n"
		  "not encrypted where the other node has auth, too. plain: "
		  "always\n"
		  "so without --tls-dir." },
	{ .name = "ktls",
	  .type = OPT_CHOICE,
	  .value = &conf.ktls,
	  .arg = "auto|on|off",
	  .help = "Does the kernel encrypt them (module tls)? auto: if it "
		  "costs less CPU\n"
		  "time than OpenSSL." },
	{ .name = "deadline",
	  .type = OPT_DURATION,
	  .value = &conf.deadline_ms,
	  .arg = "DURATION",
	  .help = "How long an operation waits for other nodes or the master. "
		  "An\n"
		  "open waits 1 s more for each 50 MiB, and is then a miss.",
	  .min = 100,
	  .max = 600000 },
	{ .name = "prefetch",
	  .type = OPT_COUNT,
	  .value = &conf.prefetch,
	  .arg = "N",
	  .help = "Background fetches started because a look-up hit; 0: none.",
	  .max = 4096 },
	{ .name = "busy-poll",
	  .type = OPT_COUNT,
	  .value = &conf.busy_poll_us,
	  .arg = "MICROSECONDS",
	  .help = "Poll for the next request for at most this long before\n"
		  "sleeping (at most 25 while other programs want the CPU; "
		  "never\n"
		  "with one CPU).",
	  .max = 10000 },
	{ .name = "rdma-busy-poll",
	  .type = OPT_COUNT,
	  .value = &conf.rdma_busy_poll_us,
	  .arg = "MICROSECONDS",
	  .help = "How long each mover polls for RDMA completions before it\n"
		  "sleeps.",
	  .max = 10000 },
	{ .name = "embedded",
	  .type = OPT_FLAG,
	  .value = &conf.embedded,
	  .help = "Run the master in this process, too." },
	{ .name = "state-file",
	  .type = OPT_STRING,
	  .value = &conf.state_file,
	  .arg = "FILE",
	  .help = "State file of the embedded master; default: "
		  "NAME/master.state\n"
		  "in --run-dir." },
	{ .name = "recover",
	  .type = OPT_FLAG,
	  .value = &conf.recover,
	  .help = "Of the embedded master, once, after its state file was "
		  "lost:\n"
		  "see kvpool-master(8).",
	  .no_env = true },
	{ .name = "heartbeat",
	  .type = OPT_DURATION,
	  .value = &conf.heartbeat_ms,
	  .arg = "DURATION",
	  .help = "Of the embedded master: how often nodes report.",
	  .min = 10,
	  .max = 60000 },
	{ .name = "takeover",
	  .type = OPT_FLAG,
	  .value = &conf.takeover,
	  .help = "Replace the running daemon of the same --name, with the "
		  "same\n"
		  "options: its mount, open files and addresses continue.",
	  .no_env = true },
	{ .name = "surge",
	  .type = OPT_FLAG,
	  .value = &conf.surge,
	  .help = "In a container: --takeover if a daemon of this --name runs; "
		  "and\n"
		  "after handing over to another, wait for SIGTERM." },
	{ .name = "keeper",
	  .type = OPT_FLAG,
	  .value = &conf.keeper,
	  .help = "Keep the mount if the daemon is killed: a second process "
		  "starts\n"
		  "the next one, and open files stay usable." },
	{ .name = "keeper-socket",
	  .type = OPT_STRING,
	  .value = &conf.keeper_socket,
	  .arg = "PATH",
	  .help = "The same by a `kvpool keep` with this --socket, in another\n"
		  "container." },
	DAEMON_OPTIONS_COMMON(conf, "/var/log/kvpool/kvpoold-NAME.log"),
	{ .name = NULL },
};

/* Where the master is: --master, --etcd, or both. */
static int check_master_options(void)
{
	struct daemon_option *master = daemon_option_find(options, "master");
	struct daemon_option *etcd = daemon_option_find(options, "etcd");

	if (daemon_etcd_options_check(options, &conf.etcd, stderr))
		return -EINVAL;
	if (master_cluster_check(conf.cluster))
		return daemon_option_reject(
			daemon_option_find(options, "cluster"),
			MASTER_CLUSTER_ACCEPTED, stderr);
	if (conf.embedded && conf.etcd.urls)
		return daemon_option_reject(etcd,
					    "no etcd for an --embedded master, "
					    "which is the only one",
					    stderr);
	if (conf.embedded && conf.masters.n > 1)
		return daemon_option_reject(
			master, "one HOST:PORT for an --embedded master",
			stderr);
	if (conf.etcd.urls && !master->seen)
		conf.masters.n = 0;
	if (conf.embedded && conf.tls_dir)
		return daemon_option_reject(
			daemon_option_find(options, "tls-dir"),
			"without --embedded: a certificate is that of a node "
			"or that of a master. Start kvpool-master", stderr);
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

static int check_bulk(void)
{
	struct daemon_option *bulk = daemon_option_find(options, "bulk");

	if (!conf.tls_dir && bulk->seen && conf.bulk != BULK_PLAIN)
		return daemon_option_reject(
			bulk, "tls and auth with --tls-dir; plain without",
			stderr);
	if (conf.tls_dir && conf.bulk == BULK_PLAIN)
		return daemon_option_reject(
			bulk, "tls or auth with --tls-dir: auth does not "
			"encrypt, but authenticates both ends", stderr);
	if (!conf.tls_dir && conf.ktls == KTLS_ON)
		return daemon_option_reject(
			daemon_option_find(options, "ktls"),
			"on with --tls-dir; auto and off", stderr);
	if (!conf.tls_dir)
		conf.bulk = BULK_PLAIN;
	return 0;
}

static int check_options(void)
{
	const char *keeper = conf.keeper_socket ? "keeper-socket" : "keeper";

	if (daemon_option_check_listen(daemon_option_find(options, "listen"),
				       conf.insecure || conf.tls_dir, stderr) ||
	    daemon_option_check_listen(daemon_option_find(options, "admin"),
				       conf.insecure || conf.tls_dir, stderr) ||
	    check_master_options() || check_transport() || check_bulk() ||
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
		fprintf(stderr,
			"kvpoold: --takeover without --mount, or with "
			"--embedded; accepted: with --mount, and a "
			"master elsewhere; restart the daemon instead\n");
		return -EINVAL;
	}
	if (conf.surge && (conf.embedded || !conf.mount))
		return daemon_option_reject(daemon_option_find(options,
							       "surge"),
					    "with --mount, and without "
					    "--embedded; else restart the "
					    "daemon instead", stderr);
	if ((conf.keeper || conf.keeper_socket) && !conf.mount)
		return daemon_option_reject(daemon_option_find(options, keeper),
					    "with --mount; else there is "
					    "nothing to keep", stderr);
	if (conf.recover && !conf.embedded)
		return daemon_option_reject(daemon_option_find(options,
							       "recover"),
					    "with --embedded; else it is an "
					    "option of kvpool-master",
					    stderr);
	if (conf.name && !daemon_name_valid(conf.name))
		return daemon_option_reject(
			daemon_option_find(options, "name"),
			DAEMON_NAME_ACCEPTED, stderr);
	return 0;
}

/* Defaults that the table of options cannot express. */
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
		fprintf(stderr,
			"kvpoold: \"%s\" given; accepted: options only, see "
			"--help\n",
			ops[0]);
		return -EINVAL;
	}
	rc = daemon_other_env_check(options, stderr);
	if (!rc)
		rc = check_options();
	if (!rc)
		rc = set_defaults();
	if (!rc)
		*ret_conf = &conf;
	return rc;
}
