#include "daemon/other_env.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct other_env {
	const char *name;   /* "MOONCAKE_MASTER" */
	const char *option; /* of kvpoold; NULL: it has none, see why */
	const char *why;    /* without an option: why none is needed */
};

static const struct other_env other_envs[] = {
	{ "MOONCAKE_MASTER", "master", NULL },
	{ "MOONCAKE_GLOBAL_SEGMENT_SIZE", "store-size", NULL },
	{ "MOONCAKE_LOCAL_BUFFER_SIZE", "buffer-size", NULL },
	{ "MOONCAKE_PROTOCOL", "transport", NULL },
	{ "MOONCAKE_DEVICE", "rdma-device", NULL },
	{ "MOONCAKE_LOCAL_HOSTNAME", "advertise", NULL },
	{ "MOONCAKE_TE_META_DATA_SERVER", NULL,
	  "nodes get each other's addresses from the master" },
	/* The same names with our prefix: easily mistaken for our options. */
	{ "KVPOOL_GLOBAL_SEGMENT_SIZE", "store-size", NULL },
	{ "KVPOOL_LOCAL_BUFFER_SIZE", "buffer-size", NULL },
	{ "KVPOOL_PROTOCOL", "transport", NULL },
	{ "KVPOOL_DEVICE", "rdma-device", NULL },
	{ "KVPOOL_LOCAL_HOSTNAME", "advertise", NULL },
	{ NULL, NULL, NULL },
};

int daemon_other_env_check(struct daemon_option *opts, FILE *err)
{
	int rc = 0;

	for (const struct other_env *e = other_envs; e->name; e++) {
		const char *text = getenv(e->name);
		struct daemon_option *o;
		char env[64];

		if (!text || !text[0] || strcmp(text, "0") == 0)
			continue;
		if (!e->option) {
			fprintf(err, "%s: %s has no effect: %s\n",
				program_invocation_short_name, e->name, e->why);
			continue;
		}
		o = daemon_option_find(opts, e->option);
		if (o->seen)
			continue;
		daemon_option_env(o, env, sizeof(env));
		fprintf(err,
			"%s: %s: \"%s\" given; accepted: the same as %s or "
			"--%s; remove the variable, or give that one as well\n",
			program_invocation_short_name, e->name, text, env,
			o->name);
		rc = -EINVAL;
	}
	return rc;
}
