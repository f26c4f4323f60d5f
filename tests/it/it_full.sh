#!/bin/bash
# A full pool makes room for the replicas of what is put, and of what must be
# kept, as it does for a put; not for those that a dead node took along.
# modes: passthrough
# limit: 120
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need jq curl setfattr cmp engine_traces

MIB=1048576
lasts() { metric "${admin[master]}" 'kvpool_master_evictions_total{verdict="last"}'; }
short_of_copies() { # DIR: keys there with fewer copies than two
	http "${admin[master]}/api/objects?prefix=$1/&limit=1000" |
		jq '[.objects[] | select(.replicas < 2)] | length'
}
has_all() { [ "$(short_of_copies "$1")" = 0 ]; }
put() { # DIR COUNT
	local i
	for ((i = 0; i < $2; i++)); do
		head -c $MIB /dev/urandom >"$tmp/$1.$i"
		cp "$tmp/$1.$i" "$W/$1/k$i"
	done
	sync "$W/$1"
}
reads() { # DIR COUNT
	local i
	for ((i = 0; i < $2; i++)); do
		cmp "$tmp/$1.$i" "$W/$1/k$i" || fail "$1/k$i is not there or wrong"
	done
}

start_master --heartbeat 500ms
for n in a b c; do
	start_node $n --no-mount --store-size 64M --no-fd-passing --hot-gets 0
done
start_node w --store-size 0 --buffer-size 32M --no-fd-passing
W=${mount[w]}
mkdir "$W/plain" "$W/two" "$W/kept"
setfattr -n user.kvpool.replicas -v 2 "$W/two"
setfattr -n user.kvpool.class -v noevict "$W/kept"

echo "== full of what may be evicted"
put kept 8
engine_traces fill --d "$W/plain" --files 240 --size $MIB
sync "$W/plain"
[ "$(lasts)" -ge 20 ] || fail "the pool is not full: $(lasts)"

echo "== both copies of each put find room"
put two 12
wait_until 30 has_all two
reads two 12

echo "== and so does the second copy of what must be kept, wanted later"
setfattr -n user.kvpool.replicas -v 2 "$W/kept"
sync "$W/kept"
wait_until 60 has_all kept
reads kept 8

echo "== of what a dead node had, nothing goes for second copies"
# What there is room for is made, and nothing else is written meanwhile.
before=$(lasts)
kill9 c
gone() {
	http "${admin[master]}/api/nodes" |
		jq -e --arg n "c.$$" '.nodes[] | select(.name == $n) | .state == "gone"' >/dev/null
}
wait_until 20 gone
wait_until 60 has_all kept
sleep 2
evicted=$(($(lasts) - before))
echo "   $(short_of_copies two) of 12 have one copy, $evicted evicted"
# (One or two more: figures of other stores are a heartbeat old.)
[ $evicted -le 10 ] || fail "more than the copies of what is kept needed"
reads two 12
reads kept 8
pass
