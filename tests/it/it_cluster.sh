#!/bin/bash
# What one node writes is there for the others: visibility, replicas, transfers
# between nodes on separate addresses, and probes that ask nobody.
# modes: both
# limit: 180
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need jq curl getfattr setfattr cmp

# at NAME ADDRESS: the node will be there (start_node takes it from here).
at() {
	free_port; listen[$1]=$2:$port
	free_port; admin[$1]=$2:$port
	store[$1]=$tmp/$1.store
}

A() { metric "${admin[a]}" "kvpool_$1"; }
C() { metric "${admin[c]}" "kvpool_$1"; }

attr() { # NAME FILE: a computed attribute
	getfattr --only-values -n "user.kvpool.$1" "$2" 2>/dev/null
}

has_attr() { [ "$(attr "$1" "$2")" = "$3" ]; } # NAME FILE VALUE

same() { cmp -s "$1" "$2"; }

# Messages that the master handled, but heartbeats and acknowledgements.
asked() {
	http "${admin[master]}/metrics" | awk '
		/^kvpool_master_requests_total/ &&
		!/"(heartbeat|feed_ack)"/ { n += $2 } END { print n }'
}

random() { head -c "$1" /dev/urandom; }

at a 127.0.0.2
at b 127.0.0.3
at c 127.0.0.4
start_master
start_node a --store-size 384M
start_node b --store-size 384M
start_node c --store-size 256M --no-fd-passing --prefetch 128
a=${mount[a]} b=${mount[b]} c=${mount[c]}
mkdir "$a/d"
sync "$a/d"

echo "== closed: there for another mount within a second"
worst=0
for i in {1..20}; do
	random 200000 >"$tmp/src"
	[ ! -e "$b/d/v$i" ]	# remembered as missing
	cp "$tmp/src" "$a/d/v$i"
	begin=${EPOCHREALTIME/./}
	wait_until 1 same "$tmp/src" "$b/d/v$i"
	took=$((${EPOCHREALTIME/./} - begin))
	[ $took -le $worst ] || worst=$took
done
echo "   within $((worst / 1000)) ms of 20 times"

echo "== fsync of the directory: there at once"
for i in {1..20}; do
	random 300000 >"$tmp/src"
	cp "$tmp/src" "$a/d/s$i"
	sync "$a/d"
	same "$tmp/src" "$b/d/s$i" || fail "s$i is not at b after the fsync"
	same "$tmp/src" "$c/d/s$i" || fail "s$i is not at c after the fsync"
done

echo "== a temporary name is private, its rename publishes"
random 500000 >"$tmp/src"
cp "$tmp/src" "$a/d/r.tmp"
sync "$a/d"
[ ! -e "$b/d/r.tmp" ] || fail "another mount sees a temporary"
mv "$a/d/r.tmp" "$a/d/r"
sync "$a/d"
same "$tmp/src" "$b/d/r" || fail "not there after its rename"
random 400000 >"$tmp/src2"
cp "$tmp/src2" "$b/d/r.tmp"
mv "$b/d/r.tmp" "$b/d/r"
sync "$b/d"
wait_until 1 same "$tmp/src2" "$a/d/r"

echo "== the checksum is the content's XXH3-128"
if command -v xxhsum >/dev/null; then
	want=$(xxhsum -q -H2 "$tmp/src2" | awk '{ print $1 }')
	for n in a b c; do
		[ "$(attr checksum "${mount[$n]}/d/r")" = "$want" ] ||
			fail "$n says $(attr checksum "${mount[$n]}/d/r"), not $want"
	done
else
	echo "   (no xxhsum here, package xxhash: not compared)"
fi

echo "== nodes of one host pass descriptors, except with --no-fd-passing"
mkdir "$a/p"
for i in {1..8}; do random 1000000 >"$a/p/$i"; done
sync "$a/p"
before=$(metric "${admin[b]}" kvpool_node_fetch_bytes_total)
cached=$(metric "${admin[b]}" kvpool_node_cached_bytes)
for i in {1..8}; do same "$a/p/$i" "$b/p/$i"; done
[ "$(metric "${admin[b]}" kvpool_node_borrowed_objects)" -ge 8 ] ||
	fail "b borrowed nothing"
has_metric "${admin[b]}" kvpool_node_fetch_bytes_total "$before" ||
	fail "bytes were moved to b"
has_metric "${admin[b]}" kvpool_node_cached_bytes "$cached" ||
	fail "what b borrowed is taken for bytes of its store"
before=$(C node_fetch_bytes_total)
for i in {1..8}; do same "$a/p/$i" "$c/p/$i"; done
[ "$(($(C node_fetch_bytes_total) - before))" = 8000000 ] ||
	fail "$(($(C node_fetch_bytes_total) - before)) bytes were moved to c"
has_metric "${admin[c]}" kvpool_node_borrowed_objects 0 || fail "c borrowed"

echo "== replicas: whole copies on distinct nodes"
mkdir "$a/two"
setfattr -n user.kvpool.replicas -v 2 "$a/two"
for i in {1..8}; do random 700000 >"$tmp/two.$i"; cp "$tmp/two.$i" "$a/two/$i"; done
random $((64 << 20)) >"$tmp/large"
cp "$tmp/large" "$a/two/large"
for i in {1..8} large; do
	wait_until 10 has_attr holders "$a/two/$i" 2
	nodes=$(attr nodes "$a/two/$i")
	[ "$(tr , '\n' <<<"$nodes" | sort -u | wc -l)" = 2 ] ||
		fail "two/$i is at $nodes"
done

echo "== a large object comes in pieces from all its holders"
# Asked at the writer: a look-up on a node without a copy would start the fetch
# before we count.
nodes=$(attr nodes "$a/two/large")
second=b reader=$c
[[ $nodes != *c.* ]] || second=c reader=$b
[[ $nodes == *a.* && $nodes == *$second.* ]] || fail "the large one is at $nodes"
# Both are connected by then: on a busy machine that may take as long as the transfer.
for i in {1..8}; do same "$tmp/two.$i" "$reader/two/$i" || fail "wrong bytes"; done
declare -A sent=()
for n in a $second; do
	sent[$n]=$(metric "${admin[$n]}" kvpool_peer_sent_bytes_total)
done
same "$tmp/large" "$reader/two/large" || fail "wrong bytes"
for n in a $second; do
	now=$(metric "${admin[$n]}" kvpool_peer_sent_bytes_total)
	echo "   $((now - sent[$n])) bytes from $n"
	[ $((now - sent[$n])) -ge $((8 << 20)) ] || fail "too little from $n"
done

echo "== 3,600 probes ask the master nothing"
mkdir "$a/probe"
for i in {0..39}; do echo "$i" >"$a/probe/$i"; done
sync "$a/probe"
before=$(asked)
hits=0
for i in {0..3599}; do
	[ ! -e "$b/probe/$((i % 400))" ] || hits=$((hits + 1))
done
[ $hits = 360 ] || fail "$hits of 360 hits"
[ "$(asked)" = "$before" ] || fail "$(($(asked) - before)) requests"
echo x >"$a/probe/new"
sync "$a/probe"
[ "$(asked)" -gt "$before" ] || fail "the counter does not count"

echo "== a look-up that hits starts a fetch"
mkdir "$a/pre"
for i in {1..130}; do random 150000 >"$a/pre/$i"; done
sync "$a/pre"
started=$(C node_prefetch_started_total)
useful=$(C node_prefetch_useful_total)
wasted=$(C node_prefetch_wasted_total)
fetched=$(C node_fetches_total)
remote=$(C 'fuse_opens_total{result="remote"}')
for i in {1..128}; do [ -e "$c/pre/$i" ]; done
[ "$(C node_prefetch_started_total)" = $((started + 128)) ] ||
	fail "$(($(C node_prefetch_started_total) - started)) of 128 started"
wait_until 10 metric_at_least "${admin[c]}" kvpool_node_fetches_total \
	$((fetched + 128))
for i in {1..128}; do same "$a/pre/$i" "$c/pre/$i"; done
[ "$(C node_prefetch_useful_total)" = $((useful + 128)) ] ||
	fail "$(($(C node_prefetch_useful_total) - useful)) of 128 useful"
[ "$(C 'fuse_opens_total{result="remote"}')" = "$remote" ] || fail "opens had to wait"
[ -e "$c/pre/129" ] && [ -e "$c/pre/130" ]
wait_until 10 metric_at_least "${admin[c]}" kvpool_node_fetches_total \
	$((fetched + 130))
rm "$a/pre/129" "$a/pre/130"
wait_until 5 has_metric "${admin[c]}" kvpool_node_prefetch_wasted_total \
	$((wasted + 2))

echo "== a replica's holder is killed: reads go on, the copies are made again"
kill9 a
for i in {1..8}; do
	same "$tmp/two.$i" "$c/two/$i" || fail "two/$i cannot be read at c"
	same "$tmp/two.$i" "$b/two/$i" || fail "two/$i cannot be read at b"
done
has_two_without_a() {
	has_attr holders "$b/two/$1" 2 && [[ $(attr nodes "$b/two/$1") != *a.* ]]
}
for i in {1..8}; do wait_until 20 has_two_without_a "$i"; done
start_node a --store-size 384M
for i in {1..8}; do
	wait_until 5 same "$tmp/two.$i" "$a/two/$i"
done
pass
