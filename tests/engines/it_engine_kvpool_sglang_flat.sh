#!/bin/bash
# The same without interface_v1.
# modes: both
# limit: 400
. "$(dirname "$0")/lib_engines.sh"
engine_storage kvpool_sglang_flat
