/*
 * Fuzz target: any bytes as the URI SANs of a certificate, one a line, and the
 * last line as a path. What is accepted is valid, its URIs read back as the
 * same identity, and the path is inside of a limit only below one of its
 * directories.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/x509v3.h>

#include "pool/model/tree.h"
#include "pool/tls/tls_id.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool cond)
{
	if (!cond)
		abort();
}

static void add_uri(GENERAL_NAMES *names, const char *uri, size_t len)
{
	GENERAL_NAME *name = GENERAL_NAME_new();
	ASN1_IA5STRING *text = ASN1_IA5STRING_new();

	require(name && text && ASN1_STRING_set(text, uri, (int)len));
	GENERAL_NAME_set0_value(name, GEN_URI, text);
	require(sk_GENERAL_NAME_push(names, name) > 0);
}

/* Takes names. */
static int read_id(GENERAL_NAMES *names, struct pool_tls_id *id)
{
	const char *why = NULL;
	X509 *cert = X509_new();
	int err;

	require(cert && X509_add1_ext_i2d(cert, NID_subject_alt_name, names, 0,
					  X509V3_ADD_DEFAULT) == 1);
	err = pool_tls_id_read(cert, id, &why);
	require(err != -EINVAL || why);
	X509_free(cert);
	GENERAL_NAMES_free(names);
	return err;
}

static bool is_below(const char *path, size_t len, const char *dir)
{
	size_t n = strlen(dir);

	return len > n && memcmp(path, dir, n) == 0 && path[n] == '/';
}

static void check_path(const struct pool_tls_id *id, const char *path,
		       size_t len)
{
	bool inside = id->ndirs == 0;

	for (unsigned int i = 0; i < id->ndirs; i++)
		inside |= is_below(path, len, id->dirs[i]);
	require((pool_tls_id_reach(id, path, len) == POOL_INSIDE) == inside);
}

static void check_again(const struct pool_tls_id *id)
{
	GENERAL_NAMES *names = GENERAL_NAMES_new();
	struct pool_tls_id again;
	char uri[POOL_TLS_URI_MAX];
	unsigned int i = 0;

	require(names != NULL);
	do {
		const char *dir = id->ndirs ? id->dirs[i] : NULL;

		require(!dir || pool_path_check(dir, strlen(dir)) == 0);
		require(pool_tls_uri(id->cluster, id->role, dir, uri,
				     sizeof(uri)) == 0);
		require(pool_tls_uri_uids(uri, sizeof(uri), id->uids,
					  id->nuids) == 0);
		add_uri(names, uri, strlen(uri));
	} while (++i < id->ndirs);
	require(read_id(names, &again) == 0);
	require(again.role == id->role);
	require(strcmp(again.cluster, id->cluster) == 0);
	require(pool_tls_id_same_dirs(id, &again));
	require(pool_tls_id_same_uids(id, &again));
	pool_tls_id_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *line = (const char *)data, *end;
	size_t left = size;
	GENERAL_NAMES *names;
	struct pool_tls_id id;

	if (size == 0)
		return 0;
	names = GENERAL_NAMES_new();
	require(names != NULL);
	for (; (end = memchr(line, '\n', left)); line = end + 1) {
		add_uri(names, line, (size_t)(end - line));
		left -= (size_t)(end + 1 - line);
	}
	if (read_id(names, &id) < 0)
		return 0;
	require(pool_cluster_is_valid(id.cluster));
	require(id.role < POOL_ROLES && id.ndirs <= POOL_TLS_DIRS_MAX);
	require(id.nuids <= POOL_TLS_UIDS_MAX);
	check_path(&id, line, left);
	check_again(&id);
	pool_tls_id_fini(&id);
	return 0;
}
