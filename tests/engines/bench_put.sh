#!/bin/bash
# What LMCache's local_disk costs an engine that stores (the put path of LMCache's
# PR #912), by LMCache's own code, on the mount, on a plain tmpfs and on a plain
# disk, in turns: time in submit, and a loop of compute step and store beside the
# same with the CPU backend alone (bench_put.py). All that was written is read
# back, through a second node of the pool too.
#   ROUNDS=15 REQUESTS=2 CHUNKS=4 DENSE=8 DIRECT=   (see bench_put.py)
#   DISK=/var/tmp                                    where the plain disk is
. "$(dirname "$0")/lib_engines.sh"
. "$engines/../bench/lib_bench.sh"
need_fuse
need_engine python
plain=$(mktemp -d /dev/shm/kvbench.XXXXXX)
disk=$(mktemp -d "${DISK:-/var/tmp}/kvbench.XXXXXX")
trap 'put_back; rm -rf --one-file-system "$plain" "$disk"; cleanup' EXIT
keep_from_host
[ -z "$again" ] || echo "with $again (put back afterwards)"
touch_memory "${TOUCH:-6}"
start_master
start_node a --store-size "${STORE:-2G}"
start_node b --store-size 64M
mkdir "${mount[a]}/lmc"
sync "${mount[a]}"
export LMCACHE_LOG_LEVEL=${LMCACHE_LOG_LEVEL:-ERROR} PYTHONHASHSEED=0
echo "(CPUs $(nproc --all), load $(cut -d' ' -f1-3 /proc/loadavg);" \
	"disk: $(stat -f -c %T "$disk"))"
"$PYTHON" "$engines/bench_put.py" cpu= mount="${mount[a]}/lmc" tmpfs="$plain" \
	disk="$disk" --other mount="${mount[b]}/lmc" --rounds "${ROUNDS:-15}" \
	--requests "${REQUESTS:-2}" --chunks "${CHUNKS:-4}" --dense "${DENSE:-8}" \
	${DIRECT:+--direct} 2>"$tmp/engines.err" || {
	tail -n40 "$tmp/engines.err" >&2
	fail "bench_put.py"
}
echo "(load $(cut -d' ' -f1-3 /proc/loadavg))"
pass
