/*
 * A sparse index of a directory's children: pointers to about every
 * POOL_MARKS_STRIDE-th of them, in order of their cookies. The place of a
 * cookie is found by a binary search and a walk of at most a stride.
 *
 *   children  o o o o M o o o o M o o    M: marked, in the array
 *
 * Cookies only grow along the children, so marks are appended, never inserted.
 * A mark whose child is removed moves to a neighbour, or is dropped if that is
 * marked, too: no gap between two marks grows. A child has at most one mark, so
 * the index is at most 8 bytes a child; 8 per stride if none was removed. A
 * directory of less than a stride has none.
 *
 * Failure modes: without memory for a mark there is none, and the gap grows
 * until an addition finds memory. Searches are slower then, and right.
 *
 * Thread: that of the tree.
 */
#ifndef POOL_MODEL_MARKS_H
#define POOL_MODEL_MARKS_H

#include "pool/model/tree.h"

#define POOL_MARKS_STRIDE 128u

/* e was appended to d's children, and counted. */
void pool_marks_added(struct pool_dir *d, struct pool_entry *e);
/* e will be taken from d's children. */
void pool_marks_removing(struct pool_dir *d, struct pool_entry *e);
/* The youngest marked child whose cookie is not greater; NULL: none. */
struct pool_entry *pool_marks_find(const struct pool_dir *d, uint64_t cookie);
void pool_marks_fini(struct pool_dir *d);

/* For tests: every mark, gap and count, asserted. O(children). gap_max: the
 * longest gap that is allowed. Returns the number of marks. */
size_t pool_marks_check(const struct pool_dir *d, size_t gap_max);

#endif
