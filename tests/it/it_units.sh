#!/bin/bash
# The units of systemd: valid, as closed as documented, and the one that mounts has
# no mount namespace of its own. (What they do: make check-packages.)
# limit: 60
. "$(dirname "$0")/../lib/lib.sh"
need systemd-analyze

units=$(realpath "$(dirname "$0")/../../tools/debian")
mkdir -p "$tmp/units"
# Named as installed; the programs are those built here.
for u in "$units"/*.service; do
	name=${u##*/}
	sed "s,/usr/bin/kvp,$(realpath "$KVTEST_BUILD")/kvp," "$u" >"$tmp/units/${name#kvpool-node.}"
done
cd "$tmp/units" || exit 1
[ "$(echo *.service)" = "kvpool-master.service kvpool-store@.service kvpoold@.service" ] ||
	fail "these units: $(echo *.service)"

echo "== all are valid"
for u in kvpool-master.service kvpool-store@a.service kvpoold@a.service; do
	output=$(systemd-analyze verify --man=no "./$u" 2>&1 | grep -F "${u%%[@.]*}" || :)
	[ -z "$output" ] || fail "$output"
done

exposure() { # UNIT: ten times what systemd-analyze says
	systemd-analyze security --offline=true --no-pager "./$1" 2>/dev/null |
		sed -nE 's/.*Overall exposure level for .*: ([0-9]+)\.([0-9]) .*/\1\2/p'
}
at_most() { # UNIT TENTHS
	local n
	n=$(exposure "$1")
	[ -n "$n" ] || fail "$1: no exposure level"
	echo "$1: $n tenths"
	[ "$((10#$n))" -le "$2" ] || fail "$1: exposure $n tenths, more than $2"
}
echo "== what they may do is little"
at_most kvpool-master.service 20
at_most kvpool-store@.service 40
at_most kvpoold@.service 50

echo "== the mounting one shows its mount to the host"
# All that makes a mount namespace, systemd.exec(5).
hides='Protect(System|Home|Kernel.*|ControlGroups|Proc)|ProcSubset|Private.*'
hides+='|(ReadWrite|ReadOnly|Inaccessible|Exec|NoExec)Paths|TemporaryFileSystem'
hides+='|Bind(ReadOnly)?Paths|Root(Directory|Image)|MountFlags|MountImages'
hides+='|ExtensionImages|DynamicUser|MountAPIVFS'
grep -qE "^($hides)=" kvpool-store@.service || fail "the pattern finds nothing"
! grep -E "^($hides)=" kvpoold@.service || fail "kvpoold@: a mount namespace of its own"
pass
