/*
 * The CLI: each subcommand is a function and a line of the table in
 * tools/kvpool.c. The function is in tools/cmd_<name>.c, but those of `nodes`
 * and `ls` are in cmd_status.c, and that of `version` is in kvpool.c. Names
 * consist of the letters a to z (tools/completion/generate).
 *
 * A subcommand gets its own argv (argv[0] is its name) and returns the exit
 * status: 0; 1: it failed (printed to stderr); 2: wrong usage.
 *
 * Thread: main.
 */
#ifndef TOOLS_CMD_H
#define TOOLS_CMD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "daemon/options.h"

int cmd_up(int argc, char **argv);
int cmd_down(int argc, char **argv);
int cmd_restart(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_nodes(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_ls(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_fault(int argc, char **argv);
int cmd_drain(int argc, char **argv);
int cmd_devices(int argc, char **argv);
int cmd_events(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_healthz(int argc, char **argv);
int cmd_keep(int argc, char **argv);
int cmd_mountpoint(int argc, char **argv);
int cmd_certs(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_replay(int argc, char **argv);

/* ---- requests to a daemon (cmd_http.c) ---- */

#define CMD_NODE_ADMIN "127.0.0.1:7073"
#define CMD_MASTER_ADMIN "127.0.0.1:7071"
#define CMD_ADMIN_HELP                                                    \
	"The daemon to ask. Default: the node at " CMD_NODE_ADMIN ",\n" \
	"else the master at " CMD_MASTER_ADMIN "."

/* The option --tls-dir of each subcommand that asks a daemon: with it, requests
 * by TCP use TLS, and only a master or node of the certificate's own cluster is
 * accepted. */
extern const char *cmd_tls_dir;
#define CMD_TLS_OPTION                                                        \
	{ .name = "tls-dir",                                                  \
	  .type = OPT_STRING,                                                 \
	  .value = &cmd_tls_dir,                                              \
	  .arg = "DIR",                                                       \
	  .help = "Directory with ca.crt, tls.crt and tls.key, for a pool\n" \
		  "whose daemons have --tls-dir." }

/*
 * GET http://HOST:PORT<page>; *ret_json: the answer (a new reference). admin:
 * the address of --admin; host "": none was given, so the defaults are tried in
 * turn. Then *admin becomes the one that answered, which is printed to stderr
 * if it is not the first. 0 or -errno, printed.
 */
int cmd_get(struct pool_hostport *admin, const char *page, json_t **ret_json);
/* The same for a page that is no JSON; *ret_text is the caller's to free. */
int cmd_get_text(struct pool_hostport *admin, const char *page,
		 char **ret_text);
/* The same for a page of which only the status matters: 0 if it is 200. */
int cmd_check(struct pool_hostport *admin, const char *page);
/* cmd_get with POST. */
int cmd_post(struct pool_hostport *admin, const char *page, json_t **ret_json);
/*
 * Gets one page of the objects at or below prefix, a path ("": all; "ab" is not
 * a prefix of "abc"). *token (the caller's to free; NULL: the first page) is
 * replaced by that of the next page; NULL: this was the last. *ret_rows: the
 * array of objects, borrowed from *ret_json. Otherwise as cmd_get.
 */
int cmd_get_objects(struct pool_hostport *admin, const char *prefix,
		    char **token, json_t **ret_json, json_t **ret_rows);

/* ---- doctor (cmd_doctor.c) ---- */

/* Prints in a line how many findings `kvpool doctor` has about the daemon, and
 * of what; nothing if there are none or the daemon does not answer. */
void cmd_doctor_brief(struct pool_hostport *admin, FILE *out);

/* ---- printing (cmd_print.c) ---- */

/* Prints every leaf of json on its own line: "store.used  1.0 GiB". */
void cmd_print_flat(const json_t *json, FILE *out);
/* Prints an array of objects as a table, one per line. Columns: the members'
 * names, in order of first appearance. */
void cmd_print_table(const json_t *rows, FILE *out);
/* Prints the state of a node or master, from its /api/status, in some ten
 * lines: capacity, objects, repair, problems and remedies. (cmd_summary.c) */
void cmd_print_summary(const json_t *status, const char *address, FILE *out);
/* Prints JSON unchanged, for programs. */
void cmd_print_json(const json_t *json, FILE *out);
/* Formats a leaf for people; its member's name selects the unit. */
void cmd_format_leaf(const char *name, const json_t *leaf, char *buf,
		     size_t cap);
/* Percent-encodes all but unreserved characters and '/'. The caller frees the
 * result; NULL: no memory. */
char *cmd_url_escape(const char *text);

/* ---- mounts (cmd_mount.c) ---- */

/* The absolute path of a mount point. Does not access the mount itself, whose
 * daemon may be dead. 0 or -errno. */
int cmd_mount_path(const char *dir, char *buf, size_t cap);
/* Is a pool mounted at this absolute path? Reads /proc/self/mountinfo. */
bool cmd_mounted(const char *path);
/* Is a pool mounted there whose daemon has ended? Accesses the mount. */
bool cmd_mount_stale(const char *path);
/* cmd_mounted, with the text of a mountinfo. */
bool cmd_mounted_in(FILE *mountinfo, const char *path);
/* The pool's mount that contains an absolute path, and the key there (without a
 * leading slash; "" is the mount itself), in buffers of PATH_MAX. 0 or
 * -ENOTSUP. */
int cmd_mount_key(const char *path, char *mount, char *key);
/* The same, with the text of a mountinfo. */
int cmd_mount_key_in(FILE *mountinfo, const char *path, char *mount, char *key);
/* The admin address of the daemon that serves a mount; *admin is unchanged if
 * the mount does not report one. */
void cmd_mount_admin(const char *mount, struct pool_hostport *admin);
/* The pid of the live daemon that serves the mount at path, or 0. */
pid_t cmd_mount_pid(const char *path);

/* Bytes: 16 GiB, or a quarter of the machine's memory if that is less. */
uint64_t cmd_default_store_size(void);

#endif
