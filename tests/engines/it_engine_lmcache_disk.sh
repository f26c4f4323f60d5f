#!/bin/bash
# LMCache's local_disk backend, buffered: in place, an index in memory.
# modes: both
# limit: 400
. "$(dirname "$0")/lib_engines.sh"
engine_storage lmcache_disk
