#!/bin/bash
# What is shared by benchmarks (lib_bench.sh): one that fails ends with 1, whatever
# it has to put back.
. "$(dirname "$0")/lib.sh"
here=$(cd "$(dirname "$0")" && pwd)

ends() { # STATUS COMMAND: of a benchmark that ends with it
	local status=0
	printf '. "%s/lib_bench.sh"\n%s\n%s\n' "$here" \
		"trap 'put_back; cleanup' EXIT" "$2" >"$tmp/bench.sh"
	bash "$tmp/bench.sh" >"$tmp/out" 2>&1 || status=$?
	[ $status = "$1" ] || fail "$2: $status, not $1: $(cat "$tmp/out")"
}
export KVTEST_BUILD
ends 0 pass
ends 1 'fail why'
ends 1 false
pass
