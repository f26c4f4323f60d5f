/*
 * The CLI: each subcommand is a function of tools/cmd_<name>.c and a line of
 * the table in tools/kvpool.c.
 *
 * A subcommand gets its own argv (argv[0] is its name) and returns the exit
 * status: 0; 1 it did not work (said on stderr); 2 wrongly called.
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
int cmd_status(int argc, char **argv);
int cmd_nodes(int argc, char **argv);
int cmd_ls(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_fault(int argc, char **argv);
int cmd_drain(int argc, char **argv);
int cmd_devices(int argc, char **argv);
int cmd_version(int argc, char **argv);
/* In files of their own; left out of the table where these are not linked. */
int cmd_bench(int argc, char **argv) __attribute__((weak));
int cmd_replay(int argc, char **argv) __attribute__((weak));

/* ---- asking a daemon (cmd_http.c) ---- */

#define CMD_NODE_ADMIN "127.0.0.1:7073"
#define CMD_MASTER_ADMIN "127.0.0.1:7071"
#define CMD_ADMIN_HELP                                                    \
	"The daemon to ask. Default: the node at " CMD_NODE_ADMIN ",\n" \
	"else the master at " CMD_MASTER_ADMIN "."

/*
 * GET http://HOST:PORT<page>, the answer as JSON (a new reference). admin is
 * what --admin gave (host "": not given, then the defaults in turn; which one
 * answered is said on stderr if it was not the first, and is in *admin
 * afterwards). 0 or -errno, printed.
 */
int cmd_get(struct pool_hostport *admin, const char *page, json_t **ret_json);
/* The same as a POST, of what the page does. */
int cmd_post(struct pool_hostport *admin, const char *page, json_t **ret_json);
/*
 * A page of the objects whose paths begin with prefix. *token (owned; NULL:
 * from the start) becomes that of the next page, NULL if this was the last.
 * *ret_rows (borrowed from *ret_json) is the array of them. As cmd_get.
 */
int cmd_get_objects(struct pool_hostport *admin, const char *prefix,
		    char **token, json_t **ret_json, json_t **ret_rows);

/* ---- printing (cmd_print.c) ---- */

/* Every leaf of json on a line of its own: "store.used  1.0 GiB". */
void cmd_print_flat(const json_t *json, FILE *out);
/* An array of objects, one a line, under the names of their members (in the
 * order of their first appearance). */
void cmd_print_table(const json_t *rows, FILE *out);
/* As it is, for programs. */
void cmd_print_json(const json_t *json, FILE *out);
/* A leaf for people, by the name of the member: sizes in units, ... */
void cmd_format_leaf(const char *name, const json_t *leaf, char *buf,
		     size_t cap);
/* Percent-encode all but unreserved characters and '/'. NULL on ENOMEM; the
 * caller's to free. */
char *cmd_url_escape(const char *text);

/* ---- mounts (cmd_mount.c) ---- */

/* The absolute name of a mount point, without asking what is mounted there (its
 * daemon may be dead). 0 or -errno. */
int cmd_mount_path(const char *dir, char *buf, size_t cap);
/* Is a pool mounted at this absolute path? By /proc/self/mountinfo. */
bool cmd_mounted(const char *path);
/* Is it, and has its daemon ended? This asks the daemon. */
bool cmd_mount_stale(const char *path);
/* The same, in the text of a mountinfo. */
bool cmd_mounted_in(FILE *mountinfo, const char *path);
/* The pool's mount that an absolute path is in, and the key there (no slash in
 * front; "" is the mount itself), in buffers of PATH_MAX. 0 or -ENOTSUP. */
int cmd_mount_key(const char *path, char *mount, char *key);
/* The same, by the text of a mountinfo. */
int cmd_mount_key_in(FILE *mountinfo, const char *path, char *mount, char *key);
/* The admin address of the daemon that serves a mount; *admin stays as it is if
 * the mount does not say. */
void cmd_mount_admin(const char *mount, struct pool_hostport *admin);
/* The live daemon that serves path: its pid, or 0. */
pid_t cmd_mount_pid(const char *path);

/* 16 GiB, or a quarter of the memory there is, if that is less. */
uint64_t cmd_default_store_size(void);

#endif
