#!/bin/bash
# A daemon is replaced while the master's answer to a publication is on its way:
# the file is there all the while, also for others.
# modes: both
# limit: 90
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need getfattr

ended() { # PID: of a child
	[[ $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) != [RSD]* ]]
}
takeover() { # NAME
	local old=${pid[$1]} status=0 options=${args_of[$1]}
	# shellcheck disable=SC2086
	start_node "$1" --no-wait $options --takeover
	args_of[$1]=$options
	wait_until 20 ended "$old"
	wait "$old" || status=$?
	[ $status = 0 ] || fail "the daemon that handed over ended with $status"
	wait_ready "$1"
}
joined() { has_metric "${admin[a]}" kvpool_node_master_connected 1; }
generation() { # FILE
	getfattr --only-values -n user.kvpool.generation "$1" 2>/dev/null
}

reads() { # FILE CONTENT
	[ "$(cat "$1" 2>/dev/null)" = "$2" ]
}

start_master --heartbeat 5s # it does not end the connection for the silence
start_node a --allow-faults
start_node b
a=${mount[a]} b=${mount[b]}
mkdir "$a/d"
sync "$a/d"
for i in 1 2 3 4 5; do
	kvpool fault drop --peer "${listen[master]}" --direction receive \
		--admin "${admin[a]}" >"$tmp/fault.out" || fail "$(cat "$tmp/fault.out")"
	echo $i >"$a/d/f$i"
	wait_until 10 test -e "$b/d/f$i"
	was=$(generation "$b/d/f$i")
	[ "$(getfattr --only-values -n user.kvpool.state "$a/d/f$i" 2>/dev/null)" = pending ] ||
		fail "f$i was answered"
	takeover a
	wait_until 10 joined
	timeout 20 sync "$a/d" || fail "fsync after the take-over"
	[ "$(cat "$a/d/f$i")" = $i ] || fail "f$i is not what was written"
	wait_until 10 reads "$b/d/f$i" $i
	# One that went, and was published again, has another one.
	[ "$(generation "$b/d/f$i")" = "$was" ] ||
		fail "f$i was gone for a moment: $was, $(generation "$b/d/f$i")"
done
pass
