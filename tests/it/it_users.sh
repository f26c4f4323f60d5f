#!/bin/bash
# modes: passthrough
#
# Other users of the machine, on loopback and without --insecure: who joins, who is
# refused, and which master is not trusted.
. "$(dirname "$0")/../lib/lib.sh"

[ "$(id -u)" = 0 ] || skip "needs root, to be other users"
need setpriv socat
LOG_ALLOW='a connection was refused: user 65533 is not trusted|the master at .* refused this node: user 65533|a process of user 65533 has this address'

chmod 711 "$tmp"
install -d -o 65533 -g 65534 "$tmp/stranger" "$tmp/stranger/buffer"
as_stranger=(setpriv --reuid 65533 --regid 65534 --clear-groups)
"${as_stranger[@]}" test -x "$BIN/kvpoold" ||
	fail "$BIN is closed to other users"
# The programs may be where the stranger cannot go by path.
stranger_node() { # OPTION...
	free_port; listen[stranger]=127.0.0.1:$port
	free_port; admin[stranger]=127.0.0.1:$port
	launch stranger env XDG_RUNTIME_DIR="$tmp/stranger" "${as_stranger[@]}" \
		kvpoold --foreground --name stranger --store-size 32M \
		--store-dir "$tmp/stranger/store" --master "${listen[master]}" \
		--listen "${listen[stranger]}" --admin "${admin[stranger]}" "$@"
}
strangers() { # ADMIN: connections refused there
	metric "$1" kvpool_strangers_refused_total
}
logged() { # NAME REGEX
	grep -q "$2" "$(log_of "$1")"
}
nodes() {
	http "${admin[master]}/api/nodes" | jq '[.nodes[] | select(.alive)] | length'
}

start_master
start_node a --no-mount
[ "$(nodes)" = 1 ] || fail "a has not joined"

echo "== a stranger's node is refused, gets the reason, and is counted"
stranger_node
wait_until 10 logged stranger "refused this node: user 65533 is not trusted here.*--allow-user"
[ "$(nodes)" = 1 ] || fail "the stranger has joined"
[ "$(strangers "${admin[master]}")" -ge 1 ] || fail "nobody was counted"
logged master "a connection was refused: user 65533" || fail "nothing in the log"
stop stranger

echo "== so is a client of the protocol at a node's port"
# One that is allowed would stay open, without an answer.
timeout 5 "${as_stranger[@]}" socat -u "TCP:${listen[a]}" \
	"CREATE:$tmp/stranger/answer" || fail "a stranger was not cut off"
grep -qa 'user 65533 is not trusted here' "$tmp/stranger/answer" ||
	fail "the reason was not sent"
[ "$(strangers "${admin[a]}")" -ge 1 ] || fail "not counted"

echo "== HTTP: a stranger drains nothing, nor does a web page"
code() { # USER... -- OPTION... of curl
	local as=()
	while [ "$1" != -- ]; do as+=("$1"); shift; done
	shift
	"${as[@]}" curl -s -o "$tmp/stranger/http" -w '%{http_code}' --noproxy '*' "$@"
}
drain="http://${admin[master]}/api/drain?node=a.$$"
[ "$(code "${as_stranger[@]}" -- -X POST "$drain")" = 403 ] || fail "drained"
grep -q 'not from this user; accepted: .*--allow-user' "$tmp/stranger/http"
[ "$(code env -- -X POST -H 'Origin: http://evil.example' "$drain")" = 403 ] ||
	fail "drained by a web page"
[ "$(code env -- -H 'Host: evil.example' "http://${admin[master]}/api/objects")" = 403 ] ||
	fail "answered to a name that was made to resolve to it"
grep -q 'Host "evil.example" given; accepted: localhost' "$tmp/stranger/http" ||
	fail "the answer: $(cat "$tmp/stranger/http")"
[ "$(metric "${admin[master]}" kvpool_admin_refused_total)" = 3 ] || fail "not counted"

echo "== HTTP: the CLI asks at the Unix socket, which strangers may not"
sock_of() { # RUN_DIR HOST:PORT
	echo "$1/admin-$(stat -Lc %i /proc/self/ns/net)-${2%:*}-${2##*:}.sock"
}
sock=$(sock_of /run/kvpool "${admin[master]}")
[ "$(stat -c %a "$sock")" = 600 ] || fail "mode of $sock"
curl -sf --unix-socket "$sock" http://any/healthz >/dev/null || fail "no answer"
! "${as_stranger[@]}" curl -sf --unix-socket "$sock" http://localhost/healthz ||
	fail "a stranger was answered"
# One that says something else, to see who is asked.
mkdir "$tmp/run"
other=$(sock_of "$tmp/run" "${admin[master]}")
printf 'HTTP/1.0 200 OK\r\n\r\n{"role":"asked-here","version":"0"}' >"$tmp/canned"
launch canned socat "UNIX-LISTEN:$other,fork" "SYSTEM:sed -u /^.\$/q >/dev/null; cat $tmp/canned"
wait_until 5 test -S "$other"
status() {
	KVPOOL_RUN_DIR=$tmp/run kvpool status --json --admin "${admin[master]}" |
		jq -r .role
}
[ "$(status)" = asked-here ] || fail "it asked at $(status)'s"
chown 65533 "$other"
[ "$(status)" = master ] || fail "it asked at a stranger's socket"
chown 0 "$other"
kill -KILL "${pid[canned]}"
wait "${pid[canned]}" 2>/dev/null || :
unset "pid[canned]"
[ "$(status)" = master ] || fail "it did not ask over TCP"
stop master
[ ! -e "$sock" ] || fail "the socket was left behind"
start_master

echo "== with --allow-user it joins; without, it is refused again"
kill9 master
start_master --allow-user 65533
stranger_node
two() { [ "$(nodes)" = 2 ]; }
wait_until 15 two
stop stranger

echo "== the master's port, taken by a stranger while it is down: not believed"
stop master
rm -f "$tmp/stranger/received"
launch thief "${as_stranger[@]}" socat -u \
	"TCP-LISTEN:${listen[master]#*:},bind=127.0.0.1,reuseaddr,fork" \
	"OPEN:$tmp/stranger/received,creat,append"
left() { [ "$(metric "${admin[a]}" kvpool_impostors_left_total)" -ge 3 ]; }
wait_until 15 left
logged a 'a process of user 65533 has this address' || fail "it is not in the log"
[ ! -s "$tmp/stranger/received" ] ||
	fail "the thief received $(stat -c %s "$tmp/stranger/received") bytes"
kill -KILL "${pid[thief]}"
wait "${pid[thief]}" 2>/dev/null || :
unset "pid[thief]"

echo "== the master itself is, when it is back"
start_master
one() { [ "$(nodes)" = 1 ]; }
wait_until 15 one

echo "== with --insecure everybody may come"
kill9 master
start_master --insecure
stranger_node --insecure
wait_until 15 two
pass
