#include "pool/tls/tls_kernel.h"

#include <errno.h>
#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>

typedef struct tls12_crypto_info_aes_gcm_256 kernel_key;

/* Its record number is 0. */
static const kernel_key no_key = {
	.info.version = TLS_1_3_VERSION,
	.info.cipher_type = TLS_CIPHER_AES_GCM_256,
};

static int use_key(int fd, const kernel_key *key)
{
	if (setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof("tls")) ||
	    setsockopt(fd, SOL_TLS, TLS_TX, key, sizeof(*key)))
		return -errno;
	return 0;
}

/* "LABEL CLIENT_RANDOM SECRET", both in hexadecimal. */
void tls_secret_from_log(const SSL *ssl, const char *line,
			 struct tls_secret *to)
{
	const char *label = SSL_is_server(ssl) ? "SERVER_TRAFFIC_SECRET_0 " :
						 "CLIENT_TRAFFIC_SECRET_0 ";
	const char *hex = strrchr(line, ' ');

	if (strncmp(line, label, strlen(label)) != 0 || !hex ||
	    OPENSSL_hexstr2buf_ex(to->bytes, sizeof(to->bytes), &to->len,
				  hex + 1, '\0') != 1)
		ERR_clear_error();
}

/* HKDF-Expand-Label(secret, label, "", len), RFC 8446, 7.1. */
static int expand(const EVP_MD *md, const struct tls_secret *secret,
		  const char *label, uint8_t *to, size_t len)
{
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_MODE,
						 "EXPAND_ONLY", 0),
		OSSL_PARAM_construct_utf8_string(
			OSSL_KDF_PARAM_DIGEST, (char *)EVP_MD_get0_name(md), 0),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY,
						  (void *)secret->bytes,
						  secret->len),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_PREFIX,
						  "tls13 ", 6),
		OSSL_PARAM_construct_octet_string(
			OSSL_KDF_PARAM_LABEL, (void *)label, strlen(label)),
		OSSL_PARAM_construct_end(),
	};
	EVP_KDF *kdf = EVP_KDF_fetch(NULL, OSSL_KDF_NAME_TLS1_3_KDF, NULL);
	EVP_KDF_CTX *ctx = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
	bool ok = ctx && EVP_KDF_derive(ctx, to, len, params) == 1;

	EVP_KDF_CTX_free(ctx);
	EVP_KDF_free(kdf);
	ERR_clear_error();
	return ok ? 0 : -ENOMEM;
}

int tls_kernel_encrypts(int fd, const SSL *ssl, const struct tls_secret *secret)
{
	const SSL_CIPHER *cipher = SSL_get_current_cipher(ssl);
	kernel_key k = no_key;
	/* The kernel calls the begin of the nonce salt. */
	uint8_t nonce[sizeof(k.salt) + sizeof(k.iv)] = { 0 };
	const EVP_MD *md;
	int err;

	if (!cipher || SSL_CIPHER_get_protocol_id(cipher) !=
			       (TLS1_3_CK_AES_256_GCM_SHA384 & 0xffff))
		return -EOPNOTSUPP;
	md = SSL_CIPHER_get_handshake_digest(cipher);
	err = expand(md, secret, "key", k.key, sizeof(k.key));
	if (!err)
		err = expand(md, secret, "iv", nonce, sizeof(nonce));
	memcpy(k.salt, nonce, sizeof(k.salt));
	memcpy(k.iv, nonce + sizeof(k.salt), sizeof(k.iv));
	if (!err)
		err = use_key(fd, &k);
	OPENSSL_cleanse(&k, sizeof(k));
	OPENSSL_cleanse(nonce, sizeof(nonce));
	return err;
}

/* Sends the bytes on the TCP socket fd that wait for more (MSG_MORE). */
static void push(int fd)
{
	const int on = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/*
 * Within a sendfile(2), the kernel passes each record to TCP with MSG_MORE, so
 * one that is shorter than a segment (over loopback: each) waits for the next.
 * If the socket then has no room for the next (net.ipv4.tcp_notsent_lowat, or a
 * small buffer), it neither sends nor becomes writable, until the timer for
 * closed windows sends the record: after 200 ms, and longer each time.
 */
ssize_t tls_kernel_send_file(int fd, int file, off_t *at, size_t len)
{
	ssize_t r = sendfile(fd, file, at, len);
	int err = errno;

	if (r < (ssize_t)len)
		push(fd);
	errno = err;
	return r;
}

/* ---- which is cheaper? ---- */

#define RECORD 16384u
#define ROUNDS 16

struct measured {
	int by_kernel[2], by_openssl[2]; /* TCP connections, or -1 */
	int file;			 /* RECORD bytes, or -1 */
	EVP_CIPHER_CTX *cipher;
};

/* No call on fd takes longer than that. */
static void limit_time(int fd)
{
	const struct timeval second = { .tv_sec = 1 };

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof(second));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof(second));
}

static int connect_pair(int pair[2])
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int err = 0;

	pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	limit_time(l);
	limit_time(pair[0]);
	if (l < 0 || pair[0] < 0 ||
	    bind(l, (struct sockaddr *)&at, sizeof(at)) || listen(l, 1) ||
	    getsockname(l, (struct sockaddr *)&at, &len) ||
	    connect(pair[0], (struct sockaddr *)&at, sizeof(at)) ||
	    (pair[1] = accept4(l, NULL, NULL, SOCK_CLOEXEC)) < 0)
		err = -errno;
	limit_time(pair[1]);
	if (l >= 0)
		close(l);
	return err;
}

static int measured_open(struct measured *m)
{
	static const uint8_t bytes[RECORD];
	int err = connect_pair(m->by_kernel);

	if (!err)
		err = use_key(m->by_kernel[0], &no_key);
	if (!err)
		err = connect_pair(m->by_openssl);
	if (err)
		return err;
	m->file = memfd_create("kvpool-ktls", MFD_CLOEXEC);
	if (m->file < 0 || write(m->file, bytes, RECORD) != RECORD)
		return -ENOMEM;
	m->cipher = EVP_CIPHER_CTX_new();
	return m->cipher && EVP_EncryptInit_ex(m->cipher, EVP_aes_256_gcm(),
					       NULL, no_key.key, NULL) == 1 ?
		       0 : -ENOMEM;
}

static void measured_close(struct measured *m)
{
	const int fds[] = { m->by_kernel[0], m->by_kernel[1],
			    m->by_openssl[0], m->by_openssl[1], m->file };

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	EVP_CIPHER_CTX_free(m->cipher);
	ERR_clear_error();
}

static bool send_by_kernel(struct measured *m)
{
	off_t off = 0;

	return sendfile(m->by_kernel[0], m->file, &off, RECORD) == RECORD;
}

/* With a copy beside the cipher, as tls.c makes one. */
static bool send_by_openssl(struct measured *m)
{
	static const uint8_t iv[12];
	uint8_t from[RECORD], to[RECORD];
	int n;

	return pread(m->file, from, RECORD, 0) == RECORD &&
	       EVP_EncryptInit_ex(m->cipher, NULL, NULL, NULL, iv) == 1 &&
	       EVP_EncryptUpdate(m->cipher, to, &n, from, RECORD) == 1 &&
	       EVP_EncryptFinal_ex(m->cipher, to, &n) == 1 &&
	       send(m->by_openssl[0], to, RECORD, MSG_NOSIGNAL) == RECORD;
}

/* CPU time of one call; the other end of fd then reads what was sent. */
static int time_of(struct measured *m, bool (*send_one)(struct measured *m),
		   const int pair[2], uint64_t *least)
{
	struct timespec begin, end;
	uint8_t got[RECORD];
	uint64_t ns;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
	if (!send_one(m))
		return -EIO;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
	ns = (uint64_t)(end.tv_sec - begin.tv_sec) * 1000000000u +
	     (uint64_t)end.tv_nsec - (uint64_t)begin.tv_nsec;
	if (ns < *least)
		*least = ns;
	return recv(pair[1], got, RECORD, MSG_WAITALL) == RECORD ? 0 : -EIO;
}

int tls_kernel_measure(struct tls_kernel_cost *ret)
{
	struct measured m = { { -1, -1 }, { -1, -1 }, -1, NULL };
	int err = measured_open(&m);

	*ret = (struct tls_kernel_cost){ UINT64_MAX, UINT64_MAX };
	for (int i = 0; i < ROUNDS && !err; i++) {
		err = time_of(&m, send_by_kernel, m.by_kernel, &ret->kernel);
		if (!err)
			err = time_of(&m, send_by_openssl, m.by_openssl,
				      &ret->openssl);
	}
	measured_close(&m);
	return err;
}
