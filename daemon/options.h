/*
 * Options: declared once in a table, read from the environment and then from
 * the command line (which wins), and printed by --help from the same table.
 *
 * A wrong value is reported as: which option, what was given, what is accepted;
 * the program then exits with 2.
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

enum daemon_option_type {
	OPT_FLAG,     /* bool *: --name, or NAME=yes in the environment */
	OPT_STRING,   /* const char **: borrowed from argv / environ */
	OPT_SIZE,     /* uint64_t *, bytes */
	OPT_COUNT,    /* uint64_t * */
	OPT_DURATION, /* uint64_t *, milliseconds */
	OPT_HOSTPORT, /* struct pool_hostport * */
};

struct daemon_option {
	const char *name; /* "store-size": --store-size N, --store-size=N,
			     KVPOOL_STORE_SIZE=N */
	enum daemon_option_type type;
	void *value;	    /* where it goes; holds the default before */
	const char *arg;    /* "N", "HOST:PORT" for the help text */
	const char *help;   /* one line, or several with '\n' */
	uint64_t min, max;  /* SIZE, COUNT, DURATION; max 0: no limit */
	uint16_t default_port; /* HOSTPORT; 0: the port must be given */
	bool seen;	    /* set if it was given */
};

/*
 * Parse; opts ends with name == NULL. Operands (non-options) are left in
 * *ret_operands (argv's own strings; --: everything after). Prints to err and
 * returns -EINVAL if something is wrong; 1 if --help was printed (to out);
 * else 0. usage: the line(s) above the option list.
 */
int daemon_options_parse(struct daemon_option *opts, int argc, char **argv,
			 const char *usage, int *ret_noperands,
			 char ***ret_operands, FILE *out, FILE *err);
/* Apply "name=value,name,..." as of mount -o (store_size and store-size are the
 * same; unknown generic mount options such as rw, noatime, _netdev, x-* are
 * ignored). 0 or -EINVAL (reported). */
int daemon_options_mount_opts(struct daemon_option *opts, const char *list,
			      FILE *err);

#endif
