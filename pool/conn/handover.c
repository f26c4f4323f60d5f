#include "pool/conn/handover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/base/log.h"
#include "pool/conn/unpack.h"

struct record {
	uint32_t type, len;
};

/* ---- writing ---- */

static void fail(struct pool_handover *h, int err)
{
	if (!h->err)
		h->err = err;
}

int pool_handover_create(struct pool_handover *h)
{
	int fd = memfd_create("kvpool-handover", MFD_CLOEXEC);

	memset(h, 0, sizeof(*h));
	if (fd < 0)
		return -errno;
	h->fds_cap = 64;
	h->fds = malloc(h->fds_cap * sizeof(*h->fds));
	h->out = h->fds ? fdopen(fd, "w") : NULL;
	if (!h->out) {
		close(fd);
		free(h->fds);
		return -ENOMEM;
	}
	h->nfds = POOL_HANDOVER_FD_MORE;
	memset(h->fds, 0xff, h->nfds * sizeof(*h->fds));
	h->fds[POOL_HANDOVER_FD_RECORDS] = fd;
	return 0;
}

void pool_handover_put(struct pool_handover *h, enum pool_handover_type type,
		       const ProtobufCMessage *msg)
{
	size_t len = msg ? protobuf_c_message_get_packed_size(msg) : 0;
	struct record r = { .type = type, .len = (uint32_t)len };
	uint8_t *buf;

	if (h->err)
		return;
	buf = len <= INT32_MAX ? malloc(len + 1) : NULL;
	if (!buf) {
		fail(h, -ENOMEM);
		return;
	}
	if (msg)
		protobuf_c_message_pack(msg, buf);
	if (fwrite(&r, sizeof(r), 1, h->out) != 1 ||
	    fwrite(buf, 1, len, h->out) != len)
		fail(h, -EIO);
	free(buf);
}

void pool_handover_set_fd(struct pool_handover *h, enum pool_handover_fd which,
			  int fd)
{
	h->fds[which] = fd;
}

unsigned int pool_handover_add_fd(struct pool_handover *h, int fd)
{
	unsigned int cap = h->fds_cap * 2;
	int *fds;

	if (h->nfds == h->fds_cap) {
		fds = cap > POOL_HANDOVER_FDS_MAX ?
			      NULL : realloc(h->fds, cap * sizeof(*fds));
		if (!fds) {
			fail(h, -EMFILE);
			return 0;
		}
		h->fds = fds;
		h->fds_cap = cap;
	}
	h->fds[h->nfds] = fd;
	return h->nfds++;
}

int pool_handover_finish(struct pool_handover *h)
{
	pool_handover_put(h, POOL_HANDOVER_END, NULL);
	if (fflush(h->out) != 0)
		fail(h, -EIO);
	return h->err;
}

/* ---- reading ---- */

/*
 * Bounds of the records' size. The old process belongs to the same user, but
 * may be of another version. A file has few xattrs and holders; a mount may
 * have many notifications that were not sent to its kernel yet.
 */
#define RECORD (1u << 20)
#define FIELDS 4096u /* of one file, or unknown to this version */
#define TEXT (64u << 20)
static const struct pool_bound bounds[] = {
	[POOL_HANDOVER_NODE] = { NULL, 16u << 20, 4096, 64u << 10 },
	[POOL_HANDOVER_NAME] = { NULL, RECORD, 0, FIELDS },
	[POOL_HANDOVER_OPS] = { NULL, RECORD, POOL_BATCH_MAX, 64u << 10 },
	[POOL_HANDOVER_FS] = { NULL, TEXT, 1u << 20, 1u << 20 },
	[POOL_HANDOVER_INODE] = { NULL, RECORD, 0, FIELDS },
	[POOL_HANDOVER_OPEN] = { NULL, TEXT, 0, FIELDS },
};

static int unpack(enum pool_handover_type type,
		  const ProtobufCMessageDescriptor *d, const uint8_t *data,
		  size_t len, ProtobufCMessage **ret_msg)
{
	struct pool_bound b = bounds[type];
	char why[POOL_UNPACK_WHY];
	int err;

	b.desc = d;
	err = pool_unpack(&b, data, len, ret_msg, why);
	if (err)
		pool_error("the previous daemon's %s %s",
			   d->short_name, why);
	return err == -ENOMEM ? err : err ? -EBADMSG : 0;
}

int pool_handover_open(struct pool_handover *h)
{
	struct stat st;
	void *p;

	if (h->nfds < POOL_HANDOVER_FD_MORE)
		return -EBADMSG;
	if (fstat(h->fds[POOL_HANDOVER_FD_RECORDS], &st) < 0)
		return -errno;
	p = st.st_size > 0 ? mmap(NULL, (size_t)st.st_size, PROT_READ,
				  MAP_PRIVATE,
				  h->fds[POOL_HANDOVER_FD_RECORDS], 0)
			   : MAP_FAILED;
	if (p == MAP_FAILED)
		return -EBADMSG;
	h->in = p;
	h->in_len = (size_t)st.st_size;
	h->at = 0;
	return 0;
}

int pool_handover_get(struct pool_handover *h, enum pool_handover_type type,
		      const ProtobufCMessageDescriptor *d,
		      ProtobufCMessage **ret_msg)
{
	struct record r;

	if (h->in_len - h->at < sizeof(r))
		return -EBADMSG;
	memcpy(&r, h->in + h->at, sizeof(r));
	if (r.len > h->in_len - h->at - sizeof(r))
		return -EBADMSG;
	if (r.type != type)
		return -ENOENT;
	if (d) {
		int err = unpack(type, d, h->in + h->at + sizeof(r), r.len,
				 ret_msg);

		if (err)
			return err;
	}
	h->at += sizeof(r) + r.len;
	return 0;
}

int pool_handover_each(struct pool_handover *h, enum pool_handover_type type,
		       const ProtobufCMessageDescriptor *d,
		       int (*get)(void *arg, struct pool_handover *h,
				  const void *msg),
		       void *arg)
{
	ProtobufCMessage *msg;
	int err;

	for (;;) {
		err = pool_handover_get(h, type, d, &msg);
		if (err)
			return err == -ENOENT ? 0 : err;
		err = get(arg, h, msg);
		protobuf_c_message_free_unpacked(msg, NULL);
		if (err)
			return err;
	}
}

int pool_handover_take_fd(struct pool_handover *h, unsigned int index)
{
	int fd;

	if (index >= h->nfds || h->fds[index] < 0)
		return -EBADF;
	fd = h->fds[index];
	h->fds[index] = -1;
	return fd;
}

void pool_handover_close(struct pool_handover *h)
{
	unsigned int i;

	if (h->out)
		fclose(h->out);
	else
		for (i = 0; i < h->nfds; i++)
			if (h->fds[i] >= 0)
				close(h->fds[i]);
	if (h->in)
		munmap((void *)(uintptr_t)h->in, h->in_len);
	free(h->fds);
	memset(h, 0, sizeof(*h));
}
