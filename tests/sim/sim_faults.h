/*
 * What goes wrong in a simulation, by chance: so many in a million of the
 * occasions. All 0: nothing.
 */
#ifndef TESTS_SIM_FAULTS_H
#define TESTS_SIM_FAULTS_H

#include <stdint.h>

struct sim_host;

struct sim_faults {
	/* of a frame: the connection ends with it (it arrives, or is lost, or is
	 * lost with all that has not been read); it comes late, with what
	 * follows; nothing arrives any more, and nobody is told */
	uint32_t cut, late, mute;
	uint32_t stop;	/* of a frame: its sender or receiver stands still */
	uint32_t crash; /* of a frame: its sender or receiver dies */
	uint64_t late_ns, stop_ns; /* at most so long */
	uint32_t fetch_fails, fetch_wrong, fetch_late; /* of a transfer */
	/* That host is to die, soon: not within this call. */
	void (*on_crash)(struct sim_host *h);
};

extern struct sim_faults sim_faults;

#endif
