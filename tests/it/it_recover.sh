#!/bin/bash
# The master's state file is lost, or an old copy of it is put in its place: it
# refuses the nodes, saying what to do; with --recover it takes all that they
# hold, and no put is lost to what was there before.
# modes: both
# limit: 180
LOG_ALLOW='error the master at .* refused this node: .*--recover'
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need jq getfattr

state=$tmp/master.state
joined() { has_metric "${admin[$1]}" kvpool_node_master_connected 1; }
both_joined() { wait_until 20 joined a; wait_until 20 joined b; }
same() { cmp -s "$1" "$2"; }
epoch_of() { getfattr --only-values -n user.kvpool.generation "$1" | cut -d. -f1; }
put() { # MOUNT FILE: as new bytes, which are kept in $tmp/want
	mkdir -p "$tmp/want/${2%/*}"
	head -c 20000 /dev/urandom >"$tmp/want/$2"
	mkdir -p "$1/${2%/*}"
	cp "$tmp/want/$2" "$1/$2"
	sync "$1/${2%/*}"
}
all_there() { # MOUNT
	local f
	(cd "$tmp/want" && find . -type f) | while read -r f; do
		same "$tmp/want/$f" "$1/$f" || return 1
	done
}
refusals() { grep -c 'refused this node' "$(log_of "$1")" || :; }
lose_state() {
	kill9 master
	rm -f "$state" "$state.new"
}

start_master
start_node a
start_node b
a=${mount[a]} b=${mount[b]}
both_joined
for i in 1 2 3 4 5 6; do put "$a" "d/a$i"; put "$b" "d/b$i"; done
kill9 master
start_master
both_joined
put "$a" d/second	# of epoch 2
[ "$(epoch_of "$a/d/second")" = 2 ] || fail "$(epoch_of "$a/d/second")"
cp "$state" "$tmp/old.state"

echo "== without it the nodes are refused, with the reason, not each second"
lose_state
start_master
sleep 4	# so that they try several times; more would change nothing
for n in a b; do
	wait_until 10 grep -q 'has seen epoch 2 of its master, but this one is at 1.*--recover' \
		"$(log_of $n)"
	[ "$(refusals $n)" = 1 ] || fail "$n: $(refusals $n) lines"
done
[ "$(grep -c 'refused:.*--recover' "$(log_of master)")" = 1 ] ||
	fail "the master's log: $(grep -c refused: "$(log_of master)") lines"
! joined a && ! joined b || fail "joined"
same "$tmp/want/d/a1" "$a/d/a1" || fail "a does not serve what it has"
echo while-refused >"$a/d/pending"
mkdir -p "$tmp/want/d"; echo while-refused >"$tmp/want/d/pending"

echo "== with --recover all that nodes hold is there again"
stop master
start_master --recover
both_joined
[ "$(status_json master .epoch)" = 3 ] || fail "epoch $(status_json master .epoch)"
wait_until 10 all_there "$a"
wait_until 10 all_there "$b"
put "$b" d/a1	# over one of before
wait_until 10 same "$tmp/want/d/a1" "$a/d/a1"
[ "$(epoch_of "$b/d/a1")" = 3 ] || fail "$(epoch_of "$b/d/a1")"
for i in 1 2; do
	kill9 master
	start_master
	both_joined
done
wait_until 10 all_there "$a"
wait_until 10 all_there "$b"

echo "== nodes that were restarted, or have no mount, know it, too"
put "$a" e/x	# of epoch 5
stop b
start_node b --no-mount
wait_until 10 joined b
kill9 a
lose_state
start_node a --no-wait
wait_ready a
start_master --recover
both_joined
[ "$(status_json master .epoch)" -ge 6 ] || fail "epoch $(status_json master .epoch)"
wait_until 10 all_there "$a"

echo "== a node that joins later with a higher epoch raises it once more"
stop b
lose_state
start_master --recover
wait_until 20 joined a
first=$(status_json master .epoch)
put "$a" e/y
kill9 master
cp "$tmp/old.state" "$state"	# epoch 2
stop a
start_master --recover
wait_until 20 has_metric "${admin[master]}" kvpool_master_ready 1
[ "$(status_json master .epoch)" = 3 ] || fail "epoch $(status_json master .epoch)"
start_node a
start_node b
both_joined
[ "$(status_json master .epoch)" -gt "$first" ] || fail "epoch $(status_json master .epoch), not above $first"
b=${mount[b]}
wait_until 10 all_there "$a"
wait_until 10 all_there "$b"
put "$b" e/x
wait_until 10 same "$tmp/want/e/x" "$a/e/x"
pass
