#include "pool/tls/tls_kernel.h"

#include <errno.h>
#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>

static int use_module(int fd)
{
	return setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof("tls")) ?
		       -errno : 0;
}

bool tls_kernel_has(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int err;

	if (fd < 0)
		return false;
	err = use_module(fd);
	close(fd);
	return err == 0 || err == -ENOTCONN; /* it only takes connected ones */
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
	struct tls12_crypto_info_aes_gcm_256 info = {
		.info.version = TLS_1_3_VERSION,
		.info.cipher_type = TLS_CIPHER_AES_GCM_256,
		/* .rec_seq: 0, the number of the next record */
	};
	/* The kernel calls the begin of the nonce salt. */
	uint8_t nonce[sizeof(info.salt) + sizeof(info.iv)];
	const EVP_MD *md;
	int err;

	if (!cipher || SSL_CIPHER_get_protocol_id(cipher) !=
			       (TLS1_3_CK_AES_256_GCM_SHA384 & 0xffff))
		return -EOPNOTSUPP;
	md = SSL_CIPHER_get_handshake_digest(cipher);
	err = expand(md, secret, "key", info.key, sizeof(info.key));
	if (!err)
		err = expand(md, secret, "iv", nonce, sizeof(nonce));
	if (!err)
		err = use_module(fd);
	if (!err) {
		memcpy(info.salt, nonce, sizeof(info.salt));
		memcpy(info.iv, nonce + sizeof(info.salt), sizeof(info.iv));
		if (setsockopt(fd, SOL_TLS, TLS_TX, &info, sizeof(info)))
			err = -errno;
	}
	OPENSSL_cleanse(&info, sizeof(info));
	OPENSSL_cleanse(nonce, sizeof(nonce));
	return err;
}
