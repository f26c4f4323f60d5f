#!/bin/bash
# Any user can have the kernel keep a directory locked, so that it takes no
# notification about it: other directories, fsync and the daemon's end do not
# wait for that.
# modes: both
# limit: 90
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
[ "$(printf '%s\n' 6.16 "$(uname -r)" | sort -V | head -n1)" = 6.16 ] ||
	skip "needs Linux 6.16: before, notifications wait"

threads() { # PID: those that have not ended
	sed -n 's/.*) \([^Z]\).*/\1/p' /proc/"$1"/task/*/stat 2>/dev/null || :
}
# Its thread that notifies the kernel does not end before the lock is free.
is_stuck() { # PID
	[ "$(threads "$1")" = D ]
}
gone() { # PID
	[ -z "$(threads "$1")" ]
}
slow() { metric_at_least "${admin[a]}" kvpool_fuse_notifications_slow_total 1; }

start_master
start_node a
start_node b
a=${mount[a]} b=${mount[b]}
mkdir "$b/d" "$b/e"
sync "$b/d" "$b/e"
[ ! -e "$a/d/name" ] && [ ! -e "$a/e/name" ] || fail "they are there already"
mkfifo "$tmp/unlock"
"$KVTEST_OBJ/tests/intruder" lock "$a/d" <"$tmp/unlock" >"$tmp/lock.out" 2>&1 &
locker=$!
also_kill+=("$locker")
exec {unlock}>"$tmp/unlock"
# A daemon that is stuck cannot be waited for before that one has ended.
trap 'status=$?; set +e; kill -KILL $locker 2>/dev/null; (exit $status); cleanup' EXIT
wait_until 5 grep -q . "$tmp/lock.out"
grep -qx locked "$tmp/lock.out" || skip "userfaultfd: $(cat "$tmp/lock.out")"

echo x >"$b/d/name"
wait_until 5 slow
echo x >"$b/e/name"
sync "$b/e" || fail "an fsync waits for a directory that is locked"
[ -e "$a/e/name" ] || fail "an acknowledged name does not show"

# The next daemon has the notification to send, and is stuck, too.
stuck=("${pid[a]}") args=${args_of[a]}
# shellcheck disable=SC2086
start_node a --no-wait $args --takeover
wait_until 20 is_stuck "${stuck[0]}"
args_of[a]=$args
wait_ready a
wait_until 5 slow
[ -e "$a/e/name" ] || fail "it is lost in a take-over"
stuck+=("${pid[a]}")
kill -TERM "${pid[a]}"
wait_until 20 is_stuck "${pid[a]}"
# What it held is free: its name, its ports, its mount point.
# shellcheck disable=SC2086
start_node a $args
wait_until 5 [ -e "$a/e/name" ]

echo >&"$unlock"
exec {unlock}>&-
wait "$locker" || fail "it was not this that kept the lock"
for p in "${stuck[@]}"; do
	wait_until 5 gone "$p"
	status=0
	wait "$p" || status=$?
	[ $status = 0 ] || fail "$p ended with $status"
done
wait_until 5 [ -e "$a/d/name" ]
pass
