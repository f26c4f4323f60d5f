# Completion of @NAME@ for bash; generated from its --help.
@FN@_table() {
	cat <<'END'
@TABLE@
END
}

@FN@() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	local context=@NAME@ table at word arg words="" want="" i
	table=$(@FN@_table)
	for ((i = 1; i < COMP_CWORD; i++)); do
		[[ $'\n'$table == *$'\n'"$context"$'\t'"${COMP_WORDS[i]}"$'\t'* &&
			${COMP_WORDS[i]} != -* ]] || break
		context+=" ${COMP_WORDS[i]}"
	done
	# Not a tab: of several in a row, read would make one.
	while IFS=$'\x01' read -r at word arg _; do
		[[ $at == "$context" ]] || continue
		words+=" $word"
		[[ $word != "$prev" ]] || want=$arg
	done <<<"${table//$'\t'/$'\x01'}"
	COMPREPLY=()
	case $want in
	"") mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur") ;;
	DIR | CA)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		;;
	FILE)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		;;
	[a-z]*'|'*) mapfile -t COMPREPLY < <(compgen -W "${want//|/ }" -- "$cur") ;;
	esac
}
complete -F @FN@ @NAME@
