"""Converts Python objects for the library: addresses, lengths, arrays."""

import ctypes
import errno
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, TypeAlias, cast

from kvpool._native import KEY_MAX
from kvpool.arguments import U64_MAX
from kvpool.errors import error_of

Keylike: TypeAlias = bytes | bytearray | memoryview | str
# The buffer protocol, a tensor in host memory, or Memory.
Bufferlike: TypeAlias = Any


class _PyBuffer(ctypes.Structure):
    """Py_buffer, of the stable ABI since Python 3.11."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_void_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_SIMPLE, _WRITABLE = 0, 1
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_get_buffer.restype = ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]
_release_buffer.restype = None


class _Held:
    """An exported buffer: its object can neither move nor be freed."""

    __slots__ = ("view", "release")

    def __init__(self, obj: object, flags: int) -> None:
        self.release = None
        self.view = _PyBuffer()
        _get_buffer(obj, self.view, flags)
        self.release = _release_buffer

    def __del__(self) -> None:
        if self.release:
            self.release(self.view)


class Memory:
    """`length` bytes at `address`; `owner` keeps them alive.

    Memory(address, length) is for callers that have only a pointer, and keep the memory
    alive themselves."""

    __slots__ = ("address", "length", "owner")

    def __init__(self, address: int, length: int, owner: object = None) -> None:
        if address < 0 or length < 0:
            raise ValueError("an address, and a length in bytes")
        self.address = address
        self.length = length
        self.owner = owner

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, part: slice) -> "Memory":
        if not isinstance(part, slice):
            raise TypeError("only slices")
        begin, end, step = part.indices(self.length)
        if step != 1:
            raise ValueError("one piece, without gaps")
        return Memory(self.address + begin, max(end - begin, 0), self.owner or self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address:#x}, {self.length})"


class Unusable(Memory):
    """Takes the place of an unusable buffer in a batch: an address that is never valid,
    and the result for its key."""

    __slots__ = ("result",)

    def __init__(self, result: int) -> None:
        super().__init__(0, 1)
        self.result = result


def memory_of(obj: Bufferlike, writable: bool = False) -> Memory:
    """Where obj's bytes are. TypeError if it has none; BufferError if they are not
    contiguous, or not writable; NotRegistered if the address is out of range."""
    if isinstance(obj, Memory):
        if obj.address + obj.length > U64_MAX:
            raise error_of(-errno.EFAULT, f"{obj!r} is beyond all addresses")
        return obj
    if hasattr(obj, "data_ptr"):
        return _of_tensor(obj)
    try:
        held = _Held(obj, _WRITABLE if writable else _SIMPLE)
    except (BufferError, ValueError) as e:
        # numpy does not export some types (bfloat16), but tells their address.
        place = getattr(obj, "__array_interface__", None)
        if not place or not obj.flags.c_contiguous or (writable and place["data"][1]):
            raise BufferError(str(e)) from e
        return Memory(place["data"][0], obj.nbytes, obj)
    return Memory(held.view.buf or 0, held.view.len, held)


def usable(obj: Bufferlike, writable: bool = False) -> Memory:
    """As memory_of, but an unusable buffer becomes a result for its key. An object that
    is no buffer still raises TypeError."""
    try:
        return memory_of(obj, writable)
    except (BufferError, OSError) as e:
        return Unusable(-(getattr(e, "errno", None) or errno.EINVAL))


def _of_tensor(tensor: Any) -> Memory:
    if tensor.device.type != "cpu":
        raise BufferError(f"a tensor in {tensor.device} is not in host memory")
    if not tensor.is_contiguous():
        raise BufferError("a tensor that is not in one piece")
    length = tensor.numel() * tensor.element_size()
    return Memory(tensor.data_ptr(), length, tensor)


def key_bytes(key: Keylike) -> bytes:
    """A key as bytes. ValueError: a text that has no UTF-8."""
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, (bytes, bytearray, memoryview)):
        return bytes(key)
    raise TypeError(f"a key is bytes or text, not {type(key).__name__}")


_NO_KEY = bytes(KEY_MAX + 1)  # the library refuses it, in any namespace


def _encoded(keys: Sequence[Keylike], bad: dict[int, int]) -> list[bytes]:
    """Encodes one by one; keys that have no UTF-8 get a result in `bad`."""
    encoded = []
    for i, key in enumerate(keys):
        try:
            encoded.append(key_bytes(key))
        except UnicodeEncodeError:
            encoded.append(_NO_KEY)
            bad[i] = -errno.EINVAL
    return encoded


def _pairs(first: Iterable[int], second: Sequence[int]) -> "array[int]":
    pairs = array("Q", bytes(16 * len(second)))
    pairs[0::2] = array("Q", first)
    pairs[1::2] = array("Q", second)
    return pairs


class Keys:
    """struct kvpool_key[]. `bad`: results of the keys that cannot be passed to C, which
    gets a key that it refuses instead."""

    __slots__ = ("n", "bad", "_array", "_bytes")

    def __init__(self, keys: Iterable[Keylike]) -> None:
        # Keys that are all text or all bytes are converted together.
        keys = keys if isinstance(keys, (list, tuple)) else list(keys)
        kinds = set(map(type, keys))
        self.bad: dict[int, int] = {}
        encoded: Sequence[bytes]
        if kinds == {str}:
            try:
                encoded = list(map(str.encode, keys))
            except UnicodeEncodeError:
                encoded = _encoded(keys, self.bad)
        elif kinds <= {bytes}:
            encoded = cast(Sequence[bytes], keys)
        else:
            encoded = _encoded(keys, self.bad)
        lengths = list(map(len, encoded))
        self.n = len(lengths)
        self._bytes = b"".join(encoded)
        at = ctypes.cast(ctypes.c_char_p(self._bytes), ctypes.c_void_p).value or 0
        places = accumulate(lengths[:-1], initial=at)
        self._array = _pairs(places, lengths) if lengths else None

    @property
    def address(self) -> int:
        """The array's address; 0 if it is empty."""
        return self._array.buffer_info()[0] if self._array else 0


class Buffers:
    """struct kvpool_buf[]. `bad` as in Keys."""

    __slots__ = ("n", "bad", "memory", "_array")

    def __init__(self, buffers: Iterable[Bufferlike], writable: bool) -> None:
        self.memory = [
            b if isinstance(b, Memory) else usable(b, writable) for b in buffers
        ]
        self.n = len(self.memory)
        try:
            self._array = self._filled()
        except OverflowError:
            self.memory = [usable(m) for m in self.memory]
            self._array = self._filled()
        self.bad: dict[int, int] = {}
        if Unusable in set(map(type, self.memory)):
            self.bad = {
                i: m.result
                for i, m in enumerate(self.memory)
                if isinstance(m, Unusable)
            }

    def _filled(self) -> "array[int]":
        return _pairs(
            [m.address for m in self.memory], [m.length for m in self.memory]
        )

    @property
    def address(self) -> int:
        """The address of the array."""
        return self._array.buffer_info()[0]


class Results:
    """int64_t[], one for each key, with the results of `bad` filled in."""

    __slots__ = ("n", "_array", "_bad")

    def __init__(self, keys: Keys, buffers: Buffers | None = None) -> None:
        self.n = keys.n
        self._array = array("q", bytes(8 * max(keys.n, 1)))
        self._bad = keys.bad
        if buffers and buffers.bad:
            self._bad = {**buffers.bad, **keys.bad}

    @property
    def address(self) -> int:
        """The address of the array, which is never empty."""
        return self._array.buffer_info()[0]

    def all(self) -> list[int]:
        """The results in the order of the keys."""
        results = self._array[: self.n].tolist()
        for i, result in self._bad.items():
            results[i] = result
        return results
