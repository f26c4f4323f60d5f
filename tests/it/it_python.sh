#!/bin/bash
# The Python module (tools/python), with two nodes: its calls, buffers of all
# kinds, requests, asyncio, threads; what the engines' adapters share; daemons
# that are killed.
# modes: both
# limit: 240
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
# Not some other one: Debian's, which is to do.
PYTHON=/usr/bin/python3
need $PYTHON jq
$PYTHON -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
	skip "$($PYTHON -V) is older than 3.11"

here=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH=$here/../tools/python PYTHONDONTWRITEBYTECODE=1
export KVPOOL_LIBRARY=$BIN/libkvpool.so.0
start_master
start_node a
start_node b --no-fd-passing
export KVTEST_AT=${listen[master]} KVTEST_MOUNT=${mount[a]} KVTEST_BUFFERS=$tmp/buffers

echo "== calls"
$PYTHON -X faulthandler -W error "$here/python/test_pool.py" -v

echo "== LMCache's connector, on what it needs of LMCache"
$PYTHON -X faulthandler -W error "$here/python/test_lmcache_remote.py" -v

echo "== what the adapters share; a master that comes late"
free_port; late=127.0.0.1:$port
free_port; late_admin=127.0.0.1:$port
KVTEST_LATE=$late KVTEST_START=$tmp/start \
	$PYTHON -X faulthandler -W error "$here/python/test_transfers.py" -v &
transfers=$!
also_kill+=("$transfers")
until [ -e "$tmp/start" ] || ! kill -0 $transfers 2>/dev/null; do sleep 0.05; done
kvpool-master --foreground --insecure --listen "$late" --admin "$late_admin" \
	--state-file "$tmp/late.state" >>"$tmp/late.log" 2>&1 &
late_pid=$!
also_kill+=("$late_pid")
wait $transfers || fail "test_transfers.py"
kill -TERM $late_pid
wait $late_pid || fail "the late master ended with $?"

echo "== daemons are killed, and come back"
$PYTHON -X faulthandler "$here/python/survive.py" "$KVTEST_AT" "$KVTEST_BUFFERS" \
	"$tmp/enough" >"$tmp/survived" 2>&1 &
survives $!
pass
