# For benchmarks, after lib.sh: where idle CPUs and free memory are given back to a
# hypervisor at once, CPUs poll for 0.2 ms before, and memory that has been used
# once is kept when it is free. Whoever keeps it puts it back:
#
#   trap 'put_back; cleanup' EXIT
#   keep_from_host

[ -n "${KVTEST_OBJ:-}" ] || . "$(dirname "${BASH_SOURCE[0]}")/../lib/lib.sh"

# FILE VALUE; 11: no free memory is that contiguous. Found at the start: was.
knobs="/sys/module/haltpoll/parameters/guest_halt_poll_ns 200000
/sys/module/page_reporting/parameters/page_reporting_order 11"
declare -A was=()

put_back() { # leaves $? as it was, for cleanup
	local status=$? file
	set +e
	for file in "${!was[@]}"; do echo "${was[$file]}" >"$file"; done
	return $status
}

# What is kept from the hypervisor, as "NAME=VALUE ..."; none: nothing.
keep_from_host() {
	local file value kept=()
	again=
	[ -z "${KVTEST_GUEST:-}" ] || return 0 # nothing there is real
	while read -r file value; do
		[ -w "$file" ] && [ "$(cat "$file")" != "$value" ] || continue
		was[$file]=$(cat "$file")
		echo "$value" >"$file"
		kept+=("${file##*/}=$value")
	done <<<"$knobs"
	again="${kept[*]}"
}

# FILE: what `kvpool bench --json` says, as a table in Markdown: figures, and what is
# aimed at (bench_aims). Fails if an aim cannot be read, or names what is not measured.
judge() { # FILE [NAME-BEGINNING,...: only these were measured; none: all but TLS]
	jq -r --rawfile aims "${BASH_SOURCE[0]%/*}/bench_aims" --arg only "${2:-}" '
	def figure: if . == null or . == 0 then "-"
		elif . < 10 then . * 100 | round / 100 | tostring
		else . * 10 | round / 10 | tostring end;
	def pad($n): tostring | . + " " * ([$n - length, 1] | max);
	([.rows[] | {key: .name, value: .}] +
	 [.memory[] | {key: "memory_\(.size)",
		value: (. + {what: "memory of an object of \(.size) bytes, beyond its pages",
			ours: .over, unit: "bytes"})}]) as $rows |
	($rows | from_entries) as $by |
	[$aims | split("\n")[] | select(test("^[^#]")) |
	 capture("^(?<name>\\w+) +(?<field>\\w+) +(?<sign>[<>]=) +(?<value>[0-9.e]+)$") //
	 error("bench_aims: not an aim: \(.)")] as $aimed |
	($aimed | map({key: .name, value: (. + {value: (.value | tonumber)})}) |
	 from_entries) as $aim |
	(.machine // empty |
	 "This machine: a thread on another CPU wakes in \(.wake_us | figure) us; " +
	 "fresh memory costs \(.fresh_us_per_mib | figure) us a MiB", ""),
	def row: . as $cells | [60, 8, 9, 5, 6, 10, 8, 8, 8, 6] | to_entries |
		map(.value as $width | $cells[.key] | pad($width)) |
		"| " + join("| ") + "|";
	(["what", "ours", "reference", "unit", "ratio", "aim", "p50 us", "p99 us", "ref p99",
	  ""] | row),
	([range(10) | "---"] | row),
	($rows[] | .key as $name | .value as $r | $aim[$name] as $a |
	 [$r.what, ($r.ours | figure), ($r.reference | figure), $r.unit,
	  ($r.ratio | figure), (if $a then "\($a.sign) \($a.value)" else "-" end),
	  ($r.p50_us | figure), ($r.p99_us | figure), ($r.reference_p99_us | figure),
	  if $a | not then "" elif
		if $a.sign == "<=" then $r[$a.field] <= $a.value
		else $r[$a.field] >= $a.value end
	  then "ok" else "MISSED" end] | row),
	($aimed[] | .name as $n | select($by[$n] | not) |
	 select(if $only == "" then $n | test("^(tls|auth)_") | not
		else any($only | split(",")[]; . as $o | $n | startswith($o)) end) |
	 "not measured: \($n)")' "$1"
}

# More of it than the nodes and the reference use. What is freed last is used
# first.
touch_memory() { # GIB
	mkdir "$tmp/touched"
	mount -t tmpfs -o huge=always,size=${1}G tmpfs "$tmp/touched"
	head -c "${1}G" /dev/zero >"$tmp/touched/f" || :
	umount "$tmp/touched"
}
