#!/bin/bash
# Three masters of which etcd says which one acts: whatever happens to it, or to
# etcd, another one serves within 5 s with all the keys, and nothing that was
# written or deleted is lost.
# limit: 240
# alone
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need etcd etcdctl jq curl socat cmp getfattr setfattr engine_traces
same() { cmp -s "$1" "$2"; }
gone() { [ ! -e "$1" ]; }
joined() { has_metric "${admin[$1]}" kvpool_node_master_connected 1; }
now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }

# ---- etcd, and a relay to it for each master, which can be cut ----

key() { # KEY below the cluster's prefix: its value
	ETCDCTL_API=3 etcdctl --endpoints "127.0.0.1:$etcd_port" \
		get --print-value-only "/kvpool/it/$1"
}

declare -A relay=()
connect() { # MASTER
	setsid socat "TCP-LISTEN:${relay[$1]},bind=127.0.0.1,fork,reuseaddr" \
		"TCP:127.0.0.1:$etcd_port" 2>/dev/null &
	relay_pid[$1]=$!
	also_kill+=("-$!")
}
declare -A relay_pid=()
cut_off() { # MASTER: connections, too
	kill -KILL -- "-${relay_pid[$1]}"
	wait "${relay_pid[$1]}" 2>/dev/null || :
}

# ---- masters ----

masters=(m1 m2 m3)
start_one() { # NAME
	local name=$1
	if [ -z "${listen[$name]:-}" ]; then
		free_port; listen[$name]=127.0.0.1:$port
		free_port; admin[$name]=127.0.0.1:$port
		free_port; relay[$name]=$port
		connect "$name"
	fi
	launch "$name" kvpool-master --foreground --listen "${listen[$name]}" \
		--admin "${admin[$name]}" --cluster it \
		--etcd "http://127.0.0.1:${relay[$name]}"
	wait_until 10 healthy "$name"
}
healthy() { http "${admin[$1]}/healthz" >/dev/null 2>&1; }
leads() { # NAME...: sets $leader
	for leader; do
		! is_ready "$leader" || return 0
	done
	return 1
}
others() { # NAME: sets others[]
	others=()
	local m
	for m in "${masters[@]}"; do [ "$m" = "$1" ] || others+=("$m"); done
}
ports_of() { local IFS=,; local l=(); for m; do l+=("${listen[$m]}"); done; echo "${l[*]}"; }

# ---- what must hold whatever happens ----

keys=200
has_keys() { has_metric "${admin[$1]}" kvpool_master_keys "$2"; }
nkeys() { metric "${admin[$leader]}" kvpool_master_keys; }

# A new leader among those named serves, and has the keys, within 5 s of $begin;
# what was put meanwhile is published.
expect_failover() { # LABEL CANDIDATE...
	local label=$1 took
	shift
	echo "put while there is no leader" >"$a/d/queued.$label"
	wait_until 8 leads "$@"
	wait_until 8 joined a
	wait_until 8 joined b
	wait_until 8 has_keys "$leader" $((before + 1))
	took=$(($(now_ms) - begin))
	slowest=$(tail -n "+$((reads + 1))" "$tmp/reads" | sort -n | tail -n1)
	slowest=${slowest:-$took} # none has ended
	echo "   $leader leads, with all keys, after $took ms; the slowest read meanwhile took $slowest ms"
	# (5 s is what it is to be; this machine is shared.)
	[ $took -le 8000 ] || fail "$took ms"
	sync "$a/d"
	# None waited for it.
	[ $((2 * slowest)) -lt $took ] || fail "reads stood still"
	same "$a/d/queued.$label" "$b/d/queued.$label" ||
		fail "what was put meanwhile is not there"
	check_all
}
check_all() {
	engine_traces verify --d "$b/d" --files $keys --size 20000 \
		--min-present $keys
	[ -d "$b/empty/dir" ] || fail "a directory was lost"
	[ "$(getfattr --absolute-names --only-values -n user.note "$b/empty")" = kept ] ||
		fail "attributes of a directory were lost"
	gone "$b/d/deleted" || fail "a deleted file is back"
	[ ! -s "$tmp/reader" ] || fail "a read failed: $(head -n3 "$tmp/reader")"
}
mark() { # what was there before the fault
	before=$(nkeys)
	reads=$(wc -l <"$tmp/reads")
	begin=$(now_ms)
}

start_etcd
for m in "${masters[@]}"; do start_one "$m"; done
wait_until 10 leads "${masters[@]}"
echo "== $leader leads; the others say so"
events() { kvpool events --admin "${admin[$leader]}" >"$tmp/events"; }
events
grep -q "  elected .*epoch 1: ${listen[$leader]} leads$" "$tmp/events" || fail "$(cat "$tmp/events")"
others "$leader"
for m in "${others[@]}"; do
	[ "$(status_json "$m" .election.state)" = standby ]
	[ "$(status_json "$m" .election.leader)" = "${listen[$leader]}" ]
	[ "$(curl -s -o "$tmp/page" -w '%{http_code}' --noproxy '*' \
		"http://${admin[$m]}/readyz")" = 503 ]
	grep -q "standby; the leader is at ${listen[$leader]}" "$tmp/page"
	[ "$(curl -s -o "$tmp/page" -w '%{http_code}' --noproxy '*' \
		"http://${admin[$m]}/api/objects?limit=1")" = 503 ]
	grep -q "standby; the leader is at" "$tmp/page"
done
[ "$(status_json "$leader" .election.state)" = leader ]

# a finds the leader by a list in which only a standby is first; b by etcd.
listen[master]=$(ports_of "${others[@]}" "$leader")
start_node a --no-fd-passing
start_node b --no-fd-passing --etcd "http://127.0.0.1:$etcd_port" --cluster it
a=${mount[a]} b=${mount[b]}
wait_until 5 joined a
wait_until 5 joined b
metric_at_least "${admin[a]}" kvpool_node_master_standbys_total 1

mkdir -p "$a/d" "$a/empty/dir"
setfattr -n user.note -v kept "$a/empty"
: >"$tmp/reads"
engine_traces fill --d "$a/d" --files $keys --size 20000
echo x >"$a/d/deleted"
sync "$a/d"
rm "$b/d/deleted"
sync "$b/d"
engine_traces verify --d "$b/d" --files $keys --size 20000 --min-present $keys
# Reads go on all the time: local ones through both mounts.
(while :; do
	for m in "$a" "$b"; do
		for i in 00000000 00000007 00000100; do
			then=$(now_ms)
			cat "$m/d/k$i.bin" >/dev/null 2>>"$tmp/reader" || :
			echo $(($(now_ms) - then)) >>"$tmp/reads"
		done
	done
	sleep 0.02
done) &
also_kill+=($!)

echo "== kill -9 of the leader"
old=$leader
others "$old"
mark
kill9 "$old"
expect_failover killed "${others[@]}"
events
grep -q "  elected .*epoch 2: ${listen[$leader]} leads; other leaders' events are in their logs$" \
	"$tmp/events" || fail "$(cat "$tmp/events")"
start_one "$old"

echo "== SIGSTOP of the leader; awake again, it does not act"
old=$leader
others "$old"
mark
kill -STOP "${pid[$old]}"
expect_failover stopped "${others[@]}"
epoch=$(status_json "$leader" .epoch)
kill -CONT "${pid[$old]}"
wait_until 5 metric_at_least "${admin[$old]}" kvpool_master_leadership_lost_total 1
[ "$(status_json "$old" .election.state)" = standby ] || fail "$old still acts"
[ "$(key epoch)" = "$epoch" ] || fail "another election"
[ "$(key leader)" = "${listen[$leader]}" ]

echo "== the leader is cut off from etcd"
old=$leader
others "$old"
mark
cut_off "$old"
expect_failover cut "${others[@]}"
[ "$(status_json "$old" .election.state)" = standby ] || fail "$old still acts"
[ "$(status_json "$old" .election.etcd.healthy)" = false ]
[ -n "$(status_json "$old" .election.etcd.last_error)" ]
connect "$old"

echo "== etcd is away for less than a lease: the leader goes on"
old=$leader
epoch=$(status_json "$leader" .epoch)
kill -STOP "${pid[etcd]}"
mkdir "$a/made-meanwhile"
sleep 1
[ "$(status_json "$leader" .election.state)" = leader ] || fail "it gave up"
kill -CONT "${pid[etcd]}"
sync "$a"
[ -d "$b/made-meanwhile" ] || fail "the directory is not known"
[ "$(status_json "$leader" .epoch)" = "$epoch" ] || fail "another election"

echo "== etcd is away for longer: nothing is lost"
before=$(nkeys)
kill9 etcd
mkdir "$a/made-without-etcd"
rm "$b/d/queued.cut"
echo "put without etcd" >"$a/d/put-without-etcd"
# A directory that is nowhere written cannot be promised.
timeout 20 sync "$a" 2>/dev/null && fail "fsync promised what is not kept"
no_leader() { ! leads "${masters[@]}"; }
wait_until 10 no_leader
engine_traces verify --d "$b/d" --files $keys --size 20000 --min-present $keys
begin=$(now_ms)
start_etcd
wait_until 10 leads "${masters[@]}"
wait_until 5 joined a
wait_until 5 joined b
sync "$a/d"
sync "$b/d"
[ -d "$b/made-without-etcd" ] || fail "the directory was lost"
gone "$a/d/queued.cut" || fail "the deletion was lost"
same "$a/d/put-without-etcd" "$b/d/put-without-etcd" || fail "the put was lost"
check_all

echo "== and all of it is in etcd: masters and nodes start anew"
for m in "${masters[@]}"; do stop "$m"; done
[ -z "$(key leader)" ] || fail "a lease was not given back"
for m in "${masters[@]}"; do start_one "$m"; done
wait_until 10 leads "${masters[@]}"
wait_until 5 joined a
wait_until 5 joined b
sync "$b/d"
[ -d "$b/made-without-etcd" ] && [ -d "$b/made-meanwhile" ]
gone "$b/d/queued.cut" || fail "the deletion was lost"
check_all

echo "== what cannot be used is named, and nothing is overwritten"
refused() { # PATTERN OPTION...: exit 2
	local pattern=$1 status=0
	shift
	kvpool-master --foreground --listen 127.0.0.1:0 --admin 127.0.0.1:0 \
		"$@" >"$tmp/refused" 2>&1 || status=$?
	[ $status = 2 ] || fail "status $status: $(cat "$tmp/refused")"
	grep -qE "$pattern" "$tmp/refused" || fail "$(cat "$tmp/refused")"
}
refused '"etcd:2379" given; accepted: http://' --etcd etcd:2379
refused '"a/b" given; accepted: 1 to 64' --etcd http://127.0.0.1:1 --cluster a/b
refused 'http://127.0.0.1:1 cannot be used' --etcd http://127.0.0.1:1
ETCDCTL_API=3 etcdctl --endpoints "127.0.0.1:$etcd_port" \
	put /kvpool/other/version 7 >/dev/null
refused '/kvpool/other/version is "7", not "1"' \
	--etcd "http://127.0.0.1:$etcd_port" --cluster other
[ "$(ETCDCTL_API=3 etcdctl --endpoints "127.0.0.1:$etcd_port" \
	get --prefix --keys-only /kvpool/other/ | grep -c .)" = 1 ] ||
	fail "something was written"

echo "== what etcd kept is lost: with the epoch put back, the objects are there"
for m in "${masters[@]}"; do stop "$m"; done
epoch=$(key epoch)
ETCDCTL_API=3 etcdctl --endpoints "127.0.0.1:$etcd_port" \
	del --prefix /kvpool/it/ >/dev/null
ETCDCTL_API=3 etcdctl --endpoints "127.0.0.1:$etcd_port" \
	put /kvpool/it/epoch "$epoch" >/dev/null
for m in "${masters[@]}"; do start_one "$m"; done
wait_until 10 leads "${masters[@]}"
wait_until 5 joined a
wait_until 5 joined b
[ "$(status_json "$leader" .epoch)" -gt "$epoch" ] || fail "not a higher epoch"
engine_traces verify --d "$a/d" --files $keys --size 20000 --min-present $keys
engine_traces verify --d "$b/d" --files $keys --size 20000 --min-present $keys

for n in a b; do stop $n; done
for m in "${masters[@]}"; do stop "$m"; done
kill9 etcd
pass
