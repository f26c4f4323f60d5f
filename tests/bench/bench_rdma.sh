#!/bin/bash
# Ours beside perftest (`make bench-rdma`), between two RDMA devices, in turns in
# one run; where the machine has none, in the guest, where both are emulated and
# only ratios mean anything. Medians of ROUNDS (5). The rows, each of 1, 4 and 32
# MiB objects, SIZES="4":
#
#   push, pull  one object fetched from another process, the request to the last
#               completion, into new pages / ib_write_bw, ib_read_bw: the same
#               size, to one warm buffer, many under way
#   tcp         the same over our own TCP
#   mount       open + read of what another daemon's mount wrote / ib_write_bw
#   get         4 KiB, time / ib_read_lat; echo: the same bytes over a plain TCP
#               connection
#   get_into    libkvpool: 4 MiB, and 32 x 1 MiB in one call, from another node's
#               store into a registered buffer / ib_write_bw of 4 and 1 MiB
#
# Movers look so long for what devices have done, before they sleep: BUSY=0
# (microseconds; kvpoold --rdma-busy-poll).
# modes: both
# guest: --rxe 2
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_rdma.sh"
need_fuse
need ib_write_bw ib_read_bw ib_read_lat awk

ROUNDS=${KVTEST_ROUNDS:-5} SIZES=${KVTEST_SIZES:-1 4 32}
export KVTEST_BUSY=${KVTEST_BUSY:-0}
MIB=1048576
ends=("${rdma_device[0]},${rdma_addr[0]}" "${rdma_device[1]},${rdma_addr[1]}")
gid=("$(rdma_gid_index "${rdma_device[0]}")"
	"$(rdma_gid_index "${rdma_device[1]}")")

# What perftest says between its two ends.
perftest() { # PROGRAM OPTION...
	local program=$1 server
	shift
	free_port
	"$program" -d "${rdma_device[0]}" -x "${gid[0]}" -F -u 17 -p $port "$@" \
		>"$tmp/perf.server" 2>&1 &
	server=$!
	also_kill=($server)
	wait_until 5 listens $port
	"$program" -d "${rdma_device[1]}" -x "${gid[1]}" -F -u 17 -p $port \
		"$@" "${rdma_addr[0]}" >"$tmp/perf" 2>&1 ||
		fail "$program: $(cat "$tmp/perf" "$tmp/perf.server")"
	wait $server || fail "$program: $(cat "$tmp/perf.server")"
	also_kill=()
}

# Figures are lines "NAME VALUE" in files of a size; times in microseconds.
note() { # SIZE NAME VALUE
	echo "$2 $3" >>"$tmp/figures.$1"
}
median() { # SIZE NAME
	awk -v n="$2" '$1 == n { print $2 }' "$tmp/figures.$1" | sort -g |
		awk '{ v[NR] = $1 } END { print NR ? v[int((NR + 1) / 2)] : 0 }'
}

bandwidth() { # SIZE PROGRAM: the time of one, at its mean bandwidth
	local n=$((64 * MIB / $1))
	perftest "$2" -s "$1" -n $((n < 5 ? 5 : n))
	note "$1" "$2" "$(awk -v s="$1" '$1 == s { print s / ($4 * 1.048576) }' \
		"$tmp/perf")"
}

ours() { # SIZE PREFIX COMMAND...
	local size=$1 prefix=$2 words word
	shift 2
	words=$("$@") || fail "$*"
	for word in $words; do
		note "$size" "$prefix.${word%=*}" "${word#*=}"
	done
}

round() { # SIZE
	local count=$((32 * MIB / $1)) how
	count=$((count < 5 ? 5 : count > 16 ? 16 : count))
	bandwidth "$1" ib_write_bw
	for how in push pull tcp; do
		ours "$1" $how bench_rdma fetch $how "$1" $count "${ends[@]}" "${store[b]}"
	done
	bandwidth "$1" ib_read_bw
	register=$(register_s)
	ours "$1" mount bench_rdma mount "$1" 5 "${mount[a]}" "${mount[b]}"
	note "$1" mount.register "$(awk -v a="$register" -v b="$(register_s)" \
		'BEGIN { printf("%.0f", (b - a) * 1e6 / 5) }')"
	[ "$(awk '$1 ~ /^pu.*rdma/ && $2 == 0' "$tmp/figures.$1")" = "" ] ||
		fail "not by RDMA"
}

# What b has spent on registering, of all it has fetched.
register_s() { metric "${admin[b]}" kvpool_rdma_register_seconds_sum; }

latency_round() {
	local size=4096
	perftest ib_read_lat -s $size -n 200
	note $size ib_read_lat \
		"$(awk -v s=$size '$1 == s { print $5 }' "$tmp/perf")"
	ours $size get bench_rdma fetch push $size 200 "${ends[@]}" "${store[b]}"
	ours $size echo bench_rdma echo $size 200 "${rdma_addr[0]}"
	ours $size get_tcp bench_rdma fetch tcp $size 200 "${ends[@]}" "${store[b]}"
}

row() { # SIZE NAME TIME REFERENCE REFERENCE-TIME AIM TEXT
	awk -v size="$1" -v name="$2" -v t="$3" -v ref="$4" -v rt="$5" \
		-v aim="$6" -v text="$7" 'BEGIN {
		r = rt / t
		judged = aim == 0 ? "" : (r < aim ? "< " : ">= ") aim
		printf("%-11s %6.0f KiB %9.1f us %7.1f MiB/s", name, size / 1024,
			t, size / 1.048576 / t)
		if (name != ref)
			printf("  %5.2f of %-11s %-8s %s", r, ref, judged, text)
		printf("\n")
	}'
}

report() { # SIZE
	local s=$1 h w r aim=0 mount_aim=0 tail
	w=$(median $s ib_write_bw) r=$(median $s ib_read_bw)
	[ $s -lt $((4 * MIB)) ] || aim=0.95 mount_aim=0.9
	row $s ib_write_bw $w ib_write_bw $w 0 ''
	row $s ib_read_bw $r ib_read_bw $r 0 ''
	for h in push pull; do
		tail=$(median $s $h.tail)
		row $s $h $(($(median $s $h.total) - tail)) \
			$([ $h = push ] && echo "ib_write_bw $w" ||
				echo "ib_read_bw $r") $aim \
			"register $(median $s $h.register), moved $(median $s $h.move); then sum $tail of $(median $s $h.sum)"
	done
	row $s tcp "$(median $s tcp.total)" ib_write_bw $w 0 "checksum included"
	row $s mount "$(median $s mount.total)" ib_write_bw $w $mount_aim \
		"open $(median $s mount.open) (register $(median $s mount.register)), read $(median $s mount.read); all of it when it is here: $(median $s mount.local)"
}

start_master
for i in 0 1; do
	name=$([ $i = 0 ] && echo a || echo b)
	start_node $name --host "${rdma_addr[i]}" --insecure --no-fd-passing \
		--store-size 512M --transport rdma --prefetch 0 \
		--rdma-busy-poll "$KVTEST_BUSY" \
		--rdma-device "${rdma_device[i]}"
done
echo "kernel $(uname -r), $(nproc) CPUs, $KVTEST_MODE, $ROUNDS rounds," \
	"rdma-busy-poll $KVTEST_BUSY us"
for ((n = 0; n < ROUNDS; n++)); do
	for size in $SIZES; do
		round $((size * MIB))
	done
	latency_round
done
# From a's store, the only one, to a process bound to b's device. It gets 36 MiB
# a round, and puts as much: what it is to get has to stay.
FEW=$((ROUNDS < 6 ? ROUNDS : 6))
library() { # COMMAND
	LIBRARY_RDMA=${rdma_device[1]} LIBRARY_LISTEN=${rdma_addr[1]}:0 \
		LIBRARY_BUFFER=$tmp/library \
		library_bench "${listen[master]}" "$1" $FEW
}
[ "$(metric "${admin[b]}" kvpool_rdma_fallbacks_total)" = 0 ] ||
	fail "something went over TCP"
stop b
library stock
sent=$(metric "${admin[a]}" kvpool_rdma_sent_bytes_total)
for ((n = 0; n < FEW; n++)); do
	for size in $MIB $((4 * MIB)); do bandwidth $size ib_write_bw; done
done
ours lib lib library words
sent=$(($(metric "${admin[a]}" kvpool_rdma_sent_bytes_total) - sent))
echo "of $((36 * FEW * MIB)) bytes got, $sent by RDMA"

for size in $SIZES; do
	report $((size * MIB))
done
into() { # SIZE N
	row $(($1 * $2)) get_into "$(median lib lib.get.$1.$2)" ib_write_bw \
		"$(awk -v t="$(median $1 ib_write_bw)" -v n=$2 \
			'BEGIN { print t * n }')" 0 "$2 in one call"
}
into $((4 * MIB)) 1
into $MIB 32
lat=$(median 4096 ib_read_lat)
row 4096 ib_read_lat "$lat" ib_read_lat "$lat" 0 ''
row 4096 echo "$(median 4096 echo.total)" ib_read_lat "$lat" 0 "a plain socket"
row 4096 get "$(median 4096 get.total)" ib_read_lat "$lat" 0 \
	"over the control connection"
pass
