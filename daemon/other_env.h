/*
 * Environment variables of other stores, which are set in manifests written for
 * those stores (KEP-74 of RoleBasedGroup). kvpoold does not use them. If one is
 * set, it refuses to start instead of running without that setting; the message
 * names its own option for the same setting.
 *
 * Thread: main, before the loop runs.
 */
#ifndef DAEMON_OTHER_ENV_H
#define DAEMON_OTHER_ENV_H

#include <stdio.h>

#include "daemon/options.h"

/*
 * Call it after opts were parsed. A variable whose option is given as well is
 * ignored, and so is one that is empty or 0 (a size of 0 requests nothing).
 * 0, also if a variable without an option was reported; -EINVAL (printed to
 * err: all variables that need another name).
 */
int daemon_other_env_check(struct daemon_option *opts, FILE *err);

#endif
