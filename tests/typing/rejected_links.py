"""Links, monitors and exit reasons, as users must not write them."""

from __future__ import annotations

from lmos_actors import Agent, Down, ExitReason, Ref


class Printer(Agent):
    def end(self, other: Ref[Printer]) -> None:
        self.stop("done")  # E
        self.stop(ExitReason("finished"))  # E
        self.link(other.path)  # E
        self.monitor(other, self.on_down_later)  # E
        self.monitor(other, self.on_text)  # E
        self.monitor(other)  # E

    async def on_down_later(self, down: Down) -> None: ...

    def on_text(self, text: str) -> None: ...


class Office(Agent, trap_exits=True):
    def on_exit(self, down: str) -> None: ...  # E


async def work(printer: Ref[Printer]) -> None:
    with printer.link():  # E
        pass
