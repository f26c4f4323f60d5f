# The guest's first process, once it has the host's root: the devices, then the
# command. Knows /run/guest, which is shared with the host:
#
#   settings   what to source: RXE (number of devices), NET (the first three
#              bytes of their addresses), MTU, RESULTS (directory or nothing)
#   command    what to run
#   status     its exit status, written here; "clock": it was not run, as time
#              would go wrong
#   started    written before it
#   dmesg      the kernel's messages since the command's start, if it failed
#
# Devices rxe0, rxe1, ... have the addresses $NET.1, $NET.2, ..., each on its
# own interface v0, v1, ... whose other ends p0, p1, ... are ports of a bridge:
# what they send each other passes all of that, although it is all one machine.
# (rxe works in the first network namespace only.)
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
. /run/guest/settings
halt() { busybox poweroff -f; }
die() {
	echo "guest: $*" >/dev/kmsg
	halt
}

mount -t sysfs sysfs /sys
mkdir -p /dev/shm /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t devpts devpts /dev/pts
ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin
ln -s fd/1 /dev/stdout
ln -s fd/2 /dev/stderr
if [ -n "$RESULTS" ]; then
	mkdir -p "$RESULTS"
	mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 \
		results "$RESULTS" || die "no results directory"
fi
hostname guest
ulimit -l unlimited

# Routes of one's own addresses never leave the machine, unless they are asked
# after these rules: by the sender's address, or by its interface (rdma_cm).
make_network() {
	local i
	echo "link set lo up"
	echo "rule add pref 100 lookup local"
	echo "rule del pref 0"
	echo "link add br0 mtu $MTU type bridge"
	echo "link set br0 up"
	for ((i = 0; i < RXE; i++)); do
		local mac=02:00:00:00:00:0$((i + 1)) table=$((1000 + i))
		echo "link add v$i mtu $MTU address $mac" \
			"type veth peer name p$i mtu $MTU"
		echo "link set p$i master br0 up"
		echo "link set v$i up"
		echo "addr add $NET.$((i + 1))/32 dev v$i"
		echo "route add $NET.0/24 dev v$i src $NET.$((i + 1)) table $table"
		echo "route add local $NET.$((i + 1)) dev v$i table $table"
		echo "rule add pref 10 iif lo from $NET.$((i + 1))" \
			"to $NET.0/24 lookup $table"
		echo "rule add pref 11 oif v$i to $NET.0/24 lookup $table"
	done
	neighbours
}

neighbours() {
	local i j
	for ((i = 0; i < RXE; i++)); do
		for ((j = 0; j < RXE; j++)); do
			[ $i = $j ] || echo "neigh add $NET.$((j + 1)) dev v$i" \
				"lladdr 02:00:00:00:00:0$((j + 1)) nud permanent"
		done
	done
}

set_sysctls() {
	local net=/proc/sys/net i
	# veth and lo would drop what is above 1000 packets of a large READ.
	echo 100000 >$net/core/netdev_max_backlog
	echo 0 >$net/ipv6/conf/default/accept_dad
	echo 0 >$net/ipv4/conf/all/rp_filter
	echo 0 >$net/ipv4/conf/default/rp_filter
	# Packets come from addresses that are ours, too.
	echo 1 >$net/ipv4/conf/default/accept_local
}

has_ipv4_gid() { # DEVICE
	local i gid
	for i in 1 2 3; do
		read -r gid <"/sys/class/infiniband/$1/ports/1/gids/$i" || return
		[[ $gid != *:ffff:* ]] || return 0
	done 2>/dev/null
	return 1
}

make_devices() {
	local i tries
	for ((i = 0; i < RXE; i++)); do
		echo "link add rxe$i type rxe netdev v$i"
	done >/run/devices
	rdma -b /run/devices || return
	for ((i = 0; i < RXE; i++)); do
		# The table of addresses follows later.
		for ((tries = 500; ; tries--)); do
			has_ipv4_gid rxe$i && break
			[ $tries -gt 0 ] || return
			sleep 0.02
		done
	done
}

# On a busy host the kernel may take the TSC for many times slower than it is (so
# that deadlines pass at once): then what it measures later differs too much, and
# it keeps silent about that.
clock_is_right() {
	local source=/sys/devices/system/clocksource/clocksource0 tries
	for ((tries = 500; tries; tries--)); do
		[ "$(<$source/current_clocksource)" = tsc-early ] || break
		sleep 0.02
	done
	[ "$(<$source/current_clocksource)" != tsc ] ||
		grep -q 'Refined TSC' < <(dmesg)
}

if [ "$RXE" -gt 0 ]; then
	set_sysctls
	make_network >/run/network
	ip -batch /run/network || die "no network"
	make_devices || die "no RDMA devices"
	rm /run/network /run/devices
else
	ip link set lo up
fi
[ -c /dev/vport0p1 ] || die "no port for the output"

clock_is_right || {
	echo clock >/run/guest/status
	sync
	halt
}
echo "guest: the command starts" >/dev/kmsg
echo yes >/run/guest/started
bash /run/guest/command </dev/null >/dev/vport0p1 2>&1
status=$?
[ $status = 0 ] ||
	dmesg | sed '1,/guest: the command starts/d' >/run/guest/dmesg
echo $status >/run/guest/status
sync
halt
