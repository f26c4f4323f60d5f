#!/bin/bash
# Overlay etcd of tools/deploy from its very YAML, on two nodes in namespaces:
# run_etcd.py.
# limit: 200
. "$(dirname "$0")/lib_deploy.sh"
need_fuse
need chattr etcd
in_namespaces run_etcd.py
pass
