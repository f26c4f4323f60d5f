"""Converts Python numbers and texts for C; refuses those that C would misread."""

import ctypes
import operator
import os
from typing import SupportsIndex

from kvpool._native import lib

U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1


def number(what: str, value: SupportsIndex, most: int, least: int = 0) -> int:
    """value. ValueError if it is not from `least` to `most`."""
    try:
        n = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is {value!r}, and has to be a whole number") from None
    if not least <= n <= most:
        raise ValueError(f"{what} is {n}, and may be {least} to {most}")
    return n


def text(what: str, value: str | bytes | os.PathLike[str]) -> bytes:
    """value as bytes. ValueError if it has a NUL, where C would end it."""
    encoded = os.fsencode(value)
    if b"\0" in encoded:
        raise ValueError(f"{what} is {value!r}, and may be any text without NUL")
    return encoded


def optional_text(
    what: str, value: str | bytes | os.PathLike[str] | None
) -> bytes | None:
    """As text(); None is C's NULL."""
    return None if value is None else text(what, value)


def milliseconds(what: str, seconds: float) -> int:
    """Converts seconds. ValueError if negative or too large."""
    if not 0 <= seconds * 1000 <= 2**63:
        raise ValueError(f"{what} is {seconds}, and may be 0 and more seconds")
    return round(seconds * 1000)


def parse_size(size: int | str) -> int:
    """Bytes of "50G", "1.5T", "512MiB" or a number; units are powers of 1024."""
    if isinstance(size, int):
        return number("a size", size, U64_MAX)
    result = ctypes.c_uint64()
    if lib.parse_size(text("a size", size), result) < 0:
        raise ValueError(f"{size!r} is no size: 50G, 512MiB, or bytes")
    return result.value
