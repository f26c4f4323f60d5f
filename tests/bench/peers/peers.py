#!/usr/bin/env python3
"""Peers of libkvpool, measured as library_bench does: lines of its table.

    peers.py mooncake MASTER:PORT ROUNDS   MooncakeDistributedStore, over TCP; what
                                           is got is in another process
    peers.py store MASTER:PORT [GIB]       that process, with so much (3)
    peers.py redis PORT ROUNDS             redis-server, by its protocol

Each figure is the median of rounds that alternate with a raw socket.
"""
import ctypes
import signal
import socket
import statistics
import sys
import threading
import time

MIB = 1 << 20
MEM = bytearray(64 * MIB)
ADDR = ctypes.addressof(ctypes.c_char.from_buffer(MEM))
KEYS = 100_000
BATCH = 4096


def us(call):
    begin = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - begin) / 1e3


class Raw:
    """Bytes of another thread over a socket, on request."""

    def __init__(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.ours = socket.create_connection(server.getsockname())
            self.theirs = server.accept()[0]
        for s in (self.ours, self.theirs):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self.send, daemon=True).start()

    def send(self):
        data = memoryview(bytes(32 * MIB))
        while want := self.theirs.recv(8):
            self.theirs.sendall(data[:int(want)])

    def get(self, size):
        self.ours.sendall(b"%08d" % size)
        receive(self.ours, memoryview(MEM)[:size])


def receive(s, view):
    while view:
        n = s.recv_into(view)
        if n == 0:
            raise ConnectionError("ended")
        view = view[n:]


def line(what, figures):
    print(f"{what:<34} {figures}", flush=True)


def compare(name, calls, rounds):
    """calls: what, bytes, call(round)."""
    raw = Raw()
    for what, size, call in calls:
        took, base = [], []
        for i in range(rounds):
            base.append(us(lambda: raw.get(size)))
            took.append(us(lambda: call(i)))
        t, b = statistics.median(took), statistics.median(base)
        small = size <= 4096
        line(f"{name}: {what}", f"{t:.0f} us, raw {b:.0f}: " + (
            f"{t / b:.2f} times (best: {min(took) / min(base):.2f})" if small
            else f"{b / t:.2f} of raw (best: {min(base) / min(took):.2f})"))


def questions(name, one, many):
    """one(key), many(keys): how many are there. Half are misses."""
    keys = [f"ask{i if i % 2 else i + 10**9}" for i in range(KEYS)]
    line(f"{name}: exists, one key", "%.1f us" % (
        us(lambda: [one(k) for k in keys[:2000]]) / 2000))
    there = 0

    def all_of_them():
        nonlocal there
        for at in range(0, KEYS, BATCH):
            there += many(keys[at:at + BATCH])

    took = us(all_of_them)
    line(f"{name}: batch exists, {KEYS} keys",
         f"{KEYS / took:.2f} M/s, {100 * there // KEYS} % hits")


# ---- Mooncake Store ----

def mooncake_store(master, segment, buffer):
    from mooncake.store import MooncakeDistributedStore
    store = MooncakeDistributedStore()
    rc = store.setup("127.0.0.1", "P2PHANDSHAKE", segment, buffer, "tcp", "",
                     master)
    if rc:
        sys.exit(f"setup: {rc}")
    return store


def good(what, rc):
    if rc < 0:
        sys.exit(f"{what}: {rc}")


def mooncake_serve(master, gib=3):
    segment = mooncake_store(master, int(gib) << 30, 64 * MIB)
    print("ready", flush=True)
    signal.pause()
    del segment  # it serves as long as it is referred to


def mooncake(master, rounds):
    store = mooncake_store(master, 0, 256 * MIB)
    good("register_buffer", store.register_buffer(ADDR, len(MEM)))

    failed = []

    def put(n, size, name):
        keys = [f"{name}-{i}" for i in range(n)]
        at = [ADDR + i * size for i in range(n)]
        for rc in ([store.put_from(keys[0], at[0], size)] if n == 1 else
                   store.batch_put_from(keys, at, [size] * n)):
            if rc:
                failed.append(rc)

    def get(n, size, name):
        keys = [f"{name}-{i}" for i in range(n)]
        at = [ADDR + i * size for i in range(n)]
        for rc in ([store.get_into(keys[0], at[0], size)] if n == 1 else
                   store.batch_get_into(keys, at, [size] * n)):
            if rc != size:
                failed.append(rc)

    shapes = [(1, 4096), (1, 4 * MIB), (32, MIB)]
    for n, size in shapes:
        for i in range(rounds):
            put(n, size, f"g{n}-{size}-{i}")
    calls = []
    for n, size in shapes:
        calls.append((f"get {n} x {size >> 10} KiB", n * size,
                      lambda i, n=n, s=size: get(n, s, f"g{n}-{s}-{i}")))
        calls.append((f"put {n} x {size >> 10} KiB", n * size,
                      lambda i, n=n, s=size: put(n, s, f"p{n}-{s}-{i}")))
    compare("Mooncake", calls, rounds)
    if failed:
        line("Mooncake: objects that failed",
             f"{len(failed)} ({', '.join(map(str, sorted(set(failed))))})")
    # More at once are refused by its lanes, and tried again for a minute.
    for at in range(1, KEYS, 64):
        keys = [f"ask{i}" for i in range(at, min(at + 64, KEYS), 2)]
        store.batch_put_from(keys, [ADDR] * len(keys), [64] * len(keys))
    questions("Mooncake", store.is_exist,
              lambda keys: sum(rc == 1 for rc in store.batch_is_exist(keys)))
    store.close()


# ---- Redis ----

class Redis:
    def __init__(self, port):
        self.s = socket.create_connection(("127.0.0.1", port))
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @staticmethod
    def command(*words):
        out = b"*%d\r\n" % len(words)
        for w in words:
            w = w if isinstance(w, bytes) else w.encode()
            out += b"$%d\r\n%s\r\n" % (len(w), w)
        return out

    def head(self):
        """Up to the end of a line, no byte beyond it."""
        got = b""
        while not got.endswith(b"\r\n"):
            got += self.s.recv(1)
        if got[:1] == b"-":
            sys.exit(f"redis: {got}")
        return got

    def peek_head(self):
        got = self.s.recv(32, socket.MSG_PEEK)
        end = got.find(b"\r\n")
        return self.head() if end < 0 else self.s.recv(end + 2)

    def bulk(self, view):
        if int(self.peek_head()[1:]) != len(view):
            sys.exit("redis: another size")
        receive(self.s, view)
        receive(self.s, memoryview(bytearray(2)))

    def put(self, n, size, name):
        view = memoryview(MEM)
        for i in range(n):
            key = f"{name}-{i}".encode()
            self.s.sendall(b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n" %
                           (len(key), key, size))
            self.s.sendall(view[i * size:(i + 1) * size])
            self.s.sendall(b"\r\n")
        for i in range(n):
            self.peek_head()

    def get(self, n, size, name):
        view = memoryview(MEM)
        self.s.sendall(self.command("MGET", *(f"{name}-{i}"
                                              for i in range(n))))
        self.peek_head()
        for i in range(n):
            self.bulk(view[i * size:(i + 1) * size])

    def count(self, keys):
        self.s.sendall(b"".join(self.command("EXISTS", k) for k in keys))
        got = b""
        while got.count(b"\n") < len(keys):
            got += self.s.recv(1 << 16)
        return got.count(b":1")


def redis(port, rounds):
    r = Redis(port)
    shapes = [(1, 4096), (1, 4 * MIB), (32, MIB)]
    calls = []
    for n, size in shapes:
        r.put(n, size, f"g{n}-{size}")
        calls.append((f"get {n} x {size >> 10} KiB", n * size,
                      lambda i, n=n, s=size: r.get(n, s, f"g{n}-{s}")))
        calls.append((f"put {n} x {size >> 10} KiB", n * size,
                      lambda i, n=n, s=size: r.put(n, s, f"p{n}-{s}")))
    compare("Redis", calls, rounds)
    for at in range(1, KEYS, 2 * BATCH):
        keys = range(at, min(at + 2 * BATCH, KEYS), 2)
        r.s.sendall(b"".join(r.command("SET", f"ask{i}", "x" * 64)
                             for i in keys))
        for _ in keys:
            r.peek_head()
    questions("Redis", lambda k: r.count([k]), r.count)


if __name__ == "__main__":
    what, at = sys.argv[1:3]
    if what == "store":
        mooncake_serve(at, *sys.argv[3:])
    elif what == "mooncake":
        mooncake(at, int(sys.argv[3]))
    else:
        redis(int(at), int(sys.argv[3]))
