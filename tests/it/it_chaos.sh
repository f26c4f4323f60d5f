#!/bin/bash
# Nothing is lost, torn or old, and nothing hangs, whatever breaks: tests/chaos
# changes and reads names through three mounts and judges every read, while this
# script breaks daemons, links and files, one seeded fault after another.
#
# Three stores, of which two mount and one does not, and a client that mounts;
# one master with a state file, or three with etcd (it_chaos_etcd.sh); each in a
# network namespace of its own, on one bridge.
#
#   make chaos SECONDS=600 SEED=7     longer, and another order of faults
#   make chaos MASTERS=3              or 2, with etcd
#   CHAOS_FAULTS="kill link"          these (see chaos_faults.sh)
#   CHAOS_BOXES=yes                   a checker as in a container (it_chaos_crash.sh)
# modes: both
# limit: 170
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_accounting.sh"
. "$(dirname "$0")/../chaos/chaos_faults.sh"
need_fuse
need chaos jq curl ip tc setfattr unshare

seconds=${SECONDS_OF_CHAOS:-60}
# The short runs have nearly all faults each, and all of them together.
case ${CHAOS_MASTERS:-1} in
1) masters=(master) etcd=() seed=102
	[ "$KVTEST_MODE" = passthrough ] || seed=338 ;;
2) masters=(m1 m2) etcd=(etcd) seed=35
	need etcd ;;
3) masters=(m1 m2 m3) etcd=(etcd) seed=35
	need etcd ;;
*) fail "CHAOS_MASTERS is 1, 2 or 3" ;;
esac
seed=${SEED:-$seed}
nodes=(s1 s2 s3 c1)
mounts=(s1 s2 c1)	# in this order for tests/chaos, too
declare -A number=([s1]=0 [s2]=1 [c1]=2)
all_faults="kill kill stop link slow transport isolate split full damage
	damage_away kill_master stop_master link_master"
[ ${#etcd[@]} = 0 ] || all_faults+=" kill_master stop_master kill_etcd stop_etcd
	link_etcd"
faults=${CHAOS_FAULTS:-$all_faults}
RANDOM=$seed
begun=${EPOCHREALTIME/./}

# A descriptor that a node lends is of the very file that may be damaged, and
# no link that may be cut: only s1 and c1 do that.
declare -A opts=([s1]="--store-size 64M" [s2]="--store-size 64M --no-fd-passing"
	[s3]="--no-mount --store-size 64M --no-fd-passing"
	[c1]="--store-size 0 --buffer-size 128M")

# "crash" is for daemons with a keeper.
[[ " $faults " != *" crash "* ]] ||
	for n in "${mounts[@]}"; do opts[$n]+=" --keeper"; done

log() {
	printf '%s %7.1f s  %s\n' "$(date -u +%H:%M:%S.%3N)" \
		"$(((${EPOCHREALTIME/./} - begun) / 100000))e-1" "$*"
}

pick() { # VARIABLE WORD...: one of the words
	local -n picked=$1
	shift
	local i=$((RANDOM % $# + 1))
	picked=${!i}
}

nap() { # MIN_MS MAX_MS
	sleep "$(printf '%d.%03d' $((($1 + (nap_ms = RANDOM % ($2 - $1 + 1))) / 1000)) \
		$((($1 + nap_ms) % 1000)))"
}

# ---- telling the checker ----

tell() { # WORDS: and wait until it has taken note; 1: it has failed to
	local answer
	echo "$*" >&5
	read -r -t 120 answer <&6 || check_failed
	[ "$answer" = ok ] || [ "$answer" = no ] || check_failed
	[ "$answer" = ok ]
}

check_failed() {
	sleep 0.5	# what it has to say
	cat "$tmp/chaos.out"
	! planted_is_found || finish
	what_they_say "$(sed -n 's/^VIOLATION.* UTC: \([^:]*\): .*/\1/p' "$tmp/chaos.out")"
	cp -r "$tmp"/*.log "$tmp/chaos.out" "${CHAOS_KEEP:-/nonexistent}/" 2>/dev/null || :
	# The line that is repeated where only the end of an output is looked at.
	fail "seed $seed, after '${what:-}': $(grep -m1 ^VIOLATION "$tmp/chaos.out" ||
		echo "the checker ended or hangs")"
}

# The very loss that was planted, and no other.
planted_is_found() {
	local name
	name=$(sed -n 's/^planted: //p' "$tmp/chaos.out")
	[ -n "$name" ] && grep -q \
		"^VIOLATION.* UTC: $name: .*was acknowledged and is lost" "$tmp/chaos.out"
}

what_they_say() { # KEY: of it, each daemon
	local n
	for n in "${!pid[@]}"; do
		kill -CONT "${pid[$n]}"
		[ -z "${admin[$n]:-}" ] ||
			echo "$n: $(http "${admin[$n]}/api/objects?prefix=$1&limit=1")"
	done
}

# ---- whole again ----

joined() { has_metric "${admin[$1]}" kvpool_node_master_connected 1; }
# One of the masters acts: sets $leader.
leads() {
	for leader in "${masters[@]}"; do ! is_ready "$leader" || return 0; done
	return 1
}
all_alive() {
	leads && has_metric "${admin[$leader]}" kvpool_master_nodes_alive ${#nodes[@]}
}

synced() {
	tell "sync ${number[$1]}" && return
	log "an fsync through $1 has not ended well"
	local n
	for n in "${nodes[@]}"; do
		http "${admin[$n]}/metrics" | grep -E '^kvpool_(node_(pending|writing|barrier|claim|fetch|replic|publ|stale|ops|connected|epoch)|peer_(fetch|answ|early))' | grep -v bucket | sed "s/^/$n /" >>"$tmp/stuck.log"
	done
	http "${admin[$leader]}/metrics" | grep -E '^kvpool_master' | grep -v bucket >>"$tmp/stuck.log"
	return 1
}

# A store that is full goes on without a master, or without room elsewhere: what
# may be evicted may have been then. Each one counts that, from 0 when it is
# started, and nodes say which names (/api/evicted): only these are excused, those
# with the master's grant only if it let last copies go. What a node does not name
# any more (also: one that has restarted, if the master let copies go) is excused
# by number, for all names, and that is reported.
declare -A evictions=() named=()
reborn=0 excused=0
excuse_evicted() { # what went since the last call
	local n alone=0 last=0 names=0 forgot=0
	for n in "${masters[@]}"; do
		count_since "$n" 'kvpool_master_evictions_total{verdict="last"}'
		last=$((last + count))
	done
	for n in "${nodes[@]}"; do
		count_since "$n" kvpool_node_evicted_alone_total
		alone=$((alone + count))
		excuse_names "$n"
	done
	[ $last = 0 ] || forgot=$((forgot + reborn))
	reborn=0
	excused=$((excused + names))
	[ $((alone + last)) = 0 ] ||
		log "counted copies evicted: $alone alone, $last last ones granted; $names names"
	[ $forgot != 0 ] && [ $((alone + last)) -gt 0 ] || return 0
	log "NOT ALL NAMES ARE KNOWN ($forgot forgotten): any eviction is excused"
	tell "lossy shared"
}
count_since() { # NAME METRIC: sets $count
	local now
	now=$(http "${admin[$1]}/metrics" |
		awk -v m="$2" '$1 == m { n += $2 } END { print n + 0 }')
	count=$((now - ${evictions[$1]:-0}))
	evictions[$1]=$now
}
excuse_names() { # NAME: into the caller's $names, $forgot; reads its $last
	local page first end path seen=${named[$1]:-0}
	page=$(http "${admin[$1]}/api/evicted")
	first=$(jq .forgotten <<<"$page")
	end=$((first + $(jq '.evicted | length' <<<"$page")))
	[ "$first" -le "$seen" ] || forgot=$((forgot + first - seen))
	named[$1]=$end
	while read -r path; do
		[ "$path" != null ] || { forgot=$((forgot + 1)); continue; }
		names=$((names + 1))
		tell "evicted $path"
	done < <(jq -r --argjson skip $((seen > first ? seen - first : 0)) \
		--argjson last "$last" '.evicted[$skip:][] |
		select(.alone or $last > 0) | .path' <<<"$page")
}

# With CHAOS_PLANT, once names were excused another one is lost: the checker must
# tell the one from the others (it_chaos_planted.sh).
plant() {
	[ -n "${CHAOS_PLANT:-}" ] && [ $excused -gt 0 ] || return 0
	log "$excused names are excused; one that is not is lost now"
	tell plant || check_failed
}

# Everything serves again; then the checker may expect what it may expect.
heal() {
	local n since=${EPOCHREALTIME/./}
	wait_until 30 leads
	for n in "${nodes[@]}"; do wait_until 30 joined "$n"; done
	wait_until 30 all_alive
	for n in "${mounts[@]}"; do
		wait_until 60 synced "$n"
		tell "up ${number[$n]}"
	done
	excuse_evicted
	tell "tight"
	plant
	tell "whole"
	log "healed in $(((${EPOCHREALTIME/./} - since) / 1000)) ms"
}

# ---- start ----

again() { # NAME: start it (as it was)
	evictions[$1]=0 named[$1]=0
	case $1 in
	etcd) start_etcd ;;
	master) start_master --ns master --allow-faults ;;
	m?) start_elected "$1" ;;
	*)
		reborn=$((reborn + 1))
		start_node "$1" --ns "$1" --no-wait ${opts[$1]} --allow-faults
		wait_until 30 is_ready "$1"
		;;
	esac
}

etcd_url() { echo "http://${namespaces[etcd]}:2379"; }

start_etcd() {
	ns_of[etcd]=etcd
	launch etcd etcd --data-dir "$tmp/etcd.data" --log-level error \
		--listen-client-urls "$(etcd_url)" \
		--advertise-client-urls "$(etcd_url)" \
		--listen-peer-urls http://127.0.0.1:2380 \
		--initial-advertise-peer-urls http://127.0.0.1:2380 \
		--initial-cluster default=http://127.0.0.1:2380
	wait_until 30 etcd_answers
}
etcd_answers() {
	ns_exec etcd curl -sf --noproxy '*' --max-time 1 "$(etcd_url)/health" >/dev/null
}

start_elected() { # NAME: one of several masters
	ns_of[$1]=$1
	launch "$1" kvpool-master --foreground --insecure --allow-faults \
		--listen "${listen[$1]}" --admin "${admin[$1]}" \
		--etcd "$(etcd_url)" --cluster chaos
	wait_until 30 healthy "$1"
}
healthy() { http "${admin[$1]}/healthz" >/dev/null 2>&1; }

setup() {
	local n i=1 m=()
	for n in "${etcd[@]}" "${masters[@]}" "${nodes[@]}"; do
		ns_add "$n" 10.99.0.$i
		free_port; listen[$n]=10.99.0.$i:$port
		free_port; admin[$n]=127.0.0.1:$port
		store[$n]=$tmp/$n.store
		i=$((i + 1))
	done
	for n in "${etcd[@]}" "${masters[@]}"; do again "$n"; done
	for n in "${masters[@]}"; do m+=("${listen[$n]}"); done
	listen[master]=$(IFS=,; echo "${m[*]}")	# whom nodes dial
	wait_until 30 leads
	for n in "${nodes[@]}"; do again "$n"; done
	reborn=0	# these had nothing to forget
	mkdir "${mount[s1]}/filler"
	setfattr -n user.kvpool.class -v noevict "${mount[s1]}/filler"
	sync "${mount[s1]}/filler"
}

# A script that runs its arguments where the mounts are bound to other places, as a
# container has them: a new mount does not show there.
boxes() {
	local n
	echo 'mount --make-rprivate /'
	for n in "${mounts[@]}"; do
		echo "mkdir $tmp/$n.box && mount --bind ${mount[$n]} $tmp/$n.box &&"
		echo "	umount -l ${mount[$n]} || exit 1"
	done
	echo 'exec "$@"'
}

start_checker() {
	local n list= box=()
	if [ -n "${CHAOS_BOXES:-}" ]; then
		boxes >"$tmp/boxes"
		box=(unshare -m bash "$tmp/boxes")
		for n in "${mounts[@]}"; do list+=,$tmp/$n.box; done
	else
		for n in "${mounts[@]}"; do list+=,${mount[$n]}; done
	fi
	mkfifo "$tmp/orders" "$tmp/answers"
	"${box[@]}" chaos --mounts "${list#,}" --seed "$seed" <"$tmp/orders" \
		>"$tmp/answers" 2>"$tmp/chaos.out" &
	checker_pid=$!
	also_kill+=($checker_pid)
	# Both ways open, so that its end is an answer that does not come.
	exec 5<>"$tmp/orders" 6<"$tmp/answers"
}

# Nodes publish what is pending, so masters go last.
finish() {
	local n
	for n in "${nodes[@]}" "${masters[@]}"; do stop "$n"; done
	[ ${#etcd[@]} = 0 ] || kill9 etcd
	pass
}

log "seed $seed, $seconds s, ${#masters[@]} masters, $KVTEST_MODE"
setup
start_checker
sleep 2
nfaults=0
while [ $((${EPOCHREALTIME/./} - begun)) -lt $((seconds * 1000000)) ]; do
	pick what $faults
	"fault_$what"
	nfaults=$((nfaults + 1))
	heal
	kill -0 "$checker_pid" 2>/dev/null || check_failed
	nap 500 2000
done
log "healed after $nfaults faults"
echo end >&5
status=0
wait "$checker_pid" || status=$?
also_kill=()
[ $status = 0 ] || check_failed
[ -z "${CHAOS_PLANT:-}" ] || fail "nothing was lost, or it was not noticed"
cat "$tmp/chaos.out"
all_alive || fail "not all nodes are alive"
log "the figures of each node add up"
for n in "${nodes[@]}"; do
	wait_until 30 at_rest "$n"
	adds_up "$n"
done
finish
