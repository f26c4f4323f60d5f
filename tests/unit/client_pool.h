/*
 * A pool for tests of libkvpool: a master and two stores on a thread of this
 * process, and two connections to them.
 */
#ifndef CLIENT_POOL_H
#define CLIENT_POOL_H

#include "tests/lib/unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <unistd.h>

#include "master/server.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/kvpool.h"
#include "pool/base/mailbox.h"
#include "pool/node/node.h"

#define STORES 2
#define STORE_SIZE (48ull << 20)
#define MEM ((size_t)4 << 20)

struct store {
	struct pool_node *node;
	struct pool_metrics *metrics;
	char dir[96], sock[96], name[16];
};

struct fixture {
	char at[32], buffer_dir[112];
	pthread_t thread;
	uv_loop_t loop;
	struct pool_mailbox box;
	struct pool_mail mail;
	uv_sem_t done;
	struct master *master;
	struct pool_metrics *metrics;
	struct store s[STORES];
	bool ending;
	bool local; /* descriptors may be lent */
	bool beside; /* the connections' buffers are in the first store's
			directory (.clients) */

	struct kvpool *pool, *other;
	struct kvpool_ns *ns, *other_ns;
	char *mem; /* registered with both */
};

static char *top;

/* ---- the pool's thread ---- */

static inline void call(struct fixture *f, void (*run)(struct pool_mail *mail))
{
	pool_mailbox_post(&f->box, &f->mail, run);
	uv_sem_wait(&f->done);
}

static inline void start_store(struct fixture *f, int i)
{
	struct store *s = &f->s[i];
	struct pool_node_opts o = {
		.loop = &f->loop,
		.masters.n = 1,
		.name = s->name,
		.store_dir = s->dir,
		.store_size = STORE_SIZE,
		.store_plain = true,
		.unix_path = s->sock,
		.fd_passing = f->local,
		.movers = 1,
		.deadline_ms = 1000,
	};

	snprintf(s->dir, sizeof(s->dir), "%s/store%d", top, i);
	snprintf(s->sock, sizeof(s->sock), "%s/run%d", top, i);
	if (mkdir(s->sock, 0700) && errno != EEXIST)
		abort();
	snprintf(s->sock, sizeof(s->sock), "%s/run%d/" POOL_PEER_SOCKET, top,
		 i);
	snprintf(s->name, sizeof(s->name), "s%u", (unsigned int)i % 10);
	strcpy(o.masters.at[0].host, "127.0.0.1");
	o.masters.at[0].port = master_port(f->master);
	strcpy(o.listen.host, "127.0.0.1");
	s->metrics = o.metrics = pool_metrics_open();
	if (pool_node_open(&o, &s->node))
		abort();
}

static unsigned int client_heartbeat_ms = 200; /* of the master */

static inline void on_start(struct pool_mail *mail)
{
	struct fixture *f = pool_container_of(mail, struct fixture, mail);
	struct master_opts mo = { .loop = &f->loop,
				  .heartbeat_ms = client_heartbeat_ms };
	char state[96];

	snprintf(state, sizeof(state), "%s/master", top);
	strcpy(mo.listen.host, "127.0.0.1");
	mo.state_file = state;
	f->metrics = mo.metrics = pool_metrics_open();
	if (master_open(&mo, &f->master))
		abort();
	snprintf(f->at, sizeof(f->at), "127.0.0.1:%u", master_port(f->master));
	for (int i = 0; i < STORES; i++)
		start_store(f, i);
	uv_sem_post(&f->done);
}

static inline void on_start_stores(struct pool_mail *mail)
{
	struct fixture *f = pool_container_of(mail, struct fixture, mail);

	for (int i = 0; i < STORES; i++)
		start_store(f, i);
	uv_sem_post(&f->done);
}

static inline void on_master_closed(void *arg)
{
	struct fixture *f = arg;

	f->master = NULL;
	pool_metrics_close(f->metrics);
	uv_sem_post(&f->done);
}

static inline void on_stop_master(struct pool_mail *mail)
{
	struct fixture *f = pool_container_of(mail, struct fixture, mail);

	if (f->master)
		master_close(f->master, on_master_closed, f);
	else
		uv_sem_post(&f->done);
}

static inline void stop_stores(void *arg)
{
	struct fixture *f = arg;
	struct pool_node *node;

	for (int i = 0; i < STORES; i++) {
		if (!f->s[i].metrics)
			continue;
		if (f->s[i].node) {
			node = f->s[i].node;
			f->s[i].node = NULL;
			pool_node_close(node, 0, stop_stores, f);
			return;
		}
		pool_metrics_close(f->s[i].metrics);
		f->s[i].metrics = NULL;
	}
	uv_sem_post(&f->done);
}

static inline void on_stop_stores(struct pool_mail *mail)
{
	stop_stores(pool_container_of(mail, struct fixture, mail));
}

static inline void on_end(struct pool_mail *mail)
{
	struct fixture *f = pool_container_of(mail, struct fixture, mail);

	f->ending = true;
	uv_sem_post(&f->done);
}

/* After each batch of mails: the mailbox must not be closed during one. */
static inline void after_mail(struct pool_mailbox *box)
{
	struct fixture *f = pool_container_of(box, struct fixture, box);

	if (f->ending)
		pool_mailbox_close(&f->box, NULL);
}

static inline void *run(void *arg)
{
	struct fixture *f = arg;

	uv_run(&f->loop, UV_RUN_DEFAULT);
	return NULL;
}

/* ---- fixtures ---- */

static inline struct kvpool *connected(struct fixture *f)
{
	struct kvpool_options o = { .struct_size = sizeof(o),
				    .at = f->at,
				    .buffer_dir = f->buffer_dir,
				    .buffer_size = 24u << 20 };
	struct kvpool *pool = NULL;
	int err = kvpool_connect(&o, &pool);

	if (err)
		print_message("%s\n", kvpool_last_error());
	assert_int_equal(err, 0);
	return pool;
}

static inline void setup_pool(struct fixture *f)
{
	top = unit_dir_make("/dev/shm/kvtest_client");
	snprintf(f->buffer_dir, sizeof(f->buffer_dir), "%s/lib", top);
	assert_int_equal(uv_loop_init(&f->loop), 0);
	assert_int_equal(pool_mailbox_init(&f->box, &f->loop, after_mail), 0);
	uv_sem_init(&f->done, 0);
	assert_int_equal(pthread_create(&f->thread, NULL, run, f), 0);
	call(f, on_start);
	if (f->beside)
		snprintf(f->buffer_dir, sizeof(f->buffer_dir), "%s/.clients",
			 f->s[0].dir);
}

static inline int setup_with(void **state, bool local)
{
	struct fixture *f = *state ? *state : calloc(1, sizeof(*f));

	alarm(120);
	pool_log_set_level(POOL_LOG_ERROR);
	f->local = local;
	setup_pool(f);
	f->mem = mmap(NULL, MEM, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(f->mem != MAP_FAILED);
	f->pool = connected(f);
	f->other = connected(f);
	assert_int_equal(kvpool_open_ns(f->pool, "ns", NULL, &f->ns), 0);
	assert_int_equal(kvpool_open_ns(f->other, "ns", NULL, &f->other_ns),
			 0);
	assert_int_equal(kvpool_register_buffer(f->pool, f->mem, MEM), 0);
	assert_int_equal(kvpool_register_buffer(f->other, f->mem, MEM), 0);
	*state = f;
	return 0;
}

static inline int setup_beside(void **state)
{
	*state = calloc(1, sizeof(struct fixture));
	((struct fixture *)*state)->beside = true;
	return setup_with(state, true);
}

static inline int setup(void **state)
{
	return setup_with(state, false);
}

static inline int setup_local(void **state)
{
	return setup_with(state, true);
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;

	kvpool_close_ns(f->ns);
	kvpool_close_ns(f->other_ns);
	kvpool_close(f->pool);
	kvpool_close(f->other);
	call(f, on_stop_stores);
	call(f, on_stop_master);
	call(f, on_end);
	pthread_join(f->thread, NULL);
	assert_int_equal(uv_loop_close(&f->loop), 0);
	uv_sem_destroy(&f->done);
	munmap(f->mem, MEM);
	unit_dir_remove(top);
	free(f);
	alarm(0);
	return 0;
}

/* ---- helpers ---- */

static inline void fill(void *at, size_t len, unsigned int seed)
{
	uint32_t x = seed * 2654435761u + 1;

	for (size_t i = 0; i < len; i++) {
		x = x * 1664525 + 1013904223;
		((unsigned char *)at)[i] = (unsigned char)(x >> 24);
	}
}

static inline void assert_filled(const void *at, size_t len, unsigned int seed)
{
	char *want = malloc(len + 1);

	fill(want, len, seed);
	assert_memory_equal(at, want, len);
	free(want);
}

static inline void put(struct fixture *f, const char *key, size_t len,
		unsigned int seed)
{
	fill(f->mem, len, seed);
	assert_int_equal(kvpool_put_from(f->ns, key, strlen(key), f->mem, len,
					 KVPOOL_SYNC), 0);
}

static inline int64_t get_other(struct fixture *f, const char *key, size_t cap)
{
	memset(f->mem, 0xee, cap);
	return kvpool_get_into(f->other_ns, key, strlen(key), f->mem, cap, 0);
}

/* Asserts that the n objects named by `form` are as they were put: len bytes,
 * filled by their number. */
static inline void assert_all_there(struct fixture *f, const char *form,
				    unsigned int n, size_t len)
{
	char key[32];

	assert_int_equal(kvpool_sync(f->pool), 0);
	for (unsigned int i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%s%u", form, i);
		assert_int_equal(get_other(f, key, MEM), (int64_t)len);
		assert_filled(f->mem, len, i);
	}
}

#endif
