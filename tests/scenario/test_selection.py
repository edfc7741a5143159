"""Which cells are chosen by the words of their line and the labels of their file."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lmos_actors import ConfigError
from lmos_actors.scenario.format import expression, label_of, selection

# --- words


@pytest.mark.parametrize(
    ("words", "fits"),
    [
        ("Berlin", True),
        ("weather", True),
        ("Rome", False),
        ("not Rome", True),
        ("Berlin and seed=7", True),
        ("Berlin and not seed=7", False),
        ("Rome or seed=7", True),
        ("not (Rome or seed=7)", False),
        ("not Rome and seed=7 or Rome", True),
        ("Ber", True),
    ],
)
def test_runs_are_selected_by_words_and_operators(words: str, fits: bool) -> None:
    assert expression(words)("weather city=Berlin seed=7") is fits


# --- labels


@pytest.mark.parametrize(
    ("labels", "fits"),
    [
        (["team=travel"], True),
        (["team = travel"], True),
        (["team=other"], False),
        (["team!=other"], True),
        (["team!=travel"], False),
        (["other!=x"], True),
        (["team"], True),
        (["other"], False),
        (["fast=true"], True),
        (["tier=2"], True),
        (["team=travel", "tier=3"], False),
        (["team=travel", "tier=2"], True),
        (["note=a=b"], True),
        (["empty="], True),
    ],
)
def test_runs_are_selected_by_labels(labels: list[str], fits: bool) -> None:
    known = {"team": "travel", "fast": True, "tier": 2, "note": "a=b", "empty": ""}
    cell: Any = SimpleNamespace(scenario=SimpleNamespace(name="x", labels=known), label="seed=1")
    assert selection(None, labels).fits(cell) is fits


@pytest.mark.parametrize("text", ["", "=x", "!=x", "!"])
def test_what_is_no_label(text: str) -> None:
    with pytest.raises(ConfigError, match="is not NAME=VALUE"):
        label_of(text)
