#!/bin/bash
# A pool in one process: kvpool up and down, what it shows, and what stays of
# it; mount -t kvpool and a line of fstab for a client of it.
# modes: both
# limit: 120
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need curl jq mount umount

mnt=$tmp/up.mnt
name=kvt-embedded-$$
free_port; master=127.0.0.1:$port
free_port; peers=127.0.0.1:$port
free_port; admin[up]=127.0.0.1:$port
served=()
[ "$KVTEST_MODE" = passthrough ] || served=(--no-passthrough)
helper=/sbin/mount.kvpool
default_log=/var/log/kvpool/kvpoold-$name.log
our_helper=

up() {
	kvpool up --mount "$mnt" --store-size 64M --name "$name" \
		--master "$master" --listen "$peers" --admin "${admin[up]}" \
		--store-dir "$tmp/up.store" --state-file "$tmp/up.state" \
		"${served[@]}" "$@" >"$tmp/up.out" ||
		fail "kvpool up: status $?"
	[ -s "$default_log" ] || fail "no $default_log"
	ln -sf "$default_log" "$tmp/up.log"	# for check_logs
	up_pid=$(jq .pid "$mnt/.kvpool/status")
	also_kill=("$up_pid")
}

ended() { # PID: no such process (or nobody's child waits for it)
	local state
	state=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) || return 0
	[[ $state == Z* ]]
}

down() {
	kvpool down --mount "$mnt" || fail "kvpool down: status $?"
	ended "$up_pid" || fail "kvpool down returned before $up_pid ended"
	also_kill=()
	! mountpoint -q "$mnt" || fail "$mnt is still mounted"
}

remove_ours() {
	[ -z "$our_helper" ] || rm -f "$helper"
	rm -rf "/run/kvpool/$name" "/run/kvpool/$name-client" "$default_log"
}
trap 'status=$?; set +e; remove_ours; (exit $status); cleanup' EXIT

mkdir "$mnt"
echo "== a start that fails leaves no mount and no tmpfs behind"
fails() { # REGEX OPTION...: status 1, saying so
	local regex=$1 status=0
	shift
	kvpoold --foreground --embedded --name "$name" --mount "$mnt" \
		--store-size 64M --store-dir "$tmp/fails.store" \
		--state-file "$tmp/fails.state" --master "$master" \
		--listen "$peers" --admin "${admin[up]}" "${served[@]}" "$@" \
		>"$tmp/fails" 2>&1 || status=$?
	[ $status = 1 ] || fail "status $status: $(cat "$tmp/fails")"
	grep -qE "$regex" "$tmp/fails" || fail "it printed: $(cat "$tmp/fails")"
	! grep -q ' info mounted ' "$tmp/fails" || fail "it printed: $(cat "$tmp/fails")"
	! grep -qF " $tmp/" /proc/self/mountinfo ||
		fail "mounted after '$regex': $(grep -F " $tmp/" /proc/self/mountinfo)"
	ls "$mnt" >/dev/null
}
start_master
fails 'cannot listen on.*in use.*--admin' --admin "${admin[master]}"
fails 'in use' --listen "${listen[master]}"
fails 'in use' --master "${listen[master]}"
: >"$tmp/file"
fails 'not a directory that can be mounted on' --mount "$tmp/file"
stop master

echo "== up: mounted when it returns, and serving"
up
mountpoint -q "$mnt" || fail "not mounted"
http "${admin[up]}/readyz" >/dev/null
http "${admin[up]}/healthz" >/dev/null
[ "$(cat "/proc/$up_pid/comm")" = kvpoold ] || fail "pid $up_pid is no daemon"
next() { # WHAT: runs the command that up printed for it
	local command
	command=$(sed -n "s/^  $1 *//p" "$tmp/up.out")
	$command || fail "\"$command\" failed; up printed: $(cat "$tmp/up.out")"
}
next state >"$tmp/out"
grep -q "^node $name at" "$tmp/out" || fail "up printed: $(cat "$tmp/up.out")"
next objects
grep -qx "  stop     kvpool down --mount $mnt" "$tmp/up.out" ||
	fail "up printed: $(cat "$tmp/up.out")"
kvpool up --mount "$mnt" --store-size 64M >"$tmp/out"
grep -q 'already up' "$tmp/out" || fail "a second up"

echo "== files are files"
mkdir "$mnt/d"
head -c 1048576 /dev/urandom >"$tmp/content"
for i in 1 2 3 4; do cp "$tmp/content" "$mnt/d/k$i"; done
sync "$mnt/d"
for i in 1 2 3 4; do cmp "$tmp/content" "$mnt/d/k$i"; done
[ "$(stat -c %s "$mnt/d/k1")" = 1048576 ] || fail "stat"
[ "$(du -sb "$mnt/d" | cut -f1)" -ge 4194304 ] || fail "du: $(du -sb "$mnt/d")"
[ "$(du -sk "$mnt/d" | cut -f1)" -ge 4096 ] || fail "du: $(du -sk "$mnt/d")"
[ "$(df --output=size -B1M "$mnt" | tail -n1 | tr -d ' ')" = 64 ] ||
	fail "df: $(df -B1M "$mnt")"
[ "$(ls "$mnt/d" | wc -l)" = 4 ] || fail "ls"

echo "== the web page of the pool, which asks the embedded master"
[[ $(http "${admin[up]}/pool/") == *"<script src=\"app.js\""* ]] || fail "no page"
http "${admin[up]}/pool/app.js" | cmp - "$(dirname "$0")/../../daemon/web/app.js"
http "${admin[up]}/pool/api/status" | jq -e '.role == "master" and .ready and .keys == 4' \
	>/dev/null || fail "$(http "${admin[up]}/pool/api/status")"
http "${admin[up]}/pool/api/objects?prefix=d" |
	jq -e '(.objects | length == 4) and (.objects[0] | .replicas_wanted == 1)' >/dev/null ||
	fail "$(http "${admin[up]}/pool/api/objects?prefix=d")"
same_page() { # PAGE: also through the node
	cmp -s <(http "${admin[up]}/api/$1") <(http "${admin[up]}/pool/api/$1")
}
for p in nodes directories events; do # ages and figures may move between the two
	wait_until 10 same_page $p
done
[ "$(curl -s -o /dev/null -w '%{http_code}' "http://${admin[up]}/app.js")" = 404 ] ||
	fail "the page is at / as well"

echo "== /.kvpool"
jq -e --arg m "$mnt" '.mount == $m and .store.size == 67108864 and
	.embedded_master.ready' "$mnt/.kvpool/status" >/dev/null ||
	fail "$(cat "$mnt/.kvpool/status")"
grep -q "$KVTEST_MODE" < <(jq -r .data_mode "$mnt/.kvpool/status") || fail "data mode"
jq -e --arg n "$name" '.nodes | map(.name) == [$n]' "$mnt/.kvpool/nodes" \
	>/dev/null || fail "$(cat "$mnt/.kvpool/nodes")"
grep -q '^kvpool_node_published_total 4$' "$mnt/.kvpool/metrics" || fail "metrics"
grep -q '^kvpool_master_keys 4$' "$mnt/.kvpool/metrics" || fail "the master's"
[ ! -w "$mnt/.kvpool/status" ] || ! : 2>/dev/null >"$mnt/.kvpool/status" ||
	fail "status can be written"

echo "== the CLI"
kvpool status --admin "${admin[up]}" >"$tmp/out"
grep -qF "mounted at $mnt ($(jq -r .data_mode "$mnt/.kvpool/status"))" "$tmp/out" ||
	fail "$(cat "$tmp/out")"
kvpool devices --admin "${admin[up]}" --json | jq -e '.transport == "auto"' \
	>/dev/null || fail "kvpool devices"
kvpool devices "$mnt" >/dev/null || fail "kvpool devices of a mount"
kvpool nodes --admin "${admin[up]}" >"$tmp/out"
grep -q "$name" "$tmp/out" || fail "kvpool nodes"
[ "$(kvpool ls --admin "${admin[up]}" --json | jq -r .path | sort | tr '\n' ' ')" = \
	"d/k1 d/k2 d/k3 d/k4 " ] || fail "kvpool ls"
[ "$(kvpool ls d/k2 --admin "${admin[up]}" | wc -l)" = 1 ] || fail "kvpool ls KEY"
kvpool stat "$mnt/d/k1" >"$tmp/out"
grep -qE '^size +1.0 MiB' "$tmp/out" || fail "kvpool stat"
kvpool stat d/k1 --admin "${admin[up]}" --json |
	jq -e '.size == 1048576' >/dev/null || fail "kvpool stat KEY"

kvpool events --admin "${admin[up]}" >"$tmp/out"
grep -q "  joined .*$name" "$tmp/out" || fail "kvpool events"
# d has what was put; its look-ups come with the next report.
directory() {
	http "${admin[up]}/api/directories" | jq -e '.directories[] | select(.name == "d") |
		.objects == 4 and .bytes == 4194304 and .age_seconds < 600 and .lookups > 0 and
		.hits <= .lookups' >/dev/null
}
wait_until 30 directory

output=$(kvpool bench --mount "$mnt" --memory 2>&1) && fail "bench --memory in 64 MiB"
grep -q -- '--memory needs .* free in the store of this node, which has .*--store-size' \
	<<<"$output" || fail "bench --memory: $output"
output=$(kvpool bench --mount "$mnt" --only access_hit --rounds 1 2>/dev/null) ||
	fail "bench: $output"
grep -q '^access() of a cached hit, time / tmpfs  *[0-9.]* *[0-9.]* us  *[0-9.]* ' <<<"$output" ||
	fail "bench has no figures: $output"
! grep -qi 'aim\|missed\|<=\|>=' <<<"$output" || fail "bench judges: $output"

listed() { kvpool ls "$@" --json | jq -r .path | sort | tr '\n' ' '; }
# A mount says whom to ask.
for path in "$mnt" "$mnt/" "$mnt/d" "$mnt/d/"; do
	[ "$(listed "$path")" = "d/k1 d/k2 d/k3 d/k4 " ] || fail "ls $path"
done
[ "$(listed "$mnt/d/k3")" = "d/k3 " ] || fail "ls of a file"
[ "$(cd "$mnt" && listed d/k3)" = "d/k3 " ] || fail "ls in the mount"
[ -z "$(listed "$mnt/nothing")" ] || fail "ls of nothing"
kvpool stat "$mnt/d" --json | jq -e '.dir and has("size") == false' >/dev/null ||
	fail "stat of a directory: $(kvpool stat "$mnt/d" --json)"
for c in "ls /tmp" "stat /tmp"; do
	if kvpool $c >"$tmp/out" 2>&1; then fail "$c: $(cat "$tmp/out")"; fi
	grep -q 'not in the mount of a pool' "$tmp/out" || fail "$c: $(cat "$tmp/out")"
done
for c in ls status nodes "ls --json" "stat d/k1"; do
	if kvpool $c --admin "${admin[up]}" >/dev/full 2>"$tmp/out"; then
		fail "$c to a full disk"
	fi
	grep -q 'the output cannot be written: No space left' "$tmp/out" ||
		fail "$c to a full disk: $(cat "$tmp/out")"
done

echo "== down and up again: what was published is there"
down
[ ! -e "$mnt/d" ] || fail "files below the mount point"
kvpool down --mount "$mnt" >"$tmp/out"
grep -q 'nothing is mounted' "$tmp/out" || fail "down twice"
up
for i in 1 2 3 4; do cmp "$tmp/content" "$mnt/d/k$i"; done

echo "== SIGTERM publishes what is pending"
for i in 5 6 7 8; do cp "$tmp/content" "$mnt/d/k$i"; done
kill -TERM "$up_pid"
wait_until 10 ended "$up_pid"
also_kill=()
! mountpoint -q "$mnt" || fail "mounted after SIGTERM"
up
for i in 1 2 3 4 5 6 7 8; do cmp "$tmp/content" "$mnt/d/k$i"; done

echo "== a killed one without a keeper leaves a stale mount, which the next up cleans"
down
up --keeper=no
kill -KILL "$up_pid"
wait_until 10 ended "$up_pid"
! ls "$mnt" >/dev/null 2>&1 || fail "the mount of a killed daemon answers"
up --keeper=no
for i in 1 8; do cmp "$tmp/content" "$mnt/d/k$i"; done

echo "== its guard, when it is late, leaves the next mount alone"
guard=$(pgrep -P "$up_pid" kvpool-guard) || fail "no guard"
also_kill+=("$guard")
kill -STOP "$guard"
kill -KILL "$up_pid"
wait_until 10 ended "$up_pid"
up --keeper=no # (the kernel gives it the device number of the mount before)
kill -CONT "$guard"
wait_until 10 ended "$guard"
for i in 1 8; do cmp "$tmp/content" "$mnt/d/k$i"; done

echo "== mount -t kvpool"
if [ -e "$helper" ] || [ -L "$helper" ]; then
	echo "   skipped: there is a $helper on this machine"
elif ! ln -s "$BIN/mount.kvpool" "$helper" 2>/dev/null; then
	echo "   skipped: $helper cannot be made"
else
	our_helper=1
	client=$tmp/client.mnt
	mkdir "$client"
	free_port; client_listen=127.0.0.1:$port
	free_port; admin[client]=127.0.0.1:$port
	opts=listen=$client_listen,admin=${admin[client]},name=$name-client
	opts+=,buffer_size=32M,store_dir=$tmp/client.store,log_file=$tmp/client.log
	[ "$KVTEST_MODE" = passthrough ] || opts+=,no_passthrough

	client_works() {
		local pid
		mountpoint -q "$client" || fail "$1: not mounted"
		pid=$(jq .pid "$client/.kvpool/status")
		also_kill=("$up_pid" "$pid")
		wait_until 5 cmp -s "$tmp/content" "$client/d/k1"
		cp "$tmp/content" "$client/$1"
		sync "$client"
		wait_until 5 cmp -s "$tmp/content" "$mnt/$1"
		umount "$client" || fail "$1: umount: status $?"
		wait_until 10 ended "$pid"
		also_kill=("$up_pid")
		cmp "$tmp/content" "$mnt/$1" || fail "$1 went with the client"
	}
	mount -t kvpool "$master" "$client" -o "$opts,noexec,noatime" ||
		fail "mount: status $?"
	for flag in noexec noatime nosuid nodev; do
		grep -qw $flag < <(findmnt -no OPTIONS "$client") || fail "not $flag"
	done
	client_works by-mount
	echo "$master $client kvpool $opts,nofail 0 0" >"$tmp/fstab"
	mount -T "$tmp/fstab" "$client" || fail "mount by fstab: status $?"
	client_works by-fstab
	mount -a -T "$tmp/fstab" || fail "mount -a: status $?"
	client_works by-mount-a
	if mount -t kvpool "$master" "$client" -o "$opts,nonsense=1" 2>"$tmp/stderr"; then
		fail "a nonsense option was taken"
	fi
	grep -q nonsense "$tmp/stderr" || fail "it printed: $(cat "$tmp/stderr")"
	! mountpoint -q "$client" || fail "mounted with a nonsense option"
fi

down
wait_until 5 eval '[ -z "$(grep -F " $tmp/" /proc/self/mountinfo | grep fuse)" ]'
pass
