#!/bin/bash
# kill -9 of a daemon while the kernel holds a directory's lock for a request
# that waits, and a notification waits for that lock: the process must end, and
# pending requests must fail.
# modes: both
# limit: 60
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need curl

same() { [ "$(cat "$2" 2>/dev/null)" = "$1" ]; }

# While an fsync waits, an epoch does what is queued: the thread is blocked by a
# notification that it takes before. It takes about one in six: here are many, each
# of a name that the kernel knows.
blocks() {
	changed=$((changed + 1))
	echo 2 >"$c/d/x$changed"
	waits_in "${pid[b]}" fuse_reverse_inval_entry
}

# Does a thread of the process wait there in the kernel?
waits_in() { # PID FUNCTION
	grep -qs "^$2" /proc/"$1"/task/*/wchan
}

# The last of its threads is gone.
ended() { # PID
	[ ! -e "/proc/$1/task" ] || [ "$(ls "/proc/$1/task" | wc -l)" -le 1 ]
}

start_master --heartbeat 5s
start_node a
start_node b
start_node c
a=${mount[a]} b=${mount[b]} c=${mount[c]}
mkdir "$c/d"
for k in {1..200}; do echo 1 >"$c/d/x$k"; done
sync "$c/d"
for k in {1..200}; do same 1 "$b/d/x$k" || fail "x$k is not there"; done
[ -r "/proc/$$/task/$$/wchan" ] || skip "no /proc/PID/wchan here"

echo "== an fsync waits for a stopped node, a notification for the fsync"
kill -STOP "${pid[a]}"
echo 1 >"$b/d/y"
sync "$b/d" 2>"$tmp/sync.out" &
syncing=$!
also_kill+=($syncing)
wait_until 5 waits_in $syncing request_wait_answer
changed=0
wait_until 5 blocks
kill -KILL "${pid[b]}"
wait_until 5 ended "${pid[b]}"
wait "${pid[b]}" 2>/dev/null || :
unset "pid[b]"
status=0
wait $syncing || status=$?
also_kill=()
[ $status != 0 ] || fail "the fsync was a success"
kill -CONT "${pid[a]}"

echo "== started again it serves"
start_node b
wait_until 10 same 2 "$b/d/x$changed"
pass
