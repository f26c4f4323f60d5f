#!/bin/bash
# modes: both
# Look-ups: those of one directory reach the daemon at once, not one after the
# other.
. "$(dirname "$0")/lib.sh"

start_master
start_node a
mkdir "${mount[a]}/d"

control=$tmp/control
mkdir "$control"
mount -t fusectl fusectl "$control"
waiting=$control/$(stat -c %d "${mount[a]}")/waiting

wait_for() { [ "$(cat "$waiting")" = "$1" ]; }
wait_until 5 wait_for 0
kill -STOP "${pid[a]}"
asking=()
for i in 1 2 3 4; do
	stat "${mount[a]}/d/$i" >/dev/null 2>&1 &
	asking+=($!)
done
wait_until 5 wait_for 4
kill -CONT "${pid[a]}"
for i in "${asking[@]}"; do
	! wait "$i" || fail "a name is there that nobody made"
done

pass
