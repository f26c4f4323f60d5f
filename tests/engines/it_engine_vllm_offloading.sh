#!/bin/bash
# vLLM with OffloadingConnector: a CPU tier, and the file system tier below it.
# modes: both
# limit: 400
. "$(dirname "$0")/lib_engines.sh"
connector=offloading
need_engine python
engine_pool 80M
vllm_prepare 0:28
vllm_shares
vllm_races

stores_failed() { grep -c 'Store.*failed\|Short write\|File exists' "$1" || :; }
for n in a b; do
	[ "$(stores_failed "${out_of[$n]}")" = 0 ] || {
		cat "${out_of[$n]}" >&2
		fail "stores at $n failed"
	}
done

echo "== more prompts than the pool holds, and nodes that are killed meanwhile"
vllm_loops a 4:28
vllm_goes_through_it
pass
