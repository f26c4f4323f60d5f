#!/bin/bash
# Figures add up (struct node_counters in pool/node/node_priv.h, and struct fs): each look-up, open,
# fetch and copy is counted once, under one heading, on nodes in use whose stores
# are too small for it all.
# modes: both
# limit: 120
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_accounting.sh"
need_fuse

start_master --heartbeat 500ms
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

echo "== directories: together what the mounts did; each what was asked of it, and could have hit"
directory() { # NAME JQ-FILTER
	jq -r --arg n "$1" ".directories[] | select(.name == \$n) | $2" "$tmp/directories"
}
of_mounts() { # FIGURE...: the sum of these of all nodes
	local n f sum=0
	for n in a b c; do
		for f in "$@"; do sum=$((sum + $(M $n "$f"))); done
	done
	echo $sum
}
directories_add_up() {
	local w
	http "${admin[master]}/api/directories" >"$tmp/directories" || return 1
	http "${admin[master]}/api/status" >"$tmp/status" || return 1
	for w in 15m 1h 24h; do
		all=$(jq -c "[.directories[].asked[\"$w\"]] |
			[(map(.lookups) | add), (map(.hits) | add), (map(.loaded_bytes) | add)]" "$tmp/directories")
		[ "$all" = "[$lookups,$hits,$loaded]" ] || return 1
		[ "$(jq -c "[.asked[\"$w\"] | .lookups, .hits]" "$tmp/status")" = "[$lookups,$hits]" ] ||
			return 1
	done
}
reported() { # all reports have arrived
	hits=$(of_mounts 'lookup_hits_total{bytes="local"}' 'lookup_hits_total{bytes="peer"}')
	lookups=$((hits + $(of_mounts lookup_misses_total)))
	loaded=$(of_mounts loaded_bytes_total)
	wait_until 20 directories_add_up
	echo "   look-ups, hits and bytes loaded of all directories: $all"
}
near() { # WHAT GOT WANT NAMES: by an estimate of so many names, within five standard errors
	[ $((100 * ($2 > $3 ? $2 - $3 : $3 - $2))) -le $((25 * $4)) ] ||
		fail "$1: $2, not about $3"
	echo "   $1: $2 (about $3)"
}
mkdir "$a/one" "$a/two"
for i in {1..10}; do random 100000 >"$a/one/file$i"; done
sync "$a/one"
wait_until 10 test -d "$b/two"
reported
one=($(directory one '.lookups, .hits, .loaded_bytes'))
before=($lookups $hits $loaded)
for d in one two; do
	for i in {1..300}; do [ ! -e "$a/$d/none$i" ]; done
done
for i in {1..300}; do [ ! -e "$b/one/none$i" ]; done # the same names
for i in {301..600}; do [ ! -e "$b/two/none$i" ]; done # others
for i in {1..10}; do cat "$a/one/file$i" >/dev/null; done # the kernel may know the names
for i in {1..5}; do cat "$b/one/file$i" >/dev/null; done
: >>"$a/one/file1" # nothing is read
reported
equal "bytes loaded" $((loaded - before[2])) 1500000
equal "one: bytes loaded" "$(directory one .loaded_bytes)" $((one[2] + 1500000))
equal "one: look-ups" "$(directory one .lookups)" $((one[0] + lookups - before[0] - 600))
[ "$(directory one .lookups)" -ge $((one[0] + 605)) ] || fail "look-ups are missing"
equal "one: hits" "$(directory one .hits)" $((one[1] + hits - before[1]))
equal "two: bytes loaded" "$(directory two .loaded_bytes)" 0
equal "two: look-ups" "$(directory two .lookups)" 600
equal "two: hits" "$(directory two .hits)" 0
for w in 15m 1h 24h; do
	near "one: names in $w" "$(directory one ".asked[\"$w\"].names")" 310 310
	near "two: names in $w" "$(directory two ".asked[\"$w\"].names")" 600 600
	# What both nodes asked for could have been a hit the second time.
	near "one: best hits in $w" "$(directory one ".asked[\"$w\"].best_hits")" \
		$(($(directory one .lookups) - 310)) 310
	near "two: best hits in $w" "$(directory two ".asked[\"$w\"].best_hits")" 0 600
done
equal "one: best hits" "$(directory one .best_hits)" "$(directory one '.asked["1h"].best_hits')"
pass
