#!/bin/bash
# `lmcache bench l2` (it verifies what was loaded) on the pool: its adapter
# fs_native on a plain tmpfs, the same on the mount, and the product's adapters,
# in turns. Printed are medians of the rounds, and their ratios to the first.
# Memory that is free is kept from a hypervisor meanwhile (lib_bench.sh).
#   KEYS=16 IN_FLIGHT=4 SIZE_KB=2048 ROUNDS=7 TURNS=3
. "$(dirname "$0")/lib_engines.sh"
. "$engines/../bench/lib_bench.sh"
need_fuse
need_engine python
need jq
plain=$(mktemp -d /dev/shm/kvbench.XXXXXX)
at_end() {
	local status=$?
	put_back
	rm -rf --one-file-system "$plain"
	(exit $status)
	cleanup
}
trap at_end EXIT
keep_from_host
[ -z "$again" ] || echo "with $again (put back afterwards)"
touch_memory "${TOUCH:-6}"
start_master
start_node a --store-size "${STORE:-3G}"
mkdir "$plain/files" "${mount[a]}/files"

# What is put lies in the store that the mount's daemon keeps.
params='"at": "'${mount[a]}'", "namespace": "NAME", "buffer_size": "'${BUFFER:-1G}'"'
module='"module_path": "kvpool.lmcache"'
declare -A spec=(
	[tmpfs]='{"type": "fs_native", "base_path": "'$plain/files'"}'
	[mount]='{"type": "fs_native", "base_path": "'${mount[a]}/files'"}'
	[native]='{"type": "native_plugin", '$module', "class_name": "NativeClient",
		"adapter_params": {'${params/NAME/n}'}}'
	[plugin]='{"type": "plugin", '$module', "class_name": "L2Adapter",
		"adapter_params": {'${params/NAME/p}'}}')

# Keys are the same in each run: what is there is removed first.
one() { # NAME
	local out=$tmp/$1.out
	rm -rf --one-file-system "$plain"/files/* "${mount[a]}"/files/* \
		"${mount[a]}"/[np]
	sync "${mount[a]}"
	"$ENGINES/python/bin/lmcache" bench l2 --l2-adapter "${spec[$1]}" \
		--num-keys "${KEYS:-16}" --in-flight "${IN_FLIGHT:-4}" \
		--data-size-kb "${SIZE_KB:-2048}" --rounds "${ROUNDS:-7}" \
		--no-skip-verify --lookup-max-hit-rate 0.5 --format json \
		>"$out" 2>&1 || { tail -n40 "$out"; fail "$1"; }
	grep -q 'keys data verified OK' "$out" || { tail -n40 "$out"; fail "$1: not verified"; }
	sed -n '/^{/,/^}/p' "$out" | jq -r --arg name "$1" '.metrics | to_entries[]
		| select(.key | startswith("op_")) | .value
		| [$name, .operation, .keys_per_round, .duration_p50_ms,
		   (if .operation == "Lookup" then .total_keys / 2 | floor
		    else .total_keys end) - .total_success] | @tsv' >>"$tmp/rows"
}

for ((turn = 0; turn < ${TURNS:-3}; turn++)); do
	for name in tmpfs mount native plugin; do one $name; done
done
echo "load $(cut -d' ' -f1-3 /proc/loadavg)"
/usr/bin/python3 - "$tmp/rows" "${SIZE_KB:-2048}" <<'P'
import statistics, sys
times, keys, failed = {}, 1, 0
for row in open(sys.argv[1]):
    name, operation, n, ms, missing = row.split()
    times.setdefault(operation, {}).setdefault(name, []).append(float(ms))
    keys, failed = int(n), failed + max(0, int(float(missing)))
for operation, of in times.items():
    base = statistics.median(of["tmpfs"])
    for name, ms in of.items():
        m = statistics.median(ms)
        rate = (f"{keys / m:7.0f} k keys/s" if operation == "Lookup"
                else f"{keys * int(sys.argv[2]) / 1024 / m * 1000:7.0f} MiB/s")
        verdict = "" if name == "tmpfs" else (
            "ok" if m <= base else "MISSED")
        print(f"{operation:8} {name:8} {m:9.2f} ms {rate}  {base / m:5.2f} {verdict}")
print(f"{failed} keys failed")
sys.exit(failed > 0)
P
rm -rf --one-file-system "${mount[a]}"/files "${mount[a]}"/[np]
pass
