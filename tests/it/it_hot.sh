#!/bin/bash
# A key that many read is spread over holders, and is back on one when it is
# cold.
# modes: passthrough
# limit: 180
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need jq curl getfattr cmp

SIZE=2000000

sent() { metric "${admin[$1]}" kvpool_peer_sent_bytes_total; } # NAME
holders() { # NAME: as its mount knows
	getfattr --only-values -n user.kvpool.holders "${mount[$1]}/k" 2>/dev/null
}
holders_at_least() { [ "$(holders "$1")" -ge "$2" ]; }
holders_are() { [ "$(holders "$1")" = "$2" ]; }
extra_copies() {
	http "${admin[master]}/api/objects?prefix=k" | jq '.objects[0].extra_copies'
}

start_master --heartbeat 500ms
for n in a b c; do
	start_node $n --no-mount --store-size 64M --no-fd-passing \
		--hot-gets 3 --cold 3s
done
start_node w --store-size 0 --buffer-size 16M --no-fd-passing
for i in {1..8}; do
	start_node r$i --store-size 0 --buffer-size 16M --no-fd-passing \
		--prefetch 0
done

echo "== one copy, on one store"
head -c $SIZE /dev/urandom >"$tmp/src"
cp "$tmp/src" "${mount[w]}/k"
sync "${mount[w]}"
[ "$(extra_copies)" = 0 ] || fail "extra copies of what nobody has read"

echo "== the third reader makes it hot: the others find more holders"
for i in 1 2 3; do
	cmp "$tmp/src" "${mount[r$i]}/k" || fail "r$i reads something else"
done
for i in {4..8}; do
	wait_until 10 holders_at_least r$i 2
done
readers=()
for i in {4..8}; do
	cmp "$tmp/src" "${mount[r$i]}/k" &
	readers+=($!)
done
for p in "${readers[@]}"; do
	wait "$p" || fail "a reader reads something else"
done

echo "== bytes by holder"
all=0 holding=0 most=0
for n in a b c; do
	bytes=$(sent $n)
	echo "   $n: $bytes"
	all=$((all + bytes))
	[ "$bytes" -lt $((2 * SIZE)) ] || holding=$((holding + 1))
	[ "$bytes" -le $most ] || most=$bytes
done
[ $all -ge $((8 * SIZE)) ] || fail "the readers were sent $all bytes only"
[ $holding -ge 2 ] || fail "not spread over two holders"
[ $most -lt $((8 * SIZE)) ] || fail "one holder served all"
shown() { # the master's figures are those of the nodes
	[ "$(http "${admin[master]}/api/nodes" |
		jq '[.nodes[] | select(.is_store).sent_bytes] | add')" = $all ]
}
wait_until 10 shown
kvpool nodes --wide --admin "${admin[master]}" >"$tmp/nodes"
grep -q SENT_BYTES "$tmp/nodes" ||
	fail "kvpool nodes does not show bytes by holder"

echo "== cold, it is on one store again, and can be read"
wait_until 20 holders_are r1 1
[ "$(extra_copies)" = 0 ] || fail "still extra copies"
start_node r9 --store-size 0 --buffer-size 16M --no-fd-passing
wait_until 10 test -e "${mount[r9]}/k"	# it receives the names one by one
cmp "$tmp/src" "${mount[r9]}/k"

pass
