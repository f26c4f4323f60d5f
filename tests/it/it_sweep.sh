#!/bin/bash
# Each call that may fail does, one a run: see tests/sweep.h. What is asked here
# is a sample; `make sweep` visits every call.
#
#   SWEEP_STRIDE=N       every Nth call (default: 13, from a first one by chance)
#   SWEEP_ONLY=REGEX     only sweeps such as "put of a"
# modes: both
# variants: release asan
# limit: 300
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need sweep addr2line setfattr

stride=${SWEEP_STRIDE:-13}
only=${SWEEP_ONLY:-.}
# They say what failed.
LOG_ALLOW='^[^ ]+ error '

sweep_of() { # SCENARIO NAME
	[[ "$1 of $2" =~ $only ]] || return 0
	local program=$BIN/kvpoold
	[ "$2" = master ] && program=$BIN/kvpool-master
	printf '   %-7s' "$2"
	sweep run "$1" "$tmp/$2.page" "${pid[$2]}" "$program" \
		"${mount[a]}" "${mount[b]}" $((1 + RANDOM % stride)) "$stride" ||
		fail "$1 of $2"
	rm -rf "${mount[a]}"/sweep/*
}

for name in master a b; do preload_failing "$name"; done
start_master
start_node a --store-size 96M --no-fd-passing --allow-faults
start_node b --store-size 96M --no-fd-passing --allow-faults
mkdir "${mount[a]}/base"
setfattr -n user.kvpool.class -v noevict "${mount[a]}/base"
sweep base "${mount[a]}"

for scenario in put names rewrite get copy evict; do
	for name in a b master; do
		[ $scenario$name != getmaster ] || continue	# it is on no read path
		sweep_of $scenario $name
	done
done
sweep check "${mount[a]}"
sweep check "${mount[b]}"
pass
