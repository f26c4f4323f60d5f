/*
 * Whom an HTTP request believes to talk to, and on whose behalf it was sent.
 *
 * A browser on this machine sends what any web page wants, also to loopback. Two
 * things give such requests away. Host: a page whose name was made to resolve to
 * this address later on (DNS rebinding) is its own origin then, and may read the
 * answers; but the request names it. Origin: a POST of another page's has that.
 *
 * Thread: any, no state.
 */
#ifndef DAEMON_ADMIN_GUARD_H
#define DAEMON_ADMIN_GUARD_H

#include <stdbool.h>
#include <sys/socket.h>

#define ADMIN_NAMES_ACCEPTED \
	"hosts' names, as in URLs, without ports, with commas between"

bool admin_is_loopback(const struct sockaddr *sa);

/* Is list, "pool.example,kv1", one of --admin-name? NULL is. */
bool admin_names_valid(const char *list);

/*
 * Is host (of the header: "NAME:PORT", any port, as connections may be forwarded)
 * "localhost", a loopback address, this end's own address, this machine's name,
 * listen (as it was given to --admin; NULL: none), or one of names (as above)?
 */
bool admin_host_is_ours(const char *host, const struct sockaddr *own,
			const char *listen, const char *names);
/* Is origin ("http://NAME:PORT") that of pages at host? */
bool admin_origin_is(const char *origin, const char *host);

#endif
