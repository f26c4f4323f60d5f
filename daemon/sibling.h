/*
 * Finding the other programs of this installation.
 *
 * Thread: any.
 */
#ifndef DAEMON_SIBLING_H
#define DAEMON_SIBLING_H

#include <stddef.h>

/*
 * The program called name: beside the running one, else in PATH, else where
 * `make install` puts it. 0; -ENOENT (printed); -ENAMETOOLONG.
 */
int daemon_sibling_path(const char *name, char *buf, size_t cap);

#endif
