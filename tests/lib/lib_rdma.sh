# For tests of RDMA, sourced after lib.sh: the devices of the guest, or of this
# machine if it has some (tests/guest/run), and how to break those of the guest.
#
#   #!/bin/bash
#   # modes: both
#   # guest: --rxe 2
#   . "$(dirname "$0")/../lib/lib.sh"
#   . "$(dirname "$0")/../lib/lib_rdma.sh"
#   start_master
#   start_node a --host "${rdma_addr[0]}" --no-fd-passing
#
# The devices, and an address of each: peers that are bound to different ones
# connect over the network. On a real machine two entries may be the same.

read -ra rdma_device <<<"${KVTEST_RDMA_DEVICES:-}"
read -ra rdma_addr <<<"${KVTEST_RDMA_ADDRS:-}"
[ ${#rdma_device[@]} -gt 0 ] || fail "not started by tests/guest/run"

# Are these the guest's devices, which may be broken?
rdma_is_guest() { [ -n "${KVTEST_GUEST:-}" ]; }

# ibv_devinfo and perftest want an index into the device's table of addresses.
rdma_gid_index() { # DEVICE: that of RoCE v2 with an IPv4 address
	local dir=/sys/class/infiniband/$1/ports/1 i gid type
	for ((i = 0; i < 32; i++)); do
		read -r gid <"$dir/gids/$i" &&
			read -r type <"$dir/gid_attrs/types/$i" || continue
		[[ $type != *v2 || $gid != *:ffff:* ]] || {
			echo "$i"
			return
		}
	done 2>/dev/null
	return 1
}

# ---- nodes that move bytes by RDMA ----

MIB=1048576

# rdma_node NAME INDEX[,INDEX] OPTION...: bound to the first one's address
rdma_node() {
	local name=$1 i devices=
	local -a which
	IFS=, read -ra which <<<"$2"
	shift 2
	for i in "${which[@]}"; do
		devices+=${devices:+,}${rdma_device[$i]}
	done
	if [ -z "${listen[$name]:-}" ]; then
		free_port; listen[$name]=${rdma_addr[${which[0]}]}:$port
		free_port; admin[$name]=127.0.0.1:$port # faults are accepted there
		store[$name]=$tmp/$name.store
	fi
	start_node "$name" --no-fd-passing --store-size 256M --transport rdma \
		--rdma-device "$devices" "$@"
}

rdma_count() { # NAME COUNTER
	metric "${admin[$1]}" "kvpool_rdma_$2"
}

rdma_rose() { # NAME COUNTER MORE-THAN
	local now
	now=$(rdma_count "$1" "$2" 2>/dev/null) && [ "$now" -gt "$3" ]
}

rdma_port_count() { # NAME INDEX sent|received: bytes by that device
	rdma_count "$1" "port_$3_bytes_total{device=\"${rdma_device[$2]}\",port=\"1\"}"
}

rdma_put() { # KEY SIZE [NODE]: random bytes, written at a, as $tmp/KEY, too
	local at=${mount[${3:-a}]}
	mkdir -p "$(dirname "$tmp/$1")"
	head -c "$2" /dev/urandom >"$tmp/$1"
	cp "$tmp/$1" "$at/$1"
	sync "$at" "$(dirname "$at/$1")"
}

# rdma_get KEY [NODE]: reads there what was put, and compares it. In an emulated
# guest on a busy machine an open may reach its deadline: that is a miss. The
# third in a row fails the test.
rdma_missed=0
rdma_get() {
	local tries
	tries=$(rdma_is_guest && echo 3 || echo 1)
	until rdma_read "$@"; do
		[ $((tries -= 1)) -gt 0 ] || fail "$1 is not there at ${2:-b}"
		rdma_missed=$((rdma_missed + 1))
	done
}

rdma_read() { # KEY [NODE]: the same, once; fails if it is a miss
	local status=0
	cmp "$tmp/$1" "${mount[${2:-b}]}/$1" || status=$?
	[ $status != 1 ] || fail "$1 is not right at ${2:-b}"
	return $status
}

# ---- in the middle of a transfer from a to b ----

n=0
rdma_moved() { # NAME COUNTER BEFORE: is it in the middle of something new?
	local now
	now=$(rdma_count "$1" "$2") && [ "$now" -gt "$3" ]
}

# while_moving COMMAND...: runs the command while a new object is read at b, and
# compares the bytes. (As above, a miss may be due to the deadline.) Needs a fault
# that slows the transfer down.
while_moving() {
	local tries=3
	until try_while_moving "$@"; do
		[ $((tries -= 1)) -gt 0 ] || fail "no read is right: $*"
	done
}

try_while_moving() {
	local before status=0 begin
	n=$((n + 1))
	rdma_put "k$n" $((8 * MIB))
	before=$(rdma_count b received_bytes_total)
	cmp "$tmp/k$n" "${mount[b]}/k$n" &
	local reader=$!
	also_kill=($reader)
	until rdma_moved b received_bytes_total "$before"; do
		kill -0 $reader 2>/dev/null || break
	done
	begin=${EPOCHREALTIME/./}
	"$@"
	wait $reader || status=$?
	also_kill=()
	echo "$*: read $(((${EPOCHREALTIME/./} - begin) / 1000)) ms later:" \
		"$(($(rdma_count b received_bytes_total) - before)) bytes by" \
		"RDMA, status $status"
	[ $status != 1 ] || fail "k$n is not right"
	return $status
}

by_rdma() { # is the next object read by RDMA alone?
	local before
	n=$((n + 1))
	rdma_put "k$n" $((2 * MIB))
	before=$(rdma_count b received_bytes_total)
	rdma_get "k$n"
	[ $(($(rdma_count b received_bytes_total) - before)) = $((2 * MIB)) ]
}

# ---- only in the guest ----

# Like pulling a cable: the device's port goes down. TCP between the guest's
# addresses continues, because it does not pass there (except from a socket that is
# bound to its own address before it connects). rdma_loss 100 cuts silently.
rdma_link() { # INDEX up|down
	ip link set "p$1" "$2"
}

rdma_loss() { # INDEX PERCENT: of what the device sends; 0: none
	if [ "$2" = 0 ]; then
		tc qdisc del dev "v$1" root 2>/dev/null || :
	else
		tc qdisc replace dev "v$1" root netem limit 100000 loss "$2%"
	fi
}

rdma_cut() { # INDEX...: at once, all that these send is lost
	printf 'qdisc replace dev v%s root netem limit 100000 loss 100%%\n' "$@" |
		tc -batch -
}

rdma_remove() { # INDEX: as if it were pulled out
	rdma link delete "${rdma_device[$1]}"
}

rdma_restore() { # INDEX: after rdma_remove
	rdma link add "${rdma_device[$1]}" type rxe netdev "v$1"
	wait_until 5 rdma_gid_index "${rdma_device[$1]}" >/dev/null
}
