/*
 * A sparse index of a directory's children: pointers to about every
 * POOL_MARKS_STRIDE-th of them, in order of their cookies. The place of a
 * cookie is found by a binary search and a walk of at most a stride.
 *
 *   children  o o o o M o o o o M o o    M: marked, in the array
 *
 * Cookies only grow along the children, so marks are appended, never inserted.
 * When a marked child is removed, its mark moves to a neighbour, or is dropped
 * if the neighbour has one: no gap between two marks grows. A child has at most
 * one mark, so the index takes at most 8 bytes a child, and 8 bytes a stride if
 * no child was removed. A directory gets an index when it has a whole stride of
 * children.
 *
 * Failure modes: if a mark cannot be allocated, the gap grows until a later
 * addition finds memory. Searches are then slower, but correct.
 *
 * Thread: the tree's.
 */
#ifndef POOL_MODEL_MARKS_H
#define POOL_MODEL_MARKS_H

#include "pool/model/tree.h"

#define POOL_MARKS_STRIDE 128u

/* Call it after e was appended to d's children, and counted. */
void pool_marks_added(struct pool_dir *d, struct pool_entry *e);
/* Call it before e is taken from d's children. */
void pool_marks_removing(struct pool_dir *d, struct pool_entry *e);
/* The last marked child whose cookie is <= cookie; NULL: none. */
struct pool_entry *pool_marks_find(const struct pool_dir *d, uint64_t cookie);
void pool_marks_fini(struct pool_dir *d);

/* For tests: asserts that marks, gaps and counts are right. O(children).
 * gap_max: longest gap allowed, in children. Returns the number of marks. */
size_t pool_marks_check(const struct pool_dir *d, size_t gap_max);

#endif
