"""Batches in flight for an engine: submitted as a whole, transferred in parallel parts,
completed as a whole; each key always gets a result.
"""

import errno
import itertools
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from kvpool.errors import strerror
from kvpool.memory import Bufferlike, Keylike, Memory, usable
from kvpool.pool import Call, Namespace, Pool
from kvpool.session import Session

logger = logging.getLogger("kvpool")

SPLIT = 4 << 20  # bytes that are worth another thread
THREADS = 4


class _EventFd:
    """A descriptor that is readable when signal() was called or, once there is a pool
    (follow), when it has completions. To be polled, never read."""

    def __init__(self) -> None:
        self._own = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # type: ignore[attr-defined]
        self._both = select.epoll()
        self._both.register(self._own, select.EPOLLIN)
        self._lock = threading.Lock()
        self._closed = False

    def fileno(self) -> int:
        return self._both.fileno()

    def follow(self, pool: Pool) -> None:
        self._both.register(pool.event_fd, select.EPOLLIN)

    def signal(self) -> None:
        with self._lock:
            if not self._closed:
                os.eventfd_write(self._own, 1)  # type: ignore[attr-defined]

    def clear(self) -> None:
        with self._lock:
            if self._closed:
                return
            try:
                os.eventfd_read(self._own)  # type: ignore[attr-defined]
            except BlockingIOError:
                pass

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._both.close()
            os.close(self._own)


class Transfer:
    """A batch. Once it has completed, `results` has the call's result for each key, >=
    0 or a negative errno."""

    __slots__ = ("id", "call", "context", "results", "seconds", "_begin", "_left")

    def __init__(self, number: int, call: Call, n: int, context: Any) -> None:
        self.id = number
        self.call = call
        self.context: Any = context  # the caller's
        self.results = [-errno.EHOSTDOWN] * n
        self.seconds = 0.0  # from its submission till it was found completed
        self._begin = time.monotonic()
        self._left = 0  # parts, under Transfers' lock

    @property
    def error(self) -> str:
        """The error text of the first key that failed."""
        return next((strerror(r) for r in self.results if r < 0), "")


class Transfers:
    """Thread: any may submit; one calls completed()."""

    def __init__(
        self, at: str, namespace: str, *, threads: int = THREADS, **options: Any
    ) -> None:
        self._threads = max(1, threads)
        self._fd = _EventFd()
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._done: deque[Transfer] = deque()
        self._under_way = 0  # not taken yet
        self._parts = 0  # that the library has
        self._closing = False
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

    def end(self) -> None:
        """Refuses new transfers, and waits until those in flight have ended;
        completed() returns them."""
        with self._lock:
            self._closing = True
        ns = self.ns
        if not ns:
            return
        poll = select.poll()
        poll.register(ns.pool.event_fd, select.POLLIN)
        while self._parts and not ns.pool.closed:
            # completed(), on another thread, may have taken the last one.
            poll.poll(100)
            if self._take():
                self._fd.signal()

    def close(self) -> None:
        """Waits for transfers in flight; completed() returns them, also later."""
        self.end()
        self.session.close()
        self._fd.close()

    # ---- answered at once, from this process's memory ----

    def exists(self, keys: Sequence[Keylike]) -> list[bool]:
        """Which keys exist? False for keys that cannot be looked up."""
        ns = self.ns
        if not ns or self._closing:
            return [False] * len(keys)
        try:
            return [r > 0 for r in ns.batch_exists(keys)]
        except Exception as e:
            logger.warning("a look-up: %s", e)
            return [False] * len(keys)

    def exists_prefix(self, keys: Sequence[Keylike]) -> int:
        """How many leading keys are there?"""
        ns = self.ns
        if not ns or self._closing:
            return 0
        try:
            return ns.exists_prefix(keys)
        except Exception as e:
            logger.warning("a look-up: %s", e)
            return 0

    # ---- transfers ----

    def submit(
        self,
        call: Call,
        keys: Sequence[Keylike],
        buffers: Iterable[Bufferlike] | None = None,
        *,
        context: object = None,
        **options: Any,
    ) -> Transfer:
        """As Namespace.submit, on memory that need not be registered. Every error is a
        result."""
        transfer = Transfer(next(self._numbers), call, len(keys), context)
        ns = self.ns
        memory: list[Memory] | None = None
        parts = 1
        with self._lock:
            self._under_way += 1
        try:
            if buffers is not None:
                memory = [usable(b, call == Call.GET_INTO) for b in buffers]
                if len(memory) != len(keys):
                    raise ValueError(f"{len(keys)} keys and {len(memory)} buffers")
                self.session.cover(memory)
                size = sum(m.length for m in memory)
                parts = max(1, min(self._threads, len(keys), size // SPLIT + 1))
        except Exception as e:
            return self._failed(transfer, e, 0, len(keys))
        if not ns or not keys or not self._begins(parts):
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
                with self._lock:
                    self._parts -= 1
        return transfer

    def _begins(self, parts: int) -> bool:
        with self._lock:
            if not self._closing:
                self._parts += parts
            return not self._closing

    def _failed(
        self, transfer: Transfer, error: Exception | None, begin: int, end: int
    ) -> Transfer:
        code = getattr(error, "errno", None) or errno.EINVAL
        transfer.results[begin:end] = [-code] * (end - begin)
        self._part_ended(transfer)
        self._fd.signal()
        return transfer

    def answer(self, call: Call, results: Sequence[int]) -> Transfer:
        """A transfer that has completed already, with these results."""
        transfer = Transfer(next(self._numbers), call, 0, None)
        transfer.results = list(results)
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

    def _take(self) -> bool:
        """Takes the library's completions, for completed(). False: there were none."""
        ns = self.ns
        if not ns or not self._parts or ns.pool.closed:
            return False
        requests = ns.pool.completed()
        for request in requests:
            transfer, begin = request.context
            results = request.results or []
            transfer.results[begin : begin + len(results)] = results
            self._part_ended(transfer)
            with self._lock:
                self._parts -= 1
        return bool(requests)

    def completed(self) -> list[Transfer]:
        """The completed transfers, each once. Never waits."""
        self._fd.clear()
        self._take()
        done = []
        with self._lock:
            while self._done:
                done.append(self._done.popleft())
            self._under_way -= len(done)
        return done

    @property
    def idle(self) -> bool:
        """Has completed() returned all transfers?"""
        return self._under_way == 0
