#!/bin/bash
# What tests of RDMA stand on: devices that reach each other by verbs and by
# rdma_cm and can be broken and mended, and beside them a pool of two nodes, in
# both data modes.
# modes: both
# guest: --rxe 2
# limit: 300
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_rdma.sh"
need_fuse
need ib_write_bw rping ibv_devices engine_traces jq curl
a=${rdma_device[0]} b=${rdma_device[1]}

echo "== the devices of $(uname -r)"
ibv_devices
state_is() { # DEVICE STATE
	grep -q "$2" "/sys/class/infiniband/$1/ports/1/state"
}
for d in $a $b; do
	state_is "$d" ACTIVE || fail "$d is not active"
done


# perftest's two ends, each on its device. It fails by itself when the queue
# pairs do; its exit status is that of the transfer.
write_bw() { # OPTION...
	free_port
	ib_write_bw -d "$a" -x "$(rdma_gid_index "$a")" -F -p $port "$@" \
		>"$tmp/bw.server" 2>&1 &
	local server=$! status=0
	also_kill=($server)
	wait_until 5 listens $port
	timeout $((10 * KVTEST_SLOW)) ib_write_bw -d "$b" \
		-x "$(rdma_gid_index "$b")" -F -p $port "$@" \
		"${rdma_addr[0]}" >"$tmp/bw" 2>&1 || status=$?
	[ $status = 0 ] || kill $server 2>/dev/null || :
	wait $server || status=$?
	also_kill=()
	return $status
}

echo "== from one device to the other by verbs"
write_bw -s 65536 -n 100 || {
	cat "$tmp/bw" "$tmp/bw.server"
	fail "ib_write_bw"
}
grep '^ *65536 ' "$tmp/bw"

echo "== and by rdma_cm"
free_port
rping -s -a "${rdma_addr[0]}" -p $port -C 3 >"$tmp/rping.server" 2>&1 &
server=$!
also_kill=($server)
pings() {
	timeout $((10 * KVTEST_SLOW)) rping -c -I "${rdma_addr[1]}" \
		-a "${rdma_addr[0]}" -p $port -C 3 -V -v
}
wait_until 5 pings
wait $server || fail "rping's server"
also_kill=()

if rdma_is_guest; then
	echo "== a link that is down, and one that loses packets"
	rdma_link 0 down
	wait_until 5 state_is "$a" DOWN
	rdma_link 0 up
	wait_until 5 state_is "$a" ACTIVE
	rdma_loss 1 2
	write_bw -s 65536 -n 20 || fail "2 % of the packets lost, and it failed"
	rdma_loss 1 0

	echo "== a device that is removed, and back"
	rdma_remove 1
	[ ! -e "/sys/class/infiniband/$b" ] || fail "$b is still there"
	rdma_restore 1
	write_bw -s 65536 -n 20 || fail "the device does not work again"
fi

echo "== a pool between the two addresses"
start_master
start_node a --host "${rdma_addr[0]}" --no-fd-passing --store-size 384M
start_node b --host "${rdma_addr[1]}" --no-fd-passing --store-size 384M
for n in a b; do
	mode=$(status_json $n .data_mode)
	[[ $mode == *"$KVTEST_MODE"* ]] || fail "$n serves in mode $mode"
done
# Of small objects: what is large may miss an open's deadline where even the
# checksum is emulated.
engine_traces --d "${mount[a]}" --b "${mount[b]}" --mode "$KVTEST_MODE" \
	--patience "$KVTEST_SLOW" --only T8,T11
pass
