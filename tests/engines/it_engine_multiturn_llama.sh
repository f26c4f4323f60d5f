#!/bin/bash
# The multi-turn benchmark with llama-server: as it_engine_multiturn.sh.
# modes: both
# limit: 200
ENGINE=llama
. "$(dirname "$0")/it_engine_multiturn.sh"
