#!/bin/bash
# What another mount's fsync has acknowledged shows at once, also where the
# kernel cannot be notified: an fsync of that directory waits here, for which the
# kernel holds the lock that an invalidation takes.
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
[ "$(printf '%s\n' 6.16 "$(uname -r)" | sort -V | head -n1)" = 6.16 ] ||
	skip "needs Linux 6.16: before, such a name may show for as long"

# No store: what a client puts waits for one, and so does its fsync.
start_master
start_node a --store-size 0
start_node b --store-size 0
mkdir "${mount[b]}/d" "${mount[b]}/d/sub"
sync "${mount[b]}/d"
[ -d "${mount[a]}/d/sub" ] || fail "an acknowledged directory is not there"
echo x >"${mount[a]}/d/file"
(sync "${mount[a]}/d" 2>/dev/null || :) &
waits=$!
also_kill+=($waits)
waiting() { metric_at_least "${admin[a]}" 'kvpool_fuse_requests_total{op="fsyncdir"}' 1; }
wait_until 5 waiting
rmdir "${mount[b]}/d/sub"
sync "${mount[b]}/d"
kill -0 $waits 2>/dev/null || fail "the fsync did not wait: this shows nothing"
[ ! -e "${mount[a]}/d/sub" ] || fail "a directory shows that was removed before"
metric_at_least "${admin[a]}" kvpool_fuse_epochs_total 1
pass
