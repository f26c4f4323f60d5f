"""LMCache's multi-process server on the pool: its L2 adapters, in two forms, each
for `lmcache server --l2-adapter JSON`:

    {"type": "native_plugin", "module_path": "kvpool.lmcache",
     "class_name": "NativeClient",
     "adapter_params": {"at": "10.0.0.1:7070", "namespace": "lmcache"}}

    {"type": "plugin", "module_path": "kvpool.lmcache",
     "class_name": "L2Adapter",
     "adapter_params": {"at": "10.0.0.1:7070", "namespace": "lmcache",
                        "lock": "pin"}}

adapter_params: `at`, `namespace`, `layout` (an object with `model`, `dtype`,
`layout`, `tp`, `tokens`), and the options of kvpool.Pool. Of L2Adapter also `lock`,
which is what a look-up does to what it found, till that is unlocked: "touch" (the
default) has it fetched and kept a while; "pin" has it evicted after all others,
for `lock_seconds` (60) at most; "none", nothing. And `max_capacity_gb`, which is
for LMCache's own accounts and eviction; the pool evicts without.
"""

from typing import TYPE_CHECKING, Any

from lmcache.lmcache_native import Bitmap
from lmcache.v1.distributed.l2_adapters.native_connector_l2_adapter import (
    NativeConnectorL2Adapter,
    _object_key_to_string,
)

from kvpool.memory import Memory
from kvpool.pool import Call
from kvpool.transfers import Transfer, Transfers

if TYPE_CHECKING:
    from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
    from lmcache.v1.distributed.internal_api import L1MemoryDesc
    from lmcache.v1.distributed.l2_adapters.base import L2TaskId

LOCKS = ("touch", "pin", "none")
_UNASKED = (Call.TOUCH, Call.UNPIN)  # nobody waits for them


class NativeClient:
    """What LMCache's native connectors are: one descriptor, and completions that
    are drained. What goes wrong in the pool is said of the keys; nothing is
    raised, but by wrong parameters. Thread: any; one drains."""

    def __init__(
        self,
        at: str,
        namespace: str,
        *,
        lock: str = "none",
        lock_seconds: int = 60,
        **options: Any,
    ) -> None:
        if lock not in LOCKS:
            raise ValueError(f"lock is {lock!r}, and may be one of {LOCKS}")
        self._lock = lock
        self._lock_seconds = lock_seconds
        self._transfers = Transfers(at, namespace, **options)

    @property
    def connected(self) -> bool:
        """As long as it is not, all are misses."""
        return self._transfers.ns is not None

    def event_fd(self) -> int:
        """Readable when there are completions. Polled, never read."""
        return self._transfers.fileno()

    def submit_batch_set(self, keys: list[str], bufs: list[memoryview]) -> int:
        """The number of its completion, as of all that is submitted."""
        return self._transfers.submit(Call.PUT_FROM, keys, bufs).id

    def submit_batch_get(self, keys: list[str], bufs: list[memoryview]) -> int:
        """Objects of just the buffers' sizes."""
        return self._transfers.submit(Call.GET_INTO, keys, bufs, exact=True).id

    def submit_batch_exists(self, keys: list[str]) -> int:
        """With what `lock` does to those that are there."""
        there = self.exists(keys)
        found = [k for k, is_there in zip(keys, there) if is_there]
        if self._lock == "pin" and found:
            # What cannot be kept is there all the same.
            return self._transfers.submit(
                Call.PIN, found, context=there, seconds=self._lock_seconds
            ).id
        self.touch(found)
        return self._transfers.answer(Call.EXISTS, there).id

    @property
    def answers_at_once(self) -> bool:
        """Is exists() all that a look-up waits for?"""
        return self._lock != "pin"

    def exists(self, keys: list[str]) -> list[bool]:
        """From this process's memory."""
        return self._transfers.exists(keys)

    def touch(self, found: list[str]) -> None:
        """What `lock` has done to what a look-up found, and nobody waits for."""
        if self._lock == "touch" and found:
            self._transfers.submit(Call.TOUCH, found)

    def submit_batch_delete(self, keys: list[str]) -> int:
        """From the whole pool."""
        return self._transfers.submit(Call.REMOVE, keys).id

    def unlock(self, keys: list[str]) -> None:
        """The end of a pin; nobody waits for it."""
        if self._lock == "pin" and keys:
            self._transfers.submit(Call.UNPIN, keys)

    def drain_completions(self) -> list[tuple[int, bool, str, list[bool] | None]]:
        """Number, all good?, an error's text, and each key's result."""
        return [
            _completion(t)
            for t in self._transfers.completed()
            if t.call not in _UNASKED
        ]

    def register(self, memory: Memory) -> None:
        """Before it is used, which does it, too."""
        self._transfers.session.cover([memory])

    def close(self) -> None:
        """What is under way ends first, and is drained also afterwards."""
        self._transfers.close()


def _completion(t: Transfer) -> tuple[int, bool, str, list[bool] | None]:
    if t.call in (Call.EXISTS, Call.PIN):
        there = t.results if t.call == Call.EXISTS else t.context
        return t.id, True, "", [r > 0 for r in there]
    good = [r >= 0 for r in t.results]
    return t.id, all(good), t.error, good


class L2Adapter(NativeConnectorL2Adapter):
    """The same as LMCache's own class for native connectors drives it, and its
    locks are the pool's, too."""

    def __init__(
        self, params: dict[str, Any], l1_memory_desc: "L1MemoryDesc | None" = None
    ) -> None:
        params = {"lock": "touch", **params}
        capacity = params.pop("max_capacity_gb", 0)
        self._kvpool = NativeClient(**params)
        if l1_memory_desc and l1_memory_desc.size:
            self._kvpool.register(Memory(l1_memory_desc.ptr, l1_memory_desc.size))
        super().__init__(self._kvpool, max_capacity_gb=capacity, type_name="kvpool")

    def submit_lookup_and_lock_task(
        self,
        keys: "list[ObjectKey]",
        group_layout_descs: "dict[int, MemoryLayoutDesc]",
    ) -> "L2TaskId":
        """Answered here and now, from this process's memory: not by way of the
        thread that drains, which waits for the interpreter's lock."""
        if not self._kvpool.answers_at_once:
            return super().submit_lookup_and_lock_task(keys, group_layout_descs)
        names = list(map(_object_key_to_string, keys))
        there = self._kvpool.exists(names)
        found = Bitmap(len(keys))
        with self._lock:
            task = self._get_next_task_id()
            for i, is_there in enumerate(there):
                if is_there:
                    found.set(i)
                    self._locked_keys[keys[i]] += 1
            self._completed_lookups[task] = found
        self._lookup_efd.notify()
        self._kvpool.touch([n for n, is_there in zip(names, there) if is_there])
        return task

    def submit_unlock(self, keys: "list[ObjectKey]") -> None:
        """Also of the pool's locks, of what no other look-up holds."""
        super().submit_unlock(keys)
        with self._lock:
            free = [k for k in keys if k not in self._locked_keys]
        self._kvpool.unlock(list(map(_object_key_to_string, free)))

    def report_status(self) -> dict[str, Any]:
        """With `connected`: healthy it is only then."""
        connected = self._kvpool.connected
        status = {**super().report_status(), "connected": connected}
        status["is_healthy"] = status["is_healthy"] and connected
        return status
