/*
 * The nodes' stores under simulation: pool/store/store.h in memory (sim_disk.c).
 *
 * A disk is what a store directory is: it is known by its path and outlives the
 * store that is open on it. A file is a size and 64 bits that stand for its
 * bytes; its checksum is a function of both, so that a copy that went wrong is
 * found as it would be. Metadata makes a file one that the next start finds.
 * Workers take some virtual milliseconds.
 *
 * A crash (sim_disk_crash) leaves the directory as it was at that moment. The
 * process that has died may go on for as long as it takes to free its memory:
 * it has a copy of its own from then on, that nobody looks at.
 */
#ifndef TESTS_SIM_DISK_H
#define TESTS_SIM_DISK_H

#include "pool/store/store.h"
#include "tests/sim/sim.h"

struct sim_file {
	struct pool_list link; /* in its disk, by id */
	struct sim_disk *disk;
	uint64_t id, size, bytes;
	uint64_t reserved;
	unsigned int writers; /* that have it open or mapped past the daemon */
	bool gone;	      /* it has no name any more */
	size_t blob_len;      /* > 0: found by the next start */
	uint8_t *blob;	      /* owns */
	size_t slot;
};

struct sim_disk;

void sim_disks_open(void);
void sim_disks_close(void);
/* See above. lost: nothing is left, not even the node's identity. */
void sim_disk_crash(const char *dir, bool lost);
/* The file's bits and size; NULL: no descriptor of a simulated file. */
struct sim_file *sim_file_of_fd(int fd);
/* By id, of what is open in dir now. NULL: it is gone. */
struct sim_file *sim_disk_file(const char *dir, uint64_t id);
/* The next one of a disk that has its name; f NULL: the first. */
struct sim_file *sim_disk_next(const char *dir, struct sim_file *f);
XXH128_hash_t sim_bytes_sum(uint64_t bytes, uint64_t size);

/* Called before f loses its name, or its metadata; NULL: nobody. Not for what
 * becomes of it in the memory of a process that is dead. */
void sim_disk_on_remove(void (*cb)(const char *dir, const struct sim_file *f));

#endif
