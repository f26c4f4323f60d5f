"""vLLM as tests/engines/install has installed it, in the place of `vllm` in containers:
the command of the manifest with a small model on CPUs, and small sizes."""

import json
import os
import pathlib
import subprocess
from typing import Any

from multiturn.serve import BLOCK
from pods import HERE, StandIn

TESTS = HERE.parent
CPU_TIER = 32 << 20


class Installed(StandIn):
    memory = 4 << 30
    ready_s = 900.0

    def __init__(self, environment: pathlib.Path, model: pathlib.Path) -> None:
        self.python = str(environment / "bin" / "python")
        self.model = str(model)
        prefix = subprocess.run(
            [self.python, "-c", "import sys; print(sys.base_prefix)"],
            check=True, stdout=subprocess.PIPE, text=True,
        ).stdout.strip()  # fmt: skip
        folders = [str(environment), prefix, self.model, str(TESTS / "engines")]
        # /usr is there.
        self.folders = tuple(f for f in folders if not (f + "/").startswith("/usr/"))

    def argv(self, words: list[str]) -> list[str]:
        """The manifest's, but for the model, the sizes, and what only a GPU can. (What
        `vllm serve` runs; the command itself asks for a version of the package
        vllm, and that for CPUs has another name.)"""
        if words[:2] != ["vllm", "serve"]:
            raise ValueError(f"not a server: {words}")
        given = list(words[3:])
        for i, word in enumerate(given):
            if word == "--kv-transfer-config":
                given[i + 1] = json.dumps(self._transfer(json.loads(given[i + 1])))
        return [
            self.python, "-m", "vllm.entrypoints.openai.api_server",
            "--model", self.model, *given,
            "--skip-tokenizer-init", "--dtype", "float32", "--enforce-eager",
            "--block-size", str(BLOCK), "--num-gpu-blocks-override", "64",
            "--max-model-len", "2048", "--max-num-seqs", "2",
            "--distributed-executor-backend", "uni",
        ]  # fmt: skip

    @staticmethod
    def _transfer(config: dict[str, Any]) -> dict[str, Any]:
        """vLLM's own copy between the KV cache and its CPU tier needs CUDA."""
        extra = config["kv_connector_extra_config"]
        if extra["spec_name"] != "TieringOffloadingSpec":
            raise ValueError(f"not known here: {extra['spec_name']}")
        extra["spec_name"] = "HostTieringSpec"
        extra["spec_module_path"] = "vllm_host_spec"
        extra["cpu_bytes_to_use"] = CPU_TIER
        for tier in extra["secondary_tiers"]:
            if tier["type"] == "KVPoolTier":
                tier["buffer_size"] = "64M"  # volumes are small
        return config

    def env(self, given: dict[str, str]) -> dict[str, str]:
        ours = {
            # What lib_engines.sh exports for all engines.
            n: os.environ[n]
            for n in (
                "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_NO_USAGE_STATS",
                "DO_NOT_TRACK", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS",
                "VLLM_CPU_OMP_THREADS_BIND", "PYTHONDONTWRITEBYTECODE",
            )
        }  # fmt: skip
        paths = [given["PYTHONPATH"]] if "PYTHONPATH" in given else []
        return {
            **given,
            **ours,
            "PYTHONPATH": ":".join([*paths, str(TESTS / "engines")]),
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_LOGGING_LEVEL": "WARNING",
            "XDG_CACHE_HOME": "/tmp/cache",
            "VLLM_CACHE_ROOT": "/tmp/cache/vllm",
        }
