#!/bin/bash
# llama-server: slots saved through one node, restored through another.
# modes: both
# limit: 400
. "$(dirname "$0")/lib_engines.sh"
need_engine llama
engine_pool 96M
LLAMA=$ENGINES/llama/bin/llama-server
model=$tmp/model.gguf
engine_run "the model" "$PYTHON" "$engines/llama_model.py" "$model"

declare -A port_of=()

server_starts() { # NODE
	free_port
	port_of[$1]=$port
	engine_starts "$LLAMA" -m "$model" --host 127.0.0.1 --port "$port" \
		-c 4096 -np 1 -t 1 --no-webui --slot-save-path "${mount[$1]}/e/"
	pid_of[$1]=$engine_pid out_of[$1]=$engine_out
	wait_until 300 ask "$1" health -o /dev/null
}

server_lives() { # NODE
	kill -0 "${pid_of[$1]}" && ask "$1" health -o /dev/null || {
		tail -n40 "${out_of[$1]}" >&2
		fail "the server at $1 died"
	}
}

server_stops() { # NODE
	kill "${pid_of[$1]}"
	wait "${pid_of[$1]}" || :
}

ask() { # NODE PAGE OPTION...: fails unless 2xx
	local node=$1 page=$2
	shift 2
	curl -sf --noproxy '*' --max-time 60 "$@" \
		"http://127.0.0.1:${port_of[$node]}/$page"
}

prompt() { # N: 1024 tokens, as JSON
	awk -v x="$((1 + $1 * 7919))" 'BEGIN { printf "["
		for (i = 0; i < 1024; i++) {
			x = (x * 75 + 74) % 65537
			printf "%s%d", (i ? "," : ""), 3 + x % 256
		}
		printf "]" }'
}

says() { # NODE N: its tokens for a prompt; leaves the whole answer in $tmp/answer
	ask "$1" completion -d "{\"prompt\": $(prompt "$2"), \"n_predict\": 16,
		\"temperature\": 0, \"id_slot\": 0, \"cache_prompt\": true,
		\"ignore_eos\": true, \"return_tokens\": true}" >"$tmp/answer" ||
		fail "no answer at $1"
	jq -c .tokens "$tmp/answer"
}

computed() { jq .timings.prompt_n "$tmp/answer"; }	# of the prompt's tokens

slot() { # NODE save|restore NAME
	ask "$1" "slots/0?action=$2" -d "{\"filename\": \"$3\"}" >"$tmp/slot"
}

echo "== saved at a, restored at b: the same tokens, and the prompt is not computed"
server_starts a
declare -A truth=()
for i in {0..7}; do
	truth[$i]=$(says a $i)
	[ "$(computed)" -ge 1000 ] || fail "prompt $i was not computed"
	slot a save "s$i.bin" || fail "s$i.bin was not saved"
done
[ "$(printf '%s\n' "${truth[@]}" | sort -u | wc -l)" = 8 ] ||
	fail "the model says the same to all prompts"
settle a
server_starts b
restored() { # NODE N: the right tokens from what the slot has
	local tokens
	slot "$1" restore "s$2.bin" || return 1
	tokens=$(says "$1" "$2")
	[ "$(computed)" -le 64 ] || fail "$(computed) tokens computed at $1"
	[ "$tokens" = "${truth[$2]}" ] || fail "other tokens at $1 for prompt $2"
}
for i in {0..7}; do
	restored b $i || fail "s$i.bin is not at b"
done

echo "== both save under the same names at once"
size=$(stat -c %s "${mount[a]}/e/s0.bin")
saves() { # NODE
	local i k
	for k in {1..6}; do
		for i in 0 1 2; do slot_as "$1" "r$i.bin" || return 1; done
	done
}
slot_as() { # NODE NAME: may go on beside others
	ask "$1" 'slots/0?action=save' -d "{\"filename\": \"$2\"}" >/dev/null
}
says a 7 >/dev/null
says b 7 >/dev/null
saves a & left=$!
saves b & right=$!
also_kill+=($left $right)
seen=0
while kill -0 $left 2>/dev/null || kill -0 $right 2>/dev/null; do
	for i in 0 1 2; do
		s=$(stat -c %s "${mount[c]}/e/r$i.bin" 2>/dev/null) || continue
		seen=$((seen + 1))
		# (b's answer may have one token more or less than a's before.)
		[ "$s" -ge $((size * 9 / 10)) ] || fail "r$i.bin has $s of $size bytes"
	done
done
wait $left || fail "a save at a failed"
wait $right || fail "a save at b failed"
settle a
settle b
[ $seen -gt 0 ] || fail "c saw nothing"
for n in a b; do
	slot $n restore r1.bin || fail "r1.bin is not at $n"
	[ "$(says $n 7)" = "${truth[7]}" ] || fail "other tokens at $n after the race"
done

echo "== more is saved than the pool holds: a miss is an answer of 400"
for i in {0..59}; do
	slot a save "more$i.bin" || fail "more$i.bin was not saved"
done
[ "$(lasts)" -gt 0 ] || fail "nothing was evicted"
hits=0 misses=0
for i in {0..7}; do
	if restored b $i; then hits=$((hits + 1)); else misses=$((misses + 1)); fi
	server_lives b
done
# (All of them: which ones had to go is the pool's choice.)
for i in {0..59}; do
	if slot b restore "more$i.bin"; then
		hits=$((hits + 1))
	else
		misses=$((misses + 1))
	fi
	server_lives b
done
echo "   $hits hits, $misses misses"
[ $misses -gt 0 ] || fail "what was evicted is still there"

echo "== nodes are killed under the servers"
says a 3 >/dev/null
slot a save again.bin
settle a
kill9 a
for i in {0..7}; do
	restored b $i || :
	server_lives b
done
slot b save alone.bin || fail "no save without a"
slot a save away.bin || :
slot a restore away.bin || :
server_lives a
engine_node a
wait_until 20 test -d "${mount[a]}/e"
says a 5 >/dev/null
slot a save back.bin || fail "no save once a is back"
settle a
slot b restore back.bin || fail "back.bin is not at b"
[ "$(says b 5)" = "${truth[5]}" ] || fail "other tokens at b from back.bin"
server_stops a
server_stops b
pass
