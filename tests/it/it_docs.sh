#!/bin/bash
# The documents: manual pages are clean and have every option of --help; links and
# functions that the READMEs name exist, and files and tests that pool/CHANGING.md
# names; admin pages are listed, README.md is short.
# limit: 60
. "$(dirname "$0")/../lib/lib.sh"
need mandoc

top=$(realpath "$(dirname "$0")/../..")
cd "$top" || exit 1
pages=(fs/kvpool.7 pool/kvpool.3 daemon/kvpoold.8 daemon/kvpool-master.8
	tools/kvpool.1 tools/mount.kvpool.8)
readmes=(README.md */README.md pool/CHANGING.md tests/bench/README.md
	tools/python/README.md tools/deploy/README.md)

echo "== manual pages are clean"
for page in "${pages[@]}"; do
	# What else is installed here does not matter.
	found=$(mandoc -T lint "$page" 2>/dev/null |
		grep -v 'referenced manual not found' || :)
	[ -z "$found" ] || fail "$found"
	[ "$(mandoc -T utf8 "$page" | wc -l)" -gt 20 ] || fail "$page is empty"
done

# The options that --help lists, one a line.
options_of() { # COMMAND...
	"$@" --help 2>/dev/null </dev/null | grep -oE '^  --[a-z-]+' | tr -d ' ' | sort -u
}
# Those without an environment variable: --help names it in brackets.
plain_options_of() { # COMMAND...
	"$@" --help </dev/null | awk '
		/^  --/ { if (o && !e) print o; o = $1; e = 0 }
		/\[KVPOOL_/ { e = 1 }
		END { if (o && !e) print o }'
}
same() { # WHAT LEFT RIGHT
	[ -n "$2" ] || fail "$1: nothing to compare"
	diff <(echo "$2") <(echo "$3") || fail "$1: what there is (<) and the page (>) differ"
}

# kvpool(1) lists the admin pages; others may name them.
echo "== every admin page is in kvpool(1), and no page names another"
served=$(grep -rhoE '"/(api(/[a-z]+)?|healthz|readyz|metrics|app\.(css|js))"' daemon/*.[ch] | tr -d '"' | sort -u)
paths() { grep -hoE '/(api(/[a-z]+)?|healthz|readyz|metrics|app\.(css|js))\b' "$@" | sort -u; }
same "admin pages" "$served" "$(paths <(sed -n '/^\.Sh HTTP API/,/^\.Sh SEE/p' tools/kvpool.1))"
other=$(comm -13 <(echo "$served") <(paths "${pages[@]}"))
[ -z "$other" ] || fail "no daemon serves what a page names: $other"

echo "== every option is in its page, and none but these"
for p in kvpoold kvpool-master; do
	same "$p" "$(options_of $p)" \
		"$(grep -oE '^\.It Fl -[a-z-]+' daemon/$p.8 | sed 's/.* Fl -/--/' | sort -u)"
	exempt=$(sed -n '/^Every option except/,/environment variable/p' daemon/$p.8 |
		grep -oE 'Fl -[a-z]+' | sed 's/Fl -/--/')
	for o in $(plain_options_of $p); do
		grep -qx -- "$o" <<<"$exempt" ||
			fail "$p $o has no environment variable, says --help, but has one, says the page"
	done
done
subcommands=$(kvpool --help | sed -nE 's/^  ([a-z]+) .*/\1/p')
same "kvpool" "$(sort <<<"$subcommands")" \
	"$(sed -nE 's/^\.It Nm Cm ([a-z]+).*/\1/p' tools/kvpool.1 | sort)"
for c in $subcommands; do
	[ "$c" != version ] && [ "$c" != up ] || continue
	body=$(awk -v c="$c" '/^\.It Nm Cm / { on = $4 == c } /^\.El/ { on = 0 } on' tools/kvpool.1)
	for o in $(options_of kvpool "$c"); do
		[ "$o" = --help ] || grep -q -- "Fl $(sed 's/^-//' <<<"$o")\b" <<<"$body" ||
			fail "kvpool $c $o is not in its page"
	done
done
# Each step of certs has options of its own.
steps=$(kvpool certs --help | sed -nE 's/^  ([a-z]+) .*/\1/p')
[ "$(wc -w <<<"$steps")" = 6 ] || fail "the steps of kvpool certs: $steps"
for c in $steps; do
	body=$(awk -v c="$c" '
		/^\.It Xo/ { wrapped = 1; next }
		/^\.It Cm / { on = $3 == c }
		wrapped { on = $2 == c; wrapped = 0 }
		/^\.El/ { on = 0 } on' tools/kvpool.1)
	for o in $(options_of kvpool certs "$c"); do
		[ "$o" = --help ] || grep -q -- "Fl $(sed 's/^-//' <<<"$o")\b" <<<"$body" ||
			fail "kvpool certs $c $o is not in its page"
	done
done

echo "== every option of the library is in its page"
same "struct kvpool_options" \
	"$(sed -n '/^struct kvpool_options {/,/^};/p' pool/kvpool.h | sed -nE \
		's/^\t(const |unsigned )?[a-z0-9_]+ \*?([a-z_]+);.*/\2/p' | sort)" \
	"$(sed -n '/^\.SH OPTIONS/,/^\.SH KEYS/p' pool/kvpool.3 |
		grep -A1 '^\.TP' | sed -n 's/^\.I //p' | sort)"

echo "== every figure of the library is in its page, and in the Python module"
figures=$(sed -n '/^struct kvpool_stats {/,/^};/p' pool/kvpool.h |
	sed -nE 's/^\tuint64_t ([a-z0-9_, ]+);.*/\1/p' | tr -d ' ' | tr , '\n')
same "struct kvpool_stats" "$(sort <<<"$figures")" \
	"$(sed -n '/^\.SH ACCOUNTING/,/^\.SH RETURN/p' pool/kvpool.3 |
		grep -A1 '^\.TP' | sed -nE 's/^\.IR? //p' | sed 's/ "*,* *"* */\n/g' |
		grep . | sort)"
same "struct kvpool_stats, in order" "$figures" \
	"$(sed -n '/^class Stats/,/^    \]/p' tools/python/kvpool/_native.py |
		sed -nE 's/.*\("([a-z0-9_]+)", c_uint64\).*/\1/p')"
equations() { # FILE
	grep -oE '\b(lookups|gets|puts|bytes_got) += .*|^[[:space:]*]*\+ [a-z_]+.*' "$1" |
		tr -d ' *\t'
}
same "equations" "$(equations pool/kvpool.h)" "$(equations pool/kvpool.3)"

echo "== links lead somewhere"
anchors_of() { # FILE: as GitHub makes them of headings
	sed -nE 's/^#+ //p' "$1" | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}
links=0
for f in "${readmes[@]}"; do
	while read -r link; do
		file=${link%%#*} anchor=
		[[ $link != *#* ]] || anchor=${link#*#}
		path=$(dirname "$f")/$file
		[ -n "$file" ] || path=$f
		[ -e "$path" ] || fail "$f: $link: no such file"
		[ -z "$anchor" ] || grep -qx -- "$anchor" < <(anchors_of "$path") ||
			fail "$f: $link: no such heading"
		links=$((links + 1))
	done < <(grep -oE '\]\([^)]*\)' "$f" | sed 's/^](//; s/)$//' | grep -v '^[a-z]*://')
done
[ $links -ge 10 ] || fail "only $links links were found: this shows nothing"

echo "== functions are where the READMEs say"
named=0
while IFS=: read -r from file function; do
	grep -qE "\b$function\(" "$file" || fail "$from: $function is not in $file"
	named=$((named + 1))
done < <(grep -oHE '`[a-z_/]+\.[ch]:[a-z_]+`' ./*/README.md pool/CHANGING.md | tr -d '`')
[ $named -ge 10 ] || fail "only $named functions were found: this shows nothing"

echo "== pool/CHANGING.md: files and tests exist, and all kinds of change are listed at its head"
named=0
while read -r name; do
	# shellcheck disable=SC2206 # these are patterns
	case $name in
	*/*'{h,c}') found=(${name%\{h,c\}}h ${name%\{h,c\}}c) ;;
	*/*) found=($name) ;;
	it_*.sh) found=(tests/it/$name) ;;
	*_fuzz) found=(tests/fuzz/$name.c) ;;
	*_test) found=(tests/unit/$name.c) ;;
	*) continue ;;
	esac
	for file in "${found[@]}"; do
		[ -e "$file" ] || fail "pool/CHANGING.md: there is no $file"
	done
	named=$((named + 1))
done < <(grep -oE '`([a-z_0-9*]+/[A-Za-z_0-9*/.]+(\{h,c\})?|it_[a-z_*]+\.sh|[a-z_0-9*]+_(test|fuzz))(:[a-z_]+)?`' \
	pool/CHANGING.md | tr -d '`' | sed 's/:.*//' | grep -vx 'tools/cmd_NAME.c' | sort -u)
[ $named -ge 100 ] || fail "only $named files were found: this shows nothing"
same "kinds of change" "$(anchors_of <(grep '^### ' pool/CHANGING.md) | sort)" \
	"$(sed '/^In each list/q' pool/CHANGING.md | grep -oE '\(#[^)]*\)' | tr -d '(#)' | sort)"

echo "== the table of OPEN in fs/README.md is that of fs/open.c"
open_rows() { # FILE
	sed -n 's/^ \* \{0,1\}//; /^  *nodeid .*OPEN to write/,/ESTALE \/ ENOENT$/p' "$1" |
		sed 's/^ *//; /^$/d'
}
[ "$(open_rows fs/open.c | wc -l)" -gt 30 ] || fail "no table in fs/open.c"
diff <(open_rows fs/open.c) <(open_rows fs/README.md) >"$tmp/rows" || fail "$(cat "$tmp/rows")"

echo "== README.md is short"
[ "$(wc -l <README.md)" -le 250 ] || fail "README.md has more than 250 lines"
for f in "${readmes[@]}"; do
	long=$(awk 'length > 100 && !/^\|/ && !/^    / { print FILENAME ":" FNR }' "$f")
	[ -z "$long" ] || fail "more than 100 columns: $long"
done
pass
