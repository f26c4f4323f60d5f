#!/bin/bash
# A pool whose bytes go by RDMA, two devices on each node: what is read elsewhere
# is written there by the holder, over both; what is to be kept twice is pulled;
# engines do not see a difference; where one side has no RDMA it is TCP.
# modes: both
# guest: --rxe 4
# limit: 600
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_rdma.sh"
need_fuse
need jq curl cmp engine_traces
LOG_ALLOW='RDMA|rxe'

start_master
rdma_node a 0,1
rdma_node b 2,3

echo "== the devices"
kvpool devices --admin "${admin[a]}"

echo "== what a wrote, b reads: by RDMA, but for what is small"
want=0
for size in 5000 $((300 * 1024 + 7)) $((4 * MIB)) $((17 * MIB + 1)); do
	rdma_put "k$size" $size
	rdma_get "k$size"
	[ $size -le $((256 * 1024)) ] || want=$((want + size))
done
got=$(rdma_count b received_bytes_total)
if [ $rdma_missed = 0 ]; then
	[ "$got" = $want ] || fail "$got of $want bytes came by RDMA"
	[ "$(rdma_count a sent_bytes_total)" = $want ] ||
		fail "a sent something else"
fi
[ "$(rdma_count b fallbacks_total)" = 0 ] || fail "something went over TCP"

if rdma_is_guest; then
	echo "== over both devices, once there is a second lane"
	over_both() {
		n=$((n + 1))
		rdma_put "k$n" $((12 * MIB))
		rdma_get "k$n"
		[ "$(rdma_port_count b 2 received)" -ge $((4 * MIB)) ] &&
			[ "$(rdma_port_count b 3 received)" -ge $((4 * MIB)) ]
	}
	wait_until 10 over_both
	got=$(rdma_count b received_bytes_total)
	sum=$(($(rdma_port_count b 2 received) +
		$(rdma_port_count b 3 received)))
	[ $sum = "$got" ] || fail "the devices' bytes are $sum, not $got"
	sum=$(($(rdma_port_count a 0 sent) + $(rdma_port_count a 1 sent)))
	[ $sum = "$(rdma_count a sent_bytes_total)" ] ||
		fail "a's devices sent something else"
fi

echo "== a further copy is pulled, once there is a link for it"
mkdir "${mount[a]}/twice"
setfattr -n user.kvpool.replicas -v 2 "${mount[a]}/twice"
sync "${mount[a]}"
copies() {
	[ "$(getfattr --absolute-names --only-values \
		-n user.kvpool.holders "$1")" = 2 ]
}
# copy SIZE: is the next further copy pulled, all of it? Its pieces go over both
# lanes, and each has to have had one before.
copy() {
	local before
	n=$((n + 1))
	before=$(rdma_count b pulled_bytes_total)
	rdma_put twice/k$n "$1"
	wait_until 10 copies "${mount[a]}/twice/k$n"
	[ $(($(rdma_count b pulled_bytes_total) - before)) = "$1" ] &&
		rdma_get twice/k$n
}
first=$n
wait_until 20 copy $MIB
wait_until 20 copy $((9 * MIB + 1))
echo "after $((n - first)): $(rdma_count b pulled_bytes_total) bytes pulled"

echo "== engines"
engine_traces --d "${mount[a]}" --b "${mount[b]}" --mode "$KVTEST_MODE" \
	--patience "$KVTEST_SLOW" --only T8,T11

echo "== one side has no RDMA"
start_node c --host "${rdma_addr[0]}" --no-fd-passing --store-size 0 \
	--transport tcp
before=$(rdma_count a sent_bytes_total)
rdma_put tcp $((4 * MIB))
rdma_get tcp c
[ "$(rdma_count a sent_bytes_total)" = "$before" ] || fail "RDMA to c"
[ "$(metric "${admin[c]}" kvpool_peer_received_bytes_total)" = \
	$((4 * MIB)) ] || fail "c did not receive it"
stop c

echo "== and none where it is asked for"
also_named+=("no.$$")
refused() { # TEXT OPTION...
	local want=$1 status=0
	shift
	timeout $READY_S kvpoold --foreground --insecure --name "no.$$" \
		--master "${listen[master]}" --listen 127.0.0.1:0 \
		--admin 127.0.0.1:0 --store-dir "$tmp/no" --store-size 64M \
		"$@" >"$tmp/refused" 2>&1 || status=$?
	[ $status = 1 ] && grep -q "$want" "$tmp/refused" || {
		cat "$tmp/refused"
		fail "status $status for $*"
	}
}
refused 'there is no nosuch0' --transport rdma --rdma-device nosuch0
if rdma_is_guest; then
	rdma_link 3 down
	down() { kvpool devices --json | jq -e \
		'.devices[] | select(.device == "rxe3") | .used | not'; }
	wait_until 5 down >/dev/null
	refused 'none of rxe3 can be used' --transport rdma --rdma-device rxe3
fi
pass
