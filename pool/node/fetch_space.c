/* Bytes of the store that fetches in flight use: claimed, or already allocated.
 */
#include "pool/node/fetch.h"

#include <sys/stat.h>

uint64_t node_fetch_cache(struct pool_node *n)
{
	struct pool_list *it, *tmp;
	uint64_t sum = 0;

	pool_list_each(it, tmp, &n->fetches) {
		struct node_fetch *f =
			pool_list_entry(it, struct node_fetch, link);

		if (f->claimed && (f->kind != FETCH_REPLICA || f->extra))
			sum += f->size;
	}
	return sum;
}

/* Bytes of f's claim for which pages were allocated since the last call. 0 with
 * opts.puts_whole: the claim is kept until the fetch ends. 0, too, for an
 * object that fits in one frame: the turn that writes it also ends the fetch.
 */
static uint64_t settle(struct node_fetch *f)
{
	uint64_t have, more;
	struct stat st;

	if (!f->claimed || f->n->opts.puts_whole || f->file.fd < 0 ||
	    f->size <= POOL_INLINE_MAX || fstat(f->file.fd, &st) < 0)
		return 0;
	have = (uint64_t)st.st_blocks * 512;
	if (have > f->size)
		have = f->size; /* the rest of the last page */
	more = have > f->landed ? have - f->landed : 0;
	f->landed += more;
	return more;
}

uint64_t node_fetch_settle(struct pool_node *n)
{
	struct pool_list *it, *tmp;
	uint64_t sum = 0, more = 0;

	pool_list_each(it, tmp, &n->fetches) {
		struct node_fetch *f =
			pool_list_entry(it, struct node_fetch, link);

		more += settle(f);
		sum += f->landed;
	}
	n->claimed -= more < n->claimed ? more : n->claimed;
	return sum;
}
