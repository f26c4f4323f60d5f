/* Checks with which the calls of kvpool.h begin: arguments, and forks. */
#include "pool/client/client_priv.h"

#include <stdlib.h>
#include <string.h>

/* ---- forks ---- */

static unsigned int forks;
static pthread_once_t forks_once = PTHREAD_ONCE_INIT;

static void on_fork(void)
{
	forks++;
}

static void no_work(uv_work_t *work)
{
	(void)work;
}

static void on_no_work(uv_work_t *work, int status)
{
	(void)work;
	(void)status;
}

/* When libuv (1.44) is unloaded it joins the threads of its pool. A forked
 * process does not have these threads and would crash after exit(). So it
 * submits work, for which libuv starts new threads, which it can join. */
static void on_exit_of_fork(void)
{
	uv_work_t work;
	uv_loop_t loop;

	if (forks == 0 || uv_loop_init(&loop))
		return;
	if (uv_queue_work(&loop, &work, no_work, on_no_work) == 0)
		uv_run(&loop, UV_RUN_DEFAULT);
	uv_loop_close(&loop);
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, on_fork);
	atexit(on_exit_of_fork);
}

unsigned int client_forks(void)
{
	pthread_once(&forks_once, watch_forks);
	return forks;
}

/* ---- arguments ---- */

int client_check(const struct kvpool *p)
{
	if (!p)
		return client_fail(-EINVAL, "the connection or namespace is "
					    "NULL");
	if (p->forks == forks)
		return 0;
	return client_fail(-ECHILD, "this process is a fork of the one that "
				    "connected: connect anew");
}

int client_check_batch(const struct kvpool_ns *ns,
		       const struct kvpool_key *keys, size_t n,
		       const int64_t *ret)
{
	int err = client_check_ns(ns);

	if (err)
		return err;
	if (n > KVPOOL_BATCH_MAX)
		return client_fail(-EINVAL, "more than %u keys",
				   KVPOOL_BATCH_MAX);
	if (n > 0 && (!keys || !ret))
		return client_fail(-EINVAL, "keys or ret is NULL");
	return 0;
}

int client_copy_struct(void *to, size_t size, const void *from,
		       size_t from_size, size_t least, const char *what)
{
	const char *p = from;

	if (from_size < least)
		return client_fail(-EINVAL, "struct_size of the %s is too "
				   "small", what);
	/* Members of a newer version of the struct, unknown here. */
	for (size_t i = size; i < from_size; i++)
		if (p[i])
			return client_fail(-EINVAL, "%s: members of a newer "
					   "version are set", what);
	memset(to, 0, size);
	memcpy(to, from, from_size < size ? from_size : size);
	return 0;
}
