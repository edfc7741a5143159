"""Clients that nobody here wrote, as fixtures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.web.foreign import Client, Clients, commands, installed
from tests.web.install import LISTS

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def foreign_clients() -> Iterator[Clients]:
    clients = Clients()
    yield clients
    clients.end()


@pytest.fixture
def node_wot(foreign_clients: Clients) -> Iterator[Client]:
    """node-wot, as npm has it."""
    with foreign_clients.lent("node-wot", *commands()["node"], LISTS / "node_wot.cjs", installed()) as one:
        yield one


@pytest.fixture
def wotpy(foreign_clients: Clients) -> Iterator[Client]:
    """wotpy, as the Python Package Index has it."""
    with foreign_clients.lent("wotpy", *commands()["python"], LISTS / "with_wotpy.py") as one:
        yield one
