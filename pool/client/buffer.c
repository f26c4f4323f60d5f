/* Registered buffers: ranges of the caller's memory that do not overlap. */
#include "pool/client/client_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct client_buffer {
	uintptr_t from, to;
	atomic_uint users;
};

void client_buffers_init(struct client_buffers *b)
{
	pthread_rwlock_init(&b->lock, NULL);
	b->n = 0;
}

void client_buffers_fini(struct client_buffers *b)
{
	while (b->n > 0)
		free(b->at[--b->n]);
	pthread_rwlock_destroy(&b->lock);
}

/* lock held: index of the first buffer that ends after addr, or b->n. */
static size_t find(const struct client_buffers *b, uintptr_t addr)
{
	size_t low = 0, high = b->n, mid;

	while (low < high) {
		mid = (low + high) / 2;
		if (b->at[mid]->to <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct client_buffer *client_buffer_take(struct client_buffers *b,
					 const void *addr, size_t len)
{
	uintptr_t from = (uintptr_t)addr;
	struct client_buffer *found = NULL;
	size_t i;

	pthread_rwlock_rdlock(&b->lock);
	i = find(b, from);
	if (i < b->n && b->at[i]->from <= from && len <= b->at[i]->to - from) {
		found = b->at[i];
		atomic_fetch_add(&found->users, 1);
	}
	pthread_rwlock_unlock(&b->lock);
	return found;
}

void client_buffer_give(struct client_buffer *buffer)
{
	if (buffer)
		atomic_fetch_sub(&buffer->users, 1);
}

/* Is the whole range mapped? The system calls that use it check whether it may
 * be read or written. */
static bool is_mapped(uintptr_t from, uintptr_t to)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), n;
	unsigned char vec[4096];

	for (from &= ~(page - 1); from < to; from += n * page) {
		n = (to - from + page - 1) / page;
		if (n > sizeof(vec))
			n = sizeof(vec);
		if (mincore((void *)from, n * page, vec) < 0)
			return false;
	}
	return true;
}

static int insert(struct client_buffers *b, struct client_buffer *new)
{
	size_t i = find(b, new->from);

	if (i < b->n && b->at[i]->from < new->to)
		return client_fail(-EINVAL, "the buffer overlaps another one "
					    "that is registered");
	if (b->n == CLIENT_BUFFERS_MAX)
		return client_fail(-ENOSPC, "too many buffers are registered");
	memmove(&b->at[i + 1], &b->at[i], (b->n - i) * sizeof(b->at[0]));
	b->at[i] = new;
	b->n++;
	return 0;
}

int kvpool_register_buffer(struct kvpool *pool, void *addr, size_t len)
{
	struct client_buffers *b;
	uintptr_t from = (uintptr_t)addr;
	struct client_buffer *new;
	int err = client_check(pool);

	if (err)
		return err;
	b = &pool->buffers;
	if (!addr || len == 0 || len > SIZE_MAX / 2 || from + len < from)
		return client_fail(-EINVAL, "the buffer is NULL, empty or too "
					    "long");
	if (!is_mapped(from, from + len))
		return client_fail(-EFAULT, "the buffer is not mapped");
	new = calloc(1, sizeof(*new));
	if (!new)
		return client_fail(-ENOMEM, "no memory for a buffer");
	new->from = from;
	new->to = from + len;
	pthread_rwlock_wrlock(&b->lock);
	err = insert(b, new);
	pthread_rwlock_unlock(&b->lock);
	if (err)
		free(new);
	return err;
}

int kvpool_unregister_buffer(struct kvpool *pool, void *addr)
{
	struct client_buffers *b;
	struct client_buffer *gone = NULL;
	int err = client_check(pool);
	size_t i;

	if (err)
		return err;
	b = &pool->buffers;
	pthread_rwlock_wrlock(&b->lock);
	i = find(b, (uintptr_t)addr);
	if (i == b->n || b->at[i]->from != (uintptr_t)addr) {
		err = client_fail(-ENOENT, "no buffer is registered there");
	} else if (atomic_load(&b->at[i]->users) > 0) {
		err = client_fail(-EBUSY, "a call is using the buffer");
	} else {
		gone = b->at[i];
		b->n--;
		memmove(&b->at[i], &b->at[i + 1],
			(b->n - i) * sizeof(b->at[0]));
	}
	pthread_rwlock_unlock(&b->lock);
	free(gone);
	return err;
}
