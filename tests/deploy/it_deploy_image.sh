#!/bin/bash
# The container image: the same packages make the same image; its programs run as the
# user that it names, and serve; its list of packages is complete; and the library in
# it loads without any library of the system but glibc's.
# limit: 1200
. "$(dirname "$0")/../lib/lib.sh"
need mmdebstrap umoci skopeo patchelf dpkg-scanpackages dpkg-deb jq setpriv
# The latest ones, of `make deb` or of `make check-packages`.
node=$(ls -t "$KVTEST_BUILD"/{deb,packages/new}/kvpool-node_*.deb 2>/dev/null | head -n 1 || :)
[ -n "$node" ] || skip "no packages in $KVTEST_BUILD/deb or packages/new: make deb"
packages=$(dirname "$node")
here=$(cd "$(dirname "$0")" && pwd)

build() { # DIR: an image in there
	mkdir "$1"
	ln -s "$packages" "$1/deb"
	BUILD=$1 "$here/../../tools/deploy/image/build" >"$1/out" 2>&1
}
build "$tmp/1" || {
	tail -n 3 "$tmp/1/out"
	grep -qE 'Could not (connect|resolve)|Failed to fetch|Unable to connect' "$tmp/1/out" &&
		skip "no packages from Debian's mirror"
	fail "the image was not made"
}
build "$tmp/2" || fail "the second one was not made: $(tail -n 3 "$tmp/2/out")"
image=$(tail -n 1 "$tmp/1/out")

echo "== the same packages make the same image"
digest() { skopeo inspect "oci:$1" | jq -r .Digest; }
one=$(digest "$image") two=$(digest "$(tail -n 1 "$tmp/2/out")")
[[ $one == sha256:* ]] || fail "no digest: $one"
[ "$one" = "$two" ] || fail "$one is not $two"
echo "   $one, $(du -sh "$tmp/1/image/oci" | cut -f 1)"
user=$(skopeo inspect --config "oci:$image" | jq -r .config.User)
[ "$user" = 10001:10001 ] || fail "its user is $user"

echo "== its list of packages"
root=$tmp/bundle/rootfs
umoci unpack --image "$image" "$tmp/bundle" >/dev/null 2>&1
listed=$(jq -r '.packages[] | .name + " " + .versionInfo' "$tmp/1/image/sbom.spdx.json")
installed=$(dpkg-query --admindir="$root/var/lib/dpkg" -W -f='${Package} ${Version}\n')
[ -n "$installed" ] && [ "$(sort <<<"$listed")" = "$(sort <<<"$installed")" ] ||
	fail "$(diff <(sort <<<"$listed") <(sort <<<"$installed"))"
cmp "$tmp/1/image/sbom.spdx.json" "$root/usr/share/kvpool/sbom.spdx.json"
for p in kvpool-master kvpool-node libkvpool0; do
	grep -q "^$p " <<<"$listed" || fail "no $p in it"
done

echo "== its programs serve as that user"
mount --bind /proc "$root/proc"
inside=(chroot "$root" setpriv --reuid 10001 --regid 10001 --clear-groups
	--no-new-privs --bounding-set=-all)
mkdir -m 1777 "$root/tmp/t"
free_port; at=127.0.0.1:$port
free_port; listen=127.0.0.1:$port
"${inside[@]}" kvpool-master --foreground --listen "$listen" --admin "$at" --run-dir /tmp/t/run \
	--state-file /tmp/t/state >"$tmp/master.log" 2>&1 &
master=$!
also_kill+=("$master")
wait_until 10 "${inside[@]}" kvpool healthz --ready --admin "$at"
kill -TERM $master
wait $master || fail "the master ended with $?"
also_kill=()

echo "== the library for engines' images"
engine=/usr/share/kvpool/engine
missing=$(chroot "$root" ldd $engine/lib/libkvpool.so.0 | awk -v own="$engine/" '
	/=>/ && index($3, own) != 1 && $1 !~ /^lib(c|m|dl|pthread|rt|resolv)\.so/ { print }')
[ -z "$missing" ] || fail "not from there: $missing"
# By an interpreter that is not the image's.
KVPOOL_LIBRARY=$root$engine/lib/libkvpool.so.0 PYTHONPATH=$root$engine/python \
	/usr/bin/python3 -c 'import kvpool; print("  ", kvpool.version())'
umount "$root/proc"
pass
