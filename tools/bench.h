/*
 * kvpool bench: compares a mount with references in one run. The mount and the
 * reference take turns, round after round, and the medians of the rounds are
 * compared.
 *
 *   cmd_bench.c     options, the table of cases, rounds, the report
 *   bench_ref.c     the references: two tmpfs, a FUSE daemon that does
 *                   nothing, a process at the other end of a socket
 *   bench_io.c      reading and writing files
 *   bench_probe.c   access()
 *   bench_remote.c  objects of another node
 *   bench_memory.c  memory per object
 *   bench_machine.c costs of the machine itself
 *
 * Thread: main, unless a case starts threads of its own.
 */
#ifndef TOOLS_BENCH_H
#define TOOLS_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/bench_hist.h"

#define BENCH_DIR 640 /* bytes of a directory's path, bench's part included */
#define BENCH_PATH 1024
#define BENCH_KIB ((size_t)1024)
#define BENCH_MIB ((size_t)1024 * 1024)
#define BENCH_BUF (32 * BENCH_MIB)

enum bench_side {
	BENCH_OURS,   /* the mount */
	BENCH_HUGE,   /* tmpfs, huge=always */
	BENCH_PLAIN,  /* tmpfs with default options */
	BENCH_NOFUSE, /* FUSE daemon that answers ENOENT to every look-up */
	BENCH_SOCKET, /* TCP over loopback between two processes */
	BENCH_LOCAL,  /* the mount, with objects that it wrote itself */
	BENCH_NONE,
};

struct bench {
	const char *mount, *mount2; /* mount2: NULL if not given */
	uint64_t rounds;
	bool fd_passing;
	char base[64];		    /* temporary directory of the references */
	char dirs[3][BENCH_DIR];    /* BENCH_OURS, BENCH_HUGE, BENCH_PLAIN */
	char dir2[BENCH_DIR];	    /* BENCH_OURS through mount2 */
	char nofuse[BENCH_DIR];
	pid_t fuse_pid, socket_pid; /* 0: none */
	int socket_fd;
	unsigned char *buf, *other; /* own; BENCH_BUF each, faulted in */
	unsigned serial;	    /* for unique names */
};

struct bench_case {
	const char *name, *what;
	enum bench_side ref;
	size_t bytes; /* per operation, to report throughput; 0: report time */
	bool is_time; /* ratio = time / reference's time; else throughput /
			 reference's */
	bool needs_mount2;
	bool is_data; /* no READ or WRITE request may reach the daemon */
	/* One turn. *ret_s: seconds per operation; each operation's time is
	 * added to lat. 0 or -errno, printed to stderr. */
	int (*turn)(struct bench *b, const struct bench_case *c,
		    enum bench_side side, struct bench_hist *lat,
		    double *ret_s);
};

/* ---- cases, each ends with name == NULL ---- */
extern const struct bench_case bench_io_cases[], bench_probe_cases[],
	bench_remote_cases[];

/* ---- helpers (bench_io.c) ---- */
double bench_now(void);
/* Prints what failed to stderr; returns -errno (never 0). */
int bench_error(const char *what, const char *path);
/* The directory of a side; BENCH_LOCAL has that of BENCH_OURS. */
const char *bench_dir(const struct bench *b, enum bench_side side);
/* Create, write size bytes of b->buf, close. flags: O_DIRECT etc. */
int bench_write_file(const struct bench *b, const char *path, size_t size,
		     int flags);
/* Open, read all of size bytes into buf, close. */
int bench_read_file(const char *path, void *buf, size_t size);
/* Creates dir/name with this size if it does not exist. */
int bench_need_file(const struct bench *b, const char *dir, const char *name,
		    size_t size);
/* fsync of a directory. */
int bench_sync_dir(const char *dir);
/* Sixteen writers like those of vLLM's fs tier, each writing files_each files
 * of 2 MiB below dir (0: without end). They stop early when *stop (may be NULL)
 * becomes true. Removes the files. *ret_s: seconds, without the removal. */
int bench_writers(struct bench *b, const char *dir, unsigned files_each,
		  const volatile bool *stop, double *ret_s);

/* ---- references (bench_ref.c) ---- */
/* Mounts, starts and creates the references; 0 or -errno, printed. */
int bench_refs_open(struct bench *b);
/* Undoes all of it, also after a partial open. */
void bench_refs_close(struct bench *b);
/* Receives n bytes through the socket into buf. */
int bench_socket_read(const struct bench *b, void *buf, size_t n);

/* ---- absolute figures ---- */
/* Time from close in the first mount until readable in the second. */
int bench_visible(struct bench *b, struct bench_hist *lat);
/* access() while sixteen writers saturate dir. */
int bench_busy_access(struct bench *b, const char *dir,
		      struct bench_hist *lat);
/* The daemon's counts of READ and WRITE requests: 0, or -ENOENT if the mount
 * does not report them. */
int bench_requests(const struct bench *b, double *ret_reads,
		   double *ret_writes);

/* Costs of the machine itself. In a virtual machine both may be a hundred times
 * higher, and then they dominate the time of small requests and new files. */
struct bench_machine {
	double wake_us;		 /* wake-up on another CPU; 0: only one CPU */
	double fresh_us_per_mib; /* first touch of memory */
};
int bench_machine(struct bench_machine *ret_m);

struct bench_memory {
	size_t size;	    /* of an object */
	unsigned objects;
	double total;	    /* memory in use, per object */
	double over;	    /* beyond the size rounded up to 4 KiB */
	double slab, anon;  /* parts of `total` */
};
/* The most bytes that bench_memory stores. */
uint64_t bench_memory_bytes(size_t size, unsigned objects);
int bench_memory(struct bench *b, size_t size, unsigned objects,
		 struct bench_memory *ret_m);

#endif
