#!/bin/bash
# What happened to the pool is kept by the master, and printed by kvpool events.
# modes: served
# limit: 60
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need jq curl

events() { # OPTION...
	kvpool events --admin "${admin[master]}" "$@"
}
has() { events | grep -q "$1"; } # REGEX

start_master
start_node a --name alpha
start_node b --no-mount --name 'beta-2'
echo "== joins, drains, ends: each once, in order"
has '  ready .*epoch 1, 0 keys' || fail "$(events)"
has '  joined .*alpha (127.0.0.1:[0-9]*), store, mount$' || fail "$(events)"
has '  joined .*beta-2 (127.0.0.1:[0-9]*), store$' || fail "$(events)"
echo x >"${mount[a]}/x"
sync "${mount[a]}"
kvpool drain 'beta-2' --admin "${admin[master]}" >/dev/null
wait_until 20 has '  drained .*beta-2: it may be switched off$'
has '  draining .*beta-2: begun$' || fail "$(events)"
stop b
wait_until 10 has '  left .*beta-2: '
wait_until 20 has '  gone .*beta-2: what it alone held'
kinds=$(events | awk '{ printf "%s ", $2 }')
[ "$kinds" = "ready joined joined draining drained left gone " ] || fail "kinds: $kinds"
[[ $(events | head -n1) =~ ^20[0-9-]+T[0-9:.]+Z\  ]] || fail "no time: $(events)"

echo "== from a number on, and as they happen"
events --since 6 --json | jq -e '.events | length == 1 and .[0].number == 6' >/dev/null ||
	fail "$(events --since 6 --json)"
events --since 7 --follow >"$tmp/followed" &
follower=$!
also_kill+=("$follower")
stop a
followed() { grep -q '  left .*alpha: ' "$tmp/followed"; }
wait_until 10 followed
kill "$follower"
wait "$follower" || :

echo "== parameters that make no sense"
bad() { # QUERY: 400
	local status
	status=$(curl -s -o "$tmp/said" -w '%{http_code}' \
		"http://${admin[master]}/api/events?$1")
	[ "$status" = 400 ] && grep -q accepted "$tmp/said" ||
		fail "$1: $status $(cat "$tmp/said")"
}
for query in since=x since=-1 since=99999999999999999999 limit=0 limit=10001 other=1; do
	bad "$query"
done
status=0
events x 2>/dev/null || status=$?
[ $status = 2 ] || fail "an operand: $status"
pass
