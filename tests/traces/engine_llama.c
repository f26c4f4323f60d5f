/* llama.cpp's slot files, and Mooncake's root_fs_dir. */
#include "tests/traces/engine.h"

#include <sys/statfs.h>
#include <sys/uio.h>

/* --------------------------------------------------------- T9 llama_slot */

#define T9_LAYERS 24
#define T9_HEAD 12
#define T9_TOKENS ((size_t)3772)
#define T9_SIZE (T9_HEAD + T9_TOKENS + 2 * T9_LAYERS * (16 + 232 * KIB))

/* 12 B, the tokens, then {K,V} a layer: a small piece and a large one each,
 * all through stdio, whose last piece goes out in fclose(). */
static int t9_save(const char *path, const char *key, unsigned version)
{
	char *buf = eng_content(key, version, T9_SIZE);
	FILE *f = fopen(path, "wb");
	size_t at = 0;

	EXPECT(f, "expected to create %s, got %s", path, strerror(errno));
	at += fwrite(buf, 1, T9_HEAD, f);
	at += fwrite(buf + at, 1, T9_TOKENS, f);
	for (unsigned i = 0; i < 2 * T9_LAYERS; i++) {
		at += fwrite(buf + at, 1, 16, f);
		at += fwrite(buf + at, 1, 232 * KIB, f);
	}
	int rc = fclose(f);
	free(buf);
	EXPECT(rc == 0 && at == T9_SIZE, "expected to save %s, got %zu bytes",
	       path, at);
	return 0;
}

/* A restore opens twice; each open reads the tail first, then from 0. */
static int t9_restore(const char *path, const char *key, unsigned nver)
{
	char *buf = eng_alloc(T9_SIZE), tail[4096];
	int v = -1;

	for (int turn = 0; turn < 2; turn++) {
		FILE *f = fopen(path, "rb");
		EXPECT(f, "expected to open %s, got %s", path,
		       strerror(errno));
		fseek(f, 0, SEEK_END);
		long end = ftell(f);
		EXPECT(end == (long)T9_SIZE, "expected %zu bytes of %s, got "
		       "%ld", T9_SIZE, path, end);
		long from = end / 4096 * 4096;
		fseek(f, from, SEEK_SET);
		size_t want = (size_t)(end - from);
		size_t got = fread(tail, 1, want, f);
		fseek(f, 0, SEEK_SET);
		size_t at = fread(buf, 1, T9_HEAD, f);
		at += fread(buf + at, 1, T9_TOKENS, f);
		while (at < T9_SIZE) {
			size_t piece = at % (512 * KIB) ? 4096 : 512 * KIB;
			if (piece > T9_SIZE - at)
				piece = T9_SIZE - at;
			size_t n = fread(buf + at, 1, piece, f);
			if (n != piece)
				break;
			at += n;
		}
		fclose(f);
		v = eng_version(buf, T9_SIZE, key, nver);
		EXPECT(got == want && at == T9_SIZE && v >= 0,
		       "expected %s whole, tail %zu of %zu, body %zu, "
		       "version %d", path, got, want, at, v);
		EXPECT(memcmp(tail, buf + from, want) == 0,
		       "expected the tail of %s to agree with its body", path);
	}
	free(buf);
	return v;
}

static int t9(const struct eng_dir *t)
{
	const char *key = "slot_0.bin";
	struct eng_poller p;
	char d[ENG_PATH], b[ENG_PATH];
	int rc;

	eng_join(d, t->d, key);
	eng_join(b, t->b, key);
	eng_poller_init(&p);
	eng_poller_add(&p, t->b, key, 4, T9_SIZE);
	rc = eng_poller_start(&p, true);
	/* Saved again and again under its final name. */
	for (unsigned version = 0; version < 4 && rc == 0; version++) {
		rc = t9_save(d, key, version);
		if (rc == 0)
			rc = eng_await(b, key, 4, T9_SIZE, (int)version);
		if (rc == 0 && (t9_restore(d, key, 4) != (int)version ||
				t9_restore(b, key, 4) != (int)version))
			rc = eng_fail(__func__, __LINE__,
				      "expected version %u of %s", version,
				      key);
	}
	eng_poller_fini(&p);
	return rc;
}

/* ----------------------------------------------- T9 mooncake root_fs_dir */

#define MC_SIZE (1 * MIB + 777)
#define MC_VERSIONS 2

static int mc_store(const struct eng_dir *t, const char *key, unsigned version)
{
	struct statfs sf;
	char path[ENG_PATH];

	EXPECT_OK(statfs(t->d, &sf), t->d);
	int fd = open(eng_join(path, t->d, key),
		      O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	EXPECT_OK(fd, path);
	char *buf = eng_content(key, version, MC_SIZE);
	int rc = eng_write_all(fd, buf, MC_SIZE, path);
	free(buf);
	EXPECT_OK(close(fd), path);
	return rc;
}

static int mc_load(const char *path, const char *key, unsigned version)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	EXPECT_OK(fd, path);
	char *buf = eng_alloc(MC_SIZE);
	struct iovec iov[3] = { { buf, 1000 },
				{ buf + 1000, 64 * KIB },
				{ buf + 1000 + 64 * KIB,
				  MC_SIZE - 64 * KIB - 1000 } };
	ssize_t n = preadv(fd, iov, 3, 0);
	int err = n < 0 ? errno : 0;
	ssize_t bad = eng_mismatch(buf, MC_SIZE, eng_seed(key, version));
	int whole = eng_version(buf, MC_SIZE, key, MC_VERSIONS);
	free(buf);
	close(fd);
	EXPECT(!err, "reading %s: %s", path, strerror(err));
	EXPECT(n == (ssize_t)MC_SIZE && whole >= 0,
	       "expected a version of %s by one preadv, got %zd bytes, version "
	       "%u differs at %zd", path, n, version, bad);
	/* (If the daemon is killed, a version that was not synced is lost.) */
	EXPECT(whole == (int)version, "expected version %u of %s, got %d",
	       version, path, whole);
	return 0;
}

static int mooncake(const struct eng_dir *t)
{
	unsigned n = eng_count(32, MC_SIZE);
	struct eng_poller p;
	char key[64], path[ENG_PATH];
	int rc;

	eng_poller_init(&p);
	for (unsigned i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "mc_%08x", i);
		eng_poller_add(&p, t->b, key, MC_VERSIONS, MC_SIZE);
	}
	rc = eng_poller_start(&p, true);
	for (unsigned v = 0; v < MC_VERSIONS; v++) {
		for (unsigned i = 0; i < n && rc == 0; i++) {
			snprintf(key, sizeof(key), "mc_%08x", i);
			rc = mc_store(t, key, v);
			if (rc == 0)
				rc = mc_load(eng_join(path, t->d, key), key, v);
		}
	}
	for (unsigned i = 0; i < n && rc == 0; i++) {
		snprintf(key, sizeof(key), "mc_%08x", i);
		eng_join(path, t->b, key);
		rc = eng_await(path, key, MC_VERSIONS, MC_SIZE,
			       MC_VERSIONS - 1);
		if (rc == 0)
			rc = mc_load(path, key, MC_VERSIONS - 1);
	}
	eng_poller_fini(&p);
	return rc;
}

const struct eng_test eng_llama[] = {
	{ "T9_llama_slot", t9 },
	{ "T9_mooncake_root_fs", mooncake },
	{ NULL, NULL },
};
