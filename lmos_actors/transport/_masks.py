"""Masks of WebSocket frames (RFC 6455 5.3)."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from wsproto.frame_protocol import XorMaskerSimple

if TYPE_CHECKING:
    from collections.abc import Callable

Masks: TypeAlias = "Callable[[int], bytes]"
"""A function that returns as many random bytes as its argument tells."""

_PAGE: Final = 4096
_SHORT: Final = 512  # bytes up to which one long number is faster than four passes


class RandomMasks:
    """Random masks from the operating system, read a page at a time; peers must not be able to guess them."""

    def __init__(self) -> None:
        self._page = b""
        self._used = 0
        self._source = os.urandom

    def __call__(self, size: int) -> bytes:
        """Return `size` random bytes, at most a page."""
        start = self._used
        self._used = start + size
        found = self._page[start : self._used]
        if len(found) == size and os.urandom is self._source:
            return found
        self._source = os.urandom  # a simulated world has its own, which is no source for others
        self._page = self._source(_PAGE)
        self._used = size
        return self._page[:size]

    def clear(self) -> None:
        """Drop the unused bytes of the page."""
        self._page = b""


random_masks: Final = RandomMasks()
# a forked process must not mask as its parent does
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=random_masks.clear)


def masked(data: bytes, key: bytes) -> bytes:
    """Mask or unmask data: both are the same operation."""
    size = len(data)
    if size > _SHORT:
        return _masking_of_long()(data, key)
    keys = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(keys, "little")).to_bytes(size, "little")


@cache
def _masking_of_long() -> Callable[[bytes, bytes], bytes]:
    """Return the function that masks long data: in C if `websockets` is installed, else by tables.

    It is looked for when the first long message is masked, as most programs never have one.
    """
    try:
        from websockets.speedups import apply_mask
    except ImportError:  # it is not there, or without its part in C
        return _masked_by_tables
    return apply_mask


def _masked_by_tables(data: bytes, key: bytes) -> bytes:
    return bytes(XorMaskerSimple(key).process(cast("bytearray", data)))  # which copies what it gets
