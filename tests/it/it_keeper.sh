#!/bin/bash
# A mount outlives its daemon (--keeper): kill -9 of the daemon is what a take-over
# is, also for a container, which has the mount bound to a place of its own and
# never sees another mount.
# modes: both
# limit: 240
LOG_ALLOW='error .*(no daemon has adopted|the mount was unmounted|cannot listen on)'
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need jq curl cmp unshare keeper_user findmnt python3 ss

same() { cmp -s "$1" "$2"; }
daemon_of() { status_json "$1" .pid; } # pid[NAME] is the keeper's
adopted() { grep -c ' info adopted ' "$(log_of "$1")" || :; }
# The daemon is killed, and the next one serves.
kill_daemon() { # NAME
	local before
	before=$(adopted "$1")
	kill -KILL "$(daemon_of "$1")"
	wait_until 20 adopted_more "$1" "$before"
	wait_ready "$1"
}
adopted_more() { [ "$(adopted "$1")" -gt "$2" ]; }

listening() { # ADDRESS yes|no
	if listens "${1##*:}"; then [ "$2" = yes ]; else [ "$2" = no ]; fi
}
not_there() { [ ! -e "/proc/$1" ]; } # PID
is_two() { [ "$(cat "$1")" = 2 ]; }

start_master
start_node a --store-size 384M --keeper
start_node b --store-size 384M
a=${mount[a]} b=${mount[b]}
mkdir -p "$a/d/sub/below"
head -c 3M /dev/urandom >"$tmp/src"
cp "$tmp/src" "$a/d/k"
sync "$a/d"

echo "== an idle mount"
id=$(findmnt -no ID "$a")
kill_daemon a
same "$tmp/src" "$a/d/k" || fail "not readable afterwards"
same "$tmp/src" "$b/d/k" || fail "not readable from elsewhere"
echo x >"$a/d/new"
sync "$a/d"
[ "$(cat "$b/d/new")" = x ] || fail "not published afterwards"
[ "$(findmnt -no ID "$a")" = "$id" ] || fail "it is another mount"

echo "== a request waits for the next daemon"
before=$(adopted a)
kill -STOP "${pid[a]}" # the keeper: no daemon is started
kill -KILL "$(daemon_of a)"
cat "$a/d/k" >"$tmp/waited" &
also_kill=($!)
sleep 0.3
[ ! -s "$tmp/waited" ] || fail "it was read without a daemon"
kill -CONT "${pid[a]}"
wait "${also_kill[0]}" || fail "the request failed"
also_kill=()
same "$tmp/src" "$tmp/waited" || fail "it was not read whole"
wait_until 20 adopted_more a "$before"
wait_ready a

echo "== a request that was read and not answered is asked for again"
before=$(adopted a)
daemon=$(daemon_of a)
kill -STOP "${pid[b]}"
mkdir "$a/d/synced"
sync "$a/d/synced" & # waits for b
also_kill=($!)
waits_in() { grep -qs "^$2" /proc/"$1"/wchan; }
[ ! -r /proc/$$/wchan ] || wait_until 10 waits_in "${also_kill[0]}" request_wait_answer
sleep 0.2
kill -KILL "$daemon"
wait_until 20 adopted_more a "$before"
kill -CONT "${pid[b]}"
wait "${also_kill[0]}" || fail "the fsync failed"
also_kill=()
wait_ready a
resent() { [ "$(metric "${admin[a]}" kvpool_fuse_resent_total)" -ge 1 ]; }
resent || fail "nothing was asked for again"
[ -d "$b/d/synced" ] || fail "what it has synced is not there"

echo "== names that other nodes change while no daemon serves"
ls -l "$a/d" >/dev/null
! [ -e "$a/d/later" ] || fail "it is there"
before=$(adopted a)
kill -STOP "${pid[a]}"
kill -KILL "$(daemon_of a)"
cp "$tmp/src" "$b/d/later"
rm "$b/d/new"
# (a cannot take part in an fsync now)
kill -CONT "${pid[a]}"
wait_until 20 adopted_more a "$before"
sync "$b/d"
[ ! -e "$a/d/new" ] || fail "a removed name is still there"
same "$tmp/src" "$a/d/later" || fail "a new name is not there"

echo "== what may be lost with a daemon, the next fsync of its directory says"
says_it_once() { # DIR
	! sync "$1" 2>/dev/null || fail "an fsync of $1 says nothing"
	sync "$1" || fail "an fsync of $1 says it twice"
}
mkdir "$a/lost" "$a/moved" "$a/calm"
cp "$tmp/src" "$a/moved/from"
sync "$a/lost" "$a/moved" "$a/calm" "$a"
exec {open}>"$a/lost/open"
echo x >&$open
kill_daemon a
{ exec {open}>&-; } 2>/dev/null || :
[ ! -e "$a/lost/open" ] || fail "a file is there that was not closed"
says_it_once "$a/lost"
sync "$a/calm" "$a/moved" || fail "an fsync says it of the wrong directory"
before=$(adopted a)
kill -STOP "${pid[master]}"
mv "$a/moved/from" "$a/moved/to"
kill -KILL "$(daemon_of a)"
kill -CONT "${pid[master]}"
wait_until 20 adopted_more a "$before"
wait_ready a
says_it_once "$a/moved"
sync "$a/calm" || fail "an fsync says it of the wrong directory"

echo "== a notification waits for a directory's lock when the daemon is killed"
start_node c
c=${mount[c]}
mkdir "$c/g"
for k in {1..200}; do echo 1 >"$c/g/x$k"; done
sync "$c/g"
for k in {1..200}; do [ "$(cat "$a/g/x$k")" = 1 ] || fail "x$k is not there"; done
kill -STOP "${pid[b]}"
echo 1 >"$a/g/y"
sync "$a/g" 2>"$tmp/sync.out" &
also_kill=($!)
waits_at() { grep -qs "^$2" /proc/"$1"/task/*/wchan; }
blocks() {
	changed=$((changed + 1))
	echo 2 >"$c/g/x$changed"
	waits_at "$daemon" fuse_reverse_inval_entry
}
daemon=$(daemon_of a) changed=0
if [ -r /proc/$$/wchan ]; then
	wait_until 5 waits_at "${also_kill[0]}" request_wait_answer
	wait_until 5 blocks
fi
before=$(adopted a)
kill -KILL "$daemon"
wait_until 20 adopted_more a "$before"
kill -CONT "${pid[b]}"
wait "${also_kill[0]}" || : # (y may have been lost)
also_kill=()
wait_until 20 not_there "$daemon"
wait_ready a
wait_until 10 is_two "$a/g/x$((changed > 0 ? changed : 1))"
sync "$a/g" 2>/dev/null || sync "$a/g" || fail "no fsync afterwards"

echo "== kill -9 once a second, in a container"
mkdir "$tmp/box" "$tmp/box.sub" "$a/use" "$a/use/sub"
sync "$a/use" "$a"
times=${KEEPER_KILLS:-12}
cat >"$tmp/container" <<-END
	mount --make-rprivate /
	mount --bind "$a" "$tmp/box"
	mount --bind "$a/use/sub" "$tmp/box.sub"
	umount -l "$a"
	cd "$tmp/box.sub"
	exec keeper_user "$tmp/box/use" "$tmp/box.sub" "$KVTEST_MODE"
END
coproc USER { exec unshare -m bash "$tmp/container" 2>"$tmp/user.err"; }
also_kill=("$USER_PID")
read_line "$tmp/user.err"
[ "$line" = ready ] || fail "it says \"$line\""
for ((i = 0; i < times; i++)); do
	sleep 0.7
	kill_daemon a
	[ ! -s "$tmp/user.err" ] || break
done
echo end >&"${USER[1]}"
read_line "$tmp/user.err"
echo "   $line"
cat "$tmp/user.err"
[ ! -s "$tmp/user.err" ] || fail "an operation failed"
also_kill=()
[[ $line =~ ^([0-9]+)\ reads,\ ([0-9]+)\ files ]] || fail "it says \"$line\""
[ "${BASH_REMATCH[1]}" -ge 100 ] && [ "${BASH_REMATCH[2]}" -ge 20 ] ||
	fail "it has done too little to show anything"

echo "== a take-over: the new daemon has a keeper of its own"
old=${pid[a]}
options=${args_of[a]}
# shellcheck disable=SC2086
start_node a --no-wait $options --takeover
args_of[a]=$options
wait "$old" || fail "the keeper of the daemon that handed over ended with $?"
wait_ready a
same "$tmp/src" "$a/d/k" || fail "not readable after it"
kill_daemon a
same "$tmp/src" "$a/d/k" || fail "not readable after it was killed"
[ "$(findmnt -no ID "$a")" = "$id" ] || fail "it is another mount"

echo "== the keeper's death changes nothing; with both dead the mount is dead"
daemon=$(daemon_of a)
kill9 a
lost() { grep -q 'the keeper has died' "$(log_of a)"; }
wait_until 20 lost
same "$tmp/src" "$a/d/k" || fail "not readable without the keeper"
[ "$(daemon_of a)" = "$daemon" ] || fail "it is another daemon"
kill -KILL "$daemon"
dead() { ! stat -f "$a" >/dev/null 2>&1; }
wait_until 20 dead
start_node a --store-size 384M --keeper
same "$tmp/src" "$a/d/k" || fail "not readable after a start"

echo "== a daemon that cannot start again: the mount ends"
# SIGTERM while no daemon is there: the keeper unmounts.
kill -STOP "${pid[a]}"
kill -KILL "$(daemon_of a)"
kill -TERM "${pid[a]}"
kill -CONT "${pid[a]}"
wait "${pid[a]}" || : # (it may have started the next one before)
unset "pid[a]"
gone() { ! findmnt "$a" >/dev/null || dead; }
wait_until 20 gone
start_node a --store-size 384M --keeper
same "$tmp/src" "$a/d/k" || fail "not readable after a start"

if [ "$KVTEST_MODE" = passthrough ]; then # (it is the same in both, and takes 30 s)
	echo "== no daemon can start: requests wait for 30 s, then the mount ends"
	daemon=$(daemon_of a)
	kill -STOP "${pid[a]}"
	kill -KILL "$daemon"
	wait_until 10 listening "${listen[a]}" no
	python3 -c '
import socket, sys, time
host, port = sys.argv[1].rsplit(":", 1)
taken = socket.create_server((host, int(port)))
time.sleep(90)' "${listen[a]}" &
	also_kill=($!)
	wait_until 10 listening "${listen[a]}" yes
	kill -CONT "${pid[a]}"
	before=$SECONDS
	! timeout 90 cat "$a/d/k" >/dev/null 2>"$tmp/stderr" || fail "it was read"
	grep -q abort "$tmp/stderr" || fail "it printed: $(cat "$tmp/stderr")"
	took=$((SECONDS - before))
	echo "   $took s"
	[ $took -ge 25 ] && [ $took -le $((45 * KVTEST_SLOW)) ] || fail "it took $took s"
	wait_until 10 dead
	status=0
	wait "${pid[a]}" || status=$?
	[ $status = 1 ] || fail "the keeper ended with $status"
	unset "pid[a]"
	kill "${also_kill[0]}"
	also_kill=()
	start_node a --store-size 384M --keeper
	same "$tmp/src" "$a/d/k" || fail "not readable after a start"
fi

echo "== umount ends both"
umount "$a"
wait "${pid[a]}" || fail "the keeper ended with $?"
unset "pid[a]"
pass
