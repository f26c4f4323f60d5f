# For benchmarks, after lib.sh: where idle CPUs and free memory are given back to a
# hypervisor at once, CPUs poll for 0.2 ms before, and memory that has been used
# once is kept when it is free. Whoever keeps it puts it back:
#
#   trap 'put_back; cleanup' EXIT
#   keep_from_host

[ -n "${KVTEST_OBJ:-}" ] || . "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# FILE VALUE; 11: no free memory is that contiguous. Found at the start: was.
knobs="/sys/module/haltpoll/parameters/guest_halt_poll_ns 200000
/sys/module/page_reporting/parameters/page_reporting_order 11"
declare -A was=()

put_back() { # leaves $? as it was, for cleanup
	local status=$? file
	set +e
	for file in "${!was[@]}"; do echo "${was[$file]}" >"$file"; done
	return $status
}

# What is kept from the hypervisor, as "NAME=VALUE ..."; none: nothing.
keep_from_host() {
	local file value kept=()
	while read -r file value; do
		[ -w "$file" ] && [ "$(cat "$file")" != "$value" ] || continue
		was[$file]=$(cat "$file")
		echo "$value" >"$file"
		kept+=("${file##*/}=$value")
	done <<<"$knobs"
	again="${kept[*]}"
}

# More of it than the nodes and the reference use. What is freed last is used
# first.
touch_memory() { # GIB
	mkdir "$tmp/touched"
	mount -t tmpfs -o huge=always,size=${1}G tmpfs "$tmp/touched"
	head -c "${1}G" /dev/zero >"$tmp/touched/f" || :
	umount "$tmp/touched"
}
