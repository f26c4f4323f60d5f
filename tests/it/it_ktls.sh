#!/bin/bash
# Bytes of objects that the kernel encrypts (kTLS): every size arrives, whichever
# side has it, and nodes show it. Left alone, a node measures whether it is cheaper.
# The unit tests of it run here, too, and those of --bulk, which look at the wire.
# modes: passthrough
# guest: --rxe 0
# limit: 900
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_tls.sh"
need_fuse
need openssl jq python3 cmp
use_tls

lanes() { metric "${admin[$1]}" kvpool_tls_kernel_lanes_total; }

lib() { # COMMAND...
	LIBRARY_BUFFER=$tmp/lib library_user "${listen[master]}" ns "$@"
}

SIZES="1 4096 8192 8193 16384 300000 1048576 4194305 40000000"
# What is written through a is read through b, by four readers at once.
objects_move() { # NAME
	local size readers=()
	for size in $SIZES; do
		head -c "$size" /dev/urandom >"$tmp/$size"
		cp "$tmp/$size" "${mount[a]}/$1.$size"
	done
	# A hole of 2 MiB between two bytes.
	truncate -s 2097152 "$tmp/hole"
	printf x >>"$tmp/hole"
	cp --sparse=always "$tmp/hole" "${mount[a]}/$1.hole"
	sync "${mount[a]}"
	for size in $SIZES hole; do
		cmp "$tmp/$size" "${mount[b]}/$1.$size" || touch "$tmp/differs" &
		readers+=($!)
		[ ${#readers[@]} -lt 4 ] || { wait "${readers[@]}" && readers=(); }
	done
	wait "${readers[@]}"
	[ ! -e "$tmp/differs" ] || fail "$1: bytes differ"
	lib put "$1" "$tmp/4194305"
	lib get "$1" "$tmp/got"
	cmp "$tmp/4194305" "$tmp/got"
}
pair() { # A'S OPTION B'S OPTION
	for n in a b; do
		[ -z "${args_of[$n]:-}" ] || stop $n
	done
	start_node a --no-fd-passing --store-size 512M $1
	start_node b --no-fd-passing --store-size 0 --buffer-size 256M $2
}

grep -qw tls /proc/sys/net/ipv4/tcp_available_ulp ||
	skip "this kernel's module tls is not loaded"

echo "== the unit tests"
pool_tls_test >"$tmp/units" 2>&1 || fail "$(cat "$tmp/units")"
! grep -F '[  SKIPPED ]' "$tmp/units" || fail "skipped, although the kernel has it"

start_master

echo "== chosen by what it costs"
pair "" ""
grep 'encrypted by [a-zA-Z ]*: CPU time for 16 KiB' "$(log_of a)" >"$tmp/cost" ||
	fail "a did not measure"
cat "$tmp/cost"
cheaper=$(sed 's/.*(kTLS) \([0-9.]*\) us, OpenSSL \([0-9.]*\) us/\1 \2/' "$tmp/cost" |
	awk '{ print $1 < $2 ? "true" : "false" }')
[ "$(status_json a .ktls)" = "$cheaper" ]
objects_move auto

echo "== as told, and shown"
pair "--ktls on" "--ktls on"
objects_move on
[ "$(lanes a)" -gt 0 ] || fail "no lane: $(grep kTLS "$(log_of a)")"
kvpool devices --admin "${admin[a]}" --tls-dir "$KVTEST_TLS/admin" |
	grep -F -- '--bulk tls, encrypted by the kernel (kTLS)'
kvpool status --admin "${admin[a]}" --tls-dir "$KVTEST_TLS/admin" >"$tmp/status"
grep 'bulk .*encrypted by the kernel (kTLS)' "$tmp/status"

echo "== a holder that may not"
pair "--ktls off" "--ktls on"
objects_move without
[ "$(lanes a)" = 0 ] || fail "the kernel encrypts in spite of --ktls off"
[ "$(status_json a .ktls)" = false ]
kvpool devices --admin "${admin[a]}" --tls-dir "$KVTEST_TLS/admin" |
	grep -x 'bytes of objects over TCP: --bulk tls'

echo "== an asker that may not"
pair "--ktls on" "--ktls off"
objects_move half
[ "$(lanes a)" -gt 0 ] || fail "no lane: $(grep kTLS "$(log_of a)")"

echo "== --bulk auth is not called encrypted"
pair "--bulk auth --ktls on" ""
kvpool devices --admin "${admin[a]}" --tls-dir "$KVTEST_TLS/admin" |
	grep -x 'bytes of objects over TCP: --bulk auth'
kvpool status --admin "${admin[a]}" --tls-dir "$KVTEST_TLS/admin" >"$tmp/status"
grep 'not encrypted: --bulk auth' "$tmp/status"
! grep kTLS "$tmp/status" || fail "it is called encrypted"

echo "== a holder that is killed: the others go on, and it comes back"
kill -KILL "${pid[a]}"
wait "${pid[a]}" || :
start_node a --no-fd-passing --store-size 512M --ktls on
objects_move again
[ "$(lanes a)" -gt 0 ] || fail "no lane: $(grep kTLS "$(log_of a)")"

echo "== --bulk"
KVTEST_KTLS=on bash "$(dirname "$0")/it_bulk.sh" >"$tmp/bulk" 2>&1 || fail "$(tail "$tmp/bulk")"
pass
