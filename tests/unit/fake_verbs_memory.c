/* The fake's protection domains and memory registrations. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "tests/unit/fake_verbs_priv.h"

#undef ibv_reg_mr

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pool_list regions;
static uint32_t next_key;
void (*fake_verbs_registering)(void);

void fake_memory_reset(void)
{
	pool_list_init(&regions);
	next_key = 0x1000;
	fake_verbs_registering = NULL;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	struct fake_pd *pd;

	if (fake_fault_errno("ibv_alloc_pd", ctx))
		return NULL;
	pd = calloc(1, sizeof(*pd));
	pd->pd.context = ctx;
	fake_made(ctx, 1);
	return &pd->pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	int err = fake_fault_late("ibv_dealloc_pd", pd->context);

	if (((struct fake_pd *)pd)->users)
		fake_die("a protection domain is given back while in use");
	fake_made(pd->context, -1);
	free(pd);
	return err;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			  int access)
{
	struct fake_mr *m;

	if (fake_fault_errno("ibv_reg_mr", pd->context))
		return NULL;
	if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE)) {
		errno = EINVAL;
		return NULL;
	}
	if (fake_verbs_registering)
		fake_verbs_registering();
	m = calloc(1, sizeof(*m));
	m->mr = (struct ibv_mr){ .context = pd->context, .pd = pd,
				 .addr = addr, .length = length };
	m->access = (unsigned int)access;
	pthread_mutex_lock(&lock);
	m->mr.lkey = m->mr.rkey = next_key++;
	pool_list_add_tail(&regions, &m->link);
	pthread_mutex_unlock(&lock);
	((struct fake_pd *)pd)->users++;
	fake_made(pd->context, 1);
	return &m->mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned int access)
{
	assert(iova == (uintptr_t)addr);
	return ibv_reg_mr(pd, addr, length, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	int err = fake_fault_late("ibv_dereg_mr", mr->context);
	struct fake_mr *m = (struct fake_mr *)mr;

	pthread_mutex_lock(&lock);
	pool_list_del(&m->link);
	pthread_mutex_unlock(&lock);
	((struct fake_pd *)mr->pd)->users--;
	fake_made(mr->context, -1);
	free(m);
	return err;
}

struct fake_mr *fake_region(uint32_t key, const struct ibv_pd *pd,
			    uint64_t addr, uint64_t length, unsigned int access)
{
	struct pool_list *it, *tmp;
	struct fake_mr *found = NULL;

	pthread_mutex_lock(&lock);
	pool_list_each(it, tmp, &regions) {
		struct fake_mr *m = pool_list_entry(it, struct fake_mr, link);
		uint64_t first = (uintptr_t)m->mr.addr;

		if (m->mr.lkey == key && m->mr.pd == pd &&
		    (m->access & access) == access && addr >= first &&
		    length <= m->mr.length &&
		    addr - first <= m->mr.length - length)
			found = m;
	}
	pthread_mutex_unlock(&lock);
	return found;
}

unsigned int fake_verbs_regions(void)
{
	struct pool_list *it, *tmp;
	unsigned int n = 0;

	pthread_mutex_lock(&lock);
	pool_list_each(it, tmp, &regions)
		n++;
	pthread_mutex_unlock(&lock);
	return n;
}

const struct ibv_mr *fake_verbs_last_region(void)
{
	return &pool_list_entry(regions.prev, struct fake_mr, link)->mr;
}

unsigned int fake_verbs_access(const struct ibv_mr *mr)
{
	return ((const struct fake_mr *)mr)->access;
}

uint64_t fake_verbs_region_bytes(void)
{
	struct pool_list *it, *tmp;
	uint64_t n = 0;

	pthread_mutex_lock(&lock);
	pool_list_each(it, tmp, &regions)
		n += pool_list_entry(it, struct fake_mr, link)->mr.length;
	pthread_mutex_unlock(&lock);
	return n;
}
