#!/bin/bash
# The same as it_chaos.sh with three masters, of which etcd says which one acts:
# they, etcd and the links between them break, too.
# limit: 170
CHAOS_MASTERS=3 . "$(dirname "$0")/it_chaos.sh"
