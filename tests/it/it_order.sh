#!/bin/bash
# Nodes start in any order, come and go; the three kinds of node; what is
# refused at start.
# modes: both
# limit: 180
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need engine_traces jq curl cmp

MIB=1048576
same() { cmp -s "$1" "$2"; }
gone() { [ ! -e "$1" ]; }
joined() { has_metric "${admin[$1]}" kvpool_node_master_connected 1; }
alive_nodes() { has_metric "${admin[master]}" kvpool_master_nodes_alive "$1"; }

# refused STATUS REGEX COMMAND...: it exits with STATUS, and its output matches.
refused() {
	local want=$1 regex=$2 status=0 output
	shift 2
	output=$(timeout 10 "$@" 2>&1 </dev/null) || status=$?
	[ $status = "$want" ] || fail "status $status, not $want: $*: $output"
	grep -qE -- "$regex" <<<"$output" || fail "no \"$regex\" from $*: $output"
}

head -c 3000000 /dev/urandom >"$tmp/src"

echo "== a node before its master: mounts and serves locally"
free_port; listen[master]=127.0.0.1:$port
free_port; admin[master]=127.0.0.1:$port
start_node a
start_node s --no-mount
a=${mount[a]}
has_metric "${admin[a]}" kvpool_node_master_connected 0
mkdir "$a/early"
cp "$tmp/src" "$a/early/k.tmp"
mv "$a/early/k.tmp" "$a/early/k"
same "$tmp/src" "$a/early/k" || fail "not readable without a master"
[ "$(stat -c %s "$a/early/k")" = 3000000 ] || fail "its size is wrong"

echo "== it joins when the master appears, and others see what it has"
start_master
wait_until 5 joined a
wait_until 5 joined s
start_node b
b=${mount[b]}
wait_until 5 same "$tmp/src" "$b/early/k"

echo "== a store without a mount takes what others have no room for"
[ "$(status_json s .data_mode)" = none ] || fail "it has a data mode"
start_node c --store-size 0 --buffer-size 64M
c=${mount[c]}
[ "$(http "${admin[master]}/api/nodes" |
	jq -r '[.nodes[] | select(.is_store | not)] | length')" = 1 ] ||
	fail "the client counts as a store"

echo "== a client's puts are on stores before the fsync of their directory returns"
mkdir "$c/put"
sync "$c/put"
for round in 1 2 3; do
	for i in {1..4}; do
		cp "$tmp/src" "$c/put/$round.$i.tmp"
		mv "$c/put/$round.$i.tmp" "$c/put/$round.$i"
	done
	sync "$c/put"
	kill9 c
	for i in {1..4}; do
		same "$tmp/src" "$b/put/$round.$i" ||
			fail "put/$round.$i is not there after its client's death"
	done
	start_node c --store-size 0 --buffer-size 64M
	[ "$(grep -c " $c " /proc/self/mountinfo)" = 1 ] ||
		fail "the stale mount is still there"
	wait_until 5 joined c
done
grep -q 'mount without its daemon' "$(log_of c)" || fail "no word of it"

echo "== a client keeps to its buffer"
most=0
engine_traces fill --d "$c/put" --prefix big --files 192 --size $MIB &
fill=$!
also_kill+=($fill)
while kill -0 $fill 2>/dev/null; do
	used=$(metric "${admin[c]}" kvpool_node_store_used_bytes)
	[ "$used" -le $most ] || most=$used
done
wait $fill || fail "a client could not write three times its buffer"
also_kill=()
sync "$c/put"
echo "   at most $((most / MIB)) of 64 MiB in the buffer"
[ $most -gt 0 ] && [ $most -le $((64 * MIB)) ] || fail "$most bytes in the buffer"
for m in "$b" "$c"; do
	engine_traces verify --d "$m/put" --prefix big --files 192 --size $MIB \
		--min-present 192
done

echo "== nodes leave and come back"
cp "$tmp/src" "$a/early/last"
stop a
! mountpoint -q "$a" || fail "a left its mount behind"
wait_until 5 alive_nodes 3
wait_until 10 gone "$b/early/k"
start_node a
wait_until 5 alive_nodes 4
wait_until 5 same "$tmp/src" "$b/early/last"
wait_until 5 same "$tmp/src" "$b/early/k"
same "$tmp/src" "$a/early/k" || fail "a lost what it had"
stop c
stop s
wait_until 5 alive_nodes 2
cp "$tmp/src" "$b/early/still"
sync "$b/early"
same "$tmp/src" "$a/early/still" || fail "two nodes are no pool"

echo "== what is refused at start"
also_named+=("refused.$$")
node=(kvpoold --foreground --name "refused.$$" --store-dir "$tmp/refused")
refused 2 'kvpoold: --listen: "0.0.0.0:7072" given; accepted: a loopback address.*--insecure' \
	"${node[@]}" --store-size 64M --listen 0.0.0.0:7072
refused 2 'kvpoold: --admin: "192.0.2.1:1" given; accepted: .*--insecure' \
	"${node[@]}" --store-size 64M --admin 192.0.2.1:1
refused 2 'kvpoold: --store-size: "lots" given; accepted: a size such as 50G' \
	"${node[@]}" --store-size lots
refused 2 'kvpoold: --movers: "0" given; accepted: a whole number' \
	"${node[@]}" --store-size 64M --movers 0
refused 2 'kvpoold: --buffer-size: "1k" given; accepted: a size' \
	"${node[@]}" --mount "$tmp/refused.mnt" --buffer-size 1k
refused 2 'KVPOOL_PREFETCH: "-1" given; accepted: a whole number' \
	env KVPOOL_PREFETCH=-1 "${node[@]}" --store-size 64M
# Neither 0 nor 2: the option is well-formed, this machine is too small.
total=$(awk '/^MemTotal/ { printf "%.0f", $2 / 1048576 }' /proc/meminfo)
status=0
output=$("${node[@]}" --listen 127.0.0.1:0 --admin 127.0.0.1:0 \
	--store-size 900T 2>&1 </dev/null) || status=$?
[ $status != 0 ] || fail "a store of 900 TiB was accepted"
grep -q '900' <<<"$output" || fail "the requested size is not named: $output"
[ "$(grep -oE '[0-9.]+ [KMGT]iB' <<<"$output" | sort -u | wc -l)" -ge 2 ] ||
	fail "not both figures ($total GiB here): $output"
pass
