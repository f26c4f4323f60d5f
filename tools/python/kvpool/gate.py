"""An open handle, and the calls that use it."""

import errno
import os
import threading
from collections.abc import Callable

from kvpool.errors import error_of


class Gate:
    """Guards a handle: calls enter the gate, which returns the handle, and leave it;
    close() waits until all have left. Entering a namespace's gate also enters that of
    its pool."""

    __slots__ = ("handle", "_outer", "_changed", "_users", "_closed", "_pid")

    def __init__(self, handle: int, outer: "Gate | None" = None) -> None:
        self.handle = handle
        self._outer = outer
        self._changed = threading.Condition(threading.Lock())
        self._users = 0
        self._closed = False
        self._pid = os.getpid()

    def __enter__(self) -> int:
        if self._outer:
            self._outer.__enter__()
        with self._changed:
            if not self._closed:
                self._users += 1
                return self.handle
        if self._outer:
            self._outer.__exit__()
        raise error_of(-errno.ESHUTDOWN, "the pool, or namespace, is closed")

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._users -= 1
            if self._closed:
                self._changed.notify_all()
        if self._outer:
            self._outer.__exit__()

    def close(self, busy: Callable[[], bool] = lambda: False) -> bool:
        """False: it was closed already. Raises Error, and stays open, if busy() after
        all calls have left. (A forked process has no other calls.)"""
        with self._changed:
            if self._closed:
                return False
            self._closed = True
            while self._users and os.getpid() == self._pid:
                self._changed.wait()
            if busy():
                self._closed = False
                raise error_of(-errno.EBUSY, "requests are under way")
            return True
