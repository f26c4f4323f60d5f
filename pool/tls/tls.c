/*
 * Bytes to be sent are encrypted into a buffer of the thread, up to BATCH at a
 * time, and sent by one system call; only what the socket does not take is
 * copied into memory of the stream. Received bytes are read ahead (16 KiB, or
 * POOL_TLS_BULK_AHEAD), so that one system call serves several records. Once
 * the kernel encrypts (tls_kernel.h), bytes to be sent go to the socket as they
 * are.
 */
#include "pool/tls/tls.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/tls/tls_files.h"
#include "pool/tls/tls_kernel.h"

#define RECORD SSL3_RT_MAX_PLAIN_LENGTH
#define BATCH (256u << 10) /* plaintext bytes encrypted by one write */
/* Bytes of a batch when encrypted: each record adds 22 (header, type, tag).
 * Small writes make short records; the batch then ends earlier. */
#define SEALED_MAX (BATCH + BATCH / RECORD * 64)
/* A peer can make OpenSSL answer (alerts, key updates). The connection breaks
 * when more bytes of answers than this are unsent. */
#define ANSWERS_MAX (64u << 10)
#define SOON_S (14 * 86400) /* warn this long before expiry */
#define CHAIN_MAX 4 /* certificates between the peer's and a CA */
#define SEEN_MAX 64u	  /* refused certificates remembered; the oldest go */
#define SEEN_MS 3600000u /* then the same refusal is logged again */

/* Why a peer was not accepted, in the order of refusal_labels. */
enum refusal {
	REFUSED_NOT,
	REFUSED_EXPIRED,
	REFUSED_UNTRUSTED,
	REFUSED_IDENTITY,
	REFUSED_CLUSTER,
	REFUSED_ROLE,
	REFUSED_HOST,
	REFUSED_PROTOCOL,
	REFUSED_BY_PEER,
	REFUSALS,
};

/* The files as read at one time; shared by the streams that started then. */
struct certs {
	unsigned int refs; /* of pool_tls and streams; atomic */
	SSL_CTX *ctx;
	struct pool_tls_id id;
	time_t expires;
};

struct pool_tls {
	char *dir;
	struct pool_tls_id self; /* of the first certificate read: constant */
	pthread_mutex_t lock;	 /* protects certs, read and seen */
	struct certs *certs;
	struct timespec read[3]; /* mtime of the files */
	enum { LOGGED_NOTHING, LOGGED_SOON, LOGGED_EXPIRED } logged;
	uint64_t renew_ms;
	bool plain;  /* bulk may be sent unencrypted */
	bool kernel; /* ... or encrypted by the kernel */
	struct {
		uint64_t cert, until_ms;
	} seen[SEEN_MAX]; /* by pool_tls_is_news */
	unsigned int next_seen;
	struct pool_counter accepted, refused, failed, renewed, ended, kernels;
	struct pool_counter refusals[REFUSALS]; /* together: refused */
	struct pool_hist shakes;
	struct pool_gauge expires;
};

struct pool_tls_stream {
	struct certs *certs; /* owns a reference */
	SSL *ssl;
	int fd;
	bool blocking;
	bool dry; /* the last read of the socket emptied it. False after much
		     was read: more arrives while that is decrypted */
	unsigned int roles;
	char *host; /* owns, or NULL */
	uint64_t start_ns;
	enum refusal refusal;
	bool known; /* `peer` and `cert` are set */
	uint64_t shown; /* hash of the peer's certificate; 0: none was seen */
	struct pool_tls_id peer;
	X509 *cert; /* owns */
	/* Of what is sent, until the kernel has it; else its len is 0. */
	struct tls_secret secret;
	bool for_kernel; /* keep the secret: the kernel may get it */
	bool wrote;	 /* OpenSSL has, after the handshake */
	bool kernel;	 /* pool_tls_to_kernel */
	uint8_t *sink; /* the thread's buffer, during a write; else NULL */
	size_t sunk;   /* bytes in it */
	/* owns: encrypted and unsent, from out_sent to out_len */
	uint8_t *out;
	size_t out_sent, out_len, out_cap;
	int broken; /* -errno found behind bytes that a read returned */
	char why[POOL_TLS_WHY];
};

/* ---- the process's certificates ---- */

static void certs_unref(struct certs *c)
{
	if (!c || __atomic_sub_fetch(&c->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	SSL_CTX_free(c->ctx);
	pool_tls_id_fini(&c->id);
	free(c);
}

static int on_verify(int ok, X509_STORE_CTX *x);

static int ctx_set(SSL_CTX *ctx, const struct pool_tls_files *f)
{
	X509_STORE *store = SSL_CTX_get_cert_store(ctx);
	int i;

	SSL_CTX_set_verify(ctx,
			   SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
			   on_verify);
	SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION |
					 SSL_OP_IGNORE_UNEXPECTED_EOF |
					 SSL_OP_NO_COMPRESSION);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_num_tickets(ctx, 0);
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE |
				      SSL_MODE_RELEASE_BUFFERS |
				      SSL_MODE_NO_AUTO_CHAIN);
	SSL_CTX_set_read_ahead(ctx, 1);
	SSL_CTX_set_verify_depth(ctx, CHAIN_MAX);
	X509_STORE_set_flags(store, POOL_TLS_STORE_FLAGS);
	if (!SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) ||
	    SSL_CTX_use_certificate(ctx, f->cert) != 1 ||
	    SSL_CTX_use_PrivateKey(ctx, f->key) != 1)
		return -EINVAL;
	for (i = 0; i < sk_X509_num(f->chain); i++)
		if (SSL_CTX_add1_chain_cert(ctx, sk_X509_value(f->chain, i)) !=
		    1)
			return -EINVAL;
	for (i = 0; i < sk_X509_num(f->cas); i++)
		if (X509_STORE_add_cert(store, sk_X509_value(f->cas, i)) != 1)
			return -EINVAL;
	return 0;
}

static time_t expires_at(const X509 *cert)
{
	struct tm tm;

	if (ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm) != 1)
		return 0;
	return timegm(&tm);
}

static int certs_read(const char *dir, struct certs **ret,
		      char why[POOL_TLS_WHY])
{
	struct pool_tls_files f;
	struct certs *c;
	int err = pool_tls_files_read(dir, &f, why);

	if (err)
		return err;
	c = calloc(1, sizeof(*c));
	if (!c) {
		err = -ENOMEM;
		goto out;
	}
	c->refs = 1;
	c->id = f.id; /* moved */
	f.id.ndirs = 0;
	c->expires = expires_at(f.cert);
	c->ctx = SSL_CTX_new(TLS_method());
	err = c->ctx ? ctx_set(c->ctx, &f) : -ENOMEM;
	if (err == -EINVAL)
		snprintf(why, POOL_TLS_WHY, "%s: OpenSSL refuses the "
			 "certificate or its key: %s", dir,
			 ERR_reason_error_string(ERR_peek_last_error()));
	ERR_clear_error();
	if (err)
		certs_unref(c);
	else
		*ret = c;
out:
	pool_tls_files_fini(&f);
	if (err == -ENOMEM)
		snprintf(why, POOL_TLS_WHY, "no memory");
	return err;
}

static void read_times(const char *dir, struct timespec to[3])
{
	static const char *const names[] = { POOL_TLS_CA, POOL_TLS_CERT,
					     POOL_TLS_KEY };
	char path[4096];
	struct stat st;

	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		to[i] = stat(path, &st) == 0 ? st.st_mtim :
					       (struct timespec){ 0 };
	}
}

int pool_tls_open(const char *dir, struct pool_tls **ret,
		  char why[POOL_TLS_WHY])
{
	struct pool_tls *t = calloc(1, sizeof(*t));
	int err;

	if (t)
		t->dir = strdup(dir);
	if (!t || !t->dir) {
		free(t);
		snprintf(why, POOL_TLS_WHY, "no memory");
		return -ENOMEM;
	}
	t->renew_ms = POOL_TLS_RENEW_MS;
	pthread_mutex_init(&t->lock, NULL);
	err = pool_tls_reload(t, why);
	if (err)
		pool_tls_close(t);
	else
		*ret = t;
	return err;
}

static const char *limits_text(const struct pool_tls_id *id,
			       char buf[POOL_TLS_DIRS_TEXT])
{
	return id->ndirs ? pool_tls_id_dirs(id, buf) : "all";
}

/* New files must have the cluster, role, namespaces and users with which the
 * process started. The first three decide which names it shows, and it may have
 * files of these users that are not published yet. */
static bool is_another(const struct pool_tls *t, const struct certs *c,
		       char why[POOL_TLS_WHY])
{
	char now[POOL_TLS_DIRS_TEXT], was[POOL_TLS_DIRS_TEXT];
	char of[POOL_TLS_UIDS_URI];

	if (!t->certs)
		return false;
	if (strcmp(t->self.cluster, c->id.cluster) != 0 ||
	    t->self.role != c->id.role) {
		snprintf(why, POOL_TLS_WHY, "%s/" POOL_TLS_CERT " is now for a "
			 "%s of cluster %s, and was for a %s of cluster %s: "
			 "restart to use it", t->dir,
			 pool_role_name(c->id.role), c->id.cluster,
			 pool_role_name(t->self.role), t->self.cluster);
		return true;
	}
	if (!pool_tls_id_same_uids(&t->self, &c->id)) {
		snprintf(why, POOL_TLS_WHY, "%s/" POOL_TLS_CERT " is now for "
			 "other users (%s): restart to use it", t->dir,
			 c->id.nuids ? pool_tls_id_uids(&c->id, of) : "all");
		return true;
	}
	if (pool_tls_id_same_dirs(&t->self, &c->id))
		return false;
	snprintf(why, POOL_TLS_WHY, "%s/" POOL_TLS_CERT " has the namespaces "
		 "%s; before, it had %s: restart to use it", t->dir,
		 limits_text(&c->id, now), limits_text(&t->self, was));
	return true;
}

static void on_secret(const SSL *ssl, const char *line);

/* Secrets are told only where the kernel may get them. */
static void tell_secrets(const struct pool_tls *t, const struct certs *c)
{
	SSL_CTX_set_keylog_callback(c->ctx, t->kernel ? on_secret : NULL);
}

int pool_tls_reload(struct pool_tls *t, char why[POOL_TLS_WHY])
{
	struct timespec read[3];
	struct certs *c = NULL;
	int err;

	read_times(t->dir, read); /* before the files: misses no change */
	err = certs_read(t->dir, &c, why);
	pthread_mutex_lock(&t->lock);
	memcpy(t->read, read, sizeof(read));
	if (!err && is_another(t, c, why))
		err = -EINVAL;
	if (!err) {
		struct certs *old = t->certs;

		tell_secrets(t, c);
		t->certs = c;
		if (!old) {
			t->self = c->id; /* moved */
			c->id.ndirs = 0;
		}
		c = old;
	}
	pthread_mutex_unlock(&t->lock);
	certs_unref(c);
	return err;
}

void pool_tls_close(struct pool_tls *t)
{
	if (!t)
		return;
	certs_unref(t->certs);
	pool_tls_id_fini(&t->self);
	pthread_mutex_destroy(&t->lock);
	free(t->dir);
	free(t);
}

bool pool_tls_is_outdated(struct pool_tls *t)
{
	struct timespec now[3];
	bool same;

	read_times(t->dir, now);
	pthread_mutex_lock(&t->lock);
	same = memcmp(now, t->read, sizeof(now)) == 0;
	pthread_mutex_unlock(&t->lock);
	return !same;
}

static struct certs *certs_get(struct pool_tls *t)
{
	struct certs *c;

	pthread_mutex_lock(&t->lock);
	c = t->certs;
	__atomic_add_fetch(&c->refs, 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&t->lock);
	return c;
}

int64_t pool_tls_expires_s(struct pool_tls *t)
{
	struct certs *c = certs_get(t);
	int64_t left = (int64_t)c->expires - (int64_t)time(NULL);

	certs_unref(c);
	return left;
}

const char *pool_tls_cluster(const struct pool_tls *t)
{
	return t->self.cluster;
}

enum pool_role pool_tls_role(const struct pool_tls *t)
{
	return t->self.role;
}

const struct pool_tls_id *pool_tls_self(const struct pool_tls *t)
{
	return t ? &t->self : NULL;
}

static void say_expiry(struct pool_tls *t)
{
	int64_t left = pool_tls_expires_s(t);
	unsigned int now = left <= 0	  ? LOGGED_EXPIRED :
			   left <= SOON_S ? LOGGED_SOON :
					    LOGGED_NOTHING;

	if (now > t->logged && left <= 0)
		pool_error("%s/" POOL_TLS_CERT " has expired: no peer accepts "
			   "this process. `kvpool certs renew` makes a new "
			   "one; no restart is needed", t->dir);
	else if (now > t->logged)
		pool_warn("%s/" POOL_TLS_CERT " expires in %lld days; `kvpool "
			  "certs renew` makes a new one", t->dir,
			  (long long)(left / 86400));
	t->logged = now;
}

void pool_tls_check(struct pool_tls *t)
{
	char why[POOL_TLS_WHY];

	if (!t)
		return;
	if (pool_tls_is_outdated(t)) {
		if (pool_tls_reload(t, why))
			pool_error("TLS: the earlier certificate stays in use: "
				   "%s", why);
		else
			pool_info("TLS: new certificates from %s", t->dir);
	}
	say_expiry(t);
}

void pool_tls_set_renew(struct pool_tls *t, uint64_t ms)
{
	t->renew_ms = ms;
}

uint64_t pool_tls_due_ms(const struct pool_tls *t)
{
	if (!t)
		return UINT64_MAX;
	return pool_now_ms() + t->renew_ms -
	       pool_random_u64() % (t->renew_ms / 8 + 1);
}

void pool_tls_renewed(struct pool_tls *t)
{
	if (t)
		pool_count(&t->renewed);
}

void pool_tls_allow_plain(struct pool_tls *t, bool allowed)
{
	t->plain = allowed;
}

bool pool_tls_allows_plain(const struct pool_tls *t)
{
	return t && t->plain;
}

void pool_tls_ended(struct pool_tls *t)
{
	pool_count(&t->ended);
}

void pool_tls_allow_kernel(struct pool_tls *t, bool allowed)
{
	t->kernel = allowed;
	tell_secrets(t, t->certs);
}

bool pool_tls_allows_kernel(const struct pool_tls *t)
{
	return t && t->kernel;
}

void pool_tls_count(struct pool_tls *t, const struct pool_tls_stream *s,
		    int err)
{
	pool_count(!err			? &t->accepted :
		   err == -EKEYREJECTED ? &t->refused :
					  &t->failed);
	if (err == -EKEYREJECTED)
		pool_count(&t->refusals[s->refusal]);
	pool_hist_add(&t->shakes, pool_now_ns() - s->start_ns);
}

static const char *const refusal_labels[REFUSALS] = {
	[REFUSED_EXPIRED] = "reason=\"expired\"",
	[REFUSED_UNTRUSTED] = "reason=\"untrusted\"",
	[REFUSED_IDENTITY] = "reason=\"identity\"",
	[REFUSED_CLUSTER] = "reason=\"cluster\"",
	[REFUSED_ROLE] = "reason=\"role\"",
	[REFUSED_HOST] = "reason=\"host\"",
	[REFUSED_PROTOCOL] = "reason=\"protocol\"",
	[REFUSED_BY_PEER] = "reason=\"by-peer\"",
};

static int register_refusals(struct pool_tls *t, struct pool_metrics *metrics)
{
	int err = 0;

	for (unsigned int i = REFUSED_NOT + 1; i < REFUSALS && !err; i++)
		err = pool_metrics_counter(
			metrics, &t->refusals[i], "kvpool_tls_refused_total",
			refusal_labels[i],
			"TLS handshakes refused: the peer's certificate is "
			"expired or not valid yet (expired), not from a "
			"trusted CA (untrusted), not one "
			"of a pool (identity), or of another cluster, role or "
			"host; the peer speaks no TLS 1.3 (protocol), or "
			"refused us (by-peer).");
	return err;
}

bool pool_tls_is_news(struct pool_tls *t, const struct pool_tls_stream *s)
{
	uint64_t now = pool_now_ms();
	unsigned int i;
	bool news;

	if (!s->shown)
		return true;
	pthread_mutex_lock(&t->lock);
	for (i = 0; i < SEEN_MAX && t->seen[i].cert != s->shown; i++)
		;
	news = i == SEEN_MAX || now >= t->seen[i].until_ms;
	if (i == SEEN_MAX)
		i = t->next_seen++ % SEEN_MAX;
	if (news) {
		t->seen[i].cert = s->shown;
		t->seen[i].until_ms = now + SEEN_MS;
	}
	pthread_mutex_unlock(&t->lock);
	return news;
}

static void on_print(void *arg)
{
	struct pool_tls *t = arg;

	pool_gauge_set(&t->expires, pool_tls_expires_s(t));
}

int pool_tls_metrics(struct pool_tls *t, struct pool_metrics *metrics)
{
	static const char name[] = "kvpool_tls_handshakes_total";
	static const char help[] = "TLS handshakes that ended, by result: "
				   "accepted; refused: by us or by the peer; "
				   "failed: the connection broke.";
	int err = pool_metrics_counter(metrics, &t->accepted, name,
				       "result=\"accepted\"", help);

	if (!err)
		err = pool_metrics_counter(metrics, &t->refused, name,
					   "result=\"refused\"", help);
	if (!err)
		err = pool_metrics_counter(metrics, &t->failed, name,
					   "result=\"failed\"", help);
	if (!err)
		err = register_refusals(t, metrics);
	if (!err)
		err = pool_metrics_hist(
			metrics, &t->shakes, "kvpool_tls_handshake_seconds",
			NULL, "From the beginning of a TLS handshake to its "
			"end, whatever the result.");
	if (!err)
		err = pool_metrics_counter(
			metrics, &t->renewed, "kvpool_tls_links_renewed_total",
			NULL, "Connections that this process has replaced "
			"because of their age (--tls-renew).");
	if (!err)
		err = pool_metrics_counter(
			metrics, &t->ended, "kvpool_tls_plain_lanes_total",
			NULL, "Lanes on which both ends ended TLS "
			"(--bulk auth).");
	if (!err)
		err = pool_metrics_counter(
			metrics, &t->kernels, "kvpool_tls_kernel_lanes_total",
			NULL, "Lanes on which the kernel encrypts what this "
			"process sends (kTLS).");
	if (!err)
		err = pool_metrics_gauge(
			metrics, &t->expires,
			"kvpool_tls_certificate_expires_seconds", NULL,
			"Time until this process's certificate expires.");
	if (!err)
		err = pool_metrics_on_print(metrics, on_print, t);
	return err;
}

/* ---- encrypted bytes on their way to the socket ---- */

static pthread_once_t sink_once = PTHREAD_ONCE_INIT;
static pthread_key_t sink_key;
static __thread uint8_t *sink_of_thread;

static void sink_key_make(void)
{
	if (pthread_key_create(&sink_key, free))
		abort(); /* at the first connection: nothing works without it */
}

/* SEALED_MAX bytes, freed with the thread; NULL: ENOMEM. */
static uint8_t *thread_sink(void)
{
	if (!sink_of_thread) {
		pthread_once(&sink_once, sink_key_make);
		sink_of_thread = malloc(SEALED_MAX);
		if (sink_of_thread)
			pthread_setspecific(sink_key, sink_of_thread);
	}
	return sink_of_thread;
}

static int out_append(struct pool_tls_stream *s, const uint8_t *data,
		      size_t len)
{
	size_t need = s->out_len + len;
	uint8_t *grown;

	if (need > s->out_cap) {
		grown = realloc(s->out, need);
		if (!grown)
			return -ENOMEM;
		s->out = grown;
		s->out_cap = need;
	}
	memcpy(s->out + s->out_len, data, len);
	s->out_len = need;
	return 0;
}

/* As sendmsg(2), but -errno. */
static ssize_t send_iov(const struct pool_tls_stream *s,
			const struct iovec *iov, int n)
{
	const struct msghdr m = { .msg_iov = (struct iovec *)iov,
				  .msg_iovlen = (size_t)n };
	int flags = MSG_NOSIGNAL | (s->blocking ? 0 : MSG_DONTWAIT);
	ssize_t r;

	do
		r = sendmsg(s->fd, &m, flags);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r;
}

static ssize_t send_some(const struct pool_tls_stream *s, const uint8_t *data,
			 size_t len)
{
	const struct iovec iov = { .iov_base = (void *)data, .iov_len = len };

	return send_iov(s, &iov, 1);
}

size_t pool_tls_unsent(const struct pool_tls_stream *s)
{
	return s->out_len - s->out_sent;
}

int pool_tls_flush(struct pool_tls_stream *s)
{
	ssize_t r;

	while (pool_tls_unsent(s)) {
		r = send_some(s, s->out + s->out_sent,
			      s->out_len - s->out_sent);
		if (r < 0)
			return (int)r;
		s->out_sent += (size_t)r;
	}
	free(s->out);
	s->out = NULL;
	s->out_sent = s->out_len = s->out_cap = 0;
	return 0;
}

/* Sends the bytes in the sink; keeps those that the socket does not take. */
static int sink_empty(struct pool_tls_stream *s)
{
	const uint8_t *at = s->sink;
	size_t left = s->sunk;
	ssize_t r = 0;

	s->sink = NULL;
	s->sunk = 0;
	while (left > 0) {
		r = send_some(s, at, left);
		if (r < 0)
			break;
		at += r;
		left -= (size_t)r;
	}
	if (r < 0 && (r != -EAGAIN || s->blocking))
		return (int)r;
	return left > 0 ? out_append(s, at, left) : 0;
}

/* ---- between OpenSSL and the socket ---- */

static int bio_write(BIO *b, const char *data, size_t len, size_t *ret)
{
	struct pool_tls_stream *s = BIO_get_data(b);

	BIO_clear_retry_flags(b);
	if (s->kernel) /* which would take it for bytes to encrypt */
		return 0;
	s->wrote = s->wrote || SSL_is_init_finished(s->ssl);
	if (s->sink) {
		if (len > SEALED_MAX - s->sunk)
			return 0;
		memcpy(s->sink + s->sunk, data, len);
		s->sunk += len;
	} else if (s->out_len - s->out_sent + len > ANSWERS_MAX ||
		   out_append(s, (const uint8_t *)data, len)) {
		return 0;
	}
	*ret = len;
	return 1;
}

/* A blocking read first sends everything that is unsent, such as the first
 * message of the handshake: otherwise the peer would never answer. */
static int bio_read(BIO *b, char *to, size_t cap, size_t *ret)
{
	struct pool_tls_stream *s = BIO_get_data(b);
	ssize_t r = s->blocking ? pool_tls_flush(s) : 0;

	BIO_clear_retry_flags(b);
	*ret = 0;
	if (r < 0) {
		errno = (int)-r;
		return 0;
	}
	do
		r = recv(s->fd, to, cap, s->blocking ? 0 : MSG_DONTWAIT);
	while (r < 0 && errno == EINTR);
	*ret = r > 0 ? (size_t)r : 0;
	s->dry = *ret < cap && *ret < RECORD;
	if (r < 0 && errno == EAGAIN)
		BIO_set_retry_read(b);
	if (r == 0)
		BIO_set_flags(b, BIO_FLAGS_IN_EOF);
	return r > 0;
}

static long bio_ctrl(BIO *b, int cmd, long num, void *ptr)
{
	(void)num;
	(void)ptr;
	if (cmd == BIO_CTRL_FLUSH)
		return 1;
	return cmd == BIO_CTRL_EOF ? BIO_test_flags(b, BIO_FLAGS_IN_EOF) != 0 :
				     0;
}

static pthread_once_t bio_once = PTHREAD_ONCE_INIT;
static BIO_METHOD *bio_method;

static void bio_method_make(void)
{
	bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK,
				  "kvpool");
	if (!bio_method || !BIO_meth_set_write_ex(bio_method, bio_write) ||
	    !BIO_meth_set_read_ex(bio_method, bio_read) ||
	    !BIO_meth_set_ctrl(bio_method, bio_ctrl))
		abort(); /* at the first connection: nothing works without it */
}

static BIO *bio_new(struct pool_tls_stream *s)
{
	BIO *b;

	pthread_once(&bio_once, bio_method_make);
	b = BIO_new(bio_method);
	if (b) {
		BIO_set_data(b, s);
		BIO_set_init(b, 1);
	}
	return b;
}

/* ---- is the peer accepted ---- */

static void roles_name(unsigned int roles, char *to, size_t cap)
{
	size_t at = 0;

	to[0] = '\0';
	for (unsigned int i = 0; i < POOL_ROLES && at < cap; i++)
		if (roles & POOL_ROLE_BIT(i))
			at += (size_t)snprintf(to + at, cap - at, "%s%s",
					       at ? " or " : "",
					       pool_role_name(i));
}

/* peer: the identity in cert. */
static enum refusal check_id(const char *cluster, X509 *cert,
			     const struct pool_tls_id *peer,
			     unsigned int wanted, const char *host,
			     char why[POOL_TLS_WHY])
{
	char roles[64];

	if (strcmp(peer->cluster, cluster) != 0) {
		snprintf(why, POOL_TLS_WHY, "%s belongs to cluster %s, "
			 "and this is %s", peer->name, peer->cluster, cluster);
		return REFUSED_CLUSTER;
	}
	if (!(wanted & POOL_ROLE_BIT(peer->role))) {
		roles_name(wanted, roles, sizeof(roles));
		snprintf(why, POOL_TLS_WHY, "%s has a certificate for the "
			 "role %s; accepted here: %s", peer->name,
			 pool_role_name(peer->role), roles);
		return REFUSED_ROLE;
	}
	/* A client's certificate need not name a host: its address is the one
	 * from which the master saw it connect. */
	if (host && peer->role != POOL_ROLE_CLIENT &&
	    !pool_tls_has_host(cert, host)) {
		snprintf(why, POOL_TLS_WHY, "the certificate of %s is not "
			 "for host %s: issue one with --host %s", peer->name,
			 host, host);
		return REFUSED_HOST;
	}
	return REFUSED_NOT;
}

static bool read_id(X509 *cert, struct pool_tls_id *ret, char why[POOL_TLS_WHY])
{
	const char *wrong;
	int err = pool_tls_id_read(cert, ret, &wrong);

	if (err)
		snprintf(why, POOL_TLS_WHY, "its certificate: %s",
			 err == -ENOMEM ? "no memory" : wrong);
	return !err;
}

bool pool_tls_accepts(const struct pool_tls *t, X509 *cert, unsigned int roles,
		      const char *host, char why[POOL_TLS_WHY])
{
	struct pool_tls_id peer;
	bool ok;

	if (!read_id(cert, &peer, why))
		return false;
	ok = check_id(t->self.cluster, cert, &peer, roles, host, why) ==
	     REFUSED_NOT;
	pool_tls_id_fini(&peer);
	return ok;
}

/* cert is signed by a trusted CA. If its holder may be our peer, sets s->peer
 * and returns true. */
static bool check_peer(struct pool_tls_stream *s, X509 *cert)
{
	s->known = read_id(cert, &s->peer, s->why);
	s->refusal = s->known ? check_id(s->certs->id.cluster, cert, &s->peer,
					 s->roles, s->host, s->why) :
				REFUSED_IDENTITY;
	return s->refusal == REFUSED_NOT;
}

/* A certificate's name, for logs; it may not be verified. */
static void name_of(X509 *cert, char *to, int cap)
{
	X509_NAME *n = cert ? X509_get_subject_name(cert) : NULL;

	to[0] = '\0';
	if (n)
		X509_NAME_get_text_by_NID(n, NID_commonName, to, cap);
	for (char *p = to; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
}

static uint64_t hash_of(X509 *cert)
{
	unsigned char sum[EVP_MAX_MD_SIZE] = { 0 };
	uint64_t hash;

	if (!cert || !X509_digest(cert, EVP_sha256(), sum, NULL))
		return 0;
	memcpy(&hash, sum, sizeof(hash));
	return hash;
}

static bool is_of_another_time(int err)
{
	return err == X509_V_ERR_CERT_HAS_EXPIRED ||
	       err == X509_V_ERR_CERT_NOT_YET_VALID;
}

static int on_verify(int ok, X509_STORE_CTX *x)
{
	SSL *ssl = X509_STORE_CTX_get_ex_data(
		x, SSL_get_ex_data_X509_STORE_CTX_idx());
	struct pool_tls_stream *s = SSL_get_app_data(ssl);
	X509 *cert = X509_STORE_CTX_get_current_cert(x);
	int err = X509_STORE_CTX_get_error(x);
	char name[64];

	s->shown = hash_of(X509_STORE_CTX_get0_cert(x));
	if (!ok) {
		s->refusal = is_of_another_time(err) ? REFUSED_EXPIRED :
						       REFUSED_UNTRUSTED;
		name_of(cert, name, sizeof(name));
		snprintf(s->why, sizeof(s->why), "its certificate (%s) is not "
			 "valid: %s%s", name,
			 X509_verify_cert_error_string(err),
			 err == X509_V_ERR_CERT_HAS_EXPIRED ?
				 "; kvpool certs renew makes a new one" : "");
		return 0;
	}
	if (X509_STORE_CTX_get_error_depth(x) > 0)
		return 1;
	if (check_peer(s, cert)) {
		X509_up_ref(cert);
		s->cert = cert;
		return 1;
	}
	X509_STORE_CTX_set_error(x, X509_V_ERR_APPLICATION_VERIFICATION);
	return 0;
}

/* ---- streams ---- */

static void on_secret(const SSL *ssl, const char *line)
{
	struct pool_tls_stream *s = SSL_get_app_data(ssl);

	if (s->for_kernel)
		tls_secret_from_log(ssl, line, &s->secret);
}

int pool_tls_start(struct pool_tls *t, int fd, const struct pool_tls_want *want,
		   struct pool_tls_stream **ret)
{
	struct pool_tls_stream *s = calloc(1, sizeof(*s));
	BIO *b;

	if (!s)
		return -ENOMEM;
	s->fd = fd;
	s->start_ns = pool_now_ns();
	s->blocking = want->blocking;
	s->roles = want->roles;
	s->certs = certs_get(t);
	s->host = want->host ? strdup(want->host) : NULL;
	s->ssl = SSL_new(s->certs->ctx);
	b = s->ssl ? bio_new(s) : NULL;
	if (!b || (want->host && !s->host)) {
		BIO_free(b);
		pool_tls_free(s);
		return -ENOMEM;
	}
	SSL_set_bio(s->ssl, b, b);
	SSL_set_app_data(s->ssl, s);
	s->for_kernel = t->kernel && !want->dialled;
	if (want->bulk)
		SSL_set_default_read_buffer_len(s->ssl, POOL_TLS_BULK_AHEAD);
	if (want->dialled)
		SSL_set_connect_state(s->ssl);
	else
		SSL_set_accept_state(s->ssl);
	*ret = s;
	return 0;
}

void pool_tls_free(struct pool_tls_stream *s)
{
	if (!s)
		return;
	OPENSSL_cleanse(&s->secret, sizeof(s->secret));
	SSL_free(s->ssl);
	X509_free(s->cert);
	if (s->known)
		pool_tls_id_fini(&s->peer);
	certs_unref(s->certs);
	free(s->host);
	free(s->out);
	free(s);
}

/* OpenSSL's last error; replaced by our own text where it suggests no remedy.
 */
static const char *reason_of_failure(void)
{
	unsigned long err = ERR_peek_last_error();
	const char *reason = ERR_reason_error_string(err);

	switch (ERR_GET_REASON(err)) {
	case SSL_R_HTTP_REQUEST:
	case SSL_R_WRONG_VERSION_NUMBER:
		return "the peer does not speak TLS (--tls-dir)";
	case SSL_R_UNSUPPORTED_PROTOCOL:
		return "the peer's protocol is older than TLS 1.3";
	}
	return reason ? reason : "the peer does not speak TLS (--tls-dir)";
}

/* The refusal that OpenSSL's last error stands for. Our own checks record
 * theirs. */
static enum refusal refusal_of_failure(void)
{
	int reason = ERR_GET_REASON(ERR_peek_last_error());

	if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
		return REFUSED_UNTRUSTED;
	/* Alerts that the peer sent have reasons of their own. */
	return reason > SSL_AD_REASON_OFFSET ? REFUSED_BY_PEER :
					       REFUSED_PROTOCOL;
}

/* Converts the result r <= 0 of an OpenSSL call to -errno, or 0: the peer has
 * closed. */
static int failure(struct pool_tls_stream *s, int r)
{
	int saved = errno;

	switch (SSL_get_error(s->ssl, r)) {
	case SSL_ERROR_WANT_READ:
		return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN:
		return 0;
	case SSL_ERROR_SYSCALL:
		return saved ? -saved : -ECONNRESET;
	}
	if (!s->why[0])
		snprintf(s->why, sizeof(s->why), "%s", reason_of_failure());
	if (s->refusal == REFUSED_NOT)
		s->refusal = refusal_of_failure();
	ERR_clear_error();
	return -EPROTO;
}

int pool_tls_shake(struct pool_tls_stream *s)
{
	int r, err;

	ERR_clear_error();
	errno = 0;
	r = SSL_do_handshake(s->ssl);
	err = r == 1 ? 0 : failure(s, r);
	if (r != 1 && err == 0)
		err = -ECONNRESET;
	r = pool_tls_flush(s); /* after a failure it sends the alert */
	if (err == -EPROTO)
		return -EKEYREJECTED;
	if (r && r != -EAGAIN)
		return r;
	return err ? err : r;
}

const char *pool_tls_why(const struct pool_tls_stream *s)
{
	return s->why;
}

const struct pool_tls_id *pool_tls_peer(const struct pool_tls_stream *s)
{
	return &s->peer;
}

bool pool_tls_peer_has_host(const struct pool_tls_stream *s, const char *host)
{
	return pool_tls_has_host(s->cert, host);
}

/* Has the peer asked for a key update, which OpenSSL will send before what it
 * writes next? */
static bool wants_new_key(const struct pool_tls_stream *s)
{
	return SSL_get_key_update_type(s->ssl) != SSL_KEY_UPDATE_NONE;
}

ssize_t pool_tls_read(struct pool_tls_stream *s, void *to, size_t cap)
{
	size_t n, have = 0;
	int err = s->broken;

	ERR_clear_error();
	while (!err && have < cap) {
		errno = 0;
		if (SSL_read_ex(s->ssl, (uint8_t *)to + have, cap - have, &n) !=
		    1) {
			err = failure(s, 0);
			break;
		}
		have += n;
		if ((s->blocking || s->dry) && !SSL_has_pending(s->ssl))
			break;
	}
	if (s->kernel && wants_new_key(s)) {
		snprintf(s->why, sizeof(s->why), "the peer asks for a new key, "
			 "which the kernel cannot be given");
		err = -EPROTO;
	}
	/* OpenSSL would not report the same again. */
	if (err != -EAGAIN)
		s->broken = err;
	return have > 0 ? (ssize_t)have : err;
}

bool pool_tls_has_input(const struct pool_tls_stream *s)
{
	return SSL_has_pending(s->ssl) == 1;
}

bool pool_tls_is_broken(const struct pool_tls_stream *s)
{
	return s->broken != 0;
}

/* Encrypts up to len bytes into the sink. Returns how many, or -errno. */
static ssize_t seal(struct pool_tls_stream *s, const uint8_t *from, size_t len)
{
	size_t n, have = 0;

	while (have < len && s->sunk + RECORD + 64 <= SEALED_MAX) {
		errno = 0;
		if (SSL_write_ex(s->ssl, from + have, len - have, &n) != 1) {
			int err = failure(s, 0);

			return have > 0 ? (ssize_t)have : err ? err : -EPIPE;
		}
		have += n;
	}
	return (ssize_t)have;
}

/* Small pieces (frames) that follow each other share a record. Returns how many
 * bytes were encrypted, or -errno. */
static ssize_t seal_all(struct pool_tls_stream *s, const struct iovec *iov,
			int n)
{
	uint8_t joined[RECORD];
	size_t len = 0;
	ssize_t r = 0, have = 0;
	int i = 0;

	while (i < n) {
		for (; i < n && iov[i].iov_len <= sizeof(joined) - len; i++) {
			memcpy(joined + len, iov[i].iov_base, iov[i].iov_len);
			len += iov[i].iov_len;
		}
		if (len > 0) {
			r = seal(s, joined, len);
		} else {
			len = iov[i].iov_len;
			r = seal(s, iov[i++].iov_base, len);
		}
		if (r > 0)
			have += r;
		if (r < (ssize_t)len)
			break;
		len = 0;
	}
	return have > 0 ? have : r;
}

ssize_t pool_tls_write(struct pool_tls_stream *s, const struct iovec *iov,
		       int n)
{
	int err = pool_tls_flush(s);
	ssize_t r;

	if (err)
		return err;
	if (s->kernel)
		return send_iov(s, iov, n);
	s->sink = thread_sink();
	if (!s->sink)
		return -ENOMEM;
	ERR_clear_error();
	r = seal_all(s, iov, n);
	err = sink_empty(s);
	return err ? err : r;
}

int pool_tls_to_kernel(struct pool_tls *t, struct pool_tls_stream *s)
{
	int err;

	if (!s->secret.len || s->wrote || pool_tls_unsent(s) ||
	    wants_new_key(s))
		return -EBUSY;
	err = tls_kernel_encrypts(s->fd, s->ssl, &s->secret);
	OPENSSL_cleanse(&s->secret, sizeof(s->secret));
	if (err)
		return err;
	s->kernel = true;
	pool_count(&t->kernels);
	return 0;
}

bool pool_tls_is_in_kernel(const struct pool_tls_stream *s)
{
	return s->kernel;
}

ssize_t pool_tls_send_file(struct pool_tls_stream *s, int file, off_t *at,
			   size_t len)
{
	return tls_kernel_send_file(s->fd, file, at, len);
}
