#!/bin/bash
# Links are replaced when they are --tls-renew old: under load, and in a minute of load
# while the pool gets another CA, no operation fails, and no connection of before is
# left.
# variants: release asan
# limit: 300
set -euo pipefail
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_tls.sh"
use_tls

start_master
for n in a b; do
	# Bytes, not descriptors: also those move on links that are renewed.
	start_node $n --no-fd-passing --tls-renew 1s --store-size 256M
done
start_node c --store-size 64M
A=${mount[a]} B=${mount[b]}
mkdir "$A/d"
sync "$A"
head -c 8M /dev/urandom >"$tmp/large"
head -c 20000 /dev/urandom >"$tmp/small"

work() { # FROM TO: until $tmp/enough; a line for each failure
	local i=0 size
	while [ ! -e "$tmp/enough" ]; do
		i=$((i + 1))
		for size in large small; do
			cp "$tmp/$size" "$1/d/$2.$size.$((i % 8))" && sync "$1/d" ||
				echo "put $i $size"
			cmp "$tmp/$size" "$3/d/$2.$size.$((i % 8))" || echo "get $i $size"
		done
		# Whole at any moment: whoever reads it meanwhile finds a number.
		echo $i >"$tmp/done.$2.new" && mv "$tmp/done.$2.new" "$tmp/done.$2"
	done
}
worked() { # ROUNDS: of both, since `mark`
	local w
	for w in 1 2; do
		[ $(($(cat "$tmp/done.$w" 2>/dev/null || echo 0))) -ge $((mark[w] + $1)) ] || return 1
	done
}
declare -a mark=(0 0 0)
set_mark() { mark[1]=$(cat "$tmp/done.1") mark[2]=$(cat "$tmp/done.2"); }
renewed() { metric "${admin[$1]}" kvpool_tls_links_renewed_total; }
has_renewed() { # NAME TIMES
	[ "$(renewed "$1")" -ge "$2" ]
}
links_now() { # connections between daemons, as "FROM>TO"
	ss -Htn state established | awk '{ print $3 ">" $4 }' |
		grep -E ">($(IFS='|'; echo "${listen[*]}"))\$" | sort
}

lib_metric() { # KEY NAME
	awk -v n="$2" '$(NF - 1) == n { v = $NF } END { print v + 0 }' "$tmp/stderr.$1"
}

work "$A" 1 "$B" >"$tmp/failures" 2>&1 &
workers=($!)
work "$B" 2 "$A" >>"$tmp/failures" 2>&1 &
workers+=($!)
also_kill+=("${workers[@]}")
wait_until 30 worked 3
links_now >"$tmp/links"
[ -s "$tmp/links" ]
# Libraries that get one object all the while: one that stays, and one that is put
# again and again, of which callers receive each version by connections of their own.
cp "$tmp/large" "$A/d/stays"
sync "$A/d"
declare -A reader
for key in stays 1.small.1; do
	KVPOOL_TLS_RENEW=1s LIBRARY_DEBUG=yes LIBRARY_BUFFER=$tmp/lib.$key \
		library_user "${listen[master]}" d reread $key "$tmp/enough" \
		>"$tmp/gets.$key" 2>"$tmp/stderr.$key" &
	reader[$key]=$!
	also_kill+=($!)
done

echo "== links are renewed under load"
for n in a b; do wait_until 30 has_renewed $n $(($(renewed $n) + 6)); done
set_mark
wait_until 30 worked 5

# What the CA says, for every daemon, and time for links made before to go.
hand_out() {
	local who
	declare -A count
	for who in master node client admin; do
		cert_renew "$KVTEST_TLS/ca" "$KVTEST_TLS/$who" 5
	done
	kill -HUP "${pid[master]}" "${pid[a]}" "${pid[b]}" "${pid[c]}"
	for who in a b; do count[$who]=$(renewed $who); done
	for who in a b; do wait_until 30 has_renewed $who $((count[$who] + 4)); done
	set_mark
	wait_until 30 worked 3
	sleep 6 # a library has no SIGHUP: it looks every 5 s (POOL_TLS_CHECK_MS)
}
# From the first step on, this many seconds of load.
loaded() { [ $((SECONDS - rolling)) -ge "$1" ]; }
echo "== another CA: both are trusted, the new one signs, the old one is removed"
rolling=$SECONDS least=0
set_mark
started=(0 "${mark[1]}" "${mark[2]}")
# (c is left out of the last step: its links are renewed tomorrow.)
for step in "" --switch --finish; do
	kvpool certs roll --dir "$KVTEST_TLS/ca" $step >/dev/null
	hand_out
	least=$((least + 20))
	wait_until 20 loaded $least
	echo "   roll $step: $(cat "$tmp/done.1") and $(cat "$tmp/done.2") rounds," \
		"$((SECONDS - rolling)) s"
done
loaded 60 || fail "the load lasted only $((SECONDS - rolling)) s"
for w in 1 2; do
	[ "$(cat "$tmp/done.$w")" -gt "${started[$w]}" ] || fail "worker $w did nothing"
done
touch "$tmp/enough"
wait "${workers[@]}"
[ ! -s "$tmp/failures" ] || fail "$(cat "$tmp/failures")"
for key in stays 1.small.1; do
	wait ${reader[$key]} || fail "$key: $(grep -vE ' (debug|info) ' "$tmp/stderr.$key")"
	n=$(lib_metric $key kvpool_tls_links_renewed_total)
	echo "   a library: $(cat "$tmp/gets.$key") of $key; $n links renewed"
	[ "$n" -ge 6 ] || fail "a library renewed $n links"
done
[ "$(lib_metric 1.small.1 kvpool_client_direct_gets_total)" -ge 10 ] ||
	fail "the caller has not received them itself"
# Nor had the nodes to repeat one: what was asked on an old link was answered there.
for n in a b; do
	has_metric "${admin[$n]}" 'kvpool_peer_fetch_failures_total{reason="connection"}' 0 ||
		fail "$n repeated fetches: $(http "${admin[$n]}/metrics" |
			grep '^kvpool_peer_fetch_failures_total')"
done
for n in master a b; do
	has_metric "${admin[$n]}" 'kvpool_tls_handshakes_total{result="refused"}' 0 ||
		fail "$n refused handshakes: $(http "${admin[$n]}/metrics" |
			grep '^kvpool_tls_handshakes_total'; grep 'not accepted' "$tmp/$n.log")"
done

echo "== all earlier links are replaced, except those of a node that renews tomorrow"
c_master=$(ss -Htnp state established | grep -F "pid=${pid[c]}," |
	awk '{ print $3 ">" $4 }' | grep -F ">${listen[master]}")
links_now >"$tmp/links.now"
comm -12 "$tmp/links" "$tmp/links.now" >"$tmp/same"
grep -vxF "$c_master" "$tmp/same" >"$tmp/old" || :
# Links that c dialled, and that others dialled to reach it, have no traffic.
[ ! -s "$tmp/old" ] || fail "links that were not renewed: $(cat "$tmp/old")"
# (A busy machine's master may have been silent for too long: then c dialled again.)
grep -qxF "$c_master" "$tmp/same" || grep -q ' warn no master at ' "$tmp/c.log" ||
	fail "c renewed its link, too"
[ "$(renewed c)" = 0 ]

! KVPOOL_TLS_RENEW=soon library_user "${listen[master]}" d size stays 2>"$tmp/stderr" ||
	fail "KVPOOL_TLS_RENEW=soon is accepted"
grep 'KVPOOL_TLS_RENEW) must be between 1s and' "$tmp/stderr"

stop c; stop b; stop a
stop master
pass
