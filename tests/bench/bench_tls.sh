#!/bin/bash
# What TLS costs (`make bench-tls`): pools on this machine, one for each mode, do
# the same in turn. Judged by bench_aims beside the plain one and the AES-GCM that
# one CPU does. Each pool has a node with a store, which passes no descriptors, and
# a mount on a node without one.
# The mode ktls needs the module tls; where this machine has none, a guest does.
#   KVTEST_ROUNDS=9 KVTEST_MODES="plain tls auth ktls"
. "$(dirname "$0")/lib_bench.sh"
. "$(dirname "$0")/../lib/lib_tls.sh"
need_fuse
need openssl jq
trap 'put_back; cleanup' EXIT
rounds=${KVTEST_ROUNDS:-9}
modes=${KVTEST_MODES:-plain tls auth$(
	grep -qw tls /proc/sys/net/ipv4/tcp_available_ulp && echo " ktls")}
declare -A master_of=() by=([tls]="--ktls off" [auth]="--ktls off" [ktls]="--ktls on")

enter() { # MODE: of daemons and programs started from here on
	unset KVTEST_TLS KVPOOL_TLS_DIR KVPOOL_BULK
	[ "$1" != plain ] || return 0
	export KVTEST_TLS=$tmp/tls KVPOOL_TLS_DIR=$tmp/tls/client
	[ "$1" != auth ] || export KVPOOL_BULK=auth
}

begin_pool() { # MODE
	enter "$1"
	unset "listen[master]"
	start_master --state-file "$tmp/$1.state"
	pid[$1.master]=${pid[master]} master_of[$1]=${listen[master]}
	unset "pid[master]"
	start_node "$1.store" --no-mount --no-fd-passing --store-size 1G \
		${by[$1]:-}
	start_node "$1.mount" --no-fd-passing --store-size 0 ${by[$1]:-}
}

end_pool() { # MODE
	enter "$1"
	stop "$1.mount"
	stop "$1.store"
	stop "$1.master"
}

note() { # MODE COMMAND...: its words NAME=VALUE
	local mode=$1
	shift
	"$@" >"$tmp/words" || fail "$*"
	sed "s/^/$mode /; s/=/ /" "$tmp/words" >>"$tmp/figures"
}

handshakes() { # HOST:PORT: words
	openssl s_time -connect "$1" -new -time 1 -cert "$KVPOOL_TLS_DIR/tls.crt" \
		-key "$KVPOOL_TLS_DIR/tls.key" -CAfile "$KVPOOL_TLS_DIR/ca.crt" \
		2>/dev/null | awk '/connections in .* real seconds/ {
			print "handshakes=" $1 / $4 }'
}

round() { # MODE TAG
	local at=${master_of[$1]}
	enter "$1"
	note "$1" tls_bench "$at" put "$2"
	note "$1" tls_bench "$at" get "$2" "${pid[$1.store]}"
	note "$1" tls_bench "${mount[$1.mount]}" read "$2"
	[ "$1" = plain ] || note "$1" handshakes "${listen[$1.store]}"
}

in_turn() { # N: the modes, every second time backwards
	tr ' ' '\n' <<<"$modes" | if (($1 % 2)); then tac; else cat; fi
}

gcm() { # BITS: words; GB/s of one CPU
	openssl speed -evp "aes-$1-gcm" -aead -bytes 16384 -seconds 1 2>/dev/null |
		awk -v n="aes$1" '/^AES/ { print n "=" $2 / 1e6 }'
}

cipher() { # HOST:PORT: what is negotiated
	openssl s_client -connect "$1" -cert "$KVPOOL_TLS_DIR/tls.crt" -key \
		"$KVPOOL_TLS_DIR/tls.key" -CAfile "$KVPOOL_TLS_DIR/ca.crt" \
		2>/dev/null </dev/null | sed -n 's/.*Cipher is //p'
}

# As `kvpool bench --json`. of_least: of what is less, the plain rate or AES-GCM's.
report() { # CIPHER
	jq -Rn --arg cipher "$1" --arg modes "$modes" '
	def median: sort | .[length / 2 | floor];
	(reduce (inputs | split(" ")) as [$mode, $name, $value] ({};
		.[$mode][$name] += [$value | tonumber]) |
	 map_values(map_values(median))) as $f |
	$f.machine[if $cipher | test("128") then "aes128" else "aes256" end] as $gcm |
	def mib: {"1m": 1, "4m": 4, "32x1m": 32}[.];
	def text: {"4k": "4 KiB", "1m": "1 MiB", "4m": "4 MiB",
		"32x1m": "32 x 1 MiB"}[.];
	def by_time($mode; $name; $what; $unit): select($f[$mode][$name]) |
		{name: "\($mode)_\($name)", what: "\($mode): \($what)",
		 unit: $unit, ours: $f[$mode][$name],
		 reference: $f.plain[$name],
		 ratio: ($f[$mode][$name] / $f.plain[$name])};
	def by_rate($mode; $name; $what; $mib): select($f[$mode][$name]) |
		($mib * 1048.576 / $f[$mode][$name]) as $ours |
		($mib * 1048.576 / $f.plain[$name]) as $plain |
		{name: "\($mode)_\($name)", what: "\($mode): \($what)",
		 unit: "GB/s", ours: $ours, reference: $plain,
		 ratio: ($ours / $plain), of_least: ($ours / ([$plain, $gcm] | min))};
	# The plain rate, if both sides also spent the CPU time of AES-GCM.
	def allowed($mode; $name; $mib): select($mode != "auth") |
		($mib * 1048.576 / $f[$mode][$name]) as $ours |
		($mib * 1048.576 / $f.plain[$name] * $f.plain.cpu /
		 ($f.plain.cpu + 2 / $gcm)) as $most |
		{name: "\($mode)_allowed", what: "\($mode): get, 32 x 1 MiB, of plain plus AES-GCM",
		 unit: "GB/s", ours: $ours, reference: $most, ratio: ($ours / $most)};
	{memory: [], rows: [
	 (($modes | split(" ")[] | select(. != "plain")) as $m |
	 (("get", "put", "read") as $call |
	  {get: "get", put: "put and sync", read: "read by the mount"}[$call] as $how |
	  ("4k", "1m", "4m", "32x1m") as $size |
	  if $size == "4k" then
		by_time($m; "\($call)_4k"; "\($how), 4 KiB"; "us")
	  else by_rate($m; "\($call)_\($size)"; "\($how), \($size | text)";
		$size | mib) end),
	 by_time($m; "look"; "look-up of 512 keys"; "us"),
	 by_time($m; "stat"; "stat(2) of a new name on the mount"; "us"),
	 allowed($m; "get_32x1m"; 32),
	 by_time($m; "cpu"; "CPU of both sides, get of 32 x 1 MiB"; "s/GB"),
	 {name: "\($m)_handshakes", what: "\($m): handshakes a second, all on this machine",
	  unit: "1/s", ours: $f[$m].handshakes}),
	 {name: "aes128", what: "AES-128-GCM of one CPU, 16 KiB", unit: "GB/s",
	  ours: $f.machine.aes128},
	 {name: "aes256", what: "AES-256-GCM of one CPU, 16 KiB", unit: "GB/s",
	  ours: $f.machine.aes256}]}' "$tmp/figures"
}

keep_from_host
touch_memory "${KVTEST_TOUCH:-6}"
use_tls
for mode in $modes; do begin_pool "$mode"; done
enter tls
cipher=$(cipher "${listen[tls.store]}")
echo "(CPUs $(nproc), load $(cut -d' ' -f1 /proc/loadavg); medians of $rounds rounds;" \
	"negotiated: $cipher)"
[ -z "$again" ] || echo "with $again (put back afterwards)"
for ((n = 0; n < rounds; n++)); do
	note machine gcm 128
	note machine gcm 256
	for mode in $(in_turn $n); do round "$mode" "r$n"; done
done
report "$cipher" >"$tmp/bench.json"
judge "$tmp/bench.json" "$(sed 's/plain *//; s/ *$/_/; s/ \+/_,/g' <<<"$modes")"
for mode in $modes; do end_pool "$mode"; done
pass
