#!/bin/bash
# A daemon is started again and again, and each time another call of its start
# fails (tests/sweep/failing.h): either it says why and ends, and leaves no mount
# behind, or it serves; and the next start, undisturbed, has everything.
#
#   SWEEP_STRIDE=N    every Nth call (default: a sample)
#   SWEEP_ONLY=REGEX  node, master
# limit: 300
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need sweep addr2line setfattr getfattr

stride=${SWEEP_STRIDE:-41}
only=${SWEEP_ONLY:-.}
LOG_ALLOW='^[^ ]+ error '	# they say what failed
first=$((1 + RANDOM % stride))

arm() { sweep arm "$tmp/$1.page" "$2"; }	# NAME N
program_of() { [ "$1" = master ] && echo kvpool-master || echo kvpoold; }
place() { sweep fired "$tmp/$1.page" "$BIN/$(program_of "$1")"; }
ended_or_ready() { ! alive "$1" || is_ready "$1"; }

broken() { # NAME N WHAT
	place "$1" || :
	fail "start of $1, call $2: $3"
}

# It has ended by itself: with an error, in words, and nothing left behind.
check_refusal() { # NAME N LINES
	local status=0
	wait "${pid[$1]}" || status=$?
	unset "pid[$1]"
	[ $status -ge 1 ] && [ $status -le 2 ] ||
		broken "$1" "$2" "ended with status $status"
	grep -q ' error ' < <(tail -n +$(($3 + 1)) "$(log_of "$1")") ||
		broken "$1" "$2" "it did not say why"
	[ "$1" = master ] || ! mountpoint -q "${mount[$1]}" ||
		broken "$1" "$2" "its mount was left"
	refused=$((refused + 1))
}

# Start NAME by the command START, its Nth call failing, for N = first, ... until
# none does; each time CHECK must hold in the end.
sweep_start() { # NAME START CHECK STOP
	local name=$1 n=$first lines begun=$SECONDS fired
	refused=0 served=0
	while :; do
		lines=0
		[ ! -e "$(log_of "$name")" ] || lines=$(wc -l <"$(log_of "$name")")
		arm "$name" "$n"
		$2 --no-wait
		wait_until 60 ended_or_ready "$name"
		if alive "$name"; then
			served=$((served + 1))
			"$3" "$n"	# it may fail in there as well
			fired=0; place "$name" >/dev/null || fired=1
			arm "$name" 0
		else
			check_refusal "$name" "$n" "$lines"
			fired=0
			arm "$name" 0
			$2
			"$3" "$n"
		fi
		"$4"
		[ $fired = 0 ] || break
		n=$((n + stride))
	done
	echo "   $name: every ${stride}th call of $n failed; $refused starts" \
		"refused, $served served; $((SECONDS - begun)) s"
	[ $refused -gt 0 ] || [ "$stride" -gt 20 ] || fail "no start failed"
}

joined() { has_metric "${admin[a]}" kvpool_node_master_connected 1; }
a_is_whole() { # N
	sweep check "${mount[a]}" >"$tmp/check" ||
		{ cat "$tmp/check"; broken a "$1" "objects are lost"; }
}
start_a() { start_node a "$@" --store-size 96M --allow-faults; }
stop_a() { stop a; }

master_again() { # [--no-wait]
	if [ "${1:-}" = --no-wait ]; then
		launch master kvpool-master --foreground --insecure \
			--listen "${listen[master]}" --admin "${admin[master]}" \
			--state-file "$tmp/master.state"
	else
		start_master
	fi
}
knows_all() { has_metric "${admin[master]}" kvpool_master_keys 8; }
attrs_kept() {
	[ "$(getfattr --only-values -n user.kvpool.class "${mount[a]}/base" \
		2>/dev/null)" = noevict ] && [ -d "${mount[a]}/empty" ]
}
master_is_whole() { # N
	wait_until 20 joined
	wait_until 20 knows_all
	attrs_kept || broken master "$1" "directories or attributes are lost"
	a_is_whole "$1"
}
stop_master() { stop master; }

preload_failing a
preload_failing master
start_master
start_a
mkdir "${mount[a]}/base" "${mount[a]}/empty"
setfattr -n user.kvpool.class -v noevict "${mount[a]}/base"
sweep base "${mount[a]}"
sync "${mount[a]}"

if [[ node =~ $only ]]; then
	echo "== a node that finds its objects again"
	stop a
	sweep_start a start_a a_is_whole stop_a
	start_a
fi
if [[ master =~ $only ]]; then
	echo "== a master that reads its state, and is joined"
	stop master
	sweep_start master master_again master_is_whole stop_master
	start_master
	wait_until 20 joined
fi
wait_until 20 knows_all
a_is_whole 0
pass
