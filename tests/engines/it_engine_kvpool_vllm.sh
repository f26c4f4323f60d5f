#!/bin/bash
# The pool's own secondary tier for vLLM, driven as by its scheduler.
# modes: both
# limit: 400
. "$(dirname "$0")/lib_engines.sh"
engine_storage kvpool_vllm
