"""The calls for many keys, to be awaited in asyncio programs.

    pool = kvpool.aio.AsyncPool(kvpool.Pool("/mnt/kvpool"))
    results = await pool.get_into(ns, keys, buffers)
    there = await pool.exists_prefix(ns, keys)

The event loop on which the AsyncPool was made watches the pool's descriptor and takes
its completions; nothing else may take them. The request of a cancelled task stays in
flight, and its buffers stay in use.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from kvpool.errors import error_of
from kvpool.memory import Bufferlike, Keylike
from kvpool.pool import Call, Namespace, Pool, Request


class AsyncPool:
    """Thread: the event loop's."""

    def __init__(
        self, pool: Pool, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.pool = pool
        self._loop = loop or asyncio.get_running_loop()
        self._loop.add_reader(pool.event_fd, self._completed)

    def close(self) -> None:
        """Stops watching; the pool stays open."""
        self._loop.remove_reader(self.pool.event_fd)

    def _completed(self) -> None:
        for request in self.pool.completed():
            future = request.context
            assert isinstance(future, asyncio.Future)
            if future.done():
                continue  # cancelled
            result = request.result
            if result is not None and result < 0:
                future.set_exception(error_of(result))
            else:
                future.set_result(request)

    async def _call(
        self,
        ns: Namespace,
        call: Call,
        keys: Iterable[Keylike],
        buffers: Iterable[Bufferlike] | None = None,
        **options: Any,
    ) -> Request:
        future: asyncio.Future[Request] = self._loop.create_future()
        ns.submit(call, keys, buffers, context=future, **options)
        return await future

    async def _results(
        self,
        ns: Namespace,
        call: Call,
        keys: Iterable[Keylike],
        buffers: Iterable[Bufferlike] | None = None,
        **options: Any,
    ) -> list[int]:
        return (await self._call(ns, call, keys, buffers, **options)).results or []

    async def put_from(
        self,
        ns: Namespace,
        keys: Iterable[Keylike],
        buffers: Iterable[Bufferlike],
        *,
        if_absent: bool = False,
        sync: bool = False,
    ) -> list[int]:
        """Namespace.batch_put_from."""
        return await self._results(
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
        """Namespace.batch_get_into."""
        return await self._results(ns, Call.GET_INTO, keys, buffers, exact=exact)

    async def get_size(self, ns: Namespace, keys: Iterable[Keylike]) -> list[int]:
        """Namespace.batch_get_size."""
        return await self._results(ns, Call.GET_SIZE, keys)

    async def exists(self, ns: Namespace, keys: Iterable[Keylike]) -> list[int]:
        """Namespace.batch_exists."""
        return await self._results(ns, Call.EXISTS, keys)

    async def exists_prefix(self, ns: Namespace, keys: Iterable[Keylike]) -> int:
        """Namespace.exists_prefix."""
        return (await self._call(ns, Call.EXISTS_PREFIX, keys)).result or 0

    async def remove(self, ns: Namespace, keys: Iterable[Keylike]) -> list[int]:
        """Namespace.batch_remove."""
        return await self._results(ns, Call.REMOVE, keys)

    async def touch(self, ns: Namespace, keys: Iterable[Keylike]) -> list[int]:
        """Namespace.batch_touch."""
        return await self._results(ns, Call.TOUCH, keys)

    async def pin(
        self, ns: Namespace, keys: Iterable[Keylike], seconds: int = 0
    ) -> list[int]:
        """Namespace.batch_pin."""
        return await self._results(ns, Call.PIN, keys, seconds=seconds)

    async def unpin(self, ns: Namespace, keys: Iterable[Keylike]) -> list[int]:
        """Namespace.batch_unpin."""
        return await self._results(ns, Call.UNPIN, keys)
