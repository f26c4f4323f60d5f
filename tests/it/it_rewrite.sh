#!/bin/bash
# A file whose publication the master has not acknowledged may be written again.
# modes: both
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
LOG_ALLOW='no master'
need getfattr

start_master
start_node a
echo old >"${mount[a]}/f"
sync "${mount[a]}"
kill -STOP "${pid[master]}"
for i in 1 2 3; do
	timeout 10 bash -c "echo $i >'${mount[a]}/f'" || fail "writing it for time $i"
	[ "$(cat "${mount[a]}/f")" = $i ] || fail "$(cat "${mount[a]}/f"), not $i"
done
kill -CONT "${pid[master]}"
synced() { sync "${mount[a]}" 2>/dev/null; }
wait_until 20 synced
[ "$(cat "${mount[a]}/f")" = 3 ] || fail "$(cat "${mount[a]}/f") after all"

# Nor does that change what is read meanwhile: not even without a master, when
# nothing of it has been sent.
kill9 master
not_joined() { has_metric "${admin[a]}" kvpool_node_master_connected 0; }
wait_until 10 not_joined
head -c 3000000 /dev/zero >"${mount[a]}/g"
pending() {
	[ "$(getfattr --only-values -n user.kvpool.state "${mount[a]}/g")" = pending ]
}
wait_until 10 pending
exec 7<"${mount[a]}/g"
head -c 1000 <&7 >"$tmp/read"
head -c 3000000 /dev/urandom >"${mount[a]}/g"
cat <&7 >>"$tmp/read"
exec 7<&-
head -c 3000000 /dev/zero | cmp - "$tmp/read" ||
	fail "what was open for reading has changed"
start_master
wait_until 20 synced

start_node b
# It serves before it has received all names from the master.
wait_until 10 test -e "${mount[b]}/f"
[ "$(cat "${mount[b]}/f")" = 3 ] || fail "$(cat "${mount[b]}/f") elsewhere"
pass
