#!/bin/bash
# Overlay tls of tools/deploy from its very YAML, on two nodes in namespaces:
# run_tls.py.
# limit: 200
. "$(dirname "$0")/lib_deploy.sh"
need_fuse
need chattr
in_namespaces run_tls.py
pass
