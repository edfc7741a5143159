"""The empty table: shared by owners that have nothing in theirs, of which there are very many.

The owner makes a table of its own for the first entry: `if not self.open: self.open = {}`.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn


def _refuse(*_: object, **__: object) -> NoReturn:
    raise TypeError("the empty table is shared: an owner makes a table of its own for its first entry")


_REFUSED: Final[Any] = _refuse


class _Nothing(dict[Any, Any]):
    """A table that refuses entries, so that no owner's entry can show up at another one."""

    __slots__ = ()

    __setitem__ = __ior__ = setdefault = update = _REFUSED


NOTHING: Final[dict[Any, Any]] = _Nothing()
"""An empty table, which takes no memory of its own and stays empty."""
