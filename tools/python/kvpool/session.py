"""Shared by the adapters for engines: a namespace that connects by itself, and memory
that is registered on its first use.

An engine starts and continues without the pool: as long as there is no connection (no
master, no daemon at the mount, no room for the buffer), `Session.ns` is None, look-ups
miss and stores fail. After the first connection, libkvpool itself reconnects to the
master.
"""

import bisect
import errno
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

from kvpool.errors import Error
from kvpool.memory import Memory
from kvpool.pool import Layout, Namespace, Pool

logger = logging.getLogger("kvpool")

FIRST_S = 3.0  # how long an engine's start waits for the master
RETRY_S = 2.0
# Errors of connecting that the caller's parameters cause; others may go away.
FOR_GOOD = (
    errno.EINVAL,
    errno.ENOTDIR,
    errno.EACCES,  # the certificate is for other namespaces
    errno.EMEDIUMTYPE,
    errno.EPERM,  # others may change buffer_dir
)


def _is_for_good(error: Exception) -> bool:
    return not isinstance(error, OSError) or error.errno in FOR_GOOD


class Regions:
    """Registers memory that calls use, as whole mappings of the process, because
    engines do not always tell where their memory is. Thread: any."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._begins: list[int] = []  # sorted
        self._regions: list[Memory] = []  # in their order

    def cover(self, memories: Iterable[Memory]) -> None:
        """If memory cannot be registered, the call reports that for its key."""
        with self._lock:
            for m in memories:
                if m.length and not self._is_covered(m):
                    self._add(m)

    def _is_covered(self, m: Memory) -> bool:
        i = bisect.bisect_right(self._begins, m.address) - 1
        if i < 0:
            return False
        region = self._regions[i]
        return m.address + m.length <= region.address + region.length

    def _add(self, m: Memory) -> None:
        try:
            begin, end = _mapping(m)
        except OSError as e:  # no descriptor is free
            logger.debug("%r is not registered: %s", m, e)
            return
        # They are from an earlier or a smaller mapping.
        for region in list(self._regions):
            if region.address < end and region.address + region.length > begin:
                self._remove(region)
        region = Memory(begin, end - begin)
        try:
            self._pool.register(region)
        except Error as e:
            logger.debug("%r is not registered: %s", m, e)
            return
        i = bisect.bisect(self._begins, begin)
        self._begins.insert(i, begin)
        self._regions.insert(i, region)

    def _remove(self, region: Memory) -> None:
        try:
            self._pool.unregister(region)
        except Error as e:
            logger.debug("%r stays registered: %s", region, e)
            return
        i = self._regions.index(region)
        del self._begins[i], self._regions[i]


def _mapping(m: Memory) -> tuple[int, int]:
    """The contiguous writable memory around m; m itself if there is none."""
    begin = end = 0
    with open("/proc/self/maps", "rb") as maps:
        for line in maps:
            place, rights = line.split(None, 2)[:2]
            low, high = (int(part, 16) for part in place.split(b"-"))
            if not rights.startswith(b"rw"):
                continue
            if low != end:
                if begin <= m.address < end:
                    break
                begin = low
            end = high
    if begin <= m.address and m.address + m.length <= end:
        return begin, end
    return m.address, m.address + m.length


class Session:
    """Thread: any."""

    def __init__(
        self,
        at: str,
        namespace: str,
        *,
        layout: dict[str, Any] | None = None,
        on_connected: Callable[[Namespace], None] | None = None,
        **options: Any,
    ) -> None:
        """at, options: as in Pool. namespace: a directory of the mount. layout: as in
        Layout. on_connected: called before `ns` is set, on this thread or another one.
        Raises errors that retrying cannot solve: wrong options, another layout."""
        self.ns: Namespace | None = None
        self._regions: Regions | None = None
        self._at = at
        self._namespace = namespace
        self._layout = Layout(**layout) if layout else None
        self._options = {"timeout": FIRST_S, **options}
        self._on_connected = on_connected
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        try:
            self._connect()
        except OSError as e:
            if _is_for_good(e):
                raise
            logger.warning("%s: misses until it can be connected to", e)
            self._thread = threading.Thread(
                target=self._try_again,
                args=[str(e)],
                name="kvpool-connect",
                daemon=True,
            )
            self._thread.start()

    def _connect(self) -> None:
        pool = Pool(self._at, **self._options)
        try:
            ns = pool.namespace(self._namespace, self._layout)
            if self._on_connected:
                self._on_connected(ns)
        except BaseException:
            pool.close()
            raise
        self._regions = Regions(pool)
        self.ns = ns
        logger.info("connected to the pool at %s, %r", self._at, ns)

    def _try_again(self, said: str) -> None:
        while not self._ending.wait(RETRY_S):
            try:
                self._connect()
                return
            except Exception as e:
                if _is_for_good(e):
                    logger.error("%s: the pool is not used", e)
                    return
                if str(e) != said:
                    said = str(e)
                    logger.warning("%s: misses until it can be connected to", e)

    def cover(self, memories: Iterable[Memory]) -> None:
        """Registers memory that calls will use. If that fails, the call reports it for
        its key."""
        if self._regions:
            self._regions.cover(memories)

    def close(self) -> None:
        """Waits until stores have what was put, as long as there is progress."""
        self._ending.set()
        if self._thread:
            self._thread.join()
        if self.ns:
            try:
                self.ns.pool.close()
            except Error as e:
                logger.warning("at the end: %s", e)
