/*
 * kvpool doctor: finds settings and states of a node and its machine that cost
 * speed or safety, and names the command that corrects each.
 *
 * A check is a function and a line of the table `checks` in doctor.c. kvpool(1)
 * lists what is checked. A check looks at facts: what the daemon's admin pages
 * say, and files below /proc and /sys of the machine. If a file is absent, the
 * machine lacks that feature, and the check finds nothing.
 *
 * Thread: main.
 */
#ifndef TOOLS_DOCTOR_H
#define TOOLS_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct doctor {
	const char *root; /* of the machine's /proc and /sys; "": / */
	const json_t *status;  /* /api/status of the node; borrows */
	const json_t *devices; /* /api/devices; borrows, or NULL: not asked */
	const json_t *nodes; /* /api/nodes of the node; borrows, or NULL */
	char interface[32]; /* that has the advertised address; "": none */
};

enum doctor_cost { DOCTOR_SPEED, DOCTOR_SAFETY };

struct doctor_finding {
	const char *check; /* its name */
	enum doctor_cost cost;
	char what[512]; /* what was found, and what it costs */
	char mend[256]; /* a command, or what to change */
};

#define DOCTOR_FINDINGS_MAX 32

/* Runs all checks. The number of findings, of which *ret has room for
 * DOCTOR_FINDINGS_MAX. */
size_t doctor_look(const struct doctor *d, struct doctor_finding *ret);

/* The number of checks that there are. */
size_t doctor_checks(void);

#endif
