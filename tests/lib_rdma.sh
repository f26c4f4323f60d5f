# For tests of RDMA, sourced after lib.sh: the devices of the guest, or of this
# machine if it has some (tests/guest/run), and how to break those of the guest.
#
#   #!/bin/bash
#   # modes: both
#   # guest: --rxe 2
#   . "$(dirname "$0")/lib.sh"
#   . "$(dirname "$0")/lib_rdma.sh"
#   start_master
#   start_node a --host "${rdma_addr[0]}" --no-fd-passing
#
# Devices, index by index, and an address of each: peers that are bound to
# different ones meet over the network. On a real machine two may be the same.

read -ra rdma_device <<<"${KVTEST_RDMA_DEVICES:-}"
read -ra rdma_addr <<<"${KVTEST_RDMA_ADDRS:-}"
[ ${#rdma_device[@]} -gt 0 ] || fail "not started by tests/guest/run"

# Whose devices are these: may they be broken?
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

# ---- only in the guest ----

# As a cable that is pulled: the device's port knows it. TCP between the guest's
# addresses goes on, as it does not pass there (but from a socket that is bound
# to its own address before it connects). rdma_loss 100 is a cut in silence.
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

rdma_remove() { # INDEX: as if it were pulled out
	rdma link delete "${rdma_device[$1]}"
}

rdma_restore() { # INDEX: after rdma_remove
	rdma link add "${rdma_device[$1]}" type rxe netdev "v$1"
	wait_until 5 rdma_gid_index "${rdma_device[$1]}" >/dev/null
}
