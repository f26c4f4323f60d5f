#include "pool/model/marks.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CAP_MIN 8u

struct pool_marks {
	size_t n, cap;
	uint64_t after; /* children after the last mark */
	struct pool_entry *at[];
};

static struct pool_marks *resize(struct pool_dir *d, size_t cap)
{
	struct pool_marks *m = realloc(d->marks,
				       sizeof(*m) + cap * sizeof(m->at[0]));

	if (!m)
		return NULL;
	if (!d->marks)
		m->n = 0;
	m->cap = cap;
	d->marks = m;
	return m;
}

/* The index with room for one more mark; NULL: ENOMEM. */
static struct pool_marks *with_room(struct pool_dir *d)
{
	struct pool_marks *m = d->marks;

	if (!m)
		return resize(d, CAP_MIN);
	return m->n < m->cap ? m : resize(d, m->cap * 2);
}

/* How many marks have this cookie or a smaller one. */
static size_t count_upto(const struct pool_marks *m, uint64_t cookie)
{
	size_t low = 0, high = m->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (m->at[mid]->cookie <= cookie)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

void pool_marks_added(struct pool_dir *d, struct pool_entry *e)
{
	struct pool_marks *m = d->marks;
	uint64_t after = m ? ++m->after : d->nchildren;

	if (after < POOL_MARKS_STRIDE)
		return;
	m = with_room(d);
	if (!m)
		return; /* the next addition tries again */
	m->at[m->n++] = e;
	m->after = 0;
	e->marked = 1;
}

static struct pool_entry *neighbour(const struct pool_dir *d,
				    struct pool_list *sibling)
{
	return sibling == &d->children ?
		       NULL :
		       pool_list_entry(sibling, struct pool_entry, sibling);
}

/* Drops mark i. If it was the only one, the directory becomes empty. */
static void drop(struct pool_dir *d, size_t i)
{
	struct pool_marks *m = d->marks;

	m->n--;
	memmove(&m->at[i], &m->at[i + 1], (m->n - i) * sizeof(m->at[0]));
	if (m->n == 0)
		pool_marks_fini(d);
	else if (m->cap > CAP_MIN && m->n < m->cap / 4)
		resize(d, m->cap / 2); /* may fail: then it stays larger */
}

void pool_marks_removing(struct pool_dir *d, struct pool_entry *e)
{
	struct pool_marks *m = d->marks;
	struct pool_entry *to = neighbour(d, e->sibling.next);
	bool last;
	size_t i;

	if (!m)
		return;
	last = e->cookie >= m->at[m->n - 1]->cookie;
	if (!e->marked) {
		m->after -= last;
		return;
	}
	i = count_upto(m, e->cookie) - 1;
	if (last && to)
		m->after--; /* the last mark moves to e's neighbour */
	if (!to)
		to = neighbour(d, e->sibling.prev);
	if (!to || to->marked) {
		drop(d, i);
		return;
	}
	m->at[i] = to;
	to->marked = 1;
}

struct pool_entry *pool_marks_find(const struct pool_dir *d, uint64_t cookie)
{
	size_t n = d->marks ? count_upto(d->marks, cookie) : 0;

	return n ? d->marks->at[n - 1] : NULL;
}

void pool_marks_fini(struct pool_dir *d)
{
	free(d->marks);
	d->marks = NULL;
}

size_t pool_marks_check(const struct pool_dir *d, size_t gap_max)
{
	const struct pool_marks *m = d->marks;
	size_t gap = 0, seen = 0, n = m ? m->n : 0;
	const struct pool_list *it;

	for (it = d->children.next; it != &d->children; it = it->next) {
		const struct pool_entry *e = pool_list_entry(
			(struct pool_list *)(uintptr_t)it, struct pool_entry,
			sibling);

		gap++;
		assert(gap <= gap_max);
		if (!e->marked)
			continue;
		assert(seen < n && m->at[seen] == e);
		seen++;
		gap = 0;
	}
	assert(seen == n && (!m || (n > 0 && m->after == gap)));
	return n;
}
