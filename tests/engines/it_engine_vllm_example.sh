#!/bin/bash
# vLLM with ExampleConnector: a file of safetensors for each layer of a prompt.
# It takes a directory for a hit and ends if a file is not in it: so files are
# neither evicted nor on one node alone, and no two compute a prompt at once.
# modes: both
# limit: 400
. "$(dirname "$0")/lib_engines.sh"
connector=example
need_engine python
need setfattr
engine_pool 192M
setfattr -n user.kvpool.class -v noevict "${mount[a]}/e"
setfattr -n user.kvpool.replicas -v 2 "${mount[a]}/e"
settle a
vllm_prepare 0:8
vllm_shares

echo "== a node is killed meanwhile"
vllm_loops a 0:8
kill9 b
vllm_goes_on "b was killed"
[ "$(jq '.hits | floor' "$tmp/status")" -ge $((8 * PROMPT_HITS)) ] ||
	fail "no hits without b"
vllm_loop_ends
engine_node b	# so that its mount is not left
pass
