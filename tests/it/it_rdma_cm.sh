#!/bin/bash
# Connections made by librdmacm, as iWARP devices need it: the same as without.
# modes: both
# guest: --rxe 2
# limit: 600
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_rdma.sh"
need_fuse
need jq curl cmp
LOG_ALLOW='RDMA|rxe'

start_master
rdma_node a 0 --rdma-connect cm --allow-faults
rdma_node b 1 --rdma-connect cm
fault() { kvpool fault --admin "${admin[a]}" "$@"; }

echo "== ranges are written"
wait_until 10 by_rdma
rdma_put large $((9 * MIB + 1))
rdma_get large

echo "== and pulled"
mkdir "${mount[a]}/twice"
setfattr -n user.kvpool.replicas -v 2 "${mount[a]}/twice"
sync "${mount[a]}"
copies() {
	[ "$(getfattr --absolute-names --only-values \
		-n user.kvpool.holders "$1")" = 2 ]
}
one_is_pulled() {
	n=$((n + 1))
	rdma_put twice/k$n $MIB
	wait_until 10 copies "${mount[a]}/twice/k$n"
	rdma_rose b pulled_bytes_total 0
}
wait_until 20 one_is_pulled

echo "== a queue pair that breaks"
fault reset --nth 3 --direction rdma
rdma_put broken $((6 * MIB))
rdma_get broken
[ "$(rdma_count a links_broken_total)" -gt 0 ] || fail "it did not break"
fault clear
wait_until 20 by_rdma

echo "== a peer that is killed, and back"
kill9 b
umount -l "${mount[b]}"
rdma_node b 1 --rdma-connect cm
wait_until 20 by_rdma

echo "== a peer that does it otherwise"
stop b
rdma_node b 1
wait_until 20 by_rdma

if rdma_is_guest; then
	echo "== a link that loses everything"
	fault delay --delay 100ms --direction rdma
	cut() { rdma_cut 0 1; }
	while_moving cut
	fault clear
	rdma_loss 0 0
	rdma_loss 1 0
	wait_until 40 by_rdma
fi
pass
