"""The empty table that owners share."""

from __future__ import annotations

import pytest

from lmos_actors._core import NOTHING


def test_the_empty_table_refuses_entries() -> None:
    with pytest.raises(TypeError, match="a table of its own"):
        NOTHING["one"] = 1
    with pytest.raises(TypeError, match="a table of its own"):
        NOTHING.setdefault("one", 1)
    with pytest.raises(TypeError, match="a table of its own"):
        NOTHING.update(one=1)
    assert NOTHING == {}
    assert NOTHING.pop("one", None) is None
