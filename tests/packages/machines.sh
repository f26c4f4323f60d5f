# Machines, each a Debian of its own that systemd has started in namespaces.
# Sourced first by the tests of packages, which `prepare` has prepared:
#
#   . "$(dirname "$0")/machines.sh"
#   machine_new a			# its files are in ${root[a]}
#   cp "$packages"/new/*.deb "${root[a]}/root/"
#   machine_boot a
#   on a systemctl ...
#
# The machines and all that ran on them end with the test.
# shellcheck shell=bash disable=SC2034 # what tests read
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
here=$(realpath "$(dirname "$0")")
packages=$KVTEST_BUILD/packages
[ -d "$packages" ] || skip "nothing in $packages: make check-packages"
[ ! -e "$packages/no-root" ] || skip "$(cat "$packages/no-root")"
need dpkg-deb unshare nsenter ip
ls "$packages"/new/kvpool-node_*.deb >/dev/null
[ -d "$packages/root/usr" ]
unshare --mount --uts --ipc --pid --cgroup --net --fork true 2>/dev/null ||
	skip "needs namespaces"
[ -w /sys/fs/cgroup ] || skip "needs /sys/fs/cgroup"

names=(kvpool-master kvpool-node libkvpool0 libkvpool-dev python3-kvpool kvpool-doc)
declare -A root=()	# by machine: its files
declare -A booted=()	# the process that started it
declare -A init=()	# its first process, as seen from here

# Status: that of the test. Commands may fail here, and cleanup goes on.
machines_end() {
	local status=$? m
	set +e
	for m in "${!booted[@]}"; do
		kill -KILL "${booted[$m]}" 2>/dev/null
		wait "${booted[$m]}" 2>/dev/null
	done
	# All that ran there ends with its first process, but not at once.
	for _ in {1..100}; do
		find /sys/fs/cgroup -path "*/kvt$$-*/cgroup.procs" \
			-exec sh -c 'cat "$@" | xargs -r kill -KILL' sh {} + 2>/dev/null
		find /sys/fs/cgroup -depth -type d -path "*/kvt$$-*" -exec rmdir {} + \
			2>/dev/null && break
		sleep 0.1
	done
	return $status
}
trap 'machines_end; cleanup' EXIT

# Packages of the version before, into DIR; where there are none, the same files
# with a lower version: what is upgraded is then seen by its inode.
packages_before() { # DIR PACKAGE...
	local dir=$1 p version
	shift
	for p; do
		if [ -d "$packages/before" ]; then
			cp "$packages/before/$p"_*.deb "$dir/"
			continue
		fi
		dpkg-deb -R "$packages/new/$p"_*.deb "$tmp/unpacked"
		version=$(dpkg-deb -f "$packages/new/$p"_*.deb Version)
		sed -i "s/$version/0.2.0~1.before/" "$tmp/unpacked/DEBIAN/control"
		dpkg-deb -b "$tmp/unpacked" "$dir/" >/dev/null
		rm -r "$tmp/unpacked"
	done
}

# What is written there is in memory, over the Debian that all have in common.
machine_new() { # NAME
	local layers=$tmp/$1.layers
	root[$1]=$tmp/$1
	mkdir "$tmp/$1" "$layers"
	mount -t tmpfs -o mode=755 tmpfs "$layers"
	mkdir "$layers"/{upper,work}
	mount -t overlay -o "lowerdir=$packages/root,upperdir=$layers/upper,workdir=$layers/work" \
		overlay "$tmp/$1" 2>/dev/null || cp -a "$packages/root/." "$tmp/$1/"
}

is_booted() { # NAME
	init[$1]=$(pgrep -P "${booted[$1]}") &&
		[ "$(cat "/proc/${init[$1]}/comm")" = systemd ]
}
is_up() { [ "$(on "$1" systemctl is-system-running 2>/dev/null)" = running ]; }

# In this network: a command that changes that may come before.
machine_boot() { # NAME [COMMAND...]
	local name=$1
	shift
	"$@" "$here/boot" "${root[$name]}" "kvt$$-$name" >"$tmp/$name.boot.log" 2>&1 </dev/null &
	booted[$name]=$!
	wait_until 30 is_booted "$name"
	wait_until 60 is_up "$name"
}

on() { # NAME COMMAND...
	local name=$1
	shift
	nsenter -t "${init[$name]}" -a --wdns=/root env -i HOME=/root \
		PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
}

# Fails if a process, a mount, or a name in memory of KVPool is on the machine, or
# a file beyond those in the list, or what dpkg knows.
nothing_left() { # NAME [FILE...]
	local name=$1 left
	shift
	left=$(on "$name" sh -c 'for p in /proc/[0-9]*; do readlink $p/exe; done' |
		grep kvpool || :)
	[ -z "$left" ] || fail "$name: still running: $left"
	left=$(on "$name" grep kvpool /proc/1/mountinfo || :)
	[ -z "$left" ] || fail "$name: mounted: $left"
	# (/proc and /sys are the kernel's; /root is the administrator's.)
	left=$(on "$name" find / \( -path /proc -o -path /sys -o -path /root \) -prune -o \
		-name '*kvpool*' -print | sort)
	[ "$left" = "$(printf '%s\n' "$@")" ] || fail "$name: left: $left"
	left=$(on "$name" dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' | grep kvpool || :)
	[ -z "$left" ] || fail "$name: dpkg knows: $left"
}
