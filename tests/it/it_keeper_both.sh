#!/bin/bash
# Keeper and daemon are killed at once, while the notifier is in the kernel and
# waits for the lock of a directory, whose holder waits for the daemon: the mount
# fails, and nobody hangs.
# modes: both
# limit: 120
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need jq findmnt

waits_at() { grep -qs "^$2" /proc/"$1"/task/*/wchan; } # PID FUNCTION
not_there() { [ ! -e "/proc/$1" ]; } # PID
# (A dead process that nobody waits for stays in the table, with one thread.)
has_ended() { [ "$(find "/proc/$1/task" -mindepth 1 -maxdepth 1 2>&- |
	wc -l)" -le 1 ]; }
dead() { ! timeout 5 stat -f "$a" >/dev/null 2>&1; }

start_master
start_node a --store-size 64M --keeper
start_node b --store-size 64M
start_node c --store-size 64M
a=${mount[a]} c=${mount[c]}

echo "== the notifier waits for a directory's lock"
mkdir "$c/g"
for k in {1..100}; do echo 1 >"$c/g/x$k"; done
sync "$c/g"
for k in {1..100}; do [ "$(cat "$a/g/x$k")" = 1 ] || fail "x$k is not there"; done
kill -STOP "${pid[b]}"
echo 1 >"$a/g/y"
sync "$a/g" 2>"$tmp/sync.out" & # holds the lock, and waits for b
holder=$!
also_kill=("$holder")
daemon=$(status_json a .pid) keeper=${pid[a]} changed=0
blocks() {
	changed=$((changed + 1))
	echo 2 >"$c/g/x$changed"
	waits_at "$daemon" fuse_reverse_inval_entry
}
if [ -r /proc/$$/wchan ]; then
	wait_until 10 waits_at "$holder" request_wait_answer
	wait_until 10 blocks
else
	echo "   (no wchan here: whether it waits is not known)"
	sleep 1
	blocks || :
fi

echo "== both are killed"
kill -STOP "$daemon" # it must not see that the keeper has gone
kill -KILL "$keeper" "$daemon"
wait "$keeper" 2>/dev/null || :
unset "pid[a]"
wait_until 20 has_ended "$daemon"
wait_until 20 not_there "$holder"
! wait "$holder" || fail "the fsync says that it has synced"
also_kill=()
wait_until 20 dead
kill -CONT "${pid[b]}"
umount "$a"

echo "== the old way: a new daemon, a new mount"
start_node a --store-size 64M --keeper
[ "$(cat "$a/g/x100")" = 1 ] || fail "not readable after a start"
echo 3 >"$a/g/z"
sync "$a/g" || fail "no fsync after a start"

echo "== the guard follows: it ends with the keeper, or with the mount"
guards() { pgrep -c -P "${pid[a]}" -x kvpool-guard || :; }
[ "$(guards)" = 1 ] || fail "$(guards) guards of the keeper"
guard=$(pgrep -P "${pid[a]}" -x kvpool-guard)
umount "$a"
wait "${pid[a]}" || fail "the keeper ended with $?"
unset "pid[a]"
wait_until 10 not_there "$guard"
pass
