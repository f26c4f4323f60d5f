#!/bin/bash
# Copies: made again when a node dies, reconciled when it comes back, moved away
# before it is switched off, and multiplied while they are hot.
# modes: passthrough
# limit: 240
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need jq curl setfattr getfattr cmp

repair() { status_json master ".repair.$1"; } # FIGURE
whole() { [ "$(repair endangered)" = 0 ] && [ "$(repair bytes_left)" = 0 ]; }
node_state() { # NAME: by the master
	http "${admin[master]}/api/nodes" |
		jq -r --arg n "$1.$$" '.nodes[] | select(.name == $n) | .state'
}
has_state() { [ "$(node_state "$1")" = "$2" ]; }
# Keys of which fewer than N copies are counted, or NODE among those listed.
short_of() { # N
	http "${admin[master]}/api/objects?prefix=d/&limit=1000" |
		jq "[.objects[] | select(.replicas < $1)] | length"
}
listed_at() { # NAME
	http "${admin[master]}/api/objects?prefix=&limit=1000" |
		jq --arg n "$1.$$" '[.objects[] | select(.nodes | index($n))] | length'
}
drain() { # NAME [OPTION]...
	local name=$1
	shift
	kvpool drain "$name.$$" --admin "${admin[master]}" "$@"
}
sums() { (cd "$1" && find d -type f | sort | xargs sha256sum); } # MOUNT

start_master --heartbeat 500ms
for n in a b c; do
	start_node $n --no-mount --store-size 96M --no-fd-passing --cold 2s
done
start_node r --store-size 0 --buffer-size 64M --no-fd-passing
R=${mount[r]}

echo "== two copies of each object, written through a client"
mkdir "$R/d"
setfattr -n user.kvpool.replicas -v 2 "$R/d"
for i in {1..20}; do
	head -c 500000 /dev/urandom >"$R/d/k$i"
done
sync "$R/d"
sums "$R" >"$tmp/sums"
wait_until 20 whole
[ "$(short_of 2)" = 0 ] || fail "copies are missing"
# The client has cached what it wrote: another one, which has nothing, reads.
fresh_reader_sees_all() { # NAME
	start_node "$1" --store-size 0 --buffer-size 64M --no-fd-passing
	diff "$tmp/sums" <(sums "${mount[$1]}") || fail "$1 reads something else"
	stop "$1"
}

echo "== a store is killed: the copies are whole again, and all can be read"
victims=$(listed_at a)
[ "$victims" -gt 0 ] || fail "a has no copies"
kill9 a
wait_until 10 has_state a gone
wait_until 20 whole
[ "$(short_of 2)" = 0 ] || fail "not repaired"
[ "$(metric "${admin[master]}" kvpool_master_repaired_bytes_total)" -gt 0 ] ||
	fail "repair counted no bytes"
fresh_reader_sees_all r2
kvpool status --admin "${admin[master]}" >"$tmp/status"
grep -q '^repair: every key has its copies' "$tmp/status" ||
	fail "status: $(cat "$tmp/status")"

echo "== it comes back with its objects: what is surplus becomes cache"
start_node a --no-mount --store-size 96M --no-fd-passing --cold 2s
wait_until 10 has_state a alive
no_surplus() {
	[ "$(http "${admin[master]}/api/objects?prefix=d/&limit=1000" |
		jq '[.objects[] | select(.replicas > 2)] | length')" = 0 ]
}
wait_until 10 no_surplus
surplus=0
for n in a b c; do
	surplus=$((surplus + $(metric "${admin[$n]}" kvpool_node_surplus_total)))
done
[ "$surplus" = "$victims" ] || fail "$surplus surplus copies of $victims"
cached=$(for n in a b c; do status_json $n .cached; done | awk '{ s += $1 } END { print s }')
[ "$cached" = "$victims" ] || fail "$cached cached copies, not $victims"

echo "== stopped for longer than the grace, it is dead; then it is itself again"
kill -STOP "${pid[b]}"
wait_until 10 has_state b gone
wait_until 20 whole
diff "$tmp/sums" <(sums "$R") || fail "reads while b is stopped"
kill -CONT "${pid[b]}"
wait_until 10 has_state b alive
wait_until 10 no_surplus
[ "$(http "${admin[master]}/api/nodes" | jq '.nodes | length')" = 5 ] ||
	fail "b came back as another node" # a b c r r2

echo "== a store is drained, and switched off: nothing is lost"
echo pinned >"$R/pinned"
setfattr -n user.kvpool.pin -v hard "$R/pinned"
sync "$R"
drain b >"$tmp/drain" || fail "drain: $(cat "$tmp/drain")"
grep -q 'b.* is drained: it may be switched off' "$tmp/drain" ||
	fail "drain printed: $(cat "$tmp/drain")"
[ "$(listed_at b)" = 0 ] || fail "b still counts"
has_state b drained || fail "state of b: $(node_state b)"
[ "$(short_of 2)" = 0 ] || fail "the drain left keys with too few copies"
stop b
wait_until 10 has_state b gone
fresh_reader_sees_all r3
[ "$(cat "$R/pinned")" = pinned ]
whole || fail "keys are endangered by the end of a drained node"

echo "== it is drained still when it comes back, until that is cancelled"
start_node b --no-mount --store-size 96M --no-fd-passing --cold 2s
wait_until 10 has_state b drained
head -c 500000 /dev/urandom >"$R/d/new"
sync "$R/d"
wait_until 10 whole
[ "$(listed_at b)" = 0 ] || fail "b got a copy"
drain b --cancel
wait_until 10 has_state b alive

echo "== a drain without room elsewhere reports that"
mkdir "$R/full"
for i in {1..58}; do
	head -c 4M /dev/urandom >"$R/full/$i"
	sync "$R/full"
done
if drain a >"$tmp/drain" 2>"$tmp/drain.err"; then
	fail "drain found room: $(cat "$tmp/drain")"
fi
grep -q 'have no room on other nodes' "$tmp/drain.err" ||
	fail "drain printed: $(cat "$tmp/drain.err")"
kvpool status --admin "${admin[master]}" >"$tmp/status"
grep -q '^repair: .* have nowhere to go: no other store has room$' "$tmp/status" ||
	fail "status: $(cat "$tmp/status")"
drain a --cancel
status=0
drain nobody 2>"$tmp/drain.err" || status=$?
[ $status = 1 ] && grep -q 'no node has that name' "$tmp/drain.err" ||
	fail "drain nobody: $status, $(cat "$tmp/drain.err")"

pass
