#!/bin/bash
# modes: both
# Look-ups: those of one directory reach the daemon at once, not one after the
# other; and a daemon that polls for the next request does not keep the CPU from
# its caller.
. "$(dirname "$0")/../lib/lib.sh"
need taskset

start_master
start_node a
mkdir "${mount[a]}/d"

# ---- at once ----

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

# ---- on one CPU ----

# The caller runs only while the daemon does not poll, or after a poll without result.
polls() { metric "${admin[a]}" "kvpool_busy_polls_total{came=\"no\"}"; }
turn=0
few_polls_find_nothing() {
	local before after
	turn=$((turn + 1))
	before=$(polls)
	! taskset -c "$cpu" stat $(seq -f "${mount[a]}/d/$turn.%g" 1000) \
		>/dev/null 2>&1
	after=$(polls)
	echo "of 1000 look-ups $((after - before)) after a poll without result"
	[ $((after - before)) -lt 300 ]
}
cpu=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
if [ "$(nproc)" -gt 1 ]; then
	taskset -cp "$cpu" "${pid[a]}" >/dev/null
	wait_until 20 few_polls_find_nothing
fi
pass
