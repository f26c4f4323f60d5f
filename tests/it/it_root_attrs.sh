#!/bin/bash
# The root of the mount is as /tmp is: everybody makes names in it, and each
# touches only their own. Its attributes are the same on every mount, whatever
# is changed of them, and outlive the master. Rules are set by owners.
# modes: both
# limit: 120
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need setfattr getfattr setpriv jq curl

user() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
other() { setpriv --reuid 65533 --regid 65533 --clear-groups "$@"; }
refused() { # WHAT ERRNO-TEXT COMMAND...
	local what=$1 text=$2
	shift 2
	! "$@" >"$tmp/out" 2>&1 || fail "$what: done"
	grep -q "$text" "$tmp/out" || fail "$what: $(cat "$tmp/out")"
}
shown() { stat -c '%a %u %g %Y' "$1"; }
shows() { [ "$(shown "$1")" = "$2" ]; } # DIR MODE-UID-GID-MTIME
has_rule() { # DIR NAME VALUE
	[ "$(getfattr --only-values -n "user.kvpool.$2" "$1" 2>/dev/null)" = "$3" ]
}

chmod 711 "$tmp"
start_master
start_node a
start_node b
A=${mount[a]} B=${mount[b]}

echo "== the root is sticky, and the daemon's user's"
for m in "$A" "$B"; do
	[ "$(stat -c '%a %u %g' "$m")" = "1777 0 0" ] || fail "$m: $(shown "$m")"
	[ "$(stat -c %Y "$m")" -gt 1000000000 ] || fail "$m: of 1970"
done

echo "== a rule of the root changes nothing else of it, on any mount"
was_a=$(shown "$A") was_b=$(shown "$B")
setfattr -n user.kvpool.replicas -v 2 "$A"
wait_until 5 has_rule "$B" replicas 2
shows "$A" "$was_a" || fail "$was_a became $(shown "$A")"
shows "$B" "$was_b" || fail "$was_b became $(shown "$B") on the other mount"
start_node c
wait_until 5 has_rule "${mount[c]}" replicas 2
[ "$(stat -c '%a %u %g' "${mount[c]}")" = "1777 0 0" ] ||
	fail "who joins later sees $(shown "${mount[c]}")"
stop c

echo "== nor does a restart of the master"
stop master
start_master
wait_until 20 has_metric "${admin[a]}" kvpool_node_master_connected 1
wait_until 20 has_metric "${admin[b]}" kvpool_node_master_connected 1
setfattr -n user.kvpool.replicas -v 1 "$A"
wait_until 5 has_rule "$B" replicas 1
shows "$A" "$was_a" || fail "$was_a became $(shown "$A")"
shows "$B" "$was_b" || fail "$was_b became $(shown "$B") on the other mount"

echo "== what is set of it is set everywhere, and stays"
chown 12:34 "$A"
wait_until 5 shows "$B" "1777 12 34 ${was_b##* }"
shows "$A" "1777 12 34 ${was_a##* }" || fail "chown: $(shown "$A")"
chmod 1775 "$A"
touch -d @1234567890 "$A"
wait_until 5 shows "$B" "1775 12 34 1234567890"
stop master
start_master
stop b
start_node b
wait_until 20 shows "$B" "1775 12 34 1234567890"
chown 0:0 "$A"
chmod 1777 "$A"
wait_until 5 shows "$B" "1777 0 0 1234567890"

echo "== nobody else's files are renamed or removed in it"
echo secret >"$A/roots"
chmod 600 "$A/roots"
mkdir "$A/dir"
sync "$A"
refused "unlink" "not permitted" user rm -f "$A/roots"
refused "rename" "not permitted" user mv "$A/roots" "$A/mine"
refused "rename over it" "not permitted" \
	user bash -c "echo x >'$A/x'; mv -f '$A/x' '$A/roots'"
refused "rename of a directory" "not permitted" user mv "$A/dir" "$A/mine"
refused "rmdir" "not permitted" user rmdir "$A/dir"
refused "through the other mount" "not permitted" user rm -f "$B/roots"
[ "$(cat "$A/roots")" = secret ] || fail "roots is not as it was"
user bash -c "echo mine >'$A/mine' && mv '$A/mine' '$A/own' && rm '$A/own'" ||
	fail "a user's own files are not the user's"

echo "== rules are the owner's, of directories and of files"
refused "class of the root" "not permitted" \
	user setfattr -n user.kvpool.class -v scratch "$A"
refused "an attribute of the root" "not permitted" \
	user setfattr -n user.note -v x "$A"
refused "removal from the root" "not permitted" \
	user setfattr -x user.kvpool.replicas "$A"
mkdir -m 0777 "$A/shared"
refused "class of a writable directory" "not permitted" \
	user setfattr -n user.kvpool.class -v scratch "$A/shared"
user setfattr -n user.note -v x "$A/shared" ||
	fail "what is no rule takes permission to write"
setfattr -n user.kvpool.replicas -v 1 "$A/shared"
refused "removal from it" "not permitted" \
	user setfattr -x user.kvpool.replicas "$A/shared"
user bash -c "echo mine >'$A/shared/k' && chmod 666 '$A/shared/k'"
refused "pin of another's file" "not permitted" \
	other setfattr -n user.kvpool.pin -v hard "$A/shared/k"
user setfattr -n user.kvpool.pin -v hard "$A/shared/k" || fail "pin of one's own"
has_rule "$A/shared/k" pin hard || fail "no pin"
setfattr -n user.kvpool.pin -v none "$A/shared/k" || fail "root may"
user mkdir -m 0755 "$A/users"
user setfattr -n user.kvpool.class -v noevict "$A/users" ||
	fail "a rule of one's own directory"
wait_until 5 has_rule "$B/users" class noevict
refused "through the other mount" "denied" \
	other setfattr -n user.kvpool.class -v shared "$B/users"
user setfattr -n user.kvpool.class -v shared "$B/users" ||
	fail "the owner, through the other mount"
wait_until 5 has_rule "$A/users" class shared

echo "== who shares a directory replaces what the others have put there"
other bash -c "echo theirs >'$A/shared/t' && mv -f '$A/shared/t' '$A/shared/k'" ||
	fail "in a directory that all may write to"
pass
