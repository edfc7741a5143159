"""Links, monitors and exit reasons, as users write them."""

from __future__ import annotations

from typing import assert_type

from lmos_actors import NORMAL, SHUTDOWN, Agent, Down, ExitReason, Monitor, Ref, action
from lmos_actors.errors import LinkedAgentDied


class Printer(Agent):
    @action
    def finish(self, how: int) -> None:
        if how == 0:
            self.stop()
        elif how == 1:
            self.stop(SHUTDOWN)
        elif how == 2:
            self.stop(ExitReason("shutdown", "out of ink"))
        else:
            self.stop(reason=NORMAL)


class Office(Agent, trap_exits=True):
    printer: Ref[Printer]

    def started(self) -> None:
        self.link(self.printer)
        self.link(self.find(Printer, "second"))
        monitor = self.monitor(self.printer, self.on_down)
        assert_type(monitor, Monitor)
        monitor.cancel()
        self.unlink(self.printer)

    def on_exit(self, down: Down) -> None:
        assert_type(down.reason, ExitReason)

    def on_down(self, down: Down) -> None: ...


async def work(printer: Ref[Printer]) -> None:
    try:
        async with printer.link() as nothing:
            assert_type(nothing, None)
    except LinkedAgentDied as died:
        assert_type(died.agent, str)
        assert_type(died.incarnation, int)
