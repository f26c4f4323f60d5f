# For tests with engines as they are installed (make check-engines): a pool of
# two nodes and a client, and an engine's own code that stores through one of
# them and loads through another, each time in a new process.
#
#   #!/bin/bash
#   # modes: both
#   . "$(dirname "$0")/lib_engines.sh"
#   engine_storage lmcache_fs
#
# What is installed where: tests/engines/install.

engines=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$engines/../lib/lib.sh"
ENGINES=$("$engines/install" --where)

need_engine() { # NAME of an environment: sets $PYTHON
	PYTHON=$ENGINES/$1/bin/python
	[ -e "$ENGINES/$1/complete" ] ||
		skip "no $1: $(cat "$ENGINES/$1.absent" 2>/dev/null ||
			echo "not installed (make check-engines does)")"
}

# No models are downloaded, and no use of them is reported.
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 LMCACHE_TRACK_USAGE=false \
	VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 CUDA_VISIBLE_DEVICES='' \
	VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 \
	XDG_CACHE_HOME="$tmp/cache" VLLM_CACHE_ROOT="$tmp/cache/vllm"

# The product's own adapters, for engines that load them by module path.
export PYTHONPATH=$engines/../../tools/python KVPOOL_LIBRARY=$BIN/libkvpool.so.0 \
	KVTEST_BUFFERS=$tmp/buffers

# The nodes a and b, the client c, and a directory e of all.
engine_pool() { # [STORE-SIZE]
	local n
	need_fuse
	need jq curl
	store_size=${1:-128M}
	start_master
	engine_node a
	engine_node b
	start_node c --store-size 0 --buffer-size 64M --no-fd-passing
	for n in a b; do
		[[ $(status_json $n .data_mode) == *"$KVTEST_MODE"* ]] ||
			fail "$n does not serve in mode $KVTEST_MODE"
	done
	mkdir "${mount[a]}/e"
	sync "${mount[a]}"
	[ -d "${mount[b]}/e" ] && [ -d "${mount[c]}/e" ] ||
		fail "a directory made at a is not at b and c"
}

# As on machines of their own: what another node has comes over the network.
engine_node() { # NAME
	start_node "$1" --store-size "$store_size" --no-fd-passing
}

settle() { # NODE: all it has published is known to the others
	find "${mount[$1]}/e" -type d -exec sync {} +
}

lasts() {
	metric "${admin[master]}" 'kvpool_master_evictions_total{verdict="last"}'
}

# Each run of an engine has an output of its own, shown if it fails.
n_run=0
engine_starts() { # COMMAND...: in the background; sets $engine_pid, $engine_out
	n_run=$((n_run + 1))
	engine_out=$tmp/run$n_run.out
	"$@" >"$engine_out" 2>&1 </dev/null &
	engine_pid=$!
	also_kill+=("$engine_pid")
}

engine_ends() { # PID OUT WHAT: waits; must have been right
	local status=0
	wait "$1" || status=$?
	grep -E '^WRONG: ' "$2" || :
	[ $status = 0 ] || {
		tail -n60 "$2" >&2
		fail "$3: status $status"
	}
	tail -n1 "$2" | sed 's/^/   /'
}

engine_run() { # WHAT COMMAND...
	local what=$1
	shift
	engine_starts "$@"
	engine_ends "$engine_pid" "$engine_out" "$what"
}

# Programs in Python find what they import in memory (forked.py): each run is a
# new process all the same. What is exported now is what they get.
preload() { # MODULE...: begins to
	engine_starts "$PYTHON" "$engines/forked.py" serve "$tmp/forked" "$@"
	preload_pid=$engine_pid preload_out=$engine_out
	disown "$preload_pid"	# its end is no news
	python=("$PYTHON" -ES "$engines/forked.py" run "$tmp/forked")
}

preloaded() { # waits
	until [ -S "$tmp/forked" ]; do
		kill -0 "$preload_pid" 2>/dev/null || {
			tail -n60 "$preload_out" >&2
			fail "cannot import"
		}
		sleep 0.05
	done
}

# ---- an engine's storage code, driven by storage.py ----

storage() { # NODE VERB OPTION...: the command line, in $storage
	local node=$1 verb=$2
	shift 2
	storage=("${python[@]}" "$engines/storage.py" "$form" "${mount[$node]}/e"
		"$verb" "$@")
}

form_module() { # what of an engine a form needs
	case $form in
	*lmcache*) echo forms_lmcache ;;
	*sglang*) echo forms_sglang ;;
	*vllm*) echo forms_vllm ;;
	esac
}

storage_run() { # NODE VERB OPTION...
	storage "$@"
	engine_run "$form: $2 at $1" "${storage[@]}"
}

storage_starts() { # NAME NODE VERB OPTION...: ready, but waiting for $tmp/go
	local name=$1
	shift
	storage "$@" --ready "$tmp/$name.ready" --go "$tmp/go"
	engine_starts "${storage[@]}"
	pid_of[$name]=$engine_pid
	out_of[$name]=$engine_out
}

storage_go() { # NAME...: all are ready, and begin
	local name
	for name in "$@"; do
		wait_until 300 ended_or_there "$name"
		[ -e "$tmp/$name.ready" ] ||
			engine_ends "${pid_of[$name]}" "${out_of[$name]}" "$name"
	done
	: >"$tmp/go"
}

ended_or_there() { # NAME
	[ -e "$tmp/$1.ready" ] || ! kill -0 "${pid_of[$1]}" 2>/dev/null
}

storage_ends() { # NAME
	engine_ends "${pid_of[$1]}" "${out_of[$1]}" "$form: $1"
}

churned() { # COUNT AT-LEAST: of the one that churns
	local n
	n=$(jq ".$1" "$tmp/status" 2>/dev/null) && [ "$n" -ge "$2" ]
}
churned_now() { jq -r ".$1" "$tmp/status"; }
churns() { kill -0 "${pid_of[churn]}" 2>/dev/null; }

where_it_is() { # PID OUT: each of its threads, in Python and in the kernel
	local before t
	before=$(wc -l <"$2")
	kill -USR1 "$1"
	sleep 1
	tail -n "+$((before + 1))" "$2"
	for t in /proc/"$1"/task/*; do
		echo "${t##*/}: $(tr '\n' ' ' <"$t/stack")"
	done
}

churn_begins_anew() { # what was begun before this has ended
	local rounds
	rounds=$(churned_now rounds)
	until churned rounds $((rounds + 2)); do
		churns || storage_ends churn
		churn_is_late "a round"
		sleep 0.05
	done
}

churn_is_late() { # WHAT: fails if it is
	[ $SECONDS -ge "$churn_end" ] || return 0
	tail -n40 "${out_of[churn]}" >&2
	where_it_is "$(churned_now pid)" "${out_of[churn]}" >&2
	fail "$form: no end of: $1: $(cat "$tmp/status")"
}

churn_goes_on() { # WHAT: it stores and finds more than it had
	local stored hits
	stored=$(churned_now stored) hits=$(churned_now hits)
	until churned stored $((stored + 32)) && churned hits $((hits + 8)); do
		churns || storage_ends churn
		churn_is_late "$1"
		sleep 0.05
	done
	echo "   $1: $(cat "$tmp/status")"
}

declare -A pid_of=() out_of=()

engine_storage() { # FORM [ENVIRONMENT]
	form=$1
	need_engine "${2:-python}"
	preload "$(form_module)"
	engine_pool
	preloaded

	echo "== stored through a, read through b"
	storage_run a store --keys 0:32
	settle a
	storage_run b load --keys 0:32 --hits all

	echo "== a and b store the same keys at once, c looks on"
	storage_starts race1 a store --keys 100:164 --writer 1
	storage_starts race2 b store --keys 100:164 --writer 2
	storage_starts watch c watch --keys 100:164 --writers 1 2 --hits any \
		--until "$tmp/raced"
	storage_go race1 race2 watch
	storage_ends race1
	storage_ends race2
	settle a
	settle b
	: >"$tmp/raced"
	storage_ends watch

	echo "== twice what the pool holds, and nodes that are killed meanwhile"
	rm "$tmp/go"
	storage_starts churn a churn --keys 1000:1001 --until "$tmp/churned" \
		--status "$tmp/status" --may-fail "$tmp/may_fail"
	storage_go churn
	churn_end=$((SECONDS + 300))
	until churned stored 512; do
		churns || storage_ends churn
		sleep 0.05
	done
	churn_goes_on "full"
	[ "$(lasts)" -gt 0 ] || fail "nothing was evicted"
	churned misses 1 || fail "nothing that was evicted was asked for"
	kill9 b
	churn_goes_on "b was killed"
	engine_node b
	churn_goes_on "b is back"
	: >"$tmp/may_fail"
	kill9 a
	sleep 1
	churns || storage_ends churn
	engine_node a
	wait_until 20 test -d "${mount[a]}/e"
	churn_begins_anew
	rm "$tmp/may_fail"
	churn_goes_on "its own daemon was killed, and is back"
	: >"$tmp/churned"
	storage_ends churn
	storage_run b load --keys 1000:1200 --hits any
	pass
}

# ---- vLLM itself, by vllm_run.py ----

PROMPT_HITS=512	# tokens of a prompt that can come from outside

vllm() { # NODE VERB OPTION...: the command line, in $vllm
	local node=$1 verb=$2 dir=-
	shift 2
	[ "$node" = none ] || dir=${mount[$node]}/e
	vllm=("${python[@]}" "$engines/vllm_run.py"
		"$([ "$node" = none ] && echo none || echo "$connector")"
		"$dir" "$verb" --model "$tmp/model" --truth "$tmp/truth" "$@")
}

vllm_at() { # NODE VERB OPTION...
	vllm "$@"
	engine_run "vllm $connector: $2 at $1" "${vllm[@]}"
}

vllm_rounds() { # COUNT: has the one in the background done so many?
	[ "$(jq .rounds "$tmp/status" 2>/dev/null || echo 0)" -ge "$1" ]
}

vllm_goes_on() { # WHAT: two more rounds, the second of which began after it
	local before
	before=$(jq .rounds "$tmp/status" 2>/dev/null || echo 0)
	until vllm_rounds $((before + 2)); do
		kill -0 "$loop_pid" 2>/dev/null ||
			engine_ends "$loop_pid" "$loop_out" "vllm $connector: $1"
		sleep 0.1
	done
	echo "   $1: $(cat "$tmp/status")"
}

vllm_prepare() { # PROMPTS [MODULE...], to be in memory
	export VLLM_ENABLE_V1_MULTIPROCESSING=0 PYTHONHASHSEED=0 \
		PYTHONPATH=$engines:$PYTHONPATH VLLM_CPU_KVCACHE_SPACE=1 \
		VLLM_LOGGING_LEVEL=INFO
	preload torch safetensors.torch vllm.entrypoints.llm "${@:2}"
	preloaded
	vllm none model
	engine_run "the model" "${vllm[@]}"
	vllm_at none truth --prompts "$1"
}

vllm_shares() { # what a computed is used at b
	echo "== computed at a, read at b: the same tokens"
	vllm_at a run --prompts 0:4 --max-hits 0
	settle a
	vllm_at b run --prompts 0:4 --min-hits $((4 * PROMPT_HITS))
}

vllm_races() { # what a and b compute at once is used at c
	local n
	echo "== a and b compute the same prompts at once"
	for n in a b; do
		vllm $n run --prompts 4:8 --ready "$tmp/$n.ready" --go "$tmp/go"
		engine_starts "${vllm[@]}"
		pid_of[$n]=$engine_pid out_of[$n]=$engine_out
	done
	storage_go a b
	engine_ends "${pid_of[a]}" "${out_of[a]}" "race at a"
	engine_ends "${pid_of[b]}" "${out_of[b]}" "race at b"
	settle a
	settle b
	vllm_at c run --prompts 4:8 --min-hits $((4 * PROMPT_HITS))
}

vllm_loops() { # NODE PROMPTS OPTION...: in the background
	local node=$1 prompts=$2
	shift 2
	rm -f "$tmp/stop" "$tmp/status"
	vllm "$node" run --prompts "$prompts" "$@" --until "$tmp/stop" --status "$tmp/status"
	engine_starts "${vllm[@]}"
	loop_pid=$engine_pid loop_out=$engine_out
	until vllm_rounds 1; do
		kill -0 "$loop_pid" 2>/dev/null ||
			engine_ends "$loop_pid" "$loop_out" "vllm $connector"
		sleep 0.1
	done
}

vllm_loop_ends() {
	: >"$tmp/stop"
	engine_ends "$loop_pid" "$loop_out" "vllm $connector: loop"
}

vllm_goes_through_it() { # the loop at a: more than the pool holds, kills
	vllm_goes_on "full"
	[ "$(lasts)" -gt 0 ] || fail "nothing was evicted"
	kill9 b
	vllm_goes_on "b was killed"
	engine_node b
	vllm_goes_on "b is back"
	kill9 a
	sleep 1
	engine_node a
	vllm_goes_on "its own daemon was killed, and is back"
	vllm_loop_ends
}
