#!/bin/bash
# Faults that a daemon is asked for: only where they are allowed, and readers
# never see more of them than a miss.
# limit: 90
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need curl cmp

fault() { # NAME ARGUMENT...
	kvpool fault "${@:2}" --admin "${admin[$1]}" >"$tmp/fault.out" 2>&1
}

injected() { # NAME KIND
	metric "${admin[$1]}" "kvpool_faults_injected_total{kind=\"$2\"}"
}

start_master
start_node a --no-fd-passing --allow-faults
start_node b --no-fd-passing
a=${mount[a]} b=${mount[b]}
mkdir "$a/d"

echo "== only where they are allowed, and only what makes sense"
! fault b reset || fail "b was not started with --allow-faults"
grep -q 'start the program with --allow-faults' "$tmp/fault.out" ||
	fail "refused without the remedy: $(cat "$tmp/fault.out")"
! fault a delay || fail "a delay of no time"
grep -q '400 delay: ' "$tmp/fault.out" || fail "$(cat "$tmp/fault.out")"
! fault a reset --nth 0 || fail "the 0th message"
! fault a explode || fail "an unknown kind"
for q in 'kind=reset&pear=all' 'clear=yes&a=b'; do
	code=$(curl -s -o "$tmp/page" -w '%{http_code}' --noproxy '*' -X POST \
		"http://${admin[a]}/api/faults?$q")
	[ "$code" = 400 ] && grep -q 'accepted: clear, kind, peer' "$tmp/page" ||
		fail "POST $q: $code $(cat "$tmp/page")"
done
[ "$(curl -s -o /dev/null -w '%{http_code}' --noproxy '*' \
	"http://${admin[a]}/api/faults?clear=yes")" = 400 ] || fail "GET clears nothing"
fault a clear || fail "$(cat "$tmp/fault.out")"
fault a reset --peer 192.0.2.1:7 --direction receive --probability 0.5 &&
	fault a delay --delay 1s --peer 192.0.2.1 --nth 7 && fault a ||
	fail "$(cat "$tmp/fault.out")"
[ "$(grep -c '^192[.]0[.]2[.]1' "$tmp/fault.out")" = 2 ] ||
	fail "$(cat "$tmp/fault.out")"
fault a clear
[ "$(curl -s -o /dev/null -w '%{http_code}' -X POST "http://${admin[a]}/api/status")" = 405 ] ||
	fail "a POST of a page that has none"

# Every reader gets the whole object or a miss; without faults, the object.
for kind in corrupt reset drop; do
	echo "== $kind: a miss at worst, and the object when it is over"
	for size in 100000 3000000; do
		f=$kind.$size
		head -c $size /dev/urandom >"$tmp/src"
		cp "$tmp/src" "$a/d/$f"
		sync "$a/d"
		before=$(injected a $kind)
		fault a $kind || fail "$(cat "$tmp/fault.out")"
		if cat "$b/d/$f" >"$tmp/got" 2>/dev/null; then
			cmp "$tmp/src" "$tmp/got" || fail "wrong bytes were served"
		fi
		[ "$(injected a $kind)" -gt "$before" ] || fail "no $kind happened"
		fault a clear
		wait_until 20 cmp -s "$tmp/src" "$b/d/$f"
	done
done

echo "== delay: later, but whole"
head -c 3000000 /dev/urandom >"$tmp/src"
cp "$tmp/src" "$a/d/delay"
sync "$a/d"
fault a delay --delay 50ms --direction both
wait_until 20 cmp -s "$tmp/src" "$b/d/delay"
[ "$(injected a delay)" -gt 0 ] || fail "no delay happened"
fault a
grep -q '^all  *both  *delay' "$tmp/fault.out" || fail "$(cat "$tmp/fault.out")"
fault a clear
pass
