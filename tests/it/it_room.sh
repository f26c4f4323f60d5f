#!/bin/bash
# No counted copy is evicted while there is another way: large objects on nearly
# full stores, read through a node that has no room for them, and files of
# unexpected size.
# modes: both
# limit: 300
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need engine_traces curl setfattr

MIB=1048576
lasts() { metric "${admin[master]}" 'kvpool_master_evictions_total{verdict="last"}'; }
# An open whose time is over says ENOENT, on a busy machine.
all_read() { # NODE DIR COUNT MIB THREADS
	local present
	present=$(engine_traces verify --d "${mount[$1]}/$2" --threads "$5" \
		--files "$3" --size $(($4 * MIB)))
	echo "   $1: $present"
	[[ $present == "present=$3 absent=0 short=0 wrong=0 errors=0"* ]]
}
objects() { # DIR COUNT MIB THREADS
	local n
	for n in b c a; do
		wait_until 60 all_read $n "$@"
	done
	[ "$(lasts)" = 0 ] || fail "a last copy was evicted: $(lasts)"
}
same() { # NODE NAME
	cmp "$tmp/grown" "${mount[$1]}/grown/$2"
}
all_free() {
	[ "$(http "${admin[master]}/api/nodes" | jq '[.nodes[].used] | add')" \
		-lt $((20 * MIB)) ]
}

start_master
for n in a b c; do
	start_node $n --store-size 256M --no-fd-passing
done

echo "== two large objects fit on each of three stores, and stay when read"
mkdir "${mount[a]}/large"
engine_traces fill --d "${mount[a]}/large" --threads 1 \
	--files 6 --size $((100 * MIB))
sync "${mount[a]}/large"
objects large 6 100 1
rm -r "${mount[a]}/large"
wait_until 20 all_free

echo "== twelve of a thirteenth each, too"
mkdir "${mount[a]}/middle"
engine_traces fill --d "${mount[a]}/middle" --files 36 --size $((20 * MIB))
sync "${mount[a]}/middle"
objects middle 36 20 2
rm -r "${mount[a]}/middle"
wait_until 20 all_free

echo "== a file larger than all before it finds room in a full pool"
mkdir "${mount[a]}/grown"
engine_traces fill --d "${mount[a]}/grown" --files 800 --size $MIB
sync "${mount[a]}/grown"
[ "$(lasts)" -ge 10 ] || fail "the pool is not full"
for size in 16 32 60; do
	head -c $((size * MIB)) /dev/urandom >"$tmp/grown"
	for i in 1 2; do
		to="${mount[a]}/grown/$size-$i"
		cp "$tmp/grown" "$to.tmp" || fail "no room for $size-$i"
		mv "$to.tmp" "$to"
		sync "${mount[a]}/grown"
		for n in a b; do
			wait_until 60 same "$n" "$size-$i"
		done
	done
done

echo "== and so does one through a client whose buffer it nearly fills"
start_node k --store-size 0 --buffer-size 64M
mkdir "${mount[k]}/client"
for i in 1 2 3; do
	cp "$tmp/grown" "${mount[k]}/client/$i" || fail "no room for client/$i"
	sync "${mount[k]}/client"
	cmp "$tmp/grown" "${mount[a]}/client/$i" || fail "client/$i is not there"
done

echo "== an object larger than the reader's store is a miss, and its log says why"
mkdir "${mount[a]}/stays"	# the pool is full
setfattr -n user.kvpool.pin -v hard "${mount[a]}/stays"
cp "$tmp/grown" "${mount[a]}/stays/large"
sync "${mount[a]}/stays"
too_large_for() { # NODE store|buffer
	local i
	for i in 1 2 3; do
		! cat "${mount[$1]}/stays/large" >/dev/null 2>"$tmp/stderr" ||
			fail "it was read"
		grep -q 'No such file' "$tmp/stderr" || fail "$(cat "$tmp/stderr")"
	done
	[ "$(grep -c "stays/large has 60.0 MiB, more than this node's $2 of 32.0 MiB: .* larger --$2-size" \
		"$(log_of "$1")")" = 1 ] || fail "not logged once: $(tail -n5 "$(log_of "$1")")"
}
start_node small --store-size 32M --no-fd-passing
start_node smallest --store-size 0 --buffer-size 32M --no-fd-passing
wait_until 10 [ -e "${mount[small]}/stays/large" ]
wait_until 10 [ -e "${mount[smallest]}/stays/large" ]
too_large_for small store
too_large_for smallest buffer
pass
