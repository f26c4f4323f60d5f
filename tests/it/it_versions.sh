#!/bin/bash
# Daemons of neighbour versions work together, those further apart say so.
# `ahead1` is a build of the wire's next version, `ahead2` of the one after;
# each of their messages has a field, and each connection a message, that others
# do not know (tests/it/next_version.c).
# limit: 240
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need engine_traces jq cmp getfattr

MIB=1048576
same() { cmp -s "$1" "$2"; }
in_log() { grep -q "$2" "$(log_of "$1")"; }
joined() { has_metric "${admin[$1]}" kvpool_node_master_connected 1; }
# ahead N COMMAND...: its daemons are of that version
ahead() { local PATH=$KVTEST_OBJ/ahead$1:$PATH; shift; "$@"; }
# Versions: v1 is that of these sources.
v1=$(awk '$2 == "POOL_WIRE_VERSION" { print $3 }' \
	"$(dirname "$0")/../../pool/conn/wire.h")
v2=$((v1 + 1)) v3=$((v1 + 2))
refuses() { # MINE OTHERS
	local before=", $(($1 - 1))"
	[ "$1" -gt 1 ] || before=
	echo "refused: it speaks version $2 of the protocol, this program version $1 (and $(($1 + 1))$before)"
}
passed_over="a message of type 30583 of a newer version ($v2; this is $v1): ignored"
v1_refuses_v3=$(refuses $v1 $v3)
v3_refuses_v1=$(refuses $v3 $v1)

# One file each of a small and a large size is put through $1 and read through
# $2, and the other way round.
round=0
exchange() { # NODE NODE
	local from to size
	round=$((round + 1))
	for from in "$1" "$2"; do
		to=$1
		[ "$from" = "$1" ] && to=$2
		for size in 5000 $((9 * MIB)); do
			head -c $size /dev/urandom >"$tmp/data"
			cp "$tmp/data" "${mount[$from]}/k.$round.$from.$size"
			sync "${mount[$from]}"
			wait_until 5 same "$tmp/data" \
				"${mount[$to]}/k.$round.$from.$size"
		done
	done
}
state() { getfattr --only-values -n user.kvpool.state "$1"; }

echo "== an old master, an old node and a new one: bytes by descriptor and by TCP"
start_master
start_node a
ahead 1 start_node b
wait_until 10 joined b
in_log b "joined the master .* protocol version $v1)" || fail "not the lower one"
in_log master "$passed_over" || fail "the master got no unknown message"
exchange a b
[ "$(state "${mount[b]}/k.1.a.5000")" = borrowed ] || fail "not lent to the new"
[ "$(state "${mount[a]}/k.1.b.5000")" = borrowed ] || fail "not lent to the old"
in_log a "$passed_over" || fail "the old node got no unknown message"
stop b
ahead 1 start_node b --no-fd-passing
wait_until 10 joined b
exchange a b
[ "$(state "${mount[b]}/k.2.a.5000")" = cached ] || fail "not fetched"

echo "== a new master, an old node and a new one"
stop master
ahead 1 start_master
wait_until 10 joined a
wait_until 10 joined b
grep -q "protocol version $v1)" <(grep "joined the master" "$(log_of a)" | tail -n1) ||
	fail "the old node does not speak its own version"
in_log b "joined the master .* protocol version $v2)" || fail "not the higher one"
exchange a b

echo "== a node is replaced by a newer one, and by the older one again"
mkdir "${mount[a]}/keep"
engine_traces fill --d "${mount[a]}/keep" --prefix k --files 500 --size 20000
sync "${mount[a]}/keep"
have=$(metric "${admin[a]}" kvpool_node_objects)
for version in 1 0; do
	stop a
	if [ $version = 1 ]; then ahead 1 start_node a; else start_node a; fi
	wait_until 10 joined a
	found=$(metric "${admin[a]}" kvpool_store_found_total)
	echo "   $found objects found"
	[ "$found" -ge "$have" ] || fail "$have were there"
	has_metric "${admin[a]}" \
		'kvpool_store_start_removed_total{reason="refused"}' 0 ||
		fail "objects were refused"
	engine_traces verify --d "${mount[a]}/keep" --prefix k --files 500 \
		--size 20000 --min-present 500
	exchange a b
done

echo "== two versions apart: nodes that one master accepts refuse each other"
ahead 2 start_node d --no-fd-passing
wait_until 10 joined d
head -c 100000 /dev/urandom >"${mount[d]}/of.d"
sync "${mount[d]}"
seen() { [ -e "${mount[a]}/of.d" ]; }
wait_until 5 seen
reads() { cat "${mount[a]}/of.d" >/dev/null 2>&1; }
! reads || fail "v1 read from v3"
cmp "${mount[b]}/of.d" "${mount[d]}/of.d" || fail "v2 cannot read from v3"
# d ends the connection when it has read what a is, and a may not have read by then
# what d is: it does at one of the next.
a_says() {
	! reads || fail "v1 read from v3"
	in_log a "$v1_refuses_v3"
}
wait_until 10 a_says
wait_until 10 in_log d "$v3_refuses_v1"
stop d

echo "== two versions apart: master and node refuse each other"
stop master
start_master
wait_until 10 joined a
ahead 2 start_node e --no-wait --no-fd-passing
wait_until 10 in_log e "$v3_refuses_v1"
wait_until 10 in_log master "$v1_refuses_v3"
stop e
stop master
ahead 2 start_master
wait_until 10 in_log a "127.0.0.1:${listen[master]#*:}: $v1_refuses_v3"
wait_until 10 in_log master "$v3_refuses_v1"
wait_until 10 joined b
pass
