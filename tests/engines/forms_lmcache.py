"""LMCache's storage: the backends of one engine's process, created as its
storage manager does, and the adapters of the multi-process server."""

import argparse
import asyncio
import errno
import gc
import json
import os
import select
import threading
import time

import torch
from storage import Unanswered, Wrong
from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.memory_management import (
    MemoryFormat,
    MemoryObjMetadata,
    TensorMemoryObj,
)
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend

MODEL = "kvpool-test"
TOKENS = 256
KV_SHAPE = (4, 2, TOKENS, 2, 128)  # layers, K and V, tokens, heads, head size
STORE_S = 60
# A look-up of nixl_store_dynamic that meets another error than ENOENT, such as
# the ENOTCONN of a mount whose daemon was killed, is never answered.
ANSWER_S = 10
GONE = None  # evicted, or the mount's daemon is gone


class InProcess:
    """Of a process with an engine: memory of the local CPU backend, a loop."""

    def __init__(self, extra):
        self.size = 4 * 2 * TOKENS * 2 * 128 * 2
        self.config = LMCacheEngineConfig.from_defaults(
            chunk_size=TOKENS,
            local_cpu=False,
            max_local_cpu_size=0.5,
            lmcache_instance_id="kvpool-test",
            **extra,
        )
        self.metadata = LMCacheMetadata(
            model_name=MODEL,
            world_size=1,
            local_world_size=1,
            worker_id=0,
            local_worker_id=0,
            kv_dtype=torch.bfloat16,
            kv_shape=KV_SHAPE,
            chunk_size=TOKENS,
        )
        self.shape = self.metadata.get_shapes()[0]
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.cpu = LocalCPUBackend(self.config, self.metadata, "cpu")

    def key(self, k):
        return CacheEngineKey(MODEL, 1, 0, k + 1, torch.bfloat16)

    def memory(self, data):
        m = self.cpu.allocate(self.shape, torch.bfloat16, MemoryFormat.KV_2LTD)
        memoryview(m.byte_array).cast("B")[:] = data
        return m

    @staticmethod
    def taken(m):
        if m is None:
            return None
        data = bytes(m.byte_array)
        m.ref_count_down()
        return data


class lmcache_disk(InProcess):
    direct = False

    def __init__(self, directory):
        from lmcache.v1.storage_backend.local_disk_backend import LocalDiskBackend

        # What a failed write leaves is freed by the garbage collector, which takes
        # the allocator's lock for it. Begun in allocate(), which has that lock,
        # it waits for itself (LMCache 0.5.6): here it runs between the calls.
        gc.disable()
        super().__init__(
            dict(
                local_disk=f"file://{directory}/",
                max_local_disk_size=1000,
                extra_config={"use_odirect": self.direct},
            )
        )
        self.disk = LocalDiskBackend(
            self.config, self.loop, self.cpu, "cpu", metadata=self.metadata
        )
        # A failed write is reported to nobody: it is recorded here.
        self.errors = {}
        write = self.disk.write_file

        def write_file(buffer, path):
            try:
                write(buffer, path)
            except OSError as e:
                self.errors[path] = e
                raise

        self.disk.write_file = write_file

    @staticmethod
    def is_object(name):
        return name.endswith(".pt")

    def store(self, keys, data):
        done = set()
        for k, d in zip(keys, data):
            m = self.memory(d)
            self.disk.submit_put_task(self.key(k), m, done.add)
            m.ref_count_down()
        end = time.monotonic() + STORE_S
        results = []
        for k in keys:
            path = self.disk._key_to_path(self.key(k))
            while self.key(k) not in done and path not in self.errors:
                if time.monotonic() > end:
                    break
                time.sleep(0.001)
            if path in self.errors:
                print(f"key {k}: {self.errors.pop(path)}")
            results.append(self.key(k) in done)
        if not all(results):
            gc.collect()
        return results

    def load(self, keys):
        # Its index is this process's memory, and nothing fills it from the
        # directory: the keys are inserted here, as if it had stored them.
        for k in keys:
            self.disk.insert_key(
                self.key(k),
                self.size,
                self.shape,
                torch.bfloat16,
                MemoryFormat.KV_2LTD,
            )
        loaded = self.disk.batched_get_blocking([self.key(k) for k in keys])
        return [self.taken(m) for m in loaded]

    def close(self):
        self.disk.close()


class lmcache_disk_direct(lmcache_disk):
    direct = True


class lmcache_fs(InProcess):
    def __init__(self, directory):
        from lmcache.v1.storage_backend.connector import CreateConnector

        super().__init__(dict(remote_url=f"fs://localhost:0{directory}"))
        self.remote = CreateConnector(
            self.config.remote_url, self.loop, self.cpu, self.config, self.metadata
        )

    @staticmethod
    def is_object(name):
        return name.endswith(".data")

    def run(self, coroutines):
        async def all_of():
            return await asyncio.gather(*coroutines, return_exceptions=True)

        return asyncio.run_coroutine_threadsafe(all_of(), self.loop).result()

    def store(self, keys, data):
        memory = [self.memory(d) for d in data]
        results = self.run(
            [self.remote.put(self.key(k), m) for k, m in zip(keys, memory)]
        )
        for k, r in zip(keys, results):
            if isinstance(r, BaseException):
                print(f"key {k}: {r}")
        for m in memory:
            if m.get_ref_count() > 0:
                m.ref_count_down()
        return [not isinstance(r, BaseException) for r in results]

    def load(self, keys):
        there = self.run([self.remote.exists(self.key(k)) for k in keys])
        got = self.run([self.remote.get(self.key(k)) for k in keys])
        for k, is_there, m in zip(keys, there, got):
            if isinstance(m, BaseException):
                raise m
        return [self.taken(m) for m in got]

    def close(self):
        self.run([self.remote.close()])


class MultiProcess:
    """An L2 adapter, from the JSON that --l2-adapter takes."""

    SLOTS = 8
    ALIGN = 4096

    def __init__(self, spec):
        from lmcache.v1.distributed.internal_api import L1MemoryDesc
        from lmcache.v1.distributed.l2_adapters import create_l2_adapter
        from lmcache.v1.distributed.l2_adapters.config import (
            parse_args_to_l2_adapters_config,
        )

        self.size = 1 << 20
        room = self.SLOTS * self.size
        backing = torch.empty(room + self.ALIGN, dtype=torch.uint8)
        skip = -backing.data_ptr() % self.ALIGN
        self.arena = backing[skip : skip + room]
        args = argparse.Namespace(l2_adapter=[json.dumps(spec)])
        self.adapter = create_l2_adapter(
            parse_args_to_l2_adapters_config(args).adapters[0],
            l1_memory_desc=L1MemoryDesc(
                ptr=self.arena.data_ptr(), size=room, align_bytes=self.ALIGN
            ),
        )

    @staticmethod
    def is_object(name):
        return name.endswith(".data")

    def key(self, k):
        from lmcache.v1.distributed.api import ObjectKey

        return ObjectKey(chunk_hash=k.to_bytes(16, "big"), model_name=MODEL, kv_rank=0)

    def slot(self, i):
        raw = self.arena[i * self.size : (i + 1) * self.size]
        return TensorMemoryObj(
            raw_data=raw,
            metadata=MemoryObjMetadata(
                shape=torch.Size([self.size]),
                dtype=torch.uint8,
                address=i * self.size,
                phy_size=self.size,
                fmt=MemoryFormat.KV_2LTD,
                ref_count=1,
            ),
            parent_allocator=None,
        )

    @staticmethod
    def wait(fd, poll):
        """What poll says once it says something, woken by the event fd."""
        from lmcache.v1.platform import consume_fd

        end = time.monotonic() + ANSWER_S
        while (result := poll()) is None:
            if time.monotonic() > end:
                raise Unanswered()
            if select.select([fd], [], [], 1)[0]:
                consume_fd(fd)
        return result

    def store(self, keys, data):
        # One task a key: that is what its verdict is for.
        tasks = []
        for i, (k, d) in enumerate(zip(keys, data)):
            m = self.slot(i)
            m.raw_data.numpy()[:] = memoryview(d)
            tasks.append(self.adapter.submit_store_task([self.key(k)], [m]))
        done = {}

        def poll():
            done.update(self.adapter.pop_completed_store_tasks())
            return True if len(done) == len(tasks) else None

        self.wait(self.adapter.get_store_event_fd(), poll)
        return [done[t].is_successful() for t in tasks]

    def load(self, keys):
        a = self.adapter
        wanted = [self.key(k) for k in keys]
        task = a.submit_lookup_and_lock_task(wanted, {})
        there = self.wait(
            a.get_lookup_and_lock_event_fd(),
            lambda: a.query_lookup_and_lock_result(task),
        )
        found = [i for i in range(len(keys)) if there.test(i)]
        result = [None] * len(keys)
        if not found:
            return result
        self.locked([wanted[i] for i in found])
        slots = [self.slot(i) for i in found]
        task = a.submit_load_task([wanted[i] for i in found], slots)
        loaded = self.wait(a.get_load_event_fd(), lambda: a.query_load_result(task))
        a.submit_unlock([wanted[i] for i in found])
        for n, i in enumerate(found):
            if loaded.test(n):
                result[i] = slots[n].raw_data.numpy().tobytes()
        return result

    def locked(self, keys):
        """Between a look-up and the load."""

    def close(self):
        self.adapter.close()


class lmcache_mp_fs(MultiProcess):
    def __init__(self, directory):
        super().__init__(dict(type="fs", base_path=directory))


class lmcache_mp_fs_native(MultiProcess):
    def __init__(self, directory):
        super().__init__(dict(type="fs_native", base_path=directory))


class lmcache_mp_fs_native_direct(MultiProcess):
    def __init__(self, directory):
        super().__init__(
            dict(type="fs_native", base_path=directory, use_odirect=True)
        )


class lmcache_mp_nixl(MultiProcess):
    def __init__(self, directory):
        super().__init__(
            dict(
                type="nixl_store_dynamic",
                backend="POSIX",
                backend_params=dict(
                    file_path=directory,
                    use_direct_io="true",
                    max_capacity_gb="1000",
                ),
            )
        )

    @staticmethod
    def is_object(name):
        return ".tmp." not in name


class KVPool:
    """The product's own adapters: objects in the directory's namespace, by way of
    a connection that asks the mount for its master."""

    @staticmethod
    def is_object(name):
        return name.startswith(MODEL + "@")

    @staticmethod
    def where(directory):
        return dict(
            at=directory,
            namespace=os.path.basename(directory),
            buffer_dir=os.environ["KVTEST_BUFFERS"],
            buffer_size="64M",
            layout=dict(model=MODEL, dtype="bfloat16", tokens=TOKENS),
        )


class kvpool_lmcache_native(KVPool, MultiProcess):
    def __init__(self, directory):
        super().__init__(
            dict(
                type="native_plugin",
                module_path="kvpool.lmcache",
                class_name="NativeClient",
                adapter_params=self.where(directory),
            )
        )


class kvpool_lmcache_plugin(KVPool, MultiProcess):
    lock = "touch"

    def __init__(self, directory):
        super().__init__(
            dict(
                type="plugin",
                module_path="kvpool.lmcache",
                class_name="L2Adapter",
                adapter_params=dict(lock=self.lock, **self.where(directory)),
            )
        )


class kvpool_lmcache_plugin_pin(kvpool_lmcache_plugin):
    """What is locked is pinned; unless another writer's object has taken its name
    since before the look-up: a pin goes with its object."""

    lock = "pin"

    def __init__(self, directory):
        super().__init__(directory)
        self.directory = directory

    def path(self, key):
        name = f"{MODEL}@{key.kv_rank:08x}@0@{key.chunk_hash.hex()}"
        return os.path.join(self.directory, name)

    def load(self, keys):
        paths = [self.path(self.key(k)) for k in keys]
        self.before = {path: self.attribute(path, "generation") for path in paths}
        return super().load(keys)

    def locked(self, keys):
        for path in map(self.path, keys):
            end = time.monotonic() + ANSWER_S
            while not self.is_pinned(path):
                if self.attribute(path, "generation") != self.before[path]:
                    break
                if time.monotonic() > end:
                    raise Wrong(f"{path} is locked, and not pinned")
                time.sleep(0.005)

    def is_pinned(self, path):
        pin = self.attribute(path, "pin")
        return pin is GONE or pin.startswith(b"soft")

    @staticmethod
    def attribute(path, name):
        try:
            return os.getxattr(path, "user.kvpool." + name)
        except OSError as e:
            return b"" if e.errno == errno.ENODATA else GONE


class kvpool_lmcache_remote(KVPool, InProcess):
    """The connector, driven by LMCache's remote backend."""

    def __init__(self, directory):
        from lmcache.v1.storage_backend.remote_backend import RemoteBackend

        options = dict(
            module_path="kvpool.lmcache_remote",
            class_name="ConnectorAdapter",
            **self.where(directory),
        )
        super().__init__(
            dict(
                remote_storage_plugins=["kvpool"],
                extra_config={
                    f"remote_storage_plugin.kvpool.{name}": value
                    for name, value in options.items()
                },
            )
        )
        self.remote = RemoteBackend(
            self.config, self.metadata, self.loop, self.cpu, "cpu", "kvpool"
        )
        assert self.remote.connection is not None

    def store(self, keys, data):
        memory = [self.memory(d) for d in data]
        done = set()
        self.remote.batched_submit_put_task(
            [self.key(k) for k in keys], memory, on_complete_callback=done.add
        )
        end = time.monotonic() + STORE_S
        while len(done) < len(keys) and time.monotonic() < end:
            time.sleep(0.001)
        there = [self.remote.contains(self.key(k)) for k in keys]
        for m in memory:
            assert m.get_ref_count() == 1, "memory of a put is not given back"
            m.ref_count_down()
        return there

    def load(self, keys):
        wanted = [self.key(k) for k in keys]
        self.remote.batched_contains(wanted)
        loaded = self.remote.batched_get_blocking(wanted)
        return [self.taken(m) for m in loaded]

    def close(self):
        self.remote.close()
