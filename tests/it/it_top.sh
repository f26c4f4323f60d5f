#!/bin/bash
# kvpool top of a real pool: its frames, and on a terminal its keys, a daemon that ends,
# and the terminal afterwards. (Frames of figures that are made up: tools_top_test.)
# modes: passthrough
# limit: 60
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need python3

start_master --heartbeat 500ms
for n in a b; do
	start_node $n --store-size 64M --no-fd-passing
done
head -c 8M /dev/zero >"${mount[b]}/zeros"
sync "${mount[b]}"
master=${admin[master]}
used() { # NODE: of the first frame
	kvpool top -b -n 1 --admin "$master" | awk -v n="$1.$$" '$1 == n { print $3 }'
}
is_used() { [ "$(used "$1")" = "$2" ]; }

echo "== frames for programs"
wait_until 10 is_used b 12.5
is_used a 0.0 || fail "a: $(used a)"
kvpool top -b -n 2 -d 100ms -o used --admin "$master" >"$tmp/output"
[ "$(grep -c '^kvpool top - .* 2 of 2 nodes alive$' "$tmp/output")" = 2 ] || fail "$(cat "$tmp/output")"
[ "$(grep -cx 'Repair: 0 short of copies, 0 in flight, 0 B left, 0 B/s' "$tmp/output")" = 2 ] ||
	fail "$(cat "$tmp/output")"
[ "$(grep -oE "^[ab]\.$$ " "$tmp/output" | xargs)" = "b.$$ a.$$ b.$$ a.$$" ] ||
	fail "the order: $(cat "$tmp/output")"
! grep -qP '[^\n -~]|.{81}' "$tmp/output" || fail "more than text of 80 columns"
kvpool top --batch --count 1 --admin "${admin[a]}" >"$tmp/output"
grep -qx 'This node: [0-9]* look-ups, % hits .*' "$tmp/output" || fail "$(cat "$tmp/output")"

echo "== directories of the root"
mkdir "${mount[a]}/large" "${mount[a]}/small"
head -c 3M /dev/zero >"${mount[a]}/large/one"
head -c 1M /dev/zero >"${mount[a]}/small/one"
sync "${mount[a]}/large" "${mount[a]}/small"
directories() { # OPTION...: lines of the table, without ages and look-ups
	kvpool top -b -D -n 1 --admin "$master" "$@" | sed '1,/^DIRECTORY/d' |
		awk '{ print $1, $2, $3, $4 }'
}
[ "$(directories | xargs)" = '(root) 8.0 MiB 1 large 3.0 MiB 1 small 1.0 MiB 1' ] ||
	fail "$(directories)"
[ "$(directories -o name | xargs -n 4 | cut -d' ' -f1 | xargs)" = '(root) large small' ] ||
	fail "$(directories -o name)"

echo "== wrong use"
refused() { # TEXT OPTION...
	local text=$1 status=0
	shift
	kvpool top "$@" </dev/null >/dev/null 2>"$tmp/output" || status=$?
	[ $status != 0 ] || fail "$* was accepted"
	grep -qF -- "$text" "$tmp/output" || fail "$*: $(cat "$tmp/output")"
}
refused 'no terminal; accepted: a terminal, or -b' --admin "$master"
refused 'accepted: one of name|used|kept|size|objects|sent|hits|age' -b -n 1 -o cpu
refused 'accepted: name, used, kept, size, objects or sent' -b -n 1 -o age
refused 'accepted: name, size, objects, hits or age' -b -D -n 1 -o used
refused 'there is no master in this process' -b -D -n 1 --admin "${admin[a]}"
refused '"more" given' -b more
refused --delay -b -d 1ms
refused 127.0.0.1:1 -b --admin 127.0.0.1:1

echo "== on a terminal"
cat >"$tmp/terminal.py" <<'PY'
import fcntl, os, pty, re, select, signal, struct, subprocess, sys, termios, time

admin, master_pid = sys.argv[1], int(sys.argv[2])
WAITS = ("7", "271")  # poll(2), ppoll(2)


class Terminal:
    def __init__(self, *options):
        self.end, child = pty.openpty()
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.child = child
        self.before = termios.tcgetattr(child)
        self.shown = ""
        self.process = subprocess.Popen(["kvpool", "top", "--admin", admin, *options],
                                        stdin=child, stdout=child, stderr=child)

    def until(self, pattern):
        end = time.monotonic() + 20
        while not re.search(pattern, self.shown, re.S):
            if time.monotonic() > end:
                sys.exit(f"never shown: {pattern}\nbut: {self.shown!r}")
            if select.select([self.end], [], [], 0.1)[0]:
                self.shown += os.read(self.end, 65536).decode()
        self.shown = self.shown[re.search(pattern, self.shown, re.S).end():]

    def fill(self, key):
        """Presses key until a frame does not fit into the terminal; returns how often."""
        for n in range(1, 10000):
            self.press(key)
            written_since = None
            while True:
                with open(f"/proc/{self.process.pid}/syscall") as f:
                    call = f.read().split()[0]
                if call != "1":  # write(2)
                    written_since = None
                else:
                    written_since = written_since or time.monotonic()
                    if time.monotonic() > written_since + 1:
                        return n
                waiting = fcntl.ioctl(self.child, termios.FIONREAD, b"\0\0\0\0")
                if call in WAITS and waiting == b"\0\0\0\0":
                    break

    def press(self, keys):
        os.write(self.end, keys.encode())

    def over(self, status):
        got = self.process.wait(20)
        if got != status:
            sys.exit(f"it ended with {got}, not {status}")
        if termios.tcgetattr(self.child) != self.before:
            sys.exit("the terminal is not as it was")
        self.until(re.escape("\x1b[?1049l"))


t = Terminal("-d", "1h")
t.until(re.escape("\x1b[?1049h\x1b[H") + r"kvpool top - .*\na\..*\nb\..*q ends; d: directories")
t.press("u")
t.until(r"kvpool top - .*\nb\..*\na\..*q ends")
t.press("R")
t.until(r"kvpool top - .*\na\..*\nb\..*q ends")
fcntl.ioctl(t.end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
t.process.send_signal(signal.SIGWINCH)
t.until(r"NODE {50,}STATE.*q ends")
# Another size while a frame is written: that frame ends, and the next has the size.
pressed = t.fill("R")
fcntl.ioctl(t.end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
t.process.send_signal(signal.SIGWINCH)
t.until(r"NODE {1,30}STATE.*q ends")
if pressed % 2:
    t.press("R")
    t.until(r"NODE.*q ends")
t.press("d")
t.until(r"DIRECTORY.*\nsmall.*\nlarge.*\n\(root\).*q ends; d: nodes")  # still reversed
t.press("a")
t.until(r"DIRECTORY.*q ends; d: nodes")
t.press("d")
t.until(r"NODE .*\na\..*q ends; d: directories")
t.press("q")
t.over(0)

t = Terminal("-n", "2", "-d", "100ms")
t.until("q ends.*q ends")
t.over(0)

t = Terminal("-d", "1h")
t.until("q ends")
t.process.terminate()
t.over(128 + signal.SIGTERM)

t = Terminal("-d", "100ms")
t.until("q ends")
os.kill(master_pid, signal.SIGKILL)
t.until("kvpool: [^\n]*" + re.escape(admin))
t.press("n")  # the frame is still there
t.until(r"2 of 2 nodes alive.*\na\..*q ends")
t.press("q")
t.over(0)
PY
python3 "$tmp/terminal.py" "$master" "${pid[master]}" || fail "on a terminal"
wait "${pid[master]}" 2>/dev/null || :
unset "pid[master]"
pass
