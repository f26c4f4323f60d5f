#!/bin/bash
# Which objects are stored and which are evicted: two equal stores, filled through
# the mount of one.
# modes: both
# limit: 240
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need engine_traces jq curl getfattr setfattr df

MIB=1048576
count=(--files 230 --size $MIB)	# 1.8 times one store

master_metric() { metric "${admin[master]}" "kvpool_master_$1"; }

# put FILE: /dev/urandom's MiB by temp + rename; fails with the file away.
put() {
	if { cp "$tmp/mib" "$1.tmp" && mv "$1.tmp" "$1"; } 2>"$tmp/put.err"; then
		return 0
	fi
	rm -f "$1.tmp"
	return 1
}

# Bytes that `df` calls available.
avail() { df -B1 --output=avail "${mount[a]}" | tail -n1; }

# df_says PERCENT_LOW PERCENT_HIGH: of the 256 MiB of the pool.
df_says() {
	local a
	a=$(($(avail) * 100 / (256 * MIB)))
	[ "$a" -ge "$1" ] && [ "$a" -le "$2" ]
}

head -c $MIB /dev/urandom >"$tmp/mib"
start_master
start_node a --store-size 128M
start_node b --store-size 128M

echo "== one mount writes 1.8 times its own store: no key is lost"
# (a learns of b from the master.)
wait_until 5 df_says 99 100
mkdir "${mount[a]}/d"
engine_traces fill --d "${mount[a]}/d" "${count[@]}"
sync "${mount[a]}/d"
for n in a b; do
	engine_traces verify --d "${mount[$n]}/d" "${count[@]}" --min-present 230
done
[ "$(master_metric 'evictions_total{verdict="last"}')" = 0 ] ||
	fail "a last copy was evicted with room elsewhere"
[ "$(master_metric moves_total)" -ge 90 ] || fail "nothing was moved"

echo "== what is evictable counts as available"
wait_until 5 df_says 95 100

echo "== what is open, mapped or pinned stays when the pool overflows"
mkdir "${mount[a]}/keep"
for f in open hard; do put "${mount[a]}/keep/$f"; done
cp /bin/sleep "${mount[a]}/keep/mapped.tmp"
mv "${mount[a]}/keep/mapped.tmp" "${mount[a]}/keep/mapped"
chmod 755 "${mount[a]}/keep/mapped"
sync "${mount[a]}/keep"
exec 8<"${mount[a]}/keep/open"
"${mount[a]}/keep/mapped" 1000 &
mapped_pid=$!
also_kill+=("$mapped_pid")
setfattr -n user.kvpool.pin -v hard "${mount[a]}/keep/hard"
sleep 6	# what was looked up is evicted last, for 5 s (NODE_LEASE_MS)
for i in {1..5}; do
	engine_traces fill --d "${mount[a]}/d" --prefix "flood$i-" \
		--files 80 --size $MIB
done
[ "$(master_metric 'evictions_total{verdict="last"}')" -ge 300 ] ||
	fail "the pool did not overflow"
engine_traces verify --d "${mount[b]}/d" "${count[@]}" | tee "$tmp/verify"
[[ $(cat "$tmp/verify") != "present=230 "* ]] || fail "nothing had to go"
for n in a b; do
	cmp "$tmp/mib" "${mount[$n]}/keep/open" || fail "the open one is gone"
	cmp "$tmp/mib" "${mount[$n]}/keep/hard" || fail "the pinned one is gone"
	cmp /bin/sleep "${mount[$n]}/keep/mapped" || fail "the mapped one is gone"
done
cmp "$tmp/mib" - <&8 || fail "an open file changed"
kill -0 "$mapped_pid" || fail "a program run from the mount died"
exec 8<&-
kill -KILL "$mapped_pid"
wait "$mapped_pid" 2>/dev/null || :
also_kill=()

echo "== deleting gives the room back"
# -f: what has to go may go while rm looks.
rm -rf "${mount[a]}/d" "${mount[a]}/keep"
all_free() {
	[ "$(http "${admin[master]}/api/nodes" | jq '[.nodes[].used] | add')" \
		-lt $((20 * MIB)) ]
}
wait_until 10 all_free

echo "== noevict: ENOSPC instead of eviction, nothing accepted is lost"
mkdir "${mount[a]}/n"
setfattr -n user.kvpool.class -v noevict "${mount[a]}/n"
for i in {0..260}; do
	put "${mount[a]}/n/$i" || break
done
grep -q 'No space left' "$tmp/put.err" || fail "not ENOSPC: $(cat "$tmp/put.err")"
echo "   $i of 256 MiB taken"
[ "$i" -ge 230 ] && [ "$i" -le 256 ] || fail "$i MiB were taken"
[ ! -e "${mount[a]}/n/$i" ] || fail "a file whose write failed is there"
for ((k = 0; k < i; k++)); do
	cmp -s "$tmp/mib" "${mount[b]}/n/$k" || fail "n/$k is not there or wrong"
done
wait_until 10 df_says 0 10
# Without a temporary: nothing is left of the file, and its name may be used.
for k in {1..16}; do
	cp "$tmp/mib" "${mount[a]}/n/direct$k" 2>"$tmp/direct.err" || break
done
grep -q 'No space left' "$tmp/direct.err" || fail "a full pool took $k files"
# (The kernel is notified after the close has failed.)
not_there() { [ ! -e "${mount[a]}/n/direct$k" ]; }
wait_until 2 not_there
: >"${mount[a]}/n/direct$k"
[ -f "${mount[a]}/n/direct$k" ] || fail "an empty file could not be made"
rm "${mount[a]}/n"/direct*

echo "== and says so soon, each time"
for k in {400..404}; do
	begin=${EPOCHREALTIME/./}
	! put "${mount[a]}/n/$k" || rm "${mount[a]}/n/$k"
	took=$(((${EPOCHREALTIME/./} - begin) / 1000))
	echo "   $took ms"
	[ "$took" -lt 8000 ] || fail "a put into a full pool took $took ms"
done

echo "== and deleting makes room for puts"
for k in {0..15}; do rm "${mount[a]}/n/$k"; done
for k in {300..307}; do
	wait_until 15 put "${mount[a]}/n/$k"
	sync "${mount[a]}/n"
	cmp "$tmp/mib" "${mount[b]}/n/$k"
done
rm -r "${mount[a]}/n"
wait_until 10 all_free

echo "== one byte far beyond the store holds nothing up"
mkdir "${mount[a]}/sparse"
printf x | dd of="${mount[a]}/sparse/far" bs=1 seek=1T conv=notrunc \
	2>"$tmp/dd.err" || grep -q 'File too large' "$tmp/dd.err"
put "${mount[a]}/sparse/next"
sync "${mount[a]}/sparse" 2>"$tmp/sync.err" ||
	grep -q 'File too large' "$tmp/sync.err" || fail "$(cat "$tmp/sync.err")"
sync "${mount[a]}/sparse"
cmp "$tmp/mib" "${mount[b]}/sparse/next"
[ ! -e "${mount[a]}/sparse/far" ] || fail "a file larger than the store is there"
rm -r "${mount[a]}/sparse"

echo "== a store full of pinned data takes puts while the other has room"
mkdir "${mount[a]}/hard" "${mount[a]}/soft"
setfattr -n user.kvpool.pin -v hard "${mount[a]}/hard"
for i in {0..140}; do
	put "${mount[a]}/hard/$i" || break
	[ "$(http "${admin[master]}/api/nodes" | jq '[.nodes[].used] | max')" -lt $((126 * MIB)) ] ||
		break
done
for k in {0..39}; do
	put "${mount[a]}/soft/$k" || fail "put $k beside $i pinned ones: $(cat "$tmp/put.err")"
done
sync "${mount[a]}/soft"
for ((k = 0; k < i; k++)); do
	cmp -s "$tmp/mib" "${mount[a]}/hard/$k" || fail "hard/$k is not there or wrong"
done
for k in {0..39}; do
	cmp -s "$tmp/mib" "${mount[b]}/soft/$k" || fail "soft/$k is not there or wrong"
done
rm -rf "${mount[a]}/soft"

echo "== and more pinned data, and an object as large as the headroom"
for i in {141..199}; do
	put "${mount[a]}/hard/$i" || fail "put $i: $(cat "$tmp/put.err")"
done
sync "${mount[a]}/hard"
head -c $((40 * MIB)) /dev/urandom >"$tmp/large"
# Pinned, too: no store has so much left in one piece, and it would be the last
# copy of something that may go.
cp "$tmp/large" "${mount[a]}/hard/large" || fail "no room for it"
sync "${mount[a]}/hard"
cmp "$tmp/large" "${mount[b]}/hard/large" || fail "it is not there or wrong"
for i in {141..199}; do
	cmp -s "$tmp/mib" "${mount[b]}/hard/$i" || fail "hard/$i is not there or wrong"
done
# 2 % may stay in the headroom.
not_over() { [ "$(metric "${admin[a]}" kvpool_node_store_used_bytes)" -le $((132 * MIB)) ]; }
wait_until 10 not_over
rm -rf "${mount[a]}/hard"
wait_until 10 all_free

echo "== objects as large as a quarter of a store move, too"
head -c $((30 * MIB)) /dev/urandom >"$tmp/large"
mkdir "${mount[a]}/l"
before=$(master_metric 'evictions_total{verdict="last"}')
for i in {1..5}; do
	cp "$tmp/large" "${mount[a]}/l/$i" || fail "l/$i could not be written"
	sync "${mount[a]}/l"
done
[ "$(master_metric 'evictions_total{verdict="last"}')" = "$before" ] ||
	fail "a last copy was evicted with room elsewhere"
for i in {1..5}; do
	cmp "$tmp/large" "${mount[b]}/l/$i" || fail "l/$i is not there or wrong"
done

echo "== what a client writes into a full pool takes the place of what is old"
start_node c --store-size 0 --buffer-size 48M
head -c $((5 * MIB)) /dev/urandom >"$tmp/five"
mkdir "${mount[c]}/c"
for i in {1..40}; do
	cp "$tmp/five" "${mount[c]}/c/$i" || fail "c/$i could not be written"
done
sync "${mount[c]}/c"
present=0
for i in {1..40}; do	# which of them go is the policy's
	[ -e "${mount[a]}/c/$i" ] || continue
	cmp "$tmp/five" "${mount[a]}/c/$i" || fail "c/$i is wrong"
	present=$((present + 1))
done
echo "   $present of 40 are there"
[ $present -ge 5 ] || fail "what a client has written is not kept"
pass
