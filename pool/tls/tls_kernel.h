/*
 * Encryption by the kernel (kTLS, module "tls") of what a socket sends. The
 * handshake stays OpenSSL's, and so does what is received: OpenSSL 3.0 does not
 * let the kernel decrypt TLS 1.3.
 *
 * OpenSSL's own way needs its own socket BIO, and this pool's streams write to
 * a buffer (tls.c). So the key comes from OpenSSL's key log, and the kernel
 * gets it by setsockopt(2) (Linux, Documentation/networking/tls.rst).
 *
 * Thread: any.
 */
#ifndef POOL_TLS_TLS_KERNEL_H
#define POOL_TLS_TLS_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <openssl/ssl.h>

/* A traffic secret: as long as the hash of the cipher (RFC 8446, 7.1). */
struct tls_secret {
	uint8_t bytes[48];
	size_t len; /* 0: not known */
};

/* Nanoseconds of CPU time that a process spends on sending 16 KiB of a file,
 * encrypted by the kernel, and by OpenSSL. */
struct tls_kernel_cost {
	uint64_t kernel, openssl;
};
/* Sends some bytes over loopback, for some milliseconds. 0; -ENOENT: the module
 * is not loaded, and cannot be by this process; other -errno: the kernel cannot
 * encrypt with AES-256-GCM, or there is no loopback or no memory. */
int tls_kernel_measure(struct tls_kernel_cost *ret);
/* If `line` of the key log (SSL_CTX_set_keylog_callback) has the secret of what
 * ssl sends after its handshake, sets *to. */
void tls_secret_from_log(const SSL *ssl, const char *line,
			 struct tls_secret *to);
/*
 * From now on the kernel encrypts what is sent on the connected TCP socket fd
 * of ssl, which has sent nothing after its handshake, and must not. 0; -errno,
 * and the socket sends as before: -EOPNOTSUPP: the cipher of ssl is not
 * TLS_AES_256_GCM_SHA384; others: the kernel cannot.
 */
int tls_kernel_encrypts(int fd, const SSL *ssl,
			const struct tls_secret *secret);
/* As sendfile(2), on such a socket. */
ssize_t tls_kernel_send_file(int fd, int file, off_t *at, size_t len);

#endif
