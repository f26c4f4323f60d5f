#!/bin/bash
# RDMA that breaks: a reader gets what was put, whole and right, whatever happens
# to queue pairs, links and devices on the way: by the next device, or over TCP;
# and RDMA is used again when it works again.
# modes: both
# guest: --rxe 4
# limit: 600
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_rdma.sh"
need_fuse
need jq curl cmp rdma
rdma_is_guest || skip "breaks devices: only in a guest"
LOG_ALLOW='RDMA|rxe'

start_master
rdma_node a 0,1 --allow-faults
rdma_node b 2,3
fault() { kvpool fault --admin "${admin[a]}" "$@"; }
# Each piece of a range, a MiB, waits: there is a middle to break something in.
slow() { fault delay --delay 100ms --direction rdma; }

wait_until 10 by_rdma

echo "== a queue pair that breaks"
broken=$(rdma_count a links_broken_total)
fault reset --nth 3 --direction rdma
rdma_put broken $((6 * MIB))
rdma_get broken
[ "$(rdma_count a links_broken_total)" -gt "$broken" ] || fail "it did not break"
[ "$(rdma_count a fallbacks_total)" -gt 0 ] || fail "nothing went over TCP"
fault clear
wait_until 20 by_rdma

echo "== bytes that are not what they were are not let through"
fault corrupt --nth 2 --direction rdma
rdma_put corrupt $((4 * MIB))
! cmp "$tmp/corrupt" "${mount[b]}/corrupt" || fail "it was not damaged"
[ "$(metric "${admin[b]}" kvpool_node_checksum_errors_total)" = 1 ] ||
	fail "not seen by the checksum"
fault clear
wait_until 5 cmp "$tmp/corrupt" "${mount[b]}/corrupt"

echo "== links that lose everything, and say nothing"
slow
broken=$(rdma_count a links_broken_total)
again=$(rdma_count a fallbacks_total)
cut() { rdma_cut 0 1 2 3; }
while_moving cut
fault clear
for i in 1 2; do
	rdma_put silent$i $((4 * MIB))
	rdma_get silent$i
done
[ "$(rdma_count a links_broken_total)" -gt "$broken" ] || fail "no link broke"
[ "$(rdma_count a fallbacks_total)" -gt "$again" ] || fail "nothing by TCP"
for i in 0 1 2 3; do rdma_loss $i 0; done
wait_until 40 by_rdma

echo "== links that are down: the other device, then TCP"
slow
down_one() { rdma_link 0 down; }
while_moving down_one
fault clear
before=$(rdma_port_count a 1 sent)
other() { by_rdma && [ "$(rdma_port_count a 1 sent)" -gt "$before" ]; }
wait_until 40 other
slow
down_two() { rdma_link 1 down; }
while_moving down_two
fault clear
before=$(rdma_count b received_bytes_total)
rdma_put down $((4 * MIB))
rdma_get down
[ "$(rdma_count b received_bytes_total)" = "$before" ] || fail "RDMA while down"
rdma_link 0 up
rdma_link 1 up
before=$(rdma_port_count a 0 sent)
home() { by_rdma && [ "$(rdma_port_count a 0 sent)" -gt "$before" ]; }
wait_until 60 home
pass
