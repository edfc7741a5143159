"""Tables that forget their oldest entries, so that their memory is bounded."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

K = TypeVar("K")
V = TypeVar("V")


class Bounded(OrderedDict[K, V]):
    """A table of at most `most` entries: a further one takes the place of the oldest.

    An entry is as old as its key; with `use` it becomes the newest, so that what was used last is kept.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        if len(self) > self.most:
            self.popitem(last=False)

    def use(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key, creating it if it is missing, and make its entry the newest."""
        if key not in self:
            self[key] = make()
        self.move_to_end(key)
        return self[key]
