#!/bin/bash
# A pool of two masters with etcd, nodes with bulk lanes, a keeper and a library, all
# with certificates, alone in a network namespace: whatever listens there is checked,
# whoever opened it. KVPool's ports speak TLS 1.3 to members only, etcd's TLS to those
# who have a certificate of the CA. A socket that this test does not know fails it.
# variants: release asan
# limit: 120
[ -n "${KVTEST_PORTS_NS:-}" ] || KVTEST_PORTS_NS=1 exec unshare --net bash "$0" "$@"
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_tls.sh"
need_fuse
need jq curl cmp openssl ss etcd
ip link set lo up
use_tls
make_foreign

# One certificate for members and etcd: without a common name, which etcd's gateway
# refuses. Made by another program, as those of a company's CA are.
cert_by_openssl "$KVTEST_TLS/ca" test/master "$tmp/bare" /
rm -r "$KVTEST_TLS/master"
cp -rp "$tmp/bare" "$KVTEST_TLS/master"
cert_by_openssl "$KVTEST_TLS/ca" test/node "$tmp/etcd"
ca=$KVTEST_TLS/ca/ca.crt

free_port; client_url=https://127.0.0.1:$port
free_port; peer_url=https://127.0.0.1:$port
launch etcd etcd --data-dir "$tmp/etcd.data" --log-level error \
	--listen-client-urls "$client_url" --advertise-client-urls "$client_url" \
	--listen-peer-urls "$peer_url" --initial-advertise-peer-urls "$peer_url" \
	--initial-cluster "default=$peer_url" \
	--client-cert-auth --trusted-ca-file "$ca" \
	--cert-file "$tmp/etcd/tls.crt" --key-file "$tmp/etcd/tls.key" \
	--peer-client-cert-auth --peer-trusted-ca-file "$ca" \
	--peer-cert-file "$tmp/etcd/tls.crt" --peer-key-file "$tmp/etcd/tls.key"
bare=(--cacert "$ca" --cert "$tmp/bare/tls.crt" --key "$tmp/bare/tls.key")
etcd_answers() { curl -sf --noproxy '*' --max-time 1 "${bare[@]}" "$client_url/health" >/dev/null; }
wait_until 20 etcd_answers

etcd=(--etcd "$client_url" --cluster it --etcd-ca "$ca"
	--etcd-cert "$tmp/bare/tls.crt" --etcd-key "$tmp/bare/tls.key")
healthy() { http "${admin[$1]}/healthz" >/dev/null 2>&1; }
masters=
for m in m1 m2; do
	free_port; listen[$m]=127.0.0.1:$port
	free_port; admin[$m]=127.0.0.1:$port
	masters+=${masters:+,}${listen[$m]}
	launch $m kvpool-master --foreground --listen "${listen[$m]}" \
		--admin "${admin[$m]}" "${etcd[@]}"
	wait_until 10 healthy $m
done
listen[master]=$masters
start_node a --no-fd-passing --bulk auth
start_node b --no-fd-passing --bulk auth --keeper
unset "listen[master]"
# A node is ready before it has found the master that leads; sync waits for those
# mounts that have joined.
joined() { has_metric "${admin[$1]}" kvpool_node_master_connected 1; }
for n in a b; do wait_until 20 joined $n; done

echo "== the pool works: a lane, and a library"
head -c 5000000 /dev/urandom >"$tmp/src"
cp "$tmp/src" "${mount[a]}/f"
sync "${mount[a]}"
cmp "$tmp/src" "${mount[b]}/f"
library_user "$masters" ns survive "$tmp/enough" >"$tmp/survived" 2>&1 &
library=$!
also_kill+=($library)
is_up() { grep -q "pid=$library," < <(ss -Hltnp); }
wait_until 10 is_up

echo "== every socket that listens, of $(ss -Hltn | wc -l)"
[ -z "$(ss -Hlun)" ] || fail "UDP: $(ss -Hlunp)"
declare -A checked=()
while read -r at by; do
	who=$by
	case " ${listen[*]} / ${admin[*]} / ${client_url#https://} ${peer_url#https://} " in
	*" $at "*/*/*) kind=pool ;;
	*/*" $at "*/*) kind='admin' ;;
	*/*/*" $at "*) kind=etcd ;;
	*) kind=unknown; [[ $by != *"pid=$library,"* ]] || kind=pool ;;
	esac
	echo "   $at $kind $by"
	case $kind in
	pool) check_pool_port "$at" ;;
	admin) check_admin_port "$at" ;;
	etcd)
		is_silent "$at" ''
		is_silent "$at" 'GET /health HTTP/1.0\r\n\r\n'
		is_refused "a client without a certificate" "$at" ""
		is_refused "the certificate of another CA" "$at" "$tmp/foreign/node"
		;;
	*) fail "$by listens at $at, which this test does not know" ;;
	esac
	checked[$kind]=$((${checked[$kind]:-0} + 1))
done < <(ss -Hltnp | awk '{ print $4, $6 }')
[ "${checked[pool]},${checked[admin]},${checked[etcd]}" = 5,4,2 ] ||
	fail "this shows too little: $(declare -p checked)"

touch "$tmp/enough"
wait $library || fail "$(cat "$tmp/survived")"
stop b
stop a
stop m2
stop m1
kill9 etcd
pass
