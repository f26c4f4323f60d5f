/*
 * kvpool-master: options, the loop, signals, the admin pages. What a master
 * does is in master/.
 *
 * Start: options -> privileges are given up -> background -> master_open, or,
 *        with --etcd, master_ha_open -> admin -> ready.
 * SIGTERM or SIGINT: admin closes, then the master (which writes its state);
 * the loop ends when no handle is left, and the program with 0.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/admin.h"
#include "daemon/daemonize.h"
#include "daemon/etcd_options.h"
#include "daemon/master_pages.h"
#include "daemon/options.h"
#include "daemon/privileges.h"
#include "daemon/program.h"
#include "daemon/run_dir.h"
#include "daemon/web.h"
#include "master/ha.h"
#include "master/server.h"
#include "pool/base/log.h"
#include "pool/base/parse.h"
#include "pool/kvpool.h"
#include "pool/model/quota.h"


#define ETCD_START_MS 10000
#define DEFAULT_STATE "/var/lib/kvpool/master.state"

static const char usage[] =
	"usage: kvpool-master [OPTION]...\n"
	"\n"
	"The master of a pool: it knows which node holds which object. It "
	"holds no\n"
	"data, and no read waits for it. See kvpool-master(8).";

static struct {
	struct pool_hostport listen, admin;
	const char *state_file, *log_file, *cluster, *advertise;
	struct etcd_access etcd;
	const char *allow_user, *admin_name, *run_dir, *tls_dir;
	struct pool_trust trust;
	uint64_t heartbeat_ms, summary_ms, lease_ms;
	uint64_t repair_rate, repair_copies;
	uint64_t max_directories, max_attributes;
	unsigned int log_level;
	bool insecure, foreground, allow_faults, recover, version;
} conf = {
	.listen = { "127.0.0.1", 7070 },
	.admin = { "127.0.0.1", 7071 },
	.state_file = DEFAULT_STATE,
	.cluster = "default",
	.lease_ms = 3000,
	.heartbeat_ms = 1000,
	.summary_ms = 10000,
	.repair_rate = MASTER_REPAIR_RATE,
	.repair_copies = MASTER_REPAIR_COPIES,
	.max_directories = POOL_QUOTA_DIRS,
	.max_attributes = POOL_QUOTA_BYTES,
	.log_level = POOL_LOG_INFO,
};

static struct daemon_option options[] = {
	{ .name = "listen",
	  .type = OPT_HOSTPORT,
	  .value = &conf.listen,
	  .arg = "HOST:PORT",
	  .help = "The address nodes connect to.",
	  .default_port = 7070 },
	{ .name = "admin",
	  .type = OPT_HOSTPORT,
	  .value = &conf.admin,
	  .arg = "HOST:PORT",
	  .help = "HTTP: status, metrics and the API of kvpool. Draining a "
		  "node\n"
		  "is accepted from this machine only, unless --tls-dir or\n"
		  "--insecure is given.",
	  .default_port = 7071 },
	{ .name = "run-dir",
	  .type = OPT_STRING,
	  .value = &conf.run_dir,
	  .arg = "DIR",
	  .help = "Directory of the Unix socket of --admin. Default: "
		  "/run/kvpool;\n"
		  "without root $XDG_RUNTIME_DIR/kvpool or /tmp/kvpool-UID." },
	{ .name = "state-file",
	  .type = OPT_STRING,
	  .value = &conf.state_file,
	  .arg = "FILE",
	  .help = "Keeps what the nodes' inventories do not contain:\n"
		  "directories, rules, deletions, members." },
	{ .name = "recover",
	  .type = OPT_FLAG,
	  .value = &conf.recover,
	  .help = "Once, after the state file was lost or replaced by an old\n"
		  "copy: begin an epoch above all that nodes have seen. Start "
		  "the\n"
		  "nodes first; see kvpool-master(8).",
	  .no_env = true },
	DAEMON_OPTIONS_ETCD(conf.etcd,
			    "Be one of several masters: elect the active one "
			    "with etcd, and\n"
			    "keep the state there instead of in "
			    "--state-file."),
	{ .name = "cluster",
	  .type = OPT_STRING,
	  .value = &conf.cluster,
	  .arg = "NAME",
	  .help = "With --etcd: the name of the pool; its keys begin with\n"
		  "/kvpool/NAME/." },
	{ .name = "advertise",
	  .type = OPT_STRING,
	  .value = &conf.advertise,
	  .arg = "HOST:PORT",
	  .help = "With --etcd: the address that nodes connect to, if it\n"
		  "differs from --listen." },
	{ .name = "lease",
	  .type = OPT_DURATION,
	  .value = &conf.lease_ms,
	  .arg = "DURATION",
	  .help = "With --etcd: how long an unreachable leader remains the\n"
		  "leader, in whole seconds.",
	  .min = 2000,
	  .max = 60000 },
	{ .name = "heartbeat",
	  .type = OPT_DURATION,
	  .value = &conf.heartbeat_ms,
	  .arg = "DURATION",
	  .help = "How often nodes report.",
	  .min = 10,
	  .max = 60000 },
	{ .name = "repair-rate",
	  .type = OPT_SIZE,
	  .value = &conf.repair_rate,
	  .arg = "N",
	  .help = "Bytes per second that repair copies in the whole pool; 0: "
		  "no\n"
		  "limit." },
	{ .name = "repair-copies",
	  .type = OPT_COUNT,
	  .value = &conf.repair_copies,
	  .arg = "N",
	  .help = "Repair copies in flight at a time.",
	  .min = 1,
	  .max = 65536 },
	{ .name = "max-directories",
	  .type = OPT_COUNT,
	  .value = &conf.max_directories,
	  .arg = "N",
	  .help = "Most directories in the pool; a quarter of it per user.",
	  .min = 1,
	  .max = UINT32_MAX },
	{ .name = "max-attributes",
	  .type = OPT_SIZE,
	  .value = &conf.max_attributes,
	  .arg = "N",
	  .help = "Most bytes of extended attributes in the pool; a quarter\n"
		  "of it per user.",
	  .min = 1 },
	{ .name = "summary",
	  .type = OPT_DURATION,
	  .value = &conf.summary_ms,
	  .arg = "DURATION",
	  .help = "How often a line of figures is logged, in whole seconds; "
		  "0:\n"
		  "never." },
	DAEMON_OPTIONS_COMMON(conf, "/var/log/kvpool/kvpool-master.log"),
	{ .name = NULL },
};

struct program {
	struct daemon_program base; /* first */
	struct master *master; /* without --etcd, else NULL */
	struct master_ha *ha;  /* with it, else NULL */
	struct daemon_admin *admin;
	int status; /* to exit with, if it is not 0 */
};

/* The active master; NULL: this one is a standby. */
static struct master *acting(const struct program *p)
{
	return p->ha ? master_ha_leading(p->ha) : p->master;
}

/* ---- pages ---- */

static json_t *status_page(void *arg, const struct daemon_admin_query *q,
			   unsigned int *ret_status, const char **ret_text)
{
	struct program *p = arg;

	(void)q;
	(void)ret_status;
	(void)ret_text;
	return daemon_master_status_page(acting(p), &p->base.tls,
					 p->ha ? master_ha_json(p->ha) : NULL);
}

static json_t *standby_page(struct program *p, unsigned int *ret_status,
			    const char **ret_text)
{
	*ret_status = 503;
	*ret_text = master_ha_not_ready(p->ha);
	return NULL;
}

static json_t *nodes_page(void *arg, const struct daemon_admin_query *q,
			  unsigned int *ret_status, const char **ret_text)
{
	struct program *p = arg;

	(void)q;
	if (!acting(p))
		return standby_page(p, ret_status, ret_text);
	return master_nodes_json(acting(p));
}

static json_t *objects_page(void *arg, const struct daemon_admin_query *q,
			    unsigned int *ret_status, const char **ret_text)
{
	if (!acting(arg))
		return standby_page(arg, ret_status, ret_text);
	return daemon_master_objects_page(acting(arg), q, ret_status,
					  ret_text);
}

static json_t *events_page(void *arg, const struct daemon_admin_query *q,
			   unsigned int *ret_status, const char **ret_text)
{
	if (!acting(arg))
		return standby_page(arg, ret_status, ret_text);
	return daemon_events_page(acting(arg), q, ret_status, ret_text);
}

static json_t *directories_page(void *arg, const struct daemon_admin_query *q,
				unsigned int *ret_status, const char **ret_text)
{
	(void)q;
	if (!acting(arg))
		return standby_page(arg, ret_status, ret_text);
	return daemon_directories_page(acting(arg), ret_status, ret_text);
}

static json_t *drain_page(void *arg, const struct daemon_admin_query *q,
			  unsigned int *ret_status, const char **ret_text)
{
	if (!acting(arg))
		return standby_page(arg, ret_status, ret_text);
	return daemon_drain_page(acting(arg), q, false, ret_status, ret_text);
}

static json_t *drain_post(void *arg, const struct daemon_admin_query *q,
			  unsigned int *ret_status, const char **ret_text)
{
	if (!acting(arg))
		return standby_page(arg, ret_status, ret_text);
	return daemon_drain_page(acting(arg), q, true, ret_status, ret_text);
}

static const struct daemon_admin_page pages[] = {
	{ .path = "/api/status", .fn = status_page },
	{ .path = "/api/nodes", .fn = nodes_page },
	DAEMON_PAGES_COMMON,
	{ .path = NULL },
};

static bool is_ready(void *arg)
{
	struct program *p = arg;

	if (p->base.closing)
		return false;
	return p->ha ? !master_ha_not_ready(p->ha) : master_ready(p->master);
}

static const char *why_not_ready(void *arg)
{
	struct program *p = arg;
	const char *why = p->ha && !p->base.closing ?
				  master_ha_not_ready(p->ha) : NULL;

	return why ? why : "not ready";
}

/* ---- shutdown ---- */

static void on_master_closed(void *arg)
{
	daemon_program_closed(arg);
}

/* The pages use the master, so they are closed first. */
static void on_admin_closed(void *arg)
{
	struct program *p = arg;

	if (p->ha)
		master_ha_close(p->ha, on_master_closed, p);
	else
		master_close(p->master, on_master_closed, p);
}

static void stop(struct daemon_program *base)
{
	struct program *p = (struct program *)base;

	daemon_admin_close(p->admin, on_admin_closed, p);
}

static void on_unusable(void *arg)
{
	struct program *p = arg;

	p->status = 2;
	daemon_program_stop(&p->base);
}

/* ---- start ---- */

static int start_master(struct program *p)
{
	struct master_opts opts = {
		.loop = &p->base.loop,
		.listen = conf.listen,
		.trust = conf.insecure ? NULL : &conf.trust,
		.tls = p->base.tls.tls,
		.state_file = conf.state_file,
		.heartbeat_ms = (unsigned int)conf.heartbeat_ms,
		.recover_ms = conf.recover ? MASTER_RECOVER_MS : 0,
		.summary_s = (unsigned int)(conf.summary_ms / 1000),
		.repair_rate = conf.repair_rate,
		.repair_copies = (unsigned int)conf.repair_copies,
		.dirs_max = conf.max_directories,
		.attr_bytes_max = conf.max_attributes,
		.metrics = p->base.metrics,
		.program = kvpool_version(),
	};

	struct master_ha_opts ha = {
		.master = opts,
		.etcd = conf.etcd,
		.cluster = conf.cluster,
		.advertise = conf.advertise,
		.ttl_s = (unsigned int)(conf.lease_ms / 1000),
		.start_ms = ETCD_START_MS,
		.unusable = on_unusable,
		.arg = p,
	};

	return conf.etcd.urls ? master_ha_open(&ha, &p->ha) :
				master_open(&opts, &p->master);
}

/* Errors that the user must correct exit with 2, like a wrong option. */
static int status_of(int err)
{
	switch (err) {
	case 0:
		return 0;
	case -EPROTO:
	case -EHOSTUNREACH:
	case -ETIMEDOUT:
	case -EREMOTEIO:
	case -EKEYREJECTED:
		return 2;
	}
	return 1;
}

static int start_admin(struct program *p)
{
	struct daemon_admin_opts opts = {
		.loop = &p->base.loop,
		.listen = conf.admin,
		.metrics = p->base.metrics,
		.pages = pages,
		.files = daemon_web_files,
		.arg = p,
		.ready = is_ready,
		.insecure = conf.insecure,
		.trust = conf.insecure ? NULL : &conf.trust,
		.tls = p->base.tls.tls,
		.names = conf.admin_name,
		.why_not = why_not_ready,
	};

	static char run_dir[PATH_MAX];
	int rc = daemon_admin_open(&opts, &p->admin);

	if (rc)
		return rc;
	if (!conf.run_dir &&
	    daemon_run_dir_default(run_dir, sizeof(run_dir)) == 0)
		conf.run_dir = run_dir;
	/* If that fails, the CLI uses TCP instead of the socket. */
	if (conf.run_dir && daemon_run_dir_ensure(conf.run_dir) == 0)
		daemon_admin_open_local(p->admin, conf.run_dir);
	return 0;
}

static int start_base(struct program *p)
{
	struct daemon_program *base = &p->base;
	int rc = daemon_program_open(base, stop);

	if (!rc)
		rc = pool_trust_metrics(&conf.trust, base->metrics);
	if (!rc)
		rc = daemon_tls_open(&base->tls, conf.tls_dir, POOL_ROLE_MASTER,
				     &base->loop, base->metrics);
	if (!rc)
		rc = daemon_links_show(&base->tls, conf.insecure,
				       base->metrics);
	if (!rc)
		rc = POOL_TURNS_REGISTER(base->metrics, &base->turns,
					 "kvpool_master_loop_turn");
	if (!rc && conf.allow_faults)
		rc = daemon_faults_allow(base->metrics);
	return rc;
}

/* On an error the process exits, which closes all that is open. */
static int run(void)
{
	static struct program p;
	int rc = start_base(&p);

	if (rc)
		return daemon_start_failed(rc);
	rc = start_master(&p);
	if (status_of(rc) > 1)
		return status_of(rc);
	if (!rc)
		rc = start_admin(&p);
	if (rc)
		return daemon_start_failed(rc);
	pool_info("privileges: %s", daemon_privileges_text());
	pool_info("kvpool-master %s: nodes at %s:%u, admin at %s:%u",
		  kvpool_version(), conf.listen.host,
		  p.ha ? master_ha_port(p.ha) : master_port(p.master),
		  conf.admin.host, daemon_admin_port(p.admin));
	rc = daemon_program_run(&p.base);
	return rc ? rc : p.status;
}

static int check_etcd_options(void)
{
	struct pool_hostport hp;

	if (conf.etcd.urls && conf.recover)
		return daemon_option_reject(
			daemon_option_find(options, "recover"),
			"without --etcd, which keeps the epoch "
			"(kvpool-master(8): RECOVERY)",
			stderr);
	if (daemon_etcd_options_check(options, &conf.etcd, stderr))
		return -EINVAL;
	if (master_cluster_check(conf.cluster))
		return daemon_option_reject(
			daemon_option_find(options, "cluster"),
			MASTER_CLUSTER_ACCEPTED, stderr);
	if (conf.advertise && (pool_parse_hostport(conf.advertise, 0, &hp) ||
			       !hp.port))
		return daemon_option_reject(
			daemon_option_find(options, "advertise"),
			"HOST:PORT or [IPV6]:PORT", stderr);
	return 0;
}

static int check_seconds(const char *name, uint64_t ms)
{
	if (ms % 1000 == 0)
		return 0;
	return daemon_option_reject(daemon_option_find(options, name),
				    "a duration in whole seconds, such as 2s",
				    stderr);
}

static int check_options(void)
{
	const struct daemon_option *listen =
		daemon_option_find(options, "listen");
	const struct daemon_option *admin =
		daemon_option_find(options, "admin");
	int rc = daemon_option_check_listen(
		listen, conf.insecure || conf.tls_dir, stderr);

	if (!rc)
		rc = daemon_option_check_listen(
			admin, conf.insecure || conf.tls_dir, stderr);
	if (!rc)
		rc = daemon_option_users(
			daemon_option_find(options, "allow-user"), &conf.trust,
			stderr);
	if (!rc)
		rc = daemon_option_admin_names(
			daemon_option_find(options, "admin-name"), stderr);
	if (!rc)
		rc = check_seconds("lease", conf.lease_ms);
	if (!rc)
		rc = check_seconds("summary", conf.summary_ms);
	return rc ? rc : check_etcd_options();
}

/* Creates the directory of the default state file; not that of another one. */
static void make_state_dir(void)
{
	uv_fs_t req;

	if (strcmp(conf.state_file, DEFAULT_STATE) != 0)
		return;
	/* If that fails, master_open reports what is missing. */
	uv_fs_mkdir(NULL, &req, "/var/lib/kvpool", 0700, NULL);
	uv_fs_req_cleanup(&req);
}

static bool is_low(const struct pool_hostport *at)
{
	return at->port > 0 && at->port < 1024;
}

int main(int argc, char **argv)
{
	struct daemon_needs needs = { 0 };
	int nops, rc;
	char **ops;

	rc = daemon_options_parse(options, argc, argv, usage, &nops, &ops,
				  stdout, stderr);
	if (rc)
		return rc > 0 ? 0 : 2;
	if (conf.version) {
		printf("kvpool-master %s\n", kvpool_version());
		return 0;
	}
	if (nops) {
		fprintf(stderr,
			"kvpool-master: \"%s\" given; accepted: options only, "
			"see --help\n",
			ops[0]);
		return 2;
	}
	if (check_options())
		return 2;
	pool_log_set_level((enum pool_log_level)conf.log_level);
	needs.low_port = is_low(&conf.listen) || is_low(&conf.admin);
	if (daemon_privileges_keep(&needs))
		return 1;
	rc = conf.foreground ? daemon_foreground_start(conf.log_file) :
			       daemon_background_start(conf.log_file,
						       "kvpool-master");
	if (rc)
		return 1;
	if (!conf.etcd.urls)
		make_state_dir();
	return run();
}
