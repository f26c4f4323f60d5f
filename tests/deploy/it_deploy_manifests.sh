#!/bin/bash
# The manifests of tools/deploy: the API's schemas, our own rules, and mistakes that
# must be found (check.py).
# limit: 120
. "$(dirname "$0")/../lib/lib.sh"
PYTHON=/usr/bin/python3
need $PYTHON
$PYTHON -c 'import jsonschema, yaml' 2>/dev/null || skip "no python3-jsonschema or python3-yaml"
# kubernetes-validate, where `make check-deploy` could install it.
export PYTHONPATH=$KVTEST_BUILD/deploy-python PYTHONDONTWRITEBYTECODE=1
$PYTHON "$(dirname "$0")/check.py" "$BIN"
pass
