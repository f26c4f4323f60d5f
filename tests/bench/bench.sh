#!/bin/bash
# The whole table of ratios (`make bench`), on a pool that is made for it and gone
# afterwards: a master and two nodes with mounts on this machine, each a process.
# Options are those of `kvpool bench`, such as: --only read_4m --rounds 3
# What it measures is judged here, by tests/bench_aims. Without options, what files on
# the mount cost beside other daemons (bench_mount.sh) follows, and peers if they are
# installed (bench_peers.sh). All of it is Markdown, also in $KVTEST_BUILD/bench.md.
#
# Where idle CPUs and free memory are given back to a hypervisor at once, all is
# measured a second time with CPUs that poll for 0.2 ms before, and with memory
# that is kept when it is free and has been used once.
here=$(realpath "$(dirname "$0")")
. "$here/lib_bench.sh"
need_fuse

start_nodes() { # OPTION of kvpoold...
	local n
	for n in a b; do
		start_node $n --store-size 2G "$@"
	done
}

describe() {
	echo "# KVPool $(kvpool version | sed 's/^kvpool //'), $(date -u +%Y-%m-%d)"
	echo
	echo "$(nproc) CPUs ($(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n1))," \
		"$(awk '/^MemTotal/ { print int($2 / 1048576 + 0.5) }' /proc/meminfo) GiB," \
		"Linux $(uname -r), load $(cut -d' ' -f1 /proc/loadavg)"
}

stop_nodes() {
	stop a
	stop b
}

bench() { # TITLE OPTION...
	local only= word
	echo
	echo "## ${1^}"
	echo
	shift
	for word in "$@"; do
		[ "$word" = "${word#--only=}" ] || only=${word#--only=}
		[ "$only" != next ] || only=$word
		[ "$word" != --only ] || only=next
	done
	kvpool bench --mount "${mount[a]}" --mount2 "${mount[b]}" --json "$@" \
		>"$tmp/bench.json"
	judge "$tmp/bench.json" "$only"
}

exec 3>&1 > >(tee "$KVTEST_BUILD/bench.md" >&3)
tee=$!
describe
start_master
start_nodes --no-fd-passing
bench "all; between nodes over TCP on loopback" "$@"
trap 'put_back; cleanup' EXIT
keep_from_host
if [ -n "$again" ]; then
	touch_memory 6
	bench "again, with $again (put back afterwards)" "$@"
fi
stop_nodes
start_nodes
bench "between nodes that pass descriptors" --fd-passing \
	--only passed
stop_nodes
start_nodes --busy-poll 0
bench "without busy polling (--busy-poll 0)" --only read_128k,access,probe
stop_nodes
if [ $# = 0 ]; then
	echo
	echo "## Files on the mount, beside other daemons"
	echo
	bash "$here/bench_mount.sh" | grep -vx pass
	if [ -e "$("$here/../engines/install" --where)/peers" ]; then
		echo
		echo "## Peers"
		echo
		KVTEST_KEYS=10000 bash "$here/bench_peers.sh" | grep -vx pass | sed 's/^/    /'
	fi
fi
exec >&3 3>&-
wait "$tee"
pass
