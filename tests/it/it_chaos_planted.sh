#!/bin/bash
# The checker of it_chaos.sh finds one name that is lost beside many that nodes say
# they have evicted.
# limit: 170
CHAOS_PLANT=yes CHAOS_FAULTS=full . "$(dirname "$0")/it_chaos.sh"
