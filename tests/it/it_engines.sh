#!/bin/bash
# What engines do to a directory (engine_traces.c), on the mount of one node
# and looked at through the mount of another.
# modes: both
# limit: 300
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need engine_traces jq curl

start_master
start_node a --store-size 384M
start_node b --store-size 384M
for n in a b; do
	mode=$(status_json $n .data_mode)
	[[ $mode == *"$KVTEST_MODE"* ]] || fail "$n serves in mode $mode"
done

echo "== all traces"
engine_traces --d "${mount[a]}" --b "${mount[b]}" --mode "$KVTEST_MODE"

if [ "$KVTEST_MODE" = passthrough ]; then
	echo "== what was written went past the daemon"
	[ "$(metric "${admin[a]}" kvpool_node_creates_reserved_total)" -gt 0 ] ||
		fail "no file was created with reserved pages"
fi
pass
