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
`layout`, `tp`, `tokens`), and the options of kvpool.Pool. L2Adapter also has `lock`,
which is what a look-up does with the objects that it found until they are unlocked:
"touch" (the default) fetches them and keeps them for a while; "pin" has them evicted
after all others, for `lock_seconds` (60) at most; "none" does nothing. Its
`max_capacity_gb` is for LMCache's own accounting and eviction; the pool evicts without
it.
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
    """The interface of LMCache's native connectors: one descriptor, and completions to
    drain. Errors of the pool are results of the keys; only wrong parameters raise.
    Thread: any; one drains."""

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
        """Is there a connection? Without one, every look-up misses."""
        return self._transfers.ns is not None

    def event_fd(self) -> int:
        """Readable when there are completions. To be polled, never read."""
        return self._transfers.fileno()

    def submit_batch_set(self, keys: list[str], bufs: list[memoryview]) -> int:
        """Returns the number of its completion, as all submit_ methods do."""
        return self._transfers.submit(Call.PUT_FROM, keys, bufs).id

    def submit_batch_get(self, keys: list[str], bufs: list[memoryview]) -> int:
        """Only objects that have exactly the size of their buffers."""
        return self._transfers.submit(Call.GET_INTO, keys, bufs, exact=True).id

    def submit_batch_exists(self, keys: list[str]) -> int:
        """Also does what `lock` says with the objects that exist."""
        there = self.exists(keys)
        found = [k for k, is_there in zip(keys, there) if is_there]
        if self._lock == "pin" and found:
            # An object that cannot be kept exists all the same.
            return self._transfers.submit(
                Call.PIN, found, context=there, seconds=self._lock_seconds
            ).id
        self.touch(found)
        return self._transfers.answer(Call.EXISTS, there).id

    @property
    def answers_at_once(self) -> bool:
        """Does a look-up wait for exists() alone?"""
        return self._lock != "pin"

    def exists(self, keys: list[str]) -> list[bool]:
        """From this process's memory."""
        return self._transfers.exists(keys)

    def touch(self, found: list[str]) -> None:
        """Does what `lock` says with the objects found; nothing waits for it."""
        if self._lock == "touch" and found:
            self._transfers.submit(Call.TOUCH, found)

    def submit_batch_delete(self, keys: list[str]) -> int:
        """Removes the objects from the whole pool."""
        return self._transfers.submit(Call.REMOVE, keys).id

    def unlock(self, keys: list[str]) -> None:
        """Ends the pins; nothing waits for it."""
        if self._lock == "pin" and keys:
            self._transfers.submit(Call.UNPIN, keys)

    def drain_completions(self) -> list[tuple[int, bool, str, list[bool] | None]]:
        """(number, all succeeded?, error text, result of each key) for each."""
        return [
            _completion(t)
            for t in self._transfers.completed()
            if t.call not in _UNASKED
        ]

    def register(self, memory: Memory) -> None:
        """Registers memory ahead of its first use, which would do it otherwise."""
        self._transfers.session.cover([memory])

    def close(self) -> None:
        """Waits for requests in flight, which can be drained afterwards, too."""
        self._transfers.close()


def _completion(t: Transfer) -> tuple[int, bool, str, list[bool] | None]:
    if t.call in (Call.EXISTS, Call.PIN):
        there = t.results if t.call == Call.EXISTS else t.context
        return t.id, True, "", [r > 0 for r in there]
    good = [r >= 0 for r in t.results]
    return t.id, all(good), t.error, good


class L2Adapter(NativeConnectorL2Adapter):
    """NativeClient, driven by LMCache's own class for native connectors; LMCache's
    locks also lock in the pool."""

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
        """Answered at once from this process's memory, and not by the thread that
        drains, which would wait for the interpreter's lock."""
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
        """Also releases the pool's locks of objects that no other look-up holds."""
        super().submit_unlock(keys)
        with self._lock:
            free = [k for k in keys if k not in self._locked_keys]
        self._kvpool.unlock(list(map(_object_key_to_string, free)))

    def report_status(self) -> dict[str, Any]:
        """Adds `connected`; it is healthy only if connected."""
        connected = self._kvpool.connected
        status = {**super().report_status(), "connected": connected}
        status["is_healthy"] = status["is_healthy"] and connected
        return status
