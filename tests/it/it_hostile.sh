#!/bin/bash
# Peers that are let in and misbehave, beside a client that works: each attack is of
# the table in daemon/SECURITY.md. First in a pool with certificates, where the
# attacker has a valid one, then by loopback without any, where he is of the pool's
# user. Of each attack it is checked that
#
#   * no operation of the client fails;
#   * the memory of the daemon attacked grows by less than the attack's budget;
#   * a counter says what was done;
#   * a new client still gets in;
#   * with KVTEST_TIMES=1, for a quiet machine: the 99th percentile of the client's
#     operations stays below three times that of quiet rounds in between, in which a
#     process that attacks nobody takes as much time from the machine; and no turn of
#     the daemon's loop takes more than 100 ms, besides the time for which the
#     scheduler kept it waiting. An attack whose round is too long has four more, and
#     the median is judged, unless the daemons waited for the processor in all.
# variants: release asan
# limit: 600
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_tls.sh"
need_fuse
need etcd jq curl openssl python3
here=$(dirname "$0")
LOG_ALLOW='no master|liar\.|TLS:'

times=${KVTEST_TIMES:-} # are they judged?
TURN_MS=100
RATIO=3
# KiB that a sanitizer takes besides: freed memory that it keeps, and what is around
# each piece.
spare=0
[ "$KVTEST_VARIANT" = release ] || spare=524288
BUSY_MS=500 # of waiting for the processor: a round says nothing about times

# From another address than all others here: what an address may have is its own.
hostile() { # WHAT ARGUMENT...
	python3 "$here/hostile.py" ${KVTEST_TLS:+--tls "${with:-$KVTEST_TLS/node}"} \
		--from $from "$@"
}

# ---- an attack that goes on ----

begin() { # WHAT ARGUMENT...: until it is in place
	: >"$tmp/attack"
	# shellcheck disable=SC2086 # a word and its option, or none
	nice -n 19 python3 "$here/hostile.py" \
		${KVTEST_TLS:+--tls "${with:-$KVTEST_TLS/node}"} --from $from "$@" \
		>"$tmp/attack" 2>&1 &
	attacker=$!
	also_kill+=($attacker)
	wait_until 60 grep -qE '^on$|Error' "$tmp/attack"
	! grep Error "$tmp/attack" || fail "$*: $(cat "$tmp/attack")"
}

end() {
	kill -TERM $attacker
	wait $attacker || fail "the attacker: $(cat "$tmp/attack")"
}

reported() { # NAME: what the attack printed of it
	awk -v n="$1" '$1 == n { print $2; found = 1 } END { exit !found }' "$tmp/attack" ||
		fail "the attacker says nothing of $1: $(cat "$tmp/attack")"
}

# ---- what is measured ----

kib_of() { # NAME
	awk '/^VmRSS/ { print $2 }' "/proc/${pid[$1]}/status"
}

# The most since forget_peak.
peak_kib_of() { # NAME
	awk '/^VmHWM/ { print $2 }' "/proc/${pid[$1]}/status"
}
forget_peak() { # NAME
	echo 5 >"/proc/${pid[$1]}/clear_refs"
}

# How long the loop's thread was ready and did not run, ms.
waited_ms() { # NAME
	awk '{ print int($2 / 1000000) }' "/proc/${pid[$1]}/task/${pid[$1]}/schedstat"
}

turn_metric() { # NAME
	if [ "$1" = master ]; then
		echo kvpool_master_loop_turn_seconds
	else
		echo kvpool_node_loop_turn_seconds
	fi
}

# Turns that took more than 100 ms, so far.
long_turns() { # NAME
	local m
	m=$(turn_metric "$1")
	http "${admin[$1]}/metrics" | awk -v m="$m" '
		$1 == m "_count" { all = $2 }
		index($1, m "_bucket{le=\"") == 1 {
			split($1, le, "\"")
			if (le[2] + 0 <= 0.1001 && le[2] != "+Inf") short = $2
		}
		END { print all - short }'
}

stranger=newcomer # or ":": no new client comes (it might put to a store that is none)
during= after=	# commands before and after the client's work
until= # of the attack: a command that must succeed before it ends, such as risen
alone= # or "alone": the client waits for no other mount
# The client for a while: $tmp/round. All that it does has to work.
client() { # SECONDS
	python3 "$here/hostile.py" client "$a" "$b" "$1" $alone >"$tmp/round" ||
		fail "the client: $(cat "$tmp/round")"
	[ "$(jq .failed "$tmp/round")" = 0 ] ||
		fail "$attack: of $(jq .ops "$tmp/round") operations" \
			"$(jq .failed "$tmp/round") failed: $(jq -c .why "$tmp/round")"
	[ "$(jq .ops "$tmp/round")" -ge 3 ] ||
		fail "$attack: the client did $(jq .ops "$tmp/round") operations only"
}

newcomer() {
	head -c 5000 /dev/urandom >"$tmp/newcomer"
	timeout 20 library_user "${listen[master]}" ns put "$attack.$EPOCHREALTIME" \
		"$tmp/newcomer" >"$tmp/newcomer.err" 2>&1 ||
		fail "$attack: nobody new gets in: $(cat "$tmp/newcomer.err")"
}

beside_calm=burn # the attack that is none
calm=() # of each quiet round: JSON
round_calm() { # SECONDS
	attack=quiet
	# shellcheck disable=SC2086 # its words
	begin $beside_calm
	client "$1"
	end
	calm+=("$(cat "$tmp/round")")
}

# The median of the rounds given, in percent of that of the quiet ones.
ratio() { # JSON...
	printf '%s\n' "${calm[@]}" | jq -s . >"$tmp/calm"
	printf '%s\n' "$@" | jq -s --slurpfile calm "$tmp/calm" '
		def median: map(.p99_us) | sort | .[(length - 1) / 2 | floor];
		100 * median / ($calm[0] | median) | floor'
}

# One round of an attack: adds to `rounds`; sets $long, $waited, $grown.
round_attack() { # NAME SECONDS WHAT ARGUMENT...
	local turns=0 n seconds=$2 kib=0 wait=0
	attack=$1
	shift 2
	for n in $victims; do
		turns=$((turns + $(long_turns "$n")))
		kib=$((kib + $(kib_of "$n")))
		wait=$((wait + $(waited_ms "$n")))
		forget_peak "$n"
	done
	begin "$@"
	[ -n "$alone" ] || $stranger
	$during
	client "$seconds"
	$after
	# shellcheck disable=SC2086 # its words
	[ -z "$until" ] || wait_until 30 $until
	grown=$((-kib)) long=$((-turns)) waited=$((-wait))
	for n in $victims; do
		grown=$((grown + $(peak_kib_of "$n")))
	done
	end
	for n in $victims; do
		long=$((long + $(long_turns "$n")))
		waited=$((waited + $(waited_ms "$n")))
	done
	rounds+=("$(cat "$tmp/round")")
}

# An attack, judged. victims: daemons (NAME...); budget: KiB that they may grow by.
beside() { # NAME SECONDS WHAT ARGUMENT...
	local percent lasting=0 i calmest=$((BUSY_MS + 1))
	rounds=()
	if [ -z "$times" ]; then
		round_attack "$@"
		echo "   $1: $(jq -c 'del(.why)' "$tmp/round"); $victims: $grown KiB more," \
			"$long turns > $TURN_MS ms (waited for the processor: $waited ms)"
		[ $grown -le $((budget + spare)) ] ||
			fail "$1: $victims grew by $grown KiB; budget: $budget"
		return
	fi
	for i in 1 2 3 4 5; do
		round_calm 0.7
		round_attack "$@"
		# Turns cannot be distinguished from waiting for the processor, rounds can.
		[ $long = 0 ] || [ $waited -gt $TURN_MS ] || lasting=$((lasting + 1))
		[ $waited -gt $calmest ] || calmest=$waited
		percent=$(ratio "${rounds[@]}")
		echo "   $1: $(jq -c 'del(.why)' "$tmp/round"); p99 $percent % of the" \
			"quiet one; $victims: $grown KiB more, $long turns > $TURN_MS ms" \
			"(waited for the processor: $waited ms)"
		[ $grown -le $((budget + spare)) ] ||
			fail "$1: $victims grew by $grown KiB; budget: $budget"
		[ "$percent" -gt $((100 * RATIO)) ] || [ $long -gt 0 ] || return 0
	done
	if [ $calmest -gt $BUSY_MS ]; then
		echo "   $1: times are not judged: the machine is busy with other work"
		return
	fi
	[ "$percent" -le $((100 * RATIO)) ] ||
		fail "$1: p99 is $percent % of the quiet one in five rounds"
	[ $lasting -lt 3 ] || fail "$1: long turns in $lasting of five rounds"
}

# ---- counters ----

counter() { # NAME METRIC
	metric "${admin[$1]}" "$2"
}
risen() { # NAME METRIC BY: has it, since `since`?
	local now
	now=$(counter "$1" "$2")
	[ $((${now%.*} - since)) -ge "$3" ]
}
rises() { # NAME METRIC [BY]: since `since`
	local now by=${3:-1}
	now=$(counter "$1" "$2")
	[ $((${now%.*} - since)) -ge "$by" ] ||
		fail "$attack: $2 of $1 has risen by $((${now%.*} - since)), not by $by:" \
			"$(http "${admin[$1]}/metrics" | grep "^${2%%{*}" | tr '\n' ';')"
}
mark() { # NAME METRIC: sets `since`
	since=$(counter "$1" "$2")
	since=${since%.*}
}

SHAKEN='kvpool_tls_handshakes_total{result="failed"}'
SHUNNED='kvpool_tls_handshakes_total{result="refused"}'
MASTER_REFUSED=kvpool_master_sessions_refused_total
PEER_REFUSED=kvpool_peer_sessions_refused_total
UNJOINED=kvpool_master_sessions_unjoined_total
PEER_SILENT=kvpool_peer_sessions_silent_total

# ---- who is not let in ----

# As cert_by_openssl, from a day to another, of a host.
cert_of_days() { # CA-DIR URI HOST FROM UNTIL OUT
	local ca=$1 out=$6
	mkdir -p "$out" "$tmp/db"
	: >"$tmp/db/index"
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=hostile" \
		-keyout "$out/tls.key" -out "$out/csr" 2>/dev/null
	cat >"$tmp/db/conf" <<-END
		[ca]
		default_ca = it
		[it]
		database = $tmp/db/index
		new_certs_dir = $tmp/db
		rand_serial = yes
		default_md = sha256
		policy = any
		x509_extensions = ext
		unique_subject = no
		[any]
		commonName = supplied
		[ext]
		basicConstraints = critical,CA:FALSE
		extendedKeyUsage = serverAuth,clientAuth
		subjectAltName = URI:kvpool://$2,IP:$3
	END
	openssl ca -batch -config "$tmp/db/conf" -cert "$ca/ca.crt" -keyfile "$ca/ca.key" \
		-in "$out/csr" -out "$out/tls.crt" -notext \
		-startdate "$(date -u -d "$4" +%Y%m%d%H%M%SZ)" \
		-enddate "$(date -u -d "$5" +%Y%m%d%H%M%SZ)" 2>"$tmp/db/err" ||
		fail "openssl ca: $(cat "$tmp/db/err")"
}

make_bad_certs() { # in $tmp/bad
	local ca=$KVTEST_TLS/ca bad=$tmp/bad role
	mkdir "$bad"
	ca_make "$tmp/foreign"
	cert_issue "$tmp/foreign" node "$bad/ca"
	cert_by_openssl "$ca" other/node "$bad/cluster"
	for role in master admin; do
		cert_issue "$ca" $role "$bad/role-$role"
	done
	cert_of_days "$ca" test/node 127.0.0.1 '-3 days' '-1 day' "$bad/expired"
	cert_of_days "$ca" test/node 127.0.0.1 '+1 day' '+3 days' "$bad/early"
	mkdir "$bad/self"
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
		-subj /CN=self -addext "subjectAltName=URI:kvpool://test/node,IP:127.0.0.1" \
		-addext "extendedKeyUsage=serverAuth,clientAuth" \
		-keyout "$bad/self/tls.key" -out "$bad/self/tls.crt" 2>/dev/null
	mkdir "$bad/none"
}

# A good certificate gets in at both; each bad one at neither, counted at both. One
# for another host talks, and does not become a node.
certificates() {
	local dir n
	[ "$(hostile knock "master=${listen[master]}" "peer=${listen[a]}")" = in$'\n'in ] ||
		fail "a good certificate is refused, too"
	[ -n "$KVTEST_TLS" ] || return 0
	make_bad_certs
	for dir in "$tmp"/bad/*; do
		attack="certificate: ${dir##*/}"
		for n in master a; do
			mark $n "$SHUNNED"
			local kind=peer
			[ $n = a ] || kind=master
			with=$dir hostile knock "$kind=${listen[$n]}" >"$tmp/knock"
			grep -q ^refused "$tmp/knock" || fail "$attack: $n lets it in"
			rises $n "$SHUNNED"
		done
		echo "   $attack: $(cat "$tmp/knock")"
	done
	cert_of_days "$KVTEST_TLS/ca" test/node 10.9.9.9 '-1 day' '+1 day' "$tmp/name"
	attack="certificate: name"
	mark master $MASTER_REFUSED
	with=$tmp/name hostile knock "master=${listen[master]}" >"$tmp/knock"
	grep -q 'refused .*is not for 127.0.0.1' "$tmp/knock" ||
		fail "$attack: $(cat "$tmp/knock")"
	rises master $MASTER_REFUSED
}

replayed() {
	local n kind metric
	for n in master a; do
		attack="replayed to $n" kind=peer metric=kvpool_peer_bad_messages_total
		[ $n = a ] || kind=master metric=kvpool_master_bad_messages_total
		mark $n $metric
		hostile replay "$kind=${listen[$n]}" >"$tmp/replay"
		echo "   $attack: $(tr '\n' ';' <"$tmp/replay")"
		grep -qx 'once in' "$tmp/replay" && grep -q '^twice refused' "$tmp/replay" ||
			fail "$attack: $(cat "$tmp/replay")"
		rises $n $metric
		[ -n "$KVTEST_TLS" ] || continue
		grep -qx 'first in' "$tmp/replay" && grep -qx 'again closed' "$tmp/replay" ||
			fail "$attack: $(cat "$tmp/replay")"
	done
}

# With b's id to a, which b reads from: without its certificate, and with one that
# names b's host, from elsewhere.
pose() { # HOST REQUESTS LANES FILE
	begin posing "${listen[master]}" "${listen[a]}" "b.$$" "$1"
	echo "   $attack: $(tr '\n' ';' <"$tmp/attack")"
	[ "$(reported requests)" = "$2" ] && [ "$(reported lanes)" = "$3" ] ||
		fail "$attack: $(cat "$tmp/attack")"
	cat "$tmp/lot" >"$a/$4"
	sync "$a"
	cmp "$tmp/lot" "$b/$4" || fail "$attack: b reads other bytes, or none"
	end
	[ "$(reported got)" = 0 ] || fail "$attack: it got $(reported got) bytes of b's lanes"
	[ "$(reported closed)" = 0 ] || fail "$attack: its lanes are those of b"
}
# The same to a master that has been killed meanwhile, and knows b from its state only.
claimed() { # ID
	attack="claiming b's id of a new master"
	stop b
	kill9 master
	start_master "${patient[@]}"
	mark master $MASTER_REFUSED
	with=$tmp/else hostile claim "${listen[master]}" "$1" $from >"$tmp/claim"
	echo "   $attack: $(cat "$tmp/claim")"
	grep -q "^refused this node's id belongs to 127.0.0.1" "$tmp/claim" ||
		fail "$attack: $(cat "$tmp/claim")"
	rises master $MASTER_REFUSED
	start_node b --no-fd-passing
	cmp "$tmp/lot" "$b/posed.else" || fail "$attack: b has lost its files"
}
posed() {
	local ids=kvpool_peer_ids_refused_total
	head -c 8M /dev/urandom >"$tmp/lot"
	mark a $ids
	if [ -n "$KVTEST_TLS" ]; then
		attack="posing with another host's certificate"
		cert_of_days "$KVTEST_TLS/ca" test/node $from '-1 day' '+1 day' "$tmp/else"
		with=$tmp/else pose $from refused refused posed.else
		rises a $ids 9
		claimed "$(reported id)"
		mark a $ids
	fi
	attack="posing from another address"
	pose 127.0.0.1 in in posed.from
	[ "$(counter a $ids)" = "$since" ] || fail "$attack: it is counted as refused"
}

oversized() {
	local n kind metric kib
	for n in master a; do
		attack="oversized to $n" kind=peer metric=kvpool_peer_bad_messages_total
		[ $n = a ] || kind=master metric=kvpool_master_bad_messages_total
		mark $n $metric
		kib=$(kib_of $n)
		hostile oversized "$kind=${listen[$n]}" >"$tmp/oversized"
		echo "   $attack: $(cat "$tmp/oversized"), $(($(kib_of $n) - kib)) KiB more"
		awk '/^accepted/ { bad = 1 } /^oversized/ { n = $3; bad += $2 != n }
			END { exit bad || n < 50 }' "$tmp/oversized" ||
			fail "$attack: $(cat "$tmp/oversized")"
		rises $n $metric 50
		[ $(($(kib_of $n) - kib)) -lt $((8192 + spare)) ] || fail "$attack: memory"
	done
}

# ---- who is slow, or does not read ----

# N connections that stay halves: an address has 512 of the master and 1,024 of a
# node, the others are refused at once. Memory: 50 KiB for each handshake.
halves_refused() {
	risen master $MASTER_REFUSED $((1100 - 512)) &&
		since=$before risen a $PEER_REFUSED $((1100 - 1024))
}
half_open() {
	local before
	victims="master a" budget=131072
	mark a $PEER_REFUSED
	before=$since
	mark master $MASTER_REFUSED
	# On a busy machine some time out before all stand; these come again, perhaps
	# before the memory of the first is free.
	until=halves_refused
	beside half 1 half 1100 "master=${listen[master]}" "peer=${listen[a]}"
	until=
}

# Each byte comes in time for a limit on silence; all are closed all the same: by the
# master after three heartbeats. There are bytes to come for 30 s.
slow_closed() {
	risen a $PEER_SILENT $slow && since=$before risen master $UNJOINED $slow
}
slow_shaken() {
	risen a "$SHAKEN" $slow
}
slow_ones() {
	local how slow=50 before
	victims="master a" budget=16384
	for how in shake frame; do
		until=slow_closed
		mark master $UNJOINED
		before=$since
		mark a $PEER_SILENT
		if [ -n "$KVTEST_TLS" ] && [ $how = shake ]; then
			until=slow_shaken
			mark a "$SHAKEN"
		fi
		beside slow.$how 6 slow $slow $how "master=${listen[master]}" \
			"peer=${listen[a]}"
		[ "$(reported closed)" = $((2 * slow)) ] ||
			fail "$attack: $(reported closed) of $((2 * slow)) were closed"
	done
	until=
}

# Changes make the feed grow all the while, in the quiet rounds, too. Who acks nothing is
# cut off, as is who acks what it was not sent: long before 64 MiB wait for it, so the
# budget is lower. Until then fsync waits for it, being a mount that must know
# everything; the client does the rest.
never_reads() {
	local how
	victims=master
	alone=alone calm=() beside_calm="grow ${listen[master]}"
	for how in silent acks; do
		budget=16384
		mark master kvpool_master_sessions_cut_off_total
		until="risen master kvpool_master_sessions_cut_off_total 1"
		beside deaf.$how 4 deaf "${listen[master]}" $how
		rises master kvpool_master_sessions_cut_off_total
	done
	alone= calm=() until= beside_calm=burn
}

# ---- floods ----

floods() {
	victims=master budget=49152 # with TLS 50 KiB each
	mark master $MASTER_REFUSED
	until="risen master $MASTER_REFUSED 1"
	beside joins 4 joins "${listen[master]}"
	until=
	echo "   $(tr '\n' ';' <"$tmp/attack")"
	from=127.0.0.3 # the nodes that joined have used up the other's
	budget=81920 # held back, and queued, for one session
	mark master 'kvpool_master_ops_total{kind="setattr"}'
	beside ops 2 ops "${listen[master]}"
	rises master 'kvpool_master_ops_total{kind="setattr"}' 2048
	echo "   $(tr '\n' ';' <"$tmp/attack")"
	local size
	for size in 256 1024; do
		mark master kvpool_master_ops_turns_total
		beside names.$size 2 names "${listen[master]}" $size
		rises master kvpool_master_ops_turns_total 10
		! grep ^ended "$tmp/attack" || fail "$attack: it was cut off"
		echo "   $(tr '\n' ';' <"$tmp/attack")"
	done
	mark master kvpool_master_ops_put_off_refused_total
	beside names.queued 1 names "${listen[master]}" 256 64
	rises master kvpool_master_ops_put_off_refused_total
	grep -q ^ended "$tmp/attack" || fail "$attack: it goes on"
	victims=a budget=65536 # 8 MiB each, and what is being sent
	mark a kvpool_peer_sessions_unread_total
	until="risen a kvpool_peer_sessions_unread_total 1"
	beside gets 3 gets "${listen[a]}" 4
	rises a kvpool_peer_sessions_unread_total
	until=
	echo "   $(tr '\n' ';' <"$tmp/attack")"
}

# ---- who says what is not so ----

# Nothing of it can be read, who tries has an error in time, and the liar is not asked
# again and again.
read_lie() {
	wait_until 5 stat "$name" >/dev/null 2>&1
	timeout 20 cat "$name" >"$tmp/lie" 2>"$tmp/lie.err" &
	reader=$!
}
lie_is_refused() {
	local status=0
	wait $reader || status=$?
	[ $status = 1 ] && [ ! -s "$tmp/lie" ] ||
		fail "$attack: status $status, $(stat -c %s "$tmp/lie") bytes read"
}
lies() {
	local how name reader counter of asked events
	local capacity="kvpool_master_capacity_bytes $((512 << 20))" # of a and b
	events=$(http "${admin[master]}/api/status" | jq .events)
	victims="a b" budget=16384 stranger=: during=read_lie after=lie_is_refused
	for how in short{,.lane} long{,.lane} sum{,.lane} slow silent holders plain figures; do
		name=$a/liar.$how of=a
		case $how in
		sum*) counter=kvpool_node_checksum_errors_total ;;
		short* | long*) counter='kvpool_peer_fetch_failures_total{reason="bad_answer"}' ;;
		holders) counter='kvpool_peer_fetch_failures_total{reason="gone"}' ;;
		plain) counter=kvpool_peer_bad_messages_total ;;
		slow | silent) counter='kvpool_peer_fetch_failures_total{reason="timeout"}' ;;
		figures) of=master counter=kvpool_master_impossible_figures_total ;;
		esac
		[ $of = a ] || until="has_metric ${admin[master]} $capacity"
		mark $of "$counter"
		beside liar.$how 1 liar "${listen[master]}" $how
		asked=$(reported asked)
		echo "   $(sed 's/.*: //' "$tmp/lie.err"); asked $asked times"
		case $how in
		plain | figures) [ "$asked" = 0 ] ;;
		*) [ "$asked" -ge 1 ] && [ "$asked" -le 8 ] ;;
		esac || fail "$attack: it was asked $asked times"
		rises $of "$counter"
		[ -z "$KVTEST_TLS" ] || has_metric "${admin[a]}" kvpool_tls_plain_lanes_total 0
	done
	[ "$(http "${admin[master]}/api/events?since=$events" |
		jq '[.events[] | select(.kind == "figures")] | length')" = 1 ] ||
		fail "not one event of figures that cannot be"
	[ "$(http "${admin[master]}/api/nodes" |
		jq '[.nodes[] | select(.impossible_figures) | .name == "hostile"] | length >= 1 and all')" = true ] ||
		fail "not shown of the node: $(http "${admin[master]}/api/nodes")"
	stranger=newcomer during= after= until=
}

# At the master's address while it is down: what is there stays there.
no_master() {
	echo kept >"$a/kept"
	sync "$a"
	stop master
	mark a kvpool_node_bad_messages_total
	[ -z "$KVTEST_TLS" ] || mark a "$SHUNNED"
	attack=master
	begin master "${listen[master]}"
	dialled() { [ "$(counter a "$1")" -ge $((since + 2)) ]; }
	if [ -n "$KVTEST_TLS" ]; then
		wait_until 15 dialled "$SHUNNED"
	else
		wait_until 15 dialled kvpool_node_bad_messages_total
	fi
	[ "$(cat "$a/kept")" = kept ] && [ -e "$b/kept" ] || fail "$attack: a file is gone"
	end
	echo "   master: $(tr '\n' ';' <"$tmp/attack")"
	[ -z "$KVTEST_TLS" ] || [ "$(reported received)" = 0 ] || fail "$attack: the nodes talk to it"
	start_master
	joined() { has_metric "${admin[$1]}" kvpool_node_master_connected 1; }
	wait_until 15 joined a
	wait_until 15 joined b
	client 0.5
}

# ---- floods of changes that wait for etcd, too ----

etcd_floods() {
	a=${mount[a]} b=${mount[b]} from=127.0.0.2
	victims=master budget=65536
	local kind size
	for kind in one_dir dirs large_dirs; do
		size=256
		[ $kind != large_dirs ] || size=64 # or it exceeds a message
		mark master kvpool_master_ops_turns_total
		# Each turn waits for etcd, which a slow disk delays.
		until="risen master kvpool_master_ops_turns_total 10"
		beside etcd.$kind 2 $kind "${listen[master]}" $size
		until=
		rises master kvpool_master_ops_turns_total 10
		! grep ^ended "$tmp/attack" || fail "$attack: it was cut off"
		echo "   $(tr '\n' ';' <"$tmp/attack")"
	done
	mark master kvpool_master_inventory_turns_total
	beside etcd.gone 2 gone "${listen[master]}"
	rises master kvpool_master_inventory_turns_total
	! grep ^ended "$tmp/attack" || fail "$attack: it was cut off, or the leader resigned"
	echo "   $(tr '\n' ';' <"$tmp/attack")"
	beside etcd.user 2 user "$b"
	echo "   $(tr '\n' ';' <"$tmp/attack")"
}

# ---- all of them ----

attacks() {
	a=${mount[a]} b=${mount[b]} from=127.0.0.2
	echo "== who is not let in; what is too large, or comes twice"
	certificates
	replayed
	posed
	oversized
	echo "== who is slow"
	half_open
	slow_ones
	never_reads
	echo "== floods"
	floods
	echo "== who says what is not so"
	lies
	no_master
}

# A node that left counts for three of its heartbeats: long enough for a busy machine
# to have enough of them join and leave (joins).
patient=(--heartbeat 2s)
if [ "${part:-}" = etcd ]; then # it_hostile_etcd.sh
	echo "==== with etcd"
	start_etcd
	start_master "${patient[@]}" --etcd "http://127.0.0.1:$etcd_port"
	start_node a --no-fd-passing
	start_node b --no-fd-passing
	etcd_floods
	for name in b a master; do stop $name; done
	kill9 etcd
	pass
fi
echo "==== with certificates"
use_tls
start_master "${patient[@]}"
start_node a --no-fd-passing
start_node b --no-fd-passing
eval "${ONLY:-attacks}"
stop_all
unset KVPOOL_TLS_DIR
KVTEST_TLS=
echo "==== without, by loopback"
start_master "${patient[@]}"
start_node a --no-fd-passing
start_node b --no-fd-passing
eval "${ONLY:-attacks}"
pass
