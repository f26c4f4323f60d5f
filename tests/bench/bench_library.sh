#!/bin/bash
# Calls of libkvpool in one table, with what they are to be: objects moved, beside
# a raw socket; small ones put faster than stores take them; questions about keys
# that another process has put, half of them misses, while others are evicted, and
# while bytes are moved. Memory that is free is kept from a hypervisor meanwhile
# (lib_bench.sh).
#   KVTEST_KEYS=1000000 KVTEST_ROUNDS=15 KVTEST_ONLY="here tcp small ask look" KVTEST_PACE=100
. "$(dirname "$0")/lib_bench.sh"
need_fuse
presses=
end() {
	local status=$?
	set +e
	[ -z "$presses" ] || kill "$presses"
	[ -z "$presses" ] || wait "$presses"
	rm -rf "/dev/shm/kvbench.$$"
	put_back
	(exit $status)
	cleanup
}
trap end EXIT
rounds=${KVTEST_ROUNDS:-15} keys=${KVTEST_KEYS:-1000000}
pace=${KVTEST_PACE:-100}	# MiB/s that press while questions are asked
only=${KVTEST_ONLY:-here tcp small ask look}
keep_from_host
touch_memory "${KVTEST_TOUCH:-8}"
start_master

wants() { # PART
	[[ " $only " == *" $1 "* ]]
}

evicted() { # NAME: objects
	http "${admin[$1]}/metrics" | awk '
		/^kvpool_node_evicted_(granted|cached|alone)_total/ { sum += $2 }
		END { printf "%d\n", sum }'
}

evicts() { # NAME: something has gone
	[ "$(evicted "$1")" != 0 ]
}

begin_press() { # MIBPS
	library_ask "${mount[c]}" press "$1" &
	presses=$!
}

end_press() {
	kill "$presses"
	wait "$presses" || :
	presses=
}

end_node() { # NAME
	stop "$1"
	umount "${store[$1]}" 2>/dev/null || rm -rf "${store[$1]}"
}

echo "(CPUs $(nproc), load $(cut -d' ' -f1 /proc/loadavg); medians of $rounds rounds)"
[ -z "$again" ] || echo "with $again (put back afterwards)"
if wants here; then
	echo "-- store on this host: descriptors are lent, puts lie in its files"
	start_node a --store-size 3G
	library_bench "${mount[a]}" stock "$rounds"
	library_bench "${mount[a]}" move "$rounds"
	end_node a
fi
if wants tcp; then
	start_node b --no-mount --store-size 4G --no-fd-passing
	mkdir "$tmp/buffer"
	mount -t tmpfs -o huge=within_size,size=1G,mode=0700 tmpfs "$tmp/buffer"
	export LIBRARY_BUFFER=$tmp/buffer/b LIBRARY_MIB=128
	echo "-- as from another host: bytes over TCP, puts wait in a tmpfs with large pages"
	library_bench "${listen[master]}" stock "$rounds"
	library_bench "${listen[master]}" move "$rounds"
	echo "-- the same, puts wait in /dev/shm (pages of 4 KiB)"
	export LIBRARY_BUFFER=/dev/shm/kvbench.$$
	library_bench "${listen[master]}" move "$rounds"
	unset LIBRARY_BUFFER LIBRARY_MIB
	end_node b
	umount "$tmp/buffer"
fi
export LIBRARY_BUFFER=/dev/shm/kvbench.$$
if wants small; then
	start_node d --no-mount --store-size 4G
	export LIBRARY_MIB=256
	echo "-- small objects, put on and on into a buffer of 256 MiB"
	library_bench "${listen[master]}" small 512
	library_bench "${listen[master]}" small 64
	unset LIBRARY_MIB
	end_node d
fi
if wants ask || wants look; then
	echo "-- asked: $keys keys of another node, as many misses, evictions going on"
	# An object takes a page; what presses has the rest to itself.
	start_node c --no-fd-passing --store-size $((keys * 4400 + (1 << 30)))
	mkdir -p "${mount[c]}/bench"
	setfattr -n user.kvpool.class -v noevict "${mount[c]}/bench"
	library_ask "${listen[master]}" fill "$keys"
fi
if wants ask; then
	begin=${EPOCHREALTIME/./}
	begin_press 0
	wait_until 60 evicts c
	echo "evictions began after $(((${EPOCHREALTIME/./} - begin) / 1000)) ms of puts as fast as they go; beside these:"
	library_ask "${listen[master]}" ask-beside "$keys"
	end_press
	begin_press "$pace"
	sleep 1
	before=$(evicted c)
	begin=${EPOCHREALTIME/./}
	echo "beside puts of $pace MiB/s:"
	library_ask "${listen[master]}" ask "$keys"
	awk "BEGIN { printf \"evicted meanwhile: %.0f a second\\n\",
		($(evicted c) - $before) * 1000000 / (${EPOCHREALTIME/./} - $begin) }"
	end_press
fi
if wants look; then
	library_ask "${listen[master]}" look "$keys"
fi
stop_all
echo done
