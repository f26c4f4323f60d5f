"""libkvpool.so for ctypes: pool/kvpool.h without additions.

Addresses are plain integers (c_void_p); arrays of struct kvpool_key and struct
kvpool_buf are pairs of 64-bit words (memory.py makes them). The interpreter's
lock is not held during calls.
"""

import ctypes
import os
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_int64,
    c_size_t,
    c_ssize_t,
    c_uint,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path

SONAME = "libkvpool.so.0"

INSECURE = 1
IF_ABSENT = 1
SYNC = 2
EXACT = 4
KEY_MAX = 4000


class Options(Structure):
    """struct kvpool_options"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("at", c_char_p),
        ("listen", c_char_p),
        ("advertise", c_char_p),
        ("name", c_char_p),
        ("buffer_dir", c_char_p),
        ("buffer_size", c_uint64),
        ("timeout_ms", c_uint64),
        ("flags", c_uint),
        ("threads", c_uint),
        ("log_level", c_int),
        ("rdma_device", c_char_p),
        ("allow_users", c_char_p),
        ("tls_dir", c_char_p),
        ("bulk", c_char_p),
        ("tls_renew_ms", c_uint64),
    ]


class LayoutStruct(Structure):
    """struct kvpool_layout"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("model", c_char_p),
        ("dtype", c_char_p),
        ("layout", c_char_p),
        ("tp", c_uint32),
        ("tokens", c_uint32),
    ]


class Completion(Structure):
    """struct kvpool_completion"""

    _fields_ = [("id", c_uint64), ("result", c_int64)]


class Stats(Structure):
    """struct kvpool_stats"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("lookups", c_uint64),
        ("hits_here", c_uint64),
        ("hits_peer", c_uint64),
        ("misses", c_uint64),
        ("lookups_skipped", c_uint64),
        ("lookups_invalid", c_uint64),
        ("lookups_away", c_uint64),
        ("gets", c_uint64),
        ("gets_here", c_uint64),
        ("gets_lent", c_uint64),
        ("gets_tcp", c_uint64),
        ("gets_rdma", c_uint64),
        ("gets_missed", c_uint64),
        ("gets_undelivered", c_uint64),
        ("gets_unfit", c_uint64),
        ("gets_invalid", c_uint64),
        ("gets_failed", c_uint64),
        ("bytes_got", c_uint64),
        ("bytes_here", c_uint64),
        ("bytes_lent", c_uint64),
        ("bytes_tcp", c_uint64),
        ("bytes_rdma", c_uint64),
        ("puts", c_uint64),
        ("puts_stored", c_uint64),
        ("puts_existed", c_uint64),
        ("puts_full", c_uint64),
        ("puts_invalid", c_uint64),
        ("puts_failed", c_uint64),
        ("bytes_put", c_uint64),
        ("retries", c_uint64),
        ("lookup_calls_timed", c_uint64),
        ("lookup_calls_p50_ns", c_uint64),
        ("lookup_calls_p99_ns", c_uint64),
        ("get_calls_timed", c_uint64),
        ("get_calls_p50_ns", c_uint64),
        ("get_calls_p99_ns", c_uint64),
        ("put_calls_timed", c_uint64),
        ("put_calls_p50_ns", c_uint64),
        ("put_calls_p99_ns", c_uint64),
    ]


_KEY: list[object] = [c_void_p, c_char_p, c_size_t]  # a namespace, a key
_KEYS: list[object] = [c_void_p, c_void_p]  # a namespace, keys
_PROTOTYPES: dict[str, tuple[object, list[object]]] = {
    "version": (c_char_p, []),
    "strerror": (c_char_p, [c_int64]),
    "last_error": (c_char_p, []),
    "connect": (c_int, [POINTER(Options), POINTER(c_void_p)]),
    "close": (c_int, [c_void_p]),
    "sync": (c_int, [c_void_p]),
    "open_ns": (
        c_int,
        [c_void_p, c_char_p, POINTER(LayoutStruct), POINTER(c_void_p)],
    ),
    "close_ns": (None, [c_void_p]),
    "key_path": (c_int, [*_KEY, c_void_p, c_size_t]),
    "path_key": (c_int, [c_void_p, c_char_p, c_void_p, c_size_t]),
    "register_buffer": (c_int, [c_void_p, c_void_p, c_size_t]),
    "unregister_buffer": (c_int, [c_void_p, c_void_p]),
    "put_from": (c_int, [*_KEY, c_void_p, c_size_t, c_uint]),
    "get_into": (c_int64, [*_KEY, c_void_p, c_size_t, c_uint]),
    "get_size": (c_int64, _KEY),
    "exists": (c_int, _KEY),
    "remove": (c_int, _KEY),
    "touch": (c_int, _KEY),
    "pin": (c_int, [*_KEY, c_uint64]),
    "unpin": (c_int, _KEY),
    "open": (c_int, _KEY),
    "batch_put_from": (c_ssize_t, [*_KEYS, c_void_p, c_size_t, c_uint, c_void_p]),
    "batch_get_into": (c_ssize_t, [*_KEYS, c_void_p, c_size_t, c_uint, c_void_p]),
    "batch_get_size": (c_ssize_t, [*_KEYS, c_size_t, c_void_p]),
    "batch_exists": (c_ssize_t, [*_KEYS, c_size_t, c_void_p]),
    "batch_remove": (c_ssize_t, [*_KEYS, c_size_t, c_void_p]),
    "batch_touch": (c_ssize_t, [*_KEYS, c_size_t, c_void_p]),
    "batch_pin": (c_ssize_t, [*_KEYS, c_size_t, c_uint64, c_void_p]),
    "batch_unpin": (c_ssize_t, [*_KEYS, c_size_t, c_void_p]),
    "exists_prefix": (c_ssize_t, [*_KEYS, c_size_t]),
    "submit": (
        c_int,
        [c_void_p, c_int, c_void_p, c_void_p, c_size_t, c_uint64, c_void_p, c_uint64],
    ),
    "event_fd": (c_int, [c_void_p]),
    "completions": (c_size_t, [c_void_p, POINTER(Completion), c_size_t]),
    "stats": (c_int, [c_void_p, POINTER(Stats)]),
    "parse_size": (c_int, [c_char_p, POINTER(c_uint64)]),
}


def _candidates() -> list[str]:
    named = os.environ.get("KVPOOL_LIBRARY")
    if named:
        return [named]
    # In the package, where pip has installed it from the source tree; or built in
    # the source tree that this file is in.
    file = Path(__file__).resolve()
    places = (file.parent / SONAME, file.parents[3] / "build" / SONAME)
    here = [str(p) for p in places if p.exists()]
    return [*here, SONAME, f"/usr/local/lib/{SONAME}"]


def _load() -> ctypes.CDLL:
    errors = []
    for name in _candidates():
        try:
            return ctypes.CDLL(name)
        except OSError as e:
            errors.append(str(e))
    raise ImportError(
        f"{SONAME} is not there (KVPOOL_LIBRARY names it): {'; '.join(errors)}"
    )


class _Library:
    """The functions, as attributes named without `kvpool_`."""

    def __init__(self) -> None:
        library = _load()
        for name, (result, arguments) in _PROTOTYPES.items():
            function = getattr(library, "kvpool_" + name)
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> "ctypes._NamedFuncPointer":
        raise AttributeError(name)  # for type checkers: all are set above


lib = _Library()
