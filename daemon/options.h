/*
 * Options: declared in one table, read from the environment and then from the
 * command line (which overrides it), and printed by --help from the same table.
 *
 * For a wrong value the message names the option, the value given and what is
 * accepted; the program then exits with 2.
 *
 * Thread: main, before the loop runs.
 */
#ifndef DAEMON_OPTIONS_H
#define DAEMON_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "pool/base/parse.h"
#include "pool/conn/trust.h"

enum daemon_option_type {
	OPT_FLAG,     /* bool *: --name, or NAME=yes in the environment */
	OPT_STRING,   /* const char **: borrowed from argv / environ */
	OPT_SIZE,     /* uint64_t *, bytes */
	OPT_COUNT,    /* uint64_t * */
	OPT_MODE,     /* uint64_t *: permission bits, given in octal */
	OPT_DURATION, /* uint64_t *, milliseconds */
	OPT_HOSTPORT, /* struct pool_hostport * */
	OPT_HOSTPORTS, /* struct pool_hostports * */
	OPT_CHOICE,   /* unsigned int *: index in arg, "error|warn|info" */
	OPT_STRINGS,  /* struct daemon_strings *: each time it is given */
};

/* The default of a COUNT or MODE that has no value unless it is given. */
#define DAEMON_NOT_GIVEN UINT64_MAX

#define DAEMON_STRINGS_MAX 16
struct daemon_strings {
	unsigned int n;
	const char *at[DAEMON_STRINGS_MAX]; /* borrow from argv / environ */
};

struct daemon_option {
	const char *name; /* "store-size": --store-size N, --store-size=N,
			     KVPOOL_STORE_SIZE=N */
	enum daemon_option_type type;
	void *value;	    /* borrows; set to the default before parsing */
	const char *arg;    /* "N", "HOST:PORT" for the help text */
	const char *help;   /* one line, or several with '\n' */
	uint64_t min, max;  /* SIZE, COUNT, MODE, DURATION; max 0: no limit */
	uint16_t default_port; /* HOSTPORT(S); 0: the port must be given */
	bool no_env;	    /* command line only: container images may set
			       variables such as KVPOOL_VERSION */
	bool seen;	    /* out: given in command line or environment */

	/* Out, if seen, for messages: the text (borrows) and its source. */
	const char *given;
	enum daemon_option_source {
		OPT_FROM_COMMAND, /* --store-size */
		OPT_FROM_ENV,	  /* KVPOOL_STORE_SIZE */
	} source;
};

/* The options of every daemon; their values are members of c. log: the path of
 * the default log file, for --help. */
#define DAEMON_OPTIONS_COMMON(c, log)                                          \
	{ .name = "allow-user",                                                \
	  .type = OPT_STRING,                                                  \
	  .value = &(c).allow_user,                                            \
	  .arg = "USER[,USER]...",                                             \
	  .help = "Local users whose processes may connect, in addition to\n"  \
		  "root and the daemon's own user. They have access to\n"      \
		  "everything in the pool." },                                 \
	{ .name = "admin-name",                                                \
	  .type = OPT_STRING,                                                  \
	  .value = &(c).admin_name,                                            \
	  .arg = "NAME[,NAME]...",                                             \
	  .help = "Host names accepted in HTTP requests, in addition to\n"     \
		  "localhost, the names and the addresses of this machine." }, \
	{ .name = "tls-dir",                                                   \
	  .type = OPT_STRING,                                                  \
	  .value = &(c).tls_dir,                                               \
	  .arg = "DIR",                                                        \
	  .help = "Directory with ca.crt, tls.crt and tls.key. Then both\n"    \
		  "ends of every connection by TCP show a certificate\n"       \
		  "of the pool, and any address is allowed." },                \
	{ .name = "insecure",                                                  \
	  .type = OPT_FLAG,                                                    \
	  .value = &(c).insecure,                                              \
	  .help = "Allow addresses other than loopback, and any local user\n"  \
		  "on loopback, without any authentication." },            \
	{ .name = "foreground",                                                \
	  .type = OPT_FLAG,                                                    \
	  .value = &(c).foreground,                                            \
	  .help = "Stay in the foreground and log to standard error." },       \
	{ .name = "log-file",                                                  \
	  .type = OPT_STRING,                                                  \
	  .value = &(c).log_file,                                              \
	  .arg = "FILE",                                                       \
	  .help = "Default in the background:\n" log ".\n"                     \
		  "SIGHUP reopens it." },                                      \
	{ .name = "log-level",                                                 \
	  .type = OPT_CHOICE,                                                  \
	  .value = &(c).log_level,                                             \
	  .arg = "error|warn|info|debug",                                      \
	  .help = "The least important messages that are logged." },           \
	{ .name = "allow-faults",                                              \
	  .type = OPT_FLAG,                                                    \
	  .value = &(c).allow_faults,                                          \
	  .help = "For tests: let `kvpool fault` disturb connections." },      \
	{ .name = "version",                                                   \
	  .type = OPT_FLAG,                                                    \
	  .value = &(c).version,                                               \
	  .help = "Print the version.",                                        \
	  .no_env = true }

/*
 * Parses; opts ends with name == NULL. An empty variable counts as not set.
 * *ret_operands: the operands (non-options, and all after "--"), strings of
 * argv; argv is reordered. usage: the lines that --help prints above the list.
 * 0; 1 if --help was printed (to out); -EINVAL (the reason is printed to err).
 */
int daemon_options_parse(struct daemon_option *opts, int argc, char **argv,
			 const char *usage, int *ret_noperands,
			 char ***ret_operands, FILE *out, FILE *err);
/* Environment variable: the command line was made from mount -o options
 * (daemon/mount_args.h), so messages name options in that form. */
#define DAEMON_FROM_MOUNT "KVPOOL_FROM_MOUNT"
enum daemon_mount_opt {
	MOUNT_OPT_OURS,	   /* not mount(8)'s: a daemon's option, or a typo */
	MOUNT_OPT_GENERIC, /* rw, _netdev, x-...: no effect, or mount(8)'s */
	MOUNT_OPT_KERNEL,  /* noexec, noatime: for the mount itself */
	MOUNT_OPT_REFUSED, /* ro, remount, suid, ...: not supported */
};
/* Classifies an element of a mount -o list ("name" or "name=value"). */
enum daemon_mount_opt daemon_mount_opt_kind(const char *elem, size_t len);

/*
 * For rules that the table cannot express: prints to err that o's value is
 * wrong, worded as the parser does. accepted: describes the accepted values.
 * Returns -EINVAL.
 */
int daemon_option_reject(const struct daemon_option *o, const char *accepted,
			 FILE *err);
/* The element called name, which must exist. */
struct daemon_option *daemon_option_find(struct daemon_option *opts,
					 const char *name);
/* o's variable, "KVPOOL_STORE_SIZE"; cap: 64 suffice. */
void daemon_option_env(const struct daemon_option *o, char *buf, size_t cap);
#define DAEMON_LISTEN_ACCEPTED \
	"a loopback address (127.0.0.1, [::1], localhost); " \
	"or any address together with --tls-dir; or with --insecure, and " \
	"then anyone who reaches the port can read and change the pool"
/*
 * Checks o, an OPT_HOSTPORT to listen on: addresses other than loopback need
 * any_address (--tls-dir or --insecure). 0 or -EINVAL (printed to err, with the
 * commands that make certificates).
 */
int daemon_option_check_listen(const struct daemon_option *o, bool any_address,
			       FILE *err);

/* Checks o, a list of host names (OPT_STRING; NULL: none). 0 or -EINVAL
 * (printed to err). */
int daemon_option_admin_names(const struct daemon_option *o, FILE *err);
/* Adds o, a list of users (OPT_STRING; NULL: none), to t. 0 or -EINVAL (printed
 * to err). */
int daemon_option_users(const struct daemon_option *o, struct pool_trust *t,
			FILE *err);

#endif
