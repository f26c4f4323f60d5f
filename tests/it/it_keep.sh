#!/bin/bash
# `kvpool keep`, in a container of its own, keeps the mount of a daemon in another
# (--keeper-socket): if all of that container is killed, the next one adopts the
# mount. It has a mount namespace of its own, in which the mount has another id.
# modes: both
# limit: 120
LOG_ALLOW='error .*(keeper-socket|cannot start|cannot be used)'
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need jq findmnt unshare setpriv socat

adopted() { grep -c ' info adopted ' "$(log_of a)" || :; }
logged() { grep -q "$1" "$tmp/keep.log"; }
puts() { grep -c 'kvpool-device: kept' "$tmp/keep.log"; }
keep() { # OPTION...
	kvpool keep --socket "$tmp/keep" "$@" >>"$tmp/keep.log" 2>&1 &
	keeper=$!
	also_kill=("$keeper")
	wait_until 5 test -S "$tmp/keep"
}

# What a hostPath with Bidirectional propagation is: mounts of either side show on
# the other.
mount --bind "$tmp" "$tmp"
mount --make-shared "$tmp"
start_master
env_of[a]="unshare --mount --propagation unchanged"

echo "== no keeper at the path: the error has what is accepted"
kvpoold --foreground --name "x.$$" --mount "$tmp/x" --master 127.0.0.1:1 --keeper-socket \
	"$tmp/$(printf '%0200d' 1)" >"$tmp/output" 2>&1 && fail "started"
grep -q 'keeper-socket .*accepted: the --socket of a kvpool keep' "$tmp/output" ||
	fail "$(cat "$tmp/output")"

echo "== another user at the path gets nothing"
chmod 711 "$tmp"
install -d -o 65534 "$tmp/theirs"
setpriv --reuid 65534 --clear-groups socat -u "UNIX-LISTEN:$tmp/theirs/keep,type=5,mode=666" \
	"CREATE:$tmp/theirs/got" &
also_kill=("$!")
wait_until 5 test -S "$tmp/theirs/keep"
mkdir "$tmp/x"
timeout 30 kvpoold --foreground --name "x.$$" --mount "$tmp/x" --master 127.0.0.1:1 \
	--keeper-socket "$tmp/theirs/keep" >"$tmp/output" 2>&1 && fail "started"
grep -q 'keeper-socket .*Operation not permitted' "$tmp/output" || fail "$(cat "$tmp/output")"
[ ! -s "$tmp/theirs/got" ] || fail "sent: $(cat "$tmp/theirs/got")"

keep
start_node a --store-size 128M --keeper-socket "$tmp/keep"
a=${mount[a]} options=${args_of[a]}
mkdir "$a/d"
head -c 3M /dev/urandom >"$tmp/src"
cp "$tmp/src" "$a/d/k"
sync "$a/d"
wait_until 5 logged 'kvpool-device: kept'
id=$(findmnt -no ID "$a")
exec {file}<"$a/d/k"

again() { # the container is started again
	[ "${pid[a]:-}" = "" ] || kill9 a
	# shellcheck disable=SC2086
	start_node a $options
	cmp -s "$tmp/src" "$a/d/k" || fail "not readable"
	[ "$(findmnt -no ID "$a")" = "$id" ] || fail "another mount"
	echo new >"$a/d/new.$(adopted)"
	sync "$a/d"
}
for i in 1 2; do
	echo "== killed, with its mount namespace: $i"
	again
	[ "$(adopted)" = "$i" ] || fail "adopted: $(adopted) times"
done

echo "== a keeper that is killed is replaced"
kill -KILL "$keeper"
wait "$keeper" || : # until then its socket may be in use
keep
wait_until 10 eval 'grep -q "keeps the mount again" "$(log_of a)"'
again
[ "$(adopted)" = 3 ] || fail "adopted: $(adopted) times"
cmp -s "$tmp/src" - <&$file || fail "the open file is not whole"
exec {file}<&-

echo "== who is not a daemon gets nothing"
before=$(ls "/proc/$keeper/fd" | wc -l)
python3 - "$tmp/keep" <<-'END' || fail "it was answered"
	import socket, sys
	for text in b"FDTAKE=1\nFDNAME=../x", b"GET / HTTP/1.1", b"x" * 4096, b"FDSTORE=1\nFDNAME=":
	    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
	    s.connect(sys.argv[1])
	    s.send(text)
	    s.settimeout(5)
	    if s.recv(100):
	        sys.exit(1)
	s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
	s.connect(sys.argv[1])
	socket.send_fds(s, [b""], [0])
	s.recv(100)
END
fds=$(ls "/proc/$keeper/fd" | wc -l)
[ "$fds" = "$before" ] || fail "$fds descriptors are open, not $before"
[ "$(stat -c %a "$tmp/keep")" = 600 ] || fail "mode $(stat -c %a "$tmp/keep")"

echo "== nobody uses up the keeper: four connections and eight descriptors, the daemon's among them"
python3 - "$tmp/keep" "/proc/$keeper/fd" $((before + 3 + 8)) <<-'END' || fail "no limits"
	import os, socket, sys
	def connect():
	    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
	    s.settimeout(10)
	    s.connect(sys.argv[1])
	    return s
	conns = [connect() for _ in range(3)]
	for i in range(10):
	    socket.send_fds(conns[0], [b"FDSTORE=1\nFDNAME=x-%c" % (97 + i)], [0])
	conns[0].send(b"FDTAKE=1\nFDNAME=none")
	conns[0].recv(100)  # all before it is done
	n = len(os.listdir(sys.argv[2]))
	if n >= int(sys.argv[3]):  # the daemon has one of the eight, or more
	    sys.exit(f"{n} descriptors, not less than {sys.argv[3]}")
	if connect().recv(100):
	    sys.exit("a fifth connection is answered")
	for i in range(10):
	    conns[0].send(b"FDSTOREREMOVE=1\nFDNAME=x-%c" % (97 + i))
	# A descriptor that comes with another request is closed.
	socket.send_fds(conns[0], [b"FDTAKE=1\nFDNAME=none"], [0])
	conns[0].recv(100)
END
logged 'x-j: not kept: accepted: 8 descriptors' || fail "what was not kept is not logged"
logged 'a connection is refused: there are 4' || fail "who was refused is not logged"
as_before() { [ "$(ls "/proc/$keeper/fd" | wc -l)" = "$before" ]; }
wait_until 10 as_before

echo "== nor does another user, whatever the mode of the socket"
chmod 666 "$tmp/keep"
got=$(setpriv --reuid 65534 --clear-groups timeout 10 \
	socat -u "UNIX-CONNECT:$tmp/keep,type=5" - </dev/null) || fail "it was not closed"
[ -z "$got" ] || fail "it was answered: $got"
logged 'a connection of user 65534 is refused; accepted: user 0, root' || fail "not refused"
chmod 600 "$tmp/keep"

echo "== what is no socket stays, and so does another keeper's"
echo mine >"$tmp/file"
mkdir "$tmp/dir"
for at in file dir keep; do
	timeout 10 kvpool keep --socket "$tmp/$at" >"$tmp/output" 2>&1 && fail "$at: it began"
	grep -q -- "--socket $tmp/$at: .*accepted" "$tmp/output" || fail "$at: $(cat "$tmp/output")"
done
[ "$(cat "$tmp/file")" = mine ] || fail "the file is gone"
[ -d "$tmp/dir" ] || fail "the directory is gone"

other() { # a daemon of another name
	timeout 60 kvpoold --foreground --name "x.$$" --mount "$tmp/x" --master 127.0.0.1:1 \
		--keeper-socket "$tmp/keep" >"$tmp/output" 2>&1
}
echo "== a daemon that serves has its mount alone"
other && fail "it began"
grep -q 'another daemon has' "$tmp/output" || fail "$(cat "$tmp/output")"
timeout 10 cmp -s "$tmp/src" "$a/d/k" || fail "not readable"

echo "== nor does another connection remove what is kept of it"
python3 - "$tmp/keep" <<-'END'
	import socket, sys
	s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
	s.connect(sys.argv[1])
	s.send(b"FDSTOREREMOVE=1\nFDNAME=kvpool-device")
	s.send(b"FDTAKE=1\nFDNAME=none")
	s.recv(100)  # now both are done
END
! logged 'kvpool-device: closed' || fail "removed"

echo "== a take-over with the same keeper: it keeps the mount of the new one"
old=${pid[a]} before=$(puts)
# shellcheck disable=SC2086
start_node a --no-wait $options --takeover
wait_until 20 eval '! [ -e "/proc/$old" ]'
wait_ready a
wait_until 5 grep -q ' info took over ' "$(log_of a)"
wait_until 5 eval '[ "$(puts)" -gt "$before" ]'
again
[ "$(adopted)" = 4 ] || fail "adopted: $(adopted) times"

echo "== a keeper that does not answer has not lost the mount"
kill9 a
kill -STOP "$keeper"
other && fail "it began"
kill -CONT "$keeper"
grep -q 'cannot be used: Connection timed out' "$tmp/output" || fail "$(cat "$tmp/output")"
again
[ "$(adopted)" = 5 ] || fail "adopted: $(adopted) times"

echo "== an end that was asked for leaves nothing"
stop a
! findmnt "$a" >/dev/null || fail "mounted"
wait_until 5 logged 'kvpool-device: closed: removed by the daemon'

echo "== no daemon comes: what it left is closed"
kill "$keeper"
wait "$keeper" || fail "a keeper that was stopped ended with $?"
keep --wait 1s
# shellcheck disable=SC2086
start_node a $options
kill9 a
wait_until 10 logged 'kvpool-device: closed: no daemon has connected in time'
wait_until 40 eval '! cat "$a/d/k" >/dev/null 2>&1'
umount -l "$a"
pass
