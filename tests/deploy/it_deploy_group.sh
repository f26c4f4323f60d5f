#!/bin/bash
# The RoleBasedGroup of tools/deploy from its very YAML, in namespaces: run_group.py.
# limit: 300
. "$(dirname "$0")/lib_deploy.sh"
in_namespaces run_group.py
pass
