#!/bin/bash
# A service with a keeper: after a take-over systemd is notified that the new keeper
# is the service. If it watched the daemon, the service would fail with the daemon
# that is killed, though its keeper starts the next one.
# modes: both
# limit: 120
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need jq python3

daemon_of() { status_json "$1" .pid; } # pid[NAME] is the keeper's
notified() { grep -qx "$1" "$tmp/notifications"; }

# Listens as systemd does.
cat >"$tmp/systemd.py" <<-'END'
	import socket, sys
	s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
	s.bind(sys.argv[1])
	while True:
	    print(s.recv(4096).decode(), flush=True)
END
python3 "$tmp/systemd.py" "$tmp/systemd" >"$tmp/notifications" 2>&1 &
also_kill=($!)
wait_until 10 test -S "$tmp/systemd"

start_master
export NOTIFY_SOCKET=$tmp/systemd
start_node a --store-size 64M --keeper
unset NOTIFY_SOCKET
wait_until 10 notified READY=1
options=${args_of[a]}

take_over() {
	old=${pid[a]}
	# shellcheck disable=SC2086
	NOTIFY_SOCKET=$tmp/systemd start_node a --no-wait $options --takeover
	wait "$old" || fail "what handed over ended with $?"
	wait_ready a
}

for i in 1 2; do
	echo "== take-over $i: the new keeper is the service"
	take_over
	[ "$(daemon_of a)" != "${pid[a]}" ] || fail "it has no keeper"
	notified "MAINPID=${pid[a]}" ||
		fail "keeper ${pid[a]}, but: $(tr '\n' ' ' <"$tmp/notifications")"
	[ "$(grep -c MAINPID= "$tmp/notifications")" = "$i" ] ||
		fail "more than one a take-over: $(tr '\n' ' ' <"$tmp/notifications")"
done

echo "== to a daemon without a keeper: it is the service"
options=${options/ --keeper/}
take_over
[ "$(daemon_of a)" = "${pid[a]}" ] || fail "it has a keeper"
notified "MAINPID=${pid[a]}" ||
	fail "daemon ${pid[a]}, but: $(tr '\n' ' ' <"$tmp/notifications")"
pass
