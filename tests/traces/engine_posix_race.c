/* Many at once on one name: opens for writing, replacements, readers. */
#include "tests/traces/engine.h"

#define ROUNDS 60
#define VERSIONS 8
#define SIZE_OF(v) ((64 + 120 * (size_t)(v)) * KIB)
#define BYSTANDERS 40

struct race {
	const struct eng_dir *t;
	_Atomic unsigned next_tmp;
};

static int replace(struct race *r, const char *key)
{
	unsigned n = r->next_tmp++, version = n % VERSIONS;
	char tmp[64];

	snprintf(tmp, sizeof(tmp), "%s.%u.tmp", key, n);
	return eng_put(r->t->d, tmp, key, version, SIZE_OF(version), 0);
}

/* All that a handle shows is one version. */
static int whole_version(int fd, const char *key)
{
	size_t cap = SIZE_OF(VERSIONS);
	char *buf = eng_alloc(cap);
	ssize_t n = pread(fd, buf, cap, 0);
	int version = n > 0 ? eng_version(buf, (size_t)n, key, VERSIONS) : -1;

	free(buf);
	EXPECT(version >= 0 && n == (ssize_t)SIZE_OF(version),
	       "expected a whole version of %s, got %zd bytes of version %d",
	       key, n, version);
	return 0;
}

static int open_to_write(struct race *r, const char *key)
{
	char path[ENG_PATH];
	int fd = open(eng_join(path, r->t->d, key), O_RDWR | O_CLOEXEC);
	int rc;

	EXPECT_OK(fd, path);
	rc = whole_version(fd, key);
	EXPECT_OK(close(fd), path);
	return rc;
}

/* Another node may miss: what it knows of has been replaced. */
static int open_to_read(const char *path, const char *key, bool may_miss)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int rc;

	if (fd < 0 && errno == ENOENT && may_miss)
		return 0;
	EXPECT_OK(fd, path);
	rc = whole_version(fd, key);
	EXPECT_OK(close(fd), path);
	return rc;
}

static int writer_thread(unsigned i, void *arg)
{
	(void)i;
	for (unsigned n = 0; n < 4 * ROUNDS; n++)
		TRY(open_to_write(arg, "shared"));
	return 0;
}

/* What is opened to be written, and is not, stays what it was. */
static int race_writers(const struct eng_dir *t)
{
	struct race r = { .t = t };
	char path[ENG_PATH];

	if (eng.mode == ENG_PLAIN)
		return 0;
	TRY(replace(&r, "shared"));
	TRY(eng_sync_dir(t->d));
	TRY(eng_parallel(4, writer_thread, &r));
	return eng_await(eng_join(path, t->b, "shared"), "shared", VERSIONS,
			 SIZE_OF(0), 0);
}

static int bystander(const struct eng_dir *t, unsigned i, bool write)
{
	char name[32], tmp[40], path[ENG_PATH];
	size_t size = (i % 7 + 1) * 50 * KIB;

	snprintf(name, sizeof(name), "other%u", i);
	snprintf(tmp, sizeof(tmp), "%s.tmp", name);
	if (write)
		return eng_put(t->d, tmp, name, 0, size, 0);
	return eng_read(eng_join(path, t->d, name), 0, name, 1, size, NULL);
}

static int mixed_thread(unsigned i, void *arg)
{
	struct race *r = arg;
	char path[ENG_PATH];

	for (unsigned n = 0; n < ROUNDS; n++) {
		if (i == 0)
			TRY(replace(r, "shared"));
		else if (i == 1)
			TRY(open_to_write(r, "shared"));
		else if (i == 2)
			TRY(bystander(r->t, n % BYSTANDERS, true));
		else
			TRY(open_to_read(eng_join(path, i % 2 ? r->t->d :
							       r->t->b,
						  "shared"), "shared",
					 i % 2 == 0));
	}
	return 0;
}

/* Readers see one version, never an error; and nobody else's files change. */
static int race_replace(const struct eng_dir *t)
{
	struct race r = { .t = t };
	char path[ENG_PATH];

	TRY(replace(&r, "shared"));
	TRY(eng_sync_dir(t->d));
	TRY(eng_await_name(eng_join(path, t->b, "shared")));
	TRY(eng_parallel(7, mixed_thread, &r));
	for (unsigned i = 0; i < BYSTANDERS; i++)
		TRY(bystander(t, i, false));
	return 0;
}

static int rewrite(const struct eng_dir *t, const char *key, unsigned version)
{
	return eng_put(t->d, key, key, version, SIZE_OF(version), 0);
}

/* Two replace it, two write it in place, four read it: nobody gets an error,
 * but who reads while it is written in place may see less. */
static int crowd_thread(unsigned i, void *arg)
{
	struct race *r = arg;
	char path[ENG_PATH];

	eng_join(path, r->t->d, "shared");
	for (unsigned n = 0; n < 4 * ROUNDS; n++) {
		if (i < 2) {
			TRY(replace(r, "shared"));
		} else if (i < 4) {
			TRY(rewrite(r->t, "shared", (n + i) % VERSIONS));
		} else {
			int fd = open(path, O_RDONLY | O_CLOEXEC);
			char byte;

			EXPECT(fd >= 0 || errno == ENOENT, "expected to open "
			       "%s, got %s", path, strerror(errno));
			if (fd < 0)
				continue;
			EXPECT(pread(fd, &byte, 1, 0) >= 0,
			       "expected to read %s, got %s", path,
			       strerror(errno));
			EXPECT_OK(close(fd), path);
		}
	}
	return 0;
}

static int race_crowd(const struct eng_dir *t)
{
	struct race r = { .t = t };

	if (eng.mode == ENG_PLAIN)
		return 0;
	TRY(replace(&r, "shared"));
	return eng_parallel(8, crowd_thread, &r);
}

const struct eng_test eng_posix_race[] = {
	{ "posix_race_writers", race_writers },
	{ "posix_race_replace", race_replace },
	{ "posix_race_crowd", race_crowd },
	{ NULL, NULL },
};
