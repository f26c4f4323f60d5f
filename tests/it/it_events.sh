#!/bin/bash
# What happened to the pool is kept by the master, and printed by kvpool events.
# modes: served
# limit: 120
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need jq curl setfattr

events() { # OPTION...
	kvpool events --admin "${admin[master]}" "$@"
}
has() { grep -q "$1" < <(events); } # REGEX

start_master --repair-rate 2M
start_node a --name alpha
start_node b --name beta-2
echo "== joins"
has '  ready .*epoch 1, 0 keys' || fail "$(events)"
has '  joined .*alpha (127.0.0.1:[0-9]*), store, mount$' || fail "$(events)"
has '  joined .*beta-2 (127.0.0.1:[0-9]*), store, mount$' || fail "$(events)"
echo "== a repair, and a store that is full"
mkdir "${mount[a]}/two"
for i in 1 2 3 4 5; do head -c 2M /dev/urandom >"${mount[a]}/two/$i"; done
sync "${mount[a]}/two"
setfattr -n user.kvpool.replicas -v 2 "${mount[a]}/two"
wait_until 20 has '  repair .*begun: .* are short of copies$'
wait_until 30 has '  repair .*ended: all copies'
rm "${mount[a]}"/two/*
mkdir "${mount[a]}/kept"
setfattr -n user.kvpool.class -v noevict "${mount[a]}/kept"
for i in {1..62}; do head -c 8M /dev/zero >"${mount[a]}/kept/$i" || break; done 2>/dev/null
wait_until 20 has '  full .* % of the pool are free or evictable$'
rm "${mount[a]}"/kept/*
wait_until 20 has '  room .* % of the pool are free or evictable$'
emptied() { # or alpha alone may be full when beta-2 has left
	http "${admin[master]}/api/nodes" | jq -e 'all(.nodes[]; .used < 32 * 1024 * 1024)' >/dev/null
}
wait_until 20 emptied
echo "== drains, ends"
kvpool drain 'beta-2' --admin "${admin[master]}" >/dev/null
wait_until 20 has '  drained .*beta-2: it may be switched off$'
has '  draining .*beta-2: begun$' || fail "$(events)"
stop b
wait_until 10 has '  left .*beta-2: '
wait_until 20 has '  gone .*beta-2: objects that only it held'
kinds=$(events | awk '{ printf "%s ", $2 }')
[ "$kinds" = "ready joined joined repair repair full room draining drained left gone " ] ||
	fail "kinds: $kinds"
[[ $(events | head -n1) =~ ^20[0-9-]+T[0-9:.]+Z\  ]] || fail "no time: $(events)"

echo "== from a number on, and as they happen"
events --since 10 --json | jq -e '.events | length == 1 and .[0].number == 10' >/dev/null ||
	fail "$(events --since 10 --json)"
events --since 11 --follow >"$tmp/followed" &
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
	status=$(curl -s -o "$tmp/output" -w '%{http_code}' \
		"http://${admin[master]}/api/events?$1")
	[ "$status" = 400 ] && grep -q accepted "$tmp/output" ||
		fail "$1: $status $(cat "$tmp/output")"
}
for query in since=x since=-1 since=99999999999999999999 limit=0 limit=10001 other=1; do
	bad "$query"
done
status=0
events x 2>/dev/null || status=$?
[ $status = 2 ] || fail "an operand: $status"
pass
