"""The pool as a secondary tier of vLLM's OffloadingConnector, behind its CPU tier:

    --kv-transfer-config '{"kv_connector": "OffloadingConnector",
      "kv_role": "kv_both", "kv_connector_extra_config": {
        "spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 10737418240,
        "secondary_tiers": [{"type": "KVPoolTier", "module_path": "kvpool.vllm",
                             "at": "10.0.0.1:7070", "namespace": "vllm"}]}}'

An entry may also have the options of kvpool.Pool, and `enable_kv_events`, `locality`
and `backpressure` as vLLM's own tiers.

Chunks move between the CPU tier's memory and the pool without another copy. Chunks of
different models, types, layouts or parallelisms are in different directories below
`namespace`, named as vLLM's fs tier names them.
"""

import errno
import select
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from vllm.logger import init_logger
from vllm.v1.kv_offload.base import (
    Locality,
    LookupResult,
    Medium,
    OffloadingEvent,
    OffloadKey,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
)
from vllm.v1.kv_offload.file_mapper import FileMapper
from vllm.v1.kv_offload.tiering.async_lookup import AsyncLookupManager
from vllm.v1.kv_offload.tiering.backpressure import BackpressureDetector
from vllm.v1.kv_offload.tiering.base import (
    JobResult,
    SecondaryTierManager,
    TransferJob,
)

from kvpool.memory import memory_of
from kvpool.pool import Call
from kvpool.transfers import Transfer, Transfers

if TYPE_CHECKING:
    from vllm.v1.kv_offload.base import OffloadingSpec

logger = init_logger(__name__)

_THERE = -errno.EEXIST  # a chunk that somebody stored before: the same bytes


def _names(keys: Iterable[OffloadKey]) -> list[str]:
    return list(map(bytes.hex, keys))


class _Lookups(AsyncLookupManager):
    """Looks up a step's keys in one call; results are kept as long as the requests."""

    def __init__(self, transfers: Transfers, tier_type: str) -> None:
        self._transfers = transfers
        super().__init__(tier_type=tier_type)

    def batch_lookup(
        self, keys: list[OffloadKey], req_context: ReqContext
    ) -> Iterable[bool]:
        """Thread: the manager's own."""
        return self._transfers.exists(_names(keys))


class KVPoolTier(SecondaryTierManager):
    """Thread: the scheduler's."""

    medium: ClassVar[Medium] = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: "OffloadingSpec",
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: BackpressureDetector | None = None,
        *,
        at: str,
        namespace: str,
        locality: str | None = None,
        enable_kv_events: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(
            offloading_spec, primary_kv_view, tier_type, backpressure_detector
        )
        self.locality = Locality(locality) if locality is not None else None
        self._events: list[OffloadingEvent] | None = None
        if enable_kv_events and offloading_spec.kv_events_config.enable_kv_cache_events:
            self._events = []
        self._memory = memory_of(primary_kv_view, writable=True)
        mapper = FileMapper.from_offloading_spec(
            root_dir=namespace,
            offloading_spec=offloading_spec,
            blocks_per_file=offloading_spec.blocks_per_chunk,
            parallel_agnostic=True,
        )
        self._transfers = Transfers(at, f"{mapper.base_path}_r{mapper.rank}", **options)
        self._finished: list[JobResult] = []
        self._lookups = _Lookups(self._transfers, tier_type)
        self._transfers.session.cover([self._memory])

    # ---- look-ups ----

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        """There is no preference."""
        return RequestOffloadingContext()

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        """RETRY until the look-ups of this step have been answered."""
        found = self._lookups.lookup(key, req_context)
        if found is None:
            return LookupResult.RETRY
        return LookupResult.HIT if found else LookupResult.MISS

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        """Passes the step's look-ups to their thread."""
        self._lookups.flush()

    def on_request_finished(self, req_context: ReqContext) -> None:
        """Forgets the request's look-up results."""
        self._lookups.cleanup(req_context.req_id)

    # ---- jobs ----

    def submit_store(self, job_metadata: TransferJob) -> None:
        """Existing chunks are not stored again: a key identifies its content."""
        self._submit(Call.PUT_FROM, job_metadata, if_absent=True)

    def submit_load(self, job_metadata: TransferJob) -> None:
        """Loads each chunk whole, or not at all."""
        self._submit(Call.GET_INTO, job_metadata, exact=True)

    def _submit(self, call: Call, job: TransferJob, **options: bool) -> None:
        size = self.block_size_bytes
        chunks = [
            self._memory[int(i) * size : (int(i) + 1) * size] for i in job.chunk_ids
        ]
        self._transfers.submit(call, _names(job.keys), chunks, context=job, **options)

    def get_finished_jobs(self) -> Iterable[JobResult]:
        """Returns each job once. vLLM keeps stepping, and calling this, while it knows
        of an unfinished job, so has_pending_work is not needed."""
        self._collect()
        finished, self._finished = self._finished, []
        return finished

    def _collect(self) -> None:
        for transfer in self._transfers.completed():
            store = transfer.call == Call.PUT_FROM
            self._finished.append(
                self._stored(transfer) if store else self._loaded(transfer)
            )

    def _stored(self, transfer: Transfer) -> JobResult:
        job: TransferJob = transfer.context
        success = all(r >= 0 or r == _THERE for r in transfer.results)
        if not success:
            logger.debug("store job %d: %s", job.job_id, transfer.error)
        elif self._events is not None:
            self._events.append(
                OffloadingEvent(
                    keys=list(job.keys),
                    medium=self.medium,
                    removed=False,
                    locality=self.locality,
                )
            )
        return self._result(transfer, success)

    def _loaded(self, transfer: Transfer) -> JobResult:
        job: TransferJob = transfer.context
        keys = list(job.keys)
        failed = [k for k, r in zip(keys, transfer.results) if r < 0]
        # They count as misses from now on, or the request would retry for ever.
        self._lookups.mark_miss(failed)
        if not failed:
            return self._result(transfer, True)
        logger.debug("load job %d: %s", job.job_id, transfer.error)
        good = tuple(k for k, r in zip(keys, transfer.results) if r >= 0)
        return self._result(transfer, False, good or None)

    def _result(
        self,
        transfer: Transfer,
        success: bool,
        successful_keys: tuple[OffloadKey, ...] | None = None,
    ) -> JobResult:
        return JobResult(
            job_id=transfer.context.job_id,
            success=success,
            successful_keys=successful_keys,
            transfer_time=transfer.seconds,
            transfer_bytes=len(transfer.results) * self.block_size_bytes,
        )

    def drain_jobs(self) -> None:
        """Waits for all jobs; get_finished_jobs returns them."""
        poll = select.poll()
        poll.register(self._transfers.fileno(), select.POLLIN)
        while not self._transfers.idle:
            poll.poll(1000)
            self._collect()

    def take_events(self) -> Iterable[OffloadingEvent]:
        """The events of stored chunks, with enable_kv_events."""
        if self._events is not None:
            yield from self._events
            self._events.clear()

    def shutdown(self) -> None:
        """Waits for jobs in flight."""
        self._lookups.shutdown()
        self._transfers.close()
