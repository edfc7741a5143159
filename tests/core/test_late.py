"""Faces import a name when it is used, and not before."""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from tests.source import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FACE = f'''"""A face."""

from {PACKAGE}._late import late

with late(__name__):
    from ._house import DOORS as DOORS, House as House
    from ._broken import Broken as Broken
    from ._strange import Strange as Strange
    from json import loads as loads
'''


@pytest.fixture
def face(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    package = tmp_path / "made_street"
    package.mkdir()
    (package / "__init__.py").write_text(FACE)
    (package / "_house.py").write_text("DOORS = []\nclass House: pass\n")
    (package / "_broken.py").write_text("raise LookupError('no bricks')\n")
    (package / "_strange.py").write_text("import json\njson.no_such_thing\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield import_module("made_street")
    for name in [name for name in sys.modules if name.startswith("made_street")]:
        del sys.modules[name]


def test_a_name_is_imported_when_it_is_used(face: Any) -> None:
    assert "made_street._house" not in sys.modules
    assert "DOORS" not in vars(face)
    doors = face.DOORS
    assert "made_street._house" in sys.modules
    assert vars(face)["DOORS"] is doors is face.DOORS
    assert face.loads("[1]") == [1]


def test_the_names_of_a_module_come_together_and_leave_those_of_others(face: Any) -> None:
    vars(face)["House"] = mine = object()
    assert face.DOORS == []
    assert face.House is mine
    del vars(face)["House"], vars(face)["DOORS"]
    assert face.DOORS is sys.modules["made_street._house"].DOORS
    assert vars(face)["House"] is sys.modules["made_street._house"].House
    assert "loads" not in vars(face)


def test_all_names_are_listed_before_they_are_used(face: Any) -> None:
    names = {"DOORS", "House", "Broken", "Strange", "loads"}
    assert set(face.__all__) == names
    assert names <= set(dir(face))
    assert "late" not in dir(face)


def test_other_ways_to_import_a_name(face: Any) -> None:
    found: dict[str, Any] = {}
    exec("from made_street import House, DOORS as doors", found)
    assert found["House"] is face.House
    assert found["doors"] is face.DOORS
    with pytest.raises(ImportError, match="cannot import name 'Shed' from 'made_street'"):
        exec("from made_street import Shed")
    with pytest.raises(AttributeError, match=r"^module 'made_street' has no attribute 'Shed'$"):
        _ = face.Shed
    assert not hasattr(face, "Shed")


def test_what_a_module_raises_comes_to_the_user_of_the_name_each_time(face: Any) -> None:
    for _ in range(2):
        with pytest.raises(LookupError, match="no bricks"):
            _ = face.Broken
    assert face.House


def test_an_attribute_that_a_module_misses_is_not_taken_for_a_name_that_the_face_misses(face: Any) -> None:
    with pytest.raises(
        ImportError, match=r"^made_street.Strange cannot be imported: .*no_such_thing"
    ) as raised:
        exec("from made_street import Strange")
    assert isinstance(raised.value.__cause__, AttributeError)


def test_imports_of_other_threads_go_on_while_a_block_is_open(face: Any) -> None:
    found: list[object] = []

    def use_another() -> None:
        found.append(import_module("colorsys").rgb_to_hls)
        exec("from colorsys import hls_to_rgb as other; found.append(other)", {"found": found})

    with import_module(f"{PACKAGE}._late").late("made_street"):
        thread = threading.Thread(target=use_another)
        thread.start()
        thread.join()
    assert [getattr(each, "__name__", "") for each in found] == ["rgb_to_hls", "hls_to_rgb"]
