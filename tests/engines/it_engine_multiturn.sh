#!/bin/bash
# The multi-turn benchmark (bench_multiturn.sh) with a tiny model: servers of vLLM
# find at one node what was computed at the other, say the same as without a pool,
# and tables are printed. No figure is judged.
# modes: both
# limit: 400
. "$(dirname "$0")/lib_engines.sh"
need_fuse
need jq curl
need_engine "$([ "${ENGINE:=vllm}" = vllm ] && echo python || echo llama)"
export ENGINE VARIANTS="none mount" ROUNDS=1 SHAPE=tiny STORE=128M OUT=$tmp/lines \
	CONVERSATIONS=2 TURNS=2 FIRST=512 LATER=64 ANSWER=8
bash "$engines/bench_multiturn.sh" >"$tmp/out" 2>&1 || {
	cat "$tmp/out" >&2
	fail "bench_multiturn.sh"
}
cat "$tmp/out"

count() { # VARIANT TURN SOURCE
	jq -s "map(select(.kind == \"turn\" and .variant == \"$1\" and .turn == $2)
		| .sources.$3) | add" "$OUT"
}
for what in 'first turn' 'later turns' 'the same tokens in all answers' \
	'^mean TTFT, ms  .* %' '^requests/s  .* %' '^  mount .* aim <= '; do
	grep -q "$what" "$tmp/out" || fail "not printed: $what"
done
[ "$(count mount 0 outside)" = 0 ] || fail "something was found in the first turn"
[ "$(count none 1 outside)" = 0 ] || fail "something was found without a pool"
[ "$(count mount 1 outside)" -ge 1000 ] ||
	fail "only $(count mount 1 outside) tokens through the pool"
[ "$(count mount 1 computed)" -lt "$(count none 1 computed)" ] ||
	fail "as much computed as without it"
pass
