"""Batches that are submitted and complete later."""

import enum
from typing import TYPE_CHECKING, Any

from kvpool.memory import Results

if TYPE_CHECKING:
    from kvpool.pool import Namespace


class Call(enum.IntEnum):
    """What may be submitted: enum kvpool_call."""

    PUT_FROM = 1
    GET_INTO = 2
    GET_SIZE = 3
    EXISTS = 4
    REMOVE = 5
    TOUCH = 6
    PIN = 7
    UNPIN = 8
    EXISTS_PREFIX = 9


class Request:
    """A batch that was submitted. Once Pool.completed has returned it, `result` is what
    the batch call returned and `results` has the result of each key; before, both are
    None."""

    __slots__ = (
        "id", "ns", "call", "result", "results", "context", "_n", "_space", "_keep"
    )  # fmt: skip

    def __init__(
        self, number: int, ns: "Namespace", call: Call, space: Results, keep: object
    ) -> None:
        self.id = number
        self.ns = ns
        self.call = call
        self.result: int | None = None
        self.results: list[int] | None = None
        self.context: Any = None  # the caller's
        self._n = space.n
        self._space: Results | None = space
        self._keep = keep  # buffers, which the library uses meanwhile

    def _completed(self, result: int) -> None:
        assert self._space
        self.result = result
        # A batch that failed as a whole did not set the results.
        self.results = self._space.all() if result >= 0 else [result] * self._n
        self._space = self._keep = None
