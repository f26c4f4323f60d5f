#!/bin/bash
# The service manager keeps the mount of a daemon that is killed, and hands it to
# the next one (FileDescriptorStoreMax= in the unit): there is no keeper process.
# modes: both
# limit: 120
LOG_ALLOW='error .*(what is kept of its mount cannot be used|cannot start)'
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need jq python3 findmnt

# Does what systemd does with a service: `manager.py SOCKET PROGRAM...`
cat >"$tmp/manager.py" <<-'END'
	import os, select, signal, socket, struct, sys, time

	stored, main = [], 0  # [(name, fd)]
	sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
	sock.bind(sys.argv[1])


	def start():
	    global main
	    main = os.fork()
	    if main:
	        return
	    high = [os.dup2(fd, 100 + i) for i, (_, fd) in enumerate(stored)]
	    for i, fd in enumerate(high):
	        os.dup2(fd, 3 + i, inheritable=True)
	    os.closerange(3 + len(high), 200)
	    os.environ.update(NOTIFY_SOCKET=sys.argv[1], FDSTORE="8")
	    if high:
	        names = ":".join(name for name, _ in stored)
	        os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(high)),
	                          LISTEN_FDNAMES=names)
	    os.execvp(sys.argv[2], sys.argv[2:])


	def receive():
	    global main, stored
	    data, control, _, _ = sock.recvmsg(4096, 1024)
	    fds = [fd for _, _, d in control for fd in struct.unpack("%di" % (len(d) // 4), d)]
	    fields = dict(line.split("=", 1) for line in data.decode().split("\n"))
	    name = fields.get("FDNAME")
	    if "FDSTORE" in fields:
	        stored += [(name, fd) for fd in fds]
	    if "FDSTOREREMOVE" in fields:
	        with open(sys.argv[1] + ".removed", "a") as f:
	            print(name, file=f)
	        for gone in [s for s in stored if s[0] == name]:
	            os.close(gone[1])
	            stored.remove(gone)
	    main = int(fields.get("MAINPID", main))
	    with open(sys.argv[1] + ".stored", "w") as f:
	        print(*sorted(name for name, _ in stored), file=f)


	def receive_all(patience):
	    while select.select([sock], [], [], patience)[0]:
	        receive()


	def end(status):
	    receive_all(0)
	    sys.exit(status)


	def on_signal(sig, _):
	    if os.path.exists("/proc/%d" % main):
	        os.kill(main, sig)


	signal.signal(signal.SIGTERM, on_signal)
	start()
	while True:
	    receive_all(0.05)
	    try:
	        pid, status = os.waitpid(-1, os.WNOHANG)
	    except ChildProcessError:
	        time.sleep(0.05)  # MAINPID is not a child
	        if not os.path.exists("/proc/%d" % main):
	            end(0)
	        continue
	    if pid == main:
	        if status == 0:
	            end(0)
	        start()
END

daemon_of() { status_json "$1" .pid; } # pid[NAME] is the manager's
stored() { [ "$(cat "$tmp/manager.stored")" = "$*" ]; }
adopted() { grep -c ' info adopted ' "$(log_of a)" || :; }
adopted_times() { [ "$(adopted)" = "$1" ]; }

start_master
env_of[a]="python3 $tmp/manager.py $tmp/manager"
start_node a --store-size 128M --keeper
a=${mount[a]}
mkdir "$a/d"
head -c 3M /dev/urandom >"$tmp/src"
cp "$tmp/src" "$a/d/k"
sync "$a/d"
wait_until 5 stored kvpool-device kvpool-kept
id=$(findmnt -no ID "$a")
[ "$(cat "/proc/$(daemon_of a)/comm")" = kvpoold ] || fail "what serves?"
[ "$(cut -d' ' -f4 <"/proc/$(daemon_of a)/stat")" = "${pid[a]}" ] ||
	fail "there is a keeper process"

echo "== killed: the next one has the same mount, and open files still work"
exec {file}<"$a/d/k"
for i in 1 2 3; do
	kill -KILL "$(daemon_of a)"
	cmp -s "$tmp/src" "$a/d/k" || fail "kill $i: not readable"
	wait_until 20 adopted_times "$i"
	wait_ready a
	[ "$(findmnt -no ID "$a")" = "$id" ] || fail "kill $i: another mount"
	echo "$i" >"$a/d/new.$i"
	sync "$a/d"
done
[ "$KVTEST_MODE" != passthrough ] || cmp -s "$tmp/src" - <&$file ||
	fail "the open file is not whole"
exec {file}<&-

# (By the first one, before it stored them.)
[ "$(wc -l <"$tmp/manager.removed")" = 2 ] || fail "for a moment they were not kept"

echo "== SIGUSR2: it ends for the next one"
kill -USR2 "$(daemon_of a)"
wait_until 20 adopted_times 4
wait_ready a
[ "$(findmnt -no ID "$a")" = "$id" ] || fail "another mount"

swap() { # NAME EXPRESSION: something else is stored under this name
	python3 - "$tmp/manager" "$1" "$2" <<-'END'
		import os, socket, sys
		s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
		s.connect(sys.argv[1])
		s.send(b"FDSTOREREMOVE=1\nFDNAME=" + sys.argv[2].encode())
		socket.send_fds(s, [b"FDSTORE=1\nFDNAME=" + sys.argv[2].encode()], [eval(sys.argv[3])])
	END
}
for what in "kvpool-kept os.memfd_create('short')" "kvpool-device os.open('/dev/null',os.O_RDWR)"; do
	echo "== $what is stored: the next but one mounts again"
	# shellcheck disable=SC2086
	swap $what
	old=$(daemon_of a)
	kill -KILL "$old"
	wait_until 20 eval '! [ -e "/proc/$old" ]'
	wait_ready a
	timeout 20 cmp -s "$tmp/src" "$a/d/k" || fail "not readable"
done
id=$(findmnt -no ID "$a")

echo "== after a take-over, the other daemon's is kept"
old=$(daemon_of a) manager=${pid[a]} by_manager=${env_of[a]}
env_of[a]="NOTIFY_SOCKET=$tmp/manager FDSTORE=8"
# shellcheck disable=SC2086
start_node a --no-wait ${args_of[a]} --takeover
wait_until 20 eval '[ "$(daemon_of a)" = "${pid[a]}" ]'
wait_until 20 eval '! [ -e "/proc/$old" ]'
stored kvpool-device kvpool-kept || fail "kept: $(cat "$tmp/manager.stored")"
[ "$(findmnt -no ID "$a")" = "$id" ] || fail "another mount"
cmp -s "$tmp/src" "$a/d/k" || fail "not readable"

echo "== an end that was asked for leaves nothing"
stop a
! findmnt "$a" >/dev/null || fail "mounted"
wait "$manager" || fail "the service ended with $?"
stored '' || fail "kept: $(cat "$tmp/manager.stored")"

rm "$tmp"/manager{,.stored,.removed}
echo "== a take-over of a mount that another one covers: that one stays"
env_of[a]=
start_node a --store-size 128M
mount -t tmpfs cover "$a"
old=${pid[a]}
# shellcheck disable=SC2086
start_node a --no-wait ${args_of[a]} --takeover
wait_until 20 eval '! [ -e "/proc/$old" ]'
wait_ready a
stop a
[ "$(findmnt -no SOURCE "$a" | tail -n 1)" = cover ] || fail "it is gone"
umount "$a"
! findmnt "$a" >/dev/null || umount -l "$a"

echo "== the service manager starts nothing: the guard takes the mount away"
env_of[a]=$by_manager
start_node a --store-size 128M --keeper
wait_until 5 stored kvpool-device kvpool-kept
kill -STOP "${pid[a]}"
kill -KILL "$(daemon_of a)"
before=$SECONDS
timeout 60 cat "$a/d/k" >/dev/null 2>"$tmp/stderr" && fail "it was read"
grep -q 'abort\|not connected' "$tmp/stderr" || fail "it printed: $(cat "$tmp/stderr")"
[ $((SECONDS - before)) -ge 20 ] || fail "no time for another daemon"
kill9 a
umount -l "$a"
pass
