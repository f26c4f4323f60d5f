"""The layout of a namespace's objects."""

import ctypes
from dataclasses import dataclass

from kvpool import _native
from kvpool.arguments import U32_MAX, number, text


@dataclass(frozen=True)
class Layout:
    """How the objects of a namespace are to be read. A namespace has one layout:
    opening it with another raises LayoutMismatch."""

    model: str = ""
    dtype: str = ""
    layout: str = ""
    tp: int = 0
    tokens: int = 0

    def __post_init__(self) -> None:
        self.as_c()  # ValueError, before it is used

    def as_c(self) -> _native.LayoutStruct:
        """struct kvpool_layout."""
        return _native.LayoutStruct(
            ctypes.sizeof(_native.LayoutStruct),
            text("a layout's model", self.model),
            text("a layout's dtype", self.dtype),
            text("a layout's layout", self.layout),
            number("a layout's tp", self.tp, U32_MAX),
            number("a layout's tokens", self.tokens, U32_MAX),
        )
