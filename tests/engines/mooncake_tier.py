"""Mooncake Store as a secondary tier of vLLM's OffloadingConnector, for
comparisons: chunks move between the CPU tier's memory and the store by its own
batch calls on registered memory, on threads as in vLLM's tier for files. The
process is a client without a segment: another holds what is stored.

    {"type": "MooncakeTier", "module_path": "mooncake_tier", "at": "HOST:PORT"}
"""

import ctypes
import hashlib
import time
from concurrent.futures import ThreadPoolExecutor

from vllm.v1.kv_offload.base import (
    LookupResult,
    Medium,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.file_mapper import FileMapper
from vllm.v1.kv_offload.tiering.async_lookup import AsyncLookupManager
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager


def connect(at, segment=0, buffer=64 << 20):
    from mooncake.store import MooncakeDistributedStore

    store = MooncakeDistributedStore()
    rc = store.setup("127.0.0.1", "P2PHANDSHAKE", segment, buffer, "tcp", "", at)
    if rc:
        raise ConnectionError(f"Mooncake at {at}: {rc}")
    return store


class Lookups(AsyncLookupManager):
    def __init__(self, tier, tier_type):
        self.tier = tier
        super().__init__(tier_type=tier_type)

    def batch_lookup(self, keys, req_context):
        return [r == 1 for r in self.tier.store.batch_is_exist(self.tier.names(keys))]


class MooncakeTier(SecondaryTierManager):
    medium = Medium.STORAGE

    def __init__(
        self,
        offloading_spec,
        primary_kv_view,
        tier_type,
        backpressure_detector=None,
        *,
        at,
        locality=None,
        threads=4,
    ):
        super().__init__(
            offloading_spec, primary_kv_view, tier_type, backpressure_detector
        )
        mapper = FileMapper.from_offloading_spec(
            root_dir="",
            offloading_spec=offloading_spec,
            blocks_per_file=offloading_spec.blocks_per_chunk,
            parallel_agnostic=True,
        )
        self.prefix = hashlib.sha256(mapper.base_path.encode()).hexdigest()[:12]
        self.store = connect(at)
        self.memory = memoryview(primary_kv_view).cast("B")
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        rc = self.store.register_buffer(self.address, self.memory.nbytes)
        if rc:
            raise OSError(f"register_buffer: {rc}")
        self.lookups = Lookups(self, tier_type)
        self.threads = ThreadPoolExecutor(threads)
        self.jobs = []

    def names(self, keys):
        return [f"{self.prefix}/{bytes(key).hex()}" for key in keys]

    def on_new_request(self, req_context):
        return RequestOffloadingContext()

    def lookup(self, key, req_context):
        found = self.lookups.lookup(key, req_context)
        if found is None:
            return LookupResult.RETRY
        return LookupResult.HIT if found else LookupResult.MISS

    def on_schedule_end(self, context):
        self.lookups.flush()

    def on_request_finished(self, req_context):
        self.lookups.cleanup(req_context.req_id)

    def submit_store(self, job):
        self.submit(self.store.batch_put_from, job)

    def submit_load(self, job):
        self.submit(self.store.batch_get_into, job)

    def submit(self, call, job):
        self.jobs.append((job, self.threads.submit(self.move, call, job)))

    def move(self, call, job):
        begin = time.monotonic()
        size = self.block_size_bytes
        places = [self.address + int(i) * size for i in job.chunk_ids]
        results = call(self.names(job.keys), places, [size] * len(places))
        return results, time.monotonic() - begin

    def get_finished_jobs(self):
        done = [(job, future) for job, future in self.jobs if future.done()]
        self.jobs = [(job, future) for job, future in self.jobs if not future.done()]
        return [self.result(job, future) for job, future in done]

    def result(self, job, future):
        results, seconds = future.result()
        keys = list(job.keys)
        good = tuple(k for k, r in zip(keys, results) if r >= 0)
        failed = [k for k, r in zip(keys, results) if r < 0]
        if failed:
            self.lookups.mark_miss(failed)
        return JobResult(
            job_id=job.job_id,
            success=not failed,
            successful_keys=good if failed and good else None,
            transfer_time=seconds,
            transfer_bytes=len(good) * self.block_size_bytes,
        )

    def drain_jobs(self):
        for _, future in self.jobs:
            future.exception()

    def shutdown(self):
        self.drain_jobs()
        self.lookups.shutdown()
        self.threads.shutdown()
        self.store.close()
