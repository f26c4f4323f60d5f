#!/bin/bash
# What one operation on the mount costs the daemon is within the table in
# fs/README.md: requests of the kernel, system calls, and wake-ups of its threads.
# So is the number of times that an idle daemon wakes up in a second.
# Not counted among the calls is what is done for many operations at once, however
# long they take: polling, looking at the space, messages to the master, wake-ups.
# modes: passthrough
# limit: 120
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need strace python3

top=$(realpath "$(dirname "$0")/../..")
N=1000 # files that are made ready before or after count too: few of so many

cat >"$tmp/ops.py" <<'END'
import os, sys, time

what, d, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
data = b"x" * (4 << 20 if what == "large" else 4096)
for i in range(n):
    name = f"{d}/{what}{i}" if what == "large" else f"{d}/{i}"
    if what in ("put", "large"):
        fd = os.open(name + ".tmp", os.O_CREAT | os.O_WRONLY, 0o644)
        os.write(fd, data)
        os.close(fd)
        os.rename(name + ".tmp", name)
        if what == "large":
            time.sleep(0.02)  # a worker makes the next file ready
    elif what == "get":
        fd = os.open(name, os.O_RDONLY)
        assert os.read(fd, 8192) == data
        os.close(fd)
    else:
        assert not os.path.exists(name + what)
END

requests() { # of the kernel so far
	http "${admin[a]}/metrics" | awk '
		/^kvpool_fuse_requests_total/ { sum += $2 } END { print sum + 0 }'
}

traced() { [ "$(awk '/^TracerPid/ { print $2 }' "/proc/${pid[a]}/status")" != 0 ]; }

# trace WHAT N: N of it. Sets $asked; system calls in $tmp/trace, one a line.
trace() {
	local tracer
	strace -f -qq -o "$tmp/trace" -p "${pid[a]}" 2>"$tmp/strace.err" &
	tracer=$!
	also_kill+=("$tracer")
	wait_until 10 traced
	asked=-$(requests)
	python3 "$tmp/ops.py" "$1" "${mount[a]}/d" "$2" || fail "$1: it failed"
	asked=$(($(requests) + asked))
	sync "${mount[a]}/d"
	kill -INT "$tracer"
	wait "$tracer" || :
}

# Of the trace of N: calls, and wake-ups of threads. (libuv yields while another thread
# is in the middle of waking this one.)
counted() { # N
	awk -v n="$1" '
		/<unfinished \.\.\.>$/ { # by a call of another thread
			sub(/<unfinished.*/, "")
			begun[$1] = $0
			next
		}
		/resumed>/ { $0 = begun[$1] substr($0, index($0, "resumed>") + 8) }
		!/^[0-9]+ +[a-z]/ { next }
		/FUTEX_WAKE/ || /write\([0-9]+, "\\1\\0\\0\\0\\0\\0\\0\\0", 8/ { wakes++ }
		/epoll_|getrusage|futex|sched_yield|fstatfs|sendmsg|recvfrom|= -1 EAGAIN/ { next }
		/(read|write)\([0-9]+, "\\1\\0\\0\\0\\0\\0\\0\\0"/ { next }
		{ calls++; sub(/\(.*/, "", $2); of[$2]++ }
		END {
			for (name in of) print of[name], name >by_name
			printf "%.1f %.1f\n", calls / n, wakes / n
		}' by_name="$tmp/calls" "$tmp/trace"
}

# How often the threads of a process have slept.
wakeups() { # PID
	cat "/proc/$1"/task/*/status |
		awk '/^voluntary_ctxt_switches/ { n += $2 } END { print n }'
}

# The daemon of a mount with a keeper is the keeper's child.
daemon_of() { # NAME
	if [ "$1" = master ]; then
		echo "${pid[master]}"
	else
		status_json "$1" .pid
	fi
}

IDLE_S=10
# Nothing is asked of the pool. Each of these takes part in heartbeats.
idle() { # NAME...
	local name
	declare -A process slept
	for name; do process[$name]=$(daemon_of "$name"); done
	sleep 5 # the last requests, and what follows them, are over
	for name; do slept[$name]=-$(wakeups "${process[$name]}"); done
	sleep $IDLE_S
	for name; do
		slept[$name]=$(($(wakeups "${process[$name]}") + slept[$name]))
		[ "${slept[$name]}" -ge $((IDLE_S / 2)) ] ||
			fail "$name: only ${slept[$name]} wake-ups were seen"
		within idle "$(awk -v n="${slept[$name]}" -v s=$IDLE_S \
			'BEGIN { print n / s }')" "$wakes" "wake-ups of $name"
	done
}

# The row of the table: requests, calls, wake-ups.
budget() { # WHAT
	awk -F'|' -v what="$1" '
		$2 ~ "^ " what "[: ]" { print $3, $4, $5; found = 1 }
		END { exit !found }' "$top/fs/README.md" ||
		fail "fs/README.md has no row for $1"
}

within() { # WHAT FIGURE BUDGET OF
	echo "   $1: $2 $4, budget $3"
	awk -v f="$2" -v b="$3" 'BEGIN { exit !(f < b + 0.5) }' ||
		fail "$1: $2 $4; fs/README.md says at most $3"
}

start_master
start_node a --store-size 512M # nothing is evicted
mkdir "${mount[a]}/before" "${mount[a]}/d"
python3 "$tmp/ops.py" put "${mount[a]}/before" $N # the size is learnt from these
for what in put get look-up large; do
	echo "== $what"
	n=$N
	if [ $what = large ]; then
		n=50
		python3 "$tmp/ops.py" large "${mount[a]}/before" 10
		sync "${mount[a]}/before"
	fi
	read -r requests calls wakes <<<"$(budget $what)"
	trace $what $n
	read -r called woken <<<"$(counted $n)"
	echo "   of $n:" $(sort -rn "$tmp/calls")
	[ "${called%.*}" -ge 2 ] || fail "$what: only $called calls a time were seen"
	within $what "$(awk -v a="$asked" -v n=$n 'BEGIN { print a / n }')" "$requests" requests
	within $what "$called" "$calls" "system calls"
	within $what "$woken" "$wakes" wake-ups
done

echo "== idle"
read -r _ _ wakes <<<"$(budget idle)"
start_node b --keeper
echo x >"${mount[b]}/d/x"
sync "${mount[b]}/d"
idle master a b
pass
