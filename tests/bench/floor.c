/*
 * floor DIRECTORY MOUNTPOINT [cached]: a file system that does nothing but
 * answer. What the kernel asks of a mount in passthrough mode is answered from
 * a table, with the same flags and timeouts as kvpoold's; bytes are in files of
 * DIRECTORY (a tmpfs). No daemon can be quicker with the same requests, so
 * benchmarks show kvpoold beside it. One directory, one thread, no checks; it
 * sleeps in read(2). It ends when it is unmounted.
 *
 * cached: as file systems without passthrough do it (JuiceFS, for example):
 * bytes are read and written through the daemon, and stay in the kernel's page
 * cache.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fs/passthrough.h"

#define NODES (1u << 20)
#define SLOTS (2 * NODES)
#define VALID_S 60
#define MESSAGE_MAX (1u << 20)

struct node {
	char name[64];
	int backing; /* 0: none */
	uint32_t mode;
};

static struct node *nodes; /* by nodeid; 1 is the directory */
static uint32_t *slots;	   /* hash of a name -> nodeid; 0: free, 1: was used */
static uint32_t last = 1;
static int device, directory;
static bool cached;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* ---- names ---- */

static uint32_t hash(const char *name)
{
	uint32_t h = 2166136261u;

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * 16777619u;
	return h % SLOTS;
}

static uint32_t *slot(const char *name)
{
	uint32_t i = hash(name);

	while (slots[i] &&
	       (slots[i] == 1 || strcmp(nodes[slots[i]].name, name)))
		i = (i + 1) % SLOTS;
	return &slots[i];
}

static void id_name(uint64_t id, char name[24])
{
	snprintf(name, 24, "%llu", (unsigned long long)id);
}

static void forget_name(const char *name)
{
	uint32_t *at = slot(name);
	char file[24];

	if (!*at)
		return;
	id_name(*at, file);
	unlinkat(directory, file, 0);
	if (nodes[*at].backing)
		fs_backing_close(device, nodes[*at].backing);
	nodes[*at].backing = 0;
	*at = 1;
}

/* ---- replies ---- */

static void reply(uint64_t unique, int error, const void *body, size_t len)
{
	struct fuse_out_header out = { .len = (uint32_t)(sizeof(out) + len),
				       .error = error,
				       .unique = unique };
	struct iovec iov[] = { { &out, sizeof(out) }, { (void *)body, len } };

	if (writev(device, iov, len ? 2 : 1) < 0 && errno != ENOENT)
		die("reply");
}

static struct fuse_attr attr_of(uint64_t id)
{
	struct fuse_attr a = { .ino = id, .nlink = 1, .blksize = 4096 };
	struct stat st;
	char file[24];

	if (id == FUSE_ROOT_ID) {
		a.mode = S_IFDIR | 01777;
		a.nlink = 2;
		return a;
	}
	a.mode = S_IFREG | nodes[id].mode;
	id_name(id, file);
	if (fstatat(directory, file, &st, 0) == 0) {
		a.size = (uint64_t)st.st_size;
		a.blocks = (uint64_t)st.st_blocks;
	}
	return a;
}

static struct fuse_entry_out entry_of(uint64_t id)
{
	struct fuse_entry_out e = { .nodeid = id,
				    .generation = 1,
				    .entry_valid = VALID_S,
				    .attr_valid = VALID_S };

	if (id)
		e.attr = attr_of(id);
	return e;
}

static struct fuse_open_out open_of(uint64_t id)
{
	struct fuse_open_out o = { .fh = 1, .open_flags = FS_FOPEN_NOFLUSH };

	if (cached) {
		o.open_flags |= FOPEN_KEEP_CACHE;
	} else {
		o.open_flags |= FS_FOPEN_PASSTHROUGH |
				FS_FOPEN_PARALLEL_DIRECT_WRITES;
		o.padding = (uint32_t)nodes[id].backing;
	}
	return o;
}

/* ---- requests ---- */

static void on_init(uint64_t unique, const struct fuse_init_in *in)
{
	struct fuse_init_out out = {
		.major = FUSE_KERNEL_VERSION,
		.minor = in->minor < 40 ? in->minor : 40,
		.max_readahead = in->max_readahead,
		.flags = in->flags & (FS_INIT_EXT | FS_HANDLE_KILLPRIV_V2 |
				      FUSE_PARALLEL_DIROPS | FUSE_BIG_WRITES |
				      FUSE_ASYNC_READ | FUSE_ATOMIC_O_TRUNC |
				      FUSE_MAX_PAGES),
		.max_background = 12,
		.congestion_threshold = 9,
		.max_write = MESSAGE_MAX - 4096,
		.time_gran = 1,
		.max_pages = 255,
		.flags2 = FS_PASSTHROUGH | FS_DIRECT_IO_ALLOW_MMAP
	};

	if (!(in->flags2 & FS_PASSTHROUGH)) {
		fputs("this kernel has no passthrough\n", stderr);
		exit(77);
	}
	out.unused[0] = 1; /* max_stack_depth */
	reply(unique, 0, &out, sizeof(out));
}

static void on_create(uint64_t unique, const struct fuse_create_in *in,
		      const char *name)
{
	struct {
		struct fuse_entry_out entry;
		struct fuse_open_out open;
	} out;
	uint32_t id = ++last;
	char file[24];
	int fd;

	if (id == NODES || strlen(name) >= sizeof(nodes->name)) {
		reply(unique, -ENOSPC, NULL, 0);
		return;
	}
	forget_name(name);
	id_name(id, file);
	fd = openat(directory, file, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC,
		    0600);
	if (fd < 0)
		die(file);
	strcpy(nodes[id].name, name);
	nodes[id].mode = in->mode & 07777;
	if (!cached)
		nodes[id].backing = fs_backing_open(device, fd);
	close(fd);
	*slot(name) = id;
	out.entry = entry_of(id);
	out.open = open_of(id);
	reply(unique, 0, &out, sizeof(out));
}

static void on_rename(uint64_t unique, const char *from)
{
	const char *to = from + strlen(from) + 1;
	uint32_t *at = slot(from), id = *at;

	if (!id || strlen(to) >= sizeof(nodes->name)) {
		reply(unique, -ENOENT, NULL, 0);
		return;
	}
	forget_name(to);
	*at = 1;
	strcpy(nodes[id].name, to);
	*slot(to) = id;
	reply(unique, 0, NULL, 0);
}

static void on_lookup(uint64_t unique, const char *name)
{
	struct fuse_entry_out e = entry_of(*slot(name));

	reply(unique, 0, &e, sizeof(e));
}

static int file_of(uint64_t id)
{
	char file[24];
	int fd;

	id_name(id, file);
	fd = openat(directory, file, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		die(file);
	return fd;
}

static void on_read(uint64_t unique, uint64_t id, const struct fuse_read_in *in)
{
	static char bytes[MESSAGE_MAX];
	int fd = file_of(id);
	ssize_t n = pread(fd, bytes, in->size, (off_t)in->offset);

	close(fd);
	if (n < 0)
		die("read");
	reply(unique, 0, bytes, (size_t)n);
}

static void on_write(uint64_t unique, uint64_t id,
		     const struct fuse_write_in *in)
{
	struct fuse_write_out out = { .size = in->size };
	int fd = file_of(id);

	if (pwrite(fd, in + 1, in->size, (off_t)in->offset) != in->size)
		die("write");
	close(fd);
	reply(unique, 0, &out, sizeof(out));
}

static void handle(const struct fuse_in_header *in, const void *body)
{
	struct fuse_attr_out attr = { .attr_valid = VALID_S };
	struct fuse_statfs_out statfs = { .st.bsize = 4096, .st.namelen = 63 };
	struct fuse_open_out open;

	switch (in->opcode) {
	case FUSE_INIT:
		on_init(in->unique, body);
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break;
	case FUSE_LOOKUP:
		on_lookup(in->unique, body);
		break;
	case FUSE_GETATTR:
	case FUSE_SETATTR:
		attr.attr = attr_of(in->nodeid);
		reply(in->unique, 0, &attr, sizeof(attr));
		break;
	case FUSE_CREATE:
		on_create(in->unique, body,
			  (const char *)body + sizeof(struct fuse_create_in));
		break;
	case FUSE_OPEN:
		open = open_of(in->nodeid);
		reply(in->unique, 0, &open, sizeof(open));
		break;
	case FUSE_READ:
		on_read(in->unique, in->nodeid, body);
		break;
	case FUSE_WRITE:
		on_write(in->unique, in->nodeid, body);
		break;
	case FUSE_RENAME:
		on_rename(in->unique,
			  (const char *)body + sizeof(struct fuse_rename_in));
		break;
	case FUSE_UNLINK:
		forget_name(body);
		reply(in->unique, 0, NULL, 0);
		break;
	case FUSE_RELEASE:
		reply(in->unique, 0, NULL, 0);
		break;
	case FUSE_GETXATTR:
		reply(in->unique, -ENODATA, NULL, 0);
		break;
	case FUSE_STATFS:
		reply(in->unique, 0, &statfs, sizeof(statfs));
		break;
	default:
		reply(in->unique, -ENOSYS, NULL, 0);
	}
}

int main(int argc, char **argv)
{
	static char buf[MESSAGE_MAX];
	char options[128];
	ssize_t n;

	cached = argc == 4 && !strcmp(argv[3], "cached");
	if (argc != (cached ? 4 : 3)) {
		fputs("usage: floor DIRECTORY MOUNTPOINT [cached]\n", stderr);
		return 2;
	}
	nodes = calloc(NODES, sizeof(*nodes));
	slots = calloc(SLOTS, sizeof(*slots));
	directory = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (!nodes || !slots || directory < 0 || device < 0)
		die(argv[1]);
	snprintf(options, sizeof(options),
		 "fd=%d,rootmode=40000,user_id=0,group_id=0,"
		 "default_permissions,allow_other", device);
	if (mount("floor", argv[2], "fuse.floor", MS_NOSUID | MS_NODEV,
		  options))
		die(argv[2]);
	while ((n = read(device, buf, sizeof(buf))) >= 0 || errno == EINTR ||
	       errno == ENOENT)
		if (n > 0)
			handle((struct fuse_in_header *)buf,
			       buf + sizeof(struct fuse_in_header));
	if (errno != ENODEV)
		die("read");
	return 0;
}
