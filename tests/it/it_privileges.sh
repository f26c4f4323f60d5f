#!/bin/bash
# What the daemons may do: each thread of theirs has the capabilities that it needs
# and cannot gain others. Master and store as a user of their own, without any.
# modes: both
# limit: 120
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need jq setpriv cmp fusermount3 nsenter

user=65532
own=(setpriv --reuid $user --regid $user --clear-groups)
chmod 711 "$tmp"
mkdir "$tmp/shm"
mount -t tmpfs -o size=256M,mode=700,uid=$user kvt "$tmp/shm"
install -d -o $user -g $user "$tmp/own"
# Priority needs no capability where the limit of nice values may be raised.
nice=$((1 << 23))
! prlimit --nice=30:30 true 2>/dev/null || nice=0

of_threads() { # PID FIELD: of each thread, once
	sed -n "s/^$2:[[:space:]]*//p" "/proc/$1"/task/*/status | sort -u
}
has_only() { # WHO PID CAPABILITIES
	local set
	for set in CapPrm CapEff; do
		[ "$(of_threads "$2" $set)" = "$(printf %016x "$3")" ] ||
			fail "$1 has $set $(of_threads "$2" $set), not $(printf %x "$3")"
	done
	for set in CapInh CapAmb CapBnd; do
		# Who is not root cannot change the last.
		[ $set != CapBnd ] || [ "$(of_threads "$2" Uid | cut -f1)" = 0 ] || continue
		[ "$(of_threads "$2" $set)" = 0000000000000000 ] || fail "$1 has $set"
	done
	[ "$(of_threads "$2" NoNewPrivs)" = 1 ] || fail "$1 may gain privileges"
}
kept() { # WHO: as its status page says
	status_json "$1" '.privileges | "\(.user) \(.capabilities | join(" ")) \(.no_new_privileges)"'
}
sys_admin=$((1 << 21))
names=sys_admin
[ $nice = 0 ] || names="sys_admin sys_nice"

echo "== as root"
start_master
start_node a --transport tcp
start_node s --no-mount --transport tcp
has_only master "${pid[master]}" 0
[ "$(kept master)" = "0  true" ] || fail "the master says: $(kept master)"
for who in a s; do
	has_only $who "${pid[$who]}" $((sys_admin | nice))
	[ "$(kept $who)" = "0 $names true" ] || fail "$who says: $(kept $who)"
	[ "$(grep -c " privileges: user 0, capabilities $names, no others can be gained$" \
		"$(log_of $who)")" = 1 ] || fail "not in the log of $who"
done
guard=$(pgrep -P "${pid[a]}" -x kvpool-guard)
has_only "the guard" "$guard" $((sys_admin | nice))
[ "$(ps -o nice= -p "${pid[a]}" | tr -d ' ')" = -10 ] || fail "the loop has no priority"
want=$KVTEST_MODE
[ $want = passthrough ] || want=daemon-served
[ "$(status_json a .data_mode)" = $want ] || fail "data is $(status_json a .data_mode)"

echo "== and it works"
head -c 3000000 /dev/urandom >"$tmp/src"
mkdir "${mount[a]}/d"
cp "$tmp/src" "${mount[a]}/d/f"
sync "${mount[a]}/d"
stop a
start_node a --transport tcp
cmp "$tmp/src" "${mount[a]}/d/f"

echo "== what the daemon's user may not open is refused at the start"
install -d -m 700 -o $user "$tmp/theirs"
status=0
timeout 20 kvpool-master --foreground --listen 127.0.0.1:0 --admin 127.0.0.1:0 \
	--state-file "$tmp/theirs/state" >"$tmp/output" 2>&1 || status=$?
[ $status = 1 ] || fail "a master with another user's state file ends with $status"
grep -q 'theirs/state.*Permission denied' "$tmp/output" || fail "$(cat "$tmp/output")"
stop_all

echo "== as a user of their own: master, store and a program"
env_of[master]="XDG_RUNTIME_DIR=$tmp/own ${own[*]}"
env_of[t]=${env_of[master]}
rm -f "$tmp/master.state"
start_master --state-file "$tmp/own/state"
start_node t --no-mount --run-dir "$tmp/own/run" --store-dir "$tmp/shm/store" \
	--store-size 32M
for who in master t; do
	[ "$(ps -L -o uid= -p "${pid[$who]}" | sort -u | tr -d ' ')" = $user ] ||
		fail "$who does not run as user $user"
	has_only $who "${pid[$who]}" 0
	[ "$(kept $who)" = "$user  true" ] || fail "$who says: $(kept $who)"
done
u() { "${own[@]}" "$KVTEST_OBJ/tests/library_user" "${listen[master]}" ns "$@"; }
chmod 644 "$tmp/src"
u put k "$tmp/src"
u get k "$tmp/own/got"
cmp "$tmp/src" "$tmp/own/got" || fail "the store returns other bytes"
metric_at_least "${admin[t]}" kvpool_node_objects 1 || fail "the store has nothing"
stop_all

echo "== a user's mount is made by fusermount3, which is setuid"
# Only it knows of a /dev/fuse that all may open, as machines usually have.
cat >"$tmp/as_nobody" <<END
mknod $tmp/fuse c 10 229 && chmod 666 $tmp/fuse && mount --bind $tmp/fuse /dev/fuse &&
	echo user_allow_other >$tmp/fuse.conf && mount --bind $tmp/fuse.conf /etc/fuse.conf &&
	exec setpriv --reuid nobody --regid nogroup --clear-groups "\$@"
END
install -d -o nobody "$tmp/nobody" "$tmp/u.mnt"
env_of[u]="XDG_RUNTIME_DIR=$tmp/nobody unshare -m sh $tmp/as_nobody"
start_node u --embedded --run-dir "$tmp/nobody/run" --state-file "$tmp/nobody/state" \
	--store-dir "$tmp/nobody/store" --store-size 32M
[ "$(of_threads "${pid[u]}" NoNewPrivs)" = 0 ] || fail "it could not execute fusermount3"
[ "$(kept u)" = "$(id -u nobody)  false" ] || fail "it says: $(kept u)"
[ "$(nsenter -t "${pid[u]}" -m sh -c "echo hi >$tmp/u.mnt/x && cat $tmp/u.mnt/x")" = hi ] ||
	fail "nothing can be written"

pass
