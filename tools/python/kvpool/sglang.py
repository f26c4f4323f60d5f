"""The pool as the storage of SGLang's hierarchical cache:

    --enable-hierarchical-cache --hicache-mem-layout page_first
    --hicache-storage-backend dynamic
    --hicache-storage-backend-extra-config '{"backend_name": "kvpool",
      "module_path": "kvpool.sglang", "class_name": "KVPoolStorage",
      "interface_v1": 1, "at": "10.0.0.1:7070", "namespace": "sglang"}'

The JSON may also have the options of kvpool.Pool. With interface_v1, pages move between
SGLang's host memory and the pool without another copy. Each contiguous piece of a page
in memory is an object: with the layouts page_first and page_first_direct one (MLA) or
two (K and V), with layer_first one or two for each layer. A page exists if all its
pieces do; if two nodes stored it at the same time, they may be from different nodes.

Pages of different models, types, layouts, page sizes or parallelisms are in different
directories below `namespace`.
"""

import errno
import inspect
import logging
from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from sglang.srt.mem_cache.hicache_storage import (
    HiCacheStorage,
    HiCacheStorageConfig,
    HiCacheStorageExtraInfo,
    PoolHitPolicy,
    PoolName,
    PoolTransfer,
    PoolTransferResult,
)

from kvpool.memory import Memory, usable
from kvpool.pool import Namespace, Pool
from kvpool.session import Session

logger = logging.getLogger("kvpool")

_OPTIONS = set(inspect.signature(Pool).parameters)
_THERE = -errno.EEXIST  # a page that somebody stored before: the same bytes


def _plain(text: object) -> str:
    """The text, usable as a component of a path."""
    return str(text).replace("/", "-")


def _leading(there: Sequence[bool]) -> int:
    return there.index(False) if False in there else len(there)


class KVPoolStorage(HiCacheStorage):
    """Thread: any. An error of the pool is a miss, or a page that is not stored."""

    def __init__(
        self, storage_config: HiCacheStorageConfig, kwargs: dict[str, Any]
    ) -> None:
        extra = storage_config.extra_config or {}
        if "at" not in extra or "namespace" not in extra:
            raise ValueError("`at` and `namespace` have to be in the extra config")
        self._config = storage_config
        self._zero_copy = bool(extra.get("interface_v1", 0))
        self._options = {k: v for k, v in extra.items() if k in _OPTIONS}
        self._namespace = extra["namespace"]
        self._session: Session | None = None
        self._pieces: dict[str, int] = {}  # a page, by memory pool
        self.registered_pools: dict[str, Any] = {}
        self._replicated, self._sharded = self._suffixes()

    def _suffixes(self) -> tuple[str, str]:
        """Of keys: of what all tensor-parallel ranks have (MLA), and of what each
        has for itself."""
        c = self._config
        shard = f"_pp{c.pp_rank}.{c.pp_size}" if c.pp_size > 1 else ""
        if c.attn_cp_size > 1:
            shard += f"_cp{c.attn_cp_rank}.{c.attn_cp_size}"
        if c.dcp_size > 1:
            shard += f"_dcp{c.dcp_rank}.{c.dcp_size}.{c.logical_page_size}"
        sharded = f"_tp{c.tp_rank}.{c.tp_size}{shard}"
        return (shard if c.is_mla_model else sharded), sharded

    # ---- memory ----

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """Connects: now the layout is known."""
        super().register_mem_pool_host(mem_pool_host)
        self.registered_pools[PoolName.KV] = mem_pool_host
        parts = [
            self._config.model_name or "model",
            getattr(mem_pool_host, "dtype", ""),
            getattr(mem_pool_host, "layout", ""),
            f"page{getattr(mem_pool_host, 'page_size', 1)}",
            "" if self._zero_copy else "flat",
        ]
        name = "_".join(_plain(p) for p in parts if p != "")
        if self._session is None:
            self._session = Session(
                namespace=f"{self._namespace}/{name}", **self._options
            )

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: str) -> None:
        """Another memory pool, of a hybrid model."""
        self.registered_pools[host_pool_name] = host_pool

    def _memory(self, pool: Any, indices: torch.Tensor) -> list[Memory]:
        """The memory of these pages, piece by piece."""
        pointers, sizes = pool.get_page_buffer_meta(indices)
        return [Memory(int(p), int(n)) for p, n in zip(pointers, sizes)]

    def _pieces_of(self, name: str) -> int:
        if name not in self._pieces:
            pool = self.registered_pools[name]
            page = torch.arange(self._page_size(name))
            self._pieces[name] = len(self._memory(pool, page))
        return self._pieces[name]

    def _page_size(self, name: str) -> int:
        if name == PoolName.KV and self._config.dcp_size > 1:
            return self._config.logical_page_size or 1
        return getattr(self.registered_pools[name], "page_size", 1) or 1

    def _names(self, name: str, keys: Sequence[str]) -> list[str]:
        """The names of all pieces of these pages, in the order of _memory."""
        suffix = self._sharded if name == PoolName.MAMBA else self._replicated
        if name != PoolName.KV:
            suffix += f".{name}"
        pieces = range(self._pieces_of(name))
        return [f"{key}{suffix}.{i}" for key in keys for i in pieces]

    # ---- pages ----

    def _ns(self) -> Namespace | None:
        return self._session.ns if self._session else None

    def _exist(self, names: Sequence[str]) -> list[bool]:
        ns = self._ns()
        if not ns or not names:
            return [False] * len(names)
        try:
            return [r > 0 for r in ns.batch_exists(names)]
        except Exception as e:
            logger.warning("a look-up: %s", e)
            return [False] * len(names)

    def _moved(self, store: bool, names: list[str], memory: list[Memory]) -> list[bool]:
        ns = self._ns()
        if not ns or not self._session:
            return [False] * len(names)
        try:
            self._session.cover(memory)
            if store:
                results = ns.batch_put_from(names, memory, if_absent=True)
            else:
                results = ns.batch_get_into(names, memory, exact=True)
        except Exception as e:
            logger.warning("%d pieces: %s", len(names), e)
            return [False] * len(names)
        return [r >= 0 or (store and r == _THERE) for r in results]

    def _pages(
        self, store: bool, name: str, keys: Sequence[str], indices: torch.Tensor | None
    ) -> list[bool]:
        """Transfers pages. A page counts as transferred only if all its pieces were."""
        pool = self.registered_pools.get(name)
        if pool is None or indices is None:
            logger.error("pool %s was not registered, or pages have no place", name)
            return [False] * len(keys)
        if len(indices) != len(keys) * self._page_size(name):
            logger.error("pool %s: %d keys, %d indices", name, len(keys), len(indices))
            return [False] * len(keys)
        if not len(keys):
            return []
        names, memory = self._names(name, keys), self._memory(pool, indices)
        good, pieces = iter(self._moved(store, names, memory)), self._pieces_of(name)
        return [all(list(islice(good, pieces))) for _ in keys]

    # ---- interface_v1 ----

    def _is_logical(self) -> bool:
        """Is it an anchor without memory of its own? Then all pages are in other
        pools."""
        return getattr(self.mem_pool_host, "kv_buffer", True) is None

    def batch_get_v1(
        self,
        keys: list[str],
        host_indices: torch.Tensor,
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> list[bool]:
        """Reads pages into the host memory at these indices. False: not the whole
        page."""
        if self._is_logical():
            return [True] * len(keys)
        return self._pages(False, PoolName.KV, keys, host_indices)

    def batch_set_v1(
        self,
        keys: list[str],
        host_indices: torch.Tensor,
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> list[bool]:
        """True also for a page that was stored before."""
        if self._is_logical():
            return [True] * len(keys)
        return self._pages(True, PoolName.KV, keys, host_indices)

    def exists(self, key: str) -> bool:
        """Does the page exist, with all its pieces?"""
        return self.batch_exists([key]) == 1

    def batch_exists(
        self, keys: list[str], extra_info: HiCacheStorageExtraInfo | None = None
    ) -> int:
        """The number of leading pages that exist."""
        if not self._zero_copy:
            return self._leading_pages(self._flat(keys), 1)
        if self._is_logical():
            return len(keys)
        return self._leading_pages(
            self._names(PoolName.KV, keys), self._pieces_of(PoolName.KV)
        )

    def _leading_pages(self, names: list[str], pieces: int) -> int:
        ns = self._ns()
        if not ns:
            return 0
        try:
            return ns.exists_prefix(names) // pieces
        except Exception as e:
            logger.warning("a look-up: %s", e)
            return 0

    # ---- several memory pools (hybrid models) ----

    def batch_exists_v2(
        self,
        keys: list[str],
        pool_transfers: list[PoolTransfer] | None = None,
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> PoolTransferResult:
        """The hits of each pool; a prefix can be restored if all pools have it."""
        pages = self.batch_exists(keys, extra_info)
        hits: dict[str, int] = {PoolName.KV: pages} if pages else {}
        # Prefixes that can be restored: each pool removes those that it cannot.
        restorable = list(range(1, pages + 1))
        for transfer in pool_transfers or []:
            if not restorable:
                break
            able = self._prefixes(transfer, keys[:pages])
            if able:
                hits[transfer.name] = max(able)
            restorable = [p for p in restorable if p in able]
        return PoolTransferResult(restorable[-1] if restorable else 0, hits, restorable)

    def _prefixes(self, transfer: PoolTransfer, keys: Sequence[str]) -> set[int]:
        name = transfer.name
        pieces = iter(self._exist(self._names(name, keys)))
        n = self._pieces_of(name)
        there = [all(list(islice(pieces, n))) for _ in keys]
        if transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
            return set(range(1, _leading(there) + 1))
        if transfer.hit_policy == PoolHitPolicy.TRAILING_PAGES:
            last = max(1, len(transfer.keys or ()))
            ends = range(1, len(keys) + 1)
            return {p for p in ends if all(there[max(0, p - last) : p])}
        raise ValueError(f"a policy that is not known: {transfer.hit_policy}")

    def batch_get_v2(
        self,
        transfers: list[PoolTransfer],
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> dict[str, list[bool]]:
        """batch_get_v1 for each pool."""
        return self._pools(False, transfers)

    def batch_set_v2(
        self,
        transfers: list[PoolTransfer],
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> dict[str, list[bool]]:
        """batch_set_v1 for each pool."""
        return self._pools(True, transfers)

    def _pools(
        self, store: bool, transfers: list[PoolTransfer]
    ) -> dict[str, list[bool]]:
        return {
            t.name: self._pages(store, t.name, t.keys or [], t.host_indices)
            for t in transfers
        }

    # ---- pages as tensors: without interface_v1 ----

    def _flat(self, keys: Sequence[str]) -> list[str]:
        return [f"{key}{self._replicated}" for key in keys]

    def get(
        self,
        key: str,
        target_location: torch.Tensor | None = None,
        target_sizes: Any = None,
    ) -> torch.Tensor | None:
        """Returns target_location, or None after a miss."""
        return self.batch_get([key], [target_location])[0]

    def batch_get(
        self,
        keys: list[str],
        target_locations: list[torch.Tensor] | None = None,
        target_sizes: Any = None,
    ) -> list[torch.Tensor | None]:
        """get for many pages."""
        tensors = target_locations or []
        if len(tensors) != len(keys) or any(t is None for t in tensors):
            logger.error("%d keys, and not as many tensors to get them into", len(keys))
            return [None] * len(keys)
        memory = [usable(t, writable=True) for t in tensors]
        got = self._moved(False, self._flat(keys), memory)
        return [t if ok else None for t, ok in zip(tensors, got)]

    def set(
        self,
        key: str,
        value: torch.Tensor | None = None,
        target_location: Any = None,
        target_sizes: Any = None,
    ) -> bool:
        """False: not stored."""
        return self.batch_set([key], [value])

    def batch_set(
        self,
        keys: list[str],
        values: list[torch.Tensor] | None = None,
        target_locations: Any = None,
        target_sizes: Any = None,
    ) -> bool:
        """Were all pages stored?"""
        values = [v.contiguous() for v in values or [] if v is not None]
        if len(values) != len(keys):
            return False
        memory = [usable(v) for v in values]
        return all(self._moved(True, self._flat(keys), memory))

    # ---- the rest ----

    def clear(self) -> None:
        """Does nothing."""
        logger.warning("not cleared: the pool is others', too; rm -r its directory")

    def close(self) -> None:
        """Waits until stores have what was put, as long as there is progress."""
        if self._session:
            self._session.close()
