/*
 * mount(8)'s way of calling us, "mount.kvpool HOST:PORT DIR -o a=b,c -v",
 * translated into a command line of kvpoold.
 *
 * Needs no knowledge of kvpoold's options: a_b=v becomes --a-b=v, a_b becomes
 * --a-b; mount(8)'s own options are dropped; what kvpoold does not know it
 * refuses itself.
 *
 * Thread: any, no state.
 */
#ifndef DAEMON_MOUNT_ARGS_H
#define DAEMON_MOUNT_ARGS_H

#include <stdbool.h>
#include <stdio.h>

#define MOUNT_ARGS_MAX 128

struct daemon_mount_args {
	char *argv[MOUNT_ARGS_MAX + 1]; /* owns; [0] "kvpoold", NULL-terminated */
	int argc;
	const char *dir; /* DIR; borrows from argv */
	bool fake;    /* -f: check only */
	bool verbose; /* -v */
};

/*
 * 0; 1 if --help was asked for; -EINVAL (printed to err), -ENOMEM. To be given
 * to daemon_mount_args_fini in every case.
 */
int daemon_mount_args_init(struct daemon_mount_args *m, int argc,
			   char *const *argv, FILE *err);
void daemon_mount_args_fini(struct daemon_mount_args *m);

#endif
