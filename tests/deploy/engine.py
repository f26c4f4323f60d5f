"""Stands in for `vllm serve ...` in a container: reads its command line, uses the
pool as its KV connector does, and answers turns of conversations over HTTP.

    GET /health                    200
    POST /turn {"prompt": [...]}   {"loaded": blocks, "computed": blocks}

A block of BLOCK tokens is an object whose name is the hash of the prompt up to there;
its content follows from the name, and is checked when it is loaded.

engine.py vllm serve MODEL --kv-transfer-config JSON: tiers KVPoolTier (the adapter's
options: kvpool.Pool) and fs (files in root_dir, temporary name and rename).
"""

import contextlib
import faulthandler
import hashlib
import http.server
import json
import os
import signal
import sys
import threading
import uuid
from typing import Any, Protocol

BLOCK = 64
SIZE = 64 << 10
ANSWER_SECONDS = 30


def content(name: str) -> bytes:
    seed = hashlib.sha256(name.encode()).digest()
    return seed * (SIZE // len(seed))


def names_of(prompt: list[int]) -> list[str]:
    h, found = hashlib.sha256(), []
    for i in range(len(prompt) // BLOCK):
        h.update(json.dumps(prompt[i * BLOCK : (i + 1) * BLOCK]).encode())
        found.append(h.hexdigest())
    return found


class Store(Protocol):
    def load(self, names: list[str]) -> int:
        """How many of them, from the first, were there."""

    def save(self, names: list[str]) -> None: ...


class Library:
    def __init__(self, tier: dict[str, Any]) -> None:
        import kvpool

        options = {k: tier[k] for k in ("listen", "insecure") if k in tier}
        # The default, 256 MiB, is not for volumes as small as these.
        pool = kvpool.Pool(tier["at"], buffer_size=64 << 20, **options)
        self.space = pool.namespace(tier["namespace"])
        self.exists = kvpool.Exists
        self.buffer = bytearray(SIZE)
        pool.register(self.buffer)
        self.lock = threading.Lock()  # of the buffer

    def load(self, names: list[str]) -> int:
        with self.lock:
            count: int = self.space.exists_prefix(names)
            for name in names[:count]:
                self.space.get_into(name, self.buffer)
                if bytes(self.buffer) != content(name):
                    raise ValueError(f"{name}: wrong content")
        return count

    def save(self, names: list[str]) -> None:
        with self.lock:
            for name in names:
                self.buffer[:] = content(name)
                # There already: another engine has stored the same bytes. sync:
                # the other engine sees it before the next turn.
                with contextlib.suppress(self.exists):
                    self.space.put_from(name, self.buffer, if_absent=True, sync=True)


class Files:
    def __init__(self, tier: dict[str, Any]) -> None:
        self.root = tier["root_dir"]
        os.makedirs(self.root, exist_ok=True)

    def load(self, names: list[str]) -> int:
        for i, name in enumerate(names):
            try:
                with open(f"{self.root}/{name}", "rb") as f:
                    found = f.read()
            except FileNotFoundError:
                return i
            if found != content(name):
                raise ValueError(f"{name}: wrong content")
        return len(names)

    def save(self, names: list[str]) -> None:
        for name in names:
            temporary = f"{self.root}/{name}.tmp.{uuid.uuid4()}"
            with open(temporary, "wb") as f:
                f.write(content(name))
            os.rename(temporary, f"{self.root}/{name}")
        # All mounts see them before the next turn, at the other engine.
        fd = os.open(self.root, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def open_store(words: list[str]) -> Store:
    config = json.loads(words[words.index("--kv-transfer-config") + 1])
    (tier,) = config["kv_connector_extra_config"]["secondary_tiers"]
    if tier["type"] == "fs":
        return Files(tier)
    return Library(tier)


def main() -> None:
    store = open_store(sys.argv[1:])

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self._answer(200 if self.path == "/health" else 404, {})

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            names = names_of(json.loads(self.rfile.read(length))["prompt"])
            # Where it is, should it take longer than anybody waits for it.
            faulthandler.dump_traceback_later(ANSWER_SECONDS)
            try:
                loaded = store.load(names)
                store.save(names[loaded:])
            except Exception as e:
                self._answer(500, {"error": repr(e)})
                raise
            finally:
                faulthandler.cancel_dump_traceback_later()
            self._answer(200, {"loaded": loaded, "computed": len(names) - loaded})

        def log_message(self, format: str, *words: Any) -> None:
            pass

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Handler).serve_forever()


main()
