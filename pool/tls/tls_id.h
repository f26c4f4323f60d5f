/*
 * The identity in a certificate: cluster, role, directories, users, hosts.
 *
 * The role, and the directories and users to which a client or node is limited,
 * are in URI SANs of the form
 *
 *     kvpool://CLUSTER/ROLE[/DIRECTORY][?uid=USER[,USER]...]
 *
 * (like SPIFFE's; issuers such as cert-manager can set them). A certificate has
 * one cluster and one role. Either none of its URIs has a DIRECTORY (it is not
 * limited), or all of them have. Either none has USERs, or all of them have the
 * same. Only clients and nodes may be limited. URIs with other schemes are
 * ignored. DNS and IP SANs name the hosts on which the holder may run; the
 * subject's CN is only for logs.
 *
 *   CLUSTER    1 to POOL_CLUSTER_MAX of a-z A-Z 0-9 . _ -
 *   ROLE       master, node, client or admin
 *   DIRECTORY  a path below the pool's root, percent-encoded where RFC 3986
 *              requires it; no empty component, "." or ".."
 *   USER       a uid in decimal, without leading zeros, below 4294967295
 *
 * A kvpool:// URI that deviates from this is an error and not ignored, because
 * a limit that the issuer meant would be lost.
 *
 * Thread: any; no state.
 */
#ifndef POOL_TLS_TLS_ID_H
#define POOL_TLS_TLS_ID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <openssl/x509.h>

enum pool_role {
	POOL_ROLE_MASTER,
	POOL_ROLE_NODE,	  /* kvpoold: stores, and mounts */
	POOL_ROLE_CLIENT, /* libkvpool: stores nothing */
	POOL_ROLE_ADMIN,  /* may change daemons by HTTP; all roles may read */
	POOL_ROLES,
};
/* Each place that accepts peers names the roles that it accepts, as bits. */
#define POOL_ROLE_BIT(role) (1u << (role))
/* Roles that read and write files: they dial masters and nodes. */
#define POOL_ROLES_USERS \
	(POOL_ROLE_BIT(POOL_ROLE_NODE) | POOL_ROLE_BIT(POOL_ROLE_CLIENT))
#define POOL_ROLES_ACCEPTED "master, node, client or admin"

#define POOL_CLUSTER_MAX 63
#define POOL_TLS_DIRS_MAX 16
#define POOL_TLS_DIR_MAX 1023	   /* bytes of a DIRECTORY, decoded */
#define POOL_TLS_COMPONENT_MAX 255 /* bytes between its slashes */
#define POOL_TLS_NAME_MAX 127
#define POOL_TLS_UIDS_MAX 16
#define POOL_TLS_UIDS_URI (sizeof("?uid=") + 11 * POOL_TLS_UIDS_MAX)
/* Longest URI: every byte of DIRECTORY is percent-encoded. */
#define POOL_TLS_URI_MAX                                        \
	(sizeof("kvpool:///master/") + POOL_CLUSTER_MAX +       \
	 3 * POOL_TLS_DIR_MAX + POOL_TLS_UIDS_URI)

struct pool_tls_id {
	char cluster[POOL_CLUSTER_MAX + 1];
	enum pool_role role;
	unsigned int ndirs; /* 0: not limited */
	char *dirs[POOL_TLS_DIRS_MAX]; /* owns; "models/llama", decoded */
	unsigned int nuids; /* 0: it speaks for every user */
	uint32_t uids[POOL_TLS_UIDS_MAX];
	/* For logs: the CN, or else the first DNS or IP SAN, or else "unnamed".
	 * ASCII; other bytes are '?'. */
	char name[POOL_TLS_NAME_MAX + 1];
};

const char *pool_role_name(enum pool_role role);
bool pool_role_parse(const char *text, enum pool_role *ret);
bool pool_cluster_is_valid(const char *text);

/* 0; -ENOMEM; or -EINVAL, and *ret_why says what is wrong (constant text that
 * continues "the certificate ..."). After 0 the caller must call
 * pool_tls_id_fini. */
int pool_tls_id_read(X509 *cert, struct pool_tls_id *ret, const char **ret_why);
void pool_tls_id_fini(struct pool_tls_id *id);

/*
 * Where a path lies for a holder who is limited to directories, its namespaces:
 *
 *   INSIDE   below one of them; for a holder without a limit: any path
 *   TOP      it is one of them
 *   ABOVE    a directory above one, such as the root ("")
 *   OUTSIDE  elsewhere
 *
 * The caller decides what each permits: master/may.h, pool/node/node.h.
 * id NULL: no limit. path may be NULL if len is 0, as in a message without one.
 * Costs one comparison for each namespace.
 */
enum pool_reach {
	POOL_INSIDE,
	POOL_TOP,
	POOL_ABOVE,
	POOL_OUTSIDE,
};
enum pool_reach pool_tls_id_reach(const struct pool_tls_id *id,
				  const char *path, size_t len);
/* Are both limited to the same directories, or both not limited? */
bool pool_tls_id_same_dirs(const struct pool_tls_id *a,
			   const struct pool_tls_id *b);
/* May the holder say that something is this user's, or done by him? id NULL:
 * yes. */
bool pool_tls_id_speaks_for(const struct pool_tls_id *id, uint32_t uid);
/* Do both speak for the same users, or both for all? */
bool pool_tls_id_same_uids(const struct pool_tls_id *a,
			   const struct pool_tls_id *b);
/* A hash of its directories and users, in whatever order. Not cryptographic; it
 * differs from process to process. */
uint64_t pool_tls_id_limits(const struct pool_tls_id *id);
/* Writes the users to buf, "1000,1001", and returns buf; "" without a limit. */
const char *pool_tls_id_uids(const struct pool_tls_id *id,
			     char buf[POOL_TLS_UIDS_URI]);
/* Reads such a list. False: it is not one, or has more than POOL_TLS_UIDS_MAX;
 * uids may be changed. */
bool pool_tls_uids_parse(const char *text, uint32_t uids[POOL_TLS_UIDS_MAX],
			 unsigned int *ret_n);
/* Writes the directories to buf, "a, models/llama" (for texts that people read;
 * cut if they are longer), and returns buf. "" without a limit. */
#define POOL_TLS_DIRS_TEXT 256
const char *pool_tls_id_dirs(const struct pool_tls_id *id,
			     char buf[POOL_TLS_DIRS_TEXT]);

/* Writes "kvpool://CLUSTER/ROLE[/DIRECTORY]", percent-encoded; dir may be NULL,
 * and may begin or end with '/'. 0; -EINVAL: cluster or dir is not valid, or
 * this role may have no dir; -ENAMETOOLONG: dir or the result is too long. */
int pool_tls_uri(const char *cluster, enum pool_role role, const char *dir,
		 char *to, size_t cap);
/* Appends "?uid=USER[,USER]..." to it; n 0: nothing. 0 or -ENAMETOOLONG. */
int pool_tls_uri_uids(char *to, size_t cap, const uint32_t *uids,
		      unsigned int n);

/* Do the certificate's DNS or IP SANs contain host, a name or an address
 * literal without brackets? Case, a final dot and an IPv6 zone ("%eth0") do not
 * matter. A wildcard in a SAN matches nothing: with it, one node could pose as
 * another. */
bool pool_tls_has_host(X509 *cert, const char *host);

#endif
