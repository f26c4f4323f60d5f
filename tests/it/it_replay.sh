#!/bin/bash
# A recorded hour of real chat traffic, its first requests, on two nodes that
# are small for it: a tenth of the distinct blocks' bytes. Each node has a
# network of its own; the replayer drives both mounts. Nothing may be wrong or
# fail, and as many blocks must hit as a plain LRU of the same size would have.
#
#   KVTEST_TRACE=FILE      the trace
#   KVTEST_REQUESTS=N      of it; 0: all (then raise the limit as well)
#   KVTEST_VARIANTS=...    of: fd-passing no-fd-passing up
# modes: both
# limit: 300
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need curl jq

trace=${KVTEST_TRACE:-$(dirname "$0")/../../../shared/data/conversation_trace.jsonl}
requests=${KVTEST_REQUESTS:-1000}
variants=${KVTEST_VARIANTS:-fd-passing no-fd-passing up}
block=131072
[ -r "$trace" ] || skip "no trace at $trace; KVTEST_TRACE=FILE names one"

some_of_trace() {
	if [ "$requests" = 0 ]; then cat "$trace"; else head -n "$requests" "$trace"; fi
}
distinct=$(some_of_trace | jq -r '.hash_ids[]' | sort -u | wc -l)
[ "$distinct" -gt 1000 ] || fail "$trace has only $distinct distinct blocks"
each=$((distinct * block / 20 / 4096 * 4096)) # of two stores
echo "== $distinct distinct blocks; two stores of $each bytes"

replay() { # MOUNTS
	kvpool replay --trace "$trace" --requests "$requests" --mounts "$1" \
		--block-size "$block" --capacity $((2 * each)) \
		--threads 4 --min-ratio lru
}

# What the nodes did, to be read when the ratio is too low.
figures() {
	local n
	for n in "$@"; do
		http "${admin[$n]}/metrics" | grep -E \
			'^kvpool_(fuse_opens|node_(objects|cached_objects|store_|evicted_|fetch(es|_fail)|creates_|space_|published|poisoned|outgrown|borrowed|prefetch_))' |
			sed "s/^kvpool_node_/   $n: /"
	done
}

two_nodes() { # OPTION of kvpoold...
	local n
	for n in a b; do
		start_node $n --ns $n --store-size $each "$@"
	done
	for n in a b; do
		wait_until 10 mount_holds $((2 * each)) "${mount[$n]}"
	done
	replay "${mount[a]},${mount[b]}" || { figures a b; fail "replay"; }
	figures a b
	[ "$(metric "${admin[a]}" kvpool_node_published_total)" -gt 1000 ] ||
		fail "node a took no part"
	[ "$(metric "${admin[b]}" kvpool_node_fetches_total)" -gt 100 ] ||
		fail "nothing travelled between the nodes"
}

# df shows both stores once the nodes know each other.
mount_holds() { # BYTES DIR
	[ $(($(stat -f -c '%b * %S' "$2"))) -ge $(($1 * 99 / 100)) ]
}

# The kernel lets go of the files that a mount passed through to a moment after
# its daemon has ended.
unmounted() { # DIR
	! mountpoint -q "$1" || umount "$1" 2>/dev/null
}

# The next variant starts with nothing.
forget_all() {
	local n
	for n in a b; do
		stop $n
		wait_until 10 unmounted "${store[$n]}"
		rm -rf "${store[$n]}"
	done
	stop master
	rm -f "$tmp/master.state"*
}

ns_add m 10.99.0.1
ns_add a 10.99.0.2
ns_add b 10.99.0.3
for variant in $variants; do
	echo "== $variant"
	case $variant in
	fd-passing)
		start_master --ns m
		two_nodes
		forget_all
		;;
	no-fd-passing)
		start_master --ns m
		two_nodes --no-fd-passing
		forget_all
		;;
	up)
		free_port; up_master=127.0.0.1:$port
		free_port; up_listen=127.0.0.1:$port
		free_port; admin[up]=127.0.0.1:$port
		mkdir "$tmp/up.mnt"
		also_named+=("kvt-up-$$")
		served=
		[ "$KVTEST_MODE" = passthrough ] || served=--no-passthrough
		kvpool up --foreground --mount "$tmp/up.mnt" \
			--store-size $((2 * each)) --name "kvt-up-$$" \
			--master $up_master --listen $up_listen \
			--admin "${admin[up]}" --state-file "$tmp/up.state" \
			--store-dir "$tmp/up.store" $served \
			>>"$tmp/up.log" 2>&1 </dev/null &
		pid[up]=$!
		wait_ready up
		replay "$tmp/up.mnt" || { figures up; fail "replay"; }
		figures up
		stop up
		;;
	*) fail "KVTEST_VARIANTS: \"$variant\" given" ;;
	esac
done
pass
