#!/bin/bash
# One mount point is one daemon's, one name is one daemon's: a second daemon is
# refused with the reason, or waits if the first one is just ending. mount(8)
# recognises what is mounted already.
# modes: both
# limit: 180
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need jq mount umount findmnt

name=kvt-mounts-$$
helper=/sbin/mount.kvpool
our_helper=
served=()
[ "$KVTEST_MODE" = passthrough ] || served=(--no-passthrough)

remove_ours() {
	[ -z "$our_helper" ] || rm -f "$helper"
	rm -rf "/run/kvpool/$name" "/run/kvpool/$name-2"
}
trap 'status=$?; set +e; remove_ours; (exit $status); cleanup' EXIT

count() { # DIR: mounts there
	awk -v d="$1" '$5 == d' /proc/self/mountinfo | wc -l
}

# Another daemon, which does not start; its output is in $tmp/output.
refused() { # REGEX OPTION...
	local regex=$1 status=0
	shift
	free_port; local peers=127.0.0.1:$port
	free_port
	timeout 60 kvpoold --foreground --store-size 32M --listen "$peers" \
		--admin "127.0.0.1:$port" --master "${listen[master]}" \
		"${served[@]}" "$@" >"$tmp/output" 2>&1 </dev/null || status=$?
	[ $status = 1 ] || fail "status $status: $(cat "$tmp/output")"
	grep -qE -- "$regex" "$tmp/output" || fail "it printed: $(cat "$tmp/output")"
}

start_master
start_node a
a=${mount[a]}
echo one >"$a/one"

echo "== a second daemon on a mount that is served is refused"
refused "$a: a pool is mounted here already, by a.$$ .pid ${pid[a]}.*kvpool down --mount $a" \
	--name "$name-2" --mount "$a" --store-dir "$tmp/second.store"
[ "$(count "$a")" = 1 ] || fail "$(count "$a") mounts at $a"
[ "$(count "$tmp/second.store")" = 0 ] || fail "its store stayed mounted"
ln -s "$a" "$tmp/link"
refused "a pool is mounted here already" \
	--name "$name-2" --mount "$tmp/link" --store-dir "$tmp/second.store"
[ "$(cat "$a/one")" = one ] || fail "the first one's mount went, too"

echo "== down detaches what was its daemon's, not what is there now"
mount -t tmpfs tmpfs "$a"
kvpool down --mount "$a" >"$tmp/output" 2>&1 || fail "down: $(cat "$tmp/output")"
wait_until 10 eval '! alive a'
wait "${pid[a]}" || fail "status $?"
unset "pid[a]"
[ "$(findmnt -no FSTYPE "$a" | tail -n1)" = tmpfs ] || fail "the tmpfs went: $(findmnt "$a")"
umount "$a"
start_node a	# which removes what the daemon could not reach
[ "$(count "$a")" = 1 ] || fail "$(count "$a") mounts at $a"
[ "$(cat "$a/one")" = one ] || fail "not there again"

echo "== the name of a daemon that serves"
refused "kvpoold a.$$ is running already .pid ${pid[a]}, mounted at $a.*--takeover" \
	--name "a.$$" --store-dir "$tmp/second.store"
refused "${store[a]} is in use by another process .pid ${pid[a]}.: stop" \
	--name "$name-2" --store-dir "${store[a]}"
[ "$(cat "$a/one")" = one ] || fail "the first one does not serve"

echo "== a start waits for the daemon of its name that is ending"
kill -STOP "${pid[master]}"	# it cannot publish, and waits for 5 s
echo two >"$a/two"
kill -TERM "${pid[a]}"
was=${pid[a]} log=$(log_of a)
start_node a --no-wait
wait_until 10 grep -q "waiting for kvpoold a.$$ (pid $was), which is ending" "$log"
kill -CONT "${pid[master]}"
wait "$was" || fail "the first one: status $?"
wait_ready a
grep -q 'it has ended, after' "$log" || fail "it did not wait"
[ "$(cat "$a/one" "$a/two")" = $'one\ntwo' ] || fail "not there again"

if [ -e "$helper" ] || [ -L "$helper" ]; then
	echo "   mount(8) skipped: there is a $helper on this machine"
	pass
elif ! ln -s "$BIN/mount.kvpool" "$helper" 2>/dev/null; then
	echo "   mount(8) skipped: $helper cannot be made"
	pass
fi
our_helper=1
m=$tmp/m
mkdir "$m"
free_port; opts=listen=127.0.0.1:$port
free_port; opts+=,admin=127.0.0.1:$port,name=$name,log_file=$tmp/m.log
opts+=,store_dir=$tmp/m.store,store_size=64M
[ "$KVTEST_MODE" = passthrough ] || opts+=,no_passthrough
daemon_of() { jq .pid "$m/.kvpool/status"; }

echo "== umount, mount, umount, mount, ..."
for i in 1 2 3 4 5 6 7 8; do
	mount -t kvpool "${listen[master]}" "$m" -o "$opts" ||
		fail "mount $i: status $?: $(tail -n5 "$tmp/m.log")"
	p=$(daemon_of); also_kill=("$p")
	for k in 1 2 3 4; do head -c 1M /dev/urandom >"$m/k$k"; done
	umount "$m" || fail "umount $i: status $?"
done
also_kill=()
# Also while there is no master, for which its end waits.
mount -t kvpool "${listen[master]}" "$m" -o "$opts"
p=$(daemon_of); also_kill=("$p")
kill -STOP "${pid[master]}"
echo last >"$m/last"
umount "$m"
mount -t kvpool "${listen[master]}" "$m" -o "$opts" ||
	fail "mount without a master: status $?: $(tail -n5 "$tmp/m.log")"
kill -CONT "${pid[master]}"
p=$(daemon_of); also_kill=("$p")
[ "$(cat "$m/last")" = last ] || fail "what was put last is not there"

echo "== its source is what mount(8) was given, so that it knows it again"
[ "$(findmnt -no SOURCE,FSTYPE "$m" | tr -s ' ')" = "${listen[master]} fuse.kvpool" ] ||
	fail "$(findmnt "$m")"
[ "$(findmnt -no SOURCE "$a")" = "${listen[master]}" ] || fail "$(findmnt "$a")"
umount "$m"
# As it stands there: without a port, which is none here, and with a comma.
for source in "${listen[master]}" "${listen[master]},localhost"; do
	echo "$source $m kvpool $opts,nofail 0 0" >"$tmp/fstab"
	mount -a -T "$tmp/fstab" || fail "mount -a: status $?"
	p=$(daemon_of); also_kill=("$p")
	[ "$(findmnt -no SOURCE "$m")" = "$source" ] || fail "$(findmnt "$m")"
	mount -a -T "$tmp/fstab" >"$tmp/output" 2>&1 ||
		fail "mount -a again: status $?: $(cat "$tmp/output")"
	[ ! -s "$tmp/output" ] || fail "mount -a again: $(cat "$tmp/output")"
	[ "$(count "$m")" = 1 ] && [ "$(daemon_of)" = "$p" ] ||
		fail "mount -a again mounted again"
	umount "$m"
done
gone() { ! kill -0 "$p" 2>/dev/null; }
wait_until 10 gone
also_kill=()
pass
