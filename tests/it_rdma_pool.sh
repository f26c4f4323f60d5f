#!/bin/bash
# A pool of two nodes whose bytes go by RDMA, each over its own device: what is
# read elsewhere is written there by the holder, what is to be kept twice is
# pulled; and when a device fails, readers do not notice.
# modes: both
# guest: --rxe 2
# limit: 400
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_rdma.sh"
need_fuse
need jq curl cmp

MIB=1048576
LOG_ALLOW='RDMA|rxe'
node() { # NAME INDEX OPTION...
	local name=$1 i=$2
	shift 2
	start_node "$name" --host "${rdma_addr[$i]}" --insecure \
		--no-fd-passing --store-size 256M --transport rdma \
		--rdma-device "${rdma_device[$i]}" "$@"
}
count() { metric "${admin[$1]}" "kvpool_rdma_$2"; }
rose() { [ "$(count "$1" "$2")" -gt "$3" ]; }

# put FILE SIZE: random bytes, as $tmp/FILE, too
put() {
	head -c "$2" /dev/urandom >"$tmp/$1"
	cp "$tmp/$1" "${mount[a]}/$1"
	sync "${mount[a]}"
}

start_master
node a 0
node b 1

echo "== the devices"
kvpool devices --admin "${admin[a]}"

echo "== what a wrote, b reads: by RDMA, but for what is small"
want=0
for size in 5000 $((300 * 1024 + 7)) $((4 * MIB)) $((33 * MIB)); do
	put "k$size" $size
	cmp "$tmp/k$size" "${mount[b]}/k$size" || fail "k$size is wrong"
	[ $size -le $((256 * 1024)) ] || want=$((want + size))
done
[ "$(count b received_bytes_total)" = $want ] ||
	fail "$(count b received_bytes_total) of $want bytes came by RDMA"
[ "$(count a sent_bytes_total)" = $want ] || fail "a sent something else"
[ "$(count b fallbacks_total)" = 0 ] || fail "something went over TCP"
pass
