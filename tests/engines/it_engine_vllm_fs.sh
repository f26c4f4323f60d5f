#!/bin/bash
# vLLM's file system tier, driven as its scheduler does.
# modes: both
# limit: 400
. "$(dirname "$0")/lib_engines.sh"
engine_storage vllm_fs
