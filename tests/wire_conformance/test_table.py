"""One table of what comes of every verb of a ref, near and far."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.wire_conformance import asking, listening, running
from tests.wire_conformance.bench import RESULTS, TABLE, expected
from tests.wire_conformance.worlds import near

if TYPE_CHECKING:
    from tests.wire_conformance.bench import Behaviour

assert asking and listening and running

rows = pytest.mark.parametrize("row", TABLE, ids=lambda row: row.title)


@rows
def test_near(row: Behaviour) -> None:
    assert near(row) == expected(row, "near")


def test_every_row_has_its_results_once() -> None:
    titles = [row.title for row in TABLE]
    assert len(dict.fromkeys(titles)) == len(titles)
    assert sorted(RESULTS) == sorted(titles)


def test_every_difference_has_a_reason() -> None:
    for title, columns in RESULTS.items():
        assert ("why" in columns) == (len(columns) > 1), title
