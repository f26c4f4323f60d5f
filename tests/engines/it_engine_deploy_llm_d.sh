#!/bin/bash
# The same with llm-d's engine, on two nodes of the DaemonSet: as it_engine_deploy.sh.
# limit: 480
PODS=nodes
. "$(dirname "$0")/it_engine_deploy.sh"
