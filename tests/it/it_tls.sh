#!/bin/bash
# A pool with --tls-dir: every TCP socket that its daemons listen on answers peers
# with a certificate of the pool and a fitting role, by TLS 1.3, and nobody else; on
# the admin address any role reads and only an admin changes. Put here, read there;
# mount(8); libkvpool; the CLI; certificates are renewed while it works.
# variants: release asan
# limit: 240
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_tls.sh"
need_fuse
need jq curl cmp openssl ss python3
LOG_ALLOW="none/ca.crt: there is no such file"

use_tls
make_foreign
# A certificate that another program made is as good.
rm -r "$KVTEST_TLS/admin"
cert_by_openssl "$KVTEST_TLS/ca" test/admin "$KVTEST_TLS/admin"

start_master --allow-faults
has_faults=master
start_node a
start_node b
A=${mount[a]} B=${mount[b]}

is_one_of() { # WORD WORD...
	local word=$1 other
	shift
	for other in "$@"; do
		[ "$word" != "$other" ] || return 0
	done
	return 1
}

checked=0
for who in master a b; do
	echo "== every socket on which $who listens"
	for at in $(ss -Hltnp | awk -v p="pid=${pid[$who]}," 'index($0, p) { print $4 }'); do
		echo "   $at"
		if is_one_of "$at" "${listen[@]}"; then
			check_pool_port "$at"
		elif is_one_of "$at" "${admin[@]}"; then
			check_admin_port "$at"
		else
			fail "$who listens at $at, which this test does not know"
		fi
		checked=$((checked + 1))
	done
done
[ $checked = 6 ] || fail "$checked listening sockets, not 6: this shows too little"

# ---- the pool works ----

echo "== put on a, read on b"
mkdir "$A/d"
head -c 5000000 /dev/urandom >"$tmp/src"
cp "$tmp/src" "$A/d/big"
echo small >"$A/d/small"
sync "$A/d"
cmp "$tmp/src" "$B/d/big"
[ "$(cat "$B/d/small")" = small ]

echo "== mount(8), by the option tls_dir"
helper=/sbin/mount.kvpool
mounter=mount.kvpool our_helper=
if [ -e "$helper" ] || [ -L "$helper" ]; then
	echo "   by mount.kvpool itself: there is a $helper on this machine"
elif ! ln -s "$BIN/mount.kvpool" "$helper" 2>/dev/null; then
	echo "   by mount.kvpool itself: $helper cannot be made"
else
	our_helper=1 mounter="mount -t kvpool"
fi
remove_ours() { [ -z "$our_helper" ] || rm -f "$helper"; our_helper=; }
trap 'status=$?; set +e; remove_ours; (exit $status); cleanup' EXIT
m=$tmp/m
mkdir "$m"
free_port; opts=listen=127.0.0.1:$port
free_port; opts+=,admin=127.0.0.1:$port,name=m.$$,log_file=$tmp/m.log
opts+=,buffer_size=32M,store_dir=$tmp/m.store
mounts() { # DIR: the only place that names a certificate
	# shellcheck disable=SC2086 # its words
	env -u KVPOOL_TLS_DIR $mounter "${listen[master]}" "$m" -o "$opts,tls_dir=$1"
}
! mounts "$tmp/none" 2>"$tmp/stderr" || fail "mounted with no certificate"
grep -q "$tmp/none/ca.crt" "$tmp/stderr" "$tmp/m.log" || fail "$(cat "$tmp/stderr" "$tmp/m.log")"
mounts "$KVTEST_TLS/node" || fail "mount: status $?: $(tail -n5 "$tmp/m.log")"
remove_ours
p=$(jq .pid "$m/.kvpool/status")
also_kill+=("$p")
[ "$(jq -r .links.protected "$m/.kvpool/status")" = tls ] || fail "its links are not TLS"
cmp "$tmp/src" "$m/d/big"
echo mounted >"$m/d/by-mount"
sync "$m/d"
[ "$(cat "$B/d/by-mount")" = mounted ]
umount "$m"
m_ended() { ! kill -0 "$p" 2>/dev/null; }
wait_until 10 m_ended

echo "== libkvpool, with the certificate of a client only"
u() { library_user "${listen[master]}" ns "$@"; }
u put k "$tmp/src"
cmp "$tmp/src" "$B/ns/k"
cp "$tmp/src" "$B/ns/f"
sync "$B/ns"
u get f "$tmp/got"
cmp "$tmp/src" "$tmp/got"
for dir in "" "$KVTEST_TLS/node" "$tmp/foreign/node" "$tmp/cluster/node"; do
	! KVPOOL_TLS_DIR=$dir timeout 20 library_user "${listen[master]}" ns get f \
		"$tmp/got" 2>"$tmp/stderr" || fail "libkvpool works with \"$dir\""
done

# ---- the CLI ----

# Not by the daemon's Unix socket, which has no TLS.
by_tcp() { # DIR ARGUMENT...: of kvpool
	local dir=$1
	shift
	KVPOOL_RUN_DIR=$tmp/none KVPOOL_TLS_DIR=$dir kvpool "$@"
}
cli() { # ROLE ARGUMENT...
	local role=$1
	shift
	by_tcp "$KVTEST_TLS/$role" "$@"
}
cli_says() { # REGEX DIR ARGUMENT...: fails, and says so
	local regex=$1 dir=$2
	shift 2
	! by_tcp "$dir" "$@" >"$tmp/out" 2>"$tmp/stderr" ||
		fail "kvpool $* works with \"$dir\""
	grep -qE -- "$regex" "$tmp/stderr" ||
		fail "kvpool $* with \"$dir\" does not say \"$regex\": $(cat "$tmp/stderr")"
}

echo "== kvpool asks by TLS"
for role in master node client admin; do
	cli $role status --admin "${admin[a]}" >"$tmp/out"
	grep -q '^links    TLS, cluster test; certificate of a node, for 1 more days$' "$tmp/out" ||
		fail "$(cat "$tmp/out")"
	grep -q '^problem: the certificate expires in 1 days' "$tmp/out" ||
		fail "$(cat "$tmp/out")"
	cli $role ls d/ --admin "${admin[master]}" >"$tmp/out"
	grep -q ' d/big$' "$tmp/out"
done
by_tcp "" nodes --tls-dir "$KVTEST_TLS/admin" --admin "localhost:${admin[master]##*:}" \
	>"$tmp/out"
grep -q "^a\.$$ " "$tmp/out"
cli_says '403 .*role admin' "$KVTEST_TLS/client" drain "a.$$" --admin "${admin[master]}"
cli admin drain "a.$$" --no-wait --admin "${admin[master]}"
cli admin drain "a.$$" --cancel --admin "${admin[master]}"
cli admin fault delay --delay 1ms --nth 1000000 --admin "${admin[master]}" >/dev/null
cli admin fault clear --admin "${admin[master]}" >/dev/null

echo "== and says what is wrong"
cli_says 'require a certificate \(--tls-dir\)' "" status --admin "${admin[a]}"
cli_says "$tmp/none/ca.crt" "$tmp/none" status --admin "${admin[a]}"
cli_says 'its certificate is not valid' "$tmp/foreign/admin" status --admin "${admin[a]}"
cli_says 'belongs to cluster test, and this is other' "$tmp/cluster/admin" status --admin "${admin[a]}"
free_port
python3 -m http.server --bind 127.0.0.1 "$port" >/dev/null 2>&1 &
also_kill+=($!)
wait_until 5 listens "$port"
cli_says 'the admin address of a daemon with --tls-dir' "$KVTEST_TLS/admin" \
	status --admin "127.0.0.1:$port"
kill "$!"
impostor() { # DIR: a server with this certificate, at $port
	free_port
	openssl s_server -accept "127.0.0.1:$port" -cert "$1/tls.crt" \
		-key "$1/tls.key" -www -quiet >/dev/null 2>&1 </dev/null &
	also_kill+=($!)
	wait_until 5 listens "$port"
}
impostor "$KVTEST_TLS/client"
cli_says 'role client; accepted here: master or node' \
	"$KVTEST_TLS/admin" status --admin "127.0.0.1:$port"

# ---- how it is shown ----

echo "== links are shown"
for who in master a b; do
	has_metric "${admin[$who]}" 'kvpool_links_protected{how="tls"}' 1
	has_metric "${admin[$who]}" 'kvpool_links_protected{how="insecure"}' 0
	[ "$(grep -c ' links: TLS 1.3; ' "$(log_of $who)")" = 1 ]
done
[ "$(status_json master .links.role)" = master ]
[ "$(status_json a .links.protected)" = tls ]

# ---- renewal ----

echo "== certificates are renewed while the pool works"
work() { # until $tmp/enough; a line for each failure, and how many were done
	local i=0
	while [ ! -e "$tmp/enough" ]; do
		i=$((i + 1))
		echo "content $i" >"$A/d/w$i" && sync "$A/d" || echo "put $i"
		[ "$(cat "$B/d/w$i")" = "content $i" ] || echo "get $i"
		cli client status --json --admin "${admin[b]}" >/dev/null || echo "status $i"
		u put "w$i" "$tmp/small" && u get "w$i" "$tmp/small.got" &&
			cmp "$tmp/small" "$tmp/small.got" || echo "library $i"
		echo $i >"$tmp/done.new" && mv "$tmp/done.new" "$tmp/done" # whole when read
	done
}
expires_after() { # NAME SECONDS
	metric_at_least "${admin[$1]}" kvpool_tls_certificate_expires_seconds "$2"
}
shows_serial_of() { # HOST:PORT DIR
	[ "$(openssl s_client -connect "$1" -cert "$KVTEST_TLS/node/tls.crt" \
		-key "$KVTEST_TLS/node/tls.key" </dev/null 2>/dev/null |
		openssl x509 -noout -serial)" = \
		"$(openssl x509 -noout -serial -in "$2/tls.crt")" ]
}
worked() { # ROUNDS
	[ "$(cat "$tmp/done" 2>/dev/null || echo 0)" -ge "$1" ]
}
head -c 10000 /dev/urandom >"$tmp/small"
work >"$tmp/failures" 2>&1 &
worker=$!
also_kill+=($worker)
wait_until 20 worked 3
for round in 1 2; do
	rounds=$(cat "$tmp/done")
	for role in master node client; do
		cert_renew "$KVTEST_TLS/ca" "$KVTEST_TLS/$role" $((9 * round))
	done
	kill -HUP "${pid[master]}" "${pid[a]}" "${pid[b]}"
	for who in master a b; do
		wait_until 10 expires_after $who $((86400 * (9 * round - 1)))
	done
	for who in a b; do
		wait_until 5 shows_serial_of "${listen[$who]}" "$KVTEST_TLS/node"
		wait_until 5 shows_serial_of "${admin[$who]}" "$KVTEST_TLS/node"
	done
	wait_until 20 worked $((rounds + 3))
done
touch "$tmp/enough"
wait $worker
[ ! -s "$tmp/failures" ] || fail "while certificates were renewed: $(cat "$tmp/failures")"
echo "   $(cat "$tmp/done") rounds of puts and gets, all good"
has_17_days() { # (18 within the second in which the certificate was made)
	cli client status --admin "${admin[a]}" >"$tmp/status"
	grep -q 'for 17 more days' "$tmp/status"
}
wait_until 5 has_17_days

pass
