/*
 * Translates the command line that mount(8) uses for a helper, "mount.kvpool
 * HOST:PORT DIR -o a=b,c -v", into a command line of kvpoold.
 *
 * This needs no list of kvpoold's options: a_b=v becomes --a-b=v, a_b becomes
 * --a-b, and mount(8)'s own options are dropped. kvpoold refuses unknown ones.
 *
 * Thread: any, no state.
 */
#ifndef DAEMON_MOUNT_ARGS_H
#define DAEMON_MOUNT_ARGS_H

#include <stdbool.h>
#include <stdio.h>

#define MOUNT_ARGS_MAX 128

struct daemon_mount_args {
	/* Owns; [0] "kvpoold", NULL-terminated. */
	char *argv[MOUNT_ARGS_MAX + 1];
	int argc;
	const char *dir; /* DIR; borrows from argv */
	bool fake;    /* -f: check only */
	bool verbose; /* -v */
};

/*
 * 0; 1 if --help was given; -EINVAL (printed to err); -ENOMEM. The caller calls
 * daemon_mount_args_fini in every case.
 */
int daemon_mount_args_init(struct daemon_mount_args *m, int argc,
			   char *const *argv, FILE *err);
/* Does the environment say whether there is a keeper (KVPOOL_KEEPER)? If not,
 * mount.kvpool and `kvpool up` begin with --keeper; a later --keeper=no
 * switches it off. */
bool daemon_keeper_env(void);
void daemon_mount_args_fini(struct daemon_mount_args *m);

#endif
