"""What the engines' adapters share, on a real pool, for it_python.sh: memory that
nobody registered, a master that is not there yet. From the environment as
test_pool.py; KVTEST_LATE: an address where no master is, until the file
KVTEST_START has been made (by the last test)."""

import ctypes
import errno
import mmap
import os
import select
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import kvpool
from kvpool import session
from kvpool.errors import error_of
from kvpool.memory import Memory, memory_of
from kvpool.pool import Call
from kvpool.session import Regions, Session
from kvpool.transfers import SPLIT, Transfers

AT = os.environ["KVTEST_AT"]
MOUNT = os.environ["KVTEST_MOUNT"]
LATE = os.environ["KVTEST_LATE"]
START = Path(os.environ["KVTEST_START"])
OPTIONS = dict(buffer_dir=os.environ["KVTEST_BUFFERS"], buffer_size="64M")


def ended(transfers, n=1, seconds=30):
    done = []
    end = time.monotonic() + seconds
    while len(done) < n:
        if time.monotonic() > end:
            raise TimeoutError(f"{len(done)} of {n} completed")
        select.select([transfers.fileno()], [], [], 1)
        done += transfers.completed()
    return done


class TransfersCase(unittest.TestCase):
    def setUp(self):
        self.t = Transfers(AT, "py/" + self._testMethodName, **OPTIONS)

    def tearDown(self):
        self.t.close()

    def move(self, call, keys, buffers, **options):
        transfer = self.t.submit(call, keys, buffers, **options)
        (done,) = ended(self.t)
        self.assertIs(done, transfer)
        return transfer.results

    def test_memory_is_registered_when_it_is_used(self):
        data = os.urandom(5000)
        self.assertEqual(self.move(Call.PUT_FROM, ["k"], [data]), [0])
        into = bytearray(5000)
        self.assertEqual(self.move(Call.GET_INTO, ["k"], [into]), [5000])
        self.assertEqual(into, data)
        self.assertEqual(self.t.exists(["k", "no"]), [True, False])
        self.assertEqual(self.t.exists_prefix(["k", "no", "k"]), 1)

    def test_large_batches_are_split_and_whole(self):
        n, size = 7, SPLIT // 2
        arena = mmap.mmap(-1, 2 * n * size)
        arena[: n * size] = os.urandom(n * size)
        parts = [memoryview(arena)[i * size : (i + 1) * size] for i in range(2 * n)]
        keys = [f"k{i}" for i in range(n)]
        self.assertEqual(self.move(Call.PUT_FROM, keys, parts[:n]), [0] * n)
        keys.insert(3, "no")
        into = parts[n:] + [bytearray(size)]
        sizes = [size] * n
        sizes.insert(3, -errno.ENOENT)
        self.assertEqual(self.move(Call.GET_INTO, keys, into), sizes)
        into.pop(3)
        for put, got in zip(parts[:n], into):
            self.assertEqual(put, got)

    def test_what_is_wrong_is_a_result_of_its_key(self):
        self.assertEqual(self.move(Call.PUT_FROM, ["k"], [b"12345"]), [0])
        small, large = bytearray(4), bytearray(6)
        results = self.move(Call.GET_INTO, ["k", "k"], [small, large], exact=True)
        self.assertEqual(results, [-errno.EMSGSIZE] * 2)
        results = self.move(Call.PUT_FROM, ["x" * 5000], [b""])
        self.assertEqual(results, [-errno.ENAMETOOLONG])
        nowhere = [Memory(4096, 10), memory_of(bytearray(10))]
        results = self.move(Call.PUT_FROM, ["a", "b"], nowhere)
        self.assertEqual(results, [-errno.EFAULT, 0])
        results = self.move(Call.PUT_FROM, ["a", "b"], [b""])
        self.assertEqual(results, [-errno.EINVAL] * 2)
        results = self.move(Call.GET_INTO, ["k"], [b"read only"])
        self.assertEqual(results, [-errno.EINVAL])
        self.assertEqual(self.move(Call.PUT_FROM, [1], [b""]), [-errno.EINVAL])
        self.assertEqual(self.move(Call.PUT_FROM, [], []), [])
        self.assertTrue(self.t.idle)

    def test_one_that_is_wrong_spoils_no_other(self):
        buffers = [b"1", b"2", memoryview(bytearray(4))[::2], Memory(1 << 70, 1)]
        results = self.move(Call.PUT_FROM, ["a", "\udc80", "c", "d"], buffers)
        self.assertEqual(
            results, [0, -errno.EINVAL, -errno.EINVAL, -errno.EFAULT]
        )
        self.assertEqual(self.t.exists(["\udc80", "a"]), [False, True])
        self.assertEqual(self.t.exists_prefix(["a", "\udc80"]), 1)
        self.assertEqual(self.t.exists([1]), [False])
        self.assertEqual(self.t.exists_prefix([1]), 0)

    def test_what_is_in_flight_at_the_end_is_reported(self):
        put = [self.t.submit(Call.PUT_FROM, [f"k{i}"], [b"1"]) for i in range(50)]
        self.t.close()
        self.assertCountEqual(self.t.completed(), put)
        self.assertEqual({tuple(t.results) for t in put}, {(0,)})
        late = self.t.submit(Call.PUT_FROM, ["late"], [b"1"])
        self.assertEqual(self.t.completed(), [late])
        self.assertEqual(late.results, [-errno.EHOSTDOWN])
        self.assertEqual(self.t.exists(["k0"]), [False])
        self.assertTrue(self.t.idle)

    def test_many_under_way(self):
        for i in range(1000):
            self.t.submit(Call.PUT_FROM, [f"k{i}"], [b"x"], context=i)
        done = ended(self.t, 1000)
        self.assertEqual(sorted(t.context for t in done), list(range(1000)))
        self.assertEqual({r for t in done for r in t.results}, {0})
        self.assertEqual(self.t.completed(), [])


class RegionsCase(unittest.TestCase):
    def test_mappings_that_change(self):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        size = 1 << 20
        none, writable = 0, mmap.PROT_READ | mmap.PROT_WRITE
        room = mmap.mmap(-1, 4 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        at = memory_of(room).address
        libc.mprotect(at, 4 * size, none)
        libc.mprotect(at, size, writable)
        with kvpool.Pool(AT, **OPTIONS) as pool:
            ns, regions = pool.namespace("py/mappings"), Regions(pool)
            regions.cover([Memory(at, size)])
            self.assertEqual(ns.batch_put_from(["a"], [Memory(at, size)]), [0])
            # It grows: what spans its old end is covered, too.
            libc.mprotect(at + size, size, writable)
            across = Memory(at + size // 2, size)
            self.assertEqual(ns.batch_put_from(["b"], [across]), [-errno.EFAULT])
            regions.cover([across])
            self.assertEqual(ns.batch_put_from(["b"], [across]), [0])
            # It goes: an error, and no crash.
            libc.mprotect(at, 2 * size, none)
            regions.cover([across])
            self.assertEqual(ns.batch_put_from(["c"], [across]), [-errno.EFAULT])


class SessionCase(unittest.TestCase):
    def test_what_will_not_get_better_is_raised(self):
        layout = dict(model="m", dtype="bf16", layout="x", tp=2, tokens=16)
        Session(AT, "py/session", layout=layout, **OPTIONS).close()
        with self.assertRaisesRegex(kvpool.LayoutMismatch, "tp=2.*tp=4"):
            Session(AT, "py/session", layout={**layout, "tp": 4}, **OPTIONS)
        with self.assertRaises(TypeError):
            Session(AT, "py/session", no_such_option=1)
        with self.assertRaises(ValueError):
            Session(AT, "py/session", buffer_size="many")

    def connected_later(self, s, seconds=60):
        end = time.monotonic() + seconds
        while not s.ns and time.monotonic() < end:
            time.sleep(0.05)
        self.assertIsNotNone(s.ns)
        s.close()

    def test_a_mount_that_comes_later(self):
        with tempfile.TemporaryDirectory() as directory:
            at = Path(directory) / "mount"
            s = Session(str(at), "py/session", **OPTIONS)
            self.assertIsNone(s.ns)
            at.symlink_to(MOUNT)
            self.connected_later(s)

    def test_what_may_get_better_is_tried_again(self):
        errors = [errno.ENOSPC, errno.EMFILE, errno.EIO, errno.ENOTSUP]

        def pool(*args, **options):
            if errors:
                raise error_of(-errors.pop(0))
            return kvpool.Pool(*args, **options)

        with mock.patch.multiple(session, Pool=pool, RETRY_S=0.01):
            self.connected_later(Session(AT, "py/session", **OPTIONS))
        self.assertEqual(errors, [])

    def test_what_fails_once_connected_is_tried_again(self):
        pools = []

        def fails_once(ns):
            pools.append(ns.pool)
            if len(pools) == 1:
                raise OSError(errno.ENOSPC, "no watch")

        with mock.patch.multiple(session, RETRY_S=0.01):
            s = Session(AT, "py/session", on_connected=fails_once, **OPTIONS)
            self.connected_later(s)
        self.assertEqual([p.closed for p in pools], [True, True])

    def test_until_there_is_a_master_all_is_a_miss(self):
        t = Transfers(LATE, "py/late", timeout=0.3, **OPTIONS)
        self.assertIsNone(t.ns)
        self.assertEqual(t.exists(["k", "l"]), [False, False])
        self.assertEqual(t.exists_prefix(["k"]), 0)
        t.submit(Call.PUT_FROM, ["k", "l"], [b"1", b"2"])
        t.submit(Call.GET_INTO, ["k"], [bytearray(1)])
        t.submit(Call.REMOVE, ["k"])
        for transfer in ended(t, 3):
            self.assertEqual(set(transfer.results), {-errno.EHOSTDOWN})
            self.assertIn("no master", transfer.error)
        START.touch()
        end = time.monotonic() + 60
        while not t.ns and time.monotonic() < end:
            time.sleep(0.05)
        t.submit(Call.GET_INTO, ["k"], [bytearray(1)])
        self.assertEqual(ended(t)[0].results, [-errno.ENOENT])
        t.close()


if __name__ == "__main__":
    unittest.main()
