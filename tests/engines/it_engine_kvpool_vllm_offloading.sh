#!/bin/bash
# vLLM with OffloadingConnector: a CPU tier, and the pool's own tier below it.
# modes: both
# limit: 400
. "$(dirname "$0")/lib_engines.sh"
connector=kvpool
need_engine python
engine_pool 80M
vllm_prepare 0:28
vllm_shares
vllm_races

echo "== more prompts than the pool holds, and nodes that are killed meanwhile"
vllm_loops a 4:28
vllm_goes_through_it
pass
