/*
 * Predicts file sizes, to reserve pages before files are written. Also
 * recognizes temporary names, which only a rename publishes.
 */
#include "pool/node/node_priv.h"

#include <string.h>

#define LEARN_VARIED 8 /* after so many equal sizes, `varied` is 0 */
#define LEARN_DEPTH 16

static void learn_one(struct node_learn *l, uint64_t size)
{
	if (l->count > 0 && size != l->last)
		l->varied = LEARN_VARIED;
	else if (l->varied > 0)
		l->varied--;
	if (size >= l->largest || l->varied == 0)
		l->largest = size;
	else if (l->count % 16 == 0)
		l->largest -= (l->largest - size) / 4;
	l->last = size;
	l->count++;
}

void node_learn_size(struct pool_node *n, struct node_entry *e, uint64_t size)
{
	struct pool_dir *d = e->e.parent;
	int depth;

	if (size == 0)
		return;
	for (depth = 0; d && depth < LEARN_DEPTH; d = d->e.parent, depth++)
		learn_one(&node_dir(&d->e)->learn, size);
	learn_one(&n->learn, size);
}

uint64_t node_learn_predict(struct pool_node *n, struct node_dirent *dir)
{
	const struct node_learn *l = &dir->learn;
	struct pool_dir *d;

	if (l->count > 0)
		return l->varied ? 2 * l->largest : l->last;
	/* No history: uses that of a directory above, if its sizes do not vary
	 * (reserving the largest of mixed sizes would waste ready files). */
	for (d = dir->d.e.parent; d; d = d->e.parent)
		if (node_dir(&d->e)->learn.count > 0) {
			l = &node_dir(&d->e)->learn;
			return l->varied ? 0 : l->last;
		}
	return n->learn.varied ? 0 : n->learn.last;
}

/* ---- names that only a rename publishes ---- */

static bool ends_with(const char *s, size_t len, const char *tail)
{
	size_t k = strlen(tail);

	return len >= k && memcmp(s + len - k, tail, k) == 0;
}

bool node_name_is_temporary(const char *s, size_t len)
{
	/* "*.tmp" covers ".<uuid>.tmp" and "*_<digits>.tmp" as well. */
	if (ends_with(s, len, ".tmp"))
		return true;
	if (len >= 4 && memcmp(s, ".tmp", 4) == 0)
		return true;
	return memmem(s, len, ".tmp.", 5) != NULL;
}
