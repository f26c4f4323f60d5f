#!/bin/bash
# The same, that pins what a look-up found until it is unlocked.
# modes: both
# limit: 400
. "$(dirname "$0")/lib_engines.sh"
engine_storage kvpool_lmcache_plugin_pin
