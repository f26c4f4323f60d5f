#!/bin/bash
# kvpool doctor on a real node: what it says when something is broken and when it is
# not, its exit status, and its bundle, in which there are no secrets. (Each check, on
# machines that are made up: tools_doctor_test.)
# modes: both
# limit: 60
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_skew.sh"
need_fuse
need jq tar cc

mkdir "$tmp/no-machine"
names() { # OPTION...: what was found
	kvpool doctor --admin "${admin[a]}" --root "$tmp/no-machine" --json "$@" |
		jq -r '[.findings[].check] | join(" ")'
}

start_master
export KVPOOL_UNKNOWN_PASSWORD=do-not-tell-1
start_node a --name a.do-tell
unset KVPOOL_UNKNOWN_PASSWORD

echo "== a good node"
expected=
[ "$KVTEST_MODE" = passthrough ] || expected=passthrough
[ "$(names)" = "$expected" ] || fail "found: $(names)"
status=0
kvpool doctor --admin "${admin[a]}" --root "$tmp/no-machine" >"$tmp/output" || status=$?
if [ "$KVTEST_MODE" = passthrough ]; then
	[ $status = 0 ] || fail "status $status: $(cat "$tmp/output")"
	grep -q 'nothing costs speed or safety$' "$tmp/output" || fail "$(cat "$tmp/output")"
else
	[ $status = 1 ] || fail "status $status: $(cat "$tmp/output")"
	grep -q '^speed, passthrough: ' "$tmp/output" || fail "$(cat "$tmp/output")"
	grep -q '^  remedy: ' "$tmp/output" || fail "nothing mends it: $(cat "$tmp/output")"
fi

echo "== a node of another version joins: it is named; a clock that is 5 s ahead"
version=$(kvpool --version | awk '{ print $2 }')
skew b
start_node b --name b.other
found_of() { # NODE: as names
	kvpool doctor --admin "${admin[$1]}" --root "$tmp/no-machine" --json |
		jq -r '[.findings[].check] | join(" ")'
}
sees() { [ "$(found_of a)" = "versions${expected:+ $expected}" ]; }
wait_until 10 sees
kvpool doctor --admin "${admin[a]}" --root "$tmp/no-machine" --json >"$tmp/found" || :
jq -r '.findings[] | select(.check == "versions").what' "$tmp/found" >"$tmp/output"
grep -qF "this node runs $version, others of the pool do not (b.other 9${version:1})" \
	"$tmp/output" || fail "its output: $(cat "$tmp/output")"
late() { [ "$(found_of b)" = "version versions clock${expected:+ $expected}" ]; }
wait_until 10 late
kvpool doctor --admin "${admin[b]}" --root "$tmp/no-machine" >"$tmp/output" || :
cat "$tmp/output"
grep -q '^safety, clock: the clock is [45]\.[0-9] s ahead of the master' "$tmp/output" ||
	fail "its output: $(cat "$tmp/output")"
grep -q "(the master $version, a.do-tell $version)" "$tmp/output" ||
	fail "its output: $(cat "$tmp/output")"
kvpool nodes --wide --admin "${admin[a]}" >"$tmp/output"
grep -q "9${version:1}" "$tmp/output" || fail "no version: $(cat "$tmp/output")"
stop b
gone() { [ "$(found_of a)" = "$expected" ]; }
wait_until 10 gone

echo "== this machine, as it is"
kvpool doctor --admin "${admin[a]}" >"$tmp/output" || [ $? = 1 ] || fail "it failed"
cat "$tmp/output"

echo "== a bundle: what it has, for whom, and what it has not"
touch "$tmp/bundle.tar.gz"
chmod 644 "$tmp/bundle.tar.gz"
kvpool doctor --admin "${admin[a]}" --bundle "$tmp/bundle.tar.gz" \
	--master "${admin[master]}" >/dev/null 2>"$tmp/output" || :
[ ! -s "$tmp/output" ] || fail "its output: $(cat "$tmp/output")"
[ "$(stat -c %a "$tmp/bundle.tar.gz")" = 600 ] || fail "others may read it"
mkdir "$tmp/bundle"
tar -C "$tmp/bundle" -xzf "$tmp/bundle.tar.gz"
grep -q 'joined the master' "$tmp/bundle/log" || fail "no log: $(cat "$tmp/bundle/log")"
for file in doctor.json api-status api-nodes api-devices metrics proc-meminfo \
	"proc-${pid[a]}-limits"; do
	[ -s "$tmp/bundle/$file" ] || fail "no $file: $(ls "$tmp/bundle")"
done
jq -e '.events | any(.kind == "joined" and (.text | startswith("a.do-tell")))' \
	"$tmp/bundle/api-events" >/dev/null || fail "no events: $(cat "$tmp/bundle/api-events")"
grep -rq do-tell "$tmp/bundle" || fail "grep finds nothing in it"
! grep -rl 'do-not-tell\|PRIVATE KEY' "$tmp/bundle" || fail "a secret is in it"
! ls -d /tmp/kvpool-bundle.* 2>/dev/null || fail "it left files"
! kvpool doctor --admin "${admin[a]}" --bundle "$tmp/none/b" >/dev/null 2>"$tmp/output" ||
	fail "a bundle in no directory"
[ "$(cat "$tmp/output")" = "kvpool: doctor: --bundle $tmp/none/b: No such file or directory" ] ||
	fail "its output: $(cat "$tmp/output")"
(cd "$tmp" && kvpool doctor --admin "${admin[a]}" --bundle host:b.tar.gz >/dev/null 2>output) || :
tar --force-local -tzf "$tmp/host:b.tar.gz" ./doctor.json || fail "no bundle with a colon in its name"
! tar --force-local -tzf "$tmp/host:b.tar.gz" ./api-events 2>/dev/null || fail "events of no master"
grep -qx "kvpool: doctor: the bundle has no events of the pool; accepted: --master HOST:PORT, the\
 master's admin address" "$tmp/output" || fail "its output: $(cat "$tmp/output")"

echo "== kvpool bench ends with it"
kvpool bench --mount "${mount[a]}" --only access_hit --rounds 1 >/dev/null 2>"$tmp/output" ||
	fail "$(cat "$tmp/output")"
if kvpool doctor --admin "${admin[a]}" --json >"$tmp/found"; then
	! grep -q 'kvpool doctor' "$tmp/output" || fail "its output: $(cat "$tmp/output")"
else
	grep -qx "kvpool doctor finds $(jq -r '.findings | "\(length): " +
		(map(.check) | join(" "))' "$tmp/found")" "$tmp/output" ||
		fail "its output: $(cat "$tmp/output")"
fi

echo "== not a node, and nobody"
! kvpool doctor --admin "${admin[master]}" 2>"$tmp/output" || fail "a master is a node"
grep -q 'this is a master; accepted: --admin HOST:PORT of a node' "$tmp/output" ||
	fail "its output: $(cat "$tmp/output")"
free_port
! kvpool doctor --admin "127.0.0.1:$port" 2>/dev/null || fail "nobody answers well"

echo "== without its master"
stop master
cut_off() { [[ " $(names) " = *" master "* ]]; }
wait_until 10 cut_off
pass
