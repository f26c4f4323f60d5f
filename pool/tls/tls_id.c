#include "pool/tls/tls_id.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <openssl/x509v3.h>

#include <xxhash.h>

#include "pool/base/hash.h"
#include "pool/base/parse.h"

#define SCHEME "kvpool:"
#define PREFIX SCHEME "//"

static const char *const role_names[POOL_ROLES] = {
	[POOL_ROLE_MASTER] = "master",
	[POOL_ROLE_NODE] = "node",
	[POOL_ROLE_CLIENT] = "client",
	[POOL_ROLE_ADMIN] = "admin",
};

const char *pool_role_name(enum pool_role role)
{
	assert(role < POOL_ROLES);
	return role_names[role];
}

static bool parse_role(const char *text, size_t len, enum pool_role *ret)
{
	for (unsigned int i = 0; i < POOL_ROLES; i++)
		if (strlen(role_names[i]) == len &&
		    memcmp(role_names[i], text, len) == 0) {
			*ret = (enum pool_role)i;
			return true;
		}
	return false;
}

bool pool_role_parse(const char *text, enum pool_role *ret)
{
	return parse_role(text, strlen(text), ret);
}

static bool role_is_limitable(enum pool_role role)
{
	return role == POOL_ROLE_NODE || role == POOL_ROLE_CLIENT;
}

/* Not isalnum(3), which depends on the locale. */
static bool is_alnum(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c >= '0' && c <= '9');
}

static bool is_in(char c, const char *set)
{
	return c && strchr(set, c);
}

static bool cluster_is_valid(const char *text, size_t len)
{
	if (len < 1 || len > POOL_CLUSTER_MAX)
		return false;
	for (size_t i = 0; i < len; i++)
		if (!is_alnum(text[i]) && !is_in(text[i], "._-"))
			return false;
	return true;
}

bool pool_cluster_is_valid(const char *text)
{
	return cluster_is_valid(text, strlen(text));
}

/* pchar of RFC 3986, without percent-encoding. */
static bool is_pchar(char c)
{
	return is_alnum(c) || is_in(c, "-._~!$&'()*+,;=:@");
}

/* Is dir, decoded, "COMPONENT[/COMPONENT]..."? */
static bool dir_is_valid(const char *dir)
{
	size_t len;

	for (;; dir += len + 1) {
		len = strcspn(dir, "/");
		if (len < 1 || len > POOL_TLS_COMPONENT_MAX ||
		    (len == 1 && dir[0] == '.') ||
		    (len == 2 && dir[0] == '.' && dir[1] == '.'))
			return false;
		if (!dir[len])
			return true;
	}
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Decodes one byte of *text and moves on; -1: it is not valid. An encoded slash
 * would make one component two, and an encoded NUL would end the path. */
static int decode_byte(const char **text)
{
	const char *t = *text;
	int high, low;

	if (*t != '%') {
		*text = t + 1;
		return *t == '/' || is_pchar(*t) ? *t : -1;
	}
	high = hex(t[1]);
	low = high < 0 ? -1 : hex(t[2]);
	if (low < 0)
		return -1;
	*text = t + 3;
	high = high << 4 | low;
	return high && high != '/' ? high : -1;
}

static bool decode_dir(const char *text, char to[POOL_TLS_DIR_MAX + 1])
{
	size_t n = 0;
	int byte;

	while (*text) {
		byte = decode_byte(&text);
		if (byte < 0 || n == POOL_TLS_DIR_MAX)
			return false;
		to[n++] = (char)byte;
	}
	to[n] = '\0';
	return dir_is_valid(to);
}

/* One uid; *end: what follows it. */
static bool parse_uid(const char *text, uint32_t *ret, const char **end)
{
	uint64_t uid = 0;
	unsigned int n;

	for (n = 0; text[n] >= '0' && text[n] <= '9' && n < 10; n++)
		uid = 10 * uid + (uint64_t)(text[n] - '0');
	*end = text + n;
	*ret = (uint32_t)uid;
	return n > 0 && (n == 1 || text[0] != '0') && uid < UINT32_MAX;
}

bool pool_tls_uids_parse(const char *text, uint32_t uids[POOL_TLS_UIDS_MAX],
			 unsigned int *ret_n)
{
	unsigned int n = 0;

	for (;; text++) {
		if (n == POOL_TLS_UIDS_MAX || !parse_uid(text, &uids[n], &text))
			return false;
		n++;
		if (!*text) {
			*ret_n = n;
			return true;
		}
		if (*text != ',')
			return false;
	}
}

/* ---- reading ---- */

/* The URIs read so far. */
struct reading {
	struct pool_tls_id id;
	bool any;	/* at least one: id has its cluster and role */
	bool unlimited; /* one without DIRECTORY */
	const char *why;
};

static int refuse(struct reading *r, const char *why)
{
	r->why = why;
	return -EINVAL;
}

static int add_dir(struct reading *r, const char *text)
{
	char dir[POOL_TLS_DIR_MAX + 1];

	if (!role_is_limitable(r->id.role))
		return refuse(r, "limits a master or an admin to a directory; "
				 "only a client or a node can be limited");
	if (!decode_dir(text, dir))
		return refuse(r, "has a URI " PREFIX "... whose directory is "
				 "not valid");
	if (r->id.ndirs == POOL_TLS_DIRS_MAX)
		return refuse(r, "has too many URIs " PREFIX "... with "
				 "directories");
	r->id.dirs[r->id.ndirs] = strdup(dir);
	if (!r->id.dirs[r->id.ndirs])
		return -ENOMEM;
	r->id.ndirs++;
	return 0;
}

static int set_cluster(struct reading *r, const char *text, size_t len)
{
	if (!cluster_is_valid(text, len))
		return refuse(r, "has a URI " PREFIX "... whose cluster is not "
				 "valid");
	if (r->any && (strlen(r->id.cluster) != len ||
		       memcmp(r->id.cluster, text, len) != 0))
		return refuse(r, "has URIs " PREFIX "... of two clusters");
	memcpy(r->id.cluster, text, len);
	r->id.cluster[len] = '\0';
	return 0;
}

static int set_role(struct reading *r, const char *text, size_t len)
{
	enum pool_role role;

	if (!parse_role(text, len, &role))
		return refuse(r, "has a URI " PREFIX "... without a role "
				 "(" POOL_ROLES_ACCEPTED ")");
	if (r->any && r->id.role != role)
		return refuse(r, "has URIs " PREFIX "... of two roles");
	r->id.role = role;
	return 0;
}

/* query: what follows '?'; NULL: there is none. */
static int set_uids(struct reading *r, const char *query)
{
	struct pool_tls_id now = { .nuids = 0 };

	if (query && !role_is_limitable(r->id.role))
		return refuse(r, "limits a master or an admin to users; only a "
				 "client or a node can be limited");
	if (query && (strncmp(query, "uid=", 4) != 0 ||
		      !pool_tls_uids_parse(query + 4, now.uids, &now.nuids)))
		return refuse(r, "has a URI " PREFIX "...?... that is not a "
				 "list of users, ?uid=N,N");
	if (r->any && !pool_tls_id_same_uids(&r->id, &now))
		return refuse(r, "has URIs " PREFIX "... with different users");
	r->id.nuids = now.nuids;
	memcpy(r->id.uids, now.uids, sizeof(now.uids));
	return 0;
}

/* text: what follows PREFIX. Changes it. */
static int read_ours(struct reading *r, char *text)
{
	char *query = strchr(text, '?');
	size_t len;
	int rc;

	if (query)
		*query++ = '\0';
	len = strcspn(text, "/");
	rc = set_cluster(r, text, len);
	if (rc)
		return rc;
	text += len + (text[len] == '/');
	len = strcspn(text, "/");
	rc = set_role(r, text, len);
	if (!rc)
		rc = set_uids(r, query);
	if (rc)
		return rc;
	r->any = true;
	if (text[len])
		return add_dir(r, text + len + 1);
	r->unlimited = true;
	return 0;
}

/* By RFC 3986 a scheme's case does not matter. Ours must be in lower case, so
 * that other readers of the certificate cannot take it for another scheme. */
static int read_uri(struct reading *r, const ASN1_IA5STRING *uri)
{
	char text[POOL_TLS_URI_MAX + 1];
	size_t len = (size_t)ASN1_STRING_length(uri);
	const void *data = ASN1_STRING_get0_data(uri);

	if (len < strlen(SCHEME) ||
	    strncasecmp(data, SCHEME, strlen(SCHEME)) != 0)
		return 0;
	if (len > POOL_TLS_URI_MAX)
		return refuse(r, "has a URI " PREFIX "... that is too long");
	memcpy(text, data, len);
	text[len] = '\0';
	if (strncmp(text, PREFIX, strlen(PREFIX)) != 0)
		return refuse(r, "has a URI " SCHEME "... that does not begin "
				 "with " PREFIX);
	return read_ours(r, text + strlen(PREFIX));
}

static bool has_nul(const ASN1_STRING *s)
{
	return memchr(ASN1_STRING_get0_data(s), '\0',
		      (size_t)ASN1_STRING_length(s)) != NULL;
}

static int read_san(struct reading *r, const GENERAL_NAME *san)
{
	if (san->type != GEN_URI && san->type != GEN_DNS)
		return 0;
	if (!ASN1_STRING_length(san->d.ia5))
		return 0;
	/* Programs in C would read it only up to the NUL: an attack. */
	if (has_nul(san->d.ia5))
		return refuse(r, "has an alternative name with a NUL in it");
	return san->type == GEN_URI ? read_uri(r, san->d.ia5) : 0;
}

static int read_sans(struct reading *r, const GENERAL_NAMES *sans)
{
	int rc = 0;

	for (int i = 0; !rc && i < sk_GENERAL_NAME_num(sans); i++)
		rc = read_san(r, sk_GENERAL_NAME_value(sans, i));
	if (rc)
		return rc;
	if (!r->any)
		return refuse(r, "has no URI " PREFIX "CLUSTER/ROLE among its "
				 "alternative names: it is not one of a pool");
	if (r->unlimited && r->id.ndirs)
		return refuse(r, "has URIs " PREFIX "... with and without a "
				 "directory");
	return 0;
}

/* ---- the name ---- */

static void set_name(struct pool_tls_id *id, const unsigned char *text, int len)
{
	size_t n = 0;

	for (; len > 0 && n < POOL_TLS_NAME_MAX; len--, text++)
		id->name[n++] = *text > ' ' && *text < 0x7f ? (char)*text :
				*text == ' ' ? ' ' : '?';
	id->name[n] = '\0';
}

static void set_name_of_cn(struct pool_tls_id *id, X509 *cert)
{
	X509_NAME *subject = X509_get_subject_name(cert);
	int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
	unsigned char *text;
	int len;

	if (at < 0)
		return;
	len = ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(
						 X509_NAME_get_entry(subject,
								     at)));
	if (len < 0)
		return;
	set_name(id, text, len);
	OPENSSL_free(text);
}

static void set_name_of_ip(struct pool_tls_id *id, const ASN1_STRING *ip)
{
	const void *bytes = ASN1_STRING_get0_data(ip);
	int len = ASN1_STRING_length(ip);

	if (len == 4)
		(void)inet_ntop(AF_INET, bytes, id->name, sizeof(id->name));
	else if (len == 16)
		(void)inet_ntop(AF_INET6, bytes, id->name, sizeof(id->name));
}

static void set_name_of_san(struct pool_tls_id *id, const GENERAL_NAMES *sans)
{
	for (int i = 0; !id->name[0] && i < sk_GENERAL_NAME_num(sans); i++) {
		const GENERAL_NAME *san = sk_GENERAL_NAME_value(sans, i);

		if (san->type == GEN_DNS)
			set_name(id, ASN1_STRING_get0_data(san->d.ia5),
				 ASN1_STRING_length(san->d.ia5));
		else if (san->type == GEN_IPADD)
			set_name_of_ip(id, san->d.ip);
	}
}

int pool_tls_id_read(X509 *cert, struct pool_tls_id *ret, const char **ret_why)
{
	struct reading r = { .any = false };
	int found, rc;
	GENERAL_NAMES *sans =
		X509_get_ext_d2i(cert, NID_subject_alt_name, &found, NULL);

	if (!sans) {
		/* found -1: there are none; -2: the extension occurs twice. */
		*ret_why = found == -1 ? "has no alternative names" :
					 "has alternative names that cannot be "
					 "read";
		return -EINVAL;
	}
	rc = read_sans(&r, sans);
	if (!rc) {
		set_name_of_cn(&r.id, cert);
		set_name_of_san(&r.id, sans);
		if (!r.id.name[0])
			strcpy(r.id.name, "unnamed");
		*ret = r.id;
	} else {
		if (rc == -EINVAL)
			*ret_why = r.why;
		pool_tls_id_fini(&r.id);
	}
	GENERAL_NAMES_free(sans);
	return rc;
}

void pool_tls_id_fini(struct pool_tls_id *id)
{
	for (unsigned int i = 0; i < id->ndirs; i++)
		free(id->dirs[i]);
	id->ndirs = 0;
}

/* ---- directories ---- */

static enum pool_reach reach_of(const char *dir, const char *path, size_t len)
{
	size_t n = strlen(dir), both = n < len ? n : len;

	if (both && memcmp(dir, path, both) != 0)
		return POOL_OUTSIDE;
	if (n == len)
		return POOL_TOP;
	if (len > n)
		return path[n] == '/' ? POOL_INSIDE : POOL_OUTSIDE;
	return !len || dir[len] == '/' ? POOL_ABOVE : POOL_OUTSIDE;
}

enum pool_reach pool_tls_id_reach(const struct pool_tls_id *id,
				  const char *path, size_t len)
{
	enum pool_reach best = POOL_OUTSIDE, one;

	if (!id || !id->ndirs)
		return POOL_INSIDE;
	for (unsigned int i = 0; i < id->ndirs && best != POOL_INSIDE; i++) {
		one = reach_of(id->dirs[i], path, len);
		if (one < best)
			best = one;
	}
	return best;
}

static bool has_dir(const struct pool_tls_id *id, const char *dir)
{
	for (unsigned int i = 0; i < id->ndirs; i++)
		if (strcmp(id->dirs[i], dir) == 0)
			return true;
	return false;
}

bool pool_tls_id_same_dirs(const struct pool_tls_id *a,
			   const struct pool_tls_id *b)
{
	unsigned int i;

	for (i = 0; i < a->ndirs; i++)
		if (!has_dir(b, a->dirs[i]))
			return false;
	for (i = 0; i < b->ndirs; i++)
		if (!has_dir(a, b->dirs[i]))
			return false;
	return true;
}

const char *pool_tls_id_dirs(const struct pool_tls_id *id,
			     char buf[POOL_TLS_DIRS_TEXT])
{
	size_t len = 0;

	buf[0] = '\0';
	for (unsigned int i = 0; i < id->ndirs && len < POOL_TLS_DIRS_TEXT; i++)
		len += (size_t)snprintf(buf + len, POOL_TLS_DIRS_TEXT - len,
					"%s%s", i ? ", " : "", id->dirs[i]);
	return buf;
}

/* ---- users ---- */

static bool has_uid(const struct pool_tls_id *id, uint32_t uid)
{
	for (unsigned int i = 0; i < id->nuids; i++)
		if (id->uids[i] == uid)
			return true;
	return false;
}

bool pool_tls_id_speaks_for(const struct pool_tls_id *id, uint32_t uid)
{
	return !id || !id->nuids || has_uid(id, uid);
}

bool pool_tls_id_same_uids(const struct pool_tls_id *a,
			   const struct pool_tls_id *b)
{
	unsigned int i;

	for (i = 0; i < a->nuids; i++)
		if (!has_uid(b, a->uids[i]))
			return false;
	for (i = 0; i < b->nuids; i++)
		if (!has_uid(a, b->uids[i]))
			return false;
	return true;
}

uint64_t pool_tls_id_limits(const struct pool_tls_id *id)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < id->ndirs; i++)
		sum += XXH3_64bits_withSeed(id->dirs[i], strlen(id->dirs[i]),
					    pool_hash_seed());
	for (unsigned int i = 0; i < id->nuids; i++)
		sum += XXH3_64bits_withSeed(&id->uids[i], sizeof(id->uids[i]),
					    pool_hash_seed() + 1);
	return sum;
}

static void write_uids(const uint32_t *uids, unsigned int n,
		       char buf[POOL_TLS_UIDS_URI])
{
	int len = 0;

	buf[0] = '\0';
	for (unsigned int i = 0; i < n; i++)
		len += snprintf(buf + len, POOL_TLS_UIDS_URI - (size_t)len,
				"%s%u", i ? "," : "", uids[i]);
}

const char *pool_tls_id_uids(const struct pool_tls_id *id,
			     char buf[POOL_TLS_UIDS_URI])
{
	write_uids(id->uids, id->nuids, buf);
	return buf;
}

/* ---- writing ---- */

static int check_dir(const char *dir, size_t len)
{
	char text[POOL_TLS_DIR_MAX + 1];

	if (len > POOL_TLS_DIR_MAX)
		return -ENAMETOOLONG;
	memcpy(text, dir, len);
	text[len] = '\0';
	return dir_is_valid(text) ? 0 : -EINVAL;
}

static void encode(const char *dir, size_t len, char *to)
{
	for (size_t i = 0; i < len; i++) {
		if (dir[i] == '/' || is_pchar(dir[i]))
			*to++ = dir[i];
		else
			to += sprintf(to, "%%%02X", (unsigned char)dir[i]);
	}
	*to = '\0';
}

int pool_tls_uri(const char *cluster, enum pool_role role, const char *dir,
		 char *to, size_t cap)
{
	char encoded[3 * POOL_TLS_DIR_MAX + 1] = "";
	size_t len;
	int rc;

	if (!pool_cluster_is_valid(cluster) ||
	    (dir && !role_is_limitable(role)))
		return -EINVAL;
	if (dir) {
		dir += dir[0] == '/';
		len = strlen(dir);
		if (len && dir[len - 1] == '/')
			len--;
		rc = check_dir(dir, len);
		if (rc)
			return rc;
		encode(dir, len, encoded);
	}
	rc = snprintf(to, cap, PREFIX "%s/%s%s%s", cluster,
		      pool_role_name(role), dir ? "/" : "", encoded);
	return (size_t)rc < cap ? 0 : -ENAMETOOLONG;
}

int pool_tls_uri_uids(char *to, size_t cap, const uint32_t *uids,
		      unsigned int n)
{
	char list[POOL_TLS_UIDS_URI];
	size_t len = strlen(to);

	if (!n)
		return 0;
	write_uids(uids, n, list);
	return (size_t)snprintf(to + len, cap - len, "?uid=%s", list) <
			       cap - len ?
		       0 :
		       -ENAMETOOLONG;
}

/* ---- hosts ---- */

/* host without an IPv6 zone and without a final dot. */
static bool plain_host(const char *host, char to[POOL_HOST_MAX + 1])
{
	size_t len = strchr(host, ':') ? strcspn(host, "%") : strlen(host);

	if (len && host[len - 1] == '.')
		len--;
	/* OpenSSL matches ".example.org" with every name that ends in it. */
	if (!len || len > POOL_HOST_MAX || host[0] == '.')
		return false;
	memcpy(to, host, len);
	to[len] = '\0';
	return true;
}

static bool is_address(const char *host)
{
	unsigned char bytes[16];

	return inet_pton(AF_INET, host, bytes) == 1 ||
	       inet_pton(AF_INET6, host, bytes) == 1;
}

bool pool_tls_has_host(X509 *cert, const char *host)
{
	const unsigned int flags = X509_CHECK_FLAG_NO_WILDCARDS |
				   X509_CHECK_FLAG_NEVER_CHECK_SUBJECT;
	char plain[POOL_HOST_MAX + 1];

	if (!plain_host(host, plain))
		return false;
	if (is_address(plain))
		return X509_check_ip_asc(cert, plain, 0) == 1;
	return X509_check_host(cert, plain, 0, flags, NULL) == 1;
}
