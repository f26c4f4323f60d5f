#!/bin/bash
# kvpoold --surge: the second daemon of a name takes over, the first one waits for
# SIGTERM, also one with a keeper; the first one of all just starts.
# modes: both
# limit: 90
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need jq

start_master
start_node a --surge --keeper
old=${pid[a]}
echo kept >"${mount[a]}/kept"
exec 9<"${mount[a]}/kept"
[ "$(kvpool healthz --own --admin "${admin[a]}" 2>&1)" = "" ] || fail "it is not here"

echo "== another one takes over"
start_node a --no-wait --surge --keeper
daemon_of() { status_json a .pid; }
took_over() { grep -q 'another daemon serves; waiting for SIGTERM' "$tmp/a.log"; }
wait_until 10 took_over
wait_ready a
[ "$(cat <&9)" = kept ] || fail "what is open is lost"
[ "$(cat "${mount[a]}/kept")" = kept ] || fail "the mount is lost"
exec 9<&-

echo "== the old one waits, and has nothing open"
kill -0 "$old" || fail "the old daemon has ended"
waiter=$(pgrep -P "$old" -f -- --surge-wait) # not its guard
[ "$(readlink "/proc/$waiter/exe")" = "$(readlink -f "$BIN/kvpoold")" ] || fail "no waiter"
left=$(find "/proc/$waiter/fd" -mindepth 1 -printf '%f %l\n' | awk '$1 > 2')
[ -z "$left" ] || fail "the waiter has open: $left"
[ "$(daemon_of)" != "$waiter" ] || fail "the old one serves"
status=0
unshare --mount kvpool healthz --own --admin "${admin[a]}" 2>"$tmp/own" || status=$?
[ $status = 1 ] && grep -q 'runs in another container' "$tmp/own" || fail "own: $(cat "$tmp/own")"

echo "== and ends at SIGTERM"
kill -TERM "$old"
wait "$old" || fail "the old daemon ended with $?"
[ "$(cat "${mount[a]}/kept")" = kept ] || fail "the mount ended with the old daemon"
pass
