#!/bin/bash
# The whole table of ratios (`make bench`), on a pool that is made for it and gone
# afterwards: a master and two nodes with mounts on this machine, each a process.
# Options are those of `kvpool bench`, such as: --only read_4m --rounds 3
#
# Where idle CPUs and free memory are given back to a hypervisor at once, all is
# measured a second time with CPUs that poll for 0.2 ms before, and with memory
# that is kept when it is free and has been used once.
. "$(dirname "$0")/lib.sh"
need_fuse

# FILE VALUE; 11: no free memory is that contiguous. Found at the start: was.
knobs="/sys/module/haltpoll/parameters/guest_halt_poll_ns 200000
/sys/module/page_reporting/parameters/page_reporting_order 11"
declare -A was=()

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
	local file
	for file in "${!was[@]}"; do echo "${was[$file]}" >"$file"; done
}

# What is kept from the hypervisor, as "NAME=VALUE ..."; none: nothing.
keep_from_host() {
	local file value kept=()
	while read -r file value; do
		[ -w "$file" ] && [ "$(cat "$file")" != "$value" ] || continue
		was[$file]=$(cat "$file")
		echo "$value" >"$file"
		kept+=("${file##*/}=$value")
	done <<<"$knobs"
	again="${kept[*]}"
}

# More of it than the nodes and the reference use. What is freed last is used
# first.
touch_memory() {
	mkdir "$tmp/touched"
	mount -t tmpfs -o huge=always,size=6G tmpfs "$tmp/touched"
	head -c 6G /dev/zero >"$tmp/touched/f" || :
	umount "$tmp/touched"
}

start_master
start_nodes --no-fd-passing
bench "all; between nodes over TCP on loopback" "$@"
trap 'put_back; cleanup' EXIT
keep_from_host
if [ -n "$again" ]; then
	touch_memory
	bench "again, with $again (put back afterwards)" "$@"
fi
stop_nodes
start_nodes
bench "between nodes that pass descriptors" --fd-passing \
	--only passed
stop_nodes
start_nodes --busy-poll 0
bench "without busy polling (--busy-poll 0)" --only read_128k,access,probe
pass
