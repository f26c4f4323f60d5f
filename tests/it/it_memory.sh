#!/bin/bash
# A node's own memory: with 100,000 objects that were written through its mount,
# all of which the kernel still knows, under 64 MiB of anonymous pages.
# limit: 240
. "$(dirname "$0")/../lib/lib.sh"
need_fuse

objects=100000
# The aim is 64 MiB; temporaries that are renamed, which take a process each
# here, cost some 2 MiB more.
limit_kib=$((62 * 1024))
start_master
start_node a --store-size 1G
a=${mount[a]}
anon_kib() { awk '$1 == "RssAnon:" { print $2 }' "/proc/${pid[a]}/status"; }
under() { # WHAT
	local kib
	kib=$(anon_kib)
	echo "   $1: $kib KiB of anonymous memory"
	[ "$kib" -lt $limit_kib ] || fail "$1: $kib KiB, not under $limit_kib"
}

echo "== $objects objects of 4 KiB, with names as engines give them"
printf -v data '%4096s' x
under "empty"
for ((d = 0; d < 16; d++)); do
	mkdir "$a/$d"
	for ((i = 0; i < objects / 16; i++)); do
		printf -v name '%s/%d/%064x.bin' "$a" $d $((d * objects + i))
		printf %s "$data" >"$name"
	done
done
for ((d = 0; d < 16; d++)); do sync "$a/$d"; done
has_all() {
	metric_at_least "${admin[master]}" kvpool_master_keys $objects
}
wait_until 60 has_all
under "written"
known=$(metric "${admin[a]}" kvpool_fuse_inodes)
[ "$known" -ge $((objects / 2)) ] ||
	fail "the kernel knows only $known files: this shows nothing"

echo "== and after a restart, all of them listed and read"
stop a
start_node a --store-size 1G
wait_until 20 has_metric "${admin[a]}" kvpool_node_master_connected 1
under "restarted"
[ "$(find "$a" -type f -size 4096c | wc -l)" = $objects ] || fail "not all are there"
find "$a" -type f -print0 | xargs -0 cat >/dev/null
under "read"
pass
