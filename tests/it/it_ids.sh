#!/bin/bash
# Owners and modes on two nodes: they are checked as on any filesystem, and the
# options uid, gid, umask and dmode let programs of arbitrary ids share files, on
# the mounts that have them.
# modes: both
# limit: 120
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need setpriv setfattr cmp

as() { # UID COMMAND...
	local id=$1
	shift
	setpriv --reuid "$id" --regid "$id" --clear-groups "$@"
}
one=1000 other=1000650000 third=1000660000
refused() { # ERRNO-TEXT COMMAND...
	local text=$1
	shift
	! "$@" >"$tmp/out" 2>&1 || fail "done: $*"
	grep -q "$text" "$tmp/out" || fail "$*: $(cat "$tmp/out")"
}
shows() { # PATH "MODE UID GID"
	[ "$(stat -c '%a %u %g' "$1" 2>&1)" = "$2" ]
}
expect() { # PATH "MODE UID GID"
	shows "$@" || fail "$1: $(stat -c '%a %u %g' "$1")"
}
again() { # NAME OPTION...: the same node, started anew
	stop "$1"
	start_node "$1" --store-size 64M "${@:2}"
	wait_until 20 has_metric "${admin[$1]}" kvpool_node_master_connected 1
}

chmod 711 "$tmp"
start_master
for n in a b c; do start_node $n --store-size 64M; done
A=${mount[a]} B=${mount[b]} C=${mount[c]}

echo "== without options, ids are checked as on any filesystem"
as $one mkdir -m 755 "$A/d"
as $one sh -c "umask 077; echo secret >'$A/d/own'; umask 027; echo ours >'$A/d/ours'
	umask 022; echo all >'$A/d/all'"
sync "$A/d"
for m in "$A" "$B"; do
	expect "$m/d" "755 $one $one"
	expect "$m/d/own" "600 $one $one"
	refused denied as $other cat "$m/d/own"
	refused denied setpriv --reuid $other --regid $one --clear-groups \
		cat "$m/d/own"
	[ "$(as $one cat "$m/d/own")" = secret ] || fail "the owner, at $m"
	refused denied as $other cat "$m/d/ours"
	[ "$(setpriv --reuid $other --regid $one --clear-groups cat "$m/d/ours")" = \
		ours ] || fail "the group, at $m"
	[ "$(as $other cat "$m/d/all")" = all ] || fail "all, at $m"
	refused denied as $other sh -c "echo x >>'$m/d/all'"
	refused denied as $other touch "$m/d/new"
	refused denied as $other rm -f "$m/d/all"
	refused denied as $other mv "$m/d/all" "$m/d/mine"
	refused permitted as $other chmod 666 "$m/d/all"
	refused permitted as $other mv "$m/d" "$m/mine" # the root is sticky
	refused permitted as $one chown $other "$m/d/all"
done

echo "== with uid, gid, umask and dmode, writers of two ids share a directory"
# What was seen before was made without: it is shown, and shared, as well.
shared=(--uid $one --gid 0 --umask 0 --dmode 0777)
again a "${shared[@]}"
again b "${shared[@]}"
expect "$A" "777 $one 0"
expect "$A/d" "777 $one 0"
expect "$A/d/own" "666 $one 0"
[ "$(as $other cat "$B/d/own")" = secret ] || fail "it is shown, but not read"
mkdir "$A/pod" # as the kubelet makes it
sync "$A"
writer() { # UID DIR: 40 blocks, as engines write them
	as "$1" bash -c 'umask 077
		mkdir -p "$2/of-$1" || exit 1
		for i in {1..40}; do
			echo "$1 $i" >"$2/.$1.tmp" && mv "$2/.$1.tmp" "$2/$1-$i" &&
				cat "$2/$1-$i" >"$2/of-$1/$i" || exit 1
		done' writer "$1" "$2"
}
writer $one "$A/pod" &
writer $other "$B/pod" || fail "the writer of $other"
wait $! || fail "the writer of $one"
for m in "$A" "$B"; do sync "$m/pod" "$m/pod/of-$one" "$m/pod/of-$other"; done
for m in "$A" "$B"; do
	for id in $one $other; do
		for i in {1..40}; do echo "$id $i"; done >"$tmp/want"
		for f in "$id-" "of-$id/"; do
			as $third bash -c 'for i in {1..40}; do cat "$1$i"; done' \
				reader "$m/pod/$f" >"$tmp/got" || fail "$m, $f"
			cmp "$tmp/want" "$tmp/got"
		done
	done
	expect "$m/pod" "777 $one 0"
	expect "$m/pod/$other-1" "666 $one 0"
done
# Each changes what is the other's.
as $other sh -c "echo more >>'$B/pod/$one-1'; rm '$B/pod/$one-2'
	mv '$B/pod/$other-3' '$B/pod/$one-3'" || fail "on b"
as $one touch "$A/pod/of-$other/new" || fail "on a"
sync "$B/pod"
[ "$(as $third tail -n1 "$A/pod/$one-1")" = more ] || fail "not appended"
[ "$(as $third cat "$A/pod/$one-3")" = "$other 3" ] || fail "not replaced"
[ ! -e "$A/pod/$one-2" ] || fail "not removed"

echo "== the owner is who is shown"
refused permitted as $other chmod 600 "$B/pod/$other-1"
refused permitted as $other setfattr -n user.kvpool.replicas -v 1 "$B/pod"
as $one setfattr -n user.kvpool.replicas -v 1 "$B/pod" || fail "a rule"
as $one chmod 640 "$B/pod/$other-1" || fail "chmod"
expect "$B/pod/$other-1" "666 $one 0"

echo "== a mount without options sees what is stored: the ids, and modes as set"
wait_until 5 shows "$C/pod/$other-1" "640 $one 0"
expect "$C/pod/$other-4" "600 $one 0"
expect "$C/pod" "755 $one 0"
expect "$C/d/own" "600 $one $one"
refused denied as $other cat "$C/pod/$other-4"
refused denied as $other touch "$C/pod/new"
[ "$(as $one cat "$C/pod/$other-4")" = "$other 4" ] || fail "its owner"

echo "== the options go on through a take-over"
old=${pid[a]}
start_node a --no-wait --store-size 64M "${shared[@]}" --takeover
wait "$old" || fail "who handed over ended with $?"
wait_ready a
expect "$A/pod/$other-4" "666 $one 0"
as $third sh -c "echo x >'$A/pod/after'" || fail "not writable after it"
expect "$A/pod/after" "666 $one 0"
[ "$(as $other cat "$A/d/own")" = secret ] || fail "not readable after it"

echo "== umask alone: each file has its owner, and all may use it"
again c --umask 0
expect "$C" "777 0 0"
as $other sh -c "umask 077; echo x >'$C/pod/u' && chmod 640 '$C/pod/u' &&
	touch -d @1234567890 '$C/pod/u'" || fail "the owner"
expect "$C/pod/u" "666 $other $other"
as $third sh -c "echo y >>'$C/pod/u'" || fail "all"
refused permitted as $third chmod 600 "$C/pod/u"
sync "$C/pod"
expect "$B/pod/u" "666 $one 0"
pass
