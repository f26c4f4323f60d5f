#include "master/events.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pool/base/clock.h"
#include "pool/model/pages.h"

int master_events_init(struct master_events *ev)
{
	ev->next = 0;
	ev->ring = calloc(MASTER_EVENTS_MAX, sizeof(*ev->ring));
	return ev->ring ? 0 : -ENOMEM;
}

void master_events_fini(struct master_events *ev)
{
	free(ev->ring);
	ev->ring = NULL;
}

void master_event(struct master_events *ev, const char *kind, const char *fmt,
		  ...)
{
	struct master_event *e = &ev->ring[ev->next++ % MASTER_EVENTS_MAX];
	va_list ap;

	e->wall_ms = pool_wall_ns() / 1000000u;
	e->kind = kind;
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
}

/* "2026-11-21T08:49:30.123Z" */
static json_t *time_json(uint64_t wall_ms)
{
	time_t at = (time_t)(wall_ms / 1000);
	char text[40];
	struct tm tm;

	if (!gmtime_r(&at, &tm))
		return json_null();
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text + strlen(text), sizeof(text) - strlen(text), ".%03uZ",
		 (unsigned int)(wall_ms % 1000));
	return json_string(text);
}

static json_t *event_json(uint64_t number, const struct master_event *e)
{
	return json_pack("{s:I, s:o, s:s, s:o}", "number", (json_int_t)number,
			 "time", time_json(e->wall_ms), "kind", e->kind,
			 "text", pool_pages_text(e->text, strlen(e->text)));
}

json_t *master_events_json(const struct master_events *ev, uint64_t since,
			   unsigned int limit)
{
	uint64_t first = ev->next > MASTER_EVENTS_MAX ?
				 ev->next - MASTER_EVENTS_MAX : 0;
	uint64_t i = since > first ? since : first;
	json_t *list = json_array();

	/* A number of a former master: all events of this one are new. */
	if (since > ev->next)
		i = since = first;
	for (; i < ev->next && limit-- > 0; i++) {
		json_t *e = event_json(i, &ev->ring[i % MASTER_EVENTS_MAX]);

		if (json_array_append_new(list, e)) {
			json_decref(list);
			return NULL;
		}
	}
	return json_pack("{s:o, s:I, s:I}", "events", list, "next",
			 (json_int_t)i, "forgotten",
			 (json_int_t)(since < first ? first - since : 0));
}
