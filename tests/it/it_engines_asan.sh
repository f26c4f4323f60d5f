#!/bin/bash
# The traces of it_engines.sh that reach the most code, against daemons built
# with the sanitizers. A report in a daemon's log fails the test (lib.sh).
# modes: both
# variants: asan
# limit: 300
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need engine_traces jq curl

start_master
start_node a --store-size 384M
start_node b --store-size 384M

engine_traces --d "${mount[a]}" --b "${mount[b]}" --mode "$KVTEST_MODE" \
	--only T2,T3,T6,T7,T8,T9,T11,T12,posix
pass
