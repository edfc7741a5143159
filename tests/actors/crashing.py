"""An agent that crashes, and what its report shows of a value that it holds."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from lmos_actors import Agent, AgentDied, ChildSpec, action
from lmos_actors.simulation import VirtualClock
from lmos_actors.testing import open_test_node


class Holder(Agent):
    held: Any = None

    @action
    def fail(self) -> None:
        raise ValueError("on purpose")


def shown(value: Any) -> str:
    """Return the text that stands for a value in the report of a crash."""

    async def main() -> str:
        async with open_test_node() as node:
            ref = await node.start_child(ChildSpec("holder", lambda: Holder(held=value)))
            with pytest.raises(AgentDied):
                await ref.invoke(Holder.fail)
            (report,) = node.crash_reports
            return str(report.data()["state"]["held"])

    return trio.run(main, clock=VirtualClock())
