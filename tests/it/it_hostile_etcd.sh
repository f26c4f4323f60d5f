#!/bin/bash
# The floods of it_hostile.sh that wait for etcd, too. Alone, because a leader that
# does not get the processor for seconds is replaced.
# variants: release asan
# limit: 240
# alone
part=etcd
. "$(dirname "$0")/it_hostile.sh"
