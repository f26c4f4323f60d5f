#!/bin/bash
# Multi-turn conversations (tests/bench/multiturn) with real servers of engines, two of
# each variant, one on each node; a conversation's next turn goes to the other one:
#   none      the engine's own prefix cache alone (which all have, of one size)
#   mount     vLLM's tier for files, llama.cpp's slots, on the mount
#   adapter   vLLM: the product's own tier
#   tmpfs     the same as on the mount, on a plain tmpfs that both servers see, as
#             they are on one host
#   mooncake  vLLM: Mooncake Store, by a tier of the same form (mooncake_tier.py)
# and, for TABLE=serving, cpu (vLLM's CPU tier, which all but none have) and disk.
#
#   ENGINE=vllm|llama   TABLE=turns|again|serving
#   VARIANTS="none mount adapter tmpfs mooncake"   TOGETHER=4: servers of so many are
#   up at once, as memory allows (1.9 GiB a server of vLLM); none is always one
#   CONVERSATIONS=4 TURNS=4 FIRST=3072 LATER=128 ANSWER=24 ROUNDS=2 SHAPE=bench|small|tiny
#   ROOM=2.5 CPU_ROOM=2.5 conversations in the engine's own cache, in the CPU tier
# (these are the defaults of turns with vLLM; see below for others)
#   UNDER=COMMAND   each round is run by it (a lock where others measure, too)
#   OUT=FILE        what was measured is added to it; else it is not kept
. "$(dirname "$0")/lib_engines.sh"
. "$engines/../bench/lib_bench.sh"
engine=${ENGINE:-vllm}
table=${TABLE:-turns}
case $engine-$table in
vllm-turns) variants="none mount adapter tmpfs mooncake" ;;
vllm-again) variants="none mount adapter" ;;
vllm-serving) variants="none cpu mount disk" ;;
llama-*) variants="none mount tmpfs" ;;
esac
variants=${VARIANTS:-$variants}
requests=4
[ "$engine" = vllm ] || requests=2	# slots: half of the conversations
shape=${SHAPE:-$([ "$engine" = vllm ] && echo bench || echo small)}
# conversations, turns, tokens of the first turn, of later ones, of answers; llama.cpp
# is built without the machine's own instructions, and slower
case $engine-$table in
vllm-turns) workload=(4 4 3072 128 24) room=2.5 ;;
llama-turns) workload=(4 4 1024 48 16) room=4 ;;
*-again) workload=(8 2 2048 0 8 --again) room=4 cpu_room=8 ;;
*-serving) workload=(8 1 1024 0 48) room=4 ;;
esac
workload=(--conversations "${CONVERSATIONS:-${workload[0]}}"
	--turns "${TURNS:-${workload[1]}}" --first "${FIRST:-${workload[2]}}"
	--later "${LATER:-${workload[3]}}" --answer "${ANSWER:-${workload[4]}}"
	"${workload[@]:5}")
need_fuse
need_engine "$([ "$engine" = vllm ] && echo python || echo llama)"
python=$PYTHON
plain=$(mktemp -d /dev/shm/kvbench.XXXXXX)
disk=$(mktemp -d /var/tmp/kvbench.XXXXXX)
lines=${OUT:-$tmp/lines}
export KVTEST_BUFFERS=$plain/buffers LLAMA_SERVER=$ENGINES/llama/bin/llama-server \
	PYTHONPATH=$engines/../bench:$engines:$tmp/python:$PYTHONPATH \
	VLLM_LOGGING_LEVEL=WARNING

# ---- servers ----

declare -A url=() server=()	# by VARIANT-NODE

at_end() {
	put_back
	local status=$? each
	for each in "${server[@]}"; do
		kill -KILL -- "-$each" 2>/dev/null
		wait "$each" 2>/dev/null
	done
	rm -rf --one-file-system "$plain" "$disk" /dev/shm/vllm_offload_kvbench$$-*
	(exit $status)
	cleanup
}
trap at_end EXIT

store_of() { # VARIANT NODE
	case $1 in
	none | cpu) echo "$1" ;;
	mount) echo "files:${mount[$2]}/files" ;;
	adapter) echo "kvpool:${mount[$2]}" ;;
	tmpfs) echo "files:$plain/files" ;;
	disk) echo "files:$disk" ;;
	mooncake) echo "mooncake:$mooncake" ;;
	*) fail "no variant $1" ;;
	esac
}

nodes=(a b)
[ "$table" != serving ] || nodes=(a)
model=$tmp/model
[ "$engine" = vllm ] || model=$tmp/model.gguf

multiturn() {
	"$python" -m multiturn "$@"
}

server_starts() { # VARIANT NODE
	free_port
	url[$1-$2]=http://127.0.0.1:$port
	setsid "$python" -m multiturn serve "$engine" "$(store_of "$1" "$2")" \
		--model "$model" --shape "$shape" --port "$port" --requests $requests \
		--room "${ROOM:-$room}" --cpu-room "${CPU_ROOM:-${cpu_room:-$room}}" \
		--engine-id "kvbench$$-$1-$2" "${workload[@]}" \
		>"$tmp/$1-$2.out" 2>&1 </dev/null &
	server[$1-$2]=$!
}

server_answers() { # NAME
	kill -0 "${server[$1]}" 2>/dev/null || return 0
	curl -sf --noproxy '*' --max-time 5 -o /dev/null "${url[$1]}/health"
}

# All, or the reason why a variant is left out.
variants_start() { # VARIANT...: sets $up
	local v n
	for v in "$@"; do
		for n in "${nodes[@]}"; do server_starts "$v" "$n"; done
	done
	up=()
	for v in "$@"; do
		for n in "${nodes[@]}"; do
			wait_until 400 server_answers "$v-$n"
		done
		if variant_lives "$v"; then
			up+=("$v")
		else
			echo "$v cannot run: $(grep -haE 'Error' "$tmp/$v"-?.out |
				tail -n1 | cut -c1-300)"
			[ -z "${VERBOSE:-}" ] || tail -n60 "$tmp/$v"-?.out >&2
			variant_stops "$v"
		fi
	done
}

variant_lives() {
	local n
	for n in "${nodes[@]}"; do
		kill -0 "${server[$1-$n]}" 2>/dev/null || return 1
	done
}

variant_stops() {
	local n
	for n in "${nodes[@]}"; do
		kill -TERM -- "-${server[$1-$n]}" 2>/dev/null || :
	done
	for n in "${nodes[@]}"; do
		wait "${server[$1-$n]}" 2>/dev/null || :
		kill -KILL -- "-${server[$1-$n]}" 2>/dev/null || :
		unset "server[$1-$n]"
	done
}

# ---- Mooncake ----

mooncake_starts() { # sets $mooncake, or $mooncake_absent
	local peers=$ENGINES/peers master metrics n
	master=$(echo "$peers"/lib/python3*/site-packages/mooncake/mooncake_master)
	[ -x "$master" ] || {
		mooncake_absent=$(cat "$peers.absent" 2>/dev/null ||
			echo 'not installed (tests/engines/install peers)')
		return
	}
	# Its package alone, for the engine's own Python.
	mkdir "$tmp/python"
	ln -s "$(dirname "$master")" "$tmp/python/mooncake"
	free_port
	metrics=$port
	free_port
	mooncake=127.0.0.1:$port
	"$master" --rpc_port "$port" --metrics_port "$metrics" \
		>"$tmp/mooncake-master.out" 2>&1 &
	also_kill+=("$!")
	wait_until 20 listens "$port"
	for n in a b; do
		"$peers/bin/python" "$engines/../bench/peers/peers.py" store "$mooncake" 1 \
			>"$tmp/mooncake-$n.out" 2>&1 &
		also_kill+=("$!")
		wait_until 60 grep -asq '^ready' "$tmp/mooncake-$n.out"
	done
}

# ---- rounds ----

round() { # NUMBER
	local words=() v n urls
	for v in "${up[@]}"; do
		urls=()
		for n in "${nodes[@]}"; do urls+=("${url[$v-$n]}"); done
		words+=("$v=$(IFS=,; echo "${urls[*]}")")
	done
	# shellcheck disable=SC2086 # several words
	${UNDER:-} "$python" -m multiturn run "$engine" "${words[@]}" \
		--out "$lines" --round "$1" --requests $requests "${workload[@]}"
}

warm_up() {
	local lines=/dev/null UNDER=
	local workload=(--conversations 2 --turns 1 --first 200 --answer 4 --seed 0)
	round 999 >/dev/null
}

again=
[ "$shape" = tiny ] || keep_from_host
[ -z "$again" ] || echo "with $again (put back afterwards)"
start_master
for n in a b; do
	# As on hosts of their own.
	start_node $n --store-size "${STORE:-2G}" --no-fd-passing
done
mkdir "$plain/files" "${mount[a]}/files"
sync "${mount[a]}"
multiturn model "$model" --shape "$shape"
if [[ " $variants " == *" mooncake "* ]]; then
	mooncake_absent=
	mooncake_starts
	[ -z "$mooncake_absent" ] || {
		echo "mooncake cannot run: $mooncake_absent"
		variants=${variants/mooncake/}
	}
fi

# Rounds have numbers of their own in each group: what a variant is compared with
# was measured beside it.
read -ra rest <<<"${variants/none/}"
r=0
while [ ${#rest[@]} -gt 0 ]; do
	group=("${rest[@]:0:${TOGETHER:-4}-1}")
	rest=("${rest[@]:${#group[@]}}")
	variants_start none "${group[@]}"
	warm_up
	for ((i = 0; i < ${ROUNDS:-2}; i++)); do
		round $r
		r=$((r + 1))
	done
	for v in "${up[@]}"; do variant_stops "$v"; done
done
echo "load $(cut -d' ' -f1-3 /proc/loadavg)"
multiturn report "$lines" --shape "$table"
pass
