#include "tools/doctor.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/parse.h"
#include "pool/kvpool.h"

#define FILES_LEAST 65536u
#define MEMORY_BESIDE (128ull << 20) /* what a daemon needs besides its store */
#define RENEW_DAYS 14
#define CLOCK_S 2 /* more than a busy machine delays each heartbeat */

/* ---- facts ---- */

/* A file's text, up to cap - 1 bytes. False: there is none. */
static bool read_text(const struct doctor *d, const char *path, char *buf,
		      size_t cap)
{
	char full[PATH_MAX];
	ssize_t n;
	int fd;

	if ((size_t)snprintf(full, sizeof(full), "%s%s", d->root, path) >=
	    sizeof(full))
		return false;
	fd = open(full, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, buf, cap - 1);
	close(fd);
	if (n < 0)
		return false;
	buf[n] = '\0';
	return true;
}

static bool read_number(const struct doctor *d, const char *path, uint64_t *ret)
{
	char text[64], *end;

	if (!read_text(d, path, text, sizeof(text)))
		return false;
	*ret = strtoull(text, &end, 10);
	return end != text && (*end == '\n' || *end == '\0');
}

static const char *text_of(const json_t *json, const char *member)
{
	const char *text = json_string_value(json_object_get(json, member));

	return text ? text : "";
}

static uint64_t number_of(const json_t *json, const char *member)
{
	json_int_t n = json_integer_value(json_object_get(json, member));

	return n > 0 ? (uint64_t)n : 0;
}

static const json_t *part(const struct doctor *d, const char *member)
{
	return json_object_get(d->status, member);
}

static uint64_t store_size(const struct doctor *d)
{
	return number_of(part(d, "store"), "size");
}

/* A file of the daemon's in /proc. */
static bool read_process(const struct doctor *d, const char *file, char *buf,
			 size_t cap)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%" PRIu64 "/%s",
		 number_of(d->status, "pid"), file);
	return read_text(d, path, buf, cap);
}

/* A soft limit of the daemon's; UINT64_MAX: unlimited, or not known. */
static uint64_t limit_of(const struct doctor *d, const char *name)
{
	char text[4096], *line;

	if (!read_process(d, "limits", text, sizeof(text)))
		return UINT64_MAX;
	line = strstr(text, name);
	if (!line)
		return UINT64_MAX;
	line += strlen(name);
	line += strspn(line, " ");
	return strncmp(line, "unlimited", 9) == 0 ? UINT64_MAX :
						    strtoull(line, NULL, 10);
}

static bool kernel_before(const struct doctor *d, unsigned int major,
			  unsigned int minor)
{
	unsigned int x, y;
	char text[64];

	return read_text(d, "/proc/sys/kernel/osrelease", text, sizeof(text)) &&
	       sscanf(text, "%u.%u", &x, &y) == 2 &&
	       (x < major || (x == major && y < minor));
}

static void size_text(uint64_t bytes, char buf[32])
{
	pool_format_size(bytes, buf, 32);
}

/* ---- checks: true if something was found ---- */

#define WHAT(f, ...) snprintf((f)->what, sizeof((f)->what), __VA_ARGS__)
#define MEND(f, ...) snprintf((f)->mend, sizeof((f)->mend), __VA_ARGS__)

static bool check_passthrough(const struct doctor *d, struct doctor_finding *f)
{
	const char *mode = text_of(d->status, "data_mode");

	if (!part(d, "mount") || strcmp(mode, "passthrough") == 0)
		return false;
	WHAT(f, "the mount is %s: each read and write goes through the daemon",
	     mode);
	if (kernel_before(d, 6, 9))
		MEND(f, "use Linux 6.9 or later");
	else
		MEND(f, "run kvpoold with CAP_SYS_ADMIN, and without "
			"--data-mode served");
	return true;
}

static bool check_kernel(const struct doctor *d, struct doctor_finding *f)
{
	if (!part(d, "mount") || !kernel_before(d, 6, 16))
		return false;
	WHAT(f, "before Linux 6.16 not all names can be expired at once: after "
		"a burst of changes this node waits for the kernel");
	MEND(f, "use Linux 6.16 or later");
	return true;
}

static bool check_huge_pages(const struct doctor *d, struct doctor_finding *f)
{
	static const char path[] =
		"/sys/kernel/mm/transparent_hugepage/shmem_enabled";
	char text[128];

	if (store_size(d) == 0 || !read_text(d, path, text, sizeof(text)) ||
	    !strstr(text, "[deny]"))
		return false;
	WHAT(f, "the kernel denies huge pages to tmpfs: reads and writes of "
		"large objects cost more");
	MEND(f, "echo advise >%s", path);
	return true;
}

static bool check_haltpoll(const struct doctor *d, struct doctor_finding *f)
{
	static const char path[] =
		"/sys/module/haltpoll/parameters/guest_halt_poll_ns";
	uint64_t ns;

	if (!read_number(d, path, &ns) || ns >= 200000)
		return false;
	WHAT(f, "idle CPUs of this virtual machine are returned to the host "
		"after %" PRIu64 " ns: waking one takes longer than a look-up",
	     ns);
	MEND(f, "echo 200000 >%s", path);
	return true;
}

static bool check_page_reporting(const struct doctor *d,
				 struct doctor_finding *f)
{
	static const char path[] =
		"/sys/module/page_reporting/parameters/page_reporting_order";
	uint64_t order;

	if (store_size(d) == 0 || !read_number(d, path, &order) || order > 10)
		return false;
	WHAT(f, "free memory of this virtual machine is returned to the host "
		"in pieces of order %" PRIu64 ": using it again is slow",
	     order);
	MEND(f, "echo 11 >%s", path);
	return true;
}

static bool check_mtu(const struct doctor *d, struct doctor_finding *f)
{
	char path[128];
	uint64_t mtu, speed;

	if (!d->interface[0])
		return false;
	snprintf(path, sizeof(path), "/sys/class/net/%s/speed", d->interface);
	if (!read_number(d, path, &speed) || speed < 10000 || speed > 10000000)
		return false;
	snprintf(path, sizeof(path), "/sys/class/net/%s/mtu", d->interface);
	if (!read_number(d, path, &mtu) || mtu >= 4000)
		return false;
	WHAT(f, "%s has %" PRIu64 " Gb/s and an MTU of %" PRIu64
		": more packets, and more CPU time, than needed",
	     d->interface, speed / 1000, mtu);
	MEND(f, "ip link set %s mtu 9000 (on all nodes, and the switch)",
	     d->interface);
	return true;
}

static bool check_rdma(const struct doctor *d, struct doctor_finding *f)
{
	const json_t *rows = json_object_get(d->devices, "devices"), *row;
	size_t i;

	json_array_foreach(rows, i, row) {
		const char *why = text_of(row, "why_not");

		if (!why[0])
			continue;
		WHAT(f, "RDMA device %s is not used: %s",
		     text_of(row, "device"), why);
		MEND(f, "kvpool devices; rdma link show");
		return true;
	}
	return false;
}

static bool has_capability(const struct doctor *d, const char *name)
{
	const json_t *list =
		json_object_get(part(d, "privileges"), "capabilities"), *it;
	size_t i;

	json_array_foreach(list, i, it)
		if (strcmp(json_string_value(it), name) == 0)
			return true;
	return false;
}

static bool check_memlock(const struct doctor *d, struct doctor_finding *f)
{
	uint64_t limit = limit_of(d, "Max locked memory");
	char has[32], size[32];

	if (!json_is_true(part(d, "rdma")) || limit >= store_size(d) ||
	    has_capability(d, "ipc_lock"))
		return false;
	size_text(limit, has);
	size_text(store_size(d), size);
	WHAT(f, "kvpoold may lock %s of memory, its store has %s: what cannot "
		"be registered for RDMA goes over TCP", has, size);
	MEND(f, "LimitMEMLOCK=infinity in the unit, or ulimit -l unlimited");
	return true;
}

static bool check_open_files(const struct doctor *d, struct doctor_finding *f)
{
	uint64_t limit = limit_of(d, "Max open files");

	if (limit >= FILES_LEAST)
		return false;
	WHAT(f, "kvpoold may open %" PRIu64 " files: with more, opens fail",
	     limit);
	MEND(f, "LimitNOFILE=1048576 in the unit, or ulimit -n 1048576");
	return true;
}

/* The least memory.max of the daemon's cgroup and those above it. */
static uint64_t cgroup_limit(const struct doctor *d)
{
	char text[1024], path[PATH_MAX], *group, *end;
	uint64_t least = UINT64_MAX, max;

	if (!read_process(d, "cgroup", text, sizeof(text)))
		return least;
	group = strstr(text, "0::/");
	if (!group)
		return least;
	group += strlen("0::");
	group[strcspn(group, "\n")] = '\0';
	for (;;) {
		snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max",
			 group);
		if (read_number(d, path, &max) && max < least)
			least = max;
		end = strrchr(group, '/');
		if (!end)
			return least;
		*end = '\0';
	}
}

static bool check_cgroup(const struct doctor *d, struct doctor_finding *f)
{
	uint64_t max = cgroup_limit(d), size = store_size(d);
	char limit[32], text[32];

	if (size == 0 || max == UINT64_MAX || size + MEMORY_BESIDE <= max)
		return false;
	size_text(max, limit);
	size_text(size, text);
	WHAT(f, "the cgroup may use %s, the store alone %s: the kernel kills "
		"the daemon when the store fills", limit, text);
	MEND(f, "a smaller --store-size, or more memory for the cgroup or pod");
	return true;
}

/* A field of /proc/meminfo in bytes; 0: there is none. */
static uint64_t meminfo(const struct doctor *d, const char *name)
{
	char text[4096], *at;

	if (!read_text(d, "/proc/meminfo", text, sizeof(text)))
		return 0;
	at = strstr(text, name);
	return at ? strtoull(at + strlen(name), NULL, 10) << 10 : 0;
}

static bool check_memory(const struct doctor *d, struct doctor_finding *f)
{
	uint64_t total = meminfo(d, "MemTotal:"), size = store_size(d);
	char has[32], text[32];

	if (total == 0 || size <= total / 10 * 9)
		return false;
	size_text(total, has);
	size_text(size, text);
	WHAT(f, "the store may take %s of this machine's %s: nothing is left "
		"for engines", text, has);
	MEND(f, "a smaller --store-size");
	return true;
}

static bool check_swap(const struct doctor *d, struct doctor_finding *f)
{
	uint64_t swap = meminfo(d, "SwapTotal:"), swappiness;
	char text[32];

	if (store_size(d) == 0 || swap == 0 ||
	    (read_number(d, "/proc/sys/vm/swappiness", &swappiness) &&
	     swappiness == 0))
		return false;
	size_text(swap, text);
	WHAT(f, "there are %s of swap: objects may be written to disk, and "
		"read back slowly", text);
	MEND(f, "swapoff -a, or sysctl vm.swappiness=0");
	return true;
}

static bool check_master(const struct doctor *d, struct doctor_finding *f)
{
	const json_t *master = part(d, "master");

	if (!master || json_is_true(json_object_get(master, "connected")))
		return false;
	WHAT(f, "no master at %s: local reads continue, writes wait",
	     text_of(master, "address"));
	MEND(f, "start kvpool-master, or look at its log and at the network");
	return true;
}

static bool check_version(const struct doctor *d, struct doctor_finding *f)
{
	const char *its = text_of(d->status, "version");

	if (strcmp(its, kvpool_version()) == 0)
		return false;
	WHAT(f, "the daemon runs %s, and %s is installed", its,
	     kvpool_version());
	MEND(f, "restart it: kvpoold(8), UPGRADES");
	return true;
}

/* Programs of the pool whose version is not ours: those that fit, by name. */
struct others {
	char text[300];
	size_t len;
	unsigned int left_out;
};

static void add_other(struct others *o, const char *who, const char *version,
		      const char *ours)
{
	int n;

	if (!version[0] || strcmp(version, ours) == 0)
		return;
	n = snprintf(o->text + o->len, sizeof(o->text) - o->len, "%s%s %s",
		     o->len ? ", " : "", who, version);
	if (o->len + (size_t)n < sizeof(o->text)) {
		o->len += (size_t)n;
		return;
	}
	o->text[o->len] = '\0';
	o->left_out++;
}

static bool check_versions(const struct doctor *d, struct doctor_finding *f)
{
	const char *ours = text_of(d->status, "version");
	const json_t *rows = json_object_get(d->nodes, "nodes"), *row;
	struct others o = { .len = 0 };
	char more[32] = "";
	size_t i;

	add_other(&o, "the master", text_of(part(d, "master"), "version"),
		  ours);
	json_array_foreach(rows, i, row)
		if (json_is_true(json_object_get(row, "alive")))
			add_other(&o, text_of(row, "name"),
				  text_of(row, "version"), ours);
	if (!o.len && !o.left_out)
		return false;
	if (o.left_out)
		snprintf(more, sizeof(more), " and %u more", o.left_out);
	WHAT(f, "this node runs %.47s, others of the pool do not (%s%s): "
		"features of the newer version are not used",
	     ours, o.text, more);
	MEND(f, "install one version on all machines, then kvpool restart on "
		"each node, and restart the master and engines");
	return true;
}

static bool check_clock(const struct doctor *d, struct doctor_finding *f)
{
	const json_t *ahead =
		json_object_get(part(d, "master"), "clock_ahead_ms");
	double s = (double)json_integer_value(ahead) / 1000;

	if (s >= -CLOCK_S && s <= CLOCK_S)
		return false;
	WHAT(f, "the clock is %.1f s %s the master's: times of files and logs "
		"do not agree, certificates expire too early or too late",
	     s < 0 ? -s : s, s < 0 ? "behind" : "ahead of");
	MEND(f, "apt install chrony; chronyc makestep (here, and on the "
		"master's machine)");
	return true;
}

static bool check_links(const struct doctor *d, struct doctor_finding *f)
{
	if (strcmp(text_of(part(d, "links"), "protected"), "insecure") != 0)
		return false;
	WHAT(f, "--insecure: anyone who reaches the ports can read and change "
		"the pool");
	MEND(f, "kvpool certs init; kvpool certs issue; --tls-dir: see "
		"README.md, Three nodes");
	return true;
}

static bool check_certificate(const struct doctor *d, struct doctor_finding *f)
{
	const json_t *days = json_object_get(part(d, "links"), "expires_days");

	if (!days || json_integer_value(days) >= RENEW_DAYS)
		return false;
	WHAT(f, "the certificate expires in %" JSON_INTEGER_FORMAT
		" days: then no other daemon accepts this one",
	     json_integer_value(days));
	MEND(f, "kvpool certs renew");
	return true;
}

static const struct {
	const char *name;
	enum doctor_cost cost;
	bool (*look)(const struct doctor *d, struct doctor_finding *f);
} checks[] = {
	{ "master", DOCTOR_SAFETY, check_master },
	{ "links", DOCTOR_SAFETY, check_links },
	{ "certificate", DOCTOR_SAFETY, check_certificate },
	{ "cgroup", DOCTOR_SAFETY, check_cgroup },
	{ "memory", DOCTOR_SAFETY, check_memory },
	{ "open-files", DOCTOR_SAFETY, check_open_files },
	{ "version", DOCTOR_SAFETY, check_version },
	{ "versions", DOCTOR_SAFETY, check_versions },
	{ "clock", DOCTOR_SAFETY, check_clock },
	{ "passthrough", DOCTOR_SPEED, check_passthrough },
	{ "kernel", DOCTOR_SPEED, check_kernel },
	{ "huge-pages", DOCTOR_SPEED, check_huge_pages },
	{ "swap", DOCTOR_SPEED, check_swap },
	{ "haltpoll", DOCTOR_SPEED, check_haltpoll },
	{ "page-reporting", DOCTOR_SPEED, check_page_reporting },
	{ "mtu", DOCTOR_SPEED, check_mtu },
	{ "rdma", DOCTOR_SPEED, check_rdma },
	{ "memlock", DOCTOR_SPEED, check_memlock },
};

#define CHECKS (sizeof(checks) / sizeof(checks[0]))

_Static_assert(CHECKS <= DOCTOR_FINDINGS_MAX, "no room for all findings");

size_t doctor_checks(void)
{
	return CHECKS;
}

size_t doctor_look(const struct doctor *d, struct doctor_finding *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < CHECKS; i++) {
		struct doctor_finding f = { .check = checks[i].name,
					    .cost = checks[i].cost };

		if (checks[i].look(d, &f))
			ret[n++] = f;
	}
	return n;
}
