#!/bin/bash
# LMCache's local_disk backend with O_DIRECT.
# modes: both
# limit: 400
. "$(dirname "$0")/lib_engines.sh"
engine_storage lmcache_disk_direct
