#include "master/leader_keys.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/log.h"

static const char *const key_names[] = { "version", "leader", "epoch" };

static size_t key_of(const char *prefix, enum leader_key key, char *buf,
		     size_t cap)
{
	int n = snprintf(buf, cap, "%s%s", prefix, key_names[key]);

	assert(n > 0 && (size_t)n < cap);
	return (size_t)n;
}

json_t *leader_key_get(const char *prefix, enum leader_key key)
{
	char buf[256];

	return etcd_op_get(etcd_slice(buf, key_of(prefix, key, buf,
						  sizeof(buf))));
}

json_t *leader_key_put(const char *prefix, enum leader_key key,
		       const char *value, int64_t lease)
{
	char buf[256];
	size_t n = key_of(prefix, key, buf, sizeof(buf));

	return etcd_op_put(etcd_slice(buf, n),
			   etcd_slice(value, strlen(value)), lease);
}

json_t *leader_key_compare(const char *prefix, enum leader_key key,
			   const char *what, int64_t revision)
{
	char buf[256];
	size_t n = key_of(prefix, key, buf, sizeof(buf));

	return etcd_compare(etcd_slice(buf, n), what, revision);
}

json_t *leader_query(const char *prefix)
{
	return etcd_txn(json_array(),
			json_pack("[o,o,o]",
				  leader_key_get(prefix, LEADER_KEY_VERSION),
				  leader_key_get(prefix, LEADER_KEY_HOLDER),
				  leader_key_get(prefix, LEADER_KEY_EPOCH)),
			NULL);
}

int leader_key_value(const json_t *answer, enum leader_key key, char *buf,
		     size_t cap)
{
	const json_t *kv = etcd_txn_kv(answer, key);
	char *text;
	size_t len;
	int err;

	if (json_array_size(json_object_get(answer, "responses")) !=
	    LEADER_NKEYS)
		return -EPROTO;
	if (!kv)
		return -ENOENT;
	err = etcd_bytes(kv, "value", &text, &len);
	if (err)
		return err;
	err = len < cap && strlen(text) == len ? 0 : -EPROTO;
	if (!err)
		memcpy(buf, text, len + 1);
	free(text);
	return err;
}

int leader_answer(const json_t *answer, char ret_address[LEADER_ADDRESS_MAX])
{
	return leader_key_value(answer, LEADER_KEY_HOLDER, ret_address,
				LEADER_ADDRESS_MAX);
}

int leader_check_version(const char *prefix, const json_t *answer)
{
	char text[32] = "?";
	int err = leader_key_value(answer, LEADER_KEY_VERSION, text,
				   sizeof(text));

	if (err == -ENOENT || err == -ENOMEM ||
	    (!err && !strcmp(text, LEADER_VERSION)))
		return 0;
	pool_error("etcd: %sversion is \"%s\", not \"%s\": written by another "
		   "version of this program; it is left as it is (use that "
		   "one, or another --cluster)",
		   prefix, text, LEADER_VERSION);
	return -EPROTO;
}
