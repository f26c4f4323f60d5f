#!/bin/bash
# SGLang's hierarchical cache with the pool's own backend: dynamic, interface_v1.
# modes: both
# limit: 400
. "$(dirname "$0")/lib_engines.sh"
engine_storage kvpool_sglang
