#compdef @NAME@
# Completion of @NAME@ for zsh; generated from its --help.
@FN@_table() {
	cat <<'END'
@TABLE@
END
}

@FN@() {
	local context=@NAME@ line want="" i
	local -a table fields words_here
	table=("${(@f)$(@FN@_table)}")
	for ((i = 2; i < CURRENT; i++)); do
		[[ ${words[i]} != -* ]] &&
			(( ${table[(I)$context	${words[i]}	*]} )) || break
		context+=" ${words[i]}"
	done
	for line in $table; do
		fields=("${(@s:	:)line}")
		[[ $fields[1] == $context ]] || continue
		words_here+=("$fields[2]:$fields[4]")
		[[ $fields[2] != ${words[CURRENT - 1]} ]] || want=$fields[3]
	done
	case $want in
	"") _describe -V word words_here ;;
	DIR | CA) _files -/ ;;
	FILE) _files ;;
	[a-z]*'|'*) compadd -- ${(s:|:)want} ;;
	*) _message $want ;;
	esac
}
@FN@ "$@"
