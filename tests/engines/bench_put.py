"""What LMCache's local_disk costs an engine that stores, by LMCache's own code.

    bench_put.py NAME=DIR... [OPTION...]

A process for each NAME has an LMCacheEngine of its own, with the CPU backend,
and with local_disk in DIR (NAME= : with the CPU backend alone). They take turns:
REQUESTS prompts each, of CHUNKS chunks of 256 tokens, 8 MiB of KV each: the
compute step, then LMCacheEngine.store, as LMCache's connector calls it. Then all
that was written is compared with what it is to be, in DIR and wherever else
OTHER says that it is to be seen, and removed.

The compute step stands for prefill: dense layers of the model whose KV that is
(8 layers, hidden size 1024, 8 KV heads of 128, bfloat16), in one thread, and
DENSE of them for each chunk (8: a model's worth).

Exit status: 1 if bytes are wrong; an aim that is missed is only reported.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import numpy
import torch

TOKENS = 256
LAYERS, HEADS, HEAD = 8, 8, 128
HIDDEN = HEADS * HEAD
CHUNK = LAYERS * 2 * TOKENS * HIDDEN * 2
PAGE = 4096
SOURCE = 8 * CHUNK
AIM_SUBMIT_MS = 0.05
AIM_LOOP = 1.013


def source():
    """What KV is made of; a chunk is a part of it (offset) under a stamp."""
    return numpy.random.Generator(numpy.random.PCG64(1)).bytes(SOURCE)


def offset(n):
    return n * 7 * PAGE % (SOURCE - CHUNK)


def stamp(n):
    return (n + 1).to_bytes(8, "little")


# ---- a process with an engine ----


def connector(first):
    """In place of a GPU: copies chunk after chunk from plain memory."""
    from lmcache.v1.gpu_connector.mock_gpu_connector import MockGPUConnector

    class Connector(MockGPUConnector):
        def __init__(self):
            super().__init__((LAYERS, 2, TOKENS, HEADS, HEAD))
            self.gpu = torch.frombuffer(bytearray(source()), dtype=torch.uint8)
            self.n = first
            self.seconds = 0.0

        def batched_from_gpu(self, memory_objs, starts, ends, **kwargs):
            begin = time.perf_counter()
            for m in memory_objs:
                to = m.tensor.view(torch.uint8).flatten()
                at = offset(self.n)
                to.copy_(self.gpu[at : at + CHUNK])
                to[:8] = torch.frombuffer(bytearray(stamp(self.n)), dtype=torch.uint8)
                self.n += 1
            self.seconds += time.perf_counter() - begin

    return Connector()


class Prefill:
    def __init__(self, dense):
        rows = torch.randn(TOKENS, HIDDEN, dtype=torch.bfloat16)
        self.rows = rows / 32
        self.layers = [
            [
                torch.randn(a, b, dtype=torch.bfloat16) / 32
                for a, b in [
                    (HIDDEN, 3 * HIDDEN),
                    (HIDDEN, HIDDEN),
                    (HIDDEN, 4 * HIDDEN),
                    (4 * HIDDEN, HIDDEN),
                ]
            ]
            for _ in range(LAYERS)
        ]
        self.dense = dense

    def chunk(self):
        for i in range(self.dense):
            qkv, out, up, down = self.layers[i % LAYERS]
            torch.mm(torch.mm(self.rows, qkv)[:, :HIDDEN], out)
            torch.mm(torch.mm(self.rows, up), down)


class Engine:
    def __init__(self, directory, o):
        from lmcache.v1.cache_engine import LMCacheEngine
        from lmcache.v1.config import LMCacheEngineConfig
        from lmcache.v1.metadata import LMCacheMetadata
        from lmcache.v1.token_database import ChunkedTokenDatabase

        extra = {}
        if directory:
            extra = dict(local_disk=f"file://{directory}/", max_local_disk_size=1000)
        config = LMCacheEngineConfig.from_defaults(
            chunk_size=TOKENS,
            local_cpu=True,
            max_local_cpu_size=o.cpu_gib,
            lmcache_instance_id="kvpool-bench",
            extra_config={"use_odirect": o.direct},
            **extra,
        )
        metadata = LMCacheMetadata(
            model_name="kvpool-bench",
            world_size=1,
            local_world_size=1,
            worker_id=0,
            local_worker_id=0,
            kv_dtype=torch.bfloat16,
            kv_shape=(LAYERS, 2, TOKENS, HEADS, HEAD),
            chunk_size=TOKENS,
        )
        self.gpu = connector(0)
        self.engine = LMCacheEngine(
            config,
            metadata,
            ChunkedTokenDatabase(config, metadata),
            self.gpu,
            lambda *a: None,
            lambda *a: None,
        )
        self.engine.post_init()
        self.prefill = Prefill(o.dense)
        self.o = o
        self.tokens = 0
        self.paths = []  # of this round's chunks
        self.submits = []  # of each chunk: milliseconds, those of the CPU, waits
        self.disk = self.engine.storage_manager.storage_backends.get("LocalDiskBackend")
        if self.disk:
            self.watch(self.disk)

    def watch(self, disk):
        """What batched_put comes to, on the hot path, once a chunk: timed as it
        passes by."""
        submit = disk.submit_put_task

        def switches():
            return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw

        def timed(key, memory_obj, **kwargs):
            waits = switches()
            begin, cpu = time.perf_counter(), time.thread_time()
            submit(key, memory_obj, **kwargs)
            cpu = time.thread_time() - cpu
            took = time.perf_counter() - begin
            self.submits.append((took * 1000, cpu * 1000, switches() - waits))
            self.paths.append(disk._key_to_path(key))

        disk.submit_put_task = timed

    def drain(self):
        while self.disk and self.disk.disk_worker.put_tasks:
            time.sleep(0.001)

    def round(self):
        first = self.gpu.n
        self.paths, self.submits, self.gpu.seconds = [], [], 0.0
        compute = 0.0
        begin = time.perf_counter()
        cpu = time.process_time()
        for _ in range(self.o.requests):
            t = time.perf_counter()
            for _ in range(self.o.chunks):
                self.prefill.chunk()
            compute += time.perf_counter() - t
            n = TOKENS * self.o.chunks
            self.engine.store(list(range(self.tokens, self.tokens + n)))
            self.tokens += n
        seconds = time.perf_counter() - begin
        cpu = time.process_time() - cpu
        self.drain()
        return dict(
            seconds=seconds,
            cpu=cpu,
            compute=compute,
            copy=self.gpu.seconds,
            drained=time.perf_counter() - begin - seconds,
            submits=self.submits,
            first=first,
            paths=self.paths,
        )


def engine_main(o):
    """Commands come as lines: another round, to be answered with its figures."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    engine = Engine(o.dir, o)
    print(json.dumps("ready"), file=answers, flush=True)
    for _ in sys.stdin:
        print(json.dumps(engine.round()), file=answers, flush=True)
    os._exit(0)


# ---- the one that starts them, checks and prints ----


class Variant:
    def __init__(self, name, directory, options):
        self.name, self.dir = name, directory
        self.rounds = []
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--engine", f"{name}={directory}", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name}: its process ended")
        return json.loads(line)

    def round(self):
        self.process.stdin.write("round\n")
        self.process.stdin.flush()
        return self.answer()


def verify(variant, r, data, other):
    for n, path in enumerate(r["paths"], r["first"]):
        at = offset(n)
        wanted = stamp(n) + data[at + 8 : at + CHUNK]
        for place in [variant.dir, *other]:
            file = os.path.join(place, os.path.basename(path))
            with open(file, "rb") as f:
                if f.read() != wanted:
                    sys.exit(f"{variant.name}: other bytes than stored: {file}")
    for path in r["paths"]:
        os.unlink(path)


def verdict(value, aim):
    return f"{aim} {'ok' if value <= aim else 'MISSED'}"


def report_submits(variants):
    """A submit that waits does so for Python's lock, which LMCache's own threads
    have: those that write, and the one that starts them."""
    print(
        f"{'submit, ms a chunk':20} {'median':>8} {'mean':>8} {'p99':>8} "
        f"{'CPU':>8} {'waits':>8}  aim"
    )
    for v in variants:
        submits = [x for r in v.rounds for x in r["submits"]]
        took, cpu, waits = zip(*submits)
        median = statistics.median(took)
        print(
            f"{v.name:20} {median:8.3f} {statistics.mean(took):8.3f} "
            f"{sorted(took)[int(len(took) * 0.99)]:8.3f} "
            f"{statistics.median(cpu):8.3f} {statistics.mean(waits):8.2f}  "
            f"{verdict(median, AIM_SUBMIT_MS)}"
        )


def report_loops(variants, chunks):
    """Neighbours in time are compared: each round with the same one of the first."""
    base = variants[0]
    print(f"{'loop, ms a chunk':20} {'whole':>8} {'compute':>8} {'copy':>8} "
          f"{'CPU':>8} {'drain':>8} {'ratio':>8}  aim")
    for v in variants:

        def ms(name):
            return statistics.median(r[name] for r in v.rounds) * 1000 / chunks

        ratio = statistics.median(
            a["seconds"] / b["seconds"] for a, b in zip(v.rounds, base.rounds)
        )
        print(
            f"{'CPU' + (' + ' + v.name if v.dir else ' only'):20} "
            f"{ms('seconds'):8.2f} {ms('compute'):8.2f} {ms('copy'):8.2f} "
            f"{ms('cpu'):8.2f} {ms('drained'):8.2f} {ratio:8.4f}  "
            f"{verdict(ratio, AIM_LOOP) if v.dir else ''}"
        )


def main(o):
    options = []
    for name in ("requests", "chunks", "dense", "cpu_gib"):
        options += ["--" + name.replace("_", "-"), str(getattr(o, name))]
    if o.direct:
        options.append("--direct")
    variants = [Variant(*v.split("=", 1), options) for v in o.variants]
    other = {v.name: [] for v in variants}
    for v in o.other:
        name, directory = v.split("=", 1)
        other[name].append(directory)
    for v in variants:
        v.answer()
    data = source()
    stored = 0
    for i in range(o.rounds + 1):
        turn = i % len(variants)
        for v in variants[turn:] + variants[:turn]:
            os.sync()
            r = v.round()
            verify(v, r, data, other[v.name])
            stored += len(r["paths"])
            if i:  # the first warms up
                v.rounds.append(r)
    print(f"{stored} chunks of {CHUNK >> 20} MiB written, read back and compared")
    for v in variants:
        v.process.stdin.close()
        v.process.wait()
    print(
        f"{o.rounds} rounds of {o.requests} prompts of {o.chunks} chunks; "
        f"compute step: {o.dense} dense layers of hidden size {HIDDEN} a chunk"
    )
    report_submits([v for v in variants if v.dir])
    report_loops(variants, o.requests * o.chunks)


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--engine", action="store_true")
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--requests", type=int, default=2)
    p.add_argument("--chunks", type=int, default=4)
    p.add_argument("--dense", type=int, default=LAYERS)
    p.add_argument("--cpu-gib", type=float, default=0.5)
    p.add_argument("--direct", action="store_true", help="O_DIRECT")
    p.add_argument("--other", action="append", default=[], metavar="NAME=DIR")
    p.add_argument("variants", nargs="+", metavar="NAME=DIR")
    o = p.parse_args()
    if o.engine:
        o.dir = o.variants[0].split("=", 1)[1]
    return o


if __name__ == "__main__":
    o = parse()
    if o.engine:
        engine_main(o)
    else:
        main(o)
