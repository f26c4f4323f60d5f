#include "daemon/options.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/admin_guard.h"

#define NAME_MAX_LEN 64 /* of an option, its variable, a mount -o name */
#define ACCEPTED_MAX 256

/* KVPOOL_STORE_SIZE of store-size. */
static void env_name(const char *name, char *buf, size_t cap)
{
	int n = snprintf(buf, cap, "KVPOOL_%s", name);

	assert(n > 0 && (size_t)n < cap);
	for (char *p = buf; *p; p++)
		*p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
}

/* Formats a size as the parser accepts it: in the largest unit that divides
 * it. */
static void format_size(uint64_t bytes, char *buf, size_t cap)
{
	static const char *const units[] = { "", "KiB", "MiB",
					     "GiB", "TiB", "PiB" };
	size_t u = 0;

	while (bytes && bytes % 1024 == 0 &&
	       u + 1 < sizeof(units) / sizeof(*units)) {
		bytes /= 1024;
		u++;
	}
	snprintf(buf, cap, "%llu%s", (unsigned long long)bytes, units[u]);
}

static void format_duration(uint64_t ms, char *buf, size_t cap)
{
	if (ms % 1000)
		snprintf(buf, cap, "%llums", (unsigned long long)ms);
	else
		snprintf(buf, cap, "%llus", (unsigned long long)(ms / 1000));
}

static void format_number(const struct daemon_option *o, uint64_t v, char *buf,
			  size_t cap)
{
	if (o->type == OPT_SIZE)
		format_size(v, buf, cap);
	else if (o->type == OPT_DURATION)
		format_duration(v, buf, cap);
	else if (o->type == OPT_MODE)
		snprintf(buf, cap, "%#llo", (unsigned long long)v);
	else
		snprintf(buf, cap, "%llu", (unsigned long long)v);
}

/* ", at least 16MiB", ", 1 to 8", or nothing. */
static void format_range(const struct daemon_option *o, char *buf, size_t cap)
{
	char lo[32], hi[32];

	format_number(o, o->min, lo, sizeof(lo));
	format_number(o, o->max, hi, sizeof(hi));
	if (o->min && o->max)
		snprintf(buf, cap, ", %s to %s", lo, hi);
	else if (o->min)
		snprintf(buf, cap, ", at least %s", lo);
	else if (o->max)
		snprintf(buf, cap, ", at most %s", hi);
	else
		buf[0] = '\0';
}

static void format_accepted(const struct daemon_option *o, char *buf,
			    size_t cap)
{
	char range[80];

	format_range(o, range, sizeof(range));
	switch (o->type) {
	case OPT_FLAG:
		snprintf(buf, cap, "yes or no");
		return;
	case OPT_STRING:
		snprintf(buf, cap, "a text that is not empty");
		return;
	case OPT_SIZE:
		snprintf(buf, cap,
			 "a size such as 50G, 50gb, 512MiB or bytes%s", range);
		return;
	case OPT_COUNT:
		snprintf(buf, cap, "a whole number%s", range);
		return;
	case OPT_MODE:
		snprintf(buf, cap, "an octal mode such as 022%s", range);
		return;
	case OPT_DURATION:
		snprintf(buf, cap,
			 "a duration such as 500ms, 2s, 10m, 1h or seconds%s",
			 range);
		return;
	case OPT_HOSTPORT:
		if (o->default_port)
			snprintf(buf, cap,
				 "HOST:PORT or [IPV6]:PORT, port %u if none is "
				 "given",
				 o->default_port);
		else
			snprintf(buf, cap, "HOST:PORT or [IPV6]:PORT");
		return;
	case OPT_HOSTPORTS:
		snprintf(buf, cap,
			 "HOST:PORT or [IPV6]:PORT, up to %d of them with "
			 "commas between, port %u if none is given",
			 POOL_HOSTPORTS_MAX, o->default_port);
		return;
	case OPT_CHOICE:
		snprintf(buf, cap, "one of %s", o->arg);
		return;
	case OPT_STRINGS:
		snprintf(buf, cap, "a text that is not empty, up to %d times",
			 DAEMON_STRINGS_MAX);
		return;
	}
}

static void format_default(const struct daemon_option *o, char *buf,
			   size_t cap)
{
	const struct pool_hostports *list;
	const struct pool_hostport *hp;
	const char *text, *end;

	buf[0] = '\0';
	switch (o->type) {
	case OPT_FLAG:
		snprintf(buf, cap, "%s", *(bool *)o->value ? "yes" : "no");
		return;
	case OPT_STRING:
		text = *(const char **)o->value;
		snprintf(buf, cap, "%s", text ? text : "");
		return;
	case OPT_SIZE:
	case OPT_COUNT:
	case OPT_MODE:
	case OPT_DURATION:
		if (*(uint64_t *)o->value != DAEMON_NOT_GIVEN)
			format_number(o, *(uint64_t *)o->value, buf, cap);
		return;
	case OPT_HOSTPORT:
		hp = o->value;
		if (hp->host[0])
			pool_format_hostport(hp, buf, cap);
		return;
	case OPT_HOSTPORTS: /* no default has more than one */
		list = o->value;
		if (list->n)
			pool_format_hostport(&list->at[0], buf, cap);
		return;
	case OPT_CHOICE:
		text = o->arg;
		for (unsigned int i = *(unsigned int *)o->value; i; i--)
			text = strchr(text, '|') + 1;
		end = strchrnul(text, '|');
		snprintf(buf, cap, "%.*s", (int)(end - text), text);
		return;
	case OPT_STRINGS:
		return;
	}
}

static bool from_mount(void)
{
	return getenv(DAEMON_FROM_MOUNT) != NULL;
}

/* "--store-size"; "-o store_size" if the options came from mount(8). */
static void format_command(const char *name, size_t len, char *buf, size_t cap)
{
	snprintf(buf, cap, "%s%.*s", from_mount() ? "-o " : "--", (int)len,
		 name);
	for (char *p = buf + 3; from_mount() && *p; p++)
		if (*p == '-')
			*p = '_';
}

static const char *program(void)
{
	return from_mount() ? "mount.kvpool" : program_invocation_short_name;
}

/* "--store-size" or "KVPOOL_STORE_SIZE". */
static void format_source(const struct daemon_option *o, char *buf, size_t cap)
{
	switch (o->source) {
	case OPT_FROM_COMMAND:
		format_command(o->name, strlen(o->name), buf, cap);
		return;
	case OPT_FROM_ENV:
		env_name(o->name, buf, cap);
		return;
	}
}

int daemon_option_reject(const struct daemon_option *o, const char *accepted,
			 FILE *err)
{
	char source[NAME_MAX_LEN + 16];

	format_source(o, source, sizeof(source));
	if (o->given)
		fprintf(err, "%s: %s: \"%s\" given; accepted: %s\n",
			program(), source, o->given,
			accepted);
	else
		fprintf(err, "%s: %s: no value given; accepted: %s\n",
			program(), source, accepted);
	return -EINVAL;
}

struct daemon_option *daemon_option_find(struct daemon_option *opts,
					 const char *name)
{
	while (opts->name && strcmp(opts->name, name) != 0)
		opts++;
	assert(opts->name);
	return opts;
}

void daemon_option_env(const struct daemon_option *o, char *buf, size_t cap)
{
	env_name(o->name, buf, cap);
}

int daemon_option_check_listen(const struct daemon_option *o, bool any_address,
			       FILE *err)
{
	const struct pool_hostport *hp = o->value;

	if (any_address || pool_host_is_loopback(hp->host))
		return 0;
	(void)daemon_option_reject(o, DAEMON_LISTEN_ACCEPTED, err);
	fputs("Certificates (kvpool(1), README: Three nodes) are made by\n"
	      "  kvpool certs init --dir CA --cluster NAME\n"
	      "  kvpool certs issue --dir CA --role master --host HOST"
	      " --out M\n"
	      "  kvpool certs issue --dir CA --role node --host HOST --out N\n"
	      "and used by kvpool-master --tls-dir M and kvpoold --tls-dir N; "
	      "kvpool up and\n--embedded have none: start these two instead.\n",
	      err);
	return -EINVAL;
}

static int parse_choice(const char *choices, const char *text,
			unsigned int *ret_index)
{
	size_t len = strlen(text);

	for (unsigned int i = 0;; i++) {
		const char *end = strchrnul(choices, '|');

		if (len == (size_t)(end - choices) &&
		    memcmp(choices, text, len) == 0) {
			*ret_index = i;
			return 0;
		}
		if (!*end)
			return -EINVAL;
		choices = end + 1;
	}
}

static int parse_octal(const char *text, uint64_t *ret_value)
{
	char *end;

	if (text[0] < '0' || text[0] > '7') /* strtoull takes blanks, signs */
		return -EINVAL;
	*ret_value = strtoull(text, &end, 8);
	return *end ? -EINVAL : 0;
}

static int parse_number(const struct daemon_option *o, const char *text)
{
	uint64_t v = 0;
	int err;

	if (o->type == OPT_SIZE)
		err = pool_parse_size(text, &v);
	else if (o->type == OPT_DURATION)
		err = pool_parse_duration_ms(text, &v);
	else if (o->type == OPT_MODE)
		err = parse_octal(text, &v);
	else
		err = pool_parse_u64(text, 0, UINT64_MAX, &v);
	if (err)
		return err;
	if (v < o->min || (o->max && v > o->max))
		return -ERANGE;
	*(uint64_t *)o->value = v;
	return 0;
}

static int add_string(struct daemon_strings *list, const char *text)
{
	if (!text[0])
		return -EINVAL;
	if (list->n == DAEMON_STRINGS_MAX)
		return -ERANGE;
	list->at[list->n++] = text;
	return 0;
}

static int parse_value(const struct daemon_option *o, const char *text)
{
	switch (o->type) {
	case OPT_FLAG:
		return pool_parse_bool(text, o->value);
	case OPT_STRING:
		if (!text[0])
			return -EINVAL;
		*(const char **)o->value = text;
		return 0;
	case OPT_SIZE:
	case OPT_COUNT:
	case OPT_MODE:
	case OPT_DURATION:
		return parse_number(o, text);
	case OPT_HOSTPORT:
		return pool_parse_hostport(text, o->default_port, o->value);
	case OPT_HOSTPORTS:
		return pool_parse_hostports(text, o->default_port, o->value);
	case OPT_CHOICE:
		return parse_choice(o->arg, text, o->value);
	case OPT_STRINGS:
		return add_string(o->value, text);
	}
	return -EINVAL;
}

/* Sets o from text (NULL: no value). 0 or -EINVAL, reported. */
static int set_value(struct daemon_option *o, const char *text,
		     enum daemon_option_source source, FILE *err)
{
	char accepted[ACCEPTED_MAX];

	o->given = text;
	o->source = source;
	if (!text && o->type == OPT_FLAG)
		o->given = text = "yes";
	if (text && parse_value(o, text) == 0) {
		o->seen = true;
		return 0;
	}
	format_accepted(o, accepted, sizeof(accepted));
	return daemon_option_reject(o, accepted, err);
}

static struct daemon_option *find(struct daemon_option *opts, const char *name,
				  size_t len)
{
	for (; opts->name; opts++)
		if (strlen(opts->name) == len &&
		    memcmp(opts->name, name, len) == 0)
			return opts;
	return NULL;
}

static int parse_env(struct daemon_option *opts, FILE *err)
{
	char name[NAME_MAX_LEN];

	for (struct daemon_option *o = opts; o->name; o++) {
		const char *text;
		int rc;

		if (o->no_env)
			continue;
		env_name(o->name, name, sizeof(name));
		text = getenv(name);
		if (!text || !text[0])
			continue;
		rc = set_value(o, text, OPT_FROM_ENV, err);
		if (rc)
			return rc;
	}
	return 0;
}

/* Parses argv[*i], "--name...", and advances *i over a separate value. */
static int parse_arg(struct daemon_option *opts, int argc, char **argv, int *i,
		     FILE *err)
{
	const char *name = argv[*i] + 2, *value = NULL;
	size_t len = strcspn(name, "=");
	struct daemon_option *o = find(opts, name, len);
	char given[256];

	if (!o) {
		format_command(name, len, given, sizeof(given));
		fprintf(err,
			"%s: unknown option \"%s\"; %s--help lists them%s\n",
			program(), given, from_mount() ? "kvpoold " : "",
			from_mount() ? ", with _ for - here" : "");
		return -EINVAL;
	}
	if (name[len] == '=')
		value = name + len + 1;
	else if (o->type != OPT_FLAG && *i + 1 < argc &&
		 strncmp(argv[*i + 1], "--", 2) != 0)
		value = argv[++*i];
	return set_value(o, value, OPT_FROM_COMMAND, err);
}

static int parse_args(struct daemon_option *opts, int argc, char **argv,
		      int *ret_noperands, FILE *err)
{
	int n = 0, rc;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--") == 0) {
			while (++i < argc)
				argv[1 + n++] = argv[i];
			break;
		}
		if (argv[i][0] != '-' || !argv[i][1]) {
			argv[1 + n++] = argv[i];
			continue;
		}
		if (argv[i][1] != '-') {
			fprintf(err,
				"%s: unknown option \"%s\"; --help lists "
				"them\n",
				program_invocation_short_name, argv[i]);
			return -EINVAL;
		}
		rc = parse_arg(opts, argc, argv, &i, err);
		if (rc)
			return rc;
	}
	*ret_noperands = n;
	return 0;
}

static bool wants_help(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--help") == 0 ||
		    strcmp(argv[i], "-h") == 0)
			return true;
	return false;
}

static void print_option(const struct daemon_option *o, FILE *out)
{
	char env[NAME_MAX_LEN], dflt[POOL_HOST_MAX + 16];
	const char *line = o->help, *end;

	env_name(o->name, env, sizeof(env));
	format_default(o, dflt, sizeof(dflt));
	fprintf(out, "  --%s%s%s\n", o->name, o->type == OPT_FLAG ? "" : " ",
		o->type == OPT_FLAG ? "" : o->arg);
	for (;; line = end + 1) {
		end = strchrnul(line, '\n');
		fprintf(out, "        %.*s\n", (int)(end - line), line);
		if (!*end)
			break;
	}
	if (!o->no_env)
		fprintf(out, "        [%s%s%s]\n", env,
			dflt[0] ? "; default " : "", dflt);
}

static void print_help(const struct daemon_option *opts, const char *usage,
		       FILE *out)
{
	fprintf(out, "%s\n", usage);
	if (opts->name)
		fprintf(out, "\nOptions [environment; default]:\n");
	for (; opts->name; opts++)
		print_option(opts, out);
	fprintf(out, "  --help\n        Print this.\n");
}

int daemon_options_parse(struct daemon_option *opts, int argc, char **argv,
			 const char *usage, int *ret_noperands,
			 char ***ret_operands, FILE *out, FILE *err)
{
	int rc, n = 0;

	if (wants_help(argc, argv)) {
		print_help(opts, usage, out);
		return 1;
	}
	rc = parse_env(opts, err);
	if (!rc)
		rc = parse_args(opts, argc, argv, &n, err);
	if (rc)
		return rc;
	*ret_noperands = n;
	*ret_operands = argv + 1;
	return 0;
}

static bool in_list(const char *const *list, const char *elem, size_t len)
{
	for (; *list; list++)
		if (strlen(*list) == len && memcmp(*list, elem, len) == 0)
			return true;
	return false;
}

enum daemon_mount_opt daemon_mount_opt_kind(const char *elem, size_t len)
{
	/* Options that are always in effect or only for mount(8); also sync:
	 * there is no disk to write to. */
	static const char *const generic[] = {
		"rw", "defaults", "auto", "noauto", "user", "nouser",
		"users", "owner", "group", "nodev", "nosuid", "exec", "sync",
		"async", "dirsync", "atime", "diratime", "nodiratime",
		"relatime", "norelatime", "nostrictatime", "nolazytime",
		"nomand", "noiversion", "silent", "loud", "_netdev",
		"nofail", "comment", "allow_other", "default_permissions",
		NULL,
	};
	static const char *const kernel[] = { "noexec", "noatime", NULL };
	static const char *const refused[] = {
		"ro",	"remount",     "dev",	   "suid",
		"mand", "strictatime", "lazytime", "iversion", NULL,
	};
	size_t n = 0;

	while (n < len && elem[n] != '=')
		n++;
	if (n == 0 || in_list(generic, elem, n))
		return MOUNT_OPT_GENERIC;
	if (n >= 2 && (elem[0] == 'x' || elem[0] == 'X') && elem[1] == '-')
		return MOUNT_OPT_GENERIC;
	if (in_list(kernel, elem, n))
		return MOUNT_OPT_KERNEL;
	return in_list(refused, elem, n) ? MOUNT_OPT_REFUSED : MOUNT_OPT_OURS;
}

int daemon_option_users(const struct daemon_option *o, struct pool_trust *t,
			FILE *err)
{
	const char *list = *(const char **)o->value;
	int rc = list ? pool_trust_add(t, list) : 0;

	if (!rc)
		return 0;
	return daemon_option_reject(
		o, rc == -ENOENT ? POOL_TRUST_ACCEPTED
				   " (a user of that name is not known here)" :
				   POOL_TRUST_ACCEPTED,
		err);
}

int daemon_option_admin_names(const struct daemon_option *o, FILE *err)
{
	return admin_names_valid(*(const char **)o->value) ? 0 :
		daemon_option_reject(o, ADMIN_NAMES_ACCEPTED, err);
}
