# The faults of it_chaos.sh, which sources this: fault_* does one, from
# beginning to end, and tells the checker first what that may cost. All is whole
# when one begins, and nothing is broken any more when it returns.

# What is sent to the checker. By and large a mount may be old while it is cut off
# (cut), fail altogether while its daemon is gone (down), and objects may be
# missing while more than one holder is away (loose).
has_mount() { [ -n "${number[$1]:-}" ]; }
down() { ! has_mount "$1" || tell "down ${number[$1]}"; }
cut() { ! has_mount "$1" || tell "cut ${number[$1]}"; }
asleep() { # NAME stop|cont: so that its mount answers nothing for a time
	! has_mount "$1" || tell "$2 ${number[$1]}"
}
cut_all() { local m; for m in "${mounts[@]}"; do cut "$m"; done; }

# ---- of nodes ----

fault_kill() {
	pick n "${nodes[@]}"
	log "kill $n"
	down "$n"
	kill_both "$n"
	nap 0 5000
	again "$n"
}

# The daemon; with a keeper, this one first.
kill_both() { # NAME
	local daemon=
	[[ ${opts[$1]} != *--keeper* ]] || daemon=$(daemon_of "$1")
	kill9 "$1"
	[ -z "$daemon" ] || kill -KILL "$daemon"
}
daemon_of() { # NAME
	http "${admin[$1]}/api/status" | jq .pid
}

# Of a node with a keeper, which starts the next daemon: the mount goes on.
fault_crash() {
	pick n "${mounts[@]}"
	log "crash $n"
	down "$n"
	kill -KILL "$(daemon_of "$n")"
	nap 0 1000
	reborn=$((reborn + 1))
	evictions[$n]=0 named[$n]=0
	wait_until 30 is_ready "$n"
}

fault_stop() {
	pick n "${nodes[@]}"
	log "stop $n"
	cut "$n"
	asleep "$n" stop
	kill -STOP "${pid[$n]}"
	nap 500 6000
	kill -CONT "${pid[$n]}"
	asleep "$n" cont
}

fault_link() {
	pick n "${nodes[@]}"
	log "link of $n down"
	cut "$n"
	ns_link "$n" down
	nap 300 6000
	ns_link "$n" up
}

fault_slow() {
	pick n "${nodes[@]}"
	log "$n is slow"
	ns_exec "$n" tc qdisc add dev eth0 root tbf rate 8mbit burst 16kbit latency 2s
	nap 1000 5000
	ns_exec "$n" tc qdisc del dev eth0 root
}

# Messages and bytes of one node go wrong, in the transport itself.
fault_transport() {
	local kind rules=()
	pick n "${nodes[@]}"
	pick kind delay drop reset corrupt
	[ $kind != delay ] || rules=(--delay "$((RANDOM % 400 + 10))ms")
	log "transport of $n: $kind ${rules[*]}"
	tell "loose"
	cut "$n"
	faulty "$n" $kind "${rules[@]}" --probability 0.0$((RANDOM % 9 + 1))
	nap 1000 5000
	faulty "$n" clear
}
faulty() { # NAME WORDS of kvpool fault
	local n=$1
	shift
	ns_exec "$n" kvpool fault --admin "${admin[$n]}" "$@" >/dev/null
}

# ---- of masters ----

# Mostly the one that acts.
pick_master() {
	leads || fail "no master acts before a fault"
	n=$leader
	[ $((RANDOM % 3)) != 0 ] || pick n "${masters[@]}"
}

fault_kill_master() {
	pick_master
	log "kill $n"
	cut_all
	kill9 "$n"
	nap 0 6000
	again "$n"
}

fault_stop_master() {
	pick_master
	log "stop $n"
	cut_all
	kill -STOP "${pid[$n]}"
	nap 500 7000
	kill -CONT "${pid[$n]}"
}

fault_link_master() {
	pick_master
	log "link of $n down"
	cut_all
	ns_link "$n" down
	nap 300 6000
	ns_link "$n" up
}

# ---- of etcd ----

fault_kill_etcd() {
	log "kill etcd"
	cut_all
	kill9 etcd
	nap 0 6000
	again etcd
}

fault_stop_etcd() {
	log "stop etcd"
	cut_all
	kill -STOP "${pid[etcd]}"
	nap 500 6000
	kill -CONT "${pid[etcd]}"
}

fault_link_etcd() {
	log "link of etcd down"
	cut_all
	ns_link etcd down
	nap 300 6000
	ns_link etcd up
}

# ---- of the network between groups ----

# These do not see each other; all others see them, and they all others.
fault_isolate() {
	local a b
	pick a s1 s2
	pick b s3 "${masters[@]}"
	log "$a and $b do not see each other, all others see both"
	[ "$b" = s3 ] || cut_all
	ns_isolate "$a" on; ns_isolate "$b" on
	nap 500 6000
	ns_isolate "$a" off; ns_isolate "$b" off
}

# Two groups of anything.
fault_split() {
	local who away=()
	for who in "${!namespaces[@]}"; do
		[ $((RANDOM % 2)) = 0 ] || away+=("$who")
	done
	log "cut off together: ${away[*]:-nobody}"
	tell "loose"
	cut_all
	for who in "${away[@]}"; do ns_group "$who" 1; done
	nap 500 6000
	for who in "${away[@]}"; do ns_group "$who" 0; done
}

# ---- of memory ----

fault_full() {
	local i
	pick n "${mounts[@]}"
	log "fill the pool through $n"
	tell "loose"	# some may be evicted: heal asks which; nor is there room to fetch anything into
	tell "full"
	for ((i = 0; i < 300; i++)); do
		timeout 20 head -c 1M /dev/zero 2>/dev/null \
			>"${mount[$n]}/filler/f$i" || break
	done
	log "filled after $i files"
	nap 500 3000
	timeout 60 rm -f "${mount[$n]}"/filler/*
	timeout 20 sync "${mount[$n]}/filler" || :
	tell "roomy"
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
	tell "lossy all"	# what was written meanwhile, too
	log "damaged $done files of $1"
}

# Of the store that nobody mounts: through a mount of its own a node serves
# the very pages that it holds, which nobody can check at each read.
fault_damage() {
	tell "lossy all"
	damage s3 5
}

fault_damage_away() {
	log "kill s3, and damage what it has"
	tell "lossy all"
	kill9 s3
	damage s3 5
	nap 0 2000
	again s3
}
