/*
 * The web page of a pool: daemon/web/, as bytes of this program. It asks pages
 * below api/ beside it, and changes nothing. kvpool-master serves it at /, a
 * node with an embedded master at /pool/.
 *
 * Thread: any.
 */
#ifndef DAEMON_WEB_H
#define DAEMON_WEB_H

#include "daemon/admin.h"

extern const struct daemon_admin_file daemon_web_files[];

#endif
