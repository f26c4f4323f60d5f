#!/bin/bash
# A new daemon takes the place of the running one: the mount, open files and pending
# publications continue.
# modes: both
# limit: 400
LOG_ALLOW='error .*(take over with the same|needs other FUSE features|cannot be taken over|no daemon to take over from|taking over failed|a handle was left open|cannot be used|does not hand over)'
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need engine_traces flock jq socat cmp getfattr setfattr takeover_user

MIB=1048576
same() { cmp -s "$1" "$2"; }
joined() { has_metric "${admin[$1]}" kvpool_node_master_connected 1; }

# Another process with the same options takes over; the one before ends with 0.
takeover() { # NAME
	local old=${pid[$1]} status=0
	take "$1"
	wait_until 20 ended "$old"
	wait "$old" || status=$?
	[ $status = 0 ] || fail "the daemon that handed over ended with $status"
	wait_ready "$1"
}
ended() { # PID: of a child
	[[ $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) != [RSD]* ]]
}
take() { # NAME: only start it
	local options=${args_of[$1]}
	# shellcheck disable=SC2086
	start_node "$1" --no-wait $options --takeover
	args_of[$1]=$options
}

# A program with everything open: use DIR; then send it: user again|end.
use() { # DIR
	coproc USER { exec takeover_user "$1" "$a/remote" "$KVTEST_MODE"; }
	user_pid=$USER_PID
	also_kill=("$user_pid")
	expect_line ready
}
expect_line() { # WORD
	local line
	read_line
	[ "$line" = "$1" ] || fail "it says \"$line\""
}
user() { # again|end
	echo "$1" >&"${USER[1]}"
	if [ "$1" = again ]; then
		expect_line fine
		return
	fi
	expect_line done
	wait "$user_pid" || fail "it ended with an error"
	also_kill=()
}

start_master
start_node a --store-size 384M
start_node b --store-size 384M
a=${mount[a]} b=${mount[b]}
mkdir "$a/d"
head -c $((3 * MIB)) /dev/urandom >"$tmp/src"
cp "$tmp/src" "$a/d/k"
sync "$a/d"

echo "== an idle mount"
takeover a
same "$tmp/src" "$a/d/k" || fail "not readable afterwards"
same "$tmp/src" "$b/d/k" || fail "not readable from elsewhere"
echo x >"$a/d/new"
sync "$a/d"
[ "$(cat "$b/d/new")" = x ] || fail "not published afterwards"

echo "== the one before ends late: the new one serves meanwhile"
lock=/run/kvpool/a.$$/lock
# Gets the lock from the one that ends, and keeps it from the new one.
flock "$lock" -c "until [ -e '$tmp/end' ] || ! [ -d '$tmp' ]; do sleep 0.1; done" &
also_kill=($!)
queued() { grep -q -- "-> FLOCK .* ${also_kill[0]} " /proc/locks; }
wait_until 20 queued
takeover a
same "$tmp/src" "$a/d/k" || fail "not readable meanwhile"
: >"$tmp/end"
kill "${also_kill[0]}" 2>/dev/null || : # (if the new one was quicker)
also_kill=()
has_lock() { [[ $(cat "$lock") == "${pid[a]} serving "* ]]; }
wait_until 20 has_lock

echo "== what is synced elsewhere meanwhile shows at once"
mkdir "$b/meanwhile"
sync "$b/meanwhile"
python3 - "$a" "$b" "$tmp" <<-'END' >"$tmp/meanwhile" 2>&1 &
	import os, sys
	a, b, tmp = sys.argv[1:]
	d, n = os.open(f"{b}/meanwhile", os.O_RDONLY), 0
	while not os.path.exists(f"{tmp}/over"):
	    name, n = f"meanwhile/{n}", n + 1
	    with open(f"{b}/{name}", "w"):
	        pass
	    os.fsync(d)
	    if not os.path.exists(f"{a}/{name}"):
	        sys.exit(f"{name} is missing")
END
also_kill=($!)
for _ in 1 2 3 4 5 6 7 8; do
	takeover a
done
: >"$tmp/over"
wait "${also_kill[0]}" || fail "$(cat "$tmp/meanwhile")"
also_kill=()

echo "== files, mappings, listings and directories in use"
takeover_user --fill >"$b/remote"
sync "$b"
mkdir "$a/u1"
use "$a/u1"
user again
takeover a
user again
takeover a
takeover a
user again
user end
for f in kept rewritten closed in-place renamed-after renamed-while-open; do
	same "$a/u1/$f" "$b/u1/$f" || fail "$f is not the same elsewhere"
done
[ ! -e "$b/u1/unlinked" ] || fail "unlinked is there elsewhere"
[ "$(ls "$b/u1/names" | wc -l)" = 2000 ] || fail "names are missing elsewhere"

echo "== the master is away: what waits for it is handed on"
mkdir "$a/w" "$a/w/gone"
cp "$tmp/src" "$a/w/unlinked"
sync "$a/w"
kill9 master
cp "$tmp/src" "$a/w/put"
cp "$tmp/src" "$a/w/x.tmp"
mv "$a/w/x.tmp" "$a/w/renamed"
mkdir "$a/w/made"
setfattr -n user.kvpool.class -v noevict "$a/w/made"
rmdir "$a/w/gone"
rm "$a/w/unlinked"
closed_ns=$(date +%s%N)
takeover a
same "$tmp/src" "$a/w/put" || fail "put is not there"
http "${admin[a]}/api/nodes" >"$tmp/nodes"
jq -e --arg v "$(kvpool --version | awk '{ print $2 }')" \
	'(.nodes | length) == 2 and all(.nodes[]; .version == $v)' "$tmp/nodes" ||
	fail "versions are not handed on: $(cat "$tmp/nodes")"
waited_ns=$(($(date +%s%N) - closed_ns))
[ ! -e "$a/w/unlinked" ] && [ ! -e "$a/w/gone" ] || fail "it is there again"
start_master
wait_until 10 joined a
wait_until 10 joined b
sync "$a/w"
http "${admin[a]}/metrics" >"$tmp/metrics"
awk -v least="$waited_ns" '/^kvpool_node_publish_seconds_sum / { sum = $2 }
	/^kvpool_node_publish_seconds_count / { n = $2 }
	END { exit !(n == 2 && sum * 1e9 >= 2 * least) }' "$tmp/metrics" ||
	fail "since $waited_ns ns: $(grep '^kvpool_node_publish_seconds_[cs]' "$tmp/metrics")"
same "$tmp/src" "$b/w/put" || fail "put was not published"
same "$tmp/src" "$b/w/renamed" || fail "renamed was not published"
[ "$(getfattr --only-values -n user.kvpool.class "$b/w/made")" = noevict ] ||
	fail "made has no class"
[ ! -e "$b/w/unlinked" ] && [ ! -e "$b/w/gone" ] || fail "it is there elsewhere"
same "$tmp/src" "$a/d/k" || fail "what was there is not"

echo "== the next version takes over, and this one again"
mkdir "$a/u2"
use "$a/u2"
PATH=$KVTEST_OBJ/ahead1:$PATH takeover a
user again
takeover a
user again
user end

echo "== a daemon that cannot take over reports why, and the running one continues"
refused() { # REGEX OPTION...
	local regex=$1 old=${pid[a]} status=0 options=${args_of[a]}
	shift
	start_node a --no-wait --store-size 384M --takeover "$@"
	wait "${pid[a]}" || status=$?
	pid[a]=$old args_of[a]=$options
	[ $status = 1 ] || fail "status $status, not 1: $*"
	grep -qE -- "$regex" < <(tail -n12 "$(log_of a)") || {
		tail -n12 "$(log_of a)"
		fail "no \"$regex\" for $*"
	}
	same "$tmp/src" "$a/d/k" || fail "it does not go on: $*"
}
[ "$KVTEST_MODE" = served ] ||
	refused 'needs other FUSE features.*passthrough is off' --no-passthrough
refused 'error .*same --store-size' --store-size 400M
refused 'error .*same --store-dir' --store-dir "$tmp/elsewhere"
also_named+=("other.$$")
refused 'no daemon to take over from .*same --name' --name "other.$$"
socket=/run/kvpool/a.$$/takeover.sock
hello() { # VERSION: a file with what begins a take-over, in one write
	printf 'KKTO\1\0\0\0%b\0\0\0' "$1" >"$tmp/hello"
	head -c 244 /dev/zero >>"$tmp/hello"
}
socat -u - "UNIX:$socket" <<<"nonsense" || :
hello '\1'
failures() { grep -cE 'not handed over|did not take over' "$(log_of a)"; }
before=$(failures)
socat -u "OPEN:$tmp/hello" "UNIX:$socket" || : # and closes
failed_again() { [ "$(failures)" -gt "$before" ]; }
wait_until 20 failed_again # there is one take-over at a time
hello '\11'
socat -t 10 - "UNIX:$socket" <"$tmp/hello" >"$tmp/answer" || :
grep -aq 'speaks version [0-9]* of the protocol' "$tmp/answer" ||
	fail "another version is not refused"
same "$tmp/src" "$a/d/k" || fail "it does not go on after nonsense"

echo "== one that takes what it is given and sends nothing: the old one continues"
hello '\1'
{ cat "$tmp/hello"; exec sleep 60; } | socat - "UNIX:$socket" >/dev/null &
also_kill=($!)
timed_out='did not take over (Connection timed out): continuing'
wait_until 30 grep -q "$timed_out" "$(log_of a)"
same "$tmp/src" "$a/d/k" || fail "it does not go on after silence"
kill "${also_kill[0]}" 2>/dev/null || :
also_kill=()
takeover a

# Whatever was killed: the mount is served by the other one, or it is dead and
# a start serves it again, with all that was published.
serves() { timeout 30 cmp -s "$tmp/src" "$a/d/k"; }
dead() { ! stat -f "$a" >/dev/null 2>&1; } # stat(2) may be answered by the kernel
serves_or_dead() { serves || dead; }
served=0
killed() { # OTHER-PID
	wait_until 20 serves_or_dead
	if dead; then
		kill -TERM "$1" 2>/dev/null || :
		wait "$1" 2>/dev/null || :
		unset "pid[a]"
		# shellcheck disable=SC2086
		start_node a ${args_of[a]}
	else
		pid[a]=$1
		served=$((served + 1))
	fi
	wait_ready a
	serves || fail "it does not serve"
}
for who in old new; do
	echo "== the $who one is killed, at any moment"
	served=0
	for i in {0..15}; do
		old=${pid[a]}
		take a
		new=${pid[a]}
		sleep "$(printf '0.%03d' $((i * 4)))"
		if [ $who = old ]; then
			kill -KILL "$old" 2>/dev/null || :
			wait "$old" 2>/dev/null || :
			killed "$new"
		else
			kill -KILL "$new" 2>/dev/null || :
			wait "$new" 2>/dev/null || :
			killed "$old"
		fi
	done
	echo "   the other one served on $served times of 16"
done

echo "== under load, every two seconds"
# The traces get the pool's size from statfs(2): that of both stores, once a, which
# may just have restarted, knows b.
knows_both() { [ "$(df -B1M --output=size "$a" | tail -n1)" -ge 768 ]; }
wait_until 10 knows_both
engine_traces --d "$a" --b "$b" --mode "$KVTEST_MODE" >"$tmp/traces" 2>&1 &
traces=$!
also_kill=($traces)
times=0
# A request that waits is not handed over: where one does for long (in a full
# pool a write may wait for room), the running daemon says so and goes on.
waits='error the running daemon does not hand over: (an? .* waits|a thread is) .*, for 5 s now'
refusals() { grep -cE -- "$waits" "$(log_of a)"; }
takeover_or_wait() {
	local old=${pid[a]} before
	before=$(refusals) || :
	take a
	wait_until 30 ended_or_refused "$old" "$before"
	if ended "$old"; then
		wait "$old" || fail "the daemon that handed over ended with $?"
		wait_ready a
		times=$((times + 1))
		return
	fi
	! wait "${pid[a]}" || fail "it was refused, and ended with 0"
	pid[a]=$old
	refused=$((refused + 1))
}
ended_or_refused() { # PID COUNT
	ended "$1" || [ "$(refusals)" -gt "$2" ]
}
refused=0
while kill -0 $traces 2>/dev/null; do
	takeover_or_wait
	sleep 2
done
wait $traces || {
	grep "^not ok" "$tmp/traces"
	fail "traces, over $times take-overs"
}
also_kill=()
[ $refused -le $((times / 4)) ] || fail "$refused refused, $times not"
echo "   $times take-overs, $refused refused: $(tail -n1 "$tmp/traces")"
pass
