#!/bin/bash
# What people and programs see of a pool: pages, metrics, attributes, the log.
# modes: both
# limit: 120
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need curl jq getfattr

N=25

code() { # HOST:PORT/PAGE: the HTTP status
	curl -s -o /dev/null -w '%{http_code}' --noproxy '*' --max-time 5 "http://$1" || :
}

start_master --heartbeat 500ms --summary 1s
start_node a --store-size 64M
start_node b --store-size 64M --no-fd-passing
A=${mount[a]} B=${mount[b]}

echo "== alive and ready"
for n in master a b; do
	[ "$(code "${admin[$n]}/healthz")" = 200 ] || fail "healthz of $n"
	[ "$(code "${admin[$n]}/readyz")" = 200 ] || fail "readyz of $n"
	[ "$(code "${admin[$n]}/nothing")" = 404 ] || fail "an unknown page of $n"
done

echo "== a terminal shows names, and does not act on them"
c1=$'\xc2\x9b' marks=$'\xd8\x9c\xe2\x80\x8e\xe2\x80\x8f\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xae\xe2\x81\xa6\xe2\x81\xa9'
text=$'\xc3\xa4\xe2\x80\xa6\xe2\x81\xa5'
mkdir "$A/odd"
echo x >"$A/odd/"$'\e[2J'"${c1}31m$marks"$'\n'"$text"
sync "$A/odd"
listed=$(kvpool ls odd/ --admin "${admin[a]}" | awk '{ print $NF }')
[ "$listed" = "odd/?[2J?31m?????????$text" ] || fail "it shows $(cat -v <<<"$listed")"
rm -r "$A/odd"
sync "$A"

echo "== puts, look-ups, opens and gets are counted, each one"
count() { # NODE HISTOGRAM: of all labels
	http "${admin[$1]}/metrics" | awk -v n="$2_seconds_count" '
		$1 == n || index($1, n "{") == 1 { sum += $2; found = 1 }
		END { print sum; exit !found }'
}
grew() { # NODE HISTOGRAM FROM BY
	local now
	now=$(count "$1" "$2")
	[ "$now" = $(($3 + $4)) ] || fail "$2 of $1: from $3 to $now, not by $4"
}
grown() { # the same as a condition
	[ "$(count "$1" "$2")" = $(($3 + $4)) ]
}
mkdir "$A/d"
before=$(count a kvpool_node_put)
for ((i = 0; i < N; i++)); do
	printf 'content of %d' $i >"$A/d/k$i"
done
wait_until 5 grown a kvpool_node_put "$before" $N
sync "$A/d"
grew a kvpool_node_put "$before" $N
gets=$(count b kvpool_node_get)
wait_until 5 test -e "$B/d/k$((N - 1))" # which may fetch it already

before=$(count a kvpool_fuse_lookup)
for ((i = 0; i < N; i++)); do
	[ ! -e "$A/d/none$i" ] || fail "none$i is there"
done
# (The kernel may look up the directory again, too.)
more=$(($(count a kvpool_fuse_lookup) - before - N))
[ $more -ge 0 ] && [ $more -le 2 ] || fail "$more look-ups too many"

echo "== windows of time know how often names were asked, and how many names"
asked() { # lookups|names WINDOW
	metric "${admin[a]}" "kvpool_node_window_$1{window=\"$2\"}"
}
# The estimate of few names is off by one where two share a register.
asked_more() { # WHAT LOOKUPS HITS NAMES COMMAND...: of each window
	local what=$1 lookups=$2 hits=$3 names=$4 w by
	local -A l0 h0 n0
	shift 4
	for w in 15m 1h 24h; do
		l0[$w]=$(asked lookups $w) h0[$w]=$(asked hits $w) n0[$w]=$(asked names $w)
	done
	"$@"
	for w in 15m 1h 24h; do
		by=$(($(asked hits $w) - h0[$w]))
		((by == hits)) || fail "$what: $by hits in $w, not $hits"
		by=$(($(asked lookups $w) - l0[$w]))
		((by == lookups)) || fail "$what: $by look-ups in $w, not $lookups"
		by=$(($(asked names $w) - n0[$w]))
		((by >= names - 3 && by <= names + 3)) ||
			fail "$what: $by names in $w, not $names"
	done
}
ask() { # DIRECTORY NAME: N names that are not there
	for ((i = 0; i < N; i++)); do
		[ ! -e "$1/$2$i" ] || fail "$2$i is there"
	done
}
mkdir "$A/d2"
asked_more "new names" $N 0 $N ask "$A/d" new
asked_more "the same in another directory" $N 0 $N ask "$A/d2" new
make_and_remove() {
	for ((i = 0; i < N; i++)); do
		: >"$A/d2/back$i"
		rm "$A/d2/back$i"
		[ ! -e "$A/d2/back$i" ] || fail "back$i is there"
	done
}
asked_more "names asked again" $((2 * N)) 0 $N make_and_remove
kvpool status --admin "${admin[a]}" >"$tmp/summary"
hits_line='^hits     [0-9]* of at best [0-9]* % (15m), [0-9]* of [0-9]* % (1h), [0-9]* of '
[ "$(grep '^hits' "$tmp/summary" | wc -L)" -le 80 ] || fail "too wide: $(<"$tmp/summary")"
grep -q "$hits_line" "$tmp/summary" || fail "no windows in: $(<"$tmp/summary")"

echo "== the master has those of the pool: what both asked for counts once"
ask "$B/d" new
pool_windows() { # are they those of a and b?
	local n figure w
	for n in master a b; do http "${admin[$n]}/api/status" >"$tmp/asked.$n"; done
	for w in 15m 1h 24h; do
		for figure in lookups hits; do
			jq -es --arg w $w --arg f $figure 'map(.asked[$w][$f]) | .[0] == .[1] + .[2]' \
				"$tmp/asked.master" "$tmp/asked.a" "$tmp/asked.b" || return 1
		done
		jq -es --arg w $w --argjson n $N 'map(.asked[$w].names) |
			.[0] >= .[1] + .[2] - $n - 5 and .[0] <= .[1] + .[2] - $n + 5' \
			"$tmp/asked.master" "$tmp/asked.a" "$tmp/asked.b" || return 1
	done
}
wait_until 20 pool_windows >/dev/null
kvpool status --admin "${admin[master]}" >"$tmp/summary"
grep -q "$hits_line" "$tmp/summary" || fail "no windows in: $(<"$tmp/summary")"

before=$(count a kvpool_fuse_open)
for ((i = 0; i < N; i++)); do
	read -r text <"$A/d/k$i" || :
	[ "$text" = "content of $i" ] || fail "k$i holds $text"
done
grew a kvpool_fuse_open "$before" $N

for ((i = 0; i < N; i++)); do
	cmp -s "$A/d/k$i" "$B/d/k$i" || fail "k$i differs on b"
done
wait_until 5 grown b kvpool_node_get "$gets" $N

echo "== the text at /metrics is what Prometheus accepts"
for n in master a b; do
	http "${admin[$n]}/metrics" >"$tmp/$n.metrics"
	[ -s "$tmp/$n.metrics" ] || fail "no metrics of $n"
	if command -v promtool >/dev/null; then
		promtool check metrics <"$tmp/$n.metrics" 2>&1 || fail "promtool: $n"
	fi
done
command -v promtool >/dev/null ||
	echo "   (no promtool here: the format is not checked by it)"
cmp <(grep '^# TYPE' "$tmp/a.metrics") <(grep '^# TYPE' "$A/.kvpool/metrics") ||
	fail "/.kvpool/metrics is another page"

echo "== each figure of status is a metric"
# PATH-IN-STATUS METRIC[+METRIC...]
node_figures='
store.size kvpool_node_store_size_bytes
store.used kvpool_node_store_used_bytes
store.free kvpool_node_store_free_bytes
store.ready kvpool_node_store_ready_bytes
store.evictable kvpool_node_evictable_bytes
master.epoch kvpool_node_master_epoch
master.cut_off_ms kvpool_node_cut_off_seconds
master.clock_ahead_ms -
objects kvpool_node_objects
bytes kvpool_node_object_bytes
cached kvpool_node_cached_objects
cached_bytes kvpool_node_cached_bytes
borrowed kvpool_node_borrowed_objects
extra_copies kvpool_node_extra_copies
sent_bytes kvpool_peer_sent_bytes_total
names kvpool_node_names
pending kvpool_node_pending_changes
unpublished kvpool_node_unpublished_files
hits kvpool_node_lookup_hits_total{bytes="local"}+kvpool_node_lookup_hits_total{bytes="peer"}
misses kvpool_node_lookup_misses_total
asked.15m.lookups kvpool_node_window_lookups{window="15m"}
asked.15m.hits kvpool_node_window_hits{window="15m"}
asked.15m.best_hits kvpool_node_window_best_hits{window="15m"}
asked.15m.names kvpool_node_window_names{window="15m"}
asked.1h.lookups kvpool_node_window_lookups{window="1h"}
asked.1h.hits kvpool_node_window_hits{window="1h"}
asked.1h.best_hits kvpool_node_window_best_hits{window="1h"}
asked.1h.names kvpool_node_window_names{window="1h"}
asked.24h.lookups kvpool_node_window_lookups{window="24h"}
asked.24h.hits kvpool_node_window_hits{window="24h"}
asked.24h.best_hits kvpool_node_window_best_hits{window="24h"}
asked.24h.names kvpool_node_window_names{window="24h"}
evictions kvpool_node_evicted_cached_total+kvpool_node_evicted_granted_total+kvpool_node_evicted_alone_total
'
master_figures='
epoch kvpool_master_epoch
nodes kvpool_master_nodes
nodes_alive kvpool_master_nodes_alive
keys kvpool_master_keys
directories kvpool_master_directories
bytes kvpool_master_bytes
capacity kvpool_master_capacity_bytes
used kvpool_master_used_bytes
evictable kvpool_master_evictable_bytes
tombstones kvpool_master_tombstones
soft_pinned kvpool_master_pinned_keys{pin="soft"}
hard_pinned kvpool_master_pinned_keys{pin="hard"}
feed_seq kvpool_master_feed_sequence
subscribers kvpool_master_subscribers
pending_replications kvpool_master_pending_replications
uptime_ms -
events -
asked.15m.lookups kvpool_master_window_lookups{window="15m"}
asked.15m.hits kvpool_master_window_hits{window="15m"}
asked.15m.best_hits kvpool_master_window_best_hits{window="15m"}
asked.15m.names kvpool_master_window_names{window="15m"}
asked.1h.lookups kvpool_master_window_lookups{window="1h"}
asked.1h.hits kvpool_master_window_hits{window="1h"}
asked.1h.best_hits kvpool_master_window_best_hits{window="1h"}
asked.1h.names kvpool_master_window_names{window="1h"}
asked.24h.lookups kvpool_master_window_lookups{window="24h"}
asked.24h.hits kvpool_master_window_hits{window="24h"}
asked.24h.best_hits kvpool_master_window_best_hits{window="24h"}
asked.24h.names kvpool_master_window_names{window="24h"}
repair.endangered kvpool_master_endangered_keys{left="0"}+kvpool_master_endangered_keys{left="1"}+kvpool_master_endangered_keys{left="2"}+kvpool_master_endangered_keys{left="3"}
repair.left_0 kvpool_master_endangered_keys{left="0"}
repair.left_1 kvpool_master_endangered_keys{left="1"}
repair.left_2 kvpool_master_endangered_keys{left="2"}
repair.left_3_or_more kvpool_master_endangered_keys{left="3"}
repair.copies_under_way kvpool_master_repairs_under_way
repair.bytes_left kvpool_master_repair_bytes_left
repair.bytes_per_second kvpool_master_repair_bytes_per_second
repair.limit_bytes_per_second kvpool_master_repair_limit_bytes_per_second
repair.seconds_left kvpool_master_repair_seconds_left
repair.no_room_keys kvpool_master_repair_no_room_keys
repair.no_room_bytes kvpool_master_repair_no_room_bytes
repair.draining kvpool_master_nodes_draining
'
same_figures() { # NAME FIGURES: 0 if each is the sum of its metrics
	local path value names
	http "${admin[$1]}/api/status" >"$tmp/status"
	http "${admin[$1]}/metrics" >"$tmp/metrics"
	jq -r 'del(.pid, .privileges, .master.index?) | paths(type == "number") as $p |
		[($p | map(tostring) | join(".")), (getpath($p) | tostring)] |
		join(" ")' "$tmp/status" >"$tmp/figures"
	[ -s "$tmp/figures" ] || fail "no figures in the status of $1"
	while read -r path value; do
		names=$(awk -v p="$path" '$1 == p { print $2 }' <<<"$2")
		[ -n "$names" ] || fail "no metric for $path in the status of $1"
		[ "$names" != - ] || continue
		awk -v names="$names" -v want="$value" '
			BEGIN { n = split(names, m, "+") }
			{ for (i = 1; i <= n; i++) if ($1 == m[i]) { sum += $2; seen++ } }
			END { exit !(seen == n && sum == want) }' "$tmp/metrics" || {
			echo "   $1: $path is $value, $names is" \
				"$(grep -F "${names%%+*} " "$tmp/metrics")"
			return 1
		}
	done <"$tmp/figures"
}
wait_until 5 same_figures a "$node_figures"
wait_until 5 same_figures b "$node_figures"
wait_until 5 same_figures master "$master_figures"

echo "== nodes"
for n in master a b; do
	http "${admin[$n]}/api/nodes" |
		jq -e '.nodes | length == 2 and all(.alive) and
			(map(.capacity) | add) == 134217728' >/dev/null ||
		fail "nodes as $n tells: $(http "${admin[$n]}/api/nodes")"
done

echo "== objects in pages: each once, though the page's last one goes"
listed() { # NAME PREFIX LIMIT [DELETE]: paths, one a line
	local token= page last gone=${4:-}
	while :; do
		page=$(http "${admin[$1]}/api/objects?prefix=$2&limit=$3${token:+&token=$token}")
		jq -r '.objects[].path' <<<"$page"
		if [ -n "$gone" ]; then
			last=$(jq -r '.objects[-1].path' <<<"$page")
			rm "$A/$last"
			wait_until 5 not_listed "$1" "$last" >&2
			gone=
		fi
		token=$(jq -r '.next // ""' <<<"$page")
		[ -n "$token" ] || return 0
	done
}
not_listed() {
	[ "$(http "${admin[$1]}/api/objects?prefix=$2" | jq '.objects | length')" = 0 ]
}
printf other >"$A/other"
sync "$A"
wait_until 5 test -e "$B/other"
all=$(for ((i = 0; i < N; i++)); do echo "d/k$i"; done | sort)
for n in a b master; do
	got=$(listed $n d 7 "" | sort)
	[ "$got" = "$all" ] || fail "$n lists: $got"
	got=$(listed $n d 7 delete | sort)
	[ "$got" = "$all" ] || fail "$n lists with one deleted: $got"
	all=$(cd "$A" && printf '%s\n' d/* | sort)
	[ "$(wc -l <<<"$all")" -lt $N ] || fail "nothing was deleted"
	[ "$(listed $n "" 1000 | sort)" = "$(printf '%s\n' "$all" other | sort)" ] ||
		fail "$n does not list all"
	[ "$(listed $n other 5)" = other ] || fail "$n does not list one"
	[ -z "$(listed $n nothing 5)" ] || fail "$n lists what is not there"
	for bad in token=nonsense prefix=%00 prefix=d%00 limits=1 limit=; do
		[ "$(code "${admin[$n]}/api/objects?$bad")" = 400 ] ||
			fail "$bad is taken by $n"
	done
	curl -s --noproxy '*' "http://${admin[$n]}/api/objects?prefx=d" >"$tmp/accepted"
	grep -q 'accepted: prefix, limit, token' "$tmp/accepted" || fail "what $n accepts"
	[ "$(code "${admin[$n]}/api/nodes?a=b")" = 400 ] || fail "nodes?a=b"
	[ "$(code "${admin[$n]}/api/drain?node=a&cancel=1")" = 400 ] ||
		fail "a GET of a drain cancels nothing"
	[ "$(code "${admin[$n]}/api/objects?limit=x")" = 400 ] || fail "a bad limit"
	[ "$(curl -s -o /dev/null -w '%{http_code}' --noproxy '*' -X POST \
		"http://${admin[$n]}/api/objects")" = 405 ] || fail "POST to $n"
done

echo "== names that are not UTF-8 are shown, escaped"
printf x >"$A/d/bad"$'\xff'"name"
sync "$A/d"
for n in a b master; do
	wait_until 5 eval 'grep -qxF "d/bad\xffname" < <(listed $n d 1000)'
done

echo "== attributes"
mkdir "$A/two"
setfattr -n user.kvpool.replicas -v 2 "$A/two"
printf 'in two places' >"$A/two/k"
sync "$A/two"
wait_until 10 eval '[ "$(getfattr --absolute-names --only-values -n user.kvpool.holders "$A/two/k")" = 2 ]'
getfattr -d -m '^user\.kvpool\.' --absolute-names "$A/two/k" >"$tmp/attrs"
for re in 'replicas="2"' 'holders="2"' 'state="held"' \
	'checksum="[0-9a-f]{32}"' 'generation="[0-9]+\.[0-9]+"' \
	"nodes=\"(a|b)[^,]*,(a|b)[^,]*\""; do
	grep -qE "^user\.kvpool\.$re$" "$tmp/attrs" ||
		fail "no $re: $(cat "$tmp/attrs")"
done
if setfattr -n user.kvpool.generation -v 1.1 "$A/two/k" 2>/dev/null; then
	fail "the generation could be set"
fi
left=("$A"/d/*)	# those that were not deleted above
[ "$(getfattr --absolute-names --only-values -n user.kvpool.replicas "${left[0]}")" = 1 ] ||
	fail "replicas in force are not shown"

echo "== kvpool stat, by file and by key, says the same"
checksum=$(getfattr --absolute-names --only-values -n user.kvpool.checksum "$A/two/k")
kvpool stat "$B/two/k" --json | jq -e --arg c "$checksum" '.checksum == $c and
	.size == 13 and (.generation | test("^[0-9]+[.][0-9]+$"))' >/dev/null ||
	fail "$(kvpool stat "$B/two/k" --json)"
kvpool stat two/k --admin "${admin[b]}" --json |
	jq -e --arg c "$checksum" '.checksum == $c' >/dev/null ||
	fail "kvpool stat by key"

echo "== node and master say the same of an object, and so does the file"
facts() { jq -Sc '{path, size, generation, checksum, replicas, mtime_ns,
	nodes: (.nodes | sort)}'; }
for n in master a b; do
	http "${admin[$n]}/api/objects?prefix=two/k" | jq '.objects[0]' |
		facts >"$tmp/facts.$n"
done
cmp "$tmp/facts.master" "$tmp/facts.a" && cmp "$tmp/facts.a" "$tmp/facts.b" ||
	fail "$(cat "$tmp"/facts.*)"
jq -e '(.generation | test("^[0-9]+[.][0-9]+$")) and (.nodes | length == 2) and
	.mtime_ns > 1e18' "$tmp/facts.a" >/dev/null || fail "$(cat "$tmp/facts.a")"
(cd "$A" && kvpool stat two/k --json) | facts | cmp - "$tmp/facts.a" ||
	fail "stat: $(kvpool stat "$A/two/k" --json)"
shape() { http "${admin[$1]}/api/nodes" | jq -c '[.nodes[] | {name, version, alive, is_store,
	is_mount, capacity, advertise, data_mode}] | sort'; }
[ "$(shape master)" = "$(shape a)" ] || fail "nodes: $(shape master) $(shape a)"

echo "== the master's log has a line of figures"
grep -E 'pool: [0-9.]+ [KMG]?i?B of 128.0 MiB used \([0-9.]+ %\), [0-9]+ keys, 0 soft-pinned, 0 hard-pinned, 2 of 2 nodes' \
	"$(log_of master)" | tail -n1 | grep . || fail "no summary"

echo "== a master that some nodes have not joined yet is alive, not ready"
kill9 master
kill -STOP "${pid[b]}"
launch master kvpool-master --foreground --insecure --heartbeat 500ms \
	--listen "${listen[master]}" --admin "${admin[master]}" \
	--state-file "$tmp/master.state"
wait_until 5 eval '[ "$(code "${admin[master]}/healthz")" = 200 ]'
[ "$(code "${admin[master]}/readyz")" = 503 ] || fail "ready without node b"
kill -CONT "${pid[b]}"
wait_ready master
wait_until 5 has_metric "${admin[master]}" kvpool_master_nodes_alive 2
pass
