#!/bin/bash
# Files that are open survive the daemon's death: with a keeper, readers go on while the
# daemon is killed again and again, and taken over, also of a file that was replaced, of
# ones that were unlinked, and of one that eviction would take. No read fails or has other
# bytes, and what was kept for them is freed when they close.
#
# OPEN_KILLS=30: more kills.
# modes: both
# limit: 180
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need jq curl pgrep python3 setfattr

kills=${OPEN_KILLS:-8}
adopted() { grep -c ' info adopted ' "$(log_of a)" || :; }
adopted_more() { [ "$(adopted)" -gt "$before" ]; }
kill_daemon() {
	before=$(adopted)
	kill -KILL "$(pgrep -P "${pid[a]}" -x kvpoold)"
	wait_until 20 adopted_more
}

start_master
start_node a --store-size 96M --keeper
a=${mount[a]}
mkdir "$a/d" "$a/fill"
for f in kept replaced unlinked evicted taken; do
	head -c 3000000 /dev/urandom >"$tmp/$f"
	cp "$tmp/$f" "$a/d/$f"
done
head -c 5000 /dev/urandom >"$tmp/small"
cp "$tmp/small" "$a/d/small"
: >"$tmp/empty"
: >"$a/d/empty"
sync "$a/d"

# Opens each FILE of DIR, says so, and reads until a line comes: of what it has open
# small pieces at places of its own choice, and, as another thread, names anew. Then it
# says what it did; its status is 1 if a read failed, or had other bytes than in SOURCE.
cat >"$tmp/reader.py" <<'END'
import collections, errno, os, random, sys, threading
where, source, names = sys.argv[1], sys.argv[2], sys.argv[3:]
stat = True
count, bad, over = collections.Counter(), collections.Counter(), threading.Event()
want = {n: open(f"{source}/{n}", "rb").read() for n in names}
def note(what, e):
    bad[f"{what}: {errno.errorcode.get(e.errno, e.errno)}"] += 1
def piece(fd, name, kind):
    at, n = random.randrange(len(want[name]) + 1), random.choice((1, 4096, 70000, 1000000))
    try:
        if os.pread(fd, n, at) != want[name][at:at + n]:
            bad[f"{kind} {name}: other bytes"] += 1
        elif stat and os.fstat(fd).st_size != len(want[name]):
            bad[f"{kind} {name}: another size"] += 1
    except OSError as e:
        note(f"{kind} {name}", e)
    count[kind] += 1
def held(mine):
    while not over.is_set():
        for name, fd in mine:
            piece(fd, name, "open")
def anew():
    while not over.is_set():
        try:
            fd = os.open(f"{where}/kept", os.O_RDONLY)
        except OSError as e:
            note("opening", e)
            continue
        for _ in range(50):
            piece(fd, "kept", "new")
        os.close(fd)
files = [(n, os.open(f"{where}/{n}", os.O_RDONLY)) for n in names]
more = [(n, os.open(f"{where}/{n}", os.O_RDONLY)) for n in names]
threads = [threading.Thread(target=held, args=(x,)) for x in (files, more)]
threads.append(threading.Thread(target=anew))
for t in threads:
    t.start()
print("ready", flush=True)
stat = sys.stdin.readline() != "no stat\n"
sys.stdin.readline()
over.set()
for t in threads:
    t.join()
for name, fd in files:
    try:
        if os.pread(fd, len(want[name]) + 1, 0) != want[name]:
            bad[f"{name}: not whole at the end"] += 1
    except OSError as e:
        note(f"{name} at the end", e)
for name, fd in files + more:
    os.close(fd)
print(f"{count['open']} reads of open files, {count['new']} of new ones;", dict(bad), flush=True)
sys.stdin.readline()
sys.exit(bool(bad))
END
coproc USER { exec python3 "$tmp/reader.py" "$a/d" "$tmp" kept replaced unlinked evicted taken \
	small empty 2>"$tmp/user.err"; }
user=$USER_PID
also_kill=("$user")
read_line "$tmp/user.err"
[ "$line" = ready ] || fail "it says \"$line\""
for ((i = 0; i < kills; i++)); do
	sleep 0.7
	case $i in
	1)
		echo "== replaced and unlinked while they are open"
		head -c 3000000 /dev/urandom >"$a/d/new.tmp"
		mv "$a/d/new.tmp" "$a/d/replaced"
		rm "$a/d/unlinked"
		sync "$a/d"
		;;
	3)
		echo "== more is written than fits, and one is unlinked that was open before a kill"
		for n in {1..40}; do head -c 4000000 /dev/zero >"$a/fill/$n"; done
		sync "$a/fill"
		metric_at_least "${admin[a]}" 'kvpool_node_copies_ended_total{cause="evicted"}' 1 ||
			fail "nothing was evicted"
		rm "$a/d/taken"
		sync "$a/d"
		;;
	esac
	kill_daemon
done
wait_ready a
[ "$KVTEST_MODE" != served ] || {
	metric_at_least "${admin[a]}" 'kvpool_kept_handles_total{result="kept"}' 14 ||
		fail "handles were not kept"
	has_metric "${admin[a]}" 'kvpool_kept_handles_total{result="lost"}' 0 ||
		fail "handles were lost"
}
cmp "$tmp/evicted" "$a/d/evicted" || fail "an open file was evicted"

echo "== a take-over, and a kill of the daemon that took over"
old=${pid[a]} options=${args_of[a]}
echo no stat >&"${USER[1]}" # (attributes are not handed over)
# shellcheck disable=SC2086
start_node a --no-wait $options --takeover
wait "$old" || fail "the keeper of the daemon that handed over ended with $?"
wait_ready a
sleep 0.7
kill_daemon
wait_ready a
sleep 0.7
echo end >&"${USER[1]}"
read_line "$tmp/user.err"
echo "   $((kills + 1)) kills: $line"

echo "== what was kept is freed"
names() { find "$a/d" -type f -size 3000000c | wc -l; }
freed() { [ "$(find "${store[a]}" -type f -size 3000000c | wc -l)" = "$(names)" ]; }
wait_until 10 freed
echo end >&"${USER[1]}"
wait "$user" || {
	cat "$tmp/user.err"
	fail "a read failed"
}
also_kill=()
pass
