#!/bin/bash
# What can be read on the wire between two nodes, by the choice of --bulk: a relay
# in front of the holder keeps all bytes that pass.
#   KVTEST_KTLS=on: encrypted by the kernel (it_ktls.sh)
# modes: both
set -euo pipefail
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_tls.sh"
need python3
use_tls

start_master
seq -f "bytes-of-an-object %.0f" 150000 >"$tmp/object"
head -20000 "$tmp/object" >"$tmp/half"

relay() { # sets $port: of a relay to ${listen[a]} that writes to $tmp/wire
	local to=${listen[a]}
	free_port
	python3 "$(dirname "$0")/relay.py" "$port" "${to##*:}" "$tmp/wire" &
	also_kill+=($!)
}
on_wire() { grep -qa "$1" "$tmp/wire"; }

lib() { # COMMAND...; $tmp/metrics: of the library, by what it logs
	LIBRARY_DEBUG=yes LIBRARY_BUFFER=$tmp/lib library_user "${listen[master]}" ns \
		"$@" 2>"$tmp/stderr" || fail "$(tail "$tmp/stderr")"
	sed -n 's/.* metric: //p' "$tmp/stderr" >"$tmp/metrics"
}
lib_metric() { # NAME: what the last command made of it
	awk -v name="$1" '$1 == name { n = $2 } END { print n + 0 }' "$tmp/metrics"
}

# One object by the mount and two by the library, whose callers read the smaller
# one themselves: all are read from a, by way of the relay.
moves_bytes() { # NAME
	local key=secret-name-$1
	cp "$tmp/object" "${mount[a]}/$key"
	sync "${mount[a]}"
	lib put "$key" "$tmp/object"
	lib put "$key.half" "$tmp/half"
	: >"$tmp/wire"
	wait_until 10 test -e "${mount[b]}/$key"
	cmp "$tmp/object" "${mount[b]}/$key"
	lib get "$key" "$tmp/got"
	cmp "$tmp/object" "$tmp/got"
	lib get "$key.half" "$tmp/got"
	cmp "$tmp/half" "$tmp/got"
	# By the caller's own connections: else the loop has fetched it, unnoticed.
	[ "$(lib_metric kvpool_client_direct_gets_total)" = 1 ] ||
		fail "$1: the caller did not receive it: $(cat "$tmp/metrics")"
	[ "$(wc -c <"$tmp/wire")" -gt 6000000 ] || fail "not by way of the relay"
	! on_wire secret-name || fail "$1: a request was readable"
}

pair() { # A'S OPTION B'S OPTION
	for n in a b; do
		[ -z "${args_of[$n]:-}" ] || stop $n
	done
	start_node a --no-fd-passing --advertise "127.0.0.1:$relay" \
		--ktls "${KVTEST_KTLS:-auto}" $1
	start_node b --no-fd-passing --store-size 0 --buffer-size 64M $2
}

free_port; listen[a]=127.0.0.1:$port
free_port; admin[a]=127.0.0.1:$port
store[a]=$tmp/a.store
relay
relay=$port
wait_until 10 listens "$relay"

echo "== encrypted, unless both nodes say otherwise"
pair "" ""
[ "$(status_json a .bulk)" = tls ]
has_metric "${admin[a]}" 'kvpool_bulk{mode="tls"}' 1
moves_bytes none
! on_wire bytes-of-an-object || fail "the bytes were readable"
pair "--bulk auth" ""
KVPOOL_BULK=tls moves_bytes holder
! on_wire bytes-of-an-object || fail "the bytes were readable (holder: auth)"
pair "" "--bulk auth"
KVPOOL_BULK=auth moves_bytes asker
! on_wire bytes-of-an-object || fail "the bytes were readable (asker: auth)"
has_metric "${admin[a]}" kvpool_tls_plain_lanes_total 0
has_metric "${admin[b]}" kvpool_tls_plain_lanes_total 0

echo "== both say so: the bytes are plain, requests are not"
pair "--bulk auth" "--bulk auth"
[ "$(status_json a .bulk)" = auth ]
has_metric "${admin[a]}" 'kvpool_bulk{mode="auth"}' 1
kvpool devices --admin "${admin[a]}" --tls-dir "$KVTEST_TLS/admin" |
	grep -- '--bulk auth'
kvpool status --admin "${admin[a]}" --tls-dir "$KVTEST_TLS/admin" >"$tmp/status"
grep 'not encrypted: --bulk auth' "$tmp/status"
KVPOOL_BULK=tls moves_bytes mount
on_wire bytes-of-an-object || fail "the mount's bytes were encrypted"
for n in a b; do
	[ "$(metric "${admin[$n]}" kvpool_tls_plain_lanes_total)" -gt 0 ] ||
		fail "no lane of $n has ended TLS"
done
[ "$(lib_metric kvpool_tls_plain_lanes_total)" = 0 ] || fail "a plain lane by --bulk tls"
KVPOOL_BULK=auth moves_bytes both
[ "$(lib_metric kvpool_tls_plain_lanes_total)" = 1 ] ||
	fail "plain lanes of the library: $(cat "$tmp/metrics")"
n=$(grep -ao bytes-of-an-object "$tmp/wire" | wc -l)
[ "$n" -ge 320000 ] || fail "bytes for mount and library: $n of 320,000 lines"

echo "== on a plain lane, frames of RDMA end it: anybody may have written them"
bad=$(metric "${admin[a]}" kvpool_peer_bad_messages_total)
python3 "$(dirname "$0")/hostile.py" --tls "$KVTEST_TLS/node" links "${listen[a]}" \
	>"$tmp/links"
[ "$(tr '\n' ' ' <"$tmp/links")" = "LINK closed BUFFER closed " ] ||
	fail "$(cat "$tmp/links")"
has_metric "${admin[a]}" kvpool_peer_bad_messages_total $((bad + 2))
bad=$(metric "${admin[b]}" kvpool_peer_bad_messages_total)
python3 "$(dirname "$0")/hostile.py" --tls "$KVTEST_TLS/node" \
	liar "${listen[master]}" buffer >"$tmp/liar" &
liar=$!
also_kill+=($liar)
wait_until 10 test -e "${mount[b]}/liar.buffer"
! cat "${mount[b]}/liar.buffer" >"$tmp/got" 2>&1 || fail "read from who sends no bytes"
kill $liar
wait $liar
lanes=$(grep -c '^lane closed$' "$tmp/liar") || fail "no lane was closed: $(cat "$tmp/liar")"
! grep 'lane kept' "$tmp/liar" || fail "who dialled the lane keeps it"
[ "$(metric "${admin[b]}" kvpool_peer_bad_messages_total)" -ge $((bad + lanes)) ]

echo "== what makes no sense is refused"
refused() { # TEXT OPTION...
	local text=$1
	shift
	! kvpoold "$@" >"$tmp/refused" 2>&1 || fail "accepted: $*"
	grep "$text" "$tmp/refused" || fail "$(cat "$tmp/refused")"
}
refused 'tls or auth with --tls-dir' --tls-dir "$KVTEST_TLS/node" --bulk plain
(
	unset KVPOOL_TLS_DIR
	refused 'tls and auth with --tls-dir; plain without' --bulk auth
	refused 'on with --tls-dir; auto and off' --ktls on
)
(
	unset KVPOOL_TLS_DIR
	! KVPOOL_BULK=auth library_user "${listen[master]}" "" exists k \
		2>"$tmp/refused"
	grep 'must be plain without' "$tmp/refused"
)
! KVPOOL_BULK=plain library_user "${listen[master]}" "" exists k 2>"$tmp/refused"
grep 'must be tls or auth' "$tmp/refused"
pass
