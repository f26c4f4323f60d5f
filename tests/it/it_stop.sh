#!/bin/bash
# SIGTERM is obeyed under any load: many fsyncs of a directory, each of which
# has the kernel hold its lock until it is answered, while the kernel is notified
# of changes in that directory, which takes the same lock.
. "$(dirname "$0")/../lib/lib.sh"
need_fuse

start_master
start_node b
mkdir "${mount[b]}/d"
sync "${mount[b]}/d"

for round in 1 2 3; do
	start_node a --store-size 64M
	wait_until 5 [ -d "${mount[a]}/d" ]
	before=${#also_kill[@]}
	for i in 1 2 3 4 5 6; do
		(while sync "${mount[a]}/d" 2>/dev/null; do :; done) &
		also_kill+=($!)
	done
	(while :; do
		for i in 1 2 3 4 5 6 7 8; do echo "$i" >"${mount[b]}/d/$i"; done
		rm "${mount[b]}/d"/*
	done) 2>/dev/null &
	also_kill+=($!)
	(while [ -e "${mount[a]}/d" ]; do
		[ -e "${mount[a]}/d/1" ] || [ -e "${mount[a]}/d/2" ] || :
	done) 2>/dev/null &
	also_kill+=($!)
	wait_until 10 metric_at_least "${admin[a]}" kvpool_fuse_notifications_total 50
	begin=${EPOCHREALTIME/./}
	stop a
	echo "   ended after $(((${EPOCHREALTIME/./} - begin) / 1000)) ms"
	kill "${also_kill[@]:$before}" 2>/dev/null || :
	wait "${also_kill[@]:$before}" 2>/dev/null || :
	also_kill=("${also_kill[@]:0:$before}")
done
pass
