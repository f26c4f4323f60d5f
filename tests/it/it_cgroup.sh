#!/bin/bash
# The pool's memory is charged to the pool: a program in a memory cgroup of
# 64 MiB stores 1 GiB through the passthrough mount, and reads it again.
# limit: 120
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need curl jq dd

limit=$((64 << 20))
object_mib=4
objects=256
calm=$((24 << 20)) # what the writer itself may need meanwhile

# A group below the first hierarchy that counts memory; sets $group,
# $limit_file and $peak, or skips. The one before goes.
new_cgroup() {
	local v1 v2
	[ -z "${group:-}" ] || rmdir "$group"
	v1=$(awk '$3 == "cgroup" && $4 ~ /(^|,)memory(,|$)/ { print $2; exit }' /proc/mounts)
	v2=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
	if [ -n "$v1" ] && mkdir "$v1/kvt-$$" 2>/dev/null; then
		group=$v1/kvt-$$
		limit_file=memory.limit_in_bytes peak=memory.max_usage_in_bytes
	elif [ -n "$v2" ] && grep -qw memory "$v2/cgroup.subtree_control" 2>/dev/null &&
		mkdir "$v2/kvt-$$" 2>/dev/null; then
		group=$v2/kvt-$$
		limit_file=memory.max peak=memory.peak
	else
		skip "no memory cgroup can be made here"
	fi
	trap 'status=$?; set +e; leave_cgroup; (exit $status); cleanup' EXIT
	[ -w "$group/$limit_file" ] && [ -r "$group/$peak" ] ||
		skip "no $limit_file or no $peak in a memory cgroup"
	echo $limit >"$group/$limit_file" || skip "$limit_file cannot be set"
}

leave_cgroup() {
	rmdir "$group" 2>/dev/null
}

# Run a shell in the cgroup; its status.
inside() { # SCRIPT ARG...
	bash -c 'echo $$ >"$1/cgroup.procs" && shift && eval "$1"' _ "$group" "$@"
}

mib() { echo "$(($1 >> 20)) MiB"; }

new_cgroup
[ "$KVTEST_MODE" = passthrough ] || skip "for the passthrough mount"

echo "== the cgroup counts: the same bytes on a plain tmpfs are charged"
mkdir "$tmp/plain"
mount -t tmpfs -o size=64M none "$tmp/plain"
export tmp
inside 'dd if=/dev/zero of="$tmp/plain/f" bs=4M count=8 status=none'
[ "$(cat "$group/$peak")" -gt $((30 << 20)) ] || fail "a tmpfs is not charged"
umount "$tmp/plain"
new_cgroup

start_master
start_node a --store-size 1536M
[[ $(status_json a .data_mode) == *passthrough* ]] || skip "no passthrough here"
export dir=${mount[a]} object_mib objects

echo "== $objects objects of $object_mib MiB are stored"
inside '
	head -c ${object_mib}M /dev/urandom >"$tmp/content"
	for ((i = 0; i < objects; i++)); do
		dd if="$tmp/content" of="$dir/o$i.tmp" bs=${object_mib}M status=none || exit 1
		mv "$dir/o$i.tmp" "$dir/o$i" || exit 1
	done' || fail "the writer ended with $?: $(grep -h . "$group"/memory.failcnt "$group"/memory.events 2>/dev/null)"
peak_writing=$(cat "$group/$peak")
echo "   peak while storing $(mib "$peak_writing"), of a limit of $(mib $limit)"
[ "$peak_writing" -lt $calm ] || fail "the writer is charged"

echo "== and read"
inside '
	for ((i = 0; i < objects; i++)); do
		cmp "$tmp/content" "$dir/o$i" || exit 1
	done' || fail "the reader ended with $?"
peak_reading=$(cat "$group/$peak")
echo "   peak with reading $(mib "$peak_reading")"
[ "$peak_reading" -lt $calm ] || fail "the reader is charged"

# Served ones are charged to the daemon anyway: that would show nothing.
reserved=$(metric "${admin[a]}" kvpool_node_creates_reserved_total)
echo "   $reserved of $objects files were reserved"
[ "$reserved" -ge $((objects * 9 / 10)) ] || fail "too few for a proof"

echo "== the limit of a pod counts, though its container's own group has none"
limit=$((256 << 20))
new_cgroup
mkdir "$group/container"
container() { # COMMAND...: in a group below, of which it sees no more than that
	(
		echo $BASHPID >"$group/container/cgroup.procs"
		exec unshare --cgroup --mount bash -c '
			at=$1 type=$2 options=$3
			shift 3
			umount "$at" &&
				mount -t "$type" -o "$options" none "$at" && exec "$@"
		' _ "${group%/kvt-*}" "$type" "$options" "$@"
	)
}
type=cgroup options=memory
[ $limit_file = memory.limit_in_bytes ] || type=cgroup2 options=rw
node=(kvpoold --foreground --name "pod.$$" --run-dir "$tmp/run" --admin 127.0.0.1:0
	--listen 127.0.0.1:0 --store-size 224M)
status=0
# v2 does not tell the limit of hidden groups: there the option does.
limited=()
[ $type = cgroup ] || limited=(--memory-limit $limit)
container timeout 20 "${node[@]}" "${limited[@]}" >"$tmp/pod.out" 2>&1 || status=$?
rmdir "$group/container"
[ $status = 1 ] || fail "the node ended with $status: $(cat "$tmp/pod.out")"
grep -q 'store: a size of 224.0 MiB .* allows 256.0 MiB; use a --store-size of at most' \
	"$tmp/pod.out" || fail "$(cat "$tmp/pod.out")"

echo "== a pool without a size takes a quarter of what its cgroup allows"
limit=$((512 << 20))
new_cgroup
export up=$tmp/up
at=()
mkdir "$up"
for option in master listen admin; do
	free_port
	at+=("--$option" "127.0.0.1:$port")
done
export options="${at[*]}"
export name=kvt-cgroup-$$
also_named+=("$name")
inside 'kvpool up --mount "$up" --store-dir "$up.store" --log-file "$tmp/up.log" \
	--name "$name" --state-file "$up.state" $options &&
	kvpool down --mount "$up"' || fail "kvpool up and down"
grep -q 'size 128.0 MiB' "$tmp/up.log" || fail "$(cat "$tmp/up.log")"
pass
