/* etcd's JSON messages: bytes are in base64, 64-bit numbers are strings. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "master/etcd.h"

static const char digits[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static json_t *bytes(struct etcd_slice s)
{
	size_t n = (s.len + 2) / 3 * 4, i, at = 0;
	char *text = malloc(n + 1);
	const uint8_t *p = s.p;
	json_t *json;

	if (!text)
		return NULL;
	for (i = 0; i < s.len; i += 3) {
		uint32_t v = (uint32_t)p[i] << 16;

		v |= i + 1 < s.len ? (uint32_t)p[i + 1] << 8 : 0;
		v |= i + 2 < s.len ? p[i + 2] : 0;
		text[at++] = digits[v >> 18];
		text[at++] = digits[v >> 12 & 63];
		text[at++] = i + 1 < s.len ? digits[v >> 6 & 63] : '=';
		text[at++] = i + 2 < s.len ? digits[v & 63] : '=';
	}
	json = json_stringn(text, n);
	free(text);
	return json;
}

static int digit(char c)
{
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* Whole groups of four, "=" at the very end only. */
static int decode(const char *text, size_t n, char *out, size_t *ret_len)
{
	size_t i, len = 0;

	if (n % 4)
		return -EPROTO;
	for (i = 0; i < n; i += 4) {
		int pad = 0, a = digit(text[i]), b = digit(text[i + 1]);
		int c = digit(text[i + 2]), d = digit(text[i + 3]);

		if (i + 4 == n && text[n - 1] == '=') {
			pad = text[n - 2] == '=' ? 2 : 1;
			c = pad == 2 ? 0 : c;
			d = 0;
		}
		if (a < 0 || b < 0 || c < 0 || d < 0)
			return -EPROTO;
		out[len++] = (char)(a << 2 | b >> 4);
		if (pad < 2)
			out[len++] = (char)(b << 4 | c >> 2);
		if (pad < 1)
			out[len++] = (char)(c << 6 | d);
	}
	*ret_len = len;
	return 0;
}

int etcd_bytes(const json_t *kv, const char *what, char **ret_data,
	       size_t *ret_len)
{
	const json_t *json = json_object_get(kv, what);
	const char *text = json ? json_string_value(json) : "";
	size_t n = json ? json_string_length(json) : 0;
	char *data;
	int err;

	if (!text)
		return -EPROTO;
	data = malloc(n / 4 * 3 + 1);
	if (!data)
		return -ENOMEM;
	err = decode(text, n, data, ret_len);
	if (err) {
		free(data);
		return err;
	}
	data[*ret_len] = 0;
	*ret_data = data;
	return 0;
}

static json_t *number(int64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", (long long)v);
	return json_string(text);
}

int64_t etcd_int(const json_t *object, const char *key)
{
	const json_t *v = json_object_get(object, key);

	if (json_is_string(v))
		return strtoll(json_string_value(v), NULL, 10);
	return json_integer_value(v);
}

json_t *etcd_op_put(struct etcd_slice key, struct etcd_slice value,
		    int64_t lease)
{
	return json_pack("{s{so so so}}", "request_put", "key", bytes(key),
			 "value", bytes(value), "lease", number(lease));
}

json_t *etcd_op_delete(struct etcd_slice key)
{
	return json_pack("{s{so}}", "request_delete_range", "key", bytes(key));
}

json_t *etcd_op_get(struct etcd_slice key)
{
	return json_pack("{s{so}}", "request_range", "key", bytes(key));
}

json_t *etcd_compare(struct etcd_slice key, const char *what, int64_t revision)
{
	const char *target = !strcmp(what, "mod_revision") ? "MOD" : "CREATE";

	return json_pack("{so ss ss so}", "key", bytes(key), "target", target,
			 "result", "EQUAL", what, number(revision));
}

json_t *etcd_txn(json_t *compare, json_t *success, json_t *failure)
{
	if (!failure)
		failure = json_array();
	return json_pack("{so so so}", "compare", compare, "success", success,
			 "failure", failure);
}

json_t *etcd_range(struct etcd_slice from, struct etcd_slice to,
		   unsigned int limit)
{
	return json_pack("{so so so}", "key", bytes(from), "range_end",
			 bytes(to), "limit", number(limit));
}

json_t *etcd_txn_kv(const json_t *answer, size_t i)
{
	const json_t *all = json_object_get(answer, "responses");
	const json_t *range = json_object_get(json_array_get(all, i),
					      "response_range");

	return json_array_get(json_object_get(range, "kvs"), 0);
}
