#!/bin/bash
# libkvpool.so, used by a program of its own, with two nodes: what it puts is
# read by path and the other way, also by way of the local mount; keys of any
# bytes, layouts, pins; threads and requests; daemons that are killed.
# modes: both
# variants: release asan
# limit: 180
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need jq cmp getfattr

export LIBRARY_BUFFER=$tmp/library
start_master
start_node a
start_node b
a=${mount[a]} b=${mount[b]}

u() { library_user "${listen[master]}" ns "$@"; }
at_mount() { library_user "$a" ns "$@"; } # it finds the master through it
random() { head -c "$1" /dev/urandom >"$tmp/src"; }

fails() { # REGEX COMMAND...: with 1, and says so
	local regex=$1 status=0 text
	shift
	text=$("$@" 2>&1 >/dev/null) || status=$?
	[ $status = 1 ] || fail "status $status: $*: $text"
	grep -qE -- "$regex" <<<"$text" || fail "no \"$regex\" from $*: $text"
}

echo "== put by key, read by path; written by path, got by key"
for size in 0 1 5000 300000 9000000; do
	random $size
	u put "k$size" "$tmp/src"
	for m in "$a" "$b"; do
		cmp "$tmp/src" "$m/ns/k$size"
	done
	[ "$(stat -c %s "$b/ns/k$size")" = $size ]
	cp "$tmp/src" "$b/ns/f$size"
	sync "$b/ns"
	u get "f$size" "$tmp/got"
	cmp "$tmp/src" "$tmp/got"
	at_mount map "f$size" "$tmp/got"
	cmp "$tmp/src" "$tmp/got"
	[ "$(u size "f$size")" = $size ]
done
[ "$(u exists k1 f1 none k5000)" = "1 1 0 1" ]
[ "$(u prefix k1 f1 none k5000)" = 2 ]
ls "$a/ns" >"$tmp/ls"
grep -qx k9000000 "$tmp/ls"

echo "== put beside a store: it takes the file"
beside() { # puts another one; the store of the mount's daemon has taken one
	random 1048576
	nbeside=$((nbeside + 1))
	(unset LIBRARY_BUFFER && at_mount put "beside$nbeside" "$tmp/src")
	cmp "$tmp/src" "$b/ns/beside$nbeside"
	[ "$(metric "${admin[a]}" kvpool_node_linked_total)" -gt 0 ]
}
nbeside=0
wait_until 20 beside # the master may choose the other store
[ -z "$(find "${store[a]}/.clients" -type f -size +100k)" ]

echo "== keys of any bytes"
random 1000
long=$(printf 'x%.0s' {1..300})
for key in 'a/b' '\x00\x01\xff' '..' '%2F' "$long" "$long/\\x00" 'a b*?' 'k.tmp'; do
	u put "$key" "$tmp/src"
	path=$(u path "$key")
	cmp "$tmp/src" "$b/ns/$path"
	cmp <(u key "$path") <(printf '%b' "$key")
	cp "$tmp/src" "$tmp/other" && echo >>"$tmp/other"
	cp "$tmp/other" "$b/ns/$path.new"
	mv "$b/ns/$path.new" "$b/ns/$path"
	sync "$b/ns"
	wait_until 5 eval 'u get "$key" "$tmp/got" && cmp -s "$tmp/other" "$tmp/got"'
	u remove "$key"
	[ ! -e "$a/ns/$path" ]
done
fails 'too long' u put "$(printf 'x%.0s' {1..4001})" "$tmp/src"
fails 'not in the pool' u get none "$tmp/got"

echo "== pins and layouts are attributes"
u put pinned "$tmp/src"
u pin pinned 0
[ "$(getfattr --absolute-names --only-values -n user.kvpool.pin "$b/ns/pinned")" = hard ]
u pin pinned 600
[[ $(getfattr --absolute-names --only-values -n user.kvpool.pin "$b/ns/pinned") = soft* ]]
u unpin pinned
[ "$(getfattr --absolute-names --only-values -n user.kvpool.pin "$b/ns/pinned")" = none ]
library_user "${listen[master]}" m/llama layout llama 8
[ "$(getfattr --absolute-names --only-values -n user.kvpool_layout "$b/m/llama")" = \
	'model=llama;dtype=bf16;layout=NHD;tp=8;tokens=256' ]
library_user "${listen[master]}" m/llama layout llama 8
fails 'tp=8.*tp=4' library_user "${listen[master]}" m/llama layout llama 4

echo "== who cannot be connected to"
fails 'no master' library_user 127.0.0.1:1 ns exists k
fails 'is not in a mount of a pool' library_user "$tmp" ns exists k
fails 'no master' library_user "${listen[a]}" ns exists k # a node

echo "== two processes, threads and requests"
u use 4 6 >"$tmp/use1" &
first=$!
at_mount use 4 6 | sed 's/^/   /'
wait $first || fail "$(cat "$tmp/use1")"
sed 's/^/   /' "$tmp/use1"

echo "== questions wait neither for stores nor for the disk where puts wait"
u busy 10000 >"$tmp/busy" || fail "puts that are waited for: $?"
read -r longest total <"$tmp/busy"
echo "   $longest of $total ms"
[ "$longest" -lt $((total / 3)) ]

echo "== daemons are killed, and come back"
library_user "${listen[master]}" ns survive "$tmp/enough" >"$tmp/survived" 2>&1 &
survives $!

echo "== a killed user's connection is another's"
# (Not by the function: that would be a shell's pid.)
library_user "${listen[master]}" ns survive "$tmp/never" >"$tmp/never.out" 2>&1 &
user=$!
also_kill+=("$user")
sleep 0.5
kill -KILL $user || fail "$(cat "$tmp/never.out")"
wait $user 2>/dev/null || :
[ "$(u exists s1)" = 1 ]
[ "$(ls "$LIBRARY_BUFFER" | wc -l)" -le 3 ]

pass
