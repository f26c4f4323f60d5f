#!/bin/bash
# sim_nodes.sh PROGRAM SEEDS JOBS: sim_nodes_test with so many seeds, on so many
# processors. It fails if one of them does.
set -u

program=$1 seeds=$2 jobs=$3
each=$(((seeds + jobs - 1) / jobs))
pids=()
for ((i = 0; i < jobs; i++)); do
	"$program" SEEDS=$each FROM=$((1 + i * each)) ALL=1 &
	pids+=($!)
done
failed=0
for pid in "${pids[@]}"; do
	wait "$pid" || failed=1
done
exit $failed
