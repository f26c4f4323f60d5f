"""The module on a real pool, for it_python.sh. From the environment: KVTEST_AT
(the master), KVTEST_MOUNT (a mount of the pool)."""

import array
import asyncio
import errno
import gc
import mmap
import os
import select
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

try:
    import numpy
except ImportError:
    numpy = None

import kvpool
from kvpool import aio
from kvpool.memory import Keys, memory_of

AT = os.environ["KVTEST_AT"]
MOUNT = Path(os.environ["KVTEST_MOUNT"])
BUFFERS = os.environ["KVTEST_BUFFERS"]
MIB = 1 << 20


def connected(**options):
    return kvpool.Pool(AT, buffer_dir=BUFFERS, buffer_size="64M", **options)


def seen(path, data, seconds=5):
    """Has the mount's file these bytes?"""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if path.read_bytes() == data:
                return True
        except FileNotFoundError:
            pass
        time.sleep(0.01)
    return False


class PoolCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pool = connected()
        cls.backing = bytearray(8 * MIB)
        cls.memory = cls.pool.register(cls.backing)

    @classmethod
    def tearDownClass(cls):
        cls.pool.close()

    def setUp(self):
        self.ns = self.pool.namespace("py/" + self._testMethodName)

    def tearDown(self):
        self.ns.close()

    def put(self, key, data, **options):
        self.backing[: len(data)] = data
        self.ns.put_from(key, self.memory[: len(data)], **options)

    def got(self, key, at=4 * MIB):
        n = self.ns.get_into(key, self.memory[at:])
        return bytes(self.backing[at : at + n])


class OneKey(PoolCase):
    def test_what_is_put_is_got_and_seen_as_a_file(self):
        for size in (0, 1, 4096, 300000, 2 * MIB):
            data = os.urandom(size)
            self.put(f"k{size}", data, sync=True)
            self.assertEqual(self.got(f"k{size}"), data)
            self.assertEqual(self.ns.get_size(f"k{size}"), size)
            self.assertTrue(seen(MOUNT / self.ns.path / f"k{size}", data))

    def test_what_a_mount_writes_is_got(self):
        data = os.urandom(100000)
        path = MOUNT / self.ns.path
        path.mkdir(parents=True, exist_ok=True)
        (path / "file").write_bytes(data)
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        self.assertEqual(self.got("file"), data)

    def test_keys_are_any_bytes(self):
        for key in (b"a/b", b"\0\xff", "gr\xfc\xdfe", b"x" * 300, b"%2F", b"", b".."):
            self.put(key, b"of " + kvpool.memory.key_bytes(key))
            self.assertEqual(self.got(key), b"of " + kvpool.memory.key_bytes(key))
            path = self.ns.key_path(key)
            self.assertEqual(self.ns.path_key(path), kvpool.memory.key_bytes(key))
        for key in (bytearray(b"ab"), memoryview(b"ab")):
            self.put(key, b"1")
            self.assertTrue(self.ns.exists("ab"))

    def test_errors_are_exceptions_with_the_texts_of_c(self):
        with self.assertRaisesRegex(kvpool.NotFound, "nothere"):
            self.got("nothere")
        with self.assertRaises(kvpool.KeyTooLong):
            self.ns.exists(b"x" * 4001)
        self.put("k", b"12345")
        with self.assertRaisesRegex(kvpool.SizeMismatch, "5 bytes, the buffer 4"):
            self.ns.get_into("k", self.memory[:4])
        with self.assertRaises(kvpool.SizeMismatch):
            self.ns.get_into("k", self.memory[:6], exact=True)
        self.assertEqual(self.ns.get_into("k", self.memory[:5], exact=True), 5)
        with self.assertRaises(kvpool.Exists) as raised:
            self.put("k", b"1", if_absent=True)
        self.assertEqual(raised.exception.errno, errno.EEXIST)
        self.assertIsInstance(raised.exception, kvpool.Error)
        with self.assertRaises(kvpool.SizeMismatch):
            with self.pool.register(mmap.mmap(-1, 65 * MIB)) as large:
                self.ns.put_from("large", large)

    def test_remove_touch_pin(self):
        with self.assertRaises(kvpool.NotFound):
            self.ns.remove("k")
        self.put("k", b"x", sync=True)
        self.ns.touch("k")
        self.ns.pin("k")
        path = MOUNT / self.ns.path / self.ns.key_path("k")
        self.assertTrue(seen(path, b"x"))
        self.pool.sync()
        self.assertEqual(os.getxattr(path, "user.kvpool.pin"), b"hard")
        self.ns.unpin("k")
        self.ns.remove("k")
        self.assertFalse(self.ns.exists("k"))

    def test_an_object_as_memory(self):
        data = os.urandom(MIB)
        self.put("k", data)
        view = self.ns.map("k")
        self.assertTrue(view.readonly)
        self.ns.remove("k")
        self.assertEqual(view, data)
        gc.collect()
        self.assertEqual(view, data)
        self.put("empty", b"")
        self.assertEqual(len(self.ns.map("empty")), 0)
        self.put("k", data)
        fd = self.ns.open("k")
        self.assertEqual(os.pread(fd, MIB, 0), data)
        os.close(fd)
        with self.assertRaises(kvpool.NotFound):
            self.ns.map("nothere")

    def test_layouts(self):
        layout = kvpool.Layout("llama", "bf16", "NHD", 8, 256)
        ns = self.pool.namespace("py/layout", layout)
        self.pool.namespace("py/layout", layout).close()
        with self.assertRaisesRegex(kvpool.LayoutMismatch, "tp=8.*tp=4"):
            other = kvpool.Layout("llama", "bf16", "NHD", 4, 256)
            self.pool.namespace("py/layout", other)
        ns.close()


class WhatCCannotTake(PoolCase):
    """It would take something else."""

    def refused(self, text, call, *args, **options):
        with self.assertRaisesRegex(ValueError, text):
            call(*args, **options)

    def test_layouts(self):
        self.refused("tp is 4294967304.* 0 to 4294967295", kvpool.Layout, tp=2**32 + 8)
        self.refused("tokens is -1", kvpool.Layout, tokens=-1)
        for field in ("model", "dtype", "layout"):
            self.refused(f"{field} is .m.x00one", kvpool.Layout, **{field: "m\0one"})
        with self.assertRaisesRegex(TypeError, "tp is '8'"):
            kvpool.Layout(tp="8")
        self.assertEqual(kvpool.Layout(tp=2**32 - 1).tp, 2**32 - 1)

    def test_seconds(self):
        self.put("k", b"x")
        for seconds in (-1, 2**64):
            self.refused("seconds is", self.ns.pin, "k", seconds)
            self.refused("seconds is", self.ns.batch_pin, ["k"], seconds)
            self.refused(
                "seconds is", self.ns.submit, kvpool.Call.PIN, ["k"], seconds=seconds
            )
        with self.assertRaises(TypeError):
            self.ns.pin("k", 1.5)
        self.ns.pin("k", 60)

    def test_texts(self):
        self.refused("namespace is 't.x00x'", self.pool.namespace, "t\0x")
        self.refused("path is 'a.x00b'", self.ns.path_key, "a\0b")
        self.refused("size is '1.x00G'", kvpool.parse_size, "1\0G")
        for option in (
            "listen",
            "advertise",
            "name",
            "buffer_dir",
            "rdma_device",
            "tls_dir",
            "bulk",
        ):
            self.refused(f"{option} is", kvpool.Pool, AT, **{option: "a\0b"})
        self.refused("at is", kvpool.Pool, AT + "\0")

    def test_numbers(self):
        for option, wrong in (
            ("threads", 2**32 + 1),
            ("log_level", 2**32),
            ("buffer_size", 2**64 + (64 << 20)),
            ("buffer_size", -1),
            ("timeout", -1),
            ("timeout", float("inf")),
        ):
            self.refused(f"{wrong}", kvpool.Pool, AT, **{option: wrong})
        self.refused("4294967300", self.ns.submit, 2**32 + 4, ["k"])


class Buffers(PoolCase):
    def test_kinds_of_buffers(self):
        data = os.urandom(4096)
        doubles = array.array("d", bytes(4096))
        for owner in (bytearray(4096), mmap.mmap(-1, 4096), doubles):
            with self.pool.register(owner):
                memoryview(owner).cast("B")[:] = data
                self.ns.put_from("k", owner)
                memoryview(owner).cast("B")[:] = bytes(4096)
                self.assertEqual(self.ns.get_into("k", memoryview(owner)), 4096)
                self.assertEqual(bytes(memoryview(owner).cast("B")), data)

    def test_pointers_and_tensors(self):
        class Tensor:  # what is asked of one
            device = type("device", (), {"type": "cpu"})

            def __init__(self, memory, contiguous=True):
                self.memory, self.contiguous = memory, contiguous

            def data_ptr(self):
                return self.memory.address

            def is_contiguous(self):
                return self.contiguous

            def numel(self):
                return self.memory.length // 2

            def element_size(self):
                return 2

        self.backing[:4] = b"abcd"
        self.ns.put_from("k", Tensor(self.memory[:4]))
        self.assertEqual(self.got("k"), b"abcd")
        self.ns.put_from("k", kvpool.Memory(self.memory.address, 2))
        self.assertEqual(self.got("k"), b"ab")
        with self.assertRaises(BufferError):
            self.ns.put_from("k", Tensor(self.memory, contiguous=False))

    def test_what_is_not_registered_is_refused(self):
        with self.assertRaisesRegex(kvpool.NotRegistered, "not in a registered buffer"):
            self.ns.put_from("k", bytearray(10))
        self.put("k", b"0123456789")
        self.put("l", b"0123456789")
        bufs = [self.memory[:10], bytearray(10)]
        self.assertEqual(self.ns.batch_get_into("kl", bufs), [10, -errno.EFAULT])
        with self.assertRaises(kvpool.NotRegistered):
            self.ns.get_into("k", kvpool.Memory(4096, 10))
        with self.assertRaises(kvpool.Error):
            self.pool.register(self.memory[1:2])  # overlaps
        with self.assertRaises(kvpool.NotFound):
            self.pool.unregister(bytearray(10))

    def test_memory_that_went_is_an_error(self):
        # By its address: who registers an mmap cannot unmap it.
        code = (
            "import ctypes, errno, sys, kvpool\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "libc.mmap.restype = ctypes.c_void_p\n"
            "libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]\n"
            "at = libc.mmap(None, 1 << 20, 3, 0x22, -1, 0)\n"
            "pool = kvpool.Pool(sys.argv[1], buffer_dir=sys.argv[2])\n"
            "ns = pool.namespace('py/gone')\n"
            "gone = pool.register(kvpool.Memory(at, 1 << 20))\n"
            "ns.put_from('k', gone)\n"
            "libc.munmap(at, 1 << 20)\n"
            "assert ns.batch_put_from(['l'], [gone]) == [-errno.EFAULT]\n"
            "assert ns.batch_get_into(['k'], [gone]) == [-errno.EFAULT]\n"
        )
        subprocess.run([sys.executable, "-c", code, AT, BUFFERS], check=True)

    def test_registered_memory_stays(self):
        owner = bytearray(4096)
        registered = self.pool.register(owner)
        with self.assertRaises(BufferError):
            owner.append(0)
        registered.unregister()
        del registered
        owner.append(0)
        with self.assertRaises(BufferError):
            self.pool.register(b"not to be written")
        with self.assertRaises(TypeError):
            self.pool.register("text")
        with self.assertRaises(BufferError):
            self.pool.register(memoryview(bytearray(8))[::2])

    @unittest.skipUnless(numpy, "no numpy")
    def test_arrays_of_numpy(self):
        a = numpy.frombuffer(self.backing, numpy.uint8)
        for wrong in (a[::2], a[::-1], a[:6].reshape(2, 3).T):
            with self.assertRaises(BufferError):
                self.ns.put_from("k", wrong)
        self.ns.put_from("k", a[:6].reshape(2, 3))
        results = self.ns.batch_put_from(["k", "l"], [a[:4:2], a[:4]])
        self.assertEqual(results, [-errno.EINVAL, 0])
        a.flags.writeable = False
        with self.assertRaises(BufferError):
            self.ns.get_into("k", a[:6])

    def test_slices(self):
        self.assertEqual(len(self.memory[4:10]), 6)
        self.assertEqual(self.memory[4:][2:3].address, self.memory.address + 6)
        self.assertEqual(len(self.memory[5:4]), 0)
        with self.assertRaises(ValueError):
            self.memory[::2]
        with self.assertRaises(TypeError):
            self.memory[0]

    def test_arrays_of_keys(self):
        self.assertEqual(Keys([]).n, 0)
        self.assertEqual(Keys(["a", b"bc", bytearray(b"")]).n, 3)
        self.assertEqual(Keys(k for k in "abc").n, 3)
        with self.assertRaises(TypeError):
            Keys(["a", 1])
        self.assertEqual(memory_of(b"abc").length, 3)


class ManyKeys(PoolCase):
    def test_batches_have_a_result_for_each_key(self):
        keys = [f"k{i}" for i in range(40)]
        size = 50000
        data = os.urandom(40 * size)
        self.backing[: 40 * size] = data
        parts = [self.memory[i * size : (i + 1) * size] for i in range(40)]
        self.assertEqual(self.ns.batch_put_from(keys, parts), [0] * 40)
        self.assertEqual(self.ns.batch_exists(keys + ["no"]), [1] * 40 + [0])
        self.assertEqual(self.ns.batch_get_size(["k1", "no"]), [size, -errno.ENOENT])
        self.assertEqual(self.ns.exists_prefix(keys + ["no", "k1"]), 40)
        self.backing[:] = bytes(len(self.backing))
        results = self.ns.batch_get_into(keys + ["no"], [*parts, self.memory[-size:]])
        self.assertEqual(results, [size] * 40 + [-errno.ENOENT])
        self.assertEqual(self.backing[: 40 * size], data)
        self.assertEqual(kvpool.strerror(results[-1]), "not in the pool")
        self.assertEqual(self.ns.batch_touch(["k1", "no"]), [0, -errno.ENOENT])
        self.assertEqual(self.ns.batch_pin(["k1"], 60), [0])
        self.assertEqual(self.ns.batch_unpin(["k1", "no"]), [0, -errno.ENOENT])
        self.assertEqual(self.ns.batch_remove(keys), [0] * 40)
        self.assertEqual(self.ns.exists_prefix(keys), 0)
        self.assertEqual(self.ns.batch_exists([]), [])
        self.assertEqual(self.ns.batch_exists(["x" * 5000]), [-errno.ENAMETOOLONG])
        with self.assertRaises(ValueError):
            self.ns.batch_put_from(keys, parts[1:])

    def test_what_is_wrong_with_one_is_its_result(self):
        nowhere = kvpool.Memory(1 << 70, 3)
        holes = memoryview(self.backing)[:8:2]
        keys = ["a", "\udc80", "c", "d", b"e", "f"]
        bufs = [self.memory[:3], self.memory[:3], holes, nowhere, b"123", b""]
        wrong = [0, -errno.EINVAL, -errno.EINVAL, -errno.EFAULT, -errno.EFAULT, 0]
        self.assertEqual(self.ns.batch_put_from(keys, bufs), wrong)
        self.assertEqual(self.ns.batch_exists(keys), [1, -errno.EINVAL, 0, 0, 0, 1])
        self.assertEqual(self.ns.exists_prefix(["a", "\udc80", "f"]), 1)
        self.assertEqual(self.ns.batch_touch(["\udc80", "a"]), [-errno.EINVAL, 0])
        put = self.ns.submit(kvpool.Call.PUT_FROM, keys, bufs)
        self.completed(1)
        self.assertEqual(put.results, wrong)
        # Not to be written, which only a get minds.
        readonly = memoryview(self.backing).toreadonly()[:3]
        self.assertEqual(self.ns.batch_put_from(["a"], [readonly]), [0])
        got = self.ns.batch_get_into(["a", "a"], [readonly, self.memory[:3]])
        self.assertEqual(got, [-errno.EINVAL, 3])
        for key, buf in (("k", holes), ("\udc80", self.memory), ("k", nowhere)):
            with self.assertRaises((BufferError, ValueError, kvpool.NotRegistered)):
                self.ns.put_from(key, buf)
        with self.assertRaises(kvpool.NotRegistered):
            self.pool.register(nowhere)
        # Neither a key nor a buffer: of the call.
        with self.assertRaises(TypeError):
            self.ns.batch_exists(["a", 1])
        with self.assertRaises(TypeError):
            self.ns.batch_put_from(["a"], [1])

    def completed(self, n):
        done = []
        while len(done) < n:
            self.assertTrue(select.select([self.pool.event_fd], [], [], 10)[0])
            done += self.pool.completed()
        return {r.id: r for r in done}

    def test_requests(self):
        put = self.ns.submit(
            kvpool.Call.PUT_FROM, ["a", "b"], [self.memory[:10], bytearray(3)]
        )
        done = self.completed(1)
        self.assertIs(done[put.id], put)
        self.assertEqual((put.result, put.results), (1, [0, -errno.EFAULT]))
        get = self.ns.submit(
            kvpool.Call.GET_INTO, ["a", "no"], [self.memory[:9], self.memory[:9]]
        )
        prefix = self.ns.submit(kvpool.Call.EXISTS_PREFIX, ["a", "b"], context="mine")
        pin = self.ns.submit(kvpool.Call.PIN, ["a"], seconds=5)
        self.completed(3)
        self.assertEqual(get.results, [-errno.EMSGSIZE, -errno.ENOENT])
        self.assertEqual((prefix.result, prefix.context), (1, "mine"))
        self.assertEqual(pin.results, [0])
        self.assertEqual(self.pool.completed(), [])
        with self.assertRaises(ValueError):
            self.ns.submit(kvpool.Call.PUT_FROM, ["a"])

    def test_a_namespace_with_requests_stays_open(self):
        self.ns.submit(kvpool.Call.EXISTS, ["a"])
        with self.assertRaisesRegex(kvpool.Error, "under way"):
            self.ns.close()
        self.assertFalse(self.ns.exists("a"))
        self.completed(1)
        self.ns.close()

    def test_too_many_requests(self):
        n = 0
        with self.assertRaises(kvpool.TooMany):
            while n < 5000:
                self.ns.submit(kvpool.Call.EXISTS, ["a"])
                n += 1
        self.assertEqual(n, 4096)
        self.completed(n)

    def test_threads(self):
        failed = []

        def work(number):
            mine = self.memory[number * MIB : (number + 1) * MIB]
            try:
                for i in range(50):
                    self.ns.put_from(f"t{number}.{i}", mine[: i * 1000])
                    self.assertEqual(self.ns.get_into(f"t{number}.{i}", mine), i * 1000)
                    self.ns.exists_prefix([f"t0.{i}", f"t1.{i}"])
            except Exception as e:
                failed.append(e)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failed, [])

    def test_figures_add_up(self):
        keys = [f"k{i}" for i in range(10)]
        parts = [self.memory[i * 1000 : (i + 1) * 1000] for i in range(10)]

        def work():
            for _ in range(20):
                self.ns.batch_exists([*keys, "no"])
                self.ns.exists_prefix(["k0", "no", "k1"])
                self.ns.batch_get_into([*keys, "no"], [*parts, parts[0]])
                with self.assertRaises(kvpool.Exists):
                    self.ns.put_from("k0", parts[0], if_absent=True)

        self.ns.batch_put_from(keys, parts, sync=True)
        before = self.pool.stats()
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        n = 4 * 20
        stats = self.pool.stats()
        since = {
            k: v - before[k]
            for k, v in stats.items()
            if v != before[k] and "_calls_" not in k
        }
        self.assertEqual(
            since,
            {
                "lookups": 14 * n,
                "hits_here": 11 * n,
                "misses": 2 * n,
                "lookups_skipped": n,
                "gets": 11 * n,
                "gets_here": 10 * n,
                "gets_missed": n,
                "bytes_got": 10000 * n,
                "bytes_here": 10000 * n,
                "puts": n,
                "puts_existed": n,
            },
        )
        # One of 64 calls of each thread and kind, its first among them.
        for kind in ("lookup", "get", "put"):
            self.assertGreaterEqual(stats[f"{kind}_calls_timed"], 4)
            self.assertGreater(stats[f"{kind}_calls_p50_ns"], 0)
        self.assertEqual(
            stats["puts"], sum(v for k, v in stats.items() if k.startswith("puts_"))
        )

    def test_asyncio(self):
        async def use():
            a = aio.AsyncPool(self.pool)
            keys = [f"k{i}" for i in range(16)]
            parts = [self.memory[i * 1000 : (i + 1) * 1000] for i in range(16)]
            puts = [a.put_from(self.ns, [k], [p]) for k, p in zip(keys, parts)]
            self.assertEqual(await asyncio.gather(*puts), [[0]] * 16)
            self.assertEqual(await a.exists_prefix(self.ns, [*keys, "no"]), 16)
            self.assertEqual(await a.exists(self.ns, ["k0", "no"]), [1, 0])
            results = await a.get_into(self.ns, keys, parts, exact=True)
            self.assertEqual(results, [1000] * 16)
            self.assertEqual(await a.get_size(self.ns, ["no"]), [-errno.ENOENT])
            self.assertEqual(await a.touch(self.ns, ["k1"]), [0])
            self.assertEqual(await a.pin(self.ns, ["k1"], 60), [0])
            self.assertEqual(await a.unpin(self.ns, ["k1"]), [0])
            self.assertEqual(await a.remove(self.ns, ["k1"]), [0])
            a.close()

        asyncio.run(use())


class Lives(unittest.TestCase):
    def test_closing(self):
        pool = connected(name="closes", threads=2)
        ns = pool.namespace("py/closing")
        memory = pool.register(bytearray(MIB))
        requests = [
            ns.submit(kvpool.Call.PUT_FROM, [f"k{i}"], [memory]) for i in range(20)
        ]
        pool.close()
        pool.close()
        self.assertTrue(pool.closed)
        self.assertEqual([r.results for r in requests], [[0]] * 20)
        for call in (
            lambda: ns.exists("k"),
            lambda: ns.batch_exists(["k"]),
            lambda: ns.put_from("k", memory),
            lambda: pool.namespace("x"),
            lambda: pool.register(bytearray(1)),
            pool.completed,
            pool.stats,
            pool.sync,
        ):
            with self.assertRaises(kvpool.Unreachable):
                call()
        ns.close()
        with connected() as again:
            keys = [f"k{i}" for i in range(20)]
            self.assertEqual(again.namespace("py/closing").exists_prefix(keys), 20)
            closed = again.namespace("py/closing")
            closed.close()
            with self.assertRaises(kvpool.Unreachable):
                closed.exists("k")

    def test_closing_waits_for_calls_of_other_threads(self):
        pool = connected()
        ns = pool.namespace("py/waits")
        keys = [f"k{i}" for i in range(1000)]
        ended = []

        def ask():
            try:
                while True:
                    ns.batch_exists(keys)
            except kvpool.Unreachable as e:
                ended.append(e)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for t in threads:
            t.start()
        time.sleep(0.1)
        pool.close()
        for t in threads:
            t.join()
        self.assertEqual(len(ended), 4)

    def test_who_ends_without_closing_loses_nothing(self):
        code = (
            "import sys, kvpool\n"
            "pool = kvpool.Pool(sys.argv[1], buffer_dir=sys.argv[2])\n"
            "ns = pool.namespace('py/end')\n"
            "ns.put_from('k', pool.register(bytearray(9 << 20)))\n"
        )
        subprocess.run([sys.executable, "-c", code, AT, BUFFERS], check=True)
        with connected() as pool:
            self.assertEqual(pool.namespace("py/end").get_size("k"), 9 << 20)

    def test_a_fork_is_refused(self):
        with connected() as pool:
            ns = pool.namespace("py/fork")
            child = os.fork()
            if child == 0:
                try:
                    ns.exists("k")
                except kvpool.Error as e:
                    os._exit(e.errno == errno.ECHILD)
                os._exit(2)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 1)

    def test_who_cannot_be_connected_to(self):
        with self.assertRaisesRegex(kvpool.Unreachable, "no master"):
            kvpool.Pool("127.0.0.1:1", timeout=0.3)
        with self.assertRaises(kvpool.Error):
            kvpool.Pool(BUFFERS)  # in no mount
        with self.assertRaises(ValueError):
            kvpool.Pool(AT, buffer_size="much")
        with self.assertRaises(kvpool.Error):
            kvpool.Pool(AT, listen="0.0.0.0:0")

    def test_at_a_mount(self):
        with kvpool.Pool(str(MOUNT), buffer_dir=BUFFERS) as pool:
            self.assertEqual(pool.namespace("py/mount").exists_prefix(["k"]), 0)

    def test_sizes(self):
        self.assertEqual(kvpool.parse_size("1.5k"), 1536)
        self.assertEqual(kvpool.parse_size(7), 7)
        self.assertRegex(kvpool.version(), r"^\d+\.\d+\.\d+(\+[0-9a-f]+)?$")


if __name__ == "__main__":
    unittest.main()
