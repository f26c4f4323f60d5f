/*
 * A table of pointers by small number, for handles that the kernel keeps and
 * sends back (nodeids, file handles). Numbers, unlike addresses, stay valid in
 * a process that takes over.
 *
 * A removed number is reused. Memory: 8 bytes per slot; the table has room for
 * the highest number of items that existed at once, and does not shrink.
 *
 * Thread: any; the caller serialises access to one table (here: loop).
 */
#ifndef POOL_BASE_SLOTS_H
#define POOL_BASE_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pool_slots {
	void **at; /* owns; item, or if free: 2 * next free number + 1 */
	size_t cap;
	size_t free; /* head of the free list; cap: empty */
	bool stale;  /* the free list must be rebuilt */
};

void pool_slots_init(struct pool_slots *s);
/* Frees the table, not the items. */
void pool_slots_fini(struct pool_slots *s);
/* item: not NULL, at an even address. 0 or -ENOMEM. */
int pool_slots_add(struct pool_slots *s, void *item, uint64_t *ret_n);
/* Add under the number n: 0, -EEXIST, -ENOMEM, -ERANGE (n >= 2^31). For
 * take-overs: the next pool_slots_add walks the whole table. */
int pool_slots_add_at(struct pool_slots *s, uint64_t n, void *item);
/* The item, or NULL if n is free. */
void *pool_slots_get(const struct pool_slots *s, uint64_t n);
/* n must be in use. */
void pool_slots_remove(struct pool_slots *s, uint64_t n);
/* The first number in use from n on; s->cap if there is none. */
uint64_t pool_slots_next(const struct pool_slots *s, uint64_t n);

#endif
