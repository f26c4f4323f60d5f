#!/bin/bash
# The sources pass tests/lint, and it finds what is planted.
# limit: 400
. "$(dirname "$0")/../lib/lib.sh"
need clang-format shellcheck cppcheck python3 pyflakes3 mypy

top=$(realpath "$(dirname "$0")/../..")
echo "== as it is"
CI=true bash "$top/tests/lint" || fail "lint"

bash "$top/tests/lint" tools/cmd.h || fail "lint of a header alone"

echo "== what it is to notice"
mkdir "$tmp/src"
tar -C "$top" --exclude=./build --exclude=./.git -c . | tar -C "$tmp/src" -x
cd "$tmp/src" || exit 1
finds() { # TEXT FILE: a line is appended to it
	cp "$2" "$tmp/kept"
	printf '%s\n' "$3" >>"$2"
	tests/lint "$2" >"$tmp/output" 2>&1 && fail "it did not notice: $3 in $2"
	grep -q "$1" "$tmp/output" || fail "it does not say '$1': $(cat "$tmp/output")"
	cp "$tmp/kept" "$2"
}
finds 'columns' pool/node/loop.c "/* $(printf 'x%.0s' {1..90}) */"
finds 'columns' tests/unit/base_log_test.c "/* $(printf 'x%.0s' {1..90}) */"
finds '[ 	]$' fs/may.c 'int x; '
finds 'if(x)' fs/may.c 'static int f(int x) { if(x) return 1; return 0; }'
finds 'char\*p' fs/may.c 'static char* p;'
finds 'SC2164' tests/it/it_users.sh 'cd /nowhere'
finds 'SC' tests/it/it_users.sh 'if then'
finds 'SyntaxError' tests/layers 'def ('
finds 'undefined name' tools/python/kvpool/transfers.py 'nothing_of_that_name'
finds 'Incompatible types' tools/python/kvpool/transfers.py 'wrong: int = "text"'
finds 'arrayIndexOutOfBounds' pool/node/loop.c \
	'int f(void); int f(void) { int a[2] = { 0 }; return a[3]; }'
pass
