/* Calls that need no connection: texts of errors, paths, files of a mount. */
#include "pool/kvpool.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "commit.h" /* made by the Makefile */
#include "pool/base/parse.h"
#include "pool/model/tree.h"
#include "pool/conn/wire.h"

const char *kvpool_version(void)
{
	return KVPOOL_VERSION KVPOOL_COMMIT;
}

const char *kvpool_strerror(int64_t error)
{
	static const struct {
		int code;
		const char *text;
	} texts[] = {
		{ ENOENT, "not in the pool" },
		{ EEXIST, "exists already" },
		{ ENAMETOOLONG, "the key is too long" },
		{ EFAULT, "the buffer is not registered, or not in memory" },
		{ EMSGSIZE, "the object has another size than the buffer" },
		{ EFBIG, "larger than this connection's buffer" },
		{ ENOSPC, "no space in the pool" },
		{ EDQUOT, "this user has too many directories" },
		{ EISDIR, "a directory has this name" },
		{ ENOTDIR, "a parent directory's name belongs to a file" },
		{ EACCES, "not in the namespaces of this certificate" },
		{ EMEDIUMTYPE, "the namespace has another layout" },
		{ ETIMEDOUT, "no answer in time" },
		{ EHOSTDOWN, "no master could be reached" },
		{ EAGAIN, "too many requests are in flight" },
		{ EINVAL, "invalid argument" },
		{ ECHILD, "this process is a fork of the one that connected" },
		{ ENOMEM, "no memory" },
		{ EMFILE, "too many open files, or connections" },
		{ EBUSY, "in use" },
		{ EIO, "the file was lost while it was written" },
		{ ENOTSUP, "not a mount of a pool" },
		{ EPERM, "not permitted" },
		{ EBADMSG, "the pool reports malformed attributes" },
	};

	if (error >= 0)
		return "success";
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (error == -texts[i].code)
			return texts[i].text;
	return "an unexpected error";
}

int kvpool_path_check(const char *path)
{
	return path ? pool_path_check(path, strlen(path)) : -EINVAL;
}

int kvpool_parse_size(const char *text, uint64_t *ret_bytes)
{
	return text && ret_bytes ? pool_parse_size(text, ret_bytes) : -EINVAL;
}

/* Reads an attribute as text into buf; "" if there is none. 0 or -errno. */
static int get_text(const char *path, const char *name, char *buf, size_t cap)
{
	ssize_t n = getxattr(path, name, buf, cap - 1);

	if (n < 0 && errno != ENODATA)
		return -errno;
	buf[n < 0 ? 0 : n] = '\0';
	return 0;
}

static int get_number(const char *path, const char *name, uint64_t max,
		      uint64_t *ret_value)
{
	char text[32];
	int rc = get_text(path, name, text, sizeof(text));

	*ret_value = 0;
	if (rc || !text[0])
		return rc;
	return pool_parse_u64(text, 0, max, ret_value) ? -EBADMSG : 0;
}

/* Reads "EPOCH.SEQUENCE" as one number; 0 if there is none. */
static int get_generation(const char *path, uint64_t *ret_gen)
{
	char text[64], *dot;
	uint64_t epoch, seq;
	int rc = get_text(path, "user.kvpool.generation", text, sizeof(text));

	*ret_gen = 0;
	if (rc || !text[0])
		return rc;
	dot = strchr(text, '.');
	if (!dot)
		return -EBADMSG;
	*dot = '\0';
	if (pool_parse_u64(text, 0, UINT64_MAX >> POOL_GEN_SEQ_BITS, &epoch) ||
	    pool_parse_u64(dot + 1, 0, (1ull << POOL_GEN_SEQ_BITS) - 1, &seq))
		return -EBADMSG;
	*ret_gen = epoch << POOL_GEN_SEQ_BITS | seq;
	return 0;
}

int kvpool_stat(const char *path, struct kvpool_stat *ret_stat)
{
	struct kvpool_stat s = { 0 };
	uint64_t replicas;
	struct stat st;
	int rc;

	if (!path || !ret_stat || ret_stat->struct_size < sizeof(s))
		return -EINVAL;
	if (stat(path, &st))
		return -errno;
	rc = get_text(path, "user.kvpool.state", s.state, sizeof(s.state));
	if (!rc)
		rc = get_generation(path, &s.generation);
	if (!rc)
		rc = get_number(path, "user.kvpool.holders", UINT32_MAX,
				&replicas);
	if (!rc)
		rc = get_text(path, "user.kvpool.checksum", s.checksum,
			      sizeof(s.checksum));
	if (rc)
		return rc;
	/* Every file of a mount has a state, and no other file. */
	if (!s.state[0])
		return -ENOTSUP;
	s.size = (uint64_t)st.st_size;
	s.replicas = (uint32_t)replicas;
	/* A newer caller's struct is longer: zero what we do not know. */
	s.struct_size = ret_stat->struct_size;
	memset(ret_stat, 0, s.struct_size);
	memcpy(ret_stat, &s, sizeof(s));
	return 0;
}
