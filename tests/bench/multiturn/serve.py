"""A server with the connector of one variant. Where there is a GPU, a server is
started as its users do, with the options in the product's README; here all is for
CPUs: one thread, and vLLM's OffloadingConnector with a copy between host memory
and host memory (vllm_host_spec, of the tests), as vLLM has only CUDA's.

A store is where the server keeps what its own memory has no room for:

    none            nowhere
    cpu             vLLM's CPU tier alone
    files:DIR       a directory (vLLM: its tier fs behind the CPU tier)
    kvpool:AT       the product's own tier for vLLM
    mooncake:AT     Mooncake Store, by a tier of the same form (mooncake_tier, of
                    the tests): AT is its master
"""

import dataclasses
import json
import os
import sys
from typing import Any

from multiturn.models import SHAPES

BLOCK = 64  # tokens, of vLLM's blocks, each a file or an object


@dataclasses.dataclass(frozen=True)
class Server:
    engine: str
    store: str
    model: str
    port: int
    tokens: int  # room of its own for so many, of all conversations
    longest: int  # conversation
    requests: int  # at once
    cpu_tokens: int = 0  # vLLM: room of the CPU tier
    shape: str = "bench"
    engine_id: str = ""


def command(s: Server) -> tuple[list[str], dict[str, str]]:
    """And what is added to the environment."""
    return _vllm(s) if s.engine == "vllm" else _llama(s)


def _vllm(s: Server) -> tuple[list[str], dict[str, str]]:
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    words += ["--host", "127.0.0.1", "--port", str(s.port), "--model", s.model]
    words += ["--skip-tokenizer-init", "--dtype", "float32", "--enforce-eager"]
    words += ["--block-size", str(BLOCK), "--enable-prefix-caching"]
    words += ["--num-gpu-blocks-override", str(s.tokens // BLOCK)]
    words += ["--max-model-len", str(s.longest), "--max-num-seqs", str(s.requests)]
    # The worker in the engine's process: one less of half a gigabyte.
    words += ["--distributed-executor-backend", "uni"]
    transfer = _transfer(s)
    if transfer:
        words += ["--kv-transfer-config", json.dumps(transfer)]
    gib = s.tokens * SHAPES[s.shape].kv_bytes / (1 << 30)
    return words, {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": str(int(gib) + 1),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "CUDA_VISIBLE_DEVICES": "",
    }


def _transfer(s: Server) -> dict[str, Any] | None:
    kind, _, at = s.store.partition(":")
    if kind == "none":
        return None
    options: dict[str, Any] = {"buffer_dir": os.environ.get("KVTEST_BUFFERS"), "buffer_size": "256M"}
    tiers = {
        "cpu": [],
        "files": [
            {"type": "fs", "root_dir": at, "n_read_threads": 4, "n_write_threads": 4}
        ],
        "kvpool": [
            {
                "type": "KVPoolTier",
                "module_path": "kvpool.vllm",
                "at": at,
                "namespace": "multiturn",
                **options,
            }
        ],
        "mooncake": [
            {"type": "MooncakeTier", "module_path": "mooncake_tier", "at": at}
        ],
    }[kind]
    return {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "engine_id": s.engine_id or f"multiturn{os.getpid()}",
        "kv_connector_extra_config": {
            "spec_name": "HostTieringSpec",
            "spec_module_path": "vllm_host_spec",
            "cpu_bytes_to_use": s.cpu_tokens * SHAPES[s.shape].kv_bytes,
            "secondary_tiers": tiers,
        },
    }


def _llama(s: Server) -> tuple[list[str], dict[str, str]]:
    kind, _, at = s.store.partition(":")
    # Its own cache in host memory would hold all conversations.
    words = [os.environ.get("LLAMA_SERVER", "llama-server"), "-m", s.model]
    words += ["--host", "127.0.0.1", "--port", str(s.port), "-t", "1", "-tb", "1"]
    words += ["-np", str(s.requests), "-c", str(s.longest * s.requests)]
    words += ["--cache-ram", "0", "--no-webui", "-fit", "off"]
    # With halves (flash attention's, too), tokens depend on what was computed
    # together with them.
    words += ["-ctk", "f32", "-ctv", "f32", "-fa", "off"]
    if kind == "files":
        words += ["--slot-save-path", at.rstrip("/") + "/"]
    elif kind != "none":
        raise ValueError(f"llama.cpp has no place for what it saves but files: {kind}")
    return words, {}


def serve(s: Server) -> None:
    words, environment = command(s)
    os.execvpe(words[0], words, {**os.environ, **environment})
