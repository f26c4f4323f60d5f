#include "daemon/privileges.h"

#include <cap-ng.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "pool/base/log.h"

#define NICE_MOST 30 /* RLIMIT_NICE of the nice value -10 */

static struct {
	json_t *caps; /* owns, for ever */
	bool sealed;  /* no_new_privs */
	char text[160];
} kept;

static bool has(unsigned int cap)
{
	return capng_have_capability(CAPNG_PERMITTED, cap);
}

/* Tries to raise RLIMIT_NICE far enough. Then CAP_SYS_NICE is not needed, which
 * would also allow changing other processes. */
static bool priority_by_limit(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NICE, &rl) < 0)
		return false;
	if (rl.rlim_max < NICE_MOST)
		rl.rlim_max = NICE_MOST;
	rl.rlim_cur = rl.rlim_max;
	return setrlimit(RLIMIT_NICE, &rl) == 0;
}

/* A set of capabilities, as bits. */
static uint64_t wanted(const struct daemon_needs *needs)
{
	uint64_t set = 0;

	if (needs->mounts)
		set |= 1ull << CAP_SYS_ADMIN;
	/* CAP_DAC_OVERRIDE: before Linux 6.2 a file must be open for writing to
	 * be registered, and sealed files have mode 0400 (verbs/region.c). */
	if (needs->rdma)
		set |= 1ull << CAP_IPC_LOCK | 1ull << CAP_DAC_OVERRIDE;
	if (needs->priority && !priority_by_limit())
		set |= 1ull << CAP_SYS_NICE;
	if (needs->low_port)
		set |= 1ull << CAP_NET_BIND_SERVICE;
	return set;
}

static int apply(uint64_t set, bool again)
{
	const capng_type_t sets = CAPNG_EFFECTIVE | CAPNG_PERMITTED |
				  (again ? CAPNG_BOUNDING_SET : 0);

	/* Without CAP_SETPCAP the bounding set cannot be changed. It need not
	 * be: with no_new_privs, execve(2) adds no capabilities. */
	bool bounds = kept.sealed &&
		      capng_have_capability(CAPNG_EFFECTIVE, CAP_SETPCAP);
	unsigned int cap;

	for (cap = 0; cap < 64; cap++)
		if (!has(cap))
			set &= ~(1ull << cap);
	capng_clear(CAPNG_SELECT_ALL);
	for (cap = 0; cap < 64; cap++)
		if (set & (1ull << cap))
			capng_update(CAPNG_ADD, sets, cap);
	if ((bounds && capng_apply(CAPNG_SELECT_BOUNDS)) ||
	    capng_apply(CAPNG_SELECT_AMBIENT) || capng_apply(CAPNG_SELECT_CAPS))
		return -EPERM;
	return 0;
}

static int note(void)
{
	size_t n = (size_t)snprintf(kept.text, sizeof(kept.text),
				    "user %u, ", (unsigned int)geteuid());
	const char *name, *sep = "capabilities ";

	kept.caps = json_array();
	for (unsigned int cap = 0; kept.caps && cap < 64; cap++) {
		name = has(cap) ? capng_capability_to_name(cap) : NULL;
		if (!name)
			continue;
		if (json_array_append_new(kept.caps, json_string(name)))
			return -ENOMEM;
		n += (size_t)snprintf(kept.text + n, sizeof(kept.text) - n,
				      "%s%s", sep, name);
		sep = " ";
	}
	snprintf(kept.text + n, sizeof(kept.text) - n, "%s, %s",
		 *sep == ' ' ? "" : "no capabilities",
		 kept.sealed ? "no others can be gained" :
			       "fusermount3 may be executed");
	return kept.caps ? 0 : -ENOMEM;
}

int daemon_privileges_keep(const struct daemon_needs *needs)
{
	int err;

	if (capng_get_caps_process()) {
		pool_error("the capabilities of this process cannot be read");
		return -EPERM;
	}
	kept.sealed = !needs->helper || has(CAP_SYS_ADMIN);
	err = apply(wanted(needs), needs->again);
	if (!err && kept.sealed && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		err = -errno;
	if (!err)
		err = note();
	if (err)
		pool_error("privileges that are not needed cannot be given "
			   "up: %s", strerror(-err));
	return err;
}

const char *daemon_privileges_text(void)
{
	return kept.text;
}

json_t *daemon_privileges_json(void)
{
	return json_pack("{s:I, s:O, s:b}", "user", (json_int_t)geteuid(),
			 "capabilities", kept.caps, "no_new_privileges",
			 kept.sealed);
}
