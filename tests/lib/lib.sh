# Integration tests: real daemons, real mounts. Sourced first by each it_*.sh:
#
#   #!/bin/bash
#   # modes: both
#   . "$(dirname "$0")/../lib/lib.sh"
#   start_master
#   start_node a --store-size 256M
#   echo hi >"${mount[a]}/k"
#   wait_until 5 has_metric "${admin[a]}" kvpool_... 1
#   pass
#
# What these functions start or make is ended and removed at exit. A test fails if a
# command fails (set -e), if a daemon takes more than 10 s to obey SIGTERM or
# exits with anything but 0, or if a log has an ERROR or a sanitizer's report.
#
# A test of RDMA names the devices that it needs, in one of its first 30 lines:
#
#   # guest: --rxe 2
#
# (options of tests/guest/run). On a machine without RDMA devices, sourcing this
# file starts the script again in a guest. lib_rdma.sh has functions for such tests.
#
# Set by the runner: KVTEST_BUILD, KVTEST_VARIANT, KVTEST_MODE, TMPDIR. All
# time limits are multiplied by KVTEST_SLOW (the guest is emulated).

set -euo pipefail

KVTEST_MODE=${KVTEST_MODE:-passthrough}
KVTEST_SLOW=${KVTEST_SLOW:-1}

# Both data modes work in a guest with the right kernel.
enter_guest() { # ARGUMENT... of the script
	local options kernel=stable
	options=$(sed -n '1,30s/^# guest: *//p' "$0")
	[ -n "$options" ] || return 0
	[ -z "${KVTEST_GUEST:-}${KVTEST_NATIVE:-}" ] || return 0
	[ "$KVTEST_MODE" = served ] || kernel=passthrough
	export KVTEST_BUILD KVTEST_VARIANT KVTEST_MODE
	# shellcheck disable=SC2086 # several words
	exec "$(dirname "${BASH_SOURCE[0]}")/../guest/run" --kernel $kernel \
		--limit 100000 $options bash "$0" "$@"
}

KVTEST_BUILD=$(realpath "${KVTEST_BUILD:-$(dirname "${BASH_SOURCE[0]}")/../../build}")
KVTEST_VARIANT=${KVTEST_VARIANT:-release}
enter_guest "$@"
KVTEST_OBJ=$KVTEST_BUILD/$KVTEST_VARIANT
BIN=$KVTEST_BUILD
[ "$KVTEST_VARIANT" = release ] || BIN=$KVTEST_OBJ
PATH=$BIN:$KVTEST_OBJ/tests:$PATH
# Seconds for a daemon to become ready, and to obey SIGTERM.
READY_S=$((${READY_S:-20} * KVTEST_SLOW))
STOP_S=$((${STOP_S:-10} * KVTEST_SLOW))
LOG_ALLOW=${LOG_ALLOW:-}	# extended regex of log lines that are expected

unset "${!KVPOOL_@}"	# no option from the environment of the caller
[ -z "${KVTEST_TLS:-}" ] || export KVPOOL_TLS_DIR=$KVTEST_TLS/client
export no_proxy='*' NO_PROXY='*'	# nothing here is behind a proxy
# Under /tmp itself: paths of sockets are short.
tmp=$(mktemp -d /tmp/kvt.XXXXXX)

# By daemon name: "master", and the names given to start_node.
declare -A pid=()	# of the running ones
declare -A listen=()	# HOST:PORT for nodes or peers
declare -A admin=()	# HOST:PORT of HTTP
declare -A mount=()	# nodes with a mount
declare -A store=()	# store directories
declare -A ns_of=()	# network namespace it runs in
declare -A args_of=()	# further options
declare -A env_of=()	# NAME=VALUE words, of its environment
declare -A namespaces=()
also_kill=()	# pids of processes that went into the background by themselves
also_named=()	# --name of daemons that start_node did not start
bridge=
ns_tag=k$$

# ---- results ----

fail() {
	echo "FAIL: $*" >&2
	exit 1
}

skip() {
	echo "skipped: $*"
	exit 77
}

# Ends a test that found nothing wrong.
pass() {
	stop_all
	check_logs
	echo "pass"
	exit 0
}

need() { # COMMAND...: skip without them
	local c
	for c in "$@"; do
		command -v "$c" >/dev/null || skip "no $c on this machine"
	done
}

need_fuse() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	[ -c /dev/fuse ] && : 2>/dev/null <>/dev/fuse || skip "needs /dev/fuse"
}

# ---- waiting ----

# Time limits count the time in which the test itself ran, so that a machine that
# stands still (virtual ones do, for many seconds) fails no test. One step counts as
# 2 s at most.
#	local patience=$((SECONDS * 1000000)) looked=${EPOCHREALTIME/./}
#	until COMMAND; do patient || fail TEXT; done
patient() {
	local now=${EPOCHREALTIME/./} step
	step=$((now - looked))
	looked=$now
	patience=$((patience - (step < 2000000 ? step : 2000000)))
	[ $patience -gt 0 ] && sleep 0.02
}

wait_until() { # SECONDS COMMAND...: poll; fail when the time is over
	local limit=$(($1 * KVTEST_SLOW)) patience looked=${EPOCHREALTIME/./}
	patience=$((limit * 1000000))
	shift
	until "$@"; do
		patient || fail "not within $limit s: $*"
	done
}

# ---- asking a daemon ----

http() { # HOST:PORT/PAGE: the body; fails unless 2xx
	local scheme=http cert=()
	if [ -n "${KVTEST_TLS:-}" ]; then
		scheme=https
		cert=(--cacert "$KVTEST_TLS/admin/ca.crt"
			--cert "$KVTEST_TLS/admin/tls.crt"
			--key "$KVTEST_TLS/admin/tls.key")
	fi
	in_ns_of_url "$1" curl -sf --noproxy '*' "${cert[@]}" \
		--max-time $((10 * KVTEST_SLOW)) "$scheme://$1"
}

# A daemon in a namespace is asked from there.
in_ns_of_url() { # URL COMMAND...
	local name url=$1
	shift
	for name in "${!admin[@]}"; do
		if [[ $url == "${admin[$name]}"/* && -n ${ns_of[$name]:-} ]]; then
			ns_exec "${ns_of[$name]}" "$@"
			return
		fi
	done
	"$@"
}

is_ready() { # NAME
	http "${admin[$1]}/readyz" >/dev/null 2>&1
}

metric() { # HOST:PORT NAME[{LABELS}]: its value; fails if there is none
	http "$1/metrics" | awk -v n="$2" '
		$1 == n { print $2; found = 1 } END { exit !found }'
}

has_metric() { # HOST:PORT NAME VALUE: is it that?
	[ "$(metric "$1" "$2" 2>/dev/null)" = "$3" ]
}

metric_at_least() { # HOST:PORT NAME VALUE
	local v
	v=$(metric "$1" "$2" 2>/dev/null) && [ "${v%.*}" -ge "$3" ]
}

status_json() { # NAME JQ-FILTER
	http "${admin[$1]}/api/status" | jq -r "$2"
}

# ---- daemons ----

# TCP ports of this machine. Tests run in parallel, so each locks a block of ports
# until it ends: a daemon that was stopped for a while must find its port free.
# free_port finds one that has no listener and was not handed out yet.
for ((block = $$ % 150, tries = 0; tries < 150; block = (block + 1) % 150, tries++)); do
	exec {port_lock}>"/tmp/kvtest-ports.$UID.$block"
	! flock -n $port_lock || break
	exec {port_lock}>&-
done
next_port=$((20000 + block * 64))
listens() { [ -n "$(ss -Hltn "sport = :$1")" ]; } # PORT
free_port() { # sets $port
	while :; do
		port=$next_port
		next_port=$((next_port + 1))
		listens $port || return 0
	done
}

log_of() { # NAME
	echo "$tmp/$1.log"
}

# Run a daemon and remember its pid (nsenter becomes the daemon).
launch() { # NAME PROGRAM OPTION...
	local name=$1
	shift
	if [ -n "${ns_of[$name]:-}" ]; then
		set -- nsenter --net="/run/netns/$ns_tag${ns_of[$name]}" "$@"
	fi
	if [ -n "${KVTEST_TLS:-}" ]; then
		case " $* " in
		*" kvpool-master "*) set -- KVPOOL_TLS_DIR="$KVTEST_TLS/master" "$@" ;;
		*) set -- KVPOOL_TLS_DIR="$KVTEST_TLS/node" "$@" ;;
		esac
	fi
	env ${env_of[$name]:-} "$@" >>"$(log_of "$name")" 2>&1 </dev/null &
	pid[$name]=$!
}

wait_ready() { # NAME
	local patience=$((READY_S * 1000000)) looked=${EPOCHREALTIME/./}
	until is_ready "$1"; do
		if ! alive "$1"; then
			cat "$(log_of "$1")" >&2
			fail "$1 ended before it was ready"
		fi
		if ! patient; then
			tail -n40 "$(log_of "$1")" >&2
			fail "$1 not ready within $READY_S s"
		fi
	done
}

# Not needed on loopback or with certificates.
insecure() { # HOST
	[[ $1 == 127.* || -n ${KVTEST_TLS:-} ]] || echo --insecure
}

# One etcd on loopback, at $etcd_port; again after it was killed, with its data.
start_etcd() {
	if [ -z "${etcd_port:-}" ]; then
		free_port; etcd_port=$port
		free_port; etcd_peer_port=$port
	fi
	launch etcd etcd --data-dir "$tmp/etcd.data" --log-level error \
		--listen-client-urls "http://127.0.0.1:$etcd_port" \
		--advertise-client-urls "http://127.0.0.1:$etcd_port" \
		--listen-peer-urls "http://127.0.0.1:$etcd_peer_port" \
		--initial-advertise-peer-urls "http://127.0.0.1:$etcd_peer_port" \
		--initial-cluster "default=http://127.0.0.1:$etcd_peer_port"
	wait_until 20 etcd_answers
}
etcd_answers() {
	curl -sf --noproxy '*' --max-time 1 \
		"http://127.0.0.1:$etcd_port/health" >/dev/null
}

# start_master [--ns NAME] [OPTION...]
start_master() {
	local host=127.0.0.1
	if [ "${1:-}" = --ns ]; then
		ns_of[master]=$2 host=${namespaces[$2]}
		shift 2
	fi
	if [ -z "${listen[master]:-}" ]; then
		free_port; listen[master]=$host:$port
		free_port; admin[master]=$host:$port
	fi
	# A slow node is not dead.
	[ "$KVTEST_SLOW" = 1 ] || [[ " $* " == *" --heartbeat "* ]] ||
		set -- --heartbeat "$((KVTEST_SLOW * 500))ms" "$@"
	args_of[master]="$*"
	# shellcheck disable=SC2046 # a word, or none
	launch master kvpool-master --foreground $(insecure "$host") \
		--listen "${listen[master]}" --admin "${admin[master]}" \
		--state-file "$tmp/master.state" "$@"
	wait_ready master
}

# start_node NAME [--ns NAME] [--host ADDRESS] [--no-mount] [--no-wait]
#            [OPTION of kvpoold...]
#
# --host: its address for peers; the admin address stays on loopback. Without
# --store-size: 256M; --store-size 0 makes a client. The mount is at ${mount[NAME]}.
# A node started again under the same name has the same addresses and directories.
start_node() {
	local name=$1 host=127.0.0.1 own=127.0.0.1 want_mount=1 wait=1 opts=()
	shift
	while :; do
		case ${1:-} in
		--ns) ns_of[$name]=$2 host=${namespaces[$2]} own=$host; shift 2 ;;
		--host) host=$2; shift 2 ;;
		--no-mount) want_mount=0; shift ;;
		--no-wait) wait=0; shift ;;
		*) break ;;
		esac
	done
	if [ -z "${listen[$name]:-}" ]; then
		free_port; listen[$name]=$host:$port
		free_port; admin[$name]=$own:$port
		store[$name]=$tmp/$name.store
	fi
	args_of[$name]="$*"
	# Its own name on this machine: /run/kvpool/NAME has its socket.
	# shellcheck disable=SC2207 # a word, or none
	opts=(--foreground $(insecure "${listen[$name]}") --name "$name.$$"
		--master "${listen[master]:-127.0.0.1:1}"
		--listen "${listen[$name]}" --admin "${admin[$name]}"
		--store-dir "${store[$name]}")
	[[ " $* " == *" --store-size"* ]] || opts+=(--store-size 256M)
	if [ $want_mount = 1 ]; then
		need_fuse
		mount[$name]=$tmp/$name.mnt
		mkdir -p "${mount[$name]}" 2>/dev/null || :	# a stale mount
		opts+=(--mount "${mount[$name]}")
	fi
	[ "$KVTEST_MODE" = served ] && opts+=(--no-passthrough)
	[ "$KVTEST_SLOW" = 1 ] || [[ " $* " == *" --deadline "* ]] ||
		opts+=(--deadline "$((2 * KVTEST_SLOW))s")
	launch "$name" kvpoold "${opts[@]}" "$@"
	[ $wait = 0 ] || wait_ready "$name"
}

# Lets calls of the daemon NAME fail on request (tests/sweep/failing.h). With this
# library between it and malloc, the dynamic linker's own allocations look like
# leaks.
preload_failing() { # NAME
	echo 'leak:_dl_' >"$tmp/lsan"
	env_of[$1]="LD_PRELOAD=$KVTEST_OBJ/tests/failing.so
		KVTEST_FAILING=$tmp/$1.page LSAN_OPTIONS=suppressions=$tmp/lsan
		ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0"
	sweep arm "$tmp/$1.page" 0
}

alive() { # NAME: does the process run?
	local state
	[ -n "${pid[$1]:-}" ] || return 1
	state=$(sed 's/.*) //' "/proc/${pid[$1]}/stat" 2>/dev/null) || return 1
	[[ $state != Z* ]]
}

# Prints where the threads of a hanging process are in the kernel.
where_is() { # PID
	local t
	for t in "/proc/$1"/task/*; do
		echo "---- $(cat "$t/comm"), $(grep State "$t/status")"
		cat "$t/syscall" "$t/stack"
	done 2>&1 || :
}

# SIGTERM; must end with 0 within STOP_S.
stop() { # NAME
	local name=$1 status=0
	local patience=$((STOP_S * 1000000)) looked=${EPOCHREALTIME/./}
	kill -TERM "${pid[$name]}"
	while alive "$name"; do
		if ! patient; then
			tail -n40 "$(log_of "$name")" >&2
			where_is "${pid[$name]}" >&2
			fail "$name did not obey SIGTERM within $STOP_S s"
		fi
	done
	wait "${pid[$name]}" || status=$?
	unset "pid[$name]"
	[ $status = 0 ] || {
		tail -n40 "$(log_of "$name")" >&2
		fail "$name ended with status $status"
	}
}

kill9() { # NAME: and wait until it is gone
	kill -KILL "${pid[$1]}"
	wait "${pid[$1]}" 2>/dev/null || :
	unset "pid[$1]"
}

# Nodes first: they publish what is pending.
stop_all() {
	local name
	for name in "${!pid[@]}"; do
		[ "$name" = master ] || stop "$name"
	done
	[ -z "${pid[master]:-}" ] || stop master
	for name in "${!mount[@]}"; do
		! mountpoint -q "${mount[$name]}" ||
			fail "$name left its mount behind"
	done
}

# The next line of the coprocess USER: sets $line. FILE...: shown if there is none.
read_line() { # [FILE...]
	line=
	read -r -t 60 line <&"${USER[0]}" || {
		[ $# = 0 ] || cat "$@"
		fail "it ended, or says nothing"
	}
}

# A program with libkvpool runs until $tmp/enough exists; its output is in
# $tmp/survived. Meanwhile a and the master are killed and started again. The
# program then puts ns/after.
survives() { # PID
	also_kill+=("$1")
	sleep 0.5
	kill9 a
	sleep 0.5
	kill9 master
	sleep 1
	start_master
	start_node a
	sleep 0.5
	touch "$tmp/enough"
	wait "$1" || fail "$(cat "$tmp/survived")"
	sed 's/^/   /' "$tmp/survived"
	wait_until 10 test -e "${mount[b]}/ns/after"
	[ "$(stat -c %s "${mount[b]}/ns/after")" = 100000 ] ||
		fail "ns/after is not as it was put"
}

# Fails if a log has an error or a sanitizer's report that LOG_ALLOW does not match.
check_logs() {
	local log bad found=0
	for log in "$tmp"/*.log; do
		[ -e "$log" ] || continue
		bad=$(grep -E '^[^ ]+ error |ERROR:|runtime error:|LeakSanitizer|AddressSanitizer|Assertion' "$log" || :)
		[ -z "$LOG_ALLOW" ] || bad=$(grep -Ev "$LOG_ALLOW" <<<"$bad" || :)
		[ -n "$bad" ] || continue
		found=1
		echo "in $(basename "$log"):" >&2
		head -n20 <<<"$bad" >&2
	done
	[ $found = 0 ] || fail "errors in the daemons' logs"
}

# ---- network namespaces ----

# Makes a namespace on this test's own bridge. The addresses of a test are in one
# /24 and exist only in namespaces, so no other test can see them.
ns_add() { # NAME ADDRESS, such as: a 10.99.0.1
	[ "$(id -u)" = 0 ] || skip "needs root for network namespaces"
	if [ -z "$bridge" ]; then
		ip netns add "${ns_tag}br" 2>/dev/null ||
			skip "needs network namespaces"
		bridge=br0
		ip -n "${ns_tag}br" link add br0 type bridge
		ip -n "${ns_tag}br" link set br0 up
	fi
	ip netns add "$ns_tag$1"
	namespaces[$1]=$2
	ip -n "$ns_tag$1" link add eth0 type veth \
		peer name "v$1" netns "${ns_tag}br"
	ip -n "${ns_tag}br" link set "v$1" master br0 up
	ip -n "$ns_tag$1" addr add "$2/24" dev eth0
	ip -n "$ns_tag$1" link set eth0 up
	ip -n "$ns_tag$1" link set lo up
}

# Changes only the network; mounts stay shared with this script. (`ip netns
# exec` makes a mount namespace, where a node's mount would be its own.)
ns_exec() { # NAME COMMAND...
	local name=$1
	shift
	nsenter --net="/run/netns/$ns_tag$name" "$@"
}

ns_link() { # NAME up|down: cut it off, connect it again
	ip -n "${ns_tag}br" link set "v$1" "$2"
}

ns_isolate() { # NAME on|off: those that are on do not see each other
	ip -n "${ns_tag}br" link set dev "v$1" type bridge_slave isolated "$2"
}

ns_group() { # NAME GROUP: only those of one group see each other (at first: 0)
	ip -n "${ns_tag}br" link show "br$2" >/dev/null 2>&1 || {
		ip -n "${ns_tag}br" link add "br$2" type bridge
		ip -n "${ns_tag}br" link set "br$2" up
	}
	ip -n "${ns_tag}br" link set "v$1" master "br$2"
}

# ---- the end ----

cleanup() {
	local status=$? name m
	trap - EXIT INT TERM
	set +e
	if [ $status != 0 ] && [ $status != 77 ]; then
		for m in "$tmp"/*.log; do
			[ -s "$m" ] && echo "---- end of $(basename "$m")" &&
				tail -n25 "$m"
		done >&2
	fi
	for name in "${!pid[@]}"; do
		kill -CONT "${pid[$name]}" 2>/dev/null
		kill -KILL "${pid[$name]}" 2>/dev/null
		wait "${pid[$name]}" 2>/dev/null
	done
	# (Daemons whose keeper was killed go on, and so do guards.)
	pkill -KILL -f -- "--name [^ ]*\.$$ "
	[ ${#also_kill[@]} = 0 ] || kill -KILL "${also_kill[@]}" 2>/dev/null
	# Mounts at or below our directory, deepest first; stale ones, too.
	awk -v p="$tmp/" 'index($5 "/", p) == 1 { print $5 }' /proc/self/mountinfo |
		sort -r | while read -r m; do umount -l "$m"; done
	for name in "${!namespaces[@]}"; do
		ip netns del "$ns_tag$name"
	done
	[ -z "$bridge" ] || ip netns del "${ns_tag}br"
	for name in "${!args_of[@]}"; do
		also_named+=("$name.$$")
	done
	for name in "${also_named[@]}"; do
		rm -rf --one-file-system "/run/kvpool/${name:?}"
	done
	# Pid files of killed daemons, named by the mount's path with - for /.
	rm -f "/run/kvpool/tmp-${tmp##*/}-"*.pid
	rm -rf --one-file-system "$tmp"
	exit $status
}
trap cleanup EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
