#!/bin/bash
# What must not be evicted: it fills all stores of a pool, is there through every
# mount all the same, and stays while full stores make room for each other.
# modes: both
# limit: 200
. "$(dirname "$0")/lib.sh"
need_fuse
need engine_traces jq curl setfattr

MIB=1048576
# Nothing is lent: what is read takes room in the reader's store.
nodes=(a b c)

# An open whose time is over says ENOENT, on a busy machine.
all_read() { # NODE DIR PREFIX COUNT SIZE THREADS
	local present
	present=$(engine_traces verify --d "${mount[$1]}/$2" --prefix "$3" \
		--threads "$6" --files "$4" --size "$5")
	[[ $present == "present=$4 absent=0 short=0 wrong=0 errors=0"* ]] && return
	echo "   $1: $present"
	return 1
}

everywhere() { # DIR PREFIX COUNT SIZE: one after another, and 8 at a time
	local n
	for n in "${nodes[@]}"; do
		wait_until 20 all_read "$n" "$@" 1
		wait_until 20 all_read "$n" "$@" 8
	done
}

all_free() {
	[ "$(http "${admin[master]}/api/nodes" | jq '[.nodes[].used] | add')" \
		-lt $((20 * MIB)) ]
}

# Until there is no room left for another one.
fill() { # NODE DIR PREFIX SIZE: sets $filled
	filled=0
	head -c "$4" /dev/urandom >"$tmp/data"
	while cp "$tmp/data" "${mount[$1]}/$2/$3$filled.tmp" 2>"$tmp/cp.err" &&
		mv "${mount[$1]}/$2/$3$filled.tmp" "${mount[$1]}/$2/$3$filled"; do
		filled=$((filled + 1))
	done
	grep -q 'No space left' "$tmp/cp.err" || fail "$(cat "$tmp/cp.err")"
	rm -f "${mount[$1]}/$2/$3$filled.tmp"
}

start_master
for n in "${nodes[@]}"; do
	start_node $n --store-size 64M --no-fd-passing
done

for rule in pin=hard class=noevict; do
	echo "== $rule: every mount reads all of it, with no other room left"
	mkdir "${mount[a]}/kept"
	setfattr -n "user.kvpool.${rule%=*}" -v "${rule#*=}" "${mount[a]}/kept"
	sync "${mount[a]}/kept"
	engine_traces fill --d "${mount[a]}/kept" --files 50 --size 4096
	engine_traces fill --d "${mount[b]}/kept" --prefix large- --files 4 \
		--size $((10 * MIB))
	engine_traces fill --d "${mount[c]}/kept" --prefix mib- --files 100 \
		--size $MIB
	for n in "${nodes[@]}"; do
		fill $n kept "$n-" 262144
		echo "   and $filled of 256 KiB through $n"
	done
	sync "${mount[a]}/kept"
	everywhere kept k 50 4096
	everywhere kept large- 4 $((10 * MIB))
	everywhere kept mib- 100 $MIB
	rm -r "${mount[a]}/kept"
	wait_until 10 all_free
done

echo "== what is larger than the headroom is read once something has moved for it"
mkdir "${mount[a]}/kept" "${mount[a]}/old"
setfattr -n user.kvpool.class -v noevict "${mount[a]}/kept"
sync "${mount[a]}"
engine_traces fill --d "${mount[c]}/old" --files 60 --size $MIB
engine_traces fill --d "${mount[b]}/kept" --prefix b- --files 60 --size $MIB
engine_traces fill --d "${mount[a]}/kept" --prefix huge- --files 1 \
	--size $((24 * MIB))
engine_traces fill --d "${mount[a]}/kept" --prefix a- --files 36 --size $MIB
sync "${mount[a]}/kept"
wait_until 30 all_read b kept huge- 1 $((24 * MIB)) 1
everywhere kept a- 36 $MIB
everywhere kept b- 60 $MIB
pass
