/*
 * The options of programs that use etcd: its URLs, and how both sides
 * authenticate.
 *
 * Thread: main, before the loop runs.
 */
#ifndef DAEMON_ETCD_OPTIONS_H
#define DAEMON_ETCD_OPTIONS_H

#include <stdio.h>

#include "daemon/options.h"
#include "master/etcd_access.h"

/* Elements of the table of options. a: a struct etcd_access; what: what etcd is
 * used for. */
#define DAEMON_OPTIONS_ETCD(a, what)                                          \
	{ .name = "etcd",                                                     \
	  .type = OPT_STRING,                                                 \
	  .value = &(a).urls,                                                 \
	  .arg = "URL[,URL]...",                                              \
	  .help = what },                                                     \
	{ .name = "etcd-ca",                                                  \
	  .type = OPT_STRING,                                                 \
	  .value = &(a).ca,                                                   \
	  .arg = "FILE",                                                      \
	  .help = "With https: certificates of the CAs that may have signed\n" \
		  "etcd's; default: the CAs of this machine." },              \
	{ .name = "etcd-cert",                                                \
	  .type = OPT_STRING,                                                 \
	  .value = &(a).cert,                                                 \
	  .arg = "FILE",                                                      \
	  .help = "With https: the certificate to show to etcd, then those\n" \
		  "of intermediate CAs." },                                   \
	{ .name = "etcd-key",                                                 \
	  .type = OPT_STRING,                                                 \
	  .value = &(a).key,                                                  \
	  .arg = "FILE",                                                      \
	  .help = "The key of --etcd-cert, with mode 0600 or 0400." },        \
	{ .name = "etcd-user",                                                \
	  .type = OPT_STRING,                                                 \
	  .value = &(a).user,                                                 \
	  .arg = "NAME",                                                      \
	  .help = "The user of etcd, if etcd has users; with https, or on\n"  \
		  "loopback." },                                              \
	{ .name = "etcd-password-file",                                       \
	  .type = OPT_STRING,                                                 \
	  .value = &(a).password_file,                                        \
	  .arg = "FILE",                                                      \
	  .help = "The password of --etcd-user; mode 0600 or 0400." }

/* Checks what those options have set, and reads the files. 0 or -EINVAL
 * (printed to err). */
int daemon_etcd_options_check(struct daemon_option *options,
			      const struct etcd_access *a, FILE *err);

#endif
