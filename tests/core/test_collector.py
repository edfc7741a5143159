"""The garbage collector's threshold: raised while nodes are open, and given back."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lmos_actors import ConfigError, open_node
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

GC_THRESHOLD = 10_000


@pytest.fixture(autouse=True)
def _given_back() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


async def test_it_is_raised_while_any_node_is_open() -> None:
    async with open_node():
        async with open_node():
            assert gc.get_threshold() == (GC_THRESHOLD, 1, 250)
        assert gc.get_threshold() == (GC_THRESHOLD, 1, 250)
    assert gc.get_threshold() == (700, 10, 10)


async def test_where_the_old_are_collected_in_parts_the_parts_stay_as_many() -> None:
    """As in the first releases of 3.14, which is told by the third number."""
    gc.set_threshold(2_000, 10, 0)
    async with open_node():
        assert gc.get_threshold() == (GC_THRESHOLD, 10, 0)
    assert gc.get_threshold() == (2_000, 10, 0)


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


THE_COMMAND = """
import gc, sys
{before}
usual = gc.get_threshold()[0]
from lmos_actors.cli import main
frozen = gc.get_freeze_count()
sys.argv[1:] = {words}
try:
    main({given})
finally:
    now = gc.get_threshold()[0]
    said = "usual" if now == usual else now
    print(said, gc.get_freeze_count() > frozen + 1_000, gc.isenabled(), file=sys.stderr)
"""


@pytest.mark.parametrize("before", ["", "gc.freeze()"], ids=["none", "some"])
@pytest.mark.parametrize(
    ("given", "said"), [("", f"{GC_THRESHOLD} True True"), ("['--version']", "usual False True")]
)
def test_the_command_alone_changes_it_for_good(given: str, said: str, before: str) -> None:
    """Modules are not looked at, not even when the process ends; callers of the command keep their own.

    It makes no difference that some objects are frozen already, as with Python 3.12 from its start.
    """
    code = THE_COMMAND.format(words=["--version"], given=given, before=before)
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stderr.strip() == said
