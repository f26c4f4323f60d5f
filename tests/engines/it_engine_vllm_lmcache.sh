#!/bin/bash
# vLLM with LMCacheMPConnector: an LMCache server beside each vLLM, with the
# adapter fs_native.
# modes: both
# limit: 400
. "$(dirname "$0")/lib_engines.sh"
connector=lmcache_mp
need_engine python
engine_pool 96M
vllm_prepare 0:28 lmcache.v1.multiprocess.http_server
declare -A port_of=()
CHUNK=64	# tokens of an object
PER_PROMPT=$((PROMPT_HITS / CHUNK))

lmcache_starts() { # NODE: its server keeps only what it is about to store
	local http
	free_port
	port_of[$1]=$port
	free_port
	http=$port
	engine_starts "${python[@]}" "$ENGINES/python/bin/lmcache" server \
		--host 127.0.0.1 --port "${port_of[$1]}" --http-port "$http" \
		--supported-transfer-mode engine_driven \
		--chunk-size "$CHUNK" --no-l1-use-lazy --l1-size-gb 0.1 \
		--shm-name "kvt$$$1" --eviction-policy LRU \
		--l2-adapter "{\"type\": \"fs_native\",
			\"base_path\": \"${mount[$1]}/e\", \"num_workers\": 2}"
	server_of[$1]=$engine_pid
	wait_until 300 listens "${port_of[$1]}"
}
declare -A server_of=()

objects() { find "${mount[$1]}/e" -name '*.data' | wc -l; }
has_objects() { [ "$(objects "$1")" = "$2" ]; }

lmcache_stops() { # NODE: with all it had in memory
	kill "${server_of[$1]}"
	wait "${server_of[$1]}" || :
}

run_at() { # NODE OBJECTS OPTION...: with a server that knows nothing yet
	local node=$1 n=$2
	shift 2
	lmcache_starts "$node"
	vllm_at "$node" run --port "${port_of[$node]}" "$@"
	# It may write behind what it has taken.
	wait_until 20 has_objects "$node" "$n"
	lmcache_stops "$node"
}

echo "== computed at a, read at b: the same tokens"
run_at a $((4 * PER_PROMPT)) --prompts 0:4 --max-hits 0
settle a
run_at b $((4 * PER_PROMPT)) --prompts 0:4 --min-hits $((4 * PROMPT_HITS))

echo "== a and b compute the same prompts at once"
for n in a b; do
	lmcache_starts $n
	vllm $n run --prompts 4:8 --port "${port_of[$n]}" \
		--ready "$tmp/$n.ready" --go "$tmp/go"
	engine_starts "${vllm[@]}"
	pid_of[$n]=$engine_pid out_of[$n]=$engine_out
done
storage_go a b
for n in a b; do
	engine_ends "${pid_of[$n]}" "${out_of[$n]}" "race at $n"
	wait_until 20 has_objects $n $((8 * PER_PROMPT))
	lmcache_stops $n
	settle $n
done
run_at b $((8 * PER_PROMPT)) --prompts 4:8 --min-hits $((4 * PROMPT_HITS))

echo "== more prompts than the pool holds, and nodes that are killed meanwhile"
lmcache_starts a
vllm_loops a 4:28 --port "${port_of[a]}"
vllm_goes_through_it
lmcache_stops a
pass
