#!/bin/bash
# No copy between the network and an engine: the page frames that a device may
# touch (those of the daemon's mapping while it is registered) are those of the
# object's file, and those are what an engine maps through the mount, or has
# written through it. Where the mount is served by the daemon the engine has no
# mapping of the object; there it is the daemon's own, out of which it answers.
# modes: both
# guest: --rxe 2
# limit: 600
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/lib_rdma.sh"
need_fuse
need jq curl cmp setfattr rdma

SIZE=$((8 << 20))	# as much as comes in one piece
LOG_ALLOW='RDMA|rxe'
node() { # NAME INDEX
	start_node "$1" --host "${rdma_addr[$2]}" --insecure --no-fd-passing \
		--store-size 256M --transport rdma --allow-faults \
		--rdma-device "${rdma_device[$2]}"
}
# The next piece that NODE writes or reads waits, with its range registered, for
# long enough to look at that on a busy machine.
hold() { # NODE
	kvpool fault delay --delay 5s --nth 1 --direction rdma \
		--admin "${admin[$1]}" >/dev/null
}
release() { kvpool fault clear --admin "${admin[$1]}" >/dev/null; }
count() { metric "${admin[$1]}" "kvpool_rdma_$2"; }
has_rejoined() { # a node, so that what was on its way began again
	[ "$(cat "$(log_of a)" "$(log_of b)" | grep -c ' joined the master ')" -gt 2 ]
}
received_since() { # BEFORE: by b, all of one object
	local got=$(($(count b received_bytes_total) - $1))
	[ $got != $SIZE ] || return 0
	[ $got -gt $SIZE ] && has_rejoined || fail "$got of $SIZE bytes came by RDMA; \
$(count b fallbacks_total) fallbacks, $(count b links_broken_total) links broken"
}

# watch OUT NODE PERMS: the frames of what NODE has registered, or will soon
watch() {
	page_frames watch "${pid[$2]}" "${store[$2]}/" $SIZE "$3" \
		$((10 * KVTEST_SLOW)) >"$tmp/$1" 2>"$tmp/$1.what" &
	watcher=$!
	also_kill+=($watcher)
}
watched() { # OUT PID
	wait "$2" || fail "$1: $(cat "$tmp/$1.what")"
	also_kill=()
	echo "$1: $(wc -l <"$tmp/$1") pages of $(cat "$tmp/$1.what")"
}

# The object's file, as the daemon's mapping of it was called.
file_of() { # OUT
	sed 's/.* \//\//' "$tmp/$1.what"
}

same() { # OUT OUT TEXT
	cmp -s "$tmp/$1" "$tmp/$2" ||
		fail "$3: $(comm -12 <(sort "$tmp/$1") <(sort "$tmp/$2") | wc -l) of $(wc -l <"$tmp/$1") frames are the same"
	echo "ok: $3"
}

differ() { # OUT OUT: two objects, as a check of the check
	[ -z "$(comm -12 <(sort "$tmp/$1") <(sort "$tmp/$2"))" ] ||
		fail "$1 and $2 have frames in common"
}

# Written through a's mount. Passthrough: with the frames that the writer saw.
write() { # NAME OUT
	if [ "$KVTEST_MODE" = passthrough ]; then
		page_frames write "${mount[a]}/$1" $SIZE >"$tmp/$2"
	else
		head -c $SIZE /dev/urandom >"$tmp/bytes"
		cp "$tmp/bytes" "${mount[a]}/$1"
	fi
	sync "$(dirname "${mount[a]}/$1")"
}

# What an engine has of it through the mount; where it cannot have the pages
# themselves, what the object's file has.
read_frames() { # NODE NAME WATCHED OUT
	local path=${mount[$1]}/$2
	[ "$KVTEST_MODE" = passthrough ] || path=$(file_of "$3")
	page_frames map "$path" >"$tmp/$4"
}

start_master
node a 0
node b 1

echo "== written by the holder into what the reader maps"
write warm warm.written
cat "${mount[b]}/warm" >"$tmp/got"	# links the lanes
before=$(count b received_bytes_total)
write k1 k1.written
hold a
watch k1.landing b rw
w=$watcher
cat "${mount[b]}/k1" >"$tmp/got" &
reader=$!
watched k1.landing $w
# What the device knows of is the range in its parts, of this process.
rdma -j resource show mr dev "${rdma_device[1]}" >"$tmp/mr"
read -r thread total < <(jq -r "[.[] | select(.mrlen >= $((1 << 20)))] |
	\"\(.[0].pid) \(map(.mrlen) | add)\"" "$tmp/mr")
[ "$total" = $SIZE ] && [ -d "/proc/${pid[b]}/task/$thread" ] ||
	fail "not the range's parts: $(cat "$tmp/mr")"
release a
wait $reader || fail "k1 cannot be read"
cmp "$tmp/got" "${mount[a]}/k1"
received_since "$before"
read_frames b k1 k1.landing k1.read
same k1.landing k1.read "what the device wrote is what is read"
if [ "$KVTEST_MODE" = served ]; then
	exec 9<"${mount[b]}/k1"
	watch k1.served b r--s	# the replies to READs are written out of it
	w=$watcher
	dd bs=1M of=/dev/null status=none <&9
	watched k1.served $w
	exec 9<&-
	same k1.landing k1.served "and it is answered from there"
fi

echo "== and read from what the writer wrote"
watch k1.source a r	# registered still, for the next who asks
w=$watcher
watched k1.source $w
if [ "$KVTEST_MODE" = passthrough ]; then
	same k1.written k1.source "what the engine wrote is what is sent"
fi
read_frames a k1 k1.source k1.kept
same k1.source k1.kept "what is sent is the object"
differ k1.source k1.landing

echo "== a copy that is pulled: from what the writer wrote into what is read"
mkdir "${mount[a]}/two"
setfattr -n user.kvpool.replicas -v 2 "${mount[a]}/two"
held() { # PATH: by both
	[ "$(getfattr --only-values -n user.kvpool.holders "${mount[a]}/$1" \
		2>/dev/null)" = 2 ]
}
write two/warm warm.written
wait_until 20 held two/warm	# links the lane for that
write two/warm2 warm.written
wait_until 20 held two/warm2
before=$(count b received_bytes_total)
hold b
rm "${mount[a]}"/{warm,k1,two/warm,two/warm2}	# what is registered of them goes
wait_until 5 has_metric "${admin[a]}" kvpool_rdma_sources 0
watch k2.landing b rw
wb=$watcher
watch k2.source a r
wa=$watcher
write two/k2 k2.written
watched k2.source $wa
also_kill=($wb)
watched k2.landing $wb
wait_until 20 held two/k2
received_since "$before"
release b
if [ "$KVTEST_MODE" = passthrough ]; then
	same k2.written k2.source "what the engine wrote is what is pulled"
fi
read_frames a two/k2 k2.source k2.kept
same k2.source k2.kept "what is pulled is the object"
read_frames b two/k2 k2.landing k2.read
same k2.landing k2.read "what was pulled is what is read"
cmp "${mount[a]}/two/k2" "${mount[b]}/two/k2"
pass
