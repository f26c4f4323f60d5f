#!/bin/bash
# Certificates limited to directories: node a is not limited, node b (with a store and
# a mount) only to /a, users of the library to /b. Each sees and changes only its own;
# b's store keeps copies of all the same, also across restarts of it and of the master.
# modes: both
# variants: release asan/passthrough
# limit: 240
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_tls.sh"
need_fuse
need jq curl cmp openssl python3 setpriv
LOG_ALLOW='the certificate .*not|namespaces'

limited() { # ROLE DIR OUT
	kvpool certs issue --dir "$KVTEST_TLS/ca" --role "$1" --days 2 --out "$3" \
		--host 127.0.0.1,localhost --namespace "$2" >/dev/null
}
use_tls
limited node a "$tmp/n-a"
limited client b "$tmp/c-b"

start_master
start_node a
start_node b --tls-dir "$tmp/n-a"
A=${mount[a]} B=${mount[b]}

library() { # COMMAND...: of /b
	KVPOOL_TLS_DIR=$tmp/c-b "$KVTEST_OBJ/tests/library_user" "${listen[master]}" "$@"
}
refused() { # ERROR COMMAND...
	local want=$1
	shift
	! "$@" >"$tmp/output" 2>&1 || fail "$* is not refused"
	grep -q "$want" "$tmp/output" || fail "$*: $(cat "$tmp/output"), not: $want"
}
is() { [ "$1" = "$2" ] || fail "\"$1\", not \"$2\"${3:+: $3}"; }
copies() { # PATH: its holders, as node a sees them
	getfattr --absolute-names --only-values -n user.kvpool.nodes "$A/$1" | tr , '\n' | sort | tr '\n' ' '
}
two_copies() { is_two=$(copies "$1"); [ "$is_two" = "a.$$ b.$$ " ]; }

echo "== put by the node without a limit"
head -c 300000 /dev/urandom >"$tmp/src"
mkdir "$A/a" "$A/b" "$A/ab"
setfattr -n user.kvpool.replicas -v 2 "$A/b"
for d in a b ab; do cp "$tmp/src" "$A/$d/f"; done
sync "$A"/{a,b,ab}
cp "$tmp/src" "$A/top"
sync "$A"

echo "== the limited node sees its own only"
is "$(ls -A "$B")" a
is "$(ls -A "$B/a")" f
is "$(stat -c %h "$B")" 3 "directories in the root"
cmp "$tmp/src" "$B/a/f" || fail "b reads other bytes"
refused 'No such file' cat "$B/b/f"
refused 'No such file' cat "$B/top"
wait_until 10 two_copies b/f
is "$(ls -A "$B")" a "with a copy of b/f in its store"
refused 'No such file' stat "$B/b"
http "${admin[b]}/api/objects" >"$tmp/output"
is "$(jq -r '.objects[].path' "$tmp/output" | tr '\n' ' ')" 'a/f ' 'kvpool ls of b'

echo "== and changes its own only"
cp "$tmp/src" "$B/a/g"
mkdir "$B/a/d"
mv "$B/a/g" "$B/a/d/g"
setfattr -n user.note -v x "$B/a/d"
setfattr -n user.kvpool.replicas -v 2 "$B/a"
sync "$B/a" "$B/a/d"
cmp "$tmp/src" "$A/a/d/g" || fail "a reads other bytes"
refused 'Permission denied' mkdir "$B/b"
refused 'Permission denied' mkdir "$B/c"
refused 'Permission denied' cp "$tmp/src" "$B/x"
refused 'Permission denied' mv "$B/a/f" "$B/f"
refused 'Permission denied' chmod 0700 "$B"
refused 'Permission denied' setfattr -n user.note -v x "$B"
rm -r "$B/a/d" "$B/a/f"
refused 'Permission denied' rmdir "$B/a"
cmp "$tmp/src" "$A/b/f" || fail "b/f has changed"

# Without a node or a library, which would not ask for what is not theirs: what the master
# itself sends to a peer with this certificate, and which changes it accepts.
echo "== the master itself sends and changes no more than that"
by_master() { # DIR WHAT [PATH...]: $tmp/output
	local dir=$1 what=$2
	shift 2
	python3 "$(dirname "$0")/hostile.py" --tls "$dir" "$what" "${listen[master]}" "$@" \
		>"$tmp/output" 2>&1 || fail "$what: $(cat "$tmp/output")"
}
sends() { # DIR PATH...: these, and no others
	local dir=$1
	shift
	by_master "$dir" seen
	is "$(sed 's/^seen //' "$tmp/output" | grep -vx / | sort | tr '\n' ' ')" "$* "
}
allows() { # DIR PATH: all changes
	by_master "$1" tries "$2"
	is "$(cut -d' ' -f3 "$tmp/output" | tr '\n' ' ')" '0 0 0 0 0 ' "$2"
}
denies() { # DIR PATH: any change
	by_master "$1" tries "$2"
	is "$(cut -d' ' -f3 "$tmp/output" | tr '\n' ' ')" '13 13 13 13 13 ' \
		"$(tr '\n' ';' <"$tmp/output")"
}
sends "$KVTEST_TLS/node" a ab ab/f b b/f top
sends "$tmp/n-a" a
sends "$tmp/c-b" b b/f
allows "$KVTEST_TLS/node" b/x
allows "$tmp/n-a" a/x
for p in b/x ab/x x b/f top ab; do denies "$tmp/n-a" $p; done
cmp "$tmp/src" "$A/b/f" || fail "b/f has changed"

echo "== a library limited to /b"
library b put k "$tmp/src" >"$tmp/output" 2>&1 || fail "$(cat "$tmp/output")"
library b get k "$tmp/got" >"$tmp/output" 2>&1 || fail "$(cat "$tmp/output")"
cmp "$tmp/src" "$tmp/got" || fail "the library reads other bytes"
library b get f "$tmp/got" >"$tmp/output" 2>&1 || fail "$(cat "$tmp/output")"
cp "$tmp/src" "$A/a/h"
sync "$A/a"
for ns in a ab b2; do
	refused "\"$ns\" is not in the namespaces of this connection's certificate: b" \
		library "$ns" exists h
done
refused 'not in the pool' library '' get top "$tmp/got"
refused 'not in the namespaces.* certificate: b' library '' put top "$tmp/src"
is "$(ls -A "$A" | tr '\n' ' ')" 'a ab b top '

echo "== a Python program limited to /b, by tls_dir"
# (Never a sanitized library, which an interpreter without it does not load.)
env -u KVPOOL_TLS_DIR KVPOOL_LIBRARY="$KVTEST_BUILD/libkvpool.so.0" PYTHONDONTWRITEBYTECODE=1 \
	PYTHONPATH="$(dirname "$0")/../../tools/python" \
	/usr/bin/python3 - "${listen[master]}" "$tmp/c-b" "$tmp/py" >"$tmp/output" 2>&1 <<-'END' ||
	import sys
	import kvpool
	with kvpool.Pool(sys.argv[1], tls_dir=sys.argv[2], buffer_dir=sys.argv[3],
	                 buffer_size="64M", tls_renew=60) as pool:
	    assert pool.namespace("b").exists("f")
	    try:
	        pool.namespace("a").exists("f")
	        sys.exit("a is not refused")
	    except kvpool.NotAllowed as e:
	        print(e)
	END
	fail "$(cat "$tmp/output")"
grep -q '"a" is not in the namespaces of this connection.s certificate: b' "$tmp/output" ||
	fail "$(cat "$tmp/output")"

echo "== restarted, it still hides what it keeps for others, and still keeps it"
stop b
start_node b --tls-dir "$tmp/n-a"
wait_until 10 two_copies b/f
is "$(ls -A "$B")" a
echo "== the same when the master has restarted"
stop master
start_master
wait_until 20 two_copies b/f
is "$(ls -A "$B")" a
is "$(metric "${admin[master]}" kvpool_master_inventory_dropped_total)" 0

echo "== what it keeps is read when the other is gone, and removed"
stop a
library b get f "$tmp/got" >"$tmp/output" 2>&1 || fail "$(cat "$tmp/output")"
cmp "$tmp/src" "$tmp/got" || fail "the copy of b differs"
start_node a
library b remove f >"$tmp/output" 2>&1 || fail "$(cat "$tmp/output")"
library b remove k >"$tmp/output" 2>&1 || fail "$(cat "$tmp/output")"
holds_nothing() { [ "$(metric "${admin[b]}" kvpool_node_objects)" = 0 ]; }
rm "$A/a/h"
wait_until 10 holds_nothing

echo "== a mount whose certificate is for one user makes nothing of others"
one=1000 other=1001
as() { # UID COMMAND...
	local id=$1
	shift
	setpriv --reuid "$id" --regid "$id" --clear-groups "$@"
}
of_user() { # ROLE OUT
	kvpool certs issue --dir "$KVTEST_TLS/ca" --role "$1" --days 2 --out "$2" \
		--host 127.0.0.1,localhost --uid $one >/dev/null
}
of_user node "$tmp/n-u"
of_user client "$tmp/c-u"
chmod 711 "$tmp"
mkdir -m 0777 "$A/users"
sync "$A"
start_node c --tls-dir "$tmp/n-u"
C=${mount[c]}
wait_until 10 stat "$C/users" >/dev/null 2>&1
as $one mkdir "$C/users/d" || fail "its user makes no directory"
as $one cp "$tmp/src" "$C/users/f" || fail "its user makes no file"
sync "$C/users"
is "$(stat -c %u "$A/users/f" "$A/users/d" | tr '\n' ' ')" "$one $one "
for uid in 0 $other; do
	refused 'Permission denied' as $uid mkdir "$C/users/e"
	refused 'Permission denied' as $uid cp "$tmp/src" "$C/users/g"
done
refused 'Permission denied' chown $other "$C/users/f"
cp "$tmp/src" "$A/users/h"
sync "$A/users"
wait_until 10 stat "$C/users/h" >/dev/null 2>&1
refused 'Permission denied' mv "$C/users/h" "$C/users/i"
refused 'Permission denied' chmod 600 "$C/users/h"
is "$(ls "$A/users" | tr '\n' ' ')" 'd f h '

echo "== a library whose certificate is for one user, or is that of a node"
library=$tmp/library # where any user finds it
mkdir -m 755 "$library"
cp "$KVTEST_OBJ/tests/library_user" "$library"
chmod 755 "$tmp/c-u"
by_user() { # UID DIR COMMAND...
	local uid=$1 dir=$2
	shift 2
	KVPOOL_TLS_DIR=$dir as "$uid" "$library/library_user" "${listen[master]}" "$@"
}
refused "is not for user 0, but for $one" by_user 0 "$tmp/c-u" u put k "$tmp/src"
refused 'is the certificate of a node; this needs that of a client' \
	by_user 0 "$tmp/n-u" u put k "$tmp/src"
pass
