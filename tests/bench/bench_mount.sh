#!/bin/bash
# What files on a mount cost (`make bench-mount`), beside a daemon that does nothing
# but answer the same requests (floor.c), beside one that does so without passthrough
# ("cached"), and beside a tmpfs: all in one run, in turn.
. "$(dirname "$0")/lib_bench.sh"
need_fuse
need floor mount_bench

start_master
start_node a --store-size 2G
mkdir "$tmp/tmpfs" "${mount[a]}/d"
mount -t tmpfs tmpfs "$tmp/tmpfs"
declare -A daemon=()
start_floor() { # NAME [cached]
	mkdir "$tmp/$1.d" "$tmp/$1.m"
	mount -t tmpfs tmpfs "$tmp/$1.d"
	floor "$tmp/$1.d" "$tmp/$1.m" "${@:2}" &
	daemon[$1]=$!
	also_kill+=("$!")
	wait_until 5 mountpoint -q "$tmp/$1.m"
}
start_floor floor
start_floor cached cached
trap 'put_back; cleanup' EXIT
keep_from_host
echo "(load $(cut -d' ' -f1 /proc/loadavg)${again:+; with $again, put back afterwards})"
mount_bench "${KVTEST_ROUNDS:-9}" "${KVTEST_FILES:-2000}" \
	"kvpool=${mount[a]}/d:${pid[a]}" "floor=$tmp/floor.m:${daemon[floor]}" \
	"cached=$tmp/cached.m:${daemon[cached]}" "tmpfs=$tmp/tmpfs"
for name in floor cached; do
	umount "$tmp/$name.m"
	wait "${daemon[$name]}"
done
pass
