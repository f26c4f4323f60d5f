#!/bin/bash
# The DaemonSet of tools/deploy from its very YAML, on two nodes in namespaces:
# run_nodes.py.
# limit: 300
. "$(dirname "$0")/lib_deploy.sh"
need_fuse
need lsattr chattr
in_namespaces run_nodes.py
pass
