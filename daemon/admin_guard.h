/*
 * Protects the admin address from web pages: checks of Host and Origin.
 *
 * A browser on this machine sends whatever requests a web page makes, even to
 * loopback. Two headers show such requests. Host: with DNS rebinding a page's
 * name resolves to this address later, so the page counts as the same origin
 * and may read the answers; but Host still has the page's name. Origin: a POST
 * made by a page of another origin carries that origin.
 *
 * Thread: any, no state.
 */
#ifndef DAEMON_ADMIN_GUARD_H
#define DAEMON_ADMIN_GUARD_H

#include <stdbool.h>
#include <sys/socket.h>

#define ADMIN_NAMES_ACCEPTED \
	"host names, as in URLs, without ports, separated by commas"

bool admin_is_loopback(const struct sockaddr *sa);
/* Ignores ports; all of loopback counts as one address. */
bool admin_same_address(const struct sockaddr *a, const struct sockaddr *b);

/* Is list ("pool.example,kv1") a valid --admin-name? NULL is valid. */
bool admin_names_valid(const char *list);

/*
 * Is host, the header's value, this host? It is if its name is "localhost", a
 * loopback address, `own` (the address of this end), this machine's name,
 * listen (the host of --admin; NULL: none), or one of names (a list as above,
 * or NULL). The port is not checked: connections may be forwarded.
 */
bool admin_host_is_ours(const char *host, const struct sockaddr *own,
			const char *listen, const char *names);
/* Is origin ("http://NAME:PORT"; with TLS "https://...") the origin of pages
 * served at host? With TLS, a page of http://HOST is not ours: an attacker on
 * the path may have made it, and the browser adds its user's certificate. */
bool admin_origin_is(const char *origin, bool tls, const char *host);

#endif
