#!/bin/bash
# kvpool restart: the daemon of a mount in use is replaced by the program that is
# installed now, by a take-over or by its keeper; kvpool up and mount.kvpool start
# a keeper.
# modes: both
# limit: 240
LOG_ALLOW='error .*(the keeper.s memory is another version|no keeper)'
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need jq unshare keeper_user findmnt python3

# Programs of our own, which can be replaced as a package manager does.
mkdir "$tmp/bin" "$tmp/pkg" "$tmp/run"
cp "$(command -v kvpool)" "$(command -v kvpoold)" "$(command -v mount.kvpool)" "$tmp/bin/"
export PATH=$tmp/bin:$PATH KVPOOL_RUN_DIR=$tmp/run
version=$(kvpoold --version | cut -d' ' -f2)
version_n() { echo "$1${version:1}"; } # of the same length
install_new() { # N
	python3 - "$tmp/bin/kvpoold" "$tmp/pkg/kvpoold" "$(kvpoold --version | cut -d' ' -f2)" \
		"$(version_n "$1")" <<-'END'
		import sys
		old, new, was, now = sys.argv[1:]
		data = open(old, "rb").read()
		assert was.encode() in data
		open(new, "wb").write(data.replace(was.encode(), now.encode()))
	END
	chmod 755 "$tmp/pkg/kvpoold"
	mv "$tmp/pkg/kvpoold" "$tmp/bin/kvpoold"
}
of() { jq -r ".$2" "$1/.kvpool/status"; } # MOUNT FIELD
keeper_of() { ps -o ppid= "$(of "$1" pid)" | tr -d ' '; }
has_keeper() { [ "$(cat "/proc/$(keeper_of "$1")/comm")" = kvpool-keeper ]; }
served=()
[ "$KVTEST_MODE" = passthrough ] || served=(--no-passthrough)

# A container that uses a mount: use MOUNT; then over.
use() {
	box=$tmp/box$((boxes = ${boxes:-0} + 1))
	mkdir "$box" "$box.sub" "$1/use$boxes" "$1/use$boxes/sub"
	sync "$1/use$boxes" "$1"
	cat >"$box.start" <<-END
		mount --make-rprivate /
		mount --bind "$1" "$box"
		mount --bind "$1/use$boxes/sub" "$box.sub"
		umount -l "$1"
		cd "$box.sub"
		exec keeper_user "$box/use$boxes" "$box.sub" "$KVTEST_MODE"
	END
	coproc USER { exec unshare -m bash "$box.start" 2>"$tmp/user.err"; }
	using=$USER_PID
	also_kill+=("$using")
	read_line "$tmp/user.err"
	[ "$line" = ready ] || fail "it says \"$line\""
}
over() { # sets $lost, $stale
	echo end >&"${USER[1]}"
	read_line "$tmp/user.err"
	echo "   $line"
	wait "$using" || fail "an operation failed: $(cat "$tmp/user.err")"
	[ ! -s "$tmp/user.err" ] || fail "an operation failed: $(cat "$tmp/user.err")"
	[[ $line =~ ^([0-9]+)\ reads,\ ([0-9]+)\ files\ written\ \(([0-9]+)\ lost.*\ ([0-9]+)\ desc ]] ||
		fail "it says \"$line\""
	[ "${BASH_REMATCH[1]}" -ge 50 ] && [ "${BASH_REMATCH[2]}" -ge 10 ] ||
		fail "it has done too little to show anything"
	lost=${BASH_REMATCH[3]} stale=${BASH_REMATCH[4]}
}
# install_new N; kvpool restart: the mount is served by version N.
upgrade() { # MOUNT N [OPTION...]
	local mnt=$1 n=$2 was
	shift 2
	was=$(of "$mnt" version)
	install_new "$n"
	kvpool restart --mount "$mnt" "$@" >"$tmp/output" || fail "restart: status $?"
	cat "$tmp/output"
	[ "$(of "$mnt" version)" = "$(version_n "$n")" ] ||
		fail "it is version $(of "$mnt" version)"
	grep -q "kvpoold $(version_n "$n") (pid .*) replaces $was (pid " "$tmp/output" ||
		fail "it does not name the versions"
}
refused() { # REGEX MOUNT: status 1, saying so, and the daemon goes on
	local pid status=0
	pid=$(of "$2" pid)
	kvpool restart --mount "$2" >"$tmp/output" 2>&1 || status=$?
	[ $status = 1 ] || fail "status $status: $(cat "$tmp/output")"
	grep -qE "$1" "$tmp/output" || fail "it says: $(cat "$tmp/output")"
	[ "$(of "$2" pid)" = "$pid" ] || fail "it is another daemon"
}

up=$tmp/up.mnt
mkdir "$up"
free_port; up_master=127.0.0.1:$port
free_port; up_listen=127.0.0.1:$port
free_port; up_admin=127.0.0.1:$port
up() {
	kvpool up --mount "$up" --store-size 256M --name "up.$$" --master "$up_master" \
		--listen "$up_listen" --admin "$up_admin" --store-dir "$tmp/up.store" \
		--state-file "$tmp/up.state" --log-file "$tmp/up.log" \
		"${served[@]}" "$@" >/dev/null || fail "kvpool up: status $?"
	also_kill+=("$(of "$up" pid)")
}
down() {
	kvpool down --mount "$up" || fail "kvpool down: status $?"
}

echo "== kvpool up starts a keeper"
up
has_keeper "$up" || fail "it has none"
echo kept >"$up/file"
sync "$up"
kill -KILL "$(of "$up" pid)"
[ "$(timeout 30 cat "$up/file")" = kept ] || fail "not readable after a kill"
id=$(findmnt -no ID "$up")

echo "== a pool of kvpool up, in use, is upgraded: by its keeper"
keeper=$(keeper_of "$up")
use "$up"
for n in 3 4 5; do
	sleep 0.5
	upgrade "$up" $n
	also_kill+=("$(of "$up" pid)")
done
sleep 0.5
over
[ "$(keeper_of "$up")" = "$keeper" ] || fail "it has another keeper"
[ "$(findmnt -no ID "$up")" = "$id" ] || fail "it is another mount"
[ "$(cat "$up/file")" = kept ] || fail "not readable after it"
grep -q 'capabilities sys_admin' "$tmp/up.log" || fail "no privileges in the log"
[ "$(grep -c 'info privileges:' "$tmp/up.log")" -ge 4 ] || fail "too few starts"
[ "$(grep 'info privileges:' "$tmp/up.log" | cut -d' ' -f2- | sort -u | wc -l)" = 1 ] ||
	fail "privileges differ: $(grep 'info privileges:' "$tmp/up.log")"

echo "== what does not start is not executed"
cp "$tmp/bin/kvpoold" "$tmp/pkg/good"
printf '#!/bin/sh\necho "no such option" >&2\nexit 2\n' >"$tmp/bin/bad"
chmod 755 "$tmp/bin/bad"
mv "$tmp/bin/bad" "$tmp/bin/kvpoold"
refused 'no such option|does not start' "$up"
mv "$tmp/pkg/good" "$tmp/bin/kvpoold"

echo "== a keeper whose memory the new program cannot read goes on as it is"
python3 - "$tmp/bin/kvpoold" "$tmp/pkg/kvpoold" <<-'END'
	import sys
	data = open(sys.argv[1], "rb").read()
	assert b"KVK2" in data
	open(sys.argv[2], "wb").write(data.replace(b"KVK2", b"KVKQ"))
END
chmod 755 "$tmp/pkg/kvpoold"
cp "$tmp/bin/kvpoold" "$tmp/pkg/good"
mv "$tmp/pkg/kvpoold" "$tmp/bin/kvpoold"
kvpool restart --mount "$up" || fail "restart: status $?"
also_kill+=("$(of "$up" pid)")
grep -q "another version's" "$tmp/up.log" || fail "the log does not say so"
[ "$(cat "$up/file")" = kept ] || fail "not readable after it"
[ "$(findmnt -no ID "$up")" = "$id" ] || fail "it is another mount"
mv "$tmp/pkg/good" "$tmp/bin/kvpoold"
down
wait_until 10 test ! -e "/proc/$keeper"

echo "== without a keeper"
up --keeper=no
! has_keeper "$up" || fail "it has a keeper"
refused 'has no keeper' "$up"
down
KVPOOL_KEEPER=no up
! has_keeper "$up" || fail "it has a keeper"
down

echo "== a node of mount.kvpool, in use, is upgraded: by take-overs"
start_master
client=$tmp/client.mnt
mkdir "$client"
free_port; c_listen=127.0.0.1:$port
free_port; c_admin=127.0.0.1:$port
options=store_size=256M,name=c.$$,listen=$c_listen,admin=$c_admin,store_dir=$tmp/c.store
options+=,log_file=$tmp/c.log
[ "$KVTEST_MODE" = passthrough ] || options+=,no_passthrough
mount.kvpool "${listen[master]}" "$client" -o "$options" || fail "mount.kvpool: $?"
also_kill+=("$(of "$client" pid)")
has_keeper "$client" || fail "it has no keeper"
use "$client"
for n in 6 7 8; do
	sleep 0.5
	upgrade "$client" $n
	has_keeper "$client" || fail "it has no keeper after it"
	also_kill+=("$(of "$client" pid)")
done
sleep 0.5
over
[ "$lost" = 0 ] && [ "$stale" = 0 ] || fail "a take-over lost something"
[ "$(grep -c 'info another daemon takes over' "$tmp/c.log")" = 3 ] || fail "no take-overs"

echo "== the same, by its keeper"
use "$client"
sleep 0.3
upgrade "$client" 9 --by-keeper
also_kill+=("$(of "$client" pid)")
sleep 0.3
over
[ "$(grep -c 'info another daemon takes over' "$tmp/c.log")" = 3 ] || fail "a take-over"
kvpool down --mount "$client" || fail "kvpool down: status $?"

echo "== in the foreground, without a keeper: whoever started it must"
start_node a --store-size 64M
refused 'has no keeper' "${mount[a]}"
stop a
pass
