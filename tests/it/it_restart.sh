#!/bin/bash
# kill -9 of any program at any moment, and what must be true afterwards.
# KVTEST_KEYS=200000 makes the master learn that many keys again (default
# 20,000).
# modes: both
# limit: 240
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need engine_traces jq curl cmp getfattr setfattr

MIB=1048576
keys=${KVTEST_KEYS:-20000}
same() { cmp -s "$1" "$2"; }
gone() { [ ! -e "$1" ]; }
joined() { has_metric "${admin[$1]}" kvpool_node_master_connected 1; }
has_keys() { has_metric "${admin[master]}" kvpool_master_keys "$1"; }

start_master
start_node a --store-size 1G
start_node b --store-size 1G --no-fd-passing
a=${mount[a]} b=${mount[b]}

echo "== the master is killed: it knows all $keys keys again within 2 s"
mkdir "$a/many"
sync "$a/many"
engine_traces fill --d "$a/many" --prefix a --files $((keys / 2)) --size 200 \
	>"$tmp/fill.a" &
fill=$!
engine_traces fill --d "$b/many" --prefix b --files $((keys / 2)) --size 200 \
	>"$tmp/fill.b"
wait $fill
sync "$a/many"
sync "$b/many"
wait_until 10 has_keys "$keys"
kill9 master
degraded() { grep -q '^"\?20..-..-..T' < <(status_json a .degraded_since); }
wait_until 10 degraded
kvpool status --admin "${admin[a]}" >"$tmp/status"
grep -q '^DEGRADED since 20.*wait to be published' "$tmp/status" ||
	fail "status does not say so: $(cat "$tmp/status")"
# What the nodes know stays readable without a master.
engine_traces verify --d "$a/many" --prefix b --files 100 --size 200 \
	--min-present 100
begin=${EPOCHREALTIME/./}
start_master
wait_until 10 has_keys "$keys"
took=$(((${EPOCHREALTIME/./} - begin) / 1000))
echo "   $took ms"
# (Two seconds are the aim for 200,000; the time itself is not asserted on a
# machine that other tests share.)
wait_until 5 joined a
wait_until 5 joined b
engine_traces verify --d "$a/many" --prefix b --files $((keys / 2)) \
	--size 200 --min-present $((keys / 2))
engine_traces verify --d "$b/many" --prefix a --files $((keys / 2)) \
	--size 200 --min-present $((keys / 2))

echo "== a key deleted while its holder is away does not come back"
mkdir "$a/del"
for i in 1 2 3 4 5; do head -c 300000 /dev/urandom >"$tmp/del.$i"; done
cp "$tmp/del.1" "$a/del/1"
cp "$tmp/del.2" "$a/del/2"
cp "$tmp/del.3" "$a/del/3"
sync "$a/del"
# b has copies of its own of two of them, so that they outlive a's absence.
setfattr -n user.kvpool.replicas -v 2 "$a/del/1" "$a/del/2"
both() {
	[ "$(getfattr --only-values -n user.kvpool.holders "$b/del/$1" 2>/dev/null)" = 2 ]
}
wait_until 10 both 1
wait_until 10 both 2
stop a
rm "$b/del/1"
cp "$tmp/del.4" "$b/del/2"
sync "$b/del"
kill9 master
start_master
wait_until 5 joined b
start_node a --store-size 1G
wait_until 5 joined a
wait_until 10 same "$tmp/del.3" "$b/del/3"
for m in "$a" "$b"; do
	wait_until 5 gone "$m/del/1"
	wait_until 5 same "$tmp/del.4" "$m/del/2"
done
sync "$a/del"
sleep 0.5	# what would come back would have by now
for m in "$a" "$b"; do
	[ ! -e "$m/del/1" ] || fail "a deleted key is back"
	same "$tmp/del.4" "$m/del/2" || fail "an overwritten key is back"
done

echo "== a node is killed: what was published is found again, the rest dropped"
mkdir "$a/n"
engine_traces fill --d "$a/n" --files 64 --size $MIB
sync "$a/n"
exec 8>"$a/n/writing.tmp"
echo "half of it" >&8
echo "never renamed" >"$a/n/left.tmp"
engine_traces writer --d "$a/n" --name slow --size $MIB --delay-ms 1000 \
	>"$tmp/slow" 2>&1 &
writer=$!
also_kill+=($writer)
wait_until 5 grep -qs 'piece 1' "$tmp/slow"
kill9 a
exec 8>&- || :
kill -KILL $writer
wait $writer 2>/dev/null || :
also_kill=()
start_node a --store-size 1G
wait_until 5 joined a
grep -qE 'removed: [0-9]+ unsealed' \
	< <(grep ' objects found in ' "$(log_of a)" | tail -n1) ||
	fail "removed objects are not reported: $(grep ' objects found' "$(log_of a)")"
engine_traces verify --d "$a/n" --files 64 --size $MIB --min-present 64
sync "$a/n"
wait_until 5 test -e "$b/n/k00000063.bin"
engine_traces verify --d "$b/n" --files 64 --size $MIB --min-present 64
engine_traces verify --d "$a/many" --prefix a --files 500 --size 200 \
	--min-present 500
for m in "$a" "$b"; do
	for f in writing.tmp left.tmp slow writing left; do
		[ ! -e "$m/n/$f" ] || fail "$m/n/$f was never published"
	done
done
[ "$(ls -A "$a/n" | wc -l)" = 64 ] || fail "more than 64: $(ls -A "$a/n")"

echo "== objects that were damaged meanwhile are kept aside, never served"
mkdir "$a/bad"
for i in 1 2 3 4 5; do head -c 100000 /dev/urandom >"$tmp/bad.$i"; done
of() { # FILE of the store of a that has the bytes of $tmp/bad.N
	local f
	for f in $(find "${store[a]}" -type f -size 100000c); do
		same "$f" "$tmp/bad.$1" && echo "$f" && return
	done
	fail "no file of the store has bad.$1"
}
for i in 1 2 3 4 5; do cp "$tmp/bad.$i" "$a/bad/$i"; done
sync "$a/bad"
bits=$(of 1) short=$(of 2) meta=$(of 3) bare=$(of 5)
stop a
printf 'X' | dd of="$bits" bs=1 seek=5000 conv=notrunc status=none
truncate -s 99999 "$short"
setfattr -n trusted.kvpool -v nonsense "$meta"
setfattr -x trusted.kvpool "$bare"
start_node a --store-size 1G
wait_until 5 joined a
wait_until 10 same "$tmp/bad.4" "$a/bad/4"
for i in 1 2 3 5; do
	! cat "$a/bad/$i" >"$tmp/out" 2>/dev/null || fail "bad/$i was served"
done
wait_until 5 has_metric "${admin[a]}" kvpool_store_quarantined_total 4
for f in "$bits" "$short" "$meta" "$bare"; do
	[ -e "${store[a]}/bad-${f##*/}" ] && [ ! -e "$f" ] ||
		fail "$f was not quarantined"
	[ "$(grep -c "${f##*/}: .*: quarantined as" "$(log_of a)")" = 1 ] ||
		fail "$f is not in the log, once"
done
wait_until 10 gone "$b/bad/1"
same "$tmp/bad.4" "$b/bad/4"

echo "== a writer is killed in the middle of temp + rename: no key"
for i in {1..10}; do
	: >"$tmp/slow"
	engine_traces writer --d "$a/n" --name "cut$i" --size $MIB --rename \
		--delay-ms 200 >"$tmp/slow" 2>&1 &
	writer=$!
	also_kill+=($writer)
	wait_until 5 grep -q "^piece $i\$" "$tmp/slow"
	kill -KILL $writer
	wait $writer 2>/dev/null || :
	also_kill=()
done
sync "$a/n"
for i in {1..10}; do
	[ ! -e "$a/n/cut$i" ] && [ ! -e "$b/n/cut$i" ] && [ ! -e "$b/n/cut$i.tmp" ] ||
		fail "cut$i is there"
done

echo "== the holder of half the blocks is killed during loads"
# Large and many enough that the kill finds some of them still elsewhere.
engine_traces fill --d "$a/n" --prefix f --files 300 --size $MIB
engine_traces fill --d "$b/n" --prefix h --files 64 --size $MIB
sync "$a/n"
sync "$b/n"
fetched=$(metric "${admin[b]}" kvpool_node_fetches_total)
engine_traces load-loop 3 --d "$b/n" --prefix f --files 300 --size $MIB \
	>"$tmp/load.f" 2>&1 &
l1=$!
engine_traces load-loop 3 --d "$b/n" --prefix h --files 64 --size $MIB \
	>"$tmp/load.h" 2>&1 &
l2=$!
also_kill+=($l1 $l2)
wait_until 5 metric_at_least "${admin[b]}" kvpool_node_fetches_total \
	$((fetched + 20))
kill9 a
wait $l1 || { cat "$tmp/load.f"; fail "a load from a killed holder went wrong"; }
wait $l2 || { cat "$tmp/load.h"; fail "a load of local blocks went wrong"; }
also_kill=()
cat "$tmp/load.f" "$tmp/load.h"
! grep -q ' absent=0 ' "$tmp/load.f" || fail "the kill came too late to show anything"
! grep -q '^present=0 ' "$tmp/load.f" || fail "nothing was read"
grep -q ' absent=0 ' "$tmp/load.h" || fail "a local block was absent"
start_node a --store-size 1G
wait_until 5 joined a
f_whole() {
	engine_traces verify --d "$b/n" --prefix f --files 300 --size $MIB \
		--min-present 300 >"$tmp/whole" 2>&1
}
wait_until 10 f_whole

echo "== a node that is stopped blocks nobody beyond the deadline"
engine_traces fill --d "$a/n" --prefix s --files 16 --size $MIB
sync "$a/n"
kill -STOP "${pid[a]}"
status=0
engine_traces verify --d "$b/n" --prefix s --files 16 --size $MIB \
	--threads 16 >"$tmp/stopped" || status=$?
begin=${EPOCHREALTIME/./}
echo local >"$b/n/local" && [ "$(cat "$b/n/local")" = local ]
ls -l "$b/n" >/dev/null
local_ms=$(((${EPOCHREALTIME/./} - begin) / 1000))
kill -CONT "${pid[a]}"
cat "$tmp/stopped"
[ $status = 0 ] || fail "a read from a stopped node was wrong"
max_ms=$(sed 's/.*max_ms=//' "$tmp/stopped")
[ "$max_ms" -le 6000 ] || fail "an open took $max_ms ms"
[ $local_ms -le 5000 ] || fail "local work took $local_ms ms"
wait_until 10 joined a
wait_until 10 test -e "$b/n/s00000000.bin"
all_back() {
	engine_traces verify --d "$b/n" --prefix s --files 16 --size $MIB \
		--min-present 16 >/dev/null 2>&1
}
wait_until 10 all_back

echo "== all are killed at once, then started again"
kill9 master
kill9 a
kill9 b
start_master
start_node b --store-size 1G --no-fd-passing
start_node a --store-size 1G
wait_until 5 joined a
wait_until 5 joined b
whole() {
	engine_traces verify --d "$1/n" --files 64 --size $MIB \
		--min-present 64 >"$tmp/whole" 2>&1
}
wait_until 10 whole "$a"
wait_until 10 whole "$b"
[ ! -e "$a/del/1" ] || fail "a deleted key is back"
same "$tmp/del.4" "$a/del/2" || fail "an overwritten key is back"
pass
