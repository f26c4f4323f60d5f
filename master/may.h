/*
 * What a session may see and change: the namespaces and users in its
 * certificate.
 *
 * The certificate of a client or node may be limited to directories
 * (pool/tls/tls_id.h). A session keeps the namespaces of the certificate that
 * its connection was made with until it ends. A session without a limit, or
 * without a certificate, may see and change all.
 *
 *   names      The feed has what is in its namespaces, these themselves, and
 *              the directories above (with their attributes: rules are
 *              inherited). A name outside does not exist for it, and its
 *              changes and deletions are not sent.
 *   changes    Allowed inside; a rename if both names are inside. On the
 *              namespace itself, MKDIR and SETATTR are allowed, RMDIR is not.
 *              MKDIR and PUBLISH make missing directories above, as for
 *              everybody. All other changes get -EACCES before anything is
 *              looked up, so the answer does not tell whether the name exists.
 *   copies     Placement does not look at namespaces: a limited store keeps
 *              copies of any name. REPLICATE and DROP tell it their names. For
 *              these names it is a store without a mount.
 *   HELD       outside: accepted only for a copy that the master has ordered
 *              (REPLICATE), or that counts already.
 *   INVENTORY  outside: an object counts if the map has that version with that
 *              content. It never makes, replaces or removes a version, nor sets
 *              attributes. Before the master is ready, the map may still lack
 *              what other inventories bring: the session then ends once the
 *              master is ready, and the node lists its objects again
 *              (inventory.c). So objects that only limited nodes hold, outside
 *              of their namespaces, do not survive a restart of the master.
 *   EVICT      outside, for a copy that does not count: the answer does not
 *              tell whether there is a newer version.
 *
 * A certificate may also be limited to users. Its session may then name no
 * other user as the owner of what it publishes or makes (PUBLISH, MKDIR,
 * SETATTR), nor as the one who made a change (Op.by); and it may not set owner,
 * group or mode of what belongs to others. Else it gets -EACCES. An item of its
 * INVENTORY that belongs to another user is treated as one outside. An UNLINK
 * without Op.by counts as made by the first of its users. Which names it may
 * replace and remove is not a matter of users, but of namespaces.
 *
 * The members (names, addresses, figures) and the pool's totals are sent to
 * all.
 *
 * What the master cannot enforce: a holder does not know what the master has
 * ordered. It refuses a GET outside of a limited client's namespaces
 * (pool/peer/peer.h); but a limited node that knows the name and generation of
 * an object can fetch it, because it may be ordered to keep it.
 *
 * Cost: one comparison of the path for each namespace, of which there are at
 * most POOL_TLS_DIRS_MAX.
 *
 * Thread: loop. No state.
 */
#ifndef MASTER_MAY_H
#define MASTER_MAY_H

#include "master/map.h"

struct master_session;

/* May it say that something is this user's, or done by him? */
bool master_may_speak_for(const struct master_session *s, uint32_t uid);
/* The user who makes a change of which the message does not say that;
 * MASTER_UID_ANYONE: not known. */
uint32_t master_may_user(const struct master_session *s);

/* Is the name inside a namespace of the session, a namespace, or above one? */
bool master_may_see(const struct master_session *s, const char *path,
		    size_t len);
/* The same of an item of the feed, which must not be a MASTER_FORMER. */
bool master_may_see_item(const struct master_session *s,
			 struct master_item *i);
/* May it make, replace or remove the name, or set a file's attributes? */
bool master_may_change(const struct master_session *s, const char *path,
		       size_t len);
/* May it make the directory, or set its attributes? */
bool master_may_set_dir(const struct master_session *s, const char *path,
			size_t len);

#endif
