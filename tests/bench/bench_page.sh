#!/bin/bash
# Turns of the master's event loop with many keys, without the web page and with it: as
# many readers as PAGES ask what open pages ask, and each looks for objects, too.
#   KVTEST_KEYS=1000000 KVTEST_PAGES=5 KVTEST_SECONDS=30
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need curl

keys=${KVTEST_KEYS:-1000000} pages=${KVTEST_PAGES:-5} seconds=${KVTEST_SECONDS:-30}
start_master
# An object takes a page.
start_node c --no-fd-passing --store-size $((keys * 4400 + (1 << 30)))
for ((i = 0; i < 300; i++)); do # more than have sums of their own
	mkdir "${mount[c]}/top$i"
	echo $i >"${mount[c]}/top$i/file"
done
sync "${mount[c]}"
library_ask "${listen[master]}" fill "$keys"

turns() { # "BOUND COUNT" of each bucket, cumulative
	http "${admin[master]}/metrics" | sed -n 's/^kvpool_master_loop_turn_seconds_bucket{le="\(.*\)"} /\1 /p'
}
ask() { curl -sf --max-time 10 -o /dev/null -w '%{time_total}\n' "http://${admin[master]}/api/$1"; }
page() { # asks as daemon/web/app.js does, and for objects; prints what each answer took
	local round
	for ((round = 0; round * 2 < seconds; round++)); do
		ask status && ask nodes && ask "objects?limit=50&prefix=top$round"
		ask "events?since=0" && ask "objects?limit=50&prefix="
		((round % 5)) || ask directories
		sleep 2
	done
}
report() { # WHAT BEFORE AFTER
	paste -d' ' "$2" "$3" | awk -v what="$1" '
		$4 - $2 > n { n = $4 - $2; most = $3 }
		END { printf "%s: %d turns, none longer than %s s\n", what, n, most }'
}

echo "(CPUs $(nproc), load $(cut -d' ' -f1 /proc/loadavg); $keys keys, $pages pages, $seconds s each)"
turns >"$tmp/1"
sleep "$seconds"
turns >"$tmp/2"
for ((i = 0; i < pages; i++)); do page >"$tmp/page.$i" & readers[i]=$!; done
wait "${readers[@]}"
turns >"$tmp/3"
report "without the page" "$tmp/1" "$tmp/2"
report "with it         " "$tmp/2" "$tmp/3"
sort -g "$tmp"/page.* | awk '{ t[NR] = $1 } END { printf "%d answers: median %.1f ms, longest %.1f ms\n",
	NR, 1000 * t[int((NR + 1) / 2)], 1000 * t[NR] }'
stop_all
