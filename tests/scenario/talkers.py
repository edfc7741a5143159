"""Agents that call, tell and listen to each other at instants of a script, and note what comes of it."""

from __future__ import annotations

import attrs
import trio

from lmos_actors import (
    Agent,
    AgentUnavailable,
    DeadlineExceeded,
    Event,
    Gap,
    OutcomeUnknown,
    Property,
    Ref,
    action,
    event,
    prop,
)

OUTCOMES: dict[int, object] = {}
"""What came of each line of the script, by its number; of listening what was heard."""

TIMES: dict[int, float] = {}
"""When it came."""

SHORT = 3.0
"""Seconds of a deadline."""


@attrs.frozen
class Line:
    """One line of a script: at an instant, one talker does something with another one."""

    at: float
    who: int
    to: int
    verb: str
    by: int = 1


class Talker(Agent):
    """Acts by a script."""

    number: int
    script: tuple[Line, ...]
    others: tuple[Ref[Talker], ...]
    total: Property[int] = prop(default=0)
    added: Event[int] = event()
    marks: Property[int] = prop(default=0)
    marked: set[int] = attrs.Factory(set)

    def started(self) -> None:
        for index, line in enumerate(self.script):
            if line.who == self.number and line.at > trio.current_time():  # else it was before a restart
                self.nursery.start_soon(self.act, index, line)

    @action
    def add(self, by: int) -> int:
        self.total += by
        self.added.emit(by)
        return self.total

    @action
    async def add_slowly(self, by: int) -> int:
        await trio.sleep(1.003)  # no multiple of a network's waits: nothing else comes at this instant
        return self.add(by)

    @action(idempotent=True)
    def mark(self, number: int) -> None:
        """Keep a mark, once."""
        self.marked.add(number)
        self.marks = len(self.marked)

    async def act(self, index: int, line: Line) -> None:
        await trio.sleep_until(line.at)
        to = self.others[line.to - (line.to > self.number)]
        try:
            OUTCOMES[index] = await self.outcome(to, index, line)
        except (OutcomeUnknown, AgentUnavailable, DeadlineExceeded) as error:
            OUTCOMES[index] = type(error).__name__
        TIMES[index] = trio.current_time()

    async def outcome(self, to: Ref[Talker], index: int, line: Line) -> object:
        if line.verb == "invoke":
            return await to.invoke(Talker.add, line.by)
        if line.verb == "slowly":
            return await to.invoke(Talker.add_slowly, line.by)
        if line.verb == "within":
            return await to.within(SHORT).invoke(Talker.add_slowly, line.by)
        if line.verb == "read":
            return await to.read(Talker.total)
        if line.verb == "insist":
            await to.retrying(attempts=None, seconds=1_000).invoke(Talker.mark, index)
            return "done"
        if line.verb == "tell":
            await to.tell(Talker.add, line.by)
            return "told"
        heard: list[object] = []
        OUTCOMES[index] = heard
        async with to.subscribe(Talker.added, gaps=True) as feed:
            async for each in feed:
                heard.append("gap" if isinstance(each, Gap) else each)
        return heard
