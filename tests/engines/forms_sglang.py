"""SGLang's storage of the hierarchical cache: the file backend, and NIXL's."""

import os

import torch
from storage import Wrong, payload
from sglang.srt.mem_cache.hicache_storage import HiCacheFile, HiCacheStorageConfig


def storage_config(extra):
    return HiCacheStorageConfig(
        tp_rank=0,
        tp_size=1,
        pp_rank=0,
        pp_size=1,
        attn_cp_rank=0,
        attn_cp_size=1,
        is_mla_model=False,
        enable_storage_metrics=False,
        is_page_first_layout=True,
        model_name="kvpool/test",
        extra_config=extra,
    )


def page_key(k):
    return f"{k * 0x9E3779B97F4A7C15 % 2**64:064x}"


def page(data):
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


class sglang_file:
    def __init__(self, directory):
        self.size = 1 << 20
        # As --hicache-storage-backend-extra-config would say.
        self.storage = HiCacheFile(storage_config({"file_storage_path": directory}))

    @staticmethod
    def is_object(name):
        return name.endswith(".bin")

    def store(self, keys, data):
        return [self.storage.set(page_key(k), page(d)) for k, d in zip(keys, data)]

    def load(self, keys):
        result = []
        for k in keys:
            into = torch.zeros(self.size, dtype=torch.uint8)
            there = self.storage.exists(page_key(k))
            got = self.storage.get(page_key(k), into) if there else None
            result.append(None if got is None else got.numpy().tobytes())
        return result

    def close(self):
        pass


class HostPool:
    """What HiCacheNixl asks of SGLang's pool of pages in host memory, laid out
    page by page (page_first), K and V apart."""

    layout = "page_first"
    page_size = 1
    pin_memory = False

    def __init__(self, pages, size):
        from sglang.srt.mem_cache.storage.mmap import alloc_mmap

        self.half = size // 2
        self.kv_buffer = alloc_mmap((2, pages, self.half), torch.uint8)

    def is_stride_page_aligned(self, align):
        return self.kv_buffer.data_ptr() % align == 0 and self.half % align == 0

    def get_page_buffer_meta(self, indices):
        pointers = []
        for i in indices.tolist():
            pointers += [half[i].data_ptr() for half in self.kv_buffer]
        return pointers, [self.half] * len(pointers)


def pieces_of(k, pieces, size):
    """Each is one writer's, of two that store the page at once."""
    half = size // 2
    written = [payload(k, writer, size) for writer in (1, 2)]
    return [
        bytes(piece) in [w[i * half : (i + 1) * half] for w in written]
        for i, piece in enumerate(pieces)
    ]


class sglang_nixl:
    """A page is two objects, K and V: of two writers at once, each is one's, and
    then passes for the first one's page."""

    PAGES = 8

    def __init__(self, directory):
        os.environ["SGLANG_HICACHE_NIXL_BACKEND_STORAGE_DIR"] = directory
        from sglang.srt.mem_cache.storage.nixl.hicache_nixl import HiCacheNixl

        self.size = 1 << 20
        self.storage = HiCacheNixl(
            storage_config({"plugin": {"posix": {"active": True}}})
        )
        self.pool = HostPool(self.PAGES, self.size)
        self.storage.register_mem_pool_host(self.pool)

    @staticmethod
    def is_object(name):
        return name.endswith(("_k", "_v"))

    def store(self, keys, data):
        half = self.pool.half
        for i, d in enumerate(data):
            self.pool.kv_buffer[0, i] = page(d)[:half]
            self.pool.kv_buffer[1, i] = page(d)[half:]
        return self.storage.batch_set_v1(
            [page_key(k) for k in keys], torch.arange(len(keys))
        )

    def load(self, keys):
        # A leading run of hits is what it looks for: asked page by page.
        result = []
        for k in keys:
            result.append(None)
            if self.storage.batch_exists([page_key(k)]) != 1:
                continue
            self.pool.kv_buffer.zero_()
            if self.storage.batch_get_v1([page_key(k)], torch.arange(1))[0]:
                result[-1] = self.loaded(k)
        return result

    def loaded(self, k):
        pieces = [piece.tobytes() for piece in self.pool.kv_buffer[:, 0].numpy()]
        if all(pieces_of(k, pieces, self.size)):
            return payload(k, 1, self.size)
        return b"".join(pieces)

    def close(self):
        self.storage.close()


class WholePool(HostPool):
    """K alone, as of MLA: a page is in one piece."""

    def __init__(self, pages, size):
        super().__init__(pages, 2 * size)
        self.pages = self.kv_buffer[0]

    def get_page_buffer_meta(self, indices):
        pointers = [self.pages[i].data_ptr() for i in indices.tolist()]
        return pointers, [self.half] * len(pointers)


class kvpool_sglang:
    """The product's own backend, made as `dynamic` is; a model with two memory
    pools, of which a page is there if both have it. In the second one it is in two
    pieces: of two writers at once, each piece is one's."""

    PAGES = 8
    interface = 1

    def __init__(self, directory):
        from sglang.srt.mem_cache.hicache_storage import PoolName
        from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory

        self.size = 1 << 20
        self.pool = WholePool(self.PAGES, self.size)
        self.other = HostPool(self.PAGES, self.size)
        extra = dict(
            backend_name="kvpool",
            module_path="kvpool.sglang",
            class_name="KVPoolStorage",
            interface_v1=self.interface,
            prefetch_threshold=1,  # SGLang's own
            at=directory,
            namespace=os.path.basename(directory),
            buffer_dir=os.environ["KVTEST_BUFFERS"],
            buffer_size="64M",
        )
        self.storage = StorageBackendFactory.create_backend(
            "dynamic", storage_config(extra), self.pool
        )
        self.storage.register_mem_pool_host(self.pool)
        self.name = PoolName.SWA
        self.storage.register_mem_host_pool_v2(self.other, self.name)
        self.storage.on_host_pools_registered()

    @staticmethod
    def is_object(name):
        return "_tp0.1" in name and ".swa" not in name

    def transfer(self, names, indices=None):
        from sglang.srt.mem_cache.hicache_storage import PoolTransfer

        return PoolTransfer(name=self.name, keys=names, host_indices=indices)

    def store(self, keys, data):
        half = self.other.half
        for i, d in enumerate(data):
            self.pool.pages[i] = page(d)
            self.other.kv_buffer[0, i] = page(d)[:half]
            self.other.kv_buffer[1, i] = page(d)[half:]
        names = [page_key(k) for k in keys]
        indices = torch.arange(len(keys))
        first = self.storage.batch_set_v1(names, indices)
        second = self.storage.batch_set_v2([self.transfer(names, indices)])
        return [a and b for a, b in zip(first, second[self.name])]

    def load(self, keys):
        # A leading run of hits is what it looks for: asked page by page.
        return [self.load_page(k) for k in keys]

    def load_page(self, k):
        name, at = [page_key(k)], torch.arange(1)
        there = self.storage.batch_exists_v2(name, [self.transfer(name)])
        if there.kv_hit_pages != 1:
            return None
        assert there.restorable_prefix_pages == [1]
        self.pool.pages.zero_()
        self.other.kv_buffer.zero_()
        if not self.storage.batch_get_v1(name, at)[0]:
            return None
        if not self.storage.batch_get_v2([self.transfer(name, at)])[self.name][0]:
            return None
        self.check_pieces(k)
        return self.pool.pages[0].numpy().tobytes()

    def check_pieces(self, k):
        pieces = [piece.tobytes() for piece in self.other.kv_buffer[:, 0].numpy()]
        for i, good in enumerate(pieces_of(k, pieces, self.size)):
            if not good:
                raise Wrong(f"key {k}: piece {i} is nobody's")

    def close(self):
        self.storage.close()


class kvpool_sglang_flat(kvpool_sglang):
    """Without interface_v1: pages as tensors."""

    interface = 0

    def store(self, keys, data):
        pages = [page(d) for d in data]
        if self.storage.batch_set([page_key(k) for k in keys], pages):
            return [True] * len(keys)
        return [self.storage.exists(page_key(k)) for k in keys]

    def load(self, keys):
        names = [page_key(k) for k in keys]
        into = [torch.zeros(self.size, dtype=torch.uint8) for _ in keys]
        got = self.storage.batch_get(names, into)
        return [None if t is None else t.numpy().tobytes() for t in got]
