#!/bin/bash
# The packages on a machine of their own: the version before is installed, its
# units run, it is upgraded under a mount in use, mounted by mount(8) and by
# systemd, and purged.
# limit: 660
. "$(dirname "$0")/machines.sh"
machine_new a
r=${root[a]}
inside() { on a "$@"; }

# All files, and the users; but not what dpkg and systemd keep for themselves.
snapshot() {
	(cd "$r" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o \
		-path ./run -o -path ./tmp -o -path ./var/lib/dpkg -o -path ./var/cache -o \
		-path ./var/log -o -path ./var/lib/systemd -o -path ./root \) -prune -o \
		-print | grep -vE '^\./(etc/(passwd|group|shadow|gshadow|subuid|subgid)-|etc/machine-id|mnt)$' |
		sort)
	ls "$r/var/log"
	sort "$r/etc/passwd" "$r/etc/group"
}
snapshot >"$tmp/before"

mkdir -p "$r"/root/{before,new}
for p in "${names[@]}"; do cp "$packages/new/$p"_*.deb "$r/root/new/"; done
packages_before "$r/root/before" "${names[@]}"

echo "== installed"
machine_boot a unshare --net
install_all() { # DIR
	inside sh -c "dpkg -i /root/$1/*.deb" >"$tmp/dpkg" 2>&1 || fail "dpkg -i: $(cat "$tmp/dpkg")"
}
version() { inside dpkg-query -W -f '${Version}' kvpool-node; }
install_all before
inside python3 -c 'import kvpool' || fail "python3-kvpool does not load"
echo "kvpool-node $(version): $(inside kvpool version)"
was=$(version)

echo "== units run by name, and the mount shows"
cat >"$r/etc/kvpool/n1.env" <<'END'
KVPOOL_STORE_SIZE=64M
KVPOOL_MOUNT=/mnt/kvpool
END
cat >"$r/etc/kvpool/s1.env" <<'END'
KVPOOL_STORE_SIZE=64M
KVPOOL_LISTEN=127.0.0.1:7082
KVPOOL_ADMIN=127.0.0.1:7083
END
mkdir "$r"/mnt/{table,auto}
for u in kvpool-master kvpoold@n1 kvpool-store@s1; do
	inside systemctl enable -q --now $u || fail "$u: $(tail -n 20 "$tmp/a.boot.log")"
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
# Objects in a directory of which the store without a mount has copies, too.
inside sh -c 'head -c 3000000 /dev/urandom >/tmp/object
	mkdir /mnt/kvpool/two
	python3 -c "import os; os.setxattr(\"/mnt/kvpool/two\", \"user.kvpool.replicas\", b\"2\")"
	for i in 1 2 3 4 5 6 7 8 9; do cp /tmp/object /mnt/kvpool/two/$i || exit 1; done
	sync /mnt/kvpool/two' || fail "no objects"
twice() { # are all on both?
	inside python3 -c 'import os
for i in range(1, 10):
    assert os.getxattr(f"/mnt/kvpool/two/{i}", "user.kvpool.holders") == b"2", i' 2>/dev/null
}
wait_until 30 twice
# Reads what it has open, and writes the second half of a file, once /tmp/go exists.
inside sh -c 'exec 7</mnt/kvpool/two/1 8>/mnt/kvpool/written
	head -c 1000000 /tmp/object >&8; touch /tmp/open
	until [ -e /tmp/go ]; do sleep 0.1; done
	cmp /tmp/object /proc/self/fd/7 && tail -c +1000001 /tmp/object >&8 &&
		exec 8>&- && touch /tmp/same' &
user=$!
wait_until 10 test -e "$r/tmp/open"
node=$(pid_of kvpoold@n1) store=$(pid_of kvpool-store@s1) master=$(pid_of kvpool-master)
install_all new
[ "$(version)" != "$was" ] || fail "not upgraded: $was"
[ "$(pid_of kvpoold@n1)" = "$node" ] || fail "the node was restarted"
[ "$(pid_of kvpool-store@s1)" = "$store" ] || fail "the store was restarted"
[ "$(pid_of kvpool-master)" != "$master" ] || fail "the master was not restarted"
program() { inside readlink "/proc/$(pid_of kvpoold@n1)/exe"; }
[ "$(program)" = "/usr/bin/kvpoold (deleted)" ] || fail "the node's program is $(program)"

echo "== links of the documents lead to files, and examples are those of the sources"
documents=$r/usr/share/doc/kvpool
links() { # FILE: of other files
	grep -oE '\]\([^)#]+' "$1" | sed 's/^](//' | grep -v '^https\?:' || :
}
n_links=0
while read -r f; do
	for link in $(links "$f"); do
		[ -f "${f%/*}/$link" ] || fail "${f#"$r"}: no $link"
		n_links=$((n_links + 1))
	done
done < <(find "$documents" -name '*.md')
[ $n_links -ge 25 ] || fail "only $n_links links"
mkdir "$tmp/sources"
tar -xf "$packages/sources.tar.gz" -C "$tmp/sources" --strip-components 1
rm "$tmp"/sources/tools/deploy/image/{build,engine,sbom}	# work in the sources only
for d in tools/deploy tools/prometheus; do
	diff -r "$tmp/sources/$d" "$documents/$d" || fail "$d is not as in the sources"
done
rm -r "$tmp/sources"
echo "$n_links links, $(find "$documents" -type f | wc -l) files"

echo "== kvpool restart and a reload replace the program; a restart of the store keeps its objects"
for by in "kvpool restart --mount /mnt/kvpool" "systemctl reload kvpoold@n1"; do
	node=$(pid_of kvpoold@n1)
	# shellcheck disable=SC2086
	inside $by || fail "$by: $(tail "$r"/var/log/kvpool/*)"
	[ "$(pid_of kvpoold@n1)" != "$node" ] || fail "the same process serves"
	[ "$(inside systemctl is-active kvpoold@n1)" = active ] || fail "not active"
	[ "$(program)" = /usr/bin/kvpoold ] || fail "the node's program is $(program)"
done
echo "kvpool-node $(version): $(inside kvpool version)"
inside systemctl restart kvpool-store@s1 || fail "restart of the store"
wait_until 30 stores
touch "$r/tmp/go"
wait $user || fail "the files that were open are not whole"
[ -e "$r/tmp/same" ] || fail "the user of the mount did not finish"
whole() { # DIR [FILE...]: all objects
	inside sh -c 'cd "$1" && shift && for i; do cmp -s /tmp/object "$i" || exit 1; done' \
		sh "$1" written two/1 two/2 two/3 two/4 two/5 two/6 two/7 two/8 two/9
}
whole /mnt/kvpool || fail "an object was lost"
wait_until 30 twice

echo "== killed, it leaves the mount to the next one, and open files still work"
id=$(inside findmnt -no ID /mnt/kvpool)
inside sh -c 'exec 7</mnt/kvpool/two/1; touch /tmp/open2
	until [ -e /tmp/go2 ]; do sleep 0.1; done; cmp /tmp/object - <&7' &
user=$!
wait_until 10 test -e "$r/tmp/open2"
adopted() { # TIMES: by a process that systemd watches?
	[ "$(grep -c ' info adopted ' "$r/var/log/kvpool/kvpoold-n1.log")" = "$1" ] &&
		[[ $(pid_of kvpoold@n1) != @(0|"$node") ]]
}
for i in 1 2 3 4 5 6 7 8; do
	node=$(pid_of kvpoold@n1)
	inside sh -c "kill -KILL $node"
	wait_until 20 adopted "$i"
	whole /mnt/kvpool || fail "an object was lost"
	[ "$(inside findmnt -no ID /mnt/kvpool)" = "$id" ] || fail "another mount"
done
touch "$r/tmp/go2"
wait $user || fail "the file that was open is not whole"
node=$(pid_of kvpoold@n1)
inside sh -c "kill -USR2 $node" # it ends for the next one
wait_until 20 adopted 9
whole /mnt/kvpool || fail "an object was lost"
cat >"$r/etc/fstab" <<END
127.0.0.1:7070 /mnt/table kvpool allow_user=kvpool,_netdev,listen=127.0.0.1:7092,admin=127.0.0.1:7093 0 0
127.0.0.1:7070 /mnt/auto kvpool allow_user=kvpool,_netdev,listen=127.0.0.1:7094,admin=127.0.0.1:7095,noauto,x-systemd.automount 0 0
END

echo "== mount -a, and a mount when it is used"
! inside mount -t kvpool -o completion 127.0.0.1:7070 /mnt/table 2>"$tmp/stderr" ||
	fail "mounted with an unknown option"
grep -q 'unknown option "-o completion"' "$tmp/stderr" || fail "it printed: $(cat "$tmp/stderr")"
mounted() { [ -n "$(inside findmnt -n -t fuse.kvpool "$1")" ]; }
! mounted /mnt/table || fail "mounted before"
inside mount -a || fail "mount -a: $?"
mounted /mnt/table || fail "mount -a mounted nothing"
wait_until 10 whole /mnt/table
mounts=$(inside grep -c kvpool /proc/1/mountinfo)
inside mount -a || fail "mount -a, again: $?"
[ "$(inside grep -c kvpool /proc/1/mountinfo)" = "$mounts" ] || fail "mounted twice"
if [ -e /dev/autofs ]; then
	inside systemctl daemon-reload
	for _ in {1..6}; do
		inside systemctl start mnt-auto.automount || fail "no automount"
		[ "$(inside systemctl is-active mnt-auto.mount)" = inactive ] || fail "mounted at once"
		inside timeout 60 ls /mnt/auto >/dev/null || fail "not mounted when used"
		mounted /mnt/auto || fail "what is mounted there?"
		# (A node's names arrive when it has joined the master.)
		wait_until 10 whole /mnt/auto
		inside systemctl stop mnt-auto.mount
		! mounted /mnt/auto || fail "stopped, but mounted"
		# The next use begins while that daemon ends. (systemd starts a mount at
		# most five times in ten seconds.)
		inside systemctl reset-failed mnt-auto.mount
	done
	inside systemctl stop mnt-auto.automount
else
	echo "no /dev/autofs on this machine: x-systemd.automount was not tried"
fi
inside umount /mnt/table

echo "== purged, while the units run"
inside sh -c "dpkg --purge ${names[*]}" >"$tmp/dpkg" 2>&1 || fail "$(cat "$tmp/dpkg")"
rmdir "$r"/mnt/{table,auto}
nothing_left a
snapshot >"$tmp/after"
diff "$tmp/before" "$tmp/after" || fail "purged, but not as before"
pass
