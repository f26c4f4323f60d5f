"""Exceptions, one for each meaning of errno in kvpool(3)."""

import errno

from kvpool._native import lib


class Error(OSError):
    """A call that failed. `errno` is positive; `strerror` is the library's text."""


class NotFound(Error):
    """A miss: not in the pool, or no node delivered it in time."""


class Exists(Error):
    """The object exists, and if_absent was given."""


class KeyTooLong(Error):
    """The key is too long for a path."""


class NotRegistered(Error):
    """The buffer is not in registered memory, or not in memory at all."""


class SizeMismatch(Error):
    """The object has another size than the buffer, or is larger than the
    connection's buffer."""


class NoRoom(Error):
    """No room in the pool, and nothing may be evicted."""


class NotAllowed(Error):
    """The directory is not one of the namespaces of this connection's
    certificate; the text names these."""


class LayoutMismatch(Error):
    """The namespace has another layout."""


class TimedOut(Error):
    """No answer in time."""


class Unreachable(Error):
    """No master could be reached, or this pool is closed."""


class TooMany(Error):
    """Too many requests are in flight: call Pool.completed."""


_CLASSES: dict[int, type[Error]] = {
    errno.ENOENT: NotFound,
    errno.EEXIST: Exists,
    errno.ENAMETOOLONG: KeyTooLong,
    errno.EFAULT: NotRegistered,
    errno.EMSGSIZE: SizeMismatch,
    errno.EFBIG: SizeMismatch,
    errno.ENOSPC: NoRoom,
    errno.EACCES: NotAllowed,
    errno.EMEDIUMTYPE: LayoutMismatch,
    errno.ETIMEDOUT: TimedOut,
    errno.EHOSTDOWN: Unreachable,
    errno.ESHUTDOWN: Unreachable,
    errno.EAGAIN: TooMany,
}


def strerror(result: int) -> str:
    """The text for a key's result in a batch, negative or not."""
    text: bytes = lib.strerror(result)
    return text.decode()


def error_of(result: int, text: str | None = None) -> Error:
    """The exception for a result < 0."""
    return _CLASSES.get(-result, Error)(-result, text or strerror(result))


def checked(result: int) -> int:
    """Returns the result of this thread's last call; raises it if it is an error."""
    if result >= 0:
        return result
    text = lib.last_error().decode(errors="replace")
    raise error_of(result, text)
