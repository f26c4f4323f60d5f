#!/bin/bash
# No turn of a loop is long in a pool with KVTEST_KEYS names (default 300,000):
# attributes and a rule at the top, a rejoin, a whole picture whose end sweeps,
# rm -rf without a master.
# modes: passthrough
# limit: 600
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need engine_traces jq curl setfattr

keys=${KVTEST_KEYS:-300000}
slice=2000	# names a turn (NODE_SLICE)
joined() { has_metric "${admin[$1]}" kvpool_node_master_connected 1; }
cut_off() { has_metric "${admin[$1]}" kvpool_node_master_connected 0; }
has_keys() { has_metric "${admin[master]}" kvpool_master_keys "$1"; }
node() { metric "${admin[$1]}" "kvpool_node_$2"; }
walked_to() { metric_at_least "${admin[$1]}" kvpool_node_walked_names_total "$2"; }

# Every walk so far was in slices, and all loops report their longest turn.
in_slices() { # WHAT
	local n most
	for n in "${!mount[@]}"; do
		most=$(node "$n" walked_names_turn_max)
		echo "   $1: $n: at most $most names a turn, longest turn" \
			"$(node "$n" loop_turn_longest_seconds) s;" \
			"master $(metric "${admin[master]}" \
				kvpool_master_loop_turn_longest_seconds) s"
		[ "$most" -le $slice ] ||
			fail "$1: $n looked at $most names in one turn"
	done
}

start_master
start_node a --store-size 3G
start_node b --store-size 3G --no-fd-passing
a=${mount[a]} b=${mount[b]}

echo "== $keys names"
for n in a b; do
	for m in master "$n"; do
		http "${admin[$m]}/metrics" >"$tmp/metrics"
		[ "$(grep -c '^kvpool_[a-z]*_loop_turn_seconds_count [1-9]' "$tmp/metrics")" = 1 ] ||
			fail "$m does not show its turns"
	done
done
mkdir "$a/many" "$a/other"
sync "$a/many"
engine_traces fill --d "$a/many" --prefix a --files $((keys / 2)) --size 200 \
	--threads 4 >"$tmp/fill.a" &
fill=$!
engine_traces fill --d "$b/many" --prefix b --files $((keys / 2)) --size 200 \
	--threads 4 >"$tmp/fill.b"
wait $fill
wait_until 60 has_keys "$keys"
all_names() { metric_at_least "${admin[$1]}" kvpool_node_names "$keys"; }
wait_until 60 all_names a
wait_until 60 all_names b
in_slices "filled"

echo "== attributes at the top: only a rule walks"
before=$(node a walked_names_total)
before_b=$(node b walked_names_total)
chmod 0755 "$a/many"
touch "$a/many"
setfattr -n user.note -v x "$a/many"
setfattr -n user.kvpool.replicas -v 1 "$a/many"
sync "$a/many"
[ "$(node a walked_names_total)" = "$before" ] &&
	[ "$(node b walked_names_total)" = "$before_b" ] ||
	fail "names were walked for attributes that are no rule of eviction"
setfattr -n user.kvpool.class -v noevict "$a/many"
wait_until 20 walked_to a $((before + keys))
wait_until 20 walked_to b $((before_b + keys))
in_slices "a rule"

echo "== the master is killed: inventories are sent, pictures swept"
before=$(node a walked_names_total)
kill9 master
wait_until 10 cut_off a
start_master
wait_until 30 has_keys "$keys"
wait_until 20 joined a
wait_until 20 joined b
# The inventory, and the sweep of the picture.
wait_until 30 walked_to a $((before + 2 * keys))
in_slices "a rejoin"
engine_traces verify --d "$b/many" --prefix a --files 1000 --size 200 \
	--min-present 1000

echo "== rm -rf of all of them without a master, then it comes"
kill9 master
wait_until 10 cut_off a
wait_until 10 cut_off b
rm -rf "$a/many"
start_master
wait_until 30 joined a
wait_until 30 joined b
few_names() {
	local v

	v=$(node "$1" names) && [ "$v" -lt 1000 ]
}
wait_until 120 few_names a
wait_until 120 few_names b
wait_until 60 test ! -e "$b/many"
in_slices "all removed"
pass
