/*
 * A table of pointers by small number: what is told to somebody outside (the
 * kernel's nodeids and file handles), who gives it back and must find the same
 * thing, also in the process that takes over from this one: there, an address
 * would say nothing.
 *
 * A number is given again as soon as it is free. Memory: 8 bytes for each of
 * the most that there were at once.
 *
 * Thread: any; the caller serialises access to one table (here: loop).
 */
#ifndef POOL_BASE_SLOTS_H
#define POOL_BASE_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pool_slots {
	void **at; /* owns; an item, or (free) the next free one, tagged */
	size_t cap;
	size_t free; /* the first free one; cap: none */
	bool stale;  /* the list of the free ones is to be made anew */
};

void pool_slots_init(struct pool_slots *s);
/* The items are the caller's. */
void pool_slots_fini(struct pool_slots *s);
/* item: not NULL, at an even address. 0 or -ENOMEM. */
int pool_slots_add(struct pool_slots *s, void *item, uint64_t *ret_n);
/* Under this very number: 0, -EEXIST, -ENOMEM, -ERANGE (beyond 2^31). For
 * tables that are taken over; the next add looks at every slot once. */
int pool_slots_add_at(struct pool_slots *s, uint64_t n, void *item);
/* NULL if it is free. */
void *pool_slots_get(const struct pool_slots *s, uint64_t n);
void pool_slots_remove(struct pool_slots *s, uint64_t n);
/* The first used number from n on; cap if there is none. */
uint64_t pool_slots_next(const struct pool_slots *s, uint64_t n);

#endif
