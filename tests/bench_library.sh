#!/bin/bash
# Calls of libkvpool: questions about keys that another process has put, and
# objects moved, beside a raw socket. KVTEST_KEYS=1000000 KVTEST_ROUNDS=15
. "$(dirname "$0")/lib.sh"
export LIBRARY_BUFFER=/dev/shm/kvbench.$$
trap 'rm -rf "$LIBRARY_BUFFER"; cleanup' EXIT
start_master
bench() { library_bench "${listen[master]}" "$@"; }

echo "== moved, store on this host (descriptors are lent)"
start_node a --no-mount --store-size 3G
bench stock "${KVTEST_ROUNDS:-15}"
bench move "${KVTEST_ROUNDS:-15}"
stop a
umount "${store[a]}" 2>/dev/null || rm -rf "${store[a]}"

echo "== moved, as from another host (bytes over TCP)"
start_node b --no-mount --store-size 3G --no-fd-passing
bench stock "${KVTEST_ROUNDS:-15}"
bench move "${KVTEST_ROUNDS:-15}"

echo "== asked"
bench fill "${KVTEST_KEYS:-1000000}"
bench ask "${KVTEST_KEYS:-1000000}"
stop_all
echo done
