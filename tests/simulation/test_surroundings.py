"""What the head of a log says of packages is what Python's own, slower, way of asking says."""

from __future__ import annotations

import re
import sys
from importlib.metadata import distributions, version
from typing import TYPE_CHECKING

import pytest

from lmos_actors.simulation import surroundings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def packages() -> dict[str, str | None]:
    found = surroundings()["packages"]
    assert isinstance(found, dict)
    return found


def test_versions_are_those_of_what_is_installed() -> None:
    installed = {re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower() for found in distributions()}
    wanted = {name: version(name) if name in installed else None for name in packages()}
    assert len(wanted) > 3
    assert packages() == wanted


@pytest.mark.parametrize("package", ["trio", "lmos-actors", "trio-websocket", "msgspec"])
def test_the_head_names_packages(package: str) -> None:
    assert packages()[package] == version(package)


@pytest.fixture
def _read_anew() -> Iterator[None]:
    surroundings.cache_clear()
    yield
    surroundings.cache_clear()


@pytest.mark.usefixtures("_read_anew")
def test_the_first_folder_counts_and_others_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "a/Trio.WebSocket-1.0.dist-info",
        "b/trio_websocket-2.0.dist-info",
        "b/trio-1.dist",  # no package: as of one that was half removed
        "b/y.dist-info",
    ):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path / name) for name in ("none", "a", "b")])
    assert {name: found for name, found in packages().items() if found} == {"trio-websocket": "1.0"}
