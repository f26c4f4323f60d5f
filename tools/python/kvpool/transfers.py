"""Batches under way for an engine: submitted whole, moved in parts side by side,
completed whole, with a result for each key whatever happens.
"""

import errno
import itertools
import os
import select
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from kvpool.errors import Error, strerror
from kvpool.memory import Bufferlike, Keylike, memory_of
from kvpool.pool import Call, Namespace, Pool
from kvpool.session import Session

SPLIT = 4 << 20  # bytes that are worth another thread
THREADS = 4


class _EventFd:
    """A descriptor that is readable when this was signalled, or the pool has
    completions: whichever pool, once there is one. Polled, never read."""

    def __init__(self) -> None:
        self._own = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._both = select.epoll()
        self._both.register(self._own, select.EPOLLIN)

    def fileno(self) -> int:
        return self._both.fileno()

    def follow(self, pool: Pool) -> None:
        self._both.register(pool.event_fd, select.EPOLLIN)

    def signal(self) -> None:
        os.eventfd_write(self._own, 1)

    def clear(self) -> None:
        try:
            os.eventfd_read(self._own)
        except BlockingIOError:
            pass

    def close(self) -> None:
        self._both.close()
        os.close(self._own)


class Transfer:
    """A batch. Once it has completed, `results` has what the call gave for each
    key, >= 0 or a negative errno."""

    __slots__ = ("id", "call", "context", "results", "seconds", "_begin", "_left")

    def __init__(self, number: int, call: Call, n: int, context: object) -> None:
        self.id = number
        self.call = call
        self.context = context  # the caller's
        self.results = [-errno.EHOSTDOWN] * n
        self.seconds = 0.0  # from its submission till it was found completed
        self._begin = time.monotonic()
        self._left = 0  # parts, under Transfers' lock

    @property
    def error(self) -> str:
        """Of the first key that has one."""
        return next((strerror(r) for r in self.results if r < 0), "")


class Transfers:
    """Thread: any may submit; one takes what has completed."""

    def __init__(
        self, at: str, namespace: str, *, threads: int = THREADS, **options: Any
    ) -> None:
        self._threads = max(1, threads)
        self._fd = _EventFd()
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._done: deque[Transfer] = deque()
        self._under_way = 0
        try:
            self.session = Session(
                at,
                namespace,
                threads=self._threads,
                on_connected=lambda ns: self._fd.follow(ns.pool),
                **options,
            )
        except BaseException:
            self._fd.close()
            raise

    @property
    def ns(self) -> Namespace | None:
        """None while there is no connection."""
        return self.session.ns

    def fileno(self) -> int:
        """To be polled, not read: readable when something has completed."""
        return self._fd.fileno()

    def close(self) -> None:
        """What is under way ends first."""
        self.session.close()
        self._fd.close()

    # ---- answered at once, from this process's memory ----

    def exists(self, keys: Sequence[Keylike]) -> list[bool]:
        """A key that cannot be asked for is not there."""
        try:
            return [r > 0 for r in self.ns.batch_exists(keys)] if self.ns else (
                [False] * len(keys)
            )
        except Error:
            return [False] * len(keys)

    def exists_prefix(self, keys: Sequence[Keylike]) -> int:
        try:
            return self.ns.exists_prefix(keys) if self.ns else 0
        except Error:
            return 0

    # ---- under way ----

    def submit(
        self,
        call: Call,
        keys: Sequence[Keylike],
        buffers: Iterable[Bufferlike] | None = None,
        *,
        context: object = None,
        **options: Any,
    ) -> Transfer:
        """As Namespace.submit, on memory that need not be registered. Whatever
        goes wrong is a result."""
        transfer = Transfer(next(self._numbers), call, len(keys), context)
        ns, memory, parts = self.ns, None, 1
        with self._lock:
            self._under_way += 1
        try:
            if buffers is not None:
                memory = [memory_of(b, call == Call.GET_INTO) for b in buffers]
                if len(memory) != len(keys):
                    raise ValueError(f"{len(keys)} keys and {len(memory)} buffers")
                if ns:
                    self.session.regions.cover(memory)
                size = sum(m.length for m in memory)
                parts = max(1, min(self._threads, len(keys), size // SPLIT + 1))
        except Exception as e:
            return self._failed(transfer, e, 0, len(keys))
        if not ns or not keys:
            return self._failed(transfer, None, 0, 0)
        transfer._left = parts
        for i in range(parts):
            begin, end = i * len(keys) // parts, (i + 1) * len(keys) // parts
            try:
                ns.submit(
                    call,
                    keys[begin:end],
                    memory[begin:end] if memory is not None else None,
                    context=(transfer, begin),
                    **options,
                )
            except Exception as e:
                self._failed(transfer, e, begin, end)
        return transfer

    def _failed(
        self, transfer: Transfer, error: Exception | None, begin: int, end: int
    ) -> Transfer:
        code = getattr(error, "errno", None) or errno.EINVAL
        transfer.results[begin:end] = [-code] * (end - begin)
        self._part_ended(transfer)
        self._fd.signal()
        return transfer

    def answer(self, call: Call, results: list[int]) -> Transfer:
        """One that has completed already."""
        transfer = Transfer(next(self._numbers), call, 0, None)
        transfer.results = results
        with self._lock:
            self._under_way += 1
        self._part_ended(transfer)
        self._fd.signal()
        return transfer

    def _part_ended(self, transfer: Transfer) -> None:
        with self._lock:
            transfer._left -= 1
            if transfer._left <= 0:
                transfer.seconds = time.monotonic() - transfer._begin
                self._done.append(transfer)

    def completed(self) -> list[Transfer]:
        """Each of them once. Never waits."""
        self._fd.clear()
        ns = self.ns
        requests = ns.pool.completed() if ns and not ns.pool.closed else []
        for request in requests:
            transfer, begin = request.context
            transfer.results[begin : begin + len(request.results)] = request.results
            self._part_ended(transfer)
        done = []
        with self._lock:
            while self._done:
                done.append(self._done.popleft())
            self._under_way -= len(done)
        return done

    @property
    def idle(self) -> bool:
        return self._under_way == 0
