"""The garbage collector's threshold: raised while nodes are open, and given back."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from lmos_actors import ConfigError, open_node
from lmos_actors._collector import GC_THRESHOLD

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _given_back() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


async def test_it_is_raised_while_any_node_is_open() -> None:
    async with open_node():
        async with open_node():
            assert gc.get_threshold() == (GC_THRESHOLD, 10, 10)
        assert gc.get_threshold() == (GC_THRESHOLD, 10, 10)
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("own", [0, GC_THRESHOLD + 1])
async def test_one_that_is_off_or_higher_stays(own: int) -> None:
    gc.set_threshold(own, 10, 10)
    async with open_node():
        assert gc.get_threshold()[0] == own
    assert gc.get_threshold()[0] == own


async def test_one_that_is_set_meanwhile_stays() -> None:
    async with open_node():
        gc.set_threshold(5_000, 5, 5)
    assert gc.get_threshold() == (5_000, 5, 5)


async def test_a_node_that_cannot_open_leaves_nothing_raised() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        async with open_node(threads=0):
            pass
    assert gc.get_threshold() == (700, 10, 10)
