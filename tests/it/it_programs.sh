#!/bin/bash
# What every program does on the command line, and the master as a process:
# options, the background, status pages, the end.
# variants: release asan
# limit: 120
. "$(dirname "$0")/../lib/lib.sh"
need curl jq ss

programs=(kvpool-master kvpoold kvpool mount.kvpool)

# refused STATUS REGEX COMMAND...: it exits with STATUS, and its output matches.
refused() {
	local want=$1 regex=$2 status=0 output
	shift 2
	output=$("$@" 2>&1 </dev/null) || status=$?
	[ $status = "$want" ] || fail "status $status, not $want: $*: $output"
	grep -qE -- "$regex" <<<"$output" || fail "no \"$regex\" from $*: $output"
}

echo "== every program explains itself"
for p in "${programs[@]}"; do
	refused 0 "^usage: " "$p" --help
done
for c in up down status nodes ls stat healthz; do
	refused 0 "^usage: kvpool $c" kvpool $c --help
done

echo "== wrong values name the option, the value and what is accepted"
refused 2 'kvpoold: --store-size: "12Q" given; accepted: a size' \
	kvpoold --foreground --store-size 12Q
refused 2 'KVPOOL_STORE_SIZE: "x" given; accepted: a size' \
	env KVPOOL_STORE_SIZE=x kvpoold --foreground
refused 0 '^kvpoold [0-9.]+(\+[0-9a-f]+)?$' env KVPOOL_VERSION=1.2 kvpoold --version
refused 0 '^kvpool-master [0-9.]+(\+[0-9a-f]+)?$' \
	env KVPOOL_VERSION=1.2 KVPOOL_HELP=1.2 kvpool-master --version
refused 2 'kvpool-master: --listen: "a:b" given; accepted: HOST:PORT' \
	kvpool-master --listen a:b
refused 2 'unknown option "--nonsense"' kvpool-master --nonsense
refused 2 '"x" given; accepted: options only' kvpool-master x
refused 2 'accepted: a subcommand' kvpool nonsense
refused 2 'no --mount given' kvpool up
refused 2 'no --mount given' env KVPOOL_INSECURE=yes kvpool up --listen 10.0.0.1
for line in '^  kvpool certs init ' '^  kvpool certs issue .*master' '^  kvpool certs issue .*node'; do
	refused 2 "$line" kvpool up --listen 10.0.0.1
done
refused 2 '"ro" given; accepted: rw' mount.kvpool m:1 /x -o noatime,ro,insecure
refused 2 '"suid" given; accepted: rw, nosuid' mount.kvpool m:1 /x -o rw,suid
refused 2 'mount.kvpool: unknown option "-o bogus"' mount.kvpool m:1 "$tmp" -o bogus=1
refused 2 'mount.kvpool: -o store_size: "1Q" given' mount.kvpool m:1 "$tmp" -o store_size=1Q
refused 2 'kvpoold: --uid: "-1" given; accepted: a whole number, at most 4294967294' \
	kvpoold --foreground --mount "$tmp" --uid=-1
refused 2 'KVPOOL_UMASK: "0o22" given; accepted: an octal mode such as 022, at most 0777' \
	env KVPOOL_UMASK=0o22 kvpoold --foreground --mount "$tmp"
refused 2 'mount.kvpool: -o dmode: "rwx" given; accepted: an octal mode' \
	mount.kvpool m:1 "$tmp" -o dmode=rwx
refused 2 '--summary: "500ms" given; accepted: .*whole seconds' \
	kvpool-master --summary 500ms
refused 2 '--lease: "2500ms" given; accepted: .*whole seconds' \
	kvpool-master --lease 2500ms
refused 1 '--mount: "/tmp" given; accepted: where a pool is mounted' \
	kvpool bench --mount /tmp
refused 32 'mount point .*/nodir: No such file' mount.kvpool m:1 "$tmp/nodir"
[ ! -e "$tmp/nodir" ] || fail "mount(8) made a mount point"

for name in .. . .hidden a/b 'a b' "$(printf '%081d' 0)"; do
	refused 2 'kvpoold: --name: .*given; accepted: 1 to 80 of the char' \
		kvpoold --foreground --store-size 64M --name "$name"
done

echo "== RDMA devices that are not there are named; lists of names are checked"
refused 2 'kvpoold: --rdma-device: "a,,b" given; accepted: names of' \
	kvpoold --foreground --store-size 32M --rdma-device a,,b
refused 2 'kvpoold: --rdma-device: "a" given; accepted: no device with' \
	kvpoold --foreground --store-size 32M --transport tcp --rdma-device a
refused 2 'kvpoold: --transport: "ib" given; accepted: one of auto|rdma|tcp' \
	kvpoold --foreground --store-size 32M --transport ib
refused 1 '--rdma-device: there is no nosuch0; there are: ' \
	kvpoold --foreground --run-dir "$tmp/run" --store-size 32M \
	--listen 127.0.0.1:0 --admin 127.0.0.1:0 --transport rdma --rdma-device nosuch0
kvpool devices >/dev/null
kvpool devices --json | jq -e '.devices | type == "array"' >/dev/null
refused 1 "$tmp: not in the mount of a pool" kvpool devices "$tmp"

echo "== only loopback without --insecure"
refused 2 'with --insecure' kvpool-master --foreground --listen 0.0.0.0:0
refused 2 'with --insecure' kvpool-master --foreground --admin '[::]:0'
refused 2 'with --insecure' kvpoold --foreground --listen 0.0.0.0:0

echo "== an address that nobody can connect to is not advertised"
for any in 0.0.0.0:7072 0:7072 '[::]:7072'; do
	refused 2 'kvpoold: --listen: .*together with --advertise HOST:PORT' \
		kvpoold --foreground --insecure --store-size 64M --listen "$any"
	refused 2 'kvpoold: --advertise: .*by which other nodes reach this one' \
		kvpoold --foreground --insecure --store-size 64M \
		--listen 0.0.0.0:7072 --advertise "$any"
done

echo "== users who are not known are named"
refused 2 '--allow-user: "no-such-user" given; accepted: users.*not known here' \
	kvpool-master --foreground --allow-user no-such-user
refused 2 '--allow-user: "1,,2" given; accepted: users' \
	kvpoold --foreground --store-size 32M --allow-user 1,,2

echo "== the master serves its pages"
start_master --allow-user 65534
[ "$(http "${admin[master]}/healthz")" = ok ] || fail "healthz"
http "${admin[master]}/metrics" >"$tmp/metrics"
grep -q '^# TYPE kvpool_' "$tmp/metrics"
if command -v promtool >/dev/null; then
	promtool check metrics <"$tmp/metrics"
else
	echo "   (no promtool here: the format is not checked by it)"
fi
[ "$(status_json master .role)" = master ] || fail "role"
kvpool healthz --admin "${admin[master]}"
kvpool healthz --ready --admin "${admin[master]}"
refused 1 'not connected to the master, "none"' \
	kvpool healthz --joined --admin "${admin[master]}"
refused 2 '"x" given; usage: kvpool healthz' kvpool healthz x
free_port
refused 1 "no daemon answers at 127.0.0.1:$port" kvpool healthz --admin "127.0.0.1:$port"
[[ $(kvpool status --admin "${admin[master]}") == "master at"* ]] || fail "status"
kvpool nodes --admin "${admin[master]}" --json | jq -e '.nodes == []' >/dev/null
[ -z "$(kvpool ls --admin "${admin[master]}")" ] || fail "ls of an empty pool"
refused 1 'no object called nothing' kvpool stat --admin "${admin[master]}" nothing
code=$(curl -s -o /dev/null -w '%{http_code}' \
	"http://${admin[master]}/api/objects?limit=0")
[ "$code" = 400 ] || fail "limit=0: $code"

echo "== a node without a master is alive and ready, but has not joined"
free_port; nowhere=127.0.0.1:$port
free_port; a=127.0.0.1:$port
kvpoold --foreground --store-size 32M --name "alone.$$" --run-dir "$tmp/run" \
	--listen 127.0.0.1:0 --admin "$a" --master "$nowhere" >"$tmp/alone.log" 2>&1 &
alone=$!
also_kill+=("$alone")
wait_until 10 kvpool healthz --admin "$a"
kvpool healthz --ready --admin "$a"
refused 1 'not connected to the master' kvpool healthz --joined --admin "$a"
kill -TERM $alone
wait $alone || fail "the node ended with $?"
also_kill=()

echo "== another store's variables are answered with the option"
refused 2 'MOONCAKE_MASTER: "m:50051" given; accepted: the same as KVPOOL_MASTER' \
	env MOONCAKE_MASTER=m:50051 kvpoold --foreground --store-size 32M

echo "== an address in use is reported, with the remedy, and the status is 1"
free_port
refused 1 'in use' kvpool-master --foreground --state-file "$tmp/other" \
	--listen "127.0.0.1:$port" --admin "${admin[master]}"

refused 1 "cannot listen on ${listen[master]}: it is in use.*--listen" \
	kvpool-master --foreground --state-file "$tmp/other" \
	--listen "${listen[master]}" --admin 127.0.0.1:0

echo "== KVPOOL_MASTER is where nodes connect, not whom to ask for a drain"
refused 1 'KVPOOL_MASTER says where nodes connect; .*KVPOOL_ADMIN' \
	env KVPOOL_MASTER="${listen[master]}" kvpool drain nobody
refused 1 'no such node|404' env KVPOOL_MASTER="${listen[master]}" \
	KVPOOL_ADMIN="${admin[master]}" kvpool drain nobody
refused 1 'no such node|404' kvpool drain nobody --master "${admin[master]}"
for c in "drain nobody" status nodes; do
	refused 1 'is this an admin address .*7071' \
		kvpool $c --admin "${listen[master]}"
done

echo "== a store's directory with other files in it is spoken of"
mkdir "$tmp/full"
echo "not ours" >"$tmp/full/file"
refused 1 "warn store: $tmp/full holds other files.*--store-dir" \
	kvpoold --foreground --store-size 32M --store-dir "$tmp/full" \
	--run-dir "$tmp/run" --name full --listen 127.0.0.1:0 \
	--admin 127.0.0.1:0 --mount "$tmp/full/file"
[ "$(cat "$tmp/full/file")" = "not ours" ] || fail "it was changed"

echo "== a state file that cannot be used is named, and left as it is"
for what in "another version" "something else" "damaged"; do
	case $what in
	"another version") printf 'KVPOOL-STATE-9\nrecords' >"$tmp/odd" ;;
	"something else") head -c 4096 /dev/zero | tr '\0' x >"$tmp/odd" ;;
	damaged) cp "$tmp/master.state" "$tmp/odd"
		size=$(stat -c %s "$tmp/odd")
		printf '\377\377' | dd of="$tmp/odd" bs=1 conv=notrunc \
			seek=$((size - 40)) status=none
		head -c 100 /dev/urandom >>"$tmp/odd" ;;
	esac
	cp "$tmp/odd" "$tmp/odd.was"
	refused 2 "state file $tmp/odd: .*it is left as it is" \
		kvpool-master --foreground --state-file "$tmp/odd" \
		--listen 127.0.0.1:0 --admin 127.0.0.1:0
	cmp "$tmp/odd" "$tmp/odd.was" || fail "$what: it was changed"
done
refused 2 '"etcd:2379" given; accepted: http://' \
	kvpool-master --foreground --etcd etcd:2379
refused 2 '"etcd:2379" given; accepted: http://' \
	kvpoold --foreground --store-size 32M --etcd etcd:2379
refused 2 'http://127.0.0.1:1 cannot be used' kvpool-master --foreground \
	--listen 127.0.0.1:0 --admin 127.0.0.1:0 --etcd http://127.0.0.1:1

echo "== in the background: the parent comes back when it serves"
free_port; a=127.0.0.1:$port
free_port; b=127.0.0.1:$port
kvpool-master --listen "$a" --admin "$b" --state-file "$tmp/bg.state" \
	--log-file "$tmp/bg.log"
http "$b/healthz" >/dev/null
bg=$(pgrep -f -- "--state-file $tmp/bg.state")
also_kill+=("$bg")
mv "$tmp/bg.log" "$tmp/bg.old.log"
kill -HUP "$bg"
wait_until 5 test -e "$tmp/bg.log"
# A second one fails in its child: the parent says why and exits 1.
refused 1 'in use' kvpool-master --listen "$a" --admin "$b" \
	--state-file "$tmp/bg2.state" --log-file "$tmp/bg2.log"
rm "$tmp/bg2.log"
# In the foreground with a log of its own: where to look.
refused 1 "$tmp/fg.log says why" kvpool-master --foreground --listen "$a" \
	--admin "$b" --state-file "$tmp/bg2.state" --log-file "$tmp/fg.log"
grep -q 'in use' "$tmp/fg.log"
rm "$tmp/fg.log"
kill -TERM "$bg"
wait_until 10 bash -c "! kill -0 $bg 2>/dev/null"
also_kill=()
grep -q closed "$tmp/bg.log"

echo "== a directory to mount at takes no files"
if [ "$(id -u)" = 0 ]; then
	kvpool mountpoint "$tmp/bare"
	kvpool mountpoint "$tmp/bare"
	if touch "$tmp/bare/x" 2>/dev/null; then fail "root may write below the mount"; fi
	[ "$(stat -c %a "$tmp/bare")" = 0 ] || fail "its mode is not 0000"
	refused 1 'not below the mount of a pool' \
		kvpool mountpoint --inside --wait 100ms "$tmp/bare/volume"
	chattr -i "$tmp/bare"
	mkdir "$tmp/filled"
	touch "$tmp/filled/x"
	refused 1 'not empty' kvpool mountpoint "$tmp/filled"
fi

echo "== a node of a user who is not root keeps to a run directory of its own"
user=()
if [ "$(id -u)" = 0 ]; then
	user=(setpriv --reuid 65534 --regid 65534 --clear-groups)
	chmod 711 "$tmp"
	install -d -o 65534 -g 65534 "$tmp/home"
else
	mkdir "$tmp/home"
fi
if "${user[@]}" test -x "$BIN/kvpoold"; then
	free_port; listen[user]=127.0.0.1:$port
	free_port; admin[user]=127.0.0.1:$port
	user=(env XDG_RUNTIME_DIR="$tmp/home" "${user[@]}" kvpoold
		--foreground --name user --listen "${listen[user]}"
		--admin "${admin[user]}")
	start_user() { # MASTER
		launch user "${user[@]}" --store-size 32M --master "$1"
		wait_ready user
	}
	start_user "${listen[master]}"
	! grep -q 'cannot fetch from this one' "$(log_of user)" ||
		fail "a warning of an address that is reached"
	[ -S "$tmp/home/kvpool/user/peer.sock" ] || fail "no socket of the user's"
	stop user
	refused 1 'choose a directory of your own with --run-dir' \
		"${user[@]}" --store-size 32M --run-dir "$tmp/nothing/there"
	echo "== a loopback address advertised to the nodes of a master elsewhere"
	start_user 192.0.2.1:7070
	grep -q "warn nodes of other hosts cannot fetch.*${listen[user]}.*--listen" \
		"$(log_of user)" || fail "no warning: $(cat "$(log_of user)")"
	stop user
	echo "== a store that is too large is refused in one line"
	output=$("${user[@]}" --store-size 900T 2>&1) && fail "900T were taken"
	[ "$(grep -c ' error ' <<<"$output")" = 1 ] || fail "it printed: $output"
	grep -q 'use a smaller --store-size\|use a --store-size of at most' <<<"$output" ||
		fail "it printed: $output"
else
	echo "   skipped: $BIN is closed to other users"
fi

echo "== a killed master starts again with its state"
kill9 master
start_master
pass
