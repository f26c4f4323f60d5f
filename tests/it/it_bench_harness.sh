#!/bin/bash
# What is shared by benchmarks (lib_bench.sh): one that fails ends with 1, whatever
# it has to put back.
. "$(dirname "$0")/../lib/lib.sh"
here=$(cd "$(dirname "$0")/../bench" && pwd)

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

echo "== what is measured is judged by the aims, all of which are looked for"
need jq
cat >"$tmp/bench.json" <<'END'
{"machine": {"wake_us": 3.2, "fresh_us_per_mib": 50},
 "rows": [
  {"name": "read_4m", "what": "reading", "unit": "GiB/s", "ours": 9.3,
   "reference": 10, "ratio": 0.93, "p50_us": 1, "p99_us": 2, "reference_p99_us": 3},
  {"name": "access_hit", "what": "asking", "unit": "us", "ours": 2.5,
   "reference": 2, "ratio": 1.25, "p50_us": 1, "p99_us": 2, "reference_p99_us": 0},
  {"name": "access_busy", "what": "shown only", "unit": "us", "ours": 2,
   "reference": 2, "ratio": 1, "p50_us": 1, "p99_us": 2, "reference_p99_us": 0},
  {"name": "requests_read", "what": "none", "unit": "", "ours": 0,
   "reference": 0, "ratio": 0, "p50_us": 0, "p99_us": 0, "reference_p99_us": 0},
  {"name": "requests_write", "what": "one too many", "unit": "", "ours": 1,
   "reference": 0, "ratio": 0, "p50_us": 0, "p99_us": 0, "reference_p99_us": 0}],
 "memory": [{"size": 4096, "objects": 1, "total": 1, "over": 3073, "slab": 1,
  "anon": 1}]}
END
. "$here/lib_bench.sh"
judge "$tmp/bench.json" >"$tmp/judged"
has() { # REGEX
	grep -q "$1" "$tmp/judged" || fail "no $1 in: $(cat "$tmp/judged")"
}
has '^| reading .* | >= 0.92 .* | ok *|$'
has '^| asking .* | <= 1.2 .* | MISSED *|$'
has '^| shown only .* | - [^a-zA-Z]*|$'
has '^| none .* | <= 0 .* | ok *|$'
has '^| one too many .* | <= 0 .* | MISSED *|$'
has '^| memory of an object of 4096 bytes.* | <= 3072 .* | MISSED *|$'
has '^not measured: write_4m$'
judge "$tmp/bench.json" read_4m,access >"$tmp/judged"
! grep -q 'not measured: write' "$tmp/judged" || fail "write was not asked for"
has '^not measured: access_miss$'
mkdir "$tmp/copy"
cp "$here/lib_bench.sh" "$tmp/copy/"
{ cat "$here/bench_aims"; echo 'read_4m ratio about 1'; } >"$tmp/copy/bench_aims"
! (. "$tmp/copy/lib_bench.sh" && judge "$tmp/bench.json") >"$tmp/judged" 2>&1 ||
	fail "an aim that makes no sense was passed over"
has 'not an aim: read_4m ratio about 1'
pass
