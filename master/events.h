/*
 * What happened to the pool, for people: nodes that came and went, drains,
 * losses. The master keeps the newest MASTER_EVENTS_MAX in memory; another
 * master begins anew. Among several, each keeps those of all times that it led
 * (master/ha.c).
 *
 * Thread: the master's.
 */
#ifndef MASTER_EVENTS_H
#define MASTER_EVENTS_H

#include <jansson.h>
#include <stdint.h>

#define MASTER_EVENTS_MAX 10000u
#define MASTER_EVENT_TEXT 160 /* longer texts are cut */

struct master_event {
	uint64_t wall_ms;
	const char *kind; /* static: "joined" */
	char text[MASTER_EVENT_TEXT];
};

struct master_events {
	struct master_event *ring; /* owns; i is at i % MASTER_EVENTS_MAX */
	uint64_t next; /* number of the next event; the first is 0 */
};

/* 0 or -ENOMEM (1.7 MB of address space, used as events come). */
int master_events_init(struct master_events *ev);
void master_events_fini(struct master_events *ev);

/* Notes an event. `kind`: a string literal. */
void master_event(struct master_events *ev, const char *kind, const char *fmt,
		  ...) __attribute__((format(printf, 3, 4)));

/*
 * At most limit events from number `since` on, oldest first: {"events":
 * [{"number", "time", "kind", "text"}], "next": the number to ask for next,
 * "forgotten": how many from `since` on are not kept any more}. A new
 * reference; NULL on ENOMEM.
 */
json_t *master_events_json(const struct master_events *ev, uint64_t since,
			   unsigned int limit);

#endif
