#!/bin/bash
# Other users of the machine: a process of one tries what it can against a pool of
# root's, and is refused; what root does beside it goes on.
#
# Each attack is a function attack_NAME, run against the pool that a default start
# makes (loopback, no --insecure); those named open_NAME against one that believes
# whoever connects (--insecure), where what stands behind the door is tried. An
# attack shows that it would be noticed: something of the same kind that is allowed
# works beside it.
# modes: both
# variants: release asan
# limit: 180
. "$(dirname "$0")/lib.sh"
need_fuse
need jq setpriv

uid=65534
chmod 711 "$tmp"
mkdir -m 755 "$tmp/bin"
install -m 755 "$KVTEST_OBJ/tests/intruder" "$tmp/bin/"
mkdir -m 700 "$tmp/theirs"
chown $uid:$uid "$tmp/theirs"

as_user() { # COMMAND...: as somebody who has no rights here
	setpriv --reuid $uid --regid $uid --clear-groups --no-new-privs \
		--inh-caps=-all "$@"
}

intruder() { # ARGUMENT...
	as_user "$tmp/bin/intruder" "$@"
}

refuses() { # COMMAND...: fails, as it says
	local text
	if text=$("$@" 2>&1); then
		fail "was not refused: $*: $text"
	fi
	grep -qE 'refused|denied|not permitted|No such file' <<<"$text" ||
		fail "failed for another reason: $*: $text"
}

begin_pool() { # OPTION... of all daemons
	start_master "$@"
	start_node a "$@"
	start_node b "$@"
	a=${mount[a]} b=${mount[b]}
}

# What root does: written here, read there.
works() {
	nworks=$((nworks + 1))
	head -c 300000 /dev/urandom >"$tmp/src"
	cp "$tmp/src" "$a/works$nworks"
	sync "$a"
	cmp "$tmp/src" "$b/works$nworks"
}
nworks=0

# ---- attacks ----

# A node that publishes a name and lends a descriptor of somebody else's file for
# it: whoever opens the name would read that.
lends() { # NAME FILE HOW
	intruder lend "${listen[master]}" "$tmp/theirs" "$1" "$2" "$3" \
		>"$tmp/lend.out" 2>&1 &
	lender=$!
	also_kill+=($lender)
	wait_until 10 grep -qE 'published|refused' "$tmp/lend.out"
}

ends_lender() {
	kill $lender 2>/dev/null || :
	wait $lender 2>/dev/null || :
}

# None of root's daemons believes it, nor lets it in.
attack_joins() {
	refuses intruder join "${listen[master]}"
	grep -qx 'in 1' < <("$tmp/bin/intruder" crowd "${listen[a]}" 1) ||
		fail "root is refused, too"
}

attack_asks_nodes() {
	refuses intruder crowd "${listen[a]}" 3
}

open_reads_roots_files() {
	local status=0
	install -m 600 /dev/null /dev/shm/$$.secret
	also_remove+=(/dev/shm/$$.secret)
	echo "root's own" >/dev/shm/$$.secret
	lends stolen /dev/shm/$$.secret path
	grep -qx published "$tmp/lend.out" || fail "$(cat "$tmp/lend.out")"
	wait_until 10 eval 'ls "$a" | grep -qx stolen'
	as_user cat "$a/stolen" >"$tmp/stolen" 2>/dev/null || status=$?
	! grep -q root "$tmp/stolen" || fail "a user has read root's file"
	[ $status != 0 ] || fail "something could be read: $(cat "$tmp/stolen")"
	grep -qx asked "$tmp/lend.out" || fail "nobody asked for it: $(cat "$tmp/lend.out")"
	ends_lender
	rm /dev/shm/$$.secret
}

# ---- all of them ----

also_remove=()
trap 'status=$?; set +e; rm -f "${also_remove[@]}"; (exit $status); cleanup' EXIT

run_all() { # PREFIX
	local f
	for f in $(compgen -A function "$1"); do
		echo "== $f"
		"$f"
		works
	done
}

begin_pool
works
run_all attack_
stop_all
begin_pool --insecure
run_all open_
pass
