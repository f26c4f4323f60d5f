#!/bin/bash
# The packages in a Debian of their own, which systemd has started: installed,
# their units run, upgraded under a mount in use, and purged.
# limit: 600
. "$(dirname "$0")/../lib/lib.sh"
need mmdebstrap dpkg-deb unshare nsenter
need_fuse
here=$(realpath "$(dirname "$0")")
debs=$(realpath "$KVTEST_BUILD")/deb
ls "$debs"/kvpool-node_*.deb >/dev/null 2>&1 || skip "no packages in $debs: make deb"
packages=(kvpool-master kvpool-node libkvpool0 libkvpool-dev python3-kvpool kvpool-doc)
root=$tmp/root
mkdir -p "$root"

booted=
leave() {
	local status=$?
	[ -z "$booted" ] || kill -KILL "$booted" 2>/dev/null || :
	wait 2>/dev/null || :
	rmdir /sys/fs/cgroup{,/unified,/systemd}/kvpool-$$ 2>/dev/null || :
	return $status
}
trap 'leave; cleanup' EXIT

echo "== a Debian with all that the packages depend on"
apt=(apt-get -qq -y --no-install-recommends -o Dpkg::Use-Pty=0)
depends=$(for p in "${packages[@]}"; do
	dpkg-deb -f "$debs/$p"_*.deb Depends
done | tr ',' '\n' | grep -v kvpool | sort -u | sed '/^ *$/d' | paste -sd,)
mmdebstrap --quiet --variant=minbase --include=systemd,fuse3,passwd bookworm "$root" \
	>"$tmp/mmdebstrap" 2>&1 ||
	skip "no Debian from the mirror: $(tail -n 1 "$tmp/mmdebstrap")"
cp /etc/resolv.conf "$root/etc/"
inside_root() { DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"; }
{
	inside_root "${apt[@]}" update
	inside_root "${apt[@]}" satisfy "$depends"
} >"$tmp/apt" 2>&1 || skip "no packages from the mirror: $(tail -n 1 "$tmp/apt")"

# All files, and the users; but not what dpkg and systemd keep for themselves.
snapshot() {
	(cd "$root" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o \
		-path ./run -o -path ./tmp -o -path ./var/lib/dpkg -o -path ./var/cache -o \
		-path ./var/log -o -path ./var/lib/systemd -o -path ./root \) -prune -o \
		-print | grep -vE '^\./(etc/(passwd|group|shadow|gshadow|subuid|subgid)-|etc/machine-id|mnt)$' |
		sort)
	ls "$root/var/log"
	sort "$root/etc/passwd" "$root/etc/group"
}
snapshot >"$tmp/before"

# The version before: the same files. What is upgraded is seen by its inode.
mkdir -p "$root"/root/{old,new} # /tmp is emptied
for p in "${packages[@]}"; do
	cp "$debs/$p"_*.deb "$root/root/new/"
	dpkg-deb -R "$debs/$p"_*.deb "$tmp/$p"
	version=$(dpkg-deb -f "$debs/$p"_*.deb Version)
	sed -i "s/$version/0.2.0~1.before/" "$tmp/$p/DEBIAN/control"
	dpkg-deb -b "$tmp/$p" "$root/root/old/" >/dev/null
done

echo "== installed"
"$here/boot" "$root" kvpool-$$ >"$tmp/boot.log" 2>&1 </dev/null &
booted=$!
init() { init=$(pgrep -P $booted) && [ "$(cat "/proc/$init/comm")" = systemd ]; }
wait_until 30 init
inside() {
	nsenter -t "$init" -a --wdns=/ env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
		DEBIAN_FRONTEND=noninteractive "$@"
}
is_up() { [ "$(inside systemctl is-system-running 2>/dev/null)" = running ]; }
wait_until 60 is_up
install_all() { # DIR
	inside sh -c "dpkg -i $1/*.deb" >"$tmp/dpkg" 2>&1 || fail "dpkg -i: $(cat "$tmp/dpkg")"
}
install_all /root/old
inside python3 -c 'import kvpool' || fail "python3-kvpool does not load"
inside kvpool version

echo "== units run by name, and the mount shows"
cat >"$root/etc/kvpool/n1.env" <<'END'
KVPOOL_STORE_SIZE=64M
KVPOOL_MOUNT=/mnt/kvpool
END
cat >"$root/etc/kvpool/s1.env" <<'END'
KVPOOL_STORE_SIZE=64M
KVPOOL_LISTEN=127.0.0.1:7082
KVPOOL_ADMIN=127.0.0.1:7083
END
mkdir "$root"/mnt/{kvpool,table,auto}
for u in kvpool-master kvpoold@n1 kvpool-store@s1; do
	inside systemctl enable -q --now $u || fail "$u: $(tail -n 20 "$tmp/boot.log")"
done
inside findmnt -n /mnt/kvpool || fail "the mount does not show"
pid_of() { inside systemctl show -P MainPID "$1"; }
status_of() { inside sed -n "s/^$2:\t*//p" "/proc/$(pid_of "$1")/status"; }
for u in kvpool-master kvpool-store@s1; do
	[ "$(status_of $u CapEff)" = 0000000000000000 ] || fail "$u has capabilities"
	[ "$(status_of $u Seccomp)" = 2 ] || fail "$u: system calls are not filtered"
	[ "$(status_of $u Uid | cut -f1)" != 0 ] || fail "$u runs as root"
done
stores() { [ "$(inside kvpool nodes | grep -c ' alive ')" = 2 ]; }
wait_until 30 stores

echo "== an upgrade leaves the mount, and who uses it, alone"
inside sh -c 'head -c 3000000 /dev/urandom >/tmp/object
	for i in 1 2 3 4 5 6 7 8 9; do cp /tmp/object /mnt/kvpool/$i || exit 1; done
	sync /mnt/kvpool' || fail "no objects"
# Holds an object open, and reads it again when told.
inside sh -c 'exec 7</mnt/kvpool/1; touch /tmp/open
	until [ -e /tmp/go ]; do sleep 0.1; done
	cmp /tmp/object /proc/self/fd/7 && touch /tmp/same' &
reader=$!
wait_until 10 test -e "$root/tmp/open"
node=$(pid_of kvpoold@n1) store=$(pid_of kvpool-store@s1) master=$(pid_of kvpool-master)
install_all /root/new
[ "$(pid_of kvpoold@n1)" = "$node" ] || fail "the node was restarted"
[ "$(pid_of kvpool-store@s1)" = "$store" ] || fail "the store was restarted"
[ "$(pid_of kvpool-master)" != "$master" ] || fail "the master was not restarted"
program() { inside readlink "/proc/$(pid_of kvpoold@n1)/exe"; }
[ "$(program)" = "/usr/bin/kvpoold (deleted)" ] || fail "the node's program is $(program)"

echo "== a reload replaces the program, twice"
for _ in 1 2; do
	node=$(pid_of kvpoold@n1)
	inside systemctl reload kvpoold@n1 || fail "reload: $(tail "$root"/var/log/kvpool/*)"
	[ "$(pid_of kvpoold@n1)" != "$node" ] || fail "the same process serves"
	[ "$(inside systemctl is-active kvpoold@n1)" = active ] || fail "not active"
	[ "$(program)" = /usr/bin/kvpoold ] || fail "the node's program is $(program)"
done
touch "$root/tmp/go"
wait $reader || fail "the file that was open is not whole"
[ -e "$root/tmp/same" ] || fail "the reader said nothing"
inside sh -c 'for i in 1 2 3 4 5 6 7 8 9; do cmp /tmp/object /mnt/kvpool/$i || exit 1; done' ||
	fail "an object was lost"

echo "== mount -a, and a mount when it is used"
common=allow_user=kvpool,_netdev
cat >"$root/etc/fstab" <<END
127.0.0.1:7070 /mnt/table kvpool $common,listen=127.0.0.1:7092,admin=127.0.0.1:7093 0 0
127.0.0.1:7070 /mnt/auto kvpool $common,listen=127.0.0.1:7094,admin=127.0.0.1:7095,noauto,x-systemd.automount 0 0
END
inside mount -a || fail "mount -a: $?"
inside cmp /tmp/object /mnt/table/5 || fail "mounted by mount -a, but empty"
if [ -e /dev/autofs ]; then
	inside systemctl daemon-reload
	inside systemctl start mnt-auto.automount || fail "no automount"
	[ "$(inside systemctl is-active mnt-auto.mount)" = inactive ] || fail "mounted at once"
	inside timeout 60 cmp /tmp/object /mnt/auto/5 || fail "not mounted when used"
	inside findmnt -n -t fuse.kvpool /mnt/auto || fail "what is mounted there?"
	inside systemctl stop mnt-auto.automount mnt-auto.mount
else
	echo "no /dev/autofs on this machine: x-systemd.automount was not tried"
fi
inside umount /mnt/table

echo "== purged"
inside sh -c "dpkg --purge ${packages[*]}" >"$tmp/dpkg" 2>&1 || fail "$(cat "$tmp/dpkg")"
! inside findmnt -n -t fuse.kvpool || fail "a mount is left"
left=$(nsenter -t "$init" -a --wdns=/ sh -c 'ls -l /proc/[0-9]*/exe' 2>/dev/null |
	grep -E 'kvpool(d|-master)' || :)
[ -z "$left" ] || fail "still running: $left"
inside find /run /dev/shm -name '*kvpool*' >"$tmp/left"
[ ! -s "$tmp/left" ] || fail "left: $(cat "$tmp/left")"
rmdir "$root"/mnt/*
snapshot >"$tmp/after"
diff "$tmp/before" "$tmp/after" || fail "purged, but not as before"
pass
