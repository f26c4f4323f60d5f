/*
 * Simulated stores of nodes: pool/store/store.h in memory (sim_disk.c).
 *
 * A disk stands for a store directory: its path identifies it, and it outlives
 * the store that is open on it. A file is a size and 64 bits that stand for its
 * bytes; its checksum is a function of both, so a wrong copy is detected as
 * with real bytes. The next start finds the files that have metadata. Workers
 * take some virtual milliseconds.
 *
 * A crash (sim_disk_crash) leaves the directory as it was at that moment. The
 * dead process may still run, to free its memory: from then on it works on a
 * copy of its own, which nothing else reads.
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
	unsigned int writers; /* have it open or mapped, bypassing the daemon */
	bool gone;	      /* unlinked */
	size_t blob_len;      /* > 0: found by the next start */
	uint8_t *blob;	      /* owns */
	size_t slot;
};

struct sim_disk;

void sim_disks_open(void);
void sim_disks_close(void);
/* See above. lost: the directory is lost, with the node's identity. */
void sim_disk_crash(const char *dir, bool lost);
/* The file of this descriptor; NULL: it is not that of a simulated file. */
struct sim_file *sim_file_of_fd(int fd);
/* The file with this id in the store open in dir; NULL: it is gone. */
struct sim_file *sim_disk_file(const char *dir, uint64_t id);
/* The next file of the disk that is not unlinked; f NULL: the first. */
struct sim_file *sim_disk_next(const char *dir, struct sim_file *f);
XXH128_hash_t sim_bytes_sum(uint64_t bytes, uint64_t size);

/* cb is called before a file with metadata is unlinked or loses its metadata,
 * but not when a dead process does that. NULL: no callback. */
void sim_disk_on_remove(void (*cb)(const char *dir, const struct sim_file *f));

#endif
