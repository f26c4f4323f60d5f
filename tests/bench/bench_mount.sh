#!/bin/bash
# What files on a mount cost (`make bench-mount`), beside a daemon that does nothing
# but answer the same requests (floor.c) and beside a tmpfs: all in one run, in turn.
. "$(dirname "$0")/lib_bench.sh"
need_fuse
need floor mount_bench

start_master
start_node a --store-size 2G
mkdir "$tmp/floor.d" "$tmp/floor.m" "$tmp/tmpfs" "${mount[a]}/d"
mount -t tmpfs tmpfs "$tmp/floor.d"
mount -t tmpfs tmpfs "$tmp/tmpfs"
floor "$tmp/floor.d" "$tmp/floor.m" &
floor=$!
also_kill+=("$floor")
wait_until 5 mountpoint -q "$tmp/floor.m"
trap 'put_back; cleanup' EXIT
keep_from_host
echo "(load $(cut -d' ' -f1 /proc/loadavg)${again:+; with $again, put back afterwards})"
mount_bench "${KVTEST_ROUNDS:-9}" "${KVTEST_FILES:-2000}" \
	"kvpool=${mount[a]}/d:${pid[a]}" "floor=$tmp/floor.m:$floor" "tmpfs=$tmp/tmpfs"
umount "$tmp/floor.m"
wait "$floor"
pass
