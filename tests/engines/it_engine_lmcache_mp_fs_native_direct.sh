#!/bin/bash
# LMCache's multi-process server: its adapter fs_native with O_DIRECT.
# modes: both
# limit: 400
. "$(dirname "$0")/lib_engines.sh"
engine_storage lmcache_mp_fs_native_direct
