/*
 * The local store: open, close, metrics. store_priv.h lists the other files.
 *
 * Close: remove ready files, wait for work in flight (`pending`), close the two
 * timers, then the descriptors, then call closed().
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/base/parse.h"
#include "pool/store/store_priv.h"

#define STOP_MS 2000 /* close: reads in flight are cancelled then */

/* ---- names and ids ---- */

/*
 * The first id of a run is above all ids reserved on disk or used by files that
 * were found, and at least the wall clock in ns, in case the identity file was
 * replaced.
 */
static int ids_init(struct pool_store *s)
{
	uint64_t wall = pool_wall_ns();

	s->next_id = s->id_end > wall ? s->id_end : wall;
	if (s->next_id == 0)
		s->next_id = 1;
	return store_identity_write(s, s->next_id + STORE_IDS_AHEAD);
}

const uint8_t *pool_store_id(const struct pool_store *s)
{
	return s->id;
}

int pool_store_lock_fd(const struct pool_store *s)
{
	return s->idfd;
}

const char *pool_store_path(const struct pool_store *s)
{
	return s->path;
}

bool pool_store_in_memory(const struct pool_store *s)
{
	return s->tmpfs;
}

bool pool_store_busy(const struct pool_store *s)
{
	return s->pending > 0;
}

/* ---- metrics ---- */

static void on_print(void *arg)
{
	struct pool_store *s = arg;
	struct pool_space sp;

	pool_store_space(s, &sp);
	pool_gauge_set(&s->n.size, (int64_t)sp.size);
	pool_gauge_set(&s->n.headroom, (int64_t)sp.headroom);
	pool_gauge_set(&s->n.used, (int64_t)sp.used);
	pool_gauge_set(&s->n.ready, (int64_t)sp.ready);
}

static int register_counters(struct pool_store *s, struct pool_metrics *m)
{
	struct store_counters *n = &s->n;
	const struct {
		struct pool_counter *c;
		const char *name, *labels, *help;
	} table[] = {
		{ &n->takes_ready, "kvpool_store_takes_total",
		  "result=\"ready\"", "New files requested, by result." },
		{ &n->takes_plain, "kvpool_store_takes_total",
		  "result=\"unreserved\"",
		  "New files requested, by result." },
		{ &n->takes_missed, "kvpool_store_takes_total",
		  "result=\"none_ready\"",
		  "New files requested, by result." },
		{ &n->makes, "kvpool_store_takes_total", "result=\"made\"",
		  "New files requested, by result." },
		{ &n->takes_reused, "kvpool_store_takes_total",
		  "result=\"reused\"",
		  "New files requested, by result." },
		{ &n->fills, "kvpool_store_ready_files_made_total", NULL,
		  "Files created and reserved ahead of their writers." },
		{ &n->fills_failed, "kvpool_store_fill_failures_total", NULL,
		  "Work items that failed to create all their ready files." },
		{ &n->fills_short, "kvpool_store_fills_short_total", NULL,
		  "Times that low free space prevented more ready files." },
		{ &n->seals, "kvpool_store_seals_total", NULL,
		  "Files sealed." },
		{ &n->seals_failed, "kvpool_store_seal_failures_total", NULL,
		  "Files that could not be sealed." },
		{ &n->verify_bad, "kvpool_store_verify_failures_total", NULL,
		  "Files with a wrong checksum." },
		{ &n->removes, "kvpool_store_removes_total", NULL,
		  "Files removed." },
		{ &n->removes_failed, "kvpool_store_remove_failures_total",
		  NULL, "Times that a file could not be removed at once." },
		{ &n->releases_inline, "kvpool_store_releases_inline_total",
		  NULL,
		  "Files freed on the loop because the workers' queue was "
		  "full." },
		{ &n->found, "kvpool_store_found_total", NULL,
		  "Sealed files found and kept at start." },
		{ &n->gone_unsealed, "kvpool_store_start_removed_total",
		  "reason=\"unsealed\"", "Files removed at start." },
		{ &n->gone_refused, "kvpool_store_start_removed_total",
		  "reason=\"refused\"", "Files removed at start." },
		{ &n->quarantined, "kvpool_store_quarantined_total", NULL,
		  "Damaged files quarantined, or removed if that is full." },
		{ &n->quarantine_full, "kvpool_store_quarantine_full_total",
		  NULL, "Damaged files removed because the quarantine was "
		  "full." },
		{ &n->breaches, "kvpool_store_headroom_breaches_total", NULL,
		  "Samples that found less than 1/16 of the headroom free." },
	};
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < sizeof(table) / sizeof(table[0]); i++)
		rc = pool_metrics_counter(m, table[i].c, table[i].name,
					  table[i].labels, table[i].help);
	return rc;
}

static int register_metrics(struct pool_store *s, struct pool_metrics *m)
{
	struct store_counters *n = &s->n;
	int rc = register_counters(s, m);

	if (rc == 0)
		rc = pool_metrics_gauge(m, &n->size, "kvpool_store_size_bytes",
					NULL, "Bytes of objects that the store "
					"may hold.");
	if (rc == 0)
		rc = pool_metrics_gauge(m, &n->headroom,
					"kvpool_store_headroom_bytes", NULL,
					"Bytes of the filesystem beyond the "
					"store's size.");
	if (rc == 0)
		rc = pool_metrics_gauge(m, &n->used, "kvpool_store_used_bytes",
					NULL, "Bytes used, including ready "
					"files.");
	if (rc == 0)
		rc = pool_metrics_gauge(m, &n->ready,
					"kvpool_store_ready_bytes", NULL,
					"Bytes of ready files.");
	if (rc == 0)
		rc = pool_metrics_hist(m, &n->seal_time,
				       "kvpool_store_seal_seconds", NULL,
				       "Time to seal a file, in a worker or in "
				       "slices between other work.");
	if (rc == 0)
		rc = pool_metrics_on_print(m, on_print, s);
	return rc;
}

/* ---- retrying removals ---- */

static void unlink_again(struct pool_store *s)
{
	unsigned int n = s->nunremoved;

	s->nunremoved = 0;
	for (unsigned int i = 0; i < n; i++)
		store_unlink(s, s->unremoved[i]);
}

/* ---- open ---- */

static void on_tick(uv_timer_t *t)
{
	struct pool_store *s = pool_container_of(t, struct pool_store,
						 tick_timer);
	uint64_t rest, count;

	unlink_again(s);
	store_ready_tick(s);
	count = store_count_maybe(s);
	rest = s->nunremoved > 0 ? 0 : store_ready_rest_ms(s);
	if (rest > count)
		rest = count;
	if (rest == UINT64_MAX)
		uv_timer_stop(t); /* until store_tick_soon */
	else
		uv_timer_start(t, on_tick, rest < STORE_READY_TICK_MS ?
					   STORE_READY_TICK_MS : rest,
			       STORE_READY_TICK_MS);
}

static void start_timers(struct pool_store *s)
{
	uv_timer_init(s->loop, &s->sample_timer);
	uv_timer_init(s->loop, &s->tick_timer);
	s->nhandles = 2;
	uv_timer_start(&s->tick_timer, on_tick, STORE_READY_TICK_MS,
		       STORE_READY_TICK_MS);
}

/* "; removed: 14 unsealed, 1 refused", or "". */
static void format_removed(const struct pool_store *s, char *buf, size_t cap)
{
	const struct {
		const struct pool_counter *c;
		const char *why;
	} table[] = {
		{ &s->n.gone_unsealed, "unsealed" },
		{ &s->n.gone_refused, "refused" },
	};
	size_t len = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		uint64_t n = pool_counter_value(table[i].c);

		if (n > 0 && len < cap)
			len += (size_t)snprintf(
				buf + len, cap - len, "%s %" PRIu64 " %s",
				len ? "," : "; removed:", n, table[i].why);
	}
}

static void log_opened(const struct pool_store *s, uint64_t took_ms)
{
	char size[32], room[32], removed[160];

	format_removed(s, removed, sizeof(removed));
	pool_info("store: %s: %s%s, size %s and %s of headroom, %" PRIu64
		  " objects found in %" PRIu64 " ms%s",
		  s->path, s->tmpfs ? "tmpfs" : "no tmpfs",
		  !s->own ? ", shared with other files" :
		  s->given ? " mounted by others, at its size" :
		  s->huge ? " of its own, large folios" :
			    " of its own, small pages",
		  pool_format_size(s->size, size, sizeof(size)),
		  pool_format_size(s->headroom, room, sizeof(room)),
		  pool_counter_value(&s->n.found), took_ms, removed);
}

static void close_handles(struct pool_store *s);

int pool_store_open(const struct pool_store_opts *opts,
		    pool_store_found_cb found, void *arg,
		    struct pool_store **ret_store)
{
	uint64_t start = pool_now_ms();
	struct pool_store *s;
	int rc;

	assert(opts->loop != NULL && opts->dir != NULL && opts->size > 0);
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return -ENOMEM;
	s->loop = opts->loop;
	s->on_idle = close_handles;
	s->size = opts->size;
	s->headroom = store_headroom(opts->size);
	s->memory_max = opts->memory_max;
	s->plain = opts->plain;
	s->owner_counts = opts->owner_counts && opts->plain;
	s->object_min = opts->object_min > 0 ? opts->object_min : POOL_PAGE;
	pthread_mutex_init(&s->unlinks.lock, NULL);
	s->dirfd = -1;
	s->idfd = opts->lock_fd > 0 ? opts->lock_fd : -1;
	if (s->size > INT64_MAX / 2) {
		pool_error("store: a size of %" PRIu64 " bytes is too large",
			   s->size);
		rc = -EDOM;
		goto err;
	}
	rc = store_dir_open(s, opts->dir);
	if (rc == 0)
		rc = store_bad_scan(s);
	if (rc == 0 && opts->clients)
		store_make_clients(s);
	if (rc == 0 && opts->lock_fd <= 0)
		rc = store_scan(s, found, opts->keep, arg);
	if (rc == 0)
		rc = ids_init(s);
	if (rc == 0 && opts->metrics != NULL)
		rc = register_metrics(s, opts->metrics);
	if (rc < 0)
		goto err;
	start_timers(s);
	log_opened(s, pool_now_ms() - start);
	*ret_store = s;
	return 0;
err:
	store_dir_close(s, s->mounted);
	free(s->path);
	free(s);
	return rc;
}

void pool_store_undo(struct pool_store *s)
{
	store_dir_close(s, s->mounted);
}

/* ---- close ---- */

static void handle_closed(uv_handle_t *h)
{
	struct pool_store *s = h->data;

	if (--s->nhandles > 0)
		return;
	store_dir_close(s, s->unmount && s->own && !s->given);
	if (s->closed != NULL)
		s->closed(s->closed_arg);
	free(s->path);
	free(s);
}

static void close_handles(struct pool_store *s)
{
	s->sample_timer.data = s;
	s->tick_timer.data = s;
	uv_close((uv_handle_t *)&s->sample_timer, handle_closed);
	uv_close((uv_handle_t *)&s->tick_timer, handle_closed);
}

void pool_store_close(struct pool_store *s, bool unmount,
		      void (*closed)(void *arg), void *arg)
{
	assert(!s->closing);
	pool_store_drop_ready(s);
	s->closing = true;
	s->stop_ms = pool_now_ms() + STOP_MS;
	s->unmount = unmount;
	s->closed = closed;
	s->closed_arg = arg;
	uv_timer_stop(&s->sample_timer);
	uv_timer_stop(&s->tick_timer);
	if (s->pending == 0)
		close_handles(s);
}

/* ---- files ---- */

static int take_plain(struct pool_store *s, struct pool_file *ret_file)
{
	char name[STORE_NAME_LEN + 1];
	uint64_t id = store_ids(s, 1);
	int fd;

	if (id == 0)
		return -EIO;
	store_name(id, name);
	fd = openat(s->dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
		    STORE_MODE_OPEN);
	if (fd < 0)
		return -errno;
	pool_count(&s->n.takes_plain);
	*ret_file = (struct pool_file){ .id = id, .fd = fd, .reserved = 0 };
	return 0;
}

int pool_store_take(struct pool_store *s, uint64_t size,
		    struct pool_file *ret_file)
{
	if (size > 0)
		return store_ready_take(s, size, ret_file);
	return take_plain(s, ret_file);
}
