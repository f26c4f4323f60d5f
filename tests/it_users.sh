#!/bin/bash
# modes: passthrough
#
# Other users of the machine, on loopback and without --insecure: who joins, who is
# turned away, and who is not believed.
. "$(dirname "$0")/lib.sh"

[ "$(id -u)" = 0 ] || skip "needs root, to be other users"
need setpriv socat
LOG_ALLOW='a connection was refused: user 65533 is not trusted|the master at .* refused us: user 65533|a process of user 65533 has this address'

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
said() { # NAME REGEX
	grep -q "$2" "$(log_of "$1")"
}
nodes() {
	http "${admin[master]}/api/nodes" | jq '[.nodes[] | select(.alive)] | length'
}

start_master
start_node a --no-mount
[ "$(nodes)" = 1 ] || fail "a has not joined"

echo "== a stranger's node is turned away, is told why, and is counted"
stranger_node
wait_until 10 said stranger "refused us: user 65533 is not trusted here.*--allow-user"
[ "$(nodes)" = 1 ] || fail "the stranger has joined"
[ "$(strangers "${admin[master]}")" -ge 1 ] || fail "nobody was counted"
said master "a connection was refused: user 65533" || fail "nothing in the log"
stop stranger

echo "== so is what speaks the protocol at a node's port"
# A connection that may be would stay, and be silent.
timeout 5 "${as_stranger[@]}" socat -u "TCP:${listen[a]}" \
	"CREATE:$tmp/stranger/answer" || fail "a stranger was not cut off"
grep -qa 'user 65533 is not trusted here' "$tmp/stranger/answer" ||
	fail "it was not told"
[ "$(strangers "${admin[a]}")" -ge 1 ] || fail "not counted"

echo "== named by --allow-user it may come, and goes again with that"
kill9 master
start_master --allow-user 65533
stranger_node
two() { [ "$(nodes)" = 2 ]; }
wait_until 15 two
stop stranger

echo "== the master's port, taken by a stranger while it is down: not believed"
stop master
rm -f "$tmp/stranger/heard"
launch thief "${as_stranger[@]}" socat -u \
	"TCP-LISTEN:${listen[master]#*:},bind=127.0.0.1,reuseaddr,fork" \
	"OPEN:$tmp/stranger/heard,creat,append"
left() { [ "$(metric "${admin[a]}" kvpool_impostors_left_total)" -ge 3 ]; }
wait_until 15 left
said a 'a process of user 65533 has this address' || fail "it is not in the log"
[ ! -s "$tmp/stranger/heard" ] ||
	fail "the thief heard $(stat -c %s "$tmp/stranger/heard") bytes"
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
