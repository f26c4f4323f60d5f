#!/bin/bash
# Figures add up (struct node_counters in pool/node/node_priv.h, and struct fs): each look-up, open,
# fetch and copy is counted once, under one heading, on nodes in use whose stores
# are too small for it all.
# modes: both
# limit: 120
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_accounting.sh"
need_fuse

start_master
start_node a --store-size 64M
start_node b --store-size 64M --no-fd-passing --prefetch 0
a=${mount[a]} b=${mount[b]}
random() { head -c "$1" /dev/urandom; }

echo "== look-ups and opens: as many as there were, each under its heading"
mkdir "$a/d"
for i in {1..20}; do random 100000 >"$a/d/$i"; done
sync "$a/d"
ls "$b" >/dev/null # its directory is looked up
[ -d "$b/d" ]
asked() { # NODE HITS-LOCAL HITS-PEER MISSES OPENS-LOCAL OPENS-REMOTE, since before
	equal "$1: hits, local" $(($(M "$1" 'lookup_hits_total{bytes="local"}') - ${was[0]})) "$2"
	equal "$1: hits, peer" $(($(M "$1" 'lookup_hits_total{bytes="peer"}') - ${was[1]})) "$3"
	equal "$1: misses" $(($(M "$1" lookup_misses_total) - ${was[2]})) "$4"
	equal "$1: opens, local" $(($(opens "$1" local) - ${was[3]})) "$5"
	equal "$1: opens, remote" $(($(opens "$1" remote) - ${was[4]})) "$6"
}
before() { # NODE
	was=("$(M "$1" 'lookup_hits_total{bytes="local"}')"
		"$(M "$1" 'lookup_hits_total{bytes="peer"}')"
		"$(M "$1" lookup_misses_total)" "$(opens "$1" local)"
		"$(opens "$1" remote)")
}
before b
for i in {1..20}; do cat "$b/d/$i" >/dev/null; done
for i in {1..15}; do [ ! -e "$b/d/none$i" ]; done
for i in {1..10}; do cat "$b/d/$i" >/dev/null; done # the kernel knows the names
asked b 0 20 15 10 20

echo "== an open that fails, as its only copy is away"
random 1000 >"$a/d/away"
sync "$a/d"
failed=$(opens b failed)
kill -STOP "${pid[a]}"
! cat "$b/d/away" 2>/dev/null || fail "it was read"
kill -CONT "${pid[a]}"
equal "b: opens, failed" $(($(opens b failed) - failed)) 1

echo "== beyond what the stores hold: evicted, some of it unread; replaced, removed"
for i in {1..60}; do
	random 2000000 >"$a/d/big$i"
	[ $((i % 3)) != 0 ] || cat "$a/d/big$i" >/dev/null
	[ $((i % 4)) != 0 ] || cat "$b/d/big$i" >/dev/null 2>&1 || :
done
for i in {1..10}; do
	random 1000 >"$a/d/new$i"
	cp "$a/d/new$i" "$a/d/tmp$i"
	mv "$a/d/tmp$i" "$a/d/new$i"
done
sync "$a/d"
rm "$a"/d/new{1..5}
mv "$a/d/new6" "$a/d/moved"
sync "$a/d"
[ "$(M a evicted_unread_total)" -gt 0 ] || fail "nothing was evicted unread"
removed=$(($(M a 'copies_ended_total{cause="removed"}') + \
	$(M b 'copies_ended_total{cause="removed"}')))
[ $removed -gt 0 ] || fail "nothing was removed"
for n in a b; do wait_until 10 at_rest $n; done
for n in a b; do adds_up $n; done
equal "b: look-ahead fetches" "$(M b prefetch_started_total)" 0

echo "== borrowed, and returned as the store evicts"
rm "$a"/d/*
sync "$a/d"
start_node c --store-size 0 --buffer-size 16M
for i in {1..8}; do random 1000000 >"$a/d/lent$i"; done
sync "$a/d"
for i in {1..8}; do cmp "$a/d/lent$i" "${mount[c]}/d/lent$i"; done
[ "$(M c borrowed_objects)" -gt 0 ] || fail "nothing was lent"
for i in {1..60}; do random 2000000 >"$a/d/more$i"; done
sync "$a/d"
returned() { [ "$(M c evicted_recalled_total)" -gt 0 ]; }
wait_until 20 returned
for n in a c; do wait_until 10 at_rest $n; done
for n in a c; do adds_up $n; done
pass
