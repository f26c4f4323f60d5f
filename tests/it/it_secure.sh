#!/bin/bash
# README's three nodes: three hosts (network namespaces), each with a certificate of
# its own, and no option that makes it less secure. A put on one is read on the
# other, by path and by the library; a node with another host's certificate and one
# without any do not get in.
# modes: both
# variants: release asan/served
# limit: 180
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need jq curl cmp openssl
LOG_ALLOW='TLS:|refused this node|not for 10.77.1'

ns_add h1 10.77.1.1
ns_add h2 10.77.1.2
ns_add h3 10.77.1.3
ns_add h4 10.77.1.4
KVTEST_TLS=$tmp/tls
mkdir "$KVTEST_TLS"

typed() { # COMMAND...: ends well
	"$@" >"$tmp/output" 2>&1 || fail "$*: $(cat "$tmp/output")"
}
issue() { # ROLE HOST OUT
	typed kvpool certs issue --dir "$tmp/ca" --role "$1" --host "$2" --out "$3"
}

echo "== certificates: one CA, one for each host"
typed kvpool certs init --dir "$tmp/ca" --cluster prod
issue master 10.77.1.1 "$KVTEST_TLS/master"
issue node 10.77.1.2 "$tmp/n2"
issue node 10.77.1.3 "$tmp/n3"
issue client 10.77.1.2 "$KVTEST_TLS/client"
issue admin localhost "$KVTEST_TLS/admin"

echo "== a master and two nodes, without --insecure"
start_master --ns h1
start_node a --ns h2 --tls-dir "$tmp/n2"
start_node b --ns h3 --tls-dir "$tmp/n3"
ps -o args= -p "${pid[master]}" "${pid[a]}" "${pid[b]}" >"$tmp/args"
! grep -e --insecure "$tmp/args" || fail "started with --insecure"

echo "== put on one, read on the other"
head -c 3000000 /dev/urandom >"$tmp/src"
mkdir "${mount[a]}/d"
cp "$tmp/src" "${mount[a]}/d/f"
sync "${mount[a]}/d"
cmp "$tmp/src" "${mount[b]}/d/f" || fail "b reads other bytes"

echo "== a library with a client's certificate, and without"
library() { # DIR COMMAND...: on h2
	nsenter --net="/run/netns/${ns_tag}h2" env KVPOOL_TLS_DIR="$1" \
		"$KVTEST_OBJ/tests/library_user" "${listen[master]}" d "${@:2}"
}
library "$KVTEST_TLS/client" exists f >"$tmp/output" || fail "$(cat "$tmp/output")"
! library '' exists f >"$tmp/output" 2>&1 || fail "a library without a certificate is let in"

echo "== a node with the certificate of another host does not get in"
start_node c --ns h4 --no-wait --no-mount --tls-dir "$tmp/n3"
refused() { # NAME REGEX
	grep -qE -- "$2" "$(log_of "$1")"
}
wait_until 10 refused c 'not for 10.77.1.4, the address of its JOIN: issue one with --host 10.77.1.4'
stop c

echo "== nor one without any"
KVTEST_TLS='' start_node d --ns h4 --no-wait --no-mount
wait_until 10 refused d 'no master'
refused master 'TLS: not accepted.*does not speak TLS' || fail "the master does not say why"
! refused d 'joined the master' || fail "a node without a certificate has joined"
stop d
pass
