# Nodes that differ from the others of their pool. Sourced after lib.sh.

# NODE, not yet started: its clock is 5 s ahead; its version begins with 9.
skew() { # NODE
	local version
	version=$(kvpool --version | awk '{ print $2 }')
	mkdir -p "$tmp/other"
	LC_ALL=C sed "s/$version/9${version:1}/g" "$(command -v kvpoold)" >"$tmp/other/kvpoold"
	chmod 755 "$tmp/other/kvpoold"
	cat >"$tmp/clock.c" <<'END'
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *ts)
{
	long rc = syscall(SYS_clock_gettime, id, ts);

	if (rc == 0 && id == CLOCK_REALTIME)
		ts->tv_sec += 5;
	return (int)rc;
}
END
	cc -shared -fPIC -o "$tmp/clock.so" "$tmp/clock.c"
	env_of[$1]="PATH=$tmp/other:$PATH LD_PRELOAD=$tmp/clock.so
		ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0"
}
