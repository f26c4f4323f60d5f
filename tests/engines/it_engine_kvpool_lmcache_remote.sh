#!/bin/bash
# LMCache in the engine's process, with the pool as its remote store.
# modes: both
# limit: 400
. "$(dirname "$0")/lib_engines.sh"
engine_storage kvpool_lmcache_remote
