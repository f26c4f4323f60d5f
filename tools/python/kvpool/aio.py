"""The calls for many keys, awaited: for programs of asyncio.

    pool = kvpool.aio.AsyncPool(kvpool.Pool("/mnt/kvpool"))
    results = await pool.get_into(ns, keys, buffers)
    there = await pool.exists_prefix(ns, keys)

Requests of the pool are completed by the event loop it was made on, which
watches the pool's descriptor: so nobody else may take its completions. A task
that is cancelled leaves its request under way, and its buffers in use.
"""

import asyncio
from collections.abc import Iterable

from kvpool.errors import error_of
from kvpool.memory import Bufferlike, Keylike
from kvpool.pool import Call, Namespace, Pool


class AsyncPool:
    """Thread: the event loop's."""

    def __init__(
        self, pool: Pool, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.pool = pool
        self._loop = loop or asyncio.get_running_loop()
        self._loop.add_reader(pool.event_fd, self._completed)

    def close(self) -> None:
        """The pool stays open."""
        self._loop.remove_reader(self.pool.event_fd)

    def _completed(self) -> None:
        for request in self.pool.completed():
            future = request.context
            assert isinstance(future, asyncio.Future)
            if future.done():
                continue  # cancelled
            if request.result < 0:
                future.set_exception(error_of(request.result))
            elif request.call == Call.EXISTS_PREFIX:
                future.set_result(request.result)
            else:
                future.set_result(request.results)

    async def _call(self, ns: Namespace, call: Call, keys, buffers=None, **options):
        future = self._loop.create_future()
        ns.submit(call, keys, buffers, context=future, **options)
        return await future

    async def put_from(
        self,
        ns: Namespace,
        keys: Iterable[Keylike],
        buffers: Iterable[Bufferlike],
        *,
        if_absent: bool = False,
        sync: bool = False,
    ) -> list[int]:
        return await self._call(
            ns, Call.PUT_FROM, keys, buffers, if_absent=if_absent, sync=sync
        )

    async def get_into(
        self,
        ns: Namespace,
        keys: Iterable[Keylike],
        buffers: Iterable[Bufferlike],
        *,
        exact: bool = False,
    ) -> list[int]:
        return await self._call(ns, Call.GET_INTO, keys, buffers, exact=exact)

    async def get_size(self, ns: Namespace, keys: Iterable[Keylike]) -> list[int]:
        return await self._call(ns, Call.GET_SIZE, keys)

    async def exists(self, ns: Namespace, keys: Iterable[Keylike]) -> list[int]:
        return await self._call(ns, Call.EXISTS, keys)

    async def exists_prefix(self, ns: Namespace, keys: Iterable[Keylike]) -> int:
        return await self._call(ns, Call.EXISTS_PREFIX, keys)

    async def remove(self, ns: Namespace, keys: Iterable[Keylike]) -> list[int]:
        return await self._call(ns, Call.REMOVE, keys)

    async def touch(self, ns: Namespace, keys: Iterable[Keylike]) -> list[int]:
        return await self._call(ns, Call.TOUCH, keys)

    async def pin(
        self, ns: Namespace, keys: Iterable[Keylike], seconds: int = 0
    ) -> list[int]:
        return await self._call(ns, Call.PIN, keys, seconds=seconds)

    async def unpin(self, ns: Namespace, keys: Iterable[Keylike]) -> list[int]:
        return await self._call(ns, Call.UNPIN, keys)
