"""The head of a log says which interpreter it was, and of packages what Python's own, slower, way says."""

from __future__ import annotations

import json
import platform
import re
import sys
from importlib.metadata import distributions, version
from typing import TYPE_CHECKING

import pytest
import trio

from lmos_actors._core import current_environment
from lmos_actors.simulation import TraceLog, simulate, surroundings

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


async def said_twice() -> None:
    for number in range(2):
        here = current_environment()
        assert here is not None
        assert here.instrument is not None
        here.instrument.record("event", "peer", {"data": number})
        await trio.sleep(0.5)


@pytest.mark.usefixtures("_read_anew")
def test_a_run_has_one_digest_on_two_interpreters_which_heads_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, str] = {}
    for name, number in (("CPython", "3.14.8"), ("PyPy", "3.11.15")):
        monkeypatch.setattr(platform, "python_implementation", lambda name=name: name)
        monkeypatch.setattr(platform, "python_version", lambda number=number: number)
        surroundings.cache_clear()
        log = TraceLog()
        simulate(said_twice, seed=1, log=log)
        told[json.loads(log.lines()[0])["python"]] = log.digest()
    assert list(told) == ["CPython 3.14.8", "PyPy 3.11.15"]
    assert len(set(told.values())) == 1
