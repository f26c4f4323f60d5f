"""LMCache's in-process engine with the pool as its remote store: a plug-in of
`remote_storage_plugins`. In LMCache's configuration file:

    remote_storage_plugins: ["kvpool"]
    extra_config:
      remote_storage_plugin.kvpool.module_path: kvpool.lmcache_remote
      remote_storage_plugin.kvpool.class_name: ConnectorAdapter
      remote_storage_plugin.kvpool.at: 10.0.0.1:7070
      remote_storage_plugin.kvpool.namespace: lmcache

`remote_storage_plugin.kvpool.` also has the options of kvpool.Pool, and `layout`.
Gets, puts and look-ups of many keys are one call each. Chunks move between the pool and
LMCache's own memory without another copy and without headers (as with save_chunk_meta:
false), so remote_serde must be naive and use_layerwise off.
"""

import asyncio
import errno
import functools
import logging
from collections.abc import Sequence
from typing import Any

from lmcache.utils import CacheEngineKey
from lmcache.v1.memory_management import MemoryObj
from lmcache.v1.storage_backend.connector import (
    ConnectorAdapter as _ConnectorAdapter,
)
from lmcache.v1.storage_backend.connector import ConnectorContext, extract_plugin_type
from lmcache.v1.storage_backend.connector.base_connector import RemoteConnector

from kvpool.errors import Error
from kvpool.memory import Memory
from kvpool.pool import Call
from kvpool.transfers import Transfer, Transfers

logger = logging.getLogger("kvpool")

PLUGIN = "kvpool"
PING_S = 3.0  # LMCache waits for 5 s
_LMCACHE_OWN = ("module_path", "class_name")


class ConnectorAdapter(_ConnectorAdapter):
    """Makes connectors for the plug-ins "kvpool" and "kvpool.ANYTHING"."""

    def __init__(self) -> None:
        super().__init__(f"plugin://{PLUGIN}")

    def can_parse(self, url: str) -> bool:
        """plugin://kvpool, and plugin://kvpool.ANYTHING."""
        scheme, _, name = url.partition("://")
        return scheme == "plugin" and extract_plugin_type(name) == PLUGIN

    def create_connector(self, context: ConnectorContext) -> "KVPoolConnector":
        """Uses the options in its part of extra_config."""
        prefix = f"remote_storage_plugin.{context.plugin_name or PLUGIN}."
        options = {
            name.removeprefix(prefix): value
            for name, value in (context.config.extra_config or {}).items()
            if name.startswith(prefix)
        }
        for name in _LMCACHE_OWN:
            options.pop(name, None)
        for name in ("at", "namespace"):
            if name not in options:
                raise ValueError(f"{prefix}{name} is not in extra_config")
        return KVPoolConnector(context, options)


def _keys(keys: Sequence[CacheEngineKey]) -> list[str]:
    return [key.to_string() for key in keys]


class KVPoolConnector(RemoteConnector):
    """Thread: the event loop's, except exists_sync, batched_contains and
    remove_sync."""

    def __init__(self, context: ConnectorContext, options: dict[str, Any]) -> None:
        super().__init__(context.config, context.metadata)
        if context.config.remote_serde not in (None, "naive"):
            raise ValueError(
                f"remote_serde {context.config.remote_serde!r}: the pool holds chunks "
                "as they are, which is naive"
            )
        if context.config.use_layerwise:
            raise ValueError("use_layerwise: the pool holds whole chunks")
        self._loop = context.loop
        self._cpu = context.local_cpu_backend
        self._transfers = Transfers(**options)
        self._closing = False
        self._syncing: asyncio.Future[None] | None = None
        self._loop.call_soon_threadsafe(
            self._loop.add_reader, self._transfers.fileno(), self._completed
        )

    def __repr__(self) -> str:
        return f"<KVPoolConnector {self._transfers.ns}>"

    def _completed(self) -> None:
        for transfer in self._transfers.completed():
            future = transfer.context
            if isinstance(future, asyncio.Future) and not future.done():
                future.set_result(transfer)

    async def _move(
        self, call: Call, keys: Sequence[CacheEngineKey], objects: Sequence[MemoryObj]
    ) -> Transfer:
        """Callers wait for its end even if they are cancelled: the memory is in use
        until then."""
        future: asyncio.Future[Transfer] = self._loop.create_future()
        memory = [Memory(o.data_ptr, o.get_size()) for o in objects]
        self._transfers.submit(call, _keys(keys), memory, context=future)
        if self._closing:
            self._completed()
        return await future

    # ---- look-ups ----

    async def exists(self, key: CacheEngineKey) -> bool:
        """Answered from this process's memory."""
        return self.exists_sync(key)

    def exists_sync(self, key: CacheEngineKey) -> bool:
        """The same, from any thread."""
        return self.batched_contains([key]) == 1

    def support_batched_contains(self) -> bool:
        """Yes."""
        return True

    def batched_contains(self, keys: list[CacheEngineKey]) -> int:
        """The number of leading keys that exist."""
        return self._transfers.exists_prefix(_keys(keys))

    def support_batched_async_contains(self) -> bool:
        """Yes."""
        return True

    async def batched_async_contains(
        self, lookup_id: str, keys: list[CacheEngineKey], pin: bool = False
    ) -> int:
        """The same; with `pin`, fetches these chunks ahead and keeps them for a
        while."""
        n = self.batched_contains(keys)
        if pin and n:
            self._transfers.submit(Call.TOUCH, _keys(keys[:n]))
        return n

    # ---- get ----

    async def get(self, key: CacheEngineKey) -> MemoryObj | None:
        """None: a miss."""
        return (await self.batched_get([key]))[0]

    def support_batched_get(self) -> bool:
        """Yes."""
        return True

    async def batched_get(self, keys: list[CacheEngineKey]) -> list[MemoryObj | None]:
        """One call of the pool, for the chunks that exist."""
        got = self._loop.create_task(self._get(keys))
        try:
            return await asyncio.shield(got)
        except asyncio.CancelledError:
            got.add_done_callback(_give_back)
            raise

    async def _get(self, keys: Sequence[CacheEngineKey]) -> list[MemoryObj | None]:
        # No memory is allocated for missing chunks.
        there = self._transfers.exists(_keys(keys))
        objects: list[MemoryObj | None] = [
            self._cpu.allocate(self.meta_shapes, self.meta_dtypes, self.meta_fmt)
            if is_there
            else None
            for is_there in there
        ]
        wanted = [i for i, o in enumerate(objects) if o is not None]
        if not wanted:
            return objects
        transfer = await self._move(
            Call.GET_INTO, [keys[i] for i in wanted], [objects[i] for i in wanted]
        )
        for i, result in zip(wanted, transfer.results):
            objects[i] = self._whole(objects[i], result)
        return objects

    def _whole(self, obj: MemoryObj, size: int) -> MemoryObj | None:
        """The chunk that was read, `size` bytes, perhaps of fewer tokens; None: not
        usable."""
        if size > 0:
            try:
                return self.reshape_partial_chunk(obj, size)
            except ValueError as e:
                logger.warning("an object is no chunk: %s", e)
        obj.ref_count_down()
        return None

    def support_batched_get_non_blocking(self) -> bool:
        """Yes."""
        return True

    async def batched_get_non_blocking(
        self, lookup_id: str, keys: list[CacheEngineKey]
    ) -> list[MemoryObj]:
        """The leading chunks, up to the first that could not be read."""
        got = await self.batched_get(keys)
        n = got.index(None) if None in got else len(got)
        for obj in got[n:]:
            if obj is not None:
                obj.ref_count_down()
        return [obj for obj in got[:n] if obj is not None]

    # ---- put ----

    async def put(self, key: CacheEngineKey, memory_obj: MemoryObj) -> None:
        """As batched_put."""
        await self.batched_put([key], [memory_obj])

    def support_batched_put(self) -> bool:
        """Yes."""
        return True

    async def batched_put(
        self, keys: Sequence[CacheEngineKey], memory_objs: Sequence[MemoryObj]
    ) -> None:
        """One call of the pool. OSError: not all chunks were stored."""
        for obj in memory_objs:
            obj.ref_count_up()
        put = self._loop.create_task(self._move(Call.PUT_FROM, keys, memory_objs))
        put.add_done_callback(functools.partial(_put_ended, memory_objs))
        transfer = await asyncio.shield(put)
        failed = sum(r < 0 for r in transfer.results)
        if failed:
            raise OSError(
                f"{failed} of {len(keys)} chunks not stored: {transfer.error}"
            )

    # ---- the rest ----

    def remove_sync(self, key: CacheEngineKey) -> bool:
        """Removes it from the whole pool. False: it did not exist, or could not be
        removed."""
        ns = self._transfers.ns
        try:
            return ns is not None and ns.batch_remove([key.to_string()])[0] >= 0
        except Error as e:
            logger.warning("%s is not removed: %s", key, e)
            return False

    async def list(self) -> list[str]:
        """Not supported, as a pool may have millions of keys: use `kvpool ls`."""
        return []

    def support_ping(self) -> bool:
        """Yes."""
        return True

    async def ping(self) -> int:
        """0, or an error: there is no connection, calls of the namespace would fail, or
        there has been no master for some seconds. (Gets then continue, but evictions
        are not reported.)"""
        ns = self._transfers.ns
        if ns is None or self._closing:
            return errno.EHOSTDOWN
        try:
            ns.exists("")
            if self._syncing is not None and not self._syncing.done():
                syncing = self._syncing
            else:
                syncing = self._loop.run_in_executor(None, ns.pool.sync)
                self._syncing = syncing
            # It takes longer because stores receive many objects; there is a master.
            done, _ = await asyncio.wait([syncing], timeout=PING_S)
            for synced in done:
                synced.result()
        except Error as e:
            return e.errno or errno.EIO
        return 0

    async def close(self) -> None:
        """Waits for gets and puts in flight; later gets miss, and later puts fail."""
        if self._closing:
            return
        self._closing = True
        # Both may block, so the loop continues meanwhile.
        await self._loop.run_in_executor(None, self._transfers.end)
        self._loop.remove_reader(self._transfers.fileno())
        self._completed()
        await self._loop.run_in_executor(None, self._transfers.close)


def _give_back(got: "asyncio.Task[list[MemoryObj | None]]") -> None:
    if got.cancelled() or got.exception():
        return
    for obj in got.result():
        if obj is not None:
            obj.ref_count_down()


def _put_ended(objects: Sequence[MemoryObj], put: "asyncio.Task[Transfer]") -> None:
    for obj in objects:
        obj.ref_count_down()
    put.cancelled() or put.exception()  # reported already, or nobody waits
