/*
 * https to etcd: which certificates are accepted, that replaced files are read
 * again, and the errors for bad files.
 */
#include "tests/lib/unit.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_etcd.h"
#include "master/etcd.h"
#include "tests/unit/tls_pki.h"

static struct pki_ca ca, other;
static struct fake_etcd fake, spare;
static uv_loop_t loop;
static struct etcd *etcd;
static struct pool_metrics *metrics;
static char *server, *client; /* directories */
static struct etcd_access access_to;
static char ca_file[128], cert_file[128], key_file[128], password_file[128];
static char why[ETCD_WHY];

static const struct pki_want for_ip = { .host = { "127.0.0.1" } };
static const struct pki_want for_name = { .host = { "elsewhere" } };

static int setup(void **state)
{
	(void)state;
	alarm(60);
	pki_ca_make(&ca);
	pki_ca_make(&other);
	server = pki_dir_make(&ca, &ca, NULL, &for_ip);
	client = pki_dir_make(&ca, &ca, NULL, &for_name);
	snprintf(ca_file, sizeof(ca_file), "%s/ca.crt", client);
	snprintf(cert_file, sizeof(cert_file), "%s/tls.crt", client);
	snprintf(key_file, sizeof(key_file), "%s/tls.key", client);
	snprintf(password_file, sizeof(password_file), "%s/password", client);
	access_to = (struct etcd_access){ .urls = "https://a",
					  .ca = ca_file,
					  .cert = cert_file,
					  .key = key_file };
	return uv_loop_init(&loop);
}

static void on_closed(void *arg)
{
	*(bool *)arg = true;
}

static int teardown(void **state)
{
	bool closed = false;

	(void)state;
	if (etcd) {
		etcd_close(etcd, on_closed, &closed);
		unit_run_until(&loop, closed);
		pool_metrics_close(metrics);
	}
	etcd = NULL;
	assert_int_equal(0, uv_loop_close(&loop));
	if (fake.mhd)
		fake_etcd_stop(&fake);
	fake.mhd = NULL;
	unlink(password_file);
	pki_dir_free(server);
	pki_dir_free(client);
	pki_ca_free(&ca);
	pki_ca_free(&other);
	alarm(0);
	return 0;
}

static void slurp(const char *name, char *to, size_t cap)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", server, name);
	f = fopen(path, "r");
	assert_non_null(f);
	to[fread(to, 1, cap - 1, f)] = 0;
	fclose(f);
}

/* With the certificate that is in the directory `server`. */
static void start_at(uint16_t port)
{
	char key[4096], cert[4096];

	slurp("tls.key", key, sizeof(key));
	slurp("tls.crt", cert, sizeof(cert));
	fake_etcd_start_at(&fake, port, key, cert);
}

static void restart(const struct pki_ca *signer)
{
	uint16_t port = MHD_get_daemon_info(fake.mhd,
					    MHD_DAEMON_INFO_BIND_PORT)->port;

	pki_dir_write(server, signer, signer, NULL, &for_ip);
	fake_etcd_stop(&fake);
	start_at(port);
}

static void open_at(const char *urls)
{
	access_to.urls = urls;
	assert_int_equal(0, etcd_access_check(&access_to, why));
	metrics = pool_metrics_open();
	assert_int_equal(0, etcd_open(&loop, &access_to, metrics, &etcd));
}

static int ask(void)
{
	json_t *answer = NULL;
	json_t *body = etcd_txn(json_array(),
				json_pack("[o]",
					  etcd_op_get(etcd_slice("k", 1))),
				NULL);
	int err = etcd_call(etcd, ETCD_TXN, body, 5000, &answer);

	json_decref(answer);
	return err;
}

static bool page_has(const char *line)
{
	char *page;
	size_t len;
	bool found;

	assert_int_equal(0, pool_metrics_print(metrics, &page, &len));
	found = strstr(page, line);
	free(page);
	return found;
}

static void must_refuse(const char *part)
{
	assert_int_equal(-EKEYREJECTED, ask());
	if (!strstr(etcd_error(etcd), part))
		fail_msg("\"%s\" not in \"%s\"", part, etcd_error(etcd));
}

/* ---- connections ---- */

static void a_certificate_of_the_ca_for_the_host_is_accepted(void **state)
{
	(void)state;
	start_at(0);
	open_at(fake.url);
	assert_int_equal(0, ask());
	assert_int_equal(0, ask());
	assert_int_equal(2, fake.asked);
	assert_true(page_has("\nkvpool_etcd_tls 1\n"));
	assert_false(page_has("\nkvpool_etcd_certificate_expires_seconds 0\n"));
}

static void that_of_another_ca_is_not(void **state)
{
	(void)state;
	pki_dir_write(server, &other, &other, NULL, &for_ip);
	start_at(0);
	open_at(fake.url);
	must_refuse("--etcd-ca must be");
	assert_int_equal(0, fake.asked);
}

static void nor_that_of_another_host(void **state)
{
	(void)state;
	pki_dir_write(server, &ca, &ca, NULL, &for_name);
	start_at(0);
	open_at(fake.url);
	must_refuse("not for this host");
	assert_int_equal(0, fake.asked);
}

static void nor_one_that_has_expired(void **state)
{
	struct pki_want expired = for_ip;

	(void)state;
	expired.from_s = -7200;
	expired.to_s = -3600;
	pki_dir_write(server, &ca, &ca, NULL, &expired);
	start_at(0);
	open_at(fake.url);
	must_refuse("certificate has expired");
}

static void without_a_file_of_cas_the_machines_are_wanted(void **state)
{
	(void)state;
	start_at(0);
	access_to.ca = NULL;
	open_at(fake.url);
	must_refuse("--etcd-ca (not given)");
}

static void another_member_is_asked_instead(void **state)
{
	char urls[160], key[4096], cert[4096];

	(void)state;
	slurp("tls.key", key, sizeof(key));
	slurp("tls.crt", cert, sizeof(cert));
	fake_etcd_start_at(&spare, 0, key, cert);
	pki_dir_write(server, &other, &other, NULL, &for_ip);
	start_at(0);
	snprintf(urls, sizeof(urls), "%s,%s", fake.url, spare.url);
	open_at(urls);
	assert_int_equal(0, ask());
	assert_int_equal(0, fake.asked);
	assert_int_equal(1, spare.asked);
	fake_etcd_stop(&spare);
}

/* By default libcurl caches CAs for a day. */
static void another_ca_is_trusted_when_its_file_is_replaced(void **state)
{
	(void)state;
	start_at(0);
	open_at(fake.url);
	assert_int_equal(0, ask());
	restart(&other);
	must_refuse("--etcd-ca must be");
	pki_dir_write(client, &other, &other, NULL, &for_name);
	assert_int_equal(0, ask());
	restart(&ca);
	must_refuse("--etcd-ca must be");
}

static void a_connection_ends_before_it_is_much_older_than_files(void **state)
{
	uint64_t slept = 0;

	(void)state;
	access_to.conn_life_s = 1;
	start_at(0);
	open_at(fake.url);
	assert_int_equal(0, ask());
	pki_dir_write(client, &other, &other, NULL, &for_name);
	/* The existing connection is used until its maximum age. */
	while (!ask() && slept < 10000)
		usleep(100000), slept += 100;
	assert_in_range(slept, 500, 9000);
	must_refuse("--etcd-ca must be");
}

static void files_that_do_not_fit_any_more_are_named(void **state)
{
	(void)state;
	start_at(0);
	open_at(fake.url);
	assert_int_equal(0, chmod(key_file, 0644));
	must_refuse("chmod 600");
	assert_non_null(strstr(etcd_error(etcd), key_file));
	assert_int_equal(0, fake.asked);
	assert_int_equal(0, chmod(key_file, 0600));
	assert_int_equal(0, ask());
}

/* ---- files ---- */

static void must_be_wrong(const char *part)
{
	assert_true(etcd_access_check(&access_to, why) < 0);
	if (!strstr(why, part))
		fail_msg("\"%s\" not in \"%s\"", part, why);
}

static void files_are_judged(void **state)
{
	char path[160];

	(void)state;
	assert_int_equal(0, etcd_access_check(&access_to, why));
	assert_int_equal(0, chmod(key_file, 0640));
	must_be_wrong("--etcd-key: ");
	must_be_wrong("its mode is 0640");
	assert_int_equal(0, chmod(key_file, 0400));
	assert_int_equal(0, etcd_access_check(&access_to, why));
	access_to.ca = "/nonexistent";
	must_be_wrong("--etcd-ca: /nonexistent: cannot be opened");
	access_to.ca = client;
	must_be_wrong("is not a regular file");
	access_to.ca = key_file;
	must_be_wrong("no certificate in it");
	access_to.ca = ca_file;
	access_to.key = cert_file;
	assert_int_equal(0, chmod(cert_file, 0600));
	must_be_wrong("no private key in it");
	snprintf(path, sizeof(path), "%s/tls.key", server);
	access_to.key = path;
	must_be_wrong("is not the key of");
}

static void write_password(const char *bytes, size_t n)
{
	FILE *f = fopen(password_file, "w");

	assert_non_null(f);
	assert_int_equal(0, chmod(password_file, 0600));
	assert_int_equal(n, fwrite(bytes, 1, n, f));
	fclose(f);
}

static void must_read(const char *bytes, size_t n, const char *want)
{
	char password[ETCD_PASSWORD_MAX + 1];

	write_password(bytes, n);
	assert_int_equal(0, etcd_password_read(&access_to, password, why));
	assert_string_equal(want, password);
}

static void passwords_are_judged(void **state)
{
	char longest[ETCD_PASSWORD_MAX + 3];

	(void)state;
	access_to.user = "u";
	access_to.password_file = password_file;
	must_be_wrong("--etcd-password-file: ");
	must_read("secret", 6, "secret");
	must_read("secret\n", 7, "secret");
	must_read("secret\r\n", 8, "secret");
	must_read("two\n\n", 5, "two\n");
	must_read(" \xc3\xa4 \r", 5, " \xc3\xa4 \r");
	memset(longest, 'x', sizeof(longest));
	longest[ETCD_PASSWORD_MAX] = '\n';
	write_password(longest, ETCD_PASSWORD_MAX + 1);
	assert_int_equal(0, etcd_access_check(&access_to, why));
	write_password(longest + 1, 0);
	must_be_wrong("is empty");
	write_password("\n", 1);
	must_be_wrong("is empty");
	write_password("a\0b", 3);
	must_be_wrong("has a NUL in it");
	memset(longest, 'x', sizeof(longest));
	write_password(longest, ETCD_PASSWORD_MAX + 1);
	must_be_wrong("is too long");
	write_password(longest, sizeof(longest));
	must_be_wrong("is too long");
	assert_int_equal(0, chmod(password_file, 0604));
	must_be_wrong("chmod 600");
}

static void names_of_users_are_judged(void **state)
{
	char longest[ETCD_USER_MAX + 2] = "";

	(void)state;
	memset(longest, 'x', ETCD_USER_MAX);
	assert_true(etcd_user_valid("kv pool"));
	assert_true(etcd_user_valid("\xc3\xa4"));
	assert_true(etcd_user_valid(longest));
	longest[ETCD_USER_MAX] = 'x';
	assert_false(etcd_user_valid(longest));
	assert_false(etcd_user_valid(""));
	assert_false(etcd_user_valid("a\nb"));
	assert_false(etcd_user_valid("\xff"));
}

static void where_a_password_may_be_sent_is_judged(void **state)
{
	(void)state;
	assert_true(etcd_urls_private("https://a,https://b"));
	assert_true(etcd_urls_private("http://127.0.0.1:1,http://localhost"));
	assert_true(etcd_urls_private("http://[::1]:1/"));
	assert_false(etcd_urls_private("http://127.0.0.1:1,http://10.0.0.1"));
	assert_false(etcd_urls_private("http://a"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_certificate_of_the_ca_for_the_host_is_accepted),
		T(that_of_another_ca_is_not),
		T(nor_that_of_another_host),
		T(nor_one_that_has_expired),
		T(without_a_file_of_cas_the_machines_are_wanted),
		T(another_member_is_asked_instead),
		T(another_ca_is_trusted_when_its_file_is_replaced),
		T(a_connection_ends_before_it_is_much_older_than_files),
		T(files_that_do_not_fit_any_more_are_named),
		T(files_are_judged),
		T(passwords_are_judged),
		T(names_of_users_are_judged),
		T(where_a_password_may_be_sent_is_judged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
