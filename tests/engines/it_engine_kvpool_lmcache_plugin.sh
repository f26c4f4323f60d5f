#!/bin/bash
# LMCache's multi-process server with the pool's own adapter: plugin.
# modes: both
# limit: 400
. "$(dirname "$0")/lib_engines.sh"
engine_storage kvpool_lmcache_plugin
