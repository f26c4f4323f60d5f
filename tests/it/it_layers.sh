#!/bin/bash
# Layers: tests/layers finds nothing that tests/layers.list does not have,
# and finds what is planted.
# limit: 60
. "$(dirname "$0")/../lib/lib.sh"
need python3 nm

top=$(realpath "$(dirname "$0")/../..")
objects=$KVTEST_BUILD/$KVTEST_VARIANT

echo "== as it is"
python3 "$top/tests/layers" "$objects" || fail "layers"

refuses() { # TEXT FILE SUBSTITUTION
	mkdir -p "$tmp/t"
	cp "$top/tests/layers" "$top/tests/layers.list" "$tmp/t/"
	sed -i -E "$3" "$tmp/t/$2"
	cmp -s "$tmp/t/$2" "$top/tests/$2" && fail "$3 changes nothing"
	(cd "$top" && python3 "$tmp/t/layers" "$objects") >"$tmp/output" &&
		fail "it did not notice: $3"
	grep -q "$1" "$tmp/output" || fail "it does not say '$1': $(cat "$tmp/output")"
	rm -r "$tmp/t"
}
echo "== what it is to notice"
refuses 'calls upward' layers.list '0,/^up /{/^up /d}'
refuses 'is listed, but there is none' layers.list \
	'$a up pool/base/clock.c -> pool/base/log.c: planted'
refuses 'has no place' layers.list 's/ metric / /'
refuses 'is in .*layers.list, but not there' layers.list 's/ metric / metric nothing /'
refuses 'may not use' layers.list 's|^(pool/node:.*) pool/model|\1|'
refuses 'it may not' layers.list 's|^(master: .*) pool/model|\1|'
for header in node_priv.h fetch.h; do # the second includes the first
	refuses "fs/open.c includes pool/node/$header: it is pool/node's own" \
		layers 's|^    private = .*|    included["fs/open.c"].add("pool/node/'"$header"'")\n&|'
done
refuses 'only this file uses pool_clock_set, or only tests' layers.list '/^test pool_clock_set/d'
refuses 'test pool_now_ms: is listed, but the product uses it' layers.list \
	'$a test pool_now_ms: planted'
refuses 'nothing was looked at' layers 's|^    found = calls.*|    found = {}|'
pass
