#!/bin/bash
# Figures add up (struct node_counters in pool/node/node_priv.h, and struct fs): each look-up, open,
# fetch and copy is counted once, under one heading, on two nodes in use whose stores
# are too small for it all.
# modes: both
# limit: 120
. "$(dirname "$0")/../lib/lib.sh"
need_fuse

# Figures that are compared with each other are of one moment: of one page.
at_once= # "": each figure is asked for; else the page that has them
page() { # NODE
	if [ -n "$at_once" ]; then cat "$at_once"; else http "${admin[$1]}/metrics"; fi
}
value() { # NODE NAME
	page "$1" | awk -v n="$2" '$1 == n { print $2; found = 1 } END { exit !found }'
}
M() { # NODE FIGURE: of kvpool_node_FIGURE
	value "$1" "kvpool_node_$2"
}
labelled() { # NODE FIGURE: the sum of all its labels
	page "$1" | awk -v f="kvpool_node_$2{" '
		index($1, f) == 1 { sum += $2; n++ } END { print n ? sum : "none" }'
}

opens() { # NODE RESULT
	value "$1" "kvpool_fuse_opens_total{result=\"$2\"}"
}

equal() { # WHAT A B
	[ "$2" = "$3" ] || fail "$1: $2, not $3"
	echo "   $1: $2"
}

adds_up() { # NODE: what holds at any time
	page "$1" >"$tmp/page"
	at_once=$tmp/page
	equal "$1: fetches, by source" "$(labelled "$1" fetches_by_source_total)" \
		"$(M "$1" fetches_total)"
	equal "$1: copies, here and ended" "$(M "$1" copies_total)" \
		$(($(labelled "$1" copies_ended_total) + $(M "$1" objects) + \
			$(M "$1" cached_objects)))
	equal "$1: fetches that began at a look-up" \
		"$(M "$1" prefetch_started_total)" \
		$(($(M "$1" prefetch_useful_total) + $(M "$1" prefetch_wasted_total)))
	equal "$1: opens, as many as the kernel asked for" \
		$(($(opens "$1" local) + $(opens "$1" remote) + \
			$(opens "$1" failed) + $(opens "$1" interrupted) + \
			$(value "$1" kvpool_fuse_stale_opens_total))) \
		"$(value "$1" 'kvpool_fuse_requests_total{op="open"}')"
	[ "$(M "$1" evicted_unread_total)" -le \
		"$(M "$1" 'copies_ended_total{cause="evicted"}')" ] ||
		fail "$1: more evicted unread than evicted"
	at_once=
}

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
settled() {
	[ "$(M a pending_changes)" = 0 ] && [ "$(M b pending_changes)" = 0 ] &&
		[ "$(M a unpublished_files)" = 0 ]
}
wait_until 10 settled
for n in a b; do adds_up $n; done
equal "b: look-ahead fetches" "$(M b prefetch_started_total)" 0

echo "== evictions by cause are among the copies evicted"
for n in a b; do
	causes=$(($(M $n evicted_cached_total) + $(M $n evicted_granted_total) + \
		$(M $n evicted_alone_total)))
	all=$(M $n 'copies_ended_total{cause="evicted"}')
	[ $causes -le "$all" ] || fail "$n: $causes of $all evicted copies"
	echo "   $n: evicted, by cause: $causes of $all"
done
pass
