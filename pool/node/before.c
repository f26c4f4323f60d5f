/*
 * Contents that this mount may have published under a name: they were sent to
 * an earlier master, the acks were lost, and they have been replaced here
 * since. If a new master has one of them under the name, it knows that no other
 * node has changed the name.
 */
#include "pool/node/node_priv.h"

#include <stdlib.h>
#include <string.h>

void node_before_add(struct pool_node *n, struct node_before **b,
		     const struct node_content *c)
{
	if (!*b)
		*b = calloc(1, sizeof(**b));
	if (!*b || (*b)->n == NODE_BEFORE_MAX)
		pool_count(&n->c.before_forgotten);
	if (!*b)
		return;
	if ((*b)->n == NODE_BEFORE_MAX) {
		(*b)->n--;
		memmove((*b)->list, (*b)->list + 1,
			(*b)->n * sizeof((*b)->list[0]));
	}
	(*b)->list[(*b)->n++] = *c;
}

void node_before_join(struct pool_node *n, struct node_before **b,
		      const struct node_before *more)
{
	unsigned int i;

	for (i = 0; more && i < more->n; i++)
		node_before_add(n, b, &more->list[i]);
}

static void to_pb(const struct node_content *c, unsigned int i,
		  struct node_before_pb *ret_pb)
{
	kvpool__content__init(&ret_pb->content[i]);
	XXH128_canonicalFromHash(&ret_pb->sum[i], c->sum);
	ret_pb->content[i].sum.data = ret_pb->sum[i].digest;
	ret_pb->content[i].sum.len = sizeof(ret_pb->sum[i].digest);
	ret_pb->content[i].size = c->size;
	ret_pb->list[i] = &ret_pb->content[i];
}

size_t node_before_to_pb(const struct node_before *b,
			 const struct node_content *base,
			 struct node_before_pb *ret_pb)
{
	unsigned int i, n = b ? b->n : 0;

	for (i = 0; i < n; i++)
		to_pb(&b->list[i], i, ret_pb);
	if (base)
		to_pb(base, n++, ret_pb);
	return n;
}

void node_before_from_pb(struct pool_node *n, struct node_before **b,
			 Kvpool__Content *const *list, size_t len)
{
	XXH128_canonical_t canon;
	struct node_content c;
	size_t i;

	for (i = 0; i < len; i++) {
		if (list[i]->sum.len != sizeof(canon.digest))
			continue;
		memcpy(canon.digest, list[i]->sum.data, sizeof(canon.digest));
		c.sum = XXH128_hashFromCanonical(&canon);
		c.size = list[i]->size;
		node_before_add(n, b, &c);
	}
}
