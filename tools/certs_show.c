#include "tools/certs.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/cmd.h"

#define DAY_S 86400

static void add_text(json_t *list, const char *text, size_t len)
{
	json_array_append_new(list, json_stringn(text, len));
}

/* Names that are not ASCII cannot be dialled, and are not shown. */
static void add_host(json_t *list, const GENERAL_NAME *san)
{
	char address[INET6_ADDRSTRLEN];
	const void *bytes;
	int len, family;

	if (san->type != GEN_DNS && san->type != GEN_IPADD)
		return;
	bytes = ASN1_STRING_get0_data(san->d.ia5);
	len = ASN1_STRING_length(san->d.ia5);
	if (san->type == GEN_DNS) {
		add_text(list, bytes, (size_t)len);
		return;
	}
	family = len == 4 ? AF_INET : AF_INET6;
	if ((len == 4 || len == 16) &&
	    inet_ntop(family, bytes, address, sizeof(address)))
		add_text(list, address, strlen(address));
}

static json_t *hosts_of(X509 *cert)
{
	GENERAL_NAMES *sans =
		X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
	json_t *list = json_array();

	for (int i = 0; sans && i < sk_GENERAL_NAME_num(sans); i++)
		add_host(list, sk_GENERAL_NAME_value(sans, i));
	GENERAL_NAMES_free(sans);
	return list;
}

/* Escaped as in the certificate: a path may have any bytes. */
static json_t *namespaces_of(const struct pool_tls_id *id)
{
	json_t *list = json_array();

	for (unsigned int i = 0; i < id->ndirs; i++) {
		char *text = cmd_url_escape(id->dirs[i]);

		if (text)
			add_text(list, text, strlen(text));
		free(text);
	}
	return list;
}

static json_t *uids_of(const struct pool_tls_id *id)
{
	json_t *list = json_array();

	for (unsigned int i = 0; i < id->nuids; i++)
		json_array_append_new(list, json_integer(id->uids[i]));
	return list;
}

static void set_time(json_t *to, const char *key, const ASN1_TIME *at)
{
	char text[32] = "?";
	struct tm tm;

	if (ASN1_TIME_to_tm(at, &tm))
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
	json_object_set_new(to, key, json_string(text));
}

int certs_days_left(const X509 *cert)
{
	int days, seconds;

	if (!ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(cert)))
		return -1;
	return days - (seconds < 0);
}

static void set_issuer(json_t *to, const X509 *cert)
{
	char text[128] = "?";

	(void)X509_NAME_get_text_by_NID(X509_get_issuer_name(cert),
					NID_commonName, text, sizeof(text));
	json_object_set_new(to, "issuer", json_string(text));
}

static void set_serial(json_t *to, const X509 *cert)
{
	char *text = certs_serial(cert);

	json_object_set_new(to, "serial", json_string(text ? text : "?"));
	OPENSSL_free(text);
}

static void set_id(json_t *to, X509 *cert)
{
	struct pool_tls_id id;
	const char *why;

	if (pool_tls_id_read(cert, &id, &why))
		return;
	json_object_set_new(to, "name", json_string(id.name));
	json_object_set_new(to, "role", json_string(pool_role_name(id.role)));
	json_object_set_new(to, "cluster", json_string(id.cluster));
	json_object_set_new(to, "namespaces", namespaces_of(&id));
	json_object_set_new(to, "uids", uids_of(&id));
	pool_tls_id_fini(&id);
}

json_t *certs_describe(X509 *cert)
{
	json_t *d = json_object();

	set_id(d, cert);
	json_object_set_new(d, "hosts", hosts_of(cert));
	set_time(d, "valid_from", X509_get0_notBefore(cert));
	set_time(d, "expires", X509_get0_notAfter(cert));
	json_object_set_new(d, "days_left",
			    json_integer(certs_days_left(cert)));
	set_issuer(d, cert);
	set_serial(d, cert);
	return d;
}

static bool is_limit(const char *key)
{
	return strcmp(key, "namespaces") == 0 || strcmp(key, "uids") == 0;
}

/* Copies the member `key` in a form for people: dates without the time; "all"
 * if there is no limit to namespaces or users. */
static void copy(json_t *to, const json_t *from, const char *key)
{
	json_t *value = json_object_get(from, key);

	if (is_limit(key) && json_array_size(value) == 0)
		json_object_set_new(to, key, json_string("all"));
	else if (strcmp(key, "expires") == 0)
		json_object_set_new(to, key,
				    json_stringn(json_string_value(value),
						 strlen("2026-11-25")));
	else if (value)
		json_object_set(to, key, value);
}

static int soonest(const void *a, const void *b)
{
	const json_t *const *x = a, *const *y = b;

	return strcmp(json_string_value(json_object_get(*x, "expires")),
		      json_string_value(json_object_get(*y, "expires")));
}

static void sort(json_t *rows)
{
	size_t n = json_array_size(rows);
	json_t **all = calloc(n ? n : 1, sizeof(json_t *));

	for (size_t i = 0; all && i < n; i++)
		all[i] = json_incref(json_array_get(rows, i));
	if (all)
		qsort(all, n, sizeof(json_t *), soonest);
	for (size_t i = 0; all && i < n; i++)
		json_array_set_new(rows, i, all[i]);
	free(all);
}

void certs_print_table(json_t *rows)
{
	static const char *const keys[] = {
		"name", "role", "hosts", "namespaces", "uids", "expires",
		"days_left", "serial",
	};
	json_t *table = json_array(), *row;
	size_t i;

	sort(rows);
	json_array_foreach(rows, i, row) {
		json_t *shown = json_object();

		for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
			copy(shown, row, keys[k]);
		json_array_append_new(table, shown);
	}
	cmd_print_table(table, stdout);
	json_decref(table);
}

void certs_print_one(const json_t *description)
{
	json_t *shown = json_copy((json_t *)description);

	copy(shown, description, "namespaces");
	copy(shown, description, "uids");
	cmd_print_flat(shown, stdout);
	json_decref(shown);
}
