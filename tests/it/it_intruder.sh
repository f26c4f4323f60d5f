#!/bin/bash
# Other users of the machine: a process of one tries what it can against a pool of
# root's, and is refused; what root does beside it goes on.
#
# Each attack is a function attack_NAME, run against the pool that a default start
# makes (loopback, no --insecure); those named open_NAME against one that trusts
# every peer (--insecure), to test the limits behind the access check; and few_NAME
# against one whose daemons may have few descriptors. An attack shows that it would
# be noticed: something of the same kind that is allowed works beside it.
# modes: both
# variants: release asan
# limit: 180
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need curl jq setfattr setpriv socat

uid=65534
chmod 711 "$tmp"
mkdir -m 755 "$tmp/bin"
install -m 755 "$KVTEST_OBJ/tests/intruder" "$tmp/bin/"
mkdir -m 700 "$tmp/theirs"
chown $uid:$uid "$tmp/theirs"

as_user() { # COMMAND...: as somebody who has no rights here
	setpriv --reuid $uid --regid $uid --clear-groups --no-new-privs \
		--inh-caps=-all "$@"
}

intruder() { # ARGUMENT...
	as_user "$tmp/bin/intruder" "$@"
}

refuses() { # COMMAND...: fails, as it says
	local text
	if text=$("$@" 2>&1); then
		fail "was not refused: $*: $text"
	fi
	grep -qE 'refused|denied|not permitted|No such file' <<<"$text" ||
		fail "failed for another reason: $*: $text"
}

begin_pool() { # OPTION... of all daemons
	start_master "$@"
	start_node a "$@"
	start_node b "$@"
	a=${mount[a]} b=${mount[b]}
}

# What root does: written here, read there.
works() {
	nworks=$((nworks + 1))
	head -c 300000 /dev/urandom >"$tmp/src"
	cp "$tmp/src" "$a/works$nworks"
	sync "$a"
	cmp "$tmp/src" "$b/works$nworks"
}
nworks=0

kib_of() { # NAME: KiB of memory
	awk '/^VmRSS/ { print $2 }' "/proc/${pid[$1]}/status"
}

# ---- attacks ----

# A node that publishes a name and lends a descriptor of somebody else's file for
# it: whoever opens the name would read that.
lends() { # NAME FILE HOW
	intruder lend "${listen[master]}" "$tmp/theirs" "$1" "$2" "$3" \
		>"$tmp/lend.out" 2>&1 &
	lender=$!
	also_kill+=($lender)
	wait_until 10 grep -qE 'published|refused' "$tmp/lend.out"
}

ends_lender() {
	kill $lender 2>/dev/null || :
	wait $lender 2>/dev/null || :
}

# None of root's daemons believes it, nor lets it in.
attack_joins() {
	refuses intruder join "${listen[master]}"
	grep -qx 'in 1' < <("$tmp/bin/intruder" crowd "${listen[a]}" 1) ||
		fail "root is refused, too"
}

attack_asks_nodes() {
	refuses intruder crowd "${listen[a]}" 3
}

# It changes nothing by HTTP, over TCP or the Unix socket; root may, so these are
# the right requests.
attack_drains_by_http() {
	local sock page="/api/drain?node=b.$$"
	local post=(curl -s --noproxy '*' -o /dev/null -w '%{http_code}' -X POST)
	sock=/run/kvpool/admin-$(stat -Lc %i /proc/self/ns/net)-${admin[master]/:/-}.sock
	[ "$(as_user "${post[@]}" "http://${admin[master]}$page")" = 403 ] ||
		fail "a user drains a node"
	! as_user "${post[@]}" --unix-socket "$sock" "http://x$page" \
		>/dev/null || fail "a user was answered at $sock"
	kvpool nodes --admin "${admin[master]}" >"$tmp/nodes"
	! grep -q draining "$tmp/nodes" || fail "it is drained"
	[ "$("${post[@]}" "http://${admin[master]}$page")" = 200 ] ||
		fail "root may not drain it"
	[ "$("${post[@]}" --unix-socket "$sock" "http://x$page&cancel=1")" = 200 ] ||
		fail "root may not cancel that"
}

# Names are of directories, too, that it may not list.
attack_reads_names() {
	local n page
	local get=(curl -s --noproxy '*' -o /dev/null -w '%{http_code}')
	for n in a master; do
		page=http://${admin[$n]}/api/objects
		[ "$(as_user "${get[@]}" "$page")" = 403 ] || fail "$n shows names"
		[ "$("${get[@]}" "$page")" = 200 ] || fail "$n shows root none"
	done
	[ "$(as_user "${get[@]}" "http://${admin[a]}/api/evicted")" = 403 ] ||
		fail "a shows names of what was evicted"
}

# A process in the background that reads a line from $tmp/go, then ends.
go_begin() {
	rm -f "$tmp/go"
	mkfifo "$tmp/go"
	exec {go_fd}<>"$tmp/go"
}

go() { # PID
	echo >&"$go_fd"
	wait "$1"
	exec {go_fd}>&-
}

# Each open status file costs the daemon its text.
attack_opens_status_files() {
	go_begin
	as_user /usr/bin/python3 -c 'import sys
fds = []
try:
    while len(fds) < 900:
        fds.append(open(sys.argv[1]))
except OSError:
    pass
print(len(fds), flush=True)
sys.stdin.readline()' "$a/.kvpool/metrics" <"$tmp/go" >"$tmp/opened" &
	also_kill+=($!)
	wait_until 20 test -s "$tmp/opened"
	[ "$(cat "$tmp/opened")" -lt 300 ] || fail "opened $(cat "$tmp/opened")"
	grep -q kvpool_ "$a/.kvpool/metrics" || fail "root may not read it"
	go $!
}

# Who changes the file meanwhile waits in the kernel, or gets another one; the
# mount and the node wait for neither.
attack_never_ends_a_write() {
	local n dir=$a/stall staller other
	mkdir -m 1777 "$dir"
	head -c 4096 /dev/zero >"$tmp/page"
	for n in {1..10}; do # of one size: the next ones are passthrough
		cp "$tmp/page" "$dir/earlier$n"
	done
	sync "$dir"
	for n in 1 2; do
		go_begin
		rm -f "$tmp/stall" # the last one's
		"$tmp/bin/intruder" stall "$dir/f$n" <"$tmp/go" >"$tmp/stall" &
		staller=$!
		also_kill+=($staller)
		wait_until 10 grep -q waits "$tmp/stall"
		if [ $n = 1 ]; then # served, it is the same file: waits, too
			echo new >"$dir/f1" &
		else
			truncate -s 5 "$dir/f2" &
		fi
		other=$!
		also_kill+=($other)
		works
		[ $n$KVTEST_MODE != 1passthrough ] ||
			wait_until 10 eval '! kill -0 $other 2>/dev/null'
		go $staller
		wait $other
	done
	sync "$dir"
	[ "$KVTEST_MODE" = served ] || [ "$(cat "$b/stall/f1")" = new ] ||
		fail "f1 is not what came last"
	[ "$(stat -c %s "$b/stall/f2")" = 5 ] || fail "f2 is not what came last"
}

# A file that nobody has published yet, of the name that root gives to a
# directory on the other node: root's is there, is root's, and so are its files.
attack_squats_a_name() {
	go_begin
	mkdir -m 1777 "$a/squat"
	sync "$a"
	wait_until 5 test -d "$b/squat"
	as_user bash -c "exec 9>'$b/squat/models'; echo there; read -r" \
		<"$tmp/go" >"$tmp/squat" &
	also_kill+=($!)
	wait_until 5 test -s "$tmp/squat"
	mkdir -m 755 "$a/squat/models"
	echo ours >"$a/squat/models/weights"
	chmod 600 "$a/squat/models/weights"
	sync "$a/squat/models"
	[ "$(stat -c '%F %u %a' "$b/squat/models")" = "directory 0 755" ] ||
		fail "it is: $(stat -c '%F %u %a' "$b/squat/models")"
	[ "$(cat "$b/squat/models/weights")" = ours ] || fail "its files are not there"
	go $!
	as_user rm -rf "$b/squat/models" 2>/dev/null || :
	as_user mkdir -m 777 "$b/squat/models" 2>/dev/null || :
	as_user rm -f "$b/squat/models/weights" 2>/dev/null || :
	# The loss of the user's file is reported, once.
	! sync "$b/squat" 2>/dev/null || fail "the loss is not reported"
	sync "$b/squat"
	[ "$(cat "$a/squat/models/weights")" = ours ] || fail "root's file is gone"
	[ "$(stat -c %u "$b/squat/models")" = 0 ] || fail "it is the user's on b"
}

# What a page says whose name was made to resolve to loopback, in the browser of
# somebody here.
attack_web_page() {
	local page=http://${admin[a]}/api/status
	local get=(as_user curl -s --noproxy '*' -o /dev/null -w '%{http_code}')
	[ "$("${get[@]}" "$page")" = 200 ] || fail "the right name is refused, too"
	[ "$("${get[@]}" -H "Host: evil.example:${admin[a]#*:}" "$page")" = 403 ] ||
		fail "answered to a name that is not this machine's"
	[ "$("${get[@]}" -X POST -H 'Origin: http://evil.example' \
		"http://${admin[a]}/api/faults")" = 403 ] || fail "a foreign page's POST"
}

# The master's port, while it is down: the nodes send nothing to the process that
# has it, and find the master again.
attack_takes_the_masters_port() {
	local before thief
	before=$(metric "${admin[a]}" kvpool_impostors_left_total)
	stop master
	# Not by a function: its process would be the shell's, not socat's.
	setpriv --reuid $uid --regid $uid --clear-groups \
		socat -u "TCP-LISTEN:${listen[master]#*:},bind=127.0.0.1,reuseaddr,fork" \
		"OPEN:$tmp/theirs/received,creat,append" &
	thief=$!
	also_kill+=($thief)
	wait_until 15 metric_at_least "${admin[a]}" kvpool_impostors_left_total \
		$((before + 3))
	[ ! -s "$tmp/theirs/received" ] || fail "the nodes talk to a stranger"
	kill -KILL $thief
	wait $thief 2>/dev/null || :
	start_master
}

# A file of root's under a name that was the user's, who keeps the earlier file open;
# made on this node and on another. A new file of the user's own can be read.
attack_follows_a_name() {
	local where n=0 fd out="$tmp/follow.out" status
	mkfifo "$tmp/follow.in"
	for where in "$a" "$b" own; do
		n=$((n + 1)) status=0
		rm -f "$out"
		exec {fd}<>"$tmp/follow.in"
		intruder follow "$a/follow$n" <"$tmp/follow.in" >"$out" 2>&1 &
		also_kill+=($!)
		wait_until 10 grep -qs waits "$out"
		if [ "$where" = own ]; then
			as_user cp "$tmp/bin/intruder" "$a/follow$n"
			as_user setfattr -n user.secret -v 1 "$a/follow$n"
		else
			install -m 600 "$tmp/src" "$where/follow$n"
			setfattr -n user.secret -v 1 "$where/follow$n"
			sync "$where"
			wait_until 10 cmp -s "$tmp/src" "$a/follow$n"
		fi
		echo >&$fd
		wait $! || status=$?
		exec {fd}>&-
		[ "$where" != own ] || break
		[ $status = 1 ] && grep -q 'refused: Permission denied' "$out" ||
			fail "a user has root's file: $(cat "$out")"
		cmp "$tmp/src" "$a/follow$n"
		[ "$(stat -c %a:%u "$a/follow$n")" = 600:0 ] || fail "its mode"
	done
	[ "$status" = 0 ] && [ "$(grep -c followed "$out")" = 7 ] ||
		fail "a user has not got his own: $(cat "$out")"
	rm "$tmp/follow.in"
}

# A file that looks like the mount's own status, which names the master: libkvpool
# reads it from the mount.
attack_names_another_master() {
	local dir=$a/models$nworks
	mkdir -m 1777 "$dir"
	as_user mkdir "$dir/.kvpool"
	as_user cp "$a/.kvpool/status" "$tmp/theirs/status"
	as_user sed 's/"address": "[^"]*"/"address": "127.0.0.1:1"/' \
		"$tmp/theirs/status" | as_user tee "$dir/.kvpool/status" >/dev/null
	grep -q '127.0.0.1:1"' "$dir/.kvpool/status" || fail "not written"
	LIBRARY_BUFFER=$tmp/buffer library_user "$dir" ns put "k$nworks" \
		"$tmp/src" || fail "root's program asked the user's master"
	cmp "$tmp/src" "$b/ns/k$nworks"
}

# Tried as often as it likes: the log has a line a second of it, and the rest is
# counted. Each connection stays until the master ends it: the user of
# one that closes earlier is not known.
attack_fills_the_log() {
	local lines before
	before=$(metric "${admin[master]}" kvpool_strangers_refused_total)
	lines=$(wc -l <"$(log_of master)")
	SECONDS=0
	as_user timeout 60 bash -c "for i in {1..300}; do
		read -r -u 3 3<>/dev/tcp/127.0.0.1/${listen[master]#*:}; done" \
		2>/dev/null || :
	metric_at_least "${admin[master]}" kvpool_strangers_refused_total \
		$((before + 300)) || fail "not all of 300 were refused and counted"
	lines=$(($(wc -l <"$(log_of master)") - lines))
	[ $lines -le $((2 * SECONDS + 10)) ] || fail "$lines lines of log"
}

# Directories and attributes, which no store bounds: it has a quarter, on whichever
# mount, and the master's memory stays as it is. Root makes others all the while.
attack_makes_directories() {
	local dir before after
	before=$(kib_of master)
	mkdir -m 1777 "$a/heap" "$a/heap2"
	sync "$a"
	for dir in "$a/heap" "$b/heap2"; do
		intruder makes "$dir" 20000 >"$tmp/makes.$(basename "$dir")" 2>&1 &
		also_kill+=($!)
	done
	wait $! || :
	wait "${also_kill[-2]}" || :
	for dir in heap heap2; do
		grep -qx 'refused: Disk quota exceeded' "$tmp/makes.$dir" ||
			fail "not refused: $(cat "$tmp/makes.$dir")"
	done
	awk '/made/ { n += $2; x += $3 } END { exit n < 950 || x < 500 }' \
		"$tmp"/makes.* || fail "refused too early: $(cat "$tmp"/makes.*)"
	mkdir "$a/roots" && setfattr -n user.x -v 1 "$a/roots" ||
		fail "root is refused, too"
	wait_until 15 eval '[ "$(ls "$a/heap")" = "$(ls "$b/heap")" ] &&
		[ "$(ls "$a/heap2")" = "$(ls "$b/heap2")" ]'
	[ "$(ls "$a/heap" "$a/heap2" | grep -c 000)" -le 1000 ] ||
		fail "more than its quarter"
	[ "$(metric "${admin[master]}" kvpool_master_attribute_bytes)" -le 1100000 ] ||
		fail "more attributes than its quarter"
	metric_at_least "${admin[a]}" kvpool_node_quota_refused_total 1 ||
		fail "not counted"
	after=$(kib_of master)
	[ "$KVTEST_VARIANT" != release ] || [ $((after - before)) -le 8192 ] ||
		fail "the master has grown from $before to $after KiB"
	as_user find "$a/heap" "$b/heap2" -mindepth 1 -delete
	as_user mkdir "$a/heap/again" || fail "refused with nothing left"
}

open_reads_roots_files() {
	local status=0
	install -m 600 /dev/null /dev/shm/$$.secret
	also_remove+=(/dev/shm/$$.secret)
	echo "root's own" >/dev/shm/$$.secret
	lends stolen /dev/shm/$$.secret path
	grep -qx published "$tmp/lend.out" || fail "$(cat "$tmp/lend.out")"
	wait_until 10 eval 'grep -qx stolen < <(ls "$a")'
	as_user cat "$a/stolen" >"$tmp/stolen" 2>/dev/null || status=$?
	! grep -q root "$tmp/stolen" || fail "a user has read root's file"
	[ $status != 0 ] || fail "something could be read: $(cat "$tmp/stolen")"
	grep -qx asked "$tmp/lend.out" || fail "nobody asked for it: $(cat "$tmp/lend.out")"
	ends_lender
	rm /dev/shm/$$.secret
}

# Messages that would be a hundred times larger in memory: refused for that.
open_floods_the_master() {
	local what before
	before=$(metric "${admin[master]}" kvpool_master_bad_messages_total)
	for what in join inventory; do
		! intruder flood "${listen[master]}" $what \
			>"$tmp/flood.out" 2>&1 || fail "$what was not refused"
		grep -q 'at most .* are accepted' "$tmp/flood.out" ||
			fail "refused for another reason: $(cat "$tmp/flood.out")"
	done
	metric_at_least "${admin[master]}" kvpool_master_bad_messages_total \
		$((before + 2)) || fail "not counted"
}

# As many nodes as it likes to be: from one address, not the whole table.
open_crowds_the_master() {
	local before
	before=$(metric "${admin[master]}" kvpool_master_sessions_refused_total)
	! intruder members "${listen[master]}" 600 >"$tmp/members.out" 2>&1 ||
		fail "all of 600 joined"
	[ "$(grep -c '^joined' "$tmp/members.out")" -le 512 ] ||
		fail "more than 512 joined"
	metric_at_least "${admin[master]}" kvpool_master_sessions_refused_total \
		$((before + 1)) || fail "not counted"
}

# More files held open than the daemon may have descriptors of: root's creates,
# writes and opens beside it go on, and so do the user's own.
few_holds_files() {
	local fd out="$tmp/hold.out" n=600 i
	echo x >"$a/small" # sizes vary: none is reserved for, all are served
	sync "$a"
	mkdir -m 777 "$a/held"
	mkfifo "$tmp/hold.in"
	exec {fd}<>"$tmp/hold.in"
	for i in 1 2; do
		mkdir -m 777 "$a/held/$i"
		intruder hold "$a/held/$i" $n <"$tmp/hold.in" >"$out.$i" 2>&1 &
		also_kill+=($!)
		wait_until 30 grep -qsE 'waits|refused' "$out.$i"
		! grep refused "$out.$i" || fail "a user's file is refused"
		works
	done
	cmp "$a/works$nworks" "$b/works$nworks" || fail "root cannot read"
	metric_at_least "${admin[a]}" kvpool_node_kept_descriptors_closed_total \
		$n || fail "none was closed"
	[ "$(find "/proc/${pid[a]}/fd" -type l | wc -l)" -lt 200 ] ||
		fail "it has too many"
	printf '12' >&$fd
	for i in 1 2; do
		wait_until 30 grep -qE 'held|refused' "$out.$i"
		grep -qx held "$out.$i" || fail "a user's file: $(cat "$out.$i")"
		sync "$a/held/$i"
		# shellcheck disable=SC2183 # several words
		[ "$(cat "$b/held/$i"/*)" = "$(cd "$b/held/$i" && printf %s%s \
			$(for f in *; do echo "$f" "$f"; done))" ] ||
			fail "published as something else"
		[ "$(ls "$b/held/$i" | wc -l)" = $((n / 2)) ] || fail "not all there"
	done
	exec {fd}>&-
}

# ---- all of them ----

also_remove=()
trap 'status=$?; set +e; rm -f "${also_remove[@]}"; (exit $status); cleanup' EXIT

run_all() { # PREFIX
	local f
	for f in $(compgen -A function "$1"); do
		echo "== $f"
		"$f"
		works
	done
}

# Of the master's: few, for a short test.
export KVPOOL_MAX_DIRECTORIES=4000 KVPOOL_MAX_ATTRIBUTES=4M
begin_pool
works
run_all attack_
stop_all
begin_pool --insecure
run_all open_
stop_all
mkdir "$tmp/few"
printf '#!/bin/bash\nulimit -n 256\nexec %s "$@"\n' "$(type -P kvpoold)" \
	>"$tmp/few/kvpoold"
chmod +x "$tmp/few/kvpoold"
PATH=$tmp/few:$PATH begin_pool
works
run_all few_
pass
