#!/bin/bash
# libkvpool by RDMA: what it gets is written into the caller's buffer by the store's
# device, what it puts is read by the store; the same over TCP with rdma_device empty.
# guest: --rxe 2
# limit: 300
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_rdma.sh"
need_fuse
need cmp
LOG_ALLOW='RDMA|rxe'

SIZE=$((9 * MIB + 5))
export LIBRARY_BUFFER=$tmp/library LIBRARY_LISTEN=${rdma_addr[1]}:0
export LIBRARY_RDMA=${rdma_device[1]}
u() { library_user "${listen[master]}" ns "$@"; }

start_master
rdma_node a 0
mkdir "${mount[a]}/ns"

echo "== got: the store writes into the buffer"
# (A get's deadline may be over first, where all is emulated.)
got() { # KEY
	LIBRARY_DEBUG=1 u get "$1" "$tmp/got" 2>"$tmp/log" && cmp "$tmp/ns/$1" "$tmp/got"
}
counted() { # SOURCE: of the last get, in the library's accounting
	grep -qF "metric: kvpool_client_get_results_total{result=\"$1\"} 1" "$tmp/log" &&
		grep -qF "metric: kvpool_client_got_bytes_total{source=\"$1\"} $SIZE" "$tmp/log" ||
		fail "not by $1: $(grep client_go "$tmp/log")"
}
get_by_rdma() {
	n=$((n + 1))
	rdma_put "ns/g$n" $SIZE
	local before
	before=$(rdma_count a sent_bytes_total)
	got "g$n" || return 1
	[ "$(rdma_count a sent_bytes_total)" = $((before + SIZE)) ]
}
wait_until 30 get_by_rdma
counted rdma

echo "== put: the store reads what was put"
put_by_rdma() {
	n=$((n + 1))
	head -c $SIZE /dev/urandom >"$tmp/src"
	u put "p$n" "$tmp/src"
	cmp "$tmp/src" "${mount[a]}/ns/p$n" || fail "p$n is wrong"
}
put_by_rdma
before=$(rdma_count a pulled_bytes_total)
u use 4 4 | sed 's/^/   /'	# many, so that some find the link
rdma_rose a pulled_bytes_total "$before"

echo "== without, all goes over TCP"
export LIBRARY_RDMA=
n=$((n + 1))
rdma_put "ns/g$n" $SIZE
before=$(rdma_count a sent_bytes_total)
wait_until 30 got "g$n"
counted tcp
[ "$(rdma_count a sent_bytes_total)" = "$before" ]

echo "== devices that are not there"
for names in no_such0 ','; do
	LIBRARY_RDMA=$names u exists k >/dev/null 2>"$tmp/stderr" &&
		fail "it connects with $names"
	grep -q 'rdma_device' "$tmp/stderr" || fail "$(cat "$tmp/stderr")"
done
pass
