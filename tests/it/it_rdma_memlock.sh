#!/bin/bash
# A node that may not lock memory (ulimit -l, no CAP_IPC_LOCK) cannot register
# objects, neither where they go to nor where they come from: they move over TCP,
# readers do not notice, and its log says what to do.
# guest: --rxe 2
# limit: 300
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_rdma.sh"
need_fuse
need curl cmp prlimit setpriv

SIZE=$((3 << 20)) READS=5
REMEDY='raise the memlock limit (ulimit -l, LimitMEMLOCK=)'
node() { # NAME INDEX
	start_node "$1" --host "${rdma_addr[$2]}" --insecure --no-fd-passing \
		--store-size 256M --transport rdma \
		--rdma-device "${rdma_device[$2]}"
}
count() { metric "${admin[$1]}" "kvpool_rdma_$2"; }

# What is written through the first is read through the second.
reads() { # WRITER READER NAME
	local i
	for ((i = 0; i < READS; i++)); do
		head -c $SIZE /dev/urandom >"$tmp/bytes"
		cp "$tmp/bytes" "${mount[$1]}/$3$i"
		sync "${mount[$1]}"
		cmp "$tmp/bytes" "${mount[$2]}/$3$i" || fail "$3$i is wrong"
	done
}

start_master
env_of[b]="prlimit --memlock=65536:65536 setpriv --bounding-set=-ipc_lock"
node a 0
node b 1
grep 'Max locked memory' "/proc/${pid[b]}/limits"

echo "== it cannot take what is written to it"
reads a b in
[ "$(count b received_bytes_total)" = 0 ] || fail "b registered it all the same"
[ "$(count b map_failures_total)" -ge $READS ] ||
	fail "$(count b map_failures_total) registrations failed"

echo "== nor send what it holds"
reads b a out
[ "$(count a received_bytes_total)" = 0 ] || fail "b registered it all the same"
[ "$(count b map_failures_total)" -ge $((2 * READS)) ] ||
	fail "$(count b map_failures_total) registrations failed"

echo "== and says so, once a minute"
grep -F "$REMEDY" "$(log_of b)" || fail "b's log does not name the remedy"
logged=$(grep -cF "$REMEDY" "$(log_of b)")
[ $logged -le $((1 + SECONDS / 60)) ] || fail "it is logged $logged times"
! grep -F "$REMEDY" "$(log_of a)" || fail "a has no such limit"
echo "$logged of $(count b map_failures_total) failures are in the log"
[ "$(count b links_broken_total)" = 0 ] || fail "a link broke"
pass
