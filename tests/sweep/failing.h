/*
 * Calls that fail on request: failing.so, preloaded into a daemon as it ships,
 * counts the calls that may fail and makes one of them fail.
 *
 *   KVTEST_FAILING=FILE LD_PRELOAD=.../failing.so kvpoold ...
 *
 * FILE holds a struct failing, which both the daemon and a test have mapped:
 * the test arms it, lets the daemon work, and looks what happened.
 *
 * Counted are, while it is armed:
 *   allocations of the program's own code and of the libraries that answer a
 *   failed one with an error (libuv does not: it aborts);
 *   system calls and functions of libc and libuv that take resources, from the
 *   program's own code alone. What cannot fail in earnest is left out: reading
 *   and answering requests at /dev/fuse, giving a lease back, close.
 *
 * Thread: any; the counters are atomic. Of two threads that call at once it is
 * not known which one is first: a sweep visits each number, not each call.
 */
#ifndef TESTS_FAILING_H
#define TESTS_FAILING_H

#include <stdint.h>

#define FAILING_ENV "KVTEST_FAILING"
#define FAILING_FRAMES 12

struct failing {
	_Atomic uint64_t nth;  /* the call that fails, from 1; 0: not armed */
	_Atomic uint64_t seen; /* calls since it was armed */
	_Atomic uint32_t fired; /* 1 when it has, and what follows is set */
	char call[24];
	/* Who called it, innermost first: addresses within the program's file
	 * (for addr2line), 0 for a library's. */
	uint64_t frames[FAILING_FRAMES];
};

#endif
