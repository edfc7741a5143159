"""Tables that take little memory: one forgets its oldest entries, an empty one is shared by many owners."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

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


def _refuse(*_: object, **__: object) -> NoReturn:
    raise TypeError("the empty table is shared: an owner makes a table of its own for its first entry")


_REFUSED: Final[Any] = _refuse


class _Empty(dict[Any, Any]):
    """An empty table that refuses entries, so that no owner's entry can show up at another one."""

    __slots__ = ()

    __setitem__ = __ior__ = setdefault = update = _REFUSED


NOT_NEEDED_YET: Final[dict[Any, Any]] = _Empty()
"""The table of each owner that has no entry yet; for its first one it makes a table: `self.open = {}`."""
