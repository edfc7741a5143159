"""The stores that every test of this folder is for: what one does, the others do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lmos_actors.persistence import MemoryStore, SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lmos_actors.persistence import Store

    Make = Callable[[Path], Store]

STORES: dict[str, Make] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": lambda folder: SqliteStore(folder / "store.db"),
}
"""How to make each kind of store in an empty folder; closed and opened again, it has kept its content."""

every_store = pytest.mark.parametrize("make", STORES.values(), ids=STORES)
