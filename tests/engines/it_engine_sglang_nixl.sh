#!/bin/bash
# SGLang's hierarchical cache: the storage backend nixl (POSIX), in place.
# modes: both
# limit: 400
. "$(dirname "$0")/lib_engines.sh"
engine_storage sglang_nixl
