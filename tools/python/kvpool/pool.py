"""Connections and namespaces: the calls of kvpool(3)."""

import ctypes
import itertools
import mmap
import os
import select
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import SupportsIndex

from kvpool import _native
from kvpool._native import KEY_MAX, lib
from kvpool.arguments import (
    U32_MAX,
    U64_MAX,
    milliseconds,
    number,
    optional_text,
    parse_size,
    text,
)
from kvpool.errors import checked
from kvpool.gate import Gate
from kvpool.layout import Layout
from kvpool.memory import (
    Bufferlike,
    Buffers,
    Keylike,
    Keys,
    Memory,
    Results,
    key_bytes,
    memory_of,
)
from kvpool.requests import Call, Request

__all__ = [
    "KEY_MAX",
    "Call",
    "Layout",
    "Namespace",
    "Pool",
    "Registered",
    "Request",
    "parse_size",
    "version",
]


def version() -> str:
    """The version of libkvpool."""
    name: bytes = lib.version()
    return name.decode()


class Registered(Memory):
    """Memory that the pool may read and write, until unregister(). Slices of it can be
    passed to calls as buffers."""

    __slots__ = ("_pool", "__weakref__")

    def __init__(self, pool: "Pool", memory: Memory) -> None:
        super().__init__(memory.address, memory.length, memory.owner)
        self._pool = pool

    def unregister(self) -> None:
        """As Pool.unregister. Also called at the end of a `with` block."""
        self._pool.unregister(self)

    def __enter__(self) -> "Registered":
        return self

    def __exit__(self, *_: object) -> None:
        self.unregister()


class Pool:
    """A connection: kvpool_connect. Threads may share it. It is closed at the end of a
    `with` block or of the program."""

    def __init__(
        self,
        at: str,
        *,
        listen: str | None = None,
        advertise: str | None = None,
        name: str | None = None,
        buffer_dir: str | os.PathLike[str] | None = None,
        buffer_size: int | str = 0,
        timeout: float = 0,
        insecure: bool = False,
        threads: int = 0,
        log_level: int = 0,
        rdma_device: str | None = None,
        allow_users: str | None = None,
        tls_dir: str | os.PathLike[str] | None = None,
        bulk: str | None = None,
        tls_renew: float = 0,
    ) -> None:
        """at: "HOST:PORT" of the master, or several separated by commas; or a path in a
        mount of the pool on this machine. listen: the address where other nodes reach
        this process; the default, "127.0.0.1:0", suffices for a pool on one host.
        `tls_dir`, the directory of a client's certificate, permits addresses other than
        loopback, and so does `insecure`. timeout and tls_renew: in seconds (default 10,
        and a day). The others, and the meaning of 0 and None: struct kvpool_options."""
        options = _native.Options(
            ctypes.sizeof(_native.Options),
            text("at", at),
            optional_text("listen", listen),
            optional_text("advertise", advertise),
            optional_text("name", name),
            optional_text("buffer_dir", buffer_dir),
            parse_size(buffer_size),
            milliseconds("timeout", timeout),
            _native.INSECURE if insecure else 0,
            number("threads", threads, U32_MAX),
            number("log_level", log_level, 2**31 - 1, -(2**31)),
            optional_text("rdma_device", rdma_device),
            optional_text("allow_users", allow_users),
            optional_text("tls_dir", tls_dir),
            optional_text("bulk", bulk),
            milliseconds("tls_renew", tls_renew),
        )
        handle = ctypes.c_void_p()
        checked(lib.connect(options, handle))
        assert handle.value
        self._gate = Gate(handle.value)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._namespaces: set[Namespace] = set()
        self._buffers: dict[int, Registered] = {}
        self._numbers = itertools.count(1)
        self._requests: dict[int, Request] = {}
        self._event_fd: int = lib.event_fd(handle)
        # Also at the end of the program: objects that were put reach stores first.
        self._end = weakref.finalize(self, _close_quietly, handle.value, os.getpid())

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Waits for calls and requests in flight and (as sync) until stores have all
        objects that were put. Closes the namespaces, too; mapped objects stay mapped.
        TimedOut: an object that was put may be lost."""
        if not self._gate.close():
            return
        self._end.detach()
        poll = select.poll()
        poll.register(self._event_fd, select.POLLIN)
        while self._requests and os.getpid() == self._pid:
            poll.poll()
            self._take(256)
        for ns in list(self._namespaces):
            ns._close()
        error = lib.close(self._gate.handle)
        self._buffers.clear()
        checked(error)

    @property
    def closed(self) -> bool:
        """Was close() called? Then all other calls raise Unreachable."""
        return not self._end.alive

    def sync(self) -> None:
        """Waits until all objects put before are on stores and known to every mount."""
        with self._gate as pool:
            checked(lib.sync(pool))

    def namespace(self, path: str = "", layout: Layout | None = None) -> "Namespace":
        """The directory `path` of the mount. It need not exist."""
        return Namespace(self, path, layout)

    def stats(self) -> dict[str, int]:
        """What this connection has done so far: the members of struct kvpool_stats by
        name. Each key of a call is counted once as asked for, and once by its result,
        so that the figures add up: ACCOUNTING in kvpool(3). Never waits."""
        stats = _native.Stats(ctypes.sizeof(_native.Stats))
        with self._gate as pool:
            checked(lib.stats(pool, stats))
        names = [field[0] for field in stats._fields_[1:]]
        return {name: getattr(stats, name) for name in names}

    # ---- buffers ----

    def register(self, buffer: Bufferlike) -> Registered:
        """Buffers of puts and gets must lie in registered memory. The pool keeps the
        memory's owner alive."""
        memory = memory_of(buffer, writable=True)
        registered = Registered(self, memory)
        with self._gate as pool, self._lock:
            checked(lib.register_buffer(pool, memory.address, memory.length))
            self._buffers[memory.address] = registered
        return registered

    def unregister(self, buffer: Bufferlike) -> None:
        """Undoes register(); no call may still use the memory. Its owner is no longer
        kept alive. Raises NotFound, or Error (EBUSY)."""
        address = memory_of(buffer).address
        with self._gate as pool, self._lock:
            checked(lib.unregister_buffer(pool, address))
            self._buffers.pop(address, None)

    # ---- requests ----

    @property
    def event_fd(self) -> int:
        """Readable while there are requests that completed() would return. Do not read
        or close it."""
        return self._event_fd

    def completed(self, most: int = 256) -> list[Request]:
        """Requests that have completed, each of them once. Never waits."""
        with self._gate:
            return self._take(most)

    def _take(self, most: int) -> list[Request]:
        space = (_native.Completion * most)()
        n = lib.completions(self._gate.handle, space, most)
        done = []
        for completion in space[:n]:
            request = self._requests.pop(completion.id)
            request._completed(completion.result)
            done.append(request)
        return done


# A call of the library; ctypes checks the arguments.
_Function = Callable[..., int]


def _close_quietly(handle: int, pid: int) -> None:
    if os.getpid() == pid:
        lib.close(handle)


def _bits(if_absent: bool = False, sync: bool = False, exact: bool = False) -> int:
    return (
        (_native.IF_ABSENT if if_absent else 0)
        | (_native.SYNC if sync else 0)
        | (_native.EXACT if exact else 0)
    )


def _seconds(seconds: SupportsIndex) -> int:
    return number("seconds", seconds, U64_MAX)


class Namespace:
    """A directory of the mount, and objects in it by key: kvpool_open_ns."""

    def __init__(self, pool: Pool, path: str, layout: Layout | None = None) -> None:
        self.pool = pool
        self.path = path
        self.layout = layout
        c_layout = layout and layout.as_c()
        c_path = text("a namespace", path)
        handle = ctypes.c_void_p()
        with pool._gate as c_pool:
            checked(lib.open_ns(c_pool, c_path, c_layout, handle))
            assert handle.value
            self._gate = Gate(handle.value, pool._gate)
            pool._namespaces.add(self)

    def __repr__(self) -> str:
        return f"Namespace({self.path!r})"

    def __enter__(self) -> "Namespace":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Waits for calls of other threads. Error (EBUSY): a request is in flight."""
        requests = self.pool._requests
        self._close(lambda: any(r.ns is self for r in list(requests.values())))

    def _close(self, busy: Callable[[], bool] = lambda: False) -> None:
        if self._gate.close(busy):
            self.pool._namespaces.discard(self)
            lib.close_ns(self._gate.handle)

    # ---- names ----

    def key_path(self, key: Keylike) -> str:
        """The path of the key's file, below the namespace's directory."""
        key = key_bytes(key)
        space = ctypes.create_string_buffer(4097)
        with self._gate as ns:
            checked(lib.key_path(ns, key, len(key), space, len(space)))
        return os.fsdecode(space.value)

    def path_key(self, path: str | os.PathLike[str]) -> bytes:
        """The key of a path: the inverse of key_path."""
        c_path = text("a path", path)
        space = ctypes.create_string_buffer(KEY_MAX)
        with self._gate as ns:
            n = checked(lib.path_key(ns, c_path, space, len(space)))
        return space.raw[:n]

    # ---- one key: errors are raised ----

    def put_from(
        self,
        key: Keylike,
        buffer: Bufferlike,
        *,
        if_absent: bool = False,
        sync: bool = False,
    ) -> None:
        """Stores the buffer's content as the object. Afterwards this connection sees
        it, and the pool receives it in the background; with `sync`, it is on a store
        and known to all mounts."""
        key, m = key_bytes(key), memory_of(buffer)
        flags = _bits(if_absent=if_absent, sync=sync)
        with self._gate as ns:
            checked(lib.put_from(ns, key, len(key), m.address, m.length, flags))

    def get_into(
        self, key: Keylike, buffer: Bufferlike, *, exact: bool = False
    ) -> int:
        """Reads the object into the buffer; returns its size. SizeMismatch if it is
        larger than the buffer, or (with `exact`) smaller."""
        key, m = key_bytes(key), memory_of(buffer, writable=True)
        with self._gate as ns:
            return checked(
                lib.get_into(
                    ns, key, len(key), m.address, m.length, _bits(exact=exact)
                )
            )

    def get_size(self, key: Keylike) -> int:
        """The object's size in bytes."""
        return self._one(lib.get_size, key)

    def exists(self, key: Keylike) -> bool:
        """Answered from this process's memory, like get_size."""
        return self._one(lib.exists, key) > 0

    def remove(self, key: Keylike) -> None:
        """Removes it from the whole pool. Existing mappings stay valid."""
        self._one(lib.remove, key)

    def touch(self, key: Keylike) -> None:
        """Counts as a use, without reading: see kvpool_touch in kvpool.h."""
        self._one(lib.touch, key)

    def pin(self, key: Keylike, seconds: int = 0) -> None:
        """It is evicted after all others for so many seconds. 0: it is never
        evicted."""
        key, seconds = key_bytes(key), _seconds(seconds)
        with self._gate as ns:
            checked(lib.pin(ns, key, len(key), seconds))

    def unpin(self, key: Keylike) -> None:
        """It may be evicted like others again."""
        self._one(lib.unpin, key)

    def open(self, key: Keylike) -> int:
        """A descriptor for os.pread of the object's bytes. The caller closes it."""
        return self._one(lib.open, key)

    def map(self, key: Keylike) -> memoryview:
        """The object's pages; the store's own if it is on this host. They stay valid as
        long as the view, or an array made of it, exists."""
        fd = self.open(key)
        try:
            size = os.fstat(fd).st_size
            if size == 0:
                return memoryview(b"")
            options = {"trackfd": False} if sys.version_info >= (3, 13) else {}
            return memoryview(mmap.mmap(fd, size, access=mmap.ACCESS_READ, **options))
        finally:
            os.close(fd)

    def _one(self, call: _Function, key: Keylike) -> int:
        key = key_bytes(key)
        with self._gate as ns:
            return checked(call(ns, key, len(key)))

    # ---- many keys: a result for each, >= 0 or a negative errno ----
    # Errors found in Python are results, too: a text that has no UTF-8, a buffer that
    # is not contiguous. An object that is no key or no buffer raises TypeError.

    def batch_put_from(
        self,
        keys: Iterable[Keylike],
        buffers: Iterable[Bufferlike],
        *,
        if_absent: bool = False,
        sync: bool = False,
    ) -> list[int]:
        """put_from for many keys. Results: 0."""
        flags = _bits(if_absent=if_absent, sync=sync)
        return self._moved(lib.batch_put_from, keys, Buffers(buffers, False), flags)

    def batch_get_into(
        self,
        keys: Iterable[Keylike],
        buffers: Iterable[Bufferlike],
        *,
        exact: bool = False,
    ) -> list[int]:
        """get_into for many keys. Results: sizes."""
        flags = _bits(exact=exact)
        return self._moved(lib.batch_get_into, keys, Buffers(buffers, True), flags)

    def batch_get_size(self, keys: Iterable[Keylike]) -> list[int]:
        """get_size for many keys. Results: sizes."""
        return self._many(lib.batch_get_size, keys)

    def batch_exists(self, keys: Iterable[Keylike]) -> list[int]:
        """exists for many keys. Results: 1 or 0."""
        return self._many(lib.batch_exists, keys)

    def batch_remove(self, keys: Iterable[Keylike]) -> list[int]:
        """remove for many keys. Results: 0."""
        return self._many(lib.batch_remove, keys)

    def batch_touch(self, keys: Iterable[Keylike]) -> list[int]:
        """touch for many keys. Results: 0."""
        return self._many(lib.batch_touch, keys)

    def batch_pin(self, keys: Iterable[Keylike], seconds: int = 0) -> list[int]:
        """pin for many keys. Results: 0."""
        return self._many(lib.batch_pin, keys, _seconds(seconds))

    def batch_unpin(self, keys: Iterable[Keylike]) -> list[int]:
        """unpin for many keys. Results: 0."""
        return self._many(lib.batch_unpin, keys)

    def exists_prefix(self, keys: Iterable[Keylike]) -> int:
        """How many of the first keys exist, up to the first that does not?"""
        c_keys = Keys(keys)
        with self._gate as ns:
            return checked(lib.exists_prefix(ns, c_keys.address, c_keys.n))

    def _moved(
        self, call: _Function, keys: Iterable[Keylike], buffers: Buffers, flags: int
    ) -> list[int]:
        c_keys = _pair(keys, buffers)
        results = Results(c_keys, buffers)
        with self._gate as ns:
            checked(
                call(
                    ns,
                    c_keys.address,
                    buffers.address,
                    c_keys.n,
                    flags,
                    results.address,
                )
            )
        return results.all()

    def _many(
        self, call: _Function, keys: Iterable[Keylike], *argument: int
    ) -> list[int]:
        c_keys = Keys(keys)
        results = Results(c_keys)
        with self._gate as ns:
            checked(call(ns, c_keys.address, c_keys.n, *argument, results.address))
        return results.all()

    # ---- without waiting ----

    def submit(
        self,
        call: Call,
        keys: Iterable[Keylike],
        buffers: Iterable[Bufferlike] | None = None,
        *,
        if_absent: bool = False,
        sync: bool = False,
        exact: bool = False,
        seconds: int = 0,
        context: object = None,
    ) -> Request:
        """Runs the batch call of that name on a thread of the library. Pool.completed
        returns the request when it has ended; until then the buffers belong to the
        library, which keeps them alive. `context` is for the caller. TooMany: 4096
        requests are in flight."""
        call = Call(call)
        moves = call in (Call.PUT_FROM, Call.GET_INTO)
        c_buffers = Buffers(buffers or (), call == Call.GET_INTO) if moves else None
        c_keys = _pair(keys, c_buffers)
        pins = call == Call.PIN
        arg = _seconds(seconds) if pins else _bits(if_absent, sync, exact)
        results = Results(c_keys, c_buffers)
        request = Request(next(self.pool._numbers), self, call, results, c_buffers)
        request.context = context
        with self._gate as ns:
            # It may complete before submit returns.
            self.pool._requests[request.id] = request
            error = lib.submit(
                ns,
                call,
                c_keys.address,
                c_buffers.address if c_buffers else 0,
                c_keys.n,
                arg,
                results.address,
                request.id,
            )
            if error < 0:
                del self.pool._requests[request.id]
                checked(error)
        return request


def _pair(keys: Iterable[Keylike], buffers: Buffers | None) -> Keys:
    c_keys = Keys(keys)
    if buffers and buffers.n != c_keys.n:
        raise ValueError(f"{c_keys.n} keys and {buffers.n} buffers")
    return c_keys
