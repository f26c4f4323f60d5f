#!/bin/bash
# One table of libkvpool, Mooncake Store, Redis and a raw socket. Each store holds its
# data in another process of this host and is reached over TCP.
#   KVTEST_ROUNDS=15 KVTEST_KEYS=100000 KVTEST_ONLY="kvpool mooncake redis"
# Stores that are not installed are reported. To install: tests/engines/install peers.
. "$(dirname "$0")/../lib/lib.sh"
here=$(realpath "$(dirname "$0")")
peers=$("$here/../engines/install" --where)/peers
rounds=${KVTEST_ROUNDS:-15}
only=" ${KVTEST_ONLY:-kvpool mooncake redis} "
run_peer() { # LOG COMMAND...: in the background, until the end
	local log=$1
	shift
	"$@" >"$tmp/$log" 2>&1 &
	also_kill+=("$!")
}

answers() { # PORT
	: 2>/dev/null <>"/dev/tcp/127.0.0.1/$1"
}

# Lines of the table, or the last line of its errors instead.
measure() { # WHAT COMMAND...
	local what=$1 status=0
	shift
	timeout -k 5 180 "$@" >"$tmp/$what.out" 2>"$tmp/$what.err" || status=$?
	grep -a "^${what^}: " "$tmp/$what.out" || :
	[ $status = 0 ] || echo "${what^}: ended with $status:" \
		"$(grep -av '^[IWE][0-9]' "$tmp/$what.err" | tail -n1 | cut -c1-200)"
}

kvpool() {
	KVTEST_ONLY="tcp ask look" KVTEST_ROUNDS=$rounds \
		KVTEST_KEYS=${KVTEST_KEYS:-100000} \
		bash "$here/bench_library.sh" | grep -v '^done$'
}

mooncake() {
	echo "-- Mooncake Store"
	# Its command is a script that starts this.
	local master metrics
	master=$(echo "$peers"/lib/python3*/site-packages/mooncake/mooncake_master)
	if [ ! -x "$master" ]; then
		echo "not here: $(cat "$peers.absent" 2>/dev/null || echo 'not installed')"
	else
		free_port
		metrics=$port
		free_port
		run_peer mooncake-master "$master" --rpc_port "$port" \
			--metrics_port "$metrics"
		wait_until 20 answers "$port"
		run_peer mooncake-store "$peers/bin/python" "$here/peers/peers.py" \
			store "127.0.0.1:$port"
		wait_until 60 grep -asq '^ready' "$tmp/mooncake-store"
		measure mooncake "$peers/bin/python" "$here/peers/peers.py" \
			mooncake "127.0.0.1:$port" "$rounds"
	fi
}

redis() {
	echo "-- Redis"
	local server=$peers/redis/usr/bin/redis-server
	if [ ! -x "$server" ]; then
		echo "not here: $(cat "$peers/redis.absent" "$peers.absent" 2>/dev/null ||
			echo 'not installed')"
	else
		free_port
		run_peer redis-server env \
			LD_LIBRARY_PATH="$peers/redis/usr/lib/x86_64-linux-gnu" "$server" \
			--port "$port" --bind 127.0.0.1 --save '' --appendonly no
		wait_until 20 answers "$port"
		measure redis python3 "$here/peers/peers.py" redis "$port" "$rounds"
	fi
}

for peer in kvpool mooncake redis; do
	[[ $only != *" $peer "* ]] || $peer
done
echo done
