#include "daemon/mount_args.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/options.h"
#include "pool/base/parse.h"

#define MASTER_PORT 7070

static int fail(FILE *err, const char *what, const char *given,
		const char *accepted)
{
	fprintf(err, "mount.kvpool: %s: \"%s\" given; accepted: %s\n", what,
		given, accepted);
	return -EINVAL;
}

bool daemon_keeper_env(void)
{
	const char *text = getenv("KVPOOL_KEEPER");

	return text && text[0];
}

/* Appends text, and takes ownership of it (NULL: out of memory). */
static int add(struct daemon_mount_args *m, char *text, FILE *err)
{
	if (!text)
		return -ENOMEM;
	if (m->argc == MOUNT_ARGS_MAX) {
		free(text);
		fprintf(err, "mount.kvpool: more than %d options\n",
			MOUNT_ARGS_MAX);
		return -EINVAL;
	}
	m->argv[m->argc++] = text;
	return 0;
}

static int add_pair(struct daemon_mount_args *m, const char *option,
		    const char *value, FILE *err)
{
	char *text;

	if (asprintf(&text, "%s=%s", option, value) < 0)
		text = NULL;
	return add(m, text, err);
}

/* "store_size=50G" becomes "--store-size=50G". */
static int add_elem(struct daemon_mount_args *m, const char *elem, size_t len,
		    FILE *err)
{
	char *text;

	if (asprintf(&text, "--%.*s", (int)len, elem) < 0)
		return -ENOMEM;
	for (char *p = text + 2; *p && *p != '='; p++)
		if (*p == '_')
			*p = '-';
	return add(m, text, err);
}

static int refuse_elem(const char *elem, size_t len, FILE *err)
{
	char given[64];

	snprintf(given, sizeof(given), "%.*s", (int)len, elem);
	return fail(err, "-o", given,
		    "rw, nosuid, nodev, noexec, noatime; a pool is never "
		    "mounted read-only nor remounted");
}

static int add_list(struct daemon_mount_args *m, const char *list, FILE *err)
{
	int rc = 0;

	while (!rc && *list) {
		size_t len = strcspn(list, ",");

		switch (daemon_mount_opt_kind(list, len)) {
		case MOUNT_OPT_GENERIC:
			break;
		case MOUNT_OPT_REFUSED:
			rc = refuse_elem(list, len, err);
			break;
		case MOUNT_OPT_KERNEL:
		case MOUNT_OPT_OURS:
			rc = add_elem(m, list, len, err);
			break;
		}
		list += len + (list[len] == ',');
	}
	return rc;
}

/* A cluster of one-letter options: "-sv". 1: the next argument belongs to
 * it. */
static int take_letters(struct daemon_mount_args *m, const char *arg, FILE *err)
{
	for (const char *p = arg + 1; *p; p++) {
		switch (*p) {
		case 'f':
			m->fake = true;
			break;
		case 'v':
			m->verbose = true;
			break;
		case 's': /* sloppy: kvpoold judges its options itself */
		case 'n': /* no mtab: there is none */
			break;
		case 't':
		case 'N':
			return 1;
		default:
			return fail(err, "option", arg,
				    "-o OPTIONS, -f, -n, -s, -v");
		}
	}
	return 0;
}

static int check_operands(const char *const *ops, int nops, FILE *err)
{
	struct pool_hostports masters;

	if (nops != 2) {
		fprintf(err,
			"mount.kvpool: %d operands given; accepted: "
			"HOST:PORT[,HOST:PORT]... DIR\n",
			nops);
		return -EINVAL;
	}
	if (pool_parse_hostports(ops[0], MASTER_PORT, &masters))
		return fail(err, "master", ops[0],
			    "HOST:PORT or [IPV6]:PORT, several with commas "
			    "between, port 7070 if none is given");
	return 0;
}

int daemon_mount_args_init(struct daemon_mount_args *m, int argc,
			   char *const *argv, FILE *err)
{
	const char *ops[2] = { NULL, NULL };
	int nops = 0, rc;

	memset(m, 0, sizeof(*m));
	rc = add(m, strdup("kvpoold"), err);
	/* First, so that -o store_size=... and -o keeper=no override them. */
	if (!rc)
		rc = add_pair(m, "--store-size", "0", err);
	if (!rc && !daemon_keeper_env())
		rc = add(m, strdup("--keeper"), err);
	for (int i = 1; !rc && i < argc; i++) {
		const char *arg = argv[i];

		if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0)
			return 1;
		if (strcmp(arg, "-o") == 0) {
			if (++i == argc)
				return fail(err, "-o", "", "a list of options");
			rc = add_list(m, argv[i], err);
		} else if (strncmp(arg, "-o", 2) == 0) {
			rc = add_list(m, arg + 2, err);
		} else if (arg[0] == '-' && arg[1]) {
			rc = take_letters(m, arg, err);
			i += rc > 0;
			rc = rc > 0 ? 0 : rc;
		} else {
			if (nops < 2)
				ops[nops] = arg;
			nops++;
		}
	}
	if (!rc)
		rc = check_operands(ops, nops, err);
	if (!rc)
		rc = add_pair(m, "--master", ops[0], err);
	/* Unchanged: `mount -a` recognises an existing mount by its source. */
	if (!rc)
		rc = add_pair(m, "--source", ops[0], err);
	m->dir = ops[1];
	if (!rc)
		rc = add_pair(m, "--mount", ops[1], err);
	return rc;
}

void daemon_mount_args_fini(struct daemon_mount_args *m)
{
	while (m->argc)
		free(m->argv[--m->argc]);
}
