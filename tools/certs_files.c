#include "tools/certs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/pem.h>

#include "pool/tls/tls.h"

int certs_error(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fprintf(stderr, "kvpool: certs: ");
	vfprintf(stderr, fmt, args);
	fputc('\n', stderr);
	va_end(args);
	return -EINVAL;
}

int certs_failed(const char *what)
{
	unsigned long err = ERR_peek_error();

	return certs_error("%s: %s", what,
			   err ? ERR_reason_error_string(err) : "no memory");
}

int certs_path(char *to, const char *dir, const char *name)
{
	if (snprintf(to, PATH_MAX, "%s/%s", dir, name) < PATH_MAX)
		return 0;
	return certs_error("%.64s...: the path is too long", dir);
}

bool certs_exists(const char *dir, const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	return !certs_path(path, dir, name) && !lstat(path, &st);
}

int certs_dir_make(const char *dir)
{
	if (!mkdir(dir, 0700) || errno == EEXIST)
		return 0;
	return certs_error("%s: cannot be made: %s", dir, strerror(errno));
}

/* The new name must survive a crash, too. */
static int sync_dir_of(const char *path)
{
	char dir[PATH_MAX];
	int fd, rc;

	snprintf(dir, sizeof(dir), "%s", path);
	*strrchr(dir, '/') = '\0';
	fd = open(dir[0] ? dir : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rc = fd < 0 ? -1 : fsync(fd);
	if (fd >= 0)
		close(fd);
	if (rc)
		return certs_error("%s: cannot be written to disk: %s", dir,
				   strerror(errno));
	return 0;
}

/* A daemon of another user must still be able to read its key. */
static int take_owner(int fd, const struct certs_file *f)
{
	struct stat earlier, st;

	if (lstat(f->path, &earlier) || fstat(fd, &st) ||
	    (st.st_uid == earlier.st_uid && st.st_gid == earlier.st_gid))
		return 0;
	if (!fchown(fd, earlier.st_uid, earlier.st_gid))
		return 0;
	return certs_error("%s: belongs to user %u, and this process's user, "
			   "%u, cannot give that user the new file: run this "
			   "as root or as that user",
			   f->path, earlier.st_uid, geteuid());
}

static int write_content(int fd, const char *path, BIO *content)
{
	char *bytes;
	long len = BIO_get_mem_data(content, &bytes);

	while (len > 0) {
		ssize_t n = write(fd, bytes, (size_t)len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return certs_error("%s: cannot be written: %s", path,
					   strerror(errno));
		bytes += n;
		len -= n;
	}
	return 0;
}

static int fill(int fd, const struct certs_file *f, mode_t mode, BIO *content)
{
	int rc = take_owner(fd, f);

	if (!rc)
		rc = write_content(fd, f->path, content);
	if (!rc && (fchmod(fd, mode) || fsync(fd)))
		rc = certs_error("%s: cannot be written: %s", f->path,
				 strerror(errno));
	return rc;
}

/* Removes the temporary file; a no-op after publish, or if zeroed. */
static void abandon(struct certs_file *f)
{
	if (f->temporary[0])
		(void)unlink(f->temporary);
	f->temporary[0] = '\0';
}

int certs_file_prepare(struct certs_file *f, const char *dir, const char *name,
		       mode_t mode, BIO *content)
{
	char temporary[64];
	int fd, rc;

	f->temporary[0] = '\0';
	snprintf(temporary, sizeof(temporary), ".%.48s.XXXXXX", name);
	if (certs_path(f->path, dir, name) ||
	    certs_path(f->temporary, dir, temporary)) {
		f->temporary[0] = '\0';
		return -EINVAL;
	}
	fd = mkostemp(f->temporary, O_CLOEXEC); /* 0600 */
	if (fd < 0) {
		f->temporary[0] = '\0';
		return certs_error("%s: cannot be written: %s", f->path,
				   strerror(errno));
	}
	rc = fill(fd, f, mode, content);
	close(fd);
	if (rc)
		abandon(f);
	return rc;
}

static int put_in_place(struct certs_file *f)
{
	if (rename(f->temporary, f->path)) {
		int rc = certs_error("%s: cannot be written: %s", f->path,
				     strerror(errno));

		abandon(f);
		return rc;
	}
	f->temporary[0] = '\0';
	return 0;
}

int certs_file_publish(struct certs_file *f)
{
	int rc = put_in_place(f);

	return rc ? rc : sync_dir_of(f->path);
}

/* ---- the files of a certificate ---- */

static int prepare_pair(struct certs_set *s, const char *dir, X509 *cert,
			EVP_PKEY *key)
{
	BIO *cert_pem = BIO_new(BIO_s_mem()), *key_pem = BIO_new(BIO_s_mem());
	int rc = 0;

	if (!cert_pem || !key_pem || !PEM_write_bio_X509(cert_pem, cert) ||
	    !PEM_write_bio_PrivateKey(key_pem, key, NULL, NULL, 0, NULL, NULL))
		rc = certs_failed(dir);
	if (!rc)
		rc = certs_file_prepare(&s->cert, dir, POOL_TLS_CERT, 0644,
					cert_pem);
	if (!rc)
		rc = certs_file_prepare(&s->key, dir, POOL_TLS_KEY, 0600,
					key_pem);
	BIO_free(cert_pem);
	BIO_free(key_pem);
	return rc;
}

/* The CAs first: they include the former ones, and the one that signed the new
 * certificate. Synced when all are in place: between the renames, readers find
 * a key that does not match its certificate, and an fsync there would prolong
 * that. */
static int publish(struct certs_set *s, bool pair)
{
	int rc = put_in_place(&s->ca);

	if (!rc && pair)
		rc = put_in_place(&s->key);
	if (!rc && pair)
		rc = put_in_place(&s->cert);
	return rc ? rc : sync_dir_of(s->ca.path);
}

int certs_set_write(const char *dir, BIO *cas, X509 *cert, EVP_PKEY *key)
{
	struct certs_set s;
	int rc;

	memset(&s, 0, sizeof(s));
	rc = certs_file_prepare(&s.ca, dir, POOL_TLS_CA, 0644, cas);
	if (!rc && cert)
		rc = prepare_pair(&s, dir, cert, key);
	if (!rc)
		rc = publish(&s, cert != NULL);
	abandon(&s.ca);
	abandon(&s.cert);
	abandon(&s.key);
	return rc;
}
