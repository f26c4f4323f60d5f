#include "master/state_rec.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "master/owners.h"
#include "pool/base/log.h"
#include "pool/conn/peer_addr.h"
#include "pool/conn/unpack.h"

static void put_u32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static uint32_t get_u32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
	       (uint32_t)p[3] << 24;
}

static void put_u64(uint8_t *p, uint64_t v)
{
	put_u32(p, (uint32_t)v);
	put_u32(p + 4, (uint32_t)(v >> 32));
}

static uint64_t get_u64(const uint8_t *p)
{
	return get_u32(p) | (uint64_t)get_u32(p + 4) << 32;
}

static uint32_t checksum(const uint8_t *p, size_t len)
{
	return (uint32_t)XXH3_64bits(p, len);
}

/* ops_run, ops_done and ops_gen follow the name and a 0, at which older
 * versions end the record. Then role and advertise, if there is a role. A
 * version that does not know these ignores all that follows the name. */
#define MEMBER_OPS 25u
#define MEMBER_TEXT_MAX 512u /* name, 0, MEMBER_OPS, role, advertise */

static ptrdiff_t encode_member(const struct master_record *r, uint8_t *p,
			       size_t cap)
{
	size_t name = strlen(r->name), len = 8 + POOL_ID_SIZE + name;
	size_t at = r->role ? strlen(r->advertise) : 0;

	if (len + MEMBER_OPS + 1 + at > cap)
		return -EMSGSIZE;
	put_u64(p, r->u64);
	memcpy(p + 8, r->id, POOL_ID_SIZE);
	memcpy(p + 8 + POOL_ID_SIZE, r->name, name);
	if (!r->ops_run && !r->role)
		return (ptrdiff_t)len;
	p[len] = 0;
	put_u64(p + len + 1, r->ops_run);
	put_u64(p + len + 9, r->ops_done);
	put_u64(p + len + 17, r->ops_gen);
	len += MEMBER_OPS;
	if (!r->role)
		return (ptrdiff_t)len;
	p[len++] = r->role;
	memcpy(p + len, r->advertise, at);
	return (ptrdiff_t)(len + at);
}

/* The payload after its first byte, the type. */
static ptrdiff_t encode_body(const struct master_record *r, uint8_t *p,
			     size_t cap)
{
	switch (r->type) {
	case MASTER_REC_EPOCH:
		put_u64(p, r->u64);
		return 8;
	case MASTER_REC_LOST: /* 0.1: without an account */
		put_u64(p, r->u64);
		put_u32(p + 8, r->account.id);
		p[12] = r->account.kind;
		return r->account.kind ? 13 : 12;
	case MASTER_REC_MEMBER:
		return encode_member(r, p, cap);
	case MASTER_REC_DRAIN:
		put_u64(p, r->u64);
		memcpy(p + 8, r->id, POOL_ID_SIZE);
		return 8 + POOL_ID_SIZE;
	case MASTER_REC_DIR:
	case MASTER_REC_RMDIR:
	case MASTER_REC_TOMB:
		if (kvpool__meta__get_packed_size(r->meta) > cap)
			return -EMSGSIZE;
		return (ptrdiff_t)kvpool__meta__pack(r->meta, p);
	}
	return -EMSGSIZE;
}

ptrdiff_t state_rec_encode(const struct master_record *r, uint8_t *buf,
			   size_t cap)
{
	uint8_t *payload = buf + STATE_REC_HEAD;
	ptrdiff_t body;
	uint32_t len;

	payload[0] = (uint8_t)r->type;
	body = encode_body(r, payload + 1, cap - STATE_REC_HEAD - 1);
	if (body < 0)
		return body;
	len = (uint32_t)body + 1;
	put_u32(buf, len);
	put_u32(buf + 4, ~len);
	put_u32(buf + 8, checksum(payload, len));
	return (ptrdiff_t)(STATE_REC_HEAD + len);
}

/* ---- loading ---- */

struct loading {
	int (*load)(void *arg, const struct master_record *r);
	void *arg;
	struct state_loaded *ret;
};

static int load_meta(struct loading *l, struct master_record *r,
		     const uint8_t *p, size_t len)
{
	ProtobufCMessage *msg;
	int err = pool_unpack(&pool_kept_bound, p, len, &msg, NULL);

	if (err)
		return err == -ENOMEM ? err : -EPROTO;
	r->meta = (Kvpool__Meta *)msg;
	err = l->load(l->arg, r);
	protobuf_c_message_free_unpacked(msg, NULL);
	return err;
}

static int load_member(struct loading *l, struct master_record *r,
		       const uint8_t *p, size_t len)
{
	char text[MEMBER_TEXT_MAX];
	size_t end;

	if (len < 8 + POOL_ID_SIZE || len - 8 - POOL_ID_SIZE >= sizeof(text))
		return -EPROTO;
	r->u64 = get_u64(p);
	r->id = p + 8;
	len -= 8 + POOL_ID_SIZE;
	memcpy(text, p + 8 + POOL_ID_SIZE, len);
	text[len] = 0;
	r->name = text;
	end = strlen(text);
	if (len - end >= MEMBER_OPS) {
		p = (uint8_t *)text + end + 1;
		r->ops_run = get_u64(p);
		r->ops_done = get_u64(p + 8);
		r->ops_gen = get_u64(p + 16);
	}
	if (len - end > MEMBER_OPS) {
		r->role = (uint8_t)text[end + MEMBER_OPS];
		r->advertise = text + end + MEMBER_OPS + 1;
	}
	return l->load(l->arg, r);
}

static int load_payload(struct loading *l, const uint8_t *p, size_t len)
{
	struct master_record r = { .type = p[0] };

	p++;
	len--;
	switch (r.type) {
	case MASTER_REC_EPOCH:
		if (len != 8)
			return -EPROTO;
		r.u64 = get_u64(p);
		if (r.u64 > l->ret->epoch)
			l->ret->epoch = r.u64;
		return l->load(l->arg, &r);
	case MASTER_REC_LOST:
		if ((len != 8 && len != 12 && len != 13) ||
		    (len == 13 && p[12] >= MASTER_BY_KINDS))
			return -EPROTO;
		r.u64 = get_u64(p);
		r.account.id = len == 8 ? MASTER_UID_ANYONE : get_u32(p + 8);
		r.account.kind = len == 13 ? p[12] : MASTER_BY_OWNER;
		return l->load(l->arg, &r);
	case MASTER_REC_MEMBER:
		return load_member(l, &r, p, len);
	case MASTER_REC_DRAIN:
		if (len != 8 + POOL_ID_SIZE)
			return -EPROTO;
		r.u64 = get_u64(p);
		r.id = p + 8;
		return l->load(l->arg, &r);
	case MASTER_REC_DIR:
	case MASTER_REC_RMDIR:
	case MASTER_REC_TOMB:
		return load_meta(l, &r, p, len);
	}
	return -EPROTONOSUPPORT;
}

static bool all_zero(const uint8_t *p, size_t len)
{
	while (len && !*p) {
		p++;
		len--;
	}
	return !len;
}

enum found { FOUND_RECORD, FOUND_TORN, FOUND_DAMAGE };

/* Classify the bytes at p, with `left` > 0 bytes to the end of the file. */
static enum found inspect(const uint8_t *p, size_t left, uint32_t *ret_len)
{
	uint32_t len;

	if (left < STATE_REC_HEAD)
		return FOUND_TORN;
	len = get_u32(p);
	if (get_u32(p + 4) != ~len || !len ||
	    len > STATE_REC_MAX - STATE_REC_HEAD)
		return all_zero(p, left) ? FOUND_TORN : FOUND_DAMAGE;
	if (len > left - STATE_REC_HEAD)
		return FOUND_TORN;
	if (get_u32(p + 8) != checksum(p + STATE_REC_HEAD, len))
		return len == left - STATE_REC_HEAD ? FOUND_TORN : FOUND_DAMAGE;
	*ret_len = len;
	return FOUND_RECORD;
}

int state_rec_decode(const uint8_t *buf, size_t len,
		     int (*load)(void *arg, const struct master_record *r),
		     void *arg)
{
	struct state_loaded got = { 0 };
	struct loading l = { load, arg, &got };
	uint32_t payload = 0;

	if (!len || inspect(buf, len, &payload) != FOUND_RECORD ||
	    STATE_REC_HEAD + payload != len)
		return -EPROTO;
	return load_payload(&l, buf + STATE_REC_HEAD, payload);
}

static int damaged(const char *path, uint64_t at)
{
	pool_error("state file %s: damaged at byte %llu; it is left as it is "
		   "(restore a copy, or move it away and restart the nodes "
		   "with empty stores)",
		   path, (unsigned long long)at);
	return -EPROTO;
}

static int newer_type(const char *path, uint64_t at, unsigned int type)
{
	pool_error("state file %s: the record at byte %llu is of type %u, "
		   "which this version of the program does not know: a newer "
		   "one wrote it; it is left as it is (use that one)",
		   path, (unsigned long long)at, type);
	return -EPROTO;
}

static int load_records(int fd, const char *path, const uint8_t *p, size_t size,
			struct loading *l)
{
	size_t at = STATE_HEADER_LEN;
	uint32_t len = 0;
	int err;

	while (at < size) {
		enum found found = inspect(p + at, size - at, &len);

		if (found == FOUND_DAMAGE)
			return damaged(path, at);
		if (found == FOUND_TORN) {
			pool_warn("state file %s: the last record was torn, "
				  "cutting off %zu bytes",
				  path, size - at);
			if (ftruncate(fd, (off_t)at))
				return -errno;
			break;
		}
		err = load_payload(l, p + at + STATE_REC_HEAD, len);
		if (err == -EPROTO)
			return damaged(path, at);
		if (err == -EPROTONOSUPPORT)
			return newer_type(path, at, p[at + STATE_REC_HEAD]);
		if (err)
			return err;
		at += STATE_REC_HEAD + len;
		l->ret->records++;
	}
	l->ret->size = at;
	return 0;
}

static int load_mapped(int fd, const char *path, const uint8_t *p, size_t size,
		       struct loading *l)
{
	size_t head = size < STATE_HEADER_LEN ? size : STATE_HEADER_LEN;

	/* A crash has torn the header of a new file: it has no records yet. */
	if (size < STATE_HEADER_LEN &&
	    (!memcmp(p, STATE_HEADER, head) || all_zero(p, size)))
		return ftruncate(fd, 0) ? -errno : 0;
	if (size < STATE_HEADER_LEN ||
	    memcmp(p, STATE_HEADER, STATE_HEADER_LEN)) {
		pool_error(
			"state file %s: not a state file of this version "
			"(expected \"%.*s\"); it is left as it is (use the "
			"program version that wrote it, or name another file)",
			path, (int)STATE_HEADER_LEN - 1, STATE_HEADER);
		return -EPROTO;
	}
	return load_records(fd, path, p, size, l);
}

int state_load(int fd, const char *path,
	       int (*load)(void *arg, const struct master_record *r), void *arg,
	       struct state_loaded *ret)
{
	struct loading l = { load, arg, ret };
	struct stat st;
	size_t size;
	void *p;
	int err;

	memset(ret, 0, sizeof(*ret));
	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode)) {
		pool_error("state file %s: not a regular file", path);
		return -EPROTO;
	}
	size = (size_t)st.st_size;
	if (!size)
		return 0;
	p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	err = load_mapped(fd, path, p, size, &l);
	munmap(p, size);
	return err;
}
