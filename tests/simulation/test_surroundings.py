"""What the head of a log says of packages is what Python's own, slower, way of asking says."""

from __future__ import annotations

import sys
from importlib.metadata import distributions, version
from typing import TYPE_CHECKING

import pytest

from lmos_actors.simulation import surroundings
from lmos_actors.simulation._surroundings import versions

if TYPE_CHECKING:
    from pathlib import Path


def test_versions_are_those_of_what_is_installed() -> None:
    names = [found.metadata["Name"] for found in distributions()]
    assert len(names) > 10
    found = versions(sys.path)
    plain = {name: name.lower().replace("_", "-").replace(".", "-") for name in names}
    assert {name: found[plain[name]] for name in names} == {name: version(name) for name in names}


@pytest.mark.parametrize("package", ["trio", "lmos-actors", "trio-websocket", "msgspec"])
def test_the_head_names_packages(package: str) -> None:
    packages = surroundings()["packages"]
    assert isinstance(packages, dict)
    assert packages[package] == version(package)


def test_the_first_folder_counts_and_others_are_passed_over(tmp_path: Path) -> None:
    for name in (
        "a/Zope.Interface-1.0.dist-info",
        "b/zope_interface-2.0.dist-info",
        "b/x-1.dist",
        "b/y.dist-info",
    ):
        (tmp_path / name).mkdir(parents=True)
    folders = [str(tmp_path / name) for name in ("none", "a", "b")]
    assert versions(folders) == {"zope-interface": "1.0"}
