/*
 * Finding the other programs of this installation.
 *
 * Thread: any.
 */
#ifndef DAEMON_SIBLING_H
#define DAEMON_SIBLING_H

#include <stddef.h>

/*
 * Writes the path of the program called name to buf (cap bytes): in the
 * directory of the running program, else in PATH, else where `make install`
 * puts it. 0; -ENOENT (printed); -ENAMETOOLONG.
 */
int daemon_sibling_path(const char *name, char *buf, size_t cap);

#endif
