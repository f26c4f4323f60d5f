"""What can go wrong: an exception for each meaning that kvpool(3) gives errno."""

import errno

from kvpool._native import lib


class Error(OSError):
    """A call that failed. `errno` is positive; `strerror` is what the library
    says of it."""


class NotFound(Error):
    """A miss: not in the pool, or nobody could give it in time."""


class Exists(Error):
    """if_absent, and it is there."""


class KeyTooLong(Error):
    """The key is beyond the mapping's limit."""


class NotRegistered(Error):
    """The buffer is not in a registered one, or not in memory."""


class SizeMismatch(Error):
    """The object has another size than the buffer, or is larger than the
    connection's buffer."""


class NoRoom(Error):
    """No room in the pool, and nothing may be evicted."""


class LayoutMismatch(Error):
    """The namespace has another layout."""


class TimedOut(Error):
    """No answer in time."""


class Unreachable(Error):
    """No master could be reached, or this pool is closed."""


class TooMany(Error):
    """Too many requests are under way: take the completions."""


_CLASSES: dict[int, type[Error]] = {
    errno.ENOENT: NotFound,
    errno.EEXIST: Exists,
    errno.ENAMETOOLONG: KeyTooLong,
    errno.EFAULT: NotRegistered,
    errno.EMSGSIZE: SizeMismatch,
    errno.EFBIG: SizeMismatch,
    errno.ENOSPC: NoRoom,
    errno.EMEDIUMTYPE: LayoutMismatch,
    errno.ETIMEDOUT: TimedOut,
    errno.EHOSTDOWN: Unreachable,
    errno.ESHUTDOWN: Unreachable,
    errno.EAGAIN: TooMany,
}


def strerror(result: int) -> str:
    """Of a key's result in a batch (negative, or not)."""
    text: bytes = lib.strerror(result)
    return text.decode()


def error_of(result: int, text: str | None = None) -> Error:
    """The exception for a result < 0."""
    return _CLASSES.get(-result, Error)(-result, text or strerror(result))


def checked(result: int) -> int:
    """A result of this thread's last call: raised if it is an error."""
    if result >= 0:
        return result
    text = lib.last_error().decode(errors="replace")
    raise error_of(result, text)
