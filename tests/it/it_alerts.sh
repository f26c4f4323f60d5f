#!/bin/bash
# Alert rules: promtool takes them, each one is tested where it fires and where it
# must not, has a section in the runbook, and uses figures that a pool has. And all
# metrics of a pool are as Prometheus wants them.
# modes: both
# limit: 120
. "$(dirname "$0")/../lib/lib.sh"
need promtool etcd

dir=$(realpath "$(dirname "$0")/../../tools/prometheus")

echo "== promtool takes the rules, and its tests of them pass"
promtool check rules "$dir/alerts.yml" || fail "alerts.yml is not valid"
promtool test rules "$dir/alerts_test.yml" || fail "an alert is wrong"

echo "== each alert has both tests, and a section in the runbook"
alerts=$(sed -n 's/^ *- alert: //p' "$dir/alerts.yml")
[ -n "$alerts" ] || fail "no alerts"
for alert in $alerts; do
	tests=$(grep -A2 "alertname: $alert\$" "$dir/alerts_test.yml")
	grep -q 'exp_alerts: \[\]' <<<"$tests" || fail "$alert: no test where it is silent"
	grep -q 'exp_alerts:$' <<<"$tests" || fail "$alert: no test where it fires"
	grep -qx "## $alert" "$dir/README.md" || fail "$alert: no section in README.md"
	grep -q "runbook: \"README.md#${alert,,}\"" \
		< <(grep -A8 "alert: $alert\$" "$dir/alerts.yml") ||
		fail "$alert: its runbook line names another section"
done

echo "== a pool has each figure that an alert uses"
start_etcd
start_master --etcd "http://127.0.0.1:$etcd_port"
start_node a
start_node b --no-mount
for figures in master a b; do
	http "${admin[$figures]}/metrics" >"$tmp/metrics.$figures"
done
cat "$tmp"/metrics.* >"$tmp/metrics"
for name in $(grep -o 'kvpool_[a-z_]*' "$dir/alerts.yml" | sort -u); do
	# Only a pool with TLS has certificates.
	[[ $name != kvpool_tls_* || -n ${KVTEST_TLS:-} ]] || continue
	grep -q "^${name}[ {]" "$tmp/metrics" || fail "no $name in the pool's metrics"
done

echo "== promtool finds nothing wrong with the metrics of a master, a mount, a store"
! echo "no_help 1" | promtool check metrics >"$tmp/output" 2>&1 ||
	fail "promtool does not complain"
for figures in master a b; do
	promtool check metrics <"$tmp/metrics.$figures" >"$tmp/output" 2>&1 ||
		fail "$figures: $(head -n5 "$tmp/output")"
	[ ! -s "$tmp/output" ] || fail "$figures: $(head -n5 "$tmp/output")"
done
for n in a b master; do stop $n; done
kill9 etcd
pass
