/*
 * Circular doubly linked lists, intrusive (the node lives in its owner).
 *
 * Thread: any; the caller serialises access to one list.
 * A node that is on no list is self-linked (after pool_list_init) so that
 * pool_list_del is always safe to call on an initialised node.
 */
#ifndef POOL_BASE_LIST_H
#define POOL_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#define pool_container_of(ptr, type, member) \
	((type *)(void *)((char *)(ptr) - offsetof(type, member)))

struct pool_list {
	struct pool_list *next, *prev;
};

static inline void pool_list_init(struct pool_list *l)
{
	l->next = l->prev = l;
}

static inline bool pool_list_empty(const struct pool_list *l)
{
	return l->next == l;
}

/* Insert n before pos; with pos the head: append at the tail. */
static inline void pool_list_add_tail(struct pool_list *pos,
				      struct pool_list *n)
{
	n->prev = pos->prev;
	n->next = pos;
	pos->prev->next = n;
	pos->prev = n;
}

/* Insert n after pos; with pos the head: push at the front. */
static inline void pool_list_add(struct pool_list *pos, struct pool_list *n)
{
	pool_list_add_tail(pos->next, n);
}

/* Remove n from its list, if it is on one. n is self-linked after. */
static inline void pool_list_del(struct pool_list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	pool_list_init(n);
}

/* Move every node of from to the tail of to; from is empty after. */
static inline void pool_list_splice(struct pool_list *to,
				    struct pool_list *from)
{
	if (pool_list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	pool_list_init(from);
}

#define pool_list_entry(ptr, type, member) pool_container_of(ptr, type, member)
#define pool_list_first(head, type, member) \
	pool_list_entry((head)->next, type, member)

/* The body may remove the current node, but not the next one. */
#define pool_list_each(it, tmp, head)                              \
	for ((it) = (head)->next, (tmp) = (it)->next; (it) != (head); \
	     (it) = (tmp), (tmp) = (it)->next)

#endif
