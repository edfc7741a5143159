"""One table of what comes of every verb of a ref, near and far."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.matrix import some
from tests.wire_conformance import asking, listening, running as runs, sending
from tests.wire_conformance.bench import RESULTS, TABLE, expected
from tests.wire_conformance.other_process import running
from tests.wire_conformance.worlds import WORLDS, over_tcp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.wire_conformance.bench import Behaviour

PARTS = (asking, runs, listening, sending)
"""The modules that fill the table."""

CELLS = [(world, row) for row in TABLE for world in WORLDS]

OF_THEIR_OWN = {
    ("http", "stream: crashed by somebody else"),
    ("network", "begin: cancelled with a reason"),
    ("network", "input stream: two sources raise"),
    ("network", "invoke a run: crashed by somebody else"),
    ("network", "monitor: crashed"),
    ("network", "observe: left and made again"),
    ("network", "read_all: success"),
    ("relay rawk", "ready: removed for good"),
    ("slow network", "observe: write-only"),
    ("slow network", "tell_nowait: full, would wait"),
}
"""Cells that alone run some lines of the package."""


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    """The address of another process."""
    with running() as address:
        yield address


@pytest.mark.parametrize(
    ("world", "row"),
    some(CELLS, of=11, besides=lambda cell: (cell[0], cell[1].title) in OF_THEIR_OWN),
    ids=lambda value: value if isinstance(value, str) else value.title,
)
def test_in_one_process(world: str, row: Behaviour) -> None:
    assert WORLDS[world](row) == expected(row, world)


@pytest.mark.parametrize("row", some(TABLE, of=11), ids=lambda row: row.title)
def test_in_another_process(elsewhere: str, row: Behaviour) -> None:
    assert over_tcp(elsewhere, row) == expected(row, "tcp")


def test_every_row_has_its_results_once() -> None:
    titles = [row.title for row in TABLE]
    assert len(dict.fromkeys(titles)) == len(titles)
    assert sorted(RESULTS) == sorted(titles)


def test_every_difference_has_a_reason() -> None:
    for title, columns in RESULTS.items():
        for one in ("http", "relay", "network"):
            assert (f"why {one}" in columns) == (one in columns), title
        others = columns.keys() - {"near", "why"}
        others -= {column for one in ("http", "relay", "network") for column in (one, f"why {one}")}
        assert ("why" in columns) == bool(others), title
