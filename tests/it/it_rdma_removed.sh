#!/bin/bash
# RDMA devices that are removed while they are used, and are back: readers do not
# notice. (No event reports a removal here: the device still works for the
# processes that have it open, and its removal waits for them.)
# modes: both
# guest: --rxe 4
# limit: 600
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_rdma.sh"
need_fuse
need jq curl cmp rdma
rdma_is_guest || skip "removes devices: only in a guest"
LOG_ALLOW='RDMA|rxe'

start_master
rdma_node a 0,1 --allow-faults
rdma_node b 2,3
fault() { kvpool fault --admin "${admin[a]}" "$@"; }
slow() { fault delay --delay 100ms --direction rdma; }
state_is() { # NODE INDEX STATE, as the node sees it
	kvpool devices --admin "${admin[$1]}" --json | jq -e --arg d \
		"${rdma_device[$2]}" --arg s "$3" '.devices[] |
		select(.device == $d) | .state == $s' >/dev/null
}
removals=()
remove() { # INDEX
	rdma_remove "$1" &
	removals+=($!)
}

wait_until 10 by_rdma

echo "== one of the holder's two: by the other"
slow
while_moving remove 0
fault clear
wait_until 5 state_is a 0 removed
wait_until 20 by_rdma
before=$(rdma_port_count a 0 sent)
wait_until 20 by_rdma
[ "$(rdma_port_count a 0 sent)" = "$before" ] || fail "by what is removed"

echo "== one of the reader's"
slow
while_moving remove 2
fault clear
wait_until 5 state_is b 2 removed
wait_until 40 by_rdma

echo "== the last one: over TCP"
slow
while_moving remove 3
fault clear
wait_until 5 state_is b 3 removed
before=$(rdma_count b received_bytes_total)
rdma_put gone $((4 * MIB))
rdma_get gone
[ "$(rdma_count b received_bytes_total)" = "$before" ] || fail "RDMA without"
kvpool devices --admin "${admin[b]}"

echo "== they are back, and nodes that start again use them"
stop a
stop b
for p in "${removals[@]}"; do
	wait "$p" || : # perhaps a second try
done
for i in 0 2 3; do
	[ ! -e "/sys/class/infiniband/${rdma_device[i]}" ] ||
		fail "${rdma_device[i]} is still there"
	rdma_restore $i
done
rdma_node a 0,1
rdma_node b 2,3
wait_until 20 by_rdma
pass
