"""The pool, for Python programs: libkvpool's calls on Python's buffers.

    import kvpool

    with kvpool.Pool("/mnt/kvpool") as pool:         # or "10.0.0.1:7070"
        ns = pool.namespace("llama")                 # a directory of the mount
        memory = pool.register(bytearray(4 << 20))   # or an array, or a tensor
        ns.put_from(b"key", memory[:4096])
        size = ns.get_into("key", memory)
        found = ns.exists_prefix(keys)
        results = ns.batch_get_into(keys, buffers)   # sizes, or -errno

kvpool(3) and pool/kvpool.h describe what each call does and costs; the names are the
same. In Python:

*   keys are bytes, or text (UTF-8);
*   buffers are objects with the buffer protocol (bytearray, memoryview, mmap, numpy),
    tensors in host memory (by pointer), Memory(address, length), and slices of what
    register() returned. They must lie in registered memory;
*   a call for one key raises Error or one of its subclasses, with C's text; a
    call for many returns a result for each key, >= 0 or a negative errno, also for a
    buffer that is not contiguous, or a text that has no UTF-8;
*   a number or a text that does not fit in C raises ValueError, and is never truncated;
*   requests: Namespace.submit, Pool.completed, or kvpool.aio for asyncio;
*   threads may share a pool; other threads run while the library works.

Adapters for engines, each loaded by the engine by its module path: kvpool.vllm,
kvpool.lmcache, kvpool.sglang. Needs libkvpool.so.0: where the dynamic linker finds it,
in /usr/local/lib, or at the path in KVPOOL_LIBRARY.
"""

from kvpool.errors import (
    Error,
    Exists,
    KeyTooLong,
    LayoutMismatch,
    NoRoom,
    NotAllowed,
    NotFound,
    NotRegistered,
    SizeMismatch,
    TimedOut,
    TooMany,
    Unreachable,
    strerror,
)
from kvpool.memory import Bufferlike, Keylike, Memory
from kvpool.pool import (
    KEY_MAX,
    Call,
    Layout,
    Namespace,
    Pool,
    Registered,
    Request,
    parse_size,
    version,
)

__all__ = [
    "KEY_MAX",
    "Bufferlike",
    "Call",
    "Error",
    "Exists",
    "KeyTooLong",
    "Keylike",
    "Layout",
    "LayoutMismatch",
    "Memory",
    "Namespace",
    "NoRoom",
    "NotAllowed",
    "NotFound",
    "NotRegistered",
    "Pool",
    "Registered",
    "Request",
    "SizeMismatch",
    "TimedOut",
    "TooMany",
    "Unreachable",
    "parse_size",
    "strerror",
    "version",
]
