#!/bin/bash
# The dashboard for Grafana: each of its expressions gives figures on a Prometheus that
# scrapes a pool in use; its panels have what Grafana needs, and do not overlap.
# modes: passthrough
# limit: 120
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need prometheus promtool jq curl

dashboard=$(realpath "$(dirname "$0")/../../tools/prometheus/dashboard.json")

echo "== panels: ids and places of their own, one data source"
jq -r '
	def covers: .gridPos as $g | range($g.x; $g.x + $g.w) as $x |
		range($g.y; $g.y + $g.h) as $y | "\($x),\($y)";
	([.panels[].id] | group_by(.)[] | select(length > 1) | "id \(.[0]) twice"),
	([.panels[] | covers] | group_by(.)[] | select(length > 1) | "overlap at \(.[0])"),
	(.panels[] | select(.gridPos.x + .gridPos.w > 24) | "\(.title): wider than 24"),
	(.panels[] | select(.datasource.uid != "${datasource}") | "\(.title): data source"),
	(.panels[] | select(.title == "" or (.targets | length) == 0) | "panel \(.id): empty")
' "$dashboard" >"$tmp/wrong"
[ ! -s "$tmp/wrong" ] || fail "$(head -n5 "$tmp/wrong")"
jq -r '.panels[].targets[].expr' "$dashboard" | sed 's/\$__rate_interval/10s/g' >"$tmp/exprs"
[ "$(wc -l <"$tmp/exprs")" -gt 20 ] || fail "there are no expressions"

start_master
start_node a
start_node b --no-fd-passing
targets() { local n; for n in "$@"; do printf '"%s",' "${admin[$n]}"; done; }
cat >"$tmp/prometheus.yml" <<END
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: kvpool
    static_configs: [{targets: [$(targets master a b)]}]
END
free_port
promtool check config --syntax-only "$tmp/prometheus.yml" >/dev/null || fail "configuration"
prometheus --config.file "$tmp/prometheus.yml" --storage.tsdb.path "$tmp/tsdb" \
	--web.listen-address "127.0.0.1:$port" --log.level error 2>"$tmp/prometheus.err" &
also_kill+=("$!")
ready() { curl -sf "http://127.0.0.1:$port/-/ready" >/dev/null; }
wait_until 20 ready

# Puts, look-ups that hit and miss, reads of what another node has.
use() { # ROUND
	local i
	for i in 1 2 3 4; do
		head -c 100000 /dev/urandom >"${mount[a]}/$1.$i"
		[ ! -e "${mount[b]}/none.$1.$i" ] || fail "a name that nobody made"
	done
	sync "${mount[a]}"
	cat "${mount[b]}/$1".* >/dev/null
}
query() { # EXPR
	curl -sfG "http://127.0.0.1:$port/api/v1/query" --data-urlencode "query=$1"
}
figures() { # EXPR: how many that are numbers
	query "$1" | jq '[.data.result[].value[1] | select(. != "NaN")] | length'
}
scraped() { [ "$(figures 'min_over_time(up[5s]) == 1')" = 3 ]; }
wait_until 30 scraped

echo "== each expression gives a figure"
round=0
all_give() { # or $tmp/without says which do not
	local expr
	round=$((round + 1))
	use $round
	sleep 1
	while read -r expr; do
		[ "$(figures "$expr")" -gt 0 ] || echo "$expr"
	done <"$tmp/exprs" >"$tmp/without"
	[ ! -s "$tmp/without" ]
}
for _ in {1..15}; do
	! all_give || break
done
[ ! -s "$tmp/without" ] || fail "no figures of: $(cat "$tmp/without")"
[ "$(figures 'kvpool_no_such_metric')" = 0 ] || fail "anything gives figures"
kill "${also_kill[0]}"
wait "${also_kill[0]}" || :
pass
