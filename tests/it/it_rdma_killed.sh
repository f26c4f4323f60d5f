#!/bin/bash
# Nodes that are killed, and devices that are removed, in the middle of what moves
# by RDMA: readers get it elsewhere, or over TCP; memory is given back.
# modes: both
# guest: --rxe 3
# limit: 600
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_rdma.sh"
need_fuse
need jq curl cmp rdma
rdma_is_guest || skip "breaks devices: only in a guest"
LOG_ALLOW='RDMA|rxe|registration|queue pair'

start_master
rdma_node a 0 --allow-faults
rdma_node b 1
fault() { kvpool fault --admin "${admin[$1]}" "${@:2}"; }
slow() { fault "$1" delay --delay 100ms --direction rdma; }
regions() { # of all processes
	rdma resource show | awk '{ for (i = 1; i < NF; i++)
		if ($i == "mr") n += $(i + 1) } END { print n + 0 }'
}
regions_are() { [ "$(regions)" -le "$1" ]; }

wait_until 10 by_rdma
idle=$(regions)
echo "$idle regions: $(rdma resource show)"

echo "== the reader is killed: the holder continues, and keeps no regions"
slow a
n=$((n + 1))
rdma_put "k$n" $((6 * MIB))
before=$(rdma_count b received_bytes_total)
cmp "$tmp/k$n" "${mount[b]}/k$n" &
reader=$!
until rdma_moved b received_bytes_total "$before"; do
	kill -0 $reader 2>/dev/null || break
done
kill9 b
wait $reader || :
fault a clear
http "${admin[a]}/healthz" >/dev/null || fail "a does not go on"
umount -l "${mount[b]}"
rdma_node b 1
wait_until 20 by_rdma
# Beside what it keeps to be sent again: two objects.
wait_until 10 regions_are $((idle + 2))

echo "== who holds is killed: another one has it, too"
rdma_node c 2
mkdir "${mount[a]}/twice"
setfattr -n user.kvpool.replicas -v 2 "${mount[a]}/twice"
sync "${mount[a]}"
stop b # so that the copy is at c
rdma_put twice/k $((16 * MIB))
copies() {
	[ "$(getfattr --absolute-names --only-values \
		-n user.kvpool.holders "$1")" = 2 ]
}
wait_until 20 copies "${mount[a]}/twice/k"
rdma_node b 1
wait_until 20 by_rdma
slow a
before=$(rdma_count b received_bytes_total)
cmp "$tmp/twice/k" "${mount[b]}/twice/k" &
reader=$!
also_kill=($reader)
until rdma_moved b received_bytes_total "$before"; do
	kill -0 $reader 2>/dev/null || break
done
kill9 a
status=0
wait $reader || status=$?
also_kill=()
[ $status != 1 ] || fail "it is not right"
[ $status = 0 ] || rdma_get twice/k # missed
umount -l "${mount[a]}"
rdma_node a 0 --allow-faults
wait_until 30 by_rdma

echo "== a network interface goes away, and its device with it"
slow a
# Both wait in the kernel until nobody has the device open any more; no event says
# so: rxe has no hot removal.
remove() { (ip link del v1 &) }
while_moving remove
fault a clear
before=$(rdma_count b received_bytes_total)
rdma_put gone $((4 * MIB))
rdma_get gone
[ "$(rdma_count b received_bytes_total)" = "$before" ] || fail "RDMA without"
kvpool devices --admin "${admin[b]}"
pass
