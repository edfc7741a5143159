"""`tests/index.py`: tests are where one looks for them, and what is emptied fails."""

from __future__ import annotations

import pytest

from tests.index import candidates, emptied, modules, of_like_name, test_files as all_test_files

LEAST_OF_LIKE_NAME = 459
"""Modules that have a test file of like name. The number only rises."""


def test_tests_stand_where_one_looks() -> None:
    large, tests = modules(), all_test_files()
    found = [module for module in large if of_like_name(module, tests)]
    assert len(found) >= LEAST_OF_LIKE_NAME, f"{len(found)} of {len(large)}"


def test_most_modules_have_a_test_file_of_their_very_name() -> None:
    subjects = {
        test.rpartition("/")[2].removeprefix("test_").removesuffix(".py") for test in all_test_files()
    }
    named = [module for module in modules() if module.rpartition("/")[2][:-3].strip("_") in subjects]
    assert len(named) >= 0.6 * len(modules())


@pytest.mark.parametrize(
    ("test", "like"),
    [
        ("room/test_runs.py", True),
        ("room/test_run.py", True),
        ("room/test_runs_over_tcp.py", True),
        ("room/inner/test_runs.py", True),
        ("room/test_inner_runs.py", True),
        ("room/other/test_runs.py", False),
        ("other/test_runs.py", False),
        ("test_runs.py", False),
        ("room/test_runners.py", False),
        ("room/test_long_runs.py", False),
    ],
)
def test_a_test_file_of_like_name_is_found(test: str, like: bool) -> None:
    assert bool(of_like_name("room/inner/_runs.py", [test])) == like


def test_what_is_emptied_raises_while_a_test_runs_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'def add(a, b):\n    """Add."""\n    return a + b\n\n\ndef declared():\n    ...\n'
    names: dict[str, object] = {}
    exec(emptied(text), names)
    add = names["add"]
    assert callable(add)
    assert add.__doc__ == "Add."
    with pytest.raises(AssertionError, match="emptied"):
        add(1, 2)
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    assert add(1, 2) == 3
    assert "emptied" not in emptied("def declared():\n    ...\n")


def test_the_files_that_speak_most_of_a_module_come_first() -> None:
    assert candidates("security/_rates.py", 1) == ["security/test_guard.py"]
