"""vLLM, offline on CPUs, with a KV connector on a directory.

    vllm_run.py CONNECTOR DIR VERB --model DIR --truth FILE [OPTION...]

CONNECTOR is none, example, offloading, kvpool (offloading, with the product's own
tier) or lmcache_mp. The model is a small Llama
with random weights (made by the verb model), large enough for its tokens to
depend on every block of the prompt. The verb truth writes what it says to each
prompt without a connector; run and loop generate with one and end with status 1
if a token is another.
"""

import argparse
import glob
import json
import os
import random
import sys
import time

BENCH = os.path.join(os.path.dirname(__file__), "..", "bench")
sys.path.insert(0, os.path.abspath(BENCH))

from multiturn.models import Shape, config  # noqa: E402

BLOCK = 32
PROMPT_TOKENS = 16 * BLOCK + 2  # of which ExampleConnector keeps 16 blocks
BLOCKS = 96  # of the engine's own cache: five prompts
NEW_TOKENS = 8
ENGINE_ID = f"kvtest{os.getpid()}"
VOCABULARY = 512
HIDDEN, HEADS, HEAD, LAYERS, INNER = 256, 8, 128, 2, 512

MODEL = config(
    Shape(
        layers=LAYERS,
        hidden=HIDDEN,
        heads=HEADS,
        kv_heads=HEADS,
        inner=INNER,
        context=2048,
        head=HEAD,
        vocabulary=VOCABULARY,
    )
)


def make_model(directory):
    """config.json, and weights of a size at which attention matters (vLLM's
    load_format dummy gives such small ones that it hardly does)."""
    import torch
    from safetensors.torch import save_file

    random_numbers = torch.Generator().manual_seed(7)

    def weight(out, into):
        return torch.randn(out, into, generator=random_numbers) * into**-0.5

    w = {
        "model.embed_tokens.weight": torch.randn(
            VOCABULARY, HIDDEN, generator=random_numbers
        ),
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": weight(VOCABULARY, HIDDEN),
    }
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        for name, out, into in (
            ("self_attn.q_proj", HEADS * HEAD, HIDDEN),
            ("self_attn.k_proj", HEADS * HEAD, HIDDEN),
            ("self_attn.v_proj", HEADS * HEAD, HIDDEN),
            ("self_attn.o_proj", HIDDEN, HEADS * HEAD),
            ("mlp.gate_proj", INNER, HIDDEN),
            ("mlp.up_proj", INNER, HIDDEN),
            ("mlp.down_proj", HIDDEN, INNER),
        ):
            w[f"{p}{name}.weight"] = weight(out, into) * 2
        w[p + "input_layernorm.weight"] = torch.ones(HIDDEN)
        w[p + "post_attention_layernorm.weight"] = torch.ones(HIDDEN)
    os.makedirs(directory, exist_ok=True)
    save_file(w, os.path.join(directory, "model.safetensors"), {"format": "pt"})
    with open(os.path.join(directory, "config.json"), "w") as f:
        json.dump(MODEL, f)


def prompt(n):
    return random.Random(n).choices(range(3, VOCABULARY), k=PROMPT_TOKENS)


def transfer_config(connector, directory, port):
    if connector == "none":
        return None
    tiers = {
        "spec_name": "HostTieringSpec",
        "spec_module_path": "vllm_host_spec",
        "cpu_bytes_to_use": 64 << 20,
    }
    files = {
        "type": "fs",
        "root_dir": directory,
        "n_read_threads": 4,
        "n_write_threads": 4,
    }
    pool = {
        "type": "KVPoolTier",
        "module_path": "kvpool.vllm",
        "at": directory,
        "namespace": os.path.basename(directory),
        "buffer_dir": os.environ.get("KVTEST_BUFFERS"),
        "buffer_size": "64M",
    }
    extra = {
        "example": {"shared_storage_path": directory},
        "offloading": {**tiers, "secondary_tiers": [files]},
        "kvpool": {**tiers, "secondary_tiers": [pool]},
        "lmcache_mp": {"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": port},
    }[connector]
    return {
        "kv_connector": {
            "example": "ExampleConnector",
            "offloading": "OffloadingConnector",
            "kvpool": "OffloadingConnector",
            "lmcache_mp": "LMCacheMPConnector",
        }[connector],
        "kv_role": "kv_both",
        "engine_id": ENGINE_ID,
        "kv_connector_extra_config": extra,
    }


def mend_llvmlite():
    """vLLM on CPUs looks for kernels in the __dict__ of all objects of all
    modules, and stumbles over one that takes any name for one of LLVM's
    functions; LMCache imports that."""
    from llvmlite.binding import ffi

    library = type(ffi.lib)
    function = library.__getattr__

    def attribute(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return function(self, name)

    library.__getattr__ = attribute


class Engine:
    def __init__(self, o):
        if o.connector == "lmcache_mp" or "llvmlite.binding" in sys.modules:
            mend_llvmlite()
        from vllm import LLM

        self.o = o
        self.llm = LLM(
            model=o.model,
            skip_tokenizer_init=True,
            dtype="float32",
            block_size=BLOCK,
            max_model_len=1024,
            max_num_seqs=4,
            num_gpu_blocks_override=BLOCKS,
            enforce_eager=True,
            enable_prefix_caching=True,
            disable_log_stats=False,
            kv_transfer_config=transfer_config(o.connector, o.dir, o.port),
        )
        # The CPU tier, mapped by all by now: gone with this process.
        for path in glob.glob(f"/dev/shm/vllm_offload_{ENGINE_ID}*"):
            os.unlink(path)

    def says(self, tokens, count):
        from vllm import SamplingParams

        out = self.llm.generate(
            [{"prompt_token_ids": tokens}],
            SamplingParams(
                temperature=0, max_tokens=count, ignore_eos=True, detokenize=False
            ),
            use_tqdm=False,
        )
        return list(out[0].outputs[0].token_ids)

    def tokens(self, n):
        return self.says(prompt(n), NEW_TOKENS)

    def forget(self):
        """Its own caches, once what it stores is stored: connectors begin with
        that, and see its end, in later steps. (LMCache's holds the blocks of
        the last request until there is another: there is never nothing to
        wait for, and BLOCKS are few enough for old ones to be gone.)"""
        end = time.monotonic() + 60
        while True:
            for _ in range(3):
                self.says([3] * 5, 2)
            if self.llm.reset_prefix_cache(reset_connector=True):
                return
            if self.o.connector == "lmcache_mp":
                return
            if time.monotonic() > end:
                raise TimeoutError("reset_prefix_cache")
            time.sleep(0.1)

    def external_hits(self):
        return sum(
            m.value
            for m in self.llm.get_metrics()
            if m.name == "vllm:external_prefix_cache_hits"
        )


def compare(engine, truth, prompts):
    wrong = [n for n in prompts if engine.tokens(n) != truth[str(n)]]
    if wrong:
        print(f"WRONG: other tokens for the prompts {wrong}")
    return not wrong


def run(o):
    with open(o.truth) as f:
        truth = json.load(f)
    engine = Engine(o)
    if o.ready:
        open(o.ready, "w").close()
    if o.go:
        while not os.path.exists(o.go):
            time.sleep(0.005)
    rounds = 0
    while True:
        good = compare(engine, truth, o.prompts)
        hits = engine.external_hits()
        rounds += 1
        engine.forget()
        if o.status:
            with open(o.status + ".new", "w") as f:
                json.dump({"rounds": rounds, "hits": hits}, f)
            os.replace(o.status + ".new", o.status)
        if not good or not o.until or os.path.exists(o.until):
            break
    if hits < o.min_hits:
        print(f"WRONG: {hits} external hits, not {o.min_hits}")
        good = False
    if o.max_hits is not None and hits > o.max_hits:
        print(f"WRONG: {hits} external hits, more than {o.max_hits}")
        good = False
    print(f"vllm {o.connector}: {rounds} rounds, {hits} tokens of external hits")
    return good


def main():
    p = argparse.ArgumentParser()
    p.add_argument("connector")
    p.add_argument("dir")
    p.add_argument("verb", choices=["model", "truth", "run"])
    p.add_argument("--model", required=True)
    p.add_argument("--truth")
    p.add_argument("--prompts", default="0:4")
    p.add_argument("--min-hits", type=int, default=0)
    p.add_argument("--max-hits", type=int)
    p.add_argument("--ready")
    p.add_argument("--go")
    p.add_argument("--until", help="rounds are run until it is there")
    p.add_argument("--status")
    p.add_argument("--port", type=int, default=0)
    o = p.parse_args()
    o.prompts = range(*map(int, o.prompts.split(":")))
    good = True
    if o.verb == "model":
        make_model(o.model)
    elif o.verb == "truth":
        engine = Engine(o)
        with open(o.truth, "w") as f:
            json.dump({n: engine.tokens(n) for n in o.prompts}, f)
    else:
        good = run(o)
    sys.stdout.flush()
    os._exit(0 if good else 1)


if __name__ == "__main__":
    main()
