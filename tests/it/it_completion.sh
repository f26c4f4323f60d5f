#!/bin/bash
# Completion has every option of --help, and completes what a person types.
# limit: 60
. "$(dirname "$0")/../lib/lib.sh"
top=$(realpath "$(dirname "$0")/../..")
bin=$(realpath "$KVTEST_BUILD")

for p in kvpool kvpoold kvpool-master; do
	for shell in bash zsh; do
		"$top/tools/completion/generate" "$bin/$p" $shell >"$tmp/$p.$shell"
	done
done

echo "== every option of every subcommand"
has() { # PROGRAM SUBCOMMAND...
	local context="$*" p=$1 shell o n=0
	shift
	for o in $("$bin/$p" "$@" --help </dev/null | grep -oE '^  --[a-z-]+'); do
		for shell in bash zsh; do
			grep -q "^$context	$o	" "$tmp/$p.$shell" ||
				fail "$shell: \"$context $o\" is not completed"
		done
		n=$((n + 1))
	done
	[ $n -gt 0 ] || fail "$context: no options"
}
has kvpoold
has kvpool-master
for c in $(kvpool --help | sed -nE 's/^  ([a-z]+)  .*/\1/p'); do
	case $c in up | version) continue ;; certs) ;; *) has kvpool "$c" ;; esac
done
for c in $(kvpool certs --help | sed -nE 's/^  ([a-z]+)  .*/\1/p'); do
	has kvpool certs "$c"
done
grep -q "^kvpool up	--store-size	" "$tmp/kvpool.bash" || fail "kvpool up: not kvpoold's options"

mkdir -p "$tmp/dir"
cases() { # runs "try WORD..." for each; the last word is what is being typed
	try kvpool dr
	try kvpool drain --no
	try kvpool certs r
	try kvpool certs issue --na
	try kvpool up --transport r
	try kvpool status --tls-dir "$1/d"
	try kvpool status --admin ""
	try kvpoold --bul
	try kvpool-master --state-f
}
wanted="kvpool dr: drain
kvpool drain --no: --no-wait
kvpool certs r: renew roll
kvpool certs issue --na: --namespace --name
kvpool up --transport r: rdma
kvpool status --tls-dir $tmp/d: $tmp/dir
kvpool status --admin :
kvpoold --bul: --bulk
kvpool-master --state-f: --state-file"

echo "== bash"
cat >"$tmp/try.bash" <<'END'
compopt() { :; }
try() {
	COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
	"_${1//-/_}"
	echo "$*:${COMPREPLY[*]:+ ${COMPREPLY[*]}}"
}
END
got=$(
	# shellcheck disable=SC1090,SC1091
	for f in "$tmp"/*.bash; do . "$f"; done
	cases "$tmp"
)
diff <(echo "$wanted") <(echo "$got") || fail "bash completes otherwise (>)"

command -v zsh >/dev/null || {
	echo "no zsh on this machine: its completion was not run"
	pass
}
echo "== zsh"
# What the shell's own functions would show, of what begins with the last word.
cat >"$tmp/try.zsh" <<'END'
offer() { for w; do [[ $w != $words[-1]* ]] || print -nr -- " $w"; done }
_describe() { offer ${words_here%%:*} }
_files() { offer $words[-1]*(/N) }
compadd() { shift; offer $* }
_message() { }
try() {
	words=("$@") CURRENT=$#
	print -nr -- "$*:"
	${functions_of[$1]}
	print
}
typeset -A functions_of=(kvpool _kvpool kvpoold _kvpoold kvpool-master _kvpool_master)
words=(x "") CURRENT=2
for f in $1/kvpool*.zsh; do source $f >/dev/null; done
END
{
	cat "$tmp/try.zsh"
	declare -f cases
	echo 'cases $1'
} >"$tmp/all.zsh"
got=$(zsh -f "$tmp/all.zsh" "$tmp")
diff <(echo "$wanted") <(echo "$got") || fail "zsh completes otherwise (>)"
pass
