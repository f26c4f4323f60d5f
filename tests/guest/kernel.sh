# Kernels for the guest, unpacked from Debian's packages (nothing is installed);
# sourced by run. A kernel is a directory in the cache:
#
#   vmlinux     decompressed: the guest would need seconds for that
#   modules/    those of GUEST_MODULES and what they need, decompressed
#   order       their file names, each after those that it needs
#   version     such as 6.1.0-56-amd64
#   wanted      the GUEST_MODULES that it was made for
#
# Only linux-image-amd64 will do: the cloud kernel has no rdma_rxe.

# What is built into a kernel instead is left out. rxe asks for "crc32" by name;
# crc32-pclmul is slower than crc32_generic where there is no hardware.
GUEST_MODULES="virtio_pci virtio_console 9pnet_virtio 9p overlay fuse
	crc32_generic rdma_rxe rdma_ucm ib_uverbs veth bridge sch_netem sch_tbf
	tls gcm aesni_intel"

# apt's own user cannot write where we want to have it.
UNSANDBOXED="-o APT::Sandbox::User=root"

# FUSE passthrough came with this one.
PASSTHROUGH_SINCE=6.9

kernel_cache() { # the directory of all kernels
	if [ -n "${KVTEST_GUEST_CACHE:-}" ]; then
		echo "$KVTEST_GUEST_CACHE"
	elif [ "$(id -u)" = 0 ]; then
		echo /var/cache/kvpool-guest
	else
		echo "${XDG_CACHE_HOME:-$HOME/.cache}/kvpool-guest"
	fi
}

# apt with this release's backports for its only source, and files of its own.
# The mirror is the one that this machine has its Debian from.
backports_apt() { # DIR COMMAND ARGUMENT...
	local dir=$1 command=$2 codename uri keys=
	shift 2
	if [ ! -e "$dir/sources.list" ]; then
		codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
		uri=$(apt-get indextargets --format '$(REPO_URI)' \
			'Created-By: Packages' 'Origin: Debian' \
			"Codename: $codename" 'Component: main' | head -n1)
		[ -n "$uri" ] || skip "no Debian among apt's sources, or" \
			"they were never fetched: apt-get update"
		for keys in /usr/share/keyrings/debian-archive-keyring.gpg ''; do
			[ ! -e "$keys" ] || break
		done
		mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
		echo "deb ${keys:+[signed-by=$keys] }$uri $codename-backports main" \
			>"$dir/sources.list"
	fi
	"$command" $UNSANDBOXED -o Dir::Etc::SourceList="$dir/sources.list" \
		-o Dir::Etc::SourceParts=- -o Dir::State::Lists="$dir/lists" \
		-o Dir::Cache="$dir/cache" "$@"
}

# The package that linux-image-amd64 depends on.
package_of() { # COMMAND... that runs apt-cache
	"$@" depends linux-image-amd64 2>/dev/null |
		awk '/Depends: linux-image-[0-9]/ { print $2; exit }'
}

download_stable() { # DIR: leaves the package there
	local package
	package=$(package_of apt-cache)
	if [ -z "$package" ] && [ "$(id -u)" = 0 ]; then
		apt-get update -qq
		package=$(package_of apt-cache)
	fi
	[ -n "$package" ] ||
		skip "apt knows no linux-image-amd64: apt-get update"
	(cd "$1" && apt-get $UNSANDBOXED -qq download "$package")
}

download_backports() { # DIR
	local package
	backports_apt "$1/apt" apt-get -qq update || return
	package=$(package_of backports_apt "$1/apt" apt-cache)
	[ -n "$package" ] || skip "backports have no linux-image-amd64"
	(cd "$1" && backports_apt "$1/apt" apt-get -qq download "$package")
}

# A bzImage says where in it the compressed kernel is (boot protocol 2.08).
# Prints what is not compressed in a way known here as it is: it boots, too.
unpack_vmlinux() { # BZIMAGE VMLINUX
	local image=$1 sectors offset length magic
	field() { od -An -t"$1" -j"$2" -N"${1#u}" "$image" | tr -d ' '; }
	sectors=$(field u1 497) offset=$(field u4 584) length=$(field u4 588)
	payload() {
		tail -c "+$(((sectors + 1) * 512 + offset + 1))" "$image" |
			head -c "$length"
	}
	magic=$(payload | head -c4 | od -An -tx1 | tr -d ' ')
	# After the compressed data there are four bytes more: the size.
	case $magic in
	fd377a58) payload | xz -dc --single-stream >"$2" 2>/dev/null ;;
	28b52ffd) payload | zstd -dcq >"$2" 2>/dev/null ;;
	esac
	[ "$(head -c4 "$2" 2>/dev/null | tail -c3)" = ELF ] || cp "$image" "$2"
}

# Copy the module and what it needs, these first.
add_module() { # NAME TREE KERNEL-DIR
	local name=${1//-/_} file need
	[[ " ${added[*]} " != *" $name "* ]] || return 0
	added+=("$name")
	file=$(find "$2/kernel" -name "${name//_/[-_]}.ko*" | head -n1)
	if [ -z "$file" ]; then
		grep -q "/${name//_/[-_]}\.ko$" "$2/modules.builtin" && return
		echo "the kernel has no module $name" >&2
		return 1
	fi
	case $file in
	*.xz) xz -dc "$file" ;;
	*.zst) zstd -dcq "$file" ;;
	*) cat "$file" ;;
	esac >"$3/modules/$name.ko"
	for need in $(tr '\0' '\n' <"$3/modules/$name.ko" |
		sed -n 's/^depends=//p' | tr , ' '); do
		add_module "$need" "$2" "$3" || return
	done
	echo "$name.ko" >>"$3/order"
}

make_kernel() { # stable|backports DIR
	local tree image version m added=()
	"download_$1" "$2" || skip "cannot download Debian's kernel ($1)"
	dpkg -x "$2"/*.deb "$2/tree" || return
	image=$(echo "$2"/tree/boot/vmlinuz-*)
	version=${image##*/vmlinuz-}
	tree=$(dirname "$(find "$2/tree" -path "*/modules/$version/kernel")")
	unpack_vmlinux "$image" "$2/vmlinux"
	mkdir "$2/modules"
	for m in $GUEST_MODULES; do
		add_module "$m" "$tree" "$2" || return
	done
	rm -r "$2"/*.deb "$2/tree" "$2/apt" 2>/dev/null
	echo "$version" >"$2/version"
	echo $GUEST_MODULES >"$2/wanted"
}

is_current() { # KERNEL-DIR
	[ -s "$1/version" ] && [ "$(cat "$1/wanted")" = "$(echo $GUEST_MODULES)" ]
}

# Sets $kernel to a directory as described above, made once.
get_kernel() { # stable|backports
	local cache new lock
	cache=$(kernel_cache)
	kernel=$cache/$1
	mkdir -p "$cache" && [ -O "$cache" ] ||
		skip "$cache cannot be used: KVTEST_GUEST_CACHE names another"
	is_current "$kernel" && return
	[ "${KVTEST_GUEST_FETCH:-yes}" = yes ] ||
		skip "Debian's kernel ($1) was not to be had"
	exec {lock}>"$cache/lock"
	flock "$lock"
	if ! is_current "$kernel"; then
		new=$(mktemp -d "$cache/new.XXXXXX")
		# Its exit is not ours: the directory has to go first.
		(make_kernel "$1" "$new") || {
			local status=$?
			rm -rf "$new"
			exit $status
		}
		rm -rf "$kernel"
		mv "$new" "$kernel"
	fi
	exec {lock}>&-
}

# Sets $kernel: the stable kernel if it has FUSE passthrough, else backports'. What
# is there is taken: to ask apt takes seconds.
get_passthrough_kernel() {
	local version cache
	cache=$(kernel_cache)
	for kernel in "$cache/stable" "$cache/backports"; do
		! is_current "$kernel" || ! dpkg --compare-versions \
			"$(cat "$kernel/version")" ge $PASSTHROUGH_SINCE || return 0
	done 2>/dev/null
	version=$(package_of apt-cache)
	version=${version#linux-image-}
	if dpkg --compare-versions "${version:-0}" ge $PASSTHROUGH_SINCE; then
		get_kernel stable
	else
		get_kernel backports
	fi
}
