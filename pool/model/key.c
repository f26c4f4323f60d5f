#include "pool/model/key.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "pool/model/tree.h"

#define PIECE_MAX 252
#define CONTINUED "%0C"
#define EMPTY "%0E"
#define VIRTUAL ".kvpool" /* the directory of status files, in the root */

static bool is_special(unsigned char c)
{
	return c == '\0' || c == '/' || c == '%';
}

/* Does any of eight bytes equal c? */
static bool has_byte(uint64_t x, unsigned char c)
{
	uint64_t y = x ^ (0x0101010101010101ull * c);

	return ((y - 0x0101010101010101ull) & ~y & 0x8080808080808080ull) != 0;
}

static bool has_special(const unsigned char *p, size_t len)
{
	uint64_t x;

	for (; len >= 8; p += 8, len -= 8) {
		memcpy(&x, p, 8);
		if (has_byte(x, '\0') || has_byte(x, '/') || has_byte(x, '%'))
			return true;
	}
	for (; len > 0; p++, len--)
		if (is_special(*p))
			return true;
	return false;
}

/* Does this name already have another meaning in a directory? */
static bool is_reserved(const char *name, size_t len, bool root)
{
	return (len == 1 && name[0] == '.') ||
	       (len == 2 && memcmp(name, "..", 2) == 0) ||
	       (root && len == strlen(VIRTUAL) &&
		memcmp(name, VIRTUAL, len) == 0);
}

bool pool_key_plain(const void *key, size_t len, bool root)
{
	const unsigned char *p = key;

	if (len == 0 || len > POOL_NAME_MAX || has_special(p, len))
		return false;
	return p[0] != '.' || !is_reserved(key, len, root);
}

/* ---- escapes ---- */

static bool is_code(const char *p, const char *end)
{
	static const char codes[][2] = { { '0', '0' }, { '2', 'F' },
					 { '2', 'E' }, { '0', 'E' },
					 { '0', 'C' } };

	if (end - p < 2)
		return false;
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (memcmp(p, codes[i], 2) == 0)
			return true;
	return false;
}

/* p follows a '%'. If a code follows, at once or after any number of "25":
 * returns that number; else -1. */
static int stuffed(const char *p, const char *end)
{
	int n = 0;

	for (; end - p >= 2 && p[0] == '2' && p[1] == '5'; p += 2)
		n++;
	return is_code(p, end) ? n : -1;
}

/* Text to be built, which may not fit. */
struct text {
	char *at;
	size_t len, cap;
};

static void add(struct text *t, const void *data, size_t len)
{
	if (t->len + len <= t->cap)
		memcpy(t->at + t->len, data, len);
	t->len += len;
}

/* ---- a key's path ---- */

static void add_piece(struct text *t, const char *p, size_t len, bool root)
{
	const char *end = p + len;

	if (is_reserved(p, len, root)) {
		add(t, "%2E", 3);
		p++;
	}
	for (; p < end; p++) {
		if (*p == '\0')
			add(t, "%00", 3);
		else if (*p == '/')
			add(t, "%2F", 3);
		else if (*p == '%' && stuffed(p + 1, end) >= 0)
			add(t, "%25", 3);
		else
			add(t, p, 1);
	}
}

/* How many bytes of the key fit into the next piece. */
static size_t piece_len(const char *p, size_t len)
{
	size_t used = 0, n;

	for (n = 0; n < len; n++) {
		used += is_special((unsigned char)p[n]) ? 3 : 1;
		if (used > PIECE_MAX)
			break;
	}
	return n;
}

int pool_key_path(const void *key, size_t len, bool root, char *buf,
		  size_t cap)
{
	struct text t = { buf, 0, cap };
	const char *p = key;
	bool below = false;
	size_t n;

	if (len > POOL_KEY_MAX)
		return -ENAMETOOLONG;
	if (len == 0)
		add(&t, EMPTY, 3);
	else
		add_piece(&t, p, len, root);
	if (t.len > POOL_NAME_MAX) {
		t.len = 0;
		for (; len > 0; p += n, len -= n) {
			n = piece_len(p, len);
			add_piece(&t, p, n, root && !below);
			if (n < len)
				add(&t, CONTINUED "/", 4);
			below = true;
		}
	}
	add(&t, "", 1);
	return t.len > t.cap ? -ENAMETOOLONG : (int)t.len - 1;
}

/* ---- a path's key ---- */

static void take_escape(struct text *t, const char **at, const char *end)
{
	const char *p = *at;
	int n = stuffed(p + 1, end);

	*at = n < 0 ? p + 1 : p + 3;
	if (n != 0)
		add(t, "%", 1);
	else if (memcmp(p + 1, "00", 2) == 0)
		add(t, "", 1);
	else if (memcmp(p + 1, "2F", 2) == 0)
		add(t, "/", 1);
	else if (memcmp(p + 1, "2E", 2) == 0)
		add(t, ".", 1);
	/* 0E (the empty key) and 0C (the end of a piece) stand for no byte. If
	 * they are misplaced, the caller finds that the path of this key is
	 * another one. */
}

static void take_all(struct text *t, const char *p, const char *end)
{
	while (p < end) {
		if (*p == '%') {
			take_escape(t, &p, end);
		} else {
			if (*p != '/')
				add(t, p, 1);
			p++;
		}
	}
}

int pool_key_of_path(const char *path, size_t len, bool root, void *buf,
		     size_t cap)
{
	struct text t = { buf, 0, cap };
	char again[POOL_PATH_MAX + 1];
	int n;

	if (len > POOL_PATH_MAX || memchr(path, '\0', len))
		return -EINVAL;
	take_all(&t, path, path + len);
	if (t.len > t.cap || t.len > POOL_KEY_MAX)
		return -ENAMETOOLONG;
	n = pool_key_path(buf, t.len, root, again, sizeof(again));
	if (n < 0 || (size_t)n != len || memcmp(again, path, len) != 0)
		return -EINVAL;
	return (int)t.len;
}
