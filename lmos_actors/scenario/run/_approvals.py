"""Approvals of a run: the story answers questions of agents to people; an unanswered one fails the run.

People are not part of a file's network: they decide in the process of the run, whatever its links do. If
agents are in processes, people decide as clients do, over the network and with the rights of the run.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import attrs
import trio

from lmos_actors.actors import Ref
from lmos_actors.errors import ActionFailed, AgentError, TransportError

from ..model import Refuse, RefuseAt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lmos_actors.actors import Slot
    from lmos_actors.approvals import Approval, Approvals

    from ..model import Decision
    from .records import Watch


LOOK: Final = 0.05
"""Seconds between two looks at the questions of agents, in real time."""

MOST: Final = 10_000
"""Maximum number of approvals of one process that are looked at."""


@attrs.define
class RunApprovals:
    """The approvals that the agents of one run request from people.

    `find` returns the slot of the agent `approvals`, or None if there is no such agent. `far` returns refs to
    the agents `approvals` of all processes that have the agent at a path, or None if agents are not in
    processes.
    """

    find: Callable[[], Slot | None]
    far: Callable[[str], list[Ref[Approvals]] | None]
    _left: set[str] = attrs.Factory(set[str])
    """The ids of approvals that the story leaves to their deadline."""

    async def decide(
        self, step: Decision, agent: str, watch: Watch, deadline: float, *, real: bool
    ) -> str | None:
        """Wait for an agent's question and answer it. Return None, or a text on what was seen instead.

        In real time, a question may appear some time after the last message that `watch` receives.
        """
        late = isinstance(step, (Refuse, RefuseAt)) and step.by == "deadline"
        state = "expired" if late else "waiting"
        if self.far(agent) is not None:
            return await self._decide_far(step, agent, state, deadline)

        def asked() -> bool:
            return self._asked(agent, step.key, state) is not None

        look = LOOK if real else math.inf
        while not await watch.until(asked, min(deadline, trio.current_time() + look)):
            if trio.current_time() >= deadline:
                return self._seen(agent)
        approval = self._asked(agent, step.key, state)
        slot = self.find()
        if approval is None or slot is None:  # decided in this instant, or its node has ended
            return self._seen(agent)
        if late:
            self._left.add(approval.id)
            return None
        found: Ref[Approvals] = Ref(slot)
        return await _answered(found, step, approval.id)

    async def _decide_far(self, step: Decision, agent: str, state: str, deadline: float) -> str | None:
        """Decide as `decide` does, for an agent that runs in one or more processes."""
        from lmos_actors.approvals import Approvals

        saw = "no process of it is ready"
        with trio.move_on_at(deadline):
            while True:
                for approvals in self.far(agent) or ():
                    try:
                        listed = await approvals.invoke(Approvals.entries, "all", MOST)
                    except (AgentError, TransportError) as error:
                        saw = str(error)
                        continue
                    found = self._among(listed, agent, step.key, state)
                    if found is None:
                        saw = _seen(listed, agent)
                    elif state == "expired":
                        self._left.add(found.id)
                        return None
                    else:
                        return await _answered(approvals, step, found.id)
                await trio.sleep(LOOK)
        return saw

    def unanswered(self) -> Iterator[Approval]:
        """Yield the unanswered approvals: those that wait, and those refused by an unplanned deadline."""
        for each in self._all():
            if each.state in ("waiting", "gone") or (each.state == "expired" and each.id not in self._left):
                yield each

    def _all(self) -> tuple[Approval, ...]:
        slot = self.find()
        if slot is None or slot.status != "running":
            return ()  # it still reads its store, which takes time in `world: websocket`
        from lmos_actors.approvals import Approvals  # few files have such an agent

        return slot.agent.kept() if isinstance(slot.agent, Approvals) else ()

    def _asked(self, agent: str, key: str | None, state: str) -> Approval | None:
        return self._among(self._all(), agent, key, state)

    def _among(
        self, approvals: Iterable[Approval], agent: str, key: str | None, state: str
    ) -> Approval | None:
        """Return the oldest approval of an agent in a given state; None if there is none.

        Approvals that the story leaves to their deadline are passed over.
        """
        for each in approvals:
            fits = each.agent == agent and each.state == state and key in (None, each.key)
            if fits and each.id not in self._left:
                return each
        return None

    def _seen(self, agent: str) -> str:
        return _seen(self._all(), agent)


async def _answered(approvals: Ref[Approvals], step: Decision, id: str) -> str | None:
    """Decide an approval; return a text on the error, or None if there was none."""
    from lmos_actors.approvals import Approvals

    verb = Approvals.refuse if isinstance(step, (Refuse, RefuseAt)) else Approvals.accept
    try:
        await approvals.invoke(verb, id, step.note)
    except ActionFailed as error:
        return error.detail or str(error)
    except (AgentError, TransportError) as error:
        return str(error)
    return None


def _seen(approvals: Iterable[Approval], agent: str) -> str:
    own = [each for each in approvals if each.agent == agent]
    found = [f'"{each.text}" (key "{each.key}", {each.state})' for each in own]
    return f"it has asked {', '.join(found)}" if found else "it has asked nothing"
