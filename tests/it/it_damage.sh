#!/bin/bash
# Copies that go bad on a running store: readers get whole objects from the
# others, report it to the store, which keeps the bad ones aside, and the copies
# are made again.
# modes: both
# limit: 120
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need jq curl setfattr sha256sum

KEYS=20 SIZE=100000

repair() { status_json master ".repair.$1"; } # FIGURE
whole() { [ "$(repair endangered)" = 0 ]; }
copies() { # the sums of all files in the stores (some go meanwhile)
	find "${store[a]}" "${store[b]}" "${store[c]}" -type f \
		-regextype egrep -regex '.*/[0-9a-f]{16}' -print0 |
		xargs -0 sha256sum 2>/dev/null | cut -d' ' -f1 | sort
}
whole_copies() { # how many keys have two right copies
	copies | uniq -c | awk '$1 >= 2 { print $2 }' |
		grep -cFf - <(cut -d' ' -f1 "$tmp/sums")
}
all_whole() { whole && [ "$(whole_copies)" = $KEYS ]; }
damaged() { metric "${admin[a]}" kvpool_node_damaged_total; }

start_master --heartbeat 500ms
for n in a b c; do
	start_node $n --no-mount --store-size 64M --no-fd-passing --hot-gets 0
done
for n in w r1 r2; do # r1 and r2 follow each other: they ask different holders
	start_node $n --store-size 0 --buffer-size 32M --no-fd-passing
done

echo "== two copies of each object"
mkdir "${mount[w]}/d"
setfattr -n user.kvpool.replicas -v 2 "${mount[w]}/d"
for ((i = 0; i < KEYS; i++)); do
	head -c $SIZE /dev/urandom >"${mount[w]}/d/k$i"
done
sync "${mount[w]}/d"
(cd "${mount[w]}/d" && sha256sum k*) >"$tmp/sums"
wait_until 20 all_whole

echo "== all that a has is damaged: bytes, lengths, or gone"
files=($(find "${store[a]}" -type f -size ${SIZE}c | sort))
[ ${#files[@]} -ge 4 ] || fail "a has ${#files[@]} copies only"
truncate -s 5000 "${files[0]}"
rm "${files[1]}"
for f in "${files[@]:2}"; do
	byte=$(od -An -tu1 -j 5000 -N 1 "$f")
	printf "\\x$(printf %x $((byte ^ 1)))" |
		dd of="$f" bs=1 seek=5000 conv=notrunc,nocreat status=none
done
[ "$(whole_copies)" -lt $KEYS ] || fail "nothing was damaged"

echo "== two readers get all of it, right"
for n in r1 r2; do
	(cd "${mount[$n]}/d" && sha256sum --quiet -c "$tmp/sums") ||
		fail "$n has read something else"
done

echo "== the copies are made again, and what was damaged is kept aside"
wait_until 30 all_whole
[ "$(damaged)" = ${#files[@]} ] ||
	fail "$(damaged) of ${#files[@]} damaged copies were found"
aside=$(metric "${admin[a]}" kvpool_store_quarantined_total)
[ "$aside" = $((${#files[@]} - 1)) ] || fail "$aside were to be kept aside"
aside=$((aside - $(metric "${admin[a]}" kvpool_store_quarantine_full_total)))
[ "$aside" -ge 3 ] && [ "$(find "${store[a]}" -name 'bad-*' | wc -l)" = $aside ] ||
	fail "not kept aside: $(ls "${store[a]}")"
[ "$(metric "${admin[master]}" kvpool_master_copies_damaged_total)" = ${#files[@]} ] ||
	fail "the master counted another number of damaged copies"
[ "$(metric "${admin[a]}" kvpool_node_doubts_unfounded_total)" = 0 ] ||
	fail "right copies were doubted"
for n in b c; do
	[ "$(metric "${admin[$n]}" kvpool_node_doubts_total)" = 0 ] ||
		fail "$n was doubted"
done

echo "== a mount whose own file is gone has it from elsewhere"
start_node own --store-size 64M --no-fd-passing
cp "${mount[r1]}/d/k0" "$tmp/k0"
cp "$tmp/k0" "${mount[own]}/d/own"
sync "${mount[own]}/d"
two_copies() {
	[ "$(http "${admin[master]}/api/objects?prefix=d/own" |
		jq '.objects[0].replicas')" = 2 ]
}
wait_until 20 two_copies
rm "$(find "${store[own]}" -type f -size ${SIZE}c)"
wait_until 10 cmp -s "$tmp/k0" "${mount[own]}/d/own"
[ "$(metric "${admin[own]}" kvpool_node_damaged_total)" = 1 ] ||
	fail "it was not found to be gone"
wait_until 20 two_copies
rm "${mount[own]}/d/own"
stop own

echo "== a transport that damages makes no copy bad"
stop r1
stop r2
start_node r1 --store-size 0 --buffer-size 32M --no-fd-passing
before=$(metric "${admin[master]}" kvpool_master_copies_damaged_total)
stop b
start_node b --no-mount --store-size 64M --no-fd-passing --allow-faults
stop c
start_node c --no-mount --store-size 64M --no-fd-passing --allow-faults
wait_until 20 all_whole
for n in b c; do
	kvpool fault corrupt --admin "${admin[$n]}" >/dev/null
done
(cd "${mount[r1]}/d" && cat k* >/dev/null 2>&1) || : # misses are right
doubts() {
	echo $(($(metric "${admin[b]}" kvpool_node_doubts_total) +
		$(metric "${admin[c]}" kvpool_node_doubts_total)))
}
unfounded() {
	echo $(($(metric "${admin[b]}" kvpool_node_doubts_unfounded_total) +
		$(metric "${admin[c]}" kvpool_node_doubts_unfounded_total)))
}
[ "$(doubts)" -gt 0 ] || fail "nobody was doubted"
all_checked() { [ "$(doubts)" = "$(unfounded)" ]; }
wait_until 20 all_checked
for n in b c; do
	kvpool fault clear --admin "${admin[$n]}" >/dev/null
done
[ "$(metric "${admin[master]}" kvpool_master_copies_damaged_total)" = "$before" ] ||
	fail "right copies were withdrawn"
wait_until 20 all_whole
pass
