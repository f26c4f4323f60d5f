#include "tests/unit/tls_make.h"

#include "pool/tls/tls_id.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static EVP_PKEY *key;

static int setup(void **state)
{
	(void)state;
	key = tls_make_key();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	EVP_PKEY_free(key);
	return 0;
}

static X509 *make(const char *cn, const struct tls_san *sans, size_t n)
{
	return tls_make_cert(key, cn, sans, n, NULL, NULL);
}

static void reads(const char *cn, const struct tls_san *sans, size_t n,
		  struct pool_tls_id *ret)
{
	X509 *cert = make(cn, sans, n);
	const char *why = "";

	if (pool_tls_id_read(cert, ret, &why))
		fail_msg("refused: %s", why);
	X509_free(cert);
}

/* why: expected in the error text. */
static void refused(const struct tls_san *sans, size_t n, const char *why)
{
	X509 *cert = make("x", sans, n);
	struct pool_tls_id id = { .ndirs = 77 };
	const char *message = NULL;

	assert_int_equal(-EINVAL, pool_tls_id_read(cert, &id, &message));
	assert_int_equal(77, id.ndirs);
	assert_non_null(message);
	if (!strstr(message, why))
		fail_msg("\"%s\" is not in \"%s\"", why, message);
	X509_free(cert);
}
#define REFUSED(why, ...)                                  \
	do {                                               \
		struct tls_san sans_[] = { __VA_ARGS__ };  \
		refused(sans_, COUNT(sans_), why);         \
	} while (0)

static void cluster_role_and_directories_are_read(void **state)
{
	struct tls_san sans[] = {
		TLS_DNS("gpu1"),
		TLS_URI("spiffe://example.org/ns/llm/sa/kvpool"),
		TLS_URI("kvpool://prod.eu-1_b/client/models/llama"),
		TLS_URI("kvpool://prod.eu-1_b/client/team%20a/%C3%BC%25"),
	};
	struct pool_tls_id id;

	(void)state;
	reads("engine 1", sans, COUNT(sans), &id);
	assert_string_equal("prod.eu-1_b", id.cluster);
	assert_int_equal(POOL_ROLE_CLIENT, id.role);
	assert_int_equal(2, id.ndirs);
	assert_string_equal("models/llama", id.dirs[0]);
	assert_string_equal("team a/\xc3\xbc%", id.dirs[1]);
	assert_string_equal("engine 1", id.name);
	pool_tls_id_fini(&id);
	assert_int_equal(0, id.ndirs);
}

static void users_are_read(void **state)
{
	struct tls_san sans[] = {
		TLS_URI("kvpool://c/client/a?uid=1000,0,4294967294"),
		TLS_URI("kvpool://c/client/b?uid=0,4294967294,1000"),
	};
	struct tls_san plain = TLS_URI("kvpool://c/node?uid=7");
	struct pool_tls_id id, other = { .nuids = 0 };
	char buf[POOL_TLS_UIDS_URI];

	(void)state;
	reads("x", sans, COUNT(sans), &id);
	assert_int_equal(2, id.ndirs);
	assert_string_equal("a", id.dirs[0]);
	assert_int_equal(3, id.nuids);
	assert_true(pool_tls_id_speaks_for(&id, 1000));
	assert_true(pool_tls_id_speaks_for(&id, 0));
	assert_true(pool_tls_id_speaks_for(&id, 4294967294));
	assert_false(pool_tls_id_speaks_for(&id, 1));
	assert_string_equal("0,4294967294,1000", pool_tls_id_uids(&id, buf));
	assert_false(pool_tls_id_same_uids(&id, &other));
	assert_false(pool_tls_id_same_uids(&other, &id));
	pool_tls_id_fini(&id);
	reads("x", &plain, 1, &id);
	assert_int_equal(0, id.ndirs);
	assert_int_equal(1, id.nuids);
	pool_tls_id_fini(&id);
	assert_true(pool_tls_id_speaks_for(&other, 5));
	assert_true(pool_tls_id_speaks_for(NULL, 5));
}

static void users_that_are_no_list_are_refused(void **state)
{
	(void)state;
	REFUSED("list of users", TLS_URI("kvpool://c/client?"));
	REFUSED("list of users", TLS_URI("kvpool://c/client?uid="));
	REFUSED("list of users", TLS_URI("kvpool://c/client?uid=1,"));
	REFUSED("list of users", TLS_URI("kvpool://c/client?uid=,1"));
	REFUSED("list of users", TLS_URI("kvpool://c/client?uid=1&uid=2"));
	REFUSED("list of users", TLS_URI("kvpool://c/client?uid=01"));
	REFUSED("list of users", TLS_URI("kvpool://c/client?uid=-1"));
	REFUSED("list of users", TLS_URI("kvpool://c/client?uid=4294967295"));
	REFUSED("list of users", TLS_URI("kvpool://c/client?uid=42949672960"));
	REFUSED("list of users", TLS_URI("kvpool://c/client?gid=1"));
	REFUSED("list of users", TLS_URI("kvpool://c/client/a?uid=1?uid=2"));
	REFUSED("list of users",
		TLS_URI("kvpool://c/client"
			"?uid=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"));
	REFUSED("different users", TLS_URI("kvpool://c/client/a?uid=1"),
		TLS_URI("kvpool://c/client/b?uid=2"));
	REFUSED("different users", TLS_URI("kvpool://c/client/a?uid=1"),
		TLS_URI("kvpool://c/client/b"));
	REFUSED("different users", TLS_URI("kvpool://c/client/a"),
		TLS_URI("kvpool://c/client/b?uid=2"));
	REFUSED("limits a master", TLS_URI("kvpool://c/admin?uid=1"));
	REFUSED("limits a master", TLS_URI("kvpool://c/master?uid=1"));
	REFUSED("without a role", TLS_URI("kvpool://c/?uid=1"));
}

static void each_role_is_read(void **state)
{
	static const struct tls_san sans[POOL_ROLES] = {
		[POOL_ROLE_MASTER] = TLS_URI("kvpool://c/master"),
		[POOL_ROLE_NODE] = TLS_URI("kvpool://c/node"),
		[POOL_ROLE_CLIENT] = TLS_URI("kvpool://c/client"),
		[POOL_ROLE_ADMIN] = TLS_URI("kvpool://c/admin"),
	};
	struct pool_tls_id id;
	enum pool_role role;

	(void)state;
	for (unsigned int i = 0; i < POOL_ROLES; i++) {
		reads("x", &sans[i], 1, &id);
		assert_int_equal(i, id.role);
		assert_int_equal(0, id.ndirs);
		assert_true(pool_role_parse(pool_role_name(id.role), &role));
		assert_int_equal(i, role);
	}
	assert_false(pool_role_parse("Master", &role));
	assert_false(pool_role_parse("masters", &role));
	assert_false(pool_role_parse("", &role));
}

static void a_certificate_without_a_uri_of_ours_is_refused(void **state)
{
	(void)state;
	refused(NULL, 0, "has no alternative names");
	REFUSED("not one of a pool", TLS_DNS("gpu1"));
	REFUSED("not one of a pool", TLS_URI("spiffe://c/node"));
	REFUSED("not one of a pool", TLS_URI(""), TLS_DNS(""));
	/* Only a URI counts. */
	REFUSED("not one of a pool", TLS_DNS("kvpool://c/node"));
}

static void two_clusters_or_two_roles_are_refused(void **state)
{
	(void)state;
	REFUSED("two clusters", TLS_URI("kvpool://c/node"),
		TLS_URI("kvpool://d/node"));
	REFUSED("two clusters", TLS_URI("kvpool://c/node"),
		TLS_URI("kvpool://cc/node"));
	REFUSED("two roles", TLS_URI("kvpool://c/client"),
		TLS_URI("kvpool://c/admin"));
	REFUSED("with and without", TLS_URI("kvpool://c/client/a"),
		TLS_URI("kvpool://c/client"));
	REFUSED("with and without", TLS_URI("kvpool://c/client"),
		TLS_URI("kvpool://c/client/a"));
}

static void a_wrong_uri_of_ours_is_not_ignored(void **state)
{
	static const char fit[] = "kvpool://"
		"0123456789012345678901234567890123456789012345678901234567890"
		"12/node";
	static const char over[] = "kvpool://"
		"0123456789012345678901234567890123456789012345678901234567890"
		"123/node";
	struct tls_san longest = TLS_URI(fit);
	struct pool_tls_id id;

	(void)state;
	reads("x", &longest, 1, &id);
	assert_int_equal(POOL_CLUSTER_MAX, strlen(id.cluster));
	REFUSED("cluster", TLS_URI(over));
	REFUSED("cluster", TLS_URI("kvpool:///node"));
	REFUSED("cluster", TLS_URI("kvpool://a b/node"));
	REFUSED("cluster", TLS_URI("kvpool://c:7070/node"));
	REFUSED("cluster", TLS_URI("kvpool://u@c/node"));
	REFUSED("cluster", TLS_URI("kvpool://c%2Fnode/node"));
	REFUSED("cluster", TLS_URI("kvpool://c\xc3\xbc/node"));
	REFUSED("without a role", TLS_URI("kvpool://c"));
	REFUSED("without a role", TLS_URI("kvpool://c/"));
	REFUSED("without a role", TLS_URI("kvpool://c/root"));
	REFUSED("without a role", TLS_URI("kvpool://c/NODE"));
	REFUSED("list of users", TLS_URI("kvpool://c/node?x"));
	REFUSED("without a role", TLS_URI("kvpool://c/node#x"));
	REFUSED("does not begin", TLS_URI("kvpool:c/node"));
	REFUSED("does not begin", TLS_URI("KVPOOL://c/node"));
	/* A valid URI beside it makes no difference. */
	REFUSED("without a role", TLS_URI("kvpool://c/node"),
		TLS_URI("kvpool://c/boss"));
}

static void a_nul_in_a_name_is_refused(void **state)
{
	(void)state;
	REFUSED("NUL", TLS_URI("kvpool://c/node\0/x"));
	REFUSED("NUL", TLS_URI("kvpool://c\0/node"));
	REFUSED("NUL", TLS_URI("kvpool://c/node"), TLS_URI("other:\0"));
	REFUSED("NUL", TLS_URI("kvpool://c/node"),
		TLS_DNS("gpu1\0.evil.example"));
}

static void directories_that_could_lead_elsewhere_are_refused(void **state)
{
	static const char *const bad[] = {
		"", "/", "a/", "/a", "a//b", ".", "..", "a/..", "../a",
		"a/../b", "a/./b", "%2e%2E/b", "a/%2E", "a%2Fb", "a%2fb",
		"a%00b", "a%", "a%4", "a%4g", "a%g4", "a b", "a\nb", "?uid=1",
		"a#b", "a\\b", "\xc3\xbc", "a%2Fb/c", "%00",
	};
	char uri[64];

	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++) {
		struct tls_san san = { GEN_URI, uri, 0 };

		san.len = snprintf(uri, sizeof(uri), "kvpool://c/client/%s",
				   bad[i]);
		refused(&san, 1, "directory is not valid");
	}
}

static void only_what_may_be_limited_is(void **state)
{
	(void)state;
	REFUSED("only a client or a node", TLS_URI("kvpool://c/master/a"));
	REFUSED("only a client or a node", TLS_URI("kvpool://c/admin/a"));
	REFUSED("only a client or a node", TLS_URI("kvpool://c/admin/"));
}

static void directories_are_bounded(void **state)
{
	char uris[POOL_TLS_DIRS_MAX + 1][32];
	struct tls_san sans[POOL_TLS_DIRS_MAX + 1];
	struct pool_tls_id id;

	(void)state;
	for (size_t i = 0; i < COUNT(sans); i++) {
		int n = snprintf(uris[i], sizeof(uris[i]),
				 "kvpool://c/node/d%zu", i);

		sans[i] = (struct tls_san){ GEN_URI, uris[i], n };
	}
	reads("x", sans, POOL_TLS_DIRS_MAX, &id);
	assert_int_equal(POOL_TLS_DIRS_MAX, id.ndirs);
	pool_tls_id_fini(&id);
	refused(sans, COUNT(sans), "too many");
}

static char *filled(const char *begin, size_t n, const char *piece)
{
	char *text = malloc(strlen(begin) + n * strlen(piece) + 1);

	assert_non_null(text);
	strcpy(text, begin);
	for (char *end = text + strlen(text); n--; end += strlen(piece))
		strcpy(end, piece);
	return text;
}

static void filled_is_refused(size_t n, const char *piece, const char *why)
{
	char *uri = filled("kvpool://c/node/", n, piece);
	struct tls_san san = { GEN_URI, uri, (int)strlen(uri) };

	refused(&san, 1, why);
	free(uri);
}

static void lengths_are_bounded(void **state)
{
	char *uri = filled("kvpool://c/node/a", POOL_TLS_DIR_MAX / 2, "/a");
	struct tls_san san = { GEN_URI, uri, (int)strlen(uri) };
	struct pool_tls_id id;

	(void)state;
	reads("x", &san, 1, &id);
	assert_int_equal(POOL_TLS_DIR_MAX, strlen(id.dirs[0]));
	pool_tls_id_fini(&id);
	free(uri);
	filled_is_refused(POOL_TLS_COMPONENT_MAX + 1, "a", "directory");
	filled_is_refused(POOL_TLS_DIR_MAX, "a/a", "directory");
	filled_is_refused(POOL_TLS_URI_MAX, "a/a", "too long");
}

static void names_are_printable(void **state)
{
	struct tls_san sans[] = {
		TLS_URI("kvpool://c/node"), TLS_IP("\x0a\0\0\2"),
		TLS_DNS("gpu1\x1b[2J"),
	};
	struct tls_san mapped[] = {
		TLS_URI("kvpool://c/node"),
		TLS_IP("\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\2"),
	};
	struct pool_tls_id id;
	char *longest = filled("", 64, "\xc3\xbc");

	(void)state;
	reads("a\nERROR b\x1b[2J\x7f\xc3\xbc", sans, 1, &id);
	assert_string_equal("a?ERROR b?[2J???", id.name);
	reads(longest, sans, 1, &id);
	assert_int_equal(POOL_TLS_NAME_MAX, strlen(id.name));
	reads(NULL, sans, 3, &id);
	assert_string_equal("10.0.0.2", id.name);
	sans[1] = sans[2];
	reads(NULL, sans, 2, &id);
	assert_string_equal("gpu1?[2J", id.name);
	reads(NULL, mapped, 2, &id);
	assert_string_equal("fd00::2", id.name);
	reads(NULL, sans, 1, &id);
	assert_string_equal("unnamed", id.name);
	free(longest);
}

static void alternative_names_twice_are_refused(void **state)
{
	struct tls_san sans[] = { TLS_URI("kvpool://c/client"),
				  TLS_URI("kvpool://c/admin") };
	X509 *cert = make("x", sans, 1);
	struct pool_tls_id id;
	const char *why = "";

	(void)state;
	tls_add_sans(cert, sans + 1, 1);
	tls_sign(cert, key);
	assert_int_equal(-EINVAL, pool_tls_id_read(cert, &id, &why));
	assert_non_null(strstr(why, "cannot be read"));
	X509_free(cert);
}

static void hosts_are_names_or_addresses(void **state)
{
	static const char *const good[] = {
		"gpu1.example.org", "GPU1.Example.ORG", "gpu1.example.org.",
		"gpu1", "10.0.0.2", "fd00::2", "FD00:0::2", "fe80::1",
		"fe80::1%eth0",
	};
	static const char *const bad[] = {
		"", ".", "gpu2", "gpu", "example.org", ".example.org",
		"x.gpu1", "10.0.0.3", "10.0.0", "010.0.0.2", "10.0.0.2%x",
		"[fd00::2]", "fd00::3", "%eth0", "common", "a.wild.example",
		"10.0.0.4", "gpu1:7070",
	};
	struct tls_san sans[] = {
		TLS_URI("kvpool://c/node"), TLS_DNS("gpu1.example.org"),
		TLS_DNS("gpu1"), TLS_IP("\x0a\0\0\2"),
		TLS_IP("\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\2"),
		TLS_IP("\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\1"),
		TLS_DNS("*.wild.example"), TLS_DNS("10.0.0.4"),
	};
	X509 *cert = make("common", sans, COUNT(sans));

	(void)state;
	for (size_t i = 0; i < COUNT(good); i++)
		if (!pool_tls_has_host(cert, good[i]))
			fail_msg("%s", good[i]);
	for (size_t i = 0; i < COUNT(bad); i++)
		if (pool_tls_has_host(cert, bad[i]))
			fail_msg("%s", bad[i]);
	X509_free(cert);
}

static void the_common_name_is_no_host(void **state)
{
	struct tls_san sans[] = { TLS_URI("kvpool://c/node") };
	X509 *cert = make("gpu1", sans, 1);

	(void)state;
	assert_false(pool_tls_has_host(cert, "gpu1"));
	X509_free(cert);
}

static void is_uri(const char *dir, const char *text)
{
	char uri[POOL_TLS_URI_MAX + 1];
	struct tls_san san = { GEN_URI, uri, 0 };
	struct pool_tls_id id;

	assert_int_equal(0, pool_tls_uri("c", POOL_ROLE_CLIENT, dir, uri,
					 sizeof(uri)));
	if (text)
		assert_string_equal(text, uri);
	san.len = (int)strlen(uri);
	reads("x", &san, 1, &id);
	if (!dir)
		assert_int_equal(0, id.ndirs);
	else
		assert_string_equal(dir + (dir[0] == '/'), id.dirs[0]);
	pool_tls_id_fini(&id);
}

static void what_is_written_is_read(void **state)
{
	char all[256], *longest = filled("\xff", POOL_TLS_DIR_MAX / 2, "/\xff");
	int n = 0;

	(void)state;
	for (int c = 1; c < 256; c++)
		if (c != '/')
			all[n++] = (char)c;
	all[n] = '\0';
	is_uri(NULL, "kvpool://c/client");
	is_uri("a", "kvpool://c/client/a");
	is_uri("/a/b", "kvpool://c/client/a/b");
	is_uri("a b%", "kvpool://c/client/a%20b%25");
	is_uri("llama@8=1", "kvpool://c/client/llama@8=1");
	is_uri("...", "kvpool://c/client/...");
	is_uri(all, NULL);
	is_uri(longest, NULL);
	free(longest);
}

static void users_are_written(void **state)
{
	static const uint32_t uids[] = { 1000, 0 };
	char uri[POOL_TLS_URI_MAX + 1] = "kvpool://c/client/a%3F";

	(void)state;
	assert_int_equal(0, pool_tls_uri_uids(uri, sizeof(uri), uids, 0));
	assert_string_equal("kvpool://c/client/a%3F", uri);
	assert_int_equal(-ENAMETOOLONG, pool_tls_uri_uids(uri, 33, uids, 2));
	strcpy(uri, "kvpool://c/client/a%3F");
	assert_int_equal(0, pool_tls_uri_uids(uri, 34, uids, 2));
	assert_string_equal("kvpool://c/client/a%3F?uid=1000,0", uri);
}

static void what_cannot_be_read_is_not_written(void **state)
{
	static const char *const bad[] = { "",	  "/",	  "//",	  "a//b",
					   "a//", "..",	  "a/..", "./a" };
	char uri[POOL_TLS_URI_MAX + 1], *over;

	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_int_equal(-EINVAL,
				 pool_tls_uri("c", POOL_ROLE_NODE, bad[i], uri,
					      sizeof(uri)));
	assert_int_equal(-EINVAL, pool_tls_uri("c", POOL_ROLE_ADMIN, "a", uri,
					       sizeof(uri)));
	assert_int_equal(-EINVAL, pool_tls_uri("", POOL_ROLE_ADMIN, NULL, uri,
					       sizeof(uri)));
	assert_int_equal(-ENAMETOOLONG,
			 pool_tls_uri("c", POOL_ROLE_NODE, NULL, uri, 15));
	assert_int_equal(0, pool_tls_uri("c", POOL_ROLE_NODE, "a/", uri, 18));
	assert_string_equal("kvpool://c/node/a", uri);
	over = filled("a", POOL_TLS_DIR_MAX / 2 + 1, "/a");
	assert_int_equal(-ENAMETOOLONG, pool_tls_uri("c", POOL_ROLE_NODE, over,
						     uri, sizeof(uri)));
	free(over);
}

static void a_path_is_inside_above_or_elsewhere(void **state)
{
	static char *dirs[] = { "a", "models/llama" };
	static const struct {
		const char *path;
		enum pool_reach reach;
	} want[] = {
		{ "", POOL_ABOVE },
		{ "a", POOL_TOP },
		{ "a/x", POOL_INSIDE },
		{ "a/x/y", POOL_INSIDE },
		{ "ab", POOL_OUTSIDE },
		{ "ab/x", POOL_OUTSIDE },
		{ "b", POOL_OUTSIDE },
		{ "mod", POOL_OUTSIDE },
		{ "models", POOL_ABOVE },
		{ "models/llam", POOL_OUTSIDE },
		{ "models/llama", POOL_TOP },
		{ "models/llama/x", POOL_INSIDE },
		{ "models/llama2", POOL_OUTSIDE },
		{ "models/x", POOL_OUTSIDE },
	};
	struct pool_tls_id id = { .ndirs = 2 }, all = { .ndirs = 0 };

	(void)state;
	memcpy(id.dirs, dirs, sizeof(dirs));
	for (size_t i = 0; i < COUNT(want); i++) {
		if (pool_tls_id_reach(&id, want[i].path,
				      strlen(want[i].path)) != want[i].reach)
			fail_msg("\"%s\"", want[i].path);
		assert_int_equal(POOL_INSIDE,
				 pool_tls_id_reach(&all, want[i].path,
						   strlen(want[i].path)));
	}
	assert_int_equal(POOL_INSIDE, pool_tls_id_reach(NULL, "x", 1));
	assert_int_equal(POOL_ABOVE, pool_tls_id_reach(&id, NULL, 0));
}

static void the_nearest_of_several_directories_counts(void **state)
{
	static char *dirs[] = { "a/b/c", "a" };
	struct pool_tls_id id = { .ndirs = 2 };

	(void)state;
	memcpy(id.dirs, dirs, sizeof(dirs));
	assert_int_equal(POOL_TOP, pool_tls_id_reach(&id, "a", 1));
	assert_int_equal(POOL_INSIDE, pool_tls_id_reach(&id, "a/b", 3));
	assert_int_equal(POOL_INSIDE, pool_tls_id_reach(&id, "a/b/c", 5));
}

static void directories_are_shown_as_a_list(void **state)
{
	static char *dirs[] = { "a", "models/llama" };
	struct pool_tls_id id = { .ndirs = 2 };
	char buf[POOL_TLS_DIRS_TEXT], *full;

	(void)state;
	memcpy(id.dirs, dirs, sizeof(dirs));
	assert_string_equal("a, models/llama", pool_tls_id_dirs(&id, buf));
	full = filled("", POOL_TLS_DIR_MAX, "x");
	id.dirs[0] = full;
	assert_int_equal(POOL_TLS_DIRS_TEXT - 1,
			 strlen(pool_tls_id_dirs(&id, buf)));
	free(full);
	id.ndirs = 0;
	assert_string_equal("", pool_tls_id_dirs(&id, buf));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(cluster_role_and_directories_are_read),
		T(users_are_read),
		T(users_that_are_no_list_are_refused),
		T(each_role_is_read),
		T(a_certificate_without_a_uri_of_ours_is_refused),
		T(two_clusters_or_two_roles_are_refused),
		T(a_wrong_uri_of_ours_is_not_ignored),
		T(a_nul_in_a_name_is_refused),
		T(directories_that_could_lead_elsewhere_are_refused),
		T(only_what_may_be_limited_is),
		T(directories_are_bounded),
		T(lengths_are_bounded),
		T(names_are_printable),
		T(alternative_names_twice_are_refused),
		T(hosts_are_names_or_addresses),
		T(the_common_name_is_no_host),
		T(what_is_written_is_read),
		T(users_are_written),
		T(what_cannot_be_read_is_not_written),
		T(a_path_is_inside_above_or_elsewhere),
		T(the_nearest_of_several_directories_counts),
		T(directories_are_shown_as_a_list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
