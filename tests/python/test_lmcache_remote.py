"""The connector for LMCache's process, on a real pool but without LMCache, of
which here is what it needs: for it_python.sh. What comes at an end, and pings.
From the environment: as test_pool.py."""

import asyncio
import errno
import os
import sys
import types
import unittest

AT = os.environ["KVTEST_AT"]
BUFFERS = os.environ["KVTEST_BUFFERS"]
SIZE = 4 << 20


def module(name, **members):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(members)


class Base:
    def __init__(self, config, metadata):
        self.meta_shapes = self.meta_dtypes = self.meta_fmt = None

    def reshape_partial_chunk(self, obj, size):
        return obj


module("lmcache")
module("lmcache.utils", CacheEngineKey=object)
module("lmcache.v1")
module("lmcache.v1.memory_management", MemoryObj=object)
module("lmcache.v1.storage_backend")
module(
    "lmcache.v1.storage_backend.connector",
    ConnectorAdapter=object,
    ConnectorContext=object,
    extract_plugin_type=str,
)
module("lmcache.v1.storage_backend.connector.base_connector", RemoteConnector=Base)

import kvpool  # noqa: E402
from kvpool.lmcache_remote import KVPoolConnector  # noqa: E402
from kvpool.memory import memory_of  # noqa: E402


class Chunk:
    def __init__(self, data=None):
        self.memory = bytearray(data or SIZE)
        self.data_ptr = memory_of(self.memory).address
        self.references = 1

    def get_size(self):
        return len(self.memory)

    def ref_count_up(self):
        self.references += 1

    def ref_count_down(self):
        self.references -= 1


class Key(str):
    def to_string(self):
        return str(self)


def connector(namespace, **options):
    context = types.SimpleNamespace(
        config=types.SimpleNamespace(remote_serde=None, use_layerwise=False),
        metadata=None,
        loop=asyncio.get_running_loop(),
        local_cpu_backend=types.SimpleNamespace(allocate=lambda *_: Chunk()),
    )
    options = dict(
        at=AT, namespace=namespace, buffer_dir=BUFFERS, buffer_size="64M", **options
    )
    return KVPoolConnector(context, options)


KEYS = [Key(f"k{i}") for i in range(8)]


class ConnectorCase(unittest.IsolatedAsyncioTestCase):
    async def put(self, c):
        chunks = [Chunk(os.urandom(SIZE)) for _ in KEYS]
        await c.batched_put(KEYS, chunks)
        return chunks

    async def test_what_is_put_is_got(self):
        c = connector("py/lmcache")
        put = await self.put(c)
        got = await c.batched_get([*KEYS, Key("no")])
        self.assertIsNone(got.pop())
        for a, b in zip(put, got):
            self.assertEqual(a.memory, b.memory)
            self.assertEqual((a.references, b.references), (1, 1))
        self.assertTrue(c.remove_sync(KEYS[0]))
        self.assertFalse(c.remove_sync(KEYS[0]))
        await c.close()
        await c.close()
        self.assertFalse(c.remove_sync(KEYS[1]))

    async def test_what_is_under_way_at_the_end_is_answered(self):
        c = connector("py/lmcache_close")
        await self.put(c)
        got = asyncio.create_task(c.batched_get(KEYS))
        chunk = Chunk()
        put = asyncio.create_task(c.put(Key("last"), chunk))
        moves = []
        submit = c._transfers.submit

        def counted(*args, **options):
            moves.append(args)
            return submit(*args, **options)

        c._transfers.submit = counted
        while len(moves) < 2:
            await asyncio.sleep(0)
        await c.close()
        chunks = await asyncio.wait_for(got, 20)
        await asyncio.wait_for(put, 20)
        self.assertNotIn(None, chunks)
        self.assertEqual(chunk.references, 1)
        # And what comes after it.
        self.assertEqual(await asyncio.wait_for(c.batched_get(KEYS), 20), [None] * 8)
        with self.assertRaises(OSError):
            await asyncio.wait_for(c.put(Key("late"), chunk), 20)
        self.assertEqual(chunk.references, 1)

    async def test_pings(self):
        c = connector("py/lmcache_ping", layout={"model": "one"})
        self.assertEqual(await c.ping(), 0)
        self.assertEqual(await c.ping(), 0)
        # The directory is given another layout: no call is answered any more.
        path = os.path.join(os.environ["KVTEST_MOUNT"], "py/lmcache_ping")
        other = b"model=two;dtype=;layout=;tp=0;tokens=0"
        os.setxattr(path, "user.kvpool_layout", other)
        for _ in range(500):
            if await c.ping():
                break
            await asyncio.sleep(0.01)
        self.assertEqual(await c.ping(), errno.EMEDIUMTYPE)
        await c.close()
        self.assertEqual(await c.ping(), errno.EHOSTDOWN)

    async def test_a_ping_without_a_master(self):
        c = connector("py/lmcache_master")

        def no_master():
            raise kvpool.errors.error_of(-errno.ETIMEDOUT)

        c._transfers.ns.pool.sync = no_master
        self.assertEqual(await c.ping(), errno.ETIMEDOUT)
        del c._transfers.ns.pool.sync
        self.assertEqual(await c.ping(), 0)
        await c.close()


if __name__ == "__main__":
    unittest.main()
