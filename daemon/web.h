/*
 * The web page of the master's admin address: daemon/web/, as bytes of this
 * program. It asks pages below /api of the same address, and changes nothing.
 *
 * Thread: any.
 */
#ifndef DAEMON_WEB_H
#define DAEMON_WEB_H

#include "daemon/admin.h"

extern const struct daemon_admin_file daemon_web_files[];

#endif
