#!/bin/bash
# modes: both
# guest: --rxe 2
# limit: 300
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_rdma.sh"
need_fuse
MIB=1048576
export HACK_RDMA
start_master
HACK_RDMA=${rdma_device[0]} start_node a --host "${rdma_addr[0]}" --insecure --no-fd-passing --store-size 256M --log-level debug
HACK_RDMA=${rdma_device[1]} start_node b --host "${rdma_addr[1]}" --insecure --no-fd-passing --store-size 256M --log-level debug
for size in 5000 300000 $((4*MIB)) $((33*MIB)); do
	head -c $size /dev/urandom >"$tmp/data"
	cp "$tmp/data" "${mount[a]}/k$size"
	sync "${mount[a]}"
	begin=${EPOCHREALTIME/./}
	cmp "$tmp/data" "${mount[b]}/k$size" || fail "$size"
	echo "$size: $(( (${EPOCHREALTIME/./}-begin)/1000 )) ms"
done
for n in a b; do http "${admin[$n]}/metrics" | grep "^kvpool_rdma\|peer_received"; done
tail -n 20 "$(log_of a)" "$(log_of b)"
pass
