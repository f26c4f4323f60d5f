#!/bin/bash
# Nothing is lost, torn or old, and nothing hangs, whatever breaks: tests/chaos
# changes and reads names through three mounts and judges every read, while this
# script breaks daemons, links and files, one seeded fault after another.
#
# Three stores, of which two mount and one does not, and a client that mounts;
# each in a network namespace of its own, on one bridge.
#
#   make chaos SECONDS=600 SEED=7     longer, and another order of faults
#   CHAOS_FAULTS="kill link"          these (see the functions fault_*); `make
#                                     chaos` has all, this script by itself
#                                     those after which all is whole at once
# modes: both
# limit: 170
. "$(dirname "$0")/lib.sh"
need_fuse
need chaos jq curl ip tc setfattr

seconds=${SECONDS_OF_CHAOS:-45}
seed=${SEED:-6}
faults=${CHAOS_FAULTS:-kill kill kill_master stop stop_master damage damage_away slow}
RANDOM=$seed
begun=${EPOCHREALTIME/./}

masters=(master)
nodes=(s1 s2 s3 c1)
mounts=(s1 s2 c1)	# in this order for tests/chaos, too
declare -A number=([s1]=0 [s2]=1 [c1]=2)
# A descriptor that a node lends is of the very file that may be damaged, and
# no link that may be cut: only s1 and c1 do that.
declare -A opts=([s1]="--store-size 64M" [s2]="--store-size 64M --no-fd-passing"
	[s3]="--no-mount --store-size 64M --no-fd-passing"
	[c1]="--store-size 0 --buffer-size 128M")

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

tell() { # WORDS: and wait until it has taken note
	local answer
	echo "$*" >&5
	read -r -t 60 answer <&6 && [ "$answer" = ok ] || check_failed
}

check_failed() {
	sleep 0.5	# what it has to say
	cat "$tmp/chaos.out"
	cp -r "$tmp"/*.log "$tmp/chaos.out" "${CHAOS_KEEP:-/nonexistent}/" 2>/dev/null || :
	fail "the checker found a violation, or ended (seed $seed)"
}

has_mount() { [ -n "${number[$1]:-}" ]; }
down() { ! has_mount "$1" || tell "down ${number[$1]}"; }
cut() { ! has_mount "$1" || tell "cut ${number[$1]}"; }
cut_all() { local m; for m in "${mounts[@]}"; do cut "$m"; done; }

joined() { has_metric "${admin[$1]}" kvpool_node_master_connected 1; }
all_alive() {
	has_metric "${admin[master]}" kvpool_master_nodes_alive ${#nodes[@]}
}

synced() { timeout 20 sync "${mount[$1]}/plain" 2>>"$tmp/sync.out"; }

# Everything serves again; then the checker may expect what it may expect.
heal() {
	local n since=${EPOCHREALTIME/./}
	for n in "${nodes[@]}"; do wait_until 30 joined "$n"; done
	wait_until 30 all_alive
	for n in "${mounts[@]}"; do
		wait_until 60 synced "$n"
		tell "up ${number[$n]}"
	done
	log "healed in $(((${EPOCHREALTIME/./} - since) / 1000)) ms"
}

# ---- faults ----

again() { # NAME: start it as it was
	if [ "$1" = master ]; then
		start_master --ns master
	else
		start_node "$1" --ns "$1" --no-wait ${opts[$1]}
		wait_until 30 is_ready "$1"
	fi
}

fault_kill() {
	pick n "${nodes[@]}"
	log "kill $n"
	down "$n"
	kill9 "$n"
	nap 0 5000
	again "$n"
}

fault_kill_master() {
	log "kill master"
	cut_all
	kill9 master
	nap 0 3000
	again master
}

fault_stop() {
	pick n "${nodes[@]}"
	log "stop $n"
	cut "$n"
	kill -STOP "${pid[$n]}"
	nap 500 6000
	kill -CONT "${pid[$n]}"
}

fault_stop_master() {
	log "stop master"
	cut_all
	kill -STOP "${pid[master]}"
	nap 500 5000
	kill -CONT "${pid[master]}"
}

fault_link() {
	pick n "${nodes[@]}"
	log "link of $n down"
	cut "$n"
	ns_link "$n" down
	nap 300 6000
	ns_link "$n" up
}

fault_link_master() {
	log "link of the master down"
	cut_all
	ns_link master down
	nap 300 6000
	ns_link master up
}

# These do not see each other; all others see them, and they all others.
fault_isolate() {
	local n
	pick n s1 s2
	log "$n and s3 do not see each other, the master sees both"
	ns_isolate "$n" on; ns_isolate s3 on
	nap 500 6000
	ns_isolate "$n" off; ns_isolate s3 off
}

# Two groups, the master in one.
fault_split() {
	local n away=()
	for n in "${nodes[@]}"; do
		[ $((RANDOM % 2)) = 0 ] || away+=("$n")
	done
	log "cut off together: ${away[*]:-nobody}"
	for n in "${away[@]}"; do cut "$n"; ns_group "$n" 1; done
	nap 500 6000
	for n in "${away[@]}"; do ns_group "$n" 0; done
}

fault_full() {
	local i
	pick n "${mounts[@]}"
	log "fill the pool through $n"
	for ((i = 0; i < 300; i++)); do
		timeout 20 head -c 1M /dev/zero 2>/dev/null \
			>"${mount[$n]}/filler/f$i" || break
	done
	log "filled after $i files"
	nap 500 3000
	timeout 60 rm -f "${mount[$n]}"/filler/*
	timeout 20 sync "${mount[$n]}/filler"
}

# Flip a byte in the middle of some files of a store.
damage() { # NAME HOW_MANY
	local f size byte done=0
	for f in $(find "${store[$1]}" -type f -size +0 -regextype egrep \
		-regex '.*/[0-9a-f]+' | sort | shuf -n "$2" --random-source=<(yes "$RANDOM")); do
		size=$(stat -c %s "$f" 2>/dev/null) || continue
		byte=$(od -An -tu1 -j $((size / 2)) -N 1 "$f" 2>/dev/null) || continue
		printf "\\x$(printf %x $((byte ^ 1)))" |
			dd of="$f" bs=1 seek=$((size / 2)) conv=notrunc,nocreat status=none \
				2>/dev/null || continue
		done=$((done + 1))
	done
	log "damaged $done files of $1"
}

# Of the store that nobody mounts: through a mount of its own a node serves
# the very pages that it holds, which nobody can check at each read.
fault_damage() { damage s3 5; }

fault_damage_away() {
	log "kill s3, and damage what it has"
	kill9 s3
	damage s3 5
	nap 0 2000
	again s3
}

fault_slow() {
	pick n "${nodes[@]}"
	log "$n is slow"
	ns_exec "$n" tc qdisc add dev eth0 root tbf rate 8mbit burst 16kbit latency 2s
	nap 1000 5000
	ns_exec "$n" tc qdisc del dev eth0 root
}

# ---- start ----

setup() {
	local n i=1
	for n in "${masters[@]}" "${nodes[@]}"; do
		ns_add "$n" 10.99.0.$i
		free_port; listen[$n]=10.99.0.$i:$port
		free_port; admin[$n]=127.0.0.1:$port
		store[$n]=$tmp/$n.store
		i=$((i + 1))
	done
	start_master --ns master
	for n in "${nodes[@]}"; do start_node "$n" --ns "$n" ${opts[$n]}; done
	mkdir "${mount[s1]}/filler"
	setfattr -n user.kvpool.class -v noevict "${mount[s1]}/filler"
	sync "${mount[s1]}/filler"
}

start_checker() {
	local n list=
	for n in "${mounts[@]}"; do list+=,${mount[$n]}; done
	mkfifo "$tmp/orders" "$tmp/answers"
	chaos --mounts "${list#,}" --seed "$seed" <"$tmp/orders" \
		>"$tmp/answers" 2>"$tmp/chaos.out" &
	checker_pid=$!
	also_kill+=($checker_pid)
	# Both ways open, so that its end is an answer that does not come.
	exec 5<>"$tmp/orders" 6<"$tmp/answers"
}

log "seed $seed, $seconds s, $KVTEST_MODE"
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
cat "$tmp/chaos.out"
[ "$(http "${admin[master]}/api/nodes" | jq '[.nodes[] | select(.alive)] | length')" = ${#nodes[@]} ] ||
	fail "not all nodes are alive"
pass
