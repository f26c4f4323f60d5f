#!/bin/bash
# The README's three nodes with the packages, as an operator types them, on three
# machines of one network. The commands are taken from the README; but a node's
# memory is less there. The third node only gives memory. Beside it runs what
# stands for an engine, which uses the library. All of it begins as the version
# before, and is upgraded under load.
# limit: 660
. "$(dirname "$0")/machines.sh"
readme=$(realpath "$here/../../README.md")

# The commands of the README that follow the first line with TEXT, up to prose.
steps() { # TEXT
	local got
	got=$(awk -v text="$1" '
		index($0, text) { on = 1; next }
		on && /^    / { print substr($0, 5); seen = 1 }
		seen && /^[^ ]/ { exit }' "$readme")
	[ -n "$got" ] || fail "README.md: no commands after \"$1\""
	printf '%s\n' "$got"
}
operator() { # MACHINE COMMANDS
	printf '%s\n' "$2" | sed 's/^/    /'
	on "$1" sh -eu -c "cd /root; $2" >"$tmp/output" 2>&1 || fail "$1: $(cat "$tmp/output")"
}

echo "== three machines"
for i in 1 2 3; do
	machine_new m$i
	mkdir "${root[m$i]}/root/new"
	packages_before "${root[m$i]}/root" kvpool-master kvpool-node
	ns_add m$i 10.0.0.$i
	machine_boot m$i nsenter --net="/run/netns/${ns_tag}m$i"
done

echo "== installed; certificates are made on the first"
for i in 1 2 3; do operator m$i "$(steps 'With the packages, systemd runs them')"; done
operator m1 "$(steps 'Every host needs a certificate')"
hand_over() { # DIR MACHINE
	cp -r "${root[m1]}/root/$1" "${root[$2]}/etc/kvpool/"
}
hand_over m m1
for i in 1 2 3; do hand_over n$i m$i; done

echo "== the master, and a node on each machine"
operator m1 "$(steps "On the master's machine, with the directory m copied")"
second=$(steps 'On each node with a mount, here the second' | sed 's/200G/64M/')
operator m1 "$(sed 's/n2/n1/g; s/10\.0\.0\.2/10.0.0.1/' <<<"$second")"
operator m2 "$second"
operator m3 "$(steps 'On each node that only gives memory' | sed 's/200G/64M/')"
nodes() { on m1 kvpool nodes --tls-dir /etc/kvpool/m; }
# (The engine is a node, too.)
alive() { [ "$(nodes | grep -c '^n[123] .* alive ')" = 3 ]; }
wait_until 30 alive
nodes

echo "== what one writes, the other reads; with two copies the third has one"
on m1 sh -euc 'mkdir /mnt/kvpool/two
	python3 -c "import os; os.setxattr(\"/mnt/kvpool/two\", \"user.kvpool.replicas\", b\"2\")"
	head -c 3000000 /dev/urandom >/root/object
	for i in 1 2 3 4 5 6; do cp /root/object /mnt/kvpool/two/$i; done
	sync /mnt/kvpool/two'
cp "${root[m1]}/root/object" "${root[m2]}/root/"
same() { # MACHINE OBJECT...
	local m=$1
	shift
	on "$m" sh -c 'for i; do cmp -s /root/object /mnt/kvpool/two/$i || exit 1; done' \
		sh "$@"
}
wait_until 10 same m2 1 2 3 # and of the others it has no cached copies
holders() { # the nodes with a copy of each of them
	on m1 python3 -c 'import os
for i in range(1, 7):
    print(os.getxattr(f"/mnt/kvpool/two/{i}", "user.kvpool.nodes").decode())'
}
twice() { [ "$(holders | grep -c ' \|,')" = 6 ]; }
wait_until 30 twice
holders | sort | uniq -c

echo "== an engine beside the third's store, and load on all"
engine=/etc/kvpool/e3
on m1 sh -euc 'cd /root; kvpool certs issue --dir ca --role client --host 10.0.0.3 --out e3'
hand_over e3 m3
packages_before "${root[m3]}/root" libkvpool0 python3-kvpool
operator m3 "apt install ./libkvpool0_*.deb ./python3-kvpool_*.deb"
cp "${root[m1]}/root/object" "${root[m3]}/root/"
loads=()
load() { # MACHINE [DIR]: an unfinished one is in loads
	local m=$1
	shift
	cp "$here/load.py" "${root[$m]}/root/"
	on "$m" env KVPOOL_MASTER=10.0.0.1:7070 KVPOOL_LISTEN=10.0.0.3:0 \
		KVPOOL_TLS_DIR=$engine python3 /root/load.py "$@" >"$tmp/$m.load" 2>&1 &
	loads+=($!)
	also_kill+=($!)
}
load m1 /mnt/kvpool/two
load m2 /mnt/kvpool/two
load m3
rounds() { cat "${root[$1]}/root/load" 2>/dev/null || echo 0; }
# Has it done more? If it has ended, it never will.
more_than() { # MACHINE ROUNDS
	[ "$(rounds "$1")" -gt "$2" ] || [ -s "$tmp/$1.load" ]
}
# All of them have gone on since then.
load_goes_on() {
	local m
	for m in m1 m2 m3; do
		wait_until 30 more_than $m $(($(rounds $m) + 5))
		[ ! -s "$tmp/$m.load" ] || fail "$m: $(tail -n 5 "$tmp/$m.load")"
	done
}
load_goes_on

echo "== a node is killed"
pid_of() { on "$1" systemctl show -P MainPID "$2"; } # MACHINE UNIT
killed=$(pid_of m3 kvpool-store@n3)
on m3 systemctl kill -s KILL kvpool-store@n3
restarted() { [ "$(pid_of m3 kvpool-store@n3)" != "$killed" ] && alive; }
wait_until 30 restarted
load_goes_on

echo "== the version is upgraded, one machine after the other"
serves() { # MACHINE: its node's program, as systemd knows it
	on "$1" readlink "/proc/$(pid_of "$1" "$2")/exe"
}
for m in m1 m2 m3; do
	cp "$packages"/new/kvpool-node_*.deb "${root[$m]}/root/new/"
	[ $m != m1 ] || cp "$packages"/new/kvpool-master_*.deb "${root[$m]}/root/new/"
	unit=kvpoold@n${m#m} how=reload
	[ $m != m3 ] || unit=kvpool-store@n3 how=restart
	operator $m "dpkg -i new/*.deb"
	[ "$(serves $m $unit)" = "/usr/bin/kvpoold (deleted)" ] || fail "$m: $unit was restarted"
	operator $m "systemctl $how $unit"
	[ "$(serves $m $unit)" = /usr/bin/kvpoold ] || fail "$m: $unit is $(serves $m $unit)"
	wait_until 30 alive
	load_goes_on
done
for m in m1 m2 m3; do touch "${root[$m]}/root/stop"; done
for l in "${loads[@]}"; do
	wait "$l" || fail "an operation failed: $(tail -n 5 "$tmp"/m?.load)"
done
also_kill=()
cat "$tmp"/m?.load

echo "== a client without a certificate is refused"
cat >"${root[m2]}/root/stranger.py" <<'END'
import socket, ssl
tls = ssl.create_default_context(cafile="/etc/kvpool/n2/ca.crt")
for port in 7070, 7072:
    with socket.create_connection(("10.0.0.1", port)) as s:
        try:
            with tls.wrap_socket(s, server_hostname="10.0.0.1") as t:
                print(port, "answered:", t.recv(1))
        except ssl.SSLError as e:
            print(port, "refused:", e.reason)
END
on m2 python3 /root/stranger.py | tee "$tmp/output"
[ "$(grep -c 'refused: TLSV13_ALERT_CERTIFICATE_REQUIRED' "$tmp/output")" = 2 ] ||
	fail "not refused"

echo "== a machine is switched off: no object is lost"
kill -KILL "${init[m1]}"
gone() { grep -q 'NOT connected' < <(on m2 kvpool status); }
wait_until 30 gone
same m2 1 2 3 4 5 6 || fail "objects went with the first machine"

echo "== purged: the certificates stay, and with them the user"
for i in 2 3; do
	installed=$(on m$i dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' '*kvpool*' |
		awk '$1 == "ii" { print $2 }' | paste -sd ' ')
	operator m$i "apt-get -y purge $installed"
	on m$i rm -rf $engine /dev/shm/kvpool-0 # the engine's: it ran as root
	[ "$(on m$i ls /etc/kvpool)" = n$i ] || fail "m$i: $(on m$i ls /etc/kvpool)"
	on m$i getent passwd kvpool >/dev/null || fail "m$i: no user"
	on m$i rm -r /etc/kvpool
	nothing_left m$i
done
pass
