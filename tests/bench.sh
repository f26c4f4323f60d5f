#!/bin/bash
# The whole table of ratios (`make bench`), on a pool that is made for it and gone
# afterwards: a master and two nodes with mounts on this machine, each a process.
# Options are those of `kvpool bench`, such as: --only read_4m --rounds 3
#
# Where idle CPUs are given back to a hypervisor at once, what waits for a
# wake-up is measured a second time with CPUs that poll for 0.2 ms before.
. "$(dirname "$0")/lib.sh"
need_fuse

halt_poll=/sys/module/haltpoll/parameters/guest_halt_poll_ns
halt_poll_was=

start_nodes() { # OPTION of kvpoold...
	local n
	for n in a b; do
		start_node $n --store-size 2G "$@"
	done
}

stop_nodes() {
	stop a
	stop b
}

bench() { # TITLE OPTION...
	echo
	echo "== $1"
	shift
	kvpool bench --mount "${mount[a]}" --mount2 "${mount[b]}" "$@"
}

put_back() {
	[ -z "$halt_poll_was" ] || echo "$halt_poll_was" >$halt_poll
}

start_master
start_nodes --no-fd-passing
bench "all; between nodes over TCP on loopback" "$@"
if [ "$(cat $halt_poll 2>/dev/null)" = 0 ] && [ -w $halt_poll ]; then
	trap 'put_back; cleanup' EXIT
	halt_poll_was=0
	echo 200000 >$halt_poll
	bench "again, with guest_halt_poll_ns=200000 (put back afterwards)" "$@"
	put_back
fi
stop_nodes
start_nodes
bench "between nodes that pass descriptors" --fd-passing \
	--only passed
stop_nodes
start_nodes --busy-poll 0
bench "without busy polling (--busy-poll 0)" --only read_128k,access,probe
pass
