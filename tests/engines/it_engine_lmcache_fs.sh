#!/bin/bash
# LMCache's remote backend fs://: <key>.tmp, the same of all nodes, and rename.
# modes: both
# limit: 400
. "$(dirname "$0")/lib_engines.sh"
engine_storage lmcache_fs
