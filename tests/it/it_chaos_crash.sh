#!/bin/bash
# it_chaos.sh with keepers: daemons that mount are killed, beside other faults, and
# their mounts go on. The checker has these bound to places of its own.
# modes: both
# limit: 170
export SECONDS_OF_CHAOS=${SECONDS_OF_CHAOS:-30} SEED=${SEED:-11}
export CHAOS_FAULTS=${CHAOS_FAULTS:-crash crash crash crash link slow}
CHAOS_BOXES=yes . "$(dirname "$0")/it_chaos.sh"
