#!/bin/bash
# README's "Three nodes", typed as it stands there: its commands are taken from the
# README, and run on three machines (namespaces of network, mounts, processes and
# host names, with empty /run, /mnt, /dev/shm, /var/lib and /var/log). For the first
# and third node 10.0.0.2 and n2 become theirs, and 200G of memory become 64M. At most
# ten commands later a file put on one node is read on the others, all links are TLS,
# and no command has --insecure.
# limit: 120
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need unshare nsenter cmp
unset KVPOOL_TLS_DIR

# The indented lines up to mount(8)'s way, one command a line.
awk '/^## / { here = $0 == "## Three nodes" }
	here && /^    mount / { exit }
	here && sub(/^     */, "") { more = sub(/ *\\$/, ""); printf "%s%s", $0, more ? " " : "\n" }' \
	"$(dirname "$0")/../../README.md" >"$tmp/walk"
grep '^kvpool certs' "$tmp/walk" >"$tmp/certs" || fail "no certs in the walk"
master=$(grep '^kvpool-master ' "$tmp/walk")
node=$(grep '^kvpoold ' "$tmp/walk")
[ "$(wc -l <"$tmp/walk")" = $(($(wc -l <"$tmp/certs") + 2)) ] ||
	fail "commands that this test does not know: $(cat "$tmp/walk")"
[[ $node == *" 10.0.0.2:7072 --tls-dir n2 --store-size 200G "* ]] || fail "$node"
! grep -e --insecure "$tmp/walk" || fail "the walk is not secure"

declare -a machine
boot() { # N: machine N, 10.0.0.N
	ns_add "h$1" "10.0.0.$1"
	mkdir "$tmp/$1"
	nsenter --net="/run/netns/${ns_tag}h$1" unshare --mount --uts --pid --fork --mount-proc --kill-child \
		bash -c 'for d in /run /mnt /dev/shm /var/lib /var/log; do
				mount -t tmpfs tmpfs $d || exit
			done
			hostname "$2"
			mkdir -p /mnt/kvpool && touch "$1/up" && exec sleep infinity' \
		boot "$tmp/$1" "host$1" >"$tmp/boot.$1" 2>&1 &
	also_kill+=($!)
	wait_until 10 test -e "$tmp/$1/up"
	machine[$1]=$(pgrep -P $!)
}
on() { # N COMMAND: in its shell, in its own directory
	nsenter -t "${machine[$1]}" -a --wd="$tmp/$1" bash -c "$2" </dev/null
}
typed=0
type_on() { # N COMMAND
	echo "   $1: $2"
	typed=$((typed + 1))
	on "$1" "$2" >"$tmp/output" 2>&1 || fail "$(cat "$tmp/output")"
}
for n in 1 2 3; do boot $n; done

while read -r command; do type_on 1 "$command"; done <"$tmp/certs"
for n in 2 3; do cp -rp "$tmp/1/n$n" "$tmp/$n"; done
type_on 1 "$master"
for n in 1 2 3; do
	here=${node//10.0.0.2/10.0.0.$n}
	here=${here//n2/n$n}
	type_on $n "${here//200G/64M}"
done
[ $typed -le 10 ] || fail "$typed commands"

echo "== put on one, read on the others"
head -c 3000000 /dev/urandom >"$tmp/src"
on 2 "mkdir /mnt/kvpool/d && cp $tmp/src /mnt/kvpool/d/f && sync /mnt/kvpool/d"
for n in 1 3; do on $n "cmp $tmp/src /mnt/kvpool/d/f" || fail "$n reads other bytes"; done
for n in 1 2 3; do
	on $n 'kvpool status' >"$tmp/output"
	grep '^links .*TLS, cluster prod' "$tmp/output" || fail "$(cat "$tmp/output")"
done
on 1 'kvpool nodes --admin 127.0.0.1:7071 --tls-dir m' >"$tmp/output" 2>&1 || :
sed 's/^/   /' "$tmp/output"

echo "== and taken down"
for n in 3 2 1; do
	on $n 'kvpool down --mount /mnt/kvpool' >"$tmp/output" 2>&1 || fail "$n: $(cat "$tmp/output")"
	sed 's/^/   /' "$tmp/output"
		! on $n 'mountpoint -q /mnt/kvpool' || fail "the mount of $n is left"
done
pass
