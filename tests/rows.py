"""Tables whose rows are asked in one test: a test of its own costs more than a small row does."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def each_row(
    names: str | Sequence[str], rows: Iterable[Any], *, ids: Callable[[Any], object] | None = None
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Ask a test all rows, as `pytest.mark.parametrize` does, but in one test. It can have no fixtures.

    Raises what the rows raise, in one group; each exception says which row it is of.
    """
    words = [word.strip() for word in names.split(",")] if isinstance(names, str) else list(names)
    table = list(rows)

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        def asked() -> None:
            assert table, "there is no row"
            failures: list[BaseException] = []
            for number, row in enumerate(table):
                values = (row,) if len(words) == 1 else tuple(row)
                try:
                    test(**dict(zip(words, values, strict=True)))
                except (Exception, pytest.fail.Exception) as error:
                    shown = ", ".join(str(ids(value)) if ids else repr(value) for value in values)
                    error.add_note(f"row {number}: {shown}")
                    failures.append(error)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(table)} rows", failures)

        assert sorted(inspect.signature(test).parameters) == sorted(words), "a test of rows has no fixtures"
        asked.__name__, asked.__doc__ = test.__name__, test.__doc__
        return asked

    return decorate
