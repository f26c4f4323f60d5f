#!/bin/bash
# The sources pass tests/lint, and it finds what is planted.
# limit: 120
. "$(dirname "$0")/lib.sh"
need shellcheck python3 git

top=$(realpath "$(dirname "$0")/..")
echo "== as it is"
CI=true bash "$top/tests/lint" || fail "lint"

echo "== what it is to notice"
git -C "$top" ls-files -z | (cd "$top" && xargs -0 cp --parents -t "$tmp")
cd "$tmp" || exit 1
git init -q . && git add -A
finds() { # TEXT FILE: a line is appended to it
	printf '%s\n' "$3" >>"$2"
	tests/lint >"$tmp/said" 2>&1 && fail "it did not notice: $3 in $2"
	grep -q "$1" "$tmp/said" || fail "it does not say '$1': $(cat "$tmp/said")"
	git checkout -q -- "$2"
}
finds 'columns' pool/node/loop.c "/* $(printf 'x%.0s' {1..90}) */"
finds '[ 	]$' fs/may.c 'int x; '
finds 'SC' tests/it_users.sh 'if then'
finds 'SyntaxError' tests/layers 'def ('
