#!/bin/bash
# LMCache's multi-process server: its adapter fs.
# modes: both
# limit: 400
. "$(dirname "$0")/lib_engines.sh"
engine_storage lmcache_mp_fs
