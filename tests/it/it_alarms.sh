#!/bin/bash
# Each alert fires in a real Prometheus that scrapes a real pool, when what it is about
# happens, and none before; the master's events say when its certificate expires soon.
# The rules' waits are left out: alerts_test.yml tests these.
# modes: passthrough
# limit: 240
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_tls.sh"
. "$(dirname "$0")/../lib/lib_skew.sh"
need_fuse
need prometheus promtool etcd jq curl setfattr
rules=$(realpath "$(dirname "$0")/../../tools/prometheus/alerts.yml")

use_tls
for role in master node; do cert_renew "$KVTEST_TLS/ca" "$KVTEST_TLS/$role" 30; done
start_etcd
start_master --etcd "http://127.0.0.1:$etcd_port"
for n in a b; do
	start_node $n --no-mount --store-size 64M --no-fd-passing --hot-gets 0
done
for n in r1 r2; do # they follow each other: they ask different holders
	start_node $n --store-size 0 --buffer-size 32M --no-fd-passing --allow-faults
done
free_port; listen[late]=127.0.0.1:$port # which joins later
free_port; admin[late]=127.0.0.1:$port
store[late]=$tmp/late.store

sed '/^ *for: /d' "$rules" >"$tmp/alerts.yml"
targets() { local n; for n in "$@"; do printf '"%s",' "${admin[$n]}"; done; }
cat >"$tmp/prometheus.yml" <<CONF
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [alerts.yml]
scrape_configs:
  - job_name: kvpool
    scheme: https
    tls_config:
      ca_file: $KVTEST_TLS/admin/ca.crt
      cert_file: $KVTEST_TLS/admin/tls.crt
      key_file: $KVTEST_TLS/admin/tls.key
    static_configs: [{targets: [$(targets master a b r1 r2 late)]}]
CONF
free_port
promtool check config --syntax-only "$tmp/prometheus.yml" >/dev/null || fail "configuration"
prometheus --config.file "$tmp/prometheus.yml" --storage.tsdb.path "$tmp/tsdb" \
	--web.listen-address "127.0.0.1:$port" --log.level error 2>"$tmp/prometheus.err" &
prometheus=$!
also_kill+=("$prometheus")
api() { # PAGE [OPTION of curl...]
	curl -sfG "http://127.0.0.1:$port/api/v1/$1" "${@:2}"
}
scraped() {
	[ "$(api query --data-urlencode 'query=min_over_time(up[5s]) == 1' |
		jq '.data.result | length')" = 5 ] # all but the late one
}
firing() {
	api alerts | jq -r '.data.alerts[] | select(.state == "firing").labels.alertname' |
		sort -u
}
fires() { grep -qx "$1" < <(firing); }
fired=()
alarm() { # ALERT: it begins to fire now
	wait_until 90 fires "$1" # the master patrols its keys once a minute
	fired+=("$1")
	echo "   $1"
}
quiet() { # ALERT: not yet
	! fires "$1" || fail "$1 fires already"
}
wait_until 30 scraped

echo "== a pool that is well: no alert"
mkdir "${mount[r1]}/d"
setfattr -n user.kvpool.replicas -v 2 "${mount[r1]}/d"
for i in {1..20}; do head -c 100000 /dev/urandom >"${mount[r1]}/d/k$i"; done
sync "${mount[r1]}/d"
whole() { [ "$(status_json master .repair.endangered)" = 0 ]; }
wait_until 20 whole
sleep 3
[ -z "$(firing)" ] || fail "$(firing)"
expiring() { kvpool events --admin "${admin[master]}" | grep '  expiring '; }
export KVPOOL_TLS_DIR=$KVTEST_TLS/admin
! expiring || fail "a certificate of 30 days expires"

echo "== certificates of two days: an alert, and one event however often it is looked at"
for role in master node; do cert_renew "$KVTEST_TLS/ca" "$KVTEST_TLS/$role" 2; done
for n in master a b r1 r2; do kill -HUP "${pid[$n]}"; done
expire_all() {
	local whose
	listed=$(expiring | sed 's/.*  expiring *//')
	for whose in "the master" a.$$ b.$$ r1.$$ r2.$$; do
		grep -qxE "$whose's certificate expires in 4[78] hours" <<<"$listed" || return 1
	done
}
wait_until 20 expire_all
alarm KVPoolCertificateExpires
expire_all || fail "$listed"
# A new leader lists them again.
[ "$(status_json master .epoch)" != 1 ] || [ "$(wc -l <<<"$listed")" = 5 ] || fail "$listed"
for role in master node; do cert_renew "$KVTEST_TLS/ca" "$KVTEST_TLS/$role" 30; done
for n in master a b r1 r2; do kill -HUP "${pid[$n]}"; done
over() { ! fires "$1"; }
wait_until 30 over KVPoolCertificateExpires
[ -z "$(firing)" ] || fail "$(firing)"

echo "== a mount whose acks are late"
kvpool fault delay --delay 1500ms --direction send --admin "${admin[r2]}" >/dev/null
(for ((i = 0; ; i++)); do echo $i >"${mount[r1]}/d/lag"; sleep 0.1; done) &
writer=$!
also_kill+=("$writer")
alarm KVPoolFeedLag
kill "$writer"
wait "$writer" || :
kvpool fault clear --admin "${admin[r2]}" >/dev/null
wait_until 30 over KVPoolFeedLag

echo "== copies that are damaged"
for f in $(find "${store[a]}" -type f -size 100000c); do
	byte=$(od -An -tu1 -j 5000 -N 1 "$f")
	printf "\\x$(printf %x $((byte ^ 1)))" |
		dd of="$f" bs=1 seek=5000 conv=notrunc,nocreat status=none
done
for n in r1 r2; do cat "${mount[$n]}"/d/k* >/dev/null; done
alarm KVPoolCopiesDamaged
wait_until 20 whole

echo "== a third copy, for which two stores have no room"
quiet KVPoolRepairNoRoom
setfattr -n user.kvpool.replicas -v 3 "${mount[r1]}/d"
alarm KVPoolRepairNoRoom
setfattr -n user.kvpool.replicas -v 2 "${mount[r1]}/d"

echo "== stores full of what may not be evicted"
quiet KVPoolFull
mkdir "${mount[r1]}/kept"
setfattr -n user.kvpool.class -v noevict "${mount[r1]}/kept"
for i in {1..128}; do # its buffer holds 32
	head -c 1M /dev/zero >"${mount[r1]}/kept/$i" || break
	sync "${mount[r1]}/kept" || break
done 2>/dev/null
alarm KVPoolFull
rm "${mount[r1]}"/kept/*
wait_until 30 over KVPoolFull

echo "== a node that dies, with keys of which it had the only copy"
quiet KVPoolNodesMissing
quiet KVPoolKeysLost
mkdir "${mount[r1]}/once"
setfattr -n user.kvpool.class -v noevict "${mount[r1]}/once"
# More than one store holds, so that each has some.
for i in {1..12}; do head -c 7M /dev/zero >"${mount[r1]}/once/$i"; done
sync "${mount[r1]}/once"
kill9 a
alarm KVPoolNodesMissing
alarm KVPoolKeysLost

echo "== a node of another version, and with another clock"
quiet KVPoolClockSkew
quiet KVPoolVersionSkew
skew late
start_node late --no-mount --store-size 64M
alarm KVPoolVersionSkew
alarm KVPoolClockSkew
stop late
wait_until 30 over KVPoolVersionSkew

echo "== no leader: a master without etcd; no master"
quiet KVPoolNoLeader
kill9 etcd
alarm KVPoolNoLeader
kill9 master
gone() { [ "$(api query --data-urlencode 'query=kvpool_master_leader' |
	jq '.data.result | length')" = 0 ]; }
wait_until 30 gone
sleep 2 # the rules are looked at again
alarm KVPoolNoLeader

diff <(printf '%s\n' "${fired[@]}" | sort -u) \
	<(sed -n 's/^ *- alert: //p' "$rules" | sort) || fail "an alert was not tried"
kill "$prometheus"
wait "$prometheus" || :
for n in r1 r2 b; do stop $n; done
pass
