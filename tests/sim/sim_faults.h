/*
 * Random faults in a simulation. Rates are faults per million occasions; all 0:
 * no faults.
 */
#ifndef TESTS_SIM_FAULTS_H
#define TESTS_SIM_FAULTS_H

#include <stdint.h>

struct sim_host;

struct sim_faults {
	/*
	 * Per frame sent. cut: the connection ends, and loses nothing, or this
	 * frame, or all frames that the receiver has not read. late: the frame
	 * and those after it are delayed. mute: nothing sent from now on
	 * arrives at either end, and neither end notices.
	 */
	uint32_t cut, late, mute;
	uint32_t stop;	/* per frame: its sender or receiver stops for a time */
	uint32_t crash; /* per frame: its sender or receiver dies */
	uint64_t late_ns, stop_ns; /* maxima */
	uint32_t fetch_fails, fetch_wrong, fetch_late; /* per transfer */
	/* Must kill the host soon, but not inside this call. */
	void (*on_crash)(struct sim_host *h);
};

extern struct sim_faults sim_faults;

#endif
