"""A `def` turn that blocks is named while it blocks. Real time and a real thread, but no sleeping: the
handler waits for the very report, and a turn that nobody reports would end by its own long limit."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any, ClassVar

import pytest
import trio

from lmos_actors import Agent, action, open_node
from lmos_actors.actors import Watchdog
from lmos_actors.errors import SlowTurnWarning
from lmos_actors.node import NodeLimits

LIMIT = 30.0


class Blocking(Agent):
    reported: ClassVar[threading.Event] = threading.Event()

    @action
    def block(self) -> bool:
        return self.reported.wait(LIMIT)

    @action
    def quick(self) -> None:
        pass


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> None:
    Blocking.reported.clear()
    tell = Watchdog._tell

    def told(self: Watchdog, slot: Any, current: Any) -> None:
        tell(self, slot, current)
        Blocking.reported.set()

    monkeypatch.setattr(Watchdog, "_tell", told)


@pytest.mark.usefixtures("reports")
async def test_how_long_a_turn_may_take_is_an_option() -> None:
    with pytest.warns(SlowTurnWarning, match=r"has held up its node for 0.03 s"):
        async with open_node(limits=NodeLimits(slow_seconds=0.03)) as node:
            assert await (await node.start(Blocking)).invoke(Blocking.block)


@pytest.mark.parametrize("way", ["in the asker's step", "by the dispatcher"])
@pytest.mark.usefixtures("reports")
async def test_t6_a_turn_that_blocks_is_named(way: str) -> None:
    async def block() -> None:
        async with open_node() as node:
            ref = await node.start(Blocking)
            await ref.invoke(Blocking.quick)
            if way == "by the dispatcher":
                await ref.tell(Blocking.block)
            else:
                assert await ref.invoke(Blocking.block)
            await ref.invoke(Blocking.quick)

    with pytest.warns(SlowTurnWarning, match=r"the turn 'block' of agent 'blocking'") as caught:
        await block()
    text = str(caught[0].message)
    assert "return self.reported.wait(LIMIT)" in text, "it says where"
    assert "_dispatcher.py" not in text, "in the handler, not in the runtime"
    assert "_mail.py" not in text


@pytest.mark.usefixtures("reports")
async def test_where_warnings_are_errors_it_ends_the_node() -> None:
    async def block() -> None:
        async with open_node() as node:
            ref = await node.start(Blocking)
            await ref.invoke(Blocking.block)
            await trio.sleep_forever()

    with pytest.raises(SlowTurnWarning, match="'block'"):
        await block()


@pytest.mark.slow
def test_what_writes_a_log_imports_what_that_needs_before_any_turn() -> None:
    """The first line of a log would import it in the middle of a turn, and hold it up for 100 ms and more."""
    code = """
import sys
from lmos_actors import Agent, action

class Quiet(Agent):
    @action
    def work(self) -> None:
        pass

assert "structlog" not in sys.modules

class Telling(Agent):
    @action
    def work(self) -> None:
        for number in range(3):
            (lambda: self.log.info("working", number=number))()

assert "structlog" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
