#!/bin/bash
# vLLM itself in pods from the very YAML of tools/deploy (tests/deploy/run_engines.py):
# the engine roles of the RoleBasedGroup.
# limit: 480
. "$(dirname "$0")/lib_engines.sh"
need_fuse
need lsattr chattr
need_engine python
environment=${PYTHON%/bin/python}
. "$engines/../deploy/lib_deploy.sh"
PYTHONPATH=$engines/../bench "$environment/bin/python" -m multiturn model "$tmp/model" --shape tiny
in_namespaces run_engines.py "${PODS:-group}" "$environment" "$tmp/model"
pass
