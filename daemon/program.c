#include "daemon/program.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "daemon/daemonize.h"
#include "daemon/notify.h"
#include "pool/base/log.h"

#define LIMIT_MAX 10000
#define LIMIT_DEFAULT 1000

void daemon_program_stop(struct daemon_program *p)
{
	if (p->closing)
		return;
	p->closing = true;
	p->stop(p);
}

static void on_stop(uv_signal_t *sig, int signum)
{
	struct daemon_program *p = sig->data;

	if (!p->closing)
		pool_info("signal %d: closing", signum);
	daemon_program_stop(p);
}

static void on_hup(uv_signal_t *sig, int signum)
{
	struct daemon_program *p = sig->data;

	(void)signum;
	daemon_log_reopen();
	pool_tls_check(p->tls.tls);
}

/* On a new loop this fails only without descriptors or memory. */
static int start_signal(struct daemon_program *p, uv_signal_t *sig,
			uv_signal_cb cb, int signum)
{
	int rc = uv_signal_init(&p->loop, sig);

	sig->data = p;
	return rc ? rc : uv_signal_start(sig, cb, signum);
}

int daemon_program_open(struct daemon_program *p,
			void (*stop)(struct daemon_program *p))
{
	int rc;

	signal(SIGPIPE, SIG_IGN);
	p->stop = stop;
	p->metrics = pool_metrics_open();
	if (!p->metrics || uv_loop_init(&p->loop)) {
		pool_error("no memory or descriptors for an event loop");
		return -ENOMEM;
	}
	if (pool_metrics_counter(
		    p->metrics, &pool_log_left_out,
		    "kvpool_log_lines_left_out_total", NULL,
		    "Log lines left out as there were too many of their kind."))
		return -ENOMEM;
	pool_turns_open(&p->turns, &p->loop);
	rc = start_signal(p, &p->term, on_stop, SIGTERM);
	if (!rc)
		rc = start_signal(p, &p->intr, on_stop, SIGINT);
	if (!rc)
		rc = start_signal(p, &p->hup, on_hup, SIGHUP);
	if (rc)
		pool_error("signals: %s", uv_strerror(rc));
	return rc;
}

int daemon_start_failed(int err)
{
	if (err == -ENOMEM || err == -EMFILE || err == -ENFILE ||
	    err == -EAGAIN || err == -ENOBUFS)
		pool_error("cannot start: out of memory, descriptors or "
			   "threads: %s", strerror(-err));
	daemon_foreground_failed();
	return 1;
}

void daemon_program_closed(struct daemon_program *p)
{
	uv_close((uv_handle_t *)&p->term, NULL);
	uv_close((uv_handle_t *)&p->intr, NULL);
	uv_close((uv_handle_t *)&p->hup, NULL);
	daemon_tls_stop(&p->tls);
	pool_turns_close(&p->turns, NULL);
}

int daemon_program_run(struct daemon_program *p)
{
	daemon_background_ready();
	daemon_notify_ready();
	uv_run(&p->loop, UV_RUN_DEFAULT);
	pool_metrics_close(p->metrics);
	pool_tls_close(p->tls.tls);
	if (uv_loop_close(&p->loop)) {
		pool_error("a handle was left open at the end");
		return 1;
	}
	pool_info("closed");
	return 0;
}

json_t *daemon_objects_page(const struct daemon_admin_query *q,
			    daemon_objects_fn list, void *arg,
			    unsigned int *ret_status, const char **ret_text)
{
	const char *prefix = q->get(q, "prefix");
	const char *text = q->get(q, "limit");
	uint64_t limit = LIMIT_DEFAULT;
	json_t *json;
	int rc;

	if (text && pool_parse_u64(text, 1, LIMIT_MAX, &limit)) {
		*ret_status = 400;
		*ret_text = "limit: accepted: 1 to 10000";
		return NULL;
	}
	rc = list(arg, prefix ? prefix : "", q->get(q, "token"),
		  (unsigned int)limit, &json);
	if (rc == -EINVAL) {
		*ret_status = 400;
		*ret_text = "token: accepted: the next of another page";
	}
	return rc ? NULL : json;
}
