#!/bin/bash
# `pip install` of the sources' Python package, without a network: the library is in
# it, and the pool can be used with nothing else installed.
# limit: 660
. "$(dirname "$0")/../lib/lib.sh"
packages=$KVTEST_BUILD/packages
[ -e "$packages/sources.tar.gz" ] || skip "no sources in $packages: make check-packages"
PYTHON=/usr/bin/python3 # not some other one: Debian's
need $PYTHON gcc pkg-config unshare dpkg-deb
ls "$packages"/new/kvpool-node_*.deb >/dev/null 2>&1 || skip "no packages in $packages/new"
for m in pip setuptools venv wheel; do
	$PYTHON -c "import $m" 2>/dev/null || skip "needs Python's $m"
done

echo "== built from the sources"
mkdir "$tmp/sources"
tar -xf "$packages/sources.tar.gz" -C "$tmp/sources" --strip-components 1
# (Debian's setuptools are used: there is no network to fetch others.)
$PYTHON -m venv --system-site-packages "$tmp/venv"
unshare --net "$tmp/venv/bin/pip" install -q --no-index --no-build-isolation \
	"$tmp/sources/tools/python" >"$tmp/pip" 2>&1 || fail "pip: $(tail -n 20 "$tmp/pip")"
rm -rf "$tmp/sources"

echo "== the library that is used is the package's own"
# The pool's programs are those of the packages: nothing else needs to be built here.
for p in "$packages"/new/{kvpool-master,kvpool-node,libkvpool0}_*.deb; do
	dpkg-deb -x "$p" "$tmp/debian"
done
BIN=$tmp/debian/usr/bin PATH=$tmp/debian/usr/bin:$PATH
start_master
start_node a
cat >"$tmp/use.py" <<'END'
import sys
from pathlib import Path
import kvpool

own = Path(sys.argv[1]) / "venv"
assert Path(kvpool.__file__).is_relative_to(own), kvpool.__file__
used = {line.split()[-1] for line in open("/proc/self/maps") if "libkvpool" in line}
print(used)
assert used and all(Path(u).is_relative_to(own) for u in used), used
with kvpool.Pool(sys.argv[2]) as pool:
    memory = pool.register(bytearray(b"bytes"))
    pool.namespace("ns").put_from("k", memory)
END
cd / # not where the sources are
env -u KVPOOL_LIBRARY -u PYTHONPATH "$tmp/venv/bin/python" "$tmp/use.py" "$tmp" "${listen[master]}"
same() { cmp -s <(printf bytes) "${mount[a]}/ns/k"; }
wait_until 10 same
pass
