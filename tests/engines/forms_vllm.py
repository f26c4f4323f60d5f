"""A secondary tier of vLLM's, its own for file systems (FileSystemTierManager) and
the product's, driven as its scheduler does: look-ups are flushed at the end of a
step and answered later, stores and loads are jobs on chunks of one region."""

import mmap
import os
import random
import time
from types import SimpleNamespace

import numpy
from vllm.v1.kv_offload import config as c
from vllm.v1.kv_offload.base import LookupResult, ReqContext, make_offload_key
from vllm.v1.kv_offload.tiering.base import TransferJob
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

CHUNKS = 8
JOB_S = 60


def offloading_config():
    return c.OffloadingConfig(
        groups=(c.OffloadingGroupConfig(16, ("layer",), 0),),
        worker_kv_bytes_per_block=1 << 20,
        enable_kv_cache_events=False,
        extra_config={},
        engine_id="kvpool-test",
        model=c.OffloadingModelConfig("kvpool/test", "bfloat16"),
        cache=c.OffloadingCacheConfig(tokens_per_hash=16, blocks_per_chunk=1),
        parallel=c.OffloadingParallelConfig(
            rank=0,
            world_size=1,
            tp_size=1,
            pp_size=1,
            pcp_size=1,
            dcp_size=1,
            data_parallel_index=0,
            data_parallel_size=1,
            data_parallel_rank_local=None,
            is_parallelism_agnostic=False,
        ),
    )


class Tier:
    """Of an entry of `secondary_tiers`."""

    def __init__(self, entry):
        self.size = 1 << 20
        self.region = mmap.mmap(-1, CHUNKS * self.size)
        self.chunks = numpy.frombuffer(self.region, numpy.uint8).reshape(
            CHUNKS, self.size
        )
        spec = SimpleNamespace(
            config=offloading_config(),
            blocks_per_chunk=1,
            kv_events_config=SimpleNamespace(enable_kv_cache_events=False),
        )
        self.tier = SecondaryTierFactory.create_secondary_tier(
            entry, memoryview(self.chunks), spec
        )
        self.jobs = 0
        # The names of temporaries are from this generator, one a thread, and the
        # engine seeds it: so they are the same on every node. (With few threads
        # they meet often.)
        random.seed(0)

    def key(self, k):
        # Spread over the directories, as hashes are.
        number = k * 0x9E3779B97F4A7C15 % 2**64
        return make_offload_key(number.to_bytes(32, "little"), 0)

    def job(self, keys, chunk_ids, request, load):
        self.jobs += 1
        return TransferJob(
            self.jobs, keys, numpy.array(chunk_ids, numpy.int32), load, request
        )

    def finished(self, jobs):
        results = {}
        end = time.monotonic() + JOB_S
        while len(results) < len(jobs):
            if time.monotonic() > end:
                raise TimeoutError("no end of a job")
            for r in self.tier.get_finished_jobs():
                results[r.job_id] = r
            time.sleep(0.0005)
        return [results[j.job_id] for j in jobs]

    def store(self, keys, data):
        request = ReqContext("store")
        jobs = []
        for i, (k, d) in enumerate(zip(keys, data)):
            self.chunks[i] = numpy.frombuffer(d, numpy.uint8)
            jobs.append(self.job([self.key(k)], [i], request, False))
            self.tier.submit_store(jobs[-1])
        return [r.success for r in self.finished(jobs)]

    def lookup(self, keys, request):
        verdicts = {}
        end = time.monotonic() + JOB_S
        while len(verdicts) < len(keys):
            if time.monotonic() > end:
                raise TimeoutError("no answer to a look-up")
            for k in keys:
                v = self.tier.lookup(self.key(k), request)
                if v is not LookupResult.RETRY:
                    verdicts[k] = v is LookupResult.HIT
            self.tier.on_schedule_end(None)
            time.sleep(0.0005)
        return verdicts

    def load(self, keys):
        request = ReqContext(f"load{self.jobs}")
        there = self.lookup(keys, request)
        found = [i for i, k in enumerate(keys) if there[k]]
        self.chunks[:] = 0
        jobs = [self.job([self.key(keys[i])], [i], request, True) for i in found]
        for j in jobs:
            self.tier.submit_load(j)
        result = [None] * len(keys)
        for i, r in zip(found, self.finished(jobs)):
            if r.success:
                result[i] = self.chunks[i].tobytes()
        self.tier.on_request_finished(request)
        return result

    def close(self):
        self.tier.shutdown()


class vllm_fs(Tier):
    def __init__(self, directory):
        super().__init__(
            dict(type="fs", root_dir=directory, n_read_threads=1, n_write_threads=1)
        )

    @staticmethod
    def is_object(name):
        return name.endswith(".bin")


class kvpool_vllm(Tier):
    """The product's own: by way of a connection that asks the mount for its
    master."""

    def __init__(self, directory):
        super().__init__(
            dict(
                type="KVPoolTier",
                module_path="kvpool.vllm",
                at=directory,
                namespace=os.path.basename(directory),
                locality="REMOTE",
                buffer_dir=os.environ["KVTEST_BUFFERS"],
                buffer_size="64M",
            )
        )

    @staticmethod
    def is_object(name):
        return len(name) == 72  # hash and group, in hex

    def load(self, keys):
        """In one job, part of which may fail."""
        request = ReqContext(f"together{self.jobs}")
        self.lookup(keys, request)
        self.chunks[:] = 0
        wanted = [self.key(k) for k in keys]
        job = self.job(wanted, range(len(keys)), request, True)
        self.tier.submit_load(job)
        self.tier.drain_jobs()
        (result,) = self.finished([job])
        good = set(wanted if result.success else result.successful_keys or ())
        if not result.success:
            # A lookup then reports the others as misses.
            present = self.lookup(keys, request)
            assert [present[k] for k in keys if self.key(k) not in good].count(True) == 0
        self.tier.on_request_finished(request)
        return [
            self.chunks[i].tobytes() if k in good else None
            for i, k in enumerate(wanted)
        ]
