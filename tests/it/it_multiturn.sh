#!/bin/bash
# tests/bench/multiturn without engines or a pool: the conversations, what is measured,
# and the tables. (With them: engines/it_engine_multiturn.sh.)
. "$(dirname "$0")/../lib/lib.sh"
PYTHON=/usr/bin/python3
need $PYTHON
$PYTHON -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
	skip "$($PYTHON -V) is older than 3.11"
here=$(cd "$(dirname "$0")/.." && pwd)
PYTHONPATH=$here/bench PYTHONDONTWRITEBYTECODE=1 \
	$PYTHON -X faulthandler -W error "$here/python/test_multiturn.py" -v
pass
