#include "master/tops.h"

#include <assert.h>

uint16_t master_tops_add(struct master_tops *t, const struct pool_entry *dir)
{
	uint16_t i = MASTER_TOP_ROOT + 1;

	if (t->n == MASTER_TOPS_MAX - i)
		return MASTER_TOP_OTHERS;
	while (t->list[i].dir)
		i++;
	t->list[i].dir = dir;
	t->n++;
	return i;
}

void master_tops_remove(struct master_tops *t, uint16_t number)
{
	if (number == MASTER_TOP_OTHERS)
		return;
	assert(!t->list[number].files && !t->list[number].bytes);
	t->list[number] = (struct master_top){ .dir = NULL };
	t->n--;
}
